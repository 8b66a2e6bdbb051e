//! Radix trees of words, 64 ways: block maps (two blocks a word), directory arrays, descriptor
//! tables.
//!
//! ```text
//!   root word: height:32 node:32      height 0 = empty, height h covers 64^h words
//!   node: [ full bitmap | ... | 8..72 entries ]      entry: node number, or at height 1 the value
//! ```
//!
//! 1. Nodes are zero before they are linked in; a reader that follows a stale link stays inside the
//!    slab.
//! 2. The bitmap (word 0) is kept by descriptor tables only. A directory's table of parts is a node
//!    of the same shape, with other bits there (`fs::directory::share`). A bit of a descriptor
//!    table's leaf may stand over an entry of 0 after a death (`Session::put_alone`): who reads
//!    bits asks the entry, too.
//! 3. A tree that `prune` keeps has no empty node: once its words are all 0, its root is.

use husk_proto::{Errno, Result};
use husk_region::{Cell, NODE, Region, Txn};

use crate::state::{high, low, pair};

/// Entries of a node.
pub const WAYS: u32 = 64;
/// First entry's word.
pub const ENTRIES: u32 = 8;
/// Highest tree: 64^5 words.
pub const HEIGHT_MAX: u32 = 5;

/// Words that a tree of `height` covers.
#[inline]
pub fn reach(height: u32) -> u64 {
    if height == 0 { 0 } else { 1 << (6 * height) }
}

/// The entry of `node` on the way to `index`, `level` levels above the leaves.
#[inline]
pub fn entry(region: &Region, node: u32, index: u64, level: u32) -> Cell {
    region.map.object(NODE, node).word(ENTRIES + (index >> (6 * level) & 63) as u32)
}

/// The word at `index`, 0 where there is none.
#[inline]
pub fn get(region: &Region, root: u64, index: u64) -> u64 {
    if is_leaf(root, index) {
        return region.load(entry(region, low(root), index, 0));
    }
    get_below(region, root, index)
}

/// The same where a tree of two levels is usual.
#[inline(always)]
pub fn get_of_few(region: &Region, root: u64, index: u64) -> u64 {
    if high(root) == 2 && index < reach(2) {
        get_of_two(region, root, index)
    } else {
        get(region, root, index)
    }
}

/// The word of a tree of two levels, which `index` lies in.
#[inline(always)]
pub fn get_of_two(region: &Region, root: u64, index: u64) -> u64 {
    match low(region.load(entry(region, low(root), index, 1))) {
        0 => 0,
        leaf => region.load(entry(region, leaf, index, 0)),
    }
}

/// Whether the tree is one leaf and `index` lies in it: nearly always so.
#[inline(always)]
pub fn is_leaf(root: u64, index: u64) -> bool {
    high(root) == 1 && index < WAYS as u64
}

fn get_below(region: &Region, root: u64, index: u64) -> u64 {
    leaf(region, root, index).map_or(0, |leaf| region.load(entry(region, leaf, index, 0)))
}

/// The leaf that `index` lies in, if there is one.
#[inline]
pub fn leaf(region: &Region, root: u64, index: u64) -> Option<u32> {
    let height = high(root);
    if index >= reach(height) || height > HEIGHT_MAX {
        return None;
    }
    let step = |node, level| match low(region.load(entry(region, node, index, level))) {
        0 => None,
        below => Some(below),
    };
    (1..height).rev().try_fold(low(root), step)
}

fn fresh(txn: &mut Txn<'_>) -> Result<u32> {
    let node = txn.allocate(NODE)?;
    let cell = txn.region.map.object(NODE, node);
    for n in 0..ENTRIES + WAYS {
        txn.init(cell.word(n), 0);
    }
    Ok(node)
}

