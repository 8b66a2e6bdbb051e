//! Changes without a journal, of a word and its bit that only one thread writes.
//!
//! Who dies between the two stores leaves the bit over a word that is 0, and whoever cleans up, or
//! looks meanwhile, takes that for no word.

use crate::arena::memory::Cell;
use crate::hooks::kill;
use crate::txn::session::Session;

impl Session {
    /// Changes `word`, which nobody else changes, to `value`, and its bit in `map`: set unless the
    /// word is 0. False: not now, or `map` fills up or was full, and a transaction is to do it.
    #[inline(always)]
    pub fn put_alone(&self, map: Cell, bit: u64, word: Cell, value: u64) -> bool {
        let region = &self.region;
        let bits = region.load(map);
        let new = if value == 0 { bits & !bit } else { bits | bit };
        if self.attention() != 0 || self.frozen().is_some() || bits == u64::MAX || new == u64::MAX {
            return false;
        }
        let mut steps = [(map, new), (word, value)];
        if value == 0 {
            steps.reverse();
        }
        for (cell, value) in steps {
            region.store(cell, value);
            kill::point();
        }
        true
    }
}
