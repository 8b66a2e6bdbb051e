//! Readiness: what epoll sets there are.

pub mod epoll;
