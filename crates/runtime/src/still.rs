//! Addresses that stay as they are: one thread at a time changes what lies at the addresses of
//! Husk mappings, or maps pages in there.
//!
//! Without it a page could be mapped in where another thread has just mapped something else. The
//! application's own code never runs while a thread has it, and it is the first lock that a
//! service takes. A child that shares memory may be killed with it: whoever waits looks whether
//! the owner is there still.

use crate::gate::Frame;
use crate::mappings;
use core::sync::atomic::{AtomicU32, Ordering};
use husk_abi::memory::{MAP_FIXED, MREMAP_FIXED};
use husk_abi::{Errno, nr};
use husk_host::{calls, syscall};

/// The thread that has it, 0 = nobody, and whether others wait.
static OWNER: AtomicU32 = AtomicU32::new(0);

const WAITED_FOR: u32 = 1 << 31;

/// How long a sleeper waits before it looks at the owner.
const LOOK_NS: usize = 10_000_000;

/// While it lives, nobody else changes what lies where.
pub struct Still(());

impl Drop for Still {
    fn drop(&mut self) {
        const FUTEX_WAKE: usize = 1;
        const ALL: usize = i32::MAX as usize;
        if OWNER.swap(0, Ordering::Release) & WAITED_FOR != 0 {
            let word = OWNER.as_ptr() as usize;
            // SAFETY: a word of ours.
            unsafe { syscall(nr::futex, [word, FUTEX_WAKE, ALL, 0, 0, 0]) };
        }
    }
}

/// Waits until nobody else has it.
pub fn take() -> Still {
    let me = calls::gettid();
    loop {
        match OWNER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Still(()),
            Err(owner) => await_owner(owner),
        }
    }
}

fn await_owner(seen: u32) {
    const FUTEX_WAIT: usize = 0;
    let (owner, waited_for) = (seen & !WAITED_FOR, seen | WAITED_FOR);
    let marked = OWNER.compare_exchange(seen, waited_for, Ordering::Relaxed, Ordering::Relaxed);
    if marked.is_err() {
        return;
    }
    let word = OWNER.as_ptr() as usize;
    let time = [0, LOOK_NS];
    // SAFETY: a word of ours and a timespec that lives here; the signal 0 is sent to nobody.
    let gone = unsafe {
        let time = (&raw const time) as usize;
        syscall(nr::futex, [word, FUTEX_WAIT, waited_for as usize, time, 0, 0]);
        syscall(nr::tkill, [owner as usize, 0, 0, 0, 0, 0]) as i64 == Errno::ESRCH.as_return()
    };
    if gone {
        let _ = OWNER.compare_exchange(waited_for, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// In a forked child.
pub fn reset() {
    if OWNER.load(Ordering::Relaxed) != 0 {
        OWNER.store(0, Ordering::Relaxed);
    }
}

/// For a call that changes what lies at addresses of a Husk mapping.
pub fn for_call(frame: &Frame) -> Option<Still> {
    if mappings::is_empty() {
        return None;
    }
    let [start, length, new_length, flags, target, _] = frame.args;
    let meets = |start, length| mappings::meets(start, mappings::end_of(start, length));
    let changes = match frame.number {
        nr::munmap | nr::mprotect | nr::pkey_mprotect | nr::remap_file_pages => {
            meets(start, length)
        }
        nr::mmap => flags & MAP_FIXED != 0 && meets(start, length),
        nr::mremap => {
            meets(start, length.max(1)) || flags & MREMAP_FIXED != 0 && meets(target, new_length)
        }
        _ => false,
    };
    changes.then(take)
}
