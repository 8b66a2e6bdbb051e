//! Calls that a Husk file does not serve: refused with a clear error, and counted.

use crate::path::{Aim, Place, Spot};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::PAGE;
use husk_abi::sys::general::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, O_PATH};
use husk_abi::sys::ioctl::{
    FICLONE, FICLONERANGE, FIGETBSZ, FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, FS_IOC_FIEMAP,
    TIOCOUTQ,
};
use husk_proto::descriptor::Slot;
use husk_proto::fs::Kind;
use husk_proto::{Description, Errno, Services};

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

    /// `kcmp`: two descriptors of this process, at least one of which is the image's.
    pub(crate) fn kcmp(&mut self, c: &Call) -> Answer {
        const FILE: usize = 0;
        /// Not equal, and in no order.
        const OTHER: u64 = 3;
        let own = self.process_id() as usize;
        if c.args[2] != FILE || c.args[0] != own || c.args[1] != own {
            return Ok(Verdict::Pass);
        }
        match (self.described(c.args[3])?, self.described(c.args[4])?) {
            (None, None) => Ok(Verdict::Pass),
            (Some(one), Some(other)) if one == other => value(0),
            _ => value(OTHER),
        }
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
        let Some(description) = described else {
            return match self.pipe_end(fd) {
                Some(end) if request == FIONREAD => self.counted_with_ring(c, end.pipe),
                // The same number as `SIOCOUTQ`.
                Some(end) if end.socket && request == TIOCOUTQ => match self.lane(end, true) {
                    Some(lane) => self.counted_with_ring(c, lane.pipe),
                    None => Ok(Verdict::Pass),
                },
                Some(_) if request == FIOASYNC => {
                    self.surrender(fd)?;
                    Ok(Verdict::Pass)
                }
                None if request == FIONREAD => match self.watcher(fd) {
                    Some(instance) => self.events_readable(c, instance),
                    None => Ok(Verdict::Pass),
                },
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
