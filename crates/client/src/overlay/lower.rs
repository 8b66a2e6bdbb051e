//! The host's side of an overlay: reading listings, copying files up, shadows.
//!
//! ```text
//!   unlisted directory ── getdents64, statx, readlink ──► import (batches)
//!   host-backed file   ── data (SEEK_DATA, pread) into a nameless file ──► adopt
//!   shadow descriptor of a file copied up meanwhile   ──► a Husk descriptor, same number
//! ```
//! Invariant: a listing is complete before `import_done`; a copy is complete before `adopt`; a
//! death in between leaves the directory unlisted and the file on the host.
//!
//! Who asks has the rights that the image's mode gives. The host's may be another (`chmod`), and a
//! directory is removed or moved without any: so what belongs to who asks is opened with its
//! owner's rights where the host says `EACCES` (`Host::call_as_owner`). What that does not open,
//! and what a user namespace shows otherwise, is asked for (`fetcher`).

use crate::layout::{get16, get32, get64};
use crate::{Client, Host, Memory, layout};
use husk_abi::sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, F_GETFL, F_SETFD, FD_CLOEXEC,
    O_CLOEXEC, O_DIRECTORY, O_NOATIME, O_NOFOLLOW, O_PATH, RESOLVE_NO_SYMLINKS, S_IFBLK, S_IFCHR,
    S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE,
    STATX_BTIME,
};
use husk_abi::{NAME_MAX, PATH_MAX, nr};
use husk_proto::descriptor::Slot;
use husk_proto::fetch::Fetch;
use husk_proto::fs::{Backing, HostIdentity, Imported, Kind, Place};
use husk_proto::image::{OWN_NAMES, Rewritten};
use husk_proto::{Credentials, Description, Errno, Inode, Result, Services};

/// Name of the files that the supervisor looks at when they are first seen.
const REMEMBERED: &[u8] = b"index";
/// How often, and how long, a listing waits until that was looked at.
const REMEMBERING_LOOKS: u32 = 50;
const REMEMBERING_TRIES: u32 = 5;
const REMEMBERING_LOOK_NS: u64 = 2_000_000;
/// Names offered with one operation.
const BATCH: usize = 16;
/// Bytes copied up with one operation.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of `bounce` that take the host's listing; the rest takes link targets.
const LISTING_BYTES: usize = 8192;

/// Longest file of the host that is copied up without a look for holes, if it takes its room.
const SHORT_BYTES: u64 = 64 << 10;

/// How long a file of the host is, and how much of it is there.
pub(crate) struct Extent {
    size: u64,
    allocated: u64,
}

/// One name of a host listing, as places in the buffers.
#[derive(Clone, Copy)]
pub(crate) struct Fact {
    name: (usize, usize),
    target: (usize, usize),
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub identity: HostIdentity,
    accessed_ns: i64,
    born_ns: i64,
    blocks_512: u64,
    links: u32,
    device: u32,
}

impl Fact {
    /// As what the image imports by this name; `target`: of a symlink.
    fn imported<'a>(&self, name: &'a [u8], target: &'a [u8]) -> Imported<'a> {
        Imported {
            name,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            identity: self.identity,
            accessed_ns: self.accessed_ns,
            born_ns: self.born_ns,
            blocks_512: self.blocks_512,
            links: self.links,
            device: self.device,
            target,
        }
    }

    /// The same by the name `bounce[from..end]`, as what is the host's whatever the image does.
    pub fn as_portal(self, from: usize, end: usize) -> Fact {
        Fact { name: (from, end), kind: Kind::Portal, ..self }
    }
}

const UNSEEN: HostIdentity =
    HostIdentity { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 };

