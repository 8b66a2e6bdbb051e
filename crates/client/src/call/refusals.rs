//! Calls that a Husk file does not serve: refused with a clear error, and counted.

use crate::overlay::read_only_outside::changes_attributes;
use crate::path::{Aim, Place, Spot};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, O_CLOEXEC, O_PATH};
use husk_abi::sys::ioctl::{
    FICLONE, FICLONERANGE, FIGETBSZ, FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, FS_IOC_FIEMAP,
    TIOCOUTQ,
};
use husk_abi::{PAGE, nr};
use husk_proto::descriptor::Slot;
use husk_proto::fs::Kind;
use husk_proto::pipe::End;
use husk_proto::{Description, Errno, Result, Services};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// A call on the path at `spot` that is refused if that is Husk's.
    pub(crate) fn refuse_path(&mut self, c: &Call, spot: Spot, aim: Aim, errno: Errno) -> Answer {
        if !aim.parent {
            return self.on_existing(c, spot, aim, |client, _| client.refuse(c.number, errno));
        }
        match self.find(c, 0, spot, aim)? {
            Place::Husk(_) => self.refuse(c.number, errno),
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    /// A call on descriptor argument `index` that is refused if that is Husk's.
    pub(crate) fn refuse_open(&mut self, c: &Call, index: usize, errno: Errno) -> Answer {
        match self.described(c.args[index])? {
            Some(_) => self.refuse(c.number, errno),
            None => Ok(Verdict::Pass),
        }
    }

    /// `finit_module`: a host without modules says so, whatever the descriptor.
    pub(crate) fn refuse_module(&mut self, c: &Call) -> Answer {
        let absent = Errno::ENOSYS.as_return();
        match self.host.call(c.number, [usize::MAX, c.args[1], c.args[2], 0, 0, 0]) == absent {
            true => Err(Errno::ENOSYS),
            false => self.refuse_open(c, 0, Errno::EPERM),
        }
    }

    /// `name_to_handle_at`.
    pub(crate) fn name_to_handle(&mut self, c: &Call) -> Answer {
        let flags = c.args[4] as u32;
        let follow = flags & AT_SYMLINK_FOLLOW != 0;
        let aim = Aim { follow, empty: flags & AT_EMPTY_PATH != 0, ..Aim::STAY };
        self.refuse_path(c, crate::path::at(0), aim, Errno::EOPNOTSUPP)
    }

    /// `open_by_handle_at`: no handle leads to a Husk file.
    pub(crate) fn open_by_handle(&mut self, c: &Call) -> Answer {
        match self.refuse_open(c, 0, Errno::ESTALE) {
            Ok(_) => self.then_opened(c, crate::reason::ASK),
            // Not what `Client::call` takes as the wish to begin again.
            Err(Errno::ESTALE) => Ok(Verdict::Return(Errno::ESTALE.as_return())),
            Err(errno) => Err(errno),
        }
    }

    /// A call that means something only for other kinds of descriptors.
    #[inline]
    pub(crate) fn other_kind(&mut self, c: &Call, errno: Errno) -> Answer {
        match self.opened(c.args[0])? {
            Some(file) if file.flags & O_PATH != 0 => Err(Errno::EBADF),
            Some(_) => Err(errno),
            None => Ok(Verdict::Pass),
        }
    }

    /// `kcmp`: two descriptors, at least one of which is the image's.
    pub(crate) fn kcmp(&mut self, c: &Call) -> Answer {
        const FILE: usize = 0;
        const MEMORY: usize = 1;
        const LESS: u64 = 1;
        const GREATER: u64 = 2;
        if c.args[2] != FILE {
            return Ok(Verdict::Pass);
        }
        let one = self.described_of(c.args[0] as u32, c.args[3])?;
        let other = self.described_of(c.args[1] as u32, c.args[4])?;
        if (one, other) == (None, None) {
            return Ok(Verdict::Pass);
        }
        // The host judges who may compare.
        let judged = [c.args[0], c.args[1], MEMORY, 0, 0, 0];
        Errno::check(self.host.call(nr::kcmp, judged))?;
        for (description, pid, fd) in [(one, 0, 3), (other, 1, 4)] {
            let itself = [c.args[pid], c.args[pid], FILE, c.args[fd], c.args[fd], 0];
            if description.is_none() {
                Errno::check(self.host.call(nr::kcmp, itself))?;
            }
        }
        // Any order will do, so long as it is one.
        value(match one.map(|d| d.0).cmp(&other.map(|d| d.0)) {
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Less => LESS,
            core::cmp::Ordering::Greater => GREATER,
        })
    }

    /// The description behind `fd` of process `pid`, if both are the image's.
    fn described_of(&mut self, pid: u32, fd: usize) -> Result<Option<Description>> {
        if pid == self.process_id() {
            return self.described(fd);
        }
        let Some(files) = self.services.files_of(pid) else { return Ok(None) };
        Ok(match self.services.slot(files, fd as u32) {
            Slot::Husk(description) => Some(description),
            _ => None,
        })
    }

    /// `pidfd_getfd`. Of a file of the image comes another opening at the same offset, which is its
    /// own from then on: only its owner may share the one it has.
    pub(crate) fn pidfd_getfd(&mut self, c: &Call) -> Answer {
        let found = match self.described(c.args[0])? {
            Some(_) => return Err(Errno::EBADF),
            None if c.args[2] != 0 => None,
            None => match self.pid_of_pidfd(c.args[0]) {
                Some(pid) => {
                    self.give_before_taken(c, pid)?;
                    self.described_of(pid, c.args[1])?
                }
                None => None,
            },
        };
        let Some(description) = found else {
            return crate::reason::then(c, crate::reason::STRANGER);
        };
        // The host judges who may; it may have a plug there.
        match Errno::check(self.host.call(nr::pidfd_getfd, c.args)) {
            Ok(plug) => self.host_close(plug as u32),
            Err(Errno::EBADF) => {}
            Err(errno) => return Err(errno),
        }
        let open = self.services.description(description)?;
        let offset = self.services.offset(description)?;
        let fd = self.open_inode(open.inode, open.flags | O_CLOEXEC, true)?;
        if let Some(copy) = self.described(fd as usize)?.filter(|_| open.flags & O_PATH == 0) {
            self.services.set_offset(copy, offset)?;
        }
        value(u64::from(fd))
    }

    /// The process that a pidfd names.
    fn pid_of_pidfd(&mut self, fd: usize) -> Option<u32> {
        const LINE: &[u8] = b"\nPid:\t";
        let path = husk_abi::proc::descriptor_facts(fd as u32);
        let path = core::hint::black_box(&path);
        let facts = self.host_open(path.as_ptr() as usize, O_CLOEXEC).ok()?;
        let mut text = [0u8; 512];
        let got = self.host_read(facts, text.as_mut_ptr() as usize, text.len(), 0);
        self.host_close(facts as u32);
        let text = &core::hint::black_box(text)[..got.ok()?];
        let at = text.windows(LINE.len()).position(|part| part == LINE)? + LINE.len();
        let digits = text[at..].split(|&byte| byte == b'\n').next()?;
        core::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// `signalfd`.
    pub(crate) fn signalfd(&mut self, c: &Call) -> Answer {
        match self.other_kind(c, Errno::EINVAL)? {
            Verdict::Pass => crate::reason::then(c, crate::reason::ASK),
            other => Ok(other),
        }
    }

    /// `ioctl`.
    pub(crate) fn ioctl(&mut self, c: &Call) -> Answer {
        let (fd, request) = (c.args[0], c.args[1] as u32);
        let described = self.described(fd)?;
        if let Some(description) = described
            && self.services.description(description)?.flags & O_PATH != 0
        {
            return Err(Errno::EBADF);
        }
        let files = self.services.files();
        if matches!(request, FIOCLEX | FIONCLEX)
            && self.services.slot(files, fd as u32) != Slot::Free
        {
            self.services.set_close_on_exec(files, fd as u32, request == FIOCLEX)?;
            return if described.is_some() { value(0) } else { Ok(Verdict::Pass) };
        }
        // Flags of a file of the host, which a tree shows, are not the image's to change.
        if described.is_none() && changes_attributes(request) && self.inode_opened(fd)?.is_some() {
            return Err(Errno::ENOTTY);
        }
        let Some(description) = described else {
            return match self.pipe_end(fd) {
                Some(end) if request == FIONREAD => self.counted_with_ring(c, end.pipe),
                // The same number as `SIOCOUTQ`: of TCP what the other side has not acknowledged.
                Some(end) if request == TIOCOUTQ && self.counts_unread(end) => {
                    match self.lane(end, true) {
                        Some(lane) => self.counted_with_ring(c, lane.pipe),
                        None => Ok(Verdict::Pass),
                    }
                }
                Some(_) if request == FIOASYNC => {
                    self.surrender(fd)?;
                    Ok(Verdict::Pass)
                }
                None if request == FIONREAD => match self.watcher(fd) {
                    Some(instance) => self.events_readable(c, instance),
                    None => Ok(Verdict::Pass),
                },
                None => {
                    self.give_to_driver(request);
                    Ok(Verdict::Pass)
                }
                _ => Ok(Verdict::Pass),
            };
        };
        match request {
            FIONREAD => self.file_readable(c, description),
            FIGETBSZ => {
                self.memory.write(c.args[2], &(PAGE as u32).to_le_bytes())?;
                value(0)
            }
            FIONBIO => {
                self.memory.read(c.args[2], &mut [0; 4])?;
                value(0)
            }
            FICLONE | FICLONERANGE | FS_IOC_FIEMAP => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Whether a socket's bytes count as not sent until they are read.
    fn counts_unread(&self, end: End) -> bool {
        end.socket && !self.services.lane_is_tcp(end.pipe)
    }

    /// `FIONREAD` of a file: bytes behind its own place.
    fn file_readable(&mut self, c: &Call, description: Description) -> Answer {
        let inode = self.services.description(description)?.inode;
        let attributes = self.services.attributes(inode)?;
        if attributes.step.kind != Kind::File {
            return Err(Errno::ENOTTY);
        }
        let left = attributes.size.saturating_sub(self.services.offset(description)?);
        self.memory.write(c.args[2], &(left as u32).to_le_bytes())?;
        value(0)
    }

    /// Refused wherever it is asked for.
    pub(crate) fn not_here(&mut self, c: &Call, errno: Errno) -> Answer {
        self.refuse(c.number, errno)
    }
}
