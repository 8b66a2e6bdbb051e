//! Listings: the directory's array, slot by slot, without a token.
//!
//! A cookie is the next slot's index, so a small directory's cookies are small. Slots never move,
//! so a name that stays is seen exactly once.

use husk_proto::fs::{Entry, Origin};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, Region};

use crate::Kernel;
use crate::fs::entries;
use crate::state::{ent, high, ino, kind_bits, kind_of, live, low, tag};
use crate::tree;

/// Looks at one slot that keeps changing.
const LOOKS_MAX: u32 = 1 << 16;

struct Seen {
    name: [u8; 255],
    length: usize,
    head: u32,
    target: u32,
}

/// What slot `index` leads to, read consistently; `None` for holes.
fn look(region: &Region, dir: Inode, root: u64, index: u64, seen: &mut Seen) -> Result<bool> {
    for _ in 0..LOOKS_MAX {
        let slot = tree::get(region, root, index);
        let Some(number) = entries::slot_line(slot) else { return Ok(false) };
        let line = region.map.object(LINE, number);
        let head = region.load(line);
        let link = region.load(line.word(ent::LINK));
        if low(head) & 0xff == tag::ENTRY && high(link) == dir.number {
            seen.length = entries::copy_name(region, line, &mut seen.name);
            (seen.head, seen.target) = (low(head), low(link));
            if region.load(line) == head && tree::get(region, root, index) == slot {
                return Ok(true);
            }
        } else if tree::get(region, root, index) == slot && region.load(line) == head {
            // The entry is gone, its slot is about to be cleared.
            return Ok(false);
        }
        core::hint::spin_loop();
    }
    Err(Errno::EIO)
}

fn open(region: &Region, dir: Inode) -> Result<Cell> {
    let cell = live(region, dir)?;
    let ident = region.load(cell.word(ino::IDENT));
    if kind_bits(ident) == ino::DIRECTORY { Ok(cell) } else { Err(Errno::ENOTDIR) }
}

/// Calls `emit(index, seen)` for each entry from slot `from` until it says stop.
fn each(
    region: &Region,
    dir: Inode,
    from: u64,
    emit: &mut dyn FnMut(u64, &Seen) -> Result<bool>,
) -> Result<()> {
    let cell = open(region, dir)?;
    let mut seen = Seen { name: [0; 255], length: 0, head: 0, target: 0 };
    let mut index = from;
    loop {
        let end = low(region.load(cell.word(ino::ARRAY))) as u64;
        let root = region.load(cell.word(ino::ROOT));
        live(region, dir)?;
        if index >= end {
            return Ok(());
        }
        if look(region, dir, root, index, &mut seen)? {
            live(region, dir)?;
            if !emit(index, &seen)? {
                return Ok(());
            }
        }
        index += 1;
    }
}

/// `Fs::list`.
pub fn list(
    kernel: &Kernel,
    dir: Inode,
    cookie: u64,
    emit: &mut dyn FnMut(Entry<'_>) -> bool,
) -> Result<()> {
    let region = &kernel.session.region;
    each(region, dir, cookie, &mut |index, seen| {
        if seen.head & ent::WHITEOUT != 0 {
            return Ok(true);
        }
        let ident = region.load(region.map.object(INODE, seen.target).word(ino::IDENT));
        Ok(emit(Entry {
            name: &seen.name[..seen.length],
            inode: Inode { number: seen.target, generation: high(ident) },
            kind: kind_of(seen.head >> 16 & 0xff),
            next: index + 1,
        }))
    })
}

/// `Fs::whiteouts`.
pub fn whiteouts(
    kernel: &Kernel,
    dir: Inode,
    emit: &mut dyn FnMut(&[u8], Origin) -> Result<()>,
) -> Result<()> {
    each(&kernel.session.region, dir, 0, &mut |_, seen| {
        if seen.head & ent::WHITEOUT != 0 {
            emit(&seen.name[..seen.length], Origin(seen.target))?;
        }
        Ok(true)
    })
}
