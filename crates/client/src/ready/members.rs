//! Epoll sets with sockets that have rings (`docs/adr/0059`).
//!
//! ```text
//!   epoll_ctl  ──► the item in the region ──► the host, with our tag in the place of the data
//!   epoll_wait ──► bits: events of rings ─ some ──► now and then the host's as well ──► answer
//!                   '─ none ──► look on ──► asleep ──► bits once more ──► host ──► tags become
//!                                                      the program's data, rings' events with them
//!   write      ──► ring ──► the set sleeps? ──► its bell is rung (`bells`); where it has none, the
//!                                               bytes go to the host, whose event wakes it
//! ```
//!
//! Invariants
//! 1. What the host has registered is what the program has asked for, but for the data; of levels
//!    in a set that one process has alone, at the latest before a thread sleeps there (*dirty*).
//! 2. One answer has one event of a member, whatever host and ring say.
//! 3. Who takes away what the host has told a sleeper of, before that has come, says that it uses
//!    the set (`region::members`, 2), and waits for the sleeper: else it would sleep on, and nobody
//!    would wake it. So does who asks the host about a set in which another thread sleeps.

use crate::layout::{get32, get64, put};
use crate::pipe::ROUNDS_MAX;
use crate::ready::epoll::has_room;
use crate::ready::one_shot::{HOW, ONE_SHOT};
use crate::ready::turns::Turns;
use crate::reason;
use crate::socket::ring_drain::To;
use crate::{AGAIN, After, Answer, Call, Client, Host, Memory, TIME_AS_ASKED, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, POLLERR, POLLHUP, POLLIN, POLLRDHUP,
};
use husk_proto::epoll::{EVENT_BYTES, Member, Set, Sleep, TAG};
use husk_proto::fs::Span;
use husk_proto::pipe::{End, PIPE_NUMBERS, Pipe, Withdrawal};
use husk_proto::process::Process;
use husk_proto::{Errno, Result, Services};

/// A program that gives data like that of a member (`TAG`) has a set of the host's.
const TAG_MASK: u64 = !0xffff;
/// `EPOLLWAKEUP`, `EPOLLEXCLUSIVE`: the host's.
const PARTICULAR: u32 = 3 << 28;
/// `EPOLLET`.
const EDGES: u32 = 1 << 31;
/// Told of whatever is asked.
pub(super) const ALWAYS: u32 = POLLERR | POLLHUP;
/// After which of the host's events a ring is left: there may be an end, or bytes.
const TELLING: u32 = POLLIN | POLLRDHUP | POLLHUP | POLLERR;
/// Most events of one call.
const ONCE: usize = 256;
/// Looks at a sleeper that has been told, 50 us each.
const WAKING_LOOKS: u32 = 10_000;
const WAKING_NAP_NS: u64 = 50_000;

/// A thread's waits.
#[derive(Default)]
pub(crate) struct Waits {
    /// How often the one that has just ended is to begin again.
    pub again: u32,
    /// When it began for the first time.
    began_ns: i64,
    /// The bell that wakes this thread in `poll`, and the process that made it.
    pub bell: Option<(u64, Process)>,
    /// Polls for which it would have been of use.
    pub polls: u32,
    /// Reads of sockets with rings that the host got.
    pub host_reads: u32,
    /// The lane whose reader was seen to wait, and how many more reads may look on there.
    pub waiter: Option<(Pipe, u32)>,
    /// Whether to let others run before a sleep.
    pub turns: Turns,
}

/// Waits that begin again in a row, before the host alone tells of what they wait for.
pub(crate) const AGAIN_MAX: u32 = 100;

/// The events of one answer, as they lie at `address`, and whose they are.
pub(super) struct Told {
    address: usize,
    room: usize,
    count: usize,
    numbers: [u16; ONCE],
}

/// In `Told`: no member's.
const NOBODY: u16 = u16::MAX;

fn tag_of(data: u64) -> Option<u32> {
    (data & TAG_MASK == TAG).then_some((data & !TAG_MASK) as u32)
}

