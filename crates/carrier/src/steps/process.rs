//! Operations of `process` that take more than one handler.

use husk_proto::process::*;
use husk_proto::{Admin as _, Errno, Inode, Result};

use crate::Direct;
use crate::far::is_far;

#[inline]
pub(crate) fn cancel_fork(me: &mut Direct, child: Process) {
    let _ = husk_kernel::process::cancel_fork(&me.kernel, child);
}

#[inline]
pub(crate) fn enter_child(me: &mut Direct, child: Process, pid: u32) {
    me.kernel.session.reseat(pid, pid);
    me.kernel.process = child.0;
    // A slot that still names this pid is of an earlier process that died.
    let _ = me.kernel.session.recover_where(|owner, _| owner == pid);
    let _ = husk_kernel::process::set_pid(&me.kernel, child, pid, true);
}

#[inline]
pub(crate) fn unshare(me: &mut Direct, sharing: Sharing) -> Result<()> {
    husk_kernel::process::unshare(&me.kernel, sharing, || me.now())
}

#[inline]
pub(crate) fn finish_exec(me: &mut Direct) -> Result<()> {
    if me.is_away {
        let mut done = Ok(());
        me.far_close_all(true, |me| {
            done = husk_kernel::process::finish_exec(&me.kernel, || me.now());
        });
        return done;
    }
    husk_kernel::process::finish_exec(&me.kernel, || me.now())
}

#[inline]
pub(crate) fn exit(me: &mut Direct) {
    let release = |me: &mut Direct| {
        let _ = husk_kernel::process::release(&me.kernel, me.kernel.process);
    };
    if me.is_away {
        me.far_close_all(false, release)
    } else {
        release(me)
    }
    // The record is another process's from now on.
    me.kernel.process = 0;
    me.kernel.session.set_alone(false);
    me.kernel.session.detach();
}

#[inline]
pub(crate) fn working_directory(me: &mut Direct) -> WorkingDirectory {
    let place = husk_kernel::process::working_directory(&me.kernel);
    let place = place.unwrap_or(WorkingDirectory::Host);
    if me.is_away { me.far_place(place) } else { place }
}

pub(crate) fn working_directory_of(me: &mut Direct, pid: u32) -> Option<WorkingDirectory> {
    let place = husk_kernel::process::working_directory_of(&me.kernel, pid)?;
    Some(if me.is_away { me.far_place(place) } else { place })
}

#[inline]
pub(crate) fn set_working_directory(me: &mut Direct, place: WorkingDirectory) -> Result<()> {
    let WorkingDirectory::Husk(inode) = place else {
        return husk_kernel::process::set_working_directory(&me.kernel, place);
    };
    let own = if is_far(inode) { me.far_directory(inode)? } else { inode };
    let own_place = WorkingDirectory::Husk(own);
    let done = husk_kernel::process::set_working_directory(&me.kernel, own_place);
    if own != inode {
        me.unpin(own);
    }
    done
}

#[inline]
pub(crate) fn set_umask(me: &mut Direct, mask: u32) -> u32 {
    husk_kernel::process::set_umask(&me.kernel, mask).unwrap_or(0)
}

pub(crate) fn set_program(me: &mut Direct, inode: Option<Inode>) -> Result<Option<Inode>> {
    let inode = inode.filter(|inode| !is_far(*inode));
    match husk_kernel::process::set_program(&me.kernel, inode) {
        Err(Errno::ETXTBSY) if me.scan_dead()? > 0 => {
            husk_kernel::process::set_program(&me.kernel, inode)
        }
        other => other,
    }
}

pub(crate) fn pin_writes(me: &mut Direct, inode: Inode) -> Result<()> {
    me.until_unmapped(|me| match husk_kernel::process::pins::pin_writes(&me.kernel, inode) {
        Err(Errno::ENODEV) => Ok(false),
        other => other.map(|()| true),
    })
}

#[inline]
pub(crate) fn unpin(me: &mut Direct, inode: Inode) {
    if me.is_away {
        return me.far_unpin(inode);
    }
    let _ = husk_kernel::process::pins::unpin(&me.kernel, inode);
}
