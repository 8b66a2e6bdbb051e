//! Leases: files of another node that nobody here has open any more, and that it still keeps open
//! for us, so that whoever opens one next need not ask for it.
//!
//! ```text
//!   fixed words  list: 0 lock
//!                slot: 0 number and generation at home, 0 = free   1 description
//!   the last number is closed ── `keep` ──► a lease ── `reopen` ──► a number again
//!                                                 '─── `end` ─────► the description is let go of
//! ```
//!
//! Invariants
//! 1. A lease holds its description as a number does. It takes the place of one, or gives way to
//!    one, in a single transaction.
//! 2. A description in a lease has a tag of its own, so whoever still has its number from before
//!    finds that it is closed. So no two openings ever share one.
//! 3. Slots change under the list's lock, taken after a table's and before a description's.

use husk_abi::sys::general::{O_ACCMODE, O_PATH};
use husk_proto::{Description, Files, Inode, Result};
use husk_region::observe::kill;
use husk_region::{Cell, Region, Txn};

use crate::Kernel;
use crate::descriptor::open::{self, AT_HOME, TAG};
use crate::fs::walk;
use crate::image::{LEASES, LEASES_LIST, LEASES_MAX};
use crate::state::fd_table;
use crate::state::{high, ino, kind_bits, live, low, pair, tag};

/// Longest file that is kept, in bytes: its blocks stay in use for a moment if its last name goes.
pub const KEPT_BYTES_MAX: u64 = 64 << 10;
/// What has one of these among its flags is not kept.
const UNFIT: u32 = O_ACCMODE | O_PATH | AT_HOME;
const DESCRIPTION: u32 = 1;
const SLOT_WORDS: u32 = 2;

fn list(region: &Region) -> Cell {
    region.map.fixed(LEASES_LIST)
}

fn slot(region: &Region, index: u32) -> Cell {
    region.map.fixed(LEASES + index * SLOT_WORDS)
}

fn name(home: Inode) -> u64 {
    pair(home.generation, home.number)
}

/// The first slot with this name; 0 finds a free one.
#[inline]
fn find(region: &Region, name: u64) -> Option<Cell> {
    (0..LEASES_MAX).map(|index| slot(region, index)).find(|&slot| region.load(slot) == name)
}

/// Whether there is one of this file, as far as can be told without the lock.
#[inline]
pub fn any_of(kernel: &Kernel, home: Inode) -> bool {
    find(&kernel.session.region, name(home)).is_some()
}

/// Whether there is room for one more.
#[inline]
pub fn has_room(kernel: &Kernel) -> bool {
    find(&kernel.session.region, 0).is_some()
}

/// The file at home that a slot is for.
pub fn at(kernel: &Kernel, index: u32) -> Option<Inode> {
    let name = kernel.session.region.load(slot(&kernel.session.region, index));
    (name != 0).then_some(Inode { number: low(name), generation: high(name) })
}

/// What a description that can be kept stands for, number and generation, and the hold there: owner
/// and time of modification of its file here.
pub fn stands_for(kernel: &Kernel, description: Description) -> Result<Option<(Inode, u64)>> {
    let open = open::description(kernel, description)?;
    if open.flags & UNFIT != 0 {
        return Ok(None);
    }
    let step = walk::step(kernel, open.inode)?;
    let region = &kernel.session.region;
    let hold = region.load(live(region, open.inode)?.word(ino::MTIME));
    Ok(Some((Inode { number: step.uid, generation: step.gid }, hold)))
}

