//! Which standard descriptors were closed when this process started.
//!
//! Rust's start-up opens `/dev/null` in their place before `main`; whoever starts a program in the
//! name of its caller must know. So the look is taken before, by an initializer.

use core::sync::atomic::{AtomicU8, Ordering};

use husk_abi::{Errno, nr};

use crate::syscall;

/// Standard input, output and error.
const STANDARD: usize = 3;

static CLOSED: AtomicU8 = AtomicU8::new(0);

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
}

/// The standard descriptors that were closed.
pub fn closed_at_start() -> impl Iterator<Item = u32> {
    let closed = CLOSED.load(Ordering::Relaxed);
    (0..STANDARD as u32).filter(move |fd| closed >> fd & 1 == 1)
}
