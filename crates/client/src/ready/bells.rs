//! Bells: eventfds by which writers of the image wake who sleeps in an epoll set, in `poll` or in a
//! read (`docs/adr/0109`).
//!
//! ```text
//!   a set sleeps often ──► its process: an eventfd, told by edges there ──► word in the region
//!   a writer meets a set asleep ──► its own number of that eventfd (pidfd_getfd, once) ──► write
//! ```
//!
//! A bell's word says where it is: process, number there, and which eventfd of the host it is. What
//! a process has of bells it keeps under numbers of its own, high ones, which are not in its table:
//! the program does not see them, and an exec closes them.
//!
//! Invariants
//! 1. Only an eventfd that the host says is the one of the word is ever written to: numbers and
//!    processes may have been given anew.
//! 2. A number goes only when nobody is writing to it: who writes is counted, then looks once more.
//!    A thread that sleeps by it is woken before.
//! 3. The numbers are those of one table, its *owner*: a child that shares memory and not the table
//!    has none of them. Once a table is shared without memory there are none at all.
//! 4. A number and an eventfd's name are given anew together, so a word may come back: sets forget
//!    a bell before its number goes, and who has taken a number looks at the set's word once more.
//! 5. A bell that cannot be rung is nothing lost: the writer goes to the host, as without one.

use crate::ready::eventfd::shown_id;
use crate::{Client, Host, Memory};
use core::hint::black_box;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use husk_abi::nr;
use husk_abi::sys::general::{
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLL_CTL_DEL, F_DUPFD_CLOEXEC, POLLIN,
};
use husk_proto::descriptor::Slot;
use husk_proto::epoll::{BELL, EVENT_BYTES, Set, bell_parts, bell_word};
use husk_proto::pipe::Pipe;
use husk_proto::{Errno, Files, Result, Services};

/// Bells that a process has at a time.
const BELLS_MAX: usize = 16;
/// What `Client::bells` has room for: those, and what Husk keeps besides.
pub(crate) const KEPT_MAX: usize = 3 + BELLS_MAX;
/// Numbers that are tried, from the highest on.
const TRIES: u32 = 64;
/// No number of a bell is lower: programs count on low ones.
const LOWEST_EVER: u32 = 256;
/// Of the meetings with bells that are not at hand one in so many gets one.
const MEETINGS: u32 = 8;
/// `EPOLLET`.
const EDGES: u32 = 1 << 31;
/// Polls of a thread after which it gets a bell; who gets none tries again after twice as many.
const POLLS_BEFORE_BELL: u32 = 16;
/// Looks at somebody who writes to a bell that is to go, and what lies between two.
const LOOKS: u32 = 1000;
const NAP_NS: u64 = 100_000;

/// No number, and no owner.
const NONE: u32 = u32::MAX;
/// In `OWNER`: there are none in this process any more.
const NEVER: u64 = u64::MAX;
/// A word without a process: there is no bell. In a set: and there will be none.
pub(crate) const SILENT: u64 = 1;

/// A bell at hand; or one that cannot be had: without a number.
struct Entry {
    /// The bell's word; 0: none.
    bell: AtomicU64,
    /// The number with all bits turned; 0: none.
    turned: AtomicU32,
    /// Who writes to it.
    users: AtomicU32,
    /// Who sleeps in `poll` until it rings, or has jumped out of there.
    sleepers: AtomicU32,
    /// It was of use since an entry was last looked for.
    used: AtomicBool,
}

/// A thread that is about to sleep in `poll`.
pub(crate) struct Asleep {
    /// The bell that wakes it.
    pub bell: u64,
    /// The bell's number.
    pub fd: u32,
    /// Where the bell is kept.
    pub place: usize,
}

impl Entry {
    fn fd(&self) -> u32 {
        !self.turned.load(SeqCst)
    }

    fn holds(&self, bell: u64) -> bool {
        self.bell.load(SeqCst) == bell
    }

    /// One thread sleeps by it no more; that may not be counted any more (`discard`).
    fn wake_up(&self) {
        let _ = self.sleepers.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }
}

static ENTRIES: [Entry; BELLS_MAX] = [const {
    Entry {
        bell: AtomicU64::new(0),
        turned: AtomicU32::new(0),
        users: AtomicU32::new(0),
        sleepers: AtomicU32::new(0),
        used: AtomicBool::new(false),
    }
}; BELLS_MAX];
/// One more than the table whose numbers they are; 0: of none yet.
static OWNER: AtomicU64 = AtomicU64::new(0);
/// The lowest number of one, with all bits turned.
static LOWEST: AtomicU32 = AtomicU32::new(0);
/// Somebody changes which there are.
static CHANGING: AtomicBool = AtomicBool::new(false);
static MEETING: AtomicU32 = AtomicU32::new(0);

