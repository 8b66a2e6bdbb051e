//! Transactions: locks, the journal, seats, and recovery after a death.

pub(crate) mod freeze;
pub(crate) mod journal;
pub(crate) mod life;
pub(crate) mod lock;
pub mod lock_hold_stats;
pub(crate) mod outlying;
pub(crate) mod passthrough_bits;
pub(crate) mod recover;
pub(crate) mod session;
pub(crate) mod tally;
pub(crate) mod unjournalled;
