//! The root: where a replay begins. Of its two copies, the newer intact one counts.
//!
//! ```text
//!   | root | root | ring of frames ...      | snapshot 0 ...      | snapshot 1 ...      |
//! ```
//!
//! A new root goes over the older copy, once all that it names is durable. Nothing that the root
//! before it names is overwritten until then.

use std::io;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Lsn, frame};
use crate::Uuid;
use crate::area::header::checksum;
use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk};

/// The form that is written here.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"HuskRoot";
const COPIES: u64 = 2;
const CHECKED_BYTES: usize = BLOCK_BYTES - 8;
/// Largest ring: what is replayed after a crash.
pub const RING_BYTES_MAX: u64 = 256 << 20;

/// Which bytes of a disk are what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// Where the copies of the root are.
    pub begin: u64,
    /// Where the ring is, and how many blocks it has.
    pub ring_at: u64,
    /// Blocks of the ring.
    pub ring_blocks: u64,
    /// Where the first snapshot is; the second is behind it.
    pub snapshots_at: u64,
    /// Blocks of each snapshot.
    pub snapshot_blocks: u64,
}

impl Map {
    /// Of the bytes from `begin` to `end`: a quarter is ring, up to its limit.
    pub fn new(begin: u64, end: u64) -> Self {
        let blocks = (end - begin) / BLOCK - COPIES;
        let ring_blocks = (blocks / 4).min(RING_BYTES_MAX / BLOCK);
        let ring_at = begin + COPIES * BLOCK;
        let snapshots_at = ring_at + ring_blocks * BLOCK;
        Self {
            begin,
            ring_at,
            ring_blocks,
            snapshots_at,
            snapshot_blocks: (blocks - ring_blocks) / 2,
        }
    }

    /// Where block `position` of the endless log is, and how many blocks are left before the end.
    pub fn in_ring(&self, position: u64) -> (u64, u64) {
        let index = position % self.ring_blocks;
        (self.ring_at + index * BLOCK, self.ring_blocks - index)
    }

    /// Where snapshot 0 or 1 begins.
    pub fn snapshot_at(&self, slot: u32) -> u64 {
        self.snapshots_at + u64::from(slot) * self.snapshot_blocks * BLOCK
    }

    fn copy_at(&self, generation: u64) -> u64 {
        self.begin + generation % COPIES * BLOCK
    }
}

/// A place in the log: the frame that begins there, or will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Block in the endless log.
    pub position: u64,
    /// First record of the frame.
    pub lsn: Lsn,
    /// Checksum of the frame before.
    pub previous: u64,
}

/// The snapshot that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Which of both.
    pub slot: u32,
    /// All records up to this one are in it.
    pub lsn: Lsn,
    /// How many blocks it has.
    pub blocks: u64,
    /// Checksum of its last frame.
    pub checksum: u64,
}

/// What is known without looking at a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// Higher than that of the one before.
    pub generation: u64,
    /// Where the replay begins.
    pub start: Mark,
    /// All records up to this one were durable when the root was written.
    pub durable: Lsn,
    /// The snapshot that the replay begins with, `blocks` 0: none.
    pub snapshot: Snapshot,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: U32,
    slot: U32,
    uuid: [u8; 16],
    generation: U64,
    start_position: U64,
    start_lsn: U64,
    start_previous: U64,
    durable: U64,
    snapshot_lsn: U64,
    snapshot_blocks: U64,
    snapshot_checksum: U64,
    /// What the map was made from: it must be the same one.
    ring_blocks: U64,
    slot_blocks: U64,
}

/// Why there is no root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is of a version that this one does not understand, a newer or an older one.
    Version(u32),
    /// It is not what was written.
    Damaged,
    /// The disk has put a frame there, and perhaps over more than the root.
    Overwritten,
    /// It cannot be read.
    Unreadable,
}

/// Writes `root` over the older copy.
pub fn write(disk: &impl Disk, map: &Map, uuid: Uuid, root: &Root) -> io::Result<()> {
    let layout = Layout {
        magic: MAGIC,
        version: VERSION.into(),
        slot: root.snapshot.slot.into(),
        uuid: uuid.0,
        generation: root.generation.into(),
        start_position: root.start.position.into(),
        start_lsn: root.start.lsn.0.into(),
        start_previous: root.start.previous.into(),
        durable: root.durable.0.into(),
        snapshot_lsn: root.snapshot.lsn.0.into(),
        snapshot_blocks: root.snapshot.blocks.into(),
        snapshot_checksum: root.snapshot.checksum.into(),
        ring_blocks: map.ring_blocks.into(),
        slot_blocks: map.snapshot_blocks.into(),
    };
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    layout.write_to_prefix(&mut block).expect("it is shorter than a block");
    let sum = checksum(&block[..CHECKED_BYTES]);
    block[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    disk.write_durable(map.copy_at(root.generation), &block)
}

/// Both copies, with where they are.
pub fn read(disk: &impl Disk, map: &Map, uuid: Uuid) -> [(u64, Result<Root, Fault>); 2] {
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    [0, 1].map(|copy| {
        let at = map.copy_at(copy);
        let root = match disk.read(at, &mut block) {
            Ok(()) => decode(&block, map, uuid),
            Err(_) => Err(Fault::Unreadable),
        };
        let in_place = |root: &Root| root.generation % COPIES == copy;
        (at, root.and_then(|root| if in_place(&root) { Ok(root) } else { Err(Fault::Damaged) }))
    })
}

fn decode(block: &[u8], map: &Map, uuid: Uuid) -> Result<Root, Fault> {
    if frame::claim(block, uuid).is_some() {
        return Err(Fault::Overwritten);
    }
    let (layout, _) = Layout::ref_from_prefix(block).expect("a block is longer");
    let whole = block[CHECKED_BYTES..] == checksum(&block[..CHECKED_BYTES]).to_le_bytes();
    if layout.magic != MAGIC || layout.uuid != uuid.0 || !whole {
        return Err(Fault::Damaged);
    }
    if layout.version.get() != VERSION {
        return Err(Fault::Version(layout.version.get()));
    }
    let same = (layout.ring_blocks.get(), layout.slot_blocks.get())
        == (map.ring_blocks, map.snapshot_blocks);
    if !same || layout.slot.get() > 1 {
        return Err(Fault::Damaged);
    }
    Ok(Root {
        generation: layout.generation.get(),
        start: Mark {
            position: layout.start_position.get(),
            lsn: Lsn(layout.start_lsn.get()),
            previous: layout.start_previous.get(),
        },
        durable: Lsn(layout.durable.get()),
        snapshot: Snapshot {
            slot: layout.slot.get(),
            lsn: Lsn(layout.snapshot_lsn.get()),
            blocks: layout.snapshot_blocks.get(),
            checksum: layout.snapshot_checksum.get(),
        },
    })
}
