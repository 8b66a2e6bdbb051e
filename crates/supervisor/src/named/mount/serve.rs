//! The server of a mount: a program of the image that answers the host's kernel with ordinary calls
//! on files, which Husk's kernels answer.
//!
//! ```text
//!   a host program ─call─► host's kernel ─/dev/fuse─► a thread here ─call─► gate, kernels
//! ```
//!
//! Invariants
//! 1. The host's kernel keeps nothing: names and attributes are asked for each time (`TTL`), and
//!    bytes are read and written here (direct I/O). So each side sees what the other did at once.
//!    What a host program has mapped is the exception.
//! 2. What is appended goes to the end as it is at that moment (`RWF_APPEND`), whoever else appends
//!    to it.
//! 3. No call here reaches what is mounted: who asks for the mount sees to that (`point`).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use husk_abi::sys::general::{SEEK_DATA, SEEK_HOLE};
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, fstat, openat,
};
use rustix::io::{Errno, ReadWriteFlags, Result};

use super::attributes::{joint, kind_of, kind_of_entry, of_found};
use super::nodes::Nodes;

/// How long the host's kernel may believe what it was told.
const TTL: Duration = Duration::ZERO;
/// Most that is written at once.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Longest list or value of extended attributes.
const EXTENDED_BYTES_MAX: usize = 64 << 10;
/// What of a program's flags holds here; to append is said with each write.
const OPEN_FLAGS: OFlags = OFlags::RWMODE.union(OFlags::SYNC).union(OFlags::NOATIME);
/// Added to them where a file is made.
const CREATE_FLAGS: OFlags = OFlags::EXCL.union(OFlags::TRUNC);

/// What is shown of an image.
pub struct Shown {
    nodes: Nodes,
    files: Handles<File>,
    directories: Handles<Directory>,
}

/// What the host's kernel has open.
struct Handles<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

struct File {
    number: u64,
    descriptor: Arc<OwnedFd>,
}

struct Directory {
    number: u64,
    /// `None`: a joint.
    descriptor: Option<OwnedFd>,
    /// As it was at the last beginning.
    listing: Mutex<Vec<(u64, FileType, OsString)>>,
}

impl<T> Handles<T> {
    fn new() -> Handles<T> {
        Handles { next: AtomicU64::new(1), open: Mutex::new(HashMap::new()) }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<T>>> {
        // No change of it stops half-way.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, one: T) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.table().insert(handle, Arc::new(one));
        FileHandle(handle)
    }

    fn get(&self, handle: FileHandle) -> Result<Arc<T>> {
        self.table().get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    fn remove(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.table().remove(&handle.0)
    }
}

/// What a reply takes for an error.
fn in_fuse(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Replies that say nothing but whether it went well.
fn reply_done(reply: ReplyEmpty, done: Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(in_fuse(errno)),
    }
}

fn reply_entry(reply: ReplyEntry, found: Result<FileAttr>) {
    match found {
        Ok(found) => reply.entry(&TTL, &found, Generation(0)),
        Err(errno) => reply.error(in_fuse(errno)),
    }
}

fn reply_attributes(reply: ReplyAttr, found: Result<FileAttr>) {
    match found {
        Ok(found) => reply.attr(&TTL, &found),
        Err(errno) => reply.error(in_fuse(errno)),
    }
}

/// `value`, or its length, as asked.
fn reply_extended(reply: ReplyXattr, value: Result<Vec<u8>>, room: u32) {
    match value {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= room as usize => reply.data(&value),
        Ok(_) => reply.error(in_fuse(Errno::RANGE)),
        Err(errno) => reply.error(in_fuse(errno)),
    }
}

/// A path to what `descriptor` stands for.
fn path_of(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

fn mode_of(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o7777)
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, UTIME_OMIT),
        Some(TimeOrNow::Now) => (0, UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (after.as_secs() as i64, i64::from(after.subsec_nanos())),
            Err(before) => {
                let before = before.duration();
                let up = i64::from(before.subsec_nanos() > 0);
                let nanoseconds = i64::from(before.subsec_nanos());
                (-(before.as_secs() as i64) - up, up * 1_000_000_000 - nanoseconds)
            }
        },
    };
    Timespec { tv_sec, tv_nsec }
}

impl Shown {
    /// What `nodes` lead to.
    pub fn new(nodes: Nodes) -> Shown {
        Shown { nodes, files: Handles::new(), directories: Handles::new() }
    }

