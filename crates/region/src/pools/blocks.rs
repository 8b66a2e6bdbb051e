//! Blocks of the buffer cache: bitmaps in chunks of 1,024, a run and a small stack in each slot.
//!
//! 1. A block is taken in a bitmap from the moment a slot sets it aside; the slot's run and stack
//!    say which of those are not in a file yet.
//! 2. A thread fills its run before it puts it into a file, so no stale byte is ever reachable, and
//!    a file written by one thread lies in one piece.
//! 3. What a slot has set aside is another's when no chunk has a block any more (`steal`).

use husk_abi::Errno;

use crate::arena::layout::{CHUNK_BLOCKS, header};
use crate::arena::memory::Cell;
use crate::hooks::kill;
use crate::pools::magazine::BLOCK;
use crate::txn::journal::Txn;
use crate::txn::session::{CHUNK_HINT, COUNTS, LENT, RUN, Session, UNBALANCED};

const FREE: u32 = 1;
pub(crate) const BITMAP: u32 = 2;
const SPILL: u32 = 16;
/// Blocks that a thread sets aside at a time, at least.
const RUN_MIN: u32 = 32;
/// The same for one of very many: a thread whose slot has so many before it.
const RUN_MIN_CROWD: u32 = 4;
const CROWD: u32 = 1024;
/// Chunks looked at from the lowest on where blocks were freed.
const FREED_LOOKS: u32 = 8;

