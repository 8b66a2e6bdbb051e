//! Moves the bytes in a socket's ring (`lanes`) to the host, before the host reads or watches it.
//!
//! Only the socket at the other end can put bytes into one. Whoever has to borrows it from a
//! process that has it (`pidfd_getfd`), uses it under both locks of the ring, and closes it at
//! once; nobody makes a child meanwhile, who would keep it.

use crate::pipe::{
    LANDING_LOOKS, LANDING_NAP_NS, ROUNDS_MAX, host_count, vectors, waiting_at_host,
};
use crate::{Answer, Client, Host, Memory};
use core::sync::atomic::{AtomicBool, Ordering};
use husk_abi::nr;
use husk_abi::sys::general::{
    F_GETFL, F_SETFL, FASYNC, O_CLOEXEC, O_NONBLOCK, POLLHUP, POLLRDHUP, RLIMIT_NOFILE,
};
use husk_abi::sys::net::{
    AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SO_RCVBUF, SO_SNDBUF, SOCK_STREAM, SOL_SOCKET,
};
use husk_abi::sys::prctl::PR_GET_SECCOMP;
use husk_proto::fs::Span;
use husk_proto::pipe::{End, Pipe, Withdrawal};
use husk_proto::{Errno, Result, Services};

/// Looks for a process that has a socket, one of which may be about to get or lose it.
const BORROWS_MAX: u32 = 4;
/// Rounds with a lane that is about to be closed: some 20 ms beside who is stopped.
const LOSS_ROUNDS: u32 = 20;
const BORROW_NAP_NS: u64 = 1_000_000;
/// Room, as `SO_SNDBUF` wants it, for a ring's bytes behind what the host has; it gives
/// `net.core.wmem_max` at most.
const ROOM_BYTES: u32 = 1 << 20;

/// Where a ring's bytes are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// In a set: as long as the host has bytes, or an end to tell of, they may stay, for readers
    /// find them first.
    Set,
    /// The same, where nobody is to wait for it.
    Loss,
    /// At the host, whose writer is about to close it: nobody could put them there later.
    Written,
    /// At the host.
    Host,
    /// At the host's socket under this number, even where nobody is at its other end any more.
    Reader(usize),
}

impl To {
    fn is_lenient(self) -> bool {
        matches!(self, To::Set | To::Loss)
    }
}

/// Looks for bytes of TCP that are on their way; for those that are known to come, or to find room,
/// some seconds, for after half of a rotation nobody could put them in order.
const ARRIVAL_LOOKS: u32 = 100;
const ROTATION_LOOKS: u32 = 20_000;
/// Room for what a socket receives, as `SO_RCVBUF` says it, with which TCP is fast.
const LEAST_WINDOW_BYTES: u32 = 65_536;
/// Bytes of a TCP socket that were not sent yet.
const SIOCOUTQNSD: u32 = 0x894b;

