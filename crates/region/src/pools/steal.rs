//! Takes free objects that another thread has set aside, so that an image is full only when none
//! are left anywhere.
//!
//! ```text
//!   thief                                      victim
//!     take FREEZE (compare and swap)             journal: first entry
//!     victim's journal empty?  no: next one      a lock (compare and swap)
//!     move what it has, commit: FREEZE is let    FREEZE taken?  yes: again, when it is let go
//!     go                                         magazines, run
//! ```
//!
//! 1. A thread touches its magazines only in a transaction that has locked something, and looks at
//!    FREEZE behind that lock. A thief has FREEZE and looks at the journal. Each has a locked
//!    instruction between the two, so one of them sees the other.
//! 2. A thread changes its run, and fills blocks that are still in it, from `blocks_ahead` to
//!    `take_blocks`. It holds the writer lock of the file meanwhile, a long one, and the same
//!    holds: it is noted in the slot before its compare and swap, and `blocks_ahead` looks at
//!    FREEZE behind that. A run that is lent (`borrow_gap`) goes with such a lock, too.
//! 3. What moves is journalled in the thief's slot: it dies, and whoever waits for FREEZE rolls it
//!    back. A victim that dies has its slot settled before anybody may use it again.
//! 4. A thief holds FREEZE for one victim at a time and waits for nobody meanwhile. If it skipped a
//!    victim in the middle of a transaction, it naps, holding nothing but long locks, and looks
//!    again, a bounded number of times.

use husk_abi::Errno;

use crate::arena::layout::header;
use crate::arena::memory::Cell;
use crate::hooks::kill;
use crate::pools::magazine::{BLOCK, HIGH, count_of, item};
use crate::txn::freeze::nap;
use crate::txn::journal::Txn;
use crate::txn::session::{RUN, STATE, Session};

/// Objects, or single blocks, that one theft takes at most.
const LOOT_MAX: u64 = 16;
/// Rounds over all slots while somebody is in the middle of something, 50 us and more apart.
const ROUNDS_MAX: u32 = 100;

/// What came of one theft.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theft {
    /// The thief has something now.
    Done,
    /// The victim had nothing any more.
    Nothing,
    /// The victim is in the middle of something.
    Busy,
}

impl Session {
    /// Takes objects of `class` (or blocks, of which this slot has none) that another slot has set
    /// aside, whether somebody sits there or not; whether there were any.
    #[cold]
    pub(crate) fn steal(&self, class: usize) -> Result<bool, Errno> {
        let me = self.slot()?;
        for round in 0..ROUNDS_MAX {
            let (high, mut busy) = (self.slots_high(), false);
            // From the next slot on: not all from the same.
            for victim in (0..high).map(|n| (me + n) % high + 1) {
                if victim == me || self.has_aside(victim, class) == 0 {
                    continue;
                }
                match self.steal_from(victim, class)? {
                    Theft::Done => return Ok(true),
                    Theft::Nothing => {}
                    Theft::Busy => busy = true,
                }
            }
            if !busy {
                return Ok(false);
            }
            if round == 0 {
                self.recover_dead()?;
            }
            nap();
        }
        Ok(false)
    }

    /// How many objects (or blocks) a slot has set aside, about.
    pub(crate) fn has_aside(&self, slot: u32, class: usize) -> u64 {
        let base = self.region.map.slot(slot);
        let run = if class == BLOCK { self.region.load(base.word(RUN)) as u32 } else { 0 };
        self.region.load(count_of(base, class)) + u64::from(run)
    }

    fn steal_from(&self, victim: u32, class: usize) -> Result<Theft, Errno> {
        let victim = self.region.map.slot(victim);
        self.quiet(|txn| {
            txn.lock_at_rest(Cell::at(header::FREEZE))?;
            let works = txn.region.load_in_order(victim.word(STATE)) != 0;
            let fills = class == BLOCK && txn.session.holds_long(victim) && kill::mutant() != 53;
            if works && kill::mutant() != 50 || fills {
                return Ok(Theft::Busy);
            }
            let run = if class == BLOCK { txn.move_run(victim) } else { 0 };
            match run + txn.move_items(victim, class) {
                0 => Ok(Theft::Nothing),
                _ => Ok(Theft::Done),
            }
        })
    }
}

impl Txn<'_> {
    /// Takes the whole run of a slot, if this one has none; how many blocks that were.
    fn move_run(&mut self, victim: Cell) -> u64 {
        let (mine, run) = (self.base.word(RUN), self.get(victim.word(RUN)));
        if run as u32 == 0 || self.get(mine) as u32 != 0 {
            return 0;
        }
        self.set(victim.word(RUN), 0);
        self.set(mine, run);
        u64::from(run as u32)
    }

    /// Takes the topmost of a magazine; how many.
    fn move_items(&mut self, victim: Cell, class: usize) -> u64 {
        let (from, to) = (count_of(victim, class), count_of(self.base, class));
        let (theirs, ours) = (self.get(from), self.get(to));
        let count = theirs.min(LOOT_MAX).min(HIGH.saturating_sub(ours));
        for n in 0..count {
            let number = self.get(item(victim, class, theirs - count + n));
            self.init(item(self.base, class, ours + n), number);
        }
        if count > 0 {
            self.change(from, theirs, theirs - count);
            self.change(to, ours, ours + count);
        }
        count
    }
}
