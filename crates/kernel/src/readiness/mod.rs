//! Readiness: epoll sets, the sockets and pipes in them, and eventfds.

pub mod epoll;
pub mod eventfd;
pub mod members;
