//! A thread that is about to sleep lets its peer on the same core run first (`docs/adr/0111`).
//!
//! Where that has brought nothing, or others have had the core for long, it is tried again only
//! after some sleeps: so it costs little where it is of no use.

use crate::{Client, Host, Memory};
use husk_abi::nr;
use husk_proto::Services;
use husk_proto::pipe::Pipe;

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
