//! References to an inode: names, opens, pins. It lives while there is one.

use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, Txn};

use crate::state::{ino, kind_bits, live, low};

/// Locks an inode that somebody is about to hold: `ESTALE` when it is another one by now, or when
/// nothing holds it any more and whoever took the last away is only not through with freeing it.
#[inline]
pub fn lock_to_hold(txn: &mut Txn<'_>, inode: Inode) -> Result<Cell> {
    // Of a stale number another inode is locked for a moment: the check comes after.
    txn.lock(txn.region.map.object(INODE, inode.number))?;
    let cell = live(txn.region, inode)?;
    let doomed = txn.get(cell.word(ino::USERS)) == 0 && !has_name(txn, cell);
    if doomed { Err(Errno::ESTALE) } else { Ok(cell) }
}

/// Whether a name leads to a locked inode.
#[inline]
pub fn has_name(txn: &Txn<'_>, cell: Cell) -> bool {
    let ident = txn.get(cell.word(ino::IDENT));
    if kind_bits(ident) == ino::DIRECTORY {
        low(ident) & ino::REMOVED == 0
    } else {
        txn.get(cell.word(ino::LINKS)) != 0
    }
}

/// Adds to the opens (low half) or pins (high half) of a locked inode.
#[inline]
pub fn add_users(txn: &mut Txn<'_>, cell: Cell, opens: i64, pins: i64) {
    let users = txn.get(cell.word(ino::USERS));
    txn.change(cell.word(ino::USERS), users, users.wrapping_add_signed(opens + (pins << 32)));
}
