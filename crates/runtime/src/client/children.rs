//! The client's part in what becomes of processes and threads: children, exec, the end.

use crate::memory::{guard, mappings};
use crate::thread::client::{Embryo, ThreadClient, Unborn};
use husk_abi::Errno;
use husk_carrier::Direct;
use husk_client::bells;
use husk_host::calls;
use husk_proto::pipe::Pipes as _;
use husk_proto::place::Placement;
use husk_proto::process::{Process, Processes, Sharing};

impl ThreadClient {
    /// A record for a child.
    pub fn prepare_fork(&mut self, files: bool, context: bool) -> Result<Embryo, Errno> {
        let _open = guard::open();
        let (own, pid) = (self.process, self.pid);
        let Some(served) = self.served() else { return Ok(None) };
        if files {
            bells::give_up();
        }
        let parent = served.services().placement(own, pid);
        let process = served.services().prepare_fork(Sharing { files, context })?;
        Ok(Some(Unborn { process, parent }))
    }

    /// Does something with the record of a child; `None` without one.
    fn of<T>(&mut self, child: Embryo, step: impl FnOnce(&mut Direct, Process) -> T) -> Option<T> {
        let _open = guard::open();
        Some(step(self.served()?.services(), child?.process))
    }

    /// The host refused.
    pub fn cancel_fork(&mut self, embryo: Embryo) {
        self.of(embryo, |direct, child| direct.cancel_fork(child));
    }

    /// Where the host is to write which process the child is; `None` without an image.
    pub fn child_told_at(&mut self, embryo: Embryo) -> Option<usize> {
        self.of(embryo, |direct, child| direct.child_told_at(child))
    }

    /// In the parent, when there is a child: false where the host has written nothing there.
    pub fn child_was_told(&mut self, embryo: Embryo) -> bool {
        self.of(embryo, |direct, child| direct.child_was_told(child)) != Some(false)
    }

    /// The host will not write it there.
    pub fn child_untold(&mut self, embryo: Embryo) {
        self.of(embryo, |direct, child| direct.child_untold(child));
    }

    /// In the parent: the child runs as `pid`.
    pub fn note_child(&mut self, embryo: Embryo, pid: u32) {
        self.of(embryo, |direct, child| direct.note_child(child, pid));
    }

    /// A block for a child that shares memory: whose thread it will be.
    pub fn inherit(&mut self, parent: &mut ThreadClient) {
        self.process = parent.process();
        self.pid = parent.pid;
    }

    /// Before this process gets a second thread.
    pub fn expect_company(&mut self) {
        let Some(served) = self.client.as_mut() else { return };
        served.services().set_alone(false);
    }

    /// Counts for a child what it will have mapped, while addresses are kept still.
    pub fn count_for_child(&mut self, embryo: Embryo) -> Result<(), Errno> {
        let _open = guard::open();
        let (Some(embryo), Some(served)) = (embryo, self.served()) else { return Ok(()) };
        mappings::each_file(|inode, count, writes| {
            served.services().pin_for(embryo.process, inode, count, writes)
        })
    }

    /// The process ends with other threads in it: writers of its pipes, and the other sides of its
    /// sockets, are to notice.
    pub fn leave_pipes(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            served.leave_lanes();
            served.services().leave_pipes();
        }
    }

    /// Right before a program starts that is none of the image's: it gets pipes as the host's.
    pub fn surrender_pipes(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            served.surrender_all();
        }
    }

    /// The thread ends; `last`: its process too.
    pub fn leave(&mut self, last: bool) {
        let _open = guard::open();
        if last && self.client.is_none() {
            let _ = self.served();
        }
        let Some(served) = self.client.as_mut() else { return };
        if last {
            served.leave_lanes();
            let services = served.services();
            if let Some(placed) = services.placement(self.process, self.pid) {
                services.leave_kernel(&placed);
            }
            services.exit();
            // Closing is an event, too; what is told takes a seat again.
            served.tell();
            served.services().detach();
        } else {
            served.end_own_bell();
            served.services().detach();
        }
    }

    /// Right before the host's exec.
    pub fn before_exec(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.client.as_mut() {
            // Bytes that nobody has read: of what exec closes the host tells the loss.
            served.leave_lanes();
            served.services().detach();
        }
    }

    /// The program has set on which cores a thread may run; 0: the calling one.
    pub fn chose_cores(&mut self, thread: u32) {
        let (process, pid) = (self.process, self.pid);
        if ![0, pid, calls::gettid()].contains(&thread) {
            return;
        }
        let _open = guard::open();
        let Some(served) = self.served() else { return };
        let services = served.services();
        if let Some(placed) = services.placement(process, pid) {
            services.note_placement(process, &Placement { own: true, ..placed });
        }
    }
}
