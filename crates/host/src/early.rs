//! Which standard descriptors were closed when this process started, and what SIGPIPE did.
//!
//! Before `main`, Rust opens `/dev/null` in place of closed standard descriptors and ignores
//! SIGPIPE. A command that starts another program for its caller has to restore both, so an
//! initializer records them first.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use husk_abi::{Errno, nr};

use crate::syscall;

/// Standard input, output and error.
const STANDARD: usize = 3;

static CLOSED: AtomicU8 = AtomicU8::new(0);
/// SIGPIPE was ignored.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Run by the C library before `main`.
// SAFETY: the section holds functions of this type; this one needs nothing that `main` sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    const F_GETFD: usize = 1;
    for fd in 0..STANDARD {
        // SAFETY: asks for a flag of a number, which need not be open; no memory is touched.
        let asked = unsafe { syscall(nr::fcntl, [fd, F_GETFD, 0, 0, 0, 0]) };
        if asked as i64 == Errno::EBADF.as_return() {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    let mut action = Action::default();
    sigaction(SIGPIPE, None, Some(&mut action));
    PIPE_IGNORED.store(action.is_ignore(), Ordering::Relaxed);
}

/// `struct sigaction` of the kernel.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

const _: () = assert!(size_of::<Action>() == 32);
const SIG_IGN: usize = 1;

impl Action {
    pub(crate) fn is_ignore(&self) -> bool {
        self.handler == SIG_IGN
    }
}

const SIGPIPE: usize = 13;

/// Sets and reads what a signal does.
pub(crate) fn sigaction(signal: usize, new: Option<&Action>, old: Option<&mut Action>) {
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    let old = old.map_or(0, |old| core::ptr::from_mut(old) as usize);
    // SAFETY: both addresses are 0 or lead to an `Action`, and the action is never a handler.
    unsafe { syscall(nr::rt_sigaction, [signal, new, old, 8, 0, 0]) };
}

/// Whether who started this process had SIGPIPE ignored.
pub fn sigpipe_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// SIGPIPE does again what it did when this process started, before it executes another program.
pub fn restore_sigpipe() {
    let handler = if sigpipe_was_ignored() { SIG_IGN } else { 0 };
    let action = Action { handler, ..Action::default() };
    sigaction(SIGPIPE, Some(&action), None);
}

/// Ends of children are told from now on: a caller may have had SIGCHLD ignored, and then nobody
/// hears of them.
pub fn hear_of_children() {
    const SIGCHLD: usize = 17;
    sigaction(SIGCHLD, Some(&Action::default()), None);
}

/// The standard descriptors that were closed.
pub fn closed_at_start() -> impl Iterator<Item = u32> {
    let closed = CLOSED.load(Ordering::Relaxed);
    (0..STANDARD as u32).filter(move |fd| closed >> fd & 1 == 1)
}
