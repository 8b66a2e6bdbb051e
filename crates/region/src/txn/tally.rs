//! Counters of each thread, in cache lines that no other thread writes to.
//!
//! ```text
//!   looks    ─► counters of the seat, in the process's own memory ─┐ with the thread's next
//!   changes  ─► words of its slot, on lines of its own ◄───────────┘ change, and now and then
//! ```
//!
//! 1. A counter has one writer, the owner of the slot: plain loads and stores, no line that others
//!    write. Whoever reads them may be late by one.
//! 2. Counters stay when the owner leaves its slot, and the next owner counts on: the sum over all
//!    slots is what was done since the image was made.
//! 3. Looks take no lock and must not store into the region (a guard may be closed), but for one in
//!    `LOOKS_KEPT`. A killed thread takes at most that many with it, of each kind that has them.

use crate::arena::memory::{Cell, Region};
use crate::txn::session::{Session, TALLIES, TRANSACTIONS};

/// Counters of a slot for the room above; the first `LOOKS_MAX` are of looks.
pub const TALLIES_MAX: u32 = 28;
/// Kinds of looks.
pub const LOOKS_MAX: usize = 5;
/// Looks of a kind that stay in the process's own memory, at most (a power of two).
const LOOKS_KEPT: u64 = 4096;

/// The region's own counters, behind those of the room above.
pub(crate) const WAITS: u32 = TALLIES_MAX;
pub(crate) const ROLLBACKS: u32 = TALLIES_MAX + 1;
pub(crate) const RECOVERED: u32 = TALLIES_MAX + 2;
/// All counters of a slot in one area.
pub(crate) const TALLIES_END: u32 = TALLIES + TALLIES_MAX + 3;

/// What the owners of one slot have done.
#[derive(Clone, Copy, Debug)]
pub struct Tallies {
    /// The room above's.
    pub above: [u64; TALLIES_MAX as usize],
    /// Transactions that have changed something.
    pub transactions: u64,
    /// Locks that were not there for the taking.
    pub waits: u64,
    /// Transactions undone, to be tried again or because they failed half-way.
    pub rollbacks: u64,
    /// Journals of dead threads that were settled.
    pub recovered: u64,
}

impl Region {
    /// The kernel that the owner of slot `id` acts for: that of its partition.
    pub fn kernel_of(&self, id: u32) -> u32 {
        (id & self.map.partition_mask) % self.kernels()
    }

    /// What the owners of slot `id` have done.
    pub fn tallies(&self, id: u32) -> Tallies {
        let base = self.map.slot(id);
        let at = |n: u32| self.load(base.word(TALLIES + n));
        Tallies {
            above: core::array::from_fn(|n| at(n as u32)),
            transactions: self.load(base.word(TRANSACTIONS)),
            waits: at(WAITS),
            rollbacks: at(ROLLBACKS),
            recovered: at(RECOVERED),
        }
    }

    /// One more in a counter of the caller's own.
    #[inline(always)]
    pub(crate) fn raise(&self, cell: Cell) {
        if cfg!(feature = "models") {
            // The checker would take each for a step worth trying.
            return;
        }
        self.store(cell, self.load(cell).wrapping_add(1));
    }
}

impl Session {
    /// Counts a change that is about to be made.
    #[inline(always)]
    pub fn count(&self, what: u32) {
        if let Ok(base) = self.base() {
            self.region.raise(base.word(TALLIES + what));
            self.publish(base);
        }
    }

    /// What this thread has counted of the room above so far, looks included.
    pub fn so_far(&self) -> u64 {
        let looks = self.looks.iter().fold(0u64, |sum, kept| sum.wrapping_add(kept.get()));
        let Some(base) = (self.slot_if_any() != 0).then(|| self.base().ok()).flatten() else {
            return looks;
        };
        let word = |n: u32| self.region.load(base.word(TALLIES + n));
        (LOOKS_MAX as u32..TALLIES_MAX).fold(looks, |sum, n| sum.wrapping_add(word(n)))
    }

    /// Counts a step of something that another count follows.
    #[inline(always)]
    pub fn count_step(&self, what: usize) {
        let kept = &self.looks[what];
        kept.set(kept.get().wrapping_add(1));
    }

    /// Counts a look.
    #[inline(always)]
    pub fn count_look(&self, what: usize) {
        self.count_step(what);
        if self.looks[what].get() & (LOOKS_KEPT - 1) == 0 {
            self.publish_late();
        }
    }

    #[cold]
    fn publish_late(&self) {
        if let Ok(base) = self.base() {
            self.publish(base);
        }
    }

    #[inline(always)]
    pub(crate) fn publish(&self, base: Cell) {
        if cfg!(feature = "models") {
            return;
        }
        for (n, kept) in self.looks.iter().enumerate() {
            self.region.store(base.word(TALLIES + n as u32), kept.get());
        }
    }

    /// Goes on from what the slot's last owner has counted.
    pub(crate) fn count_on(&self, base: Cell) {
        if cfg!(feature = "models") {
            return;
        }
        for (n, kept) in self.looks.iter().enumerate() {
            let before = self.region.load(base.word(TALLIES + n as u32));
            kept.set(kept.get().wrapping_add(before));
        }
    }

    /// Counts one of the region's own.
    #[cold]
    pub(crate) fn note_tally(&self, what: u32) {
        if self.slot_if_any() != 0
            && let Ok(base) = self.base()
        {
            self.region.raise(base.word(TALLIES + what));
        }
    }
}
