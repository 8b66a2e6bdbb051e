//! Numbers of this process whose calls the gate passes to the host without a look: one bit each,
//! beside the region.
//!
//! ```text
//!   look: plain, and this thread's alone ─► set_pass(n) ──► gate: bit n? to the host at once
//!   any change of number n ─────────────► clear_pass(n)
//! ```
//!
//! A bit is there only while one thread acts for the process (`set_alone`): nobody else changes
//! what a number is then. Whoever changes it takes the bit away first.

use core::cell::Cell as Local;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::session::Session;

/// Numbers that have a bit.
const NUMBERS: u32 = u64::BITS;

/// Where the bits stand; nowhere (`None`) until the room above has said where.
#[derive(Debug, Default)]
pub(crate) struct Passes(Local<Option<&'static AtomicU64>>);

impl Passes {
    fn change(&self, step: impl FnOnce(u64) -> u64) {
        if let Some(word) = self.0.get() {
            // Nobody else writes it, and a handler that interrupts this has no service of its own.
            word.store(step(word.load(Relaxed)), Relaxed);
        }
    }
}

impl Session {
    /// From now on `word` says of which numbers calls go to the host at once, a bit each.
    pub fn set_passes(&self, word: &'static AtomicU64) {
        word.store(0, Relaxed);
        self.passes.0.set(Some(word));
    }

    /// Calls on number `fd` are the host's, until `clear_pass`.
    #[inline(always)]
    pub fn set_pass(&self, fd: u32) {
        if fd < NUMBERS && self.is_alone() {
            self.passes.change(|bits| bits | 1 << fd);
        }
    }

    /// What number `fd` is changes.
    #[inline(always)]
    pub fn clear_pass(&self, fd: u32) {
        if fd < NUMBERS {
            self.passes.change(|bits| bits & !(1 << fd));
        }
    }

    /// The same of all numbers: others come by them from now on.
    pub fn clear_passes(&self) {
        self.passes.change(|_| 0);
    }
}
