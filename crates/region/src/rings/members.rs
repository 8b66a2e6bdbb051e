//! Sockets with rings in epoll sets: what is asked of each, which may be ready, and who sleeps.
//!
//! ```text
//!   set   name | highest group | sleeper | epoch, asleep | who told last | bits, one for each lane
//!         | lock | the host's alone | score of look-outs | bell
//!         | item of lane 0 | of lane 1 | ...       an item: lane and number, mask, data
//!   lane  hook: the set, and whether it waits for bytes
//! ```
//!
//! The set stays the host's, and every member is registered there, exactly as the program asked.
//! The host tells of what it has: bytes, ends, errors, room. What lies in a ring it does not know;
//! that is told here (`docs/adr/0059`).
//!
//! Invariants
//! 1. A bit is a hint: the collector's look at the ring makes the event. A writer moves its head,
//!    then sets the bit, then looks whether the set sleeps; a sleeper says so, then looks at the
//!    bits. So one of them sees the other.
//! 2. While a set sleeps, who writes for it goes to the host, whose event wakes it. The first one
//!    whose bytes are there takes the word away; it names the sleep, so a late hand takes nothing.
//!    Once a second thread uses the set or its members the word stays until the sleeper is awake:
//!    that thread could take the bytes away first, and the sleeper would sleep on.
//! 3. One thread at a time sleeps in a set: with two, the set is the host's alone.
//! 4. Items change under the set's lock, which is a pipe's and is taken over from the dead.
//! 5. An item counts only while its lane lives and is hooked to this life of the set.
//! 6. A one-shot that has been told is *spent*: its lane tells the set of no bytes until it is
//!    asked anew, which comes first; then somebody looks at the ring.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::hooks::kill;
use crate::rings::epoll::{self, SETS_MAX};
use crate::rings::pace::{core_number, ticks};
use crate::rings::pipes::{self, HOOK, Held, Holder, Lock, PIPES_MAX, Pipe, TOLD};
use crate::txn::life::Life;

const NAME: usize = 0;
const GROUPS: usize = 1;
const SLEEPER: usize = 2;
const EPOCH: usize = 3;
const ASLEEP: usize = 4;
const TELLER: usize = 5;
const POLLED: usize = 6;
const TURN: usize = 7;
const BITS: usize = 8;
// The lock is word 24, where a pipe has the writers'.
const HOSTS: usize = 25;
const SCORE: usize = 26;
const SKIPPED: usize = 27;
const WAITS: usize = 28;
const NUMBER: usize = 29;
const POLLS: usize = 30;
const USER: usize = 31;
const BELL: usize = 32;
const DIRTY: usize = 40;
const ITEMS: usize = 64;

const _: () = assert!(BITS + PIPES_MAX as usize / 64 == 24);

const ITEM_WORDS: usize = 4;
const WHO: usize = 0;
const ASKED: usize = 1;
const DATA: usize = 2;
const HOST: usize = 3;
/// In `WHO`: the lane is in the set.
const ON: u64 = 1 << 31;

/// In `ASKED`, above the mask: a one-shot has been told, and nothing is until it is asked anew.
const SPENT: u64 = 1 << 32;

/// In `HOST`, above the mask: the host has it registered.
const REGISTERED: u64 = 1 << 32;

/// Bytes of one set's members.
const MEMBERS_BYTES: usize = (ITEMS + PIPES_MAX as usize * ITEM_WORDS) * 8;
/// Bytes of all.
pub(crate) const ALL_BYTES: usize = SETS_MAX as usize * MEMBERS_BYTES;

/// In a lane's hook, above the set's name: the set waits for bytes.
const WANTS_BYTES: u64 = 1 << 32;
/// `EPOLLIN`, `EPOLLRDNORM`.
const READS: u32 = 0x41;

/// Ticks for which a set looks on before it sleeps; and between two looks at the host meanwhile.
const LOOK_OUT_TICKS: u64 = 100_000;
/// Ticks for which the host is not asked again while rings have events.
const HOST_TICKS: u64 = 50_000;
/// Waits after which it is asked all the same.
const HOST_EVERY: u64 = 16;
/// Look-outs that failed, worth so many that did not; below zero only one in `TRIED_EVERY` is made.
const SCORE_MAX: u64 = 8;
const TRIED_EVERY: u64 = 16;
/// In `USER`: more than one thread.
const MANY: u64 = u64::MAX;

