//! Names in directories: the bucket chains and the directory's array.
//!
//! ```text
//!   bucket[hash(dir, name)] = [ lock | head ] -> entry -> entry ...    (one table for all)
//!   arrays of a directory (trees of words): slot -> entry | hole -> next hole   (for listings)
//!   name of a slot: its leaf node * 64 + way      (leaves live as long as their directory)
//! ```
//!
//! 1. The place of an entry does not depend on which token guards it.
//! 2. An entry keeps its slot for life; a rename within the directory hands the slot on.
//! 3. What a listing must not see undone (a cleared slot, a changed head) is written at commit.
//! 4. A slot with an entry is guarded by that entry's bucket, a hole by the token of the record in
//!    whose list it stands; whose array the slot is in makes no difference.
//! 5. An entry that came from the host is never unlinked: it becomes a whiteout in place, and that
//!    stays until the host's object of that name is taken in (`drop_whiteouts`).

use husk_proto::{Errno, Result};
use husk_region::{Cell, INODE, LINE, NODE, RETRY, Region, Txn};

pub use crate::fs::directory::share::{Open, open_directory};
use crate::fs::directory::{share, switch};
use crate::state::name::INLINE;
use crate::state::text::{self, word_at};
use crate::state::tree;
use crate::state::{ent, high, ino, low, pair, tag};

/// A slot that leads to an entry.
const LIVE: u64 = 1 << 32;
/// A slot that is a hole; the low half is the next hole's name, 0 for none.
const HOLE: u64 = 1 << 63;
/// Slots of one array, so that a place in a listing fits 31 bits (`list`).
const SLOTS_MAX: u32 = (1 << 24) - 64;
/// Entries in one chain before the walk is taken for a stale one.
const CHAIN_MAX: u32 = 1 << 16;

/// A name in a directory, hashed.
#[derive(Debug)]
pub struct Key<'a> {
    /// The directory's number.
    pub dir: u32,
    /// The name.
    pub name: &'a [u8],
    /// Its hash with the directory.
    pub hash: u32,
    words: [u64; 4],
}

impl<'a> Key<'a> {
    /// Checks the name and hashes it. Most names are one word.
    #[inline]
    pub fn new(dir: u32, name: &'a [u8]) -> Result<Key<'a>> {
        const DOT: u64 = b'.' as u64;
        const DOTS: u64 = DOT | DOT << 8;
        let words = [word_at(name, 0), 0, 0, 0];
        if name.is_empty() || words[0] == DOT || words[0] == DOTS {
            return Err(Errno::EINVAL);
        }
        let start = mix(dir as u64 ^ (name.len() as u64) << 32, 0);
        let mut key = Key { dir, name, hash: 0, words };
        let mut hash = mix(start, words[0]);
        if name.len() > 8 {
            hash = key.more(hash)?;
        }
        key.hash = (hash >> 32) as u32;
        Ok(key)
    }

    /// The words behind the first.
    fn more(&mut self, mut hash: u64) -> Result<u64> {
        if self.name.len() > husk_abi::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        for n in 1..self.name.len().div_ceil(8) {
            let word = word_at(self.name, 8 * n);
            hash = mix(hash, word);
            if let Some(kept) = self.words.get_mut(n) {
                *kept = word;
            }
        }
        Ok(hash)
    }

    /// The bucket: its lock word; the head follows.
    #[inline]
    pub fn bucket(&self, region: &Region) -> Cell {
        region.map.bucket(self.hash)
    }

    #[inline]
    fn matches(&self, region: &Region, line: Cell) -> bool {
        let length = self.name.len();
        let head = low(region.load(line));
        if head & 0xffff != tag::ENTRY | (length as u32) << 8 || head & ent::WHITEOUT != 0 {
            return false;
        }
        self.has_name(region, line)
    }

    /// The same of what may be a whiteout.
    fn names_whiteout(&self, region: &Region, line: Cell) -> bool {
        let head = low(region.load(line));
        let here = head & 0xffff == tag::ENTRY | (self.name.len() as u32) << 8;
        here && head & ent::WHITEOUT != 0 && self.has_name(region, line)
    }

    /// Directory and name of an entry whose name is as long.
    #[inline(always)]
    fn has_name(&self, region: &Region, line: Cell) -> bool {
        let length = self.name.len();
        if high(region.load(line.word(ent::LINK))) != self.dir {
            return false;
        }
        if region.load(line.word(ent::NAME)) != self.words[0] {
            return false;
        }
        length <= 8 || self.matches_behind(region, line)
    }

    /// The words behind the first.
    fn matches_behind(&self, region: &Region, line: Cell) -> bool {
        let words = self.name.len().div_ceil(8).min(4);
        for n in 1..words {
            if region.load(line.word(ent::NAME + n as u32)) != self.words[n] {
                return false;
            }
        }
        self.name.len() <= INLINE
            || text::equals(region, low(region.load(line.word(ent::PLACE))), &self.name[INLINE..])
    }
}

/// One step of the hash.
#[inline(always)]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(husk_abi::SPREAD)
}

