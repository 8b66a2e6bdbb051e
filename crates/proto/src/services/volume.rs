//! Service `volume`: `fsync` and `sync` of trees that are volumes.

use crate::{Inode, Result};

/// Longest name of a volume.
pub const NAME_BYTES_MAX: usize = 64;
/// Classes of durations: class n is for less than 2^n us, and the last one for all others.
pub const TOOK_CLASSES: usize = 24;

/// How a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The tree is none, or nobody writes its log any more.
    None,
    /// Its log is written.
    Served,
    /// A write of its log has failed: nothing becomes durable any more.
    Stopped,
}

/// When what a program changes in a volume is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// When a sync of it returns.
    #[default]
    Fsync,
    /// Syncs return before that: a loss of power takes no more than what was acknowledged in so
    /// many milliseconds, and of that always the last part.
    Async(u32),
    /// When the call that changed it returns.
    Immediate,
}

impl Policy {
    /// Longest time of `Async`, ms.
    pub const ASYNC_MS_MAX: u32 = 60_000;

    /// As a word of the region.
    pub fn word(self) -> u64 {
        match self {
            Self::Fsync => 0,
            Self::Immediate => 1,
            Self::Async(most_ms) => u64::from(most_ms) << 2 | 2,
        }
    }

    /// What a word of the region says.
    pub fn of(word: u64) -> Self {
        match word & 3 {
            1 => Self::Immediate,
            2 => Self::Async((word >> 2) as u32),
            _ => Self::Fsync,
        }
    }
}

impl core::fmt::Display for Policy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Fsync => f.write_str("fsync"),
            Self::Async(most_ms) => write!(f, "async={most_ms}"),
            Self::Immediate => f.write_str("immediate"),
        }
    }
}

/// What is counted, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Counter {
    /// Wishes that were served.
    Wishes,
    /// Writes of the log: one flush of the disk each.
    Flushes,
    /// Bytes that were written to the log.
    Bytes,
    /// Checkpoints.
    Checkpoints,
    /// Bytes of the log that would be replayed.
    Used,
    /// Bytes that the log has room for.
    Room,
    /// Bytes of the last snapshot of the tree.
    Snapshot,
    /// Bytes that a snapshot, with what has come since, has room for.
    SnapshotRoom,
    /// Groups of wishes that were served together.
    Groups,
    /// Bytes of the larger area that are written while it is made; 0: none is made.
    Grown,
    /// Bytes that it is to have.
    Growth,
}

/// A wish that is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The tree that is the volume.
    pub tree: u32,
    /// Its place among those that wait.
    pub slot: u32,
}

/// What is wished for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// That this inode is durable; `None`: everything in the volume.
    Commit(Option<Inode>),
    /// That the volume has so many bytes.
    Size(u64),
}

/// What a file has that is not saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsaved {
    /// First byte, and the first behind it; the same: none.
    pub bytes: (u64, u64),
    /// Extended attributes.
    pub extended: bool,
    /// A process may change its bytes without a call.
    pub mapped: bool,
}

impl Unsaved {
    /// Whether there is anything, as far as is noted.
    pub fn is_any(&self) -> bool {
        self.bytes.0 < self.bytes.1 || self.extended
    }
}

operations! { ($) volume_operations

/// What a client asks of volumes. An image without any answers as it stands here.
Volumes in volume, operations {
    /// Returns when an inode of a volume is durable with its data, its attributes and the names
    /// that lead to it; `whole`: everything in its volume. At once where it is in none. `EIO`: it
    /// is not, and may never be; `ENOSPC`: the volume is full.
    commit = - { inode: Inode, whole: bool } -> Result<()> = Ok(()),
        by carrier;

    /// The same for everything in all volumes.
    commit_all = - {} -> Result<()> = Ok(()),
        by carrier;

    /// Returns when what this thread has changed in a volume with policy `immediate` since the last
    /// time is durable. `EIO`, `ENOSPC`: as above.
    commit_changes = - {} -> Result<()> = Ok(()),
        by carrier;
}}
