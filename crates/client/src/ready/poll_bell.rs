//! `poll` of sockets with rings: who sleeps there is woken by a bell (`ready::bells`).
//!
//! ```text
//!   all read ends are lanes ──► each says whose bell is to be rung ──► bytes meanwhile? answer
//!                               '──► the host polls a copy of the list, and the bell ──► answer
//! ```
//!
//! Invariant: who sleeps says so in every lane, then looks at the rings; who writes, the other way
//! round (`region::rings::lanes`). So one of them sees the other.

use crate::layout::{get16, get32, put};
use crate::ready::bells::Asleep;
use crate::ready::members::AGAIN_MAX;
use crate::ready::poll::{POLLFD_BYTES, READABLE};
use crate::{AGAIN, After, Call, Client, Host, Memory, Verdict, reason};
use husk_abi::nr;
use husk_abi::sys::general::POLLIN;
use husk_proto::pipe::Pipe;
use husk_proto::{Errno, Result, Services};

/// Most entries of such a list; longer ones are polled otherwise.
const ENTRIES_MAX: usize = 64;
/// Bytes of a `struct timespec`.
const TIME_BYTES: usize = 16;
const SECOND_NS: i64 = 1_000_000_000;
const MS_NS: i64 = 1_000_000;
/// In the last argument of the call that sleeps: how often it has begun again; above, the place of
/// the thread's bell.
const AGAIN_BITS: u32 = 0xff;
const PLACE_SHIFT: u32 = 8;
const _: () = assert!(AGAIN_MAX <= AGAIN_BITS);

/// How a poll by a bell begins.
pub(crate) enum Rest {
    /// The host waits.
    Sleeps(Verdict),
    /// There are bytes by now.
    Bytes,
    /// There is no bell, or there is something in the list that knows none.
    Otherwise,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Sleeps in a poll of `count` entries, whose rings have nothing; `again`: how often it has
    /// begun again.
    pub(crate) fn poll_by_bell(&mut self, c: &Call, count: usize, again: u32) -> Rest {
        let list = c.args[0];
        let masked = c.number != nr::poll && c.args[3] != 0;
        let unfit = masked || count > ENTRIES_MAX || again >= AGAIN_MAX;
        if unfit || !self.each_lane(list, count, &mut |_, _| true) {
            return Rest::Otherwise;
        }
        if self.lets_run(|client| client.any_bytes(list, count)) {
            return Rest::Bytes;
        }
        let Some(asleep) = self.begin_sleep() else { return Rest::Otherwise };
        let (bell, mut bytes) = (asleep.bell, false);
        let laid = self.each_lane(list, count, &mut |client, lane| {
            let laid = client.services.lane_poll(lane, bell);
            bytes = laid && client.services.pipe_waiting(lane) > 0;
            laid && !bytes
        });
        if laid && let Ok(verdict) = self.sleeping_poll(c, count, &asleep, again) {
            return Rest::Sleeps(verdict);
        }
        self.end_poll(list, count, asleep.place, false);
        if bytes { Rest::Bytes } else { Rest::Otherwise }
    }

    /// Whether a lane that is asked about has bytes.
    fn any_bytes(&mut self, list: usize, count: usize) -> bool {
        !self.each_lane(list, count, &mut |client, lane| client.services.pipe_waiting(lane) == 0)
    }

    /// Shows the lanes that entries ask about for reading until `step` is false; false, too, if one
    /// of them is a pipe.
    fn each_lane(
        &mut self,
        list: usize,
        count: usize,
        step: &mut dyn FnMut(&mut Self, Pipe) -> bool,
    ) -> bool {
        for index in 0..count {
            let Some((fd, asks)) = self.polled(list, index) else { return false };
            if (fd as i32) < 0 || asks & READABLE == 0 {
                continue;
            }
            match self.pipe_end(fd as usize) {
                Some(end) if end.socket && !step(self, end.pipe) => return false,
                Some(end) if !end.socket && !end.writes => return false,
                _ => {}
            }
        }
        true
    }

    /// The call that sleeps: the list and the bell, on the application's stack.
    fn sleeping_poll(
        &mut self,
        c: &Call,
        count: usize,
        asleep: &Asleep,
        again: u32,
    ) -> Result<Verdict> {
        let length = (count + 1) * POLLFD_BYTES;
        let room = (length + TIME_BYTES).next_multiple_of(16);
        let at = self.host.stack_room(room);
        self.memory.read(c.args[0], &mut self.buffers.bounce[..length - POLLFD_BYTES])?;
        let own = u64::from(asleep.fd) | (POLLIN as u64) << 32;
        put(&mut self.buffers.bounce, length - POLLFD_BYTES, own.to_le_bytes());
        self.memory.write(at, &self.buffers.bounce[..length])?;
        let mut until = 0;
        if let Some(time) = self.poll_time(c, again > 0)? {
            until = at + length;
            self.memory.write(until, &time)?;
        }
        let how = again as usize | asleep.place << PLACE_SHIFT;
        let args = [at, count + 1, until, 0, c.args[0], how];
        let call = After { number: nr::ppoll, args, reason: reason::POLLED };
        Ok(Verdict::Instead { call, room })
    }

