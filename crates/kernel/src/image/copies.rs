//! Service `image`, the part about host programs: whether there is a rewritten copy, how often a
//! large one has started, where it is gathered in huge pages, and the queue of wishes.
//!
//! ```text
//!   a file's word   | second hash: 32 bits | place: 20 bits of 2 MiB | starts: 6 | state: 3 |
//! ```
//!
//! All of it is a cache: what is lost is made or asked for again. A wish is taken out of the queue
//! before it is granted, and one may stand there twice: who grants it looks at the state first.

use husk_proto::Errno;
use husk_proto::fs::HostIdentity;
use husk_proto::image::{Rewritten, Wish};
use husk_region::{Cell, PROGRAMS_BYTES};

use crate::Kernel;
use crate::image::{COPIES_STATE, COPIES_STATE_END, fixed, hash};
use crate::state::text;
use crate::state::{high, low, pair};

const QUEUE_LOCK: u32 = 24;
const QUEUE: u32 = 25;
/// Bytes taken of the room for gathered programs.
const GATHERED_BYTES: u32 = 26;
const REWRITTEN: u32 = COPIES_STATE;
const REWRITTEN_MAX: u64 = 16384;
const REWRITTEN_PROBES: u64 = 16;
const WISHES: u32 = REWRITTEN + 2 * REWRITTEN_MAX as u32;
const WISH_WORDS: u32 = 528;
const WISHES_MAX: u32 = 64;
const _: () = assert!(WISHES + WISHES_MAX * WISH_WORDS <= COPIES_STATE_END);

const STATE: u64 = 7;
const START: u64 = 1 << 3;
const STARTS: u64 = 63 << 3;
/// Starts between two wishes to have a program gathered: by then the first would have paid for it.
const STARTS_A_WISH: u64 = 4;
const PLACE_SHIFT: u32 = 12;
const PLACE: u64 = 0xf_ffff << PLACE_SHIFT;
const PLACE_BYTES: u64 = husk_abi::HUGE_BYTES as u64;
const HASH: u64 = !0 << 32;

fn identity_hash(file: &HostIdentity) -> (u64, u64) {
    let mut bytes = [0; 32];
    let words = [file.device, file.inode, file.size, file.modified_ns as u64];
    for (eight, word) in bytes.chunks_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_le_bytes());
    }
    let (one, two) = hash(&bytes);
    (one.max(1), two & HASH)
}

fn code(state: Rewritten) -> u64 {
    match state {
        Rewritten::Unknown => 0,
        Rewritten::Requested => 1,
        Rewritten::Plain => 2,
        Rewritten::Ready => 3,
        Rewritten::Gathered(at) => 4 | ((at / PLACE_BYTES) << PLACE_SHIFT) & PLACE,
    }
}

fn state(word: u64) -> Rewritten {
    match word & STATE {
        1 => Rewritten::Requested,
        2 => Rewritten::Plain,
        3 => Rewritten::Ready,
        4 => Rewritten::Gathered(((word & PLACE) >> PLACE_SHIFT) * PLACE_BYTES),
        _ => Rewritten::Unknown,
    }
}

/// The cells that hold (or may hold) a file's state: key, then second hash and state.
fn place(kernel: &Kernel, file: &HostIdentity, add: bool) -> Option<Cell> {
    let region = &kernel.session.region;
    let (one, _) = identity_hash(file);
    for probe in 0..REWRITTEN_PROBES {
        let index = (one.wrapping_add(probe)) % REWRITTEN_MAX;
        let cell = fixed(kernel, REWRITTEN + index as u32 * 2);
        let key = region.load(cell);
        if key == one || (key == 0 && add && region.swap_if(cell, 0, one)) {
            return Some(cell);
        }
        if key == 0 && !add {
            return None;
        }
    }
    None
}

/// A file's word and where it stands, if there is one.
fn word(kernel: &Kernel, file: &HostIdentity) -> Option<(Cell, u64)> {
    let cell = place(kernel, file, false)?.word(1);
    let word = kernel.session.region.load(cell);
    (word & HASH == identity_hash(file).1).then_some((cell, word))
}

/// `Image::rewritten`.
pub fn rewritten(kernel: &Kernel, file: &HostIdentity) -> Rewritten {
    word(kernel, file).map_or(Rewritten::Unknown, |(_, word)| state(word))
}

/// `Image::set_rewritten`.
pub fn set_rewritten(kernel: &Kernel, file: &HostIdentity, state: Rewritten) {
    if let Some(cell) = place(kernel, file, true) {
        let (_, two) = identity_hash(file);
        kernel.session.region.store(cell.word(1), two | code(state));
    }
}

/// `Image::count_start`. Who loses a race loses a count; after some wishes there is no other.
pub fn count_start(kernel: &Kernel, file: &HostIdentity) -> bool {
    let region = &kernel.session.region;
    let Some((cell, word)) = word(kernel, file) else { return false };
    let waits = matches!(state(word), Rewritten::Plain | Rewritten::Ready);
    if !waits || word & STARTS == STARTS {
        return false;
    }
    let starts = (word & STARTS) / START + 1;
    region.swap_if(cell, word, word + START) && starts.is_multiple_of(STARTS_A_WISH)
}

/// `Image::room_to_gather`. Only the supervisor takes any.
pub fn room_to_gather(kernel: &Kernel) -> (u64, u64) {
    let region = &kernel.session.region;
    let taken = region.load(fixed(kernel, GATHERED_BYTES));
    (region.layout().programs_offset() + taken, PROGRAMS_BYTES.saturating_sub(taken))
}

