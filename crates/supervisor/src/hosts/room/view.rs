//! Home's files on another host, as a file system that is only read.
//!
//! ```text
//!   program ─call─► Linux ─/dev/fuse─► a thread here ─► names: a listing that home has sent
//!                                                   '─► bytes: this host's own file, if it is the
//!                                                       same one; the store; home
//! ```
//!
//! Invariants
//! 1. A number stands for the same bytes as long as the session lasts: a file that has changed at
//!    home has another one. So Linux keeps the pages of a file, whatever is looked up meanwhile.
//! 2. A listing is used until home says that it has changed, or for `TTL` where it is not watched.
//! 3. No thread here touches a path of the room: it would wait for itself.
//! 4. A file is opened only when all of its bytes are here and are those that home has digested.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};
use husk_abi::sys::general::{S_IFDIR, S_IFLNK};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, Result};
use sha2::{Digest as _, Sha256};

use super::asks::{Answer, Ask, Digest, Entry, Identity};
use super::home::{ENTRIES_MAX, FEW_BYTES, PIECE_BYTES};
use super::link::Link;
use super::store::Store;
use crate::hosts::fingerprint::known::is_ours;
use crate::hosts::session::guest::lock;

/// How long Linux may believe what it was told about a name.
const TTL: Duration = Duration::from_secs(1);
/// What Linux calls the root.
const ROOT: u64 = 1;
/// Pieces of a file that are on their way at once.
const AHEAD: usize = 4;
/// Most names of all listings, with one for each directory; and most digests: some 200 and 60 bytes
/// each.
const LISTED_MAX: usize = 1 << 18;
const DIGESTS_MAX: usize = 1 << 16;
/// Unit of `st_blocks`; what is best read at once.
const BLOCK: u64 = 512;
const BLOCK_BYTES: u32 = 4096;
/// The device of directories that home does not have.
const NOWHERE: u64 = u64::MAX;

/// Something that Linux knows the number of.
#[derive(Clone)]
struct Node {
    path: PathBuf,
    entry: Entry,
    parent: u64,
    looked_up: u64,
}

/// What a directory holds.
struct Listing {
    /// The number of the directory.
    of: u64,
    entries: BTreeMap<OsString, Entry>,
    since: Instant,
    watched: bool,
}

/// What is listed, by path, how many names that are, and how many changes home has told of.
#[derive(Default)]
struct Listings {
    all: HashMap<PathBuf, Arc<Listing>>,
    names: usize,
    changes: u64,
}

impl Listings {
    fn add(&mut self, path: PathBuf, listing: Arc<Listing>) {
        self.remove(&path);
        // A directory without names takes room, too.
        if self.names + self.all.len() >= LISTED_MAX {
            self.halve();
        }
        self.names += listing.entries.len();
        self.all.insert(path, listing);
    }

    fn remove(&mut self, path: &Path) {
        if let Some(listing) = self.all.remove(path) {
            self.names -= listing.entries.len();
        }
    }

    /// Forgets those that were asked for longest ago: home is asked again.
    fn halve(&mut self) {
        let mut all: Vec<_> =
            self.all.iter().map(|(path, one)| (one.since, path.clone())).collect();
        all.sort();
        all.truncate(all.len().div_ceil(2));
        all.iter().for_each(|(_, path)| self.remove(path));
    }

    fn clear(&mut self) {
        self.all.clear();
        self.names = 0;
    }
}

type Snapshot = Arc<Vec<(u64, FileType, OsString)>>;

/// What all threads share.
pub struct Shared {
    link: Arc<Link>,
    store: Arc<Store>,
    /// The root directory of this host.
    own: OwnedFd,
    /// Directories that are there even if home has none such: something is mounted there.
    kept: Vec<PathBuf>,
    listings: Mutex<Listings>,
    nodes: Mutex<HashMap<u64, Node>>,
    digests: Mutex<HashMap<u64, Digest>>,
    files: Mutex<HashMap<u64, Arc<File>>>,
    directories: Mutex<HashMap<u64, Snapshot>>,
    next: AtomicU64,
    /// Files that are being fetched.
    busy: Mutex<HashSet<u64>>,
    is_done: Condvar,
}

/// The file system.
pub struct View(pub Arc<Shared>);

