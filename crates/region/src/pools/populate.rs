//! How blocks that are about to be filled get their memory from the host.
//!
//! ```text
//!   a thread sets a run of blocks aside
//!     ├─ huge pages are cheap now? ──► one for the run and its neighbours, mapped (`gather`)
//!     ├─ for a large write ──────────► nothing yet: it is written through the descriptor
//!     └─ else ───────────────────────► the run's pages mapped at once, from the second run on
//! ```
//!
//! A page that is first touched through a mapping is cleared, mapped by a fault, and unmapped at
//! exit. The host's own write does none of this, so what a large write puts in new blocks goes by
//! `pwrite` to the region's descriptor (`LARGE_BYTES`). One huge page for 512 blocks costs less
//! than either, where the host has one; where it must move memory to make one, it costs ten times
//! more. So its processor time is measured, and a dear one keeps the whole image from asking for
//! some time.
//!
//! The host lets one writer at a time into a file, and the region is one. Who finds somebody there
//! (`enter`) maps its blocks instead, all by one call, and does not wait.
//!
//! 1. Bytes that anybody can see change only where the caller says: in its own blocks.
//! 2. A write through the descriptor may stop at any byte; the caller copies the rest.
//! 3. The host judges such a write by the limit of file sizes (`RLIMIT_FSIZE`): a process that has
//!    one does not write so (`set_by_descriptor`), and looks for one that others have set.
//! 4. Who is killed inside keeps others out for `BUSY_TICKS` only: the word says until when.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use husk_abi::{PAGE, nr};
use husk_host::huge::{HUGE_BYTES, gather_around};
use husk_host::syscall;

use crate::arena::layout::{CHUNK_BLOCKS, header};
use crate::arena::memory::{CACHE_ADDRESS, Cell, Region, STATE_ADDRESS, Without};
use crate::hooks::clock::ticks;
use crate::pools::blocks::{BITMAP, Blocks};
use crate::txn::lock;
use crate::txn::session::{RUN, Session};

/// Blocks in a huge page; a chunk is a whole number of them.
const HUGE_BLOCKS: u32 = (HUGE_BYTES / PAGE) as u32;
const _: () = assert!(CHUNK_BLOCKS.is_multiple_of(HUGE_BLOCKS));
/// Runs that a thread has filled before it gets huge pages.
const GATHER_FROM: u32 = 3;
/// A write of so many bytes goes through the descriptor. Smaller ones go the way they always have.
pub const LARGE_BYTES: u64 = 64 << 10;
/// Processor time that a huge page may take: less than the host needs for 512 pages one by one.
const DEAR_NS: u64 = 400_000;
/// After a dear huge page, so many times what it took passes before the next is asked for: in
/// ticks per ns, of which a processor has two to five.
const PAUSE_FACTOR: u64 = 512;
/// The shortest pause, for what the host refuses at once: some 50 ms.
const PAUSE_TICKS_MIN: u64 = 1 << 27;
/// What one writer takes, at most: some 2 ms.
const BUSY_TICKS: u64 = 1 << 22;
/// A look at the limit of file sizes holds so long: some 50 us.
const LOOK_TICKS: u64 = 1 << 17;
/// No pause is longer; what the word says beyond is not believed.
const PAUSE_TICKS_MAX: u64 = 1 << 37;

/// One more than the region's descriptor; 0 = not announced.
static DESCRIPTOR: AtomicUsize = AtomicUsize::new(0);
/// Where in its file the cache begins.
static CACHE_OFFSET: AtomicU64 = AtomicU64::new(0);
static BY_DESCRIPTOR: AtomicBool = AtomicBool::new(false);

/// When the limit of file sizes was looked at last.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Says where the cache lies in which descriptor's file.
pub(crate) fn announce(region_fd: u32, cache_offset: u64) {
    CACHE_OFFSET.store(cache_offset, Relaxed);
    DESCRIPTOR.store(region_fd as usize + 1, Relaxed);
}

/// Whether this process may write blocks through the region's descriptor: it has no limit of file
/// sizes. It may not before it is told.
pub fn set_by_descriptor(may: bool) {
    BY_DESCRIPTOR.store(may, Relaxed);
}

