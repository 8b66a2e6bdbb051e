//! Objects and blocks: from the slot's magazine, refilled from and spilled to the partitions'
//! pools.
//!
//! ```text
//!   slot magazine (<= 64, no lock)  <-16..32->  pool of partition slot & mask  <-  other pools
//!                                                        ^ never used yet: bump pointer,
//!                                                          unless another pool has plenty
//! ```
//!
//! 1. Refill and spill are transactions of their own, run before an operation begins: no operation
//!    holds a pool's lock.
//! 2. A magazine rests between `LOW` and `HIGH` objects, so an operation finds `LOW` and has room
//!    to give back `FREES_MAX`. It sees ENOSPC only when every pool and every other slot are empty:
//!    it steals from other slots first (`steal`).
//! 3. Objects that one thread takes and another gives back do not use up unused ones: a pool with
//!    `PLENTY` is taken from first, wherever it is.
//! 4. An object in a pool is linked through the low half of its word 1. In a free object only
//!    that, the high half of word 1 and word 0 mean anything (generation, version, lock).

use husk_abi::Errno;

use crate::arena::layout::{CLASSES, header};
use crate::arena::memory::{Cell, Without};
use crate::hooks::kill;
use crate::pools::reserve::{RESERVED, paid_back};
use crate::txn::journal::{RETRIES_MAX, RETRY, Txn};
use crate::txn::session::{COUNTS, MAGAZINE_ITEMS, MAGAZINES, Session, UNBALANCED};

/// Magazine of single blocks, beside the slab classes.
pub(crate) const BLOCK: usize = CLASSES;
pub(crate) const LOW: u64 = 12;
pub(crate) const HIGH: u64 = 32;
const REFILL: u64 = 16;
const SPILL: u64 = 16;
/// Objects of a pool that others are let in for, though there are never used ones.
const PLENTY: u64 = 64;
/// Other pools looked at before anything never used is taken.
const LOOKS: u32 = 4;
const POOL_LOCK: u32 = 4;
const POOL: u32 = 5;

pub(crate) fn count_of(base: Cell, class: usize) -> Cell {
    base.word(COUNTS + class as u32)
}

pub(crate) fn item(base: Cell, class: usize, n: u64) -> Cell {
    base.word(MAGAZINES + class as u32 * MAGAZINE_ITEMS + n as u32)
}

impl Txn<'_> {
    /// An object of `class`; nobody reaches it before commit. `ENOSPC`.
    #[inline]
    pub fn allocate(&mut self, class: usize) -> Result<u32, Errno> {
        if kill::refuses() { Err(Errno::ENOSPC) } else { self.pop(class) }
    }

    /// Takes from a magazine.
    #[inline]
    pub(crate) fn pop(&mut self, class: usize) -> Result<u32, Errno> {
        self.mind_thieves()?;
        let cell = count_of(self.base, class);
        let count = self.get(cell);
        if count == 0 || count > MAGAZINE_ITEMS as u64 || self.session.is_kept(class) {
            return Err(self.session.hungry(class));
        }
        if count <= LOW && class != BLOCK {
            self.session.note(UNBALANCED);
        }
        self.change(cell, count, count - 1);
        Ok(self.get(item(self.base, class, count - 1)) as u32)
    }

    /// Adds to a magazine; the place may hold what this very transaction took, so it is logged.
    pub(crate) fn push(&mut self, class: usize, number: u32) {
        let cell = count_of(self.base, class);
        let count = self.get(cell);
        assert!(count < MAGAZINE_ITEMS as u64, "magazine overflow (invariant 2)");
        if count >= HIGH {
            self.session.note(UNBALANCED);
        }
        let place = item(self.base, class, count);
        let before = self.get(place);
        if before != number as u64 {
            self.change(place, before, number as u64);
        }
        self.change(cell, count, count + 1);
    }
}

