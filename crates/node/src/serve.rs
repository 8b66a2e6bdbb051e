//! Threads that take requests off the socket and answer them.
//!
//! ```text
//!   accept ─► its message is there ─► handled ─► answer, end of the session
//!         '─► not within `QUIET` ─► the late: one thread that polls them all, for `TALK_MAX`
//! ```
//!
//! Invariants
//! 1. Whoever connects and sends nothing holds up nobody for more than `QUIET`, and nobody at all
//!    once `LATE_FREE` do so; of more than `LATE_MAX` the oldest is sent away.
//! 2. Whoever does not read its answer is not waited for.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use husk_carrier::{Direct, Layout};
use husk_client::{Buffers, Client};
pub use husk_link::CALL_BYTES_MAX;
use husk_link::{Next, SLOT_BYTES_MAX, Unanswered};
use husk_proto::{Admin as _, Errno, Process};
use husk_wire::messages::ALL;
use husk_wire::{Header, Kind, Retry, Role};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with,
    recv, sendmsg, sockopt,
};

use crate::agent::Agent;
use crate::dispatch::reply_to;
use crate::file::holds::end_of;
use crate::plain::{Plain, now_ns, take_short_turns};
use crate::sessions::Sessions;
use crate::slots;

/// Threads, each with one request at a time.
const THREADS: usize = 4;
/// How long a thread waits for the message of who has just connected.
const QUIET: Duration = Duration::from_millis(20);
/// How long a message may take to arrive.
const TALK_MAX: Duration = Duration::from_secs(5);
/// Those that send nothing: from so many on nobody is waited for, and no more than that are kept.
const LATE_FREE: usize = 4;
const LATE_MAX: usize = 256;
/// Between two looks at them.
const LATE_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Between two tries where no connection can be taken, as at the limit on descriptors.
const PAUSE: Duration = Duration::from_millis(5);
/// Times that something is asked again for another host.
const ASKED_MAX: u32 = 64;

/// What the threads share.
#[derive(Clone)]
struct Shared {
    listener: Arc<OwnedFd>,
    sessions: Arc<Sessions>,
    process: Process,
    late: Arc<AtomicUsize>,
    memory: Option<(Arc<OwnedFd>, Layout)>,
    slots: Option<slots::Shared>,
}

/// Becomes the agent of the node whose region is `region`: answers what comes to `listener` until
/// it is killed, and tells `say` what broke the rules. What the `dead` asked before `epoch` is
/// refused from the first request on. An error says why it could not begin.
pub fn serve(
    region: &OwnedFd,
    layout: Layout,
    listener: OwnedFd,
    (dead, epoch): (&[u16], u32),
    say: fn(&str),
) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    husk_carrier::map_region(region.as_raw_fd() as u32, layout)?;
    let pid = std::process::id();
    let mut direct = Direct::attach(now_ns, Process(0), pid, thread_id())?;
    let process = direct.first_process(pid, &[])?;
    let sessions = Sessions::begin(say);
    for &node in dead {
        sessions.fence(node, epoch);
        // What agents before this one have kept for it.
        end_of(&mut direct, node, epoch);
    }
    direct.detach();
    let memory = to_read(region).ok().map(|memory| (Arc::new(memory), layout));
    let slots = slots::Shared::make();
    if let Some(slots) = &slots {
        // This thread lives as long as the agent.
        slots.open();
    }
    for thread in start(listener, Arc::new(sessions), process, memory, slots) {
        // One that ends has said why.
        let _ = thread.join();
    }
    Ok(())
}