    /// For how long it sleeps, as the host takes it: less, if it has begun already.
    fn poll_time(&mut self, c: &Call, began: bool) -> Result<Option<[u8; TIME_BYTES]>> {
        let mut time = [0u8; TIME_BYTES];
        let span = if c.number == nr::poll {
            let whole = i64::from(c.args[2] as i32);
            (whole >= 0).then_some((whole / 1000, whole % 1000 * MS_NS))
        } else if c.args[2] == 0 {
            None
        } else {
            self.memory.read(c.args[2], &mut time)?;
            let half = |at: usize| crate::layout::get64(&time, at) as i64;
            Some((half(0), half(8)))
        };
        let Some((mut seconds, mut rest)) = span else { return Ok(None) };
        let gone = self.gone_ns(began);
        if gone > 0 && seconds >= 0 && (0..SECOND_NS).contains(&rest) {
            let left = seconds.saturating_mul(SECOND_NS).saturating_add(rest);
            let left = left.saturating_sub(gone).max(0);
            (seconds, rest) = (left / SECOND_NS, left % SECOND_NS);
        }
        put(&mut time, 0, seconds.to_le_bytes());
        put(&mut time, 8, rest.to_le_bytes());
        Ok(Some(time))
    }

    fn end_poll(&mut self, list: usize, count: usize, place: usize, rung: bool) {
        let bell = self.end_sleep(place, rung);
        self.each_lane(list, count, &mut |client, lane| {
            client.services.lane_unpoll(lane, bell);
            true
        });
    }

    /// The host has polled a list with a bell: what rings have stands with its answers.
    pub(crate) fn polled_by_bell(&mut self, after: &After, result: i64) -> i64 {
        let [room, entries, _, _, list, how] = after.args;
        let count = entries - 1;
        let rung = result > 0 && self.told_in(room, count) != 0;
        self.end_poll(list, count, how >> PLACE_SHIFT, rung);
        self.polled_here(after, result)
    }

    /// What the host says of an entry.
    pub(crate) fn told_in(&self, list: usize, index: usize) -> u16 {
        let mut entry = [0u8; POLLFD_BYTES];
        let known = self.memory.read(list + index * POLLFD_BYTES, &mut entry);
        if known.is_ok() { get16(&entry, 6) } else { 0 }
    }

    /// The same without the end of the sleep: a child answers what its parent has begun.
    pub(crate) fn polled_here(&mut self, after: &After, result: i64) -> i64 {
        let [room, entries, _, _, list, how] = after.args;
        let again = how as u32 & AGAIN_BITS;
        if result == Errno::EINVAL.as_return() {
            // One entry more than the limit of open files allows, perhaps.
            self.waits.again = AGAIN_MAX;
            return AGAIN;
        }
        if result < 0 {
            return result;
        }
        match self.show_polled(room, list, entries - 1) {
            Err(errno) => errno.as_return(),
            Ok(0) if result > 0 => {
                self.waits.again = again + 1;
                AGAIN
            }
            Ok(ready) => ready,
        }
    }

    /// The host has nothing for who reads at `fd`.
    pub(crate) fn note_quiet(&mut self, fd: usize) {
        if let Some(end) = self.socket_end(fd) {
            self.services.lane_host_told(end.pipe, false);
        }
    }

    fn show_polled(&mut self, room: usize, list: usize, count: usize) -> Result<i64> {
        let mut ready = 0;
        for index in 0..count {
            let mut entry = [0u8; POLLFD_BYTES];
            self.memory.read(room + index * POLLFD_BYTES, &mut entry)?;
            let (fd, asks, host) = (get32(&entry, 0), get16(&entry, 4), get16(&entry, 6));
            let reads = (fd as i32) >= 0 && asks & READABLE != 0;
            let here = reads && self.waiting_here(fd as usize) > 0;
            if reads && host == 0 {
                self.note_quiet(fd as usize);
            }
            let told = host | if here { asks & READABLE } else { 0 };
            self.memory.write(list + index * POLLFD_BYTES + 6, &told.to_le_bytes())?;
            ready += i64::from(told != 0);
        }
        Ok(ready)
    }
}