/// What is open under `fd`, which stands for `home`, becomes a lease, and the number is free. False
/// if it stays: others have it open, too, it can be written to, or there is no room. `unplugs`: a
/// plug at that number is no more, the host has something else there.
pub fn keep(kernel: &Kernel, files: Files, fd: u32, home: Inode, unplugs: bool) -> Result<bool> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let entry = fd_table::husk(txn, table, fd)?;
        if entry & fd_table::PLUG != 0 && !unplugs {
            return Ok(false);
        }
        let description = high(entry);
        txn.lock(list(txn.region))?;
        let Some(slot) = find(txn.region, 0) else { return Ok(false) };
        let cell = open::cell(txn.region, description);
        txn.lock(cell)?;
        let is_shared = txn.get(cell.word(open::REFERENCES)) != 1;
        if is_shared || low(txn.get(cell.word(open::TARGET))) & UNFIT != 0 {
            return Ok(false);
        }
        retag(txn, cell, tag::LEASE);
        txn.set(slot.word(DESCRIPTION), description.into());
        txn.set(slot, name(home));
        // A mutant: the number stays.
        if kill::mutant() != 83 {
            fd_table::put(txn, table, fd, 0)?;
        }
        Ok(true)
    })
}

/// A description's next life, under `tag`.
fn retag(txn: &mut Txn<'_>, cell: Cell, tag: u32) {
    let generation = high(txn.get(cell.word(TAG)));
    txn.set(cell.word(TAG), pair(generation.wrapping_add(1), tag));
}

/// A lease on `home` becomes a number again, as if just opened; `None`: there is none.
pub fn reopen(
    kernel: &Kernel,
    files: Files,
    home: Inode,
    flags: u32,
    (minimum, limit): (u32, u32),
) -> Result<Option<u32>> {
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let fd = fd_table::lowest_free_of(txn.region, table, minimum, limit)?;
        txn.lock(list(txn.region))?;
        let Some(slot) = find(txn.region, name(home)) else { return Ok(None) };
        let description = txn.get(slot.word(DESCRIPTION)) as u32;
        txn.set(slot, 0);
        let cell = open::cell(txn.region, description);
        open::begin_again(txn, cell, flags);
        retag(txn, cell, tag::DESCRIPTION);
        fd_table::put(txn, table, fd, open::entry(description, flags))?;
        Ok(Some(fd))
    })
}

/// Ends the lease of a slot, if it still is one on `home`: the file that stood for that here, which
/// may live on, and when that was modified.
pub fn end(kernel: &Kernel, index: u32, home: Inode) -> Result<Option<(Inode, u64)>> {
    kernel.run(|txn| {
        txn.lock(list(txn.region))?;
        let slot = slot(txn.region, index);
        if txn.get(slot) != name(home) {
            return Ok(None);
        }
        let description = txn.get(slot.word(DESCRIPTION)) as u32;
        txn.set(slot, 0);
        let own = open::inode(txn.region, description);
        let modified = txn.region.load(live(txn.region, own)?.word(ino::MTIME));
        retag(txn, open::cell(txn.region, description), tag::DESCRIPTION);
        open::release(txn, description)?;
        Ok(Some((own, modified)))
    })
}

/// At home: whether a file may be kept open after its last close elsewhere. Only a small file that
/// is the image's, and has a name and no locks.
pub fn is_fit(home: &Kernel, inode: Inode) -> Result<bool> {
    let region = &home.session.region;
    let cell = live(region, inode)?;
    let fits = home.session.read(cell, || {
        let word = |n: u32| region.load(cell.word(n));
        let ident = word(ino::IDENT);
        let is_own_file = kind_bits(ident) == ino::FILE && low(ident) & ino::HOST == 0;
        let is_locked = high(word(ino::ORIGIN)) != 0;
        let is_small =
            word(ino::SIZE) <= KEPT_BYTES_MAX && word(ino::BLOCKS) * 4096 <= KEPT_BYTES_MAX;
        high(ident) == inode.generation
            && is_own_file
            && !is_locked
            && is_small
            && word(ino::LINKS) != 0
    })?;
    Ok(fits)
}

/// At home: whether somebody is told of what is opened and closed, which a lease keeps secret.
#[inline]
pub fn is_watched(home: &Kernel) -> bool {
    crate::watch::any(&home.session.region)
}

/// Calls `emit` with the description of each lease, for the checker.
pub(crate) fn each(region: &Region, emit: &mut dyn FnMut(u32)) {
    for slot in (0..LEASES_MAX).map(|index| slot(region, index)) {
        if region.load(slot) != 0 {
            emit(region.load(slot.word(DESCRIPTION)) as u32);
        }
    }
}
