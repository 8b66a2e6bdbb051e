//! All access of a write-back to the host's files, beneath a descriptor of the overlay's root.
//!
//! ```text
//!   /project/tree/a/b   =   root (opened once)  +  "a" (opened beneath it)  +  name "b"
//!                                                   identity compared each time
//! ```
//!
//! Whoever may write to a directory of an overlay can put a link, or something else, in the place
//! of what is there, at any moment. So a path is a name for people here, and leads nowhere.
//!
//! Invariants
//! 1. Every call acts on a name in a directory that was opened beneath an overlay's root, or on a
//!    descriptor. Opening follows no link and leaves no root (`openat2`, or a walk of one name
//!    after the other). Only roots, and the directory that holds one, are opened by their paths,
//!    which must not lead over links either.
//! 2. A directory has one identity from the first look of a write-back to its end. Another one
//!    under its name is an error. So it is for whatever is `pin`ned.
//! 3. Whatever is made is made anew (O_EXCL and the like) under a name that nobody can guess. What
//!    cannot be had as a descriptor by making it is looked at before it is changed: it has one name
//!    and the owner that new objects have. A directory is also empty, and no older than the call
//!    that made it (`fresh`).
//! 4. Modes, owners, times and attributes are set on descriptors (`Held`), and what is read is a
//!    regular file: a FIFO holds nobody up.
//!    What the mode of a directory keeps its owner from is done with an owner's rights (`owned`).
//! 5. A directory is emptied only if it is the one that is known by that name.
//! 6. Each host call comes after `schedule::before`, which tests know.

mod ahead;
pub mod fresh;
pub mod held;
mod lesser;
mod opening;
pub mod schedule;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use husk_proto::fs::{HostIdentity, Rights};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxAttributes,
    StatxFlags, getxattr_query, linkat, mkdirat, mknodat, openat, renameat_with, statat, statx,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::beneath::fresh::Moment;
use super::beneath::held::Held;
use super::beneath::opening::{open_beneath, open_without_links, owned, readable};
use super::beneath::schedule::{before, before_sync};
use crate::output::typed::typed;
use crate::write_back::{PATH_BYTES_MAX, host};

/// Why a directory that is expected on another device is not opened.
pub const COVERED: &str = "something was mounted over it meanwhile";
/// The list that a directory hands down.
const DEFAULT_LIST: &str = "system.posix_acl_default";
/// Directories that are kept open at a time.
const OPENED_MAX: usize = 64;
/// Tries to open a path while somebody moves what is on it.
const TRIES: u32 = 16;

const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ANYTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Device and inode.
pub type Object = (u64, u64);

/// What no object is: whatever is found instead is somebody else's.
const NOBODYS: Object = (0, 0);

/// What one look says of an object.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    /// Which it is, and how it was changed last.
    pub identity: HostIdentity,
    /// It is a directory.
    pub directory: bool,
    /// It is a file or a link: its times are those of its content.
    pub content: bool,
    /// It is a link, whose mode says nothing.
    pub symlink: bool,
    /// Mode, owner and group.
    pub rights: Rights,
    /// Names that it has.
    pub links: u64,
}

impl Glance {
    /// Of what was `found`.
    pub fn of(found: &Metadata) -> Glance {
        let kind = FileType::from_raw_mode(found.mode());
        Glance::new(host::identity_of(found), kind, host::rights_of(found), found.nlink())
    }

    fn new(identity: HostIdentity, kind: FileType, rights: Rights, links: u64) -> Glance {
        let (directory, symlink) = (kind == FileType::Directory, kind == FileType::Symlink);
        let content = kind == FileType::RegularFile || symlink;
        Glance { identity, directory, content, symlink, rights, links }
    }
}

/// A name in a directory that is open: where any thread may do host calls.
#[derive(Debug, Clone)]
pub struct Place {
    directory: Arc<File>,
    name: OsString,
}

impl Place {
    /// Whether both are in one directory.
    pub fn is_beside(&self, other: &Place) -> bool {
        Arc::ptr_eq(&self.directory, &other.directory)
    }

    /// A new file, mode 0600.
    pub fn create(&self) -> io::Result<File> {
        create(&self.directory, &self.name)
    }

