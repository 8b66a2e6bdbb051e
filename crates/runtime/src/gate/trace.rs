//! Records calls for `husk trace`.
//!
//! ```text
//!   husk_traced ─► serve ─► begin: who, what, texts    service::serve_noted ─► answer
//!                             ├─ a value: one record, whole ──────────────────► husk_leave
//!                             └─ the host's: a record now, a detour ─► host ─► serve_after: ended
//! ```
//!
//! Invariants
//! 1. While nobody traces, nothing here runs and no word of it is looked at: the gate table leads
//!    elsewhere (`table`).
//! 2. A record is written within a service, to the ring of the thread: signals wait meanwhile, and
//!    the ring has one writer. It lies outside the arena: the guard stays as it is.
//! 3. The program never waits for who reads. What does not fit is counted and forgotten, and who
//!    has read nothing for long is taken for gone: tracing ends by itself.
//! 4. A call's end is found by its number, which travels in the `Detour`: handlers that run in
//!    between may make calls of their own, or never come back.

use crate::detour;
use crate::facts::{facts, has_region};
use crate::frame::{
    Answer, DETOUR, Detour, Frame, PASS, RETURN, THEN_AGAIN, THEN_BITS, THEN_LEAVE, THEN_TRACED,
    THEN_TRACED_AGAIN,
};
use crate::gate::service;
use crate::memory;
use crate::stubs::table;
use crate::thread::Thread;
use core::mem::offset_of;
use husk_abi::{nr, shape};
use husk_host::{calls, syscall};
use husk_region::observe::trace::{self, By, Kind, RECORD_WORDS, Ring, TEXT_BYTES, TEXT_WORDS};

/// Words of a record before its texts: head, time, number or duration, result, six arguments.
const FIXED_WORDS: usize = 10;
/// Texts of a record.
const TEXTS_MAX: usize = 2;
/// Calls after which a thread that found no ring looks again.
const CALLS_UNTIL_NEXT_LOOK: u32 = 64;

/// A call that has begun.
struct Begun {
    ring: Ring,
    /// What it is known by in the ring; 0 = nothing of it is there.
    sequence: u32,
    /// Operations before.
    done: u64,
    /// Bytes through the ring of its descriptor before, where it has one.
    moved: Option<u64>,
    record: [u64; RECORD_WORDS],
    length: usize,
}

/// Entry from the gate.
pub extern "C" fn serve(frame: &mut Frame) -> Answer {
    let thread = Thread::current();
    thread.restarts = 0;
    let resumes = core::mem::take(&mut thread.trace.resumes);
    match begin(thread, frame, resumes) {
        Some(begun) => {
            let answer = service::serve_noted(thread, frame);
            end(thread, frame, begun, answer)
        }
        None => service::serve_noted(thread, frame),
    }
}

/// `None`: it is not recorded.
fn begin(thread: &mut Thread, frame: &Frame, resumes: u32) -> Option<Begun> {
    if !table::is_traced() || !is_mapped() {
        return None;
    }
    if trace::is_stale() {
        trace::abandon();
        return None;
    }
    if !trace::is_wanted(thread.client.pid(), frame.number) {
        return None;
    }
    let ring = ring(thread)?;
    let (done, _) = thread.client.so_far(true);
    let moved = thread.client.moved_by_ring(frame.number, frame.args[0]);
    let record = [0; RECORD_WORDS];
    let mut begun = Begun { ring, sequence: resumes, done, moved, record, length: FIXED_WORDS };
    if resumes == 0 {
        begun.describe(frame);
        if is_last(frame.number) && !begun.announce(frame.number) {
            return None;
        }
    }
    Some(begun)
}

/// Calls that may never come back, and are not the host's by then.
fn is_last(number: usize) -> bool {
    matches!(number, nr::exit | nr::exit_group | nr::execve | nr::execveat)
}

fn is_mapped() -> bool {
    let map = || {
        let region = facts().handover.region_fd as u32;
        crate::memory::region::known().is_some_and(|layout| trace::map(region, &layout).is_ok())
    };
    trace::is_mapped() || has_region() && map()
}

/// The thread's ring, with the name of its program in it.
fn ring(thread: &mut Thread) -> Option<Ring> {
    if let Some(ring) = thread.trace.ring {
        return Some(ring);
    }
    if thread.trace.waits > 0 {
        thread.trace.waits -= 1;
        Ring::note_lost();
        return None;
    }
    let Some(ring) = Ring::take(thread.client.pid(), calls::gettid()) else {
        thread.trace.waits = CALLS_UNTIL_NEXT_LOOK;
        Ring::note_lost();
        return None;
    };
    const PR_GET_NAME: usize = 16;
    let mut record = [trace::head_word(Kind::Name, By::Itself, 0, 4), trace::ticks(), 0, 0];
    let name = (&raw mut record[2]) as usize;
    // SAFETY: room for the 16 bytes of a name.
    unsafe { syscall(nr::prctl, [PR_GET_NAME, name, 0, 0, 0, 0]) };
    ring.put(&core::hint::black_box(record));
    thread.trace.ring = Some(ring);
    Some(ring)
}