impl Session {
    /// Brings the magazines between their marks; called when one may be outside (`UNBALANCED`).
    #[cold]
    pub(crate) fn prepare(&self) -> Result<(), Errno> {
        let base = self.base()?;
        self.hunger.set(0);
        for class in 0..CLASSES {
            let count = self.region.load(count_of(base, class));
            // What is kept is left where all find it.
            if !(LOW..=HIGH).contains(&count) && (count > HIGH || !self.is_kept(class)) {
                self.balance(class, count)?;
            }
        }
        if self.region.load(count_of(base, BLOCK)) > HIGH {
            self.spill_blocks(HIGH - SPILL)?;
        }
        // An image that is full keeps trying.
        let count = |class| self.region.load(count_of(base, class));
        let rests = (0..CLASSES).all(|class| (LOW..=HIGH).contains(&count(class)));
        if rests && count(BLOCK) <= HIGH {
            self.forget(UNBALANCED);
        }
        Ok(())
    }

    #[cold]
    fn balance(&self, class: usize, count: u64) -> Result<(), Errno> {
        if count < LOW { self.refill(class).map(|_| ()) } else { self.spill(class) }
    }

    /// An allocation has found none of `class`: what it fails with, unless `feed` finds some.
    #[cold]
    fn hungry(&self, class: usize) -> Errno {
        self.hunger.set(self.hunger.get() | 1 << class);
        self.note(UNBALANCED);
        Errno::ENOSPC
    }

    /// After a transaction that failed for want of objects: whether there are some now.
    #[cold]
    pub(crate) fn feed(&self) -> Result<bool, Errno> {
        let hunger = self.hunger.replace(0);
        let mut fed = false;
        for class in (0..CLASSES).filter(|class| hunger >> class & 1 == 1) {
            fed |= match self.is_kept(class) {
                true => self.pay(class)?,
                false => self.refill(class)? || self.steal(class)?,
            };
        }
        Ok(fed)
    }

    /// From the own pool, from others that have plenty, from what was never used, from the others'
    /// pools, in this order; whether there was one. What slots have is left to them (`steal`).
    fn refill(&self, class: usize) -> Result<bool, Errno> {
        let own = self.slot()? & self.region.pools;
        let reserved = RESERVED[class] as u64;
        let limit = (self.region.map.classes[class].count as u64).saturating_sub(reserved);
        if self.refill_from(own, class)?
            || self.refill_from_plenty(class)?
            || self.refill_fresh(class, REFILL, limit)?
        {
            return Ok(true);
        }
        self.refill_from_any(class)
    }

