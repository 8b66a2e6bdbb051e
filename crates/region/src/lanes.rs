//! Lanes: pipes in pairs, of two connected sockets. Each says which is its *mate*, that goes the
//! other way, and whether its ring stays out of use.

use crate::pipes::{CONNECTS, MATE, Mode, Pipe};

/// In the word that has one more than the mate's name: the ring is not to be used.
const IDLE: u64 = 1 << 63;

impl Pipe {
    /// Says which lane of the same two sockets goes the other way, before a table names either.
    pub fn set_mate(&self, name: u32) {
        self.put(MATE, name as u64 + 1);
        self.share();
    }

    /// The name of that lane; `None`: it is a pipe, or its life is over.
    #[inline(always)]
    pub fn mate(&self) -> Option<u32> {
        let mate = (self.get(MATE) & !IDLE).checked_sub(1)? as u32;
        // After that: a new life may have another.
        self.mode().map(|_| mate)
    }

    /// The ring of a lane stays out of use: who is at the other end is not known.
    pub fn keep_idle(&self) {
        self.put(MATE, self.get(MATE) | IDLE);
    }

    /// It is known, and the mate is still this one.
    pub fn end_idleness(&self, mate: u32) {
        self.swap_if(MATE, IDLE | (mate as u64 + 1), mate as u64 + 1);
    }

    /// Says which process is about to connect the socket that reads from this lane.
    pub fn introduce(&self, pid: u32) {
        self.put(CONNECTS, pid as u64);
    }

    /// Which process has said so.
    pub fn introduced_by(&self) -> u32 {
        self.get(CONNECTS) as u32
    }

    /// Whether that is so still.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.get(MATE) & IDLE != 0
    }

    /// Whether neither this life's ring has bytes, nor ever will.
    pub fn is_hosts_for_good(&self) -> bool {
        match self.mode() {
            None => true,
            mode => self.is_pinned() && mode == Some(Mode::Host),
        }
    }
}
