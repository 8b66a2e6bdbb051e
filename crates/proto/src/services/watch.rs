//! Service `watch`: inotify.
//!
//! An instance is a host descriptor that the image records. Its watches on files of the image, and
//! their events, are in the region. The host has one *marker* for them: a file in the image's
//! private directory that the host's instance watches, and that is touched when there are events to
//! read. `docs/adr/0020` says why.

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

operations! { ($) watch_operations

/// The watch service. What does not serve watches says so by these defaults.
Watches in watch, operations {
    /// A noted host number names a new instance. `EMFILE`: there are too many.
    watch_make = Watch { files: Files, fd: u32 } -> Result<Instance> = Err(Errno::ENOSYS),
        by watch::make;

    /// The host's instance watches its marker, under this descriptor and this number of an inode.
    watch_mark = - {
        instance: Instance, marker: u32, file: u64,
    } -> Result<()> = Err(Errno::ENOSYS),
        by watch::mark;

    /// The instance whose marker is this inode of the host.
    watch_find = - { file: u64 } -> Option<Instance> = None,
        by watch::find;

    /// A noted host number is a second number of an instance.
    watch_join = - { files: Files, fd: u32, instance: Instance } -> Result<()> = Err(Errno::ENOSYS),
        by watch::join;

    /// Watches an inode, or changes its watch: `mask` as `inotify_add_watch` has it. `ENOSPC`.
    watch_add = Watch of inode {
        instance: Instance, inode: Inode, mask: u32,
    } -> Result<u32> = Err(Errno::ENOSYS),
        by watch::list::add;

    /// The program's watch descriptor for one of the host's, a new one if need be. `ENOSPC`.
    watch_host = - { instance: Instance, host: u32 } -> Result<u32> = Err(Errno::ENOSYS),
        by watch::list::host;

    /// The same, if there is one; with `gone` it is forgotten.
    watch_of_host = - { instance: Instance, host: u32, gone: bool } -> Option<u32> = None,
        by watch::list::of_host;

    /// Ends a watch. `EINVAL`.
    watch_remove = Watch { instance: Instance, wd: u32 } -> Result<Removed> = Err(Errno::EINVAL),
        by watch::list::remove;

    /// Takes events out; only who has read a marker does, with the readers' lock.
    watch_take = Watch {
        instance: Instance, out: &mut [u8],
    } -> Result<Taken> = Ok(Taken::default()),
        by watch::queue::take;

    /// Bytes of the events that wait.
    watch_waiting = - { instance: Instance } -> u32 = 0,
        by carrier;

    /// Keeps other readers out, until `watch_unlock`.
    watch_lock = - { instance: Instance } -> Result<()> = Ok(()),
        by watch::lock_readers;

    /// Lets them in.
    watch_unlock = - { instance: Instance } -> () = (),
        by watch::unlock_readers;

    /// The next instance to be told; from now on it counts as told.
    watch_owed = - {} -> Option<Instance> = None,
        by watch::owed;

    /// It could not be told.
    watch_untold = - { instance: Instance } -> () = (),
        by watch::untold;

    /// Something has happened to an inode that is no operation of its own: a directory was listed,
    /// a file opened that is the host's. `what` as `IN_ACCESS`.
    watch_note = - of inode { inode: Inode, what: u32 } -> () = (),
        by carrier;
}}
