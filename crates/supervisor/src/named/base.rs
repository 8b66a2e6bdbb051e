//! The directory of all images of a user, the same in every session.
//!
//! ```text
//!   $HUSK_IMAGES                        if it is set, and nowhere else
//!   HOME/.local/state/husk/images       HOME: in /etc/passwd; that of the environment where
//!                                       /etc/passwd names no directory of this user
//!   /tmp/husk-UID                       where the one before cannot be used: there is no home, or
//!                                       it is read-only, full, or on another machine
//!   /dev/shm/husk-UID                   where neither can be: both lie on one disk that is full
//! ```
//!
//! Each has mode 0700 and is locked while a name is taken or given back.
//!
//! Invariants
//! 1. A session's own variables and its runtime directory have no say: `su -`, `sudo`, cron and ssh
//!    find the same images, and an image outlives the session that made it.
//! 2. Nothing is read, written or connected to below a directory that is another user's, or that
//!    others may enter, or that is a symbolic link.
//! 3. What looks before the C library has started (`husk-entry`) finds the first that applies, or
//!    leaves it to who reads this.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use husk_proto::entry::IMAGES_BELOW_HOME;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statfs};
use rustix::io::Errno;

use super::commands::up::START_MAX;
use crate::config::IMAGES;
use crate::config::state::lasting_home;
use crate::output::failure::Failure;
use crate::output::say;
use crate::run::request::reason;

/// How long another `husk` may take to make or remove a name.
const LOCK_MAX: Duration = Duration::from_secs(5);
/// What `husk mount` locks; no image has such a name.
const MOUNTING: &str = ".mounting";
/// How long another `husk mount` may take: longer than it waits for a server that never starts.
const MOUNTING_MAX: Duration = START_MAX.saturating_add(Duration::from_secs(10));
/// Between two tries.
const LOOK: Duration = Duration::from_millis(2);
/// File systems that other machines see, too: NFS, SMB (two numbers), CIFS, AFS, Ceph, Lustre.
const SHARED: [i64; 7] =
    [0x6969, 0xfe53_4d42, 0x517b, 0xff53_4d42, 0x5346_414f, 0x00c3_6400, 0x0bd0_0bd0];

/// Where they may be, in order.
fn candidates() -> Vec<PathBuf> {
    if let Some(said) = std::env::var_os(IMAGES).filter(|said| !said.is_empty()) {
        return vec![PathBuf::from(said)];
    }
    let user = rustix::process::geteuid().as_raw();
    let otherwise = ["/tmp", "/dev/shm"].map(|place| PathBuf::from(format!("{place}/husk-{user}")));
    let home = lasting_home().map(|home| home.join(IMAGES_BELOW_HOME));
    home.into_iter().chain(otherwise).collect()
}

/// Those there are. One that cannot be trusted is an error where it is the first choice; the others
/// lie where everybody may make directories.
pub fn all() -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for (rank, path) in candidates().into_iter().enumerate() {
        match is_there(&path) {
            Ok(true) => all.push(path),
            Ok(false) => {}
            Err(failure) if rank == 0 => return Err(failure),
            Err(_) => {}
        }
    }
    Ok(all)
}

/// Calls `take` with the first that serves, made if it is not there; why one does not, and another
/// does, is said.
pub fn first<T>(mut take: impl FnMut(&Path) -> io::Result<T>) -> Result<T, Failure> {
    let mut refused: Option<Failure> = None;
    for path in candidates() {
        let taken = make(&path).and_then(|()| match is_there(&path) {
            Ok(_) => take(&path).map(Ok),
            Err(failure) => Ok(Err(failure)),
        });
        let problem = match taken {
            Ok(Ok(taken)) => {
                if let Some(Failure { what, why, .. }) = refused {
                    let path = path.display();
                    say(&format!("note: {what}: {why}: the image's files are in {path}"));
                }
                return Ok(taken);
            }
            Ok(Err(failure)) => return Err(failure),
            Err(problem) => problem,
        };
        let what = format!("cannot use {}", path.display());
        let otherwise = format!("make room, or set {IMAGES} to a directory of yours");
        let remedy = self::remedy(&problem, otherwise);
        refused = Some(Failure::new(what, reason(&problem), remedy));
    }
    Err(refused.expect("there is a last candidate"))
}

/// What to do about a problem: an image is not to be removed because who asks has no descriptors.
pub fn remedy(problem: &io::Error, otherwise: String) -> String {
    match Errno::from_io_error(problem) {
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit: ulimit -n 1024".to_owned(),
        _ => otherwise,
    }
}

/// Makes the directory at `path`, and those that lead to it below the home directory.
fn make(path: &Path) -> io::Result<()> {
    let below_home = path.ends_with(IMAGES_BELOW_HOME);
    match DirBuilder::new().mode(0o700).recursive(below_home).create(path) {
        Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => return Err(problem),
        _ => {}
    }
    // Locks and numbers of processes mean nothing on another machine.
    if below_home && statfs(path).is_ok_and(|found| SHARED.contains(&{ found.f_type })) {
        return Err(io::Error::other("other machines share it"));
    }
    Ok(())
}

/// Whether it is there, and this user's alone.
fn is_there(path: &Path) -> Result<bool, Failure> {
    let what = || format!("cannot use {}", path.display());
    if !path.is_absolute() {
        return Err(Failure::new(what(), "it is not an absolute path", format!("mend {IMAGES}")));
    }
    let found = match fs::symlink_metadata(path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(problem) => {
            let remedy = format!("correct it, or set {IMAGES}");
            return Err(Failure::new(what(), reason(&problem), remedy));
        }
        Ok(found) => found,
    };
    let why = if !found.is_dir() {
        "it is not a directory"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it is another user's"
    } else if found.mode() & 0o077 != 0 {
        "other users may enter it"
    } else {
        return Ok(true);
    };
    let remedy = format!("remove it, or set {IMAGES} to a directory of yours");
    Err(Failure::new(what(), why, remedy))
}

/// Makes the directory again that was used and has vanished.
pub fn restore(path: &Path) -> io::Result<()> {
    make(path)?;
    is_there(path).map(drop).map_err(|failure| io::Error::other(failure.why))
}

/// Holds the directory, so that names are taken and given back one at a time.
pub fn lock(base: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(base, flags, Mode::empty())?;
    lock_within(&directory, LOCK_MAX).map_err(|_| {
        let why = "another husk has held it for a long time (a stopped `husk up` or `husk down`?)";
        io::Error::other(why)
    })?;
    Ok(directory)
}

/// Takes the lock of an open file that others hold for a moment.
pub fn lock_within(file: &impl AsFd, most: Duration) -> Result<(), Errno> {
    let end = Instant::now() + most;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(problem) if Instant::now() >= end => return Err(problem),
            Err(_) => sleep(LOOK),
        }
    }
}

/// Until it is dropped no other `husk mount` of this user is at work.
pub fn lock_mounting() -> Result<File, Failure> {
    let what = "cannot mount";
    let failed = |why: String| Failure::new(what, why, "try again");
    let missing = || failed("there is no such image".to_owned());
    let path = all()?.into_iter().next().ok_or_else(missing)?.join(MOUNTING);
    let nofollow = OFlags::NOFOLLOW.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let lock =
        options.custom_flags(nofollow).open(path).map_err(|problem| failed(reason(&problem)))?;
    let others = |_| failed("another `husk mount` is working on it and does not end".to_owned());
    lock_within(&lock, MOUNTING_MAX).map_err(others)?;
    Ok(lock)
}
