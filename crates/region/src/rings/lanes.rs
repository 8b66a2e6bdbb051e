//! Lanes: pipes in pairs, of two connected sockets. Each says which is its *mate*, that goes the
//! other way, whether its ring stays out of use, which process connects it, and what was lost at
//! the other end.

use crate::rings::pipes::{CONNECTS, MATE, Mode, Pipe, RESET};

/// In the word that has one more than the mate's name: the ring is not to be used.
const UNUSED: u64 = 1 << 63;
/// In `RESET`; 0 = nothing is lost.
const RESET_UNTOLD: u64 = 1;
const RESET_TOLD: u64 = 2;

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

    /// Whether the ring of this life is empty and will stay so, and nothing is to be told.
    pub fn is_hosts_for_good(&self) -> bool {
        match self.mode() {
            None => true,
            mode => self.is_pinned() && mode == Some(Mode::Host) && !self.is_reset(),
        }
    }
}
