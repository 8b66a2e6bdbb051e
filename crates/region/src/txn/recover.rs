//! Recovery: undoes or completes the transaction of a dead process.
//!
//! 1. One recoverer at a time: the recovery word, a lock word like any other, which a waiter takes
//!    over when its holder is dead too. A recoverer waits for nothing else.
//! 2. Every step may be repeated: the next recoverer starts from the journal's phase.
//! 3. A slot becomes free only when no word names it any more. Work it left (`pending`) stays in
//!    it, for whoever takes the slot next.

use husk_abi::Errno;

use crate::arena::layout::header;
use crate::arena::memory::{Cell, LOCKED};
use crate::hooks::kill;
use crate::txn::journal::{COMMITTED, ROLLED};
use crate::txn::life::{self, Life};
use crate::txn::lock::owner_of;
use crate::txn::session::{LONG, LONG_MAX, STATE, Session};
use crate::txn::tally::RECOVERED;

/// Looks at the recovery word before a waiter gives up: about a minute.
const TURNS_MAX: u32 = 60_000;
/// Of these, without sleeping; each asks the host what became of the holder.
const QUICK_TURNS: u32 = 64;
/// Sleep between two others.
const TURN_NS: u64 = 1_000_000;

impl Session {
    /// Settles the journal of a dead thread, lets go of what it held, frees its slot.
    #[cold]
    pub(crate) fn recover(&self, dead: u32, pid: u32, tid: u32) -> Result<(), Errno> {
        let me = self.slot()?;
        if dead == me || dead == 0 {
            return Ok(());
        }
        self.take_recovery(me)?;
        if pid != 0 && (self.owner(dead) == (pid, tid) || kill::mutant() == 47) {
            self.settle(dead);
        }
        self.release(Cell::at(header::RECOVERY));
        Ok(())
    }

    /// Takes the recovery word; from a dead holder too.
    fn take_recovery(&self, me: u32) -> Result<(), Errno> {
        let cell = Cell::at(header::RECOVERY);
        if kill::mutant() == 5 {
            return Ok(());
        }
        for turn in 0..TURNS_MAX {
            let word = self.region.load(cell);
            let mine = word & !(u64::MAX << 48) | LOCKED | (me as u64) << 48;
            let holder = owner_of(word);
            let (pid, tid) = self.owner(holder);
            let free = holder == 0 || pid == 0 || life::judge(pid, tid) == Life::Dead;
            if free && self.region.swap_if(cell, word, mine) {
                return Ok(());
            }
            if turn >= QUICK_TURNS {
                self.sleep(cell, word as u32, TURN_NS);
            }
        }
        Err(Errno::EIO)
    }

    /// Under the recovery word.
    fn settle(&self, dead: u32) {
        let base = self.region.map.slot(dead);
        let state = self.region.load(base.word(STATE));
        let length = state as u32;
        if state != 0 {
            self.note_tally(RECOVERED);
        }
        match state >> 32 {
            _ if kill::mutant() == 4 => self.region.store(base.word(STATE), 0),
            COMMITTED if kill::mutant() == 3 => self.let_go(dead, length),
            COMMITTED => self.finish_commit(dead, length),
            ROLLED => self.let_go(dead, length),
            _ => self.roll_back(dead, length),
        }
        for n in 0..LONG_MAX {
            let held = base.word(LONG + n);
            let cell = self.region.load(held);
            if cell != 0 {
                let cell = self.region.named(cell);
                if owner_of(self.region.load(cell)) == dead {
                    self.release(cell);
                }
                self.region.store(held, 0);
            }
        }
        self.vacate(dead);
    }

    /// Recovers every slot whose owner `is_dead` says is gone (or that is found dead), other than
    /// the own; how many.
    pub fn recover_where(&self, mut is_dead: impl FnMut(u32, u32) -> bool) -> Result<u32, Errno> {
        let mut found = 0;
        for id in 1..=self.slots_high() {
            let (pid, tid) = self.owner(id);
            if id != self.slot_if_any() && pid != 0 && is_dead(pid, tid) {
                // Recovering needs a slot of one's own; looking does not.
                self.slot()?;
                self.recover(id, pid, tid)?;
                found += 1;
            }
        }
        Ok(found)
    }

    /// Recovers the slots of all threads that are dead.
    pub fn recover_dead(&self) -> Result<u32, Errno> {
        self.recover_where(|pid, tid| life::judge(pid, tid) == Life::Dead)
    }
}
