//! Looks that are more than one look of a handler.

use husk_kernel::descriptor::flight;
use husk_kernel::watch;
use husk_proto::flight::Flight;
use husk_proto::fs::{Piece, Span, Witness};
use husk_proto::image::Mount;
use husk_proto::pipe::Pipe;
use husk_proto::{Files, Inode, Operation, Process, Result};

use crate::Direct;
use crate::far::is_far;

#[inline]
pub(crate) fn holds(me: &Direct, witnesses: &[Witness]) -> bool {
    if me.is_away {
        return me.far_holds(witnesses);
    }
    husk_kernel::fs::walk::holds(&me.kernel, witnesses)
}

#[inline(always)]
pub(crate) fn has_read(me: &Direct, inode: Inode, piece: Piece) -> bool {
    if is_far(inode) {
        return me.far_has_read(inode, piece);
    }
    let has = husk_kernel::fs::bytes::has_read(&me.kernel, inode, piece, me.now());
    if has {
        me.kernel.count(Operation::Read);
    }
    has
}

#[inline(always)]
pub(crate) fn is_elsewhere(_me: &Direct, inode: Inode) -> bool {
    is_far(inode)
}

pub(crate) fn note_outlying(me: &Direct, fd: u32, age: u64) {
    me.kernel.session.set_outlying(fd, age);
}

#[inline(always)]
pub(crate) fn is_outlying(me: &Direct, fd: u32) -> bool {
    let age = husk_kernel::image::outside_age(&me.kernel);
    me.kernel.session.is_outlying(fd, age)
}

#[inline(always)]
pub(crate) fn reads_host(me: &Direct, fd: u32) -> bool {
    if me.is_away {
        return me.far_reads_host(fd);
    }
    husk_kernel::descriptor::hosts::reads_host(&me.kernel, fd)
}

#[inline]
pub(crate) fn next_number(me: &Direct, files: Files, from: u32) -> Option<u32> {
    let region = &me.kernel.session.region;
    husk_kernel::descriptor::table::next_used(region, files, from).map(|(fd, _)| fd)
}

#[inline(always)]
pub(crate) fn try_host_opened(me: &Direct, fd: u32, close_on_exec: bool) -> bool {
    let noted = husk_kernel::descriptor::hosts::try_opened(&me.kernel, fd, close_on_exec);
    if noted {
        me.kernel.count(Operation::Host);
    }
    noted
}

#[inline(always)]
pub(crate) fn try_host_closed(me: &Direct, fd: u32) -> bool {
    let forgotten = husk_kernel::descriptor::hosts::try_closed(&me.kernel, fd);
    if forgotten {
        me.kernel.count(Operation::Host);
    }
    forgotten
}

pub(crate) fn flight(me: &Direct, index: u32) -> Option<Option<Flight>> {
    flight::at(&me.kernel.session.region, index)
}

#[inline]
pub(crate) fn current(me: &Direct) -> Process {
    Process(me.kernel.process)
}

pub(crate) fn is_alone(me: &Direct) -> bool {
    me.kernel.session.is_alone()
}

pub(crate) fn has_table_alone(me: &Direct) -> bool {
    let single = me.kernel.session.is_alone() || me.newborn;
    single && husk_kernel::process::has_own_table(&me.kernel)
}

pub(crate) fn files_of(me: &Direct, pid: u32) -> Option<Files> {
    let there = husk_kernel::process::table_of(&me.kernel, pid);
    there.filter(|_| !me.is_away)
}

#[inline(always)]
pub(crate) fn pipe_take_swiftly(
    me: &Direct,
    pipe: Pipe,
    alone: bool,
    length: usize,
    copy: impl FnOnce(Span) -> Result<()>,
) -> usize {
    let taken = husk_kernel::pipe::flow::take_swiftly(&me.kernel, pipe, alone, length, copy);
    if taken != 0 {
        me.kernel.count(Operation::Pipe);
    }
    taken
}

#[inline(always)]
pub(crate) fn pipe_put_swiftly(
    me: &Direct,
    pipe: Pipe,
    alone: bool,
    length: usize,
    copy: impl FnOnce(Span) -> Result<()>,
) -> bool {
    let put = husk_kernel::pipe::flow::put_swiftly(&me.kernel, pipe, alone, length, copy);
    if put {
        me.kernel.count(Operation::Pipe);
    }
    put
}

pub(crate) fn watch_any(me: &Direct) -> bool {
    watch::any_instance(&me.kernel.session.region)
}

#[inline]
pub(crate) fn mount(me: &Direct, index: usize) -> Mount<'_> {
    let mount = husk_kernel::image::mount(&me.kernel, index);
    if me.is_away {
        return Mount { root: me.home_of(mount.root).unwrap_or(mount.root), ..mount };
    }
    mount
}

#[inline]
pub(crate) fn unguard(me: &Direct) {
    me.kernel.session.unguard();
}
