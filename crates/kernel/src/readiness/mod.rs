//! Readiness: what epoll sets there are.

pub mod epoll;
pub mod members;
