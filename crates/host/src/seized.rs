//! Lets one thread of a stopped process run (`PTRACE_SEIZE`).
//!
//! The parent of the process is not notified. When the thread is released, the host stops it again,
//! unless the process was continued meanwhile. Only the thread that seized it can use it.

use crate::syscall;
use husk_abi::{Errno, nr};

const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const CONTINUE: usize = 7;
const DETACH: usize = 17;
/// `PTRACE_EVENT_STOP`, which no signal has caused.
const EVENT_STOP: i32 = 128;

/// What `siginfo` says of a thread that has stopped (`CLD_TRAPPED`, `CLD_STOPPED`).
const TRAPPED: i32 = 4;
const HALTED: i32 = 5;

/// A seized thread; it is left alone in the end, with the signal that was on its way to it.
pub struct Seized {
    tid: u32,
    signal: i32,
}

fn ptrace(request: usize, tid: u32, data: i32) -> Result<(), Errno> {
    // SAFETY: none of these requests reads or writes memory of this process.
    let raw = unsafe { syscall(nr::ptrace, [request, tid as usize, 0, data as usize, 0, 0]) };
    Errno::check(raw as i64).map(|_| ())
}

impl Seized {
    /// Takes a thread that has stopped; `EPERM` where a debugger has it or that is not allowed.
    pub fn take(tid: u32) -> Result<Seized, Errno> {
        ptrace(SEIZE, tid, 0)?;
        Ok(Seized { tid, signal: 0 })
    }

    /// Lets it run.
    pub fn go_on(&mut self) -> Result<(), Errno> {
        ptrace(CONTINUE, self.tid, core::mem::take(&mut self.signal))
    }

    /// Asks it to stop where it is.
    pub fn interrupt(&self) -> Result<(), Errno> {
        ptrace(INTERRUPT, self.tid, 0)
    }

    /// Whether it has stopped, for whatever reason, or has ended: its parent hears of that when we
    /// have. (It must be nobody whom this process is to wait for itself.)
    pub fn has_stopped(&mut self) -> bool {
        const P_PID: usize = 1;
        const NO_WAIT: usize = 1;
        const STOPPED: usize = 2;
        const OF_THIS_THREAD: usize = 0x2000_0000;
        const OF_ANY_KIND: usize = 0x4000_0000;
        const ENDED: usize = 4;
        let options = NO_WAIT | STOPPED | ENDED | OF_THIS_THREAD | OF_ANY_KIND;
        // `siginfo`: the signal comes first, the cause is word 2, the status is word 6.
        let mut info = [0i32; 32];
        let at = info.as_mut_ptr() as usize;
        // SAFETY: a siginfo of ours.
        let raw = unsafe { syscall(nr::waitid, [P_PID, self.tid as usize, at, options, 0, 0]) };
        let info = core::hint::black_box(info);
        if raw as i64 == Errno::ECHILD.as_return() {
            // It is gone: another thread of its process has become another program.
            return true;
        }
        if raw != 0 || info[0] == 0 {
            return false;
        }
        if !matches!(info[2], TRAPPED | HALTED) {
            return true;
        }
        let (signal, event) = (info[6] & 0xff, info[6] >> 8);
        self.signal = if event == EVENT_STOP { 0 } else { signal };
        true
    }
}

impl Drop for Seized {
    fn drop(&mut self) {
        // It may be gone.
        let _ = ptrace(DETACH, self.tid, self.signal);
    }
}
