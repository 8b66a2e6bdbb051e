//! Stand-ins in this node's tables for inodes of other nodes: see `far`.
//!
//! A stand-in is a file without a name, of which owner and group are number and generation of the
//! inode at home, and the time of modification the number of the hold that the home keeps on it
//! (0: none); the time of access names the description at home, if that has the offset (`passed`).
//! It goes with the last descriptor, directory or mount that names it; the hold goes then, too.

use husk_abi::sys::general::{
    O_ACCMODE, O_CREAT, O_EXCL, O_PATH, O_RDONLY, O_TRUNC, O_WRONLY, S_IFREG,
};
use husk_kernel::descriptor::open::AT_HOME;
use husk_kernel::descriptor::table;
use husk_kernel::fs::{attributes, walk};
use husk_kernel::process::pins;
use husk_proto::descriptor::{Description, Open, Shown, Slot};
use husk_proto::fs::{Change, Node, Time};
use husk_proto::process::{Processes as _, WorkingDirectory};
use husk_proto::{Credentials, Errno, Files, Inode, Result, Shortcuts as _};
use husk_region::Without;
use husk_wire::record::{Access, Spot};
use husk_wire::text::List;
use husk_wire::{AFAR, message, request};

use super::{FAR, Room, SHORT, caller, far, name, object};
use crate::Direct;

/// Holds that are given back with one message.
const GIVEN_MAX: usize = 64;

fn access(flags: u32) -> Access {
    match flags & O_ACCMODE {
        O_RDONLY => Access::Read,
        O_WRONLY => Access::Write,
        _ => Access::Both,
    }
}

pub(super) fn everything(uid: u32, gid: u32) -> Credentials<'static> {
    Credentials { uid, gid, groups: &[], capabilities: u64::MAX, within: None }
}

impl Direct {
    /// A file of this node without a name, pinned once.
    pub(super) fn nameless(&mut self, who: &Credentials<'_>, mode: u32) -> Result<Inode> {
        let root = husk_kernel::image::mount(&self.kernel, 0).root;
        let now_ns = self.now();
        husk_kernel::process::create_nameless(&self.kernel, who, root, mode, false, now_ns)
    }

    /// What stands for a far inode, pinned once.
    pub(crate) fn stand_in(&mut self, inode: Inode, hold: u64) -> Result<Inode> {
        self.stand_in_of(inode, hold, 0)
    }

    /// The same, with the description at home whose offset it is.
    pub(super) fn stand_in_of(
        &mut self,
        inode: Inode,
        hold: u64,
        description: u64,
    ) -> Result<Inode> {
        let [modified, accessed] = [hold, description].map(|word| Some(Time::At(word as i64)));
        self.standing_for(inode, 0o600, Change { modified, accessed, ..Change::default() })
    }

    /// A file without a name by whose owner and group a far inode is known, pinned once, with this
    /// mode and change.
    pub(super) fn standing_for(
        &mut self,
        inode: Inode,
        mode: u32,
        change: Change,
    ) -> Result<Inode> {
        let who = everything(inode.number & !FAR, inode.generation);
        let own = self.nameless(&who, mode)?;
        let changed = self.change_own(own, change);
        if changed.is_err() {
            let _ = pins::unpin(&self.kernel, own);
        }
        changed.map(|()| own)
    }

    /// Changes what a file of this node says of what it stands for.
    pub(super) fn change_own(&mut self, own: Inode, change: Change) -> Result<()> {
        attributes::change(&self.kernel, &everything(0, 0), own, change, self.now())
    }

    /// The same for what is open at home, which is closed again where there is no room. `ENFILE`.
    pub(super) fn stand_in_for(
        &mut self,
        inode: Inode,
        hold: u64,
        description: u64,
    ) -> Result<Inode> {
        self.stand_in_of(inode, hold, description).map_err(|errno| {
            self.far_give_back(&[hold]);
            if errno == Errno::ENOSPC { Errno::ENFILE } else { errno }
        })
    }

    /// The far inode that one of this node stands for.
    #[inline(never)]
    pub(crate) fn home_of(&self, own: Inode) -> Result<Inode> {
        // A call begins here: what an earlier one was told counts no more.
        self.far_forget();
        let step = walk::step(&self.kernel, own)?;
        Ok(Inode { number: step.uid | FAR, generation: step.gid })
    }

