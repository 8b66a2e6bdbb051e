//! The current core and the time stamp counter: two instructions.

use core::arch::asm;

/// The core this thread runs on, plus one.
#[inline(always)]
pub(crate) fn core_number() -> u64 {
    /// The segment whose limit Linux sets to the core's number (`__CPUNODE_SEG`).
    const SEGMENT: u32 = 0x7b;
    let mut limit = 0u32;
    // SAFETY: reads a descriptor's limit; touches no memory.
    unsafe {
        asm!("lsl {0:e}, {1:e}", inout(reg) limit, in(reg) SEGMENT, options(nomem, nostack));
    }
    (limit & 0xfff) as u64 + 1
}

/// The time stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: reads the time-stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
