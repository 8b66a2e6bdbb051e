//! Operations that compare an image with the host take turns: write-backs, and those that take
//! changes of the host in. Otherwise one would mistake changes by another for somebody's edit.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::named::place::Place;

/// How long a write-back waits for those who only look: one that was stopped holds up nobody.
pub const WRITE_BACK_WAITS: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// As long as it lives, nobody else has the turn.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

/// The turn of an image; `None`: somebody else has it for longer than `wait`, or nobody can.
pub fn take(place: &Place, wait: Duration) -> Option<Turn> {
    let (flags, since) = ((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32, Instant::now());
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(flags);
    let lock = options.open(place.turn()).ok()?;
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if since.elapsed() > wait {
            return None;
        }
        sleep(PAUSE);
    }
    Some(Turn { _lock: lock })
}
