//! Threads that take requests off the socket and answer them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use husk_carrier::{Direct, Layout};
use husk_client::{Buffers, Client};
pub use husk_link::CALL_BYTES_MAX;
use husk_proto::{Errno, Process};
use husk_wire::{Failure, HEADER_BYTES, Header};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};
use rustix::time::{ClockId, clock_gettime};

use crate::agent::Agent;
use crate::plain::Plain;

/// Threads, each with one request at a time.
const THREADS: usize = 4;
/// How long a request may take to arrive once its sender has connected, and an answer to be taken.
const TALK_MAX: Duration = Duration::from_secs(5);
/// Between two tries where no connection can be taken, as at the limit on descriptors.
const PAUSE: Duration = Duration::from_millis(5);
const NS_PER_S: i64 = 1_000_000_000;

/// What is open for others: number of the hold, number in the agent's table.
#[derive(Debug)]
pub struct Holds {
    open: Mutex<HashMap<u64, u32>>,
    next: AtomicU64,
}

impl Holds {
    /// Numbers are another life's in another second: what is given back late is not mistaken.
    fn begin() -> Holds {
        let life = (now_ns() / NS_PER_S) as u64 & 0x3fff_ffff;
        Holds { open: Mutex::default(), next: AtomicU64::new(life << 32 | 1) }
    }

    /// Keeps number `fd` of the agent's table for another node.
    pub fn add(&self, fd: u32) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut open) = self.open.lock() {
            open.insert(number, fd);
        }
        number
    }

    /// It is not needed any more: what it was.
    pub fn remove(&self, number: u64) -> Option<u32> {
        self.open.lock().ok()?.remove(&number)
    }
}

/// Now, ns since the epoch, coarse.
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec * NS_PER_S + now.tv_nsec
}

/// Becomes the agent of the node whose region is `region`: answers what comes to `listener` until
/// it is killed. An error says why it could not begin.
pub fn serve(region: &OwnedFd, layout: Layout, listener: OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    husk_carrier::map_region(region.as_raw_fd() as u32, layout)?;
    let pid = std::process::id();
    let mut direct = Direct::attach(now_ns, Process(0), pid, thread_id())?;
    let process = direct.first_process(pid, &[])?;
    direct.detach();
    let (listener, holds) = (Arc::new(listener), Arc::new(Holds::begin()));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (listener, holds) = (listener.clone(), holds.clone());
            thread::spawn(move || work(&listener, process, &holds))
        })
        .collect();
    for thread in threads {
        // One that ends has said why.
        let _ = thread.join();
    }
    Ok(())
}

fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

fn work(listener: &OwnedFd, process: Process, holds: &Arc<Holds>) {
    let direct = Direct::attach(now_ns, process, std::process::id(), thread_id());
    let Ok(direct) = direct else { return };
    let buffers = Box::leak(Box::new(Buffers::new()));
    let client = Client::new(direct, Plain, Plain, buffers);
    let mut agent = Agent::new(client, holds.clone());
    let mut incoming = vec![0; CALL_BYTES_MAX];
    let mut outgoing = vec![0; CALL_BYTES_MAX];
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            // Whoever asked hears nothing, and asks again or not.
            Ok(stream) => drop(answer(&mut agent, &stream, &mut incoming, &mut outgoing)),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Answers the one request of a connection.
fn answer(
    agent: &mut Agent,
    stream: &OwnedFd,
    incoming: &mut [u8],
    outgoing: &mut [u8],
) -> rustix::io::Result<()> {
    let at_once = RecvFlags::DONTWAIT;
    let (length, _) = match recv(stream.as_fd(), &mut *incoming, at_once) {
        Err(rustix::io::Errno::AGAIN) => {
            // Who has connected sends next.
            sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, Some(TALK_MAX))?;
            recv(stream.as_fd(), &mut *incoming, RecvFlags::empty())?
        }
        got => got?,
    };
    let Ok((header, body)) = Header::split(&incoming[..length]) else { return Ok(()) };
    let (head, room) = outgoing.split_at_mut(HEADER_BYTES);
    let reply = agent.handle(&header, body, room);
    let reply = reply.unwrap_or_else(|failure| header.answer(Some(failure)));
    head.copy_from_slice(&reply.encode());
    let whole = &outgoing[..HEADER_BYTES + reply.length as usize];
    // There is room in a queue that nothing was put into: nobody is waited for.
    send(stream.as_fd(), whole, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// Asks the agent that listens at `home`, on behalf of a node that reaches us another way: the
/// length of its answer in `room`; `None`: there is none.
pub fn ask(home: &[u8], message: &[u8], room: &mut [u8]) -> Option<usize> {
    husk_link::call(home, [message, &[]], room, husk_link::ANSWER_S).ok()
}

/// What a handler's error is to another node.
pub fn failure(errno: Errno) -> Failure {
    if errno == Errno::ESTALE { Failure::Gone } else { Failure::Errno(errno) }
}
