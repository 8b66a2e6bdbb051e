//! What can be looked at or stopped: traces, tallies, kill points, the model checker's hooks.

pub mod kill;
pub mod lock_hold_stats;
pub mod model_hooks;
pub(crate) mod tally;
pub mod trace;
