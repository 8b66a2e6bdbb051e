//! `open` and its kin.
//!
//! ```text
//!   nothing there     ── create_open                       (O_CREAT)
//!   image's file      ── open
//!   host-backed, read ── a host descriptor, noted as shadow
//!   host-backed, write── copy up, then open
//!   portal, host path ── the host opens
//!   FIFO              ── the host opens the one behind it (`fifo`)
//!   the host's FIFO or device ── the host opens it, and the descriptor shows the image's node
//!   socket, device of the image ── refused: they are names only
//! ```

use crate::path::magic_links::Proc;
use crate::path::openat2::{How, SCOPE};
use crate::path::{Aim, Last, Lead, Spot};
use crate::reason;
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::{
    AT_FDCWD, FASYNC, IN_OPEN, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY,
    O_EXCL, O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_SYNC, O_TMPFILE, O_TRUNC,
    O_WRONLY, RESOLVE_CACHED, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use husk_abi::{PAGE, nr};
use husk_proto::descriptor::Shown;
use husk_proto::fs::{Backing, Kind, masked, want};
use husk_proto::{Credentials, Errno, Inode, Result, Services};

/// Times a creation is tried again when the name comes and goes.
const CREATE_TRIES: usize = 8;
/// The bit of `O_TMPFILE` beside `O_DIRECTORY`.
const TMPFILE_BIT: u32 = O_TMPFILE & !O_DIRECTORY;
/// Flags that a descriptor of a host file shows when it was opened with them.
const SHOWN_OF_HOST: u32 = FASYNC | O_APPEND | O_NOATIME | O_NOFOLLOW | O_NONBLOCK | O_SYNC;
/// Flags `openat2` knows.
const KNOWN_FLAGS: u64 = 0x7f_ffc3 | 0x40_0000;
/// Bytes of the first `struct open_how`.
const OPEN_HOW_BYTES: usize = 24;
/// Resolve flags the kernel knows.
const KNOWN_RESOLVE: u64 =
    SCOPE | (RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_CACHED) as u64;
/// Flags that go with `O_PATH`.
const PATH_FLAGS: u32 = O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;

/// Whether Linux has something to say against these fields of `struct open_how`.
fn is_odd(flags: u64, mode: u64, resolve: u64) -> bool {
    let creates = flags as u32 & (O_CREAT | TMPFILE_BIT) != 0;
    let place_only = flags as u32 & O_PATH != 0;
    flags & !KNOWN_FLAGS != 0
        || mode & !0o7777 != 0
        || (mode != 0 && !creates)
        || (place_only && flags as u32 & !PATH_FLAGS != 0)
        || resolve & !KNOWN_RESOLVE != 0
        || resolve & SCOPE == SCOPE
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `open`, `openat`, `creat`.
    pub(crate) fn open(&mut self, c: &Call, spot: Spot, flags: usize, mode: usize) -> Answer {
        let flags = checked_flags(flags as u32 & KNOWN_FLAGS as u32)?;
        let mode = if flags & (O_CREAT | TMPFILE_BIT) != 0 { mode as u32 & 0o7777 } else { 0 };
        for _ in 0..CREATE_TRIES {
            match self.open_once(c, spot, flags, mode) {
                Err(Errno::EEXIST) if flags & O_EXCL == 0 && flags & O_CREAT != 0 => {}
                Err(errno) => return Err(self.failed(errno)),
                other => return other,
            }
        }
        Err(Errno::EEXIST)
    }

    /// What an open fails of that its walk says this of: Linux takes a number before it walks, and
    /// looks at nothing else when there is none.
    #[inline(never)]
    fn failed(&mut self, errno: Errno) -> Errno {
        let unread = matches!(errno, Errno::EFAULT | Errno::ENAMETOOLONG | Errno::EMFILE);
        if unread || self.buffers.walks[0].length == 0 {
            return errno;
        }
        self.need_numbers(1).err().unwrap_or(errno)
    }

    fn open_once(&mut self, c: &Call, spot: Spot, flags: u32, mode: u32) -> Answer {
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let follow = flags & O_NOFOLLOW == 0 && !exclusive;
        let create = flags & O_CREAT != 0;
        let absent = flags & (O_CREAT | TMPFILE_BIT) == 0;
        let aim = Aim { follow, slash: true, create, absent, ..Aim::default() };
        match self.locate(c, 0, spot, aim)? {
            lead @ (Lead::Husk | Lead::Elsewhere) => self.open_ours(lead, flags, mode),
            Lead::Host => self.open_hosts(c, spot, flags, follow),
        }
    }

    /// The host is to open it with the application's own arguments.
    fn open_hosts(&mut self, c: &Call, spot: Spot, flags: u32, follow: bool) -> Answer {
        let directory = spot.directory.map_or(AT_FDCWD as usize, |index| c.args[index]);
        self.may_open(directory, c.args[spot.path], flags)?;
        match self.reads_shown(flags) {
            Some(Proc::FdInfo(fd)) => self.open_fd_info(fd, flags),
            _ if !follow && flags & O_PATH == 0 => self.open_unfollowed(c, spot, flags),
            Some(_) => self.open_maps(flags),
            None if self.services.pipes_wanted() && self.names_a_process() => {
                self.then_opened(c, reason::STRANGER)
            }
            None => self.then_opened(c, reason::opened(flags & O_CLOEXEC != 0)),
        }
    }

    /// The same for what the image answers itself, which changes state.
    fn open_ours(&mut self, lead: Lead, flags: u32, mode: u32) -> Answer {
        self.services.unguard();
        match lead {
            Lead::Husk => self.open_found(flags, mode),
            _ => self.open_elsewhere(flags, mode),
        }
    }

    /// A name of the host of which no link is followed, and which may be a Husk descriptor's link.
    #[inline(never)]
    fn open_unfollowed(&mut self, c: &Call, spot: Spot, flags: u32) -> Answer {
        if flags & O_DIRECTORY != 0
            && let Some(directory) = spot.directory
            && self.is_in_outlying(c.args[directory] as i32, 0)
            && !self.buffers.walks[0].whole().contains(&b'/')
        {
            return self.then_opened(c, reason::opened_below(flags & O_CLOEXEC != 0));
        }
        match self.linked_descriptor(0)? {
            Some(_) if flags & O_EXCL != 0 => Err(Errno::EEXIST),
            Some(_) if flags & O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
            Some(_) => Err(Errno::ELOOP),
            None => self.then_opened(c, reason::opened(flags & O_CLOEXEC != 0)),
        }
    }

    /// Whether what is opened may be a descriptor of another process (`/proc/PID/fd/N`).
    fn names_a_process(&self) -> bool {
        crate::path::magic_links::begins_with(self.buffers.walks[0].whole(), b"proc")
    }

    /// The host opens the absolute path in walk 0.
    fn open_elsewhere(&mut self, flags: u32, mode: u32) -> Answer {
        self.need_numbers(1)?;
        self.open_as(flags, mode, Shown::Nothing)
    }

    fn open_as(&mut self, flags: u32, mode: u32, shows: Shown) -> Answer {
        let path = self.buffers.walks[0].for_host();
        self.may_open(AT_FDCWD as usize, path, flags)?;
        let args = [AT_FDCWD as usize, path, flags as usize, mode as usize, 0, 0];
        let raw = self.host.call(nr::openat, args);
        let fd = Errno::check(raw)?;
        Ok(Verdict::Return(self.note_opened(fd as u32, flags & O_CLOEXEC != 0, shows)))
    }

    /// Opens the host's FIFO, socket or device that `inode` was imported from. The host judges by
    /// the mode that it has, too.
    fn open_hosts_special(&mut self, inode: Inode, flags: u32) -> Answer {
        self.need_numbers(1)?;
        let end = self.buffers.walks[0].length;
        self.portal_text(0, inode, end)?;
        self.services.pin(inode)?;
        let opened = self.open_as(flags, 0, Shown::Node(inode));
        self.services.unpin(inode);
        opened
    }

    /// Opens what walk 0 has found, or makes it.
    pub(crate) fn open_found(&mut self, flags: u32, mode: u32) -> Answer {
        let target = self.paths.found(0);
        if flags & O_CREAT != 0 && target.slash && target.last == Last::Name {
            return Err(Errno::EISDIR);
        }
        let Some(step) = &target.step else {
            if flags & O_CREAT == 0 {
                return Err(Errno::ENOENT);
            }
            return self.create_and_open(flags, mode);
        };
        if flags & O_CREAT != 0 && flags & O_EXCL != 0 {
            let target = *target;
            return match self.has_gone(0, &target) {
                true => self.create_and_open(flags, mode),
                false => Err(Errno::EEXIST),
            };
        }
        let (inode, kind, slash) = (step.inode, step.kind, target.slash);
        if self.found_portal(0)? {
            return self.open_elsewhere(flags, mode);
        }
        if kind == Kind::Directory && flags & O_CREAT != 0 {
            return Err(Errno::EISDIR);
        }
        if kind != Kind::Directory && (flags & O_DIRECTORY != 0 || slash) {
            return Err(Errno::ENOTDIR);
        }
        if flags & TMPFILE_BIT != 0 {
            return self.open_nameless(inode, flags, mode);
        }
        self.open_kind(inode, kind, flags)
    }

    fn create_and_open(&mut self, flags: u32, mode: u32) -> Answer {
        let mode = masked(mode, self.services.umask());
        let ((start, end), directory) = (self.paths.found(0).name, self.paths.found(0).directory);
        let fd = self.new_number(|client, limit| {
            let files = client.services.files();
            let name = &client.buffers.walks[0].text[start..end];
            let who = client.identity.credentials(&client.buffers.groups);
            client.services.create_open(&who, files, directory, name, mode, flags, limit)
        })?;
        value(u64::from(fd))
    }

    /// `O_TMPFILE` in a directory.
    #[inline(never)]
    fn open_nameless(&mut self, directory: Inode, flags: u32, mode: u32) -> Answer {
        let step = self.services.step(directory)?;
        let mode = masked(mode, self.services.umask());
        self.permit(&step, want::WRITE | want::EXECUTE)?;
        let who = self.identity.credentials(&self.buffers.groups);
        let inode = self.services.create_nameless(&who, step.inode, mode, flags & O_EXCL == 0)?;
        let flags = flags & !(O_EXCL | O_CREAT | O_TRUNC);
        let opened = self.open_inode(inode, flags, true);
        self.services.unpin(inode);
        value(u64::from(opened?))
    }

    /// Opens what is there.
    fn open_kind(&mut self, inode: Inode, kind: Kind, flags: u32) -> Answer {
        let path_only = flags & O_PATH != 0;
        let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
        let flags = flags & !(O_CREAT | O_EXCL);
        match kind {
            Kind::File if !path_only => self.open_file(inode, flags),
            Kind::Symlink if !path_only => Err(Errno::ELOOP),
            Kind::Directory if writes => Err(Errno::EISDIR),
            Kind::Directory if flags & O_DIRECT != 0 && !path_only => {
                let step = self.services.step(inode)?;
                self.permit(&step, want::READ)?;
                Err(Errno::EINVAL)
            }
            _ if kind.is_special() && !path_only => self.open_special(inode, kind, flags),
            _ => value(u64::from(self.open_inode(inode, flags, false)?)),
        }
    }

    /// Opens a FIFO, a socket or a device. What devices lead to is not served, as in a file system
    /// mounted `nodev`.
    #[cold]
    fn open_special(&mut self, inode: Inode, kind: Kind, flags: u32) -> Answer {
        let attributes = self.services.attributes(inode)?;
        if kind.is_device() && attributes.origin.is_none() {
            return self.refuse(nr::openat, Errno::EACCES);
        }
        let step = attributes.step;
        let truncates = if flags & O_TRUNC != 0 { want::WRITE } else { 0 };
        let moves = match flags & O_ACCMODE {
            O_RDONLY => want::READ,
            O_WRONLY => want::WRITE,
            _ => want::READ | want::WRITE,
        };
        self.permit(&step, moves | truncates)?;
        if flags & O_NOATIME != 0 {
            self.credentials().permit_no_times(&step)?;
        }
        if attributes.origin.is_some() {
            return self.open_hosts_special(inode, flags);
        }
        match kind {
            Kind::Fifo => self.open_fifo(inode, flags & !O_TRUNC),
            _ => Err(Errno::ENXIO),
        }
    }

    /// Opens a file: one of the image at once, and `EIO` says that the bytes are the host's.
    #[inline]
    fn open_file(&mut self, inode: Inode, flags: u32) -> Answer {
        if flags & O_TRUNC == 0 && !self.services.has_host_bytes(inode) {
            match self.open_inode(inode, flags, false) {
                Ok(fd) => return value(u64::from(fd)),
                Err(Errno::EIO) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.open_wherever(inode, flags)
    }

    /// Opens a file whose bytes may be the host's.
    #[inline(never)]
    fn open_wherever(&mut self, inode: Inode, flags: u32) -> Answer {
        if flags & O_TRUNC != 0 {
            // What is mapped somewhere is zeroed instead of freed.
            self.memory.ready()?;
        }
        let attributes = self.services.attributes(inode)?;
        if attributes.backing == Backing::Host {
            let (access, truncate) = (flags & O_ACCMODE, flags & O_TRUNC != 0);
            if access == O_RDONLY && !truncate {
                let opened = self.open_shadow(&attributes, flags);
                let gone = matches!(opened, Err(Errno::ENOENT));
                if gone && self.services.attributes(inode)?.backing == Backing::Image {
                    // It became the image's, and left the host, after the first look.
                    return value(u64::from(self.open_inode(inode, flags, false)?));
                }
                return opened;
            }
            let reads = if access == O_WRONLY { 0 } else { want::READ };
            self.permit(&attributes.step, reads | want::WRITE)?;
            self.services.may_write(inode)?;
            self.need_numbers(1)?;
            self.make_image(inode, if truncate { 0 } else { u64::MAX })?;
        }
        let opened = if flags & O_TRUNC != 0 {
            self.shorten(inode, |client| client.open_inode(inode, flags, false))
        } else {
            self.open_inode(inode, flags, false)
        };
        value(u64::from(opened?))
    }

    /// Opens an inode at the lowest free number.
    pub(crate) fn open_inode(&mut self, inode: Inode, flags: u32, all: bool) -> Result<u32> {
        match self.open_known(inode, flags, all) {
            Err(Errno::EACCES) if self.learns_list(inode)? => self.open_known(inode, flags, all),
            other => other,
        }
    }

    #[inline]
    fn open_known(&mut self, inode: Inode, flags: u32, all: bool) -> Result<u32> {
        self.new_number(|client, limit| {
            let files = client.services.files();
            let mut who: Credentials<'_> = client.identity.credentials(&client.buffers.groups);
            if all {
                (who.capabilities, who.within) = (u64::MAX, None);
            }
            client.services.open(&who, files, inode, flags, 0, limit)
        })
    }

    /// A host-backed file for reading: a host descriptor that shows the inode.
    fn open_shadow(&mut self, a: &husk_proto::fs::Attributes, flags: u32) -> Answer {
        self.need_numbers(1)?;
        self.permit(&a.step, want::READ)?;
        let origin = a.origin.ok_or(Errno::EIO)?;
        let flags = flags & (SHOWN_OF_HOST | O_CLOEXEC);
        if let Some(fd) = self.lend_inside(a.step.inode, origin, flags) {
            return value(u64::from(fd));
        }
        let fd = match self.open_unlinked(origin, flags) {
            Err(Errno::EACCES | Errno::ENOENT | Errno::ENOTDIR) => {
                self.open_allowed((a.step.inode, a.step.uid), origin, flags | O_NOFOLLOW)?
            }
            other => other?,
        };
        if let Err(errno) = self.renew_from(a.step.inode, origin, fd) {
            self.host_close(fd as u32);
            return Err(errno);
        }
        let close_on_exec = flags & O_CLOEXEC != 0;
        let shows = Shown::File(a.step.inode);
        let noted = self.note_opened(fd as u32, close_on_exec, shows);
        if noted >= 0 {
            self.services.watch_note(a.step.inode, IN_OPEN);
        }
        Ok(Verdict::Return(noted))
    }

    /// `openat2`; with resolve flags by a walk of its own (`openat2`).
    pub(crate) fn openat2(&mut self, c: &Call) -> Answer {
        let size = c.args[3];
        if size < OPEN_HOW_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut how = [0u8; OPEN_HOW_BYTES];
        self.memory.read(c.args[2], &mut how)?;
        let field = |at| crate::layout::get64(&how, at);
        let (flags, mode, resolve) = (field(0), field(8), field(16));
        self.check_rest(c.args[2], size)?;
        if is_odd(flags, mode, resolve) {
            // Whatever is odd here is the host's to judge: same error on any path.
            return match self.services.outside_is_sealed() {
                true => Err(Errno::EINVAL),
                false => self.then_opened(c, reason::ASK),
            };
        }
        if resolve == 0 {
            return match self.open(c, crate::path::at(0), flags as usize, mode as usize)? {
                Verdict::PassThen(_) => reason::then(c, reason::ASK),
                other => Ok(other),
            };
        }
        let flags = checked_flags(flags as u32)?;
        if resolve & u64::from(RESOLVE_CACHED) != 0
            && flags & (O_CREAT | O_TRUNC | TMPFILE_BIT) != 0
        {
            return Err(Errno::EAGAIN);
        }
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let follow = flags & O_NOFOLLOW == 0 && !exclusive;
        let aim = Aim { follow, slash: true, create: flags & O_CREAT != 0, ..Aim::default() };
        let how = How { flags, mode: mode as u32, resolve };
        for _ in 0..CREATE_TRIES {
            match self.open_scoped(c, how, aim) {
                Err(Errno::EEXIST) if !exclusive && flags & O_CREAT != 0 => {}
                Err(errno) => return Err(self.failed(errno)),
                other => return other,
            }
        }
        Err(Errno::EEXIST)
    }

    /// A longer structure than ours may not say more (`E2BIG`).
    fn check_rest(&mut self, address: usize, size: usize) -> Result<()> {
        if size > PAGE {
            return Err(Errno::E2BIG);
        }
        let more = &mut self.buffers.bounce[..size - OPEN_HOW_BYTES];
        self.memory.read(address + OPEN_HOW_BYTES, more)?;
        if more.iter().any(|&byte| byte != 0) { Err(Errno::E2BIG) } else { Ok(()) }
    }
}

/// Flags as `open` takes them: what Linux ignores dropped, what it refuses refused.
fn checked_flags(mut flags: u32) -> Result<u32> {
    if flags & O_PATH != 0 {
        flags &= PATH_FLAGS;
    }
    if flags & TMPFILE_BIT != 0 {
        let writes = matches!(flags & O_ACCMODE, 1 | 2);
        if flags & O_DIRECTORY == 0 || flags & O_CREAT != 0 || !writes {
            return Err(Errno::EINVAL);
        }
    } else if flags & O_CREAT != 0 && flags & O_DIRECTORY != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(flags)
}
