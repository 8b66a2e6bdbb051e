//! Addresses that stay as they are: one thread at a time changes what lies at the addresses of
//! Husk mappings, or maps pages in there.
//!
//! Without it a page could be mapped in where another thread has just mapped something else. The
//! application's own code never runs while a thread has it, and it is the first lock that a
//! service takes.

use crate::gate::Frame;
use crate::mappings;
use crate::mortal::{Held, Lock};
use husk_abi::memory::{MAP_FIXED, MREMAP_FIXED};
use husk_abi::nr;

static LOCK: Lock = Lock::new();

/// While it lives, nobody else changes what lies where.
pub struct Still(#[expect(dead_code, reason = "let go at its end")] Held);

/// Waits until nobody else has it.
pub fn take() -> Still {
    Still(LOCK.take())
}

/// In a forked child.
pub fn reset() {
    LOCK.reset();
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
