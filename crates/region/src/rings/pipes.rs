//! The pipes' part of the region: a ring of bytes each, and the words that say where bytes are.
//!
//! ```text
//!   PIPES_ADDRESS [ words of pipe 0 | of pipe 1 | ... ][ ring 0, 64 KiB | ring 1 | ... ]
//!
//!   words, by cache line:  state, in flight, bytes to and from the host
//!                          | head, writer's core, shift, a short message | tail, reader's core
//!                          | writers' lock, tail as last seen, looks at readers and the host
//!                          | readers' lock, head and shift as last seen, patience, wake-ups
//!                          | epoll set, third number, who is in it alone, mate, who connects,
//!                            loss at the other end
//! ```
//!
//! What the states mean and why nobody sleeps here says `docs/adr/0015`. The area is no part of
//! the guarded arena: a read and a write open nothing. A stray store of a program can damage a
//! pipe's bytes, as it can a file's.
//!
//! Invariants
//! 1. Head and tail are absolute; the writer alone stores head, the reader alone tail, each under
//!    its lock and after the bytes: dying before that store means nothing was written, or read.
//!    Where in the ring a position is, *shift* says, which changes only while the ring is empty,
//!    before the head does.
//! 2. A lock word is the holder's process and thread. Who finds the holder dead takes it over:
//!    by 1 nothing needs mending, but for a climb or withdrawal, recorded first (`CLIMB_*`).
//! 3. The state changes under both locks, but for `leave` and `pin`, which anybody may do to it
//!    at any time; so every change is a compare and swap.
//! 4. The memory is never anything else than pipes, and the state's upper half names the pipe's
//!    life: a late hand sees that it is late.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use husk_abi::{Errno, nr};
use husk_host::syscall;

use crate::arena::layout::Layout;
use crate::hooks::kill;
use crate::pools::populate;
use crate::rings::pace::{core_number, ticks};
use crate::rings::{epoll, members};
use crate::txn::life::Life;

pub use crate::txn::life::{Held, Holder};

/// Where the pipes are mapped in every process that uses one.
pub const PIPES_ADDRESS: usize = 0x5410_0000_0000;
/// Bytes of a ring: what a new pipe of Linux holds.
pub const RING_BYTES: u64 = 65_536;
/// Most pipes of an image that can have a ring at a time; a number has ten bits.
pub const PIPES_MAX: u32 = 1024;
/// Fewest.
const PIPES_MIN: u64 = 64;
/// Of an image's memory, the part that rings may come to on top.
const PIPES_SHARE: u64 = 16;

pub(crate) const WORDS_BYTES: usize = 512;
pub(crate) const STATE: usize = 0;
pub(crate) const FLIGHT: usize = 1;
pub(crate) const HOST_IN: usize = 2;
pub(crate) const HOST_OUT: usize = 3;
pub(crate) const CLIMB_BYTES: usize = 4;
pub(crate) const CLIMB_OUT: usize = 5;
pub(crate) const CLIMB_HEAD: usize = 6;
pub(crate) const CLIMB_IN: usize = 7;
pub(crate) const HEAD: usize = 8;
pub(crate) const WRITER_CORE: usize = 9;
const SHIFT: usize = 10;
pub(crate) const SHORT: usize = 11;
pub(crate) const TAIL: usize = 16;
pub(crate) const READER_CORE: usize = 17;
const WRITE_LOCK: usize = 24;
const SEEN_TAIL: usize = 25;
const WROTE: usize = 26;
const LOOKED: usize = 27;
pub(crate) const NEAR: usize = 28;
pub(crate) const SENT: usize = 29;
const READ_LOCK: usize = 32;
const SEEN_HEAD: usize = 33;
const COUNTDOWN: usize = 34;
const BACK_OFF: usize = 35;
const SERVED: usize = 36;
const SEEN_SHIFT: usize = 37;
pub(crate) const ASKED: usize = 38;
pub(crate) const WAKING: usize = 39;
/// Of epoll (`epoll`), and of who is alone (`single_owner`), on a line that others seldom write.
pub(crate) const SET: usize = 40;
pub(crate) const SHARED: usize = 41;
pub(crate) const BUSY: usize = 42;
pub(crate) const MATE: usize = 43;
pub(crate) const CONNECTS: usize = 44;
pub(crate) const RESET: usize = 45;
/// Of the set that a lane's reader is in (`members`).
pub(crate) const HOOK: usize = 46;
/// Whether who reads from a lane polls it, and the bell of a thread that sleeps there (`lanes`).
pub(crate) const POLLED: usize = 47;
/// Of a TCP connection (`lanes`).
pub(crate) const ADDRESSES: usize = 48;
pub(crate) const PORTS: usize = 49;
pub(crate) const DELAYS: usize = 50;
/// When the host last told the reader's set of this lane (`members`).
pub(crate) const TOLD: usize = 51;
/// When the host last had nothing of a lane that is polled (`lanes`).
pub(crate) const QUIET: usize = 52;

