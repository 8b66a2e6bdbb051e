//! The traces' part of the region: the tables of the gate, who traces, and rings of records.
//!
//! ```text
//!   file    [ live table | control | table, off | table, on | owners | words | ring 0 | ring 1 ..]
//!             │ mapped to read at   │ copied into the live table by who traces,     │
//!             │ 0x60000 in every    │ or (off) by a traced process when nobody      │ a thread's
//!             ▼ process             │ has given a sign of life for long             ▼ records
//!   at TRACE_ADDRESS all of it is mapped to write by who traces and who is traced
//! ```
//!
//! While nobody traces, no call looks at any of this: the live table leads around it. The area is
//! no part of the guarded arena; a stray store of a traced program can damage records, and who
//! reads them believes nothing that it has not checked. The tables are mapped to write only by who
//! traces. Why so, says `docs/adr/0030`.
//!
//! Invariants
//! 1. Every word of the live table is at any time the one of the table `off` or the one of `on`.
//! 2. A ring has one writer, the thread in its owner word, and one reader: the writer alone stores
//!    `HEAD`, the reader alone `TAIL`, after the words between them. A writer never waits: what
//!    does not fit is counted and dropped.
//! 3. A ring goes to another owner only when its own has ended and all records are read.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use husk_abi::{Errno, nr};
use husk_host::syscall;

use crate::arena::layout::Layout;
pub use crate::hooks::clock::ticks;
use crate::txn::life::{Life, judge};

/// Where the area is mapped in a process that traces or is traced.
pub const TRACE_ADDRESS: usize = 0x5300_0000_0000;
/// Entries of a table: a page.
pub const ENTRIES: usize = 512;
/// Threads that can be traced at once.
pub const RINGS: u32 = 1024;
/// Bytes of a ring.
pub const RING_BYTES: usize = 256 * 1024;
/// Words of the longest record: what is fixed, and two texts.
pub const RECORD_WORDS: usize = 10 + 2 * TEXT_WORDS;
/// Words of a text: its length, then its first bytes.
pub const TEXT_WORDS: usize = 1 + TEXT_BYTES / 8;
/// Bytes of a text that are kept.
pub const TEXT_BYTES: usize = 248;
/// Bytes that every process maps to read, at the gate's place: live table and control.
pub const SHOWN_BYTES: usize = 2 * PAGE;

const PAGE: usize = 4096;
const RING_WORDS: u64 = (RING_BYTES / 8) as u64;
const WORDS_BYTES: usize = 128;
const CONTROL: usize = PAGE;
const TABLE_OFF: usize = 2 * PAGE;
const TABLE_ON: usize = 3 * PAGE;
const OWNERS: usize = 4 * PAGE;
const WORDS: usize = OWNERS + RINGS as usize * 8;
const DATA: usize = WORDS + RINGS as usize * WORDS_BYTES;
const AREA_BYTES: usize = DATA + RINGS as usize * RING_BYTES;
const _: () = assert!(DATA.is_multiple_of(PAGE) && ENTRIES * 8 == PAGE);
const _: () = assert!(AREA_BYTES.is_multiple_of(PAGE), "nothing is mapped behind half a page");

/// Words of the control page.
mod control {
    /// Process that traces; 0 = nobody.
    pub const TRACER: usize = 0;
    /// Ticks of its last sign of life.
    pub const BEAT: usize = 1;
    /// Ticks after which it counts as gone.
    pub const PATIENCE: usize = 2;
    /// Calls are to be recorded.
    pub const ON: usize = 3;
    /// Of this process alone; 0 = of all.
    pub const PROCESS: usize = 4;
    /// Calls of threads for which no ring was free.
    pub const LOST: usize = 5;
    /// One more than the highest ring that was ever taken.
    pub const HIGH: usize = 6;
    /// The tables off and on are there.
    pub const READY: usize = 7;
    /// Calls that are recorded, one bit each.
    pub const CALLS: usize = 8;
}