    /// The regular file there, for reading and for writing at its end.
    pub fn open_to_append(&self) -> io::Result<Held> {
        open_to_append(&self.directory, &self.name)
    }

    /// What one look says of what is there.
    pub fn glance(&self) -> io::Result<Glance> {
        glance(&self.directory, &self.name)
    }
}

/// The directories of all overlays.
#[derive(Debug)]
pub struct Beneath {
    roots: Vec<PathBuf>,
    /// Directories opened by their paths (invariant 1).
    bases: RefCell<HashMap<PathBuf, Arc<File>>>,
    opened: RefCell<BTreeMap<PathBuf, Arc<File>>>,
    /// The one that was asked for last.
    last: RefCell<Option<(PathBuf, Arc<File>)>>,
    /// Invariant 2.
    known: RefCell<BTreeMap<PathBuf, Object>>,
    /// Devices that directories must be on.
    devices: RefCell<HashMap<PathBuf, u64>>,
    /// What was looked at before it is asked for (`ahead`).
    ahead: RefCell<HashMap<OsString, Glance>>,
    /// Whether a directory that was asked has an access control list for what is made in it.
    hands_down: Cell<bool>,
    /// Longest path, and one more.
    path_bytes_max: usize,
}

impl Beneath {
    /// What is beneath these directories; nothing is opened yet.
    pub fn new<'a>(roots: impl IntoIterator<Item = &'a Path>) -> Beneath {
        let roots = roots.into_iter().map(Path::to_owned).collect();
        let (bases, opened, last, known, devices, ahead, hands_down) = Default::default();
        let path_bytes_max = PATH_BYTES_MAX;
        Beneath { roots, bases, opened, last, known, devices, ahead, hands_down, path_bytes_max }
    }

    /// The same for paths that are longer than one host call takes.
    pub fn deep(self) -> Beneath {
        Beneath { path_bytes_max: usize::MAX, ..self }
    }

    /// The directories themselves.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Asks a directory whether it hands an access control list down.
    /// What is not known counts.
    pub fn ask_for_list(&self, directory: &File) {
        let asked = before("getxattr").map_err(|_| Errno::IO);
        let found = asked.and_then(|()| getxattr_query(through(directory), DEFAULT_LIST));
        if !matches!(found, Ok(0) | Err(Errno::NODATA | Errno::OPNOTSUPP)) {
            self.hands_down.set(true);
        }
    }

    /// Whether one that was asked does.
    pub fn hands_down(&self) -> bool {
        self.hands_down.get()
    }

    /// The directory at `path` (an O_PATH descriptor).
    pub fn directory(&self, path: &Path) -> io::Result<Arc<File>> {
        if let Some((last, opened)) = &*self.last.borrow()
            && last.as_os_str() == path.as_os_str()
        {
            return Ok(Arc::clone(opened));
        }
        let opened = self.directory_among_others(path)?;
        *self.last.borrow_mut() = Some((path.to_owned(), Arc::clone(&opened)));
        Ok(opened)
    }

    fn directory_among_others(&self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(opened) = self.opened.borrow().get(path) {
            return Ok(Arc::clone(opened));
        }
        let opened = self.open(path)?;
        self.compare(path, &opened.metadata()?, true)?;
        self.keep_open(path, &opened);
        Ok(opened)
    }

    fn keep_open(&self, path: &Path, opened: &Arc<File>) {
        let mut all = self.opened.borrow_mut();
        if all.len() >= OPENED_MAX {
            all.clear();
        }
        all.insert(path.to_owned(), Arc::clone(opened));
    }

    /// Whether the path of a directory still leads to the one that was worked in; what this
    /// write-back has taken away itself counts as there.
    pub fn is_still(&self, path: &Path) -> bool {
        let Some(known) = self.known.borrow().get(path).copied() else { return true };
        let now = self.open(path).and_then(|opened| opened.metadata());
        now.is_ok_and(|now| object_of(&now) == known)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<File>> {
        let roots = self.roots.iter().filter(|root| path.starts_with(root));
        let root = match roots.max_by_key(|root| root.as_os_str().len()) {
            Some(root) => root,
            None if self.roots.iter().any(|root| root.parent() == Some(path)) => path,
            None => return Err(io::Error::other("it is outside of the overlays")),
        };
        let base = self.base(root)?;
        match path.strip_prefix(root) {
            Ok(rest) if !rest.as_os_str().is_empty() => Ok(Arc::new(open_beneath(&base, rest)?)),
            _ => Ok(base),
        }
    }

    fn base(&self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(base) = self.bases.borrow().get(path) {
            return Ok(Arc::clone(base));
        }
        let base = Arc::new(open_without_links(path)?);
        self.bases.borrow_mut().insert(path.to_owned(), Arc::clone(&base));
        Ok(base)
    }

    /// Invariant 2; `learn`: what is not known is from now on.
    fn compare(&self, path: &Path, found: &Metadata, learn: bool) -> io::Result<()> {
        let object = object_of(found);
        if self.devices.borrow().get(path).is_some_and(|device| *device != object.0) {
            return Err(io::Error::other(COVERED));
        }
        let known = self.known.borrow().get(path).copied();
        match known {
            Some(known) if known != object => {
                Err(io::Error::other("it was replaced on the host meanwhile"))
            }
            None if learn => {
                self.known.borrow_mut().insert(path.to_owned(), object);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A directory of the image was on this device: on another one, something is mounted over it,
    /// and what is written there would be gone with the mount.
    pub fn expect(&self, path: &Path, device: u64) {
        if self.devices.borrow_mut().insert(path.to_owned(), device).is_none() {
            // One that was opened before has not been asked.
            self.opened.borrow_mut().remove(path);
            self.last.borrow_mut().take_if(|(last, _)| last == path);
        }
    }

    /// What is at `path` now is what `hold` is to find there.
    pub fn pin(&self, path: &Path) {
        if let Ok(Some(found)) = self.identity(path) {
            self.known.borrow_mut().insert(path.to_owned(), found.object());
        }
    }

    /// What is at and below `path` is another thing by now.
    fn forget(&self, path: &Path) {
        self.last.borrow_mut().take_if(|(last, _)| last.starts_with(path));
        forget_below(&mut self.opened.borrow_mut(), path);
        forget_below(&mut self.known.borrow_mut(), path);
    }

    /// The directory that holds `path`, and its name there.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Arc<File>, &'p OsStr)> {
        if path.as_os_str().len() >= self.path_bytes_max {
            return Err(Errno::NAMETOOLONG.into());
        }
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((self.directory(parent)?, name)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The same, for any thread.
    pub fn at(&self, path: &Path) -> io::Result<Place> {
        let (directory, name) = self.place(path)?;
        Ok(Place { directory, name: name.to_owned() })
    }

    /// The same of a `name` in a `directory`.
    pub fn within(&self, directory: &Path, name: &OsStr) -> io::Result<Place> {
        if directory.as_os_str().len() + 1 + name.len() >= self.path_bytes_max {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(Place { directory: self.directory(directory)?, name: name.to_owned() })
    }

    // ---- looking --------------------------------------------------------------------------------

    /// What is at `path`, not followed; `None`: nothing.
    pub fn found(&self, path: &Path) -> io::Result<Option<Metadata>> {
        missing(self.held(path).map(|held| held.found().clone()))
    }

    /// Its identity.
    pub fn identity(&self, path: &Path) -> io::Result<Option<HostIdentity>> {
        Ok(self.glance(path)?.map(|found| found.identity))
    }

    /// The same, and whether it is a directory: one host call.
    pub fn glance(&self, path: &Path) -> io::Result<Option<Glance>> {
        if self.is_root(path) {
            return Ok(self.found(path)?.map(|found| Glance::of(&found)));
        }
        let looked = self.place(path).and_then(|(directory, name)| glance(&directory, name));
        missing(match looked {
            Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {
                self.held(path).map(|held| Glance::of(held.found()))
            }
            other => other,
        })
    }

    fn is_root(&self, path: &Path) -> bool {
        let same =
            |root: &PathBuf| root.as_os_str().len() == path.as_os_str().len() && root == path;
        self.roots.iter().any(same)
    }

    /// Whether there is a directory, not a link to one, that can be opened.
    pub fn is_directory(&self, path: &Path) -> bool {
        let there = self.glance(path);
        there.is_ok_and(|there| there.is_some_and(|one| one.directory))
            && self.directory(path).is_ok()
    }

    /// The same as `hold`; `None`: nothing is there.
    pub fn hold_if_there(&self, path: &Path) -> io::Result<Option<Held>> {
        missing(self.hold(path))
    }

    /// A descriptor of what is at `path`, whatever it is, if it is what was `pin`ned.
    pub fn hold(&self, path: &Path) -> io::Result<Held> {
        let held = self.held(path)?;
        self.compare(path, held.found(), false)?;
        Ok(held)
    }

    fn held(&self, path: &Path) -> io::Result<Held> {
        if self.is_root(path) {
            return Held::of_path(self.directory(path)?.try_clone()?);
        }
        let (directory, name) = self.place(path)?;
        before("openat")?;
        Held::of_path(match openat(&directory, name, ANYTHING, Mode::empty()) {
            Err(Errno::ACCESS) => owned(directory.as_fd(), name, ANYTHING, NO_LINKS)?,
            other => File::from(other?),
        })
    }

    /// Whether names can come into the directory at `path` and never go (`chattr +a`).
    pub fn is_append_only(&self, path: &Path) -> io::Result<bool> {
        let directory = self.directory(path)?;
        before("statx")?;
        let found = statx(&*directory, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
        Ok(found.stx_attributes.contains(StatxAttributes::APPEND))
    }

    /// What to type where nobody can change what is at `path` (`chattr +i`).
    pub fn immutable_in_words(&self, path: &Path, problem: &io::Error) -> Option<String> {
        let refused = problem.raw_os_error() == Some(Errno::PERM.raw_os_error());
        let (directory, name) = self.place(path).ok().filter(|_| refused)?;
        before("statx").ok()?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let found = statx(&directory, name, flags, StatxFlags::empty()).ok()?;
        let immutable = found.stx_attributes.contains(StatxAttributes::IMMUTABLE);
        let path = typed(path);
        immutable.then(|| format!("it is immutable: chattr -i {path}, and try again"))
    }

    /// The regular file at `path`, for reading.
    pub fn read(&self, path: &Path) -> io::Result<File> {
        self.held(path)?.read()
    }

    /// The names in the directory at `path`.
    pub fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        names_in(&*self.directory(path)?)
    }

    /// The regular file at `path`, for reading and for writing at its end.
    pub fn open_to_append(&self, path: &Path) -> io::Result<Held> {
        let (directory, name) = self.place(path)?;
        open_to_append(&directory, name)
    }

    // ---- making ---------------------------------------------------------------------------------

    /// A new file, mode 0600.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        let (directory, name) = self.place(path)?;
        create(&directory, name)
    }

    /// A new directory, mode 0700.
    pub fn make_directory(&self, path: &Path) -> io::Result<Held> {
        let (directory, name) = self.place(path)?;
        let moment = Moment::now();
        before("mkdirat")?;
        mkdirat(&directory, name, Mode::from_raw_mode(0o700))?;
        self.forget(path);
        // Until it is seen to be the new one, what has the name is not ours to remove.
        self.known.borrow_mut().insert(path.to_owned(), NOBODYS);
        let opened = self.open(path)?;
        let made = Held::of_path(opened.try_clone()?)?;
        if !fresh::is_fresh(&directory, &opened, &moment)? {
            return Err(taken());
        }
        self.known.borrow_mut().insert(path.to_owned(), object_of(made.found()));
        self.keep_open(path, &opened);
        Ok(made)
    }

    /// A new link to `target`.
    pub fn make_symlink(&self, target: &Path, path: &Path) -> io::Result<Held> {
        let (directory, name) = self.place(path)?;
        before("symlinkat")?;
        symlinkat(target, &directory, name)?;
        let made = self.hold(path)?;
        let same = made.found().is_symlink() && made.read_link()? == target;
        self.is_new(path, made.found())?;
        if same { Ok(made) } else { Err(taken()) }
    }

    /// A new FIFO, socket or device.
    pub fn make_special(&self, path: &Path, kind: FileType, device: u64) -> io::Result<Held> {
        let (directory, name) = self.place(path)?;
        before("mknodat")?;
        mknodat(&directory, name, kind, Mode::from_raw_mode(0o600), device)?;
        let made = self.hold(path)?;
        self.is_new(path, made.found())?;
        let same = FileType::from_raw_mode(made.found().mode()) == kind;
        if same { Ok(made) } else { Err(taken()) }
    }

    /// Invariant 3.
    fn is_new(&self, path: &Path, found: &Metadata) -> io::Result<()> {
        let own = rustix::process::geteuid().as_raw();
        let is_owned = || {
            let (directory, _) = self.place(path)?;
            Ok::<_, io::Error>(found.uid() == own || found.uid() == fresh::probe(&directory)?.uid())
        };
        if !found.is_dir() && found.nlink() == 1 && is_owned()? { Ok(()) } else { Err(taken()) }
    }

    /// Gives what is `held` another name.
    pub fn link(&self, held: &Held, path: &Path) -> io::Result<()> {
        let (directory, name) = self.place(path)?;
        before("linkat")?;
        Ok(linkat(CWD, held.through(), &directory, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    // ---- moving and removing --------------------------------------------------------------------

    /// `renameat2`, or other calls that come to the same, or nearly (`lesser`), on file systems
    /// without the flag.
    pub fn rename(&self, source: &Path, target: &Path, flags: RenameFlags) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.place(source)?, self.place(target)?);
        let call = if flags.is_empty() { "renameat" } else { "renameat2" };
        let renamed = before(call).and_then(|()| match super::lacking::flags() {
            true if !flags.is_empty() => Err(Errno::INVAL.into()),
            _ => Ok(renameat_with(&from, old, &to, new, flags)?),
        });
        let renamed = match renamed {
            Err(problem) if lacks_flag(&problem) && flags == RenameFlags::NOREPLACE => {
                lesser::rename_to_free((&from, old), (&to, new))
            }
            Err(problem) if lacks_flag(&problem) && flags == RenameFlags::EXCHANGE => {
                lesser::exchange((&from, old), (&to, new))
            }
            other => other,
        };
        if renamed.is_ok() {
            self.forget(source);
            self.forget(target);
            // A server that is asked twice, as its first answer was lost, has nothing to rename.
            before("renameat2, done")?;
        }
        renamed
    }

    /// Removes what is no directory.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.place(path)?;
        before("unlinkat")?;
        Ok(unlinkat(&directory, name, AtFlags::empty())?)
    }

    /// Removes anything, unwritable directories of ours too; missing is fine. A directory that has
    /// not been opened by this name only if it is empty.
    pub fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let known = self.known.borrow().get(path).copied();
        match known {
            Some(known) => self.remove_tree_of(path, known),
            None => missing(self.remove_shallow(path)).map(drop),
        }
    }

    /// The same; a directory only if it is this one.
    pub fn remove_tree_of(&self, path: &Path, which: Object) -> io::Result<()> {
        let Some((directory, name)) = missing(self.place(path))? else { return Ok(()) };
        self.forget(path);
        remove_below(directory.as_fd(), name, Some(which))
    }

    /// Removes what has nothing below it, whatever it is. Whoever can put something under this
    /// name could remove it, too.
    pub fn remove_shallow(&self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.place(path)?;
        self.forget(path);
        before("unlinkat")?;
        match unlinkat(&directory, name, AtFlags::empty()) {
            // As in `remove_below`.
            Err(Errno::ISDIR | Errno::PERM) => {
                before("unlinkat")?;
                Ok(unlinkat(&directory, name, AtFlags::REMOVEDIR)?)
            }
            other => Ok(other?),
        }
    }

    // ---- making durable -------------------------------------------------------------------------

    /// Makes names in the directory at `path` durable.
    pub fn sync_directory(&self, path: &Path) -> io::Result<()> {
        sync(&self.open_to_sync(path)?)
    }

    /// The directory at `path`, to be made durable later.
    pub fn open_to_sync(&self, path: &Path) -> io::Result<File> {
        readable(self.directory(path)?.as_fd())
    }
}

/// Takes out what is known of `path`, and of what is below it.
pub fn forget_below<T>(all: &mut BTreeMap<PathBuf, T>, path: &Path) {
    let below = all.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
    let below = below.map(|(one, _)| one).take_while(|one| one.starts_with(path));
    for one in below.cloned().collect::<Vec<_>>() {
        all.remove(&one);
    }
}

/// Device and inode of what was `found`.
pub fn object_of(found: &Metadata) -> Object {
    (found.dev(), found.ino())
}

/// Whether that is what a file system says that knows no flags of `renameat2`.
pub fn lacks_flag(problem: &io::Error) -> bool {
    let errno = Errno::from_io_error(problem);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Writes all of `bytes` at `offset`.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    before("pwrite")?;
    file.write_all_at(bytes, offset)
}

/// Reads all of `into` at `offset`.
pub fn read_exact_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    before("pread")?;
    file.read_exact_at(into, offset)
}

/// Reads what comes in one go at `offset`.
pub fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    before("pread")?;
    file.read_at(into, offset)
}

/// Gives a file its length.
pub fn set_len(file: &File, size: u64) -> io::Result<()> {
    before("ftruncate")?;
    file.set_len(size)
}

/// Makes a file durable.
pub fn sync(file: &File) -> io::Result<()> {
    before_sync("fsync", file)?;
    file.sync_all()
}

/// Makes all of the file system durable that a file is on.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    before("syncfs")?;
    Ok(rustix::fs::syncfs(file)?)
}

