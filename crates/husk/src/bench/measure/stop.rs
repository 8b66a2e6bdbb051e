//! A signal ends a measurement in order: what it made is removed, its workers end.
//!
//! The signals are blocked, also in the workers, which end when their input does; a thread waits
//! for one and leaves a note, which is read before each order to a worker.

use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

/// The signal that has come, 0 = none.
static CAME: AtomicI32 = AtomicI32::new(0);

/// Waits for signals from now on.
pub fn watch() -> anyhow::Result<()> {
    let awaited: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    awaited.thread_block().context("cannot block signals")?;
    std::thread::spawn(move || {
        if let Ok(signal) = awaited.wait() {
            CAME.store(signal as i32, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// The signal that has come.
pub fn came() -> Option<i32> {
    Some(CAME.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// An error when one has.
pub fn check() -> anyhow::Result<()> {
    came().map_or(Ok(()), |signal| anyhow::bail!("ended by signal {signal}"))
}
