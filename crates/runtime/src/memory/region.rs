//! The region in this process: state arena at start, buffer cache and pipes when first needed.

use crate::facts::facts;
use crate::memory;
use crate::memory::guard;
use crate::stubs::table;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use husk_abi::{Errno, nr};
use husk_host::calls;
use husk_proto::fs::{Span, SpanKind};
use husk_region::rings::pipes::{self, PIPES_ADDRESS};
use husk_region::{CACHE_ADDRESS, Layout, STATE_ADDRESS, write_unmapped};
use husk_runtime::handover;

#[unsafe(link_section = ".bss.hot")]
static CACHE_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static CACHE_OFFSET: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static FILE_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static CACHE_MAPPED: AtomicBool = AtomicBool::new(false);
/// The cache has been mapped, whether bytes are copied to and from it or not.
static CACHE_FAULTS_OVER: AtomicBool = AtomicBool::new(false);
static MADE_TABLE: AtomicBool = AtomicBool::new(false);
/// Bytes go to and from it by calls of the host.
static INDIRECT: AtomicBool = AtomicBool::new(false);

/// Maps the arena and, if asked for, sets the guard.
pub fn join() -> Result<(), Errno> {
    let (layout, table) = layout(facts().handover.region_fd as usize)?;
    CACHE_BYTES.store(layout.cache_bytes(), Relaxed);
    CACHE_OFFSET.store(layout.cache_offset(), Relaxed);
    MAPPED_BYTES.store(layout.total_bytes(), Relaxed);
    FILE_BYTES.store(layout.file_bytes(), Relaxed);
    pipes::announce(facts().handover.region_fd as u32, &layout);
    let length = layout.state_bytes() as usize;
    map(STATE_ADDRESS, length, 0)?;
    if facts().handover.flags & handover::GUARD != 0 {
        guard::set(STATE_ADDRESS, length);
    }
    if facts().handover.flags & handover::LIMITED != 0 {
        let _ = map_cache();
    }
    // SAFETY: the arena is mapped for good; the cache is at its first use (`faulted`), also for
    // good.
    unsafe { husk_carrier::assume_mapped() };
    MADE_TABLE.store(table::share(&layout, table), Relaxed);
    Ok(())
}

/// What the image is made from.
pub fn known() -> Option<Layout> {
    layout(facts().handover.region_fd as usize).ok().map(|(layout, _)| layout)
}

/// Whether this process has made the gate table that the image's processes share.
pub fn made_table() -> bool {
    MADE_TABLE.load(Relaxed)
}

/// Bytes of the image's header that are read.
const HEAD_BYTES: usize = 8 * (husk_region::GATE_WORD as usize + 1);

/// The sizes, as the image's header says (magic, kernels, bytes of buffer cache), and whose the
/// shared table is.
fn layout(region: usize) -> Result<(Layout, u64), Errno> {
    let mut head = [0u8; HEAD_BYTES];
    let word = |head: &[u8; HEAD_BYTES], i: usize| {
        head[8 * i..8 * i + 8].iter().rev().fold(0u64, |sum, &b| sum << 8 | u64::from(b))
    };
    let got = calls::pread(region, &mut head, 0)?;
    if got != head.len() || word(&head, 0) == 0 {
        return Err(Errno::EINVAL);
    }
    let layout = Layout { kernels: word(&head, 1) as u32, memory_bytes: word(&head, 2) };
    Ok((layout, word(&head, husk_region::GATE_WORD as usize)))
}

fn map(address: usize, length: usize, offset: u64) -> Result<(), Errno> {
    const READ_WRITE: usize = 3;
    const DONT_DUMP: usize = 16;
    const SHARED_FIXED_NOREPLACE_NORESERVE: usize = 0x10_4001;
    let fd = facts().handover.region_fd as usize;
    let flags = SHARED_FIXED_NOREPLACE_NORESERVE;
    // SAFETY: a new mapping at a place that is Husk's alone; it replaces nothing. Only core dumps
    // are told of the second call.
    unsafe {
        calls::raw(nr::mmap, [address, length, READ_WRITE, flags, fd, offset as usize])?;
        // A dump without the image is as good; before Linux 3.4 it has it.
        let _ = calls::raw(nr::madvise, [address, length, DONT_DUMP, 0, 0, 0]);
    }
    Ok(())
}

/// Whether bytes can be copied to and from the buffer cache.
#[inline(always)]
pub fn cache_is_mapped() -> bool {
    CACHE_MAPPED.load(Relaxed)
}

