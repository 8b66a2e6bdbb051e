//! Service `volume`: `fsync` and `sync` of trees that are volumes.

use crate::{Inode, Result};

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
}}
