//! Waits that end, and say what they waited for.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest that one thread waits for another, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often somebody who waits for a thread's end looks.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Lets others run until `holds`.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < WAIT_MAX, "waited {WAIT_MAX:?} in vain: {what}");
        std::thread::yield_now();
    }
}

/// What a thread returns that comes to an end.
#[track_caller]
pub fn joined<T>(what: &str, thread: JoinHandle<T>) -> T {
    let start = Instant::now();
    while !thread.is_finished() {
        assert!(start.elapsed() < WAIT_MAX, "waited {WAIT_MAX:?} in vain: {what} ends");
        std::thread::sleep(LOOK_INTERVAL);
    }
    thread.join().unwrap_or_else(|_| panic!("{what} has failed, see above"))
}
