//! Addresses that stay as they are: one thread at a time changes what lies at the addresses of
//! Husk mappings, maps files, maps pages in, or makes a process.
//!
//! Without it a page could be mapped in where another thread has just mapped something else, and a
//! child could have mapped what its parent has not counted for it. The application's own code never
//! runs while a thread has it, and it is the first lock that a service takes.
//!
//! 1. Who makes a process keeps still from before the child's record is made until the host has
//!    made the child, with a copy of the memory and the descriptors of that moment.
//! 2. While it sleeps in vfork it has let go: the child does that for it, who shares its memory
//!    (`let_go_for`), or nobody can, and it does so before.

use crate::frame::Frame;
use crate::memory::mappings;
use crate::memory::robust_lock::{Held, Lock};
use husk_abi::memory::{MAP_ANONYMOUS, MAP_FIXED, MREMAP_FIXED};
use husk_abi::nr;

static LOCK: Lock = Lock::new();

/// While it lives, nobody else changes what lies where.
pub struct Still(Held);

impl Still {
    /// The thread that keeps still.
    pub fn owner(&self) -> u32 {
        self.0.owner()
    }
}

/// Waits until nobody else has it.
pub fn take() -> Still {
    Still(LOCK.take())
}

/// In a child that shares memory with `parent`, a thread that sleeps until this child is gone.
pub fn let_go_for(parent: u32) {
    LOCK.let_go(parent);
}

/// In a forked child.
pub fn reset() {
    LOCK.reset();
}

/// For a call that changes what lies at addresses of a Husk mapping, or may make one.
pub fn for_call(frame: &Frame) -> Option<Still> {
    let [start, length, new_length, flags, target, _] = frame.args;
    let of_file = frame.number == nr::mmap && flags & MAP_ANONYMOUS == 0;
    if of_file {
        return Some(take());
    }
    if mappings::is_empty() {
        return None;
    }
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
