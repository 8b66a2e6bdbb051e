//! Home's side of a room: answers what another host asks about files here.
//!
//! ```text
//!   path ─► opened name by name, no link followed ─► others may search it? ─► list, digest, bytes
//!   inotify: a directory that was listed has changed ─► its path, for whoever has listed it
//! ```
//!
//! Invariants
//! 1. The other host sees what every user of this one may read, and no more: a file, or what is
//!    below a directory, that others may not read is refused, whoever we are. So is what is in a
//!    file system whose modes do not say that (`modes`).
//! 2. `/proc`, `/sys`, `/dev`, `/run`, `/tmp` and `/var/tmp` are each host's own, and not shown.
//! 3. Bytes are those of the file that was asked for: its identity is compared after the reading.
//! 4. A directory is watched before it is listed. Each change is told once; then it is listed anew.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use husk_abi::sys::general::{S_IFDIR, S_IFLNK, S_IFREG};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::{Errno, Result};
use sha2::{Digest as _, Sha256};

use super::asks::{Answer, Ask, Digest, Entry, Identity};
use super::{OWN, modes};
use crate::hosts::session::guest::lock;

/// Bytes read at once; the answer to a question has at most so many.
pub const PIECE_BYTES: u64 = 256 << 10;
/// A file of so many bytes comes with its digest.
pub const FEW_BYTES: u64 = 64 << 10;
/// Largest file that is shown.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most directories that are watched: the user's other programs want watches, too.
const WATCHES_MAX: usize = 8192;
/// Bytes of entries in one answer.
const LISTING_BYTES_MAX: usize = 2 << 20;
/// Of an entry, beside its texts.
const ENTRY_BYTES: usize = 80;
/// Most entries of a directory.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Room for events.
const EVENTS_BYTES: usize = 16 << 10;
/// What others may do: read, and search.
const OTHERS_READ: u32 = 0o4;
const OTHERS_SEARCH: u32 = 0o1;
/// What is looked out for in a directory, once.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::ONESHOT);

/// Files here, as another host sees them.
pub struct Home {
    /// `None`: there are no watches to be had.
    watch: Option<Watch>,
}

struct Watch {
    queue: OwnedFd,
    paths: Mutex<HashMap<i32, PathBuf>>,
}

impl Home {
    /// Begins to watch.
    pub fn begin() -> Arc<Home> {
        let queue = inotify::init(CreateFlags::CLOEXEC).ok();
        let watch = queue.map(|queue| Watch { queue, paths: Mutex::default() });
        Arc::new(Home { watch })
    }

    /// The answer to a question.
    pub fn answer(&self, ask: &Ask) -> Answer {
        let told = match ask {
            Ask::List(path, after) => self.list(path, after),
            Ask::Digest(path, identity, bytes) => digest(path, identity, *bytes),
            Ask::Read(path, identity, offset) => read(path, identity, *offset),
        };
        told.unwrap_or_else(|errno| Answer::Failed(errno.raw_os_error()))
    }

    /// Whether every user may run the program at `path`.
    pub fn is_shown(&self, path: &Path) -> bool {
        let Ok(real) = std::fs::canonicalize(path) else { return false };
        open_file(&real).is_ok_and(|(_, found)| found.st_mode & OTHERS_SEARCH != 0)
    }

    fn list(&self, path: &Path, after: &OsStr) -> Result<Answer> {
        let directory = reach(path)?;
        let found = fstat(&directory)?;
        may(&found, OTHERS_READ | OTHERS_SEARCH)?;
        let watched = self.watch.as_ref().is_some_and(|watch| watch.add(&directory, path));
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&directory, ".", flags, Mode::empty())?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." && name.as_slice() > after.as_bytes() {
                names.push(OsString::from_vec(name));
            }
            if names.len() > ENTRIES_MAX {
                return Err(Errno::OVERFLOW);
            }
        }
        names.sort();
        let (mut entries, mut bytes, mut more) = (Vec::new(), 0, false);
        for name in names {
            if is_own(&path.join(&name)) {
                continue;
            }
            // One that has gone meanwhile is a change.
            let Ok(found) = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = found.st_mode & husk_abi::sys::general::S_IFMT;
            let target = match kind {
                S_IFREG | S_IFDIR => OsString::new(),
                S_IFLNK => match readlinkat(&directory, &name, Vec::new()) {
                    Ok(target) => OsString::from_vec(target.into_bytes()),
                    Err(_) => continue,
                },
                _ => continue,
            };
            bytes += name.len() + target.len() + ENTRY_BYTES;
            if bytes > LISTING_BYTES_MAX {
                more = true;
                break;
            }
            entries.push(Entry::of(&name, &found, target));
        }
        Ok(Answer::Listing { entries, more, watched })
    }

    /// Waits for changes, and tells of each; an empty path: of all directories. Ends with an error.
    pub fn watch(&self, tell: &dyn Fn(&Path)) -> Option<()> {
        let watch = self.watch.as_ref()?;
        let mut room = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = inotify::Reader::new(&watch.queue, &mut room);
        loop {
            let (number, lost) = match events.next() {
                Ok(event) => {
                    (event.wd(), event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW))
                }
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            if lost {
                tell(Path::new(""));
            }
            // Of each change the end of the watch is told, too.
            let path = lock(&watch.paths).remove(&number);
            path.iter().for_each(|path| tell(path));
        }
    }
}

