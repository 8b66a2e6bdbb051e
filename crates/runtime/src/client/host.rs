//! The client's interfaces to memory and host, implemented inside the application.

use crate::addresses;
use crate::client::glue;
use crate::clock;
use crate::detour;
use crate::facts::{facts, kept_fds};
use crate::memory;
use crate::memory::{mappings, mmap_lock, region};
use crate::thread::Thread;
use crate::thread::client::Side;
use husk_abi::memory::{MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_POPULATE, MAP_PRIVATE};
use husk_abi::{Errno, PAGE, nr};
use husk_client::{Host, Mapping, Memory};
use husk_host::{calls, syscall};
use husk_proto::{Inode, fs::Run, fs::Span};
use husk_region::CACHE_ADDRESS;
use husk_region::rings::pipes::PIPES_ADDRESS;

impl Memory for Side {
    #[inline]
    fn read(&self, source: usize, target: &mut [u8]) -> Result<(), Errno> {
        memory::read(source, target)
    }

    #[inline]
    fn peek(&self, source: usize) -> Result<u8, Errno> {
        memory::peek(source)
    }

    #[inline]
    fn write(&self, target: usize, source: &[u8]) -> Result<(), Errno> {
        memory::write(target, source)
    }

    fn read_string(&self, source: usize, target: &mut [u8]) -> Result<usize, Errno> {
        memory::read_string(source, target)
    }

    #[inline]
    fn copy_out(&self, span: Span, target: usize) -> Result<(), Errno> {
        if is_there(&span) {
            return memory::copy_out(target, span.address, span.length);
        }
        region::copy_out(target, span.address, span.length)
    }

    #[inline]
    fn copy_in(&self, source: usize, span: Span) -> Result<(), Errno> {
        if span.length >= region::LARGE_SPAN {
            return region::copy_in_large(&span, source);
        }
        if is_there(&span) {
            return memory::copy_in(span.address, source, span.length);
        }
        region::copy_in(span.address, source, span.length)
    }

    fn copy_within(&self, offset: u64, span: Span) -> Result<(), Errno> {
        self.copy_in(region::address_of(offset), span)
    }

    #[inline]
    fn ready(&self) -> Result<(), Errno> {
        region::need_cache()
    }
}

/// Whether a span is mapped, as nearly always; a pipe's is, since somebody has looked at its words.
#[inline(always)]
fn is_there(span: &Span) -> bool {
    span.address >= PIPES_ADDRESS || region::cache_is_mapped()
}

impl Host for Side {
    type Still = mmap_lock::Still;

    fn keep_still(&self) -> mmap_lock::Still {
        mmap_lock::take()
    }

    #[inline]
    fn call(&self, number: usize, args: [usize; 6]) -> i64 {
        if number == nr::pread64 && (CACHE_ADDRESS..PIPES_ADDRESS).contains(&args[1]) {
            // Bytes of a host file on their way into the cache: the host takes no first fault.
            if let Err(errno) = region::need_cache() {
                return errno.as_return();
            }
        }
        // SAFETY: the client passes the application's arguments, as the application would have,
        // or addresses of its own buffers.
        unsafe { syscall(number, args) as i64 }
    }

    fn note_size_limit(&self, limited: bool) {
        husk_region::set_by_descriptor(!limited);
    }

    fn call_as_owner(&self, number: usize, args: [usize; 6]) -> i64 {
        // SAFETY: as for `call`.
        unsafe { husk_host::owner::call_as_owner(number, args) as i64 }
    }

    fn now_ns(&self) -> i64 {
        clock::now_ns()
    }

    fn map_cache(&self, mapping: &Mapping, runs: &[Run]) -> Result<usize, Errno> {
        let length = mapping.length.next_multiple_of(PAGE);
        let base = reserve(mapping.address, length, mapping.flags)?;
        let mut at = base;
        for run in runs {
            let part = (run.length as usize).min(base + length - at);
            place(mapping, at, part, run.cache_offset)?;
            at += part;
        }
        if at < base + length {
            place(mapping, at, base + length - at, None)?;
        }
        Ok(base)
    }

