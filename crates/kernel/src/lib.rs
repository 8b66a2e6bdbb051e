//! The handlers: plain functions on state in the region, one folder a service.
//!
//! ```text
//!   carrier --> fs | descriptor | process | lock | image --> names, tree, text --> region
//! ```
//!
//! Invariants
//! 1. A handler is one transaction: it returns an error and nothing happened, or it happened.
//!    What takes more than one (freeing a large file, the end of a process) is repeatable, and
//!    noted in the slot or the record until it is through.
//! 2. Locks are taken in this order: long locks (offset, writer), process, descriptor table,
//!    context, rename lock, tokens by partition, buckets by address, descriptions, inodes by
//!    number, chunks.
//! 3. No clock, no host, no thread: the time comes in as `now_ns`, the caller as `Kernel`.
#![no_std]
#![forbid(unsafe_code)]

pub mod check;
pub mod descriptor;
pub mod fs;
pub mod image;
pub mod lock;
pub mod process;
mod state;
mod text;
mod tree;

use husk_proto::Result;
use husk_region::{Session, Txn};

pub use check::{Finding, check};

/// One thread's way to the kernels of this node.
#[derive(Debug)]
pub struct Kernel {
    /// Its seat in the region.
    pub session: Session,
    /// The process record it acts for; 0 is the supervisor.
    pub process: u32,
    /// Whether this thread is noted as waiting for a lock (`lock`).
    pub(crate) waits: core::cell::Cell<bool>,
}

impl Kernel {
    /// A thread's way, acting for `process`.
    pub fn new(session: Session, process: u32) -> Kernel {
        Kernel { session, process, waits: core::cell::Cell::new(false) }
    }

    /// Runs one transaction, then whatever it (or a dead thread before) left to be done.
    #[inline]
    pub fn run<T>(&self, body: impl FnMut(&mut Txn<'_>) -> Result<T>) -> Result<T> {
        if self.waits.replace(false) {
            self.session.set_waits_for(0)?;
        }
        if self.session.pending()? != 0 {
            fs::orphan::finish(self)?;
        }
        let result = self.session.transact(body);
        if self.session.pending()? != 0 {
            fs::orphan::finish(self)?;
        }
        result
    }
}
