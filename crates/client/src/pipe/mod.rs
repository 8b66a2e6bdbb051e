//! Pipes of the image: through a ring while both sides are awake, through the host otherwise.
//!
//! The numbers are the host's, so calls that are not handled here go to the host unchanged. Before
//! a call that lets the host or a process outside read the pipe, the pipe is *surrendered*: the
//! bytes of its ring go to the host, and from then on the pipe is the host's.
//!
//! The reader of a pipe never sleeps at its ring: it leaves the ring and sleeps in a read of the
//! host's pipe. The next writer finds the ring left and writes to the host's pipe, which wakes the
//! reader (states: `husk_kernel::pipe::flow`, `docs/adr/0015`). That of a socket may sleep by a
//! bell instead (`ready::read_bell`).

pub(crate) mod fifo;
pub(crate) mod splice;
mod traced;
pub(crate) mod watched;

use crate::iovec::{Cursor, MOVE_MAX};
use crate::layout::{STAT_INODE_AT, STAT_MODE_AT, get32, get64, put};
use crate::pipe::splice::read_pipe;
use crate::reason;
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    F_GETFL, F_SETPIPE_SZ, O_CLOEXEC, O_DIRECT, O_NONBLOCK, O_RDWR, POLLERR, POLLHUP, POLLIN,
    POLLRDHUP, S_IFIFO, S_IFMT,
};
use husk_abi::sys::ioctl::FIONREAD;
use husk_abi::sys::net::{MSG_DONTWAIT, SO_RCVTIMEO_OLD, SO_SNDTIMEO_OLD, SOL_SOCKET};
use husk_proto::fs::Span;
use husk_proto::pipe::{Emptiness, End, Flow, Pipe, Withdrawal};
use husk_proto::{Errno, Result, Services};

/// Longest sleep for somebody else's lock, ns.
const LOCK_NS: u64 = 10_000_000;
/// Looks at a lock that somebody living holds, by a call that must not wait; at most, by one that
/// must not wait for long.
const HELD_LOOKS: u64 = 20;
const LIMITED_LOOKS: u64 = 900;
/// Rounds with a pipe that changes hands in one call.
pub(crate) const ROUNDS_MAX: u32 = 1000;
/// Bytes of a pipe moved from its front to its end at a time.
const ROTATED_BYTES: usize = 512;
/// Room for what a writer that sleeps at the host still has, in one call of most programs.
const LANDING_BYTES: usize = 4 << 16;
/// Room for that and a ring's bytes while a pipe is put in order.
const ROOM_BYTES: usize = 8 << 16;
/// Looks whether a writer's call at the host is over, and what lies between two: 100 ms in all,
/// after which it is stopped, or counted for ever (it was killed).
pub(crate) const LANDING_LOOKS: u32 = 500;
pub(crate) const LANDING_NAP_NS: u64 = 200_000;
/// What Linux hands from stream socket to stream socket in one piece (`UNIX_SKB_FRAGS_SZ` in its
/// `net/unix/af_unix.c`).
const PIECE_BYTES: usize = 32_768;
/// What the host says of an end whose other side is gone: of a pipe, of a socket.
const GONE: u16 = (POLLERR | POLLHUP) as u16;
/// `O_NOTIFICATION_PIPE`.
const NOTIFICATIONS: usize = 0o200;
/// What one `iovec` takes.
const IOVEC_BYTES: usize = 16;
/// Most bytes of one write that waits for room in a ring, so that a signal is seen soon: what is
/// left is the host's.
const BURST_BYTES: usize = 1 << 20;
/// Room for which it is worth to go on.
const STEP_BYTES: usize = 8192;

/// What a read that finds a dry ring does.
pub(crate) enum Dry {
    /// The host waits.
    Sleeps(Verdict),
    /// There are bytes by now.
    Bytes,
    /// The read is the host's.
    Host,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The pipe end behind a number.
    #[inline]
    pub(crate) fn pipe_end(&mut self, fd: usize) -> Option<End> {
        let files = self.services.files();
        self.services.pipe_end(files, fd as u32)
    }

