//! What a client asks of the kernels, and what they answer. The only thing both sides share.
//!
//! Each operation is declared once (`declare`): the traits here, the carrier's methods, counters
//! and docs/protocol.md follow from the declaration.
//!
//! Services of programs, one file each in `services`: `fs` (trees and bytes), `descriptor` (numbers
//! and open-file descriptions), `flight` (descriptors in messages), `process` (process records),
//! `lock` (advisory locks), `pipe` (bytes of pipes and of sockets), `epoll` (sets of epoll),
//! `watch` (inotify), `image` (layout of an image, rewritten copies), `volume` (what becomes
//! durable), `shortcuts` (looks at shared memory that save an operation).
//!
//! The supervisor has three of its own, in `supervisor`: `admin`, `overview` and `volume_log`.
//!
//! Beside them: `operation` (what operations are counted as), `place` (placement of processes),
//! `entry` (what a process and the supervisor agree on when it enters), `snapshot` (recorded starts
//! of programs), `acl` (the rules of access control lists).
//!
//! A carrier implements every trait. A client is generic over them and does not know how an
//! operation reaches its kernel.
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

#[macro_use]
pub mod declare;

pub mod acl;
pub mod entry;
pub mod fetch;
mod imported;
pub mod loads;
pub mod namespace;
pub mod operation;
pub mod page;
pub mod place;
mod services;
pub mod snapshot;
mod supervisor;

pub use services::{
    descriptor, epoll, flight, fs, image, lock, pipe, process, shortcuts, volume, watch,
};
pub use supervisor::{admin, overview, volume_log};

pub use admin::Admin;
pub use descriptor::{Description, Descriptors, Files};
pub use fs::{Credentials, Fs, Inode};
pub use husk_abi::Errno;
pub use operation::Operation;
pub use overview::Overview;
pub use process::{Process, Processes};
pub use shortcuts::Shortcuts;
pub use volume_log::VolumeLog;

/// What every operation returns.
pub type Result<T> = core::result::Result<T, Errno>;

/// Everything one thread can ask: all services over one carrier.
pub trait Services:
    Fs
    + Shortcuts
    + Descriptors
    + descriptor::Offsets
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
        + Shortcuts
        + Descriptors
        + descriptor::Offsets
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
