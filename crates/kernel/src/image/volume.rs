//! Volumes among the trees: the writer of each log, and the programs that wait for it.
//!
//! ```text
//!   slot: free ─► claimed ─► posted ─► (the server writes the log) ─► done ─► free
//!          who waits ──┘         └── rings the bell           sleeps, as the bit of its slot
//! ```
//!
//! 1. A slot's word names its owner in every state but `free`, so that one left by a death is
//!    found, and a word is changed only by who may: the owner, or the server once it is posted.
//! 2. A result is there before the slot is done.
//! 3. Those whose results are there at the same time are woken by one call. One after the other,
//!    each would get the core of the server first, and the last wait for programs in between.

use husk_proto::volume::{Asked, Counter, NAME_BYTES_MAX, Policy, State, TOOK_CLASSES, Wish};
use husk_proto::{Errno, Inode, Result};
use husk_region::Cell;

use super::fixed;
use crate::Kernel;
use crate::state::{high, ino, low, pair};

/// Whether there are volumes in the image.
const ANY: u32 = 2;
const VOLUMES: u32 = 500_000;
const WORDS: u32 = 256;
const STATE: u32 = 0;
/// Process and thread that write the log.
const SERVER: u32 = 1;
/// Moves with each wish.
const BELL: u32 = 2;
/// Changes of names that have begun, and ended (`fs::unsaved`).
pub(crate) const BEGUN: u32 = 3;
pub(crate) const ENDED: u32 = 4;
/// Whether another server follows one that died: who waits goes on waiting.
const FOLLOWED: u32 = 5;
/// Since when its log is written, ns since the epoch.
const SINCE: u32 = 6;
/// Moves with each group of answers: who waits sleeps on it.
const GRANTED: u32 = 7;
/// When changes are durable (`Policy`).
const POLICY: u32 = 8;
/// Counters for people (`Counter`).
const COUNTERS: u32 = 16;
/// What it is called, filled up with zeros.
const NAME: u32 = 32;
/// How often it took how long to serve a group of wishes.
const TOOK: u32 = 40;
const SLOTS: u32 = 64;
const SLOT_WORDS: u32 = 4;
const SLOTS_MAX: u32 = 32;

const WORD_BYTES: usize = 8;

const _: () = assert!(SLOTS_MAX <= u32::BITS);
const _: () = assert!(POLICY < COUNTERS && COUNTERS + COUNTED <= NAME);
const _: () = assert!(NAME as usize + NAME_BYTES_MAX / WORD_BYTES <= TOOK as usize);
const _: () = assert!(TOOK as usize + TOOK_CLASSES <= SLOTS as usize);
const _: () = assert!(SLOTS + SLOTS_MAX * SLOT_WORDS <= WORDS);
#[cfg(feature = "answers")]
const _: () = assert!(VOLUMES + 16 * WORDS <= super::ANSWERS);
const _: () = assert!(VOLUMES + 16 * WORDS <= super::WATCH);
const _: () = assert!(super::PLACE_KERNELS + 1024 <= VOLUMES);

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const POSTED: u64 = 2;
const DONE: u64 = 3;
const PHASE: u64 = 3;

/// How many kinds there are.
const COUNTED: u32 = Counter::Growth as u32 + 1;

/// The tree that an inode with such an identity word is in.
pub(crate) fn tree_of(ident: u64) -> u32 {
    (low(ident) & ino::TREE) >> ino::TREE_SHIFT
}

/// The words of the volume that is tree `tree`.
pub(crate) fn words(kernel: &Kernel, tree: u32) -> Cell {
    fixed(kernel, VOLUMES + (tree & 0xf) * WORDS)
}

/// Whether the image has volumes.
#[inline]
pub fn any(kernel: &Kernel) -> bool {
    kernel.session.region.load(fixed(kernel, ANY)) != 0
}

/// Makes the tree of `root`, which has no names yet, a volume. Its number.
pub fn make(kernel: &Kernel, root: Inode) -> Result<u32> {
    let region = &kernel.session.region;
    let ident = crate::state::live(region, root)?.word(ino::IDENT);
    kernel.run(|txn| {
        txn.lock(crate::state::live(txn.region, root)?)?;
        let word = txn.get(ident);
        txn.set(ident, word | u64::from(ino::DURABLE));
        Ok(())
    })?;
    region.store(fixed(kernel, ANY), 1);
    Ok(tree_of(region.load(ident)))
}

