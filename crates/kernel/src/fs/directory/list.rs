//! Listings: the directory's arrays, one after the other, slot by slot, without a token.
//!
//! A cookie is the place to go on at: index * 128 + array, which fits 31 bits for those who keep
//! 32-bit offsets. Slots never move, nor does an array go away while the directory is there (it
//! widens and narrows under a listing), so a name that stays is seen exactly once.

use husk_proto::fs::{Entry, Origin};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, Region};

use crate::Kernel;
use crate::fs::directory::{entries, share};
use crate::fs::overlay;
use crate::image;
use crate::state::name;
use crate::state::tree;
use crate::state::{ent, high, ino, kind_bits, kind_of, live, low, tag};

/// Arrays that a cookie has room for: the inode's and each part's.
const ARRAYS: u64 = 128;
const _: () = assert!(share::PARTS_MAX as u64 + 1 < ARRAYS);
/// Looks at one slot that keeps changing.
const LOOKS_MAX: u32 = 1 << 16;

struct Seen {
    name: [u8; 255],
    length: usize,
    head: u32,
    target: u32,
}

/// The leaf that a listing is in: looked up once for all its slots, as it never moves.
struct Leaf {
    array: u64,
    base: u64,
    slots: Option<Cell>,
}

impl Leaf {
    const NONE: Leaf = Leaf { array: ARRAYS, base: 0, slots: None };

    /// The slot at `index` of `array`, whose tree is at `root`; `None` where there is none.
    #[inline(always)]
    fn slot(&mut self, region: &Region, root: u64, array: u64, index: u64) -> Option<Cell> {
        let base = index - index % tree::WAYS as u64;
        if (self.array, self.base) != (array, base) || self.slots.is_none() {
            let found = tree::next_leaf(region, root, base).filter(|&(_, at)| at == base);
            let slots = found.map(|(node, _)| tree::entry(region, node, 0, 0));
            *self = Leaf { array, base, slots };
        }
        self.slots.map(|slots| slots.word((index - base) as u32))
    }
}

/// What a slot leads to, read consistently; false for holes.
#[inline]
fn look(region: &Region, dir: Inode, cell: Cell, seen: &mut Seen) -> Result<bool> {
    for _ in 0..LOOKS_MAX {
        let slot = region.load(cell);
        let Some(number) = entries::slot_line(slot) else { return Ok(false) };
        let line = region.map.object(LINE, number);
        let head = region.load(line);
        let link = region.load(line.word(ent::LINK));
        if low(head) & 0xff == tag::ENTRY && high(link) == dir.number {
            seen.length = name::copy_name(region, line, &mut seen.name);
            (seen.head, seen.target) = (low(head), low(link));
            if region.load(line) == head && region.load(cell) == slot {
                return Ok(true);
            }
        } else if region.load(cell) == slot && region.load(line) == head {
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

/// Calls `emit(cookie behind it, seen)` for each entry from cookie `from` until it says stop.
fn each(
    region: &Region,
    dir: Inode,
    from: u64,
    emit: &mut dyn FnMut(u64, &Seen) -> Result<bool>,
) -> Result<()> {
    let cell = open(region, dir)?;
    let mut seen = Seen { name: [0; 255], length: 0, head: 0, target: 0 };
    let (mut array, mut index) = (from % ARRAYS, from / ARRAYS);
    let mut leaf = Leaf::NONE;
    while array <= share::PARTS_MAX as u64 {
        let found = share::array(region, cell, array as u32);
        live(region, dir)?;
        let (root, end) = found.map_or((0, 0), |(root, array)| (root, low(array) as u64));
        if index >= end {
            (array, index) = (array + 1, 0);
            continue;
        }
        let slot = leaf.slot(region, root, array, index);
        if let Some(slot) = slot
            && look(region, dir, slot, &mut seen)?
        {
            live(region, dir)?;
            if !emit((index + 1) * ARRAYS + array, &seen)? {
                return Ok(());
            }
        }
        index += 1;
    }
    Ok(())
}

/// `Fs::list`, and `Fs::list_numbers` without `generations`.
pub fn list(
    kernel: &Kernel,
    dir: Inode,
    cookie: u64,
    generations: bool,
    emit: &mut dyn FnMut(Entry<'_>) -> bool,
) -> Result<()> {
    let region = &kernel.session.region;
    let flags = low(region.load(open(region, dir)?.word(ino::IDENT)));
    let own_numbers = image::shown_in(region, flags).own_numbers;
    each(region, dir, cookie, &mut |next, seen| {
        if seen.head & ent::WHITEOUT != 0 {
            return Ok(true);
        }
        let generation = if generations { generation_of(region, seen.target) } else { 0 };
        let shown_number = match seen.head & ent::NUMBERED {
            0 => own_numbers | u64::from(seen.target),
            _ => number_of(region, seen.target, own_numbers),
        };
        Ok(emit(Entry {
            name: &seen.name[..seen.length],
            inode: Inode { number: seen.target, generation },
            shown_number,
            kind: kind_of(seen.head >> 16 & 0xff),
            from_host: seen.head & ent::FROM_HOST != 0,
            next,
        }))
    })
}

fn generation_of(region: &Region, number: u32) -> u32 {
    high(region.load(region.map.object(INODE, number).word(ino::IDENT)))
}

fn number_of(region: &Region, number: u32, own_numbers: u64) -> u64 {
    let origin = low(region.load(region.map.object(INODE, number).word(ino::ORIGIN)));
    overlay::shown(region, number, origin, own_numbers).0
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
