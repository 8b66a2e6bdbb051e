//! A thread's seat: its slot in the region, taken at the first operation that needs one.
//!
//! ```text
//!   slot, words:  0 phase:32 length:32   1 transactions   2 waits for   3 pending
//!                 4..8 long locks        8..13 magazine counts     13 block run
//!                 14 heap run            15 chunk hint
//!                 16..48 frees of this transaction    48..79 tallies (`tally`)    79 seat
//!                 80..400 magazines    400..912 journal    912 lent
//! ```
//!
//! What an ordinary operation needs of its slot, 56 entries of the journal included, is one page.

use core::cell::Cell as Local;

use husk_abi::Errno;

use crate::arena::layout::{CLASSES, SLOT_WORDS, SLOTS, header};
use crate::arena::memory::{Cell, Region};
use crate::hooks::kill;
use crate::txn::life::{self, Life};
use crate::txn::outlying::Outlying;
use crate::txn::passthrough_bits::Passes;
use crate::txn::tally::{LOOKS_MAX, TALLIES_END, WAITS};

pub(crate) const STATE: u32 = 0;
pub(crate) const TRANSACTIONS: u32 = 1;
pub(crate) const WAITS_FOR: u32 = 2;
pub(crate) const PENDING: u32 = 3;
pub(crate) const LONG: u32 = 4;
pub(crate) const LONG_MAX: u32 = 4;
pub(crate) const COUNTS: u32 = 8;
pub(crate) const RUN: u32 = 13;
pub(crate) const HEAP: u32 = 14;
pub(crate) const CHUNK_HINT: u32 = 15;
pub(crate) const FREES: u32 = 16;
pub(crate) const FREES_MAX: u32 = 32;
pub(crate) const TALLIES: u32 = 48;
/// A lock word for who takes from the magazines and has locked nothing else (`steal`).
pub(crate) const SEAT: u32 = 79;
pub(crate) const MAGAZINES: u32 = 80;
pub(crate) const MAGAZINE_ITEMS: u32 = 64;
pub(crate) const JOURNAL: u32 = 400;
pub(crate) const JOURNAL_MAX: u32 = 256;
/// A lock word that is held while the slot's run is not for filling (`Session::borrow_gap`).
pub(crate) const LENT: u32 = 912;
/// How many things that others count the owner is in the middle of (`Session::enter`).
const ENTERED: u32 = 913;

// One part of a slot behind the other.
const _: () = {
    assert!(LONG + LONG_MAX <= COUNTS && COUNTS + (CLASSES as u32) < RUN && CHUNK_HINT < FREES);
    assert!(FREES + FREES_MAX <= TALLIES && TALLIES_END <= SEAT && SEAT < MAGAZINES);
    assert!(MAGAZINES + (CLASSES as u32 + 1) * MAGAZINE_ITEMS <= JOURNAL);
    assert!(JOURNAL + 2 * JOURNAL_MAX <= LENT && LENT < ENTERED && ENTERED < SLOT_WORDS);
};

/// Attention: a magazine may be outside its marks.
pub(crate) const UNBALANCED: u32 = 1;
/// Attention: the slot's word of left-over work may not be 0.
pub(crate) const LEFT_OVER: u32 = 2;
/// Attention: the first bit for the room above.
pub const ATTENTION_ABOVE: u32 = 1 << 8;

/// A thread's seat. Not `Sync`: one per thread.
#[derive(Debug)]
pub struct Session {
    /// The region.
    pub region: Region,
    slot: Local<u32>,
    /// First word of the slot, or of one that is nobody's or was ours.
    base: Local<Cell>,
    /// `UNBALANCED`, `LEFT_OVER`, and what the room above keeps there.
    attention: Local<u32>,
    /// Locks that were not there for the taking.
    waits: Local<u32>,
    /// A word of the room above, for what is to be done beside a transaction.
    wish: Local<u64>,
    /// What `Txn::retry_after` waits for.
    pub(crate) awaited: Local<Option<Cell>>,
    /// Classes of which an allocation has found none, a bit each.
    pub(crate) hunger: Local<u32>,
    /// It may have what is kept (`reserve`).
    pub(crate) reserved: Local<bool>,
    /// No other thread acts for this one's process.
    alone: Local<bool>,
    /// Runs of blocks it has set aside so far.
    runs: Local<u32>,
    /// Looks so far (`tally`): of this seat, and of the slot's owners before.
    pub(crate) looks: [Local<u64>; LOOKS_MAX],
    /// The huge page of the cache it got last, and its chunk's version then.
    pub(crate) gathered: Local<(u32, u64)>,
    /// The host has refused it one.
    pub(crate) small_pages: Local<bool>,
    /// Its run has no memory yet, or none that this process has mapped (`populate`).
    pub(crate) unmapped: Local<bool>,
    /// The kernel whose seats it takes, plus one; 0 = any.
    kernel: Local<u32>,
    /// Called before a call that only looks stores something.
    unguard: Local<fn()>,
    /// Numbers whose calls are the host's (`passthrough_bits`).
    pub(crate) passes: Passes,
    /// Numbers of directories in which no name leads into a tree (`outlying`).
    pub(crate) outlying: Outlying,
    #[cfg(feature = "holds")]
    pub(crate) hold: crate::txn::lock_hold_stats::Hold,
    /// It never waits, and changes nothing.
    pub(crate) only_looks: bool,
    pid: u32,
    tid: u32,
}

