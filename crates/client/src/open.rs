//! `open` and its kin.
//!
//! ```text
//!   nothing there     ── create_open                       (O_CREAT)
//!   image's file      ── open
//!   host-backed, read ── a host descriptor, noted as shadow
//!   host-backed, write── copy up, then open
//!   portal, host path ── the host opens
//! ```

use crate::path::{Aim, Last, Place, Spot, Target};
use crate::{Answer, Call, Client, Host, Memory, Verdict, passing, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_FDCWD, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW,
    O_NONBLOCK, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC,
};
use husk_proto::fs::{Backing, Kind, Step};
use husk_proto::{Credentials, Errno, Result, Services};

/// Times a creation is tried again when the name comes and goes.
const CREATE_TRIES: usize = 8;
/// The bit of `O_TMPFILE` beside `O_DIRECTORY`.
const TMPFILE_BIT: u32 = O_TMPFILE & !O_DIRECTORY;
/// Flags `openat2` knows.
const KNOWN_FLAGS: u64 = 0x7f_ffc3 | 0x40_0000;
/// Bytes of the first `struct open_how`.
const OPEN_HOW_BYTES: usize = 24;
/// Resolve flags the kernel knows.
const RESOLVE_KNOWN: u64 = 0x3f;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `open`, `openat`, `creat`.
    pub(crate) fn open(&mut self, c: &Call, spot: Spot, flags: usize, mode: usize) -> Answer {
        let flags = checked_flags(flags as u32)?;
        let mode = if flags & (O_CREAT | TMPFILE_BIT) != 0 { mode as u32 & 0o7777 } else { 0 };
        for _ in 0..CREATE_TRIES {
            match self.open_once(c, spot, flags, mode) {
                Err(Errno::EEXIST) if flags & O_EXCL == 0 && flags & O_CREAT != 0 => {}
                other => return other,
            }
        }
        Err(Errno::EEXIST)
    }

    fn open_once(&mut self, c: &Call, spot: Spot, flags: u32, mode: u32) -> Answer {
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let follow = flags & O_NOFOLLOW == 0 && !exclusive;
        let aim = Aim { follow, slash: true, ..Aim::default() };
        match self.find(c, 0, spot, aim)? {
            Place::Husk(target) => self.open_target(&target, flags, mode),
            Place::Elsewhere => self.open_elsewhere(flags, mode),
            Place::Host => passing::then(c, passing::opened(flags & O_CLOEXEC != 0)),
        }
    }

    /// The host opens the absolute path in walk 0.
    fn open_elsewhere(&mut self, flags: u32, mode: u32) -> Answer {
        let path = self.buffers.walks[0].for_host();
        let args = [AT_FDCWD as usize, path, flags as usize, mode as usize, 0, 0];
        let raw = self.host.call(nr::openat, args);
        let fd = Errno::check(raw)?;
        let result = self.note_opened(fd as u32, flags & O_CLOEXEC != 0, None);
        Ok(Verdict::Return(result))
    }

    fn open_target(&mut self, target: &Target, flags: u32, mode: u32) -> Answer {
        if flags & O_CREAT != 0 && target.slash && target.last == Last::Name {
            return Err(Errno::EISDIR);
        }
        let Some(step) = target.step else {
            if flags & O_CREAT == 0 {
                return Err(Errno::ENOENT);
            }
            return self.create_and_open(target, flags, mode);
        };
        if flags & O_CREAT != 0 && flags & O_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        if self.is_portal(0, target)? {
            return self.open_elsewhere(flags, mode);
        }
        if step.kind == Kind::Directory && flags & O_CREAT != 0 {
            return Err(Errno::EISDIR);
        }
        if step.kind != Kind::Directory && (flags & O_DIRECTORY != 0 || target.slash) {
            return Err(Errno::ENOTDIR);
        }
        if flags & TMPFILE_BIT != 0 {
            return self.open_nameless(step, flags, mode);
        }
        self.open_step(step, flags)
    }

    fn create_and_open(&mut self, target: &Target, flags: u32, mode: u32) -> Answer {
        let mode = mode & !self.services.umask();
        let (start, end) = target.name;
        let fd = self.with_limit(|client, limit| {
            let files = client.services.files();
            let name = &client.buffers.walks[0].text[start..end];
            let who = client.identity.credentials(&client.buffers.groups);
            let directory = target.directory;
            client.services.create_open(&who, files, directory, name, mode, flags, limit)
        })?;
        value(u64::from(fd))
    }

    /// `O_TMPFILE` in directory `step`.
    fn open_nameless(&mut self, step: Step, flags: u32, mode: u32) -> Answer {
        let mode = mode & !self.services.umask();
        let who = self.identity.credentials(&self.buffers.groups);
        who.permit(&step, 3)?;
        let inode = self.services.create_nameless(&who, step.inode, mode)?;
        let flags = flags & !(TMPFILE_BIT | O_DIRECTORY | O_EXCL | O_CREAT | O_TRUNC);
        let opened = self.open_inode(inode, flags, true);
        self.services.unpin(inode);
        value(u64::from(opened?))
    }

    /// Opens what is there.
    fn open_step(&mut self, step: Step, flags: u32) -> Answer {
        let path_only = flags & O_PATH != 0;
        let writes = flags & O_ACCMODE != O_RDONLY;
        match step.kind {
            Kind::Symlink if !path_only => return Err(Errno::ELOOP),
            Kind::Directory if writes || flags & O_TRUNC != 0 => return Err(Errno::EISDIR),
            Kind::File if !path_only => {
                let attributes = self.services.attributes(step.inode)?;
                if attributes.backing == Backing::Host {
                    if !writes && flags & O_TRUNC == 0 {
                        return self.open_shadow(&attributes, flags);
                    }
                    let want = if flags & O_ACCMODE == 1 { 2 } else { 6 };
                    self.credentials().permit(&step, want)?;
                    let keep = if flags & O_TRUNC != 0 { 0 } else { u64::MAX };
                    self.make_image(step.inode, keep)?;
                }
            }
            _ => {}
        }
        let flags = flags & !(O_CREAT | O_EXCL);
        value(u64::from(self.open_inode(step.inode, flags, false)?))
    }

    /// Opens an inode at the lowest free number.
    fn open_inode(&mut self, inode: husk_proto::Inode, flags: u32, all: bool) -> Result<u32> {
        self.with_limit(|client, limit| {
            let files = client.services.files();
            let mut who: Credentials<'_> = client.identity.credentials(&client.buffers.groups);
            if all {
                who.capabilities = u64::MAX;
            }
            client.services.open(&who, files, inode, flags, 0, limit)
        })
    }

    /// A host-backed file for reading: a host descriptor that shows the inode.
    fn open_shadow(&mut self, a: &husk_proto::fs::Attributes, flags: u32) -> Answer {
        self.credentials().permit(&a.step, 4)?;
        let origin = a.origin.ok_or(Errno::EIO)?;
        let fd = self.open_origin(origin, flags & (O_NOATIME | O_NONBLOCK) | O_NOFOLLOW)?;
        let close_on_exec = flags & O_CLOEXEC != 0;
        if !close_on_exec {
            self.host.call(nr::fcntl, [fd, 2, 0, 0, 0, 0]);
        }
        Ok(Verdict::Return(self.note_opened(fd as u32, close_on_exec, Some(a.step.inode))))
    }

    /// `openat2`: all flags, but no resolve flags on Husk paths.
    pub(crate) fn openat2(&mut self, c: &Call) -> Answer {
        let size = c.args[3];
        if size < OPEN_HOW_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut how = [0u8; OPEN_HOW_BYTES];
        self.memory.read(c.args[2], &mut how)?;
        let field = |at| crate::layout::get64(&how, at);
        let (flags, mode, resolve) = (field(0), field(8), field(16));
        let creates = flags as u32 & (O_CREAT | TMPFILE_BIT) != 0;
        if size > OPEN_HOW_BYTES
            || flags & !KNOWN_FLAGS != 0
            || mode & !0o7777 != 0
            || (mode != 0 && !creates)
            || resolve & !RESOLVE_KNOWN != 0
        {
            // Whatever is odd here is the host's to judge: same error on any path.
            return passing::then(c, passing::ASK);
        }
        if resolve == 0 {
            return match self.open(c, crate::path::at(0), flags as usize, mode as usize)? {
                Verdict::PassThen(_) => passing::then(c, passing::ASK),
                other => Ok(other),
            };
        }
        let aim = Aim { follow: flags as u32 & O_NOFOLLOW == 0, slash: true, ..Aim::default() };
        match self.find(c, 0, crate::path::at(0), aim)? {
            Place::Host => passing::then(c, passing::ASK),
            _ => self.refuse(c.number, Errno::ENOSYS),
        }
    }
}

/// Flags as `open` takes them: what Linux ignores dropped, what it refuses refused.
fn checked_flags(mut flags: u32) -> Result<u32> {
    if flags & O_PATH != 0 {
        flags &= O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;
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
