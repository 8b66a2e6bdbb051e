//! Service `epoll`: sets of descriptors that programs wait for, of which the image knows.
//!
//! A set is the host's, and what is in it as well. The image remembers which pipes are in which
//! set, and of a set with pipes of one process only what the host last said (`docs/adr/0038`).

use crate::pipe::Pipe;
use crate::{Errno, Files, Result};

/// A set: 24 bits of life above 8 of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set(pub u32);

/// Most bytes of events that are remembered, as `struct epoll_event` lays them out: four.
pub const SAID_BYTES: usize = 48;
/// Bytes of one.
pub const EVENT_BYTES: usize = 12;

/// What the host would say.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Events.
    pub count: usize,
    /// Their bytes.
    pub bytes: [u8; SAID_BYTES],
}

/// What a look at a number shows.
#[derive(Clone, Copy, Debug)]
pub enum Sight {
    /// No set that is remembered.
    Other,
    /// A set of which the host alone knows.
    Hosts,
    /// A set whose host may be asked what to remember.
    Unknown,
    /// A set in which the host would find nothing.
    Quiet,
    /// A set, and what the host would say.
    Known(Said),
}

/// The epoll service. What does not remember sets says so by these defaults.
#[allow(unused_variables)]
pub trait Epolls {
    /// What a look at number `fd` of this process shows, without a token.
    #[inline(always)]
    fn epoll_look(&self, fd: u32) -> Sight {
        Sight::Other
    }
    /// Whether that is `Sight::Quiet`. Looks at less: false also of a number above 4,095.
    #[inline(always)]
    fn epoll_is_quiet(&self, fd: u32) -> bool {
        false
    }
    /// The set that host number `fd` is.
    fn epoll_set(&self, files: Files, fd: u32) -> Option<Set> {
        None
    }
    /// A noted host number becomes a set. `ENFILE`: all are in use.
    fn epoll_make(&mut self, files: Files, fd: u32) -> Result<Set> {
        Err(Errno::ENOSYS)
    }
    /// A noted host number is a second number of a set.
    fn epoll_join(&mut self, files: Files, fd: u32, set: Set) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// A read end comes into a set, before the host hears of it; false: it must be the host's.
    fn epoll_enter(&mut self, set: Set, pipe: Pipe) -> bool {
        false
    }
    /// The host has removed it.
    fn epoll_exit(&mut self, set: Set, pipe: Pipe) {}
    /// The set that a pipe is in.
    fn epoll_of(&self, pipe: Pipe) -> Option<Set> {
        None
    }
    /// Something in a set was changed at the host.
    fn epoll_changed(&mut self, set: Set) {}
    /// Something is in a set that the image does not see.
    fn epoll_stranger(&mut self, set: Set) {}
    /// Somebody who is not in the image gets a set; with `None`, any of them.
    fn epoll_show(&mut self, set: Option<Set>) {}
    /// Before the host is asked without a wait: by what its answer is remembered; `None`: not.
    fn epoll_ask(&mut self, set: Set) -> Option<u64> {
        None
    }
    /// What the host said, that was asked at `asked`.
    fn epoll_remember(&mut self, set: Set, asked: u64, bytes: &[u8]) {}
}