    fn attributes(&self, number: u64, found: Option<Stat>) -> FileAttr {
        found.map_or_else(|| joint(number), |found| of_found(number, &found))
    }

    fn look(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let (number, found) = self.nodes.look_up(parent, name)?;
        Ok(self.attributes(number, found))
    }

    /// What an open file, or else what has this number, is reached by.
    fn reach(&self, number: u64, handle: Option<FileHandle>) -> Result<Arc<OwnedFd>> {
        match handle.and_then(|handle| self.files.get(handle).ok()) {
            Some(file) => Ok(Arc::clone(&file.descriptor)),
            None => self.nodes.hold(number),
        }
    }

    fn stat(&self, number: u64, handle: Option<FileHandle>) -> Result<FileAttr> {
        if self.nodes.joint(number).is_some() {
            return Ok(joint(number));
        }
        Ok(of_found(number, &fstat(&*self.reach(number, handle)?)?))
    }

    /// A directory in which something is to change.
    fn directory(&self, number: u64) -> Result<Arc<OwnedFd>> {
        if self.nodes.joint(number).is_some() { Err(Errno::ROFS) } else { self.nodes.hold(number) }
    }

    /// A path to what has extended attributes; joints have none.
    fn extended(&self, number: u64) -> Result<(Arc<OwnedFd>, String)> {
        let joint = self.nodes.joint(number).is_some();
        let held = if joint { Err(Errno::OPNOTSUPP) } else { self.nodes.hold(number) }?;
        let path = path_of(&held);
        Ok((held, path))
    }

    /// Makes something in directory `parent`, and looks at it.
    fn make(
        &self,
        parent: u64,
        name: &OsStr,
        make: impl FnOnce(&OwnedFd) -> Result<()>,
    ) -> Result<FileAttr> {
        make(&*self.directory(parent)?)?;
        self.look(parent, name)
    }

    fn change_mode_owner(&self, held: &OwnedFd, change: &Change) -> Result<()> {
        if let Some(mode) = change.mode {
            rustix::fs::chmod(path_of(held), mode_of(mode))?;
        }
        if change.user.is_some() || change.group.is_some() {
            let user = change.user.map(Uid::from_raw);
            let group = change.group.map(Gid::from_raw);
            rustix::fs::chownat(held, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    fn change(&self, number: u64, handle: Option<FileHandle>, change: Change) -> Result<FileAttr> {
        self.directory(number)?;
        let held = self.reach(number, handle)?;
        self.change_mode_owner(&held, &change)?;
        if let Some(size) = change.size {
            match handle.and_then(|handle| self.files.get(handle).ok()) {
                Some(file) => rustix::fs::ftruncate(&*file.descriptor, size)?,
                None => {
                    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                    let opened = openat(CWD, path_of(&held), flags, Mode::empty())?;
                    rustix::fs::ftruncate(opened, size)?;
                }
            }
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let (last_access, last_modification) =
                (timespec(change.accessed), timespec(change.modified));
            let times = Timestamps { last_access, last_modification };
            rustix::fs::utimensat(&*held, "", &times, AtFlags::EMPTY_PATH)?;
        }
        self.stat(number, handle)
    }

    fn open_file(&self, number: u64, flags: OpenFlags) -> Result<FileHandle> {
        let held = self.nodes.hold(number)?;
        let flags = OFlags::from_bits_retain(flags.0 as u32) & OPEN_FLAGS | OFlags::CLOEXEC;
        let opened = openat(CWD, path_of(&held), flags, Mode::empty())?;
        Ok(self.opened(number, opened))
    }

    fn opened(&self, number: u64, descriptor: OwnedFd) -> FileHandle {
        let descriptor = Arc::new(descriptor);
        self.nodes.opened(number, &descriptor);
        self.files.add(File { number, descriptor })
    }

    fn create_file(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle)> {
        let directory = self.directory(parent)?;
        let flags = OFlags::from_bits_retain(flags as u32) & OPEN_FLAGS.union(CREATE_FLAGS);
        let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&*directory, name, flags, mode_of(mode))?;
        let found = fstat(&opened)?;
        let number = self.nodes.number_of(&found);
        self.nodes.seen(number, (parent, name), &directory, &found);
        Ok((of_found(number, &found), self.opened(number, opened)))
    }

    fn open_directory(&self, number: u64) -> Result<FileHandle> {
        let descriptor = match self.nodes.joint(number) {
            Some(_) => None,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Some(openat(&*self.nodes.hold(number)?, ".", flags, Mode::empty())?)
            }
        };
        Ok(self.directories.add(Directory { number, descriptor, listing: Mutex::default() }))
    }

    /// What a directory holds, from `offset` on; at the beginning it is listed anew.
    fn list(&self, handle: FileHandle, offset: u64, reply: &mut ReplyDirectory) -> Result<()> {
        let directory = self.directories.get(handle)?;
        let mut listing = directory.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *listing = match &directory.descriptor {
                Some(descriptor) => self.entries(descriptor)?,
                None => self.joint_entries(directory.number),
            };
        }
        let rest = listing.iter().enumerate().skip(offset as usize);
        for (index, (number, kind, name)) in rest {
            if reply.add(INodeNo(*number), index as u64 + 1, *kind, name) {
                break;
            }
        }
        Ok(())
    }

