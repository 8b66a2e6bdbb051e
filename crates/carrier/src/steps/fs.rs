//! Operations of `fs` that take more than one handler.

use husk_abi::sys::general::O_TRUNC;
use husk_proto::fs::*;
use husk_proto::{Admin as _, Errno, Files, Result};

use crate::Direct;
use crate::far::{FAR, is_far};

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

#[inline]
pub(crate) fn list(
    me: &mut Direct,
    dir: Inode,
    cookie: u64,
    emit: &mut dyn FnMut(Entry<'_>) -> bool,
) -> Result<()> {
    husk_kernel::fs::directory::list::list(&me.kernel, dir, cookie, true, emit)
}

#[inline]
pub(crate) fn list_numbers(
    me: &mut Direct,
    dir: Inode,
    cookie: u64,
    emit: &mut dyn FnMut(Entry<'_>) -> bool,
) -> Result<()> {
    husk_kernel::fs::directory::list::list(&me.kernel, dir, cookie, false, emit)
}

pub(crate) fn may_run(me: &mut Direct, inode: Inode) -> Result<()> {
    me.unless_busy(inode, |writers| writers > 0)
}

pub(crate) fn may_write(me: &mut Direct, inode: Inode) -> Result<()> {
    me.unless_busy(inode, |writers| writers < 0)
}

#[inline]
pub(crate) fn create_nameless(
    me: &mut Direct,
    who: &Credentials<'_>,
    like: Inode,
    mode: u32,
    linkable: bool,
) -> Result<Inode> {
    let now_ns = me.now();
    husk_kernel::process::create_nameless(&me.kernel, who, like, mode, linkable, now_ns)
}

pub(crate) fn change(
    me: &mut Direct,
    who: &Credentials<'_>,
    inode: Inode,
    change: Change,
) -> Result<()> {
    let now_ns = me.now();
    let changed = |me: &mut Direct| {
        husk_kernel::fs::attributes::change(&me.kernel, who, inode, change, now_ns)
    };
    match change.mode {
        // An access control list follows the mode.
        Some(_) => me.extending(inode, changed),
        None => changed(me),
    }
}

pub(crate) fn extended(
    me: &mut Direct,
    inode: Inode,
    name: &[u8],
    out: &mut [u8],
) -> Result<usize> {
    me.extended_value(inode, name, out)
}

pub(crate) fn set_extended(
    me: &mut Direct,
    inode: Inode,
    name: &[u8],
    value: Option<&[u8]>,
    how: SetExtended,
) -> Result<()> {
    me.extending(inode, |me| me.set_extended_value(inode, name, value, how))
}

pub(crate) fn leave_set_bits(me: &mut Direct, what: SetBits) {
    me.kernel.set_bits = what;
}

pub(crate) fn leave_access_times(me: &mut Direct, leave: bool) {
    me.kernel.leaves_access_times = leave;
}

pub(crate) fn receive(
    me: &mut Direct,
    inode: Inode,
    offset: u64,
    most: usize,
    take: &mut dyn FnMut(usize) -> Result<usize>,
    copy: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<usize> {
    let now = me.now();
    husk_kernel::fs::bytes::receive(&me.kernel, inode, offset, most, take, copy, now)
}

pub(crate) fn mappable(
    me: &mut Direct,
    inode: Inode,
    offset: u64,
    length: u64,
    writes: bool,
) -> Result<Inode> {
    match is_far(inode) {
        true => me.far_mappable(inode, (offset, length), writes),
        false => Ok(inode),
    }
}

pub(crate) fn save_mapped(me: &mut Direct, inode: Inode) -> Result<()> {
    if me.is_away { me.far_save_mapped(inode) } else { Ok(()) }
}

pub(crate) fn own_elsewhere(me: &mut Direct, inode: Inode, keep: u64) -> Result<()> {
    me.far_own(inode, Some(keep))
}

#[inline]
pub(crate) fn host_path(me: &mut Direct, origin: Origin, out: &mut [u8]) -> Result<usize> {
    if origin.0 & FAR != 0 {
        return me.far_host_file(origin, out).map(|found| found.0);
    }
    husk_kernel::fs::overlay::host_path(&me.kernel, origin, out)
}

#[inline]
pub(crate) fn host_identity(me: &mut Direct, origin: Origin) -> Result<HostIdentity> {
    if origin.0 & FAR != 0 {
        return me.far_identity(origin);
    }
    husk_kernel::fs::overlay::host_identity(&me.kernel, origin)
}

#[inline]
pub(crate) fn usage(me: &mut Direct) -> Usage {
    if me.is_away {
        let nothing = Usage { blocks: 0, blocks_free: 0, inodes: 0, inodes_free: 0 };
        return me.far_usage().unwrap_or(nothing);
    }
    husk_kernel::fs::attributes::usage(&me.kernel)
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
    // Nobody else asks for the time: it costs as much as a look-up.
    let now_ns = if flags & O_TRUNC != 0 { me.now() } else { 0 };
    let open = |me: &Direct| {
        let kernel = &me.kernel;
        husk_kernel::descriptor::open::open(
            kernel, who, files, inode, flags, minimum, limit, now_ns,
        )
    };
    match open(me) {
        Err(Errno::ETXTBSY) if me.scan_dead()? > 0 => open(me),
        other => other,
    }
}
