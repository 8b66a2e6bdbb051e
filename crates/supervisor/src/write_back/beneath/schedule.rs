//! The moments before host calls. Only tests know them: there an adversary moves, or the call
//! fails, at one chosen moment after the other, and not by luck.

use std::io;

/// Comes before each host call of a write-back. An error: the call fails with it.
#[cfg(not(test))]
#[inline]
pub fn before(_call: &'static str) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub use tests::{before, during};

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    type Plan = Box<dyn FnMut(&'static str) -> io::Result<()>>;

    thread_local! {
        static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
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
