//! The last short message of a pipe, beside the head that says it is there.
//!
//! ```text
//!   head's line:  head | writer's core | shift | position and length | 32 bytes
//!   writer        bytes into the ring ─► 0 ─► bytes ─► position, length ─► head
//!   reader        position is the tail's? ─► bytes ─► still that position? ─► else the ring
//! ```
//!
//! A line that goes from one core to the other takes longer than all else in a small read or write.
//! The reader has to fetch the head's; of a short message it needs no other.
//!
//! Invariants
//! 1. The bytes stand in the ring, too: who does not look here misses nothing.
//! 2. Only the holder of the writers' lock stores here, and may while a reader reads: that looks
//!    again whether what it has read is still the same.
//! 3. A writer that dies before it moves the head leaves a message that was never sent. Whoever
//!    moves the head from that position clears it or has put its own there.

use core::sync::atomic::{Ordering, fence};

use crate::hooks::kill;
use crate::rings::pipes::{HEAD, NEAR, Pipe, SHORT, TAIL};

/// Most bytes of a short message.
const BYTES_MAX: u64 = 32;
const WORDS: usize = BYTES_MAX as usize / 8;
/// Bits of the length below the position.
const LENGTH_BITS: u32 = 6;

const _: () = assert!(BYTES_MAX < 1 << LENGTH_BITS && (SHORT + WORDS) / 8 == HEAD / 8);

impl Pipe {
    /// `count` bytes have been copied in at `address`, with `piece` bytes of the ring there.
    #[inline(always)]
    pub fn given_short(&self, address: usize, count: u64, piece: u64) {
        // Tests have one core, and say that it is two.
        let near = self.get(NEAR) != 0 && kill::mutant() < 55;
        if count > BYTES_MAX || piece < BYTES_MAX || near {
            return self.given(count);
        }
        self.put(SHORT, 0);
        kill::point();
        for n in 0..count.div_ceil(8) as usize {
            // SAFETY: within the piece, which is the writer's to read as it has just written it.
            let word = unsafe { ((address + 8 * n) as *const u64).read_unaligned() };
            self.put(SHORT + 1 + n, word);
        }
        kill::point();
        self.put(SHORT, self.get(HEAD) << LENGTH_BITS | count);
        self.advance(count);
    }

    /// The head moves: what is before it can be read.
    #[inline(always)]
    pub(crate) fn advance(&self, count: u64) {
        kill::point();
        self.put(HEAD, self.get(HEAD) + count);
        kill::point();
    }

    /// The head is about to be moved by more, or by another.
    #[inline(always)]
    pub(crate) fn forget_short(&self) {
        if self.get(SHORT) != 0 && kill::mutant() != 55 {
            self.put(SHORT, 0);
        }
    }

    /// The next `count` bytes, if a short message begins with them.
    #[inline(always)]
    pub fn short(&self, count: u64) -> Option<[u64; WORDS]> {
        let what = self.get(SHORT);
        let length = what & ((1 << LENGTH_BITS) - 1);
        if what >> LENGTH_BITS != self.get(TAIL) || count > length {
            return None;
        }
        kill::point();
        let mut words = [0; WORDS];
        for (n, word) in words.iter_mut().enumerate() {
            *word = self.get(SHORT + 1 + n);
        }
        kill::point();
        fence(Ordering::Acquire);
        (self.get(SHORT) == what || kill::mutant() == 56).then_some(words)
    }
}
