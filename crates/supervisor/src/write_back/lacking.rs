//! Hosts whose file systems know no flags of `renameat2`, as some of a network do; here only for
//! tests, which have none: elsewhere the host says so itself.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static LACKING: AtomicBool = AtomicBool::new(false);

/// Whether there are to be none.
pub fn flags() -> bool {
    cfg!(test) && LACKING.load(SeqCst)
}

/// Takes them away, or gives them back; one test at a time writes back.
#[cfg(test)]
pub fn set(lacking: bool) {
    LACKING.store(lacking, SeqCst);
}
