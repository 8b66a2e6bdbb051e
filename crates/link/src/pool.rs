//! Extents of 400 pages, for bodies that are longer than a slab.
//!
//! An extent is free while its two words are equal: its writer sets `lent` to the position of the
//! message that carries it (plus one), its reader sets `returned` to the same when it is done.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{EXTENT_BYTES, EXTENTS, extent, lent, returned};
use crate::memory::Area;

/// The pool of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'m> {
    area: Area<'m>,
    at: usize,
    /// Told apart from those of other lanes by the lane's number.
    lane: u64,
}

/// Bits of a position that are kept in an extent's words, beside the number of the lane.
const LANE_SHIFT: u32 = 56;

impl<'m> Pool<'m> {
    pub(crate) fn new(area: Area<'m>, at: usize, lane: u64) -> Self {
        Self { area, at, lane }
    }

    /// One for models, whose bodies are short.
    #[cfg(feature = "models")]
    pub fn of(memory: &'m crate::Memory) -> Self {
        Self::new(memory.area(), 0, 0)
    }

    fn ticket(&self, position: u64) -> u64 {
        self.lane << LANE_SHIFT | (position + 1) & ((1 << LANE_SHIFT) - 1)
    }

    /// Takes a free extent for the message at `position`; the room for its bytes.
    pub(crate) fn lend(&mut self, position: u64) -> Option<usize> {
        let free = (0..EXTENTS).find(|&number| {
            let lent = self.area.word(lent(self.at, number)).load(Relaxed);
            lent == self.area.word(returned(self.at, number)).load(Acquire)
        })?;
        self.area.word(lent(self.at, free)).store(self.ticket(position), Release);
        Some(free)
    }

    /// Copies bytes into an extent.
    pub(crate) fn fill(&self, number: usize, offset: usize, bytes: &[u8]) {
        assert!(number < EXTENTS && offset + bytes.len() <= EXTENT_BYTES);
        self.area.fill(extent(self.at, number) + offset, bytes);
    }

    /// Where the bytes of an extent are, for a call of the host that fills them.
    pub(crate) fn address(&self, number: usize) -> usize {
        self.area.address(extent(self.at, number), EXTENT_BYTES)
    }

    /// Takes back what a writer of this lane that is gone had taken and never sent: of a message at
    /// `next` or later.
    pub(crate) fn recover(&self, next: u64) {
        for number in 0..EXTENTS {
            let lent = self.area.word(lent(self.at, number));
            let ticket = lent.load(Relaxed);
            if ticket >> LANE_SHIFT == self.lane && ticket >= self.ticket(next) {
                lent.store(self.area.word(returned(self.at, number)).load(Acquire), Release);
            }
        }
    }

    /// The reader's look at an extent that a message names.
    pub(crate) fn view(&self, number: u64, length: usize, position: u64) -> Option<View<'m>> {
        let number = usize::try_from(number).ok().filter(|&number| number < EXTENTS)?;
        let ticket = self.ticket(position);
        (length <= EXTENT_BYTES).then_some(View { pool: *self, number, length, ticket })
    }
}

/// A body in the pool, as its reader sees it. The writer may change it at any moment: what must be
/// judged is copied first.
#[derive(Clone, Copy, Debug)]
pub struct View<'m> {
    pool: Pool<'m>,
    number: usize,
    length: usize,
    ticket: u64,
}

impl View<'_> {
    /// How many bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// None.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies some of it. Panics where it ends earlier.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.length && into.len() <= self.length - offset);
        self.pool.area.copy(extent(self.pool.at, self.number) + offset, into);
    }

    /// Where the bytes are, for a call of the host that reads them.
    pub fn address(&self) -> usize {
        self.pool.address(self.number)
    }

    /// The writer may use the extent again.
    pub fn give_back(&self) {
        self.pool.area.word(returned(self.pool.at, self.number)).store(self.ticket, Release);
    }
}
