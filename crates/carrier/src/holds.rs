//! Who serves other nodes keeps files open for them, whoever serves them next.

use husk_kernel::descriptor::holds;
use husk_kernel::lock;
use husk_kernel::process::pins;
use husk_proto::lock::{Mode, Range};
use husk_proto::{Files, Inode, Result};

pub use husk_kernel::descriptor::holds::Hold;
pub use husk_kernel::lock::By;

use crate::Direct;

impl Direct {
    /// What is open under `fd` of a table is kept open by a hold in its place: the name of that.
    pub fn take_hold(&mut self, files: Files, fd: u32, hold: Hold) -> Result<u64> {
        holds::take(&self.kernel, files, fd, hold)
    }

    /// Ends the hold of that name, if it fits: whether it was there. `quiet`: it was closed before.
    pub fn end_hold(
        &mut self,
        hold: u64,
        quiet: bool,
        fits: impl Fn(&Hold) -> bool,
    ) -> Result<bool> {
        holds::end(&self.kernel, hold, quiet, fits)
    }

    /// Ends all holds whose name and facts fit.
    pub fn end_holds(&mut self, fits: impl Fn(u64, &Hold) -> bool) {
        holds::each(&self.kernel, &mut |name, hold| {
            if fits(name, &hold) {
                // What cannot be ended now is there when this is asked for again.
                let _ = holds::end(&self.kernel, name, false, |hold| fits(name, hold));
            }
        });
    }

    /// Asks for a lock of the description that a hold keeps open, or gives it back: `None` if it
    /// was done, else the word of its waiters.
    pub fn lock_held(
        &mut self,
        (hold, node): (u64, u16),
        by: By,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<u32>> {
        let fits = |hold: &Hold| hold.node == node;
        holds::lock(&self.kernel, (hold, &fits), by, inode, range, mode)
    }

    /// Whether a table of another node has a POSIX lock of a file.
    pub fn has_lock_elsewhere(&mut self, (node, files): (u16, u32), inode: Inode) -> Result<bool> {
        lock::has(&self.kernel, inode, lock::elsewhere(node, files))
    }

    /// Whether a program of this node has mapped a file to write to it.
    pub fn is_mapped_to_write(&mut self, inode: Inode) -> Result<bool> {
        pins::is_written(&self.kernel, inode)
    }

    /// The same for the POSIX locks of a table of another node, of which `pid` asks.
    pub fn lock_elsewhere(
        &mut self,
        (node, files, pid): (u16, u32, u32),
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<u32>> {
        lock::lock_elsewhere(&self.kernel, (node, files, pid), inode, range, mode)
    }

    /// Takes all POSIX locks away that programs on a node have.
    pub fn drop_locks_of(&mut self, node: u16) -> Result<()> {
        husk_kernel::lock::drop_node(&self.kernel, node)
    }

    /// Calls `emit` with the name of each hold.
    pub fn each_hold(&self, emit: &mut dyn FnMut(u64, Hold)) {
        holds::each(&self.kernel, emit);
    }
}