/// The volume that an inode is in.
#[inline]
pub fn of(kernel: &Kernel, inode: Inode) -> Result<Option<u32>> {
    let region = &kernel.session.region;
    let ident = region.load(crate::state::live(region, inode)?.word(ino::IDENT));
    Ok((low(ident) & ino::DURABLE != 0).then(|| tree_of(ident)))
}

/// How it is.
pub fn state(kernel: &Kernel, tree: u32) -> State {
    match kernel.session.region.load(words(kernel, tree).word(STATE)) {
        1 => State::Served,
        2 => State::Stopped,
        _ => State::None,
    }
}

/// Says how it is.
pub fn set_state(kernel: &Kernel, tree: u32, state: State) {
    let word = match state {
        State::None => 0,
        State::Served => 1,
        State::Stopped => 2,
    };
    let session = &kernel.session;
    let cell = words(kernel, tree);
    session.region.store(cell.word(SERVER), pair(session.pid(), session.tid()));
    session.region.store(cell.word(STATE), word);
}

/// When what is changed in it is durable.
pub fn policy(kernel: &Kernel, tree: u32) -> Policy {
    Policy::of(kernel.session.region.load(words(kernel, tree).word(POLICY)))
}

/// Says when that is.
pub fn set_policy(kernel: &Kernel, tree: u32, policy: Policy) {
    kernel.session.region.store(words(kernel, tree).word(POLICY), policy.word());
}

/// Who writes its log: process and thread.
pub fn server(kernel: &Kernel, tree: u32) -> (u32, u32) {
    let word = kernel.session.region.load(words(kernel, tree).word(SERVER));
    (high(word), low(word))
}

/// How often names have begun to change, and ended.
pub fn names(kernel: &Kernel, tree: u32) -> (u64, u64) {
    let (region, cell) = (&kernel.session.region, words(kernel, tree));
    // Ended first: who begins in between makes the counts differ.
    let ended = region.load_in_order(cell.word(ENDED));
    (region.load_in_order(cell.word(BEGUN)), ended)
}

/// While no transaction runs: counts changes that the dead have begun as ended. How many have
/// begun; `None`: somebody who lives is in the middle of one.
pub fn settle_names(kernel: &Kernel, tree: u32) -> Option<u64> {
    let (region, cell) = (&kernel.session.region, words(kernel, tree));
    let (begun, ended) = names(kernel, tree);
    // Who has ended since then was not dead.
    if is_any_naming(kernel) || names(kernel, tree) != (begun, ended) {
        return None;
    }
    region.add(cell.word(ENDED), begun.wrapping_sub(ended));
    Some(begun)
}

/// Whether somebody who lives is in the middle of a change of names.
pub fn is_any_naming(kernel: &Kernel) -> bool {
    kernel.session.is_any_entered()
}

/// Counts.
pub fn count(kernel: &Kernel, tree: u32, counter: Counter, by: u64) {
    kernel.session.region.add(words(kernel, tree).word(COUNTERS + counter as u32), by);
}

/// Sets a count.
pub fn set_count(kernel: &Kernel, tree: u32, counter: Counter, to: u64) {
    kernel.session.region.store(words(kernel, tree).word(COUNTERS + counter as u32), to);
}

/// A count.
pub fn counted(kernel: &Kernel, tree: u32, counter: Counter) -> u64 {
    kernel.session.region.load(words(kernel, tree).word(COUNTERS + counter as u32))
}

/// A group of wishes has been served within `took_ns`.
pub fn count_group(kernel: &Kernel, tree: u32, took_ns: u64) {
    let class = (u64::BITS - (took_ns / 1000).leading_zeros()).min(TOOK_CLASSES as u32 - 1);
    kernel.session.region.add(words(kernel, tree).word(TOOK + class), 1);
    count(kernel, tree, Counter::Groups, 1);
}

