//! One bit for each descriptor of this process whose calls the gate passes straight to the host;
//! kept beside the region.
//!
//! ```text
//!   look: plain, and this thread's alone ─► set_pass(n) ──► gate: bit n? to the host at once
//!   any change of number n ─────────────► clear_pass(n)
//! ```
//!
//! A bit is there only while one thread acts for the process (`set_alone`), whose table no other
//! process has: nobody else changes what a number is then. Whoever changes it takes the bit away
//! first, and what else is known of the number (`outlying`).

use core::cell::Cell as Local;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::txn::session::Session;

/// Numbers that have a bit: a server has some hundreds of connections, and some have thousands.
pub const PASSES_MAX: usize = 4096;
/// The bits, 64 a word.
pub type PassWords = [AtomicU64; PASSES_MAX / u64::BITS as usize];

/// Where the bits stand; nowhere (`None`) until the room above has said where.
#[derive(Debug, Default)]
pub(crate) struct Passes(Local<Option<&'static PassWords>>);

impl Passes {
    /// Changes the word with the bit of `fd`, if it has one.
    #[inline(always)]
    fn change(&self, fd: u32, step: impl FnOnce(u64, u64) -> u64) {
        let place = |words: &'static PassWords| words.get((fd / u64::BITS) as usize);
        if let Some(word) = self.0.get().and_then(place) {
            // Nobody else writes it, and a handler that interrupts this has no service of its own.
            word.store(step(word.load(Relaxed), 1 << (fd % u64::BITS)), Relaxed);
        }
    }
}

impl Session {
    /// From now on `words` say of which numbers calls go to the host at once, a bit each.
    pub fn set_passes(&self, words: &'static PassWords) {
        self.passes.0.set(Some(words));
        self.clear_passes();
    }

    /// Calls on number `fd` are the host's, until `clear_pass`, if it `is_plain`, in a table that
    /// no other process has: asked only where one thread acts for this one.
    #[inline(always)]
    pub fn set_pass(&self, fd: u32, is_plain: impl FnOnce() -> bool) {
        if self.is_alone() && is_plain() {
            self.passes.change(fd, |bits, bit| bits | bit);
        }
    }

    /// What number `fd` is changes.
    #[inline(always)]
    pub fn clear_pass(&self, fd: u32) {
        self.passes.change(fd, |bits, bit| bits & !bit);
        self.outlying.forget(fd);
    }

    /// The same of all numbers: others come by them from now on.
    pub fn clear_passes(&self) {
        for word in self.passes.0.get().into_iter().flatten() {
            word.store(0, Relaxed);
        }
        self.outlying.forget_all();
    }
}
