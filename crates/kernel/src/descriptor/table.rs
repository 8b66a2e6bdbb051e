//! Tables: number -> entry, lowest free number, host numbers.

use husk_proto::descriptor::Slot;
use husk_proto::{Description, Errno, Files, Inode, Result};
use husk_region::{Cell, INODE, NODE, RECORD, RETRY, Region, Txn};

use crate::Kernel;
use crate::descriptor::open;
use crate::fs::inodes;
use crate::state::{high, ino, live, low, pair, tag};
use crate::tree;

pub(crate) const TAG: u32 = 1;
pub(crate) const ROOT: u32 = 2;
pub(crate) const SHARERS: u32 = 3;

const KIND: u64 = 3;
pub(crate) const HOST: u64 = 1;
pub(crate) const HUSK: u64 = 2;
pub(crate) const CLOSE_ON_EXEC: u64 = 4;
const PLUG: u64 = 8;

/// Highest number plus one.
pub const NUMBERS_MAX: u32 = 262_144;

/// The table's record.
#[inline]
pub(crate) fn cell(region: &Region, files: Files) -> Cell {
    region.map.object(RECORD, files.0)
}

/// The word behind a number.
#[inline]
pub(crate) fn entry(region: &Region, files: Files, fd: u32) -> u64 {
    tree::get(region, region.load(cell(region, files).word(ROOT)), fd as u64)
}

pub(crate) fn is_husk(entry: u64) -> bool {
    entry & KIND == HUSK
}

/// Locks a table and checks that it is one.
#[inline]
pub(crate) fn lock(txn: &mut Txn<'_>, files: Files) -> Result<Cell> {
    let cell = cell(txn.region, files);
    txn.lock(cell)?;
    if low(txn.get(cell.word(TAG))) == tag::FILES { Ok(cell) } else { Err(Errno::EBADF) }
}

/// The Husk description at a number of a locked table.
pub(crate) fn husk(txn: &Txn<'_>, files: Files, fd: u32) -> Result<u64> {
    let entry = entry(txn.region, files, fd);
    if is_husk(entry) { Ok(entry) } else { Err(Errno::EBADF) }
}

/// Changes the entry of a number and keeps the bitmaps. The table is locked.
#[inline]
pub(crate) fn put(txn: &mut Txn<'_>, table: Cell, fd: u32, value: u64) -> Result<()> {
    let root = txn.get(table.word(ROOT));
    if !tree::is_leaf(root, fd as u64) {
        return put_below(txn, table, fd, value);
    }
    let bits = txn.region.map.object(NODE, low(root));
    txn.set(bits.word(tree::ENTRIES + (fd & 63)), value);
    let (old, bit) = (txn.get(bits), 1 << fd);
    let new = if value != 0 { old | bit } else { old & !bit };
    if new != old {
        txn.change(bits, old, new);
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
    txn.set(entry, value);
    mark(txn, root, fd as u64, value != 0);
    Ok(())
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
    let root = region.load(cell(region, files).word(ROOT));
    let height = high(root);
    if tree::is_leaf(root, minimum as u64) {
        let bits = region.load(region.map.object(NODE, low(root)));
        let found = (!bits & u64::MAX << minimum).trailing_zeros();
        return if found < limit { Ok(found) } else { Err(Errno::EMFILE) };
    }
    let minimum = minimum as u64;
    let found = if minimum >= tree::reach(height) {
        minimum
    } else {
        free_below(region, low(root), height - 1, minimum).unwrap_or(tree::reach(height))
    };
    if found < limit.min(NUMBERS_MAX) as u64 { Ok(found as u32) } else { Err(Errno::EMFILE) }
}

/// `Descriptors::slot`.
#[inline]
pub fn slot(kernel: &Kernel, files: Files, fd: u32) -> Slot {
    let region = &kernel.session.region;
    let entry = entry(region, files, fd);
    match entry & KIND {
        HUSK => Slot::Husk(Description(high(entry))),
        HOST if high(entry) == 0 => Slot::Host(None),
        HOST => {
            let number = high(entry);
            let ident = region.load(region.map.object(INODE, number).word(ino::IDENT));
            Slot::Host(Some(Inode { number, generation: high(ident) }))
        }
        _ => Slot::Free,
    }
}

/// `Descriptors::close_on_exec`.
pub fn close_on_exec(kernel: &Kernel, files: Files, fd: u32) -> Result<bool> {
    match entry(&kernel.session.region, files, fd) {
        0 => Err(Errno::EBADF),
        entry => Ok(entry & CLOSE_ON_EXEC != 0),
    }
}

/// `Descriptors::set_close_on_exec`.
pub fn set_close_on_exec(kernel: &Kernel, files: Files, fd: u32, on: bool) -> Result<()> {
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let old = entry(txn.region, files, fd);
        if old == 0 {
            return Err(Errno::EBADF);
        }
        let new = if on { old | CLOSE_ON_EXEC } else { old & !CLOSE_ON_EXEC };
        put(txn, table, fd, new)
    })
}

