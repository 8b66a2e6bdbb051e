//! The image's clock: real time, coarse, as file times on Linux are.

use std::fs::Metadata;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// When a file of the host was created, ns since the epoch; 0 where its file system does not know.
pub fn born_ns(found: &Metadata) -> i64 {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
    let born = found.created().ok().and_then(since);
    born.map_or(0, |born| i64::try_from(born.as_nanos()).unwrap_or(0))
}
