//! Service `process`: who is there, what belongs to whom, and cleaning up after the dead.
//!
//! A process record names its descriptor table and its context (working directory and umask,
//! shared under `CLONE_FS`). Records outlive `exec`. What a dead process held is released exactly
//! once, by its own `exit`, by a waiter that met it, or by the supervisor.

use crate::{Files, Inode, Result};

/// A process record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(pub u32);

/// What a child shares with its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    /// `CLONE_FILES`: the descriptor table.
    pub files: bool,
    /// `CLONE_FS`: working directory and umask.
    pub context: bool,
}

/// Where a process works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkingDirectory {
    /// On the host; the host kernel knows where.
    Host,
    /// In a Husk tree. The record holds a reference: a removed directory stays usable.
    Husk(Inode),
}

/// The process service.
pub trait Processes {
    /// The record of the calling thread's process.
    fn current(&self) -> Process;
    /// Whether the calling thread is known to be the only one of its process.
    fn is_alone(&self) -> bool;
    /// Whether no other thread makes descriptors in the table of the calling one.
    fn has_table_alone(&self) -> bool;
    /// The descriptor table of the calling thread.
    fn files(&self) -> Files;
    /// Prepares a child record (state `embryo`): copies or shares table and context.
    fn prepare_fork(&mut self, sharing: Sharing) -> Result<Process>;
    /// The host refused the fork: takes the embryo back.
    fn cancel_fork(&mut self, child: Process);
    /// In the child: the calling thread now acts for `child`, which runs as host process `pid`.
    fn enter_child(&mut self, child: Process, pid: u32);
    /// Replaces a shared table by a private copy (`unshare`, and `exec` after `CLONE_FILES`).
    fn unshare(&mut self, sharing: Sharing) -> Result<()>;
    /// After a successful `exec`, in the new program: closes close-on-exec descriptors, drops
    /// pins of mappings, recovers threads the `exec` ended.
    fn finish_exec(&mut self) -> Result<()>;
    /// The process ends by itself: releases all it holds. Only when no other thread runs.
    fn exit(&mut self);

    /// The working directory.
    fn working_directory(&mut self) -> WorkingDirectory;
    /// That of host process `pid`; `None`: it is none of the image.
    fn working_directory_of(&mut self, pid: u32) -> Option<WorkingDirectory>;
    /// The descriptor table of the process of the image with host process id `pid`, to look into.
    fn files_of(&self, pid: u32) -> Option<Files> {
        let _ = pid;
        None
    }
    /// Changes it.
    fn set_working_directory(&mut self, place: WorkingDirectory) -> Result<()>;
    /// The umask (permission bits taken away).
    fn umask(&mut self) -> u32;
    /// Sets it, returns the old one.
    fn set_umask(&mut self, mask: u32) -> u32;

    /// Notes which file the calling process runs from now on: nobody can write to it. Returns what
    /// it ran before. `ETXTBSY` when somebody has it open for writing.
    fn set_program(&mut self, inode: Option<Inode>) -> Result<Option<Inode>>;
    /// The file of the image that the calling process runs; `None`: one of the host.
    fn program(&mut self) -> Option<Inode> {
        None
    }
    /// Keeps an inode and its blocks while memory maps it; released by `unpin`, `exec`, exit.
    fn pin(&mut self, inode: Inode) -> Result<()>;
    /// Says that what this process has pinned is mapped by who may write to it: nobody can run it
    /// until the last of its pins is gone. `ETXTBSY` while somebody does.
    fn pin_writes(&mut self, inode: Inode) -> Result<()> {
        let _ = inode;
        Ok(())
    }
    /// Pins an inode `count` times for a child of `prepare_fork` that does not run yet: what it
    /// will have mapped of the calling process, who keeps it pinned meanwhile. `writes` as for
    /// `pin_writes`. `EAGAIN` when there is no room.
    fn pin_for(&mut self, child: Process, inode: Inode, count: u32, writes: bool) -> Result<()> {
        let _ = (child, inode, count, writes);
        Ok(())
    }
    /// Takes one pin back.
    fn unpin(&mut self, inode: Inode);
}
