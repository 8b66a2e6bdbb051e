//! Angel without a network: kernels, clients and an attacker in virtual time, from a seed.
//!
//! ```text
//!   clients (closed loop) ──port──► group ──► kernel: queue, one server ──► answer ──► think
//!   attacker (at a rate)  ──port──► few groups of kernel 0
//!                                     every 50 ms: sample, balance
//! ```
//!
//! The three experiments of the thesis: all groups on one kernel against an even table, and an
//! attack on one kernel; each without Angel and with it.

mod experiment;
mod random;
mod report;
mod world;

pub use experiment::{Experiment, Options, run};
pub use random::Random;
pub use report::{Outcome, PROFILE_S, Report, Row};
