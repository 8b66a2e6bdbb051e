//! What an area is read from and written to.
//!
//! ```text
//!   write ─► may be lost, in any part      write_durable ─► on the medium
//!      '── flush ─► on the medium
//! ```
//!
//! Invariants
//! 1. Buffers, positions and lengths are multiples of `BLOCK_BYTES`, as O_DIRECT wants them.
//! 2. A write that was not flushed may be kept, lost or torn between sectors.
//! 3. After an error nothing is known of what was not yet durable; the caller does not try again.

mod aligned;
mod pwrite;
pub mod sim;

use std::io;
use std::sync::Arc;

pub use aligned::Aligned;
pub use pwrite::Pwrite;

/// What is read and written at once, and how it is aligned.
pub const BLOCK_BYTES: usize = 4096;
/// The same of a position.
pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// A range of bytes that outlives the process.
pub trait Disk: Send + Sync {
    /// How many there are.
    fn size_bytes(&self) -> u64;
    /// Fills `into` with what is at `at`.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes `from` at `at`; durable after the next flush.
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()>;
    /// Writes `from` at `at`, durable on return. Says nothing of earlier writes.
    fn write_durable(&self, at: u64, from: &[u8]) -> io::Result<()>;
    /// Makes everything durable that was written before.
    fn flush(&self) -> io::Result<()>;
}

impl<D: Disk + ?Sized> Disk for Arc<D> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        (**self).write(at, from)
    }

    fn write_durable(&self, at: u64, from: &[u8]) -> io::Result<()> {
        (**self).write_durable(at, from)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}
