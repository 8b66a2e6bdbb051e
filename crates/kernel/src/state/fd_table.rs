//! Descriptor tables as words: number -> entry, lowest free number.
//!
//! ```text
//!   table:  0 lock   1 generation:32 tag:32   2 root (tree of entries)   3 sharers
//!           4 the tree's first leaf (numbers below 64)
//!   entry:  description, inode, pipe, instance of inotify or epoll set:32
//!           -   socket:1 set:1 instance:1 shadow:1 write end:1 pipe:1 plug:1 on exec:1 kind:2
//! ```
//!
//! What an entry names has counts of its own; who changes an entry keeps them (`descriptor`).

use husk_proto::{Errno, Files, Result};
use husk_region::{Cell, NODE, RECORD, Region, Session, Txn};

use crate::state::tree;
use crate::state::{high, low, pair, tag};

pub(crate) const TAG: u32 = 1;
pub(crate) const ROOT: u32 = 2;
pub(crate) const SHARERS: u32 = 3;
/// The leaf of numbers 0..64, where nearly all are, so that a high one slows no other down.
pub(crate) const FIRST: u32 = 4;

pub(crate) const KIND: u64 = 3;
pub(crate) const HOST: u64 = 1;
pub(crate) const HUSK: u64 = 2;
pub(crate) const CLOSE_ON_EXEC: u64 = 4;
pub(crate) const PLUG: u64 = 8;
/// With `HOST`: an end of a pipe, whose name stands where a node's would.
pub(crate) const PIPE: u64 = 16;
/// The end that is written to.
pub(crate) const WRITE_END: u64 = 32;
/// With `HOST`: a shadow, whose description stands there.
pub(crate) const SHADOW: u64 = 64;
/// With `HOST`: an instance of inotify, whose name stands there.
pub(crate) const WATCH: u64 = 128;
/// With `HOST`: an epoll set, whose name stands there.
pub(crate) const SET: u64 = 256;
/// With `PIPE`: a socket, which reads from that lane, and writes to its mate.
pub(crate) const SOCKET: u64 = 512;
/// With `HOST`: an eventfd, whose name stands there.
pub(crate) const EVENT: u64 = 1024;
/// With `HOST`: no inode's number stands there, nor a description's.
pub(crate) const OTHER: u64 = PIPE | WATCH | SET | EVENT;

/// Highest number plus one.
pub const NUMBERS_MAX: u32 = 262_144;

/// The table's record.
#[inline]
pub(crate) fn cell(region: &Region, files: Files) -> Cell {
    region.map.object(RECORD, files.0)
}

/// The leaf with the entry of `fd`, if that is the first one.
#[inline(always)]
pub(crate) fn first_leaf(region: &Region, table: Cell, fd: u32) -> Option<Cell> {
    let leaf = low(region.load(table.word(FIRST)));
    (fd < tree::WAYS && leaf != 0).then(|| region.map.object(NODE, leaf))
}

/// The leaf with the entry of `fd`, if there is one.
#[inline(always)]
pub(crate) fn leaf(region: &Region, table: Cell, fd: u32) -> Option<Cell> {
    first_leaf(region, table, fd).or_else(|| {
        let leaf = tree::leaf(region, region.load(table.word(ROOT)), fd as u64)?;
        Some(region.map.object(NODE, leaf))
    })
}

/// How many processes have the table.
#[inline(always)]
pub(crate) fn sharers(region: &Region, files: Files) -> u64 {
    region.load(cell(region, files).word(SHARERS))
}

/// The word behind a number.
#[inline]
pub(crate) fn entry(region: &Region, files: Files, fd: u32) -> u64 {
    entry_of(region, cell(region, files), fd)
}

#[inline(always)]
pub(crate) fn entry_of(region: &Region, table: Cell, fd: u32) -> u64 {
    match first_leaf(region, table, fd) {
        Some(leaf) => region.load(leaf.word(tree::ENTRIES + fd % tree::WAYS)),
        None => tree::get_of_few(region, region.load(table.word(ROOT)), fd as u64),
    }
}

pub(crate) fn is_husk(entry: u64) -> bool {
    entry & KIND == HUSK
}

/// The description that an entry names.
pub(crate) fn description_of(entry: u64) -> Option<u32> {
    (is_husk(entry) || entry & SHADOW != 0).then(|| high(entry))
}

