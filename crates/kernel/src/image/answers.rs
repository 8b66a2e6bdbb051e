//! What changes that other nodes asked for came to: the reply cache of the home.
//!
//! ```text
//!   a handler's transaction:  the change ... `keep` takes its record  ─► commit: both, or none
//!   set 0..32:   lock   turn   8 records: who asked, request, answer, who has heard it
//! ```
//!
//! An agent that is killed between a change and its answer leaves the record behind. Whoever asks
//! again under the same number is answered from it, and nothing is changed twice.
//!
//! Invariants
//! 1. A record is taken in the transaction that makes its change, after everything else: its set's
//!    lock is the last in the order of locks.
//! 2. It is named by node, epoch, request and kind. A second record of that name is never taken:
//!    the transaction that would take it fails with `ANSWERED`, and changes nothing.
//! 3. Where a set is full, the oldest record that its asker has heard goes, else the oldest. The
//!    highest request of a node whose record went unheard is noted: who asks again for that one, or
//!    for one before it, and has no record, is told `EIO`, for nobody knows whether it was done.
//! 4. Programs that change their own node's tree take no record, and their runtime is built without
//!    the code for it (feature `answers`).

/// Which transactions of an operation take its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// Those that make, move or remove names.
    Names,
    /// Those that change the bytes of a file, or its length.
    Bytes,
    /// Those that change attributes.
    Attributes,
}

#[cfg(not(feature = "answers"))]
pub(crate) use nothing::*;

/// Nobody asks.
#[cfg(not(feature = "answers"))]
mod nothing {
    use husk_proto::Result;
    use husk_region::Txn;

    use super::Changes;
    use crate::Kernel;

    #[inline(always)]
    pub(crate) fn keep<T>(
        _: &Kernel,
        _: &mut Txn<'_>,
        _: Changes,
        done: Result<T>,
        _: impl FnOnce(&Txn<'_>) -> [u64; 2],
    ) -> Result<T> {
        done
    }

    #[inline(always)]
    pub(crate) fn is_wanted(_: &Kernel, _: Changes) -> bool {
        false
    }
}

#[cfg(feature = "answers")]
pub use kept::*;

#[cfg(feature = "answers")]
mod kept {
    use husk_proto::{Errno, Result};
    use husk_region::observe::kill;
    use husk_region::{Cell, Region, Txn};

    use super::Changes;
    use crate::Kernel;
    use crate::image::{ANSWERS, WATCH, fixed};
    use crate::state::{high, low, pair};

    /// A change fails so whose record is there: it has been made.
    pub const ANSWERED: Errno = Errno(4004);

    const SETS: u32 = 32;
    const RECORDS: u32 = 8;
    const RECORD_WORDS: u32 = 6;
    /// Words of a set: its lock, the turn of the next record, records.
    const TURN: u32 = 1;
    const FIRST: u32 = 8;
    const SET_WORDS: u32 = 56;
    /// Words of a record: request and turn, node and kind, epoch, answer, the request that was
    /// heard of.
    const REQUEST: u32 = 0;
    const ASKER: u32 = 1;
    const EPOCH: u32 = 2;
    const ANSWER: u32 = 3;
    const HEARD: u32 = 5;
    /// Behind the sets: a lock, then a word for nodes of each hash: the highest request whose
    /// record went unheard, and the node.
    const GONE: u32 = SETS * SET_WORDS;
    const GONE_FIRST: u32 = 8;
    const GONE_WORDS: u32 = 64;
    /// In the place of a node: several.
    const SEVERAL: u32 = u32::MAX;

    const _: () = assert!(FIRST + RECORDS * RECORD_WORDS <= SET_WORDS);
    const _: () = assert!(ANSWERS + GONE + GONE_FIRST + GONE_WORDS <= WATCH);

    /// A request of another node that changes something.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Asked {
        /// Who asks; and in which of its lives.
        pub node: u16,
        /// That life.
        pub epoch: u32,
        /// Its number, never 0, and no other request's of that life.
        pub request: u32,
        /// What is asked for, as a message's kind.
        pub kind: u16,
        /// Which transactions take the record.
        pub changes: Changes,
        /// Bytes of it that were written before: by who died over it.
        pub written: u64,
    }