/// Words of a ring: the writer's line, then the reader's.
const HEAD: usize = 0;
const DROPPED: usize = 1;
const SEQUENCE: usize = 2;
const TAIL: usize = 8;

static MAPPED: AtomicBool = AtomicBool::new(false);

impl Layout {
    /// Offset of the traces in the region memfd.
    pub fn trace_offset(&self) -> u64 {
        self.programs_offset() + crate::arena::layout::PROGRAMS_BYTES
    }

    /// Bytes of the traces' area; what is never used costs nothing.
    pub fn trace_bytes(&self) -> u64 {
        AREA_BYTES as u64
    }
}

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A whole call.
    Whole = 1,
    /// A call that has begun: the host has it.
    Begun = 2,
    /// Its end.
    Ended = 3,
    /// What a thread's program is called; comes before its first call.
    Name = 4,
    /// Nothing, up to the end of the ring.
    Pad = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Whole, Kind::Begun, Kind::Ended, Kind::Name, Kind::Pad]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Who has answered a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The process itself: no kernel was asked.
    Itself,
    /// A kernel.
    Kernel(u16),
    /// The host.
    Host,
    /// The process itself: the bytes went through a ring of the image.
    Ring,
}

impl By {
    const ITSELF: u64 = 0xffff;
    const HOST: u64 = 0xfffe;
    const RING: u64 = 0xfffd;

    fn bits(self) -> u64 {
        match self {
            By::Itself => By::ITSELF,
            By::Host => By::HOST,
            By::Ring => By::RING,
            By::Kernel(kernel) => u64::from(kernel),
        }
    }

    fn of(bits: u64) -> By {
        match bits & 0xffff {
            By::ITSELF => By::Itself,
            By::HOST => By::Host,
            By::RING => By::Ring,
            kernel => By::Kernel(kernel as u16),
        }
    }
}

/// Maps the area behind memfd `fd`, once a process. `EEXIST` when something else lies there.
pub fn map(fd: u32, layout: &Layout) -> Result<(), Errno> {
    const READ_WRITE: usize = 3;
    const SHARED_FIXED_NOREPLACE_NORESERVE: usize = 0x10_4001;
    if MAPPED.load(Ordering::Acquire) {
        return Ok(());
    }
    let (offset, flags) = (layout.trace_offset() as usize, SHARED_FIXED_NOREPLACE_NORESERVE);
    let args = [TRACE_ADDRESS, AREA_BYTES, READ_WRITE, flags, fd as usize, offset];
    // SAFETY: a new mapping at a place that is Husk's alone; NOREPLACE: it replaces nothing.
    Errno::check(unsafe { syscall(nr::mmap, args) } as i64)?;
    MAPPED.store(true, Ordering::Release);
    Ok(())
}

/// Takes the mapping away again; nobody else of the process uses it yet.
pub fn unmap() {
    if MAPPED.swap(false, Ordering::AcqRel) {
        // SAFETY: our own mapping, which nobody has a reference into.
        unsafe { syscall(nr::munmap, [TRACE_ADDRESS, AREA_BYTES, 0, 0, 0, 0]) };
    }
}

/// Whether the area is mapped here.
#[inline(always)]
pub fn is_mapped() -> bool {
    MAPPED.load(Ordering::Acquire)
}

/// A word of the area.
#[inline(always)]
fn word(at: usize) -> &'static AtomicU64 {
    assert!(is_mapped() && at < AREA_BYTES && at.is_multiple_of(8), "outside the traces");
    // SAFETY: inside the area (asserted), which is mapped for good; all access is atomic.
    unsafe { &*((TRACE_ADDRESS + at) as *const AtomicU64) }
}

#[inline(always)]
fn told(index: usize) -> &'static AtomicU64 {
    word(CONTROL + 8 * index)
}

fn ring_word(ring: u32, index: usize) -> &'static AtomicU64 {
    word(WORDS + (ring % RINGS) as usize * WORDS_BYTES + 8 * index)
}