/// The word that says until when somebody is in the region's file.
fn busy() -> &'static AtomicU64 {
    let address = STATE_ADDRESS + header::DESCRIPTOR_BUSY as usize * 8;
    // SAFETY: a word of the header, which who has announced the region maps before it writes.
    unsafe { &*(address as *const AtomicU64) }
}

/// Says that the caller is in the region's file, for so many ticks at most; false: somebody is.
fn enter(most: u64) -> bool {
    let (now, until) = (ticks(), busy().load(Relaxed));
    let is_taken = until.checked_sub(now).is_some_and(|left| left > 0 && left <= PAUSE_TICKS_MAX);
    !is_taken && busy().compare_exchange(until, now + most, Relaxed, Relaxed).is_ok()
}

/// The caller is out again. Who stayed too long may let a third one in: that one waits.
fn leave() {
    busy().store(0, Relaxed);
}

/// Keeps writers from waiting for `work` on the region's file; only who has joined it may ask.
pub fn with_descriptor_busy<T>(work: impl FnOnce() -> T) -> T {
    busy().store(ticks() + 4 * BUSY_TICKS, Relaxed);
    let done = work();
    leave();
    done
}

/// Writes `length` bytes at `source` to the cache's bytes at `address` without mapping them; how
/// many went in before the host had an objection. Bytes at `source` that are not there are none of
/// them.
pub fn write_unmapped(address: usize, source: usize, length: usize) -> usize {
    let Some(fd) = DESCRIPTOR.load(Relaxed).checked_sub(1) else { return 0 };
    if !BY_DESCRIPTOR.load(Relaxed) || address < CACHE_ADDRESS || is_limited() {
        return 0;
    }
    if !enter(BUSY_TICKS) {
        map_blocks(address, length);
        return 0;
    }
    let done = write_at(fd, address, source, length);
    leave();
    done
}

/// Whether somebody else has set a limit of file sizes to this process (`prlimit`).
fn is_limited() -> bool {
    const FILE_SIZE: usize = 1;
    const NONE: u64 = u64::MAX;
    let now = ticks();
    if now.wrapping_sub(LOOKED.load(Relaxed)) < LOOK_TICKS {
        return false;
    }
    let mut limit = [NONE; 2];
    let args = [0, FILE_SIZE, 0, (&raw mut limit) as usize, 0, 0];
    // SAFETY: two words of ours.
    unsafe { syscall(nr::prlimit64, args) };
    let limited = core::hint::black_box(limit)[0] != NONE;
    if !limited {
        LOOKED.store(now, Relaxed);
    }
    limited
}

fn write_at(fd: usize, address: usize, source: usize, length: usize) -> usize {
    let offset = CACHE_OFFSET.load(Relaxed) as usize + (address - CACHE_ADDRESS);
    let mut done = 0;
    while done < length {
        let args = [fd, source + done, length - done, offset + done, 0, 0];
        // SAFETY: the host checks the source; the caller owns the blocks, of which Rust has no
        // reference.
        let raw = unsafe { syscall(nr::pwrite64, args) };
        match usize::try_from(raw) {
            Ok(moved) if moved > 0 => done += moved,
            _ => break,
        }
    }
    done
}

/// Maps the blocks of some bytes by one call of the host, not by a fault a block.
fn map_blocks(address: usize, bytes: usize) {
    const POPULATE_WRITE: usize = 23;
    let start = address & !(PAGE - 1);
    let length = (address + bytes - start).next_multiple_of(PAGE);
    // SAFETY: blocks of the mapped cache; nothing in them changes. An older host refuses.
    unsafe { syscall(nr::madvise, [start, length, POPULATE_WRITE, 0, 0, 0]) };
}

