//! Attributes of an object: `stat`, `access`, `chmod`, `chown`.
//!
//! Order of errors: the path first, then permission, then the store to application memory, as in
//! Linux. Shadows (host descriptors of overlay files) are answered from their inode.

pub(crate) mod acl;
pub(crate) mod flags;
pub(crate) mod times;
pub(crate) mod xattr;

use crate::file::data::Opened;
use crate::path::magic_links::is_standard;
use crate::path::{Aim, Lead, Spot};
use crate::{Answer, Call, Client, Host, Memory, Verdict, layout, value};
use husk_abi::sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW,
    O_PATH, S_IFLNK,
};
use husk_proto::descriptor::Slot;
use husk_proto::fs::{Attributes, Backing, Change, Kind, Step};
use husk_proto::{Credentials, Errno, Inode, Result, Services};

/// `STATX__RESERVED`.
const STATX_RESERVED: usize = 0x8000_0000;

/// The id of the mount, as `/proc/self/mountinfo` has it; and one that is never used again.
pub(crate) const STATX_MNT_ID: u32 = 0x1000;
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Which attributes of a directory entry a flags argument selects.
pub(crate) fn aim_of(flags: usize) -> Aim {
    let flags = flags as u32;
    Aim {
        follow: flags & AT_SYMLINK_NOFOLLOW == 0,
        empty: flags & AT_EMPTY_PATH != 0,
        ..Aim::default()
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `stat`, `lstat`, `newfstatat`: `struct stat` of the path at `spot` to `out`.
    pub(crate) fn stat_path(&mut self, c: &Call, spot: Spot, aim: Aim, out: usize) -> Answer {
        let aim = Aim { absent: true, shown: true, null: true, ..aim };
        match self.locate(c, 0, spot, aim)? {
            Lead::Husk => {
                let inode = self.paths.found(0).inode()?;
                if self.found_portal(0)? {
                    return Ok(Verdict::Return(self.call_elsewhere(c, spot)));
                }
                self.give_stat(inode, out)
            }
            lead if !aim.follow => self.stat_link(c, spot, lead, out),
            Lead::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Lead::Host => Ok(Verdict::Pass),
        }
    }

    /// `lstat` of a name of the host, which may be the link of a Husk descriptor in `/proc`: shown
    /// like that of a descriptor that the host has.
    #[inline(never)]
    fn stat_link(&mut self, c: &Call, spot: Spot, lead: Lead, out: usize) -> Answer {
        let Some(mode) = self.link_mode()? else { return self.hosts_answer(c, spot, lead) };
        let name = husk_abi::proc::descriptor(self.host.kept_fds()[0]);
        let mut stat = [0u8; layout::STAT_BYTES];
        let (name, shown) = (name.as_ptr() as usize, stat.as_mut_ptr() as usize);
        let stay = AT_SYMLINK_NOFOLLOW as usize;
        let args = [AT_FDCWD as usize, name, shown, stay, 0, 0];
        Errno::check(self.host.call(husk_abi::nr::newfstatat, args))?;
        let mut stat = core::hint::black_box(stat);
        layout::put(&mut stat, layout::STAT_MODE_AT, mode.to_le_bytes());
        self.memory.write(out, &stat)?;
        value(0)
    }

    /// The same for `statx`.
    #[inline(never)]
    fn statx_link(&mut self, c: &Call, lead: Lead) -> Answer {
        let spot = crate::path::at(0);
        let Some(mode) = self.link_mode()? else { return self.hosts_answer(c, spot, lead) };
        let name = husk_abi::proc::descriptor(self.host.kept_fds()[0]);
        let mut stat = [0u8; layout::STATX_BYTES];
        let (name, shown) = (name.as_ptr() as usize, stat.as_mut_ptr() as usize);
        let args = [AT_FDCWD as usize, name, c.args[2], c.args[3], shown, 0];
        Errno::check(self.host.call(husk_abi::nr::statx, args))?;
        let mut stat = core::hint::black_box(stat);
        layout::put(&mut stat, layout::STATX_MODE_AT, (mode as u16).to_le_bytes());
        self.memory.write(c.args[4], &stat)?;
        value(0)
    }

    fn hosts_answer(&mut self, c: &Call, spot: Spot, lead: Lead) -> Answer {
        match lead {
            Lead::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            _ => Ok(Verdict::Pass),
        }
    }

    /// The mode of the link in `/proc` that walk 0 is, of a Husk descriptor.
    fn link_mode(&mut self) -> Result<Option<u32>> {
        let Some(fd) = self.linked_descriptor(0)? else { return Ok(None) };
        if is_standard(self.buffers.walks[0].whole()) {
            return Ok(None);
        }
        let may = |yes: bool, bits: u32| if yes { bits } else { 0 };
        let mode = |file: Opened| S_IFLNK | may(file.reads(), 0o500) | may(file.writes(), 0o300);
        Ok(self.opened(fd as usize)?.map(mode))
    }

    #[inline]
    fn give_stat(&mut self, inode: Inode, out: usize) -> Answer {
        let mut attributes = self.services.attributes(inode)?;
        self.give_attributes(&mut attributes, out)
    }

    /// What descriptor `fd` shows.
    #[inline]
    pub(crate) fn give_stat_at(&mut self, fd: usize, inode: Inode, out: usize) -> Answer {
        let mut attributes = self.services.attributes(inode)?;
        self.as_opened(fd, &mut attributes)?;
        self.give_attributes(&mut attributes, out)
    }

    /// Makes of the attributes of a file what descriptor `fd` shows of it. They are changed where
    /// they are: a copy would cost a tenth of an `fstat`.
    #[inline]
    fn as_opened(&mut self, fd: usize, attributes: &mut Attributes) -> Result<()> {
        if attributes.replaced && attributes.backing == Backing::Host {
            self.attributes_of_opened(fd, attributes)?;
        }
        Ok(())
    }

    /// The same where the host has put another file in the place of the one that may be open as
    /// `fd`: its bytes, size and times are those of one file.
    #[cold]
    fn attributes_of_opened(&mut self, fd: usize, all: &mut Attributes) -> Result<()> {
        let files = self.services.files();
        let (slot, Some(origin)) = (self.services.slot(files, fd as u32), all.origin) else {
            return Ok(());
        };
        if matches!(slot, Slot::Husk(_)) {
            return Ok(());
        }
        let stat = self.host_stat(fd)?;
        let (open, now) = (layout::identity(&stat), self.services.host_identity(origin)?);
        if open.object() != now.object() {
            layout::take_stat(&stat, all);
        }
        Ok(())
    }

    #[inline]
    fn give_attributes(&mut self, attributes: &mut Attributes, out: usize) -> Answer {
        self.shown_within(attributes);
        self.memory.write(out, &layout::stat(attributes))?;
        value(0)
    }

    /// `newfstatat`.
    pub(crate) fn newfstatat(&mut self, c: &Call) -> Answer {
        let sync = AT_STATX_SYNC_TYPE;
        let allowed = (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | sync) as usize;
        if c.args[3] as u32 as usize & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        match self.empty_path(c, c.args[3])? {
            Some(inode) => self.give_stat_at(c.args[0], inode, c.args[2]),
            None => self.stat_path(c, crate::path::at(0), aim_of(c.args[3]), c.args[2]),
        }
    }

    /// What descriptor argument 0 shows when path argument 1 is empty and `flags` allow that:
    /// `fstat` as C libraries make it. `None` = find out by the path.
    #[inline]
    fn empty_path(&mut self, c: &Call, flags: usize) -> Result<Option<Inode>> {
        if flags as u32 & AT_EMPTY_PATH == 0 || c.args[0] as i32 == AT_FDCWD {
            return Ok(None);
        }
        if c.args[1] == 0 || self.memory.peek(c.args[1])? == 0 {
            self.inode_behind(c.args[0])
        } else {
            Ok(None)
        }
    }

    /// `fstat`.
    pub(crate) fn fstat(&mut self, c: &Call) -> Answer {
        match self.inode_behind(c.args[0])? {
            Some(inode) => self.give_stat_at(c.args[0], inode, c.args[1]),
            None => Ok(Verdict::Pass),
        }
    }

    /// `statx`.
    pub(crate) fn statx(&mut self, c: &Call) -> Answer {
        let (flags, mask) = (c.args[2] as u32, c.args[3]);
        let sync = AT_STATX_SYNC_TYPE;
        let allowed = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | sync;
        if mask & STATX_RESERVED != 0 || flags & sync == sync || flags & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        if let Some(inode) = self.empty_path(c, c.args[2])? {
            let mut attributes = self.services.attributes(inode)?;
            self.as_opened(c.args[0], &mut attributes)?;
            return self.give_statx(attributes, mask, c.args[4]);
        }
        let aim = Aim { absent: true, shown: true, null: true, ..aim_of(c.args[2]) };
        match self.locate(c, 0, crate::path::at(0), aim)? {
            Lead::Husk => {
                let inode = self.paths.found(0).inode()?;
                if self.found_portal(0)? {
                    return Ok(Verdict::Return(self.call_elsewhere(c, crate::path::at(0))));
                }
                let attributes = self.services.attributes(inode)?;
                self.give_statx(attributes, mask, c.args[4])
            }
            lead if !aim.follow => self.statx_link(c, lead),
            Lead::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, crate::path::at(0)))),
            Lead::Host => Ok(Verdict::Pass),
        }
    }

    fn give_statx(&mut self, mut attributes: Attributes, mask: usize, out: usize) -> Answer {
        let inode = attributes.step.inode;
        self.shown_within(&mut attributes);
        let mut shown = layout::statx(&attributes);
        let wanted = mask as u32 & (STATX_MNT_ID | STATX_MNT_ID_UNIQUE);
        if wanted != 0
            && let Some((given, id)) = self.mount_id(inode, wanted)
        {
            let mask = layout::get32(&shown, 0) | given;
            layout::put(&mut shown, 0, mask.to_le_bytes());
            layout::put(&mut shown, layout::STATX_MOUNT_AT, id.to_le_bytes());
        }
        self.memory.write(out, &shown)?;
        value(0)
    }

    /// `access`, `faccessat`, `faccessat2`.
    pub(crate) fn access(&mut self, c: &Call, spot: Spot, mode: usize, flags: usize) -> Answer {
        let allowed = (AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as usize;
        if mode & !7 != 0 || flags & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        self.judging.by_real_ids(flags & AT_EACCESS as usize == 0);
        let found = match self.locate(c, 0, spot, aim_of(flags)) {
            Ok(Lead::Husk) => self.access_found(mode as u32),
            other => other,
        };
        self.become_effective();
        match found? {
            Lead::Husk => value(0),
            Lead::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Lead::Host => Ok(Verdict::Pass),
        }
    }

    fn access_found(&mut self, mode: u32) -> Result<Lead> {
        let step = self.paths.found(0).step.ok_or(Errno::ENOENT)?;
        if step.kind != Kind::Portal {
            return self.permit(&step, mode).map(|()| Lead::Husk);
        }
        self.found_portal(0).map(|_| Lead::Elsewhere)
    }

    /// The caller's credentials.
    pub(crate) fn credentials(&self) -> Credentials<'_> {
        self.identity.credentials(&self.buffers.groups)
    }

    /// Changes attributes of the object at `spot`.
    pub(crate) fn change_path(&mut self, c: &Call, spot: Spot, aim: Aim, change: Change) -> Answer {
        self.on_existing(c, spot, aim, |client, step| client.change_step(step, change))
    }

    pub(crate) fn change_step(&mut self, step: Step, change: Change) -> Answer {
        if step.kind == Kind::Symlink && change.mode.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let change = self.change_within(change)?;
        if change.mode.is_some() {
            self.take_list_over(step.inode)?;
        }
        if change.is_of_owner() && step.kind == Kind::File {
            self.take_capabilities_over(step.inode)?;
        }
        let who = self.identity.credentials(&self.buffers.groups);
        match self.services.change(&who, step.inode, change) {
            Err(Errno::EACCES) if self.learns_list(step.inode)? => {
                let who = self.identity.credentials(&self.buffers.groups);
                self.services.change(&who, step.inode, change)?;
            }
            other => other?,
        }
        value(0)
    }

    /// Changes attributes of what a descriptor shows; a wrong change is told of after that.
    pub(crate) fn change_open(&mut self, fd: usize, change: Result<Change>) -> Answer {
        self.identify();
        let Some(inode) = self.inode_opened(fd)? else { return Ok(Verdict::Pass) };
        let step = self.services.step(inode)?;
        self.change_step(step, change?)
    }

    /// The inode that a descriptor is open on: `EBADF` for one that is only a path, `None` for the
    /// host's.
    pub(crate) fn inode_opened(&mut self, fd: usize) -> Result<Option<Inode>> {
        let files = self.services.files();
        match self.services.slot(files, fd as u32) {
            Slot::Husk(description) => {
                let open = self.services.description(description)?;
                if open.flags & O_PATH != 0 { Err(Errno::EBADF) } else { Ok(Some(open.inode)) }
            }
            _ if self.is_kept(fd as u32) => Err(Errno::EBADF),
            Slot::Host(shows) => Ok(shows),
            Slot::Free => Ok(None),
        }
    }

    /// `fchmodat2`.
    pub(crate) fn fchmodat2(&mut self, c: &Call) -> Answer {
        let allowed = (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as usize;
        if c.args[3] & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        let change = mode_change(c.args[2]);
        self.change_path(c, crate::path::at(0), aim_of(c.args[3]), change)
    }

    /// `fchownat`.
    pub(crate) fn fchownat(&mut self, c: &Call) -> Answer {
        let allowed = (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as usize;
        if c.args[4] & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        let change = owner_change(c.args[2], c.args[3]);
        self.change_path(c, crate::path::at(0), aim_of(c.args[4]), change)
    }
}

/// New permission bits.
pub(crate) fn mode_change(mode: usize) -> Change {
    Change { mode: Some(mode as u32 & 0o7777), ..Change::default() }
}

/// New owner and group; -1 leaves one alone.
pub(crate) fn owner_change(uid: usize, gid: usize) -> Change {
    let id = |raw: usize| (raw as u32 != u32::MAX).then_some(raw as u32);
    Change { uid: id(uid), gid: id(gid), ..Change::default() }
}
