//! The gate table: the entry of calls from patched sites, and of calls that trap.
//!
//! ```text
//!   region's file  [ live table | control | off | on ]        crates/region/src/observe/trace.rs
//!                       │ mapped to read at 0x60000 by all processes of the image
//!                       ├── off: stubs of `gate`             ├── on: all to husk_traced
//!                       '── a copy of its own: a process with mappings that have holes (`divert`)
//! ```
//!
//! Invariants
//! 1. While nobody traces, no call looks whether somebody does: the table leads around it.
//! 2. The table can be written to in this process only for the microseconds that `divert` needs,
//!    and then it is no longer the one that is shared.
//! 3. A table whose stubs are not this build's is never used: `identity` says whose it is.

use crate::addresses;
use crate::facts::facts;
use crate::stubs::{
    NUMBERS, STUB_BYTES, husk_diverts, husk_glances, husk_passes, husk_serves, husk_stubs,
    husk_traces,
};
use crate::stubs::{arguments, classes};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use husk_abi::memory::{MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use husk_abi::nr;
use husk_region::Layout;
use husk_region::observe::trace;

/// The gate table: what `call *[TABLE + 8 * number]` of a patched site reaches. Only `divert`
/// writes it, and nobody can but while it does.
#[repr(C, align(4096))]
struct Table([AtomicPtr<u8>; STUBS]);

const STUBS: usize = classes::NUMBERS;

#[used]
#[unsafe(link_section = ".husk_gate")]
static TABLE: Table = Table(table());

/// Where a call comes while nobody traces.
fn entry_of(number: usize) -> *const u8 {
    let glanced = husk_client::GLANCED.iter().position(|glanced| *glanced == number);
    match glanced {
        Some(place) => (&raw const husk_glances).wrapping_add(STUB_BYTES * place),
        None => stub(number),
    }
}

/// Where it comes while somebody does.
fn traced_entry(number: usize) -> *const u8 {
    (&raw const husk_traces).wrapping_add(STUB_BYTES * number)
}

const fn table() -> [AtomicPtr<u8>; STUBS] {
    let mut table = [const { AtomicPtr::new(core::ptr::null_mut()) }; STUBS];
    let mut number = 0;
    while number < STUBS {
        table[number] = AtomicPtr::new(stub(number).cast_mut());
        number += 1;
    }
    let mut place = 0;
    while place < husk_client::GLANCED.len() {
        let stub = (&raw const husk_glances).wrapping_add(STUB_BYTES * place);
        table[husk_client::GLANCED[place]] = AtomicPtr::new(stub.cast_mut());
        place += 1;
    }
    table
}

/// Where a call comes by its class.
const fn stub(number: usize) -> *const u8 {
    let stubs = match classes::CLASSES[number] {
        _ if number >= NUMBERS => &raw const husk_stubs,
        classes::PASS => &raw const husk_passes,
        classes::SERVE => &raw const husk_serves,
        _ => &raw const husk_stubs,
    };
    stubs.wrapping_add(STUB_BYTES * number)
}

/// Calls that the gate makes without `serve`, with addresses in what they take; and the stubs that
/// take the number from rax.
static DIVERTED: [bool; STUBS] = {
    let mut table = [true; STUBS];
    let mut number = 0;
    while number < NUMBERS {
        let passed = matches!(classes::CLASSES[number], classes::PASS | classes::MASK);
        table[number] = passed && arguments::addresses(number) != 0;
        number += 1;
    }
    table
};

/// The table can be written to.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Whether somebody is at the table: in a forked child, whether somebody was who stayed behind.
pub fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed)
}

/// The table is the one that the image's processes share.
#[unsafe(link_section = ".bss.hot")]
static SHARED: AtomicBool = AtomicBool::new(false);
/// Where the table lies in the region's file.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// What this table's stubs are known by: a table of another build leads elsewhere.
pub fn identity() -> u64 {
    let places = [&raw const husk_passes, &raw const husk_serves, &raw const husk_glances];
    let more = [&raw const husk_stubs, &raw const husk_traces];
    let all = places.into_iter().chain(more).map(|place| place as u64);
    let sum = all.fold(1u64, |sum, place| sum.wrapping_mul(husk_abi::SPREAD) ^ place);
    classes::CLASSES.iter().fold(sum, |sum, class| sum.rotate_left(3) ^ u64::from(*class)) | 1
}