    fn entries(&self, descriptor: &OwnedFd) -> Result<Vec<(u64, FileType, OsString)>> {
        let device = rustix::fs::fstat(descriptor)?.st_dev;
        let mut entries = entries(descriptor)?;
        for (number, ..) in &mut entries {
            *number = self.nodes.number_on(device, *number);
        }
        Ok(entries)
    }

    fn joint_entries(&self, number: u64) -> Vec<(u64, FileType, OsString)> {
        let Some(joint) = self.nodes.joint(number) else { return Vec::new() };
        let own = [(number, OsString::from(".")), (joint.parent, OsString::from(".."))];
        let entries = joint.entries.iter().map(|(name, number)| (*number, name.clone()));
        own.into_iter().chain(entries).map(|(n, name)| (n, FileType::Directory, name)).collect()
    }

    fn write_bytes(
        &self,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        from_cache: bool,
        flags: OpenFlags,
    ) -> Result<usize> {
        let file = self.files.get(handle)?;
        let appends = OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::APPEND);
        // What was stored to a mapping has its place.
        let how = match appends && !from_cache {
            true => ReadWriteFlags::APPEND,
            false => ReadWriteFlags::empty(),
        };
        rustix::io::pwritev2(&*file.descriptor, &[IoSlice::new(data)], offset, how)
    }
}

/// What is to become of an object's attributes.
struct Change {
    mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
    size: Option<u64>,
    accessed: Option<TimeOrNow>,
    modified: Option<TimeOrNow>,
}

fn entries(descriptor: &OwnedFd) -> Result<Vec<(u64, FileType, OsString)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(descriptor)? {
        let entry = entry?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        let kind = kind_of_entry(entry.file_type()).or_else(|| {
            let found = rustix::fs::statat(descriptor, &name, AtFlags::SYMLINK_NOFOLLOW);
            found.ok().map(|found| kind_of(found.st_mode))
        });
        // One that has gone meanwhile is none.
        found.extend(kind.map(|kind| (entry.ino(), kind, name)));
    }
    Ok(found)
}

