//! Operations of `pipe` that differ from their handlers.

use husk_proto::pipe::*;
use husk_proto::{Files, Result};

use crate::Direct;

pub(crate) fn lane_claim(
    me: &mut Direct,
    files: Files,
    fd: u32,
    host: u64,
    lane: Pipe,
    pid: u32,
) -> Result<()> {
    husk_kernel::pipe::lanes::claim(&me.kernel, files, fd, host, (lane, pid))
}

pub(crate) fn lane_forget(me: &mut Direct, files: Files, fd: u32) {
    // Somebody else has a number of it, or the other end has come.
    let _ = husk_kernel::pipe::lanes::forget(&me.kernel, files, fd);
}
