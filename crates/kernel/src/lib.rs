//! The handlers: plain functions on state in the region, one folder a service.
//!
//! ```text
//!   carrier --> process --> descriptor --> lock | readiness | pipe --> fs --> watch --> image
//!                 '--> state (words, numbers, trees, text) --> region
//! ```
//!
//! Invariants
//! 1. A handler is one transaction: it returns an error and nothing happened, or it happened.
//!    What takes more than one (freeing a large file, the end of a process) is repeatable, and
//!    noted in the slot or the record until it is through.
//! 2. Locks are taken in this order: long locks (offset, writer: `fs::directory::share`), process,
//!    descriptor table, hold of another node, context, rename lock, tokens by partition, buckets by
//!    address, descriptions, pipes, inodes by number, watches, chunks, a set of the reply cache
//!    (`image::answers`).
//! 3. No clock, no host, no thread: the time comes in as `now_ns`, the caller as `Kernel`.
#![no_std]
#![forbid(unsafe_code)]

pub mod check;
pub mod descriptor;
pub mod fs;
pub mod image;
pub mod lock;
pub mod pipe;
pub mod process;
pub mod readiness;
mod state;
pub mod watch;

use husk_proto::fs::SetBits;
use husk_proto::operation::{LOOKS, OPERATIONS};
use husk_proto::{Errno, Operation, Result};
use husk_region::{ATTENTION_ABOVE, LOOKS_MAX, Session, TALLIES_MAX, Txn};

pub use check::{Finding, check};

/// One thread's way to the kernels of this node.
#[derive(Debug)]
pub struct Kernel {
    /// Its seat in the region.
    pub session: Session,
    /// The process record it acts for; 0 is the supervisor.
    pub process: u32,
    /// What its writes leave of set-user and set-group bits.
    pub set_bits: SetBits,
    /// Whether its reads leave access times alone (`O_NOATIME`).
    pub leaves_access_times: bool,
    /// What it has changed in a volume that makes each change durable, where `SAVE` says so.
    touched: core::cell::Cell<husk_proto::Inode>,
    /// What another node asks for, while that is done here.
    #[cfg(feature = "answers")]
    pub asked: Option<image::answers::Asked>,
}

/// For `map_err`: what a call says where Linux has another word than `ENOSPC` for no room.
pub(crate) fn no_room(word: Errno) -> impl Fn(Errno) -> Errno {
    move |error| if error == Errno::ENOSPC { word } else { error }
}

/// Attention: this thread is noted as waiting for a lock (`lock`).
pub(crate) const WAITS: u32 = ATTENTION_ABOVE;
/// Attention: a directory is to be widened or narrowed (`fs::directory::switch`).
pub(crate) const SWITCH: u32 = ATTENTION_ABOVE << 1;
/// Attention: an instance of inotify is to be told (`watch`); the room above asks for it.
pub(crate) const TELL: u32 = ATTENTION_ABOVE << 2;
/// Attention: what was changed in a volume is to be durable before the call returns (`touched`).
pub(crate) const SAVE: u32 = ATTENTION_ABOVE << 3;
const _: () = assert!(OPERATIONS <= TALLIES_MAX as usize && LOOKS <= LOOKS_MAX);

/// How often one operation is prepared for: each time another directory, or a changed one.
const PREPARES_MAX: u32 = 1 << 12;

/// How often what one operation borrows may be taken to pay for what others have.
const LOANS_MAX: u32 = 64;

impl Kernel {
    /// A thread's way, acting for `process`.
    pub fn new(session: Session, process: u32) -> Kernel {
        Kernel {
            session,
            process,
            set_bits: SetBits::default(),
            leaves_access_times: false,
            touched: core::cell::Cell::new(husk_proto::Inode { generation: 0, number: 0 }),
            #[cfg(feature = "answers")]
            asked: None,
        }
    }

    /// Counts an operation that is about to be done: a step of a longer one, another look, or a
    /// change.
    #[inline(always)]
    pub fn count(&self, operation: Operation) {
        match operation {
            Operation::Walk => self.session.count_step(operation as usize),
            Operation::Stat | Operation::Read | Operation::List | Operation::Pipe => {
                self.session.count_look(operation as usize);
            }
            _ => self.session.count(operation as u32),
        }
    }

    /// Runs one transaction, then whatever it (or a dead thread before) left to be done.
    #[inline]
    pub fn run<T>(&self, mut body: impl FnMut(&mut Txn<'_>) -> Result<T>) -> Result<T> {
        for _ in 0..PREPARES_MAX {
            self.ready()?;
            let result = self.session.transact(&mut body);
            if self.session.attention() != 0 {
                self.attend(false)?;
            }
            match result {
                Err(fs::directory::share::PREPARE) => fs::directory::switch::serve_before(self)?,
                result => return result,
            }
        }
        Err(Errno::EIO)
    }

    /// `run` for what a full image must still do: start processes, and open what is to be removed.
    /// Whoever asks bounds how often.
    pub(crate) fn run_reserved<T>(
        &self,
        mut body: impl FnMut(&mut Txn<'_>) -> Result<T>,
    ) -> Result<T> {
        let before = self.session.set_reserved(true);
        let mut result = self.run(&mut body);
        for _ in 0..LOANS_MAX {
            if !matches!(result, Err(Errno::ENOSPC)) {
                break;
            }
            match self.session.refill_reserved() {
                Ok(true) => result = self.run(&mut body),
                Ok(false) => break,
                Err(error) => result = Err(error),
            }
        }
        self.session.set_reserved(before);
        result
    }

    /// Does what is due before an operation: who sets blocks aside for one calls this first, for
    /// left-over work frees blocks and so moves those on top.
    #[inline]
    pub(crate) fn ready(&self) -> Result<()> {
        self.session.slot()?;
        if self.session.attention() != 0 { self.attend(true) } else { Ok(()) }
    }

    /// What is to be done beside operations: the next one ends a wait; left-over work is finished.
    #[cold]
    fn attend(&self, before: bool) -> Result<()> {
        if before && self.session.attention() & WAITS != 0 {
            self.session.forget(WAITS);
            self.session.set_waits_for(0)?;
        }
        if self.session.pending()? != 0 {
            fs::orphan::finish(self)?;
        }
        if self.session.attention() & SWITCH != 0 {
            self.session.forget(SWITCH);
            fs::directory::switch::serve_after(self);
        }
        Ok(())
    }
}