fn find(bell: u64) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.holds(bell))
}

/// Whether the bells are those of table `files`.
fn owns(files: Files) -> bool {
    OWNER.load(SeqCst) == u64::from(files.0) + 1
}

/// A program begins, or a forked child, which has copies of all numbers: its table is `files`, and
/// there is one thread.
pub fn begin(files: Files) {
    if OWNER.load(SeqCst) != NEVER {
        for entry in &ENTRIES {
            entry.users.store(0, SeqCst);
            entry.sleepers.store(0, SeqCst);
        }
        CHANGING.store(false, SeqCst);
        OWNER.store(u64::from(files.0) + 1, SeqCst);
    }
}

/// Whether a number is so high that it may be a bell's.
#[inline(always)]
pub fn may_be_one(fd: u32) -> bool {
    !fd <= LOWEST.load(SeqCst) && fd != NONE
}

#[inline(always)]
fn at(files: Files, fd: u32) -> Option<&'static Entry> {
    if may_be_one(fd) { look_at(files, fd) } else { None }
}

#[cold]
fn look_at(files: Files, fd: u32) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| owns(files) && entry.fd() == fd)
}

/// A table is about to be shared without memory, or its only process to leave it.
pub fn give_up() {
    OWNER.store(NEVER, SeqCst);
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The set that `fd` names is about to sleep: a bell that it has is of use, and if it sleeps
    /// often it gets one.
    #[inline(always)]
    pub(crate) fn need_bell(&mut self, set: Set, fd: usize) {
        let bell = self.services.epoll_bell(set);
        if bell > SILENT {
            find(bell).inspect(|entry| entry.used.store(true, Relaxed));
        } else if self.services.epoll_lacks_bell(set) {
            self.make_bell(set, fd);
        }
    }

    #[cold]
    fn make_bell(&mut self, set: Set, fd: usize) {
        let made = self.new_bell(Some(fd));
        self.services.epoll_set_bell(set, made.unwrap_or(SILENT));
    }

    /// A bell, in a set if there is one.
    fn new_bell(&mut self, set: Option<usize>) -> Option<u64> {
        let flags = (EFD_CLOEXEC | EFD_NONBLOCK) as usize;
        let low = self.host.call(nr::eventfd2, [0, flags, 0, 0, 0, 0]);
        let (fd, id) = self.keep_high(u32::try_from(low).ok()?)?;
        let pid = self.host.call(nr::getpid, [0; 6]) as u32;
        let told = black_box(event());
        let is_in = set.is_none_or(|set| {
            let args = [set, EPOLL_CTL_ADD as usize, fd as usize, told.as_ptr() as usize, 0, 0];
            self.host.call(nr::epoll_ctl, args) == 0
        });
        self.keep_entry(bell_word(pid, fd, id).filter(|_| is_in), fd)
    }

    /// The set goes to somebody who is not of the image.
    #[cold]
    pub(crate) fn remove_bell(&mut self, set: Set, fd: usize) {
        let bell = self.services.epoll_bell(set);
        self.services.epoll_set_bell(set, SILENT);
        if let Some(entry) = find(bell).filter(|_| bell != 0 && owns(self.services.files())) {
            let number = entry.fd() as usize;
            let told = black_box(event());
            let at = told.as_ptr() as usize;
            self.host.call(nr::epoll_ctl, [fd, EPOLL_CTL_DEL as usize, number, at, 0, 0]);
        }
    }

    /// Whether the set that waits for bytes of a lane can be woken by its bell.
    pub(crate) fn can_ring_set(&mut self, lane: Pipe) -> bool {
        let bell = self.services.lane_bell(lane);
        self.can_ring(bell) && self.services.lane_bell(lane) == bell
    }

    /// Whether who sleeps in `poll` for bytes of a lane, if anybody, can be woken by a bell.
    pub(crate) fn can_ring_poll(&mut self, lane: Pipe) -> bool {
        let bell = self.services.lane_polled(lane);
        bell == 0 || self.can_ring(bell)
    }

    fn can_ring(&mut self, bell: u64) -> bool {
        if bell <= SILENT || !owns(self.services.files()) {
            return false;
        }
        match find(bell) {
            Some(entry) => entry.fd() != NONE,
            None => MEETING.fetch_add(1, SeqCst).is_multiple_of(MEETINGS) && self.fetch_bell(bell),
        }
    }

    /// Rings the bell of the set that waits for bytes of a lane; false: that cannot be done.
    pub(crate) fn ring_set(&mut self, lane: Pipe) -> bool {
        let bell = self.services.lane_bell(lane);
        self.ring_bell(bell) && self.services.lane_bell(lane) == bell
    }

    /// Writes to the eventfd of a sleeper. False: that cannot be done, the host has to wake it.
    pub(crate) fn ring_bell(&mut self, bell: u64) -> bool {
        let own = bell > SILENT && owns(self.services.files());
        let Some(entry) = find(bell).filter(|_| own) else { return false };
        entry.users.fetch_add(1, SeqCst);
        let fd = entry.fd();
        let rung = entry.holds(bell) && fd != NONE && self.write_to_bell(fd);
        entry.users.fetch_sub(1, SeqCst);
        entry.used.store(true, SeqCst);
        rung
    }

    fn write_to_bell(&self, fd: u32) -> bool {
        let one = black_box(1u64.to_le_bytes());
        let args = [fd as usize, one.as_ptr() as usize, one.len(), 0, 0, 0];
        self.host.call(nr::write, args) == one.len() as i64
    }

    /// The bell that wakes this thread in `poll`, which stays until `end_sleep`; `None`: it has
    /// none, or does not poll often.
    pub(crate) fn begin_sleep(&mut self) -> Option<Asleep> {
        let me = self.services.current();
        if self.waits.bell.is_none_or(|(_, owner)| owner != me) {
            self.waits.polls = self.waits.polls.saturating_add(1);
            if self.waits.polls < POLLS_BEFORE_BELL || !self.waits.polls.is_power_of_two() {
                return None;
            }
            let bell = self.new_bell(None)?;
            self.waits.bell = Some((bell, me));
        }
        let (bell, _) = self.waits.bell?;
        let own = owns(self.services.files());
        let Some(place) = ENTRIES.iter().position(|entry| own && entry.holds(bell)) else {
            self.waits.bell = None;
            return None;
        };
        let entry = &ENTRIES[place];
        entry.sleepers.fetch_add(1, SeqCst);
        entry.used.store(true, SeqCst);
        let fd = entry.fd();
        if !entry.holds(bell) || fd == NONE {
            entry.wake_up();
            return None;
        }
        Some(Asleep { bell, fd, place })
    }

    /// This thread does not sleep any more. `rung`: what has rung is taken back.
    pub(crate) fn end_sleep(&mut self, place: usize, rung: bool) -> u64 {
        let bell = self.waits.bell.map_or(0, |(bell, _)| bell);
        let entry = &ENTRIES[place % BELLS_MAX];
        if rung {
            entry.users.fetch_add(1, SeqCst);
            if bell != 0 && entry.holds(bell) {
                let mut count = [0u8; 8];
                let at = black_box(&mut count).as_mut_ptr() as usize;
                self.host.call(nr::read, [entry.fd() as usize, at, 8, 0, 0, 0]);
            }
            entry.users.fetch_sub(1, SeqCst);
        }
        entry.wake_up();
        bell
    }

    /// The thread ends, and its bell with it, though it may have been cancelled in `poll`.
    pub fn end_own_bell(&mut self) {
        let me = self.services.current();
        let Some((bell, _)) = self.waits.bell.take().filter(|(_, owner)| *owner == me) else {
            return;
        };
        if let Some(entry) = find(bell).filter(|_| owns(self.services.files())) {
            entry.sleepers.store(0, SeqCst);
            self.empty(entry, 1);
        }
    }

    /// A number of one's own of somebody's bell.
    #[cold]
    fn fetch_bell(&mut self, bell: u64) -> bool {
        let Some(place) = self.place_for_one() else { return false };
        let fetched = self.borrow_bell(bell);
        enter(place, bell, fetched.unwrap_or(NONE));
        CHANGING.store(false, SeqCst);
        fetched.is_some()
    }

    fn borrow_bell(&mut self, bell: u64) -> Option<u32> {
        let (pid, number, wanted) = bell_parts(bell);
        let process =
            Errno::check(self.host.call(nr::pidfd_open, [pid as usize, 0, 0, 0, 0, 0])).ok()?;
        let args = [process as usize, number as usize, 0, 0, 0, 0];
        let low = self.host.call(nr::pidfd_getfd, args);
        self.host_close(process as u32);
        let (fd, id) = self.keep_high(u32::try_from(low).ok()?)?;
        if id != wanted {
            self.host_close(fd);
        }
        (id == wanted).then_some(fd)
    }

    /// Moves `low` to a number that programs do not meet; which eventfd it is.
    fn keep_high(&mut self, low: u32) -> Option<(u32, u64)> {
        let (files, kept) = (self.services.files(), self.host.kept_fds());
        let top = kept[0].min(kept[1]);
        let mut found = None;
        for number in (top.saturating_sub(TRIES).max(LOWEST_EVER)..top).rev() {
            if self.services.slot(files, number) != Slot::Free {
                continue;
            }
            let args = [low as usize, F_DUPFD_CLOEXEC as usize, number as usize, 0, 0, 0];
            // None from there on may be free.
            let Ok(copy) = u32::try_from(self.host.call(nr::fcntl, args)) else { continue };
            if copy == number {
                found = Some(copy);
                break;
            }
            self.host_close(copy);
        }
        self.host_close(low);
        let fd = found?;
        let id = self.shown_by_host(fd as usize, shown_id);
        if id.is_none() {
            self.host_close(fd);
        }
        id.map(|id| (fd, id))
    }

    /// Keeps a new bell, or closes it.
    fn keep_entry(&mut self, bell: Option<u64>, fd: u32) -> Option<u64> {
        let owned = bell.filter(|_| owns(self.services.files()));
        let kept = owned.and_then(|bell| self.place_for_one().map(|place| (place, bell)));
        let Some((place, bell)) = kept else {
            self.host_close(fd);
            return None;
        };
        enter(place, bell, fd);
        CHANGING.store(false, SeqCst);
        Some(bell)
    }

    /// An entry that is free, or has not been of use lately; the caller may change which there are
    /// until it says otherwise (`CHANGING`).
    fn place_for_one(&mut self) -> Option<&'static Entry> {
        if CHANGING.swap(true, SeqCst) {
            return None;
        }
        let free = ENTRIES.iter().find(|entry| entry.bell.load(SeqCst) == 0);
        let place = free.or_else(|| ENTRIES.iter().find(|entry| !entry.used.swap(false, SeqCst)));
        let place = place.filter(|entry| self.empty(entry, 1));
        if place.is_none() {
            CHANGING.store(false, SeqCst);
        }
        place
    }

    /// Takes the bell out of an entry, if nobody uses it at one of so many looks. Of more than one
    /// look the last does not heed sleepers: those that live have been woken.
    fn empty(&mut self, entry: &Entry, looks: u32) -> bool {
        let old = entry.bell.swap(0, SeqCst);
        for look in 1..=looks {
            let sleepers = entry.sleepers.load(SeqCst) != 0 && (looks == 1 || look < looks);
            if entry.users.load(SeqCst) == 0 && !sleepers {
                self.discard(entry, old);
                return true;
            }
            if look < looks {
                self.wake_sleepers(entry);
                self.nap(NAP_NS);
            }
        }
        entry.bell.store(old, SeqCst);
        false
    }

    /// Closes the number of an entry that nobody uses.
    fn discard(&mut self, entry: &Entry, bell: u64) {
        if bell_parts(bell).0 == self.host.call(nr::getpid, [0; 6]) as u32 {
            self.services.epoll_forget_bell(bell, SILENT);
        }
        entry.sleepers.store(0, SeqCst);
        let fd = !entry.turned.swap(0, SeqCst);
        if fd != NONE {
            self.host_close(fd);
        }
    }

    /// Who sleeps in `poll` by the bell of an entry finds that it has none any more.
    fn wake_sleepers(&self, entry: &Entry) {
        if entry.sleepers.load(SeqCst) != 0 && entry.fd() != NONE {
            self.write_to_bell(entry.fd());
        }
    }

    /// Whether a number is a bell's.
    #[inline(always)]
    pub fn is_bell(&mut self, fd: u32) -> bool {
        at(self.services.files(), fd).is_some()
    }

    /// The program is about to use a number: a bell there goes.
    #[inline(always)]
    pub(crate) fn make_way(&mut self, fd: u32) -> Result<()> {
        match at(self.services.files(), fd) {
            Some(entry) if !self.empty(entry, LOOKS) => Err(Errno::EBUSY),
            _ => Ok(()),
        }
    }

    /// The numbers of all bells, behind room for what else Husk keeps; none: `u32::MAX`.
    pub(crate) fn bells(&mut self) -> [u32; KEPT_MAX] {
        let mut all = [NONE; KEPT_MAX];
        if owns(self.services.files()) {
            let numbers = all[KEPT_MAX - BELLS_MAX..].iter_mut();
            numbers.zip(&ENTRIES).for_each(|(fd, entry)| *fd = entry.fd());
        }
        all
    }
}

/// What the host is to tell of a bell.
fn event() -> [u8; EVENT_BYTES] {
    let mut bytes = [0u8; EVENT_BYTES];
    bytes[..4].copy_from_slice(&(POLLIN | EDGES).to_le_bytes());
    bytes[4..].copy_from_slice(&BELL.to_le_bytes());
    bytes
}

fn enter(place: &Entry, bell: u64, fd: u32) {
    if fd != NONE {
        LOWEST.fetch_max(!fd, SeqCst);
    }
    place.turned.store(!fd, SeqCst);
    place.used.store(true, SeqCst);
    place.bell.store(bell, SeqCst);
}
