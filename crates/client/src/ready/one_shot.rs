//! Members of sets that are told once, until they are asked anew (`EPOLLONESHOT`), and what a
//! change of a member owes to a thread that sleeps in the set.
//!
//! ```text
//!   armed ──► told by the ring ──────────────► spent; the host may still have it armed
//!     │  '──► told by the host, who disarms ─► spent; the next change arms it there again
//!     '◄───── epoll_ctl: armed here; the host hears of it if it must, before a thread sleeps
//! ```
//!
//! Invariants
//! 1. Who tells of a one-shot spends it under the set's lock: one thread gets it.
//! 2. What the host fires for a one-shot that is spent here is not told: when it is asked anew, the
//!    host looks again.
//! 3. The host may have fired for what was asked before: it is asked about the socket once more.

use crate::ready::members::{ALWAYS, Told};
use crate::socket::ring_drain::To;
use crate::{Client, Host, Memory};
use husk_proto::Services;
use husk_proto::epoll::{Member, Set};
use husk_proto::pipe::Pipe;

/// `EPOLLONESHOT`.
pub(super) const ONE_SHOT: u32 = 1 << 30;
/// What the host keeps of a one-shot's mask when it has fired: how it is told.
pub(super) const HOW: u32 = 0xf << 28;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The host has fired for a one-shot, which is disarmed there now.
    pub(super) fn tell_one_shot(&mut self, set: Set, told: &mut Told, number: u32, events: u32) {
        self.lock_set(set);
        if let Some((member, true)) = self.services.epoll_member(set, number)
            && member.mask & ONE_SHOT != 0
        {
            self.services.epoll_register(set, number, Some(member.mask & HOW), false);
            let spent = self.services.epoll_is_spent(set, number);
            if !spent || told.has(number) {
                let events = self.still_ready(&member, events);
                let events = events | self.services.epoll_add_ring(set, number);
                let done = events != 0
                    && told.add_or_join(&self.memory, number, events, member.data).is_ok();
                if done {
                    self.services.epoll_spend(set, member.lane);
                } else if !spent {
                    self.settle_member(set, number);
                }
            }
        }
        self.services.epoll_unlock(set);
    }

    /// Which of the host's events are so now: another thread may have been told of them, and asked
    /// anew, meanwhile.
    fn still_ready(&mut self, member: &Member, events: u32) -> u32 {
        let events = events & (member.mask | ALWAYS);
        if self.is_number_of(member) {
            events & u32::from(self.ready_for(member.fd as usize, member.mask as u16))
        } else {
            events
        }
    }

    /// Something else is asked of a lane whose ring may have bytes: a thread that sleeps in the set
    /// has not looked at them, and nobody tells it later.
    #[inline]
    pub(super) fn wake_for_change(&mut self, set: Set, lane: Pipe) {
        let sleep = self.services.epoll_asleep(set);
        if sleep != 0 && self.services.pipe_waiting(lane) > 0 {
            self.wake_sleeper(lane, sleep);
        }
    }

    #[cold]
    fn wake_sleeper(&mut self, lane: Pipe, sleep: u64) {
        if self.services.lane_bell(lane) != 0 && self.ring_set(lane) {
            self.say_told(lane, sleep);
        } else {
            // What cannot be moved stays where readers of the image find it; counted.
            let _ = self.withdraw_lane(lane, To::Set);
        }
    }

    /// The set is the host's, which hears of this member by the program's own words from now on.
    pub(super) fn let_member_go(&mut self, set: Set, number: u32) {
        if self.services.epoll_member(set, number).is_some_and(|(_, on)| on) {
            self.lock_set(set);
            self.release_member(set, number);
            self.services.epoll_unlock(set);
        }
    }
}
