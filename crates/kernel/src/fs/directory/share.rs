//! Narrow and wide directories: one token guards all names, or each kernel changes names under its
//! own token.
//!
//! ```text
//!   narrow   token of the home partition ---> record in the inode
//!   wide     token of the acting thread's partition k ---> part k     table of parts (a node)
//!                                                                      0 joined bits  8.. part k
//!   either   name: its bucket's lock     inode: its own lock     where an entry lies: the same
//!
//!   share word (inode 14)   table:32 | - | born wide:1 | wide:1 | home:16
//!   part (a line)           0 version:32 tag:8  1 hint  2 hole:32 next:32  3 entries  4 mtime
//!                           5 ctime  6 subdirectories  7 root        (3..8 as in an inode)
//! ```
//!
//! 1. A record (the inode's or a part) changes only under its token. Its numbers mean something
//!    only summed up (counts; they may be negative) or as the latest (times), so a switch of the
//!    mode moves nothing.
//! 2. The mode is looked at again under the token: whoever finds another one starts over. Switches
//!    take every token that the old mode allows.
//! 3. Whoever holds the writer lock of a directory (nobody else ever takes it before it is freed)
//!    keeps others from changing its names, joining it, switching or removing it: `shut`. A writer
//!    takes its token and then looks at that lock; `shut` takes the lock and then passes all
//!    tokens. One of the two sees the other, and a writer that meets it lets go of everything and
//!    waits.
//! 4. Parts and their table live as long as the directory, and stay when it narrows.
//!
//! Not here: the switches themselves (`switch`), entries and their arrays (`entries`).

use husk_proto::{Errno, Inode, Result};
use husk_region::observe::kill;
use husk_region::{Cell, INODE, LINE, NODE, RETRY, Region, Txn, Without, is_locked, owner_of};

use crate::fs::directory::switch;
use crate::state::tree;
use crate::state::{high, ino, kind_bits, live, low, pair};

/// What a handler returns when something is to be done first, as the session's wish says.
pub const PREPARE: Errno = Errno(4002);

/// Share word: the home partition.
const HOME: u64 = 0xffff;
/// Share word: any kernel acts in its part.
pub(crate) const WIDE: u64 = 1 << 16;
/// Share word: to be widened by whoever changes a name first.
pub(crate) const BORN_WIDE: u64 = 1 << 17;

/// Parts of a wide directory, at most.
pub const PARTS_MAX: u32 = tree::WAYS;
/// A part's words beside those it shares with an inode.
pub(crate) const PART_HINT: u32 = 1;
pub(crate) const PART_ARRAY: u32 = 2;
/// The time of a part that has seen no change.
pub const NEVER: u64 = i64::MIN as u64;
/// Word 1 of a partition: the directory last changed under its token, and waits for it there.
pub(crate) const LAST: u32 = 1;

/// A directory whose names its holder may change: the token is held.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// The directory.
    pub dir: Inode,
    /// Its inode.
    pub inode: Cell,
    /// Counts and times: words `SIZE`, `LINKS`, `MTIME`, `CTIME`, `ROOT`.
    pub record: Cell,
    /// Holes and length of the record's array.
    pub array: Cell,
}

/// Under which token, in which record; not yet taken.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// To be locked.
    pub token: Cell,
    share: u64,
    /// Where the table names the part, and the part's line (wide).
    place: Cell,
    line: u32,
}

impl Seat {
    /// Holes and length of the array that goes with it.
    pub(crate) fn array(&self, txn: &Txn<'_>, inode: Cell) -> Cell {
        match self.line {
            0 => inode.word(ino::ARRAY),
            line => txn.region.map.object(LINE, line).word(PART_ARRAY),
        }
    }
}

/// The share word of a new directory: in a wide parent its maker's, else any.
pub fn born(txn: &Txn<'_>, number: u32, parent: Option<Cell>) -> u64 {
    let wide = parent.is_some_and(|dir| is_wide(txn.get(dir.word(ino::SHARE))));
    let affine = wide && !txn.region.without().has(Without::AFFINITY);
    let home = if affine { txn.slot() } else { number.wrapping_mul(husk_abi::SPREAD_32) >> 16 };
    let forced = crate::image::directories(txn.region) == crate::image::Directories::Wide;
    (home & txn.region.map.partition_mask) as u64 | if forced { BORN_WIDE } else { 0 }
}

/// Whether a share word says wide (of a file, whose blocks it counts, never).
#[inline(always)]
pub fn is_wide(share: u64) -> bool {
    share & WIDE != 0 && high(share) != 0
}

/// Whether a directory is wide at this moment.
pub fn is_wide_now(region: &Region, dir: Inode) -> bool {
    let inode = region.map.object(INODE, dir.number);
    live(region, dir).is_ok() && is_wide(region.load(inode.word(ino::SHARE)))
}

/// The token of a directory's home.
#[inline(always)]
pub fn home(region: &Region, share: u64) -> Cell {
    region.map.partition((share & HOME) as u32)
}

