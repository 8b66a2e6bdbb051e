//! Lends sockets of programs of an image of root to programs of other users in it, whom the host
//! does not let take them (`docs/adr/0088`).
//!
//! ```text
//!   a program ──► the name of a lane ──► who has the socket that reads from it? ──► pidfd_getfd
//!             ◄── a descriptor of that socket, or an error number ──
//! ```
//!
//! Invariants
//! 1. Only a socket is lent that the image's tables name as that lane's, by the host's number.
//! 2. Its thread takes no lock of the image.

use std::os::fd::OwnedFd;

use husk_carrier::Direct;
use husk_kernel::pipe::lanes::{find_lane, reader};
use husk_proto::Admin as _;
use husk_proto::Shortcuts as _;
use husk_proto::pipe::{LENDER, Pipe};
use rustix::io::{Errno, Result};
use rustix::net::{SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::CapabilitySet;

use crate::servers::counter::{Counter, Queue};

/// Begins to lend, if this is an image of root whose sockets have rings, and says so in it.
/// Otherwise programs borrow from those of their own user alone.
pub fn begin(direct: &mut Direct) -> Option<Counter> {
    direct.lend_sockets(false);
    let may = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    if !direct.lanes_wanted() || !rustix::process::geteuid().is_root() || !may {
        return None;
    }
    let lend = |direct: Direct| {
        move |request: &[u8], _| {
            let lane = request.try_into().map_err(|_| Errno::INVAL)?;
            socket_of(&direct, Pipe(u32::from_le_bytes(lane))).map(Some)
        }
    };
    let counter = Counter::begin(Queue::open(direct.private_path(), LENDER)?, lend)?;
    direct.lend_sockets(true);
    Some(counter)
}

/// The socket that reads from `lane`. `PIPE`: no process has it any more.
fn socket_of(direct: &Direct, lane: Pipe) -> Result<OwnedFd> {
    let (mut why, mut skipped) = (Errno::PIPE, 0);
    while let Some((pid, fd)) = reader(direct.kernel(), lane, skipped) {
        match taken_from(pid, fd) {
            Ok(socket) if is_lanes(direct, &socket, lane) => return Ok(socket),
            Ok(_) | Err(Errno::SRCH | Errno::BADF) => {}
            Err(errno) => why = errno,
        }
        skipped += 1;
    }
    Err(why)
}

fn taken_from(pid: u32, fd: u32) -> Result<OwnedFd> {
    let process = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(&process, fd.cast_signed(), PidfdGetfdFlags::empty())
}

/// Invariant 1.
fn is_lanes(direct: &Direct, socket: &OwnedFd, lane: Pipe) -> bool {
    let is_stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    let found = || rustix::fs::fstat(socket).ok();
    is_stream && found().is_some_and(|it| find_lane(direct.kernel(), it.st_ino) == Some(lane))
}
