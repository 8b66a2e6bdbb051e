//! Service `process`: process records, what each process holds, and cleaning up after a death.
//!
//! A process record names its descriptor table and its context (working directory and umask,
//! shared under `CLONE_FS`). A record survives `exec`. What a process held is released exactly once
//! after its death: by its own `exit`, by a process that waits for it, or by the supervisor.

use crate::{Inode, Result};

/// Most descriptors of the host, and most of the image, that a program takes along to another node.
pub const ALONG_MAX: usize = 512;

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

operations! { ($) process_operations

/// The process service.
Processes in process, operations {
    /// Prepares a child record (state `embryo`): copies or shares table and context.
    prepare_fork = Fork { sharing: Sharing } -> Result<Process>,
        by process::prepare_fork with clock;

    /// The host refused the fork: takes the embryo back.
    cancel_fork = - { child: Process } -> (),
        by carrier;

    /// In the child: the calling thread now acts for `child`, which runs as host process `pid`.
    enter_child = - { child: Process, pid: u32 } -> (),
        by carrier;

    /// Replaces a shared table by a private copy (`unshare`, and `exec` after `CLONE_FILES`).
    unshare = - { sharing: Sharing } -> Result<()>,
        by carrier;

    /// After a successful `exec`, in the new program: closes close-on-exec descriptors, drops
    /// pins of mappings, recovers threads the `exec` ended.
    finish_exec = Exec {} -> Result<()>,
        by carrier;

    /// The process ends by itself: releases all it holds. Only when no other thread runs.
    exit = - {} -> (),
        by carrier;

    /// The working directory.
    working_directory = - {} -> WorkingDirectory,
        by carrier;

    /// That of host process `pid`; `None`: it is none of the image.
    working_directory_of = - { pid: u32 } -> Option<WorkingDirectory>,
        by carrier;

    /// Changes it.
    set_working_directory = - { place: WorkingDirectory } -> Result<()>,
        by carrier;

    /// The umask (permission bits taken away).
    umask = - {} -> u32,
        by process::umask;

    /// Sets it, returns the old one.
    set_umask = - { mask: u32 } -> u32,
        by carrier;

    /// Notes which file the calling process runs from now on: nobody can write to it. Returns what
    /// it ran before. `ETXTBSY` when somebody has it open for writing.
    set_program = - { inode: Option<Inode> } -> Result<Option<Inode>>,
        by carrier;

    /// The file of the image that the calling process runs; `None`: one of the host.
    program = - {} -> Option<Inode> = None,
        by process::program;

    /// Keeps an inode and its blocks while memory maps it; released by `unpin`, `exec`, exit.
    pin = - of inode { inode: Inode } -> Result<()>,
        by process::pins::pin;

    /// Says that what this process has pinned is mapped by who may write to it: nobody can run it
    /// until the last of its pins is gone. `ETXTBSY` while somebody does.
    pin_writes = - of inode { inode: Inode } -> Result<()> = Ok(()),
        by carrier;

    /// Pins an inode `count` times for a child of `prepare_fork` that does not run yet: what it
    /// will have mapped of the calling process, who keeps it pinned meanwhile. `writes` as for
    /// `pin_writes`. `EAGAIN` when there is no room.
    pin_for = - { child: Process, inode: Inode, count: u32, writes: bool } -> Result<()> = Ok(()),
        by process::pins::pin_for;

    /// Takes one pin back.
    unpin = - of inode { inode: Inode } -> (),
        by carrier;
}}
