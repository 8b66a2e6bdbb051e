//! The region in this process: state arena at start, buffer cache and pipes when first needed.

use crate::guard;
use crate::start::facts;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use husk_abi::{Errno, nr};
use husk_host::calls;
use husk_region::{CACHE_ADDRESS, Layout, STATE_ADDRESS, pipes};
use husk_runtime::handover;

#[unsafe(link_section = ".bss.hot")]
static CACHE_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static CACHE_OFFSET: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static END: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.hot")]
static CACHE_MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps the arena and, if asked for, sets the guard.
pub fn join() -> Result<(), Errno> {
    let layout = layout(facts().handover.region_fd as usize)?;
    CACHE_BYTES.store(layout.cache_bytes(), Relaxed);
    CACHE_OFFSET.store(layout.cache_offset(), Relaxed);
    END.store(layout.total_bytes(), Relaxed);
    pipes::announce(facts().handover.region_fd as u32, &layout);
    let length = layout.state_bytes() as usize;
    map(STATE_ADDRESS, length, 0)?;
    if facts().handover.flags & handover::GUARD != 0 {
        guard::set(STATE_ADDRESS, length);
    }
    // SAFETY: the arena is mapped for good; the cache is at its first use (`faulted`), also for
    // good.
    unsafe { husk_carrier::assume_mapped() };
    Ok(())
}

/// The sizes, as the image's header says (magic, kernels, bytes of buffer cache).
fn layout(region: usize) -> Result<Layout, Errno> {
    let mut head = [0u8; 24];
    let word = |head: &[u8; 24], i: usize| {
        head[8 * i..8 * i + 8].iter().rev().fold(0u64, |sum, &b| sum << 8 | u64::from(b))
    };
    let got = calls::pread(region, &mut head, 0)?;
    if got != head.len() || word(&head, 0) == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Layout { kernels: word(&head, 1) as u32, memory_bytes: word(&head, 2) })
}

fn map(address: usize, length: usize, offset: u64) -> Result<(), Errno> {
    const READ_WRITE: usize = 3;
    const SHARED_FIXED_NOREPLACE_NORESERVE: usize = 0x10_4001;
    let fd = facts().handover.region_fd as usize;
    let flags = SHARED_FIXED_NOREPLACE_NORESERVE;
    // SAFETY: a new mapping at a place that is Husk's alone; it replaces nothing.
    unsafe { calls::raw(nr::mmap, [address, length, READ_WRITE, flags, fd, offset as usize]) }
        .map(|_| ())
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
        CACHE_MAPPED.store(true, Relaxed);
        return Ok(());
    }
    done
}

/// Where the region's memfd ends: pages mapped from there on are SIGBUS when touched.
pub fn end() -> u64 {
    END.load(Relaxed)
}

/// A fault at `address`: was it the cache's first use? Then it is mapped now.
pub fn faulted(address: usize) -> bool {
    let inside = (CACHE_ADDRESS as u64..CACHE_ADDRESS as u64 + CACHE_BYTES.load(Relaxed))
        .contains(&(address as u64));
    if !inside || CACHE_MAPPED.load(Relaxed) {
        return false;
    }
    map_cache().is_ok()
}
