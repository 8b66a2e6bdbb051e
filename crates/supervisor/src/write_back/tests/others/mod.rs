//! What others do on the host while a write-back goes on.

pub mod adversary;
mod afterwards;
mod crowd;
mod edited;
mod git_locked;
mod gone;
mod swapped;
