//! The user's own directory for what Husk remembers between commands.
//!
//! ```text
//!   $XDG_STATE_HOME/husk, or ~/.local/state/husk      0700, its owner checked
//! ```
//!
//! Invariants
//! 1. Nothing is read or written in a directory that belongs to another user, or that others may
//!    write to.
//! 2. A directory of somebody else, kept in `HOME` or `XDG_STATE_HOME` by `sudo` or `su`, is not
//!    used: the home directory in `/etc/passwd` is.
//! 3. A file is replaced as a whole, under a lock: two commands at once lose nothing.
//! 4. In a directory where every user may make names (`/var/tmp`), only one of this user alone is
//!    used. Whoever makes it first under that name gains nothing.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use husk_proto::entry::home_in;
use husk_proto::image::CACHE_BESIDE_OTHERS;
use husk_rewrite::Store;
use rustix::fs::{
    Access, AtFlags, FlockOperation, Mode, OFlags, access, flock, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::file::others_may_write;

/// Where programs of the system keep what they can make again.
const CACHE_OF_SYSTEM: &str = "/var/cache";
/// Copies of programs, in a cache.
const COPIES: &str = "husk/copies";
/// Of a mode: others' bits, those of who else may write, and that names are their owners'.
const OTHERS: u32 = 0o077;
const WRITES: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Longest file that is read here.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How long another command may hold the lock.
const LOCK_MAX: Duration = Duration::from_secs(5);
/// Between two tries.
const LOOK: Duration = Duration::from_millis(5);

/// The directory, held open.
pub struct State {
    /// Where it is, for people.
    pub path: PathBuf,
    directory: OwnedFd,
}

impl State {
    /// The directory, if it is there.
    pub fn find() -> io::Result<Option<State>> {
        let Some(path) = path() else { return Ok(None) };
        match State::open(path) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// The directory, made if it is not there.
    pub fn make() -> io::Result<State> {
        let Some(path) = path() else {
            return Err(io::Error::other("this user has no home directory"));
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        State::open(path)
    }

    fn open(path: PathBuf) -> io::Result<State> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        is_own(&directory.metadata()?)?;
        Ok(State { path, directory: directory.into() })
    }

    /// What the file `name` holds; nothing, if it is not there.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => File::from(other?),
        };
        let found = file.metadata()?;
        is_own(&found)?;
        if !found.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut content = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Replaces the file `name` by what `change` makes of its content.
    pub fn change(
        &self,
        name: &str,
        change: impl FnOnce(Vec<u8>) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let _lock = self.lock()?;
        let content = change(self.read(name)?)?;
        // Under the lock nobody else writes it; one that was killed may have left it.
        let new = format!("{name}.new");
        match unlinkat(&self.directory, &new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(problem) => return Err(problem.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file =
            File::from(openat(&self.directory, &new, flags, Mode::from_raw_mode(0o600))?);
        file.write_all(&content)?;
        file.sync_all()?;
        renameat(&self.directory, &new, &self.directory, name)?;
        rustix::fs::fsync(&self.directory)?;
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        let lock = openat(
            &self.directory,
            "lock",
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )?;
        let since = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock.into()),
                Err(Errno::WOULDBLOCK) if since.elapsed() < LOCK_MAX => std::thread::sleep(LOOK),
                Err(Errno::WOULDBLOCK) => return Err(io::Error::other("another husk uses it")),
                Err(problem) => return Err(problem.into()),
            }
        }
    }
}

/// Invariant 1.
fn is_own(found: &fs::Metadata) -> io::Result<()> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is another user's"));
    }
    if others_may_write(found) {
        return Err(io::Error::other("others may write to it"));
    }
    Ok(())
}

/// Where it is.
fn path() -> Option<PathBuf> {
    Some(base()?.join("husk"))
}

/// Where this user's programs keep such directories.
pub fn base() -> Option<PathBuf> {
    let home = || home_of_environment().or_else(home_of_passwd);
    let named = absolute("XDG_STATE_HOME").filter(|base| !base.exists() || own(base));
    named.or_else(|| Some(home()?.join(".local/state")))
}

/// The home directory that every session of this user finds: the environment has no say where
/// `/etc/passwd` names one.
pub fn lasting_home() -> Option<PathBuf> {
    home_of_passwd().or_else(home_of_environment)
}