    /// From any pool, the own one first.
    pub(crate) fn refill_from_any(&self, class: usize) -> Result<bool, Errno> {
        let own = self.slot()? & self.region.pools;
        for other in 0..=self.region.map.partition_mask {
            if self.refill_from(own + other, class)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// From one of a few other pools that has plenty (invariant 3). Which ones moves on with each
    /// refill of never used objects, so that all have their turn, and none costs more than this.
    fn refill_from_plenty(&self, class: usize) -> Result<bool, Errno> {
        let bump = self.region.load(Cell::at(header::BUMP + class as u32));
        let first = (bump / REFILL) as u32 * LOOKS;
        for partition in (first..first + LOOKS).map(|n| n & self.region.map.partition_mask) {
            let head = self.region.map.partition(partition).word(POOL + class as u32);
            if self.region.load(head) >> 32 >= PLENTY && self.refill_from(partition, class)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn refill_from(&self, partition: u32, class: usize) -> Result<bool, Errno> {
        let pool = self.region.map.partition(partition);
        let head_cell = pool.word(POOL + class as u32);
        if self.region.load(head_cell) == 0 {
            return Ok(false);
        }
        self.quiet(|txn| {
            if kill::mutant() != 44 {
                txn.lock(pool.word(POOL_LOCK))?;
            }
            txn.mind_thieves()?;
            let mut head = txn.get(head_cell);
            let had = txn.get(count_of(txn.base, class));
            let mut taken = 0;
            while taken < REFILL && head as u32 != 0 {
                txn.init(item(txn.base, class, had + taken), head as u32 as u64);
                let object = txn.region.map.object(class, head as u32);
                head = (head - (1 << 32)) & !0xffff_ffff | txn.get(object.word(1)) & 0xffff_ffff;
                taken += 1;
            }
            txn.set(head_cell, head);
            txn.set(count_of(txn.base, class), had + taken);
            Ok(taken > 0)
        })
    }

    /// At most `wanted` objects, below `limit`, that were never used.
    fn refill_fresh(&self, class: usize, wanted: u64, limit: u64) -> Result<bool, Errno> {
        let bump = Cell::at(header::BUMP + class as u32);
        if self.region.load(bump) >= limit {
            return Ok(false);
        }
        self.quiet(|txn| {
            txn.lock(Cell::at(header::BUMP_LOCK))?;
            txn.mind_thieves()?;
            let next = txn.get(bump);
            let had = txn.get(count_of(txn.base, class));
            let taken = wanted.min(limit.saturating_sub(next));
            for n in 0..taken {
                txn.meet_new(txn.region.map.object(class, (next + n) as u32));
                // The lowest number on top.
                txn.init(item(txn.base, class, had + taken - 1 - n), next + n);
            }
            txn.set(bump, next + taken);
            txn.set(count_of(txn.base, class), had + taken);
            Ok(taken > 0)
        })
    }

    fn spill(&self, class: usize) -> Result<(), Errno> {
        self.spill_to(self.slot()? & self.region.pools, class)
    }

    /// Gives up to `SPILL` objects to the pool of a partition.
    fn spill_to(&self, partition: u32, class: usize) -> Result<(), Errno> {
        let pool = self.region.map.partition(partition);
        let head_cell = pool.word(POOL + class as u32);
        self.quiet(|txn| {
            txn.lock(pool.word(POOL_LOCK))?;
            txn.mind_thieves()?;
            let mut head = txn.get(head_cell);
            let count = txn.get(count_of(txn.base, class));
            let spilled = count.min(SPILL);
            // The coldest go: those at the bottom; the rest moves down.
            for n in 0..spilled {
                let number = txn.get(item(txn.base, class, n)) & 0xffff_ffff;
                txn.link(class, number, head);
                head = ((head & !0xffff_ffff) + (1 << 32)) | number;
            }
            for n in spilled..count {
                let number = txn.get(item(txn.base, class, n));
                txn.set(item(txn.base, class, n - spilled), number);
            }
            txn.set(head_cell, head);
            txn.set(count_of(txn.base, class), count - spilled);
            Ok(())
        })
    }

    /// A transaction that needs no magazine.
    pub(crate) fn quiet<T>(
        &self,
        mut body: impl FnMut(&mut Txn<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for _ in 0..RETRIES_MAX {
            match self.begin()?.conclude(&mut body) {
                Err(RETRY) => self.after(RETRY)?,
                result => return result,
            }
        }
        Err(Errno::EIO)
    }

    /// Words of the bump heap for records that live as long as the image; zero or stale inside.
    /// Taken inside a transaction: they come back when it fails. `ENOSPC`.
    pub fn heap_ready(&self, words: u32) -> Result<(), Errno> {
        if kill::refuses() {
            return Err(Errno::ENOSPC);
        }
        let run = self.base()?.word(crate::txn::session::HEAP);
        let value = self.region.load(run);
        if (value >> 32).saturating_sub(value & 0xffff_ffff) >= words as u64 {
            return Ok(());
        }
        let grant = words.max(256) as u64;
        self.quiet(|txn| {
            let bump = Cell::at(header::BUMP + CLASSES as u32);
            txn.lock(Cell::at(header::BUMP_LOCK))?;
            let next = txn.get(bump);
            if next + grant > txn.region.map.heap_end as u64 {
                return Err(Errno::ENOSPC);
            }
            txn.set(bump, next + grant);
            txn.set(run, (next + grant) << 32 | next);
            Ok(())
        })
    }

    /// One past the last word of the bump heap that anybody was given.
    pub fn heap_used(&self) -> u32 {
        self.region.load(Cell::at(header::BUMP + CLASSES as u32)) as u32
    }

    /// Objects of `class` that are free (pools and never used), about.
    pub fn free_count(&self, class: usize) -> u64 {
        let mut free = self.region.map.classes[class].count as u64
            - self.region.load(Cell::at(header::BUMP + class as u32));
        for index in 0..=self.region.map.partition_mask {
            free +=
                self.region.load(self.region.map.partition(index).word(POOL + class as u32)) >> 32;
        }
        let paid = paid_back(class).map_or(0, |paid| self.region.load(paid) >> 32);
        free + paid + self.aside(class)
    }

    /// Objects of `class` that somebody who has none can still get, about: the reserve is not among
    /// them. While there are plenty, what slots have in their magazines is not counted.
    pub fn spare_count(&self, class: usize) -> u64 {
        let limit = self.region.map.classes[class].count.saturating_sub(RESERVED[class]) as u64;
        let bump = self.region.load(Cell::at(header::BUMP + class as u32));
        let pool = |index| self.region.map.partition(index).word(POOL + class as u32);
        let pools = (0..=self.region.map.partition_mask).map(|n| self.region.load(pool(n)) >> 32);
        let (spare, owed) = (limit.saturating_sub(bump) + pools.sum::<u64>(), self.owed(class));
        let aside = if spare >= PLENTY + owed { 0 } else { self.aside(class) };
        (spare + aside).saturating_sub(owed)
    }

    /// What all slots have in a magazine.
    fn aside(&self, class: usize) -> u64 {
        (1..=self.slots_high()).map(|id| self.has_aside(id, class)).sum()
    }

    /// Calls `emit` for each free object of `class` that was used before (for the checker).
    pub fn each_free(&self, class: usize, emit: &mut dyn FnMut(u32)) {
        let map = &self.region.map;
        let pools = (0..=map.partition_mask).map(|n| map.partition(n).word(POOL + class as u32));
        for pool in pools.chain(paid_back(class)) {
            let mut head = self.region.load(pool) as u32;
            let mut left = map.classes[class].count;
            while head != 0 && left > 0 {
                emit(head);
                head = self.region.load(map.object(class, head).word(1)) as u32;
                left -= 1;
            }
        }
        self.each_magazine(class, emit);
    }

    /// Calls `emit` for each object in a magazine.
    pub(crate) fn each_magazine(&self, class: usize, emit: &mut dyn FnMut(u32)) {
        for id in 1..=self.slots_high() {
            let base = self.region.map.slot(id);
            for n in 0..self.region.load(count_of(base, class)) {
                emit(self.region.load(item(base, class, n)) as u32);
            }
        }
    }

    /// First object of `class` that was never used.
    pub fn never_used(&self, class: usize) -> u32 {
        self.region.load(Cell::at(header::BUMP + class as u32)) as u32
    }
}

impl Txn<'_> {
    /// An object that was never used is about to be.
    pub(crate) fn meet_new(&self, object: Cell) {
        if self.region.without().has(Without::OPTIMISTIC) {
            self.region.doubt_new(object);
        }
    }

    /// Free object `number` comes before `head` in a list.
    pub(crate) fn link(&mut self, class: usize, number: u64, head: u64) {
        let link = self.region.map.object(class, number as u32).word(1);
        // The high half is a generation in some classes: it stays.
        self.init(link, (self.get(link) & !0xffff_ffff) | (head & 0xffff_ffff));
    }

    /// `words` of the heap that `heap_ready` has set aside.
    pub fn heap(&mut self, words: u32) -> Result<Cell, Errno> {
        let run = self.base.word(crate::txn::session::HEAP);
        let value = self.get(run);
        let next = value & 0xffff_ffff;
        if next + words as u64 > value >> 32 {
            return Err(Errno::ENOSPC);
        }
        self.set(run, value + words as u64);
        Ok(self.region.map.heap(next as u32))
    }
}
