//! Where a named image is found: a directory of its user's alone.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/husk/  or  /tmp/husk-UID/      0700, its owner checked; locked while a name
//!     NAME/                                         is taken or given back
//!       lock      held by the supervisor as long as it lives
//!       socket    there while it answers
//!       facts     what the image was made from (JSON), for `husk ls`
//!       log       what the supervisor had to say
//!       ending    the end has begun, and what is to become of the changes
//! ```
//!
//! Invariants
//! 1. Nothing is read, written or connected to below a directory that is another user's, or that
//!    others may write to, or that is a symbolic link.
//! 2. A directory whose lock nobody holds is left of a supervisor that has died.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::failure::Failure;
use crate::request::reason;

/// Longest name of an image.
const NAME_BYTES_MAX: usize = 64;
/// How long another `husk` may take to make or remove a name.
const BASE_LOCK_MAX: Duration = Duration::from_secs(5);
/// How long a supervisor may leave somebody in its queue.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Between two tries.
const LOOK: Duration = Duration::from_millis(2);
/// Most of a log that is shown.
const LOG_LINES_MAX: usize = 20;
/// How an image ends whose end has begun.
const DISCARD: &str = "discard\n";
const WRITE_BACK: &str = "write back\n";
/// Most of a file of ours that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A name that is fit for a directory, and for people to type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// Checks what was typed.
    pub fn parse(typed: &OsStr) -> Result<Name, Failure> {
        let fit = typed.to_str().filter(|name| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            name.len() <= NAME_BYTES_MAX
                && name.bytes().all(plain)
                && name.starts_with(|first: char| first.is_ascii_alphabetic())
        });
        fit.map(|name| Name(name.to_owned())).ok_or_else(|| {
            let mut shown = typed.to_string_lossy().into_owned();
            if let Some((end, _)) = shown.char_indices().nth(NAME_BYTES_MAX) {
                shown.truncate(end);
                shown.push_str("...");
            }
            let remedy = format!(
                "use up to {NAME_BYTES_MAX} letters, digits, - and _, beginning with a letter"
            );
            Failure::new(format!("cannot call an image {shown:?}"), "no name for one", remedy)
        })
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The directory of one image.
pub struct Place {
    /// Its name.
    pub name: Name,
    path: PathBuf,
    directory: OwnedFd,
}

/// The directory with its lock, held.
pub struct Held {
    /// The directory.
    pub place: Place,
    /// What others find locked.
    pub lock: File,
}

/// Where the directories of this user's images lie; `None`: there is none yet.
fn base(make: bool) -> Result<Option<PathBuf>, Failure> {
    let us = rustix::process::geteuid().as_raw();
    let ours = |path: &Path| fs::metadata(path).is_ok_and(|found| found.uid() == us);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && ours(path));
    let path = runtime
        .map_or_else(|| PathBuf::from(format!("/tmp/husk-{us}")), |runtime| runtime.join("husk"));
    let what = || format!("cannot use {}", path.display());
    if make {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => {
                let remedy = "make it writable, or set XDG_RUNTIME_DIR";
                return Err(Failure::new(what(), reason(&problem), remedy));
            }
            _ => {}
        }
    }
    let found = match fs::symlink_metadata(&path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(problem) => return Err(Failure::new(what(), reason(&problem), "set XDG_RUNTIME_DIR")),
        Ok(found) => found,
    };
    let why = if !found.is_dir() {
        "it is not a directory"
    } else if found.uid() != us {
        "it is another user's"
    } else if found.mode() & 0o077 != 0 {
        "other users may enter it"
    } else {
        return Ok(Some(path));
    };
    Err(Failure::new(what(), why, "remove it, or set XDG_RUNTIME_DIR to a directory of yours"))
}

/// Holds the base directory, so that names are taken and given back one at a time.
fn lock_base(base: &Path) -> Result<OwnedFd, Failure> {
    let what = || format!("cannot lock {}", base.display());
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(base, flags, Mode::empty())
        .map_err(|errno| Failure::new(what(), reason(&errno.into()), "check it"))?;
    let end = Instant::now() + BASE_LOCK_MAX;
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= end {
            let why = "another husk holds it for long";
            return Err(Failure::new(what(), why, "look for a stopped `husk up` or `husk down`"));
        }
        sleep(LOOK);
    }
    Ok(directory)
}

/// Names of all images of this user, in order, also of those that have died.
pub fn names() -> Result<Vec<Name>, Failure> {
    let Some(base) = base(false)? else { return Ok(Vec::new()) };
    let entries = fs::read_dir(&base).into_iter().flatten().flatten();
    let mut names: Vec<Name> =
        entries.filter_map(|entry| Name::parse(&entry.file_name()).ok()).collect();
    names.sort_by(|one, two| one.0.cmp(&two.0));
    Ok(names)
}

impl Place {
    /// The directory of an image that is there, alive or not.
    pub fn find(name: &Name) -> Result<Place, Failure> {
        let missing = || {
            let remedy = "see `husk ls`, or make it: husk up NAME";
            Failure::new(format!("cannot find image {name}"), "there is no such image", remedy)
        };
        let path = base(false)?.ok_or_else(missing)?.join(&name.0);
        match Place::open(name, &path) {
            Ok(place) => Ok(place),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Err(missing()),
            Err(problem) => {
                let what = format!("cannot look at image {name}");
                Err(Failure::new(what, reason(&problem), format!("remove {}", path.display())))
            }
        }
    }

