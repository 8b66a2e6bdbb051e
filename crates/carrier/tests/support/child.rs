//! Children of a test. None outlives it, none lives for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long a child may live, s.
const CHILD_MAX_S: u32 = 120;

/// Starts a child that runs `body` and ends with 0, or with 1 where that panics.
pub fn fork(body: impl FnOnce()) -> i32 {
    // SAFETY: the child only computes and leaves by `_exit`.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::alarm(CHILD_MAX_S);
            let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
            libc::_exit(failed.into());
        }
        pid
    }
}

/// How a child ended, as `waitpid` tells it.
#[track_caller]
pub fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child, whose alarm is set.
    unsafe { assert_eq!(libc::waitpid(pid, &mut status, 0), pid) };
    let late = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
    assert!(!late, "child {pid} was not through after {CHILD_MAX_S} s");
    status
}

/// Runs `body` in a child, which must end well.
#[track_caller]
pub fn in_child(body: impl FnOnce()) {
    assert_eq!(wait(fork(body)), 0, "see the child's message above");
}
