//! Calls that a Husk file does not serve: refused with a clear error, and counted.

use crate::path::{Aim, Place, Spot};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_proto::descriptor::Slot;
use husk_proto::{Errno, Services};

/// `FIOCLEX`, `FIONCLEX`, `FIONREAD`, `FIONBIO`, `FIOASYNC`.
const IOCTL_CLOSE: usize = 0x5451;
const IOCTL_KEEP: usize = 0x5450;
const IOCTL_READABLE: usize = 0x541b;
const IOCTL_NONBLOCK: usize = 0x5421;
/// `FICLONE`, `FICLONERANGE`.
const IOCTL_CLONE: [usize; 2] = [0x4004_9409, 0x4020_940d];

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// A call on the path at `spot` that is refused if that is Husk's.
    pub(crate) fn refuse_path(&mut self, c: &Call, spot: Spot, aim: Aim, errno: Errno) -> Answer {
        match self.find(c, 0, spot, aim)? {
            Place::Husk(target) => {
                if !aim.parent {
                    target.existing()?;
                    if self.is_portal(0, &target)? {
                        return Ok(Verdict::Return(self.call_elsewhere(c, spot)));
                    }
                }
                self.refuse(c.number, errno)
            }
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    /// Extended attributes of a path: Husk files have none.
    pub(crate) fn path_attribute(&mut self, c: &Call, aim: Aim, lists: bool) -> Answer {
        match self.find(c, 0, crate::path::plain(0), aim)? {
            Place::Husk(target) => {
                target.existing()?;
                if self.is_portal(0, &target)? {
                    return Ok(Verdict::Return(self.call_elsewhere(c, crate::path::plain(0))));
                }
                self.no_attributes(c, lists)
            }
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, crate::path::plain(0)))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    /// Extended attributes of a descriptor.
    pub(crate) fn open_attribute(&mut self, c: &Call, lists: bool) -> Answer {
        match self.inode_behind(c.args[0])? {
            Some(_) => self.no_attributes(c, lists),
            None => Ok(Verdict::Pass),
        }
    }

    fn no_attributes(&mut self, c: &Call, lists: bool) -> Answer {
        if lists {
            return value(0);
        }
        // Asking what is not there is no loss; only what would be lost is counted.
        let asks = [nr::getxattr, nr::lgetxattr, nr::fgetxattr].contains(&c.number);
        if asks { Err(Errno::EOPNOTSUPP) } else { self.refuse(c.number, Errno::EOPNOTSUPP) }
    }

    /// A call on descriptor argument `index` that is refused if that is Husk's.
    pub(crate) fn refuse_open(&mut self, c: &Call, index: usize, errno: Errno) -> Answer {
        let files = self.services.files();
        match self.services.slot(files, c.args[index] as u32) {
            Slot::Husk(_) => self.refuse(c.number, errno),
            _ => Ok(Verdict::Pass),
        }
    }

    /// `epoll_ctl`: files cannot be waited for, as on Linux.
    pub(crate) fn epoll_ctl(&mut self, c: &Call) -> Answer {
        let files = self.services.files();
        let husk = |slot| matches!(slot, Slot::Husk(_));
        if husk(self.services.slot(files, c.args[0] as u32)) {
            return Err(Errno::EINVAL);
        }
        if husk(self.services.slot(files, c.args[2] as u32)) {
            return Err(Errno::EPERM);
        }
        Ok(Verdict::Pass)
    }

    /// A call that means something only for other kinds of descriptors.
    pub(crate) fn other_kind(&mut self, c: &Call, errno: Errno) -> Answer {
        let files = self.services.files();
        match self.services.slot(files, c.args[0] as u32) {
            Slot::Husk(_) => Err(errno),
            _ => Ok(Verdict::Pass),
        }
    }

    /// `ioctl`.
    pub(crate) fn ioctl(&mut self, c: &Call) -> Answer {
        let (fd, request) = (c.args[0], c.args[1] as u32 as usize);
        let files = self.services.files();
        let slot = self.services.slot(files, fd as u32);
        if let (IOCTL_CLOSE | IOCTL_KEEP, Slot::Husk(_) | Slot::Host(_)) = (request, slot) {
            self.services.set_close_on_exec(files, fd as u32, request == IOCTL_CLOSE)?;
            return if let Slot::Husk(_) = slot { value(0) } else { Ok(Verdict::Pass) };
        }
        let Slot::Husk(description) = slot else {
            return Ok(Verdict::Pass);
        };
        match request {
            IOCTL_READABLE => {
                let inode = self.services.description(description)?.inode;
                let size = self.services.attributes(inode)?.size;
                let left = size.saturating_sub(self.services.offset(description)?);
                self.memory.write(c.args[2], &(left as u32).to_le_bytes())?;
                value(0)
            }
            IOCTL_NONBLOCK => value(0),
            _ if IOCTL_CLONE.contains(&request) => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Refused wherever it is asked for.
    pub(crate) fn not_here(&mut self, c: &Call, errno: Errno) -> Answer {
        self.refuse(c.number, errno)
    }
}