impl Shared {
    /// What home shows over `link`; bytes are kept in `store`.
    pub fn new(link: Arc<Link>, store: Arc<Store>, own: OwnedFd, kept: Vec<PathBuf>) -> Shared {
        let root = Node { path: "/".into(), entry: directory(0), parent: ROOT, looked_up: 1 };
        Shared {
            link,
            store,
            own,
            kept,
            listings: Mutex::default(),
            nodes: Mutex::new(HashMap::from([(ROOT, root)])),
            digests: Mutex::default(),
            files: Mutex::default(),
            directories: Mutex::default(),
            next: AtomicU64::new(1),
            busy: Mutex::default(),
            is_done: Condvar::new(),
        }
    }

    /// Home says that a directory has changed; an empty path: any.
    pub fn changed(&self, path: &Path) {
        let mut listings = lock(&self.listings);
        listings.changes += 1;
        if path.as_os_str().is_empty() {
            listings.clear();
        } else {
            listings.remove(path);
        }
    }

    fn node(&self, number: u64) -> Result<Node> {
        lock(&self.nodes).get(&number).cloned().ok_or(Errno::STALE)
    }

    /// What a directory holds.
    fn listing(&self, number: u64, node: &Node) -> Result<Arc<Listing>> {
        let changes = {
            let listings = lock(&self.listings);
            let known = listings.all.get(&node.path).filter(|known| {
                known.of == number && (known.watched || known.since.elapsed() < TTL)
            });
            if let Some(known) = known {
                return Ok(known.clone());
            }
            listings.changes
        };
        let (entries, watched) = match node.entry.identity.device {
            NOWHERE => (BTreeMap::new(), true),
            _ => self.list(&node.path)?,
        };
        let listing = Arc::new(Listing { of: number, entries, since: Instant::now(), watched });
        let mut listings = lock(&self.listings);
        // What has changed meanwhile is listed again.
        if listings.changes == changes {
            listings.add(node.path.clone(), listing.clone());
        }
        Ok(listing)
    }

    /// What home says that a directory holds, and whether it says when that changes.
    fn list(&self, path: &Path) -> Result<(BTreeMap<OsString, Entry>, bool)> {
        let (mut entries, mut watched) = (BTreeMap::new(), true);
        let mut after = OsString::new();
        loop {
            let ask = Ask::List(path.to_owned(), after);
            let Answer::Listing { entries: some, more, watched: is_watched } =
                self.link.ask(&ask)?
            else {
                return Err(Errno::IO);
            };
            watched &= is_watched;
            after = some.last().map(|entry| entry.name.clone()).unwrap_or_default();
            let is_over = !more || some.is_empty();
            entries.extend(some.into_iter().map(|entry| (entry.name.clone(), entry)));
            if entries.len() > ENTRIES_MAX {
                return Err(Errno::OVERFLOW);
            }
            if is_over {
                return Ok((entries, watched));
            }
        }
    }

    /// What has this name; `None`: nothing has.
    fn find(&self, parent: u64, name: &OsStr) -> Result<Option<(PathBuf, Entry)>> {
        let node = self.node(parent)?;
        let path = node.path.join(name);
        let is_kept = || self.kept.iter().any(|kept| kept.starts_with(&path));
        let found = match self.listing(parent, &node) {
            Ok(listing) => listing.entries.get(name).cloned(),
            Err(Errno::ACCESS) if is_kept() => None,
            Err(errno) => return Err(errno),
        };
        let found = found.or_else(|| is_kept().then(|| directory(number_of(&path))));
        Ok(found.map(|entry| (path, entry)))
    }

    fn look_up(&self, parent: u64, name: &OsStr) -> Result<Option<FileAttr>> {
        let Some((path, entry)) = self.find(parent, name)? else { return Ok(None) };
        let number = entry.number(parent);
        let attributes = attributes(number, &entry);
        let mut nodes = lock(&self.nodes);
        let looked_up = nodes.get(&number).map_or(0, |node| node.looked_up) + 1;
        nodes.insert(number, Node { path, entry, parent, looked_up });
        Ok(Some(attributes))
    }

    fn forget(&self, number: u64, count: u64) {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get_mut(&number).filter(|_| number != ROOT) {
            node.looked_up = node.looked_up.saturating_sub(count);
            if node.looked_up == 0 {
                nodes.remove(&number);
            }
        }
    }

