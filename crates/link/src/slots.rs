//! Requests in memory that an agent and the processes of other nodes of its host map: for those
//! that come and go, as `call`, but without a socket for each.
//!
//! ```text
//!   asker   FREE ─claims─► CLAIMED ─writes, posts─► ASKED                reads ─► FREE
//!   agent                                             '─takes─► TAKEN ─► ANSWERED ─'
//!   asker   gives up while it is TAKEN ─► LEFT: the agent frees it
//! ```
//!
//! A slot's first word says what state it is in, and how often it was claimed. Its second word is
//! the agent's thread's while that works on it: the host marks it when the thread dies (robust
//! futexes). So does it with `ALIVE` when the agent does. A word of bits (`POSTED`) says where to
//! look.
//!
//! Invariants
//! 1. An asker may be killed at any instruction: its slot is taken back when it is answered and its
//!    process is gone, or (where nobody has seen its request) never.
//! 2. An agent may be: what it had taken is `Lost`, what it had not is not done. A request is lost
//!    only when no thread works on it any more. The memory is of one agent's life; askers go to the
//!    socket then.
//! 3. Every wait is bounded: `NAP`, and who asks says how long an answer may take.
//! 4. What an asker has read is the answer to its own request if the slot was still its own
//!    afterwards.
//! 5. No thread sleeps while there is a request: one that looks for them sets `LOOKS`, and looks
//!    once more after it has cleared that. An asker that does not see it set wakes a thread.
//!
//! Orders: what decides between two sides (`STATE`, `POSTED`, `LOOKS`, `WORK`, `SLEEPERS`,
//! `SLEEPS`, `TAKER`) is sequentially consistent. Bytes and lengths are written before, and read
//! after, a change of `STATE`.
//!
//! Not here: what requests mean, whether one is sent again (`call::Unanswered`).

use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::{NonNull, copy_nonoverlapping};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use husk_abi::{Errno, PAGE, nr};
use husk_host::calls::{raw, ticks};

use crate::Unanswered;
use crate::doorbell::wake;

/// Requests at once; more go another way.
pub const SLOTS: usize = 64;
/// Its words, which are a line of their own.
const LINE: usize = 64;
/// Longest request, and answer.
pub const SLOT_BYTES_MAX: usize = 16 << 10;
const BODIES: usize = PAGE + (SLOTS * LINE).next_multiple_of(PAGE);

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const ASKED: u32 = 2;
const TAKEN: u32 = 3;
const ANSWERED: u32 = 4;
const LEFT: u32 = 5;
const STATE_MASK: u32 = 7;
/// What a slot's first word grows by with each claim.
const CLAIM: u32 = 8;

/// Words of the head.
const ALIVE: usize = 0;
const WORK: usize = 64;
const LOOKS: usize = 128;
const SLEEPERS: usize = 192;
/// A bit for each slot that is to be looked at.
const POSTED: usize = 256;
/// Words of a slot.
const STATE: usize = 0;
const TAKER: usize = 8;
const PROCESS: usize = 16;
const LENGTH: usize = 20;
/// When it was answered, in `now_spans`.
const SINCE: usize = 24;
/// Whether the asker sleeps.
const SLEEPS: usize = 28;
const _: () = assert!(SLEEPS + 4 <= LINE && POSTED + 8 <= PAGE && SLOTS <= 64);

/// `FUTEX_OWNER_DIED`.
const DIED: u32 = 0x4000_0000;
const FUTEX_WAIT: usize = 0;
/// Longest sleep at once: then an asker looks whether the agent lives.
const NAP_NS: u64 = 20_000_000;
/// The same of an agent's thread that has nothing to do.
const IDLE_S: u64 = 2;
/// How long an asker looks before it sleeps, in ticks of the processor's clock (some us): only
/// where a thread of the agent is awake.
const LOOK_TICKS: u64 = 40_000;