    /// After `pipe` or `pipe2`: the two numbers become ends of a pipe of the image, where that is
    /// wanted and possible; else they stay what they are.
    #[cold]
    pub(crate) fn pipe_made(&mut self, after: &After) {
        let flags = if after.number == nr::pipe2 { after.args[1] } else { 0 };
        let mut pair = [0u8; 8];
        if self.memory.read(after.args[0], &mut pair).is_err() {
            return;
        }
        let odd = flags & (O_DIRECT as usize | NOTIFICATIONS) != 0;
        let (read, write) = (get32(&pair, 0), get32(&pair, 4));
        if odd || !self.services.pipes_wanted() {
            return;
        }
        let files = self.services.files();
        let Some(host) = self.host_pipe(read as usize) else { return };
        // Too many pipes, no memory: this one stays all the host's.
        let _ = self.services.pipe_make(files, read, write, host);
    }

    /// The kind of a file at the host (`S_IFMT`), and its number.
    pub(crate) fn host_number(&self, fd: usize) -> Option<(u32, u64)> {
        let stat = self.host_stat(fd).ok()?;
        Some((get32(&stat, STAT_MODE_AT) & S_IFMT, get64(&stat, STAT_INODE_AT)))
    }

    /// The host's number of the pipe behind a descriptor.
    fn host_pipe(&self, fd: usize) -> Option<u64> {
        self.host_number(fd).filter(|&(kind, _)| kind == S_IFIFO).map(|(_, number)| number)
    }

    /// A descriptor that another process opened, perhaps: if it is a pipe of the image, nobody has
    /// named it in this table, and so the pipe is the host's from now on. The same of a set.
    #[cold]
    pub(crate) fn meet_stranger(&mut self, fd: usize) {
        let found = self.host_pipe(fd).and_then(|host| self.services.pipe_find(host));
        if let Some(pipe) = found {
            self.services.pipe_show(pipe);
            // What cannot be moved stays for readers of the image; counted.
            let _ = self.surrender_end(fd, End { pipe, writes: false, socket: false });
        } else if let Some(end) = self.find_lane(fd) {
            let _ = self.surrender_socket(fd, end);
        }
        self.meet_set(fd as u32);
    }

    /// `read`, `readv`, `write`, `writev` on a number that is no Husk file.
    #[inline]
    pub(crate) fn piped(&mut self, c: &Call) -> Answer {
        match self.pipe_end(c.args[0]) {
            Some(end) => match self.moved_swiftly(c.number, end, false, c.args) {
                0 => self.move_bytes(c, end),
                moved => value(moved as u64),
            },
            None => match self.watcher(c.args[0]) {
                Some(instance) if matches!(c.number, nr::read | nr::readv) => {
                    self.read_events(c, instance)
                }
                _ => match self.event(c.args[0]) {
                    Some(event) => self.event_call(c, event),
                    None => Ok(Verdict::Pass),
                },
            },
        }
    }

    /// The same call on what is known to be `end`; the verdict shown to `then` where it lies.
    #[inline(always)]
    pub fn pipe_call_then<T>(&mut self, c: &Call, end: End, then: impl FnOnce(&Verdict) -> T) -> T {
        match &self.move_bytes(c, end) {
            Ok(verdict) => then(verdict),
            Err(errno) => then(&Verdict::Return(errno.as_return())),
        }
    }

    /// What most calls are, which is worth a way of its own: a few bytes, one buffer, nobody in the
    /// way; `alone`: nobody else has the pipe. 0: anything else, which is `move_bytes`'s.
    #[inline(always)]
    pub fn moved_swiftly(
        &mut self,
        number: usize,
        end: End,
        alone: bool,
        [fd, address, length, ..]: [usize; 6],
    ) -> usize {
        let memory = &self.memory;
        match number {
            nr::read if !end.writes => {
                let copy = |span| memory.copy_out(span, address);
                self.services.pipe_take_swiftly(end.pipe, alone, length, copy)
            }
            nr::write if length != 0 => {
                let Some(lane) = self.lane(end, true) else { return 0 };
                let copy = |span| memory.copy_in(address, span);
                let put = self.services.pipe_put_swiftly(lane.pipe, alone, length, copy);
                if put && lane.socket {
                    self.tell_set(fd, lane.pipe);
                }
                if put { length } else { 0 }
            }
            _ => 0,
        }
    }