fn flags(close_on_exec: bool) -> u64 {
    if close_on_exec { CLOSE_ON_EXEC } else { 0 }
}

/// The entry of a new descriptor.
pub(crate) fn husk_entry(description: u32, close_on_exec: bool) -> u64 {
    pair(description, 0) | HUSK | flags(close_on_exec)
}

/// `Descriptors::duplicate`.
pub fn duplicate(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    minimum: u32,
    limit: u32,
    close_on_exec: bool,
) -> Result<u32> {
    kernel.run_reserved(|txn| {
        let table = lock(txn, files)?;
        let description = high(husk(txn, files, fd)?);
        let target = lowest_free(txn.region, files, minimum, limit)?;
        open::hold(txn, description)?;
        put(txn, table, target, husk_entry(description, close_on_exec))?;
        Ok(target)
    })
}

/// `Descriptors::duplicate_to`.
pub fn duplicate_to(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    target: u32,
    close_on_exec: bool,
) -> Result<()> {
    if target >= NUMBERS_MAX {
        return Err(Errno::EBADF);
    }
    drop_locks(kernel, files, target)?;
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let description = high(husk(txn, files, fd)?);
        if fd == target {
            return Ok(());
        }
        let old = entry(txn.region, files, target);
        if old & KIND == HOST {
            return Err(Errno::EBUSY);
        }
        let mut value = husk_entry(description, close_on_exec) | old & PLUG;
        if is_husk(old) && high(old) == description {
            value |= old & PLUG;
            return put(txn, table, target, value);
        }
        // Two descriptions are locked: in order.
        let (one, two) = (description.min(high(old)), description.max(high(old)));
        for each in [one, two] {
            if each != 0 {
                txn.lock(txn.region.map.object(RECORD, each))?;
            }
        }
        open::hold(txn, description)?;
        put(txn, table, target, value)?;
        if is_husk(old) { open::release(txn, high(old)) } else { Ok(()) }
    })
}

/// Before a number is closed: this table's POSIX locks on its inode go.
fn drop_locks(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    let region = &kernel.session.region;
    let entry = entry(region, files, fd);
    if !is_husk(entry) {
        return Ok(());
    }
    let number = open::inode_number(region, high(entry));
    let inode = region.map.object(INODE, number);
    if high(region.load(inode.word(ino::ORIGIN))) != 0 {
        crate::lock::drop_owner(kernel, number, crate::lock::posix(files))?;
        if open::references(region, high(entry)) == 1 {
            crate::lock::drop_many(kernel, number, high(entry))?;
        }
    }
    Ok(())
}

/// `Descriptors::close`.
#[inline]
pub fn close(kernel: &Kernel, files: Files, fd: u32) -> Result<bool> {
    drop_locks(kernel, files, fd)?;
    open::wake_after(kernel, entry(&kernel.session.region, files, fd), || {
        let mut quick = true;
        kernel.run(|txn| {
            let table = lock(txn, files)?;
            let old = husk(txn, files, fd)?;
            put(txn, table, fd, 0)?;
            // Who dies with a shared table leaves others who would have seen the end of it.
            if core::mem::take(&mut quick) && txn.get(table.word(SHARERS)) == 1 {
                open::release_private(txn, high(old))?;
            } else {
                open::release(txn, high(old))?;
            }
            Ok(old & PLUG != 0)
        })
    })
}

