//! Steering from outside: the connections of a server that runs already, by flow group.
//!
//! ```text
//!   husk net attach ──starts──► balancer (a process of its own)
//!                                 │ listeners: sockets, and who accepts      (/proc, pidfd)
//!                                 │ way: program and table of sockets              (eBPF, cBPF)
//!                                 │ every 100 ms: SYNs, CPU ─► Angel ─► moves
//!   husk net top, detach ──asks──►│ /run/husk-net/KEY.socket (`state`), or its name (`name`)
//! ```
//!
//! Invariants
//! 1. Nothing of the server is changed or kept: its sockets are borrowed for a moment and closed,
//!    so that a listener that the server closes is closed.
//! 2. The program of eBPF steers only for two seconds after the balancer's last sign of life, and
//!    then leaves the choice to Linux, as before: also when the balancer is killed. That of cBPF
//!    has no clock: then its last table stays (`left`), until the next `detach` or `attach`.
//! 3. One balancer for each address: it holds a lock and a name as long as it lives.

mod asking;
mod balancer;
pub mod check;
mod diag;
mod left;
mod listeners;
mod lock;
mod name;
mod namespace;
mod numbers;
mod others;
mod seen;
mod state;
mod way;

pub use crate::problem::Problem;
pub use asking::{attach, detach, everywhere, look};
pub use balancer::{Wanted, balance};
pub use listeners::Place;
pub use seen::{COLUMNS, Kernel, Moved, NOTHING, Snapshot, metrics, table};
pub use way::{Kind, whole_table_us};
