//! A snapshot, which a replay starts from: consecutive frames. A new one is written to the one of
//! two places that the root does not name.

use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk};

use super::frame::{self, Head, Kind};
use super::root::Snapshot;
use super::{FRAME_PAYLOAD_BYTES_MAX, Log, Lsn, Mutant, Refusal, planted};

/// What one frame of a snapshot holds.
const PART_BYTES: usize = 256 << 10;
const _: () = assert!(PART_BYTES <= FRAME_PAYLOAD_BYTES_MAX);

/// A snapshot that is being written, and does not count yet.
#[derive(Debug)]
pub struct Draft {
    written: Snapshot,
    part: Vec<u8>,
    /// Which one of this log: a later one takes its place on the disk.
    number: u64,
}

impl Draft {
    pub(super) fn new(slot: u32, lsn: Lsn, number: u64) -> Self {
        let written = Snapshot { slot, lsn, blocks: 0, checksum: 0 };
        Self { written, part: Vec::new(), number }
    }

    /// All records up to this one will be in it.
    pub fn lsn(&self) -> Lsn {
        self.written.lsn
    }

    /// How many bytes it takes, as far as it was written.
    pub fn bytes(&self) -> u64 {
        (self.written.blocks + frame::blocks(self.part.len())) * BLOCK
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// Takes a snapshot, of any length that the volume has room for.
#[derive(Debug)]
pub struct SnapshotWriter<'a, D> {
    log: &'a Log<D>,
    draft: &'a mut Draft,
}

impl<'a, D: Disk> SnapshotWriter<'a, D> {
    pub(super) fn new(log: &'a Log<D>, draft: &'a mut Draft) -> Self {
        Self { log, draft }
    }

    /// Adds bytes to it.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let part = &mut self.draft.part;
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - part.len()));
            part.extend_from_slice(now);
            bytes = later;
            if part.len() == PART_BYTES {
                self.put()?;
            }
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), Refusal> {
        let Draft { written, part, .. } = &mut *self.draft;
        let blocks = frame::blocks(part.len());
        if written.blocks + blocks > self.log.map.snapshot_blocks {
            return Err(Refusal::TooLong);
        }
        let head = Head {
            kind: Kind::Snapshot,
            uuid: self.log.uuid,
            position: written.blocks,
            epoch: self.log.epoch,
            lsn: written.lsn,
            count: 0,
            previous: written.checksum,
        };
        let mut bytes = Aligned::zeroed(blocks as usize * BLOCK_BYTES);
        written.checksum = frame::encode(&head, part, &mut bytes);
        let at = self.log.map.snapshot_at(written.slot) + written.blocks * BLOCK;
        self.log.disk.write(at, &bytes).map_err(|_| Refusal::Stopped)?;
        written.blocks += blocks;
        part.clear();
        Ok(())
    }

    /// Durable on return.
    pub(super) fn finish(mut self) -> Result<Snapshot, Refusal> {
        // Also an empty one has a frame.
        self.put()?;
        if !planted(Mutant::RootFirst) {
            self.log.disk.flush().map_err(|_| Refusal::Stopped)?;
        }
        Ok(self.draft.written)
    }
}