/// Locks a table, unless it is this thread's alone, and checks that it is one.
#[inline(always)]
pub(crate) fn lock(txn: &mut Txn<'_>, files: Files) -> Result<Cell> {
    let cell = cell(txn.region, files);
    if !is_mine(txn.session, cell, SHARERS) {
        txn.lock(cell)?;
    }
    if low(txn.get(cell.word(TAG))) == tag::FILES { Ok(cell) } else { Err(Errno::EBADF) }
}

/// The Husk description at a number of a locked table.
#[inline(always)]
pub(crate) fn husk(txn: &Txn<'_>, table: Cell, fd: u32) -> Result<u64> {
    let entry = entry_of(txn.region, table, fd);
    if is_husk(entry) { Ok(entry) } else { Err(Errno::EBADF) }
}

/// The entry of a host number of a locked table that is nothing else yet.
pub(crate) fn plain_host(txn: &Txn<'_>, files: Files, fd: u32) -> Result<u64> {
    let entry = entry(txn.region, files, fd);
    if entry & KIND == HOST && high(entry) == 0 { Ok(entry) } else { Err(Errno::EBADF) }
}

/// Changes the entry of a number and keeps the bitmaps. The table is locked.
#[inline]
pub(crate) fn put(txn: &mut Txn<'_>, table: Cell, fd: u32, value: u64) -> Result<()> {
    txn.session.clear_pass(fd);
    let Some(leaf) = first_leaf(txn.region, table, fd) else {
        return put_below(txn, table, fd, value);
    };
    let (old, bit) = (txn.get(leaf), 1 << (fd % tree::WAYS));
    let new = if value != 0 { old | bit } else { old & !bit };
    if (old == u64::MAX) != (new == u64::MAX) {
        // The nodes above learn of it, if there are any.
        return put_below(txn, table, fd, value);
    }
    txn.set(leaf.word(tree::ENTRIES + fd % tree::WAYS), value);
    if new != old {
        txn.change(leaf, old, new);
    }
    Ok(())
}

fn put_below(txn: &mut Txn<'_>, table: Cell, fd: u32, value: u64) -> Result<()> {
    let root_cell = table.word(ROOT);
    let before = high(txn.get(root_cell));
    let entry = tree::grow(txn, root_cell, fd as u64)?;
    let root = txn.get(root_cell);
    if high(root) != before && before != 0 {
        carry_full(txn, root);
    }
    if txn.get(table.word(FIRST)) == 0 {
        let leaf = first_of_root(txn.region, root);
        txn.set(table.word(FIRST), leaf as u64);
    }
    txn.set(entry, value);
    mark(txn, root, fd as u64, value != 0);
    Ok(())
}

/// The leaf of number 0.
pub(crate) fn first_of_root(region: &Region, root: u64) -> u32 {
    let mut node = if high(root) == 0 { 0 } else { low(root) };
    for level in (1..high(root)).rev() {
        node = if node == 0 { 0 } else { low(region.load(tree::entry(region, node, 0, level))) };
    }
    node
}

/// After the tree grew: the new root learns that its first child is full.
fn carry_full(txn: &mut Txn<'_>, root: u64) {
    let mut path = [low(root); tree::HEIGHT_MAX as usize];
    for level in (1..high(root) as usize).rev() {
        path[level - 1] = low(txn.get(tree::entry(txn.region, path[level], 0, level as u32)));
    }
    for level in 1..high(root) as usize {
        let child = txn.get(txn.region.map.object(NODE, path[level - 1]));
        let bits = txn.region.map.object(NODE, path[level]);
        if path[level - 1] != 0 && child == u64::MAX && txn.get(bits) & 1 == 0 {
            let old = txn.get(bits);
            txn.set(bits, old | 1);
        }
    }
}

/// Sets or clears the bit of `index`, and of every node above that this fills or makes room in.
fn mark(txn: &mut Txn<'_>, root: u64, index: u64, used: bool) {
    let mut path = [low(root); tree::HEIGHT_MAX as usize];
    let height = high(root) as usize;
    for level in (1..height).rev() {
        path[level - 1] = low(txn.get(tree::entry(txn.region, path[level], index, level as u32)));
    }
    for (level, &node) in path.iter().enumerate().take(height) {
        let cell = txn.region.map.object(NODE, node);
        let bit = 1u64 << (index >> (6 * level) & 63);
        let old = txn.get(cell);
        let new = if used { old | bit } else { old & !bit };
        if new == old {
            return;
        }
        txn.set(cell, new);
        if used && new != u64::MAX || !used && old != u64::MAX {
            return;
        }
    }
}