/// What a set asks of one of its sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// The lane that the socket reads from.
    pub lane: u32,
    /// The number it was added by.
    pub fd: u32,
    /// Its events, and how they are told.
    pub mask: u32,
    /// What is told with them.
    pub data: u64,
}

/// How going to sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// The host may wait now.
    Asleep,
    /// Something may be ready.
    Ready,
    /// Another thread sleeps there.
    Many,
}

/// The members of one set, in one of its lives.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    words: usize,
    name: u32,
}

impl Members {
    /// Those of set `name`, if it has ever had one.
    #[inline(always)]
    pub fn of(name: u32) -> Option<Members> {
        let members = Members::at(name)?;
        (members.get(NAME) == name as u64).then_some(members)
    }

    #[inline(always)]
    fn at(name: u32) -> Option<Members> {
        pipes::reach().ok()?;
        let first = epoll::members_address()?;
        let number = (name % SETS_MAX) as usize;
        Some(Members { words: first + number * MEMBERS_BYTES, name })
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: `at` has seen that the area is mapped, which stays, and the number is below the
        // most there are; all access to these words is atomic.
        unsafe { &*((self.words + index * 8) as *const AtomicU64) }
    }

    #[inline(always)]
    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }

    #[inline(always)]
    fn put(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    // ---- items ----------------------------------------------------------------------------------

    fn guard(&self) -> Pipe {
        Pipe { words: self.words, ring: 0, life: 0 }
    }

    /// Takes the lock of set `name`, which begins its life with members here.
    pub fn lock(name: u32, me: Holder) -> Result<(), Held> {
        let Some(members) = Members::at(name) else { return Ok(()) };
        members.guard().lock(Lock::Writers, me)?;
        if members.get(NAME) != name as u64 {
            // All but the lock.
            (GROUPS..BITS + PIPES_MAX as usize / 64).for_each(|index| members.put(index, 0));
            let others = [HOSTS, SKIPPED, WAITS, NUMBER, POLLS, USER, BELL].into_iter();
            let others = others.chain(DIRTY..DIRTY + PIPES_MAX as usize / 64);
            others.for_each(|index| members.put(index, 0));
            members.put(SCORE, SCORE_MAX);
            members.put(NAME, name as u64);
        }
        Ok(())
    }

    /// Lets it go.
    pub fn unlock(&self) {
        self.guard().unlock(Lock::Writers);
    }

    fn item_word(&self, number: usize, word: usize) -> usize {
        ITEMS + (number % PIPES_MAX as usize) * ITEM_WORDS + word
    }

    /// The life of the set ends: its members are in none.
    pub fn end(name: u32) {
        if let Some(members) = Members::of(name) {
            members.put(NAME, 0);
        }
    }

    /// What was last asked of lane number `number`; whether it is in the set now.
    pub fn item(&self, number: usize) -> (Item, bool) {
        let who = self.get(self.item_word(number, WHO));
        let item = Item {
            lane: (who >> 32) as u32,
            fd: (who & !ON) as u32,
            mask: self.get(self.item_word(number, ASKED)) as u32,
            data: self.get(self.item_word(number, DATA)),
        };
        (item, who & ON != 0)
    }

    /// The lock is the caller's: `item` is in the set, if its lane may be.
    pub fn enter(&self, lane: &Pipe, item: &Item) -> bool {
        let number = lane.number();
        let wants = if item.mask & READS != 0 { WANTS_BYTES } else { 0 };
        let hook = self.name as u64 | wants;
        let old = lane.get(HOOK);
        let free = old == 0 || old as u32 == self.name || Members::of(old as u32).is_none();
        if !free || !lane.swap_if(HOOK, old, hook) {
            return false;
        }
        kill::point();
        self.put(self.item_word(number, ASKED), item.mask as u64);
        self.put(self.item_word(number, DATA), item.data);
        self.put(self.item_word(number, WHO), (item.lane as u64) << 32 | ON | item.fd as u64);
        kill::point();
        let group = number as u64 / 64 + 1;
        self.word(GROUPS).fetch_max(group, Ordering::SeqCst);
        true
    }

    /// The lock is the caller's: a one-shot has been told.
    pub fn spend(&self, lane: &Pipe) {
        let asked = self.item_word(lane.number(), ASKED);
        let before = self.get(asked);
        if before & SPENT != 0 {
            return;
        }
        self.put(asked, before | SPENT);
        kill::point();
        let hook = lane.get(HOOK);
        if hook as u32 == self.name {
            lane.swap_if(HOOK, hook, self.name as u64);
        }
    }

    /// Whether lane number `number` is a one-shot that has been told, and not asked anew.
    pub fn is_spent(&self, number: usize) -> bool {
        self.get(self.item_word(number, ASKED)) & SPENT != 0
    }

    /// The lock is the caller's: the lane is not in the set any more. As long as the host has it
    /// registered it stays hooked.
    pub fn exit(&self, lane: &Pipe) {
        let who = self.item_word(lane.number(), WHO);
        self.put(who, self.get(who) & !ON);
        kill::point();
        let old = lane.get(HOOK);
        if old as u32 == self.name {
            let kept = self.registered(lane.number()).is_some();
            lane.swap_if(HOOK, old, if kept { self.name as u64 } else { 0 });
        }
    }

    /// The events that the host has registered lane number `number` for.
    pub fn registered(&self, number: usize) -> Option<u32> {
        let host = self.get(self.item_word(number, HOST));
        (host & REGISTERED != 0).then_some(host as u32)
    }

    /// It has these now, or none; `same`: as the program asks.
    pub fn register(&self, number: usize, mask: Option<u32>) {
        let host = mask.map_or(0, |mask| REGISTERED | mask as u64);
        self.put(self.item_word(number, HOST), host);
    }

    /// The host has lane number `number` otherwise than the program asks; or the same.
    pub fn set_dirty(&self, number: usize, dirty: bool) {
        let (word, bit) = (self.word(DIRTY + number / 64), 1 << (number % 64));
        if dirty {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Lane numbers from `from` on of which that is so.
    pub fn next_dirty(&self, from: usize) -> Option<usize> {
        let groups = (self.get(GROUPS) as usize).min(PIPES_MAX as usize / 64);
        for group in from / 64..groups {
            let mut bits = self.get(DIRTY + group);
            if group == from / 64 {
                bits &= u64::MAX << (from % 64);
            }
            if bits != 0 {
                return Some(group * 64 + bits.trailing_zeros() as usize);
            }
        }
        None
    }

    /// The number of the set in the process that has it alone.
    pub fn number(&self) -> u32 {
        self.get(NUMBER) as u32
    }

    /// That is it.
    pub fn set_number(&self, fd: u32) {
        self.put(NUMBER, fd as u64);
    }

    /// Whether a thread sleeps, or is about to.
    pub fn has_sleeper(&self) -> bool {
        self.get(SLEEPER) != 0
    }

    /// What rings the set's bell, as its clients have agreed; 0: there is none.
    #[inline(always)]
    pub fn bell(&self) -> u64 {
        self.get(BELL)
    }

    /// That is it.
    pub fn set_bell(&self, bell: u64) {
        self.put(BELL, bell);
    }

    /// It has `instead`, if `bell` was its own.
    pub fn forget_bell(&self, bell: u64, instead: u64) {
        let word = self.word(BELL);
        let _ = word.compare_exchange(bell, instead, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// How often a thread has gone to sleep here.
    pub fn sleeps(&self) -> u64 {
        self.get(EPOCH)
    }

    // ---- bits -----------------------------------------------------------------------------------

    /// The lane may be ready.
    #[inline(always)]
    pub fn mark(&self, number: usize) {
        kill::point();
        self.word(BITS + number / 64).fetch_or(1 << (number % 64), Ordering::SeqCst);
        kill::point();
    }

    /// Bytes have come for it; whether the set sleeps, and must be woken.
    #[inline(always)]
    pub fn tell(&self, number: usize) -> bool {
        self.mark(number);
        let mine = core_number();
        if self.get(TELLER) != mine {
            self.put(TELLER, mine);
        }
        self.asleep() != 0 && kill::mutant() != 71
    }

    /// Takes the bit away, before or after a look.
    pub fn clear(&self, number: usize) {
        self.word(BITS + number / 64).fetch_and(!(1 << (number % 64)), Ordering::SeqCst);
    }

    /// Whether any bit is set.
    #[inline(always)]
    pub fn any_bit(&self) -> bool {
        let groups = (self.get(GROUPS) as usize).min(PIPES_MAX as usize / 64);
        (0..groups).any(|group| self.get(BITS + group) != 0)
    }

    /// Shows the lanes whose bits are set, from a turning one on, until `seen` is false.
    pub fn each_bit(&self, mut seen: impl FnMut(usize) -> bool) {
        let groups = (self.get(GROUPS) as usize).clamp(1, PIPES_MAX as usize / 64);
        let turn = self.get(TURN) as usize;
        self.put(TURN, turn as u64 + 1);
        for step in 0..groups {
            let group = (turn + step) % groups;
            let mut bits = self.get(BITS + group);
            while bits != 0 {
                let number = group * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if !seen(number) {
                    return;
                }
            }
        }
    }

    // ---- sleep ----------------------------------------------------------------------------------

    /// The sleep that the set is in, if nobody has woken it; 0: none.
    #[inline(always)]
    pub fn asleep(&self) -> u64 {
        self.get(ASLEEP)
    }

    /// The process and the sleep of the thread that sleeps, if nobody has woken it.
    pub fn sleeper(&self) -> Option<(u32, u64)> {
        let (sleeper, sleep) = (self.get(SLEEPER), self.asleep());
        (sleeper != 0 && sleep != 0).then(|| (Holder(sleeper).pid(), sleep))
    }

    /// Numbers of lanes that there may be members below.
    pub fn end_of_numbers(&self) -> usize {
        (self.get(GROUPS) as usize * 64).min(PIPES_MAX as usize)
    }

    /// Whether another thread than this one sleeps, has been told, and has not come yet.
    pub fn is_waking(&self, me: Holder) -> bool {
        let sleeper = self.get(SLEEPER);
        let other = sleeper != 0 && sleeper != me.0 && self.asleep() == 0;
        other && Holder(sleeper).judge() != Life::Dead
    }

    /// This thread waits in the set, or is about to take away what the host may have told of a
    /// member: before it looks whether the sleeper is waking.
    pub fn use_by(&self, me: Holder) {
        let user = self.get(USER);
        if user == me.0 || user == MANY {
            return;
        }
        let word = self.word(USER);
        let first = word.compare_exchange(user, me.0, Ordering::SeqCst, Ordering::SeqCst);
        if user != 0 || first.is_err() {
            word.store(MANY, Ordering::SeqCst);
        }
    }

    /// The host has an event for sleep `epoch`. True: it may be gone again, so the sleep goes on,
    /// and what has come into rings meanwhile must go to the host, too.
    pub fn told(&self, epoch: u64) -> bool {
        let many = || self.get(USER) == MANY;
        let word = self.word(ASLEEP);
        let swap = |old, new| word.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed);
        if many() || swap(epoch, 0).is_err() {
            return false;
        }
        kill::point();
        if !many() || self.get(SLEEPER) == 0 {
            return false;
        }
        let _ = swap(0, epoch);
        self.any_bit()
    }

    /// The host is about to wait for this thread.
    pub fn sleep(&self, me: Holder) -> Sleep {
        let old = self.get(SLEEPER);
        if old != 0 && old != me.0 && Holder(old).judge() != Life::Dead {
            return Sleep::Many;
        }
        let word = self.word(SLEEPER);
        if word.compare_exchange(old, me.0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return Sleep::Many;
        }
        kill::point();
        let epoch = self.word(EPOCH).fetch_add(1, Ordering::SeqCst) + 1;
        self.word(ASLEEP).swap(epoch, Ordering::SeqCst);
        kill::point();
        if (self.any_bit() || self.next_dirty(0).is_some()) && kill::mutant() != 72 {
            self.wake(me);
            return Sleep::Ready;
        }
        Sleep::Asleep
    }

    /// The host's wait is over.
    pub fn wake(&self, me: Holder) {
        if self.get(SLEEPER) == me.0 {
            self.word(ASLEEP).store(0, Ordering::SeqCst);
            self.word(SLEEPER).store(0, Ordering::SeqCst);
        }
    }

    /// Whether the host is to be asked beside what rings have.
    pub fn is_host_due(&self) -> bool {
        let waits = self.get(WAITS) + 1;
        self.put(WAITS, waits);
        waits.is_multiple_of(HOST_EVERY) || !self.is_polled_within(HOST_TICKS)
    }

    /// The host has been asked, and has told all.
    pub fn polled(&self) {
        self.word(POLLS).fetch_add(1, Ordering::SeqCst);
        self.put(POLLED, ticks());
    }

    /// It told of this lane.
    pub fn polled_of(&self, lane: &Pipe) {
        lane.put(TOLD, self.get(POLLS) + 1);
    }

    /// Whether it has been asked within so many ticks, and had nothing of this lane, of which it
    /// tells `once`: of an edge, or of a one-shot.
    #[inline(always)]
    pub fn is_quiet(&self, lane: &Pipe, span: u64, once: bool) -> bool {
        let told = lane.get(TOLD);
        let since = told == 0 || !once && self.get(POLLS) + 1 > told;
        since && self.is_polled_within(span)
    }

    /// Whether that was within so many ticks.
    #[inline(always)]
    pub fn is_polled_within(&self, span: u64) -> bool {
        ticks().wrapping_sub(self.get(POLLED)) < span
    }

    /// Whether that pays: who told last runs on another core.
    pub fn looks_on(&self) -> bool {
        let teller = self.get(TELLER);
        let tries = || self.get(SCORE) != 0 || (self.get(SKIPPED) + 1).is_multiple_of(TRIED_EVERY);
        teller != 0 && teller != core_number() && tries()
    }

    /// Looks on for a bit, if that pays.
    pub fn look_on(&self) -> bool {
        let (looks, score) = (self.looks_on(), self.get(SCORE));
        if score == 0 {
            self.put(SKIPPED, self.get(SKIPPED) + 1);
        }
        if !looks {
            return false;
        }
        let start = ticks();
        let found = loop {
            if self.any_bit() {
                break true;
            }
            (0..4).for_each(|_| core::hint::spin_loop());
            let here = self.get(TELLER) == core_number();
            if here || ticks().wrapping_sub(start) > LOOK_OUT_TICKS {
                break self.any_bit();
            }
        };
        self.put(SCORE, if found { (score + 1).min(SCORE_MAX) } else { score.saturating_sub(2) });
        found
    }

    // ---- the host's alone -----------------------------------------------------------------------

    /// From now on members have no rings to be read from.
    pub fn leave_to_host(&self) {
        self.word(HOSTS).store(1, Ordering::SeqCst);
    }

    /// Whether that is so.
    pub fn is_hosts(&self) -> bool {
        self.get(HOSTS) != 0
    }
}

impl Pipe {
    /// The set that the socket which reads from this lane is in.
    #[inline(always)]
    pub fn hook(&self) -> Option<Members> {
        let hook = self.get(HOOK);
        if hook == 0 { None } else { Members::of(hook as u32) }
    }

    /// The same after bytes have been given, if that waits for them.
    #[inline(always)]
    pub fn told_of_bytes(&self) -> Option<Members> {
        // Who comes into a set sets the hook, then looks at the head.
        fence(Ordering::SeqCst);
        self.teller()
    }

    /// The same, if that waits for bytes.
    #[inline(always)]
    pub fn teller(&self) -> Option<Members> {
        let hook = self.get(HOOK);
        if hook & WANTS_BYTES == 0 { None } else { Members::of(hook as u32) }
    }

    /// The host has nothing of this lane now.
    pub fn settle_told(&self) {
        self.put(TOLD, 0);
    }

    /// The name of that set.
    pub fn hook_name(&self) -> Option<u32> {
        self.hook().map(|members| members.name)
    }
}
