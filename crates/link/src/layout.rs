//! The layout of the memory of a pair: one direction after the other.
//!
//! ```text
//!   head         magic, epoch, channels; each side's state on a line of its own
//!   direction 0  priority lane, request lanes 1..=8, pool      written by side 0, but for `taken`
//!   direction 1  the same the other way
//!
//!   lane         taken (its reader's line) | slots of 64 bytes | slabs of 8 KiB
//!   slot         56 bytes | number: epoch 20, form 4, position 40 bits; written last
//!   pool         lent (writer's), returned (reader's) for each extent | extents of 401 pages
//! ```

use husk_abi::PAGE;
use husk_wire::BODY_BYTES_MAX;

/// Two lines: processors fetch them in pairs.
pub(crate) const LINE: usize = 128;
/// Bytes of a slot, and of these what is not its number.
pub const SLOT_BYTES: usize = 64;
pub(crate) const SLOT_ROOM: usize = 56;
/// Longest body that goes through a slab.
pub const SLAB_BYTES: usize = 8192;
/// Most slots of a message whose body is in the slots.
pub(crate) const INLINE_SLOTS: usize = 4;
/// Most request lanes of a pair.
pub const CHANNELS_MAX: usize = 8;
/// Requests of one side that are not answered yet, at most.
pub const OUTSTANDING_MAX: u32 = 64;
/// Extents of a pool.
pub const EXTENTS: usize = 4;
/// Bytes of an extent.
pub const EXTENT_BYTES: usize = BODY_BYTES_MAX;
const _: () = assert!(EXTENT_BYTES.is_multiple_of(PAGE));

/// What a lane needs to know of itself.
#[derive(Clone, Copy, Debug)]
pub struct LaneAt {
    pub(crate) taken: usize,
    pub(crate) slots: usize,
    pub(crate) slabs: usize,
    /// Powers of two.
    pub(crate) slot_count: u64,
    pub(crate) slab_count: u32,
    /// What only replies may use of them.
    pub(crate) kept_slots: u64,
    pub(crate) kept_slabs: u32,
}

/// Slots and slabs of a lane for requests.
const REQUESTS: (u64, u32) = (256, 64);
/// Of the one for replies and call-backs: every reply that may come has its room.
const PRIORITY: (u64, u32) = (512, OUTSTANDING_MAX + 16);
pub(crate) const SLABS_MAX: usize = PRIORITY.1 as usize;
const KEPT_SLOTS: u64 = OUTSTANDING_MAX as u64 * INLINE_SLOTS as u64;
const _: () = assert!(KEPT_SLOTS < PRIORITY.0);

impl LaneAt {
    /// A lane that begins at `base`.
    pub const fn new(base: usize, slot_count: u64, slab_count: u32) -> LaneAt {
        assert!(slot_count.is_power_of_two() && slab_count as usize <= SLABS_MAX);
        let slots = base + LINE;
        let slabs = slots + slot_count as usize * SLOT_BYTES;
        LaneAt { taken: base, slots, slabs, slot_count, slab_count, kept_slots: 0, kept_slabs: 0 }
    }

    /// The same, with room that only replies may use.
    const fn keeping(self, kept_slots: u64, kept_slabs: u32) -> LaneAt {
        LaneAt { kept_slots, kept_slabs, ..self }
    }

    /// One byte behind it.
    pub const fn end(&self) -> usize {
        self.slabs + self.slab_count as usize * SLAB_BYTES
    }
}

/// The memory of a pair with so many channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairAt {
    pub channels: usize,
}

const HEAD: usize = PAGE;
const _: () = assert!(HEAD >= 3 * LINE);
const PRIORITY_BYTES: usize = LaneAt::new(0, PRIORITY.0, PRIORITY.1).end();
const REQUESTS_BYTES: usize = LaneAt::new(0, REQUESTS.0, REQUESTS.1).end();
const POOL_HEAD: usize = PAGE;

impl PairAt {
    pub const MAGIC: usize = 0;
    pub const EPOCH: usize = 8;
    pub const CHANNELS: usize = 16;

    /// The state of a side.
    pub const fn state(side: usize) -> usize {
        LINE * (1 + side)
    }

    /// How many requests of `side` are not answered, and how many it has to answer.
    pub const fn asked(side: usize) -> usize {
        Self::state(side) + 8
    }
    pub const fn owed(side: usize) -> usize {
        Self::state(side) + 16
    }

    const fn direction_bytes(&self) -> usize {
        let lanes = PRIORITY_BYTES + self.channels * REQUESTS_BYTES;
        lanes.next_multiple_of(PAGE) + POOL_HEAD + EXTENTS * EXTENT_BYTES
    }

    const fn direction(&self, side: usize) -> usize {
        HEAD + side * self.direction_bytes()
    }

    /// All of it.
    pub const fn bytes(&self) -> usize {
        HEAD + 2 * self.direction_bytes()
    }

    /// The lane for replies and call-backs that `side` sends.
    pub const fn priority(&self, side: usize) -> LaneAt {
        let lane = LaneAt::new(self.direction(side), PRIORITY.0, PRIORITY.1);
        lane.keeping(KEPT_SLOTS, OUTSTANDING_MAX)
    }

    /// The lane for requests that `side` sends on `channel`.
    pub const fn requests(&self, side: usize, channel: usize) -> LaneAt {
        let before = PRIORITY_BYTES + channel * REQUESTS_BYTES;
        LaneAt::new(self.direction(side) + before, REQUESTS.0, REQUESTS.1)
    }

    /// The pool of what `side` sends.
    pub const fn pool(&self, side: usize) -> usize {
        let end = self.direction(side) + self.direction_bytes();
        end - POOL_HEAD - EXTENTS * EXTENT_BYTES
    }
}

/// The words of extent `number` of a pool, and its bytes.
pub(crate) const fn lent(pool: usize, number: usize) -> usize {
    pool + 8 * number
}
pub(crate) const fn returned(pool: usize, number: usize) -> usize {
    pool + LINE + 8 * number
}
pub(crate) const fn extent(pool: usize, number: usize) -> usize {
    pool + POOL_HEAD + number * EXTENT_BYTES
}