const MODE: u64 = 3;
const PINNED: u64 = 4;
/// Somebody left during a climb.
const LEFT: u64 = 8;
/// A reader would climb, but for writers' host calls in flight.
const INVITED: u64 = 16;

/// What a read in flight counts; a write counts one.
pub(crate) const READ_IN_FLIGHT: u64 = 1 << 16;

/// Host reads before a reader tries the ring, at first and after a ring that paid.
const PATIENCE_MIN: u64 = 4;
/// The same after many that did not.
const PATIENCE_MAX: u64 = 1024;
/// Reads out of one ring that pay for it.
const SERVED_WELL: u64 = 16;
/// Reads (writes) after which a side says again on which core it runs.
const CORE_EVERY: u64 = 16;
/// Pauses at a held lock before its holder is judged.
const LOCK_SPINS: u32 = 200;
/// Processor ticks for which a writer that a reader has invited waits: a host call of 64 KiB takes
/// the reader as long.
const INVITED_TICKS: u64 = 100_000;
/// Ticks for which a writer trusts that a reader is left: 20 us, less than a process takes to die.
const TRUST_TICKS: u64 = 50_000;
/// Says in a lock word that somebody sleeps on it.
const WAITED_FOR: u64 = 1 << 31;

/// How many there are; 0 = not mapped.
pub(crate) static COUNT: AtomicUsize = AtomicUsize::new(0);
static ANNOUNCED: AtomicUsize = AtomicUsize::new(0);
/// One more than the region's descriptor; 0 = not announced.
static DESCRIPTOR: AtomicUsize = AtomicUsize::new(0);
static OFFSET: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

impl Layout {
    /// Pipes that can have a ring at a time.
    pub fn pipes(&self) -> u32 {
        let rings = self.memory_bytes / PIPES_SHARE / RING_BYTES;
        rings.clamp(PIPES_MIN, PIPES_MAX as u64) as u32
    }

    /// Offset of the pipes in the region memfd.
    pub fn pipes_offset(&self) -> u64 {
        self.cache_offset() + self.cache_bytes()
    }

    /// Bytes of the pipes' area, epoll sets at its end; what is never used costs nothing.
    pub fn pipes_bytes(&self) -> u64 {
        self.sets_offset() + (epoll::SETS_BYTES + members::ALL_BYTES) as u64
    }

    /// Where in the pipes' area the epoll sets begin.
    pub(crate) fn sets_offset(&self) -> u64 {
        self.pipes() as u64 * (WORDS_BYTES as u64 + RING_BYTES)
    }
}

/// Says where the pipes lie; mapped when one is first used.
pub fn announce(region_fd: u32, layout: &Layout) {
    OFFSET.store(layout.pipes_offset(), Ordering::Relaxed);
    BYTES.store(layout.pipes_bytes(), Ordering::Relaxed);
    ANNOUNCED.store(layout.pipes() as usize, Ordering::Relaxed);
    epoll::announce(PIPES_ADDRESS + layout.sets_offset() as usize);
    populate::announce(region_fd, layout.cache_offset());
    DESCRIPTOR.store(region_fd as usize + 1, Ordering::Release);
}

#[inline(always)]
pub(crate) fn reach() -> Result<(), Errno> {
    if COUNT.load(Ordering::Acquire) != 0 { Ok(()) } else { map() }
}

