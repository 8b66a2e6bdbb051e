//! What threads do is counted, by kernel and type, where others can read it.

#[path = "support/mod.rs"]
mod support;

use husk_carrier::{Counts, Direct, Seat};
use husk_proto::descriptor::Shown;
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::process::Sharing;
use husk_proto::{
    Descriptors, Errno, Fs, Inode, Operation, Overview as _, Processes, Shortcuts as _,
};
use support::{LAYOUT, beside, clock, image, in_child, joined, program, root_user};

/// Counted without a change after this many.
const LOOKS_KEPT: u64 = 4096;

/// What the slots that `wanted` picks have counted.
fn sum(direct: &Direct, wanted: impl Fn(&Seat) -> bool) -> Counts {
    let mut sum = Counts::default();
    direct.each_seat(&mut |seat| {
        if wanted(&seat) {
            for (one, more) in sum.operations.iter_mut().zip(seat.counts.operations) {
                *one += more;
            }
            sum.transactions += seat.counts.transactions;
            sum.waits += seat.counts.waits;
            sum.rollbacks += seat.counts.rollbacks;
            sum.recovered += seat.counts.recovered;
        }
    });
    sum
}

fn of(direct: &Direct, operation: Operation) -> u64 {
    sum(direct, |_| true).operations[operation as usize]
}

fn in_image(body: fn(&mut Direct, &mut Direct, Inode)) {
    in_child(|| {
        let (mut boss, root) = image(LAYOUT, Cover::Memory);
        let mut me = program(&mut boss, clock);
        body(&mut boss, &mut me, root);
        me.exit();
    });
}

#[test]
fn each_type_is_counted_once() {
    in_image(|boss, me, root| {
        let who = root_user();
        let before = sum(boss, |_| true);
        for n in 0..10 {
            let name = [b'a' + n];
            let file = me.create(&who, root, &name, Node::File(0o644)).expect("create");
            me.lookup(root, &name).expect("lookup");
            me.attributes(file).expect("stat");
            me.attributes(file).expect("stat");
            me.unlink(&who, root, &name).expect("unlink");
        }
        let after = sum(boss, |_| true);
        let more = |operation| {
            after.operations[operation as usize] - before.operations[operation as usize]
        };
        assert_eq!(more(Operation::Create), 10);
        assert_eq!(more(Operation::Remove), 10);
        assert_eq!(more(Operation::Walk), 10);
        assert_eq!(more(Operation::Stat), 20);
        assert_eq!(more(Operation::Rename), 0);
        assert!(after.transactions - before.transactions >= 20);
        assert_eq!(after.rollbacks, before.rollbacks);
    });
}

/// And who is not, or whose table another process has, does not.
#[test]
fn who_is_alone_notes_a_number_of_the_host_without_a_transaction() {
    in_image(|boss, me, _| {
        let files = me.files();
        assert!(!me.try_host_opened(20, false), "others may act for the process");
        assert_eq!(me.host_opened(files, 19, false, Shown::Nothing), Ok(true));
        me.set_alone(true);
        let before = sum(boss, |_| true).transactions;
        assert!(me.try_host_opened(20, true) && !me.try_host_opened(20, true));
        assert_eq!(me.close_on_exec(files, 20), Ok(true));
        assert_eq!(me.lowest_free(files, 19, 64), Ok(21));
        assert!(me.try_host_closed(20) && !me.try_host_closed(20));
        assert_eq!(me.lowest_free(files, 19, 64), Ok(20));
        assert_eq!(sum(boss, |_| true).transactions, before);
        let child = me.prepare_fork(Sharing { files: true, context: false }).expect("fork");
        assert!(!me.try_host_opened(20, false), "the child has the table, too");
        me.cancel_fork(child);
        assert!(me.try_host_opened(20, false));
    });
}

#[test]
fn a_transaction_that_fails_half_way_is_a_rollback() {
    in_image(|boss, me, root| {
        let who = root_user();
        me.create(&who, root, b"d", Node::Directory(0o755)).expect("mkdir");
        let before = sum(boss, |_| true).rollbacks;
        me.create(&who, root, b"d", Node::Directory(0o755)).expect_err("it is there");
        assert_eq!(sum(boss, |_| true).rollbacks, before + 1);
    });
}

