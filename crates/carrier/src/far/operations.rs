//! Operations on inodes that another node is the home of: one function for each that is declared
//! `of` an argument.

pub(crate) mod fs {
    use husk_proto::fs::*;
    use husk_proto::{Errno, Files, Result};
    use husk_wire::record::{AttributeCall, SpaceCall, What};

    use crate::Direct;
    use crate::far::TAKE_OVER;
    use crate::far::stand_in::everything;

    #[inline]
    pub(crate) fn lookup(me: &mut Direct, dir: Inode, name: &[u8]) -> Result<Step> {
        me.far_step(dir, Some(name))
    }

    #[inline]
    pub(crate) fn step(me: &mut Direct, inode: Inode) -> Result<Step> {
        me.far_step(inode, None)
    }

    #[inline]
    pub(crate) fn lookup_witnessed(
        me: &mut Direct,
        dir: Inode,
        name: &[u8],
        witness: &mut Witness,
    ) -> Result<Step> {
        me.far_step_witnessed(dir, Some(name), witness)
    }

    #[inline]
    pub(crate) fn step_witnessed(
        me: &mut Direct,
        inode: Inode,
        witness: &mut Witness,
    ) -> Result<Step> {
        me.far_step_witnessed(inode, None, witness)
    }

    #[inline]
    pub(crate) fn attributes(me: &mut Direct, inode: Inode) -> Result<Attributes> {
        me.far_attributes(inode)
    }

    #[inline]
    pub(crate) fn read_link(me: &mut Direct, inode: Inode, out: &mut [u8]) -> Result<usize> {
        me.far_read_link(inode, out)
    }

    #[inline]
    pub(crate) fn list(
        me: &mut Direct,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        me.far_list(dir, cookie, emit)
    }

    #[inline]
    pub(crate) fn list_numbers(
        me: &mut Direct,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        me.far_list(dir, cookie, emit)
    }

    #[inline]
    pub(crate) fn parent(me: &mut Direct, dir: Inode) -> Result<Inode> {
        me.far_parent(dir)
    }

    #[inline]
    pub(crate) fn name_of(me: &mut Direct, dir: Inode, out: &mut [u8; 255]) -> Result<usize> {
        me.far_above(dir, Some(out)).map(|found| found.1)
    }

    pub(crate) fn may_run(me: &mut Direct, inode: Inode) -> Result<()> {
        me.far_may(inode, true)
    }

    pub(crate) fn may_write(me: &mut Direct, inode: Inode) -> Result<()> {
        me.far_may(inode, false)
    }

    #[inline]
    pub(crate) fn create(
        me: &mut Direct,
        who: &Credentials<'_>,
        dir: Inode,
        name: &[u8],
        node: Node<'_>,
    ) -> Result<Inode> {
        me.far_create(who, dir, name, node)
    }

    #[inline]
    pub(crate) fn create_nameless(
        _me: &mut Direct,
        _who: &Credentials<'_>,
        _like: Inode,
        _mode: u32,
        _linkable: bool,
    ) -> Result<Inode> {
        Err(Errno::EOPNOTSUPP)
    }

    #[inline]
    pub(crate) fn link(
        me: &mut Direct,
        who: &Credentials<'_>,
        inode: Inode,
        dir: Inode,
        name: &[u8],
    ) -> Result<()> {
        me.far_link(who, inode, dir, name)
    }

    #[inline]
    pub(crate) fn unlink(
        me: &mut Direct,
        who: &Credentials<'_>,
        dir: Inode,
        name: &[u8],
    ) -> Result<()> {
        me.far_remove(who, dir, name, What::File)
    }

    #[inline]
    pub(crate) fn rmdir(
        me: &mut Direct,
        who: &Credentials<'_>,
        dir: Inode,
        name: &[u8],
    ) -> Result<()> {
        me.far_remove(who, dir, name, What::Directory)
    }

    #[inline]
    pub(crate) fn rename(
        me: &mut Direct,
        who: &Credentials<'_>,
        source_dir: Inode,
        source: &[u8],
        target_dir: Inode,
        target: &[u8],
        flags: u32,
    ) -> Result<()> {
        me.far_rename(who, (source_dir, source), (target_dir, target), flags)
    }

    #[inline]
    pub(crate) fn change(
        me: &mut Direct,
        who: &Credentials<'_>,
        inode: Inode,
        change: Change,
    ) -> Result<()> {
        me.far_change(who, inode, change, None)
    }

    pub(crate) fn extended(
        me: &mut Direct,
        inode: Inode,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        me.far_extended(inode, (AttributeCall::Get, 0), (name, &[]), out)
    }

    pub(crate) fn list_extended(
        me: &mut Direct,
        inode: Inode,
        trusted: bool,
        after: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let call = (AttributeCall::List, u32::from(trusted));
        me.far_extended(inode, call, (after, &[]), out)
    }

    pub(crate) fn set_extended(
        me: &mut Direct,
        inode: Inode,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetExtended,
    ) -> Result<()> {
        let call = value.map_or(AttributeCall::Remove, |_| AttributeCall::Set);
        let (call, value) = ((call, Direct::far_how(how)), value.unwrap_or_default());
        me.far_extended(inode, call, (name, value), &mut []).map(drop)
    }