#[cold]
fn map() -> Result<(), Errno> {
    const DONT_DUMP: usize = 16;
    const READ_WRITE: usize = 3;
    const SHARED_FIXED_NOREPLACE_NORESERVE: usize = 0x10_4001;
    let announced = DESCRIPTOR.load(Ordering::Acquire);
    let fd = announced.checked_sub(1).ok_or(Errno::ENODEV)?;
    let (bytes, offset) = (BYTES.load(Ordering::Relaxed), OFFSET.load(Ordering::Relaxed));
    let flags = SHARED_FIXED_NOREPLACE_NORESERVE;
    let args = [PIPES_ADDRESS, bytes as usize, READ_WRITE, flags, fd, offset as usize];
    // SAFETY: a new mapping at a place that is Husk's alone; NOREPLACE: it replaces nothing.
    let raw = unsafe { syscall(nr::mmap, args) };
    match Errno::check(raw as i64) {
        Ok(_) | Err(Errno::EEXIST) => {
            // Core dumps leave it out, as all of the image.
            // SAFETY: they alone are told.
            unsafe { syscall(nr::madvise, [PIPES_ADDRESS, bytes as usize, DONT_DUMP, 0, 0, 0]) };
            COUNT.store(ANNOUNCED.load(Ordering::Relaxed), Ordering::Release);
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// Where a pipe's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The host has them; the ring is empty.
    Host,
    /// The ring has them; the host has none.
    Ring,
    /// First those of the ring, then the host's.
    Leaving,
    /// On their way between host and ring.
    Climbing,
}

const fn bits(mode: Mode) -> u64 {
    match mode {
        Mode::Host => 0,
        Mode::Ring => 1,
        Mode::Leaving => 2,
        Mode::Climbing => 3,
    }
}

/// A side of a pipe, for its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Who takes bytes out.
    Readers,
    /// Who puts bytes in.
    Writers,
}

/// What there is to fetch from the host before a climb is through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Climb {
    /// Not now.
    No,
    /// The ring is in use.
    Done,
    /// Bytes of the host's to be put at the head, then `climbed`.
    Fetch(u64),
}

/// One pipe's words and ring, in one of its lives.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    pub(crate) words: usize,
    pub(crate) ring: usize,
    pub(crate) life: u32,
}