fn ring_data(ring: u32, at: u64) -> &'static AtomicU64 {
    word(DATA + (ring % RINGS) as usize * RING_BYTES + (at % RING_WORDS) as usize * 8)
}

fn owner(ring: u32) -> &'static AtomicU64 {
    word(OWNERS + (ring % RINGS) as usize * 8)
}

// ---- the tables -------------------------------------------------------------------------------

/// Whether calls are to be recorded, asked of the control page as it is shown at `shown`.
///
/// # Safety
/// The first `SHOWN_BYTES` of the area are mapped at `shown`.
#[inline(always)]
pub unsafe fn is_on(shown: usize) -> bool {
    // SAFETY: as the caller says.
    let on = unsafe { &*((shown + CONTROL + 8 * control::ON) as *const AtomicU64) };
    on.load(Ordering::Relaxed) != 0
}

/// The image's first process says what the tables hold. Others that do so at the same time say the
/// same.
pub fn publish(off: impl Fn(usize) -> u64, on: impl Fn(usize) -> u64) {
    for n in 0..ENTRIES {
        word(TABLE_OFF + 8 * n).store(off(n), Ordering::Relaxed);
        word(TABLE_ON + 8 * n).store(on(n), Ordering::Relaxed);
    }
    told(control::READY).store(1, Ordering::SeqCst);
    // Who traces says so before it looks whether the tables are there: one of the two sees the
    // other. It stores into the live table, too, and is not to be undone.
    let is_on = told(control::ON).load(Ordering::SeqCst) != 0;
    for n in 0..ENTRIES {
        let wanted = if is_on { on(n) } else { off(n) };
        let _ = word(8 * n).compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Makes the live table one of the two (invariant 1); false: they are not there yet.
pub fn switch(on: bool) -> bool {
    if told(control::READY).load(Ordering::SeqCst) == 0 {
        return false;
    }
    let table = if on { TABLE_ON } else { TABLE_OFF };
    for n in 0..ENTRIES {
        let wanted = word(table + 8 * n).load(Ordering::Relaxed);
        if word(8 * n).load(Ordering::Relaxed) != wanted && wanted != 0 {
            word(8 * n).store(wanted, Ordering::Relaxed);
        }
    }
    true
}

// ---- who traces -------------------------------------------------------------------------------

/// What is to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Of one process alone; 0 = of all.
    pub process: u32,
    /// The calls, one bit each.
    pub calls: [u64; 8],
    /// Ticks without a sign of life after which tracing ends by itself.
    pub patience: u64,
}

/// Begins to trace as process `pid`; `Err`: that process traces already.
pub fn begin(pid: u32, wish: &Wish) -> Result<(), u32> {
    let tracer = told(control::TRACER);
    let word = tracer.load(Ordering::Acquire);
    let before = word as u32;
    if before != 0 && before != pid && !is_stale() && judge(before, before) != Life::Dead {
        return Err(before);
    }
    let (ours, taken, seen) = (u64::from(pid), Ordering::AcqRel, Ordering::Acquire);
    // Who was faster traces.
    tracer.compare_exchange(word, ours, taken, seen).map_err(|now| now as u32)?;
    told(control::PROCESS).store(u64::from(wish.process), Ordering::Relaxed);
    for (n, bits) in wish.calls.iter().enumerate() {
        told(control::CALLS + n).store(*bits, Ordering::Relaxed);
    }
    told(control::PATIENCE).store(wish.patience, Ordering::Relaxed);
    told(control::LOST).store(0, Ordering::Relaxed);
    beat();
    // What was left by who traced before is nobody's.
    for ring in 0..high() {
        let head = ring_word(ring, HEAD).load(Ordering::Acquire);
        ring_word(ring, TAIL).store(head, Ordering::Release);
        ring_word(ring, DROPPED).store(0, Ordering::Relaxed);
    }
    told(control::ON).store(1, Ordering::SeqCst);
    switch(true);
    Ok(())
}

/// What a sign of life has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulse {
    /// Calls are recorded.
    On,
    /// They are again: programs had ended that, as nobody looked.
    Again,
    /// Somebody else traces now; what lies in the rings is theirs.
    Lost,
}