/// The part that the thread in `slot` uses.
#[inline(always)]
pub(crate) fn part_of(region: &Region, slot: u32) -> u32 {
    slot & region.map.partition_mask & (PARTS_MAX - 1)
}

/// The word of a table that names part `k`.
#[inline(always)]
pub(crate) fn place(region: &Region, share: u64, k: u32) -> Cell {
    tree::entry(region, high(share), k as u64, 0)
}

/// The joined bits of a table.
pub(crate) fn joined(region: &Region, share: u64) -> Cell {
    region.map.object(NODE, high(share))
}

/// Calls `emit(k, line)` for each part of a directory.
#[inline]
pub fn each_part(region: &Region, share: u64, emit: &mut dyn FnMut(u32, u32)) {
    if high(share) == 0 {
        return;
    }
    let mut bits = region.load(joined(region, share));
    while bits != 0 {
        let k = bits.trailing_zeros();
        emit(k, low(region.load(place(region, share, k))));
        bits &= bits - 1;
    }
}

/// Where a directory is to be changed by this thread. `PREPARE` when it has no part yet.
#[inline(always)]
pub fn seat(txn: &Txn<'_>, dir: Inode) -> Result<Seat> {
    let inode = txn.region.map.object(INODE, dir.number);
    let share = txn.get(inode.word(ino::SHARE));
    if !is_wide(share) {
        return Ok(Seat { token: home(txn.region, share), share, place: inode, line: 0 });
    }
    let k = part_of(txn.region, txn.slot());
    let cell = place(txn.region, share, k);
    match low(txn.get(cell)) {
        0 => without_part(txn, dir, share),
        line => Ok(Seat { token: txn.region.map.partition(k), share, place: cell, line }),
    }
}

/// A thread that has no part joins; in an image that is full it borrows one.
#[cold]
fn without_part(txn: &Txn<'_>, dir: Inode, share: u64) -> Result<Seat> {
    let bits = txn.get(joined(txn.region, share));
    if txn.session.wish() != switch::BORROW.of(dir) || bits == 0 {
        txn.session.set_wish(switch::JOIN.of(dir));
        return Err(PREPARE);
    }
    let k = bits.trailing_zeros();
    let place = place(txn.region, share, k);
    let line = low(txn.get(place));
    Ok(Seat { token: txn.region.map.partition(k), share, place, line })
}

/// The directory `dir` under its token, still there to take names.
#[inline]
pub fn open_directory(txn: &mut Txn<'_>, dir: Inode) -> Result<Open> {
    let seat = seat(txn, dir)?;
    open(txn, dir, &seat)
}

/// The same with the seat looked up before.
#[inline]
pub fn open(txn: &mut Txn<'_>, dir: Inode, seat: &Seat) -> Result<Open> {
    let waits = txn.session.waits();
    txn.lock(seat.token)?;
    let inode = txn.region.map.object(INODE, dir.number);
    // In this order: whether somebody removes it (invariant 3), or has, which the generation says;
    // between them table and part, which the generation makes this directory's. The other way
    // round a removal could end between the two looks.
    if kill::mutant() != 31 && kill::mutant() != 32 {
        is_shut(txn, inode)?;
    }
    if txn.get(inode.word(ino::SHARE)) != seat.share && kill::mutant() != 34 {
        return Err(RETRY);
    }
    let wide = is_wide(seat.share);
    if wide && low(txn.get(seat.place)) != seat.line {
        return Err(RETRY);
    }
    let ident = txn.get(inode.word(ino::IDENT));
    if high(ident) != dir.generation || dir.number == 0 {
        return Err(Errno::ESTALE);
    }
    if kind_bits(ident) != ino::DIRECTORY {
        return Err(Errno::ENOTDIR);
    }
    if low(ident) & ino::REMOVED != 0 {
        return Err(Errno::ENOENT);
    }
    if kill::mutant() == 31 {
        is_shut(txn, inode)?;
    }
    if wide {
        let record = txn.region.map.object(LINE, seat.line);
        switch::note_use(txn, dir, seat.share, record);
        return Ok(Open { dir, inode, record, array: record.word(PART_ARRAY) });
    }
    let waited = txn.session.waits() != waits;
    switch::note_waits(txn, dir, seat.share, seat.token, waited);
    Ok(Open { dir, inode, record: inode, array: inode.word(ino::ARRAY) })
}

/// Starts over after the one who has shut a directory, if it is somebody else.
#[inline(always)]
fn is_shut(txn: &Txn<'_>, inode: Cell) -> Result<()> {
    let writer = inode.word(ino::WRITER);
    let word = txn.region.load_in_order(writer);
    if is_locked(word) && owner_of(word) != txn.slot() {
        Err(txn.retry_after(writer))
    } else {
        Ok(())
    }
}

