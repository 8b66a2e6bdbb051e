//! `Watches`, by calling the handlers.

use husk_kernel::watch;
use husk_proto::watch::{Instance, MarkerName, Removed, Taken, Watches};
use husk_proto::{Errno, Files, Inode, Operation, Result};

use crate::Direct;
use crate::far::is_far;

impl Direct {
    /// Calls `emit` with the number of each instance of inotify that has something to read, its
    /// turn (another one whenever that changes), and the name of its marker in the private
    /// directory.
    pub fn each_watcher(&self, emit: &mut dyn FnMut(u32, u64, MarkerName)) {
        watch::each_waiting(&self.kernel, emit);
    }

    /// Whether an instance of inotify lives.
    pub fn watcher_lives(&self, instance: Instance) -> bool {
        watch::lives(&self.kernel, instance)
    }
}

impl Watches for Direct {
    #[inline]
    fn watch_instance(&self, files: Files, fd: u32) -> Option<Instance> {
        watch::instance(&self.kernel, files, fd)
    }
    fn watch_make(&mut self, files: Files, fd: u32) -> Result<Instance> {
        self.kernel.count(Operation::Watch);
        watch::make(&self.kernel, files, fd)
    }
    fn watch_mark(&mut self, instance: Instance, marker: u32, file: u64) -> Result<()> {
        watch::mark(&self.kernel, instance, marker, file)
    }
    fn watch_marker(&self, instance: Instance) -> u32 {
        watch::marker(&self.kernel, instance)
    }
    fn watch_any(&self) -> bool {
        watch::any_instance(&self.kernel.session.region)
    }
    fn watch_find(&mut self, file: u64) -> Option<Instance> {
        watch::find(&self.kernel, file)
    }
    fn watch_join(&mut self, files: Files, fd: u32, instance: Instance) -> Result<()> {
        watch::join(&self.kernel, files, fd, instance)
    }
    fn watch_add(&mut self, instance: Instance, inode: Inode, mask: u32) -> Result<u32> {
        if is_far(inode) {
            return Err(Errno::ENOSPC);
        }
        self.kernel.count(Operation::Watch);
        watch::list::add(&self.kernel, instance, inode, mask)
    }
    fn watch_host(&mut self, instance: Instance, host: u32) -> Result<u32> {
        watch::list::host(&self.kernel, instance, host)
    }
    fn watch_of_host(&mut self, instance: Instance, host: u32, gone: bool) -> Option<u32> {
        watch::list::of_host(&self.kernel, instance, host, gone)
    }
    fn watch_next(&self, instance: Instance, from: u32) -> Option<(u32, Inode, u32)> {
        watch::list::next(&self.kernel, instance, from)
    }
    fn watch_remove(&mut self, instance: Instance, wd: u32) -> Result<Removed> {
        self.kernel.count(Operation::Watch);
        watch::list::remove(&self.kernel, instance, wd)
    }
    fn watch_take(&mut self, instance: Instance, out: &mut [u8]) -> Result<Taken> {
        self.kernel.count(Operation::Watch);
        watch::queue::take(&self.kernel, instance, out)
    }
    fn watch_waiting(&mut self, instance: Instance) -> u32 {
        watch::queue::waiting(&self.kernel, instance).unwrap_or(0)
    }
    fn watch_lock(&mut self, instance: Instance) -> Result<()> {
        watch::lock_readers(&self.kernel, instance)
    }
    fn watch_unlock(&mut self, instance: Instance) {
        watch::unlock_readers(&self.kernel, instance);
    }
    #[inline(always)]
    fn watch_owes(&self) -> bool {
        watch::owes(&self.kernel)
    }
    fn watch_owed(&mut self) -> Option<Instance> {
        watch::owed(&self.kernel)
    }
    fn watch_untold(&mut self, instance: Instance) {
        watch::untold(&self.kernel, instance);
    }
    #[inline]
    fn watch_note(&mut self, inode: Inode, what: u32) {
        if is_far(inode) {
            return;
        }
        if watch::any(&self.kernel.session.region) {
            watch::post::alone(&self.kernel, inode, what);
        }
    }
}
