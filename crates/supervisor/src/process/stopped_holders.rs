//! Lets a process that was stopped (SIGSTOP, Ctrl-Z) inside an operation complete that operation.
//!
//! ```text
//!   stopped, holds a lock ─► seize ─► runs alone until it holds none ─► leave ─► stopped again
//! ```
//!
//! Linux stops nobody within a call; an operation of an image runs in the program, where a stop may
//! hit any instruction, and others wait for what it holds. The host itself puts the thread back to
//! where it was; neither its parent nor its own handlers learn of it.
//!
//! Invariants
//! 1. This thread takes no lock of the image, so nobody who is stopped can stop it.
//! 2. Who waits is helped within `PERIOD` and some ms, one holder after the other.
//!
//! Not here: children of the supervisor itself (the first program, orphans), whose stops and ends
//! its main thread waits for; who is stopped by a debugger, which alone may let it go on; and where
//! the host does not let the supervisor (`kernel.yama.ptrace_scope` of an image with a name):
//! others wait as long as `husk_region::txn::lock` says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use husk_host::seized::Seized;
use husk_region::{Session, is_stopped};

use crate::image::attach;
use crate::named::process;

/// Between two looks for those who need help.
const PERIOD: Duration = Duration::from_millis(50);
/// Longest that one of them is run at a time: it may wait for another one itself.
const RUN_MAX: Duration = Duration::from_millis(100);
/// Between two looks at who runs.
const LOOK: Duration = Duration::from_micros(100);

/// The thread that helps; it ends when this is dropped.
pub struct Aid {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Aid {
    /// Begins to look. Without a thread nobody is helped.
    pub fn begin() -> Aid {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let work = move || {
            let Ok(direct) = attach() else { return };
            let mut unfinished = Vec::new();
            while !told.load(Ordering::Relaxed) {
                // Who has not stopped in time is left alone when it has: a thread that runs
                // cannot be.
                unfinished.retain_mut(|seized: &mut Seized| !seized.has_stopped());
                help_all(&direct.kernel().session, &mut unfinished);
                thread::park_timeout(PERIOD);
            }
        };
        Aid { stop, thread: thread::Builder::new().spawn(work).ok() }
    }
}

impl Drop for Aid {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn help_all(session: &Session, unfinished: &mut Vec<Seized>) {
    for slot in 1..=session.slots_high() {
        if !session.holds(slot) {
            continue;
        }
        let (pid, tid) = session.owner(slot);
        if pid != 0 && is_stopped(pid, tid) && !is_own_child(pid) {
            unfinished.extend(help(session, slot, (pid, tid)));
        }
    }
}

fn is_own_child(pid: u32) -> bool {
    process(pid).is_some_and(|found| found.parent == std::process::id().cast_signed())
}

/// Whom it has not seen stop again.
fn help(session: &Session, slot: u32, (pid, tid): (u32, u32)) -> Option<Seized> {
    let mut seized = Seized::take(tid).ok()?;
    let end = Instant::now() + RUN_MAX;
    // Its number may have become another's.
    let is_it = || session.holds(slot) && session.owner(slot) == (pid, tid);
    let mut stopped = until(end, || seized.has_stopped());
    while stopped && is_it() && Instant::now() < end {
        if seized.go_on().is_err() {
            return Some(seized);
        }
        stopped = false;
        until(end, || {
            stopped = seized.has_stopped();
            stopped || !is_it()
        });
        if !stopped && seized.interrupt().is_ok() {
            stopped = until(end + RUN_MAX, || seized.has_stopped());
        }
    }
    (!stopped).then_some(seized)
}

/// Asks until it is so, or until `end`.
fn until(end: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(LOOK);
    }
}
