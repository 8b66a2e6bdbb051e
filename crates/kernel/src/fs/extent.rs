//! Block maps: which block of the buffer cache holds which 4 KiB of a file.
//!
//! A word of the tree holds two blocks (even block low, odd high); 0 is a hole. The map sequence
//! moves before a block leaves a map; who copies from a block compares it afterwards.

use husk_proto::Result;
use husk_region::{Blocks, Cell, Region, Txn};

use crate::state::tree;
use crate::state::{high, ino, low, pair};

/// Bytes of a block.
pub const PAGE: u64 = 4096;
/// Blocks that one file can have.
pub const BLOCKS_MAX: u64 = 2 << 30;
/// Blocks unmapped in one transaction.
const UNMAP_MAX: u32 = 12;

fn half(word: u64, block: u64) -> u32 {
    if block & 1 == 0 { low(word) } else { high(word) }
}

fn with_half(word: u64, block: u64, value: u32) -> u64 {
    if block & 1 == 0 { pair(high(word), value) } else { pair(value, low(word)) }
}

/// The cache block behind file block `block`, 0 for a hole.
#[inline]
pub fn block_at(region: &Region, root: u64, block: u64) -> u32 {
    half(tree::get(region, root, block / 2), block)
}

/// The cache block at `block` and how many follow it in one run (holes too), at most `most`.
pub fn run_at(region: &Region, root: u64, block: u64, most: u64) -> (u32, u64) {
    let first = block_at(region, root, block);
    let mut count = 1;
    while count < most {
        let next = block_at(region, root, block + count);
        let expected = if first == 0 { 0 } else { first.wrapping_add(count as u32) };
        if next != expected {
            break;
        }
        count += 1;
    }
    (first, count)
}

/// Puts blocks from `blocks_ahead` into the map of a locked inode, at holes.
pub fn map(txn: &mut Txn<'_>, inode: Cell, block: u64, blocks: Blocks) -> Result<()> {
    txn.take_blocks(blocks)?;
    for n in 0..blocks.count as u64 {
        let cell = tree::grow(txn, inode.word(ino::ROOT), (block + n) / 2)?;
        let word = txn.get(cell);
        txn.set(cell, with_half(word, block + n, blocks.first + n as u32));
    }
    let held = txn.get(inode.word(ino::BLOCKS));
    txn.set(inode.word(ino::BLOCKS), held + blocks.count as u64);
    Ok(())
}

/// Takes some blocks of `first..end` out of the map and frees them; whether none is left.
/// The caller holds the inode, or nobody can reach it.
pub fn unmap_step(txn: &mut Txn<'_>, inode: Cell, first: u64, end: u64) -> Result<bool> {
    let root_cell = inode.word(ino::ROOT);
    let root = txn.get(root_cell);
    // Unjournalled: a move too many only makes readers look again.
    txn.init(inode.word(ino::MAP_SEQUENCE), txn.get(inode.word(ino::MAP_SEQUENCE)) + 1);
    let mut from = first / 2;
    loop {
        let Some((node, base)) = tree::next_leaf(txn.region, root, from) else {
            return Ok(true);
        };
        if base * 2 >= end {
            return Ok(true);
        }
        let range = (first.max(base * 2), end.min((base + 64) * 2));
        let freed = unmap_leaf(txn, inode, node, range)?;
        if txn.get(inode.word(ino::BLOCKS)) == 0 && high(root) == 1 {
            txn.set(root_cell, 0);
            txn.free(husk_region::NODE, node);
            return Ok(true);
        }
        tree::prune(txn, root_cell, base);
        if freed > 0 || txn.get(root_cell) != root {
            return Ok(txn.get(root_cell) == 0);
        }
        from = base + 64;
    }
}

/// Frees up to `UNMAP_MAX` single blocks, or one run within a chunk, of one leaf.
fn unmap_leaf(txn: &mut Txn<'_>, inode: Cell, node: u32, range: (u64, u64)) -> Result<u32> {
    let mut freed = 0;
    let mut block = range.0;
    let held = txn.get(inode.word(ino::BLOCKS));
    while block < range.1 && freed < UNMAP_MAX && (freed as u64) < held {
        let cell = tree::entry(txn.region, node, block / 2, 0);
        let here = half(txn.get(cell), block);
        if here == 0 {
            block += 1;
            continue;
        }
        let run = run_in_leaf(txn, node, block, range.1);
        let alone = run < 4;
        if !alone && freed > 0 {
            break;
        }
        let count = if alone { 1 } else { run };
        for n in 0..count as u64 {
            let cell = tree::entry(txn.region, node, (block + n) / 2, 0);
            txn.set(cell, with_half(txn.get(cell), block + n, 0));
        }
        txn.free_blocks(Blocks { first: here, count })?;
        freed += count;
        block += count as u64;
        if !alone {
            break;
        }
    }
    txn.set(inode.word(ino::BLOCKS), held - freed as u64);
    Ok(freed)
}

/// Length of the run at `block` within its leaf and its chunk.
fn run_in_leaf(txn: &Txn<'_>, node: u32, block: u64, end: u64) -> u32 {
    let at = |b: u64| half(txn.get(tree::entry(txn.region, node, b / 2, 0)), b);
    let first = at(block);
    let mut count = 1;
    while block + (count as u64) < end
        && at(block + count as u64) == first + count
        && !(first + count).is_multiple_of(1024)
    {
        count += 1;
    }
    count
}

/// The first block at or after `offset` that is data (or a hole), within `size`.
pub fn scan(region: &Region, root: u64, offset: u64, size: u64, data: bool) -> Option<u64> {
    let mut block = offset / PAGE;
    while block * PAGE < size {
        let Some((_, base)) = tree::next_leaf(region, root, block / 2) else {
            return if data { None } else { Some(offset.max(block * PAGE)) };
        };
        if base * 2 > block {
            if !data {
                return Some(offset.max(block * PAGE));
            }
            block = base * 2;
            continue;
        }
        if (block_at(region, root, block) != 0) == data {
            return Some(offset.max(block * PAGE));
        }
        block += 1;
    }
    None
}
