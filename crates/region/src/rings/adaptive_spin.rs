//! How long one side of a pipe spins for the other before it sleeps at the host.
//!
//! Who is about to sleep looks at the ring a little longer: a wake-up costs both sides more than
//! the look. How long it is worth depends on what waking takes, which is measured where one sleeps
//! anyway: `SENT`, when a host write began; `ASKED`, when a host read did; `WAKING`, what the last
//! sleeping reads took from the one to their end.
//!
//! Invariants
//! 1. Nobody looks on unless the other side was last seen on another core.
//! 2. A look ends after `LOOK_OUT_TICKS_MAX`, whatever was measured: the three words are guesses
//!    that others store beside, and a wrong one costs time only.

use crate::rings::pace::{core_number, ticks};
use crate::rings::pipes::{ASKED, Mode, Pipe, READER_CORE, SENT, WAKING, WRITER_CORE};

/// Processor ticks of one look-out: twice what waking a sleeper took here last, which on most
/// machines is 10 us at 2 to 3 GHz.
const LOOK_OUT_TICKS: u64 = 25_000;
/// The same where that takes longest: an idle core of some virtual machines needs 25 us.
const LOOK_OUT_TICKS_MAX: u64 = 150_000;
/// Looks at the ring, on the look-out, between two at the other side's core and the clock.
const GLIMPSES: u32 = 8;

impl Pipe {
    /// A host read is over: if it slept, what waking took. Less counts at once, more by and by.
    pub(crate) fn woken(&self) {
        let (sent, old) = (self.get(SENT), self.get(WAKING));
        if sent > self.get(ASKED) {
            let took = ticks().saturating_sub(sent).min(LOOK_OUT_TICKS_MAX / 2);
            let slower = took > old && old != 0;
            self.put(WAKING, if slower { old + (took - old) / 4 } else { took });
        }
    }

    /// Looks on for bytes, for the holder of the readers' lock; how many came.
    pub fn look_out_for_bytes(&self) -> u64 {
        self.look_out(WRITER_CORE, || self.readable(1))
    }

    /// The same for anybody: what the lock's holder has seen of the ring stays.
    pub fn look_on_without_lock(&self) -> u64 {
        self.look_out(WRITER_CORE, || self.waiting())
    }

    /// Whether the writer was last seen on this core.
    pub fn is_written_here(&self) -> bool {
        self.get(WRITER_CORE) == core_number()
    }

    /// Whether the reader was last seen on this core.
    pub fn is_read_here(&self) -> bool {
        self.get(READER_CORE) == core_number()
    }

    /// Looks on for `wanted` bytes of room.
    pub fn look_out_for_room(&self, wanted: u64) -> bool {
        self.look_out(READER_CORE, || (self.room(wanted) >= wanted) as u64) != 0
    }

    /// While the other side was last seen on another core and nobody leaves, as long as twice a
    /// wake-up takes at most: the other side may be waking from a sleep at the host.
    fn look_out(&self, core: usize, mut found: impl FnMut() -> u64) -> u64 {
        let limit = (2 * self.get(WAKING)).clamp(LOOK_OUT_TICKS, LOOK_OUT_TICKS_MAX);
        let start = ticks();
        loop {
            let now = found();
            let other = self.get(core);
            let runs = other != 0 && other != core_number();
            if now != 0 || !runs || self.mode() != Some(Mode::Ring) {
                return now;
            }
            // A pause takes 50 ns on some processors: one between two looks.
            let glimpse = |_| {
                core::hint::spin_loop();
                Some(found()).filter(|now| *now != 0)
            };
            if let Some(now) = (0..GLIMPSES).find_map(glimpse) {
                return now;
            }
            if ticks().wrapping_sub(start) > limit {
                return found();
            }
        }
    }
}
