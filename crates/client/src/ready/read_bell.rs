//! A read that waits for bytes of a socket with a ring: it is woken by a bell (`ready::bells`).
//!
//! ```text
//!   ring dry ──► bytes soon? ──► the lane says whose bell is to be rung ──► bytes meanwhile? again
//!                                '──► the host polls the socket and the bell ──► the read again
//! ```
//!
//! Invariants
//! 1. The sleeper says so in the lane, then looks at the ring; the writer, the other way round
//!    (`region::rings::lanes`). So one of them sees the other.
//! 2. The wait takes no bytes. Each of its ends begins the read again, which finds what there is.
//! 3. What the host has to tell (an end, an error, bytes of its own) is read there: the ring is
//!    left, and bytes in it come first.

use crate::layout::put;
use crate::pipe::Dry;
use crate::ready::bells::{Asleep, SILENT};
use crate::ready::poll::POLLFD_BYTES;
use crate::{AGAIN, After, Call, Client, Host, Memory, Verdict, reason};
use husk_abi::nr;
use husk_abi::sys::general::{POLLIN, POLLRDHUP};
use husk_abi::sys::net::MSG_WAITALL;
use husk_proto::pipe::{End, LookOut, Pipe};
use husk_proto::{Errno, Services};

/// Of the reads of a thread that the host gets one in so many is looked at: one that may wait makes
/// the lane one that is to wake by bells.
const HOST_READS: u32 = 16;
/// Reads that look on for bytes, before the host is asked once more whether they may wait.
const TRUSTED: u32 = 64;
/// What the host polls: the socket and the bell.
const ENTRIES: usize = 2;
/// In the last argument of that call: the place of the thread's bell; above, the lane.
const PLACE_BITS: u32 = 32;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The host gets a read of a lane: whether the next one sleeps by a bell.
    #[inline]
    pub(crate) fn note_host_read(&mut self, c: &Call, lane: End) {
        self.waits.host_reads = self.waits.host_reads.wrapping_add(1);
        if self.waits.host_reads.is_multiple_of(HOST_READS) && !lane.writes {
            self.offer_bells(c, lane);
        }
    }

    #[cold]
    fn offer_bells(&mut self, c: &Call, lane: End) {
        if self.may_sleep_by_bell(c, lane) {
            self.services.lane_poll(lane.pipe, SILENT);
        }
    }

    /// Whether a read may wait for ever, and nothing but its first bytes.
    fn may_sleep_by_bell(&self, c: &Call, lane: End) -> bool {
        let whole = c.number == nr::recvfrom && c.args[3] as u32 & MSG_WAITALL != 0;
        !whole && !self.must_not_wait(c) && self.time_limit_us(c.args[0], lane) == 0
    }

    /// The reader of a dry lane, which has waited there lately, looks on for bytes: whether they
    /// came. One that must not wait any more loses a little time.
    #[inline]
    pub(crate) fn looks_on(&mut self, lane: Pipe) -> bool {
        match &mut self.waits.waiter {
            Some((known, left)) if *known == lane && *left > 0 => {
                *left -= 1;
                self.looks_out(lane)
            }
            _ => false,
        }
    }

    fn looks_out(&mut self, lane: Pipe) -> bool {
        match self.services.lane_look_out(lane) {
            LookOut::Bytes => true,
            LookOut::Beside => self.gives_way(lane),
            LookOut::Nothing => false,
        }
    }

    /// The ring of a lane that is read by bells is dry.
    pub(crate) fn read_by_bell(&mut self, c: &Call, lane: End) -> Dry {
        if !self.may_sleep_by_bell(c, lane) {
            return Dry::Host;
        }
        self.waits.waiter = Some((lane.pipe, TRUSTED));
        if self.looks_out(lane.pipe) {
            return Dry::Bytes;
        }
        let Some(asleep) = self.begin_sleep() else { return Dry::Host };
        let laid = self.services.lane_poll(lane.pipe, asleep.bell);
        let bytes = laid && self.services.pipe_waiting(lane.pipe) > 0;
        if laid
            && !bytes
            && let Some(verdict) = self.sleeping_read(c.args[0], lane.pipe, &asleep)
        {
            return Dry::Sleeps(verdict);
        }
        self.end_read(lane.pipe, asleep.place, false);
        if bytes { Dry::Bytes } else { Dry::Host }
    }

    /// The call that sleeps: the socket and the bell, on the application's stack.
    fn sleeping_read(&mut self, fd: usize, lane: Pipe, asleep: &Asleep) -> Option<Verdict> {
        let mut list = [0u8; ENTRIES * POLLFD_BYTES];
        let asks = (POLLIN | POLLRDHUP) as u64;
        put(&mut list, 0, (fd as u32 as u64 | asks << 32).to_le_bytes());
        let bell = u64::from(asleep.fd) | u64::from(POLLIN) << 32;
        put(&mut list, POLLFD_BYTES, bell.to_le_bytes());
        let room = list.len();
        let at = self.host.stack_room(room);
        self.memory.write(at, &list).ok()?;
        let how = asleep.place | (lane.0 as usize) << PLACE_BITS;
        let args = [at, ENTRIES, 0, 0, fd, how];
        let call = After { number: nr::ppoll, args, reason: reason::READ_SLEPT };
        Some(Verdict::Instead { call, room })
    }

    fn end_read(&mut self, lane: Pipe, place: usize, rung: bool) {
        let bell = self.end_sleep(place, rung);
        self.services.lane_unpoll(lane, bell);
    }

    /// The host has polled a socket and a bell for a read.
    pub(crate) fn read_slept(&mut self, after: &After, result: i64) -> i64 {
        let [list, .., how] = after.args;
        let rung = result > 0 && self.told_in(list, 1) != 0;
        self.end_read(Pipe((how >> PLACE_BITS) as u32), how as u32 as usize, rung);
        self.read_slept_here(after, result)
    }

    /// The same without the end of the sleep: a child answers what its parent has begun.
    pub(crate) fn read_slept_here(&mut self, after: &After, result: i64) -> i64 {
        let [list, _, _, _, fd, how] = after.args;
        let lane = Pipe((how >> PLACE_BITS) as u32);
        if self.socket_end(fd).is_none_or(|end| end.pipe != lane) {
            // Another thread has closed it, or put something else there.
            return Errno::EBADF.as_return();
        }
        // Of all errors but EINTR the limit of open files is the likely one.
        let refused = result < 0 && result != Errno::EINTR.as_return();
        if refused || result > 0 && self.told_in(list, 0) != 0 {
            self.services.pipe_leave(lane);
        }
        if result == Errno::EINTR.as_return() { result } else { AGAIN }
    }
}
