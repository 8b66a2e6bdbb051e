//! Which standard descriptors were closed when this process started, and what SIGPIPE did.
//!
//! Rust's start-up opens `/dev/null` in their place before `main`, and ignores SIGPIPE; whoever
//! starts a program in the name of its caller, or becomes it, must know. So the look is taken
//! before, by an initializer.

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
    sigaction(0, (&raw mut action) as usize);
    PIPE_IGNORED.store(action.handler == SIG_IGN, Ordering::Relaxed);
}

/// `struct sigaction` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

const _: () = assert!(size_of::<Action>() == 32);
const SIG_IGN: usize = 1;

/// Sets and reads what SIGPIPE does; an address of 0: not that.
fn sigaction(new: usize, old: usize) {
    const SIGPIPE: usize = 13;
    // SAFETY: both addresses are 0 or lead to an `Action`, and the action is never a handler.
    unsafe { syscall(nr::rt_sigaction, [SIGPIPE, new, old, 8, 0, 0]) };
}

/// SIGPIPE does again what it did when this process started, before it executes another program.
pub fn restore_sigpipe() {
    let handler = if PIPE_IGNORED.load(Ordering::Relaxed) { SIG_IGN } else { 0 };
    let action = Action { handler, ..Action::default() };
    sigaction((&raw const action) as usize, 0);
}

/// The standard descriptors that were closed.
pub fn closed_at_start() -> impl Iterator<Item = u32> {
    let closed = CLOSED.load(Ordering::Relaxed);
    (0..STANDARD as u32).filter(move |fd| closed >> fd & 1 == 1)
}
