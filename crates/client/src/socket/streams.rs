//! Calls that move bytes of unix sockets with lanes (`lanes`).
//!
//! ```text
//!   read, recv, recvmsg ──► own lane        flags and options that make more of a call than bytes,
//!   write, send, sendmsg ──► its mate       control messages: what the ring has first, then the
//!                                           lane is the host's for ever
//! ```

use crate::iovec::{Cursor, MOVE_MAX};
use crate::layout::get64;
use crate::pipe::ROUNDS_MAX;
use crate::pipe::watched::watched_alone;
use crate::reason;
use crate::socket::lanes::SO_PASSPIDFD;
use crate::socket::messages::{CONTROL_AT, CONTROL_LENGTH_AT, MESSAGE_FLAGS_AT, MSGHDR_BYTES};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::net::{
    MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, SO_PASSCRED,
    SO_PASSSEC, SO_PEEK_OFF, SO_RCVLOWAT, SO_SNDBUF, SOL_SOCKET,
};
use husk_proto::pipe::{End, Flow};
use husk_proto::{Errno, Result, Services};

/// What of `flags` changes nothing about where bytes lie.
const USUAL: u32 = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_CMSG_CLOEXEC;
/// Options after which bytes say more, or come otherwise.
const PARTICULAR: [u32; 6] =
    [SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD, SO_PEEK_OFF, SO_RCVLOWAT, SO_SNDBUF];
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

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `sendto` on a socket with lanes. `None`: there are none, or it is the host's from now on.
    pub(crate) fn lane_sendto(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let lane = self.lane(end, true)?;
        if c.args[4] != 0 && c.args[5] as u32 != 0 {
            if self.services.lane_is_tcp(end.pipe) {
                // The name has no meaning there, but may be unreadable.
                return self.hand_over(c.args[0], end, lane);
            }
            // It is connected, which the host says before it looks at the name.
            return Some(Ok(Verdict::Pass));
        }
        if c.args[3] as u32 & !USUAL != 0 {
            return self.hand_over(c.args[0], end, lane);
        }
        let length = c.args[2].min(MOVE_MAX);
        if length == 0 {
            return None;
        }
        Some(self.flow(c, lane, Cursor::plain(c.args[1], length), length, false))
    }

    /// `sendmsg`: bytes alone go through the ring, nothing that comes with them.
    pub(crate) fn lane_sendmsg(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let lane = self.lane(end, true)?;
        let head = self.header(c.args[1])?;
        if head.named || head.control || c.args[2] as u32 & !USUAL != 0 {
            return self.hand_over(c.args[0], end, lane);
        }
        let Ok((cursor, length @ 1..)) = self.cursor(head.table, head.count) else { return None };
        Some(self.flow(c, lane, cursor, length, true))
    }

    /// `recvfrom`.
    pub(crate) fn lane_recvfrom(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let (address, length) = (c.args[1], c.args[2].min(MOVE_MAX));
        let flags = c.args[3] as u32;
        match flags & !USUAL {
            _ if c.args[4] != 0 => self.hand_over(c.args[0], end, end),
            // Waits for bytes, and takes none.
            0 | MSG_PEEK | MSG_WAITALL if length == 0 => Some(self.peek(c, end, address, 0)),
            0 => Some(self.flow(c, end, Cursor::plain(address, length), length, false)),
            MSG_PEEK => Some(self.peek(c, end, address, length)),
            MSG_WAITALL => Some(self.receive_all(c, end, address, length)),
            _ => self.hand_over(c.args[0], end, end),
        }
    }

    /// `recvmsg`: nothing but bytes goes through the ring.
    pub(crate) fn lane_recvmsg(&mut self, c: &Call) -> Option<Answer> {
        let end = self.socket_end(c.args[0])?;
        let head = self.header(c.args[1])?;
        if c.args[2] as u32 & !USUAL != 0 {
            return self.hand_over(c.args[0], end, end);
        }
        let Ok((cursor, length)) = self.cursor(head.table, head.count) else { return None };
        if head.named || length == 0 {
            return self.hand_over(c.args[0], end, end);
        }
        let answer = if head.control {
            self.take_rest(c, end, cursor, length)?
        } else {
            self.flow(c, end, cursor, length, false)
        };
        if !matches!(answer, Ok(Verdict::Return(0..))) {
            return Some(answer);
        }
        Some(self.tell_alone(c.args[1], c.args[2] as u32).and(answer))
    }

    /// Says in a message's header that bytes came alone.
    fn tell_alone(&mut self, header: usize, flags: u32) -> Result<()> {
        self.memory.write(header + CONTROL_LENGTH_AT, &[0; 8])?;
        self.memory.write(header + MESSAGE_FLAGS_AT, &(flags & MSG_CMSG_CLOEXEC).to_le_bytes())
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
        let mut looks = 0;
        for _ in 0..ROUNDS_MAX {
            let (memory, host, mut cursor) =
                (&self.memory, &self.host, Cursor::plain(address, length));
            let flow = self.services.pipe_peek(
                lane.pipe,
                length,
                &mut |span| cursor.each(memory, span, |m, span, target| m.copy_out(span, target)),
                &mut |done| {
                    let flags = (MSG_PEEK | MSG_DONTWAIT) as usize;
                    let args = [c.args[0], address + done, length - done, flags, 0, 0];
                    host.call(nr::recvfrom, args).max(0) as usize
                },
            );
            match flow? {
                Flow::Moved(count) => return value(count as u64),
                Flow::Host { .. } => return Ok(watched_alone(c, lane.pipe)),
                Flow::Wait { address, value } => {
                    if let Some(answer) = self.held(c, lane, (address, value), &mut looks) {
                        return answer;
                    }
                }
                Flow::Settle => self.settle_pipe(Some(c.args[0]), lane)?,
                Flow::Fetch(_) | Flow::Look | Flow::Dry | Flow::Full { .. } => break,
            }
        }
        Err(Errno::EIO)
    }

    /// `MSG_WAITALL`: what the rings have first, then the host waits for what is left.
    fn receive_all(&mut self, c: &Call, lane: End, address: usize, length: usize) -> Answer {
        let (mut done, mut looks) = (0, 0);
        while done < length {
            let left = length - done;
            let cursor = Cursor::plain(address + done, left);
            match self.flow(c, lane, cursor, left, false) {
                Ok(Verdict::Return(count @ 1..)) => done += count as usize,
                Ok(Verdict::PassThen(mut after)) if done > 0 => {
                    after.args[1] = done;
                    return Ok(Verdict::PassRest { after, done });
                }
                Ok(Verdict::Pass) if done > 0 => {
                    let mut args = c.args;
                    args[4] = done;
                    let after = After { number: c.number, args, reason: reason::REST };
                    return Ok(Verdict::PassRest { after, done });
                }
                Ok(Verdict::Wait { address, value, .. }) if done > 0 && looks < ROUNDS_MAX => {
                    looks += 1;
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
    fn take_rest(&mut self, c: &Call, end: End, cursor: Cursor, length: usize) -> Option<Answer> {
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
            Ok(Verdict::Pass) => None,
            answer => {
                // The host may have more, and has told of it already.
                if matches!(answer, Ok(Verdict::Return(count)) if (count as usize) < length) {
                    self.tell_again(end.pipe);
                }
                Some(answer)
            }
        }
    }

    /// The lane that what is written to `fd` takes.
    pub(crate) fn sending_lane(&mut self, fd: usize) -> Option<End> {
        let end = self.socket_end(fd)?;
        self.lane(end, true)
    }

    /// Sends `(address, length)`, bytes of ours, without waiting: how many have gone.
    pub(crate) fn send_into(
        &mut self,
        fd: usize,
        lane: End,
        (address, length): (usize, usize),
        flags: u32,
    ) -> Result<usize> {
        let args = [fd, address, length, (flags | MSG_DONTWAIT) as usize, 0, 0];
        let call = Call { number: nr::sendto, args };
        let sent = match self.flow(&call, lane, Cursor::plain(address, length), length, false)? {
            Verdict::Return(sent) => sent,
            Verdict::Pass => self.host.call(call.number, args),
            Verdict::PassThen(after) => {
                let sent = self.host.call(call.number, args);
                self.pipe_landed(&after, sent)
            }
            Verdict::PassRest { after, done } => {
                let rest = [fd, address + done, length - done, args[3], 0, 0];
                let sent = self.host.call(call.number, rest);
                self.pipe_landed(&after, sent)
            }
            _ => return Err(Errno::EAGAIN),
        };
        Errno::check(sent).map(|sent| sent as usize)
    }

    /// `shutdown`: who writes asks the host from now on; what is in a ring is still read.
    pub(crate) fn shutdown(&mut self, c: &Call) -> Answer {
        if let Some(end) = self.socket_end(c.args[0]) {
            self.pin_lanes(end);
            self.leave_written(c.args[0], end);
        }
        self.other_kind(c, Errno::ENOTSOCK)
    }

    /// `setsockopt`.
    pub(crate) fn set_option(&mut self, c: &Call) -> Answer {
        let particular = PARTICULAR.contains(&(c.args[2] as u32));
        if c.args[1] == SOL_SOCKET as usize && particular {
            self.surrender(c.args[0])?;
        }
        if let Some(answer) = self.tcp_set_option(c) {
            return answer;
        }
        self.other_kind(c, Errno::ENOTSOCK)
    }
}
