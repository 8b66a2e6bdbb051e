//! `CLOCK_REALTIME_COARSE` without a system call, through the vDSO (found when first asked for).
//!
//! The vDSO is the program's: a debugger such as valgrind takes it away. Then the host is asked.
//! Programs are mapped right below it: whoever protects or maps what is there leaves it alone.
//!
//! ```text
//!   who looks at the time             who takes the vDSO away
//!     own `in_vdso` = 1                 FUNCTION = NONE
//!     FUNCTION is NONE? the host        every processor comes past a barrier
//!     reads, calls                      waits until all `in_vdso` of this memory were 0
//!     own `in_vdso` = 0                 the host's call
//! ```
//!
//! 1. Nobody reads or runs anything of the vDSO but between the two stores to its own `in_vdso`,
//!    with FUNCTION not NONE in between. They are plain stores: the other side pays for the order.
//! 2. In between nobody waits, and no code of the program runs. Who is killed there (a child that
//!    shares memory) is waited for `REMOVAL_NAPS_MAX` times.

use crate::facts::facts;
use crate::maps;
use crate::thread::{self, Thread};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed, compiler_fence};
use core::sync::atomic::{Ordering::SeqCst, fence};
use husk_abi::{PAGE, nr};
use husk_host::syscall;

const CLOCK_REALTIME_COARSE: usize = 5;
const UNKNOWN: usize = 0;
const NONE: usize = 1;
/// What may lie before the vDSO's header of its data, in one mapping or several.
const DATA_BYTES: usize = 64 << 10;
/// How the names of their mappings begin.
const DATA_NAME: &[u8] = b"[vvar";
/// Between two looks at who is in the vDSO.
const REMOVAL_NAP_NS: usize = 50_000;
/// Naps before whoever is still there is given up: a second and more.
const REMOVAL_NAPS_MAX: u32 = 20_000;

#[unsafe(link_section = ".bss.hot")]
static FUNCTION: AtomicUsize = AtomicUsize::new(UNKNOWN);
/// Where its data begin, once somebody had to know.
static DATA: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// ns since the epoch, a few ms coarse.
pub fn now_ns() -> i64 {
    let mut time = [0i64; 2];
    let at = (&raw mut time) as usize;
    let asked = in_vdso(|mut function| {
        if function == UNKNOWN {
            function = find();
            learn(function);
        }
        if function == NONE {
            return false;
        }
        // SAFETY: the vDSO's own clock_gettime, found by name, C calling convention; it stays
        // (invariant 1).
        unsafe {
            let call: extern "C" fn(usize, usize) -> i32 = core::mem::transmute(function);
            call(CLOCK_REALTIME_COARSE, at);
        }
        true
    });
    if asked != Some(true) {
        // SAFETY: `time` is a timespec.
        unsafe { syscall(nr::clock_gettime, [CLOCK_REALTIME_COARSE, at, 0, 0, 0, 0]) };
    }
    let time = core::hint::black_box(time);
    time[0] * 1_000_000_000 + time[1]
}

/// Does something with the vDSO, which stays meanwhile; `None`: it is gone, or about to go.
#[inline(always)]
fn in_vdso<T>(step: impl FnOnce(usize) -> T) -> Option<T> {
    let mine = &Thread::current().in_vdso;
    mine.store(1, Relaxed);
    compiler_fence(SeqCst);
    let function = FUNCTION.load(Relaxed);
    let done = (function != NONE).then(|| step(function));
    compiler_fence(SeqCst);
    mine.store(0, Relaxed);
    done
}

/// Notes what was found, unless it is about to go.
fn learn(function: usize) {
    let _ = FUNCTION.compare_exchange(UNKNOWN, function, Relaxed, Relaxed);
}

/// The program is about to change what lies in a range of its memory; `takes`: to unmap or move it.
/// Loaders map and protect programs right below the data, and stacks of threads that end are
/// unmapped there.
pub fn heed(start: usize, length: usize, takes: bool) {
    let (vdso, end) = (facts().vdso, start.saturating_add(length));
    let data = if takes { DATA_BYTES } else { PAGE };
    if vdso == 0 || FUNCTION.load(Relaxed) == NONE || end <= vdso - data {
        return;
    }
    // SAFETY: a well-formed ELF image, which stays (invariant 1).
    let concerned = in_vdso(|_| start < vdso + unsafe { code_bytes(vdso) });
    if concerned == Some(false) || takes && end <= data_begin(vdso) {
        return;
    }
    FUNCTION.store(NONE, SeqCst);
    await_all_out();
}