impl Watch {
    fn add(&self, directory: &OwnedFd, path: &Path) -> bool {
        // Whoever reads of an event finds the path.
        let mut paths = lock(&self.paths);
        if paths.len() >= WATCHES_MAX {
            return false;
        }
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let added = inotify::add_watch(&self.queue, place, CHANGES);
        added.map(|number| paths.insert(number, path.to_owned())).is_ok()
    }
}

/// Whether it is each host's own.
fn is_own(path: &Path) -> bool {
    OWN.iter().any(|own| path.starts_with(own))
}

/// Whether others may do so with what was found.
fn may(found: &Stat, rights: u32) -> Result<()> {
    if found.st_mode & rights == rights { Ok(()) } else { Err(Errno::ACCESS) }
}

/// The directory at `path`, which every user may reach.
fn reach(path: &Path) -> Result<OwnedFd> {
    if is_own(path) {
        return Err(Errno::NOENT);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(CWD, "/", flags, Mode::empty())?;
    modes::decide(&directory)?;
    let mut found = fstat(&directory)?;
    for name in path.iter().skip(1) {
        may(&found, OTHERS_SEARCH)?;
        directory = openat(&directory, name, flags, Mode::empty())?;
        let below = fstat(&directory)?;
        if below.st_dev != found.st_dev {
            modes::decide(&directory)?;
        }
        found = below;
    }
    Ok(directory)
}

/// The file at `path`, which every user may read.
fn open_file(path: &Path) -> Result<(File, Stat)> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::ISDIR)?;
    let parent = reach(parent)?;
    let above = fstat(&parent)?;
    may(&above, OTHERS_SEARCH)?;
    if is_own(path) {
        return Err(Errno::NOENT);
    }
    let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if found.st_mode & husk_abi::sys::general::S_IFMT != S_IFREG {
        return Err(Errno::STALE);
    }
    may(&found, OTHERS_READ)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&parent, name, flags, Mode::empty())?;
    let found = fstat(&file)?;
    may(&found, OTHERS_READ)?;
    if found.st_dev != above.st_dev {
        modes::decide(&file)?;
    }
    Ok((File::from(file), found))
}

/// The same, if it is still the one that is asked for.
fn the_file(path: &Path, identity: &Identity) -> Result<File> {
    let (file, _) = open_file(path)?;
    same(&file, identity)?;
    if identity.size > FILE_BYTES_MAX { Err(Errno::FBIG) } else { Ok(file) }
}

fn same(file: impl AsFd, identity: &Identity) -> Result<()> {
    if Identity::of(&fstat(file)?) == *identity { Ok(()) } else { Err(Errno::STALE) }
}

fn piece(file: &File, offset: u64, count: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count as usize];
    file.read_exact_at(&mut bytes, offset).map_err(|problem| errno_of(&problem))?;
    Ok(bytes)
}

/// The digest of a file; of one with few bytes, if they are wanted, these.
fn digest(path: &Path, identity: &Identity, bytes: bool) -> Result<Answer> {
    let file = the_file(path, identity)?;
    let few = bytes && identity.size <= FEW_BYTES;
    let few = few.then(|| piece(&file, 0, identity.size)).transpose()?;
    let digest = match &few {
        Some(few) => Sha256::digest(few).into(),
        None => digest_of_file(&file, identity.size)?,
    };
    same(&file, identity)?;
    Ok(Answer::Digest(digest, few))
}

/// Of the file that is open, piece by piece.
fn digest_of_file(file: &File, size: u64) -> Result<Digest> {
    let (mut hasher, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES.min(size) as usize];
    while at < size {
        let count = PIECE_BYTES.min(size - at) as usize;
        let read = file.read_exact_at(&mut piece[..count], at);
        read.map_err(|problem| errno_of(&problem))?;
        hasher.update(&piece[..count]);
        at += count as u64;
    }
    Ok(hasher.finalize().into())
}

fn read(path: &Path, identity: &Identity, offset: u64) -> Result<Answer> {
    let file = the_file(path, identity)?;
    let bytes = piece(&file, offset, identity.size.saturating_sub(offset).min(PIECE_BYTES))?;
    same(&file, identity)?;
    Ok(Answer::Bytes(bytes))
}

