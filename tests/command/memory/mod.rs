//! What an image holds in memory, and what its programs find there.

mod calls;
pub mod fsck;
mod gathered;
mod guard;
mod memory_back;
mod recorded;
mod space;
