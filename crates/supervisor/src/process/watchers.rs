//! Wakes inotify readers whose wake-up was lost because a process was killed.
//!
//! The process that changes something touches the watcher's marker itself (`husk_client`). When it
//! dies before that, or whoever read the marker dies before it took the events out, they stay in
//! the queue and nobody is told. So what does not move is told again here: after two looks, then
//! after four, eight and so on, for a watcher may be slow as well. A marker too many is a read that
//! finds nothing, and goes on waiting.

use std::collections::HashMap;

use husk_carrier::Direct;
use husk_proto::Overview as _;
use husk_proto::watch::{MarkerName, Watches};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

/// Instances told of at a time.
const TOLD_MAX: usize = 128;

/// The watchers with something to read, as they were at the last look.
#[derive(Default)]
pub struct Watchers {
    seen: HashMap<u32, (u64, u64)>,
}

impl Watchers {
    /// Tells who is to be told of what the supervisor itself did: it closes what the dead held.
    pub fn settle(direct: &mut Direct, directory: &[u8]) {
        for _ in 0..TOLD_MAX {
            let Some(watcher) = direct.watch_owed() else { return };
            touch(&[directory, MarkerName::new(watcher).as_bytes()].concat());
        }
    }

    /// Looks at all; `directory` is where their markers are.
    pub fn tick(&mut self, direct: &Direct, directory: &[u8]) {
        let mut seen = HashMap::new();
        direct.each_watcher(&mut |number, turn, name| {
            let looks = match self.seen.get(&number) {
                Some(&(before, looks)) if before == turn => looks + 1,
                _ => 1,
            };
            seen.insert(number, (turn, looks));
            if looks >= 2 && u64::is_power_of_two(looks) {
                touch(&[directory, name.as_bytes()].concat());
            }
        });
        self.seen = seen;
    }
}

fn touch(path: &[u8]) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    // The watcher may be gone by now.
    let _ = utimensat(CWD, path, &times, AtFlags::empty());
}
