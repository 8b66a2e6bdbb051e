//! Bytes and attributes of a file against its end, which comes in steps.

use std::sync::OnceLock;

use husk_carrier::Direct;
use husk_proto::fs::{Change, Node, SetExtended};
use husk_proto::{Errno, Fs, Inode, Shortcuts as _};

use crate::checker::{Tries, attach, begin, dice, go, holds_and_sees, stop, task, world};
use crate::support::root_user;
use crate::world::findings;

static ROOT: OnceLock<Inode> = OnceLock::new();

/// Bytes of the file that goes, and of the one that gets its blocks.
const OLD: [u8; 8] = *b"the old ";
const NEW: [u8; 8] = *b"the new ";
/// In another leaf of the block map, which takes another step.
const FAR: u64 = 200 << 12;
const NAMES: [&[u8]; 3] = [b"user.a", b"user.b", b"user.c"];

fn root() -> Inode {
    *ROOT.get().expect("set up")
}

fn make(me: &mut Direct, name: &[u8], bytes: &[u8], far: bool) -> Inode {
    let file = me.create(&root_user(), root(), name, Node::File(0o644)).expect("create");
    assert_eq!(me.write_at(file, 0, bytes), Ok(bytes.len()));
    if far {
        assert_eq!(me.write_at(file, FAR, bytes), Ok(bytes.len()));
    }
    file
}

fn describe(me: &mut Direct, file: Inode, value: &[u8]) {
    for name in NAMES {
        me.set_extended(file, name, Some(value), SetExtended::Any).expect("set");
    }
}

/// Slots for three, each with objects in its magazines.
fn set_up() {
    let mut seats = [1, 2, 3].map(attach);
    for seat in &mut seats {
        let file = make(seat, b"x", &OLD, false);
        describe(seat, file, &OLD);
        seat.unlink(&root_user(), root(), b"x").expect("unlink");
    }
    seats.iter_mut().for_each(Direct::detach);
}

/// What a read of one piece, or else any read, gives.
fn read(me: &mut Direct, file: Inode) -> Result<[u8; 8], Errno> {
    let mut bytes = [0; 8];
    if let Some(piece) = me.piece(file, 0, bytes.len()) {
        assert_eq!(piece.span.length, bytes.len());
        // SAFETY: a span of the mapped cache, as long as `bytes`; no other task runs meanwhile.
        unsafe { std::ptr::copy(piece.span.address as *const u8, bytes.as_mut_ptr(), 8) };
        if me.has_read(file, piece) {
            return Ok(bytes);
        }
    }
    let count = me.read_at(file, 0, &mut bytes)?;
    assert_eq!(count, bytes.len(), "it ends too early");
    Ok(bytes)
}

/// One removes a file and makes another, which gets its blocks. Who reads the first gets its bytes,
/// or hears that it is gone.
fn bytes_and_reuse() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let file = make(&mut one, b"f", &OLD, dice(2) == 0);
    go();
    let remover = task(None, move || {
        one.unlink(&root_user(), root(), b"f").expect("unlink");
        make(&mut one, b"n", &NEW, false);
    });
    let reader = task(None, move || {
        for _ in 0..2 {
            match read(&mut two, file) {
                Ok(bytes) => assert_eq!(bytes, OLD, "another file's bytes, or none"),
                Err(error) => assert_eq!(error, Errno::ESTALE),
            }
        }
    });
    remover.join();
    reader.join();
    stop();
    assert_eq!(findings(&three), []);
}

/// The same of attributes: each is there with its value, or the file is gone.
fn attributes_and_reuse() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let file = one.create(&root_user(), root(), b"f", Node::File(0o644)).expect("create");
    describe(&mut one, file, &OLD);
    go();
    let remover = task(None, move || {
        one.unlink(&root_user(), root(), b"f").expect("unlink");
        let other = one.create(&root_user(), root(), b"n", Node::File(0o644)).expect("create");
        describe(&mut one, other, &NEW);
    });
    let reader = task(None, move || {
        let mut value = [0; 8];
        for name in NAMES {
            match two.extended(file, name, &mut value) {
                Ok(length) => assert_eq!((length, value), (8, OLD), "another file's attribute"),
                Err(error) => assert_eq!(error, Errno::ESTALE),
            }
        }
    });
    remover.join();
    reader.join();
    stop();
    assert_eq!(findings(&three), []);
}

/// A change of a file that goes changes that one, or hears that it is gone.
fn changes_and_reuse() {
    begin();
    let [mut one, mut two, three] = [1, 2, 3].map(attach);
    let file = make(&mut one, b"f", &OLD, false);
    go();
    let remover = task(None, move || {
        one.unlink(&root_user(), root(), b"f").expect("unlink");
        let other = one.create(&root_user(), root(), b"n", Node::File(0o604)).expect("create");
        let mode = one.attributes(other).map(|facts| facts.step.mode);
        assert_eq!(mode, Ok(0o604), "changed as what it was before");
    });
    let changer = task(None, move || {
        let changed = [
            two.change(&root_user(), file, Change { mode: Some(0o600), ..Change::default() }),
            two.truncate(file, 3),
            two.write_at(file, 0, &NEW).map(|_| ()),
        ];
        assert!(changed.iter().all(|result| matches!(result, Ok(()) | Err(Errno::ESTALE))));
    });
    remover.join();
    changer.join();
    stop();
    assert_eq!(findings(&three), []);
}

#[test]
fn a_change_beside_the_end_of_a_file_is_none_of_the_next_one() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(3_000), &[48], set_up, changes_and_reuse);
}

#[test]
fn a_reader_beside_the_end_of_a_file_sees_its_bytes_or_that_it_is_gone() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(5_000), &[48], set_up, bytes_and_reuse);
}

#[test]
fn a_reader_beside_the_end_of_a_file_sees_its_attributes_or_that_it_is_gone() {
    let (_world, tree) = world();
    ROOT.get_or_init(|| tree);
    holds_and_sees(Tries(3_000), &[48], set_up, attributes_and_reuse);
}
