//! Signals that end a command which runs until it is stopped.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// They come by a descriptor from now on, which does not block.
pub(crate) fn by_descriptor() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT]
        .into_iter()
        .for_each(|signal| signals.add(signal));
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}
