//! Service `lock`: POSIX record locks, open-file-description locks and `flock`.

use crate::{Description, Inode, Result};

/// Whose lock it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// POSIX: the calling process.
    Process,
    /// OFD locks: a description.
    Description(Description),
    /// `flock`: a description, apart from the other two kinds.
    Flock(Description),
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Others may hold it too.
    Shared,
    /// Nobody else.
    Exclusive,
    /// Give it back.
    Unlock,
}

/// Bytes `start..end`; `end` = `u64::MAX` means to the end of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// Somebody's lock that stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Shared or exclusive.
    pub mode: Mode,
    /// Its bytes.
    pub range: Range,
    /// Its process, or -1 for a description's.
    pub pid: i32,
}

/// How asking ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done.
    Granted,
    /// In the way: sleep on the 32-bit futex word at `address` while it is `value`, ask again.
    Blocked {
        /// Word in the region, in this process.
        address: usize,
        /// Value it had.
        value: u32,
    },
}

operations! { ($) lock_operations

/// The lock service.
Locks in lock, operations {
    /// Sets, converts or releases. `EDEADLK` when waiting would close a circle of processes (only
    /// with `wait`), `ENOLCK` when the table is full.
    lock = Lock of inode {
        owner: Owner, inode: Inode, range: Range, mode: Mode, wait: bool,
    } -> Result<Outcome>,
        by carrier;

    /// The first lock that would stand in the way.
    test = Lock of inode {
        owner: Owner, inode: Inode, range: Range, mode: Mode,
    } -> Result<Option<Held>>,
        by lock::test;
}}