/// How many groups took how long, by class.
pub fn took(kernel: &Kernel, tree: u32) -> [u64; TOOK_CLASSES] {
    let cell = words(kernel, tree);
    core::array::from_fn(|class| kernel.session.region.load(cell.word(TOOK + class as u32)))
}

/// Says what a volume is called, and since when its log is written, ns since the epoch: what is
/// counted here begins again.
pub fn begin(kernel: &Kernel, tree: u32, name: &[u8], since_ns: i64) {
    let (region, cell) = (&kernel.session.region, words(kernel, tree));
    let classes = TOOK..TOOK + TOOK_CLASSES as u32;
    let added = [Counter::Wishes, Counter::Groups].map(|counter| COUNTERS + counter as u32);
    for word in classes.chain(added) {
        region.store(cell.word(word), 0);
    }
    let mut bytes = [0; NAME_BYTES_MAX];
    let length = name.len().min(NAME_BYTES_MAX);
    bytes[..length].copy_from_slice(&name[..length]);
    for (word, eight) in (NAME..).zip(bytes.as_chunks::<WORD_BYTES>().0) {
        region.store(cell.word(word), u64::from_le_bytes(*eight));
    }
    region.store(cell.word(SINCE), since_ns as u64);
}

/// What it is called, filled up with zeros; and since when its log is written.
pub fn name(kernel: &Kernel, tree: u32) -> ([u8; NAME_BYTES_MAX], i64) {
    let (region, cell) = (&kernel.session.region, words(kernel, tree));
    let mut bytes = [0; NAME_BYTES_MAX];
    for (word, eight) in (NAME..).zip(bytes.as_chunks_mut::<WORD_BYTES>().0) {
        *eight = region.load(cell.word(word)).to_le_bytes();
    }
    (bytes, region.load(cell.word(SINCE)) as i64)
}

/// Says that another server follows one that dies.
pub fn set_followed(kernel: &Kernel, tree: u32) {
    kernel.session.region.store(words(kernel, tree).word(FOLLOWED), 1);
}

/// Whether another server follows one that has died.
pub fn is_followed(kernel: &Kernel, tree: u32) -> bool {
    kernel.session.region.load(words(kernel, tree).word(FOLLOWED)) != 0
}

fn slot(kernel: &Kernel, wish: Wish) -> Cell {
    words(kernel, wish.tree).word(SLOTS + wish.slot * SLOT_WORDS)
}

/// The word of this thread in a phase: 22 bits are enough for the host's numbers.
fn mine(kernel: &Kernel, phase: u64) -> u64 {
    let (pid, tid) = (kernel.session.pid(), kernel.session.tid());
    pair(tid, pid << 2) | phase
}

/// Asks the server for something. `EAGAIN`: all slots are taken.
pub fn post(kernel: &Kernel, tree: u32, asked: Asked) -> Result<Wish> {
    let region = &kernel.session.region;
    for slot in 0..SLOTS_MAX {
        let wish = Wish { tree, slot };
        let cell = self::slot(kernel, wish);
        if region.load(cell) == FREE && region.swap_if(cell, FREE, mine(kernel, CLAIMED)) {
            let (named, size_bytes) = match asked {
                Asked::Commit(Some(inode)) => (pair(inode.generation, inode.number), 0),
                Asked::Commit(None) => (0, 0),
                Asked::Size(size_bytes) => (0, size_bytes),
            };
            region.store(cell.word(1), named);
            region.store(cell.word(3), size_bytes);
            region.store(cell, mine(kernel, POSTED));
            ring(kernel, tree);
            return Ok(wish);
        }
    }
    Err(Errno::EAGAIN)
}

/// Wakes the server.
pub fn ring(kernel: &Kernel, tree: u32) {
    let bell = words(kernel, tree).word(BELL);
    kernel.session.region.add(bell, 1);
    kernel.session.wake(bell, 1);
}

/// What became of a wish; `None`: nothing yet.
pub fn answer(kernel: &Kernel, wish: Wish) -> Option<Result<()>> {
    let (region, cell) = (&kernel.session.region, slot(kernel, wish));
    if region.load(cell) & PHASE != DONE {
        return None;
    }
    let errno = region.load(cell.word(2)) as i32;
    region.store(cell, FREE);
    Some(if errno == 0 { Ok(()) } else { Err(Errno(errno)) })
}