/// A sign of life of who traces.
pub fn goes_on(pid: u32) -> Pulse {
    if !is_ours(pid) {
        return Pulse::Lost;
    }
    beat();
    let on = told(control::ON).swap(1, Ordering::AcqRel) != 0;
    // The image's first process may have come since.
    switch(true);
    if on { Pulse::On } else { Pulse::Again }
}

fn is_ours(pid: u32) -> bool {
    told(control::TRACER).load(Ordering::Acquire) == u64::from(pid)
}

fn beat() {
    told(control::BEAT).store(ticks(), Ordering::Release);
}

/// Ends tracing, if it is ours still: whether it was. Rings keep their owners.
pub fn end(pid: u32) -> bool {
    if !is_ours(pid) {
        return false;
    }
    told(control::ON).store(0, Ordering::Release);
    switch(false);
    told(control::TRACER).store(0, Ordering::Release);
    true
}

/// Gives the memory of all rings back to the host: records that are not read are gone.
pub fn give_back(fd: u32, layout: &Layout) {
    const PUNCH_HOLE_KEEP_SIZE: usize = 3;
    let (start, bytes) = (layout.trace_offset() as usize + DATA, AREA_BYTES - DATA);
    // SAFETY: bytes of records; who writes one meanwhile gets a new page.
    unsafe { syscall(nr::fallocate, [fd as usize, PUNCH_HOLE_KEEP_SIZE, start, bytes, 0, 0]) };
}

/// Calls of threads for which there was no ring.
pub fn lost() -> u64 {
    told(control::LOST).load(Ordering::Relaxed)
}

// ---- who is traced ----------------------------------------------------------------------------

/// Whether nobody has given a sign of life for too long.
pub fn is_stale() -> bool {
    let since = ticks().saturating_sub(told(control::BEAT).load(Ordering::Relaxed));
    since > told(control::PATIENCE).load(Ordering::Relaxed)
}

/// Ends the tracing of somebody who has gone.
pub fn abandon() {
    if is_stale() {
        told(control::ON).store(0, Ordering::Release);
        switch(false);
    }
}

/// Whether call `number` of process `pid` is to be recorded.
pub fn is_wanted(pid: u32, number: usize) -> bool {
    let process = told(control::PROCESS).load(Ordering::Relaxed) as u32;
    let bits = told(control::CALLS + number / 64 % 8).load(Ordering::Relaxed);
    told(control::ON).load(Ordering::Relaxed) != 0
        && (process == 0 || process == pid)
        && bits >> (number % 64) & 1 == 1
}

/// A thread's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring(u32);

