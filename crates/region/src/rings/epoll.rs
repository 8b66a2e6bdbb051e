//! What the image remembers of epoll sets: which pipes are in which, and what the host last said.
//!
//! ```text
//!   set   life and flags | changes | groups to look at | what the host said: sequence, changes,
//!         count, events | a bit for each pipe of the image: calls of the host on it
//!   pipe  its set | shared
//! ```
//!
//! A set is the host's, and so are the pipes in it: the host always knows. While all that is in a
//! set are read ends of pipes of one process, what the host said holds until that process does
//! something to one of them; so it need not be asked again (`docs/adr/0038`).
//!
//! Invariants
//! 1. A pipe is in one set at most, and does not climb meanwhile: it says so before the host hears
//!    of it, and `climb` looks after it has said that it climbs.
//! 2. Before a host call on a pipe in a set, and after it is counted in flight, the pipe's bit is
//!    set, then its group's. The pipe's goes only when nothing is in flight; then the changes are
//!    counted once more, and the groups' go. So what the host was asked by that count, or a later
//!    one, with the groups' gone, is of all calls before.
//! 3. What was said holds while the changes are those from before it was asked, no bit is set and
//!    no stranger is in the set or at it. The flag of that stays for the life of the set.
//! 4. The pipes' area is no part of the guarded arena, as with rings.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::hooks::kill;
use crate::rings::pipes::{self, FLIGHT, PIPES_ADDRESS, PIPES_MAX, Pipe, SET, SHARED, WORDS_BYTES};

/// Most sets of an image that are remembered; a number has eight bits.
pub const SETS_MAX: u32 = 256;
/// Bits of a set's name that are its number.
pub const NUMBER_BITS: u32 = 8;
const SET_BYTES: usize = 512;
/// Bytes of all.
pub(crate) const SETS_BYTES: usize = SETS_MAX as usize * SET_BYTES;

const STATE: usize = 0;
const CHANGES: usize = 1;
const GROUPS: usize = 2;
const SETTLER: usize = 3;
const SEQUENCE: usize = 8;
const SAID_AT: usize = 9;
const SAID_COUNT: usize = 10;
const SAID: usize = 11;
const BITS: usize = 32;

/// Bytes of events that are remembered: four.
pub const SAID_BYTES: usize = 48;
/// Bytes of one (`struct epoll_event`).
pub const EVENT_BYTES: usize = 12;
const SAID_WORDS: usize = SAID_BYTES / 8;

/// The bits of `GROUPS` that are groups; above them it counts who has set one.
const GROUPS_MASK: u64 = (1 << (PIPES_MAX / 64)) - 1;
const ONE_STIR: u64 = GROUPS_MASK + 1;

/// Something is in the set, or is done to it, that the image does not see.
const STRANGE: u64 = 1;
/// Sockets with rings have been in it (`members`).
const MEMBERS: u64 = 4;
/// Somebody may know of the set when no number of the image names it any more.
const SHOWN: u64 = 2;

const _: () = assert!(SETS_MAX == 1 << NUMBER_BITS);
const _: () = assert!(SAID + SAID_WORDS <= BITS);
const _: () = assert!((BITS + PIPES_MAX as usize / 64) * 8 <= SET_BYTES);

/// Where the first set lies; 0 = not announced.
static SETS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn announce(address: usize) {
    SETS.store(address, Ordering::Relaxed);
}

/// Where the first set's members lie (`members`).
#[inline(always)]
pub(crate) fn members_address() -> Option<usize> {
    let first = SETS.load(Ordering::Relaxed);
    (first != 0).then_some(first + SETS_BYTES)
}

/// What the host said, as it lays events out.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Events.
    pub count: usize,
    /// Their bytes.
    pub bytes: [u8; SAID_BYTES],
}

/// One set, in one of its lives.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    words: usize,
    life: u64,
}

impl Set {
    /// The set of this name. `None` where the area cannot be mapped.
    #[inline(always)]
    pub fn of(name: u32) -> Option<Set> {
        pipes::reach().ok()?;
        let first = SETS.load(Ordering::Relaxed);
        (first != 0).then_some(Set::at(first, name))
    }

    /// The same for a look: `None` where nothing is mapped yet.
    #[inline(always)]
    pub fn at_a_look(name: u32) -> Option<Set> {
        let mapped = pipes::COUNT.load(Ordering::Acquire) != 0;
        mapped.then(|| Set::at(SETS.load(Ordering::Relaxed), name))
    }

    #[inline(always)]
    fn at(first: usize, name: u32) -> Set {
        let number = (name % SETS_MAX) as usize;
        Set { words: first + number * SET_BYTES, life: (name as u64) << 32 }
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: `of` has seen that the area is mapped, which stays, and the number is below the
        // most there are; all access to these words is atomic.
        unsafe { &*((self.words + index * 8) as *const AtomicU64) }
    }

