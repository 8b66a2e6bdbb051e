//! One request and its answer over a socket of the host: for processes that come and go.
//!
//! ```text
//!   asker: socket, connect, send ─► agent: accept, receive, handle, send, close
//!          receive ◄──────────────'
//! ```
//!
//! Messages keep their boundaries and order (`SOCK_SEQPACKET`). Each request has its own
//! connection, and a client keeps nothing open between requests. It can therefore fork, exec, run
//! out of descriptors or be killed at any instruction, and the agent can be restarted.
//!
//! Invariants
//! 1. No memory is shared, and no descriptor stays open but one that was asked for.
//! 2. Every wait is bounded: for the agent by `CONNECT_TRIES_MAX`, for its answer by who asks.
//! 3. If no answer comes, the client does not know whether the request was carried out: `Lost`, or
//!    `Late` if the agent is still running.

use husk_abi::{Errno, nr};
use husk_host::calls;
use husk_host::messages::{AF_UNIX, MessageHeader, PATH_BYTES, UnixAddress};
use husk_wire::Retry;

/// Most bytes of a message: what a socket takes at once with its usual limits.
pub const CALL_BYTES_MAX: usize = 96 << 10;
/// Longest path of an agent's socket.
pub const PATH_BYTES_MAX: usize = PATH_BYTES - 1;
/// Times that an agent which is not there is looked for: one that was killed is started again.
const CONNECT_TRIES_MAX: u32 = 1000;
/// Between two.
const CONNECT_NAP_NS: u64 = 5_000_000;
/// Seconds that an answer may take: a large directory of a slow disk is read meanwhile.
pub const ANSWER_S: u64 = 60;
const SEQPACKET: usize = 5;
const CLOSE_ON_EXEC: usize = 0o2000000;
/// Nothing waits but `poll`.
const NONBLOCKING: usize = 0o4000;
const POLL_IN: u64 = 1;
const NO_SIGNAL: usize = 0x4000;
/// `MSG_CMSG_CLOEXEC`.
const CLOSE_ON_EXEC_FD: usize = 0x4000_0000;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// Nothing was sent: the reason.
    Unsent(Errno),
    /// It was sent, and may have been done or not; the connection has ended.
    Lost,
    /// The same, but the agent has not answered in time: it is stopped, or its disk is. Another try
    /// would wait as long once more.
    Late,
}

/// What comes of a request that has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It is asked again.
    Again,
    /// The program is told so.
    Fails(Errno),
}

impl Unanswered {
    /// What its sender does, by the rule for its kind. A change is asked for again under its number
    /// (`Header::again`): if it has been made, the home answers what it answered then.
    pub const fn next(self, retry: Retry) -> Next {
        match self {
            Unanswered::Unsent(errno @ (Errno::EMFILE | Errno::ENFILE)) => Next::Fails(errno),
            // Stopped for long before it was sent: its session has ended.
            Unanswered::Unsent(Errno::EPIPE | Errno::ECONNRESET) => Next::Again,
            Unanswered::Lost if matches!(retry, Retry::Idempotent | Retry::Cached) => Next::Again,
            Unanswered::Unsent(_) | Unanswered::Lost | Unanswered::Late => Next::Fails(Errno::EIO),
        }
    }
}

/// A socket that is closed with its scope.
struct Socket(usize);

impl Drop for Socket {
    fn drop(&mut self) {
        calls::close(self.0);
    }
}

