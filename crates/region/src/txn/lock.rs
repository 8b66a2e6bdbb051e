//! Lock words: token, writer lock and sequence in one.
//!
//! ```text
//!   63      48 47                       2   1       0
//!   [ owner   |  sequence               | waiters | locked ]
//! ```
//!
//! 1. At rest a word is `sequence << 2`; a reader that finds the same resting word before and after
//!    has read what no writer touched.
//! 2. Letting go is one plain store. A waiter that sets `waiters` between the load and that store
//!    sleeps at most its 10 ms; the window is two instructions.
//! 3. A waiter spins about 2 us, then sleeps 10 ms at a time, judging the owner each time it wakes
//!    in vain; a dead owner is recovered on the spot. An owner that sleeps gets 1 s, one that is
//!    stopped or waits for a core 60 s; when owners change, somebody makes progress, and the count
//!    starts anew.

use core::sync::atomic::{Ordering, fence};

use husk_abi::{Errno, nr};
use husk_host::syscall;

use crate::arena::memory::{Cell, LOCKED, SEQUENCE_ONE, Without};
use crate::hooks::kill;
use crate::hooks::model_hooks;
use crate::txn::life::{self, Life};
use crate::txn::session::Session;

pub(crate) const WAITERS: u64 = 2;
const OWNER_SHIFT: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << OWNER_SHIFT) - 4;

const SLEEP_NS: u64 = 10_000_000;
const SLEEPS_MAX: u32 = 100;
const SLEEPS_HELD_UP_MAX: u32 = 6000;
/// Time-outs in all, whoever holds the word.
const TIME_OUTS_MAX: u32 = 6000;
/// Looks at one word before a reader gives up: far more than a storm can cause.
const LOOKS_MAX: u32 = 1 << 20;

/// The slot that holds a lock word, 0 when it is at rest.
#[inline(always)]
pub fn owner_of(word: u64) -> u32 {
    (word >> OWNER_SHIFT) as u32
}

/// Whether a lock word is held.
#[inline(always)]
pub fn is_locked(word: u64) -> bool {
    word & LOCKED != 0
}

/// Whether whoever holds `word` now took it when it rested as it was `seen`: nobody has had it
/// meanwhile.
#[inline]
pub fn is_held_since(word: u64, seen: u64) -> bool {
    seen != NEVER_SEEN && is_locked(word) && (word ^ seen) & SEQUENCE_MASK == 0
}

/// A word at rest, held by `slot`.
#[inline(always)]
pub(crate) fn locked_by(word: u64, slot: u32) -> u64 {
    word | LOCKED | (slot as u64) << OWNER_SHIFT
}

/// Instead of the word at which something was seen: it cannot be seen again.
pub const NEVER_SEEN: u64 = u64::MAX;

/// What a word at rest was before its last holder let it go.
pub(crate) fn before(word: u64) -> u64 {
    (word & SEQUENCE_MASK).wrapping_sub(SEQUENCE_ONE) & SEQUENCE_MASK
}

/// How long somebody has waited for one word.
struct Patience {
    spins: u32,
    sleeps: u32,
    /// Time-outs against the holding `of`, and in all.
    time_outs: u32,
    all_time_outs: u32,
    of: u64,
}

impl Patience {
    const NEW: Patience = Patience { spins: 0, sleeps: 0, time_outs: 0, all_time_outs: 0, of: 0 };

    fn timed_out(&mut self, holding: u64) {
        self.time_outs = if self.of == holding { self.time_outs + 1 } else { 1 };
        self.of = holding;
        self.all_time_outs += 1;
    }
}

impl Session {
    /// Takes a lock word for `slot`; the intent is already logged (invariant 2 of the crate).
    #[inline(always)]
    pub(crate) fn acquire(&self, cell: Cell, slot: u32) -> Result<(), Errno> {
        self.acquire_seen(cell, slot, self.region.load(cell))
    }

    /// The same with `word` just seen there.
    #[inline(always)]
    pub(crate) fn acquire_seen(&self, cell: Cell, slot: u32, word: u64) -> Result<(), Errno> {
        let mine = locked_by(word, slot);
        if word & LOCKED == 0 && self.region.swap_if(cell, word, mine) {
            return Ok(());
        }
        self.acquire_slowly(cell, slot)
    }