    #[inline(never)]
    fn move_bytes(&mut self, c: &Call, end: End) -> Answer {
        let writes = matches!(c.number, nr::write | nr::writev);
        let vector = matches!(c.number, nr::readv | nr::writev);
        let Some(end) = self.lane(end, writes) else { return Ok(Verdict::Pass) };
        let (cursor, length) = if vector {
            self.cursor(c.args[1], c.args[2])?
        } else {
            let length = c.args[2].min(MOVE_MAX);
            (Cursor::plain(c.args[1], length), length)
        };
        if length == 0 {
            return Ok(Verdict::Pass);
        }
        self.flow(c, end, cursor, length, vector && writes)
    }

    /// Moves bytes through a pipe or a lane. `whole`: a write goes through the ring as a whole or
    /// not at all, and a read ends with what the ring has.
    pub(crate) fn flow(
        &mut self,
        c: &Call,
        end: End,
        start: Cursor,
        length: usize,
        whole: bool,
    ) -> Answer {
        let (mut cursor, mut moved, mut looks) = (start, 0, 0);
        let in_whole = whole || end.socket && length <= PIECE_BYTES;
        for _ in 0..ROUNDS_MAX {
            let sleep = if end.socket { self.sleeping_reader(end) } else { 0 };
            let (memory, left) = (&self.memory, length - moved);
            let flow = if end.writes {
                self.services.pipe_put(end.pipe, left, in_whole, &mut |span| {
                    cursor.each(memory, span, |m, span, source| m.copy_in(source, span))
                })
            } else {
                self.services.pipe_take(end.pipe, left, &mut |span| {
                    cursor.each(memory, span, |m, span, target| m.copy_out(span, target))
                })
            };
            match flow {
                Ok(Flow::Moved(count)) => {
                    moved += count;
                    if end.socket && end.writes {
                        self.tell_set(c.args[0], end.pipe);
                    }
                    // The host may have more, and no second edge to tell of it: to who reads less
                    // than he has room for, there is no more.
                    let more = !end.writes && !whole && moved < length;
                    if !more || !self.services.pipe_is_leaving(end.pipe) {
                        return value(moved as u64);
                    }
                }
                Ok(Flow::Wait { .. }) | Err(_) if moved > 0 => return value(moved as u64),
                // Nobody reads from that lane any more: the host says so.
                Err(Errno::EBADF) if end.socket => return Ok(Verdict::Pass),
                Err(errno) => return Err(errno),
                Ok(Flow::Host { done }) => {
                    return self.flow_at_host(c, end, cursor, [moved, moved + done, length], sleep);
                }
                Ok(Flow::Full { done }) => {
                    moved += done;
                    let wanted = if in_whole { length } else { (length - moved).min(STEP_BYTES) };
                    self.met_full_ring(c.args[0], end, wanted, moved < BURST_BYTES);
                }
                Ok(Flow::Dry) if moved > 0 => return value(moved as u64),
                Ok(Flow::Dry) => {
                    if let Some(sleep) = self.meet_dry_ring(c, end, whole)? {
                        return Ok(sleep);
                    }
                }
                Ok(Flow::Wait { address, value }) => {
                    if let Some(answer) = self.held(c, end, (address, value), &mut looks) {
                        return answer;
                    }
                }
                Ok(other) => self.attend(c.args[0], end, other)?,
            }
        }
        if moved > 0 { value(moved as u64) } else { Err(Errno::EIO) }
    }