/// Finds an entry; the caller holds the bucket or checks its sequence. A whiteout is no entry.
#[inline]
pub fn find(region: &Region, key: &Key<'_>) -> Option<u32> {
    find_by(region, key, |line| key.matches(region, line))
}

#[inline(always)]
fn find_by(region: &Region, key: &Key<'_>, matches: impl Fn(Cell) -> bool) -> Option<u32> {
    let mut line = low(region.load(key.bucket(region).word(1)));
    for _ in 0..CHAIN_MAX {
        if line == 0 {
            return None;
        }
        let cell = region.map.object(LINE, line);
        let next = region.load(cell.word(ent::NEXT));
        if high(next) == key.hash && matches(cell) {
            return Some(line);
        }
        line = low(next);
    }
    None
}

/// Sets a time unless it is that already (the clock is coarse).
#[inline]
pub fn touch(txn: &mut Txn<'_>, cell: Cell, now_ns: i64) {
    if txn.get(cell) != now_ns as u64 {
        txn.set(cell, now_ns as u64);
    }
}

/// Notes a change of a directory's names: its entry count, subdirectories and times.
#[inline]
pub fn changed(txn: &mut Txn<'_>, dir: &Open, entries: i64, subdirectories: i32, now_ns: i64) {
    count(txn, dir, entries, subdirectories);
    touch(txn, dir.record.word(ino::MTIME), now_ns);
    touch(txn, dir.record.word(ino::CTIME), now_ns);
}

/// The same without the times.
#[inline]
pub fn count(txn: &mut Txn<'_>, dir: &Open, entries: i64, subdirectories: i32) {
    for (word, more) in [(ino::SIZE, entries), (ino::LINKS, subdirectories as i64)] {
        if more != 0 {
            let count = txn.get(dir.record.word(word));
            txn.set(dir.record.word(word), count.wrapping_add_signed(more));
        }
    }
}

/// The slot of any directory's array with this name (leaf node and way).
#[inline]
pub fn slot(region: &Region, name: u32) -> Cell {
    tree::entry(region, name / tree::WAYS, (name % tree::WAYS) as u64, 0)
}

/// A slot of a directory's array for `line`: one of the record's holes, or a new one.
fn take_slot(txn: &mut Txn<'_>, dir: &Open, line: u32) -> Result<u32> {
    let array = txn.get(dir.array);
    let hole = high(array);
    if hole != 0 {
        let cell = slot(txn.region, hole);
        let next = low(txn.get(cell));
        txn.set(dir.array, pair(next, low(array)));
        txn.set(cell, LIVE | line as u64);
        return Ok(hole);
    }
    let index = low(array);
    if index.is_multiple_of(tree::WAYS) {
        may_grow(txn, dir, index)?;
    }
    let cell = tree::grow(txn, dir.record.word(ino::ROOT), index as u64)?;
    txn.set(dir.array, array + 1);
    txn.set(cell, LIVE | line as u64);
    let way = index % tree::WAYS;
    Ok(txn.region.map.number_of(NODE, cell) * tree::WAYS + way)
}

/// Before an array gets another leaf: whether other records have holes to give.
#[cold]
fn may_grow(txn: &mut Txn<'_>, dir: &Open, index: u32) -> Result<()> {
    if index >= SLOTS_MAX {
        return Err(Errno::ENOSPC);
    }
    if txn.session.wish() == switch::COLLECTED.of(dir.dir) {
        txn.session.set_wish(0);
    } else if switch::rich(txn.region, dir.inode, dir.array).is_some() {
        txn.session.set_wish(switch::COLLECT.of(dir.dir));
        return Err(share::PREPARE);
    }
    Ok(())
}

