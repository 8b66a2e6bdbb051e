//! Takes git's lock on a file of a repository while that file is replaced.
//!
//! ```text
//!   git          index.lock made (O_EXCL) ─ index read ─ index.lock written, renamed to index
//!   write-back   temporary file ─ linked to index.lock ─ index replaced ─ both names removed
//! ```
//!
//! Without the lock, git could read the old index, and rename its own over the one that a
//! write-back has put there in between: commits of the image would show as staged for removal.
//!
//! Invariants
//! 1. A lock is never taken over from anybody. A write-back waits for all locks together no longer
//!    than `PATIENCE`.
//! 2. A lock of a write-back is another name of an empty file with a temporary name beside it. Who
//!    is killed leaves both; whoever removes the temporary name removes the lock first, and whoever
//!    finds the lock looks for such a name.
//! 3. Where there are no hard links, there is no lock, and only the look whether git holds one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::output::typed::typed;
use crate::write_back::host;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Beneath, Object, object_of};

/// How long a write-back waits for git in all.
pub const PATIENCE: Duration = if cfg!(test) { NEXT_LOOK } else { Duration::from_secs(2) };
/// Before the next look.
const NEXT_LOOK: Duration = Duration::from_millis(5);
/// What a lock's name has more.
const ENDING: &[u8] = b".lock";
/// Mode of a lock.
const MODE: u32 = 0o600;

/// A lock that this write-back holds.
#[derive(Debug)]
#[must_use = "it is held until it is released"]
pub struct Lock {
    path: PathBuf,
    temporary: PathBuf,
    which: Object,
}

/// Whether git locks the file at `path` before it replaces it: in a repository all but objects.
pub fn is_locked_by_git(beneath: &Beneath, path: &Path) -> bool {
    let mut names = path.components().map(|one| one.as_os_str().as_bytes());
    if names.any(|name| name.ends_with(b".git")) {
        return names.next() != Some(b"objects") && !is_lock(path);
    }
    let index = path.file_name() == Some(OsStr::new(crate::write_back::plan::derived::INDEX));
    index && matches!(beneath.identity(&path.with_file_name("HEAD")), Ok(Some(_)))
}

/// Takes the lock on the file at `path`. `None`: there is none to be had, and none is held. An
/// error of the kind `WouldBlock`: somebody holds it, and goes on holding it for all `patience`.
pub fn take(
    beneath: &Beneath,
    names: &mut host::Names,
    path: &Path,
    patience: &mut Duration,
) -> io::Result<Option<Lock>> {
    if !is_locked_by_git(beneath, path) {
        return Ok(None);
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    let (lock, temporary) = (lock_of(path), names.fresh(directory));
    let held = match beneath.create(&temporary).and_then(Held::of_file) {
        Ok(held) => held,
        // Nothing else can be made there either.
        Err(_) => return Ok(None),
    };
    let which = object_of(held.found());
    let taken = link(beneath, &held, &lock, patience);
    if !matches!(taken, Ok(true)) {
        beneath.remove_tree_of(&temporary, which)?;
    }
    Ok(taken?.then_some(Lock { path: lock, temporary, which }))
}

fn link(beneath: &Beneath, held: &Held, lock: &Path, patience: &mut Duration) -> io::Result<bool> {
    loop {
        match beneath.link(held, lock) {
            Ok(()) => return Ok(true),
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {}
            // Invariant 3.
            Err(_) if beneath.identity(lock)?.is_none() => return Ok(false),
            Err(_) => {}
        }
        if release_dead(beneath, lock) {
            continue;
        }
        if patience.is_zero() {
            let lock = typed(lock);
            let why = format!("git on the host holds its lock; if no git runs there: rm {lock}");
            return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
        }
        let since = Instant::now();
        sleep(NEXT_LOOK.min(*patience));
        *patience = patience.saturating_sub(since.elapsed().max(NEXT_LOOK));
    }
}

impl Lock {
    /// Gives the lock up.
    pub fn release(self, beneath: &Beneath) -> io::Result<()> {
        let Lock { path, temporary, which } = self;
        let is_there =
            |path: &Path| Ok::<_, io::Error>(beneath.identity(path)?.map(|one| one.object()));
        if is_there(&path)? == Some(which) {
            beneath.remove(&path)?;
        }
        beneath.remove_tree_of(&temporary, which)
    }
}

/// Removes the lock at `path` if a write-back was killed that held it. Whether it was removed.
fn release_dead(beneath: &Beneath, path: &Path) -> bool {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let names = beneath.names(directory).unwrap_or_default();
    let mut left = names.iter().filter(|name| host::is_leftover(name));
    left.any(|name| release_of(beneath, &directory.join(name), path))
}

/// Removes all locks in `directory` whose temporary names begin with `stem`.
pub fn release_all(beneath: &Beneath, directory: &Path, stem: &str) {
    let names = beneath.names(directory).unwrap_or_default();
    for name in names.iter().filter(|name| name.as_bytes().starts_with(stem.as_bytes())) {
        release_all_of(beneath, &directory.join(name), &names);
    }
}

/// Removes all locks that are other names of what is at `temporary`, which is about to go.
pub fn release_all_of(beneath: &Beneath, temporary: &Path, names: &[OsString]) {
    let locks = names.iter().filter(|name| is_lock(Path::new(name)));
    for path in locks.map(|name| temporary.with_file_name(name)) {
        release_of(beneath, temporary, &path);
    }
}

/// Invariant 2: removes the lock at `path` if `temporary` is another name of it.
fn release_of(beneath: &Beneath, temporary: &Path, path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let found = |path: &Path| beneath.found(path).ok().flatten();
    let (Some(one), Some(lock)) = (found(temporary), found(path)) else { return false };
    let empty = lock.is_file() && lock.len() == 0 && lock.nlink() == 2;
    let ours = lock.uid() == own && lock.mode() & 0o7777 == MODE;
    let same = object_of(&one) == object_of(&lock) && empty && ours;
    same && is_locked_by_git(beneath, &locked_by(path)) && beneath.remove(path).is_ok()
}

/// The lock on the file at `path`.
pub fn lock_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.extend(ENDING);
    OsString::from_vec(name).into()
}

/// The file that a lock is for.
fn locked_by(lock: &Path) -> PathBuf {
    let name = lock.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(name.strip_suffix(ENDING).unwrap_or(name))).to_owned()
}

fn is_lock(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(ENDING)
}
