//! The supervisor and the processes of its image: waits for them, cleans up after them, wakes those
//! whose wake-up died with another.

pub(crate) mod children;
pub mod main_loop;
pub(crate) mod oom;
pub(crate) mod pidfds;
pub mod reaper;
pub mod signals;
pub(crate) mod sleepers;
pub mod stopped_holders;
pub(crate) mod watchers;
