//! Copies on disk: one file for each (file identity, rewriter, processor).
//!
//! ```text
//!   ~/.cache/husk/copies/                      0700, ours; root's: /var/cache/husk/copies, 0711;
//!                                              without a home: /var/tmp/husk-cache-UID/husk/copies
//!     v1-<rewriter>-<processor>/               copies of another rewriter or machine are not seen
//!       <device>-<inode>-<modified>-<size>         a copy, 0500; root's: 0555 if all may read
//!                                                  the file itself
//!       <device>-<inode>-<modified>-<size>.plain   nothing to patch: do not look again
//!       .<key>.<pid>.<n>                           being written
//! ```
//!
//! Invariants
//! 1. A name without a dot in front is complete: it arrives by rename. A torn one is never seen.
//! 2. A copy is of the bytes that identity had: it is checked before and after reading, and a file
//!    that changed a moment ago is refused, because a second change could keep its time.
//! 3. Only we can write to the directory. Who can write to it can run code in every program of the
//!    image. Programs that root starts may become other users, who map root's copies, too.
//! 4. At most [`STORE_BYTES_MAX`] and [`ENTRIES_MAX`]; what was not read for longest goes first. A
//!    removed copy stays with whoever has mapped it.
//!
//! Nothing is flushed to the disk: after a crash of the machine a copy may be short, so its length
//! is checked against the key when the store is opened.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::cpuid::{self, Table};
use crate::elf::FILE_BYTES_MAX;
use crate::version::REWRITER;

/// Most bytes of copies of all versions.
pub const STORE_BYTES_MAX: u64 = 2 << 30;
/// Most copies and markers of all versions.
pub const ENTRIES_MAX: usize = 1 << 16;
/// A file changed less than this ago is refused.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// A half-written file older than this has no writer any more.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
/// Suffix of the marker for a file without anything to patch.
const PLAIN: &str = ".plain";

/// Which bytes of which file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// Last modification, ns since the epoch.
    pub modified_ns: i64,
    /// Length, bytes.
    pub size: u64,
}

impl Identity {
    /// Identity of what the metadata describe.
    pub fn of(metadata: &fs::Metadata) -> Identity {
        let nanoseconds = metadata.mtime().wrapping_mul(1_000_000_000);
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_ns: nanoseconds.wrapping_add(metadata.mtime_nsec()),
            size: metadata.size(),
        }
    }

    /// Name of the copy: the four numbers in lower-case hex, joined by `-`.
    pub fn key(&self) -> String {
        format!("{:x}-{:x}-{:x}-{:x}", self.device, self.inode, self.modified_ns, self.size)
    }

    /// The identity with this key.
    pub fn from_key(key: &str) -> Option<Identity> {
        let mut parts = key.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let mut next = || parts.next().flatten();
        let identity = Identity {
            device: next()?,
            inode: next()?,
            modified_ns: next()?.cast_signed(),
            size: next()?,
        };
        // Only the one spelling that `key` makes.
        (identity.key() == key).then_some(identity)
    }
}

/// What became of a wish for a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The copy is there.
    Ready,
    /// Nothing to patch, now or ever: map the file itself.
    Plain,
    /// Not this time.
    Refused(String),
}

/// Why there is no store.
#[derive(Debug)]
pub enum Unusable {
    /// Neither `XDG_CACHE_HOME` nor `HOME` says where.
    Nowhere,
    /// Cannot be made or read.
    Io(PathBuf, io::Error),
    /// Belongs to somebody else.
    Foreign(PathBuf),
    /// Others may write to it.
    Open(PathBuf),
    /// On a file system from which nothing may be executed.
    NoExec(PathBuf),
}

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Nowhere => write!(out, "neither XDG_CACHE_HOME nor HOME is set"),
            Unusable::Io(path, error) => {
                let text = error.to_string();
                let why = text.split(" (os error").next().unwrap_or_default();
                write!(out, "{}: {}", path.display(), why.to_lowercase())
            }
            Unusable::Foreign(path) => write!(out, "{} is not yours", path.display()),
            Unusable::Open(path) => {
                write!(out, "{0} can be written by others: chmod go-w {0}", path.display())
            }
            Unusable::NoExec(path) => {
                write!(out, "{} is on a file system mounted noexec", path.display())
            }
        }
    }
}

impl std::error::Error for Unusable {}

/// The copies of this rewriter for this machine.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    copies: PathBuf,
    table: Option<Table>,
    bytes_max: u64,
    /// Whether other users map copies, too.
    shared: bool,
}

