//! Widens directories in which processes wait for each other, and narrows them again.
//!
//! ```text
//!   narrow --8 waits in one directory--> [ table, own part ] --one store--> wide
//!   wide   --65,536 changes by one thread alone--> one store under all tokens --> narrow
//! ```
//!
//! 1. A switch is one store under every token that the old mode allows, the last act of its
//!    transaction, and never undone: both modes are valid, and others act on the new one at once.
//!    What it costs does not depend on the directory's size.
//! 2. Everything here runs between transactions, on the wish that one left in the session, and
//!    takes the directory's writer lock first (invariant 3 of `share`).
//! 3. When it fails (a full image), nothing changes and nothing is lost.

use husk_proto::{Errno, Inode, Operation, Result};
use husk_region::observe::kill;
use husk_region::{Cell, INODE, LINE, NODE, RETRY, Region, Txn};

use crate::Kernel;
use crate::fs::directory::share::{self, NEVER, PART_ARRAY, PART_HINT, PARTS_MAX, PREPARE, WIDE};
use crate::fs::directory::{entries, share::Open};
use crate::image::{self, Directories};
use crate::state::tree;
use crate::state::{high, ino, live, low, pair, tag};

/// Waits in one directory that widen it.
const WAITS_MAX: u32 = 8;
/// Changes by one part, in which no other changed anything, that narrow a directory.
const ALONE_MAX: u32 = 1 << 16;
/// Holes of another record that are worth taking over.
const HOLES_MIN: u32 = 16;

/// Something to be done for a directory, beside transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish(u32);

/// Widen it, after the transaction.
pub(crate) const WIDEN: Wish = Wish(1);
/// Narrow it, after the transaction.
pub(crate) const NARROW: Wish = Wish(2);
/// Give this thread a part, before the transaction.
pub(crate) const JOIN: Wish = Wish(3);
/// Take over holes of another record, before the transaction.
pub(crate) const COLLECT: Wish = Wish(4);
/// Done in vain: there is no room for a part.
pub(crate) const BORROW: Wish = Wish(5);
/// Done in vain: let the array grow.
pub(crate) const COLLECTED: Wish = Wish(6);

impl Wish {
    /// The session's word for this wish: what:8 number:24 generation:32.
    pub fn of(self, dir: Inode) -> u64 {
        pair(self.0 << 24 | dir.number, dir.generation)
    }

    /// What a session's word says.
    fn read(word: u64) -> (Wish, Inode) {
        let number = high(word) & 0xff_ffff;
        (Wish(high(word) >> 24), Inode { number, generation: low(word) })
    }
}

/// Counts a wait for the token of a narrow directory, whose holder worked in this one, too.
#[inline(always)]
pub(crate) fn note_waits(txn: &Txn<'_>, dir: Inode, share: u64, token: Cell, waited: bool) {
    let number = dir.number;
    let hint = token.word(share::LAST);
    let seen = txn.get(hint);
    if high(seen) != number {
        txn.init(hint, pair(number, 0));
    } else if waited {
        txn.init(hint, seen + 1);
        if low(seen) + 1 >= WAITS_MAX {
            wish(txn, WIDEN, dir);
        }
    }
    if share & share::BORN_WIDE != 0 {
        wish(txn, WIDEN, dir);
    }
}

#[cold]
fn wish(txn: &Txn<'_>, what: Wish, dir: Inode) {
    txn.session.set_wish(what.of(dir));
    txn.session.note(crate::SWITCH);
}

/// Counts a change of a part; now and then looks whether the others changed anything.
#[inline(always)]
pub(crate) fn note_use(txn: &Txn<'_>, dir: Inode, share: u64, part: Cell) {
    let hint = txn.get(part.word(PART_HINT));
    let uses = high(hint).wrapping_add(1);
    txn.init(part.word(PART_HINT), pair(uses, low(hint)));
    if uses.is_multiple_of(ALONE_MAX) {
        look_around(txn, dir, share, part);
    }
}

#[cold]
fn look_around(txn: &Txn<'_>, dir: Inode, share: u64, part: Cell) {
    let region = txn.region;
    let mut others = 0u32;
    share::each_part(region, share, &mut |_, line| {
        let other = region.map.object(LINE, line);
        if other != part {
            others = others.wrapping_add(high(region.load(other.word(PART_HINT))));
        }
    });
    let hint = txn.get(part.word(PART_HINT));
    if low(hint) == others {
        wish(txn, NARROW, dir);
    }
    txn.init(part.word(PART_HINT), pair(high(hint), others));
}

