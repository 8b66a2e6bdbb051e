//! Names in directories: the bucket chains and the directory's array.
//!
//! ```text
//!   bucket[hash(dir, name)] = [ lock | head ] -> entry -> entry ...    (one table for all)
//!   directory array (tree of words): slot -> entry | hole -> next hole    (for listings)
//! ```
//!
//! 1. Where an entry lies does not depend on which token guards it.
//! 2. An entry keeps its slot for life; a rename within the directory hands the slot on.
//! 3. What a listing must not see undone (a cleared slot, a changed head) is written at commit.
//! 4. An entry that came from the host is never unlinked: it becomes a whiteout in place.

use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, RETRY, Region, Txn};

use crate::state::{ent, high, ino, kind_bits, low, pair, tag};
use crate::text::{self, word_at};
use crate::tree;

/// A slot that leads to an entry.
const LIVE: u64 = 1 << 32;
/// A slot that is a hole; the low half is the next hole plus one.
const HOLE: u64 = 1 << 63;
/// Entries in one chain before the walk is taken for a stale one.
const CHAIN_MAX: u32 = 1 << 16;
const INLINE: usize = 32;

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
    /// Checks the name and hashes it.
    #[inline]
    pub fn new(dir: u32, name: &'a [u8]) -> Result<Key<'a>> {
        if name.is_empty() || name == b"." || name == b".." {
            return Err(Errno::EINVAL);
        }
        if name.len() > husk_abi::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut words = [0; 4];
        for (n, word) in words.iter_mut().enumerate() {
            if n * 8 < name.len() {
                *word = word_at(name, n * 8);
            }
        }
        let mut hash = (dir as u64 ^ (name.len() as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for at in (0..name.len()).step_by(8) {
            let word = if at < INLINE { words[at / 8] } else { word_at(name, at) };
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        Ok(Key { dir, name, hash: (hash >> 32) as u32, words })
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
        if high(region.load(line.word(ent::LINK))) != self.dir {
            return false;
        }
        let words = length.div_ceil(8).min(4);
        for n in 0..words {
            if region.load(line.word(ent::NAME + n as u32)) != self.words[n] {
                return false;
            }
        }
        length <= INLINE
            || text::equals(region, low(region.load(line.word(ent::PLACE))), &self.name[INLINE..])
    }
}

/// The token that guards a directory's names: of its home partition, a hash of its number.
#[inline]
pub fn token(region: &Region, dir: u32) -> Cell {
    region.map.partition(dir.wrapping_mul(0x9e37_79b1) >> 16)
}

/// Finds an entry; the caller holds the bucket or checks its sequence. A whiteout is no entry.
#[inline]
pub fn find(region: &Region, key: &Key<'_>) -> Option<u32> {
    let mut line = low(region.load(key.bucket(region).word(1)));
    for _ in 0..CHAIN_MAX {
        if line == 0 {
            return None;
        }
        let cell = region.map.object(LINE, line);
        let next = region.load(cell.word(ent::NEXT));
        if high(next) == key.hash && key.matches(region, cell) {
            return Some(line);
        }
        line = low(next);
    }
    None
}

/// The directory `dir` under its token, still there to take names.
#[inline]
pub fn open_directory(txn: &mut Txn<'_>, dir: Inode) -> Result<Cell> {
    txn.lock(token(txn.region, dir.number))?;
    let cell = txn.region.map.object(INODE, dir.number);
    let ident = txn.get(cell.word(ino::IDENT));
    if high(ident) != dir.generation || dir.number == 0 {
        return Err(Errno::ESTALE);
    }
    if kind_bits(ident) != ino::DIRECTORY {
        return Err(Errno::ENOTDIR);
    }
    if low(ident) & ino::REMOVED != 0 { Err(Errno::ENOENT) } else { Ok(cell) }
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
pub fn changed(txn: &mut Txn<'_>, dir: Cell, entries: i64, subdirectories: i32, now_ns: i64) {
    if entries != 0 {
        let count = txn.get(dir.word(ino::SIZE));
        txn.set(dir.word(ino::SIZE), count.wrapping_add_signed(entries));
    }
    if subdirectories != 0 {
        let links = txn.get(dir.word(ino::LINKS));
        txn.set(dir.word(ino::LINKS), links.wrapping_add_signed(subdirectories as i64));
    }
    touch(txn, dir.word(ino::MTIME), now_ns);
    touch(txn, dir.word(ino::CTIME), now_ns);
}

/// A slot of a directory's array for `line`.
fn take_slot(txn: &mut Txn<'_>, dir: Cell, line: u32) -> Result<u32> {
    let array = txn.get(dir.word(ino::ARRAY));
    let hole = high(array);
    if hole != 0 {
        let root = txn.get(dir.word(ino::ROOT));
        let cell = tree::cell(txn.region, root, hole as u64 - 1).ok_or(Errno::EIO)?;
        let next = low(txn.get(cell));
        txn.set(dir.word(ino::ARRAY), pair(next, low(array)));
        txn.set(cell, LIVE | line as u64);
        return Ok(hole - 1);
    }
    let index = low(array);
    let cell = tree::grow(txn, dir.word(ino::ROOT), index as u64)?;
    txn.set(dir.word(ino::ARRAY), array + 1);
    txn.set(cell, LIVE | line as u64);
    Ok(index)
}

fn slot_cell(txn: &Txn<'_>, dir: Cell, line: Cell) -> Result<(Cell, u32)> {
    let index = high(txn.get(line.word(ent::PLACE)));
    let root = txn.get(dir.word(ino::ROOT));
    Ok((tree::cell(txn.region, root, index as u64).ok_or(Errno::EIO)?, index))
}

/// Adds an entry; bucket and token are held. `heir_of` = the entry of the same directory whose slot
/// the new one takes over. Counts are the caller's (`changed`).
pub fn add(
    txn: &mut Txn<'_>,
    dir: Cell,
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
    let index = match heir_of {
        None => take_slot(txn, dir, line)?,
        Some(old) => {
            let (slot, index) = slot_cell(txn, dir, txn.region.map.object(LINE, old))?;
            txn.set_at_commit(slot, LIVE | line as u64);
            index
        }
    };
    let head = tag::ENTRY | (key.name.len() as u32) << 8 | kind << 16 | flags;
    txn.init(cell.word(ent::LINK), pair(key.dir, inode));
    txn.init(cell.word(ent::PLACE), pair(index, spilled));
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
    dir: Cell,
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
        clear_slot(txn, dir, cell)?;
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

fn clear_slot(txn: &mut Txn<'_>, dir: Cell, line: Cell) -> Result<()> {
    let (slot, index) = slot_cell(txn, dir, line)?;
    let array = txn.get(dir.word(ino::ARRAY));
    txn.set_at_commit(slot, HOLE | high(array) as u64);
    txn.set(dir.word(ino::ARRAY), pair(index + 1, low(array)));
    Ok(())
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

/// Makes the name lead to another inode; returns the entry that does.
pub fn replace(
    txn: &mut Txn<'_>,
    dir: Cell,
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
    txn.set(cell.word(ent::LINK), pair(key.dir, inode));
    if low(head) >> 16 & 0xff != kind {
        txn.set(cell, pair(high(head), low(head) & !0xff_0000 | kind << 16));
    }
    Ok(line)
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

/// The next hole (plus one) if a slot is a hole.
pub fn slot_hole(word: u64) -> Option<u32> {
    if word & HOLE != 0 { Some(low(word)) } else { None }
}

/// Copies an entry's name into `out`; its length.
pub fn copy_name(region: &Region, line: Cell, out: &mut [u8; 255]) -> usize {
    let length = (low(region.load(line)) >> 8 & 0xff) as usize;
    let inline = length.min(INLINE);
    text::copy_words(region, line.word(ent::NAME), &mut out[..inline]);
    if length > INLINE {
        text::copy(region, low(region.load(line.word(ent::PLACE))), &mut out[INLINE..length]);
    }
    length
}
