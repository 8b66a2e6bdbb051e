//! The image's private directory on the host, which holds the host's objects behind FIFOs and
//! sockets of a tree.
//!
//! ```text
//!   /dev/shm/.husk-RANDOM/           ours alone, locked while we live
//!            '-- RANDOM/             open to whoever knows the name: all of the image
//!                 |-- NUMBER.GENERATION...   behind the node with that number
//!                 |-- +.TID.COUNT         stand-in for a descriptor in flight in a message
//!                 '-- watch.NUMBER        touched to wake an instance of inotify
//! ```
//!
//! Invariants
//! 1. Other users cannot enter the outer directory. Root's is open (its programs may become other
//!    users), but entering needs the inner name, which only `/proc` shows, to those users.
//! 2. The object behind a node is removed with the node; everything is removed with the image. A
//!    stand-in is a FIFO that has no reader once the flight is over.
//! 3. A directory without a lock holder was left by a supervisor that was killed; the next one of
//!    the same user removes it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::flight::{Flight, Flights, StandInName};
use husk_proto::watch::MarkerName;
use husk_proto::{Errno, Fs, Inode, Overview as _};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// Where it may lie, in order: in memory if there is such a place.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];
/// Times it is tried: another supervisor may take what is not yet locked for one that was left.
const TRIES: usize = 4;
/// How the outer name begins.
const PREFIX: &str = ".husk-";
/// Digits of the outer name, by which names of sockets are told from others': the shorter, the
/// longer may those be. And of the inner name.
const OUTER_DIGITS: usize = 8;
const INNER_DIGITS: usize = 16;
/// Between two looks for what stands behind nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So long a stand-in may be there before it is opened and its flight begins.
const TAKE_OFF: Duration = Duration::from_secs(2);
/// Directories looked at for a lock that nobody holds.
const LEFT_MAX: usize = 1024;

/// The directory, while its image lives.
pub struct Private {
    outer: PathBuf,
    inner: PathBuf,
    lock: File,
    next_look: Instant,
}

impl Private {
    /// Makes it, and removes what others have left. An error says why the last place will not do.
    pub fn make() -> io::Result<Private> {
        Private::make_in(&PLACES.map(Path::new))
    }

    fn make_in(places: &[&Path]) -> io::Result<Private> {
        let mut made = Err(io::ErrorKind::NotFound.into());
        for place in places {
            remove_left(place);
            for _ in 0..TRIES {
                made = Private::make_at(place);
                if made.is_ok() {
                    return made;
                }
            }
        }
        made
    }

    fn make_at(place: &Path) -> io::Result<Private> {
        let root = rustix::process::geteuid().is_root();
        let outer = place.join(format!("{PREFIX}{}", random(OUTER_DIGITS)?));
        DirBuilder::new().mode(0o700).create(&outer)?;
        let filled = Private::fill(outer.clone(), if root { 0o711 } else { 0o700 });
        if filled.is_err() {
            // If it is there at all. Without a free descriptor only an empty one can be removed.
            let _ = fs::remove_dir_all(&outer).or_else(|_| fs::remove_dir(&outer));
        }
        filled
    }

    /// Locks the outer directory and makes the inner one.
    fn fill(outer: PathBuf, mode: u32) -> io::Result<Private> {
        let lock = File::open(&outer)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let inner = outer.join(random(INNER_DIGITS)?);
        fs::create_dir(&inner)?;
        // Whatever our umask is.
        fs::set_permissions(&inner, Permissions::from_mode(0o777))?;
        lock.set_permissions(Permissions::from_mode(mode))?;
        Ok(Private { outer, inner, lock, next_look: Instant::now() + LOOK_EVERY })
    }

