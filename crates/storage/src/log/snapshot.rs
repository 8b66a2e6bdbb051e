//! A snapshot, which a replay starts from: consecutive frames. A new one is written to the one of
//! two places that the root does not name.

use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk};

use super::frame::{self, Head, Kind};
use super::root::Snapshot;
use super::{FRAME_PAYLOAD_BYTES_MAX, Log, Lsn, Mutant, Refusal, planted};

/// What one frame of a snapshot holds.
const PART_BYTES: usize = 256 << 10;
const _: () = assert!(PART_BYTES <= FRAME_PAYLOAD_BYTES_MAX);

/// Takes a snapshot, of any length that the volume has room for.
#[derive(Debug)]
pub struct SnapshotWriter<'a, D> {
    log: &'a Log<D>,
    written: Snapshot,
    part: Vec<u8>,
}

impl<'a, D: Disk> SnapshotWriter<'a, D> {
    pub(super) fn new(log: &'a Log<D>, slot: u32, lsn: Lsn) -> Self {
        let written = Snapshot { slot, lsn, blocks: 0, checksum: 0 };
        Self { log, written, part: Vec::new() }
    }

    /// Adds bytes to it.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART_BYTES {
                self.put()?;
            }
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), Refusal> {
        let blocks = frame::blocks(self.part.len());
        if self.written.blocks + blocks > self.log.map.snapshot_blocks {
            return Err(Refusal::TooLong);
        }
        let head = Head {
            kind: Kind::Snapshot,
            uuid: self.log.uuid,
            position: self.written.blocks,
            epoch: self.log.epoch,
            lsn: self.written.lsn,
            count: 0,
            previous: self.written.checksum,
        };
        let mut bytes = Aligned::zeroed(blocks as usize * BLOCK_BYTES);
        self.written.checksum = frame::encode(&head, &self.part, &mut bytes);
        let at = self.log.map.snapshot_at(self.written.slot) + self.written.blocks * BLOCK;
        self.log.disk.write(at, &bytes).map_err(|_| Refusal::Stopped)?;
        self.written.blocks += blocks;
        self.part.clear();
        Ok(())
    }

    /// Durable on return.
    pub(super) fn finish(mut self) -> Result<Snapshot, Refusal> {
        // Also an empty one has a frame.
        self.put()?;
        if !planted(Mutant::RootFirst) {
            self.log.disk.flush().map_err(|_| Refusal::Stopped)?;
        }
        Ok(self.written)
    }
}
