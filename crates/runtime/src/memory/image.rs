//! Addresses of the runtime, over which the application must not map.

use core::ops::Range;

unsafe extern "C" {
    static __executable_start: u8;
    static _end: u8;
    static etext: u8;
}

/// The gate table.
pub const TABLE: Range<usize> = 0x60000..0x61000;
/// The gate table and what is shown behind it.
const GATE: Range<usize> = TABLE.start..TABLE.start + husk_region::observe::trace::SHOWN_BYTES;
/// State arena, buffer cache and this image: everything between is Husk's.
const REGION_START: usize = 0x5000_0000_0000;

/// Our text, exempt from Syscall User Dispatch.
pub fn text() -> (usize, usize) {
    ((&raw const __executable_start) as usize, (&raw const etext) as usize)
}

/// Whether `address..address+length` meets anything of ours.
pub fn covers(address: usize, length: usize) -> bool {
    let end = address.saturating_add(length);
    let image_end = (&raw const _end) as usize;
    let meets = |range: Range<usize>| address < range.end && end > range.start;
    meets(GATE) || meets(REGION_START..image_end)
}