    #[inline(always)]
    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }

    /// Whether this life goes on.
    #[inline(always)]
    fn lives(&self) -> bool {
        self.get(STATE) >> 32 == self.life >> 32
    }

    /// Begins a life: nothing in it. What is counted goes on: a late hand of the life before finds
    /// nothing as it was.
    pub fn begin(&self) {
        let groups = (self.get(GROUPS) & !GROUPS_MASK).wrapping_add(ONE_STIR);
        (SETTLER..SET_BYTES / 8).for_each(|index| self.word(index).store(0, Ordering::SeqCst));
        self.word(GROUPS).store(groups, Ordering::SeqCst);
        // Other than what was said at: nothing was.
        self.change();
        self.word(STATE).store(self.life, Ordering::SeqCst);
    }

    fn swap(&self, index: usize, change: impl Fn(u64) -> Option<u64>) {
        // Fails only where there is nothing to be changed.
        let _ = self.word(index).fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }

    fn mark(&self, flags: u64) {
        self.swap(STATE, |state| (state >> 32 == self.life >> 32).then_some(state | flags));
    }

    /// Something is in the set, or is done to it, that the image does not see: from now on only
    /// the host knows.
    pub fn admit_stranger(&self) {
        self.mark(STRANGE);
    }

    /// Somebody who is not in the image gets the set, to keep: what is in it is the host's for
    /// ever, as all that comes to it. `pipes`: how many there are.
    pub fn show(&self, pipes: u32) {
        self.mark(STRANGE | SHOWN);
        for number in 0..pipes {
            let pipe = Pipe::at_number(number);
            if pipe.get(SET) as u32 as u64 == self.life >> 32 {
                pipe.pin();
            }
        }
    }

    /// Something may have become ready, or is not any more.
    pub fn change(&self) {
        self.word(CHANGES).fetch_add(1, Ordering::SeqCst);
    }

    /// Before a call of the host on a pipe of the set.
    fn stir(&self, number: usize) {
        let (group, bit) = (number / 64, 1 << (number % 64));
        if kill::mutant() != 62 {
            self.word(BITS + group).fetch_or(bit, Ordering::SeqCst);
            kill::point();
            self.swap(GROUPS, |groups| Some(groups.wrapping_add(ONE_STIR) | 1 << group));
        }
    }

    /// Before the host is asked: what to remember its answer by. `None`: it would not hold.
    pub fn ask(&self) -> Option<u64> {
        (self.get(STATE) == self.life && self.is_still()).then(|| self.get(CHANGES))
    }

    /// Whether no call of the host on a pipe of the set is under way. Bits are one thread's to
    /// clear; who dies meanwhile leaves a set whose host is always asked.
    fn is_still(&self) -> bool {
        let groups = self.get(GROUPS);
        if groups & GROUPS_MASK == 0 {
            return true;
        }
        let lock = self.word(SETTLER);
        if lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        let still = (0..GROUPS_MASK.count_ones() as usize)
            .filter(|group| groups >> group & 1 == 1)
            .all(|group| self.settle(group));
        kill::point();
        // After the last call has been seen to be over: whoever asked before may have missed it.
        if kill::mutant() != 63 {
            self.change();
        }
        // Fails when somebody has stirred since: the group's bit comes after the pipe's.
        let word = self.word(GROUPS);
        let none = groups & !GROUPS_MASK;
        kill::point();
        let done = still
            && word.compare_exchange(groups, none, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        lock.store(0, Ordering::SeqCst);
        done
    }

    /// Clears the bits of a group's pipes without a call in flight; whether all are.
    fn settle(&self, group: usize) -> bool {
        let (mut bits, mut still) = (self.get(BITS + group), true);
        while bits != 0 {
            let bit = bits & bits.wrapping_neg();
            let pipe = Pipe::at_number((group * 64) as u32 + bits.trailing_zeros());
            bits &= bits - 1;
            self.word(BITS + group).fetch_and(!bit, Ordering::SeqCst);
            kill::point();
            if pipe.word(FLIGHT).load(Ordering::SeqCst) as u32 != 0 && kill::mutant() != 64 {
                self.word(BITS + group).fetch_or(bit, Ordering::SeqCst);
                still = false;
            }
        }
        still
    }

    /// What the host would say now, if that is known.
    #[inline(always)]
    pub fn said(&self) -> Option<Said> {
        let sequence = self.remembered()?;
        let mut said = Said { count: self.get(SAID_COUNT) as usize, bytes: [0; SAID_BYTES] };
        for (index, bytes) in said.bytes.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.get(SAID + index).to_le_bytes());
        }
        self.holds(sequence).then_some(said)
    }

    /// Whether it is known that the host would find nothing now.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.remembered().is_some_and(|sequence| self.get(SAID_COUNT) == 0 && self.holds(sequence))
    }

    /// The sequence of what is remembered, if nothing is under way.
    #[inline(always)]
    fn remembered(&self) -> Option<u64> {
        let sequence = self.get(SEQUENCE);
        let known = self.get(GROUPS) & GROUPS_MASK == 0 && sequence & 1 == 0;
        known.then_some(sequence)
    }

    /// Whether what was remembered by then, and has been read, is as it was and nothing changed.
    #[inline(always)]
    fn holds(&self, sequence: u64) -> bool {
        self.get(SAID_AT) == self.get(CHANGES)
            && self.get(STATE) == self.life
            && self.get(SEQUENCE) == sequence
    }

    /// Remembers what the host said, that was asked at `asked`: `bytes` of whole events, at most
    /// `SAID_BYTES`. Who dies here leaves the sequence odd: nothing is remembered any more.
    pub fn remember(&self, asked: u64, bytes: &[u8]) {
        let sequence = self.get(SEQUENCE);
        let word = self.word(SEQUENCE);
        let mine =
            word.compare_exchange(sequence, sequence | 1, Ordering::SeqCst, Ordering::SeqCst);
        if sequence & 1 != 0 || mine.is_err() {
            return;
        }
        let mut said = [0u8; SAID_BYTES];
        said[..bytes.len()].copy_from_slice(bytes);
        self.word(SAID_COUNT).store((bytes.len() / EVENT_BYTES) as u64, Ordering::SeqCst);
        for (index, bytes) in said.chunks_exact(8).enumerate() {
            let value = bytes.try_into().map_or(0, u64::from_le_bytes);
            self.word(SAID + index).store(value, Ordering::SeqCst);
        }
        self.word(SAID_AT).store(asked, Ordering::SeqCst);
        word.store(sequence + 2, Ordering::SeqCst);
    }

    /// Sockets with rings come into it.
    pub fn admit_members(&self) {
        self.mark(STRANGE | MEMBERS);
    }

    /// Whether some have.
    #[inline(always)]
    pub fn has_members(&self) -> bool {
        let state = self.get(STATE);
        state >> 32 == self.life >> 32 && state & MEMBERS != 0
    }

    /// Whether the host alone knows of the set.
    pub fn is_strange(&self) -> bool {
        self.get(STATE) != self.life
    }
}

