//! Wide directories against their removal, and names against those who look them up.

use std::sync::OnceLock;

use husk_carrier::Direct;
use husk_proto::fs::Node;
use husk_proto::{Errno, Fs, Inode};

use crate::checker::{Tries, attach, begin, dice, go, holds_and_sees, stop, task, world};
use crate::support::root_user;
use crate::world::findings;

static ROOT: OnceLock<Inode> = OnceLock::new();

fn root() -> Inode {
    *ROOT.get().expect("set up")
}

fn touch(me: &mut Direct, dir: Inode, name: &[u8]) -> Result<Inode, Errno> {
    me.create(&root_user(), dir, name, Node::File(0o644))
}

fn mkdir(me: &mut Direct, name: &[u8]) -> Inode {
    me.create(&root_user(), root(), name, Node::Directory(0o755)).expect("mkdir")
}

/// Slots for three, each with objects in its magazines and a part of the wide directory "d".
fn set_up() {
    let mut seats = [1, 2, 3].map(attach);
    let dir = mkdir(&mut seats[0], b"d");
    seats[0].switch_directory(dir, true).expect("wide");
    for seat in &mut seats {
        touch(seat, dir, b"x").expect("create");
        seat.unlink(&root_user(), dir, b"x").expect("unlink");
    }
    seats.iter_mut().for_each(Direct::detach);
}

/// Whoever was told that a name is made finds it.
fn make(me: &mut Direct, dir: Inode, name: &[u8]) {
    match touch(me, dir, name) {
        Ok(_) => {
            let gone = me.unlink(&root_user(), dir, name);
            assert_eq!(gone, Ok(()), "a name is gone with its directory");
        }
        Err(error) => {
            assert!([Errno::ENOENT, Errno::ESTALE].contains(&error), "create: {error:?}");
        }
    }
}

/// Removes "d" and makes another, which gets its number.
fn remove(me: &mut Direct) {
    match me.rmdir(&root_user(), root(), b"d") {
        Ok(()) => {
            mkdir(me, b"d");
        }
        Err(error) => assert_eq!(error, Errno::ENOTEMPTY),
    }
}

/// The structure is looked at after some executions: that takes longer than they do.
fn sound(seat: Direct) {
    stop();
    if dice(8) != 0 {
        return;
    }
    let found = findings(&seat);
    assert!(found.is_empty(), "{found:?}");
}

/// One removes the directory, one makes names in it, one of its own part or of none.
fn removal() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let dir = one.lookup(root(), b"d").expect("d").inode;
    go();
    let maker = task(None, move || make(&mut one, dir, b"f"));
    let remover = task(None, move || remove(&mut two));
    maker.join();
    remover.join();
    sound(three);
}

/// The same, of a directory that is narrowed just before.
fn removal_and_switch() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let dir = one.lookup(root(), b"d").expect("d").inode;
    go();
    let maker = task(None, move || make(&mut one, dir, b"f"));
    let remover = task(None, move || {
        let _ = two.switch_directory(dir, false);
        remove(&mut two);
    });
    maker.join();
    remover.join();
    sound(three);
}

#[test]
fn no_name_is_made_in_a_wide_directory_that_is_removed() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(10_000), &[31, 32, 33], set_up, removal);
}

#[test]
fn switches_between_modes_lose_no_name() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(5_000), &[34, 35], set_up, removal_and_switch);
}

/// The same, of a narrow one that is widened just before names are made in it.
fn removal_and_widening() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let dir = one.lookup(root(), b"d").expect("d").inode;
    one.switch_directory(dir, false).expect("narrow");
    go();
    let maker = task(None, move || {
        let _ = one.switch_directory(dir, true);
        make(&mut one, dir, b"f");
    });
    let remover = task(None, move || remove(&mut two));
    maker.join();
    remover.join();
    sound(three);
}

#[test]
fn a_directory_that_widens_while_it_is_removed_loses_no_name() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(6_000), &[36], set_up, removal_and_widening);
}

/// Two files in a directory: "a" and "b", which differ in their modes.
fn set_up_files() {
    let mut seats = [1, 2, 3].map(attach);
    let dir = mkdir(&mut seats[0], b"d");
    for (name, mode) in [(b"a", 0o644), (b"b", 0o600)] {
        seats[0].create(&root_user(), dir, name, Node::File(mode)).expect("create");
    }
    touch(&mut seats[1], dir, b"x").expect("create");
    seats[1].unlink(&root_user(), dir, b"x").expect("unlink");
    seats.iter_mut().for_each(Direct::detach);
}

/// One replaces "b" and makes another file, which gets the number of what "b" was. Who looks sees
/// one "b" or the other, and through what it found, that one or nothing.
fn replacement_and_reuse() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let dir = one.lookup(root(), b"d").expect("d").inode;
    go();
    let writer = task(None, move || {
        one.rename(&root_user(), dir, b"a", dir, b"b", 0).expect("rename");
        one.create(&root_user(), dir, b"n", Node::File(0o604)).expect("create");
    });
    let reader = task(None, move || {
        for _ in 0..2 {
            let step = two.lookup(dir, b"b").expect("a replaced name is gone");
            assert!([0o644, 0o600].contains(&step.mode), "mode {:o}", step.mode);
            match two.attributes(step.inode) {
                Ok(facts) => assert_eq!(facts.step.mode, step.mode, "another file's facts"),
                Err(error) => assert_eq!(error, Errno::ESTALE),
            }
        }
    });
    writer.join();
    reader.join();
    sound(three);
}

#[test]
fn a_reader_of_a_replaced_name_sees_one_file_or_the_other() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(5_000), &[41, 43], set_up_files, replacement_and_reuse);
}

/// Parts of "d" that add up only together: one has made a directory there, another has removed it.
fn shared_sums() {
    set_up();
    let mut seats = [1, 2].map(attach);
    let dir = seats[0].lookup(root(), b"d").expect("d").inode;
    let made = seats[0].create(&root_user(), dir, b"s", Node::Directory(0o755));
    made.expect("mkdir");
    seats[1].rmdir(&root_user(), dir, b"s").expect("rmdir");
    seats.iter_mut().for_each(Direct::detach);
}

/// One removes the directory, whose parts go in steps. Who looks at it sees the sum of all, or that
/// it is gone.
fn removal_and_looks() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let dir = one.lookup(root(), b"d").expect("d").inode;
    go();
    let remover = task(None, move || remove(&mut one));
    let onlooker = task(None, move || {
        for _ in 0..2 {
            match two.attributes(dir) {
                Ok(facts) => assert_eq!(facts.links, 2, "some parts are missing"),
                Err(error) => assert_eq!(error, Errno::ESTALE),
            }
        }
    });
    remover.join();
    onlooker.join();
    sound(three);
}

#[test]
fn a_look_at_a_wide_directory_beside_its_removal_sees_all_of_it_or_that_it_is_gone() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(5_000), &[48], shared_sums, removal_and_looks);
}
