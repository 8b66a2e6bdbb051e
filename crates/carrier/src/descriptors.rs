//! `Descriptors`, by calling the handlers.

use husk_proto::descriptor::{Description, Descriptors, Files, Glance, Open, Shown, Slot};
use husk_proto::{Inode, Operation, Result};

use crate::Direct;
use crate::far::is_far;

#[allow(clippy::too_many_arguments)]
impl Descriptors for Direct {
    #[inline]
    fn slot(&mut self, files: Files, fd: u32) -> Slot {
        if self.is_away {
            return self.far_slot_of(files, fd);
        }
        husk_kernel::descriptor::table::slot(&self.kernel, files, fd)
    }
    #[inline(always)]
    fn glance(&self, fd: u32) -> Option<Glance> {
        husk_kernel::descriptor::table::glance(&self.kernel, fd)
    }
    #[inline(always)]
    fn is_hosts(&self, fd: u32) -> bool {
        husk_kernel::descriptor::hosts::is_hosts(&self.kernel, fd)
    }
    #[inline(always)]
    fn pass_host(&self, fd: u32) {
        husk_kernel::descriptor::hosts::pass(&self.kernel, fd);
    }
    fn note_outlying(&self, fd: u32, age: u64) {
        self.kernel.session.set_outlying(fd, age);
    }
    #[inline(always)]
    fn is_outlying(&self, fd: u32) -> bool {
        let age = husk_kernel::image::outside_age(&self.kernel);
        self.kernel.session.is_outlying(fd, age)
    }
    #[inline(always)]
    fn reads_host(&self, fd: u32) -> bool {
        if self.is_away {
            return self.far_reads_host(fd);
        }
        husk_kernel::descriptor::hosts::reads_host(&self.kernel, fd)
    }
    #[inline(always)]
    fn flags(&self, description: Description) -> Result<u32> {
        husk_kernel::descriptor::open::flags(&self.kernel, description)
    }
    #[inline(always)]
    fn description(&mut self, description: Description) -> Result<Open> {
        if self.is_away {
            return self.far_description(description);
        }
        husk_kernel::descriptor::open::description(&self.kernel, description)
    }
    #[inline]
    fn close_on_exec(&mut self, files: Files, fd: u32) -> Result<bool> {
        husk_kernel::descriptor::table::close_on_exec(&self.kernel, files, fd)
    }
    #[inline]
    fn set_close_on_exec(&mut self, files: Files, fd: u32, on: bool) -> Result<()> {
        husk_kernel::descriptor::table::set_close_on_exec(&self.kernel, files, fd, on)
    }
    #[inline]
    fn lowest_free(&mut self, files: Files, minimum: u32, limit: u32) -> Result<u32> {
        husk_kernel::descriptor::table::lowest_free(
            &self.kernel.session.region,
            files,
            minimum,
            limit,
        )
    }
    #[inline]
    fn duplicate(
        &mut self,
        files: Files,
        fd: u32,
        minimum: u32,
        limit: u32,
        close_on_exec: bool,
    ) -> Result<u32> {
        self.kernel.count(Operation::Duplicate);
        husk_kernel::descriptor::table::duplicate(
            &self.kernel,
            files,
            fd,
            minimum,
            limit,
            close_on_exec,
        )
    }
    #[inline]
    fn duplicate_to(
        &mut self,
        files: Files,
        fd: u32,
        target: u32,
        close_on_exec: bool,
        over_host: bool,
    ) -> Result<()> {
        self.kernel.count(Operation::Duplicate);
        let step = |me: &mut Self| {
            husk_kernel::descriptor::table::duplicate_to(
                &me.kernel,
                files,
                fd,
                target,
                close_on_exec,
                over_host,
            )
        };
        if self.is_away { self.far_close(files, target, step) } else { step(self) }
    }
    #[inline]
    fn plugged(&mut self, files: Files, fd: u32) -> bool {
        husk_kernel::descriptor::table::plugged(&self.kernel.session.region, files, fd)
    }
    #[inline]
    fn close(&mut self, files: Files, fd: u32) -> Result<bool> {
        self.kernel.count(Operation::Close);
        let step = |me: &mut Self| husk_kernel::descriptor::table::close(&me.kernel, files, fd);
        if self.is_away { self.far_close(files, fd, step) } else { step(self) }
    }
    #[inline]
    fn for_each(&mut self, files: Files, first: u32, last: u32, emit: &mut dyn FnMut(u32, Slot)) {
        let mut seen = |fd, slot| emit(fd, if self.is_away { self.far_slot(slot) } else { slot });
        husk_kernel::descriptor::table::for_each(&self.kernel, files, first, last, &mut seen);
    }
    #[inline]
    fn next_number(&self, files: Files, from: u32) -> Option<u32> {
        let region = &self.kernel.session.region;
        husk_kernel::descriptor::table::next_used(region, files, from).map(|(fd, _)| fd)
    }
    #[inline]
    fn host_opened(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Shown,
    ) -> Result<bool> {
        self.kernel.count(Operation::Host);
        if self.is_away {
            return self.far_host_opened(files, fd, close_on_exec, shows);
        }
        husk_kernel::descriptor::table::host_opened(&self.kernel, files, fd, close_on_exec, shows)
    }
    #[inline(always)]
    fn try_host_opened(&mut self, fd: u32, close_on_exec: bool) -> bool {
        let noted = husk_kernel::descriptor::hosts::try_opened(&self.kernel, fd, close_on_exec);
        if noted {
            self.kernel.count(Operation::Host);
        }
        noted
    }
    #[inline]
    fn host_replaces(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Shown,
    ) -> Result<()> {
        self.kernel.count(Operation::Host);
        if self.is_away {
            return self.far_host_replaces(files, fd, close_on_exec, shows);
        }
        husk_kernel::descriptor::table::host_replaces(&self.kernel, files, fd, close_on_exec, shows)
    }
    #[inline]
    fn promote(
        &mut self,
        files: Files,
        fd: u32,
        inode: Inode,
        flags: u32,
        offset: u64,
    ) -> Result<Description> {
        self.kernel.count(Operation::Host);
        let inode = if is_far(inode) { self.own_shown(files, fd)? } else { inode };
        husk_kernel::descriptor::table::promote(&self.kernel, files, fd, inode, flags, offset)
    }
    #[inline]
    fn host_closed(&mut self, files: Files, fd: u32) {
        self.kernel.count(Operation::Host);
        let _ = husk_kernel::descriptor::table::host_closed(&self.kernel, files, fd);
    }
    #[inline(always)]
    fn try_host_closed(&mut self, fd: u32) -> bool {
        let forgotten = husk_kernel::descriptor::hosts::try_closed(&self.kernel, fd);
        if forgotten {
            self.kernel.count(Operation::Host);
        }
        forgotten
    }
    #[inline]
    fn plug(&mut self, files: Files, fd: u32) -> bool {
        husk_kernel::descriptor::table::plug(&self.kernel, files, fd).is_ok()
    }
    #[inline]
    fn offset(&mut self, description: Description) -> Result<u64> {
        husk_kernel::descriptor::open::offset(&self.kernel, description)
    }
    #[inline]
    fn set_offset(&mut self, description: Description, offset: u64) -> Result<()> {
        self.kernel.count(Operation::Seek);
        husk_kernel::descriptor::open::set_offset(&self.kernel, description, offset)
    }
    #[inline(always)]
    fn advance(
        &mut self,
        description: Description,
        step: impl FnOnce(&mut Self, u64) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        let advance = husk_kernel::descriptor::open::begin_advance(&self.kernel, description)?;
        let result = step(self, advance.offset);
        let next = result.as_ref().ok().map(|&(next, _)| next);
        husk_kernel::descriptor::open::end_advance(&self.kernel, &advance, next);
        result.map(|(_, count)| count)
    }
    #[inline]
    fn set_flags(&mut self, description: Description, flags: u32) -> Result<()> {
        husk_kernel::descriptor::open::set_flags(&self.kernel, description, flags)
    }
}