/// A mapping of `BYTES` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'m> {
    base: NonNull<u8>,
    lent: PhantomData<&'m ()>,
}

// SAFETY: what it leads to is accessed by atomic words and raw copies only.
unsafe impl Send for Slots<'_> {}
// SAFETY: the same.
unsafe impl Sync for Slots<'_> {}

/// One of them, that the agent has taken.
#[derive(Debug)]
pub struct Taken {
    at: usize,
    state: u32,
}

/// One that was answered: which slot, and which claim of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Answered {
    /// Less than `SLOTS`.
    pub at: usize,
    /// Comes again after 2^29 claims.
    pub turn: u32,
}

impl Taken {
    /// As it will be known once it is answered.
    pub fn answered(&self) -> Answered {
        Answered { at: self.at, turn: self.state & !STATE_MASK }
    }
}

/// What the host does for a thread when it dies: marks the word that `pending` leads to as the
/// thread's no more, if it is.
#[derive(Debug)]
#[repr(C)]
pub struct Robust {
    first: AtomicUsize,
    offset: usize,
    pending: AtomicUsize,
    thread: AtomicU32,
    /// The slot that this thread looks at first: each has its turn.
    next: AtomicU32,
}

/// Bytes of the host's part of it, `struct robust_list_head`.
const ROBUST_BYTES: usize = 24;
const _: () = assert!(
    offset_of!(Robust, first) == 0
        && offset_of!(Robust, offset) == 8
        && offset_of!(Robust, pending) + 8 == ROBUST_BYTES
);

impl Robust {
    /// Of no thread yet.
    pub const fn new() -> Robust {
        Robust {
            first: AtomicUsize::new(0),
            offset: 0,
            pending: AtomicUsize::new(0),
            thread: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }

    /// From now on it is this thread's, which has no other one. False: the host does not do it.
    pub fn begin(&'static self) -> bool {
        let at = self as *const Robust as usize;
        // An empty list leads to itself.
        self.first.store(at, Relaxed);
        // SAFETY: no arguments.
        let thread = unsafe { raw(nr::gettid, [0; 6]) }.unwrap_or(0);
        self.thread.store(thread as u32, Relaxed);
        // SAFETY: it begins as a `struct robust_list_head`, and lives for ever.
        unsafe { raw(nr::set_robust_list, [at, ROBUST_BYTES, 0, 0, 0, 0]) }.is_ok()
    }
}

impl Default for Robust {
    fn default() -> Self {
        Robust::new()
    }
}

impl<'m> Slots<'m> {
    /// Bytes of memory that they need.
    pub const BYTES: usize = BODIES + SLOTS * SLOT_BYTES_MAX;

    /// Those that are mapped at `base`.
    ///
    /// # Safety
    /// `BYTES` bytes there, on a page, are readable and writable for 'm; others access them through
    /// this, too.
    pub unsafe fn at(base: NonNull<u8>) -> Slots<'m> {
        Slots { base, lent: PhantomData }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < Self::BYTES);
        // SAFETY: inside the mapping, aligned; all sides access it as a word.
        unsafe { self.base.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn of(&self, slot: usize, word: usize) -> &AtomicU32 {
        self.word(PAGE + slot * LINE + word)
    }

    fn posted(&self) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned; all sides access it as a word.
        unsafe { self.base.add(POSTED).cast::<AtomicU64>().as_ref() }
    }

