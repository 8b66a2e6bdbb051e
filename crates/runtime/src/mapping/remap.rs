//! `mremap` of Husk mappings, and `remap_file_pages`.
//!
//! Behind a run of the buffer cache lies another file's, and to the host one mapping of a file is
//! many. So what grows is mapped anew where it grows, and what moves is mapped anew where it moves
//! to: the blocks are the same. Only a private mapping has bytes of its own; it grows in place, and
//! moves when the host can move it as it is.

use crate::frame::Frame;
use crate::memory::mappings::{self, Entry};
use crate::thread::Thread;
use husk_abi::memory::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE,
    MREMAP_DONTUNMAP as DONT_UNMAP, MREMAP_FIXED as FIXED, MREMAP_MAYMOVE as MAY_MOVE,
};
use husk_abi::{Errno, PAGE, nr};
use husk_client::Mapping;
use husk_host::calls;

/// What is asked for, in whole pages.
#[derive(Clone, Copy)]
struct Asked {
    old: usize,
    old_length: usize,
    new_length: usize,
    flags: usize,
    target: usize,
}

/// The result of the call.
pub fn serve(thread: &mut Thread, frame: &Frame) -> i64 {
    let [old, old_length, new_length, flags, target, _] = frame.args;
    let entry = mappings::at(old);
    let pages = |bytes: usize| bytes.checked_next_multiple_of(PAGE).unwrap_or(0);
    let (old_length, new_length) = (pages(old_length), pages(new_length));
    let asked = Asked { old, old_length, new_length, flags, target };
    match entry {
        Some(entry) if new_length > old_length => {
            let whole = thread.client.joined_mapping(old, old.saturating_add(old_length));
            let done = grow(thread, &whole.unwrap_or(entry), asked);
            done.map_or_else(Errno::as_return, |address| address as i64)
        }
        _ => host_moves(thread, frame, entry, asked),
    }
}

/// `remap_file_pages`: to the host another page of the file would be one of the whole region.
/// `None`: no Husk file is concerned.
pub fn rearrange(thread: &mut Thread, frame: &Frame) -> Option<i64> {
    let [start, length, prot, page, ..] = frame.args;
    let (start, length) = (start & !(PAGE - 1), length & !(PAGE - 1));
    let entry = mappings::at(start)?;
    let shared = !entry.is_private() && entry.may_write;
    let inside = length > 0 && start.checked_add(length).is_some_and(|end| end <= entry.end);
    let offset = page.checked_mul(PAGE).filter(|at| at.checked_add(length).is_some());
    let Some(offset) = offset.filter(|_| prot == 0 && shared && inside) else {
        return Some(Errno::EINVAL.as_return());
    };
    let part = Mapping { offset: offset as u64, ..entry.part(start, length) };
    let done = thread.client.map_anew(entry.inode, &part);
    Some(done.map_or_else(Errno::as_return, |()| 0))
}

/// A mapping that keeps its length or gets shorter, or is none of ours: the host knows how.
fn host_moves(thread: &mut Thread, frame: &Frame, entry: Option<Entry>, asked: Asked) -> i64 {
    let Asked { old, old_length, new_length, flags, target } = asked;
    let result = frame.host();
    if result == Errno::EFAULT.as_return()
        && flags & (MAY_MOVE | FIXED | DONT_UNMAP) == MAY_MOVE | FIXED
        && let Some(entry) = entry.filter(|entry| !entry.is_private())
    {
        // Many mappings to the host.
        let done = renew(thread, &entry, asked);
        return done.map_or_else(Errno::as_return, |address| address as i64);
    }
    if result < 0 {
        return result;
    }
    if result as usize == old {
        // In place: only what lay behind it is gone.
        if new_length < old_length {
            thread.client.forget_mappings(old + new_length, old.saturating_add(old_length));
        }
        return result;
    }
    if flags & FIXED != 0 {
        thread.client.forget_mappings(target, target.saturating_add(new_length));
    }
    note_moved(thread, asked, result as usize);
    if flags & DONT_UNMAP == 0 {
        thread.client.forget_mappings(old, old.saturating_add(old_length));
    }
    result
}

/// Notes at its new place what the host has moved. Its old place still has its pins: of a file
/// without a name they may be the last, and a file that is gone cannot be pinned again.
fn note_moved(thread: &mut Thread, asked: Asked, new: usize) {
    let length = asked.old_length.min(asked.new_length);
    let (mut at, end) = (asked.old, asked.old.saturating_add(length));
    while at < end {
        let next = mappings::at_or_after(at).filter(|entry| entry.start < end);
        let Some(entry) = next else { return };
        let from = entry.start.max(at);
        at = entry.end.min(end);
        let solid = entry.solid.saturating_sub(from);
        let address = new + (from - asked.old);
        let moved = Mapping { address, solid, ..entry.part(from, at - from) };
        thread.client.pin(entry.inode);
        if mappings::note(&moved, entry.inode) == mappings::Noted::Joined {
            thread.client.unpin(entry.inode);
        }
        // When the table is full the pin stays until exec or exit.
    }
}

