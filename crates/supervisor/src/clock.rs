//! The image's clock: real time, coarse, as file times on Linux are.

use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: i64 = 1_000_000_000;

/// ns since the epoch.
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec * NS_PER_S + now.tv_nsec
}

/// The same, to the nanosecond: later than every file time the host has given so far.
pub fn exact_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * NS_PER_S + now.tv_nsec
}