    pub(crate) fn take_extended_over(me: &mut Direct, inode: Inode) -> Result<()> {
        let call = (AttributeCall::Set, TAKE_OVER);
        me.far_extended(inode, call, (&[], &[]), &mut []).map(drop)
    }

    #[inline]
    pub(crate) fn truncate(me: &mut Direct, inode: Inode, size: u64) -> Result<()> {
        me.far_change(&everything(0, 0), inode, Change::default(), Some(size))
    }

    #[inline]
    pub(crate) fn read(
        me: &mut Direct,
        inode: Inode,
        offset: u64,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        me.far_read(inode, offset, length, copy)
    }

    #[inline]
    pub(crate) fn write(
        me: &mut Direct,
        inode: Inode,
        place: Place,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<(u64, usize)> {
        me.far_write(inode, place, length, copy)
    }

    pub(crate) fn receive(
        _me: &mut Direct,
        _inode: Inode,
        _offset: u64,
        _most: usize,
        _take: &mut dyn FnMut(usize) -> Result<usize>,
        _copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    #[inline]
    pub(crate) fn allocate(
        me: &mut Direct,
        inode: Inode,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<()> {
        let range = (offset, length);
        me.far_space(inode, SpaceCall::Allocate, range, keep_size).map(drop)
    }

    #[inline]
    pub(crate) fn punch(me: &mut Direct, inode: Inode, offset: u64, length: u64) -> Result<()> {
        me.far_space(inode, SpaceCall::Punch, (offset, length), true).map(drop)
    }

    #[inline]
    pub(crate) fn seek_data(me: &mut Direct, inode: Inode, offset: u64, data: bool) -> Result<u64> {
        let call = if data { SpaceCall::Data } else { SpaceCall::Hole };
        me.far_space(inode, call, (offset, 0), true)
    }

    #[inline]
    pub(crate) fn runs(
        _me: &mut Direct,
        _inode: Inode,
        _offset: u64,
        _length: u64,
        _fill: bool,
        _emit: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        Err(Errno::ENODEV)
    }

    #[inline]
    pub(crate) fn import(_me: &mut Direct, _dir: Inode, _entries: &[Imported<'_>]) -> Result<bool> {
        Ok(false)
    }

    #[inline]
    pub(crate) fn import_done(_me: &mut Direct, _dir: Inode) -> Result<()> {
        Ok(())
    }

    pub(crate) fn renew(
        me: &mut Direct,
        inode: Inode,
        _found: &Imported<'_>,
        _number: bool,
    ) -> Result<bool> {
        me.far_own(inode, None).map(|()| true)
    }

    #[inline]
    pub(crate) fn adopt(_me: &mut Direct, _inode: Inode, _donor: Inode) -> Result<bool> {
        Err(Errno::EIO)
    }

    #[inline]
    pub(crate) fn open(
        me: &mut Direct,
        who: &Credentials<'_>,
        files: Files,
        inode: Inode,
        flags: u32,
        minimum: u32,
        limit: u32,
    ) -> Result<u32> {
        me.far_open(who, files, inode, flags, (minimum, limit))
    }

    #[inline]
    pub(crate) fn create_open(
        me: &mut Direct,
        who: &Credentials<'_>,
        files: Files,
        dir: Inode,
        name: &[u8],
        mode: u32,
        flags: u32,
        limit: u32,
    ) -> Result<u32> {
        me.far_create_open(who, files, (dir, name), mode, flags, limit)
    }
}

pub(crate) mod shortcuts {
    use husk_proto::Inode;
    use husk_proto::fs::Piece;

    use crate::Direct;

    #[inline]
    pub(crate) fn has_host_bytes(me: &Direct, inode: Inode) -> bool {
        me.far_has_host_bytes(inode)
    }

    #[inline(always)]
    pub(crate) fn piece(me: &Direct, inode: Inode, offset: u64, length: usize) -> Option<Piece> {
        me.far_piece(inode, offset, length)
    }
}

pub(crate) mod process {
    use husk_proto::{Inode, Result};

    use crate::Direct;

    #[inline]
    pub(crate) fn pin(_me: &mut Direct, _inode: Inode) -> Result<()> {
        Ok(())
    }

    pub(crate) fn pin_writes(_me: &mut Direct, _inode: Inode) -> Result<()> {
        Ok(())
    }

    #[inline]
    pub(crate) fn unpin(_me: &mut Direct, _inode: Inode) {}
}

pub(crate) mod lock {
    use husk_proto::lock::*;
    use husk_proto::{Inode, Result};

    use crate::Direct;

    #[inline]
    pub(crate) fn lock(
        me: &mut Direct,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
        _wait: bool,
    ) -> Result<Outcome> {
        me.far_lock(owner, inode, range, mode)
    }

    #[inline]
    pub(crate) fn test(
        me: &mut Direct,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<Held>> {
        me.far_test_lock(owner, inode, range, mode)
    }
}

pub(crate) mod watch {
    use husk_proto::watch::Instance;
    use husk_proto::{Errno, Inode, Result};

    use crate::Direct;

    pub(crate) fn watch_add(
        _me: &mut Direct,
        _instance: Instance,
        _inode: Inode,
        _mask: u32,
    ) -> Result<u32> {
        Err(Errno::ENOSPC)
    }

    #[inline]
    pub(crate) fn watch_note(_me: &mut Direct, _inode: Inode, _what: u32) {}
}