impl Filesystem for Shown {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel cannot is not asked for: shared mappings are ENODEV before 6.6.
        for wish in [InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(wish);
        }
        // Within what there is room for: cannot fail.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.look(parent.0, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.nodes.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(reply, self.stat(number.0, fh));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, user, group, size, accessed, modified };
        reply_attributes(reply, self.change(number.0, fh, change));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let held = self.nodes.hold(number.0);
        match held.and_then(|held| rustix::fs::readlinkat(&*held, "", Vec::new())) {
            Ok(target) => reply.data(target.to_bytes()),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let device = u64::from(device);
        reply_entry(
            reply,
            self.make(parent.0, name, |directory| {
                rustix::fs::mknodat(directory, name, kind, mode_of(mode), device)
            }),
        );
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self
            .make(parent.0, name, |directory| rustix::fs::mkdirat(directory, name, mode_of(mode)));
        reply_entry(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let directory = self.directory(parent.0);
        let remove = |at: Arc<OwnedFd>| rustix::fs::unlinkat(&*at, name, AtFlags::empty());
        reply_done(reply, directory.and_then(remove));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let directory = self.directory(parent.0);
        let remove = |at: Arc<OwnedFd>| rustix::fs::unlinkat(&*at, name, AtFlags::REMOVEDIR);
        reply_done(reply, directory.and_then(remove));
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made =
            self.make(parent.0, name, |directory| rustix::fs::symlinkat(target, directory, name));
        reply_entry(reply, made);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = RenameFlags::from_bits_retain(flags.bits());
        let both =
            self.directory(parent.0).and_then(|old| Ok((old, self.directory(new_parent.0)?)));
        let renamed = both.and_then(|(old, new)| match flags.is_empty() {
            true => rustix::fs::renameat(&*old, name, &*new, new_name),
            false => rustix::fs::renameat_with(&*old, name, &*new, new_name, flags),
        });
        reply_done(reply, renamed);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.nodes.hold(number.0).and_then(|held| {
            self.make(parent.0, name, |directory| {
                let follow = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, path_of(&held), directory, name, follow)
            })
        });
        reply_entry(reply, linked);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(number.0, flags) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(parent.0, name, mode, flags) {
            Ok((found, handle)) => {
                let flags = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&TTL, &found, Generation(0), handle, flags);
            }
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = self.files.get(fh).and_then(|file| {
            let got = rustix::io::pread(&*file.descriptor, &mut bytes[..], offset)?;
            Ok(got)
        });
        match read {
            Ok(got) => reply.data(&bytes[..got]),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let from_cache = how.contains(WriteFlags::FUSE_WRITE_CACHE);
        match self.write_bytes(fh, offset, data, from_cache, flags) {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(file) = self.files.remove(fh) {
            self.nodes.closed(file.number, &file.descriptor);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        let file = self.files.get(fh);
        reply_done(reply, file.and_then(|file| rustix::fs::fsync(&*file.descriptor)));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_directory(number.0) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list(fh, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.directories.remove(fh);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let held = match self.nodes.joint(number.0) {
            Some(_) => self.nodes.any_tree(),
            None => self.nodes.hold(number.0),
        };
        match held.and_then(|held| rustix::fs::fstatvfs(&*held)) {
            Ok(all) => reply.statfs(
                all.f_blocks,
                all.f_bfree,
                all.f_bavail,
                all.f_files,
                all.f_ffree,
                all.f_bsize as u32,
                all.f_namemax as u32,
                all.f_frsize as u32,
            ),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let set = self
            .extended(number.0)
            .and_then(|(_held, path)| rustix::fs::setxattr(path, name, value, flags));
        reply_done(reply, set);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let value = self.extended(number.0).and_then(|(_held, path)| {
            let mut value = vec![0; EXTENDED_BYTES_MAX];
            let length = rustix::fs::getxattr(path, name, &mut value[..])?;
            value.truncate(length);
            Ok(value)
        });
        reply_extended(reply, value, room);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        let names = self.extended(number.0).and_then(|(_held, path)| {
            let mut names = vec![0; EXTENDED_BYTES_MAX];
            let length = rustix::fs::listxattr(path, &mut names[..])?;
            names.truncate(length);
            Ok(names)
        });
        reply_extended(reply, names, room);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let extended = self.extended(number.0);
        let removed = extended.and_then(|(_held, path)| rustix::fs::removexattr(path, name));
        reply_done(reply, removed);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let file = self.files.get(fh);
        let done =
            file.and_then(|file| rustix::fs::fallocate(&*file.descriptor, mode, offset, length));
        reply_done(reply, done);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const DATA: i32 = SEEK_DATA as i32;
        const HOLE: i32 = SEEK_HOLE as i32;
        let place = match (u64::try_from(offset), whence) {
            (Ok(offset), DATA) => Ok(SeekFrom::Data(offset)),
            (Ok(offset), HOLE) => Ok(SeekFrom::Hole(offset)),
            _ => Err(Errno::INVAL),
        };
        let found = place.and_then(|place| {
            let file = self.files.get(fh)?;
            rustix::fs::seek(&*file.descriptor, place)
        });
        match found {
            Ok(found) => reply.offset(found as i64),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        source: FileHandle,
        mut from: u64,
        _: INodeNo,
        target: FileHandle,
        mut to: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = self.files.get(source).and_then(|source| {
            let target = self.files.get(target)?;
            let length = length.min(u64::from(u32::MAX)) as usize;
            let (source, target) = (&*source.descriptor, &*target.descriptor);
            rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), length)
        });
        match copied {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(in_fuse(errno)),
        }
    }
}
