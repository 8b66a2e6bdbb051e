//! Readiness: `poll`, `select`, epoll sets, inotify, and how threads that wait are woken.
//!
//! ```text
//!   epoll       epoll_create, epoll_ctl, epoll_wait: which way they go
//!   members     sets with sockets that have rings; `rouse` wakes whoever waits for a ring's bytes;
//!               one_shot: members that are told once
//!   poll        poll and select; poll_bell: a poll that sleeps by a bell
//!   read_bell   a read that sleeps by a bell
//!   turns       before a sleep the peer on the same core runs
//!   bells       the eventfds that wake those three
//!   eventfd, inotify
//! ```

pub mod bells;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod inotify;
pub(crate) mod members;
pub(crate) mod one_shot;
pub(crate) mod poll;
pub(crate) mod poll_bell;
pub(crate) mod read_bell;
pub(crate) mod turns;