    #[cold]
    fn acquire_slowly(&self, cell: Cell, slot: u32) -> Result<(), Errno> {
        self.count_wait();
        let mut patience = Patience::NEW;
        loop {
            let word = self.region.load(cell);
            if word & LOCKED == 0 {
                // Who has slept cannot know who else sleeps: keep the flag.
                let flag = if patience.sleeps > 0 { WAITERS } else { 0 };
                let mine = word | LOCKED | flag | (slot as u64) << OWNER_SHIFT;
                if self.region.swap_if(cell, word, mine) {
                    return Ok(());
                }
            } else {
                self.wait(cell, word, &mut patience)?;
            }
        }
    }

    /// Lets go of a lock word this slot holds, advancing its sequence.
    #[inline(always)]
    pub(crate) fn release(&self, cell: Cell) {
        let word = self.region.load(cell);
        let step = if kill::mutant() == 42 { 0 } else { SEQUENCE_ONE };
        self.region.store(cell, ((word & SEQUENCE_MASK) + step) & SEQUENCE_MASK);
        if word & WAITERS != 0 {
            self.wake(cell, 1);
        }
    }

    /// Runs `look` until nobody wrote meanwhile what `cell` guards.
    #[inline]
    pub fn read<T>(&self, cell: Cell, look: impl FnMut() -> T) -> Result<T, Errno> {
        self.read_at(cell, look).map(|(_, seen)| seen)
    }

    /// The same; also the resting word at which it was seen: it is another one after any write.
    #[inline]
    pub fn read_at<T>(&self, cell: Cell, mut look: impl FnMut() -> T) -> Result<(u64, T), Errno> {
        let mut looks = 0;
        loop {
            let mut word = self.region.load(cell);
            if word & self.region.doubt != 0 {
                word = self.before_look(cell, word)?;
            }
            let seen = look();
            fence(Ordering::Acquire);
            if self.region.load(cell) == word || kill::mutant() == 41 {
                return Ok((word, seen));
            }
            if word == NEVER_SEEN {
                self.unlock_long(cell);
                return Ok((word, seen));
            }
            looks += 1;
            if looks > LOOKS_MAX {
                return Err(Errno::EIO);
            }
            model_hooks::spin();
        }
    }

    /// One look that waits for nobody. `None`: somebody writes, or no look goes without the lock.
    #[inline(always)]
    pub fn read_once<T>(&self, cell: Cell, look: impl FnOnce() -> T) -> Option<T> {
        let word = self.region.load(cell);
        if word & self.region.doubt != 0 {
            return None;
        }
        let seen = look();
        fence(Ordering::Acquire);
        (self.region.load(cell) == word).then_some(seen)
    }

    /// Waits until nobody holds a word; `EAGAIN` where nobody waits. `NEVER_SEEN`: this thread has
    /// it, since no look goes without the lock (`Without::OPTIMISTIC`), but for those of a
    /// transaction, which looks again.
    #[cold]
    #[inline(never)]
    fn before_look(&self, cell: Cell, word: u64) -> Result<u64, Errno> {
        if self.only_looks {
            return Err(Errno::EAGAIN);
        }
        let optimistic = !self.region.without().has(Without::OPTIMISTIC);
        if optimistic || self.runs_transaction() {
            return if word & LOCKED != 0 { self.wait_at_rest(cell) } else { Ok(word) };
        }
        self.lock_long(cell)?;
        Ok(NEVER_SEEN)
    }

    /// Waits until whoever holds a word now has let go of it. Who has published something with a
    /// compare and swap before, and passes, knows: whoever takes the word from now on and looks
    /// with `load_in_order` sees it.
    pub fn pass(&self, cell: Cell) -> Result<(), Errno> {
        let word = self.region.load_in_order(cell);
        let holding = word & !WAITERS;
        let mut now = word;
        let mut patience = Patience::NEW;
        while now & LOCKED != 0 && now & !WAITERS == holding {
            self.wait(cell, now, &mut patience)?;
            now = self.region.load_in_order(cell);
        }
        self.hand_on(cell, &patience);
        Ok(())
    }

    /// Who has slept for a word and does not take it wakes the next in its place.
    fn hand_on(&self, cell: Cell, patience: &Patience) {
        if patience.sleeps > 0 {
            self.wake(cell, 1);
        }
    }