fn event(events: u32, data: u64) -> [u8; EVENT_BYTES] {
    let mut bytes = [0u8; EVENT_BYTES];
    put(&mut bytes, 0, events.to_le_bytes());
    put(&mut bytes, 4, data.to_le_bytes());
    bytes
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `epoll_ctl` on a socket with lanes. `None`: its lane is to be the host's, or is.
    pub(crate) fn member_ctl(&mut self, c: &Call, set: Set, end: End) -> Option<Answer> {
        if !end.socket {
            return None;
        }
        if self.services.epoll_is_hosts(set) {
            self.let_member_go(set, end.pipe.number());
            return None;
        }
        let mut bytes = [0u8; EVENT_BYTES];
        let removes = c.args[1] as u32 == EPOLL_CTL_DEL;
        if !removes && self.memory.read(c.args[3], &mut bytes).is_err() {
            return Some(Ok(Verdict::Pass));
        }
        let (mask, data) = (get32(&bytes, 0), get64(&bytes, 4));
        let member = Member { lane: end.pipe, fd: c.args[2] as u32, mask, data };
        self.await_waking(end.pipe);
        self.lock_set(set);
        let answer = self.member_ctl_locked(c, set, &member);
        self.services.epoll_unlock(set);
        self.wake_for_change(set, end.pipe);
        answer.map(|result| Ok(Verdict::Return(result)))
    }

    fn member_ctl_locked(&mut self, c: &Call, set: Set, new: &Member) -> Option<i64> {
        let number = new.lane.number();
        let known = self.services.epoll_member(set, number);
        let known = known.filter(|(old, _)| old.lane == new.lane);
        self.services.epoll_set_number(set, c.args[0] as u32);
        if known.is_some_and(|(old, _)| old.fd != new.fd) {
            self.settle_member(set, number);
        }
        let old = known.filter(|(_, on)| *on).map(|(old, _)| old);
        if old.is_some_and(|old| old.fd != new.fd) {
            return None;
        }
        let host = self.services.epoll_registered(set, number).filter(|_| known.is_some());
        let removed = old.is_none() && host.is_some();
        let command = c.args[1] as u32;
        match command {
            EPOLL_CTL_DEL | EPOLL_CTL_MOD if removed => Some(Errno::ENOENT.as_return()),
            EPOLL_CTL_DEL => {
                old?;
                if self.may_be_late(set, host, 0) {
                    self.services.epoll_drop_member(set, new.lane);
                    return Some(self.late(set, number, host));
                }
                let result = self.host.call(nr::epoll_ctl, c.args);
                if result == 0 {
                    self.services.epoll_register(set, number, None, false);
                    self.services.epoll_drop_member(set, new.lane);
                }
                Some(result)
            }
            EPOLL_CTL_MOD if old.is_none() => None,
            EPOLL_CTL_ADD if old.is_some() => Some(self.host.call(nr::epoll_ctl, c.args)),
            EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
                if new.mask & PARTICULAR != 0 || self.services.lane_is_pinned(new.lane) {
                    self.release_member(set, number);
                    return None;
                }
                if (command == EPOLL_CTL_MOD || removed) && self.may_be_late(set, host, new.mask) {
                    if !self.services.epoll_put_member(set, new) {
                        return None;
                    }
                    self.services.epoll_stir(set, new.lane);
                    return Some(self.late(set, number, host));
                }
                if removed {
                    self.settle_member(set, number);
                }
                self.put_member(c, set, new, old)
            }
            _ => None,
        }
    }

    /// Whether the host may hear later of what is asked now: of levels, by who has the set alone.
    fn may_be_late(&self, set: Set, host: Option<u32>, mask: u32) -> bool {
        host.is_some_and(|host| (host | mask) & EDGES == 0) && !self.services.epoll_is_shared(set)
    }

    /// The host has something else than is asked from now on; not while a thread sleeps there.
    fn late(&mut self, set: Set, number: u32, host: Option<u32>) -> i64 {
        self.services.epoll_register(set, number, host, true);
        if self.services.epoll_has_sleeper(set) {
            self.settle_member(set, number);
        }
        0
    }

    /// The host hears of what is asked of a member now, or that nothing is.
    pub(super) fn settle_member(&mut self, set: Set, number: u32) {
        let Some(host) = self.services.epoll_registered(set, number) else { return };
        let Some((member, on)) = self.services.epoll_member(set, number) else { return };
        if on && (host == member.mask || self.services.epoll_is_spent(set, number)) {
            return self.services.epoll_register(set, number, Some(host), false);
        }
        let fd = self.services.epoll_number(set) as usize;
        let known = self.is_number_of(&member);
        if self.epoll_set(fd) == Some(set) && known {
            let told = core::hint::black_box(event(member.mask, TAG | u64::from(number)));
            let command = if on { EPOLL_CTL_MOD } else { EPOLL_CTL_DEL };
            let at = told.as_ptr() as usize;
            self.host.call(nr::epoll_ctl, [fd, command as usize, member.fd as usize, at, 0, 0]);
        }
        self.services.epoll_register(set, number, on.then_some(member.mask), false);
        if !on {
            self.services.epoll_drop_member(set, member.lane);
        }
    }

    /// A reader that must not wait has found the lane locked, and so nothing, where there may be
    /// bytes that it was told of: of edges it is told once more. The host wakes another thread that
    /// sleeps in the set, for there is room to tell of.
    #[cold]
    pub(crate) fn tell_again(&mut self, lane: Pipe) {
        let Some(set) = self.services.lane_set(lane) else { return };
        self.lock_set(set);
        let known = self.services.epoll_member(set, lane.number());
        if let Some((member, true)) = known.filter(|(member, _)| member.mask & EDGES != 0) {
            self.services.epoll_stir(set, lane);
            self.ask_anew(set, &member);
        }
        self.services.epoll_unlock(set);
    }

    /// Whether the number of a member is that of its lane yet.
    pub(super) fn is_number_of(&mut self, member: &Member) -> bool {
        self.socket_end(member.fd as usize).is_some_and(|end| end.pipe == member.lane)
    }

    /// The host looks at a member again, and tells of what it finds.
    fn ask_anew(&mut self, set: Set, member: &Member) {
        let fd = self.services.epoll_number(set) as usize;
        let known = self.is_number_of(member);
        if self.epoll_set(fd) == Some(set) && known {
            let tag = TAG | u64::from(member.lane.number());
            let told = core::hint::black_box(event(member.mask, tag));
            let (command, at) = (EPOLL_CTL_MOD as usize, told.as_ptr() as usize);
            self.host.call(nr::epoll_ctl, [fd, command, member.fd as usize, at, 0, 0]);
        }
    }

    /// The same of all of which it has something else; or of those alone that `lack` something.
    fn settle_members(&mut self, set: Set, lack: bool) {
        let mut from = 0;
        while let Some(number) = self.services.epoll_next_dirty(set, from) {
            if !lack || self.services.epoll_lacks(set, number) {
                self.settle_member(set, number);
            }
            from = number + 1;
        }
    }

    /// The lane is the host's in this set from now on, with the program's own data: the next call
    /// on it says so.
    pub(super) fn release_member(&mut self, set: Set, number: u32) {
        self.settle_member(set, number);
        if let Some((member, true)) = self.services.epoll_member(set, number) {
            self.services.epoll_register(set, number, None, false);
            self.services.epoll_drop_member(set, member.lane);
        }
    }

    /// Number `fd` of a member is about to go: the host could not be told by it any more.
    pub(crate) fn settle_before_close(&mut self, fd: u32, lane: Pipe) {
        let Some(set) = self.services.lane_set(lane) else { return };
        if self.services.epoll_next_dirty(set, lane.number()) != Some(lane.number()) {
            return;
        }
        self.lock_set(set);
        let known = self.services.epoll_member(set, lane.number());
        if known.is_some_and(|(member, _)| member.fd == fd && member.lane == lane) {
            self.settle_member(set, lane.number());
        }
        self.services.epoll_unlock(set);
    }

    fn put_member(&mut self, c: &Call, set: Set, new: &Member, old: Option<Member>) -> Option<i64> {
        if !self.services.epoll_put_member(set, new) {
            return None;
        }
        let number = new.lane.number();
        let told = core::hint::black_box(event(new.mask, TAG | u64::from(number)));
        let args = [c.args[0], c.args[1], c.args[2], told.as_ptr() as usize, 0, 0];
        let result = self.host.call(nr::epoll_ctl, args);
        match old {
            _ if result == 0 => {
                self.services.epoll_register(set, number, Some(new.mask), false);
                self.services.epoll_stir(set, new.lane);
            }
            Some(old) => {
                self.services.epoll_put_member(set, &old);
            }
            None => {
                self.services.epoll_register(set, number, None, false);
                self.services.epoll_drop_member(set, new.lane);
            }
        }
        Some(result)
    }

    /// Takes the lock of a set's members, whoever has it; but not for ever.
    pub(super) fn lock_set(&mut self, set: Set) {
        for _ in 0..ROUNDS_MAX {
            match self.services.epoll_lock(set) {
                Ok(()) => return,
                Err((address, value)) => self.sleep_on(address, value),
            }
        }
    }

    /// Whether data that a program gives would be taken for a tag.
    pub(crate) fn is_like_a_tag(&self, c: &Call) -> bool {
        let mut bytes = [0u8; EVENT_BYTES];
        self.memory.read(c.args[3], &mut bytes).is_ok() && tag_of(get64(&bytes, 4)).is_some()
    }

    // ---- waiting --------------------------------------------------------------------------------

    /// `epoll_wait` and the like on a set with members.
    pub(crate) fn member_wait(&mut self, c: &Call, set: Set, waits: bool) -> Answer {
        let [fd, address, most, ..] = c.args;
        if !has_room(address, most as i32) {
            return Ok(Verdict::Pass);
        }
        let room = (most as i32 as usize).min(ONCE);
        let again = core::mem::take(&mut self.waits.again);
        let left = self.time_left(c, again > 0);
        if self.services.epoll_is_hosts(set) && !self.has_bits(set) {
            let args = [again as usize, address, room, set.0 as usize, 0, left];
            let after = After { number: c.number, args, reason: reason::MEMBERS_WAITED };
            return Ok(Verdict::PassThen(after));
        }
        self.await_sleeper(set);
        for _ in 0..ROUNDS_MAX {
            let mut told = Told { address, room, count: 0, numbers: [NOBODY; ONCE] };
            let more = self.collect(set, &mut told)?;
            let last = told.count == 0 && !waits;
            // Who sleeps next is told by the host then.
            let sleeps = told.count == 0 && waits && !more && !self.services.epoll_looks_on(set);
            let due = last || more || self.services.epoll_is_host_due(set);
            if told.count < room && due && !sleeps {
                self.settle_set(set, !last);
                self.ask_host(fd, set, &mut told)?;
            }
            if told.count > 0 || !waits {
                return value(told.count as u64);
            }
            if self.services.epoll_look_on(set) || self.set_lets_run(set) {
                continue;
            }
            self.settle_set(set, false);
            self.need_bell(set, fd);
            let asleep = self.services.epoll_sleep(set);
            if asleep == Sleep::Ready {
                continue;
            }
            if asleep == Sleep::Many {
                self.set_to_host(set);
            }
            let slept = usize::from(asleep == Sleep::Asleep);
            let args = [again as usize, address, room, set.0 as usize, slept, left];
            let after = After { number: c.number, args, reason: reason::MEMBERS_WAITED };
            return Ok(Verdict::PassThen(after));
        }
        value(0)
    }

    /// Before a sleep in a set: others on this core run first. Whether members have bytes now.
    fn set_lets_run(&mut self, set: Set) -> bool {
        self.lets_run(|client| client.has_bits(set))
    }

    /// Whether members may have bytes in rings.
    fn has_bits(&mut self, set: Set) -> bool {
        let mut any = false;
        self.services.epoll_each_ready(set, &mut |_| any = true);
        any
    }

    /// For how long the host is to wait: less, if the wait has begun already. Of `epoll_pwait2` in
    /// ns, or `TIME_AS_ASKED`.
    fn time_left(&mut self, c: &Call, began: bool) -> usize {
        if c.number == nr::epoll_pwait2 {
            let gone = self.gone_ns(began);
            return if began { self.span_left(c.args[3], gone) } else { TIME_AS_ASKED };
        }
        let whole = c.args[3] as i32;
        if whole <= 0 {
            return c.args[3];
        }
        let gone = self.gone_ns(began) / 1_000_000;
        i64::from(whole).saturating_sub(gone).max(0) as usize
    }

    /// Of the time at `address`, which has gone on for so long.
    fn span_left(&self, address: usize, gone_ns: i64) -> usize {
        let mut time = [0u8; 16];
        if address == 0 || self.memory.read(address, &mut time).is_err() {
            return TIME_AS_ASKED;
        }
        let [seconds, rest] = [0, 8].map(|at| get64(&time, at) as i64);
        let whole = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        whole.saturating_sub(gone_ns).max(0) as usize
    }

    /// For how long a wait of this thread has gone on, in ns: it begins now, or `began` before.
    pub(crate) fn gone_ns(&mut self, began: bool) -> i64 {
        let now = self.host.now_ns();
        if !began {
            self.waits.began_ns = now;
        }
        now.saturating_sub(self.waits.began_ns).max(0)
    }

    /// The host has waited in a set with members.
    pub(crate) fn members_waited(&mut self, after: &After, result: i64) -> i64 {
        let [again, address, room, set, slept, _] = after.args;
        let set = Set(set as u32);
        if slept != 0 {
            self.services.epoll_wake(set);
        }
        if result < 0 {
            return result;
        }
        if (result as usize) < after.args[2] {
            self.services.epoll_polled(set);
        }
        let room = room.max(result as usize);
        let mut told = Told { address, room, count: 0, numbers: [NOBODY; ONCE] };
        for index in 0..result as usize {
            let mut bytes = [0u8; EVENT_BYTES];
            if self.memory.read(address + index * EVENT_BYTES, &mut bytes).is_ok() {
                self.tell_hosts(set, &mut told, &bytes);
            }
        }
        let _ = self.collect(set, &mut told);
        if told.count == 0 && result > 0 {
            // A bell for what has been told already, or it has gone from the set.
            if again >= AGAIN_MAX as usize {
                self.set_to_host(set);
            }
            self.waits.again = (again as u32 + 1).min(AGAIN_MAX);
            return AGAIN;
        }
        told.count as i64
    }

    /// `settle_members`, where there are some.
    fn settle_set(&mut self, set: Set, lack: bool) {
        if self.services.epoll_next_dirty(set, 0).is_some() {
            self.lock_set(set);
            self.settle_members(set, lack);
            self.services.epoll_unlock(set);
        }
    }

    /// Adds the events of rings; whether the host may have more to tell of them.
    fn collect(&mut self, set: Set, told: &mut Told) -> Result<bool> {
        self.lock_set(set);
        let (memory, mut done, mut more) = (&self.memory, Ok(()), false);
        let room = told.room.min(ONCE) - told.count.min(ONCE);
        if room > 0 {
            more = self.services.epoll_collect(set, room, &mut |number, events, data| {
                if done.is_ok() {
                    done = told.add_or_join(memory, number, events, data);
                }
                done.is_ok()
            });
        }
        self.services.epoll_unlock(set);
        done.map(|()| more)
    }

    /// Adds what the host has now.
    fn ask_host(&mut self, fd: usize, set: Set, told: &mut Told) -> Result<()> {
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let most = told.room - told.count;
        let found = self.host.call(nr::epoll_wait, [fd, bounce, most, 0, 0, 0]);
        let found = Errno::check(found)? as usize;
        if found < most {
            self.services.epoll_polled(set);
        }
        for index in 0..found {
            let mut bytes = [0u8; EVENT_BYTES];
            bytes.copy_from_slice(&self.buffers.bounce[index * EVENT_BYTES..][..EVENT_BYTES]);
            self.tell_hosts(set, told, &bytes);
        }
        Ok(())
    }

    /// Adds an event of the host's; of a member, with what its ring says.
    fn tell_hosts(&mut self, set: Set, told: &mut Told, bytes: &[u8; EVENT_BYTES]) {
        let Some(number) = tag_of(get64(bytes, 4)) else {
            let _ = told.add(&self.memory, NOBODY, bytes);
            return;
        };
        if number >= PIPE_NUMBERS {
            return; // A bell.
        }
        let Some((member, on)) = self.services.epoll_member(set, number) else { return };
        let events = get32(bytes, 0);
        if events & TELLING != 0 {
            self.services.pipe_leave(member.lane);
            self.services.lane_host_told(member.lane, true);
        }
        if member.mask & ONE_SHOT != 0 {
            return self.tell_one_shot(set, told, number, events);
        }
        // The host may not have heard yet of what is asked now.
        let events = events & (member.mask | ALWAYS);
        if !on || events == 0 {
            return;
        }
        let events = events | self.services.epoll_add_ring(set, number);
        let _ = told.add_or_join(&self.memory, number, events, member.data);
    }

    /// Members of the set have no rings to be read from, from now on; what they have goes to the
    /// host, who is asked about the set by others.
    #[cold]
    pub(crate) fn set_to_host(&mut self, set: Set) {
        if self.services.epoll_is_hosts(set) {
            return;
        }
        self.lock_set(set);
        self.services.epoll_leave_to_host(set);
        self.settle_members(set, false);
        self.services.epoll_unlock(set);
        for number in 0..PIPE_NUMBERS {
            if let Some((member, true)) = self.services.epoll_member(set, number) {
                self.services.pipe_pin(member.lane);
                // What cannot be moved stays where readers of the image find it; counted.
                let _ = self.withdraw_lane(member.lane, To::Set);
            }
        }
    }

    /// Who is not of the image gets the set: the host is to tell of members as the program asked.
    #[cold]
    pub(crate) fn show_members(&mut self, fd: usize) {
        let Some(set) = self.epoll_set(fd) else { return };
        if !self.services.epoll_has_members(set) {
            return;
        }
        self.set_to_host(set);
        self.remove_bell(set, fd);
        for number in 0..PIPE_NUMBERS {
            let Some((member, true)) = self.services.epoll_member(set, number) else { continue };
            let spent = self.services.epoll_is_spent(set, number);
            let mask = if spent { member.mask & HOW } else { member.mask };
            // One that the host has fired for is quiet; what is changed is told of errors again.
            let fired = spent && self.services.epoll_registered(set, number) == Some(mask);
            if !fired && self.is_number_of(&member) {
                let plain = core::hint::black_box(event(mask, member.data));
                let at = plain.as_ptr() as usize;
                let args = [fd, EPOLL_CTL_MOD as usize, member.fd as usize, at, 0, 0];
                self.host.call(nr::epoll_ctl, args);
            }
        }
    }

    // ---- writing --------------------------------------------------------------------------------

    /// Bytes have come into the ring of a lane, by socket `fd`: whoever waits for them is woken, a
    /// set or a thread in `poll` or in a read.
    #[inline(always)]
    pub(crate) fn tell_set(&mut self, fd: usize, lane: Pipe) {
        if self.services.lane_tell(lane) {
            self.rouse(fd, lane);
        }
    }

    /// A lane's reader sleeps, in its set or in `poll`: its bell is rung; where that cannot be,
    /// what is in the ring goes to the host.
    #[cold]
    fn rouse(&mut self, fd: usize, lane: Pipe) {
        let polled = self.services.lane_polled(lane);
        // It stays: who sleeps takes it away, and may sleep again by now. It may also have jumped
        // out of `poll`, or be dead, and another thread sleeps in the set.
        let rung = polled != 0 && self.ring_bell(polled);
        let sleep = self.services.lane_asleep(lane);
        if rung && sleep == 0 {
            return;
        }
        let able = rung || polled == 0;
        if sleep != 0 && able && (self.ring_set(lane) || self.give_ring(fd, lane)) {
            self.say_told(lane, sleep);
        } else {
            // Somebody else has changed the way meanwhile, or has read it.
            let _ = self.withdraw_lane(lane, To::Set);
        }
    }

    /// The host has bytes of a lane for a set in that sleep. Where another thread may have taken
    /// them, what has come into rings meanwhile goes to the host, which wakes the sleeper.
    pub(crate) fn say_told(&mut self, lane: Pipe, sleep: u64) {
        if self.services.lane_told(lane, sleep)
            && let Some(set) = self.services.lane_set(lane)
        {
            self.rings_to_host(set);
        }
    }

    /// What is in rings of members goes to the host, which tells the set.
    #[cold]
    fn rings_to_host(&mut self, set: Set) {
        let mut ready = [0u64; PIPE_NUMBERS as usize / 64];
        self.services.epoll_each_ready(set, &mut |number| {
            ready[number as usize / 64] |= 1 << (number % 64);
        });
        for number in (0..PIPE_NUMBERS).filter(|n| ready[*n as usize / 64] >> (n % 64) & 1 == 1) {
            if let Some((member, true)) = self.services.epoll_member(set, number) {
                // What cannot be moved stays where readers of the image find it; counted.
                let _ = self.withdraw_lane(member.lane, To::Set);
            }
        }
    }

    /// What is in the ring of a lane goes to the host by socket `fd`, which writes there, if the
    /// host has nothing of it: whether it has all now.
    fn give_ring(&mut self, fd: usize, lane: Pipe) -> bool {
        for _ in 0..ROUNDS_MAX {
            match self.services.pipe_withdraw(lane, false) {
                Ok(Withdrawal::Wait { address, value }) => self.sleep_on(address, value),
                Ok(Withdrawal::Bytes(spans)) => {
                    let even = self.services.pipe_is_even(lane);
                    let put = if even { self.give_spans(fd, lane, &spans) } else { 0 };
                    self.services.pipe_withdrawn(lane, put);
                    return put > 0;
                }
                _ => return false,
            }
        }
        false
    }

    /// All of a ring's bytes, or none.
    fn give_spans(&mut self, fd: usize, lane: Pipe, spans: &[Span; 2]) -> u64 {
        self.services.pipe_withdrawing(lane, 0);
        let all = (spans[0].length + spans[1].length) as u64;
        let put = self.send_spans(fd, spans);
        if put == all || put == 0 || self.take_back(lane, put).is_err() {
            return put;
        }
        0
    }

    /// What the program wrote to TCP goes to the host before it closes it: who reads there may do
    /// so in ways that only the host knows.
    pub(crate) fn leave_written(&mut self, fd: usize, end: End) {
        let tcp = end.socket && self.services.lane_is_tcp(end.pipe);
        let mate = if tcp { self.services.lane_mate(end.pipe) } else { None };
        let Some(lane) = mate.filter(|&lane| self.services.pipe_waiting(lane) > 0) else { return };
        if !self.give_ring(fd, lane) {
            // Readers of the image find it all the same.
            let _ = self.withdraw_lane(lane, To::Written);
        }
    }

    /// One question for all members of a lane's set, instead of one for each: whether the host has
    /// nothing to tell.
    pub(crate) fn ask_set_about(&mut self, lane: Pipe) -> bool {
        let Some(set) = self.services.lane_set(lane) else { return false };
        let fd = self.services.epoll_number(set) as usize;
        let asks = self.services.epoll_registered(set, lane.number()).unwrap_or(0);
        let own = asks & (POLLIN | POLLRDHUP) != 0 && self.epoll_set(fd) == Some(set);
        if !own || self.ready_for(fd, POLLIN as u16) != 0 {
            return false;
        }
        self.services.epoll_polled(set);
        true
    }

    /// Before something is taken away that the host may have told a sleeper of.
    pub(crate) fn await_waking(&mut self, lane: Pipe) {
        if let Some(set) = self.services.lane_set(lane) {
            self.await_sleeper(set);
        }
    }

    fn await_sleeper(&mut self, set: Set) {
        self.services.epoll_use(set);
        for _ in 0..WAKING_LOOKS {
            if !self.services.epoll_is_waking(set) {
                return;
            }
            self.nap(WAKING_NAP_NS);
        }
    }
}

