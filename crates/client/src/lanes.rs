//! Socket pairs of the image: two *lanes*, each a pipe (`pipe`), so that bytes go through rings
//! while both sides are awake, and through the host otherwise (`docs/adr/0044`).
//!
//! ```text
//!   socketpair ──► two numbers; each reads from its own lane, writes to that one's mate
//!   read, recv, recvmsg ──► own lane          what lets the host look, or says more than bytes:
//!   write, send, sendmsg ──► mate             *surrendered*, both lanes are the host's for ever
//! ```
//!
//! What is in a ring can be given to the host by the other socket alone: whoever has to, borrows
//! it from a process that has it (`pidfd_getfd`), and closes it at once.

use crate::addresses::DOMAIN;
use crate::calls::CLOSE_ON_EXEC;
use crate::layout::{STAT_INODE_AT, STAT_MODE_AT, get32, get64};
use crate::pipe::{LANDING_LOOKS, LANDING_NAP_NS, ROUNDS_MAX, vectors, waiting_at_host};
use crate::polling::watched_alone;
use crate::socket_name::{ADDRESS_BYTES, Name, PATH_AT, lane_of};
use crate::sockets::{CONTROL_AT, CONTROL_LENGTH_AT, MESSAGE_FLAGS_AT, MSGHDR_BYTES};
use crate::vector::{Cursor, MOVE_MAX};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, value};
use core::sync::atomic::{AtomicBool, Ordering};
use husk_abi::nr;
use husk_abi::sys::general::{F_GETFL, O_NONBLOCK, S_IFMT, S_IFSOCK};
use husk_abi::sys::net::{
    AF_UNIX, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL,
    SO_PASSCRED, SO_PASSSEC, SO_PEEK_OFF, SO_RCVLOWAT, SO_SNDBUF, SOCK_STREAM, SOL_SOCKET,
};
use husk_proto::descriptor::Shown;
use husk_proto::fs::Span;
use husk_proto::pipe::{End, Flow, Pipe, Withdrawal};
use husk_proto::{Errno, Result, Services};

/// Bits of a socket's type that are no flags.
const TYPE: usize = 0xf;
/// What of `flags` changes nothing about where bytes lie.
const USUAL: u32 = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_CMSG_CLOEXEC;
/// `SO_PASSPIDFD`.
const SO_PASSPIDFD: u32 = 76;
/// Options after which bytes say more, or come otherwise.
const PARTICULAR: [u32; 6] =
    [SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD, SO_PEEK_OFF, SO_RCVLOWAT, SO_SNDBUF];
/// Looks for a process that has a socket, one of which may be about to get or lose it.
const BORROWS_MAX: u32 = 4;
const BORROW_NAP_NS: u64 = 1_000_000;
/// Room, as `SO_SNDBUF` wants it, for a ring's bytes behind what the host has.
const ROOM_BYTES: u32 = 1 << 20;
const PR_GET_SECCOMP: usize = 21;

/// Where in `struct msghdr` the buffers stand, and how many they are.
const TABLE_AT: usize = 16;
const COUNT_AT: usize = 24;

/// What of a message's header decides which way it goes.
struct Header {
    named: bool,
    control: bool,
    table: usize,
    count: usize,
}