/// The slot of an entry.
fn slot_of(txn: &Txn<'_>, line: Cell) -> (Cell, u32) {
    let name = high(txn.get(line.word(ent::PLACE)));
    (slot(txn.region, name), name)
}

/// Adds an entry; bucket and token are held. `heir_of` = the entry of the same directory whose slot
/// the new one takes over. Counts are the caller's (`changed`).
pub fn add(
    txn: &mut Txn<'_>,
    dir: &Open,
    key: &Key<'_>,
    inode: u32,
    kind: u32,
    flags: u32,
    heir_of: Option<u32>,
) -> Result<u32> {
    let line = txn.allocate(LINE)?;
    let cell = txn.region.map.object(LINE, line);
    let rest = key.name.get(INLINE..).unwrap_or(&[]);
    let spilled = text::keep(txn, rest)?;
    let place = match heir_of {
        None => take_slot(txn, dir, line)?,
        Some(old) => {
            let (slot, place) = slot_of(txn, txn.region.map.object(LINE, old));
            txn.set_at_commit(slot, LIVE | line as u64);
            place
        }
    };
    let numbered = numbered(txn, inode);
    let head = tag::ENTRY | (key.name.len() as u32) << 8 | kind << 16 | flags | numbered;
    txn.init(cell.word(ent::LINK), pair(key.dir, inode));
    txn.init(cell.word(ent::PLACE), pair(place, spilled));
    for n in 0..4 {
        txn.init(cell.word(ent::NAME + n as u32), key.words[n]);
    }
    txn.init(cell, pair(high(txn.get(cell)), head));
    let first = key.bucket(txn.region).word(1);
    txn.init(cell.word(ent::NEXT), pair(key.hash, low(txn.get(first))));
    txn.set(first, line as u64);
    Ok(line)
}

/// Takes an entry away (a whiteout stays for a host's name); bucket and token are held.
/// `keep_slot`: an heir has the slot.
pub fn remove(
    txn: &mut Txn<'_>,
    dir: &Open,
    key: &Key<'_>,
    line: u32,
    keep_slot: bool,
) -> Result<()> {
    let cell = txn.region.map.object(LINE, line);
    let head = txn.get(cell);
    if low(head) & ent::FROM_HOST != 0 {
        return white_out(txn, cell);
    }
    unchain(txn, key.hash, line)?;
    if !keep_slot {
        clear_slot(txn, dir, cell);
    }
    text::release(txn, low(txn.get(cell.word(ent::PLACE))));
    text::retire_line(txn, line);
    Ok(())
}

/// Whether removing this entry leaves a whiteout in its slot.
pub fn leaves_whiteout(region: &Region, line: u32) -> bool {
    low(region.load(region.map.object(LINE, line))) & ent::FROM_HOST != 0
}

fn white_out(txn: &mut Txn<'_>, cell: Cell) -> Result<()> {
    let link = txn.get(cell.word(ent::LINK));
    let inode = txn.region.map.object(INODE, low(link));
    let origin = low(txn.get(inode.word(ino::ORIGIN)));
    let head = txn.get(cell);
    txn.set_at_commit(cell, head | ent::WHITEOUT as u64);
    txn.set_at_commit(cell.word(ent::LINK), pair(high(link), origin));
    Ok(())
}

/// Makes an entry's slot a hole: of the acting record, in whichever array it lies.
fn clear_slot(txn: &mut Txn<'_>, dir: &Open, line: Cell) {
    let (slot, name) = slot_of(txn, line);
    let array = txn.get(dir.array);
    txn.set_at_commit(slot, HOLE | high(array) as u64);
    txn.set(dir.array, pair(name, low(array)));
}

/// Takes a line out of its bucket's chain.
fn unchain(txn: &mut Txn<'_>, hash: u32, line: u32) -> Result<()> {
    let next = low(txn.get(txn.region.map.object(LINE, line).word(ent::NEXT)));
    let mut link = txn.region.map.bucket(hash).word(1);
    for _ in 0..CHAIN_MAX {
        let word = txn.get(link);
        if low(word) == line {
            txn.set(link, pair(high(word), next));
            return Ok(());
        }
        if low(word) == 0 {
            break;
        }
        link = txn.region.map.object(LINE, low(word)).word(ent::NEXT);
    }
    Err(Errno::EIO)
}

