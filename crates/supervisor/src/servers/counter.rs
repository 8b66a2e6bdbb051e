//! A socket in the image's private directory where its programs ask a thread of the supervisor.
//!
//! ```text
//!   a program ──► a request ──► the thread's answer: 0 and maybe a descriptor, or an error number
//! ```
//!
//! Invariants
//! 1. Only processes of the image are answered: the host names the process that has connected.
//! 2. No client keeps the thread for longer than `PATIENCE`.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use husk_carrier::Direct;
use husk_proto::Overview as _;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, UCred, sockopt,
};

use crate::image::attach;

/// How long a client may take from connecting to asking.
const PATIENCE: Duration = Duration::from_millis(200);
/// Clients that may wait meanwhile.
const WAITING_MAX: i32 = 256;
/// After a connection could not be taken, for want of descriptors, say.
const NAP: Duration = Duration::from_millis(10);
/// Longest request.
const REQUEST_BYTES_MAX: usize = 512;

/// The thread, and where it listens; it ends when this is dropped.
pub struct Counter {
    listener: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A socket where clients wait for an answer; it can exist before the thread does.
#[derive(Debug)]
pub struct Queue(OwnedFd);

impl Queue {
    /// Opens one with this name.
    pub fn open(private: &[u8], name: &[u8]) -> Option<Queue> {
        listen(private, name).ok().map(Queue)
    }
}

impl Counter {
    /// Begins to answer. `make` gets a way to the image, and makes the function that answers a
    /// request of a client. The thread has another way, to check clients.
    pub fn begin<A>(
        queue: Queue,
        make: impl FnOnce(Direct) -> A + Send + 'static,
    ) -> Option<Counter>
    where
        A: FnMut(&[u8], UCred) -> Result<Option<OwnedFd>>,
    {
        let listener = Arc::new(queue.0);
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, told) = (Arc::clone(&listener), Arc::clone(&stop));
        let work = move || {
            let (Ok(direct), Ok(own)) = (attach(), attach()) else { return };
            serve(&direct, &theirs, &told, make(own));
        };
        let thread = thread::Builder::new().spawn(work).ok()?;
        Some(Counter { listener, stop, thread: Some(thread) })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It ends the thread's wait for a connection.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// Listens in the private directory, which `/proc/net/unix` does not show so.
fn listen(private: &[u8], name: &[u8]) -> Result<OwnedFd> {
    let directory = rustix::fs::open(private, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let name = str::from_utf8(name).map_err(|_| Errno::INVAL)?;
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

fn serve(
    direct: &Direct,
    listener: &OwnedFd,
    stop: &AtomicBool,
    mut answer: impl FnMut(&[u8], UCred) -> Result<Option<OwnedFd>>,
) {
    while !stop.load(Ordering::Relaxed) {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            // A client that has gone needs no answer.
            Ok(stream) => drop(serve_one(direct, &stream, &mut answer)),
            // It has been shut down: whoever ends the image waits for this thread.
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(_) => thread::sleep(NAP),
        }
    }
}

fn serve_one(
    direct: &Direct,
    stream: &OwnedFd,
    answer: &mut impl FnMut(&[u8], UCred) -> Result<Option<OwnedFd>>,
) -> Result<()> {
    sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let mut request = [0u8; REQUEST_BYTES_MAX];
    let length = rustix::net::recv(stream, &mut request, RecvFlags::empty())?.0;
    if length == 0 {
        return Ok(());
    }
    let request = &request[..length];
    let got = match sockopt::socket_peercred(stream) {
        Ok(who) if is_of_image(direct, who) => answer(request, who),
        _ => Err(Errno::PERM),
    };
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let along = got.as_ref().ok().and_then(Option::as_ref).map(|fd| [fd.as_fd()]);
    let byte = match (&got, &along) {
        (Err(errno), _) => errno.raw_os_error(),
        (Ok(_), Some(one)) if !control.push(SendAncillaryMessage::ScmRights(one)) => {
            Errno::NOBUFS.raw_os_error()
        }
        _ => 0,
    };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(stream, &[IoSlice::new(&[byte as u8])], &mut control, flags)?;
    Ok(())
}

/// Invariant 1.
fn is_of_image(direct: &Direct, who: UCred) -> bool {
    let (asker, mut known) = (who.pid.as_raw_pid().cast_unsigned(), false);
    direct.each_pid(&mut |pid| known |= pid == asker);
    known
}
