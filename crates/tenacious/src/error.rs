//! Why something was not done.

use std::fmt;

use husk_storage::log::Refusal;

/// Why something was not done. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be made or opened: what, why, and what to do.
    Open(String),
    /// There is no descriptor for a doorbell: this errno.
    Descriptor(i32),
    /// The store has no room for more. Removing something makes room.
    Full,
    /// The batch is longer than [`crate::BATCH_BYTES_MAX`], or than the store takes at once.
    TooLong,
    /// A write or a flush has failed, now or earlier: nothing is written any more. What is in
    /// memory can still be read; what is durable is there when the store is opened again.
    Stopped,
    /// Nothing has this number.
    Unknown,
    /// A structure of this name is of another kind.
    OtherKind,
    /// The name is empty or too long, or there are too many structures.
    BadName,
    /// The queue has no such item: it is done already.
    NoItem,
    /// The counter would leave the range of a signed 64-bit number.
    Overflow,
    /// A handle of another store was used.
    OtherStore,
}

impl Error {
    /// The nearest errno, as the C interface returns it.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Self::Descriptor(errno) => return *errno,
            Self::Open(_) | Self::Stopped => Errno::IO,
            Self::Full => Errno::NOSPC,
            Self::TooLong => Errno::FBIG,
            Self::Unknown | Self::OtherKind | Self::BadName | Self::OtherStore => Errno::INVAL,
            Self::NoItem => Errno::NOENT,
            Self::Overflow => Errno::OVERFLOW,
        };
        errno.raw_os_error()
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full => Self::Full,
            Refusal::TooLong => Self::TooLong,
            Refusal::Stopped => Self::Stopped,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open(line) => line,
            Self::Descriptor(_) => "no descriptor could be made; close some (`ulimit -n`)",
            Self::Full => "the store is full; remove something, or make a larger one",
            Self::TooLong => "the batch is too long; split it",
            Self::Stopped => {
                "a write to the store has failed; look at the disk, then open it again"
            }
            Self::Unknown => "no change has this number; wait for one that was returned",
            Self::OtherKind => "a structure of this name is of another kind; use another name",
            Self::BadName => "a name has 1 to 255 bytes, and a store 65,536 structures at most",
            Self::NoItem => "the queue has no such item; it is done already",
            Self::Overflow => "the counter would overflow; nothing was added",
            Self::OtherStore => "the handle belongs to another store; use its own",
        })
    }
}

impl std::error::Error for Error {}