fn taken() -> io::Error {
    io::Error::other("another program has taken its temporary name")
}

fn missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(problem) => match Errno::from_io_error(&problem) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            _ => Err(problem),
        },
    }
}

// ---- a name in an open directory ----------------------------------------------------------------

fn glance(directory: &File, name: &OsStr) -> io::Result<Glance> {
    before("fstatat")?;
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let ns = |seconds: i64, rest: u64| seconds * host::NS_PER_S + rest as i64;
    let identity = HostIdentity {
        device: found.st_dev,
        inode: found.st_ino,
        size: found.st_size as u64,
        modified_ns: ns(found.st_mtime, found.st_mtime_nsec),
        changed_ns: ns(found.st_ctime, found.st_ctime_nsec),
    };
    let rights = (found.st_mode & 0o7777, found.st_uid, found.st_gid);
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok(Glance::new(identity, kind, rights, found.st_nlink))
}

fn create(directory: &File, name: &OsStr) -> io::Result<File> {
    before("openat")?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let flags = flags | OFlags::CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::from_raw_mode(0o600))?))
}

fn open_to_append(directory: &File, name: &OsStr) -> io::Result<Held> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = |flags| {
        before("openat")?;
        Ok::<_, io::Error>(openat(directory, name, flags, Mode::empty())?)
    };
    // Only its owner may leave the time of its last access as it is.
    let opened = match open(flags | OFlags::NOATIME) {
        Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => open(flags),
        other => other,
    };
    let file = Held::of_file(File::from(opened?))?;
    if file.found().is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