impl Store {
    /// Makes the directory of a store, if it is missing. An error: no store can be there.
    pub fn prepare(root: &Path) -> Result<(), Unusable> {
        make_own(root, rustix::process::geteuid().is_root())
    }

    /// Opens the store in a directory, which is made if it is missing.
    pub fn open(root: &Path) -> Result<Store, Unusable> {
        let table = Table::measure();
        let processor = table.as_ref().map_or(0, Table::signature);
        let copies = root.join(format!("v1-{REWRITER:016x}-{processor:016x}"));
        let shared = rustix::process::geteuid().is_root();
        make_own(root, shared)?;
        make_own(&copies, shared)?;
        let bytes_max = STORE_BYTES_MAX;
        let store = Store { root: root.to_owned(), copies, table, bytes_max, shared };
        store.clean().map_err(|error| Unusable::Io(store.copies.clone(), error))?;
        Ok(store)
    }

    /// Changes the bound on the bytes of all copies.
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Store {
        self.bytes_max = bytes_max;
        self
    }

    /// Directory of the copies, for whoever maps them.
    pub fn copies_path(&self) -> &Path {
        &self.copies
    }

    /// What there is: identity, and `Ready` or `Plain`.
    pub fn entries(&self) -> io::Result<Vec<(Identity, Outcome)>> {
        let names = fs::read_dir(&self.copies)?.filter_map(|entry| Some(entry.ok()?.file_name()));
        Ok(names.filter_map(|name| parse(&name)).collect())
    }