/// Whether this program may come to where it cannot borrow from others, or they from it.
static APART: AtomicBool = AtomicBool::new(false);

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether others can borrow from this process, and it from them.
    pub(crate) fn is_in_reach(&self) -> bool {
        let lends = !self.services.lends_sockets() || self.knows_lender();
        !APART.load(Ordering::Relaxed) && !self.is_filtered() && lends
    }

    /// Whether that is still so after this program has become another user.
    pub(crate) fn stays_in_reach(&self) -> bool {
        self.services.lends_sockets() && self.meets_lender() && self.is_in_reach()
    }

    /// Whether that is so of a process of another user as well.
    pub(crate) fn reaches_all_users(&self) -> bool {
        self.services.lends_sockets() && self.is_in_reach()
    }

    /// Whether a filter of the program's judges our calls, too.
    pub(crate) fn is_filtered(&self) -> bool {
        self.host.call(nr::prctl, [PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0]) != 0
    }

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
            let _ = self.withdraw_lane(end.pipe, To::Loss);
        }
    }

    /// The same of all numbers: the process ends.
    pub fn leave_lanes(&mut self) {
        self.each_number(|client, fd| {
            if let Some(end) = client.socket_end(fd) {
                client.leave_written(fd, end);
                client.leave_unread(end);
            }
        });
    }

    /// The lane is the host's from now on, with what was in its ring. `None`: the call goes on to
    /// the host.
    #[cold]
    pub(crate) fn hand_over(&mut self, fd: usize, end: End, lane: End) -> Option<Answer> {
        self.pin_lanes(end);
        let to = if lane.writes { To::Host } else { To::Reader(fd) };
        self.withdraw_lane(lane.pipe, to).err().map(Err)
    }

    pub(crate) fn pin_lanes(&mut self, end: End) {
        for writes in [false, true] {
            if let Some(lane) = self.lane(end, writes) {
                self.services.pipe_pin(lane.pipe);
            }
        }
    }

    /// If neither lane of the socket has a ring any more, undoes the count of this call and forgets
    /// the lanes: true.
    pub(crate) fn let_go(&mut self, fd: usize, lane: End) -> bool {
        if !self.services.lane_is_hosts(lane.pipe) {
            return false;
        }
        self.services.pipe_landed(lane.pipe, lane.writes, 0);
        self.forget_lanes(fd);
        true
    }

    /// At an end of file on the lane of socket `fd`: whether it is to be told now, and only now,
    /// that who was at the other end has died with bytes unread, of which the host knows nothing.
    /// Before others have buried it, what lies in the ring to it tells.
    #[cold]
    pub(crate) fn tells_lost_peer(&mut self, fd: usize, lane: Pipe) -> bool {
        if self.services.lane_take_reset(lane) {
            return true;
        }
        let Some(mate) = self.services.lane_mate(lane) else { return false };
        // Of TCP the host tells no more than that the other side has ended.
        let tcp = self.services.lane_is_tcp(lane);
        let gone = if tcp { POLLRDHUP } else { POLLHUP } as u16;
        if self.services.pipe_waiting(mate) == 0 || self.ready_for(fd, gone) & gone == 0 {
            return false;
        }
        let held = self.with_borrowed(mate, |_, _| ());
        if held.is_ok() || tcp && held != Err(Errno::EPIPE) {
            return false;
        }
        // Who buries it may have said so meanwhile.
        self.services.lane_reset(lane, true) || self.services.lane_take_reset(lane)
    }

    /// Both lanes of a socket are the host's for ever, with what was in their rings.
    #[cold]
    pub(crate) fn surrender_socket(&mut self, fd: usize, end: End) -> Result<()> {
        self.pin_lanes(end);
        self.withdraw_lane(end.pipe, To::Reader(fd))?;
        match self.lane(end, true) {
            Some(mate) => self.withdraw_lane(mate.pipe, To::Host),
            None => Ok(()),
        }
    }

    /// What is in a lane's ring goes to the host, before what that has.
    #[cold]
    pub(crate) fn withdraw_lane(&mut self, lane: Pipe, to: To) -> Result<()> {
        let mut size = None;
        let done = self.withdraw_until_done(lane, to, &mut size);
        if let Some(bytes) = size {
            self.swap_writer_size(lane, bytes);
        }
        done
    }

    /// `size`: what the writer's buffer had, where that has been made larger.
    fn withdraw_until_done(&mut self, lane: Pipe, to: To, size: &mut Option<u32>) -> Result<()> {
        let mut looks = 0;
        let brief = matches!(to, To::Loss | To::Written);
        let rounds = if brief { LOSS_ROUNDS } else { ROUNDS_MAX };
        for _ in 0..rounds {
            // Beside bytes of the host's that are not all there yet nothing can be put in order:
            // locks that are held meanwhile keep readers away, who would find nothing.
            let asks = looks > 0 || to.is_lenient() && self.services.pipe_at_host(lane) > 0;
            let behind = if asks { self.left_in(lane).unwrap_or(0) } else { 0 };
            if to.is_lenient() && behind > 0 {
                return Ok(());
            }
            let stuck = looks > LANDING_LOOKS && behind == 0;
            match self.services.pipe_withdraw(lane, stuck)? {
                Withdrawal::Nothing => return Ok(()),
                Withdrawal::Wait { address, value } => self.sleep_on(address, value),
                Withdrawal::Settle => {
                    self.settle_pipe(None, End { pipe: lane, writes: true, socket: true })?;
                }
                Withdrawal::Writing => {
                    if looks == 0 && !to.is_lenient() {
                        // Who sleeps there for room goes on.
                        *size = self.swap_writer_size(lane, ROOM_BYTES);
                    }
                    looks += 1;
                    self.nap(LANDING_NAP_NS);
                }
                Withdrawal::Bytes(spans) => {
                    if let Some(done) = self.withdrawn(lane, &spans, to) {
                        return done;
                    }
                }
            }
        }
        self.refuse(nr::read, Errno::EIO)
    }

    /// Gives a ring's bytes, both locks held, to the host; `None`: there may be more.
    fn withdrawn(&mut self, lane: Pipe, spans: &[Span; 2], to: To) -> Option<Result<()>> {
        // No child is to get what is borrowed.
        let still = self.host.keep_still();
        let put = self.give_to_peer(lane, spans, to);
        drop(still);
        self.services.pipe_withdrawn(lane, put.unwrap_or(0));
        match put {
            Ok(1..) => None,
            // Nobody is left who has written them: the host tells of the end.
            Err(Errno::EPIPE) if to.is_lenient() => Some(Ok(())),
            Ok(0) | Err(_) => Some(self.refuse(nr::read, Errno::EIO)),
        }
    }

    /// Bytes that the host has in a lane. Where nobody is left to read them, none.
    #[cold]
    pub(crate) fn left_in(&mut self, lane: Pipe) -> Result<u64> {
        match self.with_borrowed(lane, |client, reader| waiting_at_host(&client.host, reader)) {
            Err(Errno::EPIPE) => Ok(0),
            other => other,
        }
    }

    /// Puts a ring's bytes into the socket that reads from `lane`, before what that holds: how
    /// many. `EPIPE`: no process has the other one.
    fn give_to_peer(&mut self, lane: Pipe, spans: &[Span; 2], to: To) -> Result<u64> {
        let all = (spans[0].length + spans[1].length) as u64;
        let reader = match (self.borrow(lane), to) {
            (Ok(reader), _) => reader,
            // Nobody will read them.
            (Err(Errno::EPIPE), To::Host | To::Set | To::Loss | To::Written) => {
                if let Some(mate) = self.services.lane_mate(lane) {
                    self.services.lane_reset(mate, false);
                }
                self.services.pipe_withdrawing(lane, 0);
                return Ok(all);
            }
            (Err(errno), _) => return Err(errno),
        };
        let writer = match self.services.lane_mate(lane) {
            Some(mate) => self.borrow(mate),
            None => Err(Errno::EPIPE),
        };
        let put = match (writer, to) {
            (Ok(writer), _) => {
                let put = self.put_before(lane, reader as usize, writer as usize, spans);
                self.host_close(writer);
                put
            }
            (Err(Errno::EPIPE), To::Reader(fd)) if !self.services.lane_is_tcp(lane) => {
                self.replace(fd, lane, spans)
            }
            (Err(errno), _) => Err(errno),
        };
        self.host_close(reader);
        put
    }

    /// Bytes that the host has in a lane, of TCP with those that find no room at the reader yet and
    /// come as it reads. `None`: it is not known, or a small window would let them come slowly.
    fn settled_behind(&mut self, lane: Pipe, reader: usize, writer: usize) -> Option<u64> {
        for look in 0..ARRIVAL_LOOKS {
            let behind = waiting_at_host(&self.host, reader);
            if !self.services.lane_is_tcp(lane) || self.services.pipe_at_host(lane) == behind {
                return Some(behind);
            }
            self.nap(LANDING_NAP_NS);
            // What is on its way at this moment is in neither count.
            let unsent = host_count(&self.host, writer, SIOCOUTQNSD);
            let all = waiting_at_host(&self.host, reader) + unsent;
            if look > ARRIVAL_LOOKS / 2 && self.services.pipe_at_host(lane) == all {
                let room = self.socket_option(reader, SO_RCVBUF as usize).unwrap_or(0);
                return (room >= LEAST_WINDOW_BYTES).then_some(all);
            }
        }
        None
    }

    fn put_before(
        &mut self,
        lane: Pipe,
        reader: usize,
        writer: usize,
        spans: &[Span; 2],
    ) -> Result<u64> {
        let behind = self.settled_behind(lane, reader, writer);
        let Some(behind) = behind else { return Ok(0) };
        self.services.pipe_withdrawing(lane, behind);
        if behind == 0 {
            let (put, all) =
                (self.send_spans(writer, spans), (spans[0].length + spans[1].length) as u64);
            if put == all {
                return Ok(put);
            }
            // The rest would come behind: all of it stays.
            return self.rotate_socket(reader, None, put).map(|()| 0);
        }
        let size = self.swap_buffer_size(writer, ROOM_BYTES);
        let all = (spans[0].length + spans[1].length) as u64;
        let put = self.send_spans(writer, spans);
        // Where nothing can be sent, what the host has stays where it is.
        let behind = if put == 0 { 0 } else { behind };
        let rotated = self.rotate_socket(reader, Some(writer), behind);
        self.swap_buffer_size(writer, size);
        rotated?;
        if put == all {
            return Ok(put);
        }
        // The rest would come behind the host's: all of it stays.
        self.rotate_socket(reader, None, put).map(|()| 0)
    }

    /// Nobody is left at the other end of the socket under `fd`, and what has been written is to be
    /// the host's: a socket of two that has it, and then ends, takes its place. How many bytes of
    /// the ring it has.
    #[cold]
    fn replace(&mut self, fd: usize, lane: Pipe, spans: &[Span; 2]) -> Result<u64> {
        let mut pair = [0u32; 2];
        let kind = (SOCK_STREAM | O_CLOEXEC) as usize;
        let at = pair.as_mut_ptr() as usize;
        Errno::check(self.host.call(nr::socketpair, [AF_UNIX as usize, kind, 0, at, 0, 0]))?;
        let [heir, writer] = core::hint::black_box(pair);
        let (behind, all) =
            (waiting_at_host(&self.host, fd), (spans[0].length + spans[1].length) as u64);
        self.swap_buffer_size(writer as usize, ROOM_BYTES);
        self.services.pipe_withdrawing(lane, behind);
        let put = self.send_spans(writer as usize, spans);
        let mut done = Err(Errno::EIO);
        if put == all {
            let rotated = self.rotate_socket(fd, Some(writer as usize), behind);
            let flags = self.host_fcntl(fd, F_GETFL, 0).max(0) as usize;
            self.host_fcntl(heir as usize, F_SETFL, flags & (O_NONBLOCK | FASYNC) as usize);
            let on_exec = if self.closes_on_exec(fd as u32) { O_CLOEXEC as usize } else { 0 };
            let args = [heir as usize, fd, on_exec, 0, 0, 0];
            let placed = || Errno::check(self.host.call(nr::dup3, args)).map(|_| put);
            done = rotated.and_then(|()| placed());
        }
        self.host_close(heir);
        self.host_close(writer);
        done
    }

    pub(crate) fn send_spans(&self, writer: usize, spans: &[Span; 2]) -> u64 {
        let table = vectors(spans);
        let header = [0u64, 0, table.as_ptr() as u64, 2, 0, 0, 0];
        let flags = (MSG_DONTWAIT | MSG_NOSIGNAL) as usize;
        let args = [writer, header.as_ptr() as usize, flags, 0, 0, 0];
        let put = self.host.call(nr::sendmsg, args);
        core::hint::black_box((&table, &header));
        put.max(0) as u64
    }

    /// Takes back the first `bytes` of a lane that the host has, which stand in its ring as well.
    pub(crate) fn take_back(&mut self, lane: Pipe, bytes: u64) -> Result<()> {
        self.with_borrowed(lane, |client, reader| client.rotate_socket(reader, None, bytes))?
    }

    /// Takes the first `bytes` that the host has, and sends them to `writer`, if that is one. TCP's
    /// may be on their way still. An error: some have not come, or have no room there.
    fn rotate_socket(&mut self, reader: usize, writer: Option<usize>, bytes: u64) -> Result<()> {
        let address = self.buffers.bounce.as_mut_ptr() as usize;
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(self.buffers.bounce.len());
            let got = self.move_soon(nr::recvfrom, [reader, address, part])?;
            let mut sent = if writer.is_some() { 0 } else { got };
            while let Some(writer) = writer.filter(|_| sent < got) {
                sent += self.move_soon(nr::sendto, [writer, address + sent, got - sent])?;
            }
            left -= got;
        }
        Ok(())
    }

    /// Receives or sends at least one byte, after some looks at most; how many.
    fn move_soon(&mut self, number: usize, [fd, address, length]: [usize; 3]) -> Result<usize> {
        let flags = (MSG_DONTWAIT | MSG_NOSIGNAL) as usize;
        for _ in 0..ROTATION_LOOKS {
            let done = Errno::check(self.host.call(number, [fd, address, length, flags, 0, 0]));
            match done {
                Ok(0) => break,
                Ok(moved) => return Ok(moved as usize),
                Err(Errno::EAGAIN) => self.nap(LANDING_NAP_NS),
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EIO)
    }

    /// Sets the room for what a socket has sent; what to set it to again, for the host doubles it,
    /// in bytes. What has more room than is needed keeps it, for the host might give it less.
    fn swap_buffer_size(&self, fd: usize, bytes: u32) -> u32 {
        let before = self.socket_option(fd, SO_SNDBUF as usize).unwrap_or(0) / 2;
        if before.min(bytes) >= ROOM_BYTES {
            return before;
        }
        let size = core::hint::black_box(bytes.to_le_bytes());
        let args = [fd, SOL_SOCKET as usize, SO_SNDBUF as usize, size.as_ptr() as usize, 4, 0];
        self.host.call(nr::setsockopt, args);
        before
    }

    /// The same of the socket that writes to `lane`; `None`: it cannot be borrowed.
    fn swap_writer_size(&mut self, lane: Pipe, bytes: u32) -> Option<u32> {
        let mate = self.services.lane_mate(lane)?;
        self.with_borrowed(mate, |client, writer| client.swap_buffer_size(writer, bytes)).ok()
    }

    /// Shows `step` the socket that reads from `lane`, borrowed; no child is to get it. What
    /// `borrow` fails with.
    pub(crate) fn with_borrowed<T>(
        &mut self,
        lane: Pipe,
        step: impl FnOnce(&mut Self, usize) -> T,
    ) -> Result<T> {
        let _still = self.host.keep_still();
        let got = self.borrow(lane)?;
        let done = step(self, got as usize);
        self.host_close(got);
        Ok(done)
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
                    Err(Errno::EPERM) if self.services.lends_sockets() => {
                        return self.borrow_from_lender(lane);
                    }
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
        self.borrow_by(lane, |client| client.fetch_from(pid, fd))
    }

    /// The same of a process of another user.
    #[cold]
    fn borrow_from_lender(&mut self, lane: Pipe) -> Result<u32> {
        self.borrow_by(lane, |client| client.lent(lane))?.ok_or(Errno::EPIPE)
    }

    fn borrow_by(
        &mut self,
        lane: Pipe,
        fetch: impl Fn(&Self) -> Result<u32>,
    ) -> Result<Option<u32>> {
        let got = match fetch(self) {
            Err(Errno::EMFILE) => self.above_limit(fetch)?,
            other => other?,
        };
        if self.find_lane(got as usize).is_some_and(|end| end.pipe == lane) {
            return Ok(Some(got));
        }
        self.host_close(got);
        Ok(None)
    }

    fn fetch_from(&self, pid: u32, fd: u32) -> Result<u32> {
        let process = Errno::check(self.host.call(nr::pidfd_open, [pid as usize, 0, 0, 0, 0, 0]))?;
        let args = [process as usize, fd as usize, 0, 0, 0, 0];
        let got = Errno::check(self.host.call(nr::pidfd_getfd, args));
        self.host_close(process as u32);
        Ok(got? as u32)
    }

    /// With as many descriptors as may be, where the program has as many as it allows itself.
    #[cold]
    fn above_limit<T>(&self, step: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let set = |new: usize, old: usize| {
            self.host.call(nr::prlimit64, [0, RLIMIT_NOFILE as usize, new, old, 0, 0])
        };
        let mut own = [0u64; 2];
        Errno::check(set(0, own.as_mut_ptr() as usize))?;
        let own = core::hint::black_box(own);
        let most = core::hint::black_box([own[1]; 2]);
        Errno::check(set(most.as_ptr() as usize, 0))?;
        let done = step(self);
        set(own.as_ptr() as usize, 0);
        done
    }
}