impl Ring {
    /// The ring of a thread: the one that it has, or a free one.
    pub fn take(pid: u32, tid: u32) -> Option<Ring> {
        let me = u64::from(pid) << 32 | u64::from(tid);
        let own = (0..high()).find(|ring| owner(*ring).load(Ordering::Relaxed) == me);
        if let Some(ring) = own {
            return Some(Ring(ring));
        }
        let swap = |ring: &u32| {
            let word = owner(*ring);
            word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let ring = (0..RINGS).find(swap)?;
        told(control::HIGH).fetch_max(u64::from(ring) + 1, Ordering::AcqRel);
        Some(Ring(ring))
    }

    /// There was none.
    pub fn note_lost() {
        told(control::LOST).fetch_add(1, Ordering::Relaxed);
    }

    /// The number of its next call: never 0.
    pub fn next_sequence(self) -> u32 {
        let word = ring_word(self.0, SEQUENCE);
        let next = (word.load(Ordering::Relaxed) as u32).wrapping_add(1).max(1);
        word.store(u64::from(next), Ordering::Relaxed);
        next
    }

    /// Puts a record of at most `RECORD_WORDS` words there, or counts it as dropped.
    pub fn put(self, record: &[u64]) -> bool {
        let length = record.len() as u64;
        let head = ring_word(self.0, HEAD).load(Ordering::Relaxed);
        let tail = ring_word(self.0, TAIL).load(Ordering::Acquire);
        let left = RING_WORDS - head % RING_WORDS;
        let pad = if left < length { left } else { 0 };
        let taken = head.wrapping_sub(tail);
        if taken > RING_WORDS || taken + pad + length > RING_WORDS {
            let dropped = ring_word(self.0, DROPPED);
            dropped.store(dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        }
        if pad > 0 {
            let nothing = head_word(Kind::Pad, By::Itself, 0, pad as usize);
            ring_data(self.0, head).store(nothing, RELAXED);
        }
        for (n, word) in record.iter().enumerate() {
            ring_data(self.0, head + pad + n as u64).store(*word, RELAXED);
        }
        ring_word(self.0, HEAD).store(head + pad + length, Ordering::Release);
        true
    }
}

const RELAXED: Ordering = Ordering::Relaxed;

/// The first word of a record.
pub fn head_word(kind: Kind, by: By, number: usize, words: usize) -> u64 {
    kind as u64 | by.bits() << 16 | (number as u64 & 0xffff) << 32 | (words as u64) << 48
}

// ---- who reads --------------------------------------------------------------------------------

/// A record as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// What it says.
    pub kind: Kind,
    /// Who has answered.
    pub by: By,
    /// The call.
    pub number: usize,
    /// Process and thread.
    pub whose: (u32, u32),
    /// Its words, the first one included; behind its end 0.
    pub words: [u64; RECORD_WORDS],
}

/// One more than the highest ring that was ever taken.
pub fn high() -> u32 {
    (told(control::HIGH).load(Ordering::Acquire) as u32).min(RINGS)
}

/// Calls `emit` with all records of ring `ring`; how many calls were dropped so far. With `frees`
/// it also asks whether the owner has ended, and then frees the ring.
pub fn read(ring: u32, frees: bool, emit: &mut dyn FnMut(&Found)) -> u64 {
    let owned = owner(ring).load(Ordering::Acquire);
    let whose = ((owned >> 32) as u32, owned as u32);
    // Judged before its records are read: no more come after that.
    let is_over = frees && owned != 0 && judge(whose.0, whose.1) == Life::Dead;
    let head = ring_word(ring, HEAD).load(Ordering::Acquire);
    let mut tail = ring_word(ring, TAIL).load(Ordering::Relaxed);
    if head.wrapping_sub(tail) > RING_WORDS {
        tail = head;
    }
    while tail != head {
        let Some((found, length)) = record(ring, tail, head, whose) else {
            // No record: a store of somebody else's.
            tail = head;
            break;
        };
        tail += length;
        if found.kind != Kind::Pad {
            emit(&found);
        }
    }
    ring_word(ring, TAIL).store(tail, Ordering::Release);
    let dropped = ring_word(ring, DROPPED).load(Ordering::Relaxed);
    if is_over {
        let _ = owner(ring).compare_exchange(owned, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    dropped
}

/// The record at `at`, and how long it is.
fn record(ring: u32, at: u64, head: u64, whose: (u32, u32)) -> Option<(Found, u64)> {
    let first = ring_data(ring, at).load(RELAXED);
    let length = first >> 48;
    let kind = Kind::of(first as u8)?;
    let fits = length > 0 && length <= head - at && length <= RING_WORDS - at % RING_WORDS;
    if !fits || (kind != Kind::Pad && length > RECORD_WORDS as u64) {
        return None;
    }
    let mut words = [0; RECORD_WORDS];
    if kind != Kind::Pad {
        for (n, word) in words.iter_mut().enumerate().take(length as usize) {
            *word = ring_data(ring, at + n as u64).load(RELAXED);
        }
    }
    let number = (first >> 32 & 0xffff) as usize;
    Some((Found { kind, by: By::of(first >> 16), number, whose, words }, length))
}
