//! What threads do is counted, by kernel and type, where others can read it.

#[path = "support/mod.rs"]
mod support;

use husk_carrier::{Counts, Direct, Seat};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::process::Sharing;
use husk_proto::{Fs, Inode, Operation, Processes};
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
