//! The events of an instance: a ring of words.
//!
//! ```text
//!   instance  2 TAIL: words of the last event:16, written so far:48     3 HEAD: read so far
//!   event     mask:32 wd:32 | cookie:32 length:32 | name, 8 bytes a word
//! ```
//!
//! 1. What lies past the tail is nobody's: an event is written there, and is there once the tail
//!    has moved, in the transaction that it tells of. So the queue needs no room but its own.
//! 2. An event that equals the last one is that one, as on Linux.
//! 3. Room for the event that says that events were lost is always left.

use husk_abi::sys::general::{IN_IGNORED, IN_Q_OVERFLOW};
use husk_proto::watch::{Instance, Taken};
use husk_proto::{Errno, Result};
use husk_region::observe::kill;
use husk_region::{Cell, Region, Txn};

use super::{IDLE, INSTANCES_MAX, NUMBER, OWED, live, lock, owe, turn, word};
use crate::state::text::{copy_words, word_at};
use crate::state::{high, low, pair};
use crate::{Kernel, TELL, image};

const TAIL: u32 = 2;
const HEAD: u32 = 3;
/// Where the rings begin.
pub(crate) const RINGS: u32 = 32768;
/// Words of a ring: 16384 events without a name, as many as Linux keeps, or 6553 with a longish.
const RING_WORDS: u32 = 32768;
const POSITION: u64 = (1 << 48) - 1;
const HEAD_WORDS: u64 = 2;
/// Bytes of `struct inotify_event` without the name, which is padded to a multiple of them.
const EVENT_BYTES: usize = 16;
/// No watch's descriptor.
const NONE: u32 = u32::MAX;

const _: () = assert!(image::WATCH + RINGS + INSTANCES_MAX * RING_WORDS <= image::PLACES);

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Watch.
    pub wd: u32,
    /// What has happened.
    pub mask: u32,
    /// Joins both halves of a rename.
    pub cookie: u32,
    /// Of an entry of a watched directory, else empty.
    pub name: &'a [u8],
}

fn ring(region: &Region, number: u32, position: u64) -> Cell {
    let at = (position % RING_WORDS as u64) as u32;
    word(region, RINGS + (number & NUMBER) * RING_WORDS + at)
}

fn words_of(length: usize) -> u64 {
    HEAD_WORDS + length.div_ceil(8) as u64
}

/// An empty queue.
pub(super) fn begin(txn: &mut Txn<'_>, cell: Cell) {
    txn.set(cell.word(TAIL), 0);
    txn.set(cell.word(HEAD), 0);
}

/// Adds an event to the queue of instance `number`, whose record is `cell`.
pub(super) fn push(txn: &mut Txn<'_>, number: u32, cell: Cell, event: &Event<'_>) {
    let (tail, head) = (txn.get(cell.word(TAIL)), txn.get(cell.word(HEAD)));
    let (last, end) = (tail >> 48, tail & POSITION);
    let left = RING_WORDS as u64 - (end - head);
    let lost = Event { wd: NONE, mask: IN_Q_OVERFLOW, cookie: 0, name: b"" };
    let fits = words_of(event.name.len()) + HEAD_WORDS <= left;
    let event = if fits { event } else { &lost };
    if end > head && equals(txn.region, number, end - last, event) {
        return;
    }
    let words = words_of(event.name.len());
    if words > left {
        // The last event says already that events were lost, or will once there is room.
        return;
    }
    let put = |n: u64, value| txn.init(ring(txn.region, number, end + n), value);
    put(0, pair(event.mask, event.wd));
    put(1, pair(event.cookie, event.name.len() as u32));
    for n in 0..event.name.len().div_ceil(8) {
        put(HEAD_WORDS + n as u64, word_at(event.name, 8 * n));
    }
    let tail = words << 48 | (end + words);
    if kill::mutant() == 51 {
        txn.init(cell.word(TAIL), tail);
    } else {
        txn.set(cell.word(TAIL), tail);
    }
    owe(txn, cell);
}

