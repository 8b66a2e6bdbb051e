//! The undo journal: every operation is one transaction.
//!
//! ```text
//!   log old, store new ... | mark COMMITTED | redo | let locks go | length 0
//!        dies here: undo   |           dies here: redo again, let go
//! ```
//!
//! 1. An entry is complete before the length covers it, and the length covers it before the word
//!    changes (stores retire in order; the compiler is held by release stores).
//! 2. Rolling back is: undo backwards, mark ROLLED, let locks go, length 0. Each step may be
//!    repeated by somebody else; after ROLLED nothing is undone again.
//! 3. A redo is `old -> new` by compare and swap: repeated late, it does nothing.

use husk_abi::Errno;

use crate::arena::layout::header;
use crate::arena::memory::{Cell, Region};
use crate::hooks::kill;
use crate::txn::lock::{is_locked, locked_by, owner_of};
use crate::txn::session::{
    FREES, FREES_MAX, JOURNAL, JOURNAL_MAX, LEFT_OVER, PENDING, SEAT, STATE, Session, TRANSACTIONS,
    UNBALANCED,
};
use crate::txn::tally::ROLLBACKS;

/// What a handler returns when the world moved between its look and its locks: run it again.
pub const RETRY: Errno = Errno(4001);
pub(crate) const RETRIES_MAX: u32 = 1 << 16;

pub(crate) const RUNNING: u64 = 0;
pub(crate) const COMMITTED: u64 = 1;
pub(crate) const ROLLED: u64 = 2;

/// Locks and redos that a transaction remembers outside its journal.
const KEPT: u32 = 8;

/// Kinds of entries, in the low bits of the word's name.
const UNDO: u64 = 1;
const LOCK: u64 = 2;
const REDO: u64 = 3;
const REDO_NEW: u64 = 4;
const KIND: u64 = 7;

/// A running transaction of one thread.
#[derive(Debug)]
pub struct Txn<'s> {
    /// Whose.
    pub session: &'s Session,
    /// The region, for reads.
    pub region: &'s Region,
    pub(crate) slot: u32,
    pub(crate) base: Cell,
    length: u32,
    frees: u32,
    overflow: bool,
    /// Which entries are locks and redos, a byte each, the last one lowest, so that a commit need
    /// not read its whole journal; more than eight are found there.
    locks: u64,
    locked: u32,
    redos: u64,
    redone: u32,
}

impl Session {
    /// Runs `body` as one transaction: all of it happens, or nothing. `RETRY` runs it again.
    #[inline]
    pub fn transact<T>(
        &self,
        mut body: impl FnMut(&mut Txn<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for _ in 0..RETRIES_MAX {
            if self.attention() & UNBALANCED != 0 {
                self.prepare()?;
            }
            let mut txn = self.begin()?;
            match body(&mut txn) {
                Ok(value) => match txn.commit() {
                    Ok(()) => return Ok(value),
                    Err(error) => self.after(error)?,
                },
                Err(error) => {
                    txn.abort();
                    self.after(error)?;
                }
            }
        }
        Err(Errno::EIO)
    }

    /// After a transaction that came to nothing, for `error`: whether it is to be run again.
    #[cold]
    pub(crate) fn after(&self, error: Errno) -> Result<(), Errno> {
        match error {
            RETRY => match self.awaited.take() {
                Some(cell) => self.wait_at_rest(cell).map(|_| ()),
                None => Ok(()),
            },
            _ if self.hunger.get() != 0 && self.feed()? => Ok(()),
            error => Err(error),
        }
    }

    #[inline]
    pub(crate) fn begin(&self) -> Result<Txn<'_>, Errno> {
        let base = self.base()?;
        let slot = self.slot_if_any();
        if let Some(word) = self.frozen() {
            self.wait_thawed(word)?;
        }
        debug_assert_eq!(self.region.load(base.word(STATE)), 0, "transaction within another");
        let region = &self.region;
        Ok(Txn {
            session: self,
            region,
            slot,
            base,
            length: 0,
            frees: 0,
            overflow: false,
            locks: 0,
            locked: 0,
            redos: 0,
            redone: 0,
        })
    }
}

