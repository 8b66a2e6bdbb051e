//! Reads the counters of an image without changing it: operations by thread and kernel.
//!
//! Nothing is held while these are read; what belongs together may be one operation apart.

use core::array;

use husk_proto::operation::OPERATIONS;

use crate::Direct;

/// What threads have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations, by `Operation`.
    pub operations: [u64; OPERATIONS],
    /// Transactions that have changed something.
    pub transactions: u64,
    /// Tokens and locks that were not there for the taking.
    pub waits: u64,
    /// Transactions undone, to be tried again or because they failed half-way.
    pub rollbacks: u64,
    /// Journals of dead threads that were settled.
    pub recovered: u64,
}

impl Counts {
    /// Adds what others have done.
    pub fn add(&mut self, more: &Counts) {
        *self = self.each(more, u64::wrapping_add);
    }

    /// What was done since these were `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        self.each(before, u64::wrapping_sub)
    }

    fn each(&self, other: &Counts, of: fn(u64, u64) -> u64) -> Counts {
        Counts {
            operations: array::from_fn(|n| of(self.operations[n], other.operations[n])),
            transactions: of(self.transactions, other.transactions),
            waits: of(self.waits, other.waits),
            rollbacks: of(self.rollbacks, other.rollbacks),
            recovered: of(self.recovered, other.recovered),
        }
    }
}

/// A slot and what its owners have done, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Its number.
    pub slot: u32,
    /// The kernel they act for.
    pub kernel: u32,
    /// Host process of its owner; 0: nobody's now.
    pub pid: u32,
    /// What they have done.
    pub counts: Counts,
}

impl Direct {
    /// Kernels of the image.
    pub fn kernels(&self) -> u32 {
        self.kernel.session.region.kernels()
    }

    /// Calls `emit` for each slot that was ever taken.
    pub fn each_seat(&self, emit: &mut dyn FnMut(Seat)) {
        let session = &self.kernel.session;
        for slot in 1..=session.slots_high() {
            let told = session.region.tallies(slot);
            let counts = Counts {
                operations: array::from_fn(|n| told.above[n]),
                transactions: told.transactions,
                waits: told.waits,
                rollbacks: told.rollbacks,
                recovered: told.recovered,
            };
            let kernel = session.region.kernel_of(slot);
            emit(Seat { slot, kernel, pid: session.owner(slot).0, counts });
        }
    }

    /// What this thread has done so far, and the kernel it acts for, once it has a seat: with
    /// `sits` it takes one.
    pub fn so_far(&self, sits: bool) -> (u64, Option<u32>) {
        let session = &self.kernel.session;
        let slot = if sits { session.slot().unwrap_or(0) } else { session.slot_if_any() };
        (session.so_far(), (slot != 0).then(|| session.region.kernel_of(slot)))
    }

    /// Says which table of the gate the image's processes share, if nobody has.
    pub fn set_gate(&self, identity: u64) {
        self.kernel.session.region.set_gate(identity);
    }
}