/// The same memory, not to be written to.
fn to_read(region: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", region.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Starts the threads that answer what comes to `listener` and into `slots`, on behalf of
/// `process`; others may read `memory`.
pub fn start(
    listener: OwnedFd,
    sessions: Arc<Sessions>,
    process: Process,
    memory: Option<(Arc<OwnedFd>, Layout)>,
    slots: Option<slots::Shared>,
) -> Vec<thread::JoinHandle<()>> {
    let listener = Arc::new(listener);
    let shared = Shared { listener, sessions, process, late: Arc::default(), memory, slots };
    let (to_late, late) = channel();
    let own = shared.clone();
    let mut threads = vec![thread::spawn(move || attend(&own, &late))];
    threads.extend((0..THREADS).map(|_| {
        let (shared, to_late) = (shared.clone(), to_late.clone());
        thread::spawn(move || work(&shared, &to_late))
    }));
    let of_slots = if shared.slots.is_some() { slots::THREADS } else { 0 };
    threads.extend((0..of_slots).map(|_| {
        let shared = shared.clone();
        thread::spawn(move || {
            if let (Some(slots), Some(mut desk)) = (&shared.slots, Desk::new(&shared)) {
                let rooms = [&mut desk.incoming, &mut desk.outgoing];
                slots::work(slots, &mut desk.agent, rooms.map(|room| &mut room[..SLOT_BYTES_MAX]));
            }
        })
    }));
    threads
}

fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// A thread's agent, and its buffers.
struct Desk {
    agent: Agent,
    slots: Option<slots::Shared>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Desk {
    fn new(shared: &Shared) -> Option<Desk> {
        take_short_turns();
        let direct = Direct::attach(now_ns, shared.process, std::process::id(), thread_id());
        let buffers = Box::leak(Box::new(Buffers::new()));
        let client = Client::new(direct.ok()?, Plain, Plain, buffers);
        let mut agent = Agent::new(client, shared.sessions.clone());
        agent.memory = shared.memory.clone();
        let room = || vec![0; CALL_BYTES_MAX];
        let slots = shared.slots.clone();
        Some(Desk { agent, slots, incoming: room(), outgoing: room() })
    }

    /// Answers the one request of a connection, if it has come; false: it has not.
    fn answer(&mut self, stream: &OwnedFd) -> rustix::io::Result<bool> {
        let length = match recv(stream.as_fd(), &mut *self.incoming, RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            got => got?.0,
        };
        if length == 0 {
            // It has gone: killed before it could ask.
            return Ok(true);
        }
        let is_supervisor = || is_parent(stream);
        let message = &self.incoming[..length];
        if let Some(length) = reply_to(&mut self.agent, message, is_supervisor, &mut self.outgoing)
        {
            let whole = &self.outgoing[..length];
            let memory = self.agent.memory.as_ref().filter(|_| self.agent.lends_memory);
            let slots = self.slots.as_ref().map(slots::Shared::descriptor);
            let along =
                memory.map(|memory| iter::once(memory.0.as_fd()).chain(slots).collect::<Vec<_>>());
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if let Some(along) = &along {
                ancillary.push(SendAncillaryMessage::ScmRights(along));
            }
            // There is room in a queue that nothing was put into: nobody is waited for.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = sendmsg(stream.as_fd(), &[IoSlice::new(whole)], &mut ancillary, flags);
            match sent {
                Ok(_) => self.agent.was_heard(),
                Err(errno) => {
                    self.agent.was_not_heard();
                    return Err(errno);
                }
            }
        }
        Ok(true)
    }
}

/// Whether the process that has started us is at the other end.
fn is_parent(stream: &OwnedFd) -> bool {
    let peer = sockopt::socket_peercred(stream).map(|peer| peer.pid).ok();
    peer.is_some() && peer == rustix::process::getppid()
}

fn work(shared: &Shared, to_late: &Sender<OwnedFd>) {
    let Some(mut desk) = Desk::new(shared) else { return };
    loop {
        match accept_with(&shared.listener, SocketFlags::CLOEXEC) {
            Ok(stream) => {
                let quiet = shared.late.load(Ordering::Relaxed) < LATE_FREE;
                if desk.answer(&stream) == Ok(false)
                    && !(quiet && has_come(&stream) && desk.answer(&stream) != Ok(false))
                {
                    shared.late.fetch_add(1, Ordering::Relaxed);
                    // Its reader ends with us.
                    let _ = to_late.send(stream);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Waits a moment for something to read.
fn has_come(stream: &OwnedFd) -> bool {
    let mut watched = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let quiet = Timespec { tv_sec: 0, tv_nsec: QUIET.subsec_nanos().into() };
    poll(&mut watched, Some(&quiet)) == Ok(1)
}

/// Answers those who took their time.
fn attend(shared: &Shared, late: &Receiver<OwnedFd>) {
    let Some(mut desk) = Desk::new(shared) else { return };
    let mut waiting: VecDeque<(OwnedFd, Instant)> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            let Ok(stream) = late.recv() else { return };
            waiting.push_back((stream, Instant::now()));
        }
        waiting.extend(late.try_iter().map(|stream| (stream, Instant::now())));
        let surplus = waiting.len().saturating_sub(LATE_MAX);
        waiting.drain(..surplus).for_each(|one| sent_away(shared, one.0));
        let watched = waiting.iter().map(|one| one.0.as_fd());
        let mut watched: Vec<_> =
            watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // Interrupted: all are looked at.
        let _ = poll(&mut watched, Some(&LATE_LOOK));
        drop(watched);
        let count = waiting.len();
        for _ in 0..count {
            let Some((stream, since)) = waiting.pop_front() else { break };
            match desk.answer(&stream) {
                Ok(false) if since.elapsed() < TALK_MAX => waiting.push_back((stream, since)),
                Ok(false) => sent_away(shared, stream),
                // Whoever does not listen hears nothing, and asks again or not.
                _ => drop(shared.late.fetch_sub(1, Ordering::Relaxed)),
            }
        }
    }
}

/// Ends the session of who has sent nothing.
fn sent_away(shared: &Shared, stream: OwnedFd) {
    drop(stream);
    shared.late.fetch_sub(1, Ordering::Relaxed);
}

/// Asks the agent that listens at `home`, on behalf of a node that reaches us another way, and once
/// more each time that it is killed over that: the length of its answer in `room`; `None`: there is
/// none.
pub fn ask(home: &[u8], message: &[u8], room: &mut [u8]) -> Option<usize> {
    let Ok((header, body)) = Header::split(message) else {
        // The agent says so.
        return husk_link::call(home, [message, &[]], room, husk_link::ANSWER_S).ok();
    };
    let mut head = header.encode();
    for _ in 0..ASKED_MAX {
        match husk_link::call(home, [&head, body], room, husk_link::ANSWER_S) {
            Ok(length) => return Some(length),
            Err(why) if why.next(retry(&header)) != Next::Again => return None,
            Err(Unanswered::Lost) => head = Header { again: true, ..header }.encode(),
            Err(_) => {}
        }
    }
    None
}

/// Whether a message of another node is sent again. Bytes are not: those that were gathered come in
/// several messages under one number.
fn retry(header: &Header) -> Retry {
    match Kind::of(header.kind) {
        None | Some(Kind::WriteHome) => Retry::Posted,
        Some(kind) => {
            ALL.iter().find(|one| one.kind == kind).map_or(Retry::Posted, |one| one.retry)
        }
    }
}

/// What a message asks for, as people call it.
pub fn kind_name(message: &[u8]) -> &'static str {
    let header = message.first_chunk().and_then(|head| Header::decode(head).ok());
    header.and_then(|header| Kind::of(header.kind)).map_or("unknown", Kind::name)
}

/// Tells the agent that listens at `home`, from who has started it, that nodes are dead: what they
/// held falls, and what they ask in an epoch before this one is refused. Whether it has heard.
pub fn tell_deaths(home: &[u8], dead: &[u16], epoch: u32, patience_s: u64) -> bool {
    use husk_wire::text::List;
    let (mut body, mut room) = (vec![0; 64 + 2 * dead.len()], [0; 256]);
    let (Ok(members), Ok(dead)) = (List::new(&[]), List::new(dead)) else { return false };
    let told = husk_wire::request::Epoch { epoch, members, dead };
    let Ok(length) = husk_wire::messages::encode(&told, &mut body) else { return false };
    let header =
        Header { length: length as u32, request: 1, ..Header::new(Kind::Epoch, Role::Request) };
    let parts = [&header.encode()[..], &body[..length]];
    let Ok(length) = husk_link::call(home, parts, &mut room, patience_s) else { return false };
    Header::split(&room[..length]).is_ok_and(|(reply, _)| reply.status == 0)
}
