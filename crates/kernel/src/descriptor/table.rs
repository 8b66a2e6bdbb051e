//! Operations on descriptor tables: duplicate, close, list, hand to the host and back. Their words,
//! and the search for a free number, are in `state::fd_table`.
//!
//! 1. A plug says that the host's table has something close-on-exec of ours under a Husk number:
//!    the host gives that number to nobody. The mark is taken away before the host closes it, and
//!    the number is free only after, so that nobody's new descriptor is closed for a plug.
//! 2. A number that changes hands (`dup2`) does so in one transaction: it is never free between.

use husk_proto::descriptor::{Glance, Shown, Slot};
use husk_proto::{Description, Errno, Files, Inode, Result};
use husk_region::{Cell, INODE, RECORD, Region, Txn};

use crate::descriptor::{hosts, open};
use crate::fs::inodes;
use crate::pipe;
use crate::readiness::{epoll, eventfd};
use crate::state::fd_table::{
    CLOSE_ON_EXEC, HOST, HUSK, KIND, OTHER, PLUG, SHADOW, SHARERS, description_of, entry, entry_of,
    flags, husk, husk_entry, is_husk, lock, lowest_free_of, put,
};
pub use crate::state::fd_table::{NUMBERS_MAX, lowest_free, next_used};
use crate::state::hold;
use crate::state::process;
use crate::state::{high, ino, live, pair};
use crate::watch;
use crate::{Kernel, no_room};

/// `Descriptors::slot`.
#[inline]
pub fn slot(kernel: &Kernel, files: Files, fd: u32) -> Slot {
    let region = &kernel.session.region;
    let entry = entry(region, files, fd);
    match entry & KIND {
        HUSK => Slot::Husk(Description(high(entry))),
        HOST if high(entry) == 0 || entry & OTHER != 0 => Slot::Host(None),
        HOST if entry & SHADOW != 0 => Slot::Host(Some(open::inode(region, high(entry)))),
        HOST => Slot::Host(Some(node(region, entry))),
        _ => Slot::Free,
    }
}

/// The node behind a host number.
fn node(region: &Region, entry: u64) -> Inode {
    let number = high(entry);
    let ident = region.load(region.map.object(INODE, number).word(ino::IDENT));
    Inode { number, generation: high(ident) }
}

/// How many processes have a table.
pub fn sharers(kernel: &Kernel, files: Files) -> u64 {
    crate::state::fd_table::sharers(&kernel.session.region, files)
}