/// How many groups have been answered, for `await_answer`, before a look for the answer.
pub fn granted(kernel: &Kernel, tree: u32) -> u32 {
    kernel.session.region.load_in_order(words(kernel, tree).word(GRANTED)) as u32
}

/// Whether nobody else waits.
fn is_lone(kernel: &Kernel, wish: Wish) -> bool {
    let is_free =
        |slot| kernel.session.region.load(self::slot(kernel, Wish { slot, ..wish })) == FREE;
    (0..SLOTS_MAX).filter(|slot| *slot != wish.slot).all(is_free)
}

/// Sleeps until it may be there, at most `most_ns`; whether the time ran out.
pub fn await_answer(kernel: &Kernel, wish: Wish, granted: u32, most_ns: u64) -> bool {
    let cell = words(kernel, wish.tree).word(GRANTED);
    if is_lone(kernel, wish) {
        // It need not ask for the time. Answers to others that come meanwhile wake it, too.
        return kernel.session.sleep(cell, granted, most_ns);
    }
    kernel.session.sleep_as(cell, 1 << wish.slot, granted, most_ns)
}

/// Gives a wish up. False: it is answered.
pub fn give_up(kernel: &Kernel, wish: Wish) -> bool {
    kernel.session.region.swap_if(slot(kernel, wish), mine(kernel, POSTED), FREE)
}

/// Server: the state of the bell, for `await_wishes`, before it looks for wishes.
pub fn bell(kernel: &Kernel, tree: u32) -> u32 {
    kernel.session.region.load_in_order(words(kernel, tree).word(BELL)) as u32
}

/// Server: sleeps while nobody has rung since `bell`, at most `most_ns`.
pub fn await_wishes(kernel: &Kernel, tree: u32, bell: u32, most_ns: u64) -> bool {
    kernel.session.sleep(words(kernel, tree).word(BELL), bell, most_ns)
}

/// Server: each wish that is posted, and what it is about.
pub fn each_wish(kernel: &Kernel, tree: u32, emit: &mut dyn FnMut(Wish, Asked)) {
    for slot in 0..SLOTS_MAX {
        let wish = Wish { tree, slot };
        let cell = self::slot(kernel, wish);
        if kernel.session.region.load_in_order(cell) & PHASE == POSTED {
            let named = kernel.session.region.load(cell.word(1));
            let inode = Inode { number: low(named), generation: high(named) };
            let asked = match kernel.session.region.load(cell.word(3)) {
                0 => Asked::Commit((named != 0).then_some(inode)),
                size_bytes => Asked::Size(size_bytes),
            };
            emit(wish, asked);
        }
    }
}

/// Server: answers wishes of a volume.
pub fn grant(kernel: &Kernel, tree: u32, wishes: &[Wish], result: Result<()>) {
    let region = &kernel.session.region;
    let mut bits = 0;
    for &wish in wishes {
        let cell = slot(kernel, wish);
        let word = region.load(cell);
        if word & PHASE != POSTED {
            continue;
        }
        region.store(cell.word(2), result.map_or_else(|errno| errno.0 as u64, |()| 0));
        if region.swap_if(cell, word, word | DONE) {
            bits |= 1 << wish.slot;
        }
    }
    let granted = words(kernel, tree).word(GRANTED);
    region.store(granted, region.load(granted).wrapping_add(1));
    if bits != 0 {
        // Invariant 3.
        kernel.session.wake_those(granted, bits);
    }
}

/// Server: frees what the dead have left.
pub fn sweep(kernel: &Kernel, tree: u32, is_dead: &dyn Fn(u32, u32) -> bool) {
    for slot in 0..SLOTS_MAX {
        let cell = self::slot(kernel, Wish { tree, slot });
        let word = kernel.session.region.load(cell);
        let left = word & PHASE == CLAIMED || word & PHASE == DONE;
        if left && is_dead(low(word) >> 2, high(word)) {
            kernel.session.region.swap_if(cell, word, FREE);
        }
    }
}
