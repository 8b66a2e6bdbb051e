//! What this process was started with: the hand-over, and what `start` has found besides.
//!
//! Invariant: written before there is a second thread, and only read after.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use husk_abi::PATH_MAX;
use husk_proto::place::Policy;
use husk_runtime::handover::{self, Handover};

/// What this process was started with; written once, before any other thread exists.
#[derive(Clone, Copy)]
pub struct Facts {
    /// The hand-over.
    pub handover: Handover,
    /// The program's path.
    pub path: &'static CStr,
    /// The name it was called by.
    pub given: &'static CStr,
    /// The vDSO, or 0.
    pub vdso: usize,
    /// How this program wants to be placed: `HUSK_PLACE`, if that makes sense.
    pub place: Option<Policy>,
    /// The program, where it has no name by which it could be opened again: `/proc/self/exe`.
    /// `u32::MAX` = it has one.
    pub program_fd: u32,
}

struct Cell(UnsafeCell<MaybeUninit<Facts>>);
// SAFETY: written once in `start` (single thread), read only after.
unsafe impl Sync for Cell {}
#[unsafe(link_section = ".bss.hot")]
static FACTS: Cell = Cell(UnsafeCell::new(MaybeUninit::zeroed()));

/// What this process was started with.
pub fn facts() -> &'static Facts {
    // SAFETY: written by `set`, in the first thing that runs, and never after `start`.
    unsafe { (*FACTS.0.get()).assume_init_ref() }
}

/// The descriptors the application must not touch; `u32::MAX` = none.
pub fn kept_fds() -> [u32; 3] {
    let Facts { handover, program_fd, .. } = facts();
    [handover.region_fd as u32, handover.loader_fd as u32, *program_fd]
}

/// No descriptor.
pub const NONE: u32 = u32::MAX;

/// Notes what this process was started with.
///
/// # Safety
///
/// The first thing that runs calls it, and nothing else.
pub unsafe fn set(facts: Facts) {
    // SAFETY: the caller's.
    unsafe { (*FACTS.0.get()).write(facts) };
}

/// Notes the descriptor by which the program can be opened again.
///
/// # Safety
///
/// Only before there are other threads.
pub unsafe fn set_program_fd(fd: Option<u32>) {
    // SAFETY: the caller's.
    unsafe { (*FACTS.0.get()).assume_init_mut() }.program_fd = fd.unwrap_or(NONE);
}

/// Makes another path the program's (the first exec found it), and the name that led to it.
pub fn set_path(path: &[u8; PATH_MAX], given: &[u8; PATH_MAX]) {
    struct Kept(UnsafeCell<[[u8; PATH_MAX]; 2]>);
    // SAFETY: written once, before other threads.
    unsafe impl Sync for Kept {}
    #[unsafe(link_section = ".bss.large")]
    static KEPT: Kept = Kept(UnsafeCell::new([[0; PATH_MAX]; 2]));
    // SAFETY: only called from `start`, before other threads.
    unsafe {
        *KEPT.0.get() = [*path, *given];
        let [path, given] = &*KEPT.0.get();
        let facts = (*FACTS.0.get()).assume_init_mut();
        facts.path = CStr::from_bytes_until_nul(path).unwrap_or(c"");
        facts.given = CStr::from_bytes_until_nul(given).unwrap_or(c"");
    }
}

/// Whether calls are served by an image at all.
pub fn has_region() -> bool {
    facts().handover.region_fd != handover::NO_REGION
}
