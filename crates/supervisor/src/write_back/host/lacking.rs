//! Simulates, for tests, file systems without the flags of `renameat2` (some network file systems).

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
