//! Lanes: pipes in pairs, of two connected sockets. Each says which is its *mate*, that goes the
//! other way, whether its ring stays out of use, which process connects it, and what was lost at
//! the other end.

use crate::hooks::kill;
use crate::rings::pace::ticks;
use crate::rings::pipes::{
    ADDRESSES, CLIMB_BYTES, CONNECTS, Climb, DELAYS, FLIGHT, HOST_IN, HOST_OUT, Holder, Lock, MATE,
    Mode, POLLED, PORTS, Pipe, QUIET, RESET, TAIL,
};

/// In the word that has one more than the mate's name: the ring is not to be used.
const UNUSED: u64 = 1 << 63;
/// In `RESET`; 0 = nothing is lost.
const RESET_UNTOLD: u64 = 1;
const RESET_TOLD: u64 = 2;
/// In `POLLED`: it is, and nobody sleeps.
const NOBODY: u64 = 1;

impl Pipe {
    /// Says which lane of the same two sockets goes the other way, before a table names either.
    pub fn set_mate(&self, name: u32) {
        self.put(MATE, name as u64 + 1);
        self.share();
    }

    /// The name of that lane; `None`: it is a pipe, or its life is over.
    #[inline(always)]
    pub fn mate(&self) -> Option<u32> {
        let mate = (self.get(MATE) & !UNUSED).checked_sub(1)? as u32;
        // After that: a new life may have another.
        self.mode().map(|_| mate)
    }

    /// The ring of a lane stays out of use: who is at the other end is not known.
    pub fn keep_unused(&self) {
        self.put(MATE, self.get(MATE) | UNUSED);
    }

    /// Who is at the other end is known, if the mate is still this one.
    pub fn begin_use(&self, mate: u32) {
        self.swap_if(MATE, UNUSED | (mate as u64 + 1), mate as u64 + 1);
    }

    /// Says which process is about to connect the socket that reads from this lane.
    pub fn introduce(&self, pid: u32) {
        self.put(CONNECTS, pid as u64);
    }

    /// Which process has said so.
    pub fn introduced_by(&self) -> u32 {
        self.get(CONNECTS) as u32
    }

    /// A thread is about to sleep in `poll` until there are bytes in this lane, for which `bell` is
    /// to be rung. False: somebody else sleeps there.
    pub fn poll(&self, bell: u64) -> bool {
        let free = || self.swap_if(POLLED, NOBODY, bell) || self.swap_if(POLLED, 0, bell);
        let done = free() || self.get(POLLED) == bell;
        kill::point();
        done
    }

    /// It does not sleep any more.
    pub fn unpoll(&self, bell: u64) {
        kill::point();
        self.swap_if(POLLED, bell, NOBODY);
    }

    /// Whether who reads here polls by bells, as far as is known.
    #[inline(always)]
    pub fn is_polled(&self) -> bool {
        self.get(POLLED) != 0
    }

    /// The bell that is to be rung; 0: nobody sleeps.
    #[inline(always)]
    pub fn polled(&self) -> u64 {
        let bell = self.get(POLLED);
        if bell == NOBODY { 0 } else { bell }
    }

    /// The host has nothing of this lane, which is polled.
    pub fn set_quiet(&self) {
        self.put(QUIET, ticks());
    }

    /// Whether that was so within so many ticks.
    pub fn is_quiet(&self, span: u64) -> bool {
        ticks().wrapping_sub(self.get(QUIET)) < span
    }

    /// The socket that reads from this lane has these addresses, own and other, and ports.
    pub fn post(&self, addresses: u64, ports: u64) {
        self.put(PORTS, 0);
        self.put(ADDRESSES, addresses);
        self.put(PORTS, ports);
    }

    /// What has been said of that.
    pub fn posted(&self) -> (u64, u64) {
        let ports = self.get(PORTS);
        let addresses = self.get(ADDRESSES);
        if self.get(PORTS) == ports { (addresses, ports) } else { (0, 0) }
    }

    /// What the program there lets the host hold back, as was said last.
    pub fn delays(&self) -> u64 {
        self.get(DELAYS)
    }

    /// Says it.
    pub fn set_delays(&self, delays: u64) {
        self.put(DELAYS, delays);
    }

    /// Whether the ring stays out of use.
    #[inline(always)]
    pub fn is_unused(&self) -> bool {
        self.get(MATE) & UNUSED != 0
    }

    /// The other end has gone with bytes unread; `told`: who reads here knows. False: that is
    /// known.
    pub fn reset(&self, told: bool) -> bool {
        self.swap_if(RESET, 0, if told { RESET_TOLD } else { RESET_UNTOLD })
    }

    /// Whether that is so, and who reads here is still to be told.
    pub fn is_reset(&self) -> bool {
        self.get(RESET) == RESET_UNTOLD
    }

    /// The same, for who tells it.
    pub fn take_reset(&self) -> bool {
        self.is_reset() && self.swap_if(RESET, RESET_UNTOLD, RESET_TOLD)
    }

    /// Whether the ring of this life is empty and will stay so.
    pub fn is_left(&self) -> bool {
        match self.mode() {
            None => true,
            mode => mode == Some(Mode::Host) && self.is_pinned(),
        }
    }

    /// The same, and nothing is to be told.
    pub fn is_hosts_for_good(&self) -> bool {
        self.is_left() && (self.mode().is_none() || !self.is_reset())
    }

    /// Bytes that the host has been given and nobody has taken.
    pub fn at_host(&self) -> u64 {
        self.get(HOST_IN).wrapping_sub(self.get(HOST_OUT))
    }

    /// Whether any byte ever came out of this ring.
    pub fn has_served(&self) -> bool {
        self.get(TAIL) != 0
    }

    /// Whether the host has been given as many bytes as have been taken from it.
    pub fn is_even(&self) -> bool {
        self.get(HOST_IN) == self.get(HOST_OUT)
    }

    /// The same where the host has no bytes, by a reader whose socket is in a set or polled:
    /// whether the ring is in use now. It takes both locks for that, and gives up where somebody
    /// has one.
    pub fn climb_if_even(&self, me: Holder) -> bool {
        let even = || self.is_even() && self.get(FLIGHT) as u32 == 0;
        let able = !self.is_pinned() && !self.is_in_set() && !self.is_unused();
        if self.mode() != Some(Mode::Host) || !able || !even() {
            return false;
        }
        if !self.try_lock(Lock::Readers, me) {
            return false;
        }
        let mut done = false;
        if self.try_lock(Lock::Writers, me) {
            done = match self.climb() {
                Climb::Done => true,
                Climb::No => false,
                Climb::Fetch(_) => {
                    self.put(CLIMB_BYTES, 0);
                    self.set(Mode::Host);
                    false
                }
            };
            self.unlock(Lock::Writers);
        }
        self.unlock(Lock::Readers);
        done
    }
}
