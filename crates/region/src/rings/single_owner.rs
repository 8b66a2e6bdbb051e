//! A pipe that one thread alone can have: it reads and writes without locks.
//!
//! ```text
//!   owner      SHARED? ─ no ──► BUSY = me ──► state? ─ RING ──► as under the lock ──► BUSY = 0
//!   intruder   state = pinned ──► every core passes a barrier ──► BUSY? ─ wait ──► locks
//! ```
//!
//! Alone is the only thread of a process whose table no other has, with a pipe that never had a
//! third number. Two locked instructions, and a question for the time, are as long as all the rest
//! of a small write and its read.
//!
//! Invariants
//! 1. Table and threads are the owner's own to share: it sees that in the order of its program. A
//!    number in another table says `SHARED` first (`Pipe::share`), which stays for the pipe's life.
//! 2. Who comes without a number (by `/proc/PID/fd`, say) is an intruder, and pins the pipe. Its
//!    barrier stands for the owner's, which would be the locked instruction: after it, the owner
//!    has been seen busy, or does not find the ring in use.
//! 3. Dying while busy is dying under the lock: nothing needs mending.

use core::sync::atomic::{Ordering, compiler_fence};

use husk_abi::nr;
use husk_host::syscall;

use crate::hooks::kill;
use crate::rings::pipes::{BUSY, Held, Pipe, SHARED};
use crate::txn::life::{Holder, Life};

/// What an intruder waits for where the host has no `membarrier`: a store is seen long before.
const BARRIER_NS: u64 = 20_000_000;
impl Pipe {
    /// Begins a read or write of a thread that is alone, but for intruders: it must look at the
    /// mode after this. False: others have numbers of the pipe.
    #[inline(always)]
    pub fn enter_alone(&self, me: Holder) -> bool {
        if self.get(SHARED) != 0 {
            return false;
        }
        kill::point();
        self.put(BUSY, me.0);
        // Of the compiler only: the processor's is the intruder's.
        compiler_fence(Ordering::SeqCst);
        kill::point();
        true
    }

    /// Ends it.
    #[inline(always)]
    pub fn leave_alone(&self) {
        self.put(BUSY, 0);
    }

    /// An intruder has pinned the pipe: the owner begins nothing alone any more, and `check_idle`
    /// knows what it has begun.
    pub fn intrude(&self) {
        const EVERYBODY: usize = 1;
        // SAFETY: a barrier on every core, which touches no memory of ours.
        let done = unsafe { syscall(nr::membarrier, [EVERYBODY, 0, 0, 0, 0, 0]) };
        if done != 0 {
            let time = [0, BARRIER_NS];
            let args = [time.as_ptr() as usize, 0, 0, 0, 0, 0];
            // SAFETY: reads the time to sleep.
            unsafe { syscall(nr::nanosleep, args) };
        }
    }

    /// After `intrude`: whether a living owner is still at what it began alone.
    pub fn check_idle(&self, me: Holder) -> Result<(), Held> {
        let busy = self.get(BUSY);
        let dead = || Holder(busy).judge() == Life::Dead;
        if busy == 0 || busy == me.0 || kill::mutant() == 29 || dead() {
            return Ok(());
        }
        Err(Held { address: self.words + BUSY * 8, value: busy as u32 })
    }

    /// Whether nobody has ever had a third number of it.
    pub fn is_private(&self) -> bool {
        self.get(SHARED) == 0
    }
}
