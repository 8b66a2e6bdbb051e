//! Service `image`: what one image is made of, fixed when it starts.

use crate::Inode;

/// How a host directory is covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cover {
    /// Empty, in memory.
    Memory,
    /// The host directory read through, changes kept in the image.
    Overlay,
}

/// A Husk tree at a place of the host's tree.
#[derive(Clone, Copy, Debug)]
pub struct Mount<'a> {
    /// Real absolute path of the covered host directory, without symlinks, `.` or trailing `/`.
    pub path: &'a [u8],
    /// Root of the tree.
    pub root: Inode,
    /// What it shows.
    pub cover: Cover,
}

/// Most mounts in one image.
pub const MOUNTS_MAX: usize = 16;

/// What a client must know of its image.
pub trait Image {
    /// Number of mounts.
    fn mounts(&self) -> usize;
    /// Mount `index`.
    fn mount(&self, index: usize) -> Mount<'_>;
    /// `st_dev` shown for all inodes of the image.
    fn device(&self) -> u64;
    /// Whether this host path (or directory) is known not to lead into a mount through symlinks;
    /// a cache shared by the image (`note_outside`), keyed by hash, 128 bits.
    fn known_outside(&self, path: &[u8]) -> bool;
    /// Remembers it.
    fn note_outside(&mut self, path: &[u8]);
    /// Counts a call that Husk refused on one of its own files, by number (`HUSK_TRACE`).
    fn count_unsupported(&mut self, number: usize);
}
