//! `Processes`, by calling the handlers.

use husk_proto::process::{Processes, Sharing, WorkingDirectory};
use husk_proto::{Errno, Files, Inode, Operation, Process, Result};

use crate::Direct;
use crate::far::is_far;

#[allow(clippy::too_many_arguments)]
impl Processes for Direct {
    #[inline]
    fn current(&self) -> Process {
        Process(self.kernel.process)
    }
    fn is_alone(&self) -> bool {
        self.kernel.session.is_alone()
    }
    fn has_table_alone(&self) -> bool {
        let single = self.kernel.session.is_alone() || self.newborn;
        single && husk_kernel::process::has_own_table(&self.kernel)
    }
    #[inline]
    fn files(&self) -> Files {
        husk_kernel::process::files(&self.kernel)
    }
    #[inline]
    fn prepare_fork(&mut self, sharing: Sharing) -> Result<Process> {
        self.kernel.count(Operation::Fork);
        husk_kernel::process::prepare_fork(&self.kernel, sharing, self.now())
    }
    #[inline]
    fn cancel_fork(&mut self, child: Process) {
        let _ = husk_kernel::process::cancel_fork(&self.kernel, child);
    }
    #[inline]
    fn enter_child(&mut self, child: Process, pid: u32) {
        self.kernel.session.reseat(pid, pid);
        self.kernel.process = child.0;
        // A slot that still names this pid is of an earlier process that died.
        let _ = self.kernel.session.recover_where(|owner, _| owner == pid);
        let _ = husk_kernel::process::set_pid(&self.kernel, child, pid, true);
    }
    #[inline]
    fn unshare(&mut self, sharing: Sharing) -> Result<()> {
        husk_kernel::process::unshare(&self.kernel, sharing, || self.now())
    }
    #[inline]
    fn finish_exec(&mut self) -> Result<()> {
        self.kernel.count(Operation::Exec);
        if self.is_away {
            let mut done = Ok(());
            self.far_close_all(|me| {
                done = husk_kernel::process::finish_exec(&me.kernel, || me.now());
            });
            return done;
        }
        husk_kernel::process::finish_exec(&self.kernel, || self.now())
    }
    #[inline]
    fn exit(&mut self) {
        let release = |me: &mut Self| {
            let _ = husk_kernel::process::release(&me.kernel, me.kernel.process);
        };
        if self.is_away {
            self.far_close_all(release)
        } else {
            release(self)
        }
        // The record is another process's from now on.
        self.kernel.process = 0;
        self.kernel.session.set_alone(false);
        self.kernel.session.detach();
    }
    #[inline]
    fn working_directory(&mut self) -> WorkingDirectory {
        let place = husk_kernel::process::working_directory(&self.kernel);
        let place = place.unwrap_or(WorkingDirectory::Host);
        if self.is_away { self.far_place(place) } else { place }
    }
    fn files_of(&self, pid: u32) -> Option<Files> {
        let there = husk_kernel::process::table_of(&self.kernel, pid);
        there.filter(|_| !self.is_away)
    }
    fn working_directory_of(&mut self, pid: u32) -> Option<WorkingDirectory> {
        let place = husk_kernel::process::working_directory_of(&self.kernel, pid)?;
        Some(if self.is_away { self.far_place(place) } else { place })
    }
    #[inline]
    fn set_working_directory(&mut self, place: WorkingDirectory) -> Result<()> {
        let WorkingDirectory::Husk(inode) = place else {
            return husk_kernel::process::set_working_directory(&self.kernel, place);
        };
        let own = if is_far(inode) { self.far_directory(inode)? } else { inode };
        let own_place = WorkingDirectory::Husk(own);
        let done = husk_kernel::process::set_working_directory(&self.kernel, own_place);
        if own != inode {
            self.unpin(own);
        }
        done
    }
    #[inline]
    fn umask(&mut self) -> u32 {
        husk_kernel::process::umask(&self.kernel)
    }
    #[inline]
    fn set_umask(&mut self, mask: u32) -> u32 {
        husk_kernel::process::set_umask(&self.kernel, mask).unwrap_or(0)
    }
    fn set_program(&mut self, inode: Option<Inode>) -> Result<Option<Inode>> {
        let inode = inode.filter(|inode| !is_far(*inode));
        match husk_kernel::process::set_program(&self.kernel, inode) {
            Err(Errno::ETXTBSY) if self.scan_dead()? > 0 => {
                husk_kernel::process::set_program(&self.kernel, inode)
            }
            other => other,
        }
    }
    fn program(&mut self) -> Option<Inode> {
        husk_kernel::process::program(&self.kernel)
    }
    #[inline]
    fn pin(&mut self, inode: Inode) -> Result<()> {
        if is_far(inode) {
            return Ok(());
        }
        husk_kernel::process::pins::pin(&self.kernel, inode)
    }
    fn pin_writes(&mut self, inode: Inode) -> Result<()> {
        if is_far(inode) {
            return Ok(());
        }
        husk_kernel::process::pins::pin_writes(&self.kernel, inode)
    }
    fn pin_for(&mut self, child: Process, inode: Inode, count: u32, writes: bool) -> Result<()> {
        husk_kernel::process::pins::pin_for(&self.kernel, child, inode, count, writes)
    }
    #[inline]
    fn unpin(&mut self, inode: Inode) {
        if is_far(inode) {
            return;
        }
        let _ = husk_kernel::process::pins::unpin(&self.kernel, inode);
    }
}