impl Txn<'_> {
    /// Appends an entry; false when the journal is full (the transaction will fail as a whole).
    #[inline(always)]
    fn log(&mut self, kind: u64, cell: Cell, value: u64) -> bool {
        if self.length >= JOURNAL_MAX {
            // A bug: operations that may grow ask for `room` first.
            debug_assert!(false, "an operation is larger than the journal");
            self.overflow = true;
            return false;
        }
        let entry = self.base.word(JOURNAL + self.length * 2);
        self.region.store(entry, cell.name() + kind);
        self.region.store(entry.word(1), value);
        self.length += 1;
        self.region.store(self.base.word(STATE), RUNNING << 32 | self.length as u64);
        kill::point();
        true
    }

    /// The slot of the thread that runs it.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Entries that still fit.
    pub fn room(&self) -> u32 {
        JOURNAL_MAX - self.length
    }

    /// Reads a word.
    #[inline(always)]
    pub fn get(&self, cell: Cell) -> u64 {
        self.region.load(cell)
    }

    /// Changes a reachable word.
    #[inline(always)]
    pub fn set(&mut self, cell: Cell, value: u64) {
        self.change(cell, self.region.load(cell), value);
    }

    /// Changes a reachable word that holds `old`, as the caller has just read.
    #[inline(always)]
    pub fn change(&mut self, cell: Cell, old: u64, value: u64) {
        debug_assert_eq!(self.region.load(cell), old);
        if self.log(UNDO, cell, old) {
            self.region.store(cell, value);
            kill::point();
        }
    }

    /// Writes a word of an object that nobody can reach before this transaction commits.
    #[inline(always)]
    pub fn init(&self, cell: Cell, value: u64) {
        self.region.store(cell, value);
    }

    /// Changes a word when the transaction commits, never before: for removals that readers without
    /// a lock would see. Until then `get` shows the old value.
    pub fn set_at_commit(&mut self, cell: Cell, value: u64) {
        let old = self.region.load(cell);
        // Both entries or none: a lone REDO at the end of a journal is ignored.
        self.redos = self.redos << 8 | self.length as u64;
        self.redone += 1;
        if self.log(REDO, cell, old) {
            self.log(REDO_NEW, cell, value);
        }
    }

    /// Changes a word at once and for good, whatever becomes of the transaction: both values are
    /// valid, and others act on the new one before the transaction ends. Its last act.
    pub fn flip(&mut self, cell: Cell, value: u64) {
        kill::point();
        self.region.store(cell, value);
        kill::point();
    }

    /// What a handler returns to be run again when nobody holds `cell`, itself holding nothing.
    #[cold]
    pub fn retry_after(&self, cell: Cell) -> Errno {
        self.session.awaited.set(Some(cell));
        RETRY
    }

    /// Takes a lock word until the transaction ends; again is fine.
    #[inline(always)]
    pub fn lock(&mut self, cell: Cell) -> Result<(), Errno> {
        let word = self.region.load(cell);
        if owner_of(word) == self.slot {
            return Ok(());
        }
        let entry = self.length as u64;
        if !self.log(LOCK, cell, 0) {
            return Err(Errno::EIO);
        }
        self.session.acquire_seen(cell, self.slot, word)?;
        if self.locked == 0 {
            self.session.hold_begins();
        }
        self.locks = self.locks << 8 | entry;
        self.locked += 1;
        kill::point();
        Ok(())
    }

    /// Takes a lock word that nobody holds; `RETRY` when its holder has let it go. For who must not
    /// wait in the middle of a transaction.
    pub(crate) fn lock_at_rest(&mut self, cell: Cell) -> Result<(), Errno> {
        let entry = self.length as u64;
        if !self.log(LOCK, cell, 0) {
            return Err(Errno::EIO);
        }
        let word = self.get(cell);
        if is_locked(word) || !self.region.swap_if(cell, word, locked_by(word, self.slot)) {
            return Err(self.retry_after(cell));
        }
        self.locks = self.locks << 8 | entry;
        self.locked += 1;
        kill::point();
        Ok(())
    }

    /// `lock` out of the order of locks, while others are held: starts over instead of waiting.
    pub fn lock_late(&mut self, cell: Cell) -> Result<(), Errno> {
        debug_assert!(self.locked > 0);
        match owner_of(self.region.load(cell)) == self.slot {
            true => Ok(()),
            false => self.lock_at_rest(cell),
        }
    }

    /// Before the slot's magazines are touched. A lock is held: its compare and swap has shown the
    /// journal to a thief who has not taken FREEZE yet, and shows FREEZE to this thread otherwise
    /// (`steal`).
    #[inline(always)]
    pub(crate) fn mind_thieves(&mut self) -> Result<(), Errno> {
        match self.locked == 0 || self.session.frozen().is_some() {
            true => self.mind_thief(),
            false => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn mind_thief(&mut self) -> Result<(), Errno> {
        if self.locked == 0 {
            self.lock(self.base.word(SEAT))?;
        }
        match self.session.frozen() {
            Some(word) if owner_of(word) != self.slot && kill::mutant() != 49 => {
                Err(self.retry_after(Cell::at(header::FREEZE)))
            }
            _ => Ok(()),
        }
    }

    /// Leaves `work` in the slot: whoever owns the slot next finds it (`Session::pending`).
    pub fn set_pending(&mut self, work: u64) {
        self.session.note(LEFT_OVER);
        self.set(self.base.word(PENDING), work);
    }

    /// Gives an object back when the transaction commits.
    pub fn free(&mut self, class: usize, number: u32) {
        if self.frees >= FREES_MAX {
            self.overflow = true;
            return;
        }
        self.region.store(self.base.word(FREES + self.frees), (class as u64) << 32 | number as u64);
        self.frees += 1;
    }

    /// Objects that can still be given back in this transaction.
    pub fn free_room(&self) -> u32 {
        FREES_MAX - self.frees
    }

    /// Runs `body` once and ends the transaction.
    pub(crate) fn conclude<T>(
        mut self,
        body: &mut impl FnMut(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match body(&mut self) {
            Ok(value) => self.commit().map(|()| value),
            Err(error) => {
                self.abort();
                Err(error)
            }
        }
    }

    #[inline]
    fn commit(&mut self) -> Result<(), Errno> {
        if self.frees != 0
            && let Err(error) = self.mind_thieves()
        {
            self.abort();
            return Err(error);
        }
        for n in 0..self.frees {
            let word = self.region.load(self.base.word(FREES + n));
            self.push((word >> 32) as usize, word as u32);
        }
        if self.overflow {
            self.abort();
            return Err(Errno::EIO);
        }
        if self.length == 0 {
            return Ok(());
        }
        self.region.raise(self.base.word(TRANSACTIONS));
        if kill::mutant() != 2 {
            self.region.store(self.base.word(STATE), COMMITTED << 32 | self.length as u64);
        }
        kill::point();
        if self.redone > KEPT || self.locked > KEPT {
            self.session.finish_commit(self.slot, self.length);
            self.session.hold_ends(self.length);
            return Ok(());
        }
        self.redo();
        for _ in 0..self.locked {
            let entry = self.base.word(JOURNAL + (self.locks as u8) as u32 * 2);
            self.session.release(Cell::of_name(self.region.load(entry) & !KIND));
            self.locks >>= 8;
            kill::point();
        }
        self.session.hold_ends(self.length);
        self.region.store(self.base.word(STATE), 0);
        kill::point();
        Ok(())
    }

    /// The short way of `finish_commit`: all redos are known, and as we live nobody else redoes
    /// them, so they need no compare and swap; what they change lies under our locks.
    #[inline]
    fn redo(&mut self) {
        for n in (0..self.redone).rev() {
            let at = (self.redos >> (8 * n)) as u8 as u32;
            let entry = self.base.word(JOURNAL + at * 2);
            let cell = Cell::of_name(self.region.load(entry) & !KIND);
            self.region.store(cell, self.region.load(entry.word(3)));
            kill::point();
        }
    }

    #[cold]
    fn abort(&mut self) {
        if self.length != 0 {
            self.session.note_tally(ROLLBACKS);
        }
        self.session.roll_back(self.slot, self.length);
        self.session.hold_ends(self.length);
    }
}

impl Session {
    fn entry(&self, slot: u32, n: u32) -> (u64, Cell, u64) {
        let entry = self.region.map.slot(slot).word(JOURNAL + n * 2);
        let word = self.region.load(entry);
        (word & KIND, self.region.named(word & !KIND), self.region.load(entry.word(1)))
    }

    /// Everything after the commit mark; repeatable.
    pub(crate) fn finish_commit(&self, slot: u32, length: u32) {
        for n in 0..length {
            let (kind, cell, old) = self.entry(slot, n);
            if kind == REDO && n + 1 < length {
                let (_, _, new) = self.entry(slot, n + 1);
                if kill::mutant() == 6 {
                    self.region.store(cell, new);
                } else {
                    self.region.swap_if(cell, old, new);
                }
                kill::point();
            }
        }
        self.let_go(slot, length);
    }

    /// Undoes a transaction without a commit mark; repeatable.
    pub(crate) fn roll_back(&self, slot: u32, length: u32) {
        for n in 0..length {
            let n = if kill::mutant() == 1 { n } else { length - 1 - n };
            let (kind, cell, old) = self.entry(slot, n);
            if kind == UNDO {
                self.region.store(cell, old);
                kill::point();
            }
        }
        let state = self.region.map.slot(slot).word(STATE);
        self.region.store(state, ROLLED << 32 | length as u64);
        kill::point();
        self.let_go(slot, length);
    }

    /// Releases the locks of a journal that are still its slot's, and empties it.
    pub(crate) fn let_go(&self, slot: u32, length: u32) {
        for n in (0..length).rev() {
            let (kind, cell, _) = self.entry(slot, n);
            // A lock may have found another owner already.
            if kind == LOCK && owner_of(self.region.load(cell)) == slot {
                self.release(cell);
                kill::point();
            }
        }
        self.region.store(self.region.map.slot(slot).word(STATE), 0);
        kill::point();
    }
}