/// `Descriptors::glance`.
#[inline(always)]
pub fn glance(kernel: &Kernel, fd: u32) -> Option<Glance> {
    let entry = entry(&kernel.session.region, process::files(kernel), fd);
    let close_on_exec = entry & CLOSE_ON_EXEC != 0;
    is_husk(entry).then_some(Glance { description: Description(high(entry)), close_on_exec })
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

/// `Descriptors::duplicate`.
pub fn duplicate(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    minimum: u32,
    limit: u32,
    close_on_exec: bool,
) -> Result<u32> {
    kernel
        .run_reserved(|txn| {
            let table = lock(txn, files)?;
            let description = high(husk(txn, table, fd)?);
            let target = lowest_free_of(txn.region, table, minimum, limit)?;
            open::hold(txn, description)?;
            put(txn, table, target, husk_entry(description, close_on_exec))?;
            Ok(target)
        })
        .map_err(no_room(Errno::ENOMEM))
}

/// `Descriptors::duplicate_to`.
pub fn duplicate_to(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    target: u32,
    close_on_exec: bool,
    over_host: bool,
) -> Result<()> {
    if target >= NUMBERS_MAX {
        return Err(Errno::EBADF);
    }
    drop_locks(kernel, files, target)?;
    let before = pipe::end(kernel, files, target);
    let done = open::wake_after(kernel, entry(&kernel.session.region, files, target), || {
        kernel.run(|txn| {
            let table = lock(txn, files)?;
            let description = high(husk(txn, table, fd)?);
            let old = entry(txn.region, files, target);
            if fd == target {
                return Ok(());
            }
            if (old & KIND == HOST) != over_host {
                return Err(Errno::EBUSY);
            }
            let plug = if over_host { 0 } else { old & PLUG };
            let value = husk_entry(description, close_on_exec) | plug;
            let held = description_of(old).unwrap_or(0);
            if held == description {
                return put(txn, table, target, value);
            }
            lock_both(txn, description, held)?;
            open::hold(txn, description)?;
            put(txn, table, target, value)?;
            release(txn, old)
        })
    });
    pipe::leave(kernel, before);
    done.map_err(no_room(Errno::ENOMEM))
}

/// Locks the descriptions that there are of two, in order.
fn lock_both(txn: &mut Txn<'_>, one: u32, other: u32) -> Result<()> {
    for each in [one.min(other), one.max(other)] {
        if each != 0 {
            txn.lock(txn.region.map.object(RECORD, each))?;
        }
    }
    Ok(())
}

/// `Descriptors::plugged`.
pub fn plugged(region: &Region, files: Files, fd: u32) -> bool {
    let entry = entry(region, files, fd);
    is_husk(entry) && entry & PLUG != 0
}

/// Before a number is closed: this table's POSIX locks on its inode go.
fn drop_locks(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    let region = &kernel.session.region;
    let Some(description) = description_of(entry(region, files, fd)) else { return Ok(()) };
    let number = open::inode_number(region, description);
    let inode = region.map.object(INODE, number);
    if high(region.load(inode.word(ino::ORIGIN))) != 0 {
        crate::lock::drop_owner(kernel, number, crate::lock::posix(files))?;
        open::drop_locks(kernel, description)?;
    }
    Ok(())
}

/// Whether locks stand on the file of a Husk entry.
#[inline(always)]
fn has_locks(region: &Region, entry: u64) -> bool {
    let inode = region.map.object(INODE, open::inode_number(region, high(entry)));
    high(region.load(inode.word(ino::ORIGIN))) != 0
}

/// `Descriptors::close`.
#[inline]
pub fn close(kernel: &Kernel, files: Files, fd: u32) -> Result<bool> {
    match close_with(kernel, files, fd, is_husk, false)? {
        Some(plugged) => Ok(plugged),
        None => close_locked(kernel, files, fd),
    }
}

/// Closes a descriptor of a file with locks: some go, and who waits for them is woken.
#[cold]
fn close_locked(kernel: &Kernel, files: Files, fd: u32) -> Result<bool> {
    drop_locks(kernel, files, fd)?;
    open::wake_after(kernel, entry(&kernel.session.region, files, fd), || {
        close_with(kernel, files, fd, is_husk, true).map(|closed| closed == Some(true))
    })
}

/// Closes a number that names a description, if it `fits`; `None` where locks stand on its file,
/// unless it is to be closed `anyway`.
#[inline(always)]
pub(crate) fn close_with(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    fits: impl Fn(u64) -> bool,
    anyway: bool,
) -> Result<Option<bool>> {
    let mut quick = true;
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let old = entry_of(txn.region, table, fd);
        if !fits(old) {
            return Err(Errno::EBADF);
        }
        if !anyway && has_locks(txn.region, old) {
            return Ok(None);
        }
        if old & PLUG != 0 {
            put(txn, table, fd, old & !PLUG)?;
            return Ok(Some(true));
        }
        put(txn, table, fd, 0)?;
        // Who dies with a shared table leaves others who would have seen the end of it.
        let single = open::references(txn.region, high(old)) == 1;
        if single && core::mem::take(&mut quick) && txn.get(table.word(SHARERS)) == 1 {
            open::release_private(txn, high(old))?;
        } else {
            open::release(txn, high(old))?;
        }
        Ok(Some(false))
    })
}

/// Closes whatever is at a number, host notes too. Plugs are the host's to close: the process has
/// ended, or has just begun with another program.
pub fn close_any(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    if is_husk(entry(&kernel.session.region, files, fd)) {
        let unplugged = close(kernel, files, fd);
        match if unplugged == Ok(true) { close(kernel, files, fd) } else { unplugged } {
            Ok(_) | Err(Errno::EBADF) => Ok(()),
            Err(error) => Err(error),
        }
    } else {
        host_closed(kernel, files, fd)
    }
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
    shows: Shown,
) -> Result<bool> {
    if fd >= NUMBERS_MAX {
        return Err(Errno::EMFILE);
    }
    let new = HOST | flags(close_on_exec);
    if shows == Shown::Nothing && hosts::swap(kernel, files, fd, 0, new) == Ok(true) {
        return Ok(true);
    }
    let before = pipe::end(kernel, files, fd);
    let noted = kernel.run_reserved(|txn| {
        let table = lock(txn, files)?;
        let old = entry(txn.region, files, fd);
        if is_husk(old) {
            return Ok(false);
        }
        put_host(txn, table, fd, close_on_exec, shows)?;
        release(txn, old)?;
        Ok(true)
    });
    pipe::leave(kernel, before);
    noted
}

/// `Descriptors::host_replaces`.
pub fn host_replaces(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    close_on_exec: bool,
    shows: Shown,
) -> Result<()> {
    if fd >= NUMBERS_MAX {
        return Err(Errno::EMFILE);
    }
    drop_locks(kernel, files, fd)?;
    let before = pipe::end(kernel, files, fd);
    let replaced = open::wake_after(kernel, entry(&kernel.session.region, files, fd), || {
        kernel.run_reserved(|txn| {
            let table = lock(txn, files)?;
            let old = entry(txn.region, files, fd);
            put_host(txn, table, fd, close_on_exec, shows)?;
            release(txn, old)
        })
    });
    pipe::leave(kernel, before);
    replaced
}

