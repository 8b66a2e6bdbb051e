//! Access control lists: who may change them, and what they allow.
//!
//! The image knows the lists of a host directory from its listing on (`lower`). It learns those of
//! other host objects when it would refuse something, and before it changes their mode: with most
//! objects nothing is asked of the host.

use super::xattr::{Asked, Asking};
use crate::{Client, Host, Memory};
use husk_abi::capability::{FOWNER, FSETID};
use husk_abi::nr;
use husk_abi::sys::general::S_ISGID;
use husk_proto::fs::{Backing, Change, Kind, SetExtended, Step};
use husk_proto::{Errno, Inode, Result, Services, acl};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Checks bits of `want` against an inode, with its access list if it has one.
    #[inline]
    pub(crate) fn permit(&mut self, step: &Step, want: u32) -> Result<()> {
        if step.acl {
            return self.permit_by_list(step, want);
        }
        match self.credentials().permit(step, want) {
            Ok(()) => Ok(()),
            Err(errno) => self.permit_by_host(step, want, errno),
        }
    }

    #[cold]
    #[inline(never)]
    fn permit_by_list(&mut self, step: &Step, want: u32) -> Result<()> {
        let mut list = [0; acl::BYTES_MAX];
        let length = match self.services.extended(step.inode, acl::ACCESS, &mut list) {
            Ok(length) if length <= list.len() => length,
            // Taken away meanwhile, or too long: it gives nobody anything.
            _ => 0,
        };
        self.credentials().permit_by_list(step, &list[..length], want)
    }

    /// The mode refuses it: the list of a host object may not.
    #[cold]
    #[inline(never)]
    fn permit_by_host(&mut self, step: &Step, want: u32, refused: Errno) -> Result<()> {
        if self.credentials().uid == step.uid || !self.learns_list(step.inode)? {
            return Err(refused);
        }
        let step = self.services.step(step.inode)?;
        self.permit_by_list(&step, want)
    }

    /// Takes over what a host object has, if the image did not know that it has an access list.
    #[cold]
    #[inline(never)]
    pub(crate) fn learns_list(&mut self, inode: Inode) -> Result<bool> {
        let found = self.services.attributes(inode)?;
        let step = found.step;
        let hosts = found.extended == Backing::Host && found.origin.is_some();
        let may_have = !matches!(step.kind, Kind::Symlink | Kind::Portal);
        if !hosts || !may_have || step.mode & 0o070 == 0 {
            return Ok(false);
        }
        self.take_list_over(inode)?;
        Ok(self.services.step(inode)?.acl)
    }

    /// Whether a list may be looked at, set or removed; an empty one is none.
    pub(crate) fn may_list(&mut self, step: &Step, asked: &mut Asked) -> Result<()> {
        if asked.wish == Asking::Get {
            let kinds = step.kind != Kind::Symlink;
            return if kinds { Ok(()) } else { Err(Errno::EOPNOTSUPP) };
        }
        // Linux asks nothing of these flags here.
        asked.how = SetExtended::Any;
        let size = if asked.wish == Asking::Set { asked.size } else { 0 };
        if !acl::is_given(&self.buffers.value[..size])? {
            asked.wish = Asking::Remove;
        }
        let sets = asked.wish == Asking::Set;
        if step.kind == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if asked.name() == acl::DEFAULT && step.kind != Kind::Directory {
            return if sets { Err(Errno::EACCES) } else { Ok(()) };
        }
        let (who, uid, gid) = (self.credentials(), step.uid, step.gid);
        if who.uid != uid && !who.can_over(uid, gid, FOWNER) {
            return Err(Errno::EPERM);
        }
        if !sets {
            return Ok(());
        }
        acl::check(&self.buffers.value[..size])?;
        let keeps = who.in_group(gid) || who.can_over(uid, gid, FSETID);
        if asked.name() == acl::ACCESS && step.mode & S_ISGID != 0 && !keeps {
            let change = Change { mode: Some(step.mode & !S_ISGID), ..Change::default() };
            let who = self.identity.credentials(&self.buffers.groups);
            self.services.change(&who, step.inode, change)?;
        }
        Ok(())
    }

    /// Takes the lists of a host directory over, which is open as `fd` (`None`: not for this), if
    /// it has any.
    pub(crate) fn import_lists(&mut self, directory: Inode, fd: Option<usize>) -> Result<()> {
        if self.services.attributes(directory)?.extended == Backing::Image {
            return Ok(());
        }
        let (number, at) = match fd {
            Some(fd) => (nr::flistxattr, fd),
            None => (nr::llistxattr, self.host_text(directory)?),
        };
        let names = &mut self.buffers.bounce;
        let args = [at, names.as_mut_ptr() as usize, names.len(), 0, 0, 0];
        match self.host.call(number, args) {
            // It has none, or shows none.
            ..1 => Ok(()),
            length => {
                let names = &core::hint::black_box(&self.buffers.bounce)[..length as usize];
                let has = names.split(|&byte| byte == 0).any(acl::is_list);
                if has { self.take_over(directory) } else { Ok(()) }
            }
        }
    }
}