/// A run of blocks: first and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First block.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Session {
    /// Blocks this thread may fill next, at most `want`, at least one. They become a file's with
    /// `Txn::take_blocks` of the same value, under a long lock that is held over both. `bytes`:
    /// of the write that wants them (`populate`). `ENOSPC`.
    pub fn blocks_ahead(&self, want: u32, bytes: u64) -> Result<Blocks, Errno> {
        if kill::refuses() {
            return Err(Errno::ENOSPC);
        }
        // The transaction to come must find the top of the stack where it is now.
        if self.attention() & UNBALANCED != 0 {
            self.prepare()?;
        }
        let base = self.base()?;
        // Behind the compare and swap of the writer lock, which thieves look for (`steal`).
        debug_assert!(self.holds_long(base), "nobody keeps thieves from what is filled");
        if let Some(word) = self.frozen()
            && kill::mutant() != 54
        {
            self.wait_thawed(word)?;
        }
        let mut run = self.region.load(base.word(RUN));
        if want == 1 {
            let count = self.region.load(base.word(COUNTS + BLOCK as u32));
            if count > 0 {
                return Ok(Blocks { first: self.stack_top(base, count), count: 1 });
            }
        }
        if run as u32 == 0 {
            let freed = self.refill_run(want)?;
            run = self.region.load(base.word(RUN));
            self.bring(run, bytes, freed);
        }
        if run as u32 == 0 {
            let count = self.region.load(base.word(COUNTS + BLOCK as u32));
            if count > 0 {
                return Ok(Blocks { first: self.stack_top(base, count), count: 1 });
            }
            return Err(Errno::ENOSPC);
        }
        Ok(Blocks { first: (run >> 32) as u32, count: want.min(run as u32) })
    }

    fn stack_top(&self, base: Cell, count: u64) -> u32 {
        let at =
            crate::txn::session::MAGAZINES + BLOCK as u32 * crate::txn::session::MAGAZINE_ITEMS;
        self.region.load(base.word(at + count as u32 - 1)) as u32
    }

    /// Sets a run aside: from where files were removed lately, else from the first chunk with room,
    /// starting at the slot's own. Whether it was the former.
    fn refill_run(&self, want: u32) -> Result<bool, Errno> {
        let base = self.base()?;
        let hint = self.region.load(base.word(CHUNK_HINT)) as u32;
        let least = if self.slot()? < CROWD { RUN_MIN } else { RUN_MIN_CROWD };
        let want = want.clamp(least, CHUNK_BLOCKS).next_power_of_two();
        if self.refill_freed(want)? {
            return Ok(true);
        }
        for step in 0..self.region.map.chunk_count {
            let index = (hint + step) % self.region.map.chunk_count;
            let chunk = self.region.map.chunk(index);
            if self.region.load(chunk.word(FREE)) != 0 && self.take_run(index, want, 1)? {
                return Ok(false);
            }
        }
        // The image is full, but for what slots have set aside.
        if self.region.load(base.word(COUNTS + BLOCK as u32)) == 0 {
            self.steal(BLOCK)?;
        }
        Ok(false)
    }

    /// Blocks of removed files are filled again before others: the host still has memory for them.
    fn refill_freed(&self, want: u32) -> Result<bool, Errno> {
        let word = Cell::at(header::FREED);
        let first = self.region.load(word) as u32;
        if first == 0 {
            return Ok(false);
        }
        let end = self.region.map.chunk_count.min(first - 1 + FREED_LOOKS);
        for index in first - 1..end {
            let free = self.region.load(self.region.map.chunk(index).word(FREE));
            if free >= want as u64 && self.take_run(index, want, want)? {
                self.region.store(word, index as u64 + 1);
                return Ok(true);
            }
        }
        self.region.store(word, 0);
        Ok(false)
    }

    /// Takes a run of at most `want` blocks of a chunk, and not of less than `least`.
    fn take_run(&self, index: u32, want: u32, least: u32) -> Result<bool, Errno> {
        let base = self.base()?;
        self.quiet(|txn| {
            let chunk = txn.region.map.chunk(index);
            txn.lock(chunk)?;
            let (start, count) = txn.longest_gap(chunk, want);
            if count < least {
                return Ok(false);
            }
            txn.mark(chunk, start, count, true);
            txn.set(base.word(RUN), ((index * CHUNK_BLOCKS + start) as u64) << 32 | count as u64);
            txn.set(base.word(CHUNK_HINT), index as u64 | 1 << 32);
            Ok(true)
        })
    }

    /// Empties the slot's run and stack into the bitmaps.
    pub fn give_back_blocks(&self) -> Result<(), Errno> {
        let base = self.base()?;
        self.quiet(|txn| {
            txn.mind_thieves()?;
            let run = txn.get(base.word(RUN));
            if run as u32 == 0 {
                return Ok(());
            }
            txn.set(base.word(RUN), 0);
            txn.unmark(Blocks { first: (run >> 32) as u32, count: run as u32 })
        })?;
        self.unlock_long(base.word(LENT));
        self.spill_blocks(0)
    }

    /// What changes whenever blocks of a chunk are taken or freed; 0 before the first.
    pub fn chunk_version(&self, index: u32) -> u64 {
        self.region.load(self.region.map.chunk(index))
    }

    /// Sets aside the first gap of at least `least` blocks of a chunk, from block `from` of it on,
    /// until `give_back_blocks`: nobody else takes them. The slot has no run when it is called.
    pub fn borrow_gap(&self, index: u32, from: u32, least: u32) -> Result<Option<Blocks>, Errno> {
        let base = self.base()?;
        self.lock_long(base.word(LENT))?;
        let gap = self.mark_gap(base, index, from, least);
        if !matches!(gap, Ok(Some(_))) {
            self.unlock_long(base.word(LENT));
        }
        gap
    }

    fn mark_gap(
        &self,
        base: Cell,
        index: u32,
        from: u32,
        least: u32,
    ) -> Result<Option<Blocks>, Errno> {
        self.quiet(|txn| {
            let chunk = txn.region.map.chunk(index);
            txn.lock(chunk)?;
            if txn.get(base.word(RUN)) as u32 != 0 {
                return Err(Errno::EBUSY);
            }
            let Some((start, count)) = txn.gap_from(chunk, from, least) else { return Ok(None) };
            txn.mark(chunk, start, count, true);
            let first = index * CHUNK_BLOCKS + start;
            txn.set(base.word(RUN), (first as u64) << 32 | count as u64);
            Ok(Some(Blocks { first, count }))
        })
    }

    /// Puts blocks of the stack back into the bitmaps until `keep` are left; each transaction those
    /// on top that lie in one chunk, so that nobody holds two chunks.
    #[cold]
    pub(crate) fn spill_blocks(&self, keep: u64) -> Result<(), Errno> {
        let base = self.base()?;
        let counter = base.word(COUNTS + BLOCK as u32);
        while self.region.load(counter) > keep {
            self.quiet(|txn| {
                txn.mind_thieves()?;
                let top = txn.session.stack_top(base, txn.get(counter)) / CHUNK_BLOCKS;
                for _ in 0..SPILL {
                    let count = txn.get(counter);
                    if count <= keep || txn.session.stack_top(base, count) / CHUNK_BLOCKS != top {
                        break;
                    }
                    let block = txn.pop(BLOCK)?;
                    txn.unmark(Blocks { first: block, count: 1 })?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Free blocks: in the bitmaps and set aside.
    pub fn blocks_free(&self) -> u64 {
        self.spare_blocks(u64::MAX)
    }

    /// The same, counted as far as `most`.
    pub fn spare_blocks(&self, most: u64) -> u64 {
        let chunks = (0..self.region.map.chunk_count).map(|index| self.chunk_free(index));
        let aside = (1..=self.slots_high()).map(|id| self.has_aside(id, BLOCK));
        let mut free = 0;
        for more in chunks.chain(aside) {
            free += more;
            if free >= most {
                return most;
            }
        }
        free
    }

    /// Whether a block is taken in its bitmap (for the checker).
    pub fn block_taken(&self, block: u32) -> bool {
        let chunk = self.region.map.chunk(block / CHUNK_BLOCKS);
        let at = block % CHUNK_BLOCKS;
        self.region.load(chunk.word(BITMAP + at / 64)) >> (at % 64) & 1 == 1
    }

    /// The chunk's own count of free blocks (for the checker).
    pub fn chunk_free(&self, index: u32) -> u64 {
        self.region.load(self.region.map.chunk(index).word(FREE))
    }

    /// Calls `emit` for each block set aside by a slot (for the checker).
    pub fn each_block_aside(&self, emit: &mut dyn FnMut(u32)) {
        for id in 1..=self.slots_high() {
            let run = self.region.load(self.region.map.slot(id).word(RUN));
            for n in 0..run as u32 {
                emit((run >> 32) as u32 + n);
            }
        }
        self.each_magazine(BLOCK, emit);
    }
}

impl Txn<'_> {
    /// Makes blocks from `blocks_ahead` the caller's.
    pub fn take_blocks(&mut self, blocks: Blocks) -> Result<(), Errno> {
        let run = self.get(self.base.word(RUN));
        if (run >> 32) as u32 == blocks.first && run as u32 >= blocks.count && run as u32 != 0 {
            let left = run as u32 - blocks.count;
            let first = if left == 0 { 0 } else { blocks.first + blocks.count };
            self.set(self.base.word(RUN), (first as u64) << 32 | left as u64);
            return Ok(());
        }
        let block = self.pop(BLOCK)?;
        if block == blocks.first && blocks.count == 1 { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Gives blocks back: single ones to the slot's stack at commit, runs to the bitmaps.
    pub fn free_blocks(&mut self, blocks: Blocks) -> Result<(), Errno> {
        if blocks.count == 1 && self.free_room() > 16 {
            self.free(BLOCK, blocks.first);
            return Ok(());
        }
        self.unmark(blocks)
    }

    /// Clears bits; a run must not leave its chunk when others are freed in the same transaction.
    fn unmark(&mut self, blocks: Blocks) -> Result<(), Errno> {
        let (mut first, mut count) = (blocks.first, blocks.count);
        while count > 0 {
            let start = first % CHUNK_BLOCKS;
            let here = count.min(CHUNK_BLOCKS - start);
            let chunk = self.region.map.chunk(first / CHUNK_BLOCKS);
            self.lock(chunk)?;
            self.mark(chunk, start, here, false);
            self.note_freed(first / CHUNK_BLOCKS);
            first += here;
            count -= here;
        }
        Ok(())
    }

    /// Lowers the hint where to look for blocks of removed files first.
    fn note_freed(&self, index: u32) {
        let word = Cell::at(header::FREED);
        let lowest = self.region.load(word);
        if lowest == 0 || lowest > index as u64 + 1 {
            self.region.store(word, index as u64 + 1);
        }
    }

    /// Sets or clears `count` bits from `start` and keeps the chunk's count.
    fn mark(&mut self, chunk: Cell, start: u32, count: u32, taken: bool) {
        let mut at = start;
        while at < start + count {
            let here = (64 - at % 64).min(start + count - at);
            let ones = if here == 64 { u64::MAX } else { (1 << here) - 1 } << (at % 64);
            let cell = chunk.word(BITMAP + at / 64);
            let word = self.get(cell);
            debug_assert_eq!(word & ones, if taken { 0 } else { ones }, "block state");
            self.set(cell, if taken { word | ones } else { word & !ones });
            at += here;
        }
        let free = self.get(chunk.word(FREE));
        let count = count as u64;
        self.set(chunk.word(FREE), if taken { free - count } else { free + count });
    }

    /// The first gap of at least `least` blocks that begins at `from` or later, whole.
    fn gap_from(&self, chunk: Cell, from: u32, least: u32) -> Option<(u32, u32)> {
        let taken = |at: u32| self.get(chunk.word(BITMAP + at / 64)) >> (at % 64) & 1 == 1;
        let mut start = from;
        for at in from..=CHUNK_BLOCKS {
            if at == CHUNK_BLOCKS || taken(at) {
                if at - start >= least {
                    return Some((start, at - start));
                }
                start = at + 1;
            }
        }
        None
    }

    /// The first gap of at least `want` blocks, else the longest.
    fn longest_gap(&self, chunk: Cell, want: u32) -> (u32, u32) {
        let (mut best, mut length) = (0, 0);
        let (mut start, mut at) = (0, 0);
        while at <= CHUNK_BLOCKS {
            let end = at == CHUNK_BLOCKS;
            let word = if end { u64::MAX } else { self.get(chunk.word(BITMAP + at / 64)) };
            if !end && at.is_multiple_of(64) && word == 0 && at + 64 - start < want {
                at += 64;
                continue;
            }
            if word >> (at % 64) & 1 == 1 || at - start >= want {
                if at - start > length {
                    (best, length) = (start, at - start);
                }
                if length >= want || end {
                    break;
                }
                start = at + 1;
            }
            at += 1;
        }
        (best, length)
    }
}
