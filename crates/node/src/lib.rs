//! The agent of a node: the process that answers other nodes' messages, by running the handlers of
//! this node's region.
//!
//! ```text
//!   other node's process ── request ──► slot in memory (`slots`) ──► a thread of the agent
//!                       '── long one ─► socket (`serve`) ───────────►  │ `dispatch`: which handler
//!                                                                      │ `file`: the handlers
//!                        ◄── answer ──────────────────────────────────'   └── Direct ──► region
//! ```
//!
//! It is a process of the image as any other. What it keeps open for others is in the region
//! (`file/holds.rs`). It has no other state, so another one can be started at any time.
//!
//! Invariants
//! 1. A request is one transaction of the region, or several of which each alone does no harm
//!    (reading a listing from the host, making a file the image's own). It is made once, however
//!    often it is sent (`once`).
//! 2. Rights are checked here, against the credentials in the message. Nodes of one image are one
//!    user's: nobody else reaches the socket or the slots.
//! 3. One slow request holds up one thread only.
//! 4. A message that breaks a rule is counted and ends its session (`sessions`). If the supervisor
//!    declares a node dead, the agent closes what it had open and does nothing for it any more.
//!
//! Programs of this host keep no copy of a name or of bytes (`husk-carrier`, `far`). What another
//! host keeps is judged by who carries its messages (`other_host/promises.rs`), and kept by its
//! other end (`copies.rs` there).

#![deny(unsafe_code)]

mod agent;
mod dispatch;
mod fetcher;
mod file;
mod once;
mod other_host;
#[allow(unsafe_code)]
mod plain;
mod planted;
mod serve;
mod sessions;
mod slots;
mod translate;

pub use fetcher::Fetcher;
pub use husk_wire::AFAR;
pub use other_host::clock::bridge;
pub use other_host::copies::Copies;
pub use other_host::promises::{File, Kept, Promises};
pub use other_host::written::{Written, brought};
pub use serve::{CALL_BYTES_MAX, ask, kind_name, serve, tell_deaths};

#[cfg(test)]
#[allow(unsafe_code)]
mod sim;
#[cfg(test)]
mod tests;