fn grow(thread: &mut Thread, entry: &Entry, asked: Asked) -> Result<usize, Errno> {
    let Asked { old, old_length, new_length, flags, target } = asked;
    let known = flags & !(MAY_MOVE | FIXED | DONT_UNMAP) == 0;
    let placed = flags & FIXED != 0;
    if !known
        || old % PAGE != 0
        || flags & DONT_UNMAP != 0
        || (placed && (flags & MAY_MOVE == 0 || target % PAGE != 0))
        || (old_length == 0 && (flags & MAY_MOVE == 0 || entry.is_private()))
        || (placed && target < old + old_length && old < target.saturating_add(new_length))
    {
        return Err(Errno::EINVAL);
    }
    if old + old_length > entry.end {
        return Err(Errno::EFAULT);
    }
    let at_end = old_length > 0 && old + old_length == entry.end;
    if !placed && at_end && extend(thread, entry, new_length - old_length).is_ok() {
        return Ok(old);
    }
    match flags & MAY_MOVE {
        0 => Err(Errno::ENOMEM),
        _ if entry.is_private() => move_private(thread, entry, asked),
        _ => renew(thread, entry, asked),
    }
}

/// Sets addresses aside: at `address` when `flags` say so.
fn reserve(address: usize, length: usize, flags: usize) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags;
    // SAFETY: new memory, or what the application gave with MREMAP_FIXED; `protect` looked at it.
    unsafe { calls::raw(nr::mmap, [address, length, 0, flags, -1isize as usize, 0]) }
}

fn unmap(address: usize, length: usize) {
    // SAFETY: what `reserve` set aside, or the application's own old place.
    let _ = unsafe { calls::raw(nr::munmap, [address, length, 0, 0, 0, 0]) };
}

/// Maps `more` bytes behind the entry, if nothing lies there.
fn extend(thread: &mut Thread, entry: &Entry, more: usize) -> Result<(), Errno> {
    let at = entry.end;
    let found = reserve(at, more, MAP_FIXED_NOREPLACE)?;
    if found != at {
        // A host that does not know the flag.
        unmap(found, more);
        return Err(Errno::ENOMEM);
    }
    let done = thread.client.map_anew(entry.inode, &entry.part(at, more));
    if done.is_err() {
        unmap(at, more);
    }
    done
}

/// Maps the same part of the file at another place, and unmaps the old one.
fn renew(thread: &mut Thread, entry: &Entry, asked: Asked) -> Result<usize, Errno> {
    let Asked { old, old_length, new_length, flags, target } = asked;
    if old + old_length > entry.end {
        return Err(Errno::EFAULT);
    }
    let placed = if flags & FIXED != 0 { MAP_FIXED } else { 0 };
    let new = reserve(target, new_length, placed)?;
    let part = Mapping { address: new, ..entry.part(old, new_length) };
    if let Err(errno) = thread.client.map_anew(entry.inode, &part) {
        unmap(new, new_length);
        thread.client.forget_mappings(new, new + new_length);
        return Err(errno);
    }
    if old_length > 0 {
        unmap(old, old_length);
        thread.client.forget_mappings(old, old + old_length);
    }
    Ok(new)
}

/// The same for what has bytes of its own.
fn move_private(thread: &mut Thread, entry: &Entry, asked: Asked) -> Result<usize, Errno> {
    let Asked { old, old_length, new_length, flags, target } = asked;
    let placed = if flags & FIXED != 0 { MAP_FIXED } else { 0 };
    let new = reserve(target, new_length, placed)?;
    let part = Mapping { address: new, ..entry.part(old, new_length) };
    let mapped = thread.client.map_anew(entry.inode, &part);
    let moved = mapped.and_then(|()| {
        let args = [old, old_length, old_length, MAY_MOVE | FIXED, new, 0];
        // SAFETY: from the application's own place to the one just made for it.
        unsafe { calls::raw(nr::mremap, args) }.map_err(|_| Errno::ENOMEM)
    });
    match moved {
        Ok(_) => thread.client.forget_mappings(old, old + old_length),
        Err(errno) => {
            unmap(new, new_length);
            thread.client.forget_mappings(new, new + new_length);
            return Err(errno);
        }
    }
    Ok(new)
}
