//! The image's directory on the host: the host's objects behind FIFOs and sockets of a tree stand
//! there.
//!
//! ```text
//!   /dev/shm/.husk-RANDOM/           ours alone, locked while we live
//!            '-- RANDOM/             open to whoever knows the name: all of the image
//!                 '-- NUMBER.GENERATION...   behind the node with that number
//! ```
//!
//! Invariants
//! 1. Nobody else can enter: other users not the outer directory; of root's, whose programs may
//!    become other users, not without the inner name, which only `/proc` shows, to those users.
//! 2. What stands behind a node is removed when the node is gone; all of it with the image.
//! 3. A directory whose lock nobody holds was left by a supervisor that was killed; the next one
//!    of the same user removes it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::{Errno, Fs, Inode};
use rustix::fs::{FlockOperation, flock};

/// Where it may lie, in order: in memory if there is such a place.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];
/// Times it is tried: another supervisor may take what is not yet locked for one that was left.
const TRIES: usize = 4;
/// How the outer name begins.
const PREFIX: &str = ".husk-";
/// Between two looks for what stands behind nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Directories looked at for a lock that nobody holds.
const LEFT_MAX: usize = 1024;

/// The directory, while its image lives.
pub struct Private {
    outer: PathBuf,
    inner: PathBuf,
    _lock: File,
    next_look: Instant,
}

impl Private {
    /// Makes it, and removes what others have left. `None`: there is no place for it.
    pub fn make() -> Option<Private> {
        PLACES.iter().map(Path::new).find_map(|place| {
            remove_left(place);
            (0..TRIES).find_map(|_| Private::make_at(place))
        })
    }

    fn make_at(place: &Path) -> Option<Private> {
        let root = rustix::process::geteuid().is_root();
        let outer = place.join(format!("{PREFIX}{}", random()?));
        DirBuilder::new().mode(0o700).create(&outer).ok()?;
        let filled = Private::fill(outer.clone(), if root { 0o711 } else { 0o700 });
        if filled.is_none() {
            // If it is there at all.
            let _ = fs::remove_dir_all(&outer);
        }
        filled
    }

    /// Locks the outer directory and makes the inner one.
    fn fill(outer: PathBuf, mode: u32) -> Option<Private> {
        let lock = File::open(&outer).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        let inner = outer.join(random()?);
        fs::create_dir(&inner).ok()?;
        // Whatever our umask is.
        fs::set_permissions(&inner, Permissions::from_mode(0o777)).ok()?;
        lock.set_permissions(Permissions::from_mode(mode)).ok()?;
        Some(Private { outer, inner, _lock: lock, next_look: Instant::now() + LOOK_EVERY })
    }

    /// Its path with a slash at the end.
    pub fn path(&self) -> Vec<u8> {
        [self.inner.as_os_str().as_bytes(), b"/"].concat()
    }

    /// Removes what stands behind nodes that are gone, if it is time to look.
    pub fn tick(&mut self, direct: &mut Direct) {
        if Instant::now() < self.next_look {
            return;
        }
        self.next_look = Instant::now() + LOOK_EVERY;
        for entry in fs::read_dir(&self.inner).into_iter().flatten().flatten() {
            let node = node_of(&entry.file_name());
            if node.is_some_and(|node| matches!(direct.step(node), Err(Errno::ESTALE))) {
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
    for entry in fs::read_dir(place).into_iter().flatten().flatten().take(LEFT_MAX) {
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
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

/// A name that nobody can guess.
fn random() -> Option<String> {
    let mut bytes = [0u8; 8];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    drawn.ok().filter(|&count| count == bytes.len())?;
    Some(format!("{:016x}", u64::from_le_bytes(bytes)))
}