    /// The rest of a call is the host's: `moved` bytes came out of the ring before, `done` of all
    /// are in the ring.
    fn flow_at_host(
        &mut self,
        c: &Call,
        end: End,
        rest: Cursor,
        [moved, done, length]: [usize; 3],
        sleep: u64,
    ) -> Answer {
        if moved > 0 && !end.writes {
            let got = self.read_at_once(c.args[0], end, rest, length - moved);
            self.services.pipe_landed(end.pipe, false, got);
            return value(moved as u64 + got);
        }
        if done == 0 && end.socket && self.let_go(c.args[0], end) {
            return Ok(Verdict::Pass);
        }
        if end.socket && end.writes && done > 0 {
            // Who sleeps there is woken by the host, which gets the rest.
            self.services.lane_tell(end.pipe);
        }
        if end.socket && !end.writes {
            self.await_waking(end.pipe);
            self.note_host_read(c, end);
        }
        Ok(in_flight(c, end, done, sleep))
    }

    /// A lane has no more room, and its reader runs on this core, if it runs: it does, unless the
    /// call has gone on for long (`goes_on`). Without room for `wanted` bytes the ring is left, and
    /// the host waits for it.
    #[cold]
    fn met_full_ring(&mut self, fd: usize, end: End, wanted: usize, goes_on: bool) {
        if end.socket {
            self.tell_set(fd, end.pipe);
        }
        if !goes_on || !self.lets_reader_run(end.pipe, wanted as u64) {
            self.services.pipe_leave(end.pipe);
        }
    }

    /// What is left of a call after `done` bytes goes to the host, by a call that is counted as in
    /// flight. `None`: the connection is the host's.
    #[cold]
    pub(crate) fn begin_host_write(
        &mut self,
        c: &Call,
        lane: End,
        done: usize,
    ) -> Result<Option<Verdict>> {
        for _ in 0..ROUNDS_MAX {
            let sleep = self.sleeping_reader(lane);
            self.services.pipe_leave(lane.pipe);
            match self.services.pipe_put(lane.pipe, 1, true, &mut |_| Err(Errno::EAGAIN)) {
                Ok(Flow::Host { .. }) if self.let_go(c.args[0], lane) => return Ok(None),
                Ok(Flow::Host { .. }) => return Ok(Some(in_flight(c, lane, done, sleep))),
                // The ring is in use again already.
                Err(Errno::EAGAIN) => {}
                Err(Errno::EBADF) => return Ok(None),
                Err(errno) => return Err(errno),
                Ok(Flow::Wait { address, value }) => self.sleep_on(address, value),
                Ok(other) => self.attend(c.args[0], lane, other)?,
            }
        }
        Err(Errno::EIO)
    }

    /// The sleep of the set that waits for what is about to be written; 0: none. Where it has no
    /// bell that can be rung the ring is left then, for the host is to wake it.
    #[inline(always)]
    fn sleeping_reader(&mut self, end: End) -> u64 {
        if !end.writes {
            return 0;
        }
        let sleep = self.services.lane_asleep(end.pipe);
        if (sleep != 0 && !self.can_ring_set(end.pipe)) || !self.can_ring_poll(end.pipe) {
            self.services.pipe_leave(end.pipe);
        }
        sleep
    }

    /// The ring of a socket in a set is empty, and the host has nothing, as far as is known: who
    /// does not wait has found nothing (`EAGAIN`); who may wait sleeps by a bell, if it has one.
    /// Others go to the host. `whole`: what this is called for ends with what the ring has.
    fn meet_dry_ring(&mut self, c: &Call, end: End, whole: bool) -> Result<Option<Verdict>> {
        let ends = (POLLIN | POLLRDHUP) as u16;
        let quiet = |client: &mut Self| {
            if client.services.lane_host_is_quiet(end.pipe) {
                return true;
            }
            let none = client.ready_for(c.args[0], ends) == 0;
            if none {
                client.services.lane_host_told(end.pipe, false);
            }
            none
        };
        if !end.socket {
            if !self.gives_way(end.pipe) {
                self.services.pipe_leave(end.pipe);
            }
            return Ok(None);
        }
        if self.looks_on(end.pipe) {
            return Ok(None);
        }
        if self.must_not_wait(c) && quiet(self) {
            return Err(Errno::EAGAIN);
        }
        match if whole { Dry::Host } else { self.read_by_bell(c, end) } {
            Dry::Sleeps(verdict) => return Ok(Some(verdict)),
            Dry::Bytes => {}
            Dry::Host => self.services.pipe_leave(end.pipe),
        }
        Ok(None)
    }

