//! Lends sockets of programs of an image of root to programs of other users in it, whom the host
//! does not let take them (`docs/adr/0088`).
//!
//! ```text
//!   a program ──► the name of a lane ──► who has the socket that reads from it? ──► pidfd_getfd
//!             ◄── a descriptor of that socket, or an error number ──
//! ```
//!
//! Invariants
//! 1. Only processes of the image are answered: the host says who has connected.
//! 2. What is lent is a socket that the image's tables name as that lane's, by the host's number.
//! 3. Nobody keeps this thread for longer than `PATIENCE`; it takes no lock of the image.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use husk_carrier::Direct;
use husk_kernel::pipe::lanes::{find_lane, reader};
use husk_proto::Admin as _;
use husk_proto::Overview as _;
use husk_proto::Shortcuts as _;
use husk_proto::pipe::{LENDER, Pipe};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::CapabilitySet;

use crate::image::attach;

/// How long somebody who has connected may take to ask.
const PATIENCE: Duration = Duration::from_millis(200);
/// Who may wait meanwhile.
const WAITING_MAX: i32 = 256;
/// After a connection could not be taken, for want of descriptors, say.
const NAP: Duration = Duration::from_millis(10);

/// The thread that lends; it ends when this is dropped.
pub struct Lender {
    listener: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lender {
    /// Begins to lend, if this is an image of root whose sockets have rings, and says so in it.
    /// Otherwise programs borrow from those of their own user alone.
    pub fn begin(direct: &mut Direct) -> Option<Lender> {
        direct.lend_sockets(false);
        let may = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
        if !direct.lanes_wanted() || !rustix::process::geteuid().is_root() || !may {
            return None;
        }
        let listener = Arc::new(listen(direct.private_path()).ok()?);
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, told) = (Arc::clone(&listener), Arc::clone(&stop));
        let work = move || {
            let Ok(direct) = attach() else { return };
            lend_all(&direct, &theirs, &told);
        };
        let thread = thread::Builder::new().spawn(work).ok()?;
        direct.lend_sockets(true);
        Some(Lender { listener, stop, thread: Some(thread) })
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Who waits for a connection there goes on.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// Listens in the private directory, which `/proc/net/unix` does not show so.
fn listen(private: &[u8]) -> Result<OwnedFd> {
    let directory = rustix::fs::open(private, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let name = str::from_utf8(LENDER).map_err(|_| Errno::INVAL)?;
    let within = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    // A supervisor that has died may have left one.
    let _ = rustix::fs::unlink(&*within);
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&*within)?)?;
    rustix::fs::chmod(&*within, Mode::from_raw_mode(0o666))?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

fn lend_all(direct: &Direct, listener: &OwnedFd, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            // Who goes without an answer asks nothing more.
            Ok(stream) => drop(answer(direct, &stream)),
            Err(_) => thread::sleep(NAP),
        }
    }
}

fn answer(direct: &Direct, stream: &OwnedFd) -> Result<()> {
    sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let mut asked = [0u8; 4];
    if rustix::net::recv(stream, &mut asked, RecvFlags::empty())?.0 != asked.len() {
        return Ok(());
    }
    let lent = if is_of_image(direct, stream) {
        socket_of(direct, Pipe(u32::from_le_bytes(asked)))
    } else {
        Err(Errno::PERM)
    };
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let lent = lent.as_ref().map(|socket| [socket.as_fd()]);
    let byte = match &lent {
        Ok(one) if control.push(SendAncillaryMessage::ScmRights(one)) => 0,
        Ok(_) => Errno::NOBUFS.raw_os_error(),
        Err(errno) => errno.raw_os_error(),
    };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(stream, &[IoSlice::new(&[byte as u8])], &mut control, flags)?;
    Ok(())
}

/// Invariant 1.
fn is_of_image(direct: &Direct, stream: &OwnedFd) -> bool {
    let Ok(who) = sockopt::socket_peercred(stream) else { return false };
    let (asker, mut known) = (who.pid.as_raw_pid().cast_unsigned(), false);
    direct.each_pid(&mut |pid| known |= pid == asker);
    known
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

/// Invariant 2.
fn is_lanes(direct: &Direct, socket: &OwnedFd, lane: Pipe) -> bool {
    let is_stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    let found = || rustix::fs::fstat(socket).ok();
    is_stream && found().is_some_and(|it| find_lane(direct.kernel(), it.st_ino) == Some(lane))
}