/// Closes whatever is at a number, host notes too.
pub fn close_any(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    if is_husk(entry(&kernel.session.region, files, fd)) {
        match close(kernel, files, fd) {
            Ok(_) | Err(Errno::EBADF) => Ok(()),
            Err(error) => Err(error),
        }
    } else {
        host_closed(kernel, files, fd)
    }
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

/// `Descriptors::for_each`.
pub fn for_each(
    kernel: &Kernel,
    files: Files,
    first: u32,
    last: u32,
    emit: &mut dyn FnMut(u32, Slot),
) {
    let mut from = first;
    while let Some((fd, _)) = next_used(&kernel.session.region, files, from) {
        if fd > last {
            return;
        }
        emit(fd, slot(kernel, files, fd));
        from = fd + 1;
    }
}

/// `Descriptors::host_opened`.
pub fn host_opened(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    close_on_exec: bool,
    shows: Option<Inode>,
) -> Result<bool> {
    if fd >= NUMBERS_MAX {
        return Err(Errno::EMFILE);
    }
    kernel.run_reserved(|txn| {
        let table = lock(txn, files)?;
        let old = entry(txn.region, files, fd);
        if is_husk(old) {
            return Ok(false);
        }
        if let Some(inode) = shows {
            let cell = live(txn.region, inode)?;
            txn.lock(cell.min(shadow(txn, old).unwrap_or(cell)))?;
            inodes::lock_to_hold(txn, inode)?;
            inodes::add_users(txn, cell, 1, 0);
        }
        let number = shows.map_or(0, |inode| inode.number);
        put(txn, table, fd, pair(number, 0) | HOST | flags(close_on_exec))?;
        release_shadow(txn, old)?;
        Ok(true)
    })
}

fn shadow(txn: &Txn<'_>, entry: u64) -> Option<Cell> {
    let shadowed = entry & KIND == HOST && high(entry) != 0;
    shadowed.then(|| txn.region.map.object(INODE, high(entry)))
}

fn release_shadow(txn: &mut Txn<'_>, entry: u64) -> Result<()> {
    if entry & KIND == HOST && high(entry) != 0 { inodes::close(txn, high(entry)) } else { Ok(()) }
}

/// `Descriptors::host_closed`.
pub fn host_closed(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    if entry(&kernel.session.region, files, fd) & KIND != HOST {
        return Ok(());
    }
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let old = entry(txn.region, files, fd);
        if old & KIND != HOST {
            return Ok(());
        }
        put(txn, table, fd, 0)?;
        release_shadow(txn, old)
    })
}

/// `Descriptors::plug`.
pub fn plug(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let old = husk(txn, files, fd)?;
        put(txn, table, fd, old | PLUG)
    })
}

/// Makes an empty table.
pub(crate) fn make(txn: &mut Txn<'_>) -> Result<u32> {
    let number = txn.allocate(RECORD)?;
    let cell = txn.region.map.object(RECORD, number);
    txn.init(cell.word(ROOT), 0);
    txn.init(cell.word(SHARERS), 1);
    let generation = high(txn.get(cell.word(TAG)));
    txn.init(cell.word(TAG), pair(generation, tag::FILES));
    Ok(number)
}

/// Copies number `fd` of one table to another nobody else uses yet.
pub(crate) fn copy_one(kernel: &Kernel, source: Files, target: Files, fd: u32) -> Result<()> {
    kernel.run_reserved(|txn| {
        // Tables in order of their records, as everywhere.
        let (one, two) = (source.0.min(target.0), source.0.max(target.0));
        lock(txn, Files(one))?;
        lock(txn, Files(two))?;
        let entry = entry(txn.region, source, fd);
        let table = cell(txn.region, target);
        match entry & KIND {
            HUSK => open::hold(txn, high(entry))?,
            HOST if high(entry) != 0 => {
                let inode = txn.region.map.object(INODE, high(entry));
                txn.lock(inode)?;
                inodes::add_users(txn, inode, 1, 0);
            }
            HOST => {}
            _ => return Ok(()),
        }
        put(txn, table, fd, entry)
    })
}

/// Frees the leaves and nodes of a table whose entries are all closed, then calls `last` in the
/// transaction that finds nothing left.
pub(crate) fn dissolve(
    kernel: &Kernel,
    files: Files,
    mut last: impl FnMut(&mut Txn<'_>) -> Result<()>,
) -> Result<()> {
    loop {
        let done = kernel.run(|txn| {
            let table = lock(txn, files)?;
            let root = txn.get(table.word(ROOT));
            if let Some((node, base)) = tree::next_leaf(txn.region, root, 0) {
                if txn.get(txn.region.map.object(NODE, node)) != 0 {
                    return Err(RETRY);
                }
                tree::prune(txn, table.word(ROOT), base);
                return Ok(false);
            }
            let generation = high(txn.get(table.word(TAG))).wrapping_add(1);
            txn.set(table.word(TAG), pair(generation, 0));
            txn.free(RECORD, files.0);
            last(txn)?;
            Ok(true)
        })?;
        if done {
            return Ok(());
        }
    }
}
