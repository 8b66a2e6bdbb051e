//! Readiness: epoll sets, and the sockets and pipes in them.

pub mod epoll;
pub mod members;