impl Pipe {
    /// Pipe `number` in the life it is in; the area is mapped.
    fn at_number(number: u32) -> Pipe {
        let words = PIPES_ADDRESS + number as usize * WORDS_BYTES;
        let pipe = Pipe { words, ring: 0, life: 0 };
        Pipe { life: (pipe.get(pipes::STATE) >> 32) as u32, ..pipe }
    }

    pub(crate) fn number(&self) -> usize {
        (self.words - PIPES_ADDRESS) / WORDS_BYTES
    }

    /// The name of the set that the pipe is in, if that lives.
    #[inline]
    pub fn set_name(&self) -> Option<u32> {
        let name = self.word(SET).load(Ordering::SeqCst) as u32;
        (name != 0 && Set::of(name)?.lives()).then_some(name)
    }

    fn member_of(&self) -> Option<Set> {
        Set::of(self.set_name()?)
    }

    /// Invariant 1.
    #[inline]
    pub(crate) fn is_in_set(&self) -> bool {
        self.set_name().is_some() && kill::mutant() != 61
    }

    /// Invariant 2.
    #[inline]
    pub(crate) fn stir(&self) {
        if let Some(set) = self.member_of().filter(|set| !set.is_strange()) {
            set.stir(self.number());
        }
    }

    /// Somebody who is not in the image gets the pipe.
    pub(crate) fn told_strangers(&self) {
        if let Some(set) = self.member_of() {
            set.admit_stranger();
        }
    }

    /// A third number names the pipe: other processes may come by it, and end unseen.
    pub fn share(&self) {
        self.word(SHARED).store(1, Ordering::SeqCst);
        self.told_strangers();
    }

    /// A number of the pipe goes, or has gone; the host may hear of it later.
    pub fn lose_number(&self) {
        if let Some(set) = self.member_of() {
            set.change();
        }
    }

    /// The pipe, whose readers and writers are awake, comes into set `name`; false: it is in one,
    /// or the host's for ever. What is in its ring must go to the host after this.
    pub fn enter(&self, name: u32) -> bool {
        let Some(set) = Set::of(name) else { return false };
        let old = self.word(SET).load(Ordering::SeqCst);
        let free = old == 0 || !self.is_in_set();
        if set.get(STATE) & SHOWN != 0 || !free || self.is_pinned() {
            return false;
        }
        if !self.swap_if(SET, old, name as u64) {
            return false;
        }
        let strange = self.word(SHARED).load(Ordering::SeqCst) != 0 || self.is_pinned();
        if strange && kill::mutant() != 65 {
            set.admit_stranger();
        }
        // What was in flight before.
        set.stir(self.number());
        true
    }

    /// It is not in set `name` any more.
    pub fn exit(&self, name: u32) {
        if self.swap_if(SET, name as u64, 0)
            && let Some(set) = Set::of(name)
        {
            set.change();
        }
    }
}
