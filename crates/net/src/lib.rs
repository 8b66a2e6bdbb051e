//! Connections from outside: which kernel accepts which, and how load is kept even.
//!
//! ```text
//!   source port ──upper 12 bits──► flow group ──Table──► kernel (whoever accepts)
//!                                     ▲
//!       SYN, FIN, CPU ──sample──► Angel ──balance──► Move { group, source, target }
//! ```
//!
//! `angel` decides and `groups` remembers; neither has a clock, a thread or I/O, so the simulator
//! (`sim`) runs the same code from a seed. `steer` does it to a server that runs: it looks at its
//! sockets and lets a program in the kernel select who accepts. `tune` sets an interface up so that
//! each receive queue is served by a core of its own, and sets it back. `udp` opens sockets that
//! receive as many packets as a machine can take. `wire` joins two network namespaces by a link
//! with a delay, for measurements.
//!
//! After NetPopcorn's Snap Bean (flow groups of the source port) and Angel (its balancer), and
//! Affinity-Accept (Pesterev et al., EuroSys 2012).
#![forbid(unsafe_code)]

pub mod angel;
mod average;
pub mod groups;
mod problem;
pub mod sim;
pub mod steer;
pub mod tune;
pub mod udp;
pub mod wire;
