//! Shared memory that stays consistent if a process is killed while it writes.
//!
//! ```text
//!   state arena  [ header | partitions | slots | buckets | inodes | lines | nodes | heap | chunks
//!                | fixed ]
//!   buffer cache [ block 0 = zeros | block 1 | ... ]                              4 KiB each
//!   pipes        [ words of each | rings | epoll sets ]                 see `rings`
//!
//!   rings, observe ─► pools (who has what set aside) ─► txn (locks, journal, recovery) ─► arena
//!                      all of them stop at hooks
//! ```
//!
//! All state is 64-bit words, named by `Cell` (an index into the arena, the same in every process).
//! The rooms above read words, and change them only through `Txn`. Nothing here knows what a file
//! is.
//!
//! Invariants
//! 1. A reachable word changes only after its old value stands in the writer's journal
//!    (`Txn::set`), or as a redo after the commit mark (`Txn::set_at_commit`); or nobody else looks
//!    at it while the writer lives, and half of the change means nothing (`Session::put_alone`).
//! 2. A lock word names its owner's slot, and the intent is logged before the word is taken, so a
//!    waiter can find the owner, judge it, and undo it.
//! 3. Sequences (the same words) only ever advance, also when an operation is undone.
//! 4. What a transaction frees it does not allocate: frees are applied at commit.
//! 5. No wait is unbounded: 10 ms a sleep, 1 s against one sleeping holder (`lock`).
#![no_std]

mod arena;
mod hooks;
pub mod observe;
mod pools;
pub mod rings;
mod txn;

pub use arena::layout::{
    CHUNK_BLOCKS, CLASSES, Class, FIXED_WORDS, GATE_WORD, HEADER_BYTES, Header, INODE, KERNELS_MAX,
    LINE, Layout, Map, NEVER_IN_NUMBERS, NODE, PROGRAMS_BYTES, RECORD, read_header,
};
pub use arena::memory::{
    CACHE_ADDRESS, Cell, HOME_CACHE_ADDRESS, HOME_SLOTS_ADDRESS, HOME_STATE_ADDRESS, Region,
    STATE_ADDRESS, Without,
};
pub use pools::blocks::Blocks;
pub use pools::populate::{LARGE_BYTES, set_by_descriptor, with_descriptor_busy, write_unmapped};
pub use txn::freeze::nap;
pub use txn::journal::{RETRY, Txn};
pub use txn::life::{Life, ended, is_stopped, judge};
pub use txn::lock::{NEVER_SEEN, is_held_since, is_locked, owner_of};
pub use txn::passthrough_bits::{PASSES_MAX, PassWords};
pub use txn::session::{ATTENTION_ABOVE, Session, SlotView};
pub use txn::tally::{LOOKS_MAX, TALLIES_MAX, Tallies};