/// Takes the table that the image's processes share in place of the one of the runtime's file;
/// `known` is whose that is (0: nobody has made it yet, and it is made; true then). A table that
/// is not ours, or that cannot be mapped, changes nothing: such a process is not traced.
pub fn share(layout: &Layout, known: u64) -> bool {
    let region = facts().handover.region_fd as u32;
    if known == 0 {
        if trace::map(region, layout).is_err() {
            return false;
        }
        trace::publish(|n| entry_of(n) as u64, |n| traced_entry(n) as u64);
        trace::unmap();
    }
    OFFSET.store(layout.trace_offset() as usize, Ordering::Relaxed);
    if known == 0 || known == identity() {
        SHARED.store(map_table(MAP_SHARED, trace::SHOWN_BYTES), Ordering::Relaxed);
    }
    known == 0
}

/// Whether the image's calls are traced.
#[inline(always)]
pub fn is_traced() -> bool {
    // SAFETY: where the table is shared, both pages are mapped.
    SHARED.load(Ordering::Relaxed) && unsafe { trace::is_on(addresses::TABLE.start) }
}

/// Maps the table (and what lies behind it) out of the region in place of what is there.
fn map_table(way: usize, bytes: usize) -> bool {
    let prot = if way == MAP_SHARED { PROT_READ } else { PROT_READ | PROT_WRITE };
    let (fd, offset) = (facts().handover.region_fd as usize, OFFSET.load(Ordering::Relaxed));
    let args = [addresses::TABLE.start, bytes, prot, way | MAP_FIXED, fd, offset];
    // SAFETY: pages of ours; what is mapped there holds the same stubs, or those of `trace`.
    unsafe { husk_host::calls::raw(nr::mmap, args) }.is_ok()
}

/// Lets the table be written to, or not.
fn open(on: bool) -> bool {
    let prot = if on { PROT_READ | PROT_WRITE } else { PROT_READ };
    let args = [addresses::TABLE.start, addresses::TABLE.len(), prot, 0, 0, 0];
    // SAFETY: a page of ours.
    unsafe { husk_host::calls::raw(nr::mprotect, args) }.is_ok()
}

/// Whether calls with addresses that would go straight to the host are to be looked at first: as
/// long as the host may not find what they point to (`page_fault`). All others cost what they cost.
///
/// One thread at a time (the lock of `mappings`). No store of the application finds the table open
/// but in these few microseconds, and whoever calls through it meanwhile finds the one stub or the
/// other. Where the host does not let us, all stays as it is.
#[cold]
#[inline(never)]
pub fn divert(on: bool) {
    OPEN.store(true, Ordering::Relaxed);
    if SHARED.load(Ordering::Relaxed) {
        divert_own(on);
    } else {
        if open(true) {
            exchange(on);
        }
        open(false);
    }
    OPEN.store(false, Ordering::Relaxed);
}

/// The same where the table is shared: it gets a copy of its own meanwhile.
fn divert_own(on: bool) {
    if !on {
        map_table(MAP_SHARED, husk_abi::PAGE);
    } else if map_table(MAP_PRIVATE, husk_abi::PAGE) {
        exchange(true);
        open(false);
    }
}

fn exchange(on: bool) {
    let table = core::ptr::with_exposed_provenance::<AtomicPtr<u8>>(addresses::TABLE.start);
    for (number, _) in DIVERTED.iter().enumerate().filter(|(_, diverted)| **diverted) {
        let diverted = match number {
            0..NUMBERS => (&raw const husk_serves).wrapping_add(STUB_BYTES * number),
            _ => husk_diverts as *const () as *const u8,
        };
        let place = if on { diverted } else { stub(number) };
        // SAFETY: the table's own word, atomic there too; it lies too far away for its name.
        let word = unsafe { &*table.add(number) };
        word.store(place.cast_mut(), Ordering::Relaxed);
    }
}
