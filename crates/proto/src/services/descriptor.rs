//! Service `descriptor`: descriptor tables and open-file descriptions.
//!
//! A table entry is free, Husk's (with an open-file description), or the host's. A new descriptor
//! gets the lowest number that is free in both. A host descriptor may be a `shadow`: a host file
//! that is read through an overlay, and whose `fstat` and names Husk answers. A shadow has a
//! description from the start, shared by all its numbers in all processes. When the file becomes
//! the image's, the first number that is used takes the offset over from the host (`promote`).
//! Tables survive `exec`. Threads share one, and so do processes made with `CLONE_FILES`.

use crate::{Inode, Result};

/// A descriptor table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files(pub u32);

/// An open-file description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description(pub u32);

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Nothing.
    Free,
    /// A descriptor of the host under the same number; `Some` = the Husk inode it shows.
    Host(Option<Inode>),
    /// A Husk descriptor.
    Husk(Description),
}

/// What of the image a descriptor of the host shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// A node; what is done through the descriptor stays the host's. A FIFO.
    Node(Inode),
    /// A file that the host opened just now: a shadow.
    File(Inode),
    /// What this number of the same table shows, by the same description.
    Like(u32),
}

/// What one look tells of a Husk descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glance {
    /// What it names.
    pub description: Description,
    /// Its flag.
    pub close_on_exec: bool,
}

/// What an open-file description says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// What is open.
    pub inode: Inode,
    /// `O_ACCMODE`, status flags (`O_APPEND`, ...), `O_PATH`, `O_DIRECTORY`.
    pub flags: u32,
}

operations! { ($) descriptor_operations

/// The descriptor service.
Descriptors in descriptor, operations {
    /// What `fd` stands for, without a token.
    slot = - { files: Files, fd: u32 } -> Slot,
        by carrier;

    /// Inode and flags of a description, without a token.
    description = - { description: Description } -> Result<Open>,
        by carrier;

    /// The close-on-exec flag. `EBADF`.
    close_on_exec = - { files: Files, fd: u32 } -> Result<bool>,
        by descriptor::table::close_on_exec;

    /// Sets it (of Husk and host numbers; the caller tells the host itself).
    set_close_on_exec = - { files: Files, fd: u32, on: bool } -> Result<()>,
        by descriptor::table::set_close_on_exec;

    /// Lowest free number in `minimum..limit`. `EMFILE`.
    lowest_free = - { files: Files, minimum: u32, limit: u32 } -> Result<u32>,
        by carrier;

    /// A second number for a Husk descriptor, the lowest free in `minimum..limit`.
    duplicate = Duplicate {
        files: Files, fd: u32, minimum: u32, limit: u32, close_on_exec: bool,
    } -> Result<u32>,
        by descriptor::table::duplicate;

    /// The Husk descriptor `fd` also at `target`, whatever Husk descriptor was there closed in the
    /// same transaction. `over_host`: a host descriptor is there, and the caller plugs the number
    /// on the host, before or after. `EBUSY` where that is not so by now.
    duplicate_to = Duplicate {
        files: Files, fd: u32, target: u32, close_on_exec: bool, over_host: bool,
    } -> Result<()>,
        by carrier;

    /// Whether `fd` is Husk's and plugged on the host.
    plugged = - { files: Files, fd: u32 } -> bool,
        by carrier;

    /// Closes a Husk descriptor; releases POSIX locks of this process on its inode. `Ok(true)`: it
    /// is open yet, but no longer plugged; the caller closes the plug on the host and asks again.
    close = Close { files: Files, fd: u32 } -> Result<bool>,
        by carrier;

    /// Calls `emit` for each number in use in `first..=last`.
    for_each = - { files: Files, first: u32, last: u32, emit: &mut dyn FnMut(u32, Slot) } -> (),
        by carrier;

    /// Notes that the host opened `fd`. `Ok(false)`: the number is a Husk descriptor; the caller
    /// moves the host's to another number and plugs the hole (`plug`).
    host_opened = Host { files: Files, fd: u32, close_on_exec: bool, shows: Shown } -> Result<bool>,
        by carrier;

    /// Notes that the host has put a descriptor under `fd` (`dup2`), whatever was there closed in
    /// the same transaction.
    host_replaces = Host { files: Files, fd: u32, close_on_exec: bool, shows: Shown } -> Result<()>,
        by carrier;

    /// Makes the shadow `fd` of `inode` a Husk descriptor; the host's stays behind as its plug and
    /// must be close-on-exec. `flags` and `offset` are the host's, and hold unless another number
    /// of the description was first. `EBADF`: it is another's by now; `EIO`: the file is the host's
    /// yet.
    promote = Host {
        files: Files, fd: u32, inode: Inode, flags: u32, offset: u64,
    } -> Result<Description>,
        by carrier;

    /// Notes that the host's `fd` is about to be closed.
    host_closed = Host { files: Files, fd: u32 } -> (),
        by carrier;

    /// Notes that the host's table has a plug under `fd`. False: the number is not Husk's (any
    /// more), and the caller closes the plug.
    plug = - { files: Files, fd: u32 } -> bool,
        by carrier;

    /// The offset of a description.
    offset = - { description: Description } -> Result<u64>,
        by carrier;

    /// Sets it.
    set_offset = Seek { description: Description, offset: u64 } -> Result<()>,
        by carrier;

    /// Replaces the status flags that `F_SETFL` may change.
    set_flags = - { description: Description, flags: u32 } -> Result<()>,
        by descriptor::open::set_flags;
}}

/// The one operation that calls the client back for more than bytes or names.
pub trait Offsets {
    /// Takes the offset of `description`, runs `step` with it and stores the next one, as one step
    /// where others share the description: they wait meanwhile. `step` moves the bytes.
    fn advance(
        &mut self,
        description: Description,
        step: impl FnOnce(&mut Self, u64) -> Result<(u64, usize)>,
    ) -> Result<usize>
    where
        Self: Sized;
}