    fn open(name: &Name, path: &Path) -> io::Result<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        Ok(Place { name: name.clone(), path: path.to_owned(), directory })
    }

    /// Takes a name for a new image.
    pub fn take(name: &Name) -> Result<Held, Failure> {
        let what = || format!("cannot make image {name}");
        let failed =
            |problem: io::Error| Failure::new(what(), reason(&problem), "check the directory");
        let base = base(true)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let _base = lock_base(&base)?;
        let path = base.join(&name.0);
        if let Err(problem) = DirBuilder::new().mode(0o700).create(&path) {
            if problem.kind() != io::ErrorKind::AlreadyExists {
                return Err(failed(problem));
            }
            let alive = Place::open(name, &path).is_ok_and(|place| place.is_held());
            let (why, remedy) = if alive {
                ("it is up already", format!("husk exec {name} -- COMMAND, or choose another name"))
            } else {
                ("one of that name has died", format!("clean up first: husk down {name}"))
            };
            return Err(Failure::new(what(), why, remedy));
        }
        let place = Place::open(name, &path).map_err(failed)?;
        let lock = place.lock_file(true).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        });
        match lock {
            Ok(lock) => Ok(Held { place, lock }),
            Err(problem) => {
                // Nothing is in it that anybody needs.
                let _ = fs::remove_dir_all(&path);
                Err(failed(problem))
            }
        }
    }

    /// Whatever was found: the directory of an image nobody supervises, held by us. `None`: it is
    /// supervised.
    pub fn adopt(self) -> Result<Option<Held>, Failure> {
        let what = format!("cannot clean up after image {}", self.name);
        let failed = |problem: io::Error| Failure::new(&what, reason(&problem), "remove it");
        let base = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let _base = lock_base(&base)?;
        let lock = self.lock_file(true).map_err(failed)?;
        let held = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(held.then_some(Held { place: self, lock }))
    }

    fn lock_file(&self, make: bool) -> io::Result<File> {
        let nofollow = OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make).truncate(false).mode(0o600);
        options.custom_flags(nofollow).open(self.inside("lock"))
    }

    /// Whether a supervisor is there.
    pub fn is_held(&self) -> bool {
        let Ok(lock) = self.lock_file(false) else { return false };
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Short whatever the path is, as addresses of sockets must be, and never through another's.
    fn inside(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{file}", self.directory.as_raw_fd()))
    }

    /// A connection on which nothing is sent for ever; the queue of one that is stopped is full
    /// some time.
    fn connect_within(&self, patience: Duration) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let stream = UnixStream::from(socket);
        // Bounds the wait for room in the queue, too.
        stream.set_write_timeout(Some(patience))?;
        connect(&stream, &SocketAddrUnix::new(self.inside("socket"))?)?;
        Ok(stream)
    }

    /// Connects to the supervisor.
    pub fn connect(&self) -> Result<UnixStream, Failure> {
        let problem = match self.connect_within(CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(problem) => problem,
        };
        let name = &self.name;
        let what = format!("cannot reach image {name}");
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        Err(if problem.kind() == io::ErrorKind::WouldBlock {
            let why = "its supervisor is stopped or busy, and many wait for it already";
            Failure::new(what, why, "let it go on (kill -CONT, see `husk ls`), or try again")
        } else if !gone.contains(&problem.kind()) {
            Failure::new(what, reason(&problem), format!("clean up: husk down {name}"))
        } else if self.is_held() {
            Failure::new(what, "it is just starting, or going down", "try again")
        } else {
            Failure::new(what, "its supervisor has died", format!("clean up: husk down {name}"))
        })
    }

    /// Whether its end has begun.
    pub fn is_ending(&self) -> Option<bool> {
        Some(self.read("ending").ok()? == DISCARD)
    }

    /// Its end begins, and is to be gone on with whatever happens.
    pub fn begin_end(&self, discard: bool) -> io::Result<()> {
        self.write("ending", if discard { DISCARD } else { WRITE_BACK })
    }

    /// Where the supervisor answers.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(self.inside("socket"))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// It does not answer any more.
    pub fn stop_listening(&self) {
        // Whoever connects to what is left is refused.
        let _ = fs::remove_file(self.inside("socket"));
    }

    /// Writes `text` to `file`, as a whole.
    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let new = self.inside(&format!("{file}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.inside(file))
    }

    /// What `file` holds; an error also where that is no text or too long.
    pub fn read(&self, file: &str) -> io::Result<String> {
        let path = self.inside(file);
        let found = fs::symlink_metadata(&path)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        fs::read_to_string(path)
    }

    /// A file for what the supervisor says.
    pub fn open_log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.inside("log"))
    }

    /// The last lines of it.
    pub fn log(&self) -> Vec<String> {
        let text = self.read("log").unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].iter().map(|&l| l.to_owned()).collect()
    }
}

impl Held {
    /// Gives the name back: nothing is left of the image.
    pub fn remove(&self) -> io::Result<()> {
        let base = self.place.path.parent().unwrap_or(Path::new("/"));
        // Without the lock somebody may find half a directory: that is better than a whole one.
        let _base = lock_base(base);
        fs::remove_dir_all(&self.place.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for fit in ["ci", "a", "Build-2_x", &"n".repeat(64)] {
            assert!(Name::parse(OsStr::new(fit)).is_ok(), "{fit}");
        }
        let long = "n".repeat(300);
        for unfit in ["", ".", "..", "a/b", "/", "a.b", "1", "-a", "a b", "ä", &long, "a\n"] {
            let failure = Name::parse(OsStr::new(unfit)).unwrap_err();
            assert_eq!((failure.status, failure.to_string().lines().count()), (125, 1));
            assert!(failure.to_string().len() < 300, "{failure}");
        }
    }
}