    /// Somebody living holds a lock, who may be stopped: the call sleeps on it, or, where it must
    /// not sleep so long, looks again (`None`), and then has found nothing.
    #[cold]
    pub(crate) fn held(
        &mut self,
        c: &Call,
        end: End,
        (address, value): (usize, u32),
        looks: &mut u64,
    ) -> Option<Answer> {
        match self.looks_allowed(c, end) {
            None => Some(Ok(Verdict::Wait { address, value, timeout_ns: LOCK_NS })),
            Some(most) if *looks >= most => {
                if end.socket && !end.writes {
                    self.tell_again(end.pipe);
                }
                Some(Err(Errno::EAGAIN))
            }
            Some(_) => {
                *looks += 1;
                self.sleep_on(address, value);
                None
            }
        }
    }

    /// How often a call may look at a held lock, a millisecond each; `None`: it may sleep.
    fn looks_allowed(&self, c: &Call, end: End) -> Option<u64> {
        if self.must_not_wait(c) {
            return Some(HELD_LOOKS);
        }
        self.limited_looks(c, end)
    }

    /// Whether a call, or its descriptor, says that it must not wait.
    pub(crate) fn must_not_wait(&self, c: &Call) -> bool {
        let flags = match c.number {
            nr::recvfrom | nr::sendto => c.args[3],
            nr::recvmsg | nr::sendmsg => c.args[2],
            _ => 0,
        };
        flags as u32 & MSG_DONTWAIT != 0
            || self.host_fcntl(c.args[0], F_GETFL, 0) as u32 & O_NONBLOCK != 0
    }

    /// The same where a socket has a time limit.
    fn limited_looks(&self, c: &Call, end: End) -> Option<u64> {
        let limit_us = self.time_limit_us(c.args[0], end);
        (limit_us > 0).then(|| (limit_us / 1000).clamp(HELD_LOOKS, LIMITED_LOOKS))
    }

    /// How long a call on a socket may wait; 0: for ever.
    pub(crate) fn time_limit_us(&self, fd: usize, end: End) -> u64 {
        let (mut time, mut length) = ([0u64; 2], 16u32);
        let option = if end.writes { SO_SNDTIMEO_OLD } else { SO_RCVTIMEO_OLD } as usize;
        let (at, room) = (time.as_mut_ptr() as usize, &raw mut length as usize);
        let args = [fd, SOL_SOCKET as usize, option, at, room, 0];
        let limited = end.socket && self.host.call(nr::getsockopt, args) == 0;
        let [seconds, micros] = core::hint::black_box(time);
        if limited { seconds.saturating_mul(1_000_000).saturating_add(micros) } else { 0 }
    }

    /// Whether the set of the socket that writes to `lane` has just asked the host about it.
    fn own_set_is_quiet(&mut self, lane: Pipe) -> bool {
        let Some(own) = self.services.lane_mate(lane) else { return false };
        self.services.lane_host_is_quiet(own) || self.ask_set_about(own)
    }

    /// What a pipe or lane asks to be done at the host before a call goes on.
    fn attend(&mut self, fd: usize, end: End, flow: Flow) -> Result<()> {
        match flow {
            Flow::Fetch(spans) => {
                let got = fetch(&self.host, fd, &spans);
                self.services.pipe_fetched(end.pipe, got);
            }
            Flow::Look if end.socket && self.own_set_is_quiet(end.pipe) => {
                self.services.pipe_has_reader(end.pipe);
            }
            Flow::Look if self.ready_for(fd, gone_asked(end)) & gone(end) != 0 => {
                self.services.pipe_leave(end.pipe)
            }
            Flow::Look => self.services.pipe_has_reader(end.pipe),
            Flow::Settle => self.settle_pipe(Some(fd), end)?,
            Flow::Full { .. } => self.services.pipe_leave(end.pipe),
            Flow::Moved(_) | Flow::Host { .. } | Flow::Wait { .. } | Flow::Dry => {}
        }
        Ok(())
    }