/// Whether the event at `position` is `event`.
fn equals(region: &Region, number: u32, position: u64, event: &Event<'_>) -> bool {
    let load = |n: u64| region.load(ring(region, number, position + n));
    let name = |n: usize| load(HEAD_WORDS + n as u64) == word_at(event.name, 8 * n);
    event.mask & IN_IGNORED == 0
        && load(0) == pair(event.mask, event.wd)
        && low(load(1)) as usize == event.name.len()
        && (0..event.name.len().div_ceil(8)).all(name)
}

/// Bytes of the name of an event as a program is shown it: with a NUL, padded.
fn shown(length: usize) -> usize {
    if length == 0 { 0 } else { (length + 1).next_multiple_of(EVENT_BYTES) }
}

/// The event at `position`, as a program is shown it; its words and bytes. `None`: it does not fit.
fn show(region: &Region, number: u32, position: u64, out: &mut [u8]) -> Option<(u64, usize)> {
    let load = |n: u64| region.load(ring(region, number, position + n));
    let (first, second) = (load(0), load(1));
    let length = (low(second) as usize).min(husk_abi::NAME_MAX);
    let bytes = EVENT_BYTES + shown(length);
    let out = out.get_mut(..bytes)?;
    let parts = [low(first), high(first), high(second), shown(length) as u32];
    for (four, part) in out.chunks_mut(4).zip(parts) {
        four.copy_from_slice(&part.to_le_bytes());
    }
    let (name, rest) = out[EVENT_BYTES..].split_at_mut(length);
    for (n, eight) in name.chunks_mut(8).enumerate() {
        copy_words(region, ring(region, number, position + HEAD_WORDS + n as u64), eight);
    }
    rest.fill(0);
    Some((words_of(length), bytes))
}

/// `Watches::watch_take`.
pub fn take(kernel: &Kernel, instance: Instance, out: &mut [u8]) -> Result<Taken> {
    let number = super::number_of(instance);
    kernel.run(|txn| {
        lock(txn)?;
        let cell = live(txn.region, instance)?;
        let end = txn.get(cell.word(TAIL)) & POSITION;
        let (mut head, mut bytes) = (txn.get(cell.word(HEAD)), 0);
        while head < end {
            let Some((words, more)) = show(txn.region, number, head, &mut out[bytes..]) else {
                break;
            };
            head += words;
            bytes += more;
        }
        txn.set(cell.word(HEAD), head);
        let more = head < end;
        turn(txn, cell, if more { OWED } else { IDLE });
        if more {
            txn.session.note(TELL);
        }
        Ok(Taken { bytes, more })
    })
}

/// `Watches::watch_waiting`.
pub fn waiting(kernel: &Kernel, instance: Instance) -> Result<u32> {
    let number = super::number_of(instance);
    kernel.run(|txn| {
        lock(txn)?;
        let cell = live(txn.region, instance)?;
        let end = txn.get(cell.word(TAIL)) & POSITION;
        let (mut head, mut bytes) = (txn.get(cell.word(HEAD)), 0);
        while head < end {
            let length = low(txn.get(ring(txn.region, number, head + 1))) as usize;
            head += words_of(length);
            bytes += EVENT_BYTES + shown(length);
        }
        Ok(bytes as u32)
    })
}

/// Whether the queue is empty; `EIO`: what is in it is no row of events (for the checker).
pub(crate) fn is_empty(region: &Region, number: u32, cell: Cell) -> Result<bool> {
    let tail = region.load(cell.word(TAIL));
    let (end, start) = (tail & POSITION, region.load(cell.word(HEAD)));
    let (mut head, mut last) = (start, 0);
    while head < end {
        last = words_of(low(region.load(ring(region, number, head + 1))) as usize);
        head += last;
    }
    let whole = head == end && end - start <= RING_WORDS as u64;
    let known = start == end || last == tail >> 48;
    if whole && known { Ok(start == end) } else { Err(Errno::EIO) }
}
