//! Working directory and umask: `chdir`, `fchdir`, `umask`, `chroot`.

use crate::path::{Aim, Place, plain};
use crate::reason;
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_proto::fs::{Kind, Step, want};
use husk_proto::process::{Sharing, WorkingDirectory};
use husk_proto::{Errno, Services};

/// Of `unshare`: changes nothing, and fails (`EINVAL`) in a process of several threads.
const CLONE_THREAD: usize = 0x1_0000;
/// Another numbering of processes.
const CLONE_NEWPID: usize = 0x2000_0000;
/// Another user namespace.
const CLONE_NEWUSER: usize = 0x1000_0000;

/// Looks for other threads before there are some: one that was joined is the host's for a moment
/// yet.
const LEAVING_TURNS_MAX: usize = 80;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `chdir`.
    pub(crate) fn chdir(&mut self, c: &Call) -> Answer {
        match self.find(c, 0, plain(0), Aim::FOLLOW)? {
            Place::Husk(target) => {
                let step = target.existing()?;
                if !self.is_portal(0, &target)? {
                    return self.work_in(step);
                }
                self.chdir_elsewhere(c)
            }
            Place::Elsewhere => self.chdir_elsewhere(c),
            Place::Host => reason::then(c, reason::DIRECTORY),
        }
    }

    fn chdir_elsewhere(&mut self, c: &Call) -> Answer {
        let raw = self.call_elsewhere(c, plain(0));
        if raw == 0 {
            self.services.set_working_directory(WorkingDirectory::Host)?;
        }
        Ok(Verdict::Return(raw))
    }

    fn work_in(&mut self, step: Step) -> Answer {
        if step.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.permit(&step, want::EXECUTE)?;
        self.services.set_working_directory(WorkingDirectory::Husk(step.inode))?;
        value(0)
    }

    /// `fchdir`.
    pub(crate) fn fchdir(&mut self, c: &Call) -> Answer {
        match self.inode_behind(c.args[0])? {
            Some(inode) => {
                self.identify();
                let step = self.services.step(inode)?;
                self.work_in(step)
            }
            None => reason::then(c, reason::DIRECTORY),
        }
    }

    /// `umask`: Husk's own and the host's, which files made on the host obey.
    pub(crate) fn umask(&mut self, c: &Call) -> Answer {
        let mask = c.args[0] & 0o777;
        self.host.call(c.number, [mask, 0, 0, 0, 0, 0]);
        value(u64::from(self.services.set_umask(mask as u32)))
    }

    /// `unshare`: Husk's tables are parted first, the host's by the call itself.
    pub(crate) fn unshare(&mut self, c: &Call, files: bool, context: bool) -> Answer {
        if c.args[0] & CLONE_NEWPID != 0 {
            return self.refuse(c.number, Errno::EPERM);
        }
        if c.args[0] & CLONE_NEWUSER != 0 {
            self.leave_namespace().or_else(|errno| self.refuse(c.number, errno))?;
        }
        if files || context {
            self.part(c, Sharing { files, context })?;
        }
        self.then_apart(c)
    }

    /// `setns`: not into another numbering of processes, by which nobody could judge who lives.
    pub(crate) fn setns(&mut self, c: &Call) -> Answer {
        // No file of the image is a namespace.
        self.other_kind(c, Errno::EINVAL)?;
        if c.args[1] == 0 || c.args[1] & CLONE_NEWPID != 0 {
            return self.refuse(c.number, Errno::EPERM);
        }
        if c.args[1] & CLONE_NEWUSER != 0 {
            self.leave_namespace().or_else(|errno| self.refuse(c.number, errno))?;
        }
        self.then_apart(c)
    }

    /// Parts what the process shares with others. Its threads have one record, so none of them
    /// can part from the rest; the host is asked whether there are any, and told nothing then.
    pub(crate) fn part(&mut self, c: &Call, sharing: Sharing) -> Result<(), Errno> {
        let only_asks = [CLONE_THREAD, 0, 0, 0, 0, 0];
        for turn in 0..LEAVING_TURNS_MAX {
            match Errno::check(self.host.call(nr::unshare, only_asks)) {
                Ok(_) => return self.services.unshare(sharing),
                Err(Errno::EINVAL) => self.pause(turn),
                Err(errno) => return self.refuse(c.number, errno),
            }
        }
        self.refuse(c.number, Errno::EINVAL)
    }

    /// `chroot`: never into a Husk tree.
    pub(crate) fn chroot(&mut self, c: &Call) -> Answer {
        match self.find(c, 0, plain(0), Aim::FOLLOW)? {
            Place::Husk(target) => {
                target.existing()?;
                self.refuse(c.number, Errno::EPERM)
            }
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, plain(0)))),
            Place::Host => Ok(Verdict::Pass),
        }
    }
}
