//! The end of inodes that hold a tree: step by step, each step a transaction, noted in the slot's
//! `pending` word until the inode is free, so that the slot's next owner goes on after a death.

use husk_proto::Result;
use husk_region::{INODE, Txn};

use crate::Kernel;
use crate::fs::{entries, extent, inodes};
use crate::state::{ino, kind_bits, low};
use crate::tree;

/// Entries forgotten in one step.
const ENTRIES_A_STEP: u32 = 6;

/// Finishes what the slot's `pending` word says.
#[cold]
pub fn finish(kernel: &Kernel) -> Result<()> {
    let number = low(kernel.session.pending()?);
    if number == 0 {
        return Ok(());
    }
    // A writer that came before the last close may still be copying into the blocks.
    let writer = kernel.session.region.map.object(INODE, number).word(ino::WRITER);
    kernel.session.lock_long(writer)?;
    let mut result = Ok(());
    while result.is_ok() && kernel.session.pending()? != 0 {
        result = kernel.session.transact(|txn| step(txn, number));
    }
    kernel.session.unlock_long(writer);
    result
}

fn step(txn: &mut Txn<'_>, number: u32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    let done = if kind_bits(txn.get(cell.word(ino::IDENT))) == ino::DIRECTORY {
        forget_entries(txn, number)?
    } else {
        extent::unmap_step(txn, cell, 0, u64::MAX)?
    };
    if done {
        inodes::free(txn, number)?;
        txn.set_pending(0);
    }
    Ok(())
}

/// Forgets some whiteouts and array nodes of a removed directory; whether none is left.
fn forget_entries(txn: &mut Txn<'_>, number: u32) -> Result<bool> {
    let root_cell = txn.region.map.object(INODE, number).word(ino::ROOT);
    let root = txn.get(root_cell);
    let Some((node, first)) = tree::next_leaf(txn.region, root, 0) else {
        return Ok(true);
    };
    let mut left = ENTRIES_A_STEP;
    for n in 0..64 {
        let slot = tree::entry(txn.region, node, first + n, 0);
        let word = txn.get(slot);
        if word == 0 {
            continue;
        }
        if let Some(line) = entries::slot_line(word) {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            entries::forget_whiteout(txn, line)?;
        }
        txn.set(slot, 0);
    }
    tree::prune(txn, root_cell, first);
    Ok(txn.get(root_cell) == 0)
}
