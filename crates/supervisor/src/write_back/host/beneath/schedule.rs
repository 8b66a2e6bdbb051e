//! The moments before host calls. Only tests know them: there an adversary moves, or the call
//! fails, at one chosen moment after the other, and not by luck.

use std::fs::File;
use std::io;

/// Comes before each host call of a write-back. An error: the call fails with it.
#[cfg(not(test))]
#[inline]
pub fn before(_call: &'static str) -> io::Result<()> {
    Ok(())
}

/// Whether somebody waits for these moments: all calls are made by this thread then.
#[cfg(not(test))]
#[inline]
pub fn is_set() -> bool {
    false
}

/// The same before a sync of `file`.
#[cfg(not(test))]
#[inline]
pub fn before_sync(_call: &'static str, _file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub use tests::{before, before_sync, during, is_set, syncing};

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::os::unix::fs::MetadataExt;

    type Plan = Box<dyn FnMut(&'static str) -> io::Result<()>>;

    thread_local! {
        static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
        static SYNCING: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// What the plan says.
    pub fn before_sync(call: &'static str, file: &File) -> io::Result<()> {
        SYNCING.set(file.metadata().ok().map(|found| found.ino()));
        before(call)
    }

    /// Whether there is a plan.
    pub fn is_set() -> bool {
        PLAN.with_borrow(Option::is_some)
    }

    /// The inode of the file that is to be synced, for the plan.
    pub fn syncing() -> Option<u64> {
        SYNCING.take()
    }

    /// What the plan says. Calls that the plan itself makes are none of its business.
    pub fn before(call: &'static str) -> io::Result<()> {
        let Some(mut plan) = PLAN.take() else { return Ok(()) };
        let said = plan(call);
        PLAN.set(Some(plan));
        said
    }

    /// Does `work` while `plan` is asked before each host call of this thread.
    pub fn during<T>(
        plan: impl FnMut(&'static str) -> io::Result<()> + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        PLAN.set(Some(Box::new(plan)));
        let done = work();
        PLAN.set(None);
        done
    }
}