/// What others may know of a slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotView {
    /// Its number.
    pub id: u32,
    /// Host process of its owner, 0 when it is free.
    pub pid: u32,
    /// Thread of its owner.
    pub tid: u32,
    /// What its owner waits for (set by `Session::set_waits_for`).
    pub waits_for: u64,
    /// Work left over (set by `Txn::set_pending`).
    pub pending: u64,
}

impl Session {
    /// A seat for thread `tid` of process `pid`, without a slot yet.
    pub fn new(region: Region, pid: u32, tid: u32) -> Session {
        let base = Local::new(region.map.slot(0));
        Session {
            region,
            slot: Local::new(0),
            base,
            attention: Local::new(0),
            waits: Local::new(0),
            wish: Local::new(0),
            awaited: Local::new(None),
            hunger: Local::new(0),
            reserved: Local::new(false),
            alone: Local::new(false),
            runs: Local::new(0),
            looks: Default::default(),
            gathered: Local::new((0, 0)),
            small_pages: Local::new(false),
            unmapped: Local::new(false),
            kernel: Local::new(0),
            unguard: Local::new(|| {}),
            passes: Passes::default(),
            outlying: Outlying::default(),
            #[cfg(feature = "holds")]
            hold: Default::default(),
            only_looks: false,
            pid,
            tid,
        }
    }

    /// A seat in a region that is mapped to be read only: looks (`read`) go, and `EAGAIN` says that
    /// somebody was changing what was looked at. Anything else is a fault of the caller.
    pub fn that_looks(region: Region) -> Session {
        Session { only_looks: true, ..Session::new(region, 0, 0) }
    }

    /// Whether this is the only thread that acts for its process: what is the process's alone needs
    /// no lock then. Who cleans up after it must recover its slot first.
    #[inline(always)]
    pub fn is_alone(&self) -> bool {
        self.alone.get()
    }

    /// Says so. Before the process gets a second thread, it is to say no.
    pub fn set_alone(&self, alone: bool) {
        self.alone.set(alone);
        self.clear_passes();
    }

    /// What is to be called before a call that only looks, as a rule, stores something: where
    /// stores are kept out, it lets this one in, for less than the fault would cost.
    pub fn set_unguard(&self, unguard: fn()) {
        self.unguard.set(unguard);
    }

    /// A call that only looks, as a rule, is about to store something.
    #[cold]
    #[inline(never)]
    pub fn unguard(&self) {
        (self.unguard.get())();
    }

    /// How many runs of blocks were set aside before; now one more was.
    pub(crate) fn count_run(&self) -> u32 {
        self.runs.replace(self.runs.get().saturating_add(1))
    }

    /// The host process this seat is for.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The thread this seat is for.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// The slot, taken now if need be. `EAGAIN` when all are taken.
    #[inline]
    pub fn slot(&self) -> Result<u32, Errno> {
        match self.slot.get() {
            0 => self.take_slot(),
            slot => Ok(slot),
        }
    }

    /// The slot if one has been taken, else 0.
    pub fn slot_if_any(&self) -> u32 {
        self.slot.get()
    }

    /// Which kernel's seats it is to take from now on; `None`: any.
    pub fn prefer_kernel(&self, kernel: Option<u32>) {
        self.kernel.set(kernel.map_or(0, |kernel| kernel + 1));
    }

    #[cold]
    fn take_slot(&self) -> Result<u32, Errno> {
        let wanted = self.kernel.get();
        if wanted != 0 {
            let theirs = |id: &u32| self.region.kernel_of(*id) + 1 == wanted;
            if let Ok(id) = self.take_slot_of((1..SLOTS).filter(theirs)) {
                return Ok(id);
            }
        }
        self.take_slot_of(1..SLOTS)
    }

