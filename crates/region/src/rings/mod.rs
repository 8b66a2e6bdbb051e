//! Rings: the bytes of pipes and sockets, and the members of epoll sets.

pub(crate) mod adaptive_spin;
pub mod epoll;
pub(crate) mod inline_message;
pub(crate) mod lanes;
pub mod members;
pub(crate) mod pace;
pub mod pipes;
pub(crate) mod single_owner;
pub(crate) mod withdrawal;

pub use pace::ticks;