/// Sends the parts of one message to the agent that listens at `path`, and waits for its answer,
/// which is put into `room`; its length. The answer may take `patience_s` seconds.
pub fn call(
    path: &[u8],
    parts: [&[u8]; 2],
    room: &mut [u8],
    patience_s: u64,
) -> Result<usize, Unanswered> {
    ask(path, parts, patience_s, &mut |socket| {
        let args = [socket.0, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
        // SAFETY: `room` is writable for its length.
        unsafe { calls::raw(nr::recvfrom, args) }
    })
}

/// `call` for an answer that up to two descriptors go along with: its length, and their numbers,
/// which are the caller's and closed on exec.
pub fn call_for_descriptors(
    path: &[u8],
    parts: [&[u8]; 2],
    room: &mut [u8],
    patience_s: u64,
) -> Result<(usize, [Option<usize>; 2]), Unanswered> {
    /// `struct cmsghdr` (length, then level and kind), and one number.
    const HEAD: u64 = 16;
    const NUMBER: u64 = 4;
    const RIGHTS_OF_SOCKET: u64 = 1 << 32 | 1;
    let mut control = [0u64; 3];
    let length = ask(path, parts, patience_s, &mut |socket| {
        let vector = [room.as_mut_ptr() as usize, room.len()];
        let message = MessageHeader {
            vectors: vector.as_ptr() as usize,
            vector_count: 1,
            control: control.as_mut_ptr() as usize,
            control_bytes: size_of_val(&control),
            ..Default::default()
        };
        let args = [socket.0, (&raw const message) as usize, CLOSE_ON_EXEC_FD, 0, 0, 0];
        // SAFETY: the message leads to `room` and `control`, writable for the lengths it says.
        unsafe { calls::raw(nr::recvmsg, args) }
    })?;
    let [bytes, sort, numbers] = control;
    let has = |count| sort == RIGHTS_OF_SOCKET && bytes >= HEAD + count * NUMBER;
    let number = |index: u64| has(index + 1).then_some((numbers >> (32 * index)) as u32 as usize);
    Ok((length, [number(0), number(1)]))
}

/// Sends a request; the answer is what `receive` does when there is one.
fn ask(
    path: &[u8],
    parts: [&[u8]; 2],
    patience_s: u64,
    receive: &mut dyn FnMut(&Socket) -> Result<usize, Errno>,
) -> Result<usize, Unanswered> {
    let socket = connect(path).map_err(Unanswered::Unsent)?;
    send(&socket, parts).map_err(Unanswered::Unsent)?;
    loop {
        if !is_answered(&socket, patience_s) {
            return Err(Unanswered::Late);
        }
        match receive(&socket) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) | Ok(0) => return Err(Unanswered::Lost),
            Ok(length) => return Ok(length),
        }
    }
}

/// Waits for the answer, or for the end of the other side; false: it has taken too long.
fn is_answered(socket: &Socket, patience_s: u64) -> bool {
    let mut watched = socket.0 as u64 | POLL_IN << 32;
    let patience = [patience_s, 0];
    let args = [(&raw mut watched) as usize, 1, patience.as_ptr() as usize, 0, 0, 0];
    // SAFETY: a `struct pollfd` and a `struct timespec`.
    let ready = unsafe { calls::raw(nr::ppoll, args) };
    // Interrupted: it is looked at.
    ready != Ok(0)
}

fn connect(path: &[u8]) -> Result<Socket, Errno> {
    let fits = path.len() <= PATH_BYTES_MAX;
    let address = UnixAddress::of(path).filter(|_| fits).ok_or(Errno::ENAMETOOLONG)?;
    let mut tries = 0;
    loop {
        let kind = SEQPACKET | CLOSE_ON_EXEC | NONBLOCKING;
        // SAFETY: no memory is involved.
        let socket = unsafe { calls::raw(nr::socket, [AF_UNIX.into(), kind, 0, 0, 0, 0]) }?;
        let socket = Socket(socket);
        let place = (&raw const address) as usize;
        // SAFETY: `address` has the kernel's layout, and is longer than what is said.
        match unsafe { calls::raw(nr::connect, [socket.0, place, 3 + path.len(), 0, 0, 0]) } {
            Ok(_) => return Ok(socket),
            Err(Errno::ECONNREFUSED | Errno::ENOENT | Errno::EAGAIN | Errno::EINTR)
                if tries < CONNECT_TRIES_MAX =>
            {
                tries += 1;
                nap(CONNECT_NAP_NS);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Sleeps for so long, less than a second.
pub fn nap(ns: u64) {
    let time = [0u64, ns];
    // SAFETY: a `struct timespec`.
    let _ = unsafe { calls::raw(nr::nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

fn send(socket: &Socket, parts: [&[u8]; 2]) -> Result<(), Errno> {
    let vectors = parts.map(|part| [part.as_ptr() as usize, part.len()]);
    let (first, vector_count) = (vectors.as_ptr() as usize, vectors.len());
    let message = MessageHeader { vectors: first, vector_count, ..Default::default() };
    loop {
        let args = [socket.0, (&raw const message) as usize, NO_SIGNAL, 0, 0, 0];
        // SAFETY: the message leads to `parts`, readable for the lengths it says.
        match unsafe { calls::raw(nr::sendmsg, args) } {
            Err(Errno::EINTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}
