//! What other rooms keep in the block of a thread: only data, which they fill and read.

use crate::frame::Frame;
use crate::thread::Thread;
use crate::thread::client::Embryo;
use husk_region::observe::trace::Ring;

/// What a thread mapped in last (`page_fault`): the page and the birth of its entry.
pub type LastTouched = (usize, u32);

/// Where a thread's calls are recorded.
#[repr(C)]
#[derive(Default)]
pub struct Recording {
    /// The call that goes on now after a sleep; 0 = a new one. The gate writes it.
    pub resumes: u32,
    /// Calls until it looks for a ring again.
    pub waits: u32,
    pub ring: Option<Ring>,
}

/// The whole register file of the caller: what `husk_serve` pushed in class 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchFrame {
    /// Arguments, number, return address, rsp.
    pub base: Frame,
    /// r15, r14, r13, r12, rbp, rbx.
    pub saved: [usize; 6],
}

/// What the child starts from; lies in the child's block (or the forked copy of the parent's).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Launch {
    /// Its registers.
    pub frame: LaunchFrame,
    /// Its service stack.
    pub service_top: usize,
    /// Its block.
    pub block: *mut Thread,
    /// Clone flags.
    pub flags: u64,
    /// Its signal mask.
    pub mask: u64,
    /// Its process record, if it is a process.
    pub process: Embryo,
    /// What the guard is closed to, if it is open while the host makes the child.
    pub rights: u64,
    /// The thread that keeps still until this child lets go for it; 0 = none does.
    pub still: u32,
    /// The application's arguments; those in `frame` say where *we* want the host's answers.
    pub args: [usize; 6],
}