impl Begun {
    /// Notes arguments and texts, then the time.
    fn describe(&mut self, frame: &Frame) {
        self.record[4..FIXED_WORDS].copy_from_slice(&frame.args.map(|argument| argument as u64));
        let texts = (0..frame.args.len()).filter(|n| shape::is_text(frame.number, *n));
        for n in texts.take(TEXTS_MAX) {
            self.add_text(frame.args[n]);
        }
        self.record[1] = trace::ticks();
    }

    /// Its length (all ones: there is none), then as many of its bytes as are kept.
    fn add_text(&mut self, at: usize) {
        let mut text = [0u8; TEXT_BYTES];
        let length = text_at(at, &mut text);
        let words = match length {
            Some(length) => length.min(TEXT_BYTES).div_ceil(8),
            None => 0,
        };
        let place = &mut self.record[self.length..self.length + TEXT_WORDS];
        place[0] = length.map_or(u64::MAX, |length| length as u64);
        for (word, bytes) in place[1..=words].iter_mut().zip(text.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        }
        self.length += 1 + words;
    }

    /// Puts the beginning of the call into the ring; false: there was no room.
    fn announce(&mut self, number: usize) -> bool {
        let sequence = self.ring.next_sequence();
        self.record[0] = trace::head_word(Kind::Begun, By::Host, number, self.length);
        self.record[2] = u64::from(sequence);
        let there = self.ring.put(&self.record[..self.length]);
        self.sequence = if there { sequence } else { 0 };
        there
    }
}

/// Reads a text; its length, one more than there is room for when it is longer.
fn text_at(at: usize, out: &mut [u8; TEXT_BYTES]) -> Option<usize> {
    match memory::read_string(at, out) {
        Ok(length) => Some(length),
        Err(husk_abi::Errno::ENAMETOOLONG) => Some(TEXT_BYTES + 1),
        Err(_) => None,
    }
}

/// Notes the answer, or sees to it that the result of the host's call is noted.
fn end(thread: &mut Thread, frame: &Frame, mut begun: Begun, answer: Answer) -> Answer {
    let now = trace::ticks();
    if answer.action == RETURN {
        let (done, kernel) = thread.client.so_far(false);
        let by = match kernel {
            _ if begun.by_ring(thread, frame, answer.value) => By::Ring,
            Some(kernel) if done != begun.done => By::Kernel(kernel as u16),
            _ => By::Itself,
        };
        begun.finish(frame.number, by, now, answer.value);
        return answer;
    }
    if answer.action == PASS && changes_memory(frame.number) {
        let value = frame.host();
        begun.finish(frame.number, By::Host, trace::ticks(), value);
        return Answer::value(value);
    }
    if begun.sequence == 0 && !begun.announce(frame.number) {
        return answer;
    }
    let call = (begun.sequence as usize) << THEN_BITS;
    if answer.action == PASS {
        let mut way = detour::of(frame);
        way.then = THEN_TRACED | call;
        let taken = detour::take(frame, &way);
        // Without room on its stack the call is made as it is, and nobody learns of its result.
        return if taken.action == DETOUR { taken } else { answer };
    }
    mark(answer.value as usize, call);
    answer
}

/// Calls that could take the page away that a detour lies in, and do not sleep: they are made here.
fn changes_memory(number: usize) -> bool {
    matches!(
        number,
        nr::madvise | nr::mmap | nr::mprotect | nr::mremap | nr::munmap | nr::pkey_mprotect
    )
}

/// Lets the detour at `at` come back here.
fn mark(at: usize, call: usize) {
    let place = at + offset_of!(Detour, then);
    let Ok(then) = memory::word(place) else { return };
    let then = match then {
        THEN_LEAVE => THEN_TRACED,
        THEN_AGAIN => THEN_TRACED_AGAIN,
        then => then,
    };
    // It was written a moment ago: this cannot fail.
    let _ = memory::write_value(place, &(then | call));
}

impl Begun {
    /// Whether the bytes of a call that the host was not asked for have gone through a ring.
    fn by_ring(&self, thread: &mut Thread, frame: &Frame, value: i64) -> bool {
        let mut now = || thread.client.moved_by_ring(frame.number, frame.args[0]);
        value > 0 && self.moved.is_some_and(|before| now().is_some_and(|now| now != before))
    }

    fn finish(&mut self, number: usize, by: By, now: u64, value: i64) {
        if self.sequence != 0 {
            put_end(self.ring, number, by, now, self.sequence, value);
            return;
        }
        self.record[0] = trace::head_word(Kind::Whole, by, number, self.length);
        self.record[2] = now.wrapping_sub(self.record[1]);
        self.record[3] = value as u64;
        self.ring.put(&self.record[..self.length]);
    }
}

fn put_end(ring: Ring, number: usize, by: By, now: u64, sequence: u32, value: i64) {
    let head = trace::head_word(Kind::Ended, by, number, 4);
    ring.put(&[head, now, u64::from(sequence), value as u64]);
}

/// The host has answered call `sequence`.
#[cold]
#[inline(never)]
pub fn ended(thread: &mut Thread, sequence: u32, value: i64) {
    let now = trace::ticks();
    if let (Some(ring), true) = (thread.trace.ring, trace::is_mapped()) {
        put_end(ring, 0, By::Host, now, sequence, value);
    }
}
