//! What a client asks of the kernels, and what they answer. The only thing both sides share.
//!
//! One file a service: `fs` (trees and bytes), `descriptor` (numbers and open-file descriptions),
//! `flight` (descriptors in messages), `process` (who is there), `lock` (advisory locks), `pipe`
//! (bytes of pipes), `epoll` (what programs wait for), `watch` (who is told of changes), `image`
//! (what one image is made of), `volume` (what becomes durable), `place` (which kernel is whose);
//! `operation` names their types for those who count; `entry` is no service, but what a process and
//! the supervisor agree on when it enters, nor `snapshot`, what a start is made from, nor `acl`,
//! the rules of access control lists.
//! A carrier implements every trait; a client is generic over them and knows nothing of how an
//! operation gets to its kernel.
//!
//! Invariants
//! 1. An operation happens as a whole or not at all, to every observer and to death.
//! 2. No operation blocks; waiting is the client's business (`lock::Blocked` names the word).
//! 3. Names are 1..=255 bytes without `/` and NUL and are never `.` or `..`; the client has
//!    resolved those, and handlers refuse others with `EINVAL`.
//! 4. Permission to walk (`x` on directories) is checked by the client from `Step`; permission to
//!    change or open is checked by the operation from `Credentials`.
#![no_std]
#![forbid(unsafe_code)]

pub mod acl;
pub mod descriptor;
pub mod entry;
pub mod epoll;
pub mod flight;
pub mod fs;
pub mod image;
pub mod lock;
pub mod namespace;
pub mod operation;
pub mod pipe;
pub mod place;
pub mod process;
pub mod snapshot;
pub mod volume;
pub mod watch;

pub use descriptor::{Description, Descriptors, Files};
pub use fs::{Credentials, Fs, Inode};
pub use husk_abi::Errno;
pub use operation::Operation;
pub use process::{Process, Processes};

/// What every operation returns.
pub type Result<T> = core::result::Result<T, Errno>;

/// Everything one thread can ask: all services over one carrier.
pub trait Services:
    Fs
    + Descriptors
    + flight::Flights
    + Processes
    + lock::Locks
    + pipe::Pipes
    + epoll::Epolls
    + watch::Watches
    + image::Image
    + volume::Volumes
{
}
impl<T> Services for T where
    T: Fs
        + Descriptors
        + flight::Flights
        + Processes
        + lock::Locks
        + pipe::Pipes
        + epoll::Epolls
        + watch::Watches
        + image::Image
        + volume::Volumes
{
}