/// Does what a transaction wished for after it; that this fails is no matter.
#[cold]
pub(crate) fn serve_after(kernel: &Kernel) {
    let (wish, dir) = Wish::read(kernel.session.wish());
    let _ = match wish {
        WIDEN => widen(kernel, dir, false),
        NARROW => narrow(kernel, dir, false),
        _ => Ok(()),
    };
}

/// Does what a transaction needs before it is tried again.
#[cold]
pub(crate) fn serve_before(kernel: &Kernel) -> Result<()> {
    let (wish, dir) = Wish::read(kernel.session.wish());
    match wish {
        JOIN => match join(kernel, dir) {
            Err(Errno::ENOSPC) => kernel.session.set_wish(BORROW.of(dir)),
            result => result?,
        },
        COLLECT => {
            let found = collect(kernel, dir)?;
            kernel.session.set_wish(if found { 0 } else { COLLECTED.of(dir) });
        }
        _ => {}
    }
    Ok(())
}

/// A directory that stands, its writer lock taken.
fn shut(txn: &mut Txn<'_>, dir: Inode) -> Result<Cell> {
    let inode = txn.region.map.object(INODE, dir.number);
    txn.lock(inode.word(ino::WRITER))?;
    // Its number may be another's by now, even one's that is only being made.
    live(txn.region, dir)?;
    let ident = txn.get(inode.word(ino::IDENT));
    if low(ident) & ino::REMOVED != 0 { Err(Errno::ENOENT) } else { Ok(inode) }
}

/// Under the home's token, too: a narrow directory may be removed with that alone.
fn confirm(txn: &Txn<'_>, dir: Inode, share: u64) -> Result<()> {
    let inode = live(txn.region, dir)?;
    let stands = low(txn.get(inode.word(ino::IDENT))) & ino::REMOVED == 0;
    if stands && txn.get(inode.word(ino::SHARE)) == share { Ok(()) } else { Err(RETRY) }
}

/// A new part for the thread, whose token is held.
fn add_part(txn: &mut Txn<'_>, share: u64, k: u32) -> Result<()> {
    let line = txn.allocate(LINE)?;
    let part = txn.region.map.object(LINE, line);
    for word in [PART_HINT, PART_ARRAY, ino::SIZE, ino::LINKS, ino::ROOT] {
        txn.init(part.word(word), 0);
    }
    txn.init(part.word(ino::MTIME), NEVER);
    txn.init(part.word(ino::CTIME), NEVER);
    txn.init(part, pair(high(txn.get(part)), tag::PART));
    let bits = share::joined(txn.region, share);
    txn.set(share::place(txn.region, share, k), line as u64);
    let before = txn.get(bits);
    txn.set(bits, before | 1 << k);
    Ok(())
}

/// Gives this thread a part of a wide directory.
fn join(kernel: &Kernel, dir: Inode) -> Result<()> {
    kernel.session.transact(|txn| {
        let inode = shut(txn, dir)?;
        let share = txn.get(inode.word(ino::SHARE));
        let k = share::part_of(txn.region, txn.slot());
        if !share::is_wide(share) || txn.get(share::place(txn.region, share, k)) != 0 {
            return Ok(());
        }
        txn.lock(txn.region.map.partition(k))?;
        add_part(txn, share, k)
    })
}

/// Makes the table of a directory that has none, with this thread's part.
fn add_table(txn: &mut Txn<'_>, dir: Inode, inode: Cell) -> Result<u64> {
    let share = txn.get(inode.word(ino::SHARE));
    let k = share::part_of(txn.region, txn.slot());
    let (home, own) = (share::home(txn.region, share), txn.region.map.partition(k));
    txn.lock(home.min(own))?;
    txn.lock(home.max(own))?;
    confirm(txn, dir, share)?;
    let table = txn.allocate(NODE)?;
    let cell = txn.region.map.object(NODE, table);
    for n in 0..tree::ENTRIES + PARTS_MAX {
        txn.init(cell.word(n), 0);
    }
    let share = share::with_table(share, table);
    add_part(txn, share, k)?;
    txn.set(inode.word(ino::SHARE), share);
    Ok(share)
}