/// `Image::set_gathered`. Who dies between the two stores leaves room that is not used.
pub fn set_gathered(kernel: &Kernel, file: &HostIdentity, bytes: u64) {
    let (at, left) = room_to_gather(kernel);
    let taken = bytes.next_multiple_of(PLACE_BYTES);
    assert!(taken <= left, "a program behind the room for it");
    let cell = fixed(kernel, GATHERED_BYTES);
    kernel.session.region.store(cell, PROGRAMS_BYTES - left + taken);
    set_rewritten(kernel, file, Rewritten::Gathered(at));
}

/// `Image::refuse_to_gather`.
pub fn refuse_to_gather(kernel: &Kernel, file: &HostIdentity) {
    while let Some((cell, word)) = word(kernel, file) {
        if word & STARTS == STARTS || kernel.session.region.swap_if(cell, word, word | STARTS) {
            return;
        }
    }
}

/// `Image::request_rewrite`. Who is served before this thread has gone on keeps what it got.
pub fn request_rewrite(kernel: &Kernel, file: &HostIdentity, path: &[u8]) {
    let Some(cell) = place(kernel, file, true).map(|cell| cell.word(1)) else { return };
    let region = &kernel.session.region;
    let (before, hash) = (region.load(cell), identity_hash(file).1);
    let unknown = before & HASH != hash || state(before) == Rewritten::Unknown;
    if unknown && wish(kernel, Wish::Rewrite, file, path) {
        region.swap_if(cell, before, hash | code(Rewritten::Requested));
    }
}

/// `Image::request_gathered`.
pub fn request_gathered(kernel: &Kernel, file: &HostIdentity, path: &[u8]) {
    wish(kernel, Wish::Gather, file, path);
}

/// `Image::request_recorded`.
pub fn request_recorded(kernel: &Kernel, file: &HostIdentity, path: &[u8]) {
    wish(kernel, Wish::Record, file, path);
}

/// `Image::request_remembered`.
pub fn request_remembered(kernel: &Kernel, file: &HostIdentity, path: &[u8]) {
    wish(kernel, Wish::Remember, file, path);
}

/// After the death of a supervisor: what it was asked for may have died with it, so that it is to
/// be asked for again.
pub fn forget_requests(kernel: &Kernel) {
    let region = &kernel.session.region;
    for index in 0..REWRITTEN_MAX {
        let cell = fixed(kernel, REWRITTEN + index as u32 * 2).word(1);
        let word = region.load(cell);
        if state(word) == Rewritten::Requested {
            region.swap_if(cell, word, word & !STATE);
        }
    }
}

/// Whether there was room in the queue.
fn wish(kernel: &Kernel, what: Wish, file: &HostIdentity, path: &[u8]) -> bool {
    if path.len() > husk_abi::PATH_MAX {
        return false;
    }
    let queued = kernel.run(|txn| {
        txn.lock(txn.region.map.fixed(QUEUE_LOCK))?;
        let queue = txn.region.map.fixed(QUEUE);
        let ends = txn.get(queue);
        if high(ends).wrapping_sub(low(ends)) >= WISHES_MAX {
            return Err(Errno::EAGAIN);
        }
        let wish = txn.region.map.fixed(WISHES + high(ends) % WISHES_MAX * WISH_WORDS);
        let facts = [file.device, file.inode, file.size, file.modified_ns as u64];
        for (n, fact) in facts.into_iter().enumerate() {
            txn.init(wish.word(n as u32), fact);
        }
        txn.init(wish.word(4), file.changed_ns as u64);
        txn.init(wish.word(5), path.len() as u64);
        txn.init(wish.word(6), what as u64);
        text::fill_words(txn, wish.word(8), path);
        txn.set(queue, pair(high(ends).wrapping_add(1), low(ends)));
        Ok(())
    });
    queued.is_ok()
}

/// `Image::next_wish`.
pub fn next_wish(kernel: &Kernel, path: &mut [u8]) -> Option<(Wish, HostIdentity, usize)> {
    let ends = kernel.session.region.load(fixed(kernel, QUEUE));
    if high(ends) == low(ends) {
        return None;
    }
    let taken = kernel.run(|txn| {
        txn.lock(txn.region.map.fixed(QUEUE_LOCK))?;
        let queue = txn.region.map.fixed(QUEUE);
        let ends = txn.get(queue);
        if high(ends) == low(ends) {
            return Ok(None);
        }
        let wish = txn.region.map.fixed(WISHES + low(ends) % WISHES_MAX * WISH_WORDS);
        let word = |n: u32| txn.get(wish.word(n));
        let identity = HostIdentity {
            device: word(0),
            inode: word(1),
            size: word(2),
            modified_ns: word(3) as i64,
            changed_ns: word(4) as i64,
        };
        let what = match word(6) {
            0 => Wish::Rewrite,
            1 => Wish::Gather,
            2 => Wish::Record,
            _ => Wish::Remember,
        };
        let length = (word(5) as usize).min(path.len());
        text::copy_words(txn.region, wish.word(8), &mut path[..length]);
        txn.set(queue, pair(high(ends), low(ends).wrapping_add(1)));
        Ok(Some((what, identity, length)))
    });
    taken.ok().flatten()
}
