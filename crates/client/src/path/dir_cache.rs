//! A cache of directories that walks have reached lately, so that the next walk starts there.
//!
//! ```text
//!   text:  deep / 2 / 3 / file       known: from the start, "deep/2/3/" leads to this inode,
//!         '---- key ----''name'             if each step on the way would still be the same
//! ```
//!
//! Invariants
//! 1. Known is only what plain steps reach: names that lead to listed directories that everybody
//!    may search. No link, no dots, no other mount. So it does not matter who asks.
//! 2. Nothing is believed without a look: `Fs::holds` compares every step with the present.
//! 3. Any content is sound, as of all buffers: all that is used is checked.

use crate::buffers::Walk;
use crate::{Client, Host, Memory};
use husk_proto::fs::Witness;
use husk_proto::{Inode, Services};

/// Directories known at a time, a power of two.
pub(crate) const KNOWN_MAX: usize = 8;
/// Longest text to one, bytes.
const TEXT_MAX: usize = 64;
/// Most steps to one, the start included.
pub(crate) const STEPS_MAX: usize = 10;
/// Instead of the number of steps: this walk is not to be remembered.
pub(crate) const FORGET: usize = usize::MAX;

/// The start of an absolute text. The mounts never change, so the text says which one.
pub(crate) const ROOT: Inode = Inode { number: 0, generation: 0 };

/// One of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Known {
    start: Inode,
    inode: Inode,
    length: usize,
    steps: usize,
    text: [u64; TEXT_MAX / 8],
    witnesses: [Witness; STEPS_MAX],
}

impl Known {
    /// None; no text of length 0 starts at the root.
    pub const NONE: Known = Known {
        start: ROOT,
        inode: ROOT,
        length: 0,
        steps: 0,
        text: [0; TEXT_MAX / 8],
        witnesses: [Witness { place: 0, seen: [0; 2] }; STEPS_MAX],
    };

    /// Whether it is about the first `length` bytes of the text, the last word of which is `tail`.
    #[inline(always)]
    fn is_of(&self, start: Inode, walk: &Walk, length: usize, tail: u64) -> bool {
        if self.length != length || self.start != start {
            return false;
        }
        let whole = length / 8;
        let same = |n: usize| self.text[n % self.text.len()] == walk.word(8 * n);
        (0..whole).all(same) && (length.is_multiple_of(8) || self.text[whole] == tail)
    }
}

/// The last word of the first `length` bytes of a text: 1 to 8 of them, zeros behind.
#[inline(always)]
fn tail_of(walk: &Walk, length: usize) -> u64 {
    let from = length.saturating_sub(1) & !7;
    let unused = 8 * (8 - (length - from)) as u32;
    walk.word(from) << (unused & 63) >> (unused & 63) & if length == 0 { 0 } else { u64::MAX }
}

/// Where a directory with this tail is kept.
#[inline(always)]
fn place_of(tail: u64, start: Inode) -> usize {
    let mixed = (tail ^ u64::from(start.number)).wrapping_mul(husk_abi::SPREAD);
    (mixed >> 56) as usize % KNOWN_MAX
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The directory that the first `length` bytes of the text lead to from `start`, if it is known
    /// and a name follows.
    #[inline]
    pub(crate) fn recall(&mut self, w: usize, start: Inode, length: usize) -> Option<Inode> {
        let walk = &self.buffers.walks[w];
        if length >= walk.length || length > TEXT_MAX {
            return None;
        }
        let tail = tail_of(walk, length);
        let known = &self.buffers.known[place_of(tail, start)];
        if !known.is_of(start, walk, length, tail) {
            return None;
        }
        let steps = &known.witnesses[..known.steps.min(STEPS_MAX)];
        self.services.holds(steps).then_some(known.inode)
    }

    /// Remembers that the first `length` bytes of the text led to `inode` from `start`, by the
    /// first `steps` witnesses of `Buffers::trail`.
    #[cold]
    pub(crate) fn remember(
        &mut self,
        w: usize,
        (start, inode): (Inode, Inode),
        length: usize,
        steps: usize,
    ) {
        if steps > STEPS_MAX || length > TEXT_MAX {
            return;
        }
        let walk = &self.buffers.walks[w];
        let tail = tail_of(walk, length);
        let known = &mut self.buffers.known[place_of(tail, start)];
        (known.start, known.inode, known.length, known.steps) = (start, inode, length, steps);
        for n in 0..length.div_ceil(8) {
            known.text[n] = if 8 * (n + 1) < length { walk.word(8 * n) } else { tail };
        }
        known.witnesses[..steps].copy_from_slice(&self.buffers.trail[..steps]);
    }
}
