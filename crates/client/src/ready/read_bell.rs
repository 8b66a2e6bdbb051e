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

use crate::layout::{get16, put};
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
/// Most sleeps in a row without a try to let the peer run, after others had the core for long; and
/// after tries that brought nothing, at little cost.
const SKIPPED_MAX: u32 = 32_767;
const CHEAP_SKIPPED_MAX: u32 = 63;
/// Processor ticks after which somebody else than the peer had the core: a tenth of a millisecond
/// at least, where a time slice is one or more.
const LATE_TICKS: u64 = 400_000;
/// More are too many to be by chance.
const FEW: u32 = 7;
/// Tries that are worth it after which that number is a third.
const FORGETS: u32 = 256;
/// What the host polls: the socket and the bell.
const ENTRIES: usize = 2;
/// In the last argument of that call: the place of the thread's bell; above, the lane.
const PLACE_BITS: u32 = 32;

/// Whether a thread that is about to sleep lets its peer, which has the same core, run first: as
/// long as that brings bytes, and nobody else has the core for long.
#[derive(Default)]
pub(crate) struct Turns {
    /// Sleeps before it is tried again.
    skipped: u32,
    /// How many are to be skipped after the next one that brings nothing.
    next: u32,
}

impl Turns {
    /// Before each sleep.
    pub(crate) fn are_due(&mut self) -> bool {
        let due = self.skipped == 0;
        self.skipped = self.skipped.saturating_sub(1);
        due
    }

    /// It has `met` what it was for; others had the core meanwhile, for a time slice (`late`).
    fn note(&mut self, met: bool, late: bool) {
        if met && !late {
            self.next = self.next.saturating_sub(self.next / FORGETS + 1);
            return;
        }
        self.skipped = self.next;
        self.next = match self.next {
            few @ ..FEW => 2 * few + 1,
            many if late => (4 * many).min(SKIPPED_MAX),
            many => (2 * many).min(CHEAP_SKIPPED_MAX).max(many),
        };
    }
}

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

    /// The writer of a dry pipe or lane runs on this core, if it runs: it gets its turn. Whether
    /// bytes came.
    pub(crate) fn gives_way(&mut self, lane: Pipe) -> bool {
        self.lets_run(|client| client.services.pipe_waiting(lane) > 0)
    }

    /// The reader of a full pipe or lane runs on this core, if it runs: it gets its turn. Whether
    /// there is room for so many bytes now.
    pub(crate) fn lets_reader_run(&mut self, lane: Pipe, bytes: u64) -> bool {
        self.lets_run(|client| client.services.lane_has_room(lane, bytes))
    }

    /// Others on this core run, if that has been worth it lately (`Turns`); whether `met`.
    pub(crate) fn lets_run(&mut self, met: impl FnOnce(&mut Self) -> bool) -> bool {
        if !self.waits.turns.are_due() {
            return false;
        }
        let before = self.services.ticks();
        self.host.call(nr::sched_yield, [0; 6]);
        let met = met(self);
        let took = self.services.ticks().wrapping_sub(before);
        self.waits.turns.note(met, took > LATE_TICKS);
        met
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

    /// What the host says of an entry.
    fn told_in(&self, list: usize, index: usize) -> u16 {
        let mut entry = [0u8; POLLFD_BYTES];
        let known = self.memory.read(list + index * POLLFD_BYTES, &mut entry);
        if known.is_ok() { get16(&entry, 6) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_run_first_while_that_brings_bytes_and_hardly_ever_where_it_does_not() {
        let mut turns = Turns::default();
        let mut tries = |met: bool, late: bool, sleeps: u32| {
            let mut tried = 0;
            for _ in 0..sleeps {
                if turns.are_due() {
                    turns.note(met, late);
                    tried += 1;
                }
            }
            tried
        };
        assert_eq!(tries(true, false, 1000), 1000);
        let seldom = tries(false, false, 100_000);
        assert!((1500..1800).contains(&seldom), "the peer does not run: {seldom}");
        assert!(tries(true, false, 100_000) > 99_000, "it is worth it again");
        assert!(tries(true, true, 100_000) < 20, "others have the core");
        assert!(tries(true, false, 100_000) > 60_000, "they have gone");
        assert!(tries(true, true, 1) + tries(true, false, 10_000) > 9_900, "a tick by chance");
    }
}