impl Told {
    fn add<M: Memory>(&mut self, memory: &M, number: u16, bytes: &[u8]) -> Result<()> {
        memory.write(self.address + self.count * EVENT_BYTES, bytes)?;
        if self.count < ONCE {
            self.numbers[self.count] = number;
        }
        self.count += 1;
        Ok(())
    }

    /// Whether something of this member is told.
    pub(super) fn has(&self, number: u32) -> bool {
        self.numbers[..self.count.min(ONCE)].contains(&(number as u16))
    }

    /// Events of a member, of which something may be told already: what the host told of it may be
    /// older than the bytes of its ring.
    pub(super) fn add_or_join<M: Memory>(
        &mut self,
        memory: &M,
        number: u32,
        events: u32,
        data: u64,
    ) -> Result<()> {
        match self.numbers[..self.count.min(ONCE)].iter().position(|&n| n == number as u16) {
            Some(at) => {
                self.join(memory, at, events);
                Ok(())
            }
            None => self.add(memory, number as u16, &event(events, data)),
        }
    }

    /// More of what is told already.
    fn join<M: Memory>(&self, memory: &M, at: usize, events: u32) {
        let (place, mut word) = (self.address + at * EVENT_BYTES, [0u8; 4]);
        if memory.read(place, &mut word).is_ok() {
            let all = u32::from_le_bytes(word) | events;
            let _ = memory.write(place, &all.to_le_bytes());
        }
    }
}