/// Before a directory is removed, and before any other lock: of a wide one everybody else is kept
/// out until the transaction ends; of a narrow one the token to take is returned.
pub fn shut(txn: &mut Txn<'_>, number: u32) -> Result<Option<Cell>> {
    let inode = txn.region.map.object(INODE, number);
    let share = txn.get(inode.word(ino::SHARE));
    if !is_wide(share) {
        return Ok(Some(home(txn.region, share)));
    }
    txn.lock(inode.word(ino::WRITER))?;
    let share = txn.get(inode.word(ino::SHARE));
    txn.session.pass(home(txn.region, share))?;
    let mut result = Ok(());
    each_part(txn.region, share, &mut |k, _| {
        if result.is_ok() && kill::mutant() != 33 {
            result = txn.session.pass(txn.region.map.partition(k));
        }
    });
    result.map(|()| None)
}

/// Under all locks: nobody but the caller can change names of directory `number`, as `shut` was
/// to bring about.
pub fn confirm_shut(txn: &Txn<'_>, number: u32) -> Result<()> {
    let inode = txn.region.map.object(INODE, number);
    if owner_of(txn.get(inode.word(ino::WRITER))) == txn.slot() || kill::mutant() == 36 {
        return Ok(());
    }
    let share = txn.get(inode.word(ino::SHARE));
    if is_wide(share) || owner_of(txn.get(home(txn.region, share))) != txn.slot() {
        return Err(RETRY);
    }
    is_shut(txn, inode)
}

/// Takes the tokens that attributes of directory `number` need: its home's; if `all`, those of its
/// parts too, and nobody joins meanwhile.
pub fn lock_attributes(txn: &mut Txn<'_>, number: u32, all: bool) -> Result<()> {
    let word = txn.region.map.object(INODE, number).word(ino::SHARE);
    let mut share = txn.get(word);
    if all && high(share) != 0 {
        txn.lock(txn.region.map.object(INODE, number).word(ino::WRITER))?;
        share = txn.get(word);
        return lock_parts(txn, share);
    }
    txn.lock(home(txn.region, share))?;
    if txn.get(word) & HOME != share & HOME || all && high(txn.get(word)) != 0 {
        return Err(RETRY);
    }
    Ok(())
}

/// Takes the tokens of the home and of all parts, in order. Nobody joins: the caller has shut it.
pub(crate) fn lock_parts(txn: &mut Txn<'_>, share: u64) -> Result<()> {
    let home = home(txn.region, share);
    let mut bits = if high(share) == 0 { 0 } else { txn.get(joined(txn.region, share)) };
    while bits != 0 {
        let token = txn.region.map.partition(bits.trailing_zeros());
        if home < token {
            txn.lock(home)?;
        }
        txn.lock(token)?;
        bits &= bits - 1;
    }
    txn.lock(home)
}

/// A directory's modification time is what the inode says from now on; all tokens are held.
pub fn forget_times(txn: &mut Txn<'_>, number: u32) {
    let share = txn.get(txn.region.map.object(INODE, number).word(ino::SHARE));
    let region = txn.region;
    each_part(region, share, &mut |_, line| {
        txn.set(region.map.object(LINE, line).word(ino::MTIME), NEVER);
    });
}

/// Counts and times of a directory, all records together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Entries.
    pub entries: u64,
    /// Of these, directories.
    pub subdirectories: u32,
    /// Last change of a name, ns.
    pub modified_ns: i64,
    /// The same, or of an attribute.
    pub changed_ns: i64,
}

/// Adds everything up. A look without tokens may see half of what goes on.
#[inline]
pub fn totals(region: &Region, inode: Cell) -> Totals {
    let of = |record: Cell| {
        let word = |n: u32| region.load(record.word(n));
        Totals {
            entries: word(ino::SIZE),
            subdirectories: low(word(ino::LINKS)),
            modified_ns: word(ino::MTIME) as i64,
            changed_ns: word(ino::CTIME) as i64,
        }
    };
    let mut sum = of(inode);
    each_part(region, region.load(inode.word(ino::SHARE)), &mut |_, line| {
        let part = of(region.map.object(LINE, line));
        sum.entries = sum.entries.wrapping_add(part.entries);
        sum.subdirectories = sum.subdirectories.wrapping_add(part.subdirectories);
        sum.modified_ns = sum.modified_ns.max(part.modified_ns);
        sum.changed_ns = sum.changed_ns.max(part.changed_ns);
    });
    sum
}

/// The records of a directory by the number of their array: 0 the inode, k + 1 part k. The root of
/// the array, its holes and length.
pub fn array(region: &Region, inode: Cell, number: u32) -> Option<(u64, u64)> {
    if number == 0 {
        return Some((region.load(inode.word(ino::ROOT)), region.load(inode.word(ino::ARRAY))));
    }
    let share = region.load(inode.word(ino::SHARE));
    if high(share) == 0 || number > PARTS_MAX {
        return None;
    }
    let line = low(region.load(place(region, share, number - 1)));
    let part = region.map.object(LINE, line);
    let array = region.load(part.word(PART_ARRAY));
    (line != 0).then(|| (region.load(part.word(ino::ROOT)), array))
}

/// A share word of a directory that has no parts any more.
pub fn without_table(share: u64) -> u64 {
    pair(0, low(share) & !(WIDE as u32))
}

/// A share word with another table.
pub(crate) fn with_table(share: u64, table: u32) -> u64 {
    pair(table, low(share))
}
