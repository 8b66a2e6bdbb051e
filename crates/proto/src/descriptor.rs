//! Service `descriptor`: descriptor tables and open-file descriptions.
//!
//! A table says for every number: free, Husk's (with a description), or the host's. Lowest-free
//! order holds over both. A number of the host may be a `shadow`: a host file read through an
//! overlay, whose `fstat` and names are Husk's business. It has a description from the start, which
//! all its numbers share, those of other processes, too: once the file is the image's, the first of
//! them to be used takes the offset over from the host's for all (`promote`).
//! Tables outlive `exec`; they are shared by threads and by `CLONE_FILES`.

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

/// The descriptor service.
pub trait Descriptors {
    /// What `fd` stands for, without a token.
    fn slot(&mut self, files: Files, fd: u32) -> Slot;
    /// The Husk descriptor `fd` of the calling process's own table. `None`: one look does not tell.
    fn glance(&self, fd: u32) -> Option<Glance> {
        let _ = fd;
        None
    }
    /// Whether one look tells that `fd` there is the host's to answer for: nothing of Husk's stands
    /// behind it.
    fn is_hosts(&self, fd: u32) -> bool {
        let _ = fd;
        false
    }
    /// Calls on `fd` may go to the host without asking again, if it is the host's and only the
    /// calling thread can change that; ends with the next change of the number. A hint: may do
    /// nothing.
    fn pass_host(&self, fd: u32) {
        let _ = fd;
    }
    /// Number `fd` is a directory of the host with no tree of the image at or below it, as was so
    /// when `Image::outside_age` was `age`, in a table that this thread alone has; ends with the
    /// next change of the number. A hint: may do nothing.
    fn note_outlying(&self, fd: u32, age: u64) {
        let _ = (fd, age);
    }
    /// Whether that is known, and holds.
    fn is_outlying(&self, fd: u32) -> bool {
        let _ = fd;
        false
    }
    /// Whether one look tells that the host reads what is behind `fd`: a file of the image whose
    /// bytes are the host's, opened there.
    fn reads_host(&self, fd: u32) -> bool {
        let _ = fd;
        false
    }
    /// Only the flags of `description`.
    fn flags(&self, description: Description) -> Result<u32>;
    /// Inode and flags of a description, without a token.
    fn description(&mut self, description: Description) -> Result<Open>;
    /// The close-on-exec flag. `EBADF`.
    fn close_on_exec(&mut self, files: Files, fd: u32) -> Result<bool>;
    /// Sets it (of Husk and host numbers; the caller tells the host itself).
    fn set_close_on_exec(&mut self, files: Files, fd: u32, on: bool) -> Result<()>;
    /// Lowest free number in `minimum..limit`. `EMFILE`.
    fn lowest_free(&mut self, files: Files, minimum: u32, limit: u32) -> Result<u32>;
    /// A second number for a Husk descriptor, the lowest free in `minimum..limit`.
    fn duplicate(
        &mut self,
        files: Files,
        fd: u32,
        minimum: u32,
        limit: u32,
        close_on_exec: bool,
    ) -> Result<u32>;
    /// The Husk descriptor `fd` also at `target`, whatever Husk descriptor was there closed in the
    /// same transaction. `over_host`: a host descriptor is there, and the caller plugs the number
    /// on the host, before or after. `EBUSY` where that is not so by now.
    fn duplicate_to(
        &mut self,
        files: Files,
        fd: u32,
        target: u32,
        close_on_exec: bool,
        over_host: bool,
    ) -> Result<()>;
    /// Whether `fd` is Husk's and plugged on the host.
    fn plugged(&mut self, files: Files, fd: u32) -> bool;
    /// Closes a Husk descriptor; releases POSIX locks of this process on its inode. `Ok(true)`: it
    /// is open yet, but no longer plugged; the caller closes the plug on the host and asks again.
    fn close(&mut self, files: Files, fd: u32) -> Result<bool>;
    /// Calls `emit` for each number in use in `first..=last`.
    fn for_each(&mut self, files: Files, first: u32, last: u32, emit: &mut dyn FnMut(u32, Slot));
    /// The first number in use at or after `from`, for who changes the table between two.
    fn next_number(&self, files: Files, from: u32) -> Option<u32>;

    /// Notes that the host opened `fd`. `Ok(false)`: the number is a Husk descriptor; the caller
    /// moves the host's to another number and plugs the hole (`plug`).
    fn host_opened(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Shown,
    ) -> Result<bool>;
    /// `host_opened` of a descriptor that shows nothing, in the process's own table, at once or not
    /// at all. False: nothing was noted; call `host_opened`.
    fn try_host_opened(&mut self, fd: u32, close_on_exec: bool) -> bool {
        let _ = (fd, close_on_exec);
        false
    }
    /// Notes that the host has put a descriptor under `fd` (`dup2`), whatever was there closed in
    /// the same transaction.
    fn host_replaces(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Shown,
    ) -> Result<()>;
    /// Makes the shadow `fd` of `inode` a Husk descriptor; the host's stays behind as its plug and
    /// must be close-on-exec. `flags` and `offset` are the host's, and hold unless another number
    /// of the description was first. `EBADF`: it is another's by now; `EIO`: the file is the host's
    /// yet.
    fn promote(
        &mut self,
        files: Files,
        fd: u32,
        inode: Inode,
        flags: u32,
        offset: u64,
    ) -> Result<Description>;
    /// Notes that the host's `fd` is about to be closed.
    fn host_closed(&mut self, files: Files, fd: u32);
    /// `host_closed` in the process's own table, at once or not at all: of a number that shows
    /// nothing, or a shadow whose file has no locks. False: nothing changed; call `host_closed`.
    fn try_host_closed(&mut self, fd: u32) -> bool {
        let _ = fd;
        false
    }
    /// Notes that the host's table has a plug under `fd`. False: the number is not Husk's (any
    /// more), and the caller closes the plug.
    fn plug(&mut self, files: Files, fd: u32) -> bool;

    /// The offset of a description.
    fn offset(&mut self, description: Description) -> Result<u64>;
    /// Sets it.
    fn set_offset(&mut self, description: Description, offset: u64) -> Result<()>;
    /// Runs `step(offset)` with the description's offset locked against other users of it, and
    /// advances it to the offset `step` returns (as `read`, `write` and `getdents` need).
    fn advance(
        &mut self,
        description: Description,
        step: impl FnOnce(&mut Self, u64) -> Result<(u64, usize)>,
    ) -> Result<usize>
    where
        Self: Sized;
    /// Replaces the status flags that `F_SETFL` may change.
    fn set_flags(&mut self, description: Description, flags: u32) -> Result<()>;
}