    impl Asked {
        fn asker(&self) -> u64 {
            pair(self.node.into(), self.kind.into())
        }

        fn set(&self, kernel: &Kernel) -> Cell {
            // Requests of one node follow each other: they go round.
            let number = self.request.wrapping_add(u32::from(self.node) * 5) % SETS;
            fixed(kernel, ANSWERS + number * SET_WORDS)
        }

        fn is_in(&self, region: &Region, record: Cell) -> bool {
            low(region.load(record.word(REQUEST))) == self.request
                && region.load(record.word(ASKER)) == self.asker()
                && region.load(record.word(EPOCH)) == self.epoch.into()
        }

        fn find(&self, region: &Region, set: Cell) -> Option<Cell> {
            records(set).find(|record| self.is_in(region, *record))
        }
    }

    /// The lock of what went unheard, and the word of nodes like this one.
    fn gone(kernel: &Kernel, node: u16) -> (Cell, Cell) {
        // Nodes on other hosts have numbers from 0x100 on.
        let n = u32::from(node ^ node >> 3) % GONE_WORDS;
        let lock = fixed(kernel, ANSWERS + GONE);
        (lock, lock.word(GONE_FIRST + n))
    }

    fn records(set: Cell) -> impl Iterator<Item = Cell> {
        (0..RECORDS).map(move |n| set.word(FIRST + n * RECORD_WORDS))
    }

    /// Whether a record is to be taken, so that a transaction is needed where nothing else changes.
    pub(crate) fn is_wanted(kernel: &Kernel, changes: Changes) -> bool {
        kernel.asked.is_some_and(|asked| asked.changes == changes)
    }

