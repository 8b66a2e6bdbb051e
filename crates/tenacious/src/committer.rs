//! Makes durable what nobody waits for, and says so to those who asked.
//!
//! ```text
//!   on_durable ─► waiting, by number ─► commit ─► callbacks, in order, on this thread
//!   append     ─► after `Options::delay` ─► commit
//!   ring half full ─► checkpoint
//! ```
//!
//! Who calls `Store::wait` commits on its own thread: handing over would cost it more than the
//! write itself. This thread sleeps while nothing changes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::store::Core;
use crate::{Error, Lsn};

/// What is called once a change is durable, or never will be.
pub type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// What the thread is asked for.
#[derive(Default)]
pub struct Errands {
    waiting: Mutex<Waiting>,
    woken: Condvar,
    /// The thread sleeps until it is woken.
    is_asleep: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    callbacks: BTreeMap<(Lsn, u64), Callback>,
    count: u64,
    is_closing: bool,
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errands").finish_non_exhaustive()
    }
}

impl Errands {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `callback` once `lsn` is durable.
    pub fn add(&self, lsn: Lsn, callback: Callback) {
        let mut waiting = self.waiting();
        let count = waiting.count;
        waiting.count += 1;
        waiting.callbacks.insert((lsn, count), callback);
        drop(waiting);
        self.woken.notify_all();
    }

    /// Something was appended.
    pub fn stir(&self) {
        if self.is_asleep.load(SeqCst) && self.is_asleep.swap(false, SeqCst) {
            drop(self.waiting());
            self.woken.notify_all();
        }
    }

    /// The thread is to end, once all is durable.
    pub fn close(&self) {
        self.waiting().is_closing = true;
        self.woken.notify_all();
    }
}

/// The thread.
pub fn run(core: &Core) {
    while turn(core) {}
}

/// One turn; whether there are more to come.
fn turn(core: &Core) -> bool {
    call_due(core);
    let errands = &core.errands;
    let waiting = errands.waiting();
    let last = waiting.callbacks.last_key_value().map(|((lsn, _), _)| *lsn);
    let stopped = core.log.is_stopped();
    if let Some(lsn) = last {
        drop(waiting);
        // What has failed is said by the next turn.
        let _ = core.log.wait(lsn);
        return true;
    }
    if waiting.is_closing {
        drop(waiting);
        let _ = core.log.finish();
        return false;
    }
    errands.is_asleep.store(true, SeqCst);
    let appended = core.log.appended();
    if stopped || appended == core.log.durable() {
        let woken = errands.woken.wait(waiting);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        errands.is_asleep.store(false, SeqCst);
        return true;
    }
    errands.is_asleep.store(false, SeqCst);
    let waited = errands.woken.wait_timeout(waiting, core.options.delay);
    let (waiting, result) = waited.unwrap_or_else(PoisonError::into_inner);
    drop(waiting);
    if result.timed_out() {
        let _ = core.log.wait(appended);
        core.checkpoint_if_needed();
    }
    true
}

/// Calls those whose changes are durable; all of them where none will be any more.
pub fn call_due(core: &Core) {
    loop {
        let (durable, stopped) = (core.log.durable(), core.log.is_stopped());
        let mut waiting = core.errands.waiting();
        let Some(first) = waiting.callbacks.first_entry() else { return };
        let result = match first.key().0 {
            lsn if lsn <= durable => Ok(()),
            _ if stopped => Err(Error::Stopped),
            _ => return,
        };
        let callback = first.remove();
        drop(waiting);
        // One that panics is its owner's fault; the others are called all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| callback(result)));
    }
}
