//! One process at a time at each place: the balancer as long as it lives, or a clean-up after one.
//!
//! Its file goes with it: where it has gone when it is locked, another one is made. Balancers with
//! another /run have other files, but the same name (`name`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::asking::living;
use super::left;
use super::listeners::Place;
use super::name::{self, Taken};
use super::state::{self, file};
use crate::problem::Problem;

/// The file goes with its holder: so many holders may end while one process tries.
const TRIES: u32 = 16;
/// A holder that does not answer is starting or ending: for no longer than this.
const PAUSES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn unusable(why: &io::Error) -> Problem {
    let directory = state::directory();
    let remedy = "run it as root, with a /run to write to, or set XDG_RUNTIME_DIR to a directory \
                  of yours";
    Problem::new(format!("cannot use {}", directory.display()), why, remedy)
}

/// `None`: another process has it.
pub(super) fn take(place: &Place) -> Result<Option<File>, Problem> {
    let path = file(place, "lock");
    for _ in 0..TRIES {
        match attempt(&path) {
            Ok(Some(lock)) => return Ok(Some(lock)),
            Ok(None) => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(why) => return Err(unusable(&why)),
        }
    }
    Ok(None)
}

/// `None`: the file is not the one that others lock.
fn attempt(path: &Path) -> io::Result<Option<File>> {
    state::make()?;
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let there = fs::metadata(path).is_ok_and(|there| {
        lock.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    });
    Ok(there.then_some(lock))
}

/// The lock of a new balancer, and its name, if it can have one. It waits for a balancer that has
/// not seen yet that its server has ended.
pub(super) fn of_balancer(
    pid: u32,
    place: &Place,
) -> Result<(File, Option<UnixListener>), Problem> {
    let mut times = 0;
    loop {
        if let Some(lock) = take(place)? {
            match name::take(pid, place) {
                Taken::Own(door) => return Ok((lock, Some(door))),
                Taken::None => return Ok((lock, None)),
                // One with another /run has no business with this one.
                Taken::Others => leave(place),
            }
        }
        if living(pid, place) || !pause(&mut times) {
            break;
        }
    }
    let target = place.typed(pid);
    let remedy = format!("`husk net detach {target}` ends that, `husk net stat {target}` shows it");
    Err(Problem::new(format!("cannot attach to {place}"), "it is steered already", remedy))
}

/// Removes the files of a balancer.
pub(super) fn leave(place: &Place) {
    for kind in ["socket", "lock", left::KIND] {
        // They are gone where /run is gone, too.
        let _ = fs::remove_file(file(place, kind));
    }
}

/// Waits a moment for a holder that begins or ends; `false`: that has been often enough.
pub(super) fn pause(times: &mut u32) -> bool {
    *times += 1;
    sleep(PAUSE);
    *times <= PAUSES
}