/// A file that is shorter now has changed.
fn errno_of(problem: &io::Error) -> Errno {
    Errno::from_io_error(problem).unwrap_or(Errno::STALE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// A directory that every user may reach, and that is no temporary one.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir_in("/var").or_else(|_| tempfile::tempdir_in("/")).unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn home() -> Arc<Home> {
        Home::begin()
    }

    fn write(path: &Path, bytes: &[u8], mode: u32) {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn listed(home: &Home, path: &Path) -> Vec<Entry> {
        match home.answer(&Ask::List(path.to_owned(), "".into())) {
            Answer::Listing { entries, more: false, watched: true } => entries,
            other => panic!("{other:?}"),
        }
    }

    fn identity(path: &Path) -> Identity {
        Identity::of(&rustix::fs::lstat(path).unwrap())
    }

    #[test]
    fn files_are_listed_digested_and_read_as_they_are() {
        let (place, home) = (place(), home());
        let at = |name: &str| place.path().join(name);
        let long = vec![7; PIECE_BYTES as usize + 5];
        write(&at("few"), b"few bytes", 0o644);
        write(&at("many"), &long, 0o644);
        std::os::unix::fs::symlink("few", at("link")).unwrap();
        fs::create_dir(at("below")).unwrap();
        let entries = listed(&home, place.path());
        let names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap()).collect();
        assert_eq!(names, ["below", "few", "link", "many"]);
        assert_eq!(entries[2].target, "few");
        assert_eq!(entries[1].identity, identity(&at("few")));
        let digest: Digest = Sha256::digest(b"few bytes").into();
        let asked = |bytes| Ask::Digest(at("few"), identity(&at("few")), bytes);
        let told = home.answer(&asked(true));
        assert_eq!(told, Answer::Digest(digest, Some(b"few bytes".to_vec())));
        assert_eq!(home.answer(&asked(false)), Answer::Digest(digest, None));
        let many = identity(&at("many"));
        let digest: Digest = Sha256::digest(&long).into();
        assert_eq!(home.answer(&Ask::Digest(at("many"), many, true)), Answer::Digest(digest, None));
        for (offset, length) in [(0, PIECE_BYTES as usize), (PIECE_BYTES, 5), (9 << 20, 0)] {
            let told = home.answer(&Ask::Read(at("many"), many, offset));
            assert_eq!(told, Answer::Bytes(vec![7; length]), "{offset}");
        }
    }

    #[test]
    fn what_others_may_not_read_is_refused_and_what_has_changed_is_stale() {
        let (place, home) = (place(), home());
        let at = |name: &str| place.path().join(name);
        write(&at("private"), b"x", 0o600);
        fs::create_dir(at("closed")).unwrap();
        write(&at("closed/file"), b"x", 0o644);
        write(&at("file"), b"x", 0o755);
        fs::set_permissions(at("closed"), Permissions::from_mode(0o700)).unwrap();
        assert!(home.is_shown(&at("file")) && !home.is_shown(&at("private")));
        let read = |name: &str| home.answer(&Ask::Read(at(name), identity(&at(name)), 0));
        let (access, stale) = (Errno::ACCESS.raw_os_error(), Errno::STALE.raw_os_error());
        assert_eq!(read("file"), Answer::Bytes(b"x".to_vec()));
        assert_eq!(read("private"), Answer::Failed(access));
        assert_eq!(read("closed/file"), Answer::Failed(access));
        let list = |path: &str| home.answer(&Ask::List(path.into(), "".into()));
        assert_eq!(list(at("closed").to_str().unwrap()), Answer::Failed(access));
        for own in ["/proc", "/tmp", "/dev/shm", "/var/tmp"] {
            assert_eq!(list(own), Answer::Failed(Errno::NOENT.raw_os_error()), "{own}");
        }
        std::os::unix::fs::symlink("/etc", at("link")).unwrap();
        assert!(matches!(list(at("link").to_str().unwrap()), Answer::Failed(_)), "a link");
        let before = identity(&at("file"));
        write(&at("file"), b"y", 0o644);
        assert_eq!(home.answer(&Ask::Read(at("file"), before, 0)), Answer::Failed(stale));
        assert_eq!(home.answer(&Ask::Digest(at("file"), before, true)), Answer::Failed(stale));
    }

    #[test]
    fn a_change_below_a_directory_that_was_listed_is_told_once() {
        let (place, home) = (place(), home());
        let path = place.path().to_owned();
        listed(&home, &path);
        let (tell, told) = std::sync::mpsc::channel();
        let watches = home.clone();
        std::thread::spawn(move || watches.watch(&|path| drop(tell.send(path.to_owned()))));
        fs::write(path.join("first"), "x").unwrap();
        assert_eq!(told.recv().unwrap(), path);
        fs::write(path.join("second"), "x").unwrap();
        listed(&home, &path);
        fs::write(path.join("first"), "in place").unwrap();
        assert_eq!(told.recv().unwrap(), path);
        assert!(told.try_recv().is_err());
    }
}