    fn fill(&self, slot: usize, offset: usize, bytes: &[u8]) {
        assert!(slot < SLOTS && offset + bytes.len() <= SLOT_BYTES_MAX);
        let to = self.base.as_ptr().wrapping_add(BODIES + slot * SLOT_BYTES_MAX + offset);
        // SAFETY: inside the mapping; nobody has a reference to these bytes.
        unsafe { copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn copy(&self, slot: usize, into: &mut [u8]) {
        assert!(slot < SLOTS && into.len() <= SLOT_BYTES_MAX);
        let from = self.base.as_ptr().wrapping_add(BODIES + slot * SLOT_BYTES_MAX);
        // SAFETY: inside the mapping; the other side may write meanwhile, which is judged after.
        unsafe { copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }
}

/// What an asker does.
impl Slots<'_> {
    /// Whether the agent that made them lives.
    pub fn is_alive(&self) -> bool {
        let word = self.word(ALIVE).load(Acquire);
        word != 0 && word & DIED == 0
    }

    /// As `call`, for `process`. `None`: it has to go another way.
    pub fn call(
        &self,
        process: u32,
        parts: [&[u8]; 2],
        room: &mut [u8],
        patience_s: u64,
    ) -> Result<Option<usize>, Unanswered> {
        let length = parts[0].len() + parts[1].len();
        if length > SLOT_BYTES_MAX || !self.is_alive() {
            return Ok(None);
        }
        let Some((slot, turn)) = self.claim(process) else { return Ok(None) };
        self.fill(slot, 0, parts[0]);
        self.fill(slot, parts[0].len(), parts[1]);
        self.of(slot, LENGTH).store(length as u32, Relaxed);
        let state = self.of(slot, STATE);
        state.store(turn | ASKED, SeqCst);
        self.posted().fetch_or(1 << slot, SeqCst);
        if !self.is_looked_at(state, turn) {
            self.wake_one();
        }
        if !self.is_answered(slot, turn, patience_s)? {
            return Ok(None);
        }
        let length = self.of(slot, LENGTH).load(Relaxed) as usize;
        let fits = length <= room.len().min(SLOT_BYTES_MAX);
        if fits {
            self.copy(slot, &mut room[..length]);
        }
        let own = state.compare_exchange(turn | ANSWERED, turn | FREE, SeqCst, Relaxed).is_ok();
        match (own, fits) {
            (true, true) => Ok(Some(length)),
            // It would be as long the next time.
            (true, false) => Err(Unanswered::Late),
            (false, _) => Err(Unanswered::Lost),
        }
    }

    fn claim(&self, process: u32) -> Option<(usize, u32)> {
        for step in 0..SLOTS {
            let slot = (process as usize + step) % SLOTS;
            let word = self.of(slot, STATE);
            let state = word.load(Relaxed);
            if state & STATE_MASK != FREE {
                continue;
            }
            let turn = (state & !STATE_MASK).wrapping_add(CLAIM);
            if word.compare_exchange(state, turn | CLAIMED, SeqCst, Relaxed).is_ok() {
                self.of(slot, PROCESS).store(process, Relaxed);
                self.of(slot, SLEEPS).store(0, Relaxed);
                return Some((slot, turn));
            }
        }
        None
    }

    /// Whether a thread of the agent that was awake takes the request: the answer is near then, and
    /// is looked for.
    fn is_looked_at(&self, word: &AtomicU32, turn: u32) -> bool {
        if self.word(LOOKS).load(SeqCst) == 0 {
            return false;
        }
        let begin = ticks();
        while ticks().wrapping_sub(begin) < LOOK_TICKS && word.load(Acquire) != turn | ANSWERED {
            core::hint::spin_loop();
        }
        // Who looked may have lost its core.
        word.load(Acquire) != turn | ASKED
    }

    /// Waits for the answer. False: nobody has taken the request, nor will.
    fn is_answered(&self, slot: usize, turn: u32, patience_s: u64) -> Result<bool, Unanswered> {
        let word = self.of(slot, STATE);
        let mut since = None;
        loop {
            let state = word.load(Acquire);
            if state == turn | ANSWERED {
                return Ok(true);
            }
            if state == turn | TAKEN && self.is_dead(slot) {
                // Should it still be about to answer, it learns that nobody waits.
                let left = word.compare_exchange(state, turn | LEFT, SeqCst, Relaxed);
                if left.is_ok() {
                    return Err(Unanswered::Lost);
                }
                continue;
            }
            let is_over = since.is_some_and(|since| now_s().wrapping_sub(since) > patience_s);
            let left = match state ^ turn {
                ASKED if !self.is_alive() || is_over => FREE,
                TAKEN if is_over => LEFT,
                ASKED | TAKEN => {
                    self.of(slot, SLEEPS).store(1, SeqCst);
                    // Also where signals end each sleep.
                    since = since.or_else(|| Some(now_s()));
                    if word.load(SeqCst) == state {
                        wait(word, state, [0, NAP_NS]);
                    }
                    continue;
                }
                // It is ours no more.
                _ => return Err(Unanswered::Lost),
            };
            if word.compare_exchange(state, turn | left, SeqCst, Relaxed).is_ok() {
                return if is_over { Err(Unanswered::Late) } else { Ok(false) };
            }
        }
    }

    /// Whether the thread is dead that has taken a request.
    fn is_dead(&self, slot: usize) -> bool {
        let taker = self.of(slot, TAKER).load(Acquire);
        // 0: it had done everything but to say so.
        taker & DIED != 0 || taker == 0 && !self.is_alive()
    }

    fn wake_one(&self) {
        self.word(WORK).fetch_add(1, SeqCst);
        if self.word(SLEEPERS).load(SeqCst) != 0 {
            wake(self.word(WORK).as_ptr() as usize);
        }
    }
}

/// What the agent does.
impl Slots<'_> {
    /// From now on requests are taken: the agent lives as long as this thread, which has `robust`
    /// for nothing else. Where the host does not mark words of the dead, all goes another way.
    pub fn open(&self, robust: &'static Robust) {
        if !robust.begin() {
            return;
        }
        let word = self.word(ALIVE);
        robust.pending.store(word.as_ptr() as usize, SeqCst);
        word.store(robust.thread.load(Relaxed), SeqCst);
    }

    /// A request, if there is one, into `room` of `SLOT_BYTES_MAX` bytes at least, and its length.
    pub fn take(&self, robust: &'static Robust, room: &mut [u8]) -> Option<(Taken, usize)> {
        loop {
            let posted = self.posted().load(SeqCst);
            if posted == 0 {
                return None;
            }
            let first = robust.next.load(Relaxed) % 64;
            let at = (posted.rotate_right(first).trailing_zeros() + first) as usize % 64;
            robust.next.store(at as u32 + 1, Relaxed);
            if self.posted().fetch_and(!(1 << at), SeqCst) & 1 << at == 0 {
                continue;
            }
            let (word, taker) = (self.of(at, STATE), self.of(at, TAKER));
            // The host is to know of it before it is ours.
            robust.pending.store(taker.as_ptr() as usize, SeqCst);
            let own = robust.thread.load(Relaxed);
            if taker.compare_exchange(0, own, SeqCst, Relaxed).is_err() {
                // Another thread has looked at an earlier request there, and goes on this moment.
                self.posted().fetch_or(1 << at, SeqCst);
                core::hint::spin_loop();
                continue;
            }
            let state = word.load(SeqCst);
            let taken = state & !STATE_MASK | TAKEN;
            if state & STATE_MASK == ASKED
                && word.compare_exchange(state, taken, SeqCst, Relaxed).is_ok()
            {
                let length = self.of(at, LENGTH).load(Relaxed) as usize;
                let length = length.min(SLOT_BYTES_MAX);
                self.copy(at, &mut room[..length]);
                return Some((Taken { at, state: taken }, length));
            }
            taker.store(0, SeqCst);
        }
    }

    /// Answers it. False: nobody waits for that any more.
    pub fn answer(&self, taken: Taken, answer: Option<&[u8]>) -> bool {
        let Taken { at, state } = taken;
        let (word, turn) = (self.of(at, STATE), state & !STATE_MASK);
        let answer = answer.filter(|answer| answer.len() <= SLOT_BYTES_MAX);
        let length = answer.map_or(u32::MAX, |answer| answer.len() as u32);
        self.fill(at, 0, answer.unwrap_or_default());
        self.of(at, LENGTH).store(length, Relaxed);
        self.of(at, SINCE).store(now_spans(), Relaxed);
        self.of(at, TAKER).store(0, SeqCst);
        let heard = word.compare_exchange(state, turn | ANSWERED, SeqCst, Relaxed).is_ok();
        if !heard {
            // It was left, and nobody else changes it then.
            word.store(turn | FREE, SeqCst);
        } else if self.of(at, SLEEPS).load(SeqCst) != 0 {
            wake(word.as_ptr() as usize);
        }
        heard
    }

    /// Notes that this thread looks for requests, unless another one does already.
    pub fn begin_look(&self) -> bool {
        self.word(LOOKS).compare_exchange(0, 1, SeqCst, Relaxed).is_ok()
    }

    /// It does not any more: `has_request` is to be asked once more.
    pub fn end_look(&self) {
        self.word(LOOKS).swap(0, SeqCst);
    }

    /// Whether there is a request, at a glance.
    pub fn has_request(&self) -> bool {
        self.posted().load(SeqCst) != 0
    }

    /// Wakes another thread for requests that are left, if there are any.
    pub fn share(&self) {
        if self.has_request() {
            self.wake_one();
        }
    }

    /// Sleeps until there is a request, at most for some seconds.
    pub fn sleep(&self) {
        self.word(SLEEPERS).fetch_add(1, SeqCst);
        let seen = self.word(WORK).load(SeqCst);
        if !self.has_request() {
            wait(self.word(WORK), seen, [IDLE_S, 0]);
        }
        self.word(SLEEPERS).fetch_sub(1, SeqCst);
    }

    /// Frees the slots of dead askers: those with requests, and those with answers that have lain
    /// for `spans` (some 1 to 2 s each); `unread` is told of each answer.
    pub fn take_back(&self, spans: u32, mut unread: impl FnMut(Answered)) {
        for at in 0..SLOTS {
            let word = self.of(at, STATE);
            let state = word.load(SeqCst);
            let since = now_spans().wrapping_sub(self.of(at, SINCE).load(Relaxed));
            match state & STATE_MASK {
                ASKED => {}
                ANSWERED if since >= spans => {}
                _ => continue,
            }
            let process = self.of(at, PROCESS).load(Relaxed) as usize;
            // SAFETY: numbers only: signal 0 is none.
            let gone = unsafe { raw(nr::kill, [process, 0, 0, 0, 0, 0]) } == Err(Errno::ESRCH);
            let free = state & !STATE_MASK | FREE;
            // Who claims it next has another turn.
            if gone
                && word.compare_exchange(state, free, SeqCst, Relaxed).is_ok()
                && state & STATE_MASK == ANSWERED
            {
                unread(Answered { at, turn: state & !STATE_MASK });
            }
        }
    }
}

/// A clock for spans of minutes: some 1 to 2 s.
fn now_spans() -> u32 {
    (ticks() >> 32) as u32
}

/// Seconds of CLOCK_MONOTONIC.
fn now_s() -> u64 {
    const MONOTONIC: usize = 1;
    let mut time = [0u64; 2];
    let at = time.as_mut_ptr() as usize;
    // SAFETY: a `struct timespec`.
    let _ = unsafe { raw(nr::clock_gettime, [MONOTONIC, at, 0, 0, 0, 0]) };
    time[0]
}

/// Sleeps while the word is `value`, at most for so long.
fn wait(word: &AtomicU32, value: u32, time: [u64; 2]) {
    let (address, time) = (word.as_ptr() as usize, time.as_ptr() as usize);
    // SAFETY: the word is mapped and aligned, `time` outlives the call.
    let _ = unsafe { raw(nr::futex, [address, FUTEX_WAIT, value as usize, time, 0, 0]) };
}