/// The lowest free number at or after `from` below a node.
fn free_below(region: &Region, node: u32, level: u32, from: u64) -> Option<u64> {
    let bits = region.load(region.map.object(NODE, node));
    let mut way = from >> (6 * level) & 63;
    let mut from = from;
    while way < 64 {
        let base = way << (6 * level);
        if bits >> way & 1 == 0 {
            let within = from.max(base) - base;
            if level == 0 {
                return Some(base);
            }
            let child =
                low(region.load(region.map.object(NODE, node).word(tree::ENTRIES + way as u32)));
            if child == 0 {
                return Some(base + within);
            }
            if let Some(found) = free_below(region, child, level - 1, within) {
                return Some(base + found);
            }
        }
        way += 1;
        from = way << (6 * level);
    }
    None
}

/// `Descriptors::lowest_free`.
#[inline]
pub fn lowest_free(region: &Region, files: Files, minimum: u32, limit: u32) -> Result<u32> {
    lowest_free_of(region, cell(region, files), minimum, limit)
}

/// The same of a table.
#[inline(always)]
pub(crate) fn lowest_free_of(
    region: &Region,
    table: Cell,
    minimum: u32,
    limit: u32,
) -> Result<u32> {
    if let Some(leaf) = first_leaf(region, table, minimum) {
        let free = !region.load(leaf) & u64::MAX << (minimum % tree::WAYS);
        if free != 0 {
            let found = free.trailing_zeros();
            return if found < limit { Ok(found) } else { Err(Errno::EMFILE) };
        }
    }
    lowest_free_below(region, region.load(table.word(ROOT)), minimum, limit)
}

fn lowest_free_below(region: &Region, root: u64, minimum: u32, limit: u32) -> Result<u32> {
    let (height, minimum) = (high(root), minimum as u64);
    let found = if minimum >= tree::reach(height) {
        minimum
    } else {
        free_below(region, low(root), height - 1, minimum).unwrap_or(tree::reach(height))
    };
    if found < limit.min(NUMBERS_MAX) as u64 { Ok(found as u32) } else { Err(Errno::EMFILE) }
}

/// What stands under `fd` in a table's first leaf.
#[inline(always)]
pub(crate) fn first_entry(region: &Region, files: Files, fd: u32) -> Option<u64> {
    let leaf = first_leaf(region, cell(region, files), fd)?;
    Some(region.load(leaf.word(tree::ENTRIES + fd % tree::WAYS)))
}

pub(crate) fn flags(close_on_exec: bool) -> u64 {
    if close_on_exec { CLOSE_ON_EXEC } else { 0 }
}

/// The entry of a new descriptor.
pub(crate) fn husk_entry(description: u32, close_on_exec: bool) -> u64 {
    pair(description, 0) | HUSK | flags(close_on_exec)
}

/// The first number in use at or after `from`.
pub fn next_used(region: &Region, files: Files, from: u32) -> Option<(u32, u64)> {
    let root = region.load(cell(region, files).word(ROOT));
    let mut index = from as u64;
    while let Some((node, base)) = tree::next_leaf(region, root, index) {
        let bits = region.load(region.map.object(NODE, node));
        for way in index.max(base) - base..64 {
            if bits >> way & 1 == 1 {
                let entry = region.load(tree::entry(region, node, way, 0));
                if entry != 0 {
                    return Some(((base + way) as u32, entry));
                }
            }
        }
        index = base + 64;
    }
    None
}

/// Whether a record is this thread's alone: its only holder, by the count in word `holders`, is the
/// thread's process, in which nobody else can come by another hold. Whoever is about to become one
/// holder less has locked the record before it lowered the count, so the lock is looked at last.
#[inline(always)]
pub(crate) fn is_mine(session: &Session, record: Cell, holders: u32) -> bool {
    session.is_alone()
        && session.region.load(record.word(holders)) == 1
        && !husk_region::is_locked(session.region.load(record))
}