/// From now on every kernel changes names of the directory in its own part. `forced`: whatever the
/// image's rule.
pub fn widen(kernel: &Kernel, dir: Inode, forced: bool) -> Result<()> {
    let rule = image::directories(&kernel.session.region);
    if rule == Directories::Narrow && !forced {
        return Ok(());
    }
    kernel.session.transact(|txn| {
        let inode = shut(txn, dir)?;
        // Importers of a host listing rely on one token for all names.
        let unlisted = low(txn.get(inode.word(ino::IDENT))) & ino::UNLISTED != 0;
        if !unlisted && high(txn.get(inode.word(ino::SHARE))) == 0 {
            add_table(txn, dir, inode)?;
        }
        Ok(())
    })?;
    let widened = kernel.session.transact(|txn| {
        let inode = shut(txn, dir)?;
        let share = txn.get(inode.word(ino::SHARE));
        if high(share) != 0 && !share::is_wide(share) {
            txn.lock(share::home(txn.region, share))?;
            confirm(txn, dir, share)?;
            txn.flip(inode.word(ino::SHARE), share | WIDE);
            return Ok(true);
        }
        Ok(false)
    })?;
    if widened {
        kernel.count(Operation::Widen);
    }
    Ok(())
}

/// From now on one token guards all names of the directory.
pub fn narrow(kernel: &Kernel, dir: Inode, forced: bool) -> Result<()> {
    if image::directories(&kernel.session.region) == Directories::Wide && !forced {
        return Ok(());
    }
    let narrowed = kernel.session.transact(|txn| {
        let inode = shut(txn, dir)?;
        let share = txn.get(inode.word(ino::SHARE));
        if share::is_wide(share) {
            if kill::mutant() != 35 {
                share::lock_parts(txn, share)?;
            }
            txn.flip(inode.word(ino::SHARE), share & !WIDE & !share::BORN_WIDE);
            return Ok(true);
        }
        Ok(false)
    })?;
    if narrowed {
        kernel.count(Operation::Narrow);
    }
    Ok(())
}

/// Whether a record's holes are many enough to be worth another's while.
fn has_holes(region: &Region, array: u64) -> bool {
    let mut hole = high(array);
    for _ in 0..HOLES_MIN {
        if hole == 0 {
            return false;
        }
        match entries::slot_hole(region.load(entries::slot(region, hole))) {
            Some(next) => hole = next,
            // It is just becoming one.
            None => return true,
        }
    }
    true
}

/// Another record of the directory, by its array's number, that has many holes.
pub(crate) fn rich(region: &Region, inode: Cell, own: Cell) -> Option<u32> {
    let share = region.load(inode.word(ino::SHARE));
    if own != inode.word(ino::ARRAY) && has_holes(region, region.load(inode.word(ino::ARRAY))) {
        return Some(0);
    }
    let mut found = None;
    share::each_part(region, share, &mut |k, line| {
        let array = region.map.object(LINE, line).word(PART_ARRAY);
        if found.is_none() && array != own && has_holes(region, region.load(array)) {
            found = Some(k + 1);
        }
    });
    found
}

/// Where to find and how to guard the holes of record `array`.
fn holes_of(txn: &Txn<'_>, inode: Cell, array: u32) -> (Cell, Cell) {
    let share = txn.get(inode.word(ino::SHARE));
    if array == 0 {
        return (share::home(txn.region, share), inode.word(ino::ARRAY));
    }
    let line = low(txn.get(share::place(txn.region, share, array - 1)));
    let part = txn.region.map.object(LINE, line);
    (txn.region.map.partition(array - 1), part.word(PART_ARRAY))
}

/// Takes over the holes of another record: one makes names, another removes them, and the arrays
/// stay as long as what lives in them.
fn collect(kernel: &Kernel, dir: Inode) -> Result<bool> {
    kernel
        .session
        .transact(|txn| {
            let inode = live(txn.region, dir)?;
            let seat = share::seat(txn, dir)?;
            let own = seat.array(txn, inode);
            let Some(rich) = rich(txn.region, inode, own) else { return Ok(false) };
            let (token, _) = holes_of(txn, inode, rich);
            txn.lock(token.min(seat.token))?;
            txn.lock(token.max(seat.token))?;
            let mine: Open = share::open(txn, dir, &seat)?;
            let (again, theirs) = holes_of(txn, inode, rich);
            if again != token {
                return Err(RETRY);
            }
            let (had, has) = (txn.get(mine.array), txn.get(theirs));
            if high(had) == 0 && high(has) != 0 && theirs != mine.array {
                txn.set(mine.array, pair(high(has), low(had)));
                txn.set(theirs, pair(0, low(has)));
            }
            Ok(high(had) != 0 || high(has) != 0)
        })
        .or_else(|error| if error == PREPARE { Ok(true) } else { Err(error) })
}
