//! Birth and death of inodes.
//!
//! An inode lives while it has a link, a pin or an open; whoever takes the last away, in the same
//! transaction, frees it or (when that is more than a few objects) leaves it to `orphan`.

use husk_abi::capability::FSETID;
use husk_proto::fs::Credentials;
use husk_proto::{Errno, Inode, Result};
use husk_region::observe::kill;
use husk_region::{Cell, INODE, Txn};

use crate::fs::directory::share;
use crate::fs::{extended, unsaved};
use crate::state::hold::{add_users, has_name};
use crate::state::text;
use crate::state::{high, ino, kind_bits, low, pair};
use crate::watch::post;

const SET_GROUP: u32 = 0o2000;
/// Set-group of a program, not of a lock's mark.
const SET_GROUP_RUN: u32 = SET_GROUP | 0o010;

/// What a new inode is.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Kind bits.
    pub kind: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Flags beside.
    pub flags: u32,
    /// Links at birth (0 for directories: they count subdirectories).
    pub links: u32,
    /// Now.
    pub now_ns: i64,
}

/// Makes an inode; nobody reaches it before commit.
pub fn make(txn: &mut Txn<'_>, birth: &Birth) -> Result<(u32, Cell)> {
    let number = txn.allocate(INODE)?;
    let cell = txn.region.map.object(INODE, number);
    let generation = high(txn.get(cell.word(ino::IDENT))).max(1);
    let bits = birth.mode & 0o7777 | birth.kind << 12 | birth.flags;
    txn.init(cell.word(ino::OWNER), pair(birth.uid, birth.gid));
    txn.init(cell.word(ino::SIZE), 0);
    for time in [ino::MTIME, ino::CTIME, ino::ATIME, ino::BORN] {
        txn.init(cell.word(time), birth.now_ns as u64);
    }
    txn.init(cell.word(ino::LINKS), birth.links as u64);
    txn.init(cell.word(ino::ROOT), 0);
    txn.init(cell.word(ino::USERS), 0);
    txn.init(cell.word(ino::ORIGIN), 0);
    txn.init(cell.word(ino::BLOCKS), 0);
    txn.init(cell.word(ino::PARENT), 0);
    if birth.kind == ino::DIRECTORY {
        txn.init(cell.word(ino::ARRAY), 0);
        txn.init(cell.word(ino::SHARE), share::born(txn, number, None));
    }
    if birth.flags & ino::DURABLE != 0 {
        unsaved::forget(txn.region, number);
    }
    txn.init(cell.word(ino::IDENT), pair(generation, bits));
    Ok((number, cell))
}

/// Group and mode a new node gets in a directory with the set-group bit.
pub fn inherit(
    txn: &Txn<'_>,
    dir: Cell,
    who: &Credentials<'_>,
    mode: u32,
    directory: bool,
) -> (u32, u32) {
    let ident = low(txn.get(dir.word(ino::IDENT)));
    if ident & SET_GROUP == 0 {
        return (who.gid, mode);
    }
    let gid = low(txn.get(dir.word(ino::OWNER)));
    let member = who.in_group(gid) || who.can(FSETID);
    match mode & SET_GROUP_RUN {
        _ if directory => (gid, mode | SET_GROUP),
        // Whoever is not in the group gives nobody its rights.
        SET_GROUP_RUN if !member => (gid, mode & !SET_GROUP),
        _ => (gid, mode),
    }
}

/// The proto name of inode `number`.
pub fn name(txn: &Txn<'_>, number: u32) -> Inode {
    let cell = txn.region.map.object(INODE, number);
    Inode { number, generation: high(txn.get(cell.word(ino::IDENT))) }
}

/// Takes a link of a locked inode away; frees it when it was the last of everything.
pub fn unlink(txn: &mut Txn<'_>, number: u32, now_ns: i64) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    let links = txn.get(cell.word(ino::LINKS));
    txn.set(cell.word(ino::LINKS), links.checked_sub(1).ok_or(Errno::EIO)?);
    txn.set(cell.word(ino::CTIME), now_ns as u64);
    reap(txn, number)
}

/// Takes an open away and frees the inode when it was the last of everything. Locks it.
#[inline]
pub fn close(txn: &mut Txn<'_>, number: u32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    txn.lock(cell)?;
    close_locked(txn, cell, number)
}

/// The same of an inode that is locked already.
#[inline]
pub fn close_locked(txn: &mut Txn<'_>, cell: Cell, number: u32) -> Result<()> {
    add_users(txn, cell, -1, 0);
    if is_held(txn, cell) { Ok(()) } else { reap(txn, number) }
}

/// Whether a user or a name holds a locked inode.
#[inline]
fn is_held(txn: &Txn<'_>, cell: Cell) -> bool {
    txn.get(cell.word(ino::USERS)) != 0 || has_name(txn, cell)
}

/// Frees a locked inode if nothing holds it any more.
pub fn reap(txn: &mut Txn<'_>, number: u32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    if is_held(txn, cell) {
        return Ok(());
    }
    let watched = post::of_end(txn, number)?;
    let ident = txn.get(cell.word(ino::IDENT));
    let root = txn.get(cell.word(ino::ROOT));
    let parts = kind_bits(ident) == ino::DIRECTORY && high(txn.get(cell.word(ino::SHARE))) != 0;
    let extended = extended::first(txn.region, cell) != 0;
    if watched || extended || parts || root != 0 && !ino::keeps_text(kind_bits(ident)) {
        if kill::mutant() != 48 {
            txn.set(cell.word(ino::IDENT), ident | ino::GOING as u64);
        }
        txn.set_pending(number as u64);
        return Ok(());
    }
    free(txn, number)
}

/// Frees an inode that holds no tree.
pub fn free(txn: &mut Txn<'_>, number: u32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    let ident = txn.get(cell.word(ino::IDENT));
    if ino::keeps_text(kind_bits(ident)) {
        text::release(txn, low(txn.get(cell.word(ino::ROOT))));
    }
    let step = u32::from(kill::mutant() != 43);
    let generation = high(ident).wrapping_add(step).max(1);
    txn.set(cell.word(ino::IDENT), pair(generation, 0));
    txn.free(INODE, number);
    Ok(())
}
