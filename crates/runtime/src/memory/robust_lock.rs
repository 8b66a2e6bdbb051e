//! A lock whose owner may be killed: a child that shares memory has it, and dies. Whoever waits
//! looks whether the owner is there still.

use core::sync::atomic::{AtomicU32, Ordering};
use husk_abi::{Errno, nr};
use husk_host::{calls, syscall};

/// The thread that has it, 0 = nobody, and whether others wait.
pub struct Lock(AtomicU32);

const WAITED_FOR: u32 = 1 << 31;

/// How long a sleeper waits before it looks at the owner.
const LOOK_NS: usize = 10_000_000;

/// While it lives, the lock is this thread's, unless another one has let it go for it.
pub struct Held {
    lock: &'static Lock,
    owner: u32,
}

impl Held {
    /// The thread that has the lock.
    pub fn owner(&self) -> u32 {
        self.owner
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lock.let_go(self.owner);
    }
}

impl Lock {
    /// One that nobody has.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Waits until nobody else has it.
    pub fn take(&'static self) -> Held {
        let me = calls::gettid();
        loop {
            match self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Held { lock: self, owner: me },
                Err(owner) => self.await_owner(owner),
            }
        }
    }

    /// Nobody has it any more, if `owner` has.
    pub fn let_go(&self, owner: u32) {
        const FUTEX_WAKE: usize = 1;
        const ALL: usize = i32::MAX as usize;
        for seen in [owner, owner | WAITED_FOR] {
            if self.0.compare_exchange(seen, 0, Ordering::Release, Ordering::Relaxed).is_err() {
                continue;
            }
            if seen != owner {
                let word = self.0.as_ptr() as usize;
                // SAFETY: a word of ours.
                unsafe { syscall(nr::futex, [word, FUTEX_WAKE, ALL, 0, 0, 0]) };
            }
            return;
        }
    }

    fn await_owner(&self, seen: u32) {
        const FUTEX_WAIT: usize = 0;
        let (owner, waited_for) = (seen & !WAITED_FOR, seen | WAITED_FOR);
        let marked =
            self.0.compare_exchange(seen, waited_for, Ordering::Relaxed, Ordering::Relaxed);
        if marked.is_err() {
            return;
        }
        let word = self.0.as_ptr() as usize;
        let time = [0, LOOK_NS];
        // SAFETY: a word of ours and a timespec that lives here; the signal 0 is sent to nobody.
        let gone = unsafe {
            let time = (&raw const time) as usize;
            syscall(nr::futex, [word, FUTEX_WAIT, waited_for as usize, time, 0, 0]);
            syscall(nr::tkill, [owner as usize, 0, 0, 0, 0, 0]) as i64 == Errno::ESRCH.as_return()
        };
        if gone || has_ended(owner) {
            let _ = self.0.compare_exchange(waited_for, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// In a forked child, whose only thread has it not.
    pub fn reset(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether `child` is a child of ours that has ended and that nobody has waited for.
fn has_ended(child: u32) -> bool {
    const P_PID: usize = 1;
    const ENDED_UNTOUCHED: usize = WNOHANG | WEXITED | WNOWAIT | WALL;
    const WNOHANG: usize = 1;
    const WEXITED: usize = 4;
    const WNOWAIT: usize = 0x0100_0000;
    const WALL: usize = 0x4000_0000;
    /// Where a `siginfo` of 128 bytes has the process, in words of four.
    const PROCESS: usize = 3;
    let mut info = [0u32; 32];
    let at = info.as_mut_ptr() as usize;
    // SAFETY: a siginfo that lives here; the child stays as it is.
    let asked = unsafe { syscall(nr::waitid, [P_PID, child as usize, at, ENDED_UNTOUCHED, 0, 0]) };
    asked as i64 == 0 && core::hint::black_box(info)[PROCESS] == child
}
