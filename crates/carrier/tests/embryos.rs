//! Records of children that do not run yet, when who makes them dies: by what the host has said.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use husk_carrier::{Direct, Layout};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::process::Sharing;
use husk_proto::{Admin as _, Errno, Fs, Inode, Overview as _, Process, Processes};
use support::{enter, fork, formatted, frozen, in_child, map, root_user, tid, wait};
use world::findings;

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 64 << 20 };
/// More than an untold embryo is kept.
const LATER_NS: i64 = 11_000_000_000;

fn later() -> i64 {
    frozen() + LATER_NS
}

/// An image in which a process has died that had a file without a name pinned for itself and for
/// a child whose record it had made; `before_death` sees that record. What is asserted then sees
/// the supervisor, the file, and the process that died.
fn in_image(before_death: fn(&mut Direct, Process), check: fn(&mut Direct, Inode, u32)) {
    in_child(|| {
        map(LAYOUT);
        let rule = husk_carrier::Directories::default();
        let (mut boss, root) = formatted(LAYOUT, frozen, Cover::Memory, rule);
        let file = boss.create(&root_user(), root, b"f", Node::File(0o644)).expect("create");
        let creator = fork(|| {
            let mut me = enter();
            let child = me.prepare_fork(Sharing::default()).expect("an embryo");
            me.pin_for(child, file, 1, false).expect("pinned");
            me.unlink(&root_user(), root, b"f").expect("unlink");
            before_death(&mut me, child);
        });
        assert_eq!(wait(creator), 0);
        assert!(boss.step(file).is_ok(), "the embryo has it");
        check(&mut boss, file, creator as u32);
        assert_eq!(boss.step(file).err(), Some(Errno::ESTALE));
        assert_eq!(findings(&boss), []);
    });
}

/// What the host does in a clone.
fn tell(me: &Direct, child: Process, pid: u32) {
    // SAFETY: 32 bits of the mapped arena that are the host's to write.
    unsafe { (me.child_told_at(child) as *mut u32).write_volatile(pid) };
}

#[test]
fn an_embryo_whose_child_the_host_has_not_made_goes_with_its_creator() {
    in_image(
        |_, _| {},
        |boss, _, creator| {
            assert_eq!(boss.reap(creator), Ok(2), "the creator's record and the embryo");
        },
    );
}

#[test]
fn an_embryo_whose_child_the_host_has_made_is_that_process() {
    in_image(
        // A process of this test that lives until it is all over.
        |me, child| tell(me, child, std::os::unix::process::parent_id()),
        |boss, file, creator| {
            boss.reap(creator).expect("reaped");
            assert!(boss.step(file).is_ok(), "it is the child's");
            let mut pids = Vec::new();
            boss.each_pid(&mut |pid| pids.push(pid));
            assert_eq!(pids, [std::process::id()]);
            boss.scan_dead().expect("scanned");
            assert!(boss.step(file).is_ok(), "the child lives");
            assert_eq!(boss.reap(std::process::id()), Ok(1));
        },
    );
}

#[test]
fn an_embryo_whose_child_has_ended_before_it_ran_goes_with_that_child() {
    in_image(
        |me, child| tell(me, child, u32::MAX >> 1),
        |boss, _, _| assert_eq!(boss.reap(u32::MAX >> 1), Ok(1)),
    );
}

#[test]
fn an_embryo_of_which_the_host_says_nothing_is_kept_for_a_while() {
    in_image(
        |me, child| me.child_untold(child),
        |boss, file, creator| {
            boss.reap(creator).expect("reaped");
            boss.scan_dead().expect("scanned");
            assert!(boss.step(file).is_ok(), "a child may come");
            let mut late =
                Direct::attach(later, Process(0), std::process::id(), tid()).expect("attached");
            assert_eq!(late.scan_dead(), Ok(1));
            late.detach();
        },
    );
}

#[test]
fn an_embryo_is_kept_while_its_creator_lives_however_long() {
    in_child(|| {
        map(LAYOUT);
        let rule = husk_carrier::Directories::default();
        let (boss, root) = formatted(LAYOUT, later, Cover::Memory, rule);
        let mut boss = boss;
        let file = boss.create(&root_user(), root, b"f", Node::File(0o644)).expect("create");
        let mut me = enter();
        let child = me.prepare_fork(Sharing::default()).expect("an embryo");
        me.pin_for(child, file, 1, false).expect("pinned");
        me.unlink(&root_user(), root, b"f").expect("unlink");
        boss.scan_dead().expect("scanned");
        assert!(boss.step(file).is_ok(), "its creator is this very process");
        // Its record is gone, and it still makes that child.
        me.exit();
        boss.scan_dead().expect("scanned");
        assert!(boss.step(file).is_ok(), "its creator is this very process");
    });
}