impl Pipe {
    /// Pipe `number` in life `life`. `ENOMEM` where the area cannot be mapped.
    #[inline(always)]
    pub fn of(number: u32, life: u32) -> Result<Pipe, Errno> {
        reach()?;
        let (number, count) = (number as usize, COUNT.load(Ordering::Relaxed));
        if number >= count {
            return Err(Errno::EBADF);
        }
        let words = PIPES_ADDRESS + number * WORDS_BYTES;
        let ring = PIPES_ADDRESS + count * WORDS_BYTES + number * RING_BYTES as usize;
        Ok(Pipe { words, ring, life })
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: `of` has checked the number and that the area is mapped, which stays; all
        // access to its words is atomic.
        unsafe { &*((self.words + index * 8) as *const AtomicU64) }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn put(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn swap_if(&self, index: usize, old: u64, new: u64) -> bool {
        self.word(index).compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    // ---- state --------------------------------------------------------------------------------

    #[inline(always)]
    fn mode_of(&self, state: u64) -> Option<Mode> {
        if (state >> 32) as u32 != self.life {
            return None;
        }
        Some(match state & MODE {
            0 => Mode::Host,
            1 => Mode::Ring,
            2 => Mode::Leaving,
            _ => Mode::Climbing,
        })
    }

    /// Where the bytes are; `None`: this life is over.
    #[inline(always)]
    pub fn mode(&self) -> Option<Mode> {
        self.mode_of(self.word(STATE).load(Ordering::SeqCst))
    }

    /// Whether the pipe is the host's for good.
    pub fn is_pinned(&self) -> bool {
        self.get(STATE) & PINNED != 0
    }

    /// Applies `change` to mode and flags of this life until it holds; false: the life is over, or
    /// nothing was to be changed.
    fn change(&self, change: impl Fn(Mode, u64) -> Option<u64>) -> bool {
        loop {
            let state = self.get(STATE);
            let Some(new) = self.mode_of(state).and_then(|mode| change(mode, state)) else {
                return false;
            };
            if new == state || self.swap_if(STATE, state, new) {
                kill::point();
                return true;
            }
        }
    }

    /// From now on writers ask the host.
    pub fn leave(&self) {
        self.change(|mode, state| match mode {
            Mode::Ring => Some(state & !MODE | bits(Mode::Leaving)),
            Mode::Climbing => Some(state | LEFT),
            _ => None,
        });
    }

    /// The same, for ever.
    pub fn pin(&self) {
        self.change(|mode, state| {
            let pinned = state | PINNED;
            Some(match mode {
                Mode::Ring => pinned & !MODE | bits(Mode::Leaving),
                Mode::Climbing => pinned | LEFT,
                _ => pinned,
            })
        });
        self.told_strangers();
    }

    /// Sets the mode, both locks held.
    pub(crate) fn set(&self, mode: Mode) {
        self.change(|_, state| Some(state & !(MODE | LEFT) | bits(mode)));
    }

    /// Begins a life, both locks held: nothing anywhere, the host's.
    pub fn begin(&self) {
        self.put(FLIGHT, (self.life as u64) << 32);
        for index in HOST_IN..=WAKING {
            if !matches!(index, WRITE_LOCK | READ_LOCK | LOOKED) {
                self.put(index, 0);
            }
        }
        (SET..=POLLED).chain(ADDRESSES..=QUIET).for_each(|index| self.put(index, 0));
        self.put(COUNTDOWN, PATIENCE_MIN);
        self.put(BACK_OFF, PATIENCE_MIN);
        self.put(STATE, (self.life as u64) << 32 | bits(Mode::Host));
    }

    // ---- host calls ---------------------------------------------------------------------------

    /// Counts a host call; false when the bytes are elsewhere by now. A read must find `Host`, a
    /// write may also find `Leaving`.
    #[inline]
    pub fn take_off(&self, writes: bool) -> bool {
        kill::point();
        if !self.count(writes, true) {
            return false;
        }
        // After the count (a locked instruction): invariant 3 of the decision.
        let mode = if kill::mutant() == 21 { Some(Mode::Host) } else { self.mode() };
        if mode == Some(Mode::Host) || writes && mode == Some(Mode::Leaving) {
            self.show_core(if writes { WRITER_CORE } else { READER_CORE });
            self.put(if writes { SENT } else { ASKED }, ticks());
            self.stir();
            return true;
        }
        self.count(writes, false);
        false
    }

    /// The host call is over; it moved `bytes`.
    #[inline]
    pub fn land(&self, writes: bool, bytes: u64) {
        if self.mode().is_none() {
            return;
        }
        let total = if writes { HOST_IN } else { HOST_OUT };
        self.word(total).fetch_add(bytes, Ordering::SeqCst);
        if !writes {
            self.woken();
        }
        self.count(writes, false);
    }

    /// One more or less of the calls in flight of this life.
    fn count(&self, writes: bool, more: bool) -> bool {
        let one = if writes { 1 } else { READ_IN_FLIGHT };
        let amount = if more { one } else { one.wrapping_neg() };
        loop {
            let old = self.get(FLIGHT);
            if (old >> 32) as u32 != self.life {
                return false;
            }
            let count = old.wrapping_add(amount) & 0xffff_ffff;
            if self.swap_if(FLIGHT, old, old & !0xffff_ffff | count) {
                if more && count >> 31 != 0 {
                    self.pin(); // Most have died in flight: before the count wraps.
                }
                return true;
            }
        }
    }

    // ---- locks --------------------------------------------------------------------------------

    fn lock_word(&self, lock: Lock) -> usize {
        if lock == Lock::Readers { READ_LOCK } else { WRITE_LOCK }
    }

    /// Takes a lock that is free.
    #[inline(always)]
    pub fn try_lock(&self, lock: Lock, me: Holder) -> bool {
        let done = self.swap_if(self.lock_word(lock), 0, me.0);
        kill::point();
        done
    }

    /// Takes a lock, from a dead holder too; looks on for a few us at a living one.
    #[inline(always)]
    pub fn lock(&self, lock: Lock, me: Holder) -> Result<(), Held> {
        kill::point();
        if self.try_lock(lock, me) { Ok(()) } else { self.lock_slowly(lock, me) }
    }

    #[cold]
    fn lock_slowly(&self, lock: Lock, me: Holder) -> Result<(), Held> {
        let index = self.lock_word(lock);
        for _ in 0..LOCK_SPINS {
            if self.get(index) == 0 && self.try_lock(lock, me) {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        let seen = self.get(index);
        if seen == 0 {
            return self.try_lock(lock, me).then_some(()).ok_or(self.held(index, seen));
        }
        // A call holds no lock that it takes: one with our own numbers was a thread's whose number
        // this one has since it ran another program (exec), or that of a process before.
        let holder = Holder(seen & !WAITED_FOR);
        let dead = kill::mutant() != 22 && (holder.0 == me.0 || holder.judge() == Life::Dead);
        if dead && self.swap_if(index, seen, me.0) {
            return Ok(());
        }
        self.swap_if(index, seen, seen | WAITED_FOR);
        Err(self.held(index, seen | WAITED_FOR))
    }

    fn held(&self, index: usize, value: u64) -> Held {
        Held { address: self.words + index * 8, value: value as u32 }
    }

    /// Lets a lock go. A sleeper that comes between the two instructions sleeps its time out.
    #[inline(always)]
    pub fn unlock(&self, lock: Lock) {
        let index = self.lock_word(lock);
        let old = self.get(index);
        self.put(index, 0);
        if old & WAITED_FOR != 0 {
            self.wake(index);
        }
    }

    #[cold]
    fn wake(&self, index: usize) {
        const FUTEX_WAKE: usize = 1;
        let address = self.words + index * 8;
        // SAFETY: FUTEX_WAKE on a word of the pipes' area.
        unsafe { syscall(nr::futex, [address, FUTEX_WAKE, 1, 0, 0, 0]) };
    }

    // ---- bytes --------------------------------------------------------------------------------

    /// Bytes in the ring, for the holder of the readers' lock: all there are, or `wanted` at least.
    #[inline(always)]
    pub fn readable(&self, wanted: u64) -> u64 {
        let tail = self.get(TAIL);
        let seen = self.get(SEEN_HEAD);
        if seen - tail >= wanted {
            return seen - tail;
        }
        self.see_head() - tail
    }

    /// The head, and the shift that goes with it.
    #[inline(always)]
    fn see_head(&self) -> u64 {
        let head = self.get(HEAD);
        self.put(SEEN_SHIFT, self.get(SHIFT));
        self.put(SEEN_HEAD, head);
        head
    }

    /// Bytes in the ring, for anybody; may be late.
    pub fn waiting(&self) -> u64 {
        let tail = self.get(TAIL);
        self.get(HEAD).saturating_sub(tail).min(RING_BYTES)
    }

    /// Bytes that were ever written into the ring, and that were read from it, for anybody; `None`:
    /// this life is over.
    pub fn moved(&self) -> Option<(u64, u64)> {
        let moved = (self.get(HEAD), self.get(TAIL));
        self.mode().map(|_| moved)
    }

    /// Room in the ring, for the holder of the writers' lock; at least `wanted` where there is.
    #[inline(always)]
    pub fn room(&self, wanted: u64) -> u64 {
        let head = self.get(HEAD);
        let room = RING_BYTES - (head - self.get(SEEN_TAIL));
        if room >= wanted {
            return room;
        }
        let tail = self.get(TAIL);
        self.put(SEEN_TAIL, tail);
        RING_BYTES - (head - tail)
    }

    /// Where the ring begins.
    pub fn start(&self) -> usize {
        self.ring
    }

    #[inline(always)]
    fn place(&self, at: u64, shift: u64) -> (usize, u64) {
        let within = at.wrapping_add(shift) % RING_BYTES;
        (self.ring + within as usize, RING_BYTES - within)
    }

    /// Where the next bytes lie, if there are any (`readable`), and how many in one piece.
    #[inline(always)]
    pub fn front(&self) -> (usize, u64) {
        self.place(self.get(TAIL), self.get(SEEN_SHIFT))
    }

    /// For the holder of the writers' lock: where reader and writer share a core, what comes into
    /// an empty ring goes where bytes went before, which that core has at hand.
    #[inline(always)]
    pub fn rewind(&self, alone: bool) {
        if alone || self.get(NEAR) != 0 {
            let head = self.get(HEAD);
            if head == self.get(TAIL) || kill::mutant() == 28 {
                self.put(SHIFT, head.wrapping_neg());
                kill::point();
            }
        }
    }

    /// Where the next bytes go, `ahead` of the head, and how many in one piece.
    #[inline(always)]
    pub fn back(&self, ahead: u64) -> (usize, u64) {
        self.place(self.get(HEAD) + ahead, self.get(SHIFT))
    }

    /// `count` bytes have been copied out.
    #[inline(always)]
    pub fn taken(&self, count: u64) {
        kill::point();
        self.put(TAIL, self.get(TAIL) + count);
        kill::point();
    }

    /// `count` bytes have been copied in.
    #[inline(always)]
    pub fn given(&self, count: u64) {
        self.forget_short();
        self.advance(count);
    }

    /// One more read out of the ring; now and then the reader's core, for the writer.
    #[inline(always)]
    pub fn served(&self) {
        self.tell(SERVED, READER_CORE);
    }

    /// The same for a write into it.
    #[inline(always)]
    pub fn wrote(&self) {
        if self.tell(WROTE, WRITER_CORE) {
            self.put(NEAR, (self.get(READER_CORE) == self.get(WRITER_CORE)) as u64);
        }
    }

    /// Asking for the core takes as long as the rest of a small read.
    #[inline(always)]
    fn tell(&self, counter: usize, core: usize) -> bool {
        let count = self.get(counter);
        self.put(counter, count + 1);
        let told = count.is_multiple_of(CORE_EVERY);
        if told {
            self.show_core(core);
        }
        told
    }

    #[inline(always)]
    fn show_core(&self, index: usize) {
        let mine = core_number();
        if self.get(index) != mine {
            self.put(index, mine);
        }
    }

    // ---- is a reader left ----------------------------------------------------------------------

    /// Whether the writer is to ask the host for a reader, as it does then. One that was killed has
    /// not left: only the host knows.
    #[inline(always)]
    pub fn is_look_due(&self) -> bool {
        ticks().wrapping_sub(self.get(LOOKED)) > TRUST_TICKS && kill::mutant() != 25
    }

    /// The host has said so, however long that took.
    pub fn has_reader(&self) {
        self.put(LOOKED, ticks());
    }

    // ---- between host and ring ----------------------------------------------------------------

    /// Whether a reader should try the ring now.
    #[inline]
    pub fn is_due(&self) -> bool {
        let left = self.get(COUNTDOWN);
        self.put(COUNTDOWN, left.saturating_sub(1));
        left == 0 && !self.is_pinned() && !self.is_in_set() && !self.is_unused()
    }

    /// Tries to put the ring in use, both locks held by the caller, who lets them go but for
    /// `Fetch`.
    pub fn climb(&self) -> Climb {
        let climbing = |mode, state: u64| {
            let able = mode == Mode::Host && state & PINNED == 0;
            able.then_some(state & !(MODE | INVITED) | bits(Mode::Climbing))
        };
        self.put(CLIMB_BYTES, 0);
        if !self.change(climbing) {
            return Climb::No;
        }
        fence(Ordering::SeqCst);
        if self.is_in_set() {
            self.set(Mode::Host);
            return Climb::No;
        }
        let flight = self.get(FLIGHT) as u32;
        let in_flight = flight != 0 && kill::mutant() != 23;
        let (put_in, taken_out) = (self.get(HOST_IN), self.get(HOST_OUT));
        let left = put_in.wrapping_sub(taken_out);
        if in_flight || left > RING_BYTES {
            self.set(Mode::Host);
            if (flight as u64) < READ_IN_FLIGHT && kill::mutant() != 26 {
                self.invite();
            }
            return Climb::No;
        }
        self.put(SERVED, 0);
        if left == 0 {
            self.arrive();
            return Climb::Done;
        }
        self.put(CLIMB_OUT, taken_out);
        self.put(CLIMB_HEAD, self.get(HEAD));
        self.put(CLIMB_BYTES, left);
        kill::point();
        Climb::Fetch(left)
    }

    /// Nothing but writers is in the way: the next one is to wait a little for the climb.
    #[cold]
    fn invite(&self) {
        self.change(|mode, state| {
            let may = mode == Mode::Host && state & PINNED == 0;
            Some(if may { state | INVITED } else { state })
        });
    }

    /// Whether a reader waits for writers to stay away from the host.
    #[inline(always)]
    pub fn is_invited(&self) -> bool {
        self.word(STATE).load(Ordering::Relaxed) & INVITED != 0
    }

    /// The writer lets its reader run instead, which may invite it again.
    #[cold]
    pub fn take_invitation(&self) {
        self.change(|_, state| (state & INVITED != 0).then_some(state & !INVITED));
    }

    /// An invited writer, none of whose calls is in flight, waits for the reader to climb; false:
    /// it did not come, and asks again only later.
    #[cold]
    pub fn await_climb(&self) -> bool {
        let start = ticks();
        loop {
            let Some(Mode::Host | Mode::Climbing) = self.mode() else { return true };
            if ticks().wrapping_sub(start) > INVITED_TICKS || !self.reader_comes() {
                break;
            }
            (0..8).for_each(|_| core::hint::spin_loop());
        }
        if self.change(|_, state| (state & INVITED != 0).then_some(state & !INVITED)) {
            let longer = (self.get(BACK_OFF) * 2).min(PATIENCE_MAX);
            self.put(BACK_OFF, longer);
            self.put(COUNTDOWN, longer);
        }
        false
    }

    /// Whether the reader was last seen on another core, and does not sleep at the host: the host
    /// has bytes for it, or it makes no call.
    fn reader_comes(&self) -> bool {
        let core = self.get(READER_CORE);
        let elsewhere = core != 0 && core != core_number();
        let awake = self.get(HOST_IN) != self.get(HOST_OUT)
            || (self.get(FLIGHT) as u32 as u64) < READ_IN_FLIGHT;
        elsewhere && awake
    }

    /// `got` bytes of the host's have been put at the head; both locks are still held.
    pub fn climbed(&self, got: u64) {
        self.put(SEEN_TAIL, self.get(TAIL));
        self.forget_short();
        self.put(HEAD, self.get(CLIMB_HEAD) + got);
        self.see_head();
        kill::point();
        self.put(HOST_OUT, self.get(CLIMB_OUT).wrapping_add(got));
        kill::point();
        if self.get(HOST_IN) == self.get(HOST_OUT) {
            self.arrive()
        } else {
            self.set(Mode::Leaving)
        }
    }

    /// Out of `Climbing`: into the ring, unless somebody left meanwhile.
    fn arrive(&self) {
        self.change(|_, state| {
            let mode = if state & LEFT != 0 { Mode::Leaving } else { Mode::Ring };
            Some(state & !(MODE | LEFT) | bits(mode))
        });
    }

    /// Who climbed or withdrew has died; both locks are the caller's now, the host has `left`
    /// bytes.
    pub fn settle(&self, left: u64) {
        if !self.settle_withdrawal(left) && self.get(CLIMB_BYTES) != 0 {
            let out = self.get(HOST_IN).wrapping_sub(left);
            let got = out.wrapping_sub(self.get(CLIMB_OUT));
            if got <= self.get(CLIMB_BYTES) {
                self.put(SEEN_TAIL, self.get(TAIL));
                self.forget_short();
                self.put(HEAD, self.get(CLIMB_HEAD) + got);
                self.put(HOST_OUT, out);
            }
        }
        self.set(Mode::Leaving);
    }

    /// The ring is to be left by a reader, who holds both locks: whether it was empty.
    pub fn go_to_host(&self) -> bool {
        if self.readable(RING_BYTES) != 0 && kill::mutant() != 24 {
            return false;
        }
        let well = self.get(SERVED) >= SERVED_WELL;
        let longer = (self.get(BACK_OFF) * 2).min(PATIENCE_MAX);
        let patience = if well { PATIENCE_MIN } else { longer };
        self.put(BACK_OFF, patience);
        self.put(COUNTDOWN, patience);
        self.set(Mode::Host);
        true
    }
}
