//! Numbers: `close`, `dup`, `fcntl`, over Husk's descriptors and the host's.
//!
//! Invariants
//! 1. A host number is marked closed before the host closes it, so that it is never Husk's and
//!    the host's at once.
//! 2. Numbers Husk keeps in the host's table (region, loader) look closed to the application.

use crate::{Answer, Call, Client, Host, Memory, Verdict, passing, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_GETLK, F_GETOWN, F_OFD_GETLK, F_OFD_SETLK,
    F_OFD_SETLKW, F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_SETOWN, O_APPEND, O_CLOEXEC, O_DIRECT,
    O_LARGEFILE, O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_PATH,
};
use husk_proto::descriptor::Slot;
use husk_proto::fs::Backing;
use husk_proto::lock::{Mode, Owner, Range};
use husk_proto::process::Sharing;
use husk_proto::{Description, Errno, Inode, Result, Services};

/// Status flags `F_SETFL` may change.
const SETTABLE: u32 = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME;
/// Numbers `close_range` takes up at once.
const BATCH: usize = 64;
/// `CLOSE_RANGE_UNSHARE`.
const RANGE_UNSHARE: usize = 2;
/// `CLOSE_RANGE_CLOEXEC`.
const RANGE_CLOEXEC: usize = 4;
/// `F_GETPIPE_SZ` and `F_SETPIPE_SZ`.
const PIPE_SIZE: [u32; 2] = [1031, 1032];

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether Husk keeps `fd` for itself.
    #[inline]
    pub(crate) fn is_kept(&self, fd: u32) -> bool {
        self.host.kept_fds().contains(&fd) && fd != u32::MAX
    }

    /// `close`.
    pub(crate) fn close(&mut self, c: &Call) -> Answer {
        let fd = c.args[0] as u32;
        let files = self.services.files();
        match self.services.slot(files, fd) {
            Slot::Husk(_) => {
                self.close_husk(fd)?;
                value(0)
            }
            _ if self.is_kept(fd) => Err(Errno::EBADF),
            Slot::Host(shows) => {
                self.forget_host(fd, shows);
                Ok(Verdict::Pass)
            }
            Slot::Free => Ok(Verdict::Pass),
        }
    }

    fn close_husk(&mut self, fd: u32) -> Result<()> {
        let files = self.services.files();
        if self.services.close(files, fd)? {
            self.host.call(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        }
        Ok(())
    }

    /// Marks a host number closed; POSIX locks on the file it shows end, as with any close.
    fn forget_host(&mut self, fd: u32, shows: Option<Inode>) {
        let files = self.services.files();
        // Files still on the host have no locks: whoever asks for one copies the file up first.
        let image = |inode: &Inode| {
            self.services.attributes(*inode).is_ok_and(|a| a.backing == Backing::Image)
        };
        if let Some(inode) = shows.filter(image) {
            let all = Range { start: 0, end: u64::MAX };
            let _ = self.services.lock(Owner::Process, inode, all, Mode::Unlock, false);
        }
        self.services.host_closed(files, fd);
    }

    /// `close_range`.
    pub(crate) fn close_range(&mut self, c: &Call) -> Answer {
        let (first, last, flags) = (c.args[0] as u32, c.args[1] as u32, c.args[2]);
        if first > last || flags & !(RANGE_UNSHARE | RANGE_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & RANGE_UNSHARE != 0 {
            self.part(c, Sharing { files: true, context: false })?;
        }
        self.close_noted(first, last, flags & RANGE_CLOEXEC != 0)?;
        let mut start = first;
        let mut kept = self.host.kept_fds();
        kept.sort_unstable();
        for fd in kept.into_iter().filter(|&fd| fd != u32::MAX) {
            if (start..=last).contains(&fd) {
                if fd > start {
                    self.host_close_range(start, fd - 1, flags)?;
                }
                start = fd + 1;
            }
        }
        if start <= last {
            self.host_close_range(start, last, flags)?;
        }
        value(0)
    }

    fn host_close_range(&self, first: u32, last: u32, flags: usize) -> Result<()> {
        let args = [first as usize, last as usize, flags, 0, 0, 0];
        Errno::check(self.host.call(nr::close_range, args)).map(|_| ())
    }

    /// Closes (or marks) all noted numbers of a range, `BATCH` at a time.
    fn close_noted(&mut self, first: u32, last: u32, mark_only: bool) -> Result<()> {
        let files = self.services.files();
        let mut next = first;
        loop {
            let mut batch = [(0u32, Slot::Free); BATCH];
            let mut count = 0;
            self.services.for_each(files, next, last, &mut |fd, slot| {
                if count < BATCH {
                    batch[count] = (fd, slot);
                    count += 1;
                }
            });
            for &(fd, slot) in &batch[..count] {
                match slot {
                    _ if self.is_kept(fd) => {}
                    _ if mark_only => self.services.set_close_on_exec(files, fd, true)?,
                    Slot::Husk(_) => self.close_husk(fd)?,
                    Slot::Host(shows) => self.forget_host(fd, shows),
                    Slot::Free => {}
                }
            }
            if count < BATCH || batch[count - 1].0 == last {
                return Ok(());
            }
            next = batch[count - 1].0 + 1;
        }
    }

    /// `dup`.
    pub(crate) fn dup(&mut self, c: &Call) -> Answer {
        self.duplicate_from(c, 0, false)
    }

    /// The lowest free number from `minimum` on for argument 0.
    fn duplicate_from(&mut self, c: &Call, minimum: usize, close_on_exec: bool) -> Answer {
        let (fd, files) = (c.args[0] as u32, self.services.files());
        if !matches!(self.services.slot(files, fd), Slot::Husk(_)) {
            return if self.is_kept(fd) {
                Err(Errno::EBADF)
            } else {
                passing::then(c, passing::DUPLICATE)
            };
        }
        if minimum >= self.descriptor_limit() as usize {
            self.limit = 0;
            if minimum >= self.descriptor_limit() as usize {
                return Err(Errno::EINVAL);
            }
        }
        let new = self.with_limit(|client, limit| {
            client.services.duplicate(files, fd, minimum as u32, limit, close_on_exec)
        })?;
        value(u64::from(new))
    }

    /// `dup2`.
    pub(crate) fn dup2(&mut self, c: &Call) -> Answer {
        let (fd, target) = (c.args[0] as u32, c.args[1] as u32);
        if fd == target {
            let files = self.services.files();
            return match self.services.slot(files, fd) {
                Slot::Husk(_) => value(u64::from(fd)),
                _ if self.is_kept(fd) => Err(Errno::EBADF),
                _ => Ok(Verdict::Pass),
            };
        }
        self.duplicate_to(c, false)
    }

    /// `dup3`.
    pub(crate) fn dup3(&mut self, c: &Call) -> Answer {
        let flags = c.args[2] as u32;
        if flags & !O_CLOEXEC != 0 || c.args[0] as u32 == c.args[1] as u32 {
            return Err(Errno::EINVAL);
        }
        self.duplicate_to(c, flags != 0)
    }

    fn duplicate_to(&mut self, c: &Call, close_on_exec: bool) -> Answer {
        let (fd, target) = (c.args[0] as u32, c.args[1] as u32);
        let files = self.services.files();
        if self.is_kept(fd) || self.is_kept(target) {
            return Err(Errno::EBADF);
        }
        let there = self.services.slot(files, target);
        match self.services.slot(files, fd) {
            Slot::Husk(_) => {
                if target >= self.descriptor_limit() {
                    return Err(Errno::EBADF);
                }
                if let Slot::Host(shows) = there {
                    self.forget_host(target, shows);
                    self.host.call(nr::close, [target as usize, 0, 0, 0, 0, 0]);
                }
                self.services.duplicate_to(files, fd, target, close_on_exec)?;
                value(u64::from(target))
            }
            Slot::Host(_) | Slot::Free => {
                if let Slot::Husk(_) = there {
                    Errno::check(self.host.call(nr::fcntl, [fd as usize, 1, 0, 0, 0, 0]))?;
                    self.close_husk(target)?;
                } else if let Slot::Host(Some(_)) = there {
                    Errno::check(self.host.call(nr::fcntl, [fd as usize, 1, 0, 0, 0, 0]))?;
                    self.forget_host(target, None);
                }
                passing::then(c, passing::DUPLICATE)
            }
        }
    }

    /// `fcntl`.
    pub(crate) fn fcntl(&mut self, c: &Call) -> Answer {
        let (fd, command, argument) = (c.args[0] as u32, c.args[1] as u32, c.args[2]);
        let files = self.services.files();
        match command {
            F_DUPFD => return self.duplicate_from(c, argument, false),
            F_DUPFD_CLOEXEC => return self.duplicate_from(c, argument, true),
            _ => {}
        }
        let description = match self.services.slot(files, fd) {
            Slot::Husk(description) => description,
            _ if self.is_kept(fd) => return Err(Errno::EBADF),
            Slot::Host(Some(_)) if is_lock(command) => {
                return self.record_lock(c, command);
            }
            Slot::Host(Some(_)) if command == F_GETFL => {
                // Shadows are opened without following links, whatever was asked for.
                let flags = self.host.call(c.number, c.args);
                let shown = if flags < 0 { flags } else { flags & !i64::from(O_NOFOLLOW) };
                return Ok(Verdict::Return(shown));
            }
            Slot::Host(_) if command == F_SETFD => {
                return passing::then(c, passing::CLOSE_ON_EXEC);
            }
            _ => return Ok(Verdict::Pass),
        };
        match command {
            F_GETFD => value(u64::from(self.services.close_on_exec(files, fd)?)),
            F_SETFD => {
                self.services.set_close_on_exec(files, fd, argument & 1 != 0)?;
                value(0)
            }
            _ => self.fcntl_description(c, description, command),
        }
    }

    fn fcntl_description(&mut self, c: &Call, d: Description, command: u32) -> Answer {
        let flags = self.services.description(d)?.flags & !O_CLOEXEC;
        match command {
            F_GETFL if flags & O_PATH != 0 => value(u64::from(flags)),
            F_GETFL => value(u64::from(flags | O_LARGEFILE)),
            _ if flags & O_PATH != 0 => Err(Errno::EBADF),
            F_SETFL => {
                let wanted = c.args[2] as u32 & SETTABLE;
                self.services.set_flags(d, flags & !SETTABLE | wanted)?;
                value(0)
            }
            _ if is_lock(command) => self.record_lock(c, command),
            F_GETOWN | F_SETOWN => value(0),
            _ if PIPE_SIZE.contains(&command) => Err(Errno::EBADF),
            _ => self.refuse(c.number, Errno::EINVAL),
        }
    }
}

fn is_lock(command: u32) -> bool {
    const LOCKS: [u32; 6] = [F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW];
    LOCKS.contains(&command)
}
