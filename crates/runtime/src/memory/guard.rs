//! The guard: a protection key that keeps stores out of the state arena while no service is open.
//!
//! Reading stays possible, so that a service which only looks a descriptor up need not open it:
//! a pair of `wrpkru` costs as much as the whole call.
//!
//! Invariants
//! 1. Only our key's two bits of PKRU change, and they are put back as they were; but where they
//!    shut the arena to looks, too, they let it be read from then on (`show`, as a handler begins,
//!    for which the host shuts all keys): looks open nothing, and who sleeps on a word of the arena
//!    is not turned away by the host.
//! 2. A call that only looks leaves the guard closed; should it have to store after all (a lock
//!    to wait for, a listing to import), or a program have shut our key to looks, the fault opens
//!    the guard for the rest of the call, or who is about to store does (`open_late`), where that
//!    is no rare thing. To ask PKRU first would cost a look a fifth of its time.
//! 3. The guard is closed wherever application code may run: handlers get the host's initial PKRU
//!    but for `show`, and nothing between `open` and its drop leaves the service, but for a child
//!    that is made then: it closes the guard first (`Opened::rights`, `close`).
//! 4. The key is ours for good: the application neither frees it nor puts it on memory (`is_key`).

use crate::thread::Thread;
use crate::thread::context::Context;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use husk_abi::{Errno, nr};
use husk_host::calls;

/// The two bits of our key; 0 = no guard.
#[unsafe(link_section = ".bss.hot")]
static BITS: AtomicU32 = AtomicU32::new(0);

/// Says that a PKRU value is one: all of its own 32 bits are the application's or ours.
const MARK: u64 = 1 << 32;
/// Instead of a PKRU value: closed so far (`look`).
const LOOKS: u64 = 1;
/// The bits that keep a key's memory from being read.
const ACCESS_BITS: u32 = 0x5555_5555;

/// While it lives, the arena may be touched. Holds what PKRU is to be then, marked; 0 = there is
/// no guard.
pub struct Opened(u64);

/// Opens the guard.
#[inline(always)]
pub fn open() -> Opened {
    let bits = BITS.load(Relaxed);
    if bits == 0 {
        return Opened(0);
    }
    let before = read();
    write(before & !bits);
    Opened(closed(before, bits))
}

/// PKRU as it is to be when all is done (invariant 1), marked.
#[inline(always)]
fn closed(before: u32, bits: u32) -> u64 {
    let shut = before & bits & ACCESS_BITS;
    u64::from(before & !shut | shut << 1) | MARK
}

impl Drop for Opened {
    #[inline(always)]
    fn drop(&mut self) {
        match self.0 {
            0 => {}
            LOOKS if Thread::current().opened == 0 => {}
            LOOKS => write(core::mem::take(&mut Thread::current().opened) as u32),
            before => write(before as u32),
        }
    }
}

impl Opened {
    /// For `close`, in a child that is made meanwhile.
    pub fn rights(&self) -> u64 {
        self.0
    }
}

/// In a child that was made while the guard was open, with its rights to be.
pub fn close(rights: u64) {
    if rights != 0 {
        write(rights as u32);
    }
}

/// Opens nothing yet: for a call that only looks.
#[inline(always)]
pub fn look() -> Opened {
    Opened(if BITS.load(Relaxed) == 0 { 0 } else { LOOKS })
}

/// A handler of the application begins, with all keys shut: the arena can be read in it.
pub fn show() {
    let bits = BITS.load(Relaxed);
    if bits == 0 {
        return;
    }
    let before = read();
    if before & bits & ACCESS_BITS != 0 {
        write(closed(before, bits) as u32);
    }
}

/// A store of a service met the closed guard: opens it in the interrupted context. False when the
/// fault was something else.
#[cold]
pub fn open_interrupted(thread: &mut Thread, context: Context) -> bool {
    let bits = BITS.load(Relaxed);
    let Some(word) = context.protection_keys() else { return false };
    // SAFETY: PKRU of the running handler's frame; the host takes it back at sigreturn.
    let before = unsafe { word.read() };
    if bits == 0 || before & bits == 0 {
        return false;
    }
    // SAFETY: as above.
    unsafe { word.write(before & !bits) };
    thread.opened = closed(before, bits);
    true
}

/// A call that only looks, so far, is about to store: as the fault would do, at less cost.
pub fn open_late() {
    let bits = BITS.load(Relaxed);
    if bits == 0 {
        return;
    }
    let before = read();
    if before & bits != 0 {
        write(before & !bits);
        Thread::current().opened = closed(before, bits);
    }
}

/// Whether `key` is the guard's.
pub fn is_key(key: usize) -> bool {
    let bits = BITS.load(Relaxed);
    bits != 0 && key as u32 == bits.trailing_zeros() / 2
}

/// Puts the arena behind a key. Without one (no hardware, no key left) it stays open.
pub fn set(address: usize, length: usize) {
    const PKEY_DISABLE_WRITE: usize = 2;
    const READ_WRITE: usize = 3;
    const KEY_MAX: usize = 15;
    // SAFETY: a key of our own, put on a mapping of our own.
    unsafe {
        let Ok(key) = calls::raw(nr::pkey_alloc, [0, PKEY_DISABLE_WRITE, 0, 0, 0, 0]) else {
            return;
        };
        let args = [address, length, READ_WRITE, key, 0, 0];
        let done: Result<usize, Errno> = calls::raw(nr::pkey_mprotect, args);
        if key <= KEY_MAX && done.is_ok() {
            BITS.store(3 << (2 * key), Relaxed);
        }
    }
}

#[inline(always)]
fn read() -> u32 {
    let value: u32;
    // SAFETY: a key exists, so the instruction does.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") value, out("edx") _,
             options(nostack, nomem, preserves_flags));
    }
    value
}

#[inline(always)]
fn write(value: u32) {
    // SAFETY: as above; no `nomem`, so that accesses stay on their side.
    unsafe {
        asm!("wrpkru", in("eax") value, in("ecx") 0, in("edx") 0,
             options(nostack, preserves_flags));
    }
}