/// The host's from now on; what was there is locked, but not released.
fn put_host(
    txn: &mut Txn<'_>,
    table: Cell,
    fd: u32,
    close_on_exec: bool,
    shows: Shown,
) -> Result<()> {
    let old = entry_of(txn.region, table, fd);
    let shown = match shows {
        Shown::Nothing => 0,
        Shown::Node(inode) => hold_node(txn, inode, old)?,
        Shown::File(inode) => {
            hold_node(txn, inode, old)?;
            pair(open::make_hosted(txn, inode)?, 0) | SHADOW
        }
        Shown::Like(source) => hold_same(txn, entry_of(txn.region, table, source), old)?,
    };
    put(txn, table, fd, shown | HOST | flags(close_on_exec))
}

/// One more use of an inode beside what `old` names; its word in an entry.
fn hold_node(txn: &mut Txn<'_>, inode: Inode, old: u64) -> Result<u64> {
    lock_both(txn, description_of(old).unwrap_or(0), 0)?;
    // Two inodes are locked: in order.
    let cell = live(txn.region, inode)?;
    txn.lock(cell.min(held_inode(txn, old).unwrap_or(cell)))?;
    hold::lock_to_hold(txn, inode)?;
    hold::add_users(txn, cell, 1, 0);
    Ok(pair(inode.number, 0))
}

/// The same of what the entry `source` shows.
fn hold_same(txn: &mut Txn<'_>, source: u64, old: u64) -> Result<u64> {
    if let Some(description) = description_of(source) {
        lock_both(txn, description, description_of(old).unwrap_or(0))?;
        open::hold(txn, description)?;
        return Ok(pair(description, 0) | SHADOW);
    }
    if source & (KIND | OTHER) != HOST || high(source) == 0 {
        return Ok(0);
    }
    hold_node(txn, node(txn.region, source), old)
}

/// The inode that goes with an entry.
fn held_inode(txn: &Txn<'_>, entry: u64) -> Option<Cell> {
    let number = match description_of(entry) {
        Some(description) => open::inode_number(txn.region, description),
        None if entry & (KIND | OTHER) == HOST => high(entry),
        None => 0,
    };
    (number != 0).then(|| txn.region.map.object(INODE, number))
}

/// `Descriptors::promote`.
pub fn promote(
    kernel: &Kernel,
    files: Files,
    fd: u32,
    inode: Inode,
    flags: u32,
    offset: u64,
) -> Result<Description> {
    kernel.run_reserved(|txn| {
        let table = lock(txn, files)?;
        let old = entry(txn.region, files, fd);
        if is_husk(old) {
            return Ok(Description(high(old)));
        }
        if old & SHADOW == 0 || open::inode(txn.region, high(old)) != inode {
            return Err(Errno::EBADF);
        }
        open::take_over(txn, high(old), flags, offset)?;
        let value = husk_entry(high(old), old & CLOSE_ON_EXEC != 0) | PLUG;
        put(txn, table, fd, value)?;
        Ok(Description(high(old)))
    })
}

/// What an entry stood for, a description, an inode, a pipe, an instance, a set or an eventfd,
/// has one less.
fn release(txn: &mut Txn<'_>, entry: u64) -> Result<()> {
    if let Some(instance) = watch::instance_of(entry) {
        return watch::release(txn, instance);
    }
    if let Some(set) = epoll::set_of(entry) {
        return epoll::release(txn, set);
    }
    if let Some(event) = eventfd::event_of(entry) {
        return eventfd::release(txn, event);
    }
    match (description_of(entry), pipe::end_of(entry)) {
        (Some(description), _) => open::release(txn, description),
        (None, Some(end)) => pipe::release(txn, end.pipe),
        _ if entry & KIND == HOST && high(entry) != 0 => inodes::close(txn, high(entry)),
        _ => Ok(()),
    }
}

/// `Descriptors::host_closed`.
pub fn host_closed(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    let noted = entry(&kernel.session.region, files, fd);
    if noted & KIND != HOST {
        return Ok(());
    }
    if hosts::is_plain(noted) && hosts::swap(kernel, files, fd, noted, 0)? {
        return Ok(());
    }
    drop_locks(kernel, files, fd)?;
    let end = pipe::end_of(noted);
    pipe::leave(kernel, end);
    let closed = open::wake_after(kernel, noted, || {
        kernel.run(|txn| {
            let table = lock(txn, files)?;
            let old = entry(txn.region, files, fd);
            if old & KIND != HOST {
                return Ok(());
            }
            put(txn, table, fd, 0)?;
            release(txn, old)
        })
    });
    pipe::leave(kernel, end);
    closed
}

/// `Descriptors::plug`.
pub fn plug(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let old = husk(txn, table, fd)?;
        put(txn, table, fd, old | PLUG)
    })
}

/// After an exec: the host has closed all plugs.
pub(crate) fn forget_plug(kernel: &Kernel, files: Files, fd: u32) -> Result<()> {
    kernel.run(|txn| {
        let table = lock(txn, files)?;
        let old = husk(txn, table, fd)?;
        put(txn, table, fd, old & !PLUG)
    })
}