fn names_in(directory: impl AsFd) -> io::Result<Vec<OsString>> {
    let entries = Dir::new(readable(directory.as_fd())?)?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

// ---- removing trees -----------------------------------------------------------------------------

/// Removes `name` in `parent`, with all below: recursion as deep as the tree, one descriptor a
/// level. `which`: the directory that it is.
fn remove_below(parent: BorrowedFd<'_>, name: &OsStr, which: Option<Object>) -> io::Result<()> {
    before("unlinkat")?;
    let directory = match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // POSIX has the second; what cannot be removed for another reason cannot be opened either.
        Err(Errno::ISDIR | Errno::PERM) => openat(parent, name, DIRECTORY, Mode::empty()),
        Err(problem) => return Err(problem.into()),
    };
    let directory = match directory {
        Err(Errno::NOTDIR) => return Err(Errno::PERM.into()),
        other => Held::of_path(File::from(other?))?,
    };
    if which.is_some_and(|which| which != object_of(directory.found())) {
        return Err(io::Error::other("another directory has taken its name"));
    }
    let emptied = match empty(&directory) {
        Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {
            // Closed by its owner, who is about to remove it.
            directory.unlock()?;
            empty(&directory)
        }
        other => other,
    };
    emptied?;
    before("unlinkat")?;
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(problem) => Err(problem.into()),
    }
}

fn empty(directory: &Held) -> io::Result<()> {
    names_in(directory)?.iter().try_for_each(|name| remove_below(directory.as_fd(), name, None))
}

/// A path that leads to the very object a descriptor is open on.
fn through(descriptor: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// Bytes of a path as the host gives it.
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&bytes))
}
