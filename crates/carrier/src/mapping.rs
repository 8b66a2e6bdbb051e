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
    map_part(STATE_ADDRESS, layout.state_bytes(), fd, 0)?;
    map_part(CACHE_ADDRESS, layout.cache_bytes(), fd, layout.cache_offset())?;
    husk_region::pipes::announce(fd, &layout);
    // SAFETY: mapped just now; this crate never unmaps.
    unsafe { assume_mapped() };
    Ok(())
}

fn map_part(address: usize, bytes: u64, fd: u32, offset: u64) -> Result<()> {
    let flags = SHARED | FIXED_NOREPLACE | NORESERVE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let raw = unsafe {
        syscall(
            nr::mmap,
            [address, bytes as usize, READ_WRITE, flags, fd as usize, offset as usize],
        )
    };
    Errno::check(raw as i64).map(|_| ())
}