    /// Who moved bytes between ring and host has died: what the host has of them tells how far that
    /// went. `EIO`: it cannot be asked.
    #[cold]
    pub(crate) fn settle_pipe(&mut self, fd: Option<usize>, end: End) -> Result<()> {
        let left = match fd {
            Some(fd) if !end.socket || !end.writes => Ok(waiting_at_host(&self.host, fd)),
            _ => self.left_in(end.pipe),
        };
        let Ok(left) = left else {
            self.services.pipe_unsettled(end.pipe);
            return self.refuse(nr::read, Errno::EIO);
        };
        self.services.pipe_settled(end.pipe, left);
        Ok(())
    }

    /// What the host has, without waiting, behind what a ring had.
    fn read_at_once(&self, fd: usize, end: End, mut rest: Cursor, length: usize) -> u64 {
        let mut done = 0;
        while done < length {
            let Some((address, room)) = rest.next_piece(&self.memory, length - done) else { break };
            let got = if end.socket {
                let args = [fd, address, room, MSG_DONTWAIT as usize, 0, 0];
                self.host.call(nr::recvfrom, args).max(0) as usize
            } else {
                read_pipe(&self.host, fd, address, room).unwrap_or(0)
            };
            done += got;
            if got < room {
                break;
            }
        }
        done as u64
    }

    /// A counted host call is over: what the application gets.
    pub(crate) fn pipe_landed(&mut self, after: &After, result: i64) -> i64 {
        let moved = result.max(0);
        let writes = after.reason == reason::PIPE_WRITE;
        let pipe = Pipe(after.args[0] as u32);
        self.services.pipe_landed(pipe, writes, moved as u64);
        if moved > 0 && !writes && self.waits.turns.are_due() {
            self.services.pipe_join_writer(pipe);
        }
        if moved > 0 && writes && after.args[3] != 0 {
            self.say_told(pipe, after.args[3] as u64);
        }
        if result == 0 && !writes && self.tells_lost_peer(after.args[2], pipe) {
            return with_done(after, Errno::ECONNRESET.as_return());
        }
        with_done(after, result)
    }

    /// Bytes that wait in the ring of a read end: the host does not know of them.
    #[inline]
    pub(crate) fn waiting_here(&mut self, fd: usize) -> u64 {
        match self.pipe_end(fd) {
            Some(end) if !end.writes => self.services.pipe_waiting(end.pipe),
            _ => 0,
        }
    }

    /// The host, or a stranger, is about to look into the pipe at `fd` (if it is one).
    #[inline]
    pub(crate) fn surrender(&mut self, fd: usize) -> Result<()> {
        match self.pipe_end(fd) {
            Some(end) if end.socket => self.surrender_socket(fd, end),
            Some(end) => self.surrender_end(fd, end),
            None => {
                self.show_members(fd);
                self.show_set(fd);
                self.give_event(fd)
            }
        }
    }

    #[cold]
    fn surrender_end(&mut self, fd: usize, end: End) -> Result<()> {
        self.services.pipe_pin(end.pipe);
        if end.writes { Ok(()) } else { self.withdraw(fd, end.pipe, false) }
    }

