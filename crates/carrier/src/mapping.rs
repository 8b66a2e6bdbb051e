//! Mapping the region at its fixed addresses, once a process.

use core::sync::atomic::{AtomicBool, Ordering};

use husk_abi::nr;
use husk_host::syscall;
use husk_proto::{Errno, Result};
use husk_region::{CACHE_ADDRESS, Layout, STATE_ADDRESS};

static MAPPED: AtomicBool = AtomicBool::new(false);

const READ_WRITE: usize = 3;
const SHARED: usize = 1;
const FIXED_NOREPLACE: usize = 0x10_0000;
const NORESERVE: usize = 0x4000;
const POPULATE_READ: usize = 22;
const DONT_DUMP: usize = 16;
const SEEK_DATA: usize = 3;
const SEEK_HOLE: usize = 4;

pub(crate) fn check() -> Result<()> {
    if MAPPED.load(Ordering::Acquire) { Ok(()) } else { Err(Errno::ENODEV) }
}

/// Promises that the region is mapped at its addresses, shared and writable.
///
/// # Safety
/// It is, whole, and nobody unmaps or truncates it while this process runs.
pub unsafe fn assume_mapped() {
    MAPPED.store(true, Ordering::Release);
}

/// Maps the region behind memfd `fd` (at least `layout.total_bytes()` long) at its addresses.
/// `EEXIST` when something else lies there.
pub fn map_region(fd: u32, layout: Layout) -> Result<()> {
    if MAPPED.load(Ordering::Acquire) {
        return Ok(());
    }
    map_part(STATE_ADDRESS, layout.state_bytes(), (fd, 0), READ_WRITE)?;
    map_part(CACHE_ADDRESS, layout.cache_bytes(), (fd, layout.cache_offset()), READ_WRITE)?;
    husk_region::rings::pipes::announce(fd, &layout);
    // SAFETY: mapped just now; this crate never unmaps.
    unsafe { assume_mapped() };
    Ok(())
}

/// Maps in what there is of the state arena, from memfd `fd`, so that a look at all of it meets
/// nothing that is still to be mapped in: what is not there stays so. Before Linux 5.14 it does
/// nothing, and the look takes longer.
pub fn populate(fd: u32, layout: Layout) {
    let (end, mut at) = (layout.state_bytes() as usize, 0);
    while at < end {
        let Some(start) = seek(fd, at, SEEK_DATA).filter(|&start| start < end) else { return };
        let behind = seek(fd, start, SEEK_HOLE).unwrap_or(end).clamp(start + 1, end);
        let args = [STATE_ADDRESS + start, behind - start, POPULATE_READ, 0, 0, 0];
        // SAFETY: pages of the arena, which is mapped; their bytes stay as they are.
        unsafe { syscall(nr::madvise, args) };
        at = behind;
    }
}

/// The next data or hole of a descriptor at or behind `from`.
fn seek(fd: u32, from: usize, what: usize) -> Option<usize> {
    // SAFETY: moves an offset that nobody goes by.
    let raw = unsafe { syscall(nr::lseek, [fd as usize, from, what, 0, 0, 0]) };
    usize::try_from(raw).ok()
}

/// Maps a part of a region, of which core dumps are to hold nothing.
pub(crate) fn map_part(
    address: usize,
    bytes: u64,
    (fd, offset): (u32, u64),
    protection: usize,
) -> Result<()> {
    let flags = SHARED | FIXED_NOREPLACE | NORESERVE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let raw = unsafe {
        syscall(
            nr::mmap,
            [address, bytes as usize, protection, flags, fd as usize, offset as usize],
        )
    };
    Errno::check(raw as i64)?;
    // SAFETY: only core dumps are told of it: they are to hold nothing of the image.
    unsafe { syscall(nr::madvise, [address, bytes as usize, DONT_DUMP, 0, 0, 0]) };
    Ok(())
}