/// Where copies of programs are kept, in the first of these that this user can use:
///
/// ```text
///   $XDG_CACHE_HOME/husk/copies
///   /var/cache/husk/copies                root's: its programs may become other users
///   $HOME/.cache/husk/copies
///   the same below the home directory in /etc/passwd
///   /var/tmp/husk-cache-UID/husk/copies
/// ```
///
/// If none can be used, one that says why. The rest of the cache is beside the copies.
pub fn copies() -> Option<PathBuf> {
    let below = |home: Option<PathBuf>| Some(home?.join(".cache"));
    // Each is looked for only where those before it cannot be used.
    let places: [&dyn Fn() -> Option<PathBuf>; 4] = [
        &|| absolute("XDG_CACHE_HOME").filter(|base| !base.exists() || own(base)),
        &|| root_can_write_to(Path::new(CACHE_OF_SYSTEM)),
        &|| below(home_of_environment().or_else(anothers_with_own_cache)),
        &|| below(home_of_passwd()),
    ];
    let usable = |copies: &PathBuf| Store::prepare(copies).is_ok();
    let mut first = None;
    for base in places.iter().filter_map(|place| place()) {
        let copies = base.join(COPIES);
        if usable(&copies) {
            return Some(copies);
        }
        first.get_or_insert(copies);
    }
    let beside = cache_beside_others().map(|base| base.join(COPIES));
    let anothers = || Some(below(absolute("HOME"))?.join(COPIES));
    beside.filter(usable).or(first).or_else(anothers)
}

/// `HOME`, if it is another's whose `.cache` is this user's, where nobody but root can replace it.
fn anothers_with_own_cache() -> Option<PathBuf> {
    absolute("HOME").filter(|home| keeps_names(home) && own(&home.join(".cache")))
}

/// This user's own directory in `/var/tmp`, made if it is not there (invariant 4).
fn cache_beside_others() -> Option<PathBuf> {
    let user = rustix::process::geteuid();
    // With the rights of a set-user-ID program this would be the wrong user's.
    let is_plain = rustix::process::getuid() == user;
    let place = PathBuf::from(format!("{CACHE_BESIDE_OTHERS}{}", user.as_raw()));
    (is_plain && keeps_names(place.parent()?)).then_some(())?;
    make_alone(&place).ok().map(|()| place)
}

/// Whether nobody but root can put something else in the place of a name in `directory` that
/// belongs to another user.
fn keeps_names(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| {
        let (is_sticky, is_open) = (found.mode() & STICKY != 0, found.mode() & WRITES != 0);
        found.uid() == 0 && (is_sticky || !is_open)
    })
}

/// Makes a directory of this user alone, if it is not there. It is no link.
pub fn make_alone(place: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(place)?;
    is_alone(place)
}

/// Whether a directory is this user's, and nobody else may even look into it.
pub fn is_alone(place: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(place)?;
    let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if own && found.mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(io::Error::other("it is not this user's alone"))
}

/// `directory`, if this is root and may write there: elsewhere it is a root of a namespace, or the
/// file system is read-only.
fn root_can_write_to(directory: &Path) -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let open = access(directory, Access::WRITE_OK).is_ok() && own(directory);
    (root && open).then(|| directory.to_owned())
}

fn absolute(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn own(home: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    fs::metadata(home).is_ok_and(|found| found.uid() == uid)
}

fn home_of_environment() -> Option<PathBuf> {
    absolute("HOME").filter(|home| own(home))
}

/// The home directory that the host's list of users names.
fn home_of_passwd() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open("/etc/passwd");
    let mut text = Vec::new();
    file.ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let home = text.split(|&byte| byte == b'\n').find_map(|line| home_in(line, uid))?;
    Some(PathBuf::from(OsStr::from_bytes(home))).filter(|home| own(home))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn at(path: &Path) -> io::Result<State> {
        State::open(path.to_owned())
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_read_again() {
        let scratch = tempfile::tempdir().unwrap();
        let state = at(scratch.path()).unwrap();
        assert!(state.read("file").unwrap().is_empty());
        for text in ["one", "two"] {
            state.change("file", |_| Ok(text.into())).unwrap();
            assert_eq!(state.read("file").unwrap(), text.as_bytes());
        }
        assert!(state.change("file", |_| Err(io::ErrorKind::Other.into())).is_err());
        assert_eq!(state.read("file").unwrap(), b"two");
    }

    #[test]
    fn what_others_may_write_to_is_neither_read_nor_written() {
        let scratch = tempfile::tempdir().unwrap();
        let state = at(scratch.path()).unwrap();
        state.change("file", |_| Ok("one".into())).unwrap();
        let file = scratch.path().join("file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o602)).unwrap();
        assert!(state.read("file").is_err());
        assert!(state.change("file", |_| Ok("two".into())).is_err());
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o707)).unwrap();
        assert!(at(scratch.path()).is_err());
        // A link leads to what somebody else chose.
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(&file, scratch.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", &file).unwrap();
        assert!(state.read("file").is_err());
    }
}
