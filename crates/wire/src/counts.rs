//! How many messages of each kind a node has sent, received and failed, and how many it refused.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Fault, KINDS, Kind};

/// Counters of one thread; others may read them.
#[derive(Debug)]
pub struct Counts {
    kinds: [[AtomicU64; COLUMNS]; KINDS],
    faults: [AtomicU64; Fault::ALL.len()],
}

const COLUMNS: usize = 3;

/// What is counted of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Handed to a link.
    Sent,
    /// Taken from a link and handled.
    Received,
    /// Answered with a failure.
    Failed,
}

impl Counts {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            kinds: [const { [const { AtomicU64::new(0) }; COLUMNS] }; KINDS],
            faults: [const { AtomicU64::new(0) }; Fault::ALL.len()],
        }
    }

    /// One more; a kind of a newer version is not counted.
    #[inline]
    pub fn add(&self, kind: u16, what: Count) {
        if let Some(row) = self.kinds.get(usize::from(kind)) {
            add_one(&row[what as usize]);
        }
    }

    /// One more message that broke the rules.
    pub fn refuse(&self, fault: Fault) {
        add_one(&self.faults[fault.index()]);
    }

    /// How many of `kind`.
    pub fn of(&self, kind: Kind, what: Count) -> u64 {
        self.kinds[kind as usize][what as usize].load(Ordering::Relaxed)
    }

    /// How many were refused for this.
    pub fn refused(&self, fault: Fault) -> u64 {
        self.faults[fault.index()].load(Ordering::Relaxed)
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self::new()
    }
}

/// One writer: no locked instruction is needed.
#[inline(always)]
fn add_one(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