    fn map_runs(&self, mapping: &Mapping, runs: &[Run]) -> Result<usize, Errno> {
        let mut done = 0;
        for run in runs.iter().take_while(|run| run.cache_offset.is_some()) {
            let part = (run.length as usize).min(mapping.length - done);
            match place(mapping, mapping.address + done, part, run.cache_offset) {
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
                Ok(()) => done += part,
            }
        }
        Ok(done)
    }

    fn note_mapping(&self, mapping: &Mapping, inode: Inode) {
        glue::current().note_mapping(mapping, inode);
    }

    #[inline]
    fn maps_files(&self) -> bool {
        !mappings::is_empty()
    }

    fn mapped(&self, address: usize) -> Option<(Inode, u64)> {
        let entry = mappings::at(address)?;
        Some((entry.inode, entry.offset_of(address)))
    }

    fn keeps(&self, address: usize) -> bool {
        addresses::covers(address, 1)
    }

    fn note_shorter(&self, inode: Inode, size: u64) {
        shorten(inode, size);
    }

    fn stack_room(&self, bytes: usize) -> usize {
        detour::room_below(Thread::current().app_rsp, bytes)
    }

    fn kept_fds(&self) -> [u32; 3] {
        kept_fds()
    }

    fn program_path(&self, out: &mut [u8]) -> usize {
        let path = facts().path.to_bytes();
        match out.get_mut(..path.len()) {
            Some(room) => room.copy_from_slice(path),
            None => return 0,
        }
        path.len()
    }

    fn program_fd(&self) -> Option<u32> {
        Some(facts().program_fd).filter(|&fd| fd != u32::MAX)
    }
}

/// Maps a part of `mapping` at `at`; without an offset pages that are SIGBUS when touched, in such
/// a way that neighbours are one mapping to the host.
fn place(
    mapping: &Mapping,
    at: usize,
    length: usize,
    cache_offset: Option<u64>,
) -> Result<(), Errno> {
    // The host has nothing to fill where no page is: it would only try.
    let fills = if cache_offset.is_none() { MAP_POPULATE } else { 0 };
    let others = MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | fills;
    let shape = mapping.flags & !others | MAP_FIXED;
    let offset = cache_offset.unwrap_or(region::end() + at as u64) as usize;
    let fd = facts().handover.region_fd as usize;
    // SAFETY: inside what `reserve` set aside (or the application gave with MAP_FIXED).
    unsafe { calls::raw(nr::mmap, [at, length, mapping.prot, shape, fd, offset]) }.map(|_| ())
}

/// Takes the pages of a mapping away: touching one is SIGBUS again.
fn take_pages(mapping: &Mapping) {
    // Where the host has no room for one more mapping they stay, and are the file's own still.
    let _ = place(mapping, mapping.address, mapping.length, None);
}

/// An inaccessible span where the runs go, as `flags` and `address` ask for it.
fn reserve(address: usize, length: usize, flags: usize) -> Result<usize, Errno> {
    let placed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    let args = [address, length, 0, MAP_PRIVATE | MAP_ANONYMOUS | placed, -1isize as usize, 0];
    // SAFETY: new memory, or a place the application named itself; our own ranges were refused.
    unsafe { calls::raw(nr::mmap, args) }
}

/// Takes away what lies past the new end of a file, in all its mappings here.
#[cold]
#[inline(never)]
fn shorten(inode: Inode, size: u64) {
    let end = size.next_multiple_of(PAGE as u64);
    let _still = mmap_lock::take();
    let mut from = 0;
    while let Some((gone, next)) = mappings::shorten_next(inode, end, from) {
        take_pages(&gone);
        from = next;
    }
}