    /// Makes the copy of the file at `path` unless it is there. Blocks for the time of reading,
    /// decoding and writing the file (libc: some 30 ms).
    pub fn ensure(&self, path: &Path, identity: &Identity) -> Outcome {
        let key = identity.key();
        if self.copies.join(&key).exists() {
            return Outcome::Ready;
        }
        if self.copies.join(format!("{key}{PLAIN}")).exists() {
            return Outcome::Plain;
        }
        match self.make(path, identity) {
            Ok(true) => Outcome::Ready,
            Ok(false) => Outcome::Plain,
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }

    fn make(&self, path: &Path, identity: &Identity) -> io::Result<bool> {
        let mut bytes = read_settled(path, identity)?;
        let key = identity.key();
        // What is refused now is refused for ever: these bytes do not change.
        let table = self.table.as_ref().filter(|_| cpuid::is_loader(&bytes));
        let table = table.filter(|table| table.holds_everywhere());
        let changed = crate::make_copy(&mut bytes, table).unwrap_or(false);
        if changed {
            let mode = if self.shared && is_everybodys(path, identity) { 0o555 } else { 0o500 };
            self.publish(&key, &bytes, mode)?;
        } else {
            self.publish(&format!("{key}{PLAIN}"), &[], 0o400)?;
        }
        // A store that cannot be trimmed is no reason not to use the copy.
        let _ = self.trim(Some(OsStr::new(&key)));
        Ok(changed)
    }

    fn publish(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let draft = self.copies.join(format!(".{name}.{}.{number}", std::process::id()));
        let written = write_draft(&draft, bytes, mode)
            .and_then(|()| fs::rename(&draft, self.copies.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Removes torn copies and abandoned drafts, and enforces the bounds.
    fn clean(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.copies)? {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else { continue };
            let name = entry.file_name();
            let torn = match parse(&name) {
                Some((identity, Outcome::Ready)) => metadata.len() != identity.size,
                Some(_) => false,
                None => name.as_encoded_bytes().starts_with(b".") && is_abandoned(&metadata),
            };
            if torn {
                fs::remove_file(entry.path())?;
            }
        }
        self.trim(None)
    }

    /// Removes what was not read for longest until the bounds hold; never `keep`.
    fn trim(&self, keep: Option<&OsStr>) -> io::Result<()> {
        let mut files = self.all_files()?;
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let mut count = files.len();
        files.sort_by_key(|file| file.used_ns);
        for file in files {
            if bytes <= self.bytes_max && count <= ENTRIES_MAX {
                break;
            }
            let kept = keep.is_some() && file.path.file_name() == keep;
            if !kept && fs::remove_file(&file.path).is_ok() {
                bytes -= file.bytes;
                count -= 1;
            }
        }
        Ok(())
    }

    /// Copies and markers of all versions.
    fn all_files(&self) -> io::Result<Vec<Stored>> {
        let mut files = Vec::new();
        for version in fs::read_dir(&self.root)? {
            let version = version?;
            let ours = version.file_name().as_encoded_bytes().starts_with(b"v1-");
            if !ours || !version.file_type()?.is_dir() {
                continue;
            }
            for entry in fs::read_dir(version.path())? {
                let entry = entry?;
                if parse(&entry.file_name()).is_some()
                    && let Ok(metadata) = entry.metadata()
                {
                    files.push(Stored::new(entry.path(), &metadata));
                }
            }
        }
        Ok(files)
    }
}

struct Stored {
    path: PathBuf,
    bytes: u64,
    used_ns: i128,
}

impl Stored {
    fn new(path: PathBuf, metadata: &fs::Metadata) -> Stored {
        let time = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let read = time(metadata.atime(), metadata.atime_nsec());
        let written = time(metadata.mtime(), metadata.mtime_nsec());
        Stored { path, bytes: metadata.len(), used_ns: read.max(written) }
    }
}

fn parse(name: &OsStr) -> Option<(Identity, Outcome)> {
    let name = name.to_str()?;
    match name.strip_suffix(PLAIN) {
        Some(key) => Some((Identity::from_key(key)?, Outcome::Plain)),
        None => Some((Identity::from_key(name)?, Outcome::Ready)),
    }
}

fn is_abandoned(metadata: &fs::Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > ABANDONED_AFTER)
}

/// Whether all users can reach and read this file, which is at `path`.
fn is_everybodys(path: &Path, identity: &Identity) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    let readable = |found: &fs::Metadata| found.mode() & 0o004 != 0;
    let passable = |found: &fs::Metadata| found.mode() & 0o001 != 0;
    // Somebody may have put another file there meanwhile.
    let same = |found: &fs::Metadata| Identity::of(found) == *identity;
    fs::symlink_metadata(&path).is_ok_and(|found| same(&found) && readable(&found))
        && path.ancestors().skip(1).all(|above| fs::metadata(above).is_ok_and(|it| passable(&it)))
}

/// Invariant 3. Other users find a copy in a `shared` directory by its name alone.
fn make_own(path: &Path, shared: bool) -> Result<(), Unusable> {
    let failed = |error| Unusable::Io(path.to_owned(), error);
    let mode = if shared { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(Unusable::Foreign(path.to_owned()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(Unusable::Open(path.to_owned()));
    }
    if shared && metadata.mode() & 0o111 != 0o111 {
        // It was made privately, or under a strict umask: only root's programs could map copies.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() | mode));
    }
    let system = rustix::fs::statvfs(path).map_err(|error| failed(error.into()))?;
    if system.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
        return Err(Unusable::NoExec(path.to_owned()));
    }
    Ok(())
}

/// Invariant 2.
fn read_settled(path: &Path, identity: &Identity) -> io::Result<Vec<u8>> {
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
    let mut file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    let metadata = check_identity(&file, identity)?;
    if identity.size > FILE_BYTES_MAX as u64 {
        return Err(io::Error::other("file too large"));
    }
    let changed = Duration::new(metadata.ctime().max(metadata.mtime()).max(0).cast_unsigned(), 0)
        + Duration::from_nanos(last_change_ns(&metadata));
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed);
    if age.is_ok_and(|age| age < SETTLED_AFTER) {
        return Err(io::Error::other("changed a moment ago"));
    }
    let mut bytes = Vec::with_capacity(identity.size as usize);
    (&mut file).take(identity.size).read_to_end(&mut bytes)?;
    check_identity(&file, identity)?;
    if bytes.len() as u64 != identity.size {
        return Err(io::Error::other("file is shorter than its size"));
    }
    Ok(bytes)
}

fn last_change_ns(metadata: &fs::Metadata) -> u64 {
    let (modified, changed) = (metadata.mtime(), metadata.ctime());
    let ns = match modified.cmp(&changed) {
        std::cmp::Ordering::Greater => metadata.mtime_nsec(),
        std::cmp::Ordering::Less => metadata.ctime_nsec(),
        std::cmp::Ordering::Equal => metadata.mtime_nsec().max(metadata.ctime_nsec()),
    };
    ns.cast_unsigned()
}

fn check_identity(file: &File, identity: &Identity) -> io::Result<fs::Metadata> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if Identity::of(&metadata) != *identity {
        return Err(io::Error::other("not the file that was asked for: it has changed"));
    }
    Ok(metadata)
}

fn write_draft(draft: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}