/// Processor time of this thread: what others do meanwhile makes nothing dear.
fn processor_ns() -> u64 {
    const THREAD_TIME: usize = 3;
    let mut time = [0u64; 2];
    // SAFETY: two words of ours.
    unsafe { syscall(nr::clock_gettime, [THREAD_TIME, (&raw mut time) as usize, 0, 0, 0, 0]) };
    let [seconds, ns] = core::hint::black_box(time);
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

impl Region {
    /// Whether huge pages were too dear a short while ago.
    fn are_huge_pages_dear(&self, now: u64) -> bool {
        let until = self.load(Cell::at(header::HUGE_PAUSE));
        until.checked_sub(now).is_some_and(|left| left > 0 && left <= PAUSE_TICKS_MAX)
    }

    /// Whether a huge page was ever dear, or refused, in this image.
    pub fn had_dear_huge_page(&self) -> bool {
        self.load(Cell::at(header::HUGE_PAUSE)) != 0
    }

    /// As if a huge page had taken very long just now.
    pub fn note_dear_huge_page(&self) {
        self.store(Cell::at(header::HUGE_PAUSE), ticks() + PAUSE_TICKS_MAX);
    }

    fn note_huge_page(&self, took_ns: u64, gathered: bool) {
        if gathered && took_ns <= DEAR_NS {
            return;
        }
        let pause = took_ns.saturating_mul(PAUSE_FACTOR).clamp(PAUSE_TICKS_MIN, PAUSE_TICKS_MAX);
        self.store(Cell::at(header::HUGE_PAUSE), ticks().saturating_add(pause));
    }
}

impl Session {
    /// Whether blocks from `blocks_ahead` are best written through the descriptor (`Region`).
    pub fn is_unmapped(&self, blocks: Blocks) -> bool {
        let run = || self.base().map_or(0, |base| self.region.load(base.word(RUN)));
        self.unmapped.get() && (run() >> 32) as u32 == blocks.first
    }

    /// A new run has been set aside for a write of `bytes`: brings its memory, unless it comes with
    /// the bytes. `freed`: the host may have memory for it.
    pub(crate) fn bring(&self, run: u64, bytes: u64, freed: bool) {
        self.unmapped.set(false);
        let (first, count) = ((run >> 32) as u32, run as u32);
        if count == 0 || self.region.without().has(Without::AHEAD) {
            return;
        }
        let before = self.count_run();
        let is_large = bytes >= LARGE_BYTES;
        // Blocks of removed files often are in a huge page already, and asking for it again costs
        // less than to map them a run at a time, which small writes would need.
        if before >= GATHER_FROM && self.gather(first, count, freed && !is_large) {
            return;
        }
        if is_large && BY_DESCRIPTOR.load(Relaxed) {
            self.unmapped.set(true);
        } else if before > 0 {
            // Not for its first run: who writes one small file needs a block or two.
            map_blocks(self.region.block_address(first), count as usize * PAGE);
        }
    }

    /// Brings a run in a huge page, with the blocks beside it that this thread or others will fill
    /// next; whether it lies in one now. Where most of those are filled already it is not worth it.
    /// `though_dear`: also while huge pages are dear.
    fn gather(&self, first: u32, count: u32, though_dear: bool) -> bool {
        let chunk = self.region.map.chunk(first / CHUNK_BLOCKS);
        let half = first / HUGE_BLOCKS;
        let version = self.region.load(chunk);
        let last = self.gathered.replace((half, version));
        // Nobody has changed the chunk since but this thread, which has taken the run: nobody has
        // given the page back to the host either.
        if last == (half, lock::before(version)) {
            return true;
        }
        let bitmap = chunk.word(BITMAP + half % (CHUNK_BLOCKS / HUGE_BLOCKS) * HUGE_BLOCKS / 64);
        let words = (0..HUGE_BLOCKS / 64).map(|n| self.region.load(bitmap.word(n)).count_ones());
        let in_one = (first % HUGE_BLOCKS + count) <= HUGE_BLOCKS;
        let others = words.sum::<u32>().saturating_sub(count);
        let though_dear = though_dear && !self.small_pages.get();
        let may_ask = || though_dear || !self.region.are_huge_pages_dear(ticks());
        if in_one && others <= HUGE_BLOCKS / 2 && may_ask() {
            let begun_ns = processor_ns();
            let gathered = gather_around(self.region.block_address(first)).is_ok();
            let took_ns = processor_ns().saturating_sub(begun_ns);
            self.region.note_huge_page(took_ns, gathered);
            self.small_pages.set(!gathered);
            if gathered {
                return true;
            }
        }
        self.gathered.set((0, 0));
        false
    }
}
