//! Operations of `descriptor` that differ on other nodes, or give less than their handler.

use husk_proto::descriptor::*;
use husk_proto::{Inode, Result};

use crate::Direct;
use crate::far::is_far;

#[inline]
pub(crate) fn slot(me: &mut Direct, files: Files, fd: u32) -> Slot {
    if me.is_away {
        return me.far_slot_of(files, fd);
    }
    husk_kernel::descriptor::table::slot(&me.kernel, files, fd)
}

#[inline(always)]
pub(crate) fn description(me: &mut Direct, description: Description) -> Result<Open> {
    if me.is_away {
        return me.far_description(description);
    }
    husk_kernel::descriptor::open::description(&me.kernel, description)
}

#[inline]
pub(crate) fn lowest_free(me: &mut Direct, files: Files, minimum: u32, limit: u32) -> Result<u32> {
    husk_kernel::descriptor::table::lowest_free(&me.kernel.session.region, files, minimum, limit)
}

#[inline]
pub(crate) fn duplicate_to(
    me: &mut Direct,
    files: Files,
    fd: u32,
    target: u32,
    close_on_exec: bool,
    over_host: bool,
) -> Result<()> {
    let step = |me: &mut Direct| {
        husk_kernel::descriptor::table::duplicate_to(
            &me.kernel,
            files,
            fd,
            target,
            close_on_exec,
            over_host,
        )
    };
    if me.is_away && !me.far_keep_replaced(files, fd, target) {
        return me.far_close(files, target, step);
    }
    step(me)
}

#[inline]
pub(crate) fn plugged(me: &mut Direct, files: Files, fd: u32) -> bool {
    husk_kernel::descriptor::table::plugged(&me.kernel.session.region, files, fd)
}

#[inline]
pub(crate) fn close(me: &mut Direct, files: Files, fd: u32) -> Result<bool> {
    let step = |me: &mut Direct| husk_kernel::descriptor::table::close(&me.kernel, files, fd);
    if me.is_away && me.far_keep(files, fd) {
        return Ok(false);
    }
    if me.is_away { me.far_close(files, fd, step) } else { step(me) }
}

#[inline]
pub(crate) fn for_each(
    me: &mut Direct,
    files: Files,
    first: u32,
    last: u32,
    emit: &mut dyn FnMut(u32, Slot),
) {
    let mut seen = |fd, slot| emit(fd, if me.is_away { me.far_slot(slot) } else { slot });
    husk_kernel::descriptor::table::for_each(&me.kernel, files, first, last, &mut seen);
}

#[inline]
pub(crate) fn host_opened(
    me: &mut Direct,
    files: Files,
    fd: u32,
    close_on_exec: bool,
    shows: Shown,
) -> Result<bool> {
    if me.is_away {
        return me.far_host_opened(files, fd, close_on_exec, shows);
    }
    husk_kernel::descriptor::table::host_opened(&me.kernel, files, fd, close_on_exec, shows)
}

#[inline]
pub(crate) fn host_replaces(
    me: &mut Direct,
    files: Files,
    fd: u32,
    close_on_exec: bool,
    shows: Shown,
) -> Result<()> {
    if me.is_away {
        return me.far_host_replaces(files, fd, close_on_exec, shows);
    }
    husk_kernel::descriptor::table::host_replaces(&me.kernel, files, fd, close_on_exec, shows)
}

#[inline]
pub(crate) fn promote(
    me: &mut Direct,
    files: Files,
    fd: u32,
    inode: Inode,
    flags: u32,
    offset: u64,
) -> Result<Description> {
    if is_far(inode) {
        return me.far_promote(files, fd, inode, flags, offset);
    }
    husk_kernel::descriptor::table::promote(&me.kernel, files, fd, inode, flags, offset)
}

#[inline]
pub(crate) fn host_closed(me: &mut Direct, files: Files, fd: u32) {
    let _ = husk_kernel::descriptor::table::host_closed(&me.kernel, files, fd);
}

#[inline]
pub(crate) fn offset(me: &mut Direct, description: Description) -> Result<u64> {
    if me.is_away {
        return me.far_offset(description);
    }
    husk_kernel::descriptor::open::offset(&me.kernel, description)
}

#[inline]
pub(crate) fn set_offset(me: &mut Direct, description: Description, offset: u64) -> Result<()> {
    if me.is_away {
        return me.far_set_offset(description, offset);
    }
    husk_kernel::descriptor::open::set_offset(&me.kernel, description, offset)
}

#[inline]
pub(crate) fn plug(me: &mut Direct, files: Files, fd: u32) -> bool {
    husk_kernel::descriptor::table::plug(&me.kernel, files, fd).is_ok()
}

impl Offsets for Direct {
    #[inline(always)]
    fn advance(
        &mut self,
        description: Description,
        step: impl FnOnce(&mut Self, u64) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        let advance = husk_kernel::descriptor::open::begin_advance(&self.kernel, description)?;
        let mut at = advance.offset;
        if self.is_away {
            match self.far_begin(description, at) {
                Ok(far) => at = far,
                Err(errno) => {
                    husk_kernel::descriptor::open::end_advance(&self.kernel, &advance, None);
                    return Err(errno);
                }
            }
        }
        let result = step(self, at);
        let mut next = result.as_ref().ok().map(|&(next, _)| next);
        if self.is_away {
            next = self.far_end(next);
        }
        husk_kernel::descriptor::open::end_advance(&self.kernel, &advance, next);
        result.map(|(_, count)| count)
    }
}
