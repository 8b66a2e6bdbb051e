//! What one commit writes: a frame, whole blocks long, with the records of a group.
//!
//! ```text
//!   | header, 104 bytes | length, record | length, record | ... | zeros to the next block |
//! ```
//!
//! A frame says where it belongs, whose it is, and which frame is before it. So nothing that was
//! there earlier, elsewhere, or was left by a user with a lower epoch is taken for it.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{FRAME_PAYLOAD_BYTES_MAX, Lsn, Mutant, planted};
use crate::Uuid;
use crate::disk::{BLOCK, BLOCK_BYTES};

/// What a record takes beside its bytes.
pub const RECORD_HEAD_BYTES: usize = 4;
/// What a frame takes beside its records.
pub const HEAD_BYTES: usize = size_of::<Layout>();

const MAGIC: [u8; 8] = *b"HuskFrm1";

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Records of the log.
    Records = 1,
    /// A part of a snapshot.
    Snapshot = 2,
}

/// What a frame says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What it holds.
    pub kind: Kind,
    /// Whose it is.
    pub uuid: Uuid,
    /// Number of its first block: in the endless log, or in the snapshot.
    pub position: u64,
    /// Epoch of who wrote it.
    pub epoch: u64,
    /// Its first record; of a snapshot, the last one that it covers.
    pub lsn: Lsn,
    /// How many records it has.
    pub count: u32,
    /// Checksum of the one before.
    pub previous: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    kind: U32,
    count: U32,
    uuid: [u8; 16],
    position: U64,
    epoch: U64,
    lsn: U64,
    previous: U64,
    payload_bytes: U64,
    reserved: [u8; 24],
    /// Of all before it, and the payload. The last field.
    checksum: U64,
}

const _: () = assert!(size_of::<Layout>() == 104);

/// How many blocks a frame with such a payload takes.
pub fn blocks(payload_bytes: usize) -> u64 {
    ((HEAD_BYTES + payload_bytes) as u64).div_ceil(BLOCK)
}

/// Writes a frame to the beginning of `to`, and zeros to the end of its last block; its checksum.
pub fn encode(head: &Head, payload: &[u8], to: &mut [u8]) -> u64 {
    let mut layout = Layout {
        magic: MAGIC,
        kind: (head.kind as u32).into(),
        count: head.count.into(),
        uuid: head.uuid.0,
        position: head.position.into(),
        epoch: head.epoch.into(),
        lsn: head.lsn.0.into(),
        previous: head.previous.into(),
        payload_bytes: (payload.len() as u64).into(),
        reserved: [0; 24],
        checksum: 0.into(),
    };
    let checksum = sum(&layout, payload);
    layout.checksum = checksum.into();
    let end = HEAD_BYTES + payload.len();
    layout.write_to_prefix(to).expect("a frame is longer than its head");
    to[HEAD_BYTES..end].copy_from_slice(payload);
    to[end..end.next_multiple_of(BLOCK_BYTES)].fill(0);
    checksum
}

fn sum(layout: &Layout, payload: &[u8]) -> u64 {
    let head = layout.as_bytes();
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    digest.update(&head[..HEAD_BYTES - size_of::<U64>()]);
    digest.update(payload);
    digest.finalize()
}

/// A frame that is whole.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What it says of itself.
    pub head: Head,
    /// Its checksum.
    pub checksum: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Which position the frame at the beginning of `block` claims, and how many blocks, if it is one.
pub fn claim(block: &[u8], uuid: Uuid) -> Option<(u64, u64)> {
    let (layout, _) = Layout::ref_from_prefix(block).ok()?;
    let payload_bytes = usize::try_from(layout.payload_bytes.get()).ok()?;
    let own = layout.magic == MAGIC && layout.uuid == uuid.0;
    (own && payload_bytes <= FRAME_PAYLOAD_BYTES_MAX)
        .then(|| (layout.position.get(), blocks(payload_bytes)))
}

/// The frame in `bytes`, which are as long as it claimed, if it is whole.
pub fn decode(bytes: &[u8]) -> Option<Frame<'_>> {
    let (layout, rest) = Layout::ref_from_prefix(bytes).ok()?;
    let payload = rest.get(..layout.payload_bytes.get() as usize)?;
    let checksum = layout.checksum.get();
    if sum(layout, payload) != checksum && !planted(Mutant::NoChecksum) {
        return None;
    }
    let kind = match layout.kind.get() {
        1 => Kind::Records,
        2 => Kind::Snapshot,
        _ => return None,
    };
    let head = Head {
        kind,
        uuid: Uuid(layout.uuid),
        position: layout.position.get(),
        epoch: layout.epoch.get(),
        lsn: Lsn(layout.lsn.get()),
        count: layout.count.get(),
        previous: layout.previous.get(),
    };
    Some(Frame { head, checksum, payload })
}

/// Adds a record to a payload.
pub fn push_record(payload: &mut Vec<u8>, record: &[u8]) {
    payload.extend_from_slice(&(record.len() as u32).to_le_bytes());
    payload.extend_from_slice(record);
}

/// The records of a payload; nothing behind one that does not fit.
pub fn records(mut payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = payload.split_first_chunk::<RECORD_HEAD_BYTES>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        payload = rest;
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            kind: Kind::Records,
            uuid: Uuid([3; 16]),
            position: 77,
            epoch: 2,
            lsn: Lsn(5),
            count: 2,
            previous: 99,
        }
    }

    fn frame() -> Vec<u8> {
        let mut payload = Vec::new();
        push_record(&mut payload, b"one");
        push_record(&mut payload, &[7; 5000]);
        let mut bytes = vec![0xee; blocks(payload.len()) as usize * BLOCK_BYTES];
        encode(&head(), &payload, &mut bytes);
        bytes
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let bytes = frame();
        assert_eq!(claim(&bytes, Uuid([3; 16])), Some((77, 2)));
        let frame = decode(&bytes).unwrap();
        assert_eq!(frame.head, head());
        let all: Vec<&[u8]> = records(frame.payload).collect();
        assert_eq!(all, [&b"one"[..], &[7; 5000]]);
    }

    #[test]
    fn a_frame_of_another_volume_is_none() {
        let bytes = frame();
        assert_eq!(claim(&bytes, Uuid([4; 16])), None);
        assert_eq!(claim(&[0; BLOCK_BYTES], Uuid([3; 16])), None);
    }

    #[test]
    fn whatever_bit_of_its_head_or_payload_turns_it_is_not_whole() {
        let mut bytes = frame();
        for at in (0..HEAD_BYTES).chain([200, 4095, 4096, 5000]) {
            bytes[at] ^= 4;
            assert!(decode(&bytes).is_none(), "byte {at}");
            bytes[at] ^= 4;
        }
        assert!(decode(&bytes).is_some());
    }
}