#[test]
fn looks_without_a_change_are_seen_now_and_then() {
    in_image(|boss, me, root| {
        let before = of(boss, Operation::Stat);
        for _ in 0..LOOKS_KEPT - 1 {
            me.attributes(root).expect("stat");
        }
        assert_eq!(of(boss, Operation::Stat), before, "a look stores nothing");
        me.attributes(root).expect("stat");
        assert_eq!(of(boss, Operation::Stat), before + LOOKS_KEPT);
    });
}

#[test]
fn who_leaves_its_slot_leaves_its_counts_and_the_next_counts_on() {
    in_image(|boss, me, root| {
        me.set_umask(0);
        let before = of(boss, Operation::Stat);
        for _ in 0..3 {
            let mut other = Direct::attach(clock, me.current(), std::process::id(), support::tid())
                .expect("in");
            other.create(&root_user(), root, b"x", Node::File(0o644)).expect("create");
            other.attributes(root).expect("stat");
            other.unlink(&root_user(), root, b"x").expect("unlink");
            other.attributes(root).expect("stat");
            other.detach();
        }
        assert_eq!(of(boss, Operation::Stat), before + 6);
        assert_eq!(of(boss, Operation::Create), 3);
    });
}

/// What is closed goes round through the pools: there it is linked to each number in turn.
#[test]
fn what_is_closed_is_no_open_description_whatever_it_is_linked_to() {
    in_image(|boss, me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        let round = |opener: &mut Direct| {
            let open = |_| opener.open(&who, files, file, 0, 0, 1024).expect("open");
            let numbers: Vec<u32> = (0..200).map(open).collect();
            assert_eq!(opener.open_descriptions(), 200);
            for number in numbers {
                opener.close(files, number).expect("close");
                assert!(opener.open_descriptions() < 200);
            }
            assert_eq!(opener.open_descriptions(), 0);
        };
        // The lowest numbers are with who came first.
        round(boss);
        round(me);
    });
}

#[test]
fn what_could_not_be_opened_is_no_open_description() {
    in_image(|boss, me, root| {
        let (who, files) = (root_user(), me.files());
        let file = me.create(&who, root, b"f", Node::File(0o644)).expect("create");
        let mut link = |n| me.link(&who, file, root, format!("{n:0>200}").as_bytes()).err();
        let why = (0..).find_map(&mut link).expect("an end");
        assert_eq!(why, Errno::ENOSPC);
        assert_eq!(me.open(&who, files, file, 0, 3, 64), Ok(3));
        // There is no room for the leaf of numbers from 512 on.
        assert_eq!(me.open(&who, files, file, 0, 512, 1024), Err(Errno::ENFILE));
        assert_eq!(boss.open_descriptions(), 1);
    });
}

/// What the parent has looked at so far is not the child's.
#[test]
fn a_child_counts_its_own() {
    in_image(|boss, me, root| {
        me.attributes(root).expect("stat");
        let child = me.prepare_fork(Sharing::default()).expect("embryo");
        let before = of(boss, Operation::Stat);
        for _ in 0..5 {
            me.attributes(root).expect("stat");
        }
        let pid = support::fork(|| {
            me.enter_child(child, std::process::id());
            me.attributes(root).expect("stat");
            me.exit();
        });
        assert_eq!(support::wait(pid), 0);
        assert_eq!(of(boss, Operation::Stat), before + 1);
        assert_eq!(of(boss, Operation::Exit), 1);
    });
}

/// Two that change names in one directory: who has to wait for the other, is counted as waiting,
/// and each for the kernel of its slot.
#[test]
fn waits_are_counted_for_the_kernel_that_waited() {
    in_image(|boss, me, root| {
        me.create(&root_user(), root, b"first", Node::File(0o644)).expect("create");
        let (process, kernels) = (me.current(), boss.kernels());
        let race = move |racer: &mut Direct| {
            for _ in 0..50_000 {
                racer.create(&root_user(), root, b"n", Node::File(0o644)).ok();
                racer.unlink(&root_user(), root, b"n").ok();
            }
            racer.detach();
        };
        let both = [beside(process, race), beside(process, race)];
        both.into_iter().for_each(|one| joined("a racer", one));
        let by_kernel: Vec<Counts> =
            (0..kernels).map(|kernel| sum(boss, |seat| seat.kernel == kernel)).collect();
        let creates = by_kernel.iter().filter(|it| it.operations[Operation::Create as usize] > 0);
        assert!(creates.count() == 2, "slots that follow each other are of both kernels");
        assert!(by_kernel.iter().map(|it| it.waits).sum::<u64>() > 0, "nobody waited");
    });
}