    fn snapshot(&self, number: u64) -> Result<Snapshot> {
        let node = self.node(number)?;
        let listing = self.listing(number, &node)?;
        let own = [(number, "."), (node.parent, "..")];
        let own = own.map(|(number, name)| (number, FileType::Directory, OsString::from(name)));
        let named = listing.entries.values();
        let named = named.map(|entry| (entry.number(number), kind(entry), entry.name.clone()));
        Ok(Arc::new(own.into_iter().chain(named).collect()))
    }

    /// Opens a file, one at a time.
    fn open(&self, number: u64) -> Result<File> {
        let node = self.node(number)?;
        let mut busy = lock(&self.busy);
        while !busy.insert(number) {
            busy = self.is_done.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        drop(busy);
        let opened = self.bytes(number, &node);
        lock(&self.busy).remove(&number);
        self.is_done.notify_all();
        if opened.is_err()
            && let Some(parent) = node.path.parent()
        {
            // Linux looks up a name again that led to what is no more.
            self.changed(parent);
        }
        opened
    }

    /// All bytes of a file.
    fn bytes(&self, number: u64, node: &Node) -> Result<File> {
        let identity = &node.entry.identity;
        let own = self.own_file(&node.path, identity.size);
        let own = own.and_then(|own| self.store.own(&node.path, own));
        let known = lock(&self.digests).get(&number).copied();
        let (digest, few) = match known.or_else(|| self.store.digest(identity)) {
            Some(digest) => (digest, None),
            None => {
                let few = own.is_none() && identity.size <= FEW_BYTES;
                let told = self.link.ask(&Ask::Digest(node.path.clone(), *identity, few))?;
                let Answer::Digest(digest, few) = told else { return Err(Errno::IO) };
                self.store.note_digest(identity, &digest);
                (digest, few)
            }
        };
        if known.is_none() {
            let mut digests = lock(&self.digests);
            if digests.len() >= DIGESTS_MAX {
                digests.clear();
            }
            digests.insert(number, digest);
        }
        if let Some((_, own)) = own.filter(|(own, _)| *own == digest) {
            return Ok(own);
        }
        match self.store.get(&digest, identity.size) {
            Some(file) => Ok(file),
            None => self.fetch(&node.path, identity, &digest, few),
        }
    }

    /// This host's own file at `path`, if it has so many bytes, and nobody but root and this user
    /// can change them.
    fn own_file(&self, path: &Path, size: u64) -> Option<File> {
        let path = path.strip_prefix("/").ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(&self.own, path, flags, Mode::empty(), resolve).ok()?);
        let found = file.metadata().ok()?;
        let is_safe = found.uid() == 0 && found.mode() & 0o022 == 0 || is_ours(&found);
        (found.is_file() && found.len() == size && is_safe).then_some(file)
    }

    fn fetch(
        &self,
        path: &Path,
        identity: &Identity,
        digest: &Digest,
        few: Option<Vec<u8>>,
    ) -> Result<File> {
        let failed = |problem: std::io::Error| Errno::from_io_error(&problem).unwrap_or(Errno::IO);
        let mut coming = self.store.begin(identity.size).map_err(failed)?;
        if let Some(few) = few {
            return coming.add(&few).and_then(|()| self.store.end(coming, digest)).map_err(failed);
        }
        let mut offsets = (0..identity.size).step_by(PIECE_BYTES as usize);
        let ask = |offset| self.link.begin(&Ask::Read(path.to_owned(), *identity, offset));
        let mut asked: VecDeque<_> = offsets.by_ref().take(AHEAD).map(ask).collect();
        while let Some(piece) = asked.pop_front() {
            let added = match piece.wait() {
                Ok(Answer::Bytes(bytes)) => coming.add(&bytes).map_err(failed),
                Ok(_) => Err(Errno::IO),
                Err(errno) => Err(errno),
            };
            added?;
            asked.extend(offsets.next().map(ask));
        }
        self.store.end(coming, digest).map_err(failed)
    }

    fn add<T>(&self, to: &Mutex<HashMap<u64, T>>, one: T) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        lock(to).insert(handle, one);
        FileHandle(handle)
    }
}