/// Whether this program may come to where it cannot borrow from others, or they from it.
static APART: AtomicBool = AtomicBool::new(false);

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// After `socketpair`: its numbers become ends of two lanes, where that is wanted and possible.
    #[cold]
    pub(crate) fn sockets_made(&mut self, after: &After) {
        let [domain, kind, _, address, ..] = after.args;
        let streams = domain == AF_UNIX as usize && kind & TYPE == SOCK_STREAM as usize;
        let mut pair = [0u8; 8];
        let wanted = streams && self.services.lanes_wanted() && self.is_in_reach();
        if !wanted || self.memory.read(address, &mut pair).is_err() {
            return;
        }
        let pair = [get32(&pair, 0), get32(&pair, 4)];
        let [Some(one), Some(other)] = pair.map(|fd| self.host_socket(fd as usize)) else { return };
        let files = self.services.files();
        // Too many, no memory: this pair stays all the host's.
        let _ = self.services.lanes_make(files, pair, [one, other]);
    }

    /// After `socket`: one that may be connected by name gets lanes before anybody can have another
    /// number of it. Who does not wait in its calls waits in sets, which the rings are not for.
    pub(crate) fn socket_made(&mut self, after: &After, result: i64) -> i64 {
        let [domain, kind, ..] = after.args;
        let noted = match u32::try_from(result) {
            Ok(fd) => self.note_opened(fd, kind & CLOSE_ON_EXEC != 0, Shown::Nothing),
            Err(_) => return result,
        };
        let blocks = domain == AF_UNIX as usize && kind & !CLOSE_ON_EXEC == SOCK_STREAM as usize;
        if noted >= 0 && blocks && self.services.lanes_wanted() && self.is_in_reach() {
            let files = self.services.files();
            if let Some(host) = self.host_socket(noted as usize) {
                // Too many: this one stays all the host's.
                let _ = self.services.lane_await(files, noted as u32, host);
            }
        }
        noted
    }

    /// After `accept`: if the socket at the other end has lanes, they are this one's as well.
    pub(crate) fn other_end_met(&mut self, listener: usize, fd: u32) {
        if !self.services.lanes_await() || !self.is_in_reach() {
            return;
        }
        let flags = |fd: usize| self.host_fcntl(fd, F_GETFL, 0);
        let waits = [listener, fd as usize].iter().all(|&fd| flags(fd) as u32 & O_NONBLOCK == 0);
        if !waits || self.socket_option(fd as usize, DOMAIN) != Some(AF_UNIX) {
            return;
        }
        // What the listener asks of a connection comes with more than bytes.
        let says_more =
            |&option| self.socket_option(fd as usize, option as usize).unwrap_or(0) != 0;
        if [SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD].iter().any(says_more) {
            return;
        }
        let Some(host) = self.host_socket(fd as usize) else { return };
        let Ok(name) = self.own_name(nr::getpeername, fd as usize) else { return };
        let name = &name.bytes[..name.length.min(ADDRESS_BYTES)];
        let Some(lane) = lane_of(name, self.services.private_path()) else { return };
        let files = self.services.files();
        // It has gone again, or has been claimed before.
        let _ = self.services.lane_claim(files, fd, host, Pipe(lane));
    }

    /// Before `connect` to the name at `address`: where that is a node's, who accepts the connection
    /// is to know its lanes. A socket that has a name already has lost them, or tries once more.
    pub(crate) fn introduce(&mut self, fd: usize, address: usize) {
        let Some(end) = self.socket_end(fd) else { return };
        let private = self.services.private_path();
        let mut there = [0u8; ADDRESS_BYTES];
        let there = &mut there[..PATH_AT + private.len()];
        let known = self.memory.read(address, there).is_ok() && &there[PATH_AT..] == private;
        if known && self.services.lane_awaits(end.pipe) {
            let name = Name::of_lane(private, end.pipe.0);
            let args = [fd, name.bytes.as_ptr() as usize, name.length, 0, 0, 0];
            self.host.call(nr::bind, args);
        }
    }

    /// Before `bind`: a socket that could not be connected has the name of its lanes, which cannot
    /// be taken from it. A new one takes its place.
    pub(crate) fn take_name_off(&mut self, fd: usize) {
        if !self.services.sockets() || self.socket_option(fd, DOMAIN) != Some(AF_UNIX) {
            return;
        }
        let Ok(name) = self.own_name(nr::getsockname, fd) else { return };
        let bytes = &name.bytes[..name.length.min(ADDRESS_BYTES)];
        if lane_of(bytes, self.services.private_path()).is_none() {
            return;
        }
        self.forget_other_end(fd);
        let flags = self.host_fcntl(fd, F_GETFL, 0) as usize & O_NONBLOCK as usize;
        let on_exec = if self.closes_on_exec(fd as u32) { CLOSE_ON_EXEC } else { 0 };
        let _still = self.host.keep_still();
        let kind = SOCK_STREAM as usize | flags | CLOSE_ON_EXEC;
        let new = self.host.call(nr::socket, [AF_UNIX as usize, kind, 0, 0, 0, 0]);
        if let Ok(new) = u32::try_from(new) {
            self.host.call(nr::dup3, [new as usize, fd, on_exec, 0, 0, 0]);
            self.host_close(new);
        }
    }

    /// `listen`, or `connect` to a name that is no tree's: nobody of the image will be at the other
    /// end.
    pub(crate) fn forget_other_end(&mut self, fd: usize) {
        if self.socket_end(fd).is_some() {
            let files = self.services.files();
            self.services.lane_forget(files, fd as u32);
        }
    }

    /// Whether others can borrow from this process, and it from them.
    fn is_in_reach(&self) -> bool {
        let filtered = || self.host.call(nr::prctl, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) != 0;
        !APART.load(Ordering::Relaxed) && !filtered()
    }

    /// The host's number of the socket behind a descriptor.
    fn host_socket(&self, fd: usize) -> Option<u64> {
        let stat = self.host_stat(fd).ok()?;
        let socket = get32(&stat, STAT_MODE_AT) & S_IFMT == S_IFSOCK;
        socket.then(|| get64(&stat, STAT_INODE_AT))
    }

    /// The lane behind a descriptor of the host's that is a socket nobody has named in this table.
    pub(crate) fn find_lane(&mut self, fd: usize) -> Option<End> {
        let pipe = self.host_socket(fd).and_then(|host| self.services.lane_find(host))?;
        Some(End { pipe, writes: false, socket: true })
    }

    /// The pipe that a read or a write on an end goes through, as an end of that.
    #[inline(always)]
    pub(crate) fn lane(&self, end: End, writes: bool) -> Option<End> {
        if !end.socket {
            return (end.writes == writes).then_some(end);
        }
        let pipe = if writes { self.services.lane_mate(end.pipe)? } else { end.pipe };
        Some(End { pipe, writes, socket: true })
    }

    /// The socket behind a number.
    fn socket_end(&mut self, fd: usize) -> Option<End> {
        self.pipe_end(fd).filter(|end| end.socket)
    }

    // ---- calls ----------------------------------------------------------------------------------

    /// `sendto` on a socket with lanes. `None`: there are none, or it is the host's from now on.
    pub(crate) fn send(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        if c.args[4] != 0 {
            // It is connected, which the host says before it looks at the name.
            return Some(Ok(Verdict::Pass));
        }
        let lane = self.lane(end, true)?;
        if c.args[3] as u32 & !USUAL != 0 {
            return self.lost(end, lane);
        }
        let length = c.args[2].min(MOVE_MAX);
        if length == 0 {
            return None;
        }
        Some(self.flow(c, lane, Cursor::plain(c.args[1], length), length, false))
    }

    /// `sendmsg`: bytes alone go through the ring, nothing that comes with them.
    pub(crate) fn send_message(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let lane = self.lane(end, true)?;
        let head = self.header(c.args[1])?;
        if head.named || head.control || c.args[2] as u32 & !USUAL != 0 {
            return self.lost(end, lane);
        }
        let Ok((cursor, length @ 1..)) = self.cursor(head.table, head.count) else { return None };
        Some(self.flow(c, lane, cursor, length, true))
    }

    /// `recvfrom`.
    pub(crate) fn receive(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let (address, length) = (c.args[1], c.args[2].min(MOVE_MAX));
        let flags = c.args[3] as u32;
        if length == 0 {
            return None;
        }
        match flags & !USUAL {
            _ if c.args[4] != 0 => self.lost(end, end),
            0 => Some(self.flow(c, end, Cursor::plain(address, length), length, false)),
            MSG_PEEK => Some(self.peek(c, end, address, length)),
            MSG_WAITALL => Some(self.receive_all(c, end, address, length)),
            _ => self.lost(end, end),
        }
    }

    /// `recvmsg`: nothing but bytes goes through the ring.
    pub(crate) fn receive_message(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let head = self.header(c.args[1])?;
        if c.args[2] as u32 & !USUAL != 0 {
            return self.lost(end, end);
        }
        let Ok((cursor, length @ 1..)) = self.cursor(head.table, head.count) else { return None };
        if head.named {
            return self.lost(end, end);
        }
        let answer = if head.control {
            self.rest(c, end, cursor, length)?
        } else {
            self.flow(c, end, cursor, length, true)
        };
        if !matches!(answer, Ok(Verdict::Return(0..))) {
            return Some(answer);
        }
        Some(self.tell_alone(c.args[1]).and(answer))
    }

    /// Says in a message's header that bytes came alone.
    fn tell_alone(&mut self, header: usize) -> Result<()> {
        self.memory.write(header + CONTROL_LENGTH_AT, &[0; 8])?;
        self.memory.write(header + MESSAGE_FLAGS_AT, &[0; 4])
    }

    fn header(&self, address: usize) -> Option<Header> {
        let mut head = [0u8; MSGHDR_BYTES];
        self.memory.read(address, &mut head).ok()?;
        Some(Header {
            named: get64(&head, 0) != 0,
            control: get64(&head, CONTROL_AT) != 0 || get64(&head, CONTROL_LENGTH_AT) != 0,
            table: get64(&head, TABLE_AT) as usize,
            count: get64(&head, COUNT_AT) as usize,
        })
    }

    /// `MSG_PEEK`: to the ring a look at the host is as a poll.
    fn peek(&mut self, c: &Call, lane: End, address: usize, length: usize) -> Answer {
        for _ in 0..ROUNDS_MAX {
            let (memory, mut cursor) = (&self.memory, Cursor::plain(address, length));
            let flow = self.services.pipe_peek(lane.pipe, length, &mut |span| {
                cursor.each(memory, span, |m, span, target| m.copy_out(span, target))
            });
            match flow? {
                Flow::Moved(count) => return value(count as u64),
                Flow::Host { .. } => return Ok(watched_alone(c, lane.pipe)),
                Flow::Wait { address, value } => self.sleep_on(address, value),
                Flow::Settle => {
                    let left = self.left_in(lane.pipe);
                    self.services.pipe_settled(lane.pipe, left);
                }
                Flow::Fetch(_) | Flow::Look => break,
            }
        }
        Err(Errno::EIO)
    }

    /// `MSG_WAITALL`: what the rings have first, then the host waits for what is left.
    fn receive_all(&mut self, c: &Call, lane: End, address: usize, length: usize) -> Answer {
        let mut done = 0;
        while done < length {
            let left = length - done;
            let cursor = Cursor::plain(address + done, left);
            match self.flow(c, lane, cursor, left, false) {
                Ok(Verdict::Return(count @ 1..)) => done += count as usize,
                Ok(Verdict::PassThen(mut after)) if done > 0 => {
                    after.args[1] = done;
                    return Ok(Verdict::PassRest { after, done });
                }
                Ok(Verdict::Wait { address, value, .. }) if done > 0 => {
                    self.sleep_on(address, value);
                }
                _ if done > 0 => break,
                other => return other,
            }
        }
        value(done as u64)
    }

    /// What the ring still has, before a call that the host alone can answer from now on; `None`:
    /// nothing.
    fn rest(&mut self, c: &Call, end: End, cursor: Cursor, length: usize) -> Option<Answer> {
        self.services.pipe_pin(end.pipe);
        if !self.pin_empty(end.pipe) {
            return None;
        }
        match self.flow(c, end, cursor, length, true) {
            Ok(Verdict::PassThen(_)) => {
                // Somebody else has taken it, and this is to be another call.
                self.services.pipe_landed(end.pipe, false, 0);
                None
            }
            answer => Some(answer),
        }
    }

    /// `shutdown`: who writes asks the host from now on; what is in a ring is still read.
    pub(crate) fn shutdown(&mut self, c: &Call) -> Answer {
        if let Some(end) = self.socket_end(c.args[0]) {
            self.pin_lanes(end);
        }
        self.other_kind(c, Errno::ENOTSOCK)
    }

    /// `setsockopt`.
    pub(crate) fn set_option(&mut self, c: &Call) -> Answer {
        let particular = PARTICULAR.contains(&(c.args[2] as u32));
        if c.args[1] == SOL_SOCKET as usize && particular {
            self.surrender(c.args[0])?;
        }
        self.other_kind(c, Errno::ENOTSOCK)
    }

    /// `SIOCOUTQ`: what the other socket has not read, as far as it is in a ring, beside what the
    /// host counts.
    pub(crate) fn unread_by_peer(&mut self, c: &Call, end: End) -> Answer {
        let mut count = [0u8; 4];
        let here = self.lane(end, true).map_or(0, |lane| self.services.pipe_waiting(lane.pipe));
        let args = [c.args[0], c.args[1], count.as_mut_ptr() as usize, 0, 0, 0];
        Errno::check(self.host.call(nr::ioctl, args))?;
        let there = get32(&core::hint::black_box(count), 0);
        self.memory.write(c.args[2], &(there + here as u32).to_le_bytes())?;
        value(0)
    }

    // ---- to the host ----------------------------------------------------------------------------

    /// Before a program changes who it is, or what it may reach: nobody could borrow from it any
    /// more, nor it from others.
    #[cold]
    pub fn forgo_lanes(&mut self) {
        APART.store(true, Ordering::Relaxed);
        self.each_number(|client, fd| {
            if client.socket_end(fd).is_some() {
                // What cannot be moved stays where readers of the image find it; counted.
                let _ = client.surrender(fd);
            }
        });
    }

    /// Number `fd` is about to go: what nobody has read of it is the host's then, who tells the
    /// other side of the loss.
    pub(crate) fn leave_unread(&mut self, end: End) {
        if end.socket && self.services.pipe_waiting(end.pipe) > 0 {
            // Where that fails the other side is told of an end alone.
            let _ = self.withdraw_lane(end.pipe, true);
        }
    }

    /// The same of all numbers: the process ends.
    pub fn leave_lanes(&mut self) {
        self.each_number(|client, fd| {
            if let Some(end) = client.socket_end(fd) {
                client.leave_unread(end);
            }
        });
    }

    /// The call is the host's, and so is the lane that it is about from now on.
    #[cold]
    fn lost(&mut self, end: End, lane: End) -> Option<Answer> {
        self.pin_lanes(end);
        self.withdraw_lane(lane.pipe, false).err().map(Err)
    }

    fn pin_lanes(&mut self, end: End) {
        for writes in [false, true] {
            if let Some(lane) = self.lane(end, writes) {
                self.services.pipe_pin(lane.pipe);
            }
        }
    }

    /// Both lanes of a socket are the host's for ever, with what was in their rings.
    #[cold]
    pub(crate) fn surrender_socket(&mut self, end: End) -> Result<()> {
        self.pin_lanes(end);
        for writes in [false, true] {
            if let Some(lane) = self.lane(end, writes) {
                self.withdraw_lane(lane.pipe, false)?;
            }
        }
        Ok(())
    }

    /// What is in a lane's ring goes to the host, before what that has. `to_set`: as long as the
    /// host has bytes, or an end to tell of, it may stay, for readers find it first.
    #[cold]
    pub(crate) fn withdraw_lane(&mut self, lane: Pipe, to_set: bool) -> Result<()> {
        let (mut looks, mut size) = (0, None);
        for _ in 0..ROUNDS_MAX {
            let behind = if looks > 0 { self.left_in(lane) } else { 0 };
            if to_set && behind > 0 {
                return Ok(());
            }
            let stuck = looks > LANDING_LOOKS && behind == 0;
            let done = match self.services.pipe_withdraw(lane, stuck)? {
                Withdrawal::Nothing => Some(Ok(())),
                Withdrawal::Wait { address, value } => {
                    self.sleep_on(address, value);
                    None
                }
                Withdrawal::Settle => {
                    let left = self.left_in(lane);
                    self.services.pipe_settled(lane, left);
                    None
                }
                Withdrawal::Writing => {
                    if looks == 0 && !to_set {
                        // Who sleeps there for room goes on.
                        size = self.writer_size(lane, ROOM_BYTES);
                    }
                    looks += 1;
                    self.nap(LANDING_NAP_NS);
                    None
                }
                Withdrawal::Bytes(spans) => self.withdrawn(lane, &spans, to_set),
            };
            if let Some(done) = done {
                size.map(|bytes| self.writer_size(lane, bytes / 2));
                return done;
            }
        }
        size.map(|bytes| self.writer_size(lane, bytes / 2));
        self.refuse(nr::read, Errno::EIO)
    }

    /// Gives a ring's bytes, both locks held, to the host; `None`: there may be more.
    fn withdrawn(&mut self, lane: Pipe, spans: &[Span; 2], to_set: bool) -> Option<Result<()>> {
        let put = self.give_to_peer(lane, spans);
        self.services.pipe_withdrawn(lane, put.unwrap_or(0));
        match put {
            Ok(1..) => None,
            // Nobody is left who has written them: the host tells of the end.
            Err(Errno::EPIPE) if to_set => Some(Ok(())),
            Ok(0) | Err(_) => Some(self.refuse(nr::read, Errno::EIO)),
        }
    }

    /// What the host lets lie between the writer to `lane` and its reader becomes `bytes`; what it
    /// was, which is twice what the host was told.
    fn writer_size(&mut self, lane: Pipe, bytes: u32) -> Option<u32> {
        let _still = self.host.keep_still();
        let writer = self.services.lane_mate(lane).and_then(|mate| self.borrow(mate).ok())?;
        let size = self.buffer_size(writer as usize);
        self.set_buffer_size(writer as usize, bytes);
        self.host_close(writer);
        Some(size)
    }

    /// Bytes that the host has in a lane. Where nobody is left to read them, none.
    #[cold]
    pub(crate) fn left_in(&mut self, lane: Pipe) -> u64 {
        let _still = self.host.keep_still();
        let Ok(reader) = self.borrow(lane) else { return 0 };
        let left = waiting_at_host(&self.host, reader as usize);
        self.host_close(reader);
        left
    }

    /// Puts a ring's bytes into the socket that reads from `lane`, before what that holds: how many.
    /// `EPIPE`: no process has the other one.
    fn give_to_peer(&mut self, lane: Pipe, spans: &[Span; 2]) -> Result<u64> {
        // No child is to get what is borrowed.
        let _still = self.host.keep_still();
        let mate = self.services.lane_mate(lane).ok_or(Errno::EPIPE)?;
        let writer = self.borrow(mate)?;
        let put = self.borrow(lane).map(|reader| {
            let put = self.put_before(reader as usize, writer as usize, spans);
            self.host_close(reader);
            put
        });
        self.host_close(writer);
        put
    }

    fn put_before(&mut self, reader: usize, writer: usize, spans: &[Span; 2]) -> u64 {
        let behind = waiting_at_host(&self.host, reader);
        if behind == 0 {
            return self.send_spans(writer, spans);
        }
        let size = self.buffer_size(writer);
        self.set_buffer_size(writer, ROOM_BYTES);
        let all = (spans[0].length + spans[1].length) as u64;
        let put = self.send_spans(writer, spans);
        self.rotate_socket(reader, writer, behind);
        // The host doubles what it is told.
        self.set_buffer_size(writer, size / 2);
        if put == all {
            return put;
        }
        // The rest would come behind the host's: all of it stays.
        self.rotate_socket(reader, usize::MAX, put);
        0
    }

    fn send_spans(&self, writer: usize, spans: &[Span; 2]) -> u64 {
        let table = vectors(spans);
        let header = [0u64, 0, table.as_ptr() as u64, 2, 0, 0, 0];
        let flags = (MSG_DONTWAIT | MSG_NOSIGNAL) as usize;
        let args = [writer, header.as_ptr() as usize, flags, 0, 0, 0];
        let put = self.host.call(nr::sendmsg, args);
        core::hint::black_box((&table, &header));
        put.max(0) as u64
    }

    /// Takes the first `bytes` that the host has, and sends them to `writer`, if that is one.
    fn rotate_socket(&mut self, reader: usize, writer: usize, bytes: u64) {
        let flags = (MSG_DONTWAIT | MSG_NOSIGNAL) as usize;
        let address = self.buffers.bounce.as_mut_ptr() as usize;
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(self.buffers.bounce.len());
            let got = self.host.call(nr::recvfrom, [reader, address, part, flags, 0, 0]);
            if got <= 0 {
                return;
            }
            if writer != usize::MAX {
                self.host.call(nr::sendto, [writer, address, got as usize, flags, 0, 0]);
            }
            left -= got as usize;
        }
    }

    fn buffer_size(&self, fd: usize) -> u32 {
        let (mut size, mut length) = ([0u8; 4], [4u8, 0, 0, 0]);
        let (at, room) = (size.as_mut_ptr() as usize, length.as_mut_ptr() as usize);
        self.host.call(nr::getsockopt, [fd, SOL_SOCKET as usize, SO_SNDBUF as usize, at, room, 0]);
        get32(&core::hint::black_box(size), 0)
    }

    fn set_buffer_size(&self, fd: usize, bytes: u32) {
        let size = core::hint::black_box(bytes.to_le_bytes());
        let args = [fd, SOL_SOCKET as usize, SO_SNDBUF as usize, size.as_ptr() as usize, 4, 0];
        self.host.call(nr::setsockopt, args);
    }

    /// A descriptor of this process, for a while, of the socket that reads from `lane`. `EPIPE`: no
    /// process has it any more.
    fn borrow(&mut self, lane: Pipe) -> Result<u32> {
        let mut why = Errno::EPIPE;
        for _ in 0..BORROWS_MAX {
            let mut skipped = 0;
            while let Some((pid, fd)) = self.services.lane_reader(lane, skipped) {
                match self.borrow_from(pid, fd, lane) {
                    Ok(Some(got)) => return Ok(got),
                    Ok(None) | Err(Errno::ESRCH | Errno::EBADF) => {}
                    Err(errno) => why = errno,
                }
                skipped += 1;
            }
            if skipped == 0 {
                return Err(Errno::EPIPE);
            }
            self.nap(BORROW_NAP_NS);
        }
        Err(why)
    }

    fn borrow_from(&mut self, pid: u32, fd: u32, lane: Pipe) -> Result<Option<u32>> {
        let process = Errno::check(self.host.call(nr::pidfd_open, [pid as usize, 0, 0, 0, 0, 0]))?;
        let args = [process as usize, fd as usize, 0, 0, 0, 0];
        let got = Errno::check(self.host.call(nr::pidfd_getfd, args));
        self.host_close(process as u32);
        let got = got? as u32;
        if self.find_lane(got as usize).is_some_and(|end| end.pipe == lane) {
            return Ok(Some(got));
        }
        self.host_close(got);
        Ok(None)
    }

    fn nap(&self, span_ns: u64) {
        let time = core::hint::black_box([0u64, span_ns]);
        self.host.call(nr::nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]);
    }
}
