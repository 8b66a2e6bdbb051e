//! `Fs` and `Locks`, by calling the handlers.

use husk_abi::sys::general::O_TRUNC;
use husk_proto::fs::*;
use husk_proto::lock::{Held, Locks, Mode, Outcome, Owner, Range};
use husk_proto::{Errno, Files, Inode, Operation, Result};

use husk_wire::record::{AttributeCall, SpaceCall, What};

use crate::Direct;
use crate::far::{FAR, TAKE_OVER, is_far};

impl Direct {
    /// Judges the writers of a file (as a negative number, the processes that run it); who was
    /// killed writes and runs nothing any more, but is asked for only where somebody is in the way.
    fn unless_busy(&mut self, inode: Inode, is_busy: impl Fn(i32) -> bool) -> Result<()> {
        let writers = |direct: &Direct| husk_kernel::fs::named::writers(&direct.kernel, inode);
        if !is_busy(writers(self)?) || self.scan_dead()? > 0 && !is_busy(writers(self)?) {
            return Ok(());
        }
        Err(Errno::ETXTBSY)
    }
}

#[allow(clippy::too_many_arguments)]
impl Fs for Direct {
    #[inline]
    fn lookup(&mut self, dir: Inode, name: &[u8]) -> Result<Step> {
        if is_far(dir) {
            return self.far_step(dir, Some(name));
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::lookup(&self.kernel, dir, name)
    }
    #[inline]
    fn has_host_bytes(&self, inode: Inode) -> bool {
        if is_far(inode) {
            return self.far_has_host_bytes(inode);
        }
        husk_kernel::descriptor::hosts::has_host_bytes(&self.kernel, inode)
    }
    #[inline]
    fn step(&mut self, inode: Inode) -> Result<Step> {
        if is_far(inode) {
            return self.far_step(inode, None);
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::step(&self.kernel, inode)
    }
    #[inline]
    fn lookup_witnessed(&mut self, dir: Inode, name: &[u8], witness: &mut Witness) -> Result<Step> {
        if is_far(dir) {
            *witness = Witness::default();
            return self.far_step(dir, Some(name));
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::lookup_witnessed(&self.kernel, dir, name, witness)
    }
    #[inline]
    fn step_witnessed(&mut self, inode: Inode, witness: &mut Witness) -> Result<Step> {
        if is_far(inode) {
            *witness = Witness::default();
            return self.far_step(inode, None);
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::step_witnessed(&self.kernel, inode, witness)
    }
    #[inline]
    fn holds(&self, witnesses: &[Witness]) -> bool {
        if self.is_away {
            return false;
        }
        husk_kernel::fs::walk::holds(&self.kernel, witnesses)
    }
    #[inline]
    fn attributes(&mut self, inode: Inode) -> Result<Attributes> {
        if is_far(inode) {
            return self.far_attributes(inode);
        }
        self.kernel.count(Operation::Stat);
        husk_kernel::fs::walk::attributes(&self.kernel, inode)
    }
    #[inline]
    fn read_link(&mut self, inode: Inode, out: &mut [u8]) -> Result<usize> {
        if is_far(inode) {
            return self.far_read_link(inode, out);
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::read_link(&self.kernel, inode, out)
    }
    #[inline]
    fn list(
        &mut self,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        if is_far(dir) {
            return self.far_list(dir, cookie, emit);
        }
        self.kernel.count(Operation::List);
        husk_kernel::fs::directory::list::list(&self.kernel, dir, cookie, true, emit)
    }
    #[inline]
    fn list_numbers(
        &mut self,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        if is_far(dir) {
            return self.far_list(dir, cookie, emit);
        }
        self.kernel.count(Operation::List);
        husk_kernel::fs::directory::list::list(&self.kernel, dir, cookie, false, emit)
    }
    #[inline]
    fn parent(&mut self, dir: Inode) -> Result<Inode> {
        if is_far(dir) {
            return self.far_parent(dir);
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::parent(&self.kernel, dir)
    }
    #[inline]
    fn name_of(&mut self, dir: Inode, out: &mut [u8; 255]) -> Result<usize> {
        if is_far(dir) {
            return self.far_above(dir, Some(out)).map(|found| found.1);
        }
        self.kernel.count(Operation::Walk);
        husk_kernel::fs::walk::name_of(&self.kernel, dir, out)
    }
    fn may_run(&mut self, inode: Inode) -> Result<()> {
        if is_far(inode) {
            return self.far_may(inode, true);
        }
        self.unless_busy(inode, |writers| writers > 0)
    }
    fn may_write(&mut self, inode: Inode) -> Result<()> {
        if is_far(inode) {
            return self.far_may(inode, false);
        }
        self.unless_busy(inode, |writers| writers < 0)
    }
    #[inline]
    fn create(
        &mut self,
        who: &Credentials<'_>,
        dir: Inode,
        name: &[u8],
        node: Node<'_>,
    ) -> Result<Inode> {
        if is_far(dir) {
            return self.far_create(who, dir, name, node);
        }
        self.kernel.count(Operation::Create);
        self.naming(dir, None, |me| {
            husk_kernel::fs::directory::names::create(&me.kernel, who, dir, name, node, me.now())
        })
    }
    #[inline]
    fn create_nameless(
        &mut self,
        who: &Credentials<'_>,
        like: Inode,
        mode: u32,
        linkable: bool,
    ) -> Result<Inode> {
        if is_far(like) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.kernel.count(Operation::Create);
        let now_ns = self.now();
        husk_kernel::process::create_nameless(&self.kernel, who, like, mode, linkable, now_ns)
    }
    #[inline]
    fn link(&mut self, who: &Credentials<'_>, inode: Inode, dir: Inode, name: &[u8]) -> Result<()> {
        if is_far(dir) {
            return self.far_link(who, inode, dir, name);
        }
        self.kernel.count(Operation::Link);
        self.naming(dir, None, |me| {
            husk_kernel::fs::directory::names::link(&me.kernel, who, inode, dir, name, me.now())
        })
    }
    #[inline]
    fn unlink(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<()> {
        if is_far(dir) {
            return self.far_remove(who, dir, name, What::File);
        }
        self.kernel.count(Operation::Remove);
        self.naming(dir, None, |me| {
            husk_kernel::fs::directory::names::unlink(&me.kernel, who, dir, name, me.now())
        })
    }
    #[inline]
    fn rmdir(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<()> {
        if is_far(dir) {
            return self.far_remove(who, dir, name, What::Directory);
        }
        self.kernel.count(Operation::Remove);
        self.naming(dir, None, |me| {
            husk_kernel::fs::directory::names::rmdir(&me.kernel, who, dir, name, me.now())
        })
    }
    #[inline]
    fn rename(
        &mut self,
        who: &Credentials<'_>,
        source_dir: Inode,
        source: &[u8],
        target_dir: Inode,
        target: &[u8],
        flags: u32,
    ) -> Result<()> {
        if is_far(source_dir) {
            return self.far_rename(who, (source_dir, source), (target_dir, target), flags);
        }
        self.kernel.count(Operation::Rename);
        self.naming(source_dir, Some(target_dir), |me| {
            husk_kernel::fs::directory::rename::rename(
                &me.kernel,
                who,
                source_dir,
                source,
                target_dir,
                target,
                flags,
                me.now(),
            )
        })
    }
    #[inline]
    fn change(&mut self, who: &Credentials<'_>, inode: Inode, change: Change) -> Result<()> {
        if is_far(inode) {
            return self.far_change(who, inode, change, None);
        }
        self.kernel.count(Operation::Change);
        let now_ns = self.now();
        let changed = |me: &mut Self| {
            husk_kernel::fs::attributes::change(&me.kernel, who, inode, change, now_ns)
        };
        match change.mode {
            // An access control list follows the mode.
            Some(_) => self.extending(inode, changed),
            None => changed(self),
        }
    }
    fn extended(&mut self, inode: Inode, name: &[u8], out: &mut [u8]) -> Result<usize> {
        if is_far(inode) {
            return self.far_extended(inode, (AttributeCall::Get, 0), (name, &[]), out);
        }
        self.kernel.count(Operation::Stat);
        self.extended_value(inode, name, out)
    }
    fn list_extended(
        &mut self,
        inode: Inode,
        trusted: bool,
        after: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        if is_far(inode) {
            let call = (AttributeCall::List, u32::from(trusted));
            return self.far_extended(inode, call, (after, &[]), out);
        }
        self.kernel.count(Operation::Stat);
        husk_kernel::fs::extended::list(&self.kernel, inode, trusted, after, out)
    }
    fn set_extended(
        &mut self,
        inode: Inode,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetExtended,
    ) -> Result<()> {
        if is_far(inode) {
            let call = value.map_or(AttributeCall::Remove, |_| AttributeCall::Set);
            let (call, value) = ((call, Direct::far_how(how)), value.unwrap_or_default());
            return self.far_extended(inode, call, (name, value), &mut []).map(drop);
        }
        self.kernel.count(Operation::Change);
        self.extending(inode, |me| me.set_extended_value(inode, name, value, how))
    }
    fn take_extended_over(&mut self, inode: Inode) -> Result<()> {
        if is_far(inode) {
            let call = (AttributeCall::Set, TAKE_OVER);
            return self.far_extended(inode, call, (&[], &[]), &mut []).map(drop);
        }
        self.kernel.count(Operation::Change);
        husk_kernel::fs::extended::take_over(&self.kernel, inode)
    }
    fn leave_set_bits(&mut self, what: SetBits) {
        self.kernel.set_bits = what;
    }
    fn leave_access_times(&mut self, leave: bool) {
        self.kernel.leaves_access_times = leave;
    }
    #[inline]
    fn truncate(&mut self, inode: Inode, size: u64) -> Result<()> {
        if is_far(inode) {
            let who =
                Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };
            return self.far_change(&who, inode, Change::default(), Some(size));
        }
        self.kernel.count(Operation::Resize);
        husk_kernel::fs::bytes::truncate(&self.kernel, inode, size, self.now())
    }
    #[inline]
    fn read(
        &mut self,
        inode: Inode,
        offset: u64,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        if is_far(inode) {
            return self.far_read(inode, offset, length, copy);
        }
        self.kernel.count(Operation::Read);
        husk_kernel::fs::bytes::read(&self.kernel, inode, offset, length, copy, self.now())
    }
    #[inline(always)]
    fn piece(&mut self, inode: Inode, offset: u64, length: usize) -> Option<Piece> {
        if is_far(inode) {
            return None;
        }
        husk_kernel::fs::bytes::piece(&self.kernel, inode, offset, length)
    }
    #[inline(always)]
    fn has_read(&mut self, inode: Inode, piece: Piece) -> bool {
        let has = husk_kernel::fs::bytes::has_read(&self.kernel, inode, piece, self.now());
        if has {
            self.kernel.count(Operation::Read);
        }
        has
    }
    #[inline]
    fn write(
        &mut self,
        inode: Inode,
        place: Place,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<(u64, usize)> {
        if is_far(inode) {
            return self.far_write(inode, place, length, copy);
        }
        self.kernel.count(Operation::Write);
        husk_kernel::fs::bytes::write(&self.kernel, inode, place, length, copy, self.now())
    }
    fn receive(
        &mut self,
        inode: Inode,
        offset: u64,
        most: usize,
        take: &mut dyn FnMut(usize) -> Result<usize>,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        if is_far(inode) {
            return Err(Errno::EINVAL);
        }
        self.kernel.count(Operation::Write);
        let now = self.now();
        husk_kernel::fs::bytes::receive(&self.kernel, inode, offset, most, take, copy, now)
    }
    #[inline]
    fn allocate(&mut self, inode: Inode, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        if is_far(inode) {
            let range = (offset, length);
            return self.far_space(inode, SpaceCall::Allocate, range, keep_size).map(drop);
        }
        self.kernel.count(Operation::Resize);
        husk_kernel::fs::bytes::allocate(&self.kernel, inode, offset, length, keep_size, self.now())
    }
    #[inline]
    fn punch(&mut self, inode: Inode, offset: u64, length: u64) -> Result<()> {
        if is_far(inode) {
            return self.far_space(inode, SpaceCall::Punch, (offset, length), true).map(drop);
        }
        self.kernel.count(Operation::Resize);
        husk_kernel::fs::bytes::punch(&self.kernel, inode, offset, length, self.now())
    }
    #[inline]
    fn seek_data(&mut self, inode: Inode, offset: u64, data: bool) -> Result<u64> {
        if is_far(inode) {
            let call = if data { SpaceCall::Data } else { SpaceCall::Hole };
            return self.far_space(inode, call, (offset, 0), true);
        }
        self.kernel.count(Operation::Read);
        husk_kernel::fs::bytes::seek_data(&self.kernel, inode, offset, data)
    }
    #[inline]
    fn runs(
        &mut self,
        inode: Inode,
        offset: u64,
        length: u64,
        fill: bool,
        emit: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        if is_far(inode) {
            return Err(Errno::ENODEV);
        }
        self.kernel.count(Operation::Map);
        husk_kernel::fs::bytes::runs(&self.kernel, inode, offset, length, fill, emit)
    }
    #[inline(always)]
    fn is_elsewhere(&self, inode: Inode) -> bool {
        is_far(inode)
    }
    fn mappable(&mut self, inode: Inode, offset: u64, length: u64, writes: bool) -> Result<Inode> {
        match is_far(inode) {
            true if writes => Err(Errno::ENODEV),
            true => self.far_copy(inode, offset, length),
            false => Ok(inode),
        }
    }
    fn own_elsewhere(&mut self, inode: Inode, keep: u64) -> Result<()> {
        self.far_own(inode, Some(keep))
    }
    #[inline]
    fn import(&mut self, dir: Inode, entries: &[Imported<'_>]) -> Result<bool> {
        if is_far(dir) {
            return Ok(false);
        }
        self.kernel.count(Operation::Import);
        husk_kernel::fs::overlay::import(&self.kernel, dir, entries, self.now())
    }
    #[inline]
    fn import_done(&mut self, dir: Inode) -> Result<()> {
        if is_far(dir) {
            return Ok(());
        }
        husk_kernel::fs::overlay::import_done(&self.kernel, dir)
    }
    fn renew(&mut self, inode: Inode, found: &Imported<'_>, number: bool) -> Result<bool> {
        if is_far(inode) {
            return self.far_own(inode, None).map(|()| true);
        }
        self.kernel.count(Operation::Import);
        husk_kernel::fs::refresh::renew(&self.kernel, inode, found, number)
    }
    fn import_late(&mut self, dir: Inode, entries: &[Imported<'_>]) -> Result<()> {
        self.kernel.count(Operation::Import);
        husk_kernel::fs::refresh::import_late(&self.kernel, dir, entries, self.now())
    }
    fn forget(&mut self, dir: Inode, name: &[u8], inode: Inode) -> Result<bool> {
        self.kernel.count(Operation::Import);
        husk_kernel::fs::refresh::forget(&self.kernel, dir, name, inode, self.now())
    }
    #[inline]
    fn host_path(&mut self, origin: Origin, out: &mut [u8]) -> Result<usize> {
        if origin.0 & FAR != 0 {
            return self.far_host_file(origin, out).map(|found| found.0);
        }
        husk_kernel::fs::overlay::host_path(&self.kernel, origin, out)
    }
    #[inline]
    fn host_identity(&mut self, origin: Origin) -> Result<HostIdentity> {
        if origin.0 & FAR != 0 {
            return self.far_identity(origin);
        }
        husk_kernel::fs::overlay::host_identity(&self.kernel, origin)
    }
    #[inline]
    fn adopt(&mut self, inode: Inode, donor: Inode) -> Result<bool> {
        if is_far(inode) {
            return Err(Errno::EIO);
        }
        self.kernel.count(Operation::Import);
        husk_kernel::fs::overlay::adopt(&self.kernel, inode, donor)
    }
    #[inline]
    fn whiteouts(
        &mut self,
        dir: Inode,
        emit: &mut dyn FnMut(&[u8], Origin) -> Result<()>,
    ) -> Result<()> {
        self.kernel.count(Operation::List);
        husk_kernel::fs::directory::list::whiteouts(&self.kernel, dir, emit)
    }
    #[inline]
    fn usage(&mut self) -> Usage {
        if self.is_away {
            let nothing = Usage { blocks: 0, blocks_free: 0, inodes: 0, inodes_free: 0 };
            return self.far_usage().unwrap_or(nothing);
        }
        husk_kernel::fs::attributes::usage(&self.kernel)
    }
    #[inline]
    fn open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        inode: Inode,
        flags: u32,
        minimum: u32,
        limit: u32,
    ) -> Result<u32> {
        if is_far(inode) {
            return self.far_open(who, files, inode, flags, (minimum, limit));
        }
        self.kernel.count(Operation::Open);
        // Nobody else asks for the time: it costs as much as a look-up.
        let now_ns = if flags & O_TRUNC != 0 { self.now() } else { 0 };
        let open = |me: &Self| {
            let kernel = &me.kernel;
            husk_kernel::descriptor::open::open(
                kernel, who, files, inode, flags, minimum, limit, now_ns,
            )
        };
        match open(self) {
            Err(Errno::ETXTBSY) if self.scan_dead()? > 0 => open(self),
            other => other,
        }
    }
    #[inline]
    fn create_open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        dir: Inode,
        name: &[u8],
        mode: u32,
        flags: u32,
        limit: u32,
    ) -> Result<u32> {
        if is_far(dir) {
            return self.far_create_open(who, files, (dir, name), mode, flags, limit);
        }
        self.kernel.count(Operation::Create);
        self.naming(dir, None, |me| {
            husk_kernel::descriptor::open::create_open(
                &me.kernel,
                who,
                files,
                dir,
                name,
                mode,
                flags,
                limit,
                me.now(),
            )
        })
    }
}

/// Who has waited so long for a file's lock looks for the dead.
const BURY_NS: i64 = 500_000_000;

impl Locks for Direct {
    #[inline]
    fn lock(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
        wait: bool,
    ) -> Result<Outcome> {
        if is_far(inode) {
            return if mode == Mode::Unlock { Ok(Outcome::Granted) } else { Err(Errno::ENOLCK) };
        }
        self.kernel.count(Operation::Lock);
        let outcome = husk_kernel::lock::lock(&self.kernel, owner, inode, range, mode, wait)?;
        if !wait {
            return Ok(outcome);
        }
        if outcome == Outcome::Granted {
            self.blocked_ns = 0;
            return Ok(outcome);
        }
        let now_ns = self.now();
        if self.blocked_ns == 0 {
            self.blocked_ns = now_ns;
        } else if now_ns.saturating_sub(self.blocked_ns) >= BURY_NS {
            // Whoever holds it may be dead, and whoever buries the dead is, too.
            self.blocked_ns = now_ns;
            self.scan_dead()?;
            return husk_kernel::lock::lock(&self.kernel, owner, inode, range, mode, wait);
        }
        Ok(outcome)
    }
    #[inline]
    fn test(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<Held>> {
        if is_far(inode) {
            return Err(Errno::ENOLCK);
        }
        self.kernel.count(Operation::Lock);
        husk_kernel::lock::test(&self.kernel, owner, inode, range, mode)
    }
}