const NO_FACT: Fact = Fact {
    name: (0, 0),
    target: (0, 0),
    kind: Kind::Portal,
    mode: 0,
    uid: 0,
    gid: 0,
    identity: UNSEEN,
    accessed_ns: 0,
    born_ns: 0,
    blocks_512: 0,
    links: 1,
    device: 0,
};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Reads the host listing of an unlisted directory into the image.
    #[cold]
    pub(crate) fn import(&mut self, directory: Inode) -> Result<()> {
        match self.import_from_host(directory) {
            // Somebody else has listed it, and it is not there any more (`husk sync`).
            Err(_) if !self.services.step(directory)?.unlisted => Ok(()),
            other => other,
        }
    }

    /// Reads the host listing of a directory, if nobody has, for another node that asks.
    pub fn list_for_others(&mut self, directory: Inode) -> Result<()> {
        if self.services.step(directory)?.unlisted { self.import(directory) } else { Ok(()) }
    }

    /// Makes the first `keep` bytes of a file the image's own, for another node.
    pub fn own_for_others(&mut self, inode: Inode, keep: u64) -> Result<()> {
        self.identify();
        self.make_image(inode, keep)
    }

    /// Looks at the host's file behind `inode` again, for another node that has found it changed.
    pub fn renew_for_others(&mut self, inode: Inode) -> Result<()> {
        let Some(origin) = self.services.attributes(inode)?.origin else { return Ok(()) };
        let fd = self.open_origin(origin, O_NOFOLLOW | O_PATH | O_CLOEXEC)?;
        let renewed = self.renew_from(inode, origin, fd);
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        renewed.map(|_| ())
    }

    fn import_from_host(&mut self, directory: Inode) -> Result<()> {
        let attributes = self.services.attributes(directory)?;
        let Some(origin) = attributes.origin else {
            return self.services.import_done(directory);
        };
        if self.sees_other_ids() && self.fetch(Fetch::List, directory, b"").is_ok() {
            return Ok(());
        }
        let owner = attributes.step.uid;
        let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        let fd = match self.open_owned(owner, origin, flags) {
            Err(Errno::EACCES) if self.may_lack_rights() => {
                return self.fetch_instead(directory);
            }
            other => other?,
        };
        self.lower.lists_own = self.is_owner(owner);
        let lists = self.import_lists(directory, Some(fd));
        let result = lists.and_then(|()| self.import_listing(directory, fd));
        self.lower.lists_own = false;
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        match result {
            // What is this one's right to see is not what there is.
            Err(Errno::EACCES) => self.fetch_instead(directory),
            other if other? => self.services.import_done(directory),
            _ => Ok(()),
        }
    }

    /// A directory the caller may search but not list: reads the one name `walk[start..end]`.
    #[cold]
    pub(crate) fn import_name(
        &mut self,
        directory: Inode,
        w: usize,
        (start, end): (usize, usize),
    ) -> Result<()> {
        let length = end - start;
        if self.sees_other_ids() {
            let mut name = [0; NAME_MAX];
            name[..length].copy_from_slice(&self.buffers.walks[w].text[start..end]);
            if self.fetch(Fetch::Name, directory, &name[..length]).is_ok() {
                return Ok(());
            }
        }
        self.buffers.bounce[..length].copy_from_slice(&self.buffers.walks[w].text[start..end]);
        self.import_named(directory, length)
    }

    /// The same of the name in the first `length` bytes of `bounce`.
    pub(crate) fn import_named(&mut self, directory: Inode, length: usize) -> Result<()> {
        let origin = self.services.attributes(directory)?.origin.ok_or(Errno::EACCES)?;
        let mut name = [0; NAME_MAX];
        name[..length].copy_from_slice(&self.buffers.bounce[..length]);
        self.import_lists(directory, None)?;
        self.buffers.bounce[..length].copy_from_slice(&name[..length]);
        self.buffers.bounce[length] = 0;
        let fd = self.open_origin(origin, O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC)?;
        let result = self.import_fact(directory, fd, length);
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        match result {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    fn import_fact(&mut self, directory: Inode, fd: usize, length: usize) -> Result<()> {
        let device = self.host_fact(fd, None)?.identity.device;
        let name = self.buffers.bounce.as_ptr() as usize;
        let mut fact = self.host_fact(fd, Some(name))?;
        self.own_ids(&mut fact)?;
        if fact.identity.device != device && fact.kind != Kind::Symlink {
            fact.kind = Kind::Portal;
        }
        fact.name = (0, length);
        if fact.kind == Kind::Symlink {
            let size = self.host_link(fd, name, LISTING_BYTES)?;
            fact.target = (LISTING_BYTES, LISTING_BYTES + size);
        }
        self.offer(directory, &[fact]).map(|_| ())
    }

    /// Opens the host object behind `origin` for reading.
    pub(crate) fn open_origin(
        &mut self,
        origin: husk_proto::fs::Origin,
        flags: u32,
    ) -> Result<usize> {
        let path = self.origin_text(origin)?;
        self.host_open(path, flags)
    }

    /// `open_origin` of what belongs to `owner`.
    pub(crate) fn open_owned(
        &mut self,
        owner: u32,
        origin: husk_proto::fs::Origin,
        flags: u32,
    ) -> Result<usize> {
        match self.open_origin(origin, flags) {
            Err(Errno::EACCES) if self.is_owner(owner) => {
                let path = self.origin_text(origin)?;
                let args = [AT_FDCWD as usize, path, flags as usize, 0, 0, 0];
                Errno::check(self.host.call_as_owner(nr::openat, args)).map(|fd| fd as usize)
            }
            other => other,
        }
    }

    /// The same of what the image lets this program have.
    pub(crate) fn open_allowed(
        &mut self,
        (inode, owner): (Inode, u32),
        origin: husk_proto::fs::Origin,
        flags: u32,
    ) -> Result<usize> {
        match self.open_owned(owner, origin, flags) {
            Err(Errno::EACCES) => self.open_fetched(inode, flags),
            Err(Errno::ENOENT | Errno::ENOTDIR) => self.open_moved(inode, origin, flags),
            other => other,
        }
    }

    /// Opens a host file that is to be copied. The copy is no access that its times should show,
    /// which only its owner can ask for.
    fn open_to_copy(
        &mut self,
        (inode, owner): (Inode, u32),
        origin: husk_proto::fs::Origin,
    ) -> Result<usize> {
        const FLAGS: u32 = O_NOFOLLOW | O_CLOEXEC;
        self.identify();
        if owner == self.identity.uid && !self.identity.foreign {
            let opened = self.open_allowed((inode, owner), origin, FLAGS | O_NOATIME);
            if opened != Err(Errno::EPERM) {
                return opened;
            }
        }
        self.open_allowed((inode, owner), origin, FLAGS)
    }

    /// Whether who asks owns what `owner` does, and has no rights over files but an owner's.
    fn is_owner(&mut self, owner: u32) -> bool {
        self.identify();
        owner == self.identity.uid && owner != 0 && !self.identity.foreign
    }

    /// The same where no link is to be followed, and `F_GETFL` is to show these flags alone. On a
    /// host that lets nobody ask so, it shows `O_NOFOLLOW` besides.
    pub(crate) fn open_unlinked(
        &mut self,
        origin: husk_proto::fs::Origin,
        flags: u32,
    ) -> Result<usize> {
        let path = self.origin_text(origin)?;
        let how = [u64::from(flags), 0, u64::from(RESOLVE_NO_SYMLINKS)];
        let how = core::hint::black_box(how);
        let (address, size) = (how.as_ptr() as usize, size_of_val(&how));
        let fd = self.host.call(nr::openat2, [AT_FDCWD as usize, path, address, size, 0, 0]);
        match Errno::check(fd) {
            // A directory above may be a link by now: it is the last name that must be none.
            Err(Errno::ENOSYS | Errno::EPERM | Errno::ELOOP) => {
                self.open_origin(origin, flags | O_NOFOLLOW)
            }
            other => other.map(|fd| fd as usize),
        }
    }

    /// The address of the path of a host object, as a string.
    pub(crate) fn origin_text(&mut self, origin: husk_proto::fs::Origin) -> Result<usize> {
        let length = self.services.host_path(origin, &mut self.buffers.link[..PATH_MAX])?;
        self.buffers.link[length.min(PATH_MAX)] = 0;
        Ok(self.buffers.link.as_ptr() as usize)
    }

    /// `Ok(false)`: somebody else has completed the listing.
    fn import_listing(&mut self, directory: Inode, fd: usize) -> Result<bool> {
        let device = self.host_fact(fd, None)?.identity.device;
        loop {
            let bounce = self.buffers.bounce.as_mut_ptr() as usize;
            let raw = self.host.call(nr::getdents64, [fd, bounce, LISTING_BYTES, 0, 0, 0]);
            let length = Errno::check(raw)? as usize;
            if length == 0 {
                return Ok(true);
            }
            let mut at = 0;
            while at < length {
                if !self.import_batch(directory, fd, device, &mut at, length)? {
                    return Ok(false);
                }
            }
        }
    }

    /// Offers up to `BATCH` names of the listing in `bounce[at..length]`.
    fn import_batch(
        &mut self,
        directory: Inode,
        fd: usize,
        device: u64,
        at: &mut usize,
        length: usize,
    ) -> Result<bool> {
        let mut facts = [NO_FACT; BATCH];
        let (mut count, mut targets) = (0, LISTING_BYTES);
        while *at < length && count < BATCH && self.buffers.bounce.len() - targets >= PATH_MAX {
            let record = usize::from(get16(&self.buffers.bounce, *at + 16));
            let start = *at + 19;
            let area = &self.buffers.bounce[start..*at + record];
            let end = start + area.iter().position(|&b| b == 0).unwrap_or(area.len());
            *at += record;
            let name = &self.buffers.bounce[start..end];
            if matches!(name, b"." | b"..") || name.starts_with(OWN_NAMES) {
                continue;
            }
            let name = self.buffers.bounce[start..].as_ptr() as usize;
            let number = get64(&self.buffers.bounce, start - 19);
            let identity = HostIdentity { device, inode: number, ..UNSEEN };
            let Some(mut fact) = self.listed_fact(fd, name, identity)? else { continue };
            if self.buffers.bounce[start..end] == *REMEMBERED && fact.kind == Kind::File {
                for _ in 0..REMEMBERING_TRIES {
                    if self.ask_to_remember_in(directory, &fact.identity) {
                        break;
                    }
                    // Another one has its name by now.
                    fact = self.listed_fact(fd, name, identity)?.unwrap_or(fact);
                }
            }
            if fact.identity.device != device && fact.kind != Kind::Symlink {
                fact.kind = Kind::Portal;
            }
            fact.name = (start, end);
            if fact.kind == Kind::Symlink {
                let size = match self.host_link(fd, name, targets) {
                    Err(Errno::EACCES) => return Err(Errno::EACCES),
                    Err(_) => continue,
                    Ok(size) => size,
                };
                fact.target = (targets, targets + size);
                targets += size;
            }
            facts[count] = fact;
            count += 1;
        }
        self.offer(directory, &facts[..count])
    }

    /// What a listing's name is; `None`: it is gone. `EACCES`: it is there, and not to be seen.
    /// Then the fetcher says that it is, and no more.
    fn listed_fact(
        &mut self,
        fd: usize,
        name: usize,
        identity: HostIdentity,
    ) -> Result<Option<Fact>> {
        match self.host_fact(fd, Some(name)) {
            Err(Errno::EACCES) if self.lower.is_fetcher => Ok(Some(Fact { identity, ..NO_FACT })),
            Err(Errno::EACCES) => Err(Errno::EACCES),
            Err(_) => Ok(None),
            Ok(mut fact) => self.own_ids(&mut fact).map(|()| Some(fact)),
        }
    }

    /// The same as `ask_to_remember`, of an index in this directory.
    #[cold]
    fn ask_to_remember_in(&mut self, directory: Inode, found: &HostIdentity) -> bool {
        let Ok(Some(origin)) = self.services.attributes(directory).map(|found| found.origin) else {
            return true;
        };
        let path = &mut self.buffers.link;
        let room = PATH_MAX - REMEMBERED.len() - 1;
        let Ok(length) = self.services.host_path(origin, &mut path[..room]) else { return true };
        path[length] = b'/';
        let end = length + 1 + REMEMBERED.len();
        path[length + 1..end].copy_from_slice(REMEMBERED);
        self.ask_to_remember(end, found)
    }

    /// What the index of git at `link[..end]` says now decides at write-back who has changed more
    /// of it. Whether it was still the one that was found, as far as is known.
    fn ask_to_remember(&mut self, end: usize, found: &HostIdentity) -> bool {
        self.services.request_remembered(found, &self.buffers.link[..end]);
        // The next command of the host may put another one there.
        for _ in 0..REMEMBERING_LOOKS {
            match self.services.rewritten(&found.remembered()) {
                Rewritten::Ready => return true,
                Rewritten::Plain => return false,
                _ => self.nap(REMEMBERING_LOOK_NS),
            }
        }
        true
    }

    fn host_link(&mut self, fd: usize, name: usize, at: usize) -> Result<usize> {
        let out = self.buffers.bounce[at..].as_mut_ptr() as usize;
        let room = self.buffers.bounce.len() - at;
        let args = [fd, name, out, room.min(PATH_MAX), 0, 0];
        self.call_in_listing(nr::readlinkat, args).map(|size| size as usize)
    }

    /// `statx` of `name` in `fd`, or of `fd` itself.
    pub(crate) fn host_fact(&self, fd: usize, name: Option<usize>) -> Result<Fact> {
        let empty = [0u8];
        let flags = match name {
            Some(_) => AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
            None => AT_EMPTY_PATH,
        };
        self.host_fact_at(fd, name.unwrap_or(empty.as_ptr() as usize), flags)
    }

    /// `statx` of `path` with `flags`.
    #[inline]
    pub(crate) fn host_fact_at(&self, fd: usize, path: usize, flags: u32) -> Result<Fact> {
        let mut out = [0u8; crate::layout::STATX_BYTES];
        let args = [fd, path, flags as usize, 0xfff, out.as_mut_ptr() as usize, 0];
        self.call_in_listing(nr::statx, args)?;
        Ok(read_fact(&core::hint::black_box(out)))
    }

    /// A look at a name, also in a directory that its owner may not search.
    #[inline]
    fn call_in_listing(&self, number: usize, args: [usize; 6]) -> Result<u64> {
        match Errno::check(self.host.call(number, args)) {
            Err(Errno::EACCES) if self.lower.lists_own => {
                Errno::check(self.host.call_as_owner(number, args))
            }
            other => other,
        }
    }

    pub(crate) fn offer(&mut self, directory: Inode, facts: &[Fact]) -> Result<bool> {
        if facts.is_empty() {
            return Ok(true);
        }
        let bytes = &self.buffers.bounce;
        let entries: [Imported<'_>; BATCH] = core::array::from_fn(|i| {
            let fact = facts.get(i).unwrap_or(&NO_FACT);
            let piece = |(from, to): (usize, usize)| &bytes[from..to];
            fact.imported(piece(fact.name), piece(fact.target))
        });
        self.services.import(directory, &entries[..facts.len()])
    }

    /// Makes the first `keep` bytes of a host-backed file the image's own.
    pub(crate) fn make_image(&mut self, inode: Inode, keep: u64) -> Result<()> {
        let attributes = self.services.attributes(inode)?;
        if attributes.backing == Backing::Image || attributes.step.kind != Kind::File {
            return Ok(());
        }
        if self.services.is_elsewhere(inode) {
            return self.services.own_elsewhere(inode, keep);
        }
        let groups = &self.buffers.groups;
        let all = self.identity.credentials(groups);
        let who = Credentials { capabilities: u64::MAX, within: None, ..all };
        let donor = self.services.create_nameless(&who, inode, 0o600, false)?;
        let origin = attributes.origin.ok_or(Errno::EIO)?;
        let result = self.fill_donor((inode, donor), (attributes.step.uid, origin), keep);
        let result = result.and_then(|()| self.services.adopt(inode, donor));
        self.services.unpin(donor);
        match result {
            // Somebody else was first, and the host's is not there any more (`husk sync`).
            Err(_) if self.services.attributes(inode)?.backing == Backing::Image => Ok(()),
            Err(errno) => {
                if errno == Errno::ENOSPC {
                    self.services.note_too_long();
                }
                Err(errno)
            }
            Ok(_) => Ok(()),
        }
    }

    /// As many bytes as the host's file has now, which need not be those of the first look.
    fn fill_donor(
        &mut self,
        (inode, donor): (Inode, Inode),
        (owner, origin): (u32, husk_proto::fs::Origin),
        keep: u64,
    ) -> Result<()> {
        if keep == 0 {
            return self.take_capabilities_over(inode);
        }
        let fd = self.open_to_copy((inode, owner), origin)?;
        let result = self.renew_from(inode, origin, fd).and_then(|found| {
            self.take_capabilities_from(inode, fd)?;
            if found.size <= SHORT_BYTES && found.allocated >= found.size {
                // Without holes: nothing is to be asked.
                self.memory.ready()?;
                return self.copy_piece(fd, donor, 0, found.size.min(keep));
            }
            let size = self.host_seek(fd, 0, SEEK_END)?;
            self.copy_up(fd, donor, size.min(keep))
        });
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        result
    }

    /// The host's file behind `inode` is open as `fd`: size and times of the image are those of its
    /// bytes from now on. Its number stays, which who opens it may have looked at before.
    #[inline]
    pub(crate) fn renew_from(
        &mut self,
        inode: Inode,
        origin: husk_proto::fs::Origin,
        fd: usize,
    ) -> Result<Extent> {
        // `statx` of a descriptor costs the host more, and says no more of this.
        let stat = self.host_stat(fd)?;
        let identity = layout::identity(&stat);
        if identity != self.services.host_identity(origin)? {
            self.renew_changed(inode, fd)?;
            self.remember_renewed(origin, &identity);
        }
        Ok(Extent { size: identity.size, allocated: layout::allocated_bytes(&stat) })
    }

    /// If an index of git is another one now, it is remembered as the first one was.
    #[cold]
    fn remember_renewed(&mut self, origin: husk_proto::fs::Origin, found: &HostIdentity) {
        let room = &mut self.buffers.link[..PATH_MAX];
        let Ok(end) = self.services.host_path(origin, room) else { return };
        let name = self.buffers.link[..end].rsplit(|&byte| byte == b'/').next();
        if name == Some(REMEMBERED) {
            self.ask_to_remember(end, found);
        }
    }

    #[cold]
    fn renew_changed(&mut self, inode: Inode, fd: usize) -> Result<()> {
        if self.sees_other_ids() && self.fetch(Fetch::Renew, inode, b"").is_ok() {
            return Ok(());
        }
        let mut fact = self.host_fact(fd, None)?;
        if self.own_ids(&mut fact).is_err() {
            let known = self.services.step(inode)?;
            (fact.uid, fact.gid) = (known.uid, known.gid);
        }
        self.services.renew(inode, &fact.imported(b"", b""), false).map(|_| ())
    }

    /// Copies what the host's file has data for; its holes stay holes.
    pub(crate) fn copy_up(&mut self, fd: usize, donor: Inode, size: u64) -> Result<()> {
        self.memory.ready()?;
        let mut end = 0;
        while let Some(start) = self.host_data(fd, end, size)? {
            end = self.host_hole(fd, start, size);
            self.copy_piece(fd, donor, start, end)?;
        }
        if self.services.attributes(donor)?.size < size {
            self.services.truncate(donor, size)?;
        }
        // A file that has lost its end meanwhile shows a hole there.
        match self.host_seek(fd, 0, SEEK_END) {
            Ok(there) if there < size => Err(Errno::EIO),
            _ => Ok(()),
        }
    }

    pub(crate) fn host_seek(&self, fd: usize, offset: u64, whence: u32) -> Result<u64> {
        let args = [fd, offset as usize, whence as usize, 0, 0, 0];
        Errno::check(self.host.call(nr::lseek, args))
    }

    /// Where the next data at or after `offset` begins; `None`: there is none before `size`. Where
    /// the host cannot tell, all of it is data.
    fn host_data(&self, fd: usize, offset: u64, size: u64) -> Result<Option<u64>> {
        let start = match self.host_seek(fd, offset, SEEK_DATA) {
            Err(Errno::ENXIO) => return Ok(None),
            other => other.unwrap_or(offset).max(offset),
        };
        Ok((start < size).then_some(start))
    }

    /// Where the data that begins at `start` ends, `size` at the latest.
    fn host_hole(&self, fd: usize, start: u64, size: u64) -> u64 {
        match self.host_seek(fd, start, SEEK_HOLE) {
            Ok(end) if end > start => end.min(size),
            _ => size,
        }
    }

    fn copy_piece(&mut self, fd: usize, donor: Inode, start: u64, end: u64) -> Result<()> {
        let host = &self.host;
        let mut offset = start;
        while offset < end {
            let mut at = offset;
            let length = (end - offset).min(CHUNK_BYTES) as usize;
            let mut copy = |span: husk_proto::fs::Span| {
                let mut done = 0;
                while done < span.length {
                    let (address, rest) = (span.address + done, span.length - done);
                    let args = [fd, address, rest, at as usize, 0, 0];
                    let got = Errno::check(host.call(nr::pread64, args))? as usize;
                    if got == 0 {
                        return Err(Errno::EIO);
                    }
                    done += got;
                    at += got as u64;
                }
                Ok(())
            };
            let (_, count) = self.services.write(donor, Place::At(offset), length, &mut copy)?;
            if count == 0 {
                return Err(Errno::EIO);
            }
            offset += count as u64;
        }
        Ok(())
    }

    /// The Husk description behind `fd`. A shadow whose file the image now holds becomes one.
    /// `EBADF`: Husk keeps the number for itself.
    #[inline]
    pub(crate) fn described(&mut self, fd: usize) -> Result<Option<Description>> {
        let files = self.services.files();
        match self.services.slot(files, fd as u32) {
            Slot::Husk(description) => Ok(Some(description)),
            Slot::Host(Some(inode)) => self.refresh_shadow(fd, inode),
            _ if self.is_kept(fd as u32) => Err(Errno::EBADF),
            _ => Ok(None),
        }
    }

    fn refresh_shadow(&mut self, fd: usize, inode: Inode) -> Result<Option<Description>> {
        match self.services.attributes(inode) {
            Ok(a) if a.backing == Backing::Image && a.step.kind == Kind::File => {
                self.promote(fd, inode).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Like `described`, but copies the file of a shadow up first (locks need it in the image).
    pub(crate) fn described_in_image(&mut self, fd: usize) -> Result<Option<Description>> {
        let files = self.services.files();
        match self.services.slot(files, fd as u32) {
            Slot::Husk(description) => Ok(Some(description)),
            Slot::Host(Some(inode)) => {
                if self.is_special(inode) {
                    return Ok(None);
                }
                self.identify();
                self.make_image(inode, u64::MAX)?;
                self.promote(fd, inode).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Turns the shadow `fd` into a Husk descriptor under the same number, at the same offset. The
    /// host's stays behind as the plug.
    #[cold]
    fn promote(&mut self, fd: usize, inode: Inode) -> Result<Description> {
        let files = self.services.files();
        let offset = self.host.call(nr::lseek, [fd, 0, SEEK_CUR as usize, 0, 0, 0]).max(0) as u64;
        let flags = self.host_fcntl(fd, F_GETFL, 0).max(0) as u32;
        self.host_fcntl(fd, F_SETFD, FD_CLOEXEC as usize);
        self.services.promote(files, fd as u32, inode, flags, offset)
    }
}

/// What a `struct statx` says about a host object.
fn read_fact(out: &[u8]) -> Fact {
    let time = |at: usize| {
        let seconds = get64(out, at) as i64;
        seconds.saturating_mul(crate::layout::SECOND_NS) + i64::from(get32(out, at + 8))
    };
    let mode = u32::from(get16(out, 28));
    let kind = match mode & S_IFMT {
        S_IFREG => Kind::File,
        S_IFDIR => Kind::Directory,
        S_IFLNK => Kind::Symlink,
        S_IFIFO => Kind::Fifo,
        S_IFSOCK => Kind::Socket,
        S_IFCHR => Kind::CharacterDevice,
        S_IFBLK => Kind::BlockDevice,
        _ => Kind::Portal,
    };
    Fact {
        kind,
        mode: mode & 0o7777,
        uid: get32(out, 20),
        gid: get32(out, 24),
        identity: HostIdentity {
            device: crate::layout::device(get32(out, 136), get32(out, 140)),
            inode: get64(out, 32),
            size: get64(out, 40),
            modified_ns: time(112),
            changed_ns: time(96),
        },
        accessed_ns: time(64),
        born_ns: if get32(out, 0) & STATX_BTIME != 0 { time(80) } else { 0 },
        blocks_512: get64(out, 48),
        links: get32(out, 16),
        device: crate::layout::device(get32(out, 128), get32(out, 132)) as u32,
        ..NO_FACT
    }
}
