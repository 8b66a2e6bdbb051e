//! Ends or stops the process by a signal.

use husk_abi::nr;

use crate::early::{Action, sigaction};
use crate::syscall;

/// Whether this process ignores `signal` (1 to 64), as one that a shell has put into the background
/// does with what the terminal sends.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = Action::default();
    sigaction(signal as usize, None, Some(&mut action));
    action.is_ignore()
}

/// Ends this process by `signal` (1 to 64), without a core dump: the program that ended so has made
/// one. Returns if the signal does not end it: its default is to be ignored, or this is the first
/// process of a PID namespace.
pub fn end_by(signal: i32) {
    const SIG_UNBLOCK: usize = 1;
    const PR_SET_DUMPABLE: usize = 4;
    let mask = 1u64 << ((signal - 1) & 63);
    let by_default = Action::default();
    sigaction(signal as usize, Some(&by_default), None);
    // SAFETY: numbers, and a mask of 8 bytes that is read.
    unsafe {
        // Not RLIMIT_CORE: of 0 it does not hold where core_pattern is a pipe (core(5)).
        syscall(nr::prctl, [PR_SET_DUMPABLE, 0, 0, 0, 0, 0]);
        syscall(nr::rt_sigprocmask, [SIG_UNBLOCK, (&raw const mask) as usize, 0, 8, 0, 0]);
        let pid = syscall(nr::getpid, [0; 6]) as usize;
        syscall(nr::kill, [pid, signal as usize, 0, 0, 0, 0]);
    }
}

/// Stops this process by `signal` (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU) as if it were not prepared
/// for it. Returns once somebody has continued it, or at once if nobody could (an orphaned process
/// group, which only SIGSTOP stops).
pub fn stop_by(signal: i32) {
    const SIG_UNBLOCK: usize = 1;
    const SIG_SETMASK: usize = 2;
    let mask = 1u64 << ((signal - 1) & 63);
    let (by_default, mut before, mut mask_before) = (Action::default(), Action::default(), 0u64);
    sigaction(signal as usize, Some(&by_default), Some(&mut before));
    let old = (&raw mut mask_before) as usize;
    // SAFETY: numbers, and masks of 8 bytes that are read and written.
    unsafe {
        let [pid, thread] = [nr::getpid, nr::gettid].map(|nr| syscall(nr, [0; 6]) as usize);
        // While it is blocked, so that a second one that is pending does not stop again.
        syscall(nr::tgkill, [pid, thread, signal as usize, 0, 0, 0]);
        syscall(nr::rt_sigprocmask, [SIG_UNBLOCK, (&raw const mask) as usize, old, 8, 0, 0]);
        syscall(nr::rt_sigprocmask, [SIG_SETMASK, old, 0, 8, 0, 0]);
    }
    sigaction(signal as usize, Some(&before), None);
}
