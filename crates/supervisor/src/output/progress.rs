//! A thread that shows the progress of long work: it draws a line on the terminal, or signals a
//! waiting command that the work goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How far the work is.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// It is this far.
    pub fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// One more is done.
    pub fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes more are written.
    pub fn wrote(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are written.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Somebody wants the work to stop, where it can be continued.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether somebody does.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What is done, and of how much; 0: that is not known yet.
    pub fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// The end of the work, as its onlooker learns of it.
#[derive(Debug, Default)]
pub struct Over {
    over: Mutex<bool>,
    told: Condvar,
}

impl Over {
    /// Whether the work is over, waiting for that up to `most`.
    pub fn within(&self, most: Duration) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(over, most, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A thread that ends with the work: whoever drops this waits for it.
#[derive(Debug)]
pub struct Onlooker {
    over: Arc<Over>,
    thread: Option<JoinHandle<()>>,
}

impl Onlooker {
    /// Runs `look` beside the work. Where no thread can be had, nobody looks on.
    pub fn begin(look: impl FnOnce(&Over) + Send + 'static) -> Onlooker {
        let over = Arc::<Over>::default();
        let known = Arc::clone(&over);
        Onlooker { over, thread: thread::Builder::new().spawn(move || look(&known)).ok() }
    }
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        *self.over.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.told.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and costs nothing but the line.
            let _ = thread.join();
        }
    }
}