/// Makes sure the buffer cache is mapped; `ENOMEM` where a limit (`ulimit -v`) leaves no room.
#[inline(always)]
pub fn need_cache() -> Result<(), Errno> {
    if CACHE_MAPPED.load(Relaxed) { Ok(()) } else { map_cache() }
}

#[cold]
fn map_cache() -> Result<(), Errno> {
    let done = map(CACHE_ADDRESS, CACHE_BYTES.load(Relaxed) as usize, CACHE_OFFSET.load(Relaxed));
    if matches!(done, Ok(()) | Err(Errno::EEXIST)) {
        CACHE_FAULTS_OVER.store(true, Relaxed);
        CACHE_MAPPED.store(!INDIRECT.load(Relaxed), Relaxed);
        return Ok(());
    }
    done
}

/// From now on bytes go to and from the cache by calls of the host (`Without::DIRECT`).
pub fn set_indirect() {
    INDIRECT.store(true, Relaxed);
    CACHE_MAPPED.store(false, Relaxed);
}

/// Copies bytes of the cache to the application: the first ones, or all in an image that does
/// without direct copies. `EFAULT`.
#[cold]
pub fn copy_out(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    if INDIRECT.load(Relaxed) && !memory::in_arena(target) {
        let done = by_host(nr::pread64, target, source, count);
        if done != Err(Errno::EFAULT) {
            return done;
        }
    }
    // The host does not know what our handler of faults maps in.
    map_cache()?;
    memory::copy(target, source, count)
}

/// The same the other way.
#[cold]
pub fn copy_in(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    if INDIRECT.load(Relaxed) {
        let done = by_host(nr::pwrite64, source, target, count);
        if done != Err(Errno::EFAULT) {
            return done;
        }
    }
    map_cache()?;
    memory::copy(target, source, count)
}

/// What the host maps around a page that is read, if its neighbours are there.
const AROUND_BYTES: usize = 64 << 10;
/// From so many bytes on it matters how a span gets its pages (`copy_in_large`).
pub const LARGE_SPAN: usize = 16 << 10;

/// `copy_in` of many bytes: to blocks that are not mapped through the region's descriptor, and
/// otherwise with a look at each window first, which maps all of it and lets it be written to.
#[inline(never)]
pub fn copy_in_large(span: &Span, source: usize) -> Result<(), Errno> {
    let (address, count) = (span.address, span.length);
    if !cache_is_mapped() && address < PIPES_ADDRESS {
        return copy_in(address, source, count);
    }
    let mut done = 0;
    if span.kind == SpanKind::Unmapped {
        done = write_unmapped(address, source, count);
        if done == count {
            return Ok(());
        }
    } else {
        for at in (address..address + count).step_by(AROUND_BYTES) {
            // What cannot be read is told of by the copy.
            let _ = memory::peek(at);
        }
    }
    memory::copy_in(address + done, source + done, count - done)
}

/// Moves `count` bytes between `memory` and the cache at `cached`.
fn by_host(number: usize, memory: usize, cached: usize, count: usize) -> Result<(), Errno> {
    let fd = facts().handover.region_fd as usize;
    let offset = CACHE_OFFSET.load(Relaxed) as usize + (cached - CACHE_ADDRESS);
    let mut done = 0;
    while done < count {
        let args = [fd, memory + done, count - done, offset + done, 0, 0];
        // SAFETY: the host checks the application's memory; the cache's bytes are nobody's state.
        match unsafe { calls::raw(number, args) }? {
            0 => return Err(Errno::EFAULT),
            moved => done += moved,
        }
    }
    Ok(())
}

/// Where bytes of the cache are mapped that lie at `offset` of the region's memfd.
pub fn address_of(offset: u64) -> usize {
    CACHE_ADDRESS + (offset - CACHE_OFFSET.load(Relaxed)) as usize
}

/// Bytes that are mapped of the region, once all is.
pub fn mapped_bytes() -> u64 {
    MAPPED_BYTES.load(Relaxed)
}

/// Where the region's memfd ends, on a page: pages mapped from there on are SIGBUS when touched.
pub fn end() -> u64 {
    FILE_BYTES.load(Relaxed)
}

/// A fault at `address`: was it the cache's first use? Then it is mapped now.
pub fn faulted(address: usize) -> bool {
    let inside = (CACHE_ADDRESS as u64..CACHE_ADDRESS as u64 + CACHE_BYTES.load(Relaxed))
        .contains(&(address as u64));
    if !inside || CACHE_FAULTS_OVER.load(Relaxed) {
        return false;
    }
    map_cache().is_ok()
}