/// Where the vDSO's data begin; as far below its header as they may where the host does not say.
#[cold]
fn data_begin(vdso: usize) -> usize {
    let known = DATA.load(Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let least = vdso - DATA_BYTES;
    let mut begin = vdso;
    let asked = maps::each_row(&mut |row| {
        let is_data = row.text.windows(DATA_NAME.len()).any(|name| name == DATA_NAME);
        if is_data && (least..vdso).contains(&row.start) {
            begin = begin.min(row.start);
        }
        Ok(())
    });
    let begin = if asked.is_ok() && begin < vdso { begin } else { least };
    DATA.store(begin, Relaxed);
    begin
}

/// Waits until who saw the vDSO as there is through with it.
#[cold]
fn await_all_out() {
    const PRIVATE_EXPEDITED: usize = 8;
    const REGISTER_PRIVATE_EXPEDITED: usize = 16;
    fence(SeqCst);
    let passed = [REGISTER_PRIVATE_EXPEDITED, PRIVATE_EXPEDITED].map(|command| {
        // SAFETY: only makes the processors that run this memory come past a barrier.
        unsafe { syscall(nr::membarrier, [command, 0, 0, 0, 0, 0]) == 0 }
    });
    if passed != [true; 2] {
        // No store is on its way for that long.
        nap();
    }
    for _ in 0..REMOVAL_NAPS_MAX {
        if !thread::any_in_vdso() {
            return;
        }
        nap();
    }
}

fn nap() {
    let time = [0, REMOVAL_NAP_NS];
    // SAFETY: a timespec that lives over the call.
    unsafe { syscall(nr::nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Looks `__vdso_clock_gettime` up in the vDSO's dynamic symbols.
#[cold]
#[inline(never)]
fn find() -> usize {
    let base = facts().vdso;
    if base == 0 {
        return NONE;
    }
    // SAFETY: the host's vDSO is a well-formed ELF image mapped at `base`.
    unsafe { Vdso::open(base).and_then(|v| v.symbol(c"__vdso_clock_gettime")).unwrap_or(NONE) }
}

/// Bytes from the vDSO's header to the end of its code.
unsafe fn code_bytes(base: usize) -> usize {
    const LOAD: u32 = 1;
    // SAFETY: the headers of a well-formed ELF image.
    let end = unsafe {
        let loads = headers(base).filter(|&h| at::<u32>(h) == LOAD);
        loads.map(|h| at::<usize>(h + 16) + at::<usize>(h + 40)).max()
    };
    end.unwrap_or(0).next_multiple_of(PAGE)
}

/// Where the program headers of an ELF image begin, each.
unsafe fn headers(base: usize) -> impl Iterator<Item = usize> {
    // SAFETY: the caller names a well-formed ELF image; offsets of its header.
    let (first, count) = unsafe { (base + at::<usize>(base + 32), at::<u16>(base + 56)) };
    (0..count as usize).map(move |index| first + 56 * index)
}

struct Vdso {
    base: usize,
    symbols: usize,
    strings: usize,
    count: usize,
}

unsafe fn at<T: Copy>(address: usize) -> T {
    // SAFETY: the caller names a place inside the vDSO.
    unsafe { (address as *const T).read_unaligned() }
}

impl Vdso {
    unsafe fn open(base: usize) -> Option<Vdso> {
        const DYNAMIC: u32 = 2;
        const DT_HASH: usize = 4;
        const DT_STRTAB: usize = 5;
        const DT_SYMTAB: usize = 6;
        const DT_GNU_HASH: usize = 0x6fff_fef5;
        // SAFETY: offsets of the ELF header, program headers and dynamic section.
        unsafe {
            let dynamic = headers(base)
                .find(|&h| at::<u32>(h) == DYNAMIC)
                .map(|h| base + at::<usize>(h + 16))?;
            let (mut symbols, mut strings, mut total) = (0, 0, 0);
            let mut entry = dynamic;
            while at::<usize>(entry) != 0 {
                let value = at::<usize>(entry + 8);
                match at::<usize>(entry) {
                    DT_HASH => total = at::<u32>(base + value + 4) as usize,
                    DT_GNU_HASH if total == 0 => total = gnu_count(base + value),
                    DT_STRTAB => strings = base + value,
                    DT_SYMTAB => symbols = base + value,
                    _ => {}
                }
                entry += 16;
            }
            (symbols != 0 && strings != 0).then_some(Vdso { base, symbols, strings, count: total })
        }
    }

    unsafe fn symbol(&self, name: &CStr) -> Option<usize> {
        const SYMBOL_BYTES: usize = 24;
        for i in 1..self.count {
            let symbol = self.symbols + SYMBOL_BYTES * i;
            // SAFETY: within the symbol table and its strings.
            unsafe {
                let text = CStr::from_ptr((self.strings + at::<u32>(symbol) as usize) as *const i8);
                if text == name {
                    return Some(self.base + at::<usize>(symbol + 8));
                }
            }
        }
        None
    }
}

/// Symbols behind a GNU hash table: one past the end of the last chain.
unsafe fn gnu_count(table: usize) -> usize {
    // SAFETY: the layout of DT_GNU_HASH: buckets, first symbol, bloom words, shift.
    unsafe {
        let (buckets, first) = (at::<u32>(table) as usize, at::<u32>(table + 4) as usize);
        let bloom = at::<u32>(table + 8) as usize;
        let bucket_at = table + 16 + 8 * bloom;
        let chains = bucket_at + 4 * buckets;
        let mut last =
            (0..buckets).map(|i| at::<u32>(bucket_at + 4 * i) as usize).max().unwrap_or(0);
        if last < first {
            return first;
        }
        while at::<u32>(chains + 4 * (last - first)) & 1 == 0 {
            last += 1;
        }
        last + 1
    }
}
