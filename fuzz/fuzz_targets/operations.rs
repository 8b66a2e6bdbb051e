//! Operations of the file, descriptor and lock services, decoded from the fuzzer's bytes: on names
//! of all lengths, on inodes that are there and that were, at offsets up to the bounds. None gives
//! up waiting, and the structure stays sound.
#![no_main]

#[path = "../../crates/carrier/tests/support/hostile.rs"]
mod hostile;
#[path = "../../crates/carrier/tests/support/mod.rs"]
mod support;
#[path = "../../crates/carrier/tests/support/world.rs"]
mod world;

use hostile::Bytes;
use husk_carrier::Direct;
use husk_proto::fs::{Change, Credentials, Kind, Node, Place, SetExtended, Time};
use husk_proto::lock::{Locks, Mode, Owner, Range};
use husk_proto::{Descriptors, Errno, Fs, Inode, Processes, Result, Shortcuts};

/// Most operations of one input.
const OPERATIONS_MAX: usize = 200;
/// Numbers of descriptors that are tried.
const FDS: usize = 8;
/// What nobody holds is held by an exhausted wait.
const GIVEN_UP: Result<u64> = Err(Errno::EIO);

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if input.is_empty() {
        return;
    }
    let mut boss = hostile::start_anew();
    let root = boss.mount(0).root;
    let mut me = hostile::direct(&mut boss, support::frozen);
    let mut known = vec![root];
    let mut bytes = Bytes { given: input, seed: 0 };
    for _ in 0..OPERATIONS_MAX {
        if bytes.given.is_empty() {
            break;
        }
        let done = operate(&mut me, &mut bytes, &mut known);
        assert_ne!(done, GIVEN_UP, "a wait was given up");
    }
    me.exit();
    me.detach();
    boss.detach();
    hostile::sound("this input");
});

/// A name: mostly one of a few, now and then an odd one.
fn name(bytes: &mut Bytes) -> Vec<u8> {
    match bytes.below(20) {
        0 => vec![b'l'; bytes.below(258)],
        1 => vec![bytes.below(256) as u8; 1 + bytes.below(3)],
        n => vec![b'a' + (n % 7) as u8],
    }
}

fn number(bytes: &mut Bytes) -> u64 {
    match bytes.below(8) {
        0 => u64::MAX - bytes.below(3) as u64,
        1 => i64::MAX as u64 - bytes.below(4097) as u64,
        2 => 1 << bytes.below(64),
        3 => 4096 * bytes.below(200) as u64,
        _ => bytes.below(20_000) as u64,
    }
}

fn who(bytes: &mut Bytes) -> Credentials<'static> {
    match bytes.below(3) {
        0 => Credentials { uid: 7, gid: 7, groups: &[8], capabilities: 0, within: None },
        _ => support::root_user(),
    }
}

fn node(bytes: &mut Bytes) -> Node<'static> {
    let mode = bytes.below(0o10000) as u32;
    match bytes.below(6) {
        0 | 1 => Node::File(mode),
        2 | 3 => Node::Directory(mode),
        4 => Node::Symlink(&[b't'; 300][..bytes.below(300)]),
        _ => Node::Special { kind: Kind::Fifo, mode, device: 0 },
    }
}

/// One operation on what is known; new inodes get known.
fn operate(me: &mut Direct, bytes: &mut Bytes, known: &mut Vec<Inode>) -> Result<u64> {
    let (one, two) = (bytes.one(known), bytes.one(known));
    match bytes.below(3) {
        0 => on_names(me, bytes, known, [one, two]),
        1 => on_content(me, bytes, one),
        _ => on_descriptors(me, bytes, known, one),
    }
}

fn on_names(
    me: &mut Direct,
    bytes: &mut Bytes,
    known: &mut Vec<Inode>,
    [one, two]: [Inode; 2],
) -> Result<u64> {
    let (who, name) = (who(bytes), name(bytes));
    match bytes.below(9) {
        0 | 1 => me.create(&who, one, &name, node(bytes)).map(|made| known.push(made))?,
        2 => me.link(&who, one, two, &name)?,
        3 => me.unlink(&who, one, &name)?,
        4 => me.rmdir(&who, one, &name)?,
        5 => {
            let other = self::name(bytes);
            me.rename(&who, one, &name, two, &other, bytes.below(4) as u32)?;
        }
        6 => known.push(me.lookup(one, &name)?.inode),
        7 if me.step(one)?.kind == Kind::Directory => {
            me.switch_directory(one, bytes.below(2) == 0)?;
        }
        7 => return Err(Errno::ENOTDIR),
        _ => {
            let mut left = 1 + bytes.below(10);
            me.list(one, number(bytes), &mut |_| {
                left -= 1;
                left > 0
            })?;
        }
    }
    Ok(0)
}

fn on_content(me: &mut Direct, bytes: &mut Bytes, inode: Inode) -> Result<u64> {
    let (at, length) = (number(bytes), number(bytes).min(300_000));
    match bytes.below(9) {
        0 | 1 => {
            let place = if bytes.below(4) == 0 { Place::End } else { Place::At(at) };
            me.write(inode, place, length as usize, &mut |_| Ok(()))?;
        }
        2 => drop(me.read(inode, at, length as usize, &mut |_| Ok(()))?),
        3 => me.truncate(inode, at)?,
        4 => me.allocate(inode, at, number(bytes), bytes.below(2) == 0)?,
        5 => me.punch(inode, at, number(bytes))?,
        6 => drop(me.seek_data(inode, at, bytes.below(2) == 0)?),
        7 => {
            let value = vec![7; bytes.below(256) * 40];
            let value = (bytes.below(4) > 0).then_some(&value[..]);
            me.set_extended(inode, &name(bytes), value, SetExtended::Any)?;
        }
        _ => {
            let time = Some(Time::At(at as i64));
            let mode = (bytes.below(2) == 0).then(|| bytes.below(0o10000) as u32);
            let change = Change { mode, modified: time, ..Change::default() };
            me.change(&who(bytes), inode, change)?;
        }
    }
    Ok(0)
}

fn on_descriptors(
    me: &mut Direct,
    bytes: &mut Bytes,
    known: &mut Vec<Inode>,
    inode: Inode,
) -> Result<u64> {
    let (files, fd, limit) = (me.files(), bytes.below(FDS) as u32, FDS as u32);
    match bytes.below(7) {
        0 => drop(me.open(&who(bytes), files, inode, bytes.below(4) as u32, fd, limit)?),
        1 => {
            let (who, name) = (who(bytes), name(bytes));
            me.create_open(&who, files, inode, &name, 0o644, 2, limit)?;
        }
        2 => drop(me.close(files, fd)?),
        3 => drop(me.duplicate(files, fd, 0, limit, false)?),
        4 => me.duplicate_to(files, fd, bytes.below(FDS) as u32, false, false)?,
        5 => {
            let start = number(bytes);
            let range = Range { start, end: start.saturating_add(number(bytes)) };
            let mode = bytes.one(&[Mode::Shared, Mode::Exclusive, Mode::Unlock]);
            me.lock(Owner::Process, inode, range, mode, false)?;
        }
        _ => {
            let made = me.create_nameless(&who(bytes), inode, 0o600, bytes.below(2) == 0)?;
            known.push(made);
            me.unpin(made);
        }
    }
    Ok(0)
}
