//! The caller's umask is for programs. Husk's own files stay open to their owner, whatever it is:
//! a directory of mode 0000 could neither be locked nor removed, and a rescue would save nothing.
//!
//! The owner's bits are taken out of the umask when a command starts, and put back where a program
//! is started. The others stay: they can only make a file more private.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::Mode;
use rustix::process::umask;

/// The owner's bits.
const OWNER: u32 = 0o700;
/// What the caller has set.
static CALLERS: AtomicU32 = AtomicU32::new(0);

/// To be called once, while this process has one thread.
pub fn spare_owner() {
    let callers = umask(Mode::empty());
    CALLERS.store(callers.bits(), Ordering::Relaxed);
    umask(callers - Mode::from_raw_mode(OWNER));
}

/// The bits of the owner that the caller has set; programs are to have them.
pub fn owners() -> u32 {
    CALLERS.load(Ordering::Relaxed) & OWNER
}

/// Calls `start`, which starts or becomes a program, under the caller's umask. A file that another
/// thread makes meanwhile gets it, too.
pub fn with_callers<T>(start: impl FnOnce() -> T) -> T {
    if owners() == 0 {
        return start();
    }
    let ours = umask(Mode::from_raw_mode(CALLERS.load(Ordering::Relaxed)));
    let started = start();
    umask(ours);
    started
}
