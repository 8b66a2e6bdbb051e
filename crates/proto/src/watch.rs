//! Service `watch`: who is told of changes (`inotify`).
//!
//! An instance is a descriptor of the host that the image knows, too. Its watches on files of the
//! image stand in the region, and so do their events; the host knows of them by one *marker* only:
//! a file of the image's private directory that the host's instance watches, touched when there is
//! something to read. `docs/adr/0020` says why.

use crate::{Errno, Files, Inode, Result};

/// An instance: 24 bits of life above 8 of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance(pub u32);

/// What a watch descriptor of the program stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    /// A watch of the image's, gone now.
    Husk,
    /// The host's watch of this descriptor: its to remove.
    Host(u32),
}

/// What a read has taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Bytes, as `struct inotify_event` lays them out.
    pub bytes: usize,
    /// Events are left: they will be told of by another marker.
    pub more: bool,
}

/// The name of an instance's marker in the private directory.
pub struct MarkerName {
    bytes: [u8; 32],
    length: usize,
}

impl MarkerName {
    /// Of this one.
    pub fn new(instance: Instance) -> MarkerName {
        let mut name = MarkerName { bytes: [0; 32], length: 0 };
        name.bytes[..MARKER_PREFIX.len()].copy_from_slice(MARKER_PREFIX);
        name.length = MARKER_PREFIX.len();
        let number = &mut name.bytes[name.length..];
        name.length += husk_abi::proc::put_decimal(number, instance.0);
        name
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The instance that a name in the private directory is a marker of.
    pub fn parse(name: &[u8]) -> Option<Instance> {
        let digits = name.strip_prefix(MARKER_PREFIX)?;
        core::str::from_utf8(digits).ok()?.parse().ok().map(Instance)
    }
}

const MARKER_PREFIX: &[u8] = b"watch.";

/// The watch service. What does not serve watches says so by these defaults.
#[allow(unused_variables)]
pub trait Watches {
    /// The instance that host number `fd` names, without a token.
    fn watch_instance(&self, files: Files, fd: u32) -> Option<Instance> {
        None
    }
    /// A noted host number names a new instance. `EMFILE`: there are too many.
    fn watch_make(&mut self, files: Files, fd: u32) -> Result<Instance> {
        Err(Errno::ENOSYS)
    }
    /// The host's instance watches its marker, under this descriptor and this number of an inode.
    fn watch_mark(&mut self, instance: Instance, marker: u32, file: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// The host's watch descriptor of the marker, 0 = there is none.
    fn watch_marker(&self, instance: Instance) -> u32 {
        0
    }
    /// Whether there are instances at all.
    fn watch_any(&self) -> bool {
        false
    }
    /// The instance whose marker is this inode of the host.
    fn watch_find(&mut self, file: u64) -> Option<Instance> {
        None
    }
    /// A noted host number is a second number of an instance.
    fn watch_join(&mut self, files: Files, fd: u32, instance: Instance) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    /// Watches an inode, or changes its watch: `mask` as `inotify_add_watch` has it. `ENOSPC`.
    fn watch_add(&mut self, instance: Instance, inode: Inode, mask: u32) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
    /// The program's watch descriptor for one of the host's, a new one if need be. `ENOSPC`.
    fn watch_host(&mut self, instance: Instance, host: u32) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
    /// The same, if there is one; with `gone` it is forgotten.
    fn watch_of_host(&mut self, instance: Instance, host: u32, gone: bool) -> Option<u32> {
        None
    }
    /// The first watch on a file of the image with a descriptor from `from` on: descriptor, file,
    /// and what it tells of.
    fn watch_next(&self, instance: Instance, from: u32) -> Option<(u32, Inode, u32)> {
        None
    }
    /// Ends a watch. `EINVAL`.
    fn watch_remove(&mut self, instance: Instance, wd: u32) -> Result<Removed> {
        Err(Errno::EINVAL)
    }
    /// Takes events out; only who has read a marker does, with the readers' lock.
    fn watch_take(&mut self, instance: Instance, out: &mut [u8]) -> Result<Taken> {
        Ok(Taken::default())
    }
    /// Bytes of the events that wait.
    fn watch_waiting(&mut self, instance: Instance) -> u32 {
        0
    }
    /// Keeps other readers out, until `watch_unlock`.
    fn watch_lock(&mut self, instance: Instance) -> Result<()> {
        Ok(())
    }
    /// Lets them in.
    fn watch_unlock(&mut self, instance: Instance) {}
    /// Whether an operation of this thread has left somebody to be told.
    #[inline(always)]
    fn watch_owes(&self) -> bool {
        false
    }
    /// The next instance to be told; from now on it counts as told.
    fn watch_owed(&mut self) -> Option<Instance> {
        None
    }
    /// It could not be told.
    fn watch_untold(&mut self, instance: Instance) {}
    /// Something has happened to an inode that is no operation of its own: a directory was listed,
    /// a file opened that is the host's. `what` as `IN_ACCESS`.
    #[inline]
    fn watch_note(&mut self, inode: Inode, what: u32) {}
}