    /// What is in a ring goes to the host, before what that has. Beside a writer's call at the host
    /// nothing can be put in order: then, for a set (`to_set`), it stays where the image's readers
    /// find it first, as long as the host has bytes behind it, that the set tells of. Strangers
    /// have to wait for the writer, in vain (`EIO`) where that has too much for the host.
    #[cold]
    pub(crate) fn withdraw(&mut self, fd: usize, pipe: Pipe, to_set: bool) -> Result<()> {
        let mut looks = 0;
        for _ in 0..ROUNDS_MAX {
            let stuck = looks > LANDING_LOOKS && waiting_at_host(&self.host, fd) == 0;
            match self.services.pipe_withdraw(pipe, stuck)? {
                Withdrawal::Nothing => return Ok(()),
                Withdrawal::Writing if to_set && waiting_at_host(&self.host, fd) > 0 => {
                    return Ok(());
                }
                Withdrawal::Writing => {
                    if looks == 0 && !to_set {
                        self.host_fcntl(fd, F_SETPIPE_SZ, LANDING_BYTES);
                    }
                    looks += 1;
                    self.nap(LANDING_NAP_NS);
                }
                Withdrawal::Wait { address, value } => self.sleep_on(address, value),
                Withdrawal::Settle => {
                    self.settle_pipe(Some(fd), End { pipe, writes: false, socket: false })?;
                }
                Withdrawal::Bytes(spans) => {
                    let put = self.give_to_host(fd, pipe, &spans);
                    self.services.pipe_withdrawn(pipe, put);
                    if put == 0 {
                        return self.refuse(nr::read, Errno::EIO);
                    }
                }
            }
        }
        Err(Errno::EIO)
    }

    /// Makes an empty pipe the host's; true: it is not empty after all. A writer that began before
    /// ends first: else its bytes would come into the ring while the host waits for them.
    pub(crate) fn pin_empty(&mut self, pipe: Pipe) -> bool {
        self.services.pipe_pin(pipe);
        for _ in 0..ROUNDS_MAX {
            match self.services.pipe_empty(pipe) {
                Emptiness::Empty => return false,
                Emptiness::Bytes => return true,
                Emptiness::Wait { address, value } => self.sleep_on(address, value),
            }
        }
        true
    }

    pub(crate) fn nap(&self, span_ns: u64) {
        let time = core::hint::black_box([0u64, span_ns]);
        self.host.call(nr::nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]);
    }

    /// A short sleep within a call that must not begin again.
    pub(crate) fn sleep_on(&self, address: usize, value: u32) {
        let time = [0u64, LOCK_NS / 10];
        let args = [address, 0, value as usize, time.as_ptr() as usize, 0, 0];
        self.host.call(nr::futex, args);
    }

    /// Every pipe in this process's table, before a program runs that is none of ours.
    pub fn surrender_all(&mut self) {
        self.each_number(|client, fd| {
            // What cannot be moved stays where readers of the image find it; counted.
            let _ = client.surrender(fd);
        });
    }

    /// Shows every number in this process's table.
    pub(crate) fn each_number(&mut self, mut show: impl FnMut(&mut Self, usize)) {
        let files = self.services.files();
        let mut from = 0;
        while let Some(fd) = self.services.next_number(files, from) {
            show(self, fd as usize);
            from = fd + 1;
        }
    }

    /// Writes the ring's bytes into the host's pipe, before what that holds; how many.
    fn give_to_host(&mut self, fd: usize, pipe: Pipe, spans: &[Span; 2]) -> u64 {
        let name = husk_abi::proc::descriptor(fd as u32);
        let flags = (O_RDWR | O_NONBLOCK | O_CLOEXEC) as usize;
        let at = husk_abi::sys::general::AT_FDCWD as usize;
        let both = self.host.call(nr::openat, [at, name.as_ptr() as usize, flags, 0, 0, 0]);
        let Ok(both) = usize::try_from(both) else { return 0 };
        let behind = waiting_at_host(&self.host, both);
        self.services.pipe_withdrawing(pipe, behind);
        if behind > 0 {
            self.host_fcntl(both, F_SETPIPE_SZ, ROOM_BYTES);
        }
        let table = vectors(spans);
        let args = [both, table.as_ptr() as usize, 2, 0, 0, 0];
        let put = self.host.call(nr::writev, args).max(0) as u64;
        self.rotate(both, behind);
        self.host.call(nr::close, [both, 0, 0, 0, 0, 0]);
        put
    }

    /// Puts the first `bytes` of the host's pipe behind the others.
    fn rotate(&self, both: usize, bytes: u64) {
        let mut left = bytes as usize;
        let mut part = [0u8; ROTATED_BYTES];
        while left > 0 {
            let address = part.as_mut_ptr() as usize;
            let args = [both, address, left.min(part.len()), 0, 0, 0];
            let got = self.host.call(nr::read, args);
            if got <= 0 {
                return;
            }
            self.host.call(nr::write, [both, address, got as usize, 0, 0, 0]);
            left -= got as usize;
        }
    }

    /// `FIONREAD`, or `SIOCOUTQ` of a socket: what the host counts, and the bytes of the ring of
    /// `pipe`.
    pub(crate) fn counted_with_ring(&mut self, c: &Call, pipe: Pipe) -> Answer {
        let mut count = [0u8; 4];
        let here = self.services.pipe_waiting(pipe);
        let args = [c.args[0], c.args[1], count.as_mut_ptr() as usize, 0, 0, 0];
        Errno::check(self.host.call(nr::ioctl, args))?;
        let there = get32(&core::hint::black_box(count), 0);
        self.memory.write(c.args[2], &(there + here as u32).to_le_bytes())?;
        value(0)
    }
}

