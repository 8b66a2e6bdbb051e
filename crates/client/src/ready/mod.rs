//! Readiness: `poll`, `select`, epoll sets, inotify.

pub mod bells;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod inotify;
pub(crate) mod members;
pub(crate) mod poll;
pub(crate) mod poll_bell;
pub(crate) mod read_bell;