    /// Takes the record of a change that another node has asked for, if it is `done`. `answer` is
    /// what it came to: of bytes, where they begin and how many are written so far.
    #[inline]
    pub(crate) fn keep<T>(
        kernel: &Kernel,
        txn: &mut Txn<'_>,
        changes: Changes,
        done: Result<T>,
        answer: impl FnOnce(&Txn<'_>) -> [u64; 2],
    ) -> Result<T> {
        let value = done?;
        if let Some(asked) = kernel.asked.filter(|asked| asked.changes == changes) {
            let answer = answer(txn);
            take(kernel, txn, &asked, answer)?;
        }
        Ok(value)
    }

    #[cold]
    #[inline(never)]
    fn take(
        kernel: &Kernel,
        txn: &mut Txn<'_>,
        asked: &Asked,
        [first, second]: [u64; 2],
    ) -> Result<()> {
        let of_bytes = asked.changes == Changes::Bytes;
        let answer = match of_bytes {
            true => [first.wrapping_sub(asked.written), second + asked.written],
            false => [first, second],
        };
        let set = asked.set(kernel);
        txn.lock(set)?;
        if let Some(record) = asked.find(txn.region, set) {
            // A write that takes several transactions goes on.
            let before = [record.word(ANSWER), record.word(ANSWER + 1)].map(|cell| txn.get(cell));
            if of_bytes && before[0] == answer[0] && before[1] <= answer[1] {
                txn.set(record.word(ANSWER + 1), answer[1]);
                return Ok(());
            }
            return Err(ANSWERED);
        }
        let turn = txn.get(set.word(TURN)) as u32;
        let record = room(kernel, txn, set, turn)?;
        let words = [
            (set.word(TURN), turn.wrapping_add(1).into()),
            (record.word(REQUEST), pair(turn, asked.request)),
            (record.word(ASKER), asked.asker()),
            (record.word(EPOCH), asked.epoch.into()),
            (record.word(ANSWER), answer[0]),
            (record.word(ANSWER + 1), answer[1]),
            (record.word(HEARD), 0),
        ];
        for (cell, word) in words {
            if kill::mutant() == 81 {
                txn.region.store(cell, word);
            } else {
                txn.set(cell, word);
            }
        }
        Ok(())
    }

    /// A record that is free, or may go.
    fn room(kernel: &Kernel, txn: &mut Txn<'_>, set: Cell, turn: u32) -> Result<Cell> {
        let mut oldest: Option<((bool, u32), Cell)> = None;
        for record in records(set) {
            let word = txn.get(record.word(REQUEST));
            if low(word) == 0 {
                return Ok(record);
            }
            let is_heard = txn.get(record.word(HEARD)) == low(word).into();
            let rank = (is_heard, turn.wrapping_sub(high(word)));
            if oldest.is_none_or(|(before, _)| before < rank) {
                oldest = Some((rank, record));
            }
        }
        let ((is_heard, _), record) = oldest.ok_or(Errno::EIO)?;
        if !is_heard {
            note_gone(kernel, txn, record)?;
        }
        Ok(record)
    }

    fn note_gone(kernel: &Kernel, txn: &mut Txn<'_>, record: Cell) -> Result<()> {
        let request = low(txn.get(record.word(REQUEST)));
        let node = high(txn.get(record.word(ASKER)));
        let (lock, cell) = gone(kernel, node as u16);
        txn.lock(lock)?;
        let before = txn.get(cell);
        let known = if before == 0 || high(before) == node { node } else { SEVERAL };
        txn.set(cell, pair(known, low(before).max(request)));
        Ok(())
    }

    /// What a request came to before, if it was done. `EIO`: it is asked `again`, and nobody knows.
    pub fn answer(kernel: &Kernel, asked: &Asked, again: bool) -> Result<Option<[u64; 2]>> {
        let (session, set) = (&kernel.session, asked.set(kernel));
        let region = &session.region;
        let found = session.read(set, || {
            let record = asked.find(region, set)?;
            Some([record.word(ANSWER), record.word(ANSWER + 1)].map(|cell| region.load(cell)))
        })?;
        if found.is_some() || !again {
            return Ok(found);
        }
        let (lock, cell) = gone(kernel, asked.node);
        let last = session.read(lock, || region.load(cell))?;
        let is_its = high(last) == asked.node.into() || high(last) == SEVERAL;
        if is_its && asked.request <= low(last) { Err(Errno::EIO) } else { Ok(None) }
    }

    /// The asker has the answer, so the record is the first to go. Only a hint: it may be another
    /// record's place by now.
    pub fn heard(kernel: &Kernel, asked: &Asked) {
        let region = &kernel.session.region;
        if let Some(record) = asked.find(region, asked.set(kernel)) {
            region.store(record.word(HEARD), asked.request.into());
        }
    }

    /// A node is dead: nothing of its lives before `epoch` is asked for again.
    pub fn forget(kernel: &Kernel, node: u16, epoch: u32) -> Result<()> {
        let is_its = |txn: &Txn<'_>, record: Cell| {
            low(txn.get(record.word(REQUEST))) != 0
                && high(txn.get(record.word(ASKER))) == u32::from(node)
                && txn.get(record.word(EPOCH)) < epoch.into()
        };
        for number in 0..SETS {
            let set = fixed(kernel, ANSWERS + number * SET_WORDS);
            kernel.run(|txn| {
                txn.lock(set)?;
                for record in records(set) {
                    if is_its(txn, record) {
                        txn.set(record.word(REQUEST), 0);
                    }
                }
                Ok(())
            })?;
        }
        let (lock, cell) = gone(kernel, node);
        kernel.run(|txn| {
            txn.lock(lock)?;
            if high(txn.get(cell)) == u32::from(node) {
                txn.set(cell, 0);
            }
            Ok(())
        })
    }

    /// The locks of the cache, for the checker.
    pub(crate) fn locks(region: &Region) -> impl Iterator<Item = Cell> {
        let lock = |number| region.map.fixed(ANSWERS + number * SET_WORDS);
        (0..SETS).map(lock).chain([region.map.fixed(ANSWERS + GONE)])
    }
}
