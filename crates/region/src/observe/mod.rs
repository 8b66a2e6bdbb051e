//! Observation: traces of calls, and how long locks are held.

pub mod trace;

pub use crate::hooks::{kill, model_hooks};
pub use crate::txn::lock_hold_stats;