/// Nothing is known any more of host objects that had this name; bucket and token are held. Behind
/// it nothing is added in the same transaction: the holes are there at its commit.
pub fn drop_whiteouts(txn: &mut Txn<'_>, dir: &Open, key: &Key<'_>) -> Result<()> {
    for _ in 0..CHAIN_MAX {
        let region = txn.region;
        let whiteout = find_by(region, key, |line| key.names_whiteout(region, line));
        let Some(line) = whiteout else { return Ok(()) };
        unchain(txn, key.hash, line)?;
        let cell = txn.region.map.object(LINE, line);
        clear_slot(txn, dir, cell);
        text::release(txn, low(txn.get(cell.word(ent::PLACE))));
        text::retire_line(txn, line);
    }
    Err(Errno::EIO)
}

/// Makes the name lead to another inode; returns the entry that does.
pub fn replace(
    txn: &mut Txn<'_>,
    dir: &Open,
    key: &Key<'_>,
    line: u32,
    inode: u32,
    kind: u32,
) -> Result<u32> {
    if leaves_whiteout(txn.region, line) {
        let new = add(txn, dir, key, inode, kind, 0, None)?;
        remove(txn, dir, key, line, false)?;
        return Ok(new);
    }
    let cell = txn.region.map.object(LINE, line);
    let head = txn.get(cell);
    let bits = low(head) & !0xff_0000 | kind << 16 | numbered(txn, inode);
    if bits != low(head) {
        // Before the link: a listing that sees the new one looks for its origin.
        txn.set(cell, pair(high(head), bits));
    }
    txn.set(cell.word(ent::LINK), pair(key.dir, inode));
    Ok(line)
}

/// The mark of an entry that leads to this inode.
fn numbered(txn: &Txn<'_>, inode: u32) -> u32 {
    let origin = low(txn.get(txn.region.map.object(INODE, inode).word(ino::ORIGIN)));
    if origin == 0 { 0 } else { ent::NUMBERED }
}

/// An entry and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its line.
    pub line: u32,
    /// The inode.
    pub inode: u32,
    /// Its kind bits.
    pub kind: u32,
}

/// Looks a name up without a lock; `RETRY`-free: for plans that look before they lock.
pub fn peek(session: &husk_region::Session, key: &Key<'_>) -> Result<Option<Found>> {
    let region = &session.region;
    session.read(key.bucket(region), || find(region, key).map(|line| found(region, line)))
}

/// Where a line leads.
pub fn found(region: &Region, line: u32) -> Found {
    let cell = region.map.object(LINE, line);
    let kind = low(region.load(cell)) >> 16 & 0xff;
    Found { line, inode: low(region.load(cell.word(ent::LINK))), kind }
}

/// Finds again under the bucket's lock what `peek` had found.
pub fn find_again(txn: &Txn<'_>, key: &Key<'_>, seen: Option<Found>) -> Result<()> {
    let now = find(txn.region, key).map(|line| found(txn.region, line));
    if now == seen { Ok(()) } else { Err(RETRY) }
}

/// Forgets a whiteout of a directory that is going away; its bucket is locked by this call.
pub fn forget_whiteout(txn: &mut Txn<'_>, line: u32) -> Result<()> {
    let cell = txn.region.map.object(LINE, line);
    let hash = high(txn.get(cell.word(ent::NEXT)));
    txn.lock(txn.region.map.bucket(hash))?;
    unchain(txn, hash, line)?;
    text::release(txn, low(txn.get(cell.word(ent::PLACE))));
    text::retire_line(txn, line);
    Ok(())
}

/// The entry a slot leads to.
pub fn slot_line(word: u64) -> Option<u32> {
    if word & HOLE == 0 && word & LIVE != 0 { Some(low(word)) } else { None }
}

/// The next hole if a slot is a hole, 0 for none.
pub fn slot_hole(word: u64) -> Option<u32> {
    if word & HOLE != 0 { Some(low(word)) } else { None }
}