/// What the host says of a writer's end whose reader is gone, and what it is asked for that: of TCP
/// it tells no more than that the other side has ended.
fn gone(end: End) -> u16 {
    GONE | gone_asked(end)
}

fn gone_asked(end: End) -> u16 {
    if end.socket { POLLRDHUP as u16 } else { 0 }
}

/// A host call of what is left after `done` bytes, counted as in flight.
#[inline]
fn in_flight(c: &Call, end: End, done: usize, sleep: u64) -> Verdict {
    let reason = if end.writes { reason::PIPE_WRITE } else { reason::PIPE_READ };
    let args = [end.pipe.0 as usize, done, c.args[0], sleep as usize, 0, 0];
    let after = After { number: c.number, args, reason };
    if done == 0 { Verdict::PassThen(after) } else { Verdict::PassRest { after, done } }
}

/// What the application gets for a call that had moved bytes before it asked the host.
pub(crate) fn with_done(after: &After, result: i64) -> i64 {
    let done = after.args[1] as i64;
    if done > 0 { done + result.max(0) } else { result }
}

pub(crate) fn vectors(spans: &[Span; 2]) -> [u8; 2 * IOVEC_BYTES] {
    let mut table = [0u8; 2 * IOVEC_BYTES];
    for (at, span) in spans.iter().enumerate() {
        put(&mut table, at * IOVEC_BYTES, span.address.to_le_bytes());
        put(&mut table, at * IOVEC_BYTES + 8, span.length.to_le_bytes());
    }
    table
}

/// Reads the host's bytes into a ring, if they are there.
#[cold]
fn fetch<H: Host>(host: &H, fd: usize, spans: &[Span; 2]) -> u64 {
    if waiting_at_host(host, fd) == 0 {
        return 0;
    }
    let table = vectors(spans);
    host.call(nr::readv, [fd, table.as_ptr() as usize, 2, 0, 0, 0]).max(0) as u64
}

/// Bytes that the host has for the reader of a pipe or socket.
pub(crate) fn waiting_at_host<H: Host>(host: &H, fd: usize) -> u64 {
    host_count(host, fd, FIONREAD)
}

/// A count that `ioctl` tells of a descriptor.
pub(crate) fn host_count<H: Host>(host: &H, fd: usize, request: u32) -> u64 {
    let mut count = [0u8; 4];
    let args = [fd, request as usize, count.as_mut_ptr() as usize, 0, 0, 0];
    let raw = host.call(nr::ioctl, args);
    let count = get32(&core::hint::black_box(count), 0);
    if raw == 0 { u64::from(count) } else { 0 }
}
