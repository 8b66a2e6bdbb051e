//! Moves the bytes of a ring to the host, under both locks, in three steps: `begin_withdrawal`,
//! `withdrawing` right before the write to the host, `withdrew` after. If the process dies in
//! between, the host's count of bytes shows how many it has taken.

use core::sync::atomic::{Ordering, fence};

use crate::hooks::kill;
use crate::rings::pipes::{
    CLIMB_BYTES, CLIMB_HEAD, CLIMB_IN, CLIMB_OUT, FLIGHT, HOST_IN, Mode, Pipe, READ_IN_FLIGHT,
    RING_BYTES, TAIL,
};

/// In the word for bytes of a climb: they go the other way.
const WITHDRAWAL: u64 = 1 << 63;

impl Pipe {
    /// Both locks are the caller's, who takes the bytes to the host: how many; writers wait
    /// meanwhile. 0 when there are none. `None`: a writer has a call at the host, whose bytes would
    /// come between (or before, unless it is known to be `stuck`); from now on others ask it, too.
    pub fn begin_withdrawal(&self, stuck: bool) -> Option<u64> {
        let bytes = self.readable(RING_BYTES);
        if bytes == 0 {
            return Some(0);
        }
        self.put(CLIMB_BYTES, 0);
        self.set(Mode::Climbing);
        // After that: who is counted later sees it, and is counted off again.
        fence(Ordering::SeqCst);
        let writers = self.get(FLIGHT) & (READ_IN_FLIGHT - 1);
        if writers != 0 && !stuck {
            self.set(Mode::Leaving);
            return None;
        }
        Some(bytes)
    }

    /// The host, who has `behind` bytes, is about to be given these: a death is settled by that.
    pub fn withdrawing(&self, behind: u64) {
        self.put(CLIMB_OUT, behind);
        self.put(CLIMB_HEAD, self.get(TAIL));
        self.put(CLIMB_IN, self.get(HOST_IN));
        self.put(CLIMB_BYTES, WITHDRAWAL | self.readable(RING_BYTES));
        kill::point();
    }

    /// It has taken `bytes` of them, which count as written there.
    pub fn withdrew(&self, bytes: u64) {
        kill::point();
        if bytes > 0 {
            self.put(TAIL, self.get(CLIMB_HEAD) + bytes);
            kill::point();
            let counted = if kill::mutant() == 66 { 0 } else { bytes };
            self.word(HOST_IN).fetch_add(counted, Ordering::SeqCst);
            kill::point();
        }
        self.put(CLIMB_BYTES, 0);
        self.set(Mode::Leaving);
    }

    /// The same where who did that has died, and the host has `left` bytes. Rather one count too
    /// many, after which the ring stays out of use, than one too few. False: none was under way.
    pub(crate) fn settle_withdrawal(&self, left: u64) -> bool {
        if self.get(CLIMB_BYTES) & WITHDRAWAL == 0 {
            return false;
        }
        let most = if kill::mutant() == 67 { 0 } else { self.get(CLIMB_BYTES) & !WITHDRAWAL };
        let put = left.saturating_sub(self.get(CLIMB_OUT)).min(most);
        self.put(TAIL, self.get(CLIMB_HEAD) + put);
        if self.get(HOST_IN).wrapping_sub(self.get(CLIMB_IN)) != put {
            self.word(HOST_IN).fetch_add(put, Ordering::SeqCst);
        }
        self.put(CLIMB_BYTES, 0);
        true
    }
}