    /// Takes the first free one of these.
    fn take_slot_of(&self, slots: impl Iterator<Item = u32>) -> Result<u32, Errno> {
        let mine = (self.pid as u64) << 32 | self.tid as u64;
        for id in slots {
            let owner = self.region.map.owner(id);
            if self.region.load(owner) == 0 && self.region.swap_if(owner, 0, mine) {
                self.sit_down(id);
                self.raise_high(id);
                let base = self.region.map.slot(id);
                // A load comes first: its fault maps the neighbours too.
                let hint = self.region.load(base.word(CHUNK_HINT));
                self.region.store(base.word(WAITS_FOR), 0);
                self.region.store(base.word(ENTERED), 0);
                if hint == 0 {
                    let spread = (id & self.region.pools).wrapping_mul(husk_abi::SPREAD_32)
                        % self.region.map.chunk_count;
                    self.region.store(base.word(CHUNK_HINT), spread as u64 | 1 << 32);
                }
                return Ok(id);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Slot `id` is this seat's now, with whatever its last owner left in it.
    fn sit_down(&self, id: u32) {
        self.base.set(self.region.map.slot(id));
        self.slot.set(id);
        self.count_on(self.base.get());
        self.note(UNBALANCED | LEFT_OVER);
    }

    /// Whether anything but the ordinary is to be done before or after a transaction.
    #[inline(always)]
    pub fn attention(&self) -> u32 {
        self.attention.get()
    }

    /// Asks for attention.
    #[inline]
    pub fn note(&self, what: u32) {
        self.attention.set(self.attention.get() | what);
    }

    /// How often this thread has waited for a lock so far (it wraps).
    #[inline(always)]
    pub fn waits(&self) -> u32 {
        self.waits.get()
    }

    #[cold]
    pub(crate) fn count_wait(&self) {
        self.waits.set(self.waits.get().wrapping_add(1));
        self.note_tally(WAITS);
    }

    /// What the room above has left here with `set_wish`.
    pub fn wish(&self) -> u64 {
        self.wish.get()
    }

    /// Leaves a word for later: what to do before a transaction is tried again, or after it.
    pub fn set_wish(&self, wish: u64) {
        self.wish.set(wish);
    }

    /// Needs it no more.
    #[inline]
    pub fn forget(&self, what: u32) {
        self.attention.set(self.attention.get() & !what);
    }

    fn raise_high(&self, id: u32) {
        let high = Cell::at(header::SLOTS_HIGH);
        loop {
            let now = self.region.load(high);
            if now >= id as u64 || self.region.swap_if(high, now, id as u64) {
                return;
            }
        }
    }

    /// Gives the slot back; no operation runs.
    pub fn detach(&self) {
        let slot = self.slot.replace(0);
        if slot != 0 {
            let base = self.region.map.slot(slot);
            self.publish(base);
            self.looks.iter().for_each(|kept| kept.set(0));
            self.region.store(base.word(WAITS_FOR), 0);
            self.vacate(slot);
        }
    }

    /// From now on a slot is nobody's. That it is left with work in it is said before, for whoever
    /// dies here, and after, for whoever finishes what is left and passed the slot in between.
    pub(crate) fn vacate(&self, slot: u32) {
        let left = self.region.load(self.region.map.slot(slot).word(PENDING)) != 0;
        let say = || {
            if left {
                self.region.add(Cell::at(header::LEFT_BEHIND), 1);
            }
        };
        say();
        kill::point();
        self.region.store(self.region.map.owner(slot), 0);
        kill::point();
        say();
    }

    /// Calls `finish` with each free slot that has work in it, if any was left with some since all
    /// was finished. What fails, or dies half-way, is found again.
    pub fn finish_left_behind(
        &self,
        mut finish: impl FnMut(u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (left, finished) = (Cell::at(header::LEFT_BEHIND), Cell::at(header::LEFT_FINISHED));
        let before = self.region.load(left);
        if before == self.region.load(finished) {
            return Ok(());
        }
        let mut result = Ok(());
        for id in 1..=self.slots_high() {
            let free = self.owner(id).0 == 0;
            if free && self.region.load(self.region.map.slot(id).word(PENDING)) != 0 {
                result = finish(id).and(result);
            }
        }
        if result.is_ok() {
            self.region.store(finished, before);
        }
        result
    }

    /// After a fork or in a new thread: this seat is for another thread now and has no slot.
    pub fn reseat(&mut self, pid: u32, tid: u32) {
        self.slot.set(0);
        // What was looked at before is the other one's.
        self.looks.iter().for_each(|kept| kept.set(0));
        self.pid = pid;
        self.tid = tid;
    }

    /// First word of the own slot.
    #[inline(always)]
    pub(crate) fn base(&self) -> Result<Cell, Errno> {
        if self.slot.get() == 0 {
            self.take_slot()?;
        }
        Ok(self.base.get())
    }

    /// Notes whom this thread waits for (0 = nobody), for the search for circles.
    pub fn set_waits_for(&self, value: u64) -> Result<(), Errno> {
        self.region.store(self.base()?.word(WAITS_FOR), value);
        Ok(())
    }

    /// Host process and thread that own a slot.
    pub fn owner(&self, slot: u32) -> (u32, u32) {
        let word = self.region.load(self.region.map.owner(slot));
        ((word >> 32) as u32, word as u32)
    }

    /// Says that this thread is in the middle of something that others count. Without a slot it
    /// cannot say so.
    pub fn enter(&self) {
        self.entered(|count| count + 1);
    }

    /// It is through. It may have got a slot only since it began.
    pub fn leave(&self) {
        self.entered(|count| count.saturating_sub(1));
    }

    fn entered(&self, count: impl FnOnce(u64) -> u64) {
        if let Ok(id) = self.slot() {
            let cell = self.region.map.slot(id).word(ENTERED);
            self.region.store(cell, count(self.region.load(cell)));
        }
    }

    /// Whether a thread that lives is in the middle of such a thing.
    pub fn is_any_entered(&self) -> bool {
        (1..=self.slots_high()).any(|id| {
            let (pid, tid) = self.owner(id);
            pid != 0
                && self.region.load(self.region.map.slot(id).word(ENTERED)) != 0
                && life::judge(pid, tid) != Life::Dead
        })
    }

    /// Highest slot ever taken.
    pub fn slots_high(&self) -> u32 {
        (self.region.load(Cell::at(header::SLOTS_HIGH)) as u32).min(SLOTS - 1)
    }

    /// What is known of slot `id`.
    pub fn view(&self, id: u32) -> SlotView {
        let (pid, tid) = self.owner(id);
        let base = self.region.map.slot(id);
        SlotView {
            id,
            pid,
            tid,
            waits_for: self.region.load(base.word(WAITS_FOR)),
            pending: self.region.load(base.word(PENDING)),
        }
    }

    /// Length of a slot's journal if it is not empty (for the checker).
    pub fn open_journal(&self, id: u32) -> Option<u64> {
        let state = self.region.load(self.region.map.slot(id).word(STATE));
        (state != 0).then_some(state)
    }

    /// Whether the owner of a slot is in the middle of something that others may wait for.
    pub fn holds(&self, id: u32) -> bool {
        self.holds_long(self.region.map.slot(id)) || self.open_journal(id).is_some()
    }

    /// Whether a slot's owner has, or is about to take, a lock that outlives transactions.
    pub(crate) fn holds_long(&self, base: Cell) -> bool {
        (0..LONG_MAX).any(|n| self.region.load_in_order(base.word(LONG + n)) != 0)
    }

    /// Whether this thread is within a transaction that has locked or changed something.
    pub(crate) fn runs_transaction(&self) -> bool {
        self.slot.get() != 0 && self.region.load(self.base.get().word(STATE)) != 0
    }

    /// The left-over work of the own slot (see `Txn::set_pending`).
    #[inline]
    pub fn pending(&self) -> Result<u64, Errno> {
        let base = self.base()?;
        if self.attention.get() & LEFT_OVER == 0 {
            return Ok(0);
        }
        let work = self.region.load(base.word(PENDING));
        if work == 0 {
            self.forget(LEFT_OVER);
        }
        Ok(work)
    }

    /// Takes free slot `id`, for its left-over work; whether it was free.
    pub fn adopt_slot(&self, id: u32) -> bool {
        let mine = (self.pid as u64) << 32 | self.tid as u64;
        if self.slot.get() != 0 || !self.region.swap_if(self.region.map.owner(id), 0, mine) {
            return false;
        }
        self.sit_down(id);
        true
    }

    /// Takes a lock that outlives transactions (an offset, a file's writer lock). Recovery lets go
    /// of it when this thread dies. At most four at a time.
    #[inline]
    pub fn lock_long(&self, cell: Cell) -> Result<(), Errno> {
        let base = self.base()?;
        let slot = self.slot.get();
        for n in 0..LONG_MAX {
            let held = base.word(LONG + n);
            if self.region.load(held) == 0 {
                self.region.store(held, cell.name());
                kill::point();
                let taken = self.acquire(cell, slot);
                match taken {
                    Ok(()) => self.long_begins(),
                    Err(_) => self.region.store(held, 0),
                }
                kill::point();
                return taken;
            }
        }
        Err(Errno::EIO)
    }

    /// Lets go of a long lock.
    #[inline]
    pub fn unlock_long(&self, cell: Cell) {
        let base = self.base.get();
        for n in 0..LONG_MAX {
            let held = base.word(LONG + n);
            if self.region.load(held) == cell.name() {
                self.release(cell);
                self.long_ends();
                kill::point();
                self.region.store(held, 0);
                return;
            }
        }
    }
}
