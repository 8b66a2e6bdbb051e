//! Service `volume`: making durable what a tree that is a volume has.

use crate::{Inode, Result};

/// What a client asks of volumes. An image without any answers as it stands here.
pub trait Volumes {
    /// Whether the image has volumes.
    fn has_volumes(&self) -> bool {
        false
    }
    /// Returns when an inode of a volume is durable with its data, its attributes and the names
    /// that lead to it; `whole`: everything in its volume. At once where it is in none. `EIO`: it
    /// is not, and may never be; `ENOSPC`: the volume is full.
    fn commit(&mut self, _inode: Inode, _whole: bool) -> Result<()> {
        Ok(())
    }
    /// The same for everything in all volumes.
    fn commit_all(&mut self) -> Result<()> {
        Ok(())
    }
}
