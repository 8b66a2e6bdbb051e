//! Addresses of the runtime, over which the application must not map.

use core::ops::Range;
use husk_abi::{PAGE, nr};
use husk_host::syscall;
use husk_region::CACHE_ADDRESS;

unsafe extern "C" {
    static __executable_start: u8;
    static _end: u8;
    static etext: u8;
}

/// The gate table.
pub const TABLE: Range<usize> = 0x60000..0x61000;
/// The gate table and what is shown behind it.
const GATE: Range<usize> = TABLE.start..TABLE.start + husk_region::observe::trace::SHOWN_BYTES;
/// Buffer cache, state arena and this image: everything between is Husk's. What lies below is left
/// to MemorySanitizer, whose shadow of the lowest terabyte begins at 0x500000000000.
const REGION_START: usize = CACHE_ADDRESS;
/// Where the blocks of threads are mapped: far from the stacks of programs, which may grow down
/// into what is free below them, but not into a mapping of ours.
pub const BLOCKS: Range<usize> = 0x5430_0000_0000..0x5440_0000_0000;
const _: () = assert!(husk_region::rings::pipes::PIPES_ADDRESS < BLOCKS.start);

/// Our text, exempt from Syscall User Dispatch.
pub fn text() -> (usize, usize) {
    ((&raw const __executable_start) as usize, (&raw const etext) as usize)
}

/// Calls `each` with the parts of `address..address+length` that are not ours, as start and length.
/// The program's heap counts as ours: it begins behind this image, where natively nothing is.
pub fn around(address: usize, length: usize, mut each: impl FnMut(usize, usize) -> bool) -> bool {
    let end = address.saturating_add(length);
    // SAFETY: asks where the heap ends.
    let heap_end = unsafe { syscall(nr::brk, [0; 6]) } as usize;
    let image_end = ((&raw const _end) as usize).max(heap_end).next_multiple_of(PAGE);
    let mut from = address;
    for ours in [GATE, REGION_START..image_end, end..end] {
        let to = ours.start.clamp(from, end.max(from));
        if to > from && !each(from, to - from) {
            return false;
        }
        from = from.max(ours.end.min(end));
    }
    true
}

/// Whether `address..address+length` meets anything of ours.
pub fn covers(address: usize, length: usize) -> bool {
    let end = address.saturating_add(length);
    let image_end = (&raw const _end) as usize;
    let meets = |range: Range<usize>| address < range.end && end > range.start;
    meets(GATE) || meets(REGION_START..image_end)
}
