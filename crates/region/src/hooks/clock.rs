//! The processor's clock.

/// What it says now.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}