/// The cell at `index`, its nodes made as needed. `EFBIG` past the highest tree, `ENOSPC`.
#[inline]
pub fn grow(txn: &mut Txn<'_>, root_cell: Cell, index: u64) -> Result<Cell> {
    let root = txn.get(root_cell);
    if is_leaf(root, index) {
        return Ok(entry(txn.region, low(root), index, 0));
    }
    grow_below(txn, root_cell, index)
}

fn grow_below(txn: &mut Txn<'_>, root_cell: Cell, index: u64) -> Result<Cell> {
    let mut root = txn.get(root_cell);
    if index >= reach(HEIGHT_MAX) {
        return Err(Errno::EFBIG);
    }
    if high(root) == 0 {
        // As high as it has to be at once: a leaf for the words below would stay empty (3).
        let height = (1..HEIGHT_MAX).find(|&height| index < reach(height)).unwrap_or(HEIGHT_MAX);
        root = pair(height, fresh(txn)?);
        txn.set(root_cell, root);
    }
    while index >= reach(high(root)) {
        let node = fresh(txn)?;
        txn.init(txn.region.map.object(NODE, node).word(ENTRIES), low(root) as u64);
        root = pair(high(root) + 1, node);
        txn.set(root_cell, root);
    }
    let mut node = low(root);
    for level in (1..high(root)).rev() {
        let cell = entry(txn.region, node, index, level);
        let next = low(txn.get(cell));
        node = if next != 0 {
            next
        } else {
            let next = fresh(txn)?;
            txn.set(cell, next as u64);
            next
        };
    }
    Ok(entry(txn.region, node, index, 0))
}

/// The first leaf at or after word `from` that exists: its node and its first index.
pub fn next_leaf(region: &Region, root: u64, from: u64) -> Option<(u32, u64)> {
    let height = high(root);
    if height > HEIGHT_MAX {
        return None;
    }
    let mut index = from & !63;
    while index < reach(height) {
        let mut node = low(root);
        let mut level = height - 1;
        while level > 0 && node != 0 {
            node = low(region.load(entry(region, node, index, level)));
            if node == 0 {
                break;
            }
            level -= 1;
        }
        if level == 0 {
            return Some((node, index));
        }
        let span = reach(level);
        index = (index / span + 1) * span;
    }
    None
}

/// Whether a node has an entry.
pub fn is_used(region: &Region, node: u32) -> bool {
    let cell = region.map.object(NODE, node);
    (0..WAYS).any(|n| region.load(cell.word(ENTRIES + n)) != 0)
}

/// Takes the leaf at `index` out of the tree if it is all zero, and every node that this empties.
pub fn prune(txn: &mut Txn<'_>, root_cell: Cell, index: u64) {
    let root = txn.get(root_cell);
    let height = high(root);
    if index >= reach(height) {
        return;
    }
    let mut path = [0u32; HEIGHT_MAX as usize];
    path[height as usize - 1] = low(root);
    for level in (1..height).rev() {
        let next = low(txn.get(entry(txn.region, path[level as usize], index, level)));
        if next == 0 {
            return;
        }
        path[level as usize - 1] = next;
    }
    for level in 0..height {
        let node = path[level as usize];
        if is_used(txn.region, node) {
            return;
        }
        if level + 1 == height {
            txn.set(root_cell, 0);
        } else {
            txn.set(entry(txn.region, path[level as usize + 1], index, level + 1), 0);
        }
        txn.free(NODE, node);
    }
}

/// Calls `emit` for each node of a tree (for the checker).
pub fn each_node(region: &Region, root: u64, emit: &mut dyn FnMut(u32)) {
    fn walk(region: &Region, node: u32, level: u32, emit: &mut dyn FnMut(u32)) {
        emit(node);
        for n in 0..WAYS {
            if level > 0 {
                let child = low(region.load(region.map.object(NODE, node).word(ENTRIES + n)));
                if child != 0 {
                    walk(region, child, level - 1, emit);
                }
            }
        }
    }
    let height = high(root);
    if (1..=HEIGHT_MAX).contains(&height) {
        walk(region, low(root), height - 1, emit);
    }
}