    /// The directory with this path, which a supervisor that has died has made and locked so.
    pub fn resume(path: &[u8], lock: File) -> Option<Private> {
        let inner = PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"/")?));
        let outer = inner.parent()?.to_owned();
        Some(Private { outer, inner, lock, next_look: Instant::now() })
    }

    /// The directory with this path, of which nobody has kept the lock: another image may have
    /// removed it since. Without it, FIFOs cannot be opened.
    pub fn again(path: &[u8]) -> Option<Private> {
        let inner = PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"/")?));
        let outer = inner.parent()?.to_owned();
        let made = |made: io::Result<()>| match made {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => None,
            made => Some(made.is_ok()),
        };
        made(DirBuilder::new().mode(0o700).create(&outer))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = File::from(rustix::fs::open(&outer, flags, Mode::empty()).ok()?);
        let us = rustix::process::geteuid();
        lock.metadata().ok().filter(|found| found.uid() == us.as_raw())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        if made(fs::create_dir(&inner))? {
            fs::set_permissions(&inner, Permissions::from_mode(0o777)).ok()?;
        }
        let mode = if us.is_root() { 0o711 } else { 0o700 };
        lock.set_permissions(Permissions::from_mode(mode)).ok()?;
        Some(Private { outer, inner, lock, next_look: Instant::now() })
    }

    /// What keeps others from removing it.
    pub fn lock(&self) -> &File {
        &self.lock
    }

    /// Its path with a slash at the end.
    pub fn path(&self) -> Vec<u8> {
        [self.inner.as_os_str().as_bytes(), b"/"].concat()
    }

    /// Removes what stands behind nodes that are gone, and ends flights that are over, if it is
    /// time to look.
    pub fn tick(&mut self, direct: &mut Direct) {
        if Instant::now() < self.next_look {
            return;
        }
        self.next_look = Instant::now() + LOOK_EVERY;
        for entry in fs::read_dir(&self.inner).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let needless = match (node_of(&name), StandInName::parse(name.as_bytes())) {
                (Some(node), _) => matches!(direct.step(node), Err(Errno::ESTALE)),
                (None, Some(flight)) => is_over(&entry) && ends(direct, flight, &entry),
                (None, None) => MarkerName::parse(name.as_bytes())
                    .is_some_and(|watcher| !direct.watcher_lives(watcher)),
            };
            if needless {
                // Whatever fails now is tried again at the next look.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // What cannot be removed is left, and removed by the next image.
        let _ = fs::remove_dir_all(&self.outer);
    }
}

/// Removes directories of this user in `place` that nobody holds.
fn remove_left(place: &Path) {
    let us = rustix::process::geteuid().as_raw();
    let named = |entry: &DirEntry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(named).take(LEFT_MAX) {
        let ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == us);
        let Some(lock) = ours.then(|| File::open(entry.path()).ok()).flatten() else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Nobody needs it; what cannot be removed stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The node that a name in the inner directory stands for.
fn node_of(name: &OsStr) -> Option<Inode> {
    let mut parts = name.as_bytes().split(|&byte| byte == b'.');
    let mut part = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    Some(Inode { number: part()?, generation: part()? })
}

/// Whether nobody can read from a FIFO any more.
fn is_over(entry: &DirEntry) -> bool {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(entry.path(), flags, Mode::empty());
    matches!(opened, Err(rustix::io::Errno::NXIO))
}

/// Ends a flight; whether its stand-in may go.
fn ends(direct: &mut Direct, flight: Flight, entry: &DirEntry) -> bool {
    let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
    match direct.end_flight(flight) {
        Ok(()) => true,
        Err(Errno::ENOENT) => age().is_some_and(|age| age > TAKE_OFF),
        Err(_) => false,
    }
}

/// A name of so many digits, at most 16; 16 nobody can guess.
fn random(digits: usize) -> io::Result<String> {
    let mut bytes = [0u8; 8];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if drawn != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(format!("{:016x}", u64::from_le_bytes(bytes))[..digits].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_place_serves_and_without_one_it_is_said_why() {
        let (place, absent) = (tempfile::tempdir().unwrap(), Path::new("/nowhere/at/all"));
        let private = Private::make_in(&[absent, place.path()]).unwrap();
        assert!(private.inner.starts_with(place.path()) && private.inner.is_dir());
        let why = Private::make_in(&[absent]).err().unwrap();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn who_takes_a_directory_over_keeps_it_and_removes_it_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let private = Private::make_in(&[place.path()]).unwrap();
        let (path, lock) = (private.path(), private.lock().try_clone().unwrap());
        // As if its supervisor had been killed.
        std::mem::forget(private);
        let resumed = Private::resume(&path, lock).unwrap();
        assert_eq!(resumed.path(), path);
        remove_left(place.path());
        assert!(resumed.inner.is_dir());
        drop(resumed);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_left_is_found_among_many_others() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..2 * LEFT_MAX {
            File::create(place.path().join(number.to_string())).unwrap();
        }
        let left = ["a", "b", "c", "d"].map(|name| place.path().join(format!("{PREFIX}{name}")));
        left.iter().for_each(|path| fs::create_dir(path).unwrap());
        remove_left(place.path());
        assert!(left.iter().all(|path| !path.exists()));
    }
}
