//! Threads that die at any access, and who cleans up after them.

use std::sync::OnceLock;

use husk_carrier::Direct;
use husk_proto::fs::Node;
use husk_proto::{Admin as _, Errno, Fs, Inode};

use crate::checker::{
    Tries, attach, begin, deaths, dice, go, holds_and_sees, pid_of, stop, task, world,
};
use crate::support::root_user;
use crate::world::findings;

static ROOT: OnceLock<Inode> = OnceLock::new();
/// Accesses of an operation, about: a death comes within so many.
const ACCESSES: u64 = 500;

fn root() -> Inode {
    *ROOT.get().expect("set up")
}

/// Slots for three with objects in their magazines, and two files in a directory "d".
fn set_up(wide: bool) {
    let mut seats = [1, 2, 3].map(attach);
    let dir = seats[0].create(&root_user(), root(), b"d", Node::Directory(0o755)).expect("mkdir");
    if wide {
        seats[0].switch_directory(dir, true).expect("wide");
    }
    for seat in &mut seats {
        for name in [b"x", b"y"] {
            seat.create(&root_user(), dir, name, Node::File(0o644)).expect("create");
            seat.unlink(&root_user(), dir, name).expect("unlink");
        }
    }
    seats[2].create(&root_user(), dir, b"a", Node::File(0o644)).expect("create");
    seats[2].create(&root_user(), dir, b"b", Node::File(0o600)).expect("create");
    seats.iter_mut().for_each(Direct::detach);
}

fn exists(me: &mut Direct, dir: Inode, name: &[u8]) -> bool {
    match me.lookup(dir, name) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Errno::ENOENT);
            false
        }
    }
}

/// Two rename, make and remove; both may die; a third only looks, and cleans up in the end.
fn operations_and_deaths() {
    begin();
    let [mut one, mut two, mut third] = [1, 2, 3].map(attach);
    let dir = third.lookup(root(), b"d").expect("d").inode;
    let lives = [1 + dice(ACCESSES), 1 + dice(2 * ACCESSES)];
    go();
    let who = root_user;
    let first = task(Some((1, lives[0])), move || {
        one.rename(&root_user(), dir, b"a", dir, b"b", 0).expect("rename");
        let file = one.lookup(dir, b"b").expect("b").inode;
        one.link(&root_user(), file, dir, b"c").expect("link");
    });
    let second = task(Some((2, lives[1])), move || {
        two.create(&who(), dir, b"n", Node::File(0o644)).expect("create");
        let _ = two.unlink(&who(), dir, b"c");
        let _ = two.unlink(&who(), dir, b"n");
    });
    // "b" is replaced in one step, so it is always there.
    for _ in 0..3 {
        assert!(exists(&mut third, dir, b"b"), "a replaced name is gone");
    }
    first.join();
    second.join();
    stop();
    third.scan_dead().expect("recovered");
    let found = findings(&third);
    assert!(found.is_empty(), "{found:?}");
    assert!(exists(&mut third, dir, b"b"), "a replaced name is gone");
    clear(&mut third, dir);
}

/// What is left can be removed.
fn clear(me: &mut Direct, dir: Inode) {
    for name in [b"a", b"b", b"c", b"n"] {
        let gone = me.unlink(&root_user(), dir, name);
        assert!(gone.is_ok() || gone == Err(Errno::ENOENT), "{gone:?}");
    }
    me.rmdir(&root_user(), root(), b"d").expect("rmdir");
}

#[test]
fn whoever_dies_leaves_all_or_nothing_to_those_who_go_on() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    let before = deaths();
    holds_and_sees(Tries(1_500), &[2, 3, 4, 5], || set_up(false), operations_and_deaths);
    assert!(deaths() - before > 500, "hardly anybody died");
}

#[test]
fn whoever_dies_in_a_wide_directory_leaves_all_or_nothing() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(1_500), &[3], || set_up(true), operations_and_deaths);
}

/// A process with a table of open files has died; two clean up after it while a third begins.
fn burial() {
    begin();
    let mut third = attach(3);
    let pid = pid_of(9);
    third.first_process(pid, &[0, 1, 2]).expect("a record");
    let (mut one, mut two) = (attach(1), attach(2));
    let life = 1 + dice(2 * ACCESSES);
    go();
    let first = task(Some((1, life)), move || one.reap(pid).expect("reaped"));
    let second = task(None, move || {
        two.reap(pid).expect("reaped");
        two
    });
    // Another one begins, with whatever was the dead one's.
    let newcomer = task(None, move || {
        let mut me = third;
        let pid = pid_of(10);
        let process = me.first_process(pid, &[0, 1]).expect("a record");
        (me, process)
    });
    first.join();
    let mut second = second.join().expect("nobody kills it");
    let (third, _) = newcomer.join().expect("nobody kills it");
    stop();
    second.scan_dead().expect("recovered");
    let found = findings(&third);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn two_who_bury_the_same_dead_take_nothing_from_the_living() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(1_000), &[46], || (), burial);
}

/// One dies; two find it at the same time, and each begins anew, perhaps in the dead one's slot.
fn recovery_and_reuse() {
    begin();
    let [mut one, mut two, third] = [1, 2, 3].map(attach);
    let life = 1 + dice(ACCESSES / 4);
    let dir = two.lookup(root(), b"d").expect("d").inode;
    go();
    let first = task(Some((1, life)), move || {
        one.create(&root_user(), dir, b"n", Node::File(0o644)).expect("create");
    });
    let finders = [(two, 4, b"p"), (third, 5, b"q")].map(|(finder, who, name)| {
        task(None, move || {
            finder.kernel().session.recover_dead().expect("recovered");
            let mut me = attach(who);
            me.create(&root_user(), dir, name, Node::File(0o644)).expect("create");
            me.unlink(&root_user(), dir, name).expect("unlink");
            finder
        })
    });
    first.join();
    let [second, _third] = finders.map(|finder| finder.join().expect("nobody kills it"));
    stop();
    second.kernel().session.recover_dead().expect("recovered");
    let found = findings(&second);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_dead_slot_is_settled_once() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(1_500), &[47], || set_up(false), recovery_and_reuse);
}
