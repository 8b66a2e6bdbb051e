//! The end of inodes that hold more than a few objects (a tree, parts of a wide directory, extended
//! attributes, watches): step by step, each step a transaction, noted in the slot's `pending` word
//! until the inode is free, so that the slot's next owner goes on after a death. Steps do not take
//! the inode's lock: whoever looked without one before it had the mark `ino::GOING` has seen all.

use husk_proto::Result;
use husk_region::observe::kill;
use husk_region::{Cell, INODE, LINE, NODE, Txn};

use crate::Kernel;
use crate::fs::directory::{entries, share};
use crate::fs::{extended, extent, inodes};
use crate::state::{high, ino, kind_bits, low};
use crate::state::{text, tree};
use crate::watch::{self, list};

/// Entries forgotten in one step.
const ENTRIES_A_STEP: u32 = 6;

/// Finishes what the slot's `pending` word says.
#[cold]
pub fn finish(kernel: &Kernel) -> Result<()> {
    let work = kernel.session.pending()?;
    if high(work) != 0 {
        return watch::finish(kernel);
    }
    let number = low(work);
    if number == 0 {
        return Ok(());
    }
    // A writer that came before the last close may still be copying into the blocks, or come
    // between two steps: the last step finds nothing left, and nobody finds the inode after it.
    let writer = kernel.session.region.map.object(INODE, number).word(ino::WRITER);
    let mut result = Ok(());
    while result.is_ok() && kernel.session.pending()? != 0 {
        kernel.session.lock_long(writer)?;
        result = kernel.session.transact(|txn| step(txn, number));
        kernel.session.unlock_long(writer);
    }
    result
}

fn step(txn: &mut Txn<'_>, number: u32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    let ident = txn.get(cell.word(ino::IDENT));
    if low(ident) & ino::GOING == 0 && kill::mutant() != 48 {
        // It is another one by now, and somebody's.
        txn.set_pending(0);
        return Ok(());
    }
    let done = match kind_bits(ident) {
        ino::DIRECTORY => forget_directory(txn, cell)?,
        ino::FILE => extent::unmap_step(txn, cell, 0, u64::MAX)?,
        _ => true,
    };
    if done && extended::forget_step(txn, number)? && list::forget_inode(txn, number)? {
        inodes::free(txn, number)?;
        txn.set_pending(0);
    }
    Ok(())
}

/// Forgets some of the records of a removed directory, its own last; whether none is left.
fn forget_directory(txn: &mut Txn<'_>, cell: Cell) -> Result<bool> {
    let share = txn.get(cell.word(ino::SHARE));
    let mut part = None;
    share::each_part(txn.region, share, &mut |k, line| part = Some((k, line)));
    let Some((k, line)) = part else {
        if high(share) != 0 {
            txn.set(cell.word(ino::SHARE), share::without_table(share));
            txn.free(NODE, high(share));
        }
        return forget_entries(txn, cell.word(ino::ROOT));
    };
    if forget_entries(txn, txn.region.map.object(LINE, line).word(ino::ROOT))? {
        let bits = share::joined(txn.region, share);
        let left = txn.get(bits) & !(1 << k);
        txn.set(bits, left);
        text::retire_line(txn, line);
    }
    Ok(false)
}

/// Forgets some whiteouts and nodes of an array; whether none is left.
fn forget_entries(txn: &mut Txn<'_>, root_cell: Cell) -> Result<bool> {
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