    /// Waits until nobody holds a word; returns it.
    #[cold]
    pub(crate) fn wait_at_rest(&self, cell: Cell) -> Result<u64, Errno> {
        let mut patience = Patience::NEW;
        for _ in 0..LOOKS_MAX {
            let word = self.region.load(cell);
            if word & LOCKED == 0 {
                self.hand_on(cell, &patience);
                return Ok(word);
            }
            self.wait(cell, word, &mut patience)?;
        }
        Err(Errno::EIO)
    }

    /// One round of waiting for a held word.
    fn wait(&self, cell: Cell, word: u64, patience: &mut Patience) -> Result<(), Errno> {
        if patience.spins < model_hooks::SPINS {
            patience.spins += 1;
            model_hooks::spin();
            return Ok(());
        }
        let flagged = word | WAITERS;
        if word & WAITERS == 0 && !self.region.swap_if(cell, word, flagged) {
            return Ok(());
        }
        let timed_out = self.sleep(cell, flagged as u32, SLEEP_NS);
        patience.sleeps += 1;
        if !timed_out {
            return Ok(());
        }
        patience.timed_out(flagged);
        let owner = owner_of(word);
        let (pid, tid) = self.owner(owner);
        match life::judge(pid, tid) {
            Life::Dead => self.recover(owner, pid, tid),
            Life::Alive if patience.time_outs > SLEEPS_MAX => Err(Errno::EIO),
            Life::HeldUp if patience.time_outs > SLEEPS_HELD_UP_MAX => Err(Errno::EIO),
            _ if patience.all_time_outs > TIME_OUTS_MAX => Err(Errno::EIO),
            _ => Ok(()),
        }
    }

    /// Sleeps while the word's low half is `value`, at most `most_ns`; whether the time ran out.
    pub fn sleep(&self, cell: Cell, value: u32, most_ns: u64) -> bool {
        #[cfg(feature = "models")]
        if model_hooks::rest() {
            return true;
        }
        let time = [0u64, most_ns];
        let address = self.region.futex_address(cell);
        // SAFETY: FUTEX_WAIT on a word of the arena with a time-out that lives over the call.
        let result = unsafe {
            syscall(nr::futex, [address, 0, value as usize, time.as_ptr() as usize, 0, 0])
        };
        result == -110
    }

    /// Sleeps as `sleep` does, but only a `wake_those` that names one of `bits` ends it.
    pub fn sleep_as(&self, cell: Cell, bits: u32, value: u32, most_ns: u64) -> bool {
        #[cfg(feature = "models")]
        if model_hooks::rest() {
            return true;
        }
        const MONOTONIC: usize = 1;
        const SECOND_NS: u64 = 1_000_000_000;
        let mut time = [0u64; 2];
        let place = time.as_mut_ptr() as usize;
        // SAFETY: `struct timespec` is two words.
        unsafe { syscall(nr::clock_gettime, [MONOTONIC, place, 0, 0, 0, 0]) };
        // This call wants the time at which it ends.
        let [seconds, ns] = core::hint::black_box(time);
        let ns = ns + most_ns;
        let until = [seconds + ns / SECOND_NS, ns % SECOND_NS];
        let address = self.region.futex_address(cell);
        let until = until.as_ptr() as usize;
        // SAFETY: FUTEX_WAIT_BITSET on a word of the arena with a time that lives over the call.
        let result =
            unsafe { syscall(nr::futex, [address, 9, value as usize, until, 0, bits as usize]) };
        result == -110
    }

    /// Wakes all sleepers of a word that have one of `bits`, at once: none of them gets the core of
    /// this thread before all are awake.
    #[cold]
    pub fn wake_those(&self, cell: Cell, bits: u32) {
        const ALL: usize = i32::MAX as usize;
        let address = self.region.futex_address(cell);
        // SAFETY: FUTEX_WAKE_BITSET on a word of the arena.
        unsafe { syscall(nr::futex, [address, 10, ALL, 0, 0, bits as usize]) };
    }

    /// Wakes up to `count` sleepers of a word.
    #[cold]
    pub fn wake(&self, cell: Cell, count: u32) {
        let address = self.region.futex_address(cell);
        // SAFETY: FUTEX_WAKE on a word of the arena.
        unsafe { syscall(nr::futex, [address, 1, count as usize, 0, 0, 0]) };
    }
}