    /// The same of what a table, a directory or a mount names, which lives as long as that.
    #[inline(never)]
    pub(crate) fn far_slot(&self, slot: Slot) -> Slot {
        match slot {
            Slot::Host(Some(own)) => Slot::Host(self.home_of(own).ok()),
            other => other,
        }
    }

    /// `Descriptors::slot`.
    #[inline(never)]
    pub(crate) fn far_slot_of(&self, files: Files, fd: u32) -> Slot {
        self.far_slot(husk_kernel::descriptor::table::slot(&self.kernel, files, fd))
    }

    /// `Descriptors::description`.
    #[inline(never)]
    pub(crate) fn far_description(&self, description: Description) -> Result<Open> {
        let open = husk_kernel::descriptor::open::description(&self.kernel, description)?;
        let flags = open.flags & !AT_HOME;
        Ok(Open { inode: self.home_of(open.inode)?, flags })
    }

    /// What this node's table has of a file of the host that shows a far inode.
    pub(crate) fn own_shown(&self, files: Files, fd: u32) -> Result<Inode> {
        match husk_kernel::descriptor::table::slot(&self.kernel, files, fd) {
            Slot::Host(Some(own)) => Ok(own),
            _ => Err(Errno::EBADF),
        }
    }

    /// `Descriptors::promote`: the home has it open from now on, for its locks.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_promote(
        &mut self,
        files: Files,
        fd: u32,
        inode: Inode,
        flags: u32,
        offset: u64,
    ) -> Result<Description> {
        let own = self.own_shown(files, fd)?;
        let mut hold = 0;
        if self.node() < AFAR && walk::attributes(&self.kernel, own)?.modified_ns == 0 {
            hold = self.far_hold(inode, flags & O_ACCMODE)?;
            self.keep_hold(own, hold).inspect_err(|_| self.far_give_back(&[hold]))?;
        }
        let promoted = table::promote(&self.kernel, files, fd, own, flags, offset);
        if promoted.is_err() && hold != 0 {
            let _ = self.keep_hold(own, 0);
            self.far_give_back(&[hold]);
        }
        promoted
    }

    pub(super) fn keep_hold(&mut self, own: Inode, hold: u64) -> Result<()> {
        let change = Change { modified: Some(Time::At(hold as i64)), ..Change::default() };
        self.change_own(own, change)
    }

    /// Opens a far inode at home for who has it open already.
    pub(super) fn far_hold(&mut self, inode: Inode, flags: u32) -> Result<u64> {
        self.far_forget();
        self.ask_to_open(&everything(0, 0), inode, flags, access(flags))
    }

    /// The hold that home gives; 0: none.
    fn ask_to_open(
        &mut self,
        who: &Credentials<'_>,
        inode: Inode,
        flags: u32,
        access: Access,
    ) -> Result<u64> {
        let (object, leaves, caller) = (object(inode), self.leaves(), caller(who)?);
        let asked = request::Open { object, flags, access, leaves, caller };
        let mut incoming = [0; 1024];
        let said = self.ask::<message::Open>(&asked, &mut [0; SHORT], &mut incoming)?;
        Ok(said.grant.map_or(0, |grant| grant.number))
    }

    /// Bytes of a file that the host opened are the host's, as they were then.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_reads_host(&self, fd: u32) -> bool {
        self.own_shown(self.files(), fd).is_ok()
    }

    /// `step` with what is shown as this node's tables have it.
    fn showing<T>(
        &mut self,
        shows: Shown,
        step: impl FnOnce(&mut Self, Shown) -> Result<T>,
    ) -> Result<T> {
        let (own, shows) = match shows {
            Shown::File(inode) => {
                let own = self.stand_in(inode, 0)?;
                (own, Shown::File(own))
            }
            Shown::Node(inode) => {
                let own = self.stand_in(inode, 0)?;
                (own, Shown::Node(own))
            }
            other => return step(self, other),
        };
        let done = step(self, shows);
        self.unpin(own);
        done
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_host_opened(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Shown,
    ) -> Result<bool> {
        self.showing(shows, |me, shows| {
            let kernel = &me.kernel;
            husk_kernel::descriptor::table::host_opened(kernel, files, fd, close_on_exec, shows)
        })
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_host_replaces(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Shown,
    ) -> Result<()> {
        self.showing(shows, |me, shows| {
            let replace =
                |me: &mut Direct| table::host_replaces(&me.kernel, files, fd, close_on_exec, shows);
            if me.keep_replaced(files, fd, true) {
                return replace(me);
            }
            me.far_close(files, fd, replace)
        })
    }

    /// Opens a far inode at home, and what stands for it here.
    #[inline(never)]
    pub(crate) fn far_open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        inode: Inode,
        flags: u32,
        (minimum, limit): (u32, u32),
    ) -> Result<u32> {
        self.far_number(files, minimum, limit)?;
        self.far_forget();
        if let Some(fd) = self.far_reopen(who, files, inode, flags, (minimum, limit))? {
            return Ok(fd);
        }
        let hold = self.ask_to_open(who, inode, flags, access(flags))?;
        self.far_opened(files, inode, hold, flags, (minimum, limit))
    }

    /// Makes a file at home and opens it.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_create_open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        (dir, bytes): (Inode, &[u8]),
        mode: u32,
        flags: u32,
        limit: u32,
    ) -> Result<u32> {
        self.far_number(files, 0, limit)?;
        if self.without().has(Without::COALESCED) {
            let made = self.far_create(who, dir, bytes, Node::File(mode))?;
            // Whoever has made a file may open it, whatever its mode says.
            return self.far_open(&everything(0, 0), files, made, flags & !O_EXCL, (0, limit));
        }
        self.far_forget();
        let (mut outgoing, mut incoming) = ([0; SHORT], [0; 1024]);
        let spot = Spot { directory: object(dir), name: name(bytes)? };
        let (mode, open) = (mode | S_IFREG, Some(access(flags)));
        let (device, target, own, caller) = (0, None, None, caller(who)?);
        let asked = request::Create { spot, mode, device, target, flags, open, own, caller };
        let said = self.ask::<message::Create>(&asked, &mut outgoing, &mut incoming)?;
        let hold = said.grant.map_or(0, |grant| grant.number);
        self.far_opened(files, far(said.attributes.place.object), hold, flags, (0, limit))
    }

    /// Who has no number to give opens nothing.
    fn far_number(&mut self, files: Files, minimum: u32, limit: u32) -> Result<()> {
        let region = &self.kernel.session.region;
        husk_kernel::descriptor::table::lowest_free(region, files, minimum, limit).map(drop)
    }

    /// Gives a far inode that is open at home a number here.
    pub(crate) fn far_opened(
        &mut self,
        files: Files,
        inode: Inode,
        hold: u64,
        flags: u32,
        (minimum, limit): (u32, u32),
    ) -> Result<u32> {
        let own = self.stand_in_for(inode, hold, 0)?;
        self.far_number_for(files, own, hold, flags, (minimum, limit))
    }

    /// Gives what stands for a far inode a number here.
    pub(super) fn far_number_for(
        &mut self,
        files: Files,
        own: Inode,
        hold: u64,
        flags: u32,
        (minimum, limit): (u32, u32),
    ) -> Result<u32> {
        let flags = flags & !(O_TRUNC | O_CREAT | O_EXCL);
        let who = everything(0, 0);
        let opened = husk_kernel::descriptor::open::open(
            &self.kernel,
            &who,
            files,
            own,
            flags,
            minimum,
            limit,
            0,
        );
        self.unpin(own);
        if opened.is_err() {
            self.far_give_back(&[hold]);
        }
        opened
    }

    /// Whether somebody who runs or writes a file is in the way of the other.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_may(&mut self, inode: Inode, runs: bool) -> Result<()> {
        let access = if runs { Access::Run } else { Access::Write };
        self.ask_to_open(&everything(0, 0), inode, O_PATH, access).map(drop)
    }

    /// Tells the home that holds are not needed any more. What is not told is kept until this node
    /// ends.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_give_back(&mut self, holds: &[u64]) {
        self.far_return(holds, false);
    }

    /// The same; `quiet`: of what was closed before.
    pub(super) fn far_return(&mut self, holds: &[u64], quiet: bool) {
        for some in holds.chunks(GIVEN_MAX) {
            let mut given = [0; GIVEN_MAX];
            let mut count = 0;
            for &hold in some.iter().filter(|hold| **hold != 0) {
                given[count] = hold;
                count += 1;
            }
            let Ok(grants) = List::new(&given[..count]) else { return };
            if count > 0 {
                let asked = request::Return { grants, quiet };
                let _ = self.ask::<message::Return>(&asked, &mut [0; SHORT], &mut [0; 128]);
            }
        }
    }

    /// What stands here for what the descriptor `fd` names at home, and its hold there; 0: none.
    fn held_by(&mut self, files: Files, fd: u32) -> Option<(Inode, u64)> {
        let slot = husk_kernel::descriptor::table::slot(&self.kernel, files, fd);
        let Slot::Husk(description) = slot else { return None };
        // On another host a file of this host that was made the image's has no hold.
        self.held_behind(description).ok()
    }

    /// The same of a description.
    pub(super) fn held_behind(&self, description: Description) -> Result<(Inode, u64)> {
        let open = husk_kernel::descriptor::open::description(&self.kernel, description)?;
        let found = walk::attributes(&self.kernel, open.inode)?;
        Ok((open.inode, found.modified_ns as u64))
    }

    /// `step` closes `fd`: if that was the last number, the home's hold goes, too.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_close<T>(
        &mut self,
        files: Files,
        fd: u32,
        step: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let held = self.held_by(files, fd);
        if let Some((own, _)) = held {
            self.far_drop_locks(files, own);
        }
        let done = step(self);
        if let Some((own, hold)) = held
            && walk::step(&self.kernel, own).is_err()
        {
            self.far_give_back(&[hold]);
        }
        done
    }

    /// Calls `emit` with each number of a table that names something of the home, with what stands
    /// for that, and with the hold; 0: it has none.
    pub(super) fn each_held(
        &mut self,
        files: Files,
        emit: &mut dyn FnMut(&mut Self, u32, Inode, u64),
    ) {
        let mut next = 0;
        while let Some(fd) = self.next_number(files, next) {
            if let Some((own, hold)) = self.held_by(files, fd) {
                emit(self, fd, own, hold);
            }
            next = fd + 1;
        }
    }

    /// The same of all that this process has open; `at_exec`: of what an exec closes.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_close_all(&mut self, at_exec: bool, step: impl FnOnce(&mut Self)) {
        let (files, mut count) = (self.files(), 0);
        // Locks of a table that others have stay: an exec closes in a table of its own. One that
        // has it alone gives back those of what it closes.
        let drops = table::sharers(&self.kernel, files) <= 1;
        if drops && !at_exec {
            self.keep_all(files);
        }
        self.each_held(files, &mut |me, fd, own, _| {
            count += 1;
            if drops && (!at_exec || table::close_on_exec(&me.kernel, files, fd) == Ok(true)) {
                me.far_drop_locks(files, own);
            }
        });
        let mapped = self.far_save_all();
        let (mut few, mut room) = ([[0; 2]; GIVEN_MAX], None);
        if count > GIVEN_MAX {
            // Without memory for them, what is above the first is kept until this node ends.
            room = Room::of(count * size_of::<[u64; 2]>()).ok();
        }
        let held = room.as_mut().map_or(&mut few[..], Room::pairs);
        let mut known = 0;
        self.each_held(files, &mut |_, _, own, hold| {
            if let Some(place) = held.get_mut(known) {
                *place = [u64::from(own.generation) << 32 | u64::from(own.number), hold];
                known += 1;
            }
        });
        step(self);
        self.far_unmapped(&mapped);
        let mut gone = [0; GIVEN_MAX];
        for some in held[..known].chunks(GIVEN_MAX) {
            for (gone, &[own, hold]) in gone.iter_mut().zip(some) {
                let own = Inode { number: own as u32, generation: (own >> 32) as u32 };
                *gone = if walk::step(&self.kernel, own).is_err() { hold } else { 0 };
            }
            self.far_give_back(&gone[..some.len()]);
        }
    }

    /// The same of what process `pid`, which is dead, had open.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_reap<T>(&mut self, pid: u32, step: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let Some(record) = husk_kernel::process::record_of(&self.kernel, pid) else {
            return Some(step(self));
        };
        let (own, mut done) = (self.kernel.process, None);
        self.kernel.process = record;
        self.far_close_all(false, |me| {
            me.kernel.process = own;
            done = Some(step(me));
        });
        done
    }

    /// Where a process works, as the client knows it.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_place(&self, place: WorkingDirectory) -> WorkingDirectory {
        match place {
            WorkingDirectory::Husk(own) => {
                self.home_of(own).map_or(WorkingDirectory::Host, WorkingDirectory::Husk)
            }
            WorkingDirectory::Host => place,
        }
    }

    /// A working directory of another node.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_directory(&mut self, inode: Inode) -> Result<Inode> {
        let kind = self.far_look(inode, None, None)?.0.step.kind;
        if kind == husk_proto::fs::Kind::Directory {
            self.stand_in(inode, 0)
        } else {
            Err(Errno::ENOTDIR)
        }
    }
}
