//! Huge pages for memory that every process of an image maps: one page fault instead of many.
//!
//! A fault on a file maps sixteen small pages around it, each counted and let go again at exit. A
//! start that touches a dozen places pays for two hundred pages; in a huge page it pays for one.

use husk_abi::memory::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ,
};
use husk_abi::{Errno, PAGE, nr};

use crate::calls::{Result, raw};

/// Bytes of a huge page; what is to lie in one begins at a multiple of it, in the file and in
/// memory.
pub use husk_abi::HUGE_BYTES;

const MADV_COLLAPSE: usize = 25;

/// Moves the bytes from `offset` on of memfd `fd` (at least `HUGE_BYTES` of them) into one huge
/// page, whatever the host's settings say of huge pages by themselves. An error costs nothing but
/// the gain: no huge page is free, or the host is older than Linux 6.1.
pub fn gather(fd: usize, offset: usize) -> Result<()> {
    let room = [0, 2 * HUGE_BYTES, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, usize::MAX, 0];
    // SAFETY: a fresh mapping anywhere.
    let room = unsafe { raw(nr::mmap, room) }?;
    let result = gather_at(room.next_multiple_of(HUGE_BYTES), fd, offset);
    // SAFETY: what was mapped here and nobody has seen.
    let _ = unsafe { raw(nr::munmap, [room, 2 * HUGE_BYTES, 0, 0, 0, 0]) };
    result
}

/// `at` lies in room that is set aside.
fn gather_at(at: usize, fd: usize, offset: usize) -> Result<()> {
    if !offset.is_multiple_of(HUGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    let map = [at, HUGE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, offset];
    // SAFETY: it replaces a part of our own room, which the file covers: its first byte can be
    // read. That read puts a page there, for a hole cannot be gathered.
    unsafe {
        raw(nr::mmap, map)?;
        core::ptr::read_volatile(at as *const u8);
        raw(nr::madvise, [at, HUGE_BYTES, MADV_COLLAPSE, 0, 0, 0]).map(|_| ())
    }
}

/// Moves the `HUGE_BYTES` that contain address `inside` into one huge page, where they are mapped
/// from a memfd; whoever uses them sees the same bytes throughout. An error costs the gain only.
pub fn gather_around(inside: usize) -> Result<()> {
    const MADV_POPULATE_READ: usize = 22;
    let page = inside & !(PAGE - 1);
    // SAFETY: maps pages and moves them within the host; no byte that anybody sees changes, and
    // what is no mapping is refused. A hole cannot be gathered: the first call puts a page there.
    unsafe {
        raw(nr::madvise, [page, PAGE, MADV_POPULATE_READ, 0, 0, 0])?;
        let start = inside & !(HUGE_BYTES - 1);
        raw(nr::madvise, [start, HUGE_BYTES, MADV_COLLAPSE, 0, 0, 0]).map(|_| ())
    }
}