/// A directory that home does not have, or the root.
fn directory(inode: u64) -> Entry {
    let identity = Identity { device: NOWHERE, inode, ..Identity::default() };
    let identity = if inode == 0 { Identity::default() } else { identity };
    let (mode, target) = (S_IFDIR | 0o755, OsString::new());
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Entry { name: "/".into(), mode, owner, links: 2, identity, target }
}

fn number_of(path: &Path) -> u64 {
    let digest: Digest = Sha256::digest(path.as_os_str().as_bytes()).into();
    let (first, _) = digest.split_first_chunk().expect("32 bytes");
    u64::from_le_bytes(*first) | 1
}

fn kind(entry: &Entry) -> FileType {
    if entry.is(S_IFDIR) {
        FileType::Directory
    } else if entry.is(S_IFLNK) {
        FileType::Symlink
    } else {
        FileType::RegularFile
    }
}

fn attributes(number: u64, entry: &Entry) -> FileAttr {
    let Identity { size, modified_ns, changed_ns, .. } = entry.identity;
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks: size.div_ceil(BLOCK),
        atime: time(modified_ns),
        mtime: time(modified_ns),
        ctime: time(changed_ns),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(entry),
        perm: (entry.mode & 0o7777) as u16,
        nlink: entry.links,
        uid: entry.owner.0,
        gid: entry.owner.1,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn time(ns: i64) -> SystemTime {
    let part = Duration::from_nanos(ns.unsigned_abs());
    let whole = match ns {
        0.. => SystemTime::UNIX_EPOCH.checked_add(part),
        _ => SystemTime::UNIX_EPOCH.checked_sub(part),
    };
    whole.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn in_fuse(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

impl Filesystem for View {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Where Linux has them not it does without.
        let wanted = [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_CACHE_SYMLINKS];
        for one in wanted {
            let _ = config.add_capabilities(one);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.look_up(parent.0, name) {
            Ok(Some(found)) => reply.entry(&TTL, &found, Generation(0)),
            // Linux need not ask again whether it is there.
            Ok(None) => reply.entry(&TTL, &attributes(0, &directory(0)), Generation(0)),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.0.forget(number.0, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.node(number.0) {
            Ok(node) => reply.attr(&TTL, &attributes(number.0, &node.entry)),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.0.node(number.0) {
            Ok(node) => reply.data(node.entry.target.as_bytes()),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open(number.0) {
            Ok(file) => {
                let handle = self.0.add(&self.0.files, Arc::new(file));
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = lock(&self.0.files).get(&handle.0).cloned();
        let Some(file) = file else { return reply.error(in_fuse(Errno::BADF)) };
        let (mut bytes, mut got) = (vec![0; size as usize], 0);
        while got < bytes.len() {
            match file.read_at(&mut bytes[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return reply.error(in_fuse(Errno::IO)),
            }
        }
        reply.data(&bytes[..got]);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.0.files).remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.snapshot(number.0) {
            Ok(snapshot) => {
                reply.opened(self.0.add(&self.0.directories, snapshot), FopenFlags::empty());
            }
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let snapshot = lock(&self.0.directories).get(&handle.0).cloned();
        let Some(snapshot) = snapshot else { return reply.error(in_fuse(Errno::BADF)) };
        for (index, (number, kind, name)) in snapshot.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*number), index as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.0.directories).remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: usize) -> Arc<Listing> {
        let entries = (0..names).map(|name| (OsString::from(name.to_string()), directory(1)));
        let since = Instant::now();
        Arc::new(Listing { of: 1, entries: entries.collect(), since, watched: true })
    }

    #[test]
    fn however_many_directories_are_listed_the_names_that_are_kept_have_a_bound() {
        let mut listings = Listings::default();
        for number in 0..200 {
            listings.add(PathBuf::from(format!("/{number}")), listing(LISTED_MAX / 50));
            listings.add(PathBuf::from(format!("/{number}")), listing(LISTED_MAX / 50));
            let names: usize = listings.all.values().map(|listing| listing.entries.len()).sum();
            assert_eq!(names, listings.names);
            assert!(names <= LISTED_MAX + LISTED_MAX / 50 && !listings.all.is_empty());
            assert!(listings.all.contains_key(Path::new(&format!("/{number}"))), "the newest one");
        }
        listings.remove(Path::new("/none"));
        listings.clear();
        assert_eq!(listings.names, 0);
    }
}
