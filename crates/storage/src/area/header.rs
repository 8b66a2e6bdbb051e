//! The header of an area: who it is, how large, and who has it. Two copies, a block each.
//!
//! ```text
//!   0        4096      8192                              size_bytes
//!   | copy 0 | copy 1 | content ...                     |
//! ```
//!
//! Both copies are the same but while one is written: copy 0 first, flushed, then copy 1. So a
//! crash leaves one that is whole, and whichever copy rots, the other has the epoch of the last who
//! acquired the area.

use std::io;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Uuid;
use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk};

/// Where the content begins.
pub const CONTENT_AT: u64 = 2 * BLOCK;
/// The form that is written here; one that is higher is not understood.
pub const VERSION: u32 = 1;
/// Longest name of a volume.
pub const NAME_BYTES_MAX: usize = 64;

const MAGIC: [u8; 8] = *b"HuskArea";
const COPIES: [u64; 2] = [0, BLOCK];
/// The checksum is at the end of the block, of all before it.
const CHECKED_BYTES: usize = BLOCK_BYTES - 8;

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Whose content it is.
    pub uuid: Uuid,
    /// What it is called.
    pub name: String,
    /// The area with its header.
    pub size_bytes: u64,
    /// Number of the user it belongs to.
    pub owner_uid: u32,
    /// How often it has been acquired.
    pub epoch: u64,
    /// Who acquired it last; 0: nobody.
    pub holder_pid: u32,
}

/// The first bytes of a copy.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: U32,
    block_bytes: U32,
    /// Where this copy belongs: one that was written elsewhere does not count.
    at: U64,
    uuid: [u8; 16],
    epoch: U64,
    size_bytes: U64,
    owner_uid: U32,
    holder_pid: U32,
    name_bytes: U32,
    name: [u8; NAME_BYTES_MAX],
}

const _: () = assert!(size_of::<Layout>() == 132 && size_of::<Layout>() <= CHECKED_BYTES);

/// Why a copy does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was written there.
    Empty,
    /// Something else is there.
    Foreign,
    /// It is of a version that this one does not understand, a newer or an older one.
    Version(u32),
    /// It is not what was written.
    Damaged,
    /// It could not be read.
    Unreadable,
}

/// Both copies as they are.
pub type Copies = [Result<Header, Fault>; 2];

/// What to do about a form of this `version`, where this husk has `own`.
pub(crate) fn husk_for(version: u32, own: u32) -> &'static str {
    match version > own {
        true => "use a newer husk",
        false => "copy what it holds to a new volume with an older husk",
    }
}

/// Checksum of bytes on a disk (CRC-64/NVME).
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// Reads both copies.
pub fn read(disk: &impl Disk) -> Copies {
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    COPIES.map(|at| match disk.read(at, &mut block) {
        Ok(()) => decode(&block, at),
        Err(_) => Err(Fault::Unreadable),
    })
}

/// Where the copies are.
pub(crate) fn copies_at() -> [u64; 2] {
    COPIES
}

/// Writes both, one after the other.
pub fn write(disk: &impl Disk, header: &Header) -> io::Result<()> {
    COPIES.into_iter().try_for_each(|at| disk.write_durable(at, &encode(header, at)))
}

fn encode(header: &Header, at: u64) -> Aligned {
    let mut name = [0; NAME_BYTES_MAX];
    name[..header.name.len()].copy_from_slice(header.name.as_bytes());
    let layout = Layout {
        magic: MAGIC,
        version: VERSION.into(),
        block_bytes: (BLOCK_BYTES as u32).into(),
        at: at.into(),
        uuid: header.uuid.0,
        epoch: header.epoch.into(),
        size_bytes: header.size_bytes.into(),
        owner_uid: header.owner_uid.into(),
        holder_pid: header.holder_pid.into(),
        name_bytes: (header.name.len() as u32).into(),
        name,
    };
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    layout.write_to_prefix(&mut block).expect("it is shorter than a block");
    let sum = checksum(&block[..CHECKED_BYTES]);
    block[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    block
}

fn decode(block: &[u8], at: u64) -> Result<Header, Fault> {
    if block.iter().all(|&byte| byte == 0) {
        return Err(Fault::Empty);
    }
    let (layout, _) = Layout::ref_from_prefix(block).expect("a block is longer");
    if layout.magic != MAGIC {
        return Err(Fault::Foreign);
    }
    if block[CHECKED_BYTES..] != checksum(&block[..CHECKED_BYTES]).to_le_bytes() {
        return Err(Fault::Damaged);
    }
    if layout.version.get() != VERSION {
        return Err(Fault::Version(layout.version.get()));
    }
    let name = layout.name.get(..layout.name_bytes.get() as usize);
    let name = name.and_then(|name| str::from_utf8(name).ok()).ok_or(Fault::Damaged)?;
    if layout.at.get() != at || layout.block_bytes.get() != BLOCK_BYTES as u32 {
        return Err(Fault::Damaged);
    }
    Ok(Header {
        uuid: Uuid(layout.uuid),
        name: name.to_owned(),
        size_bytes: layout.size_bytes.get(),
        owner_uid: layout.owner_uid.get(),
        epoch: layout.epoch.get(),
        holder_pid: layout.holder_pid.get(),
    })
}

/// A header as another version would write it.
#[cfg(test)]
pub(crate) fn of_version(version: u32, header: &Header, at: u64) -> Aligned {
    let mut block = encode(header, at);
    block[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = checksum(&block[..CHECKED_BYTES]);
    block[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Random, Sim};

    fn header(epoch: u64) -> Header {
        Header {
            uuid: Uuid([7; 16]),
            name: "n".repeat(NAME_BYTES_MAX),
            size_bytes: 4 * BLOCK,
            owner_uid: 65533,
            epoch,
            holder_pid: 42,
        }
    }

    fn epochs(disk: &Sim) -> Vec<u64> {
        read(disk).iter().flatten().map(|header| header.epoch).collect()
    }

    #[test]
    fn both_copies_say_what_was_written() {
        let disk = Sim::new(4 * BLOCK, 0);
        assert_eq!(read(&disk), [Err(Fault::Empty), Err(Fault::Empty)]);
        write(&disk, &header(3)).unwrap();
        assert_eq!(read(&disk), [Ok(header(3)), Ok(header(3))]);
    }

    #[test]
    fn after_a_crash_at_any_write_the_old_epoch_or_the_new_one_counts() {
        for seed in 0..500 {
            let disk = Sim::new(4 * BLOCK, seed);
            write(&disk, &header(1)).unwrap();
            disk.cut_after(seed % 3);
            let done = write(&disk, &header(2)).is_ok();
            disk.crash();
            let best = epochs(&disk).into_iter().max();
            assert!(best == Some(2) || best == Some(1) && !done, "seed {seed}: {best:?}");
        }
    }

    #[test]
    fn whatever_bit_turns_the_other_copy_has_the_epoch() {
        let mut random = Random::new(1);
        for _ in 0..500 {
            let disk = Sim::new(4 * BLOCK, 0);
            write(&disk, &header(9)).unwrap();
            let at = random.below(2 * BLOCK);
            disk.rot(at, random.below(8) as u32);
            let copies = read(&disk);
            let bad = (at / BLOCK) as usize;
            assert!(matches!(copies[bad], Err(Fault::Damaged | Fault::Foreign)), "{at}");
            assert_eq!(copies[1 - bad], Ok(header(9)), "{at}");
        }
    }

    #[test]
    fn a_copy_in_the_others_place_and_one_of_a_newer_version_do_not_count() {
        let disk = Sim::new(4 * BLOCK, 0);
        disk.write_durable(0, &encode(&header(1), BLOCK)).unwrap();
        disk.write_durable(BLOCK, &of_version(2, &header(1), BLOCK)).unwrap();
        assert_eq!(read(&disk), [Err(Fault::Damaged), Err(Fault::Version(2))]);
    }

    #[test]
    fn of_another_version_it_is_said_which_husk_to_use() {
        for (version, remedy) in [(VERSION + 1, "use a newer husk"), (VERSION - 1, "an older husk")]
        {
            let disk = Sim::new(4 * BLOCK, 0);
            write(&disk, &header(1)).unwrap();
            disk.write_durable(BLOCK, &of_version(version, &header(1), BLOCK)).unwrap();
            let unfit = super::super::judge(&read(&disk), header(1).uuid, 4 * BLOCK).unwrap_err();
            let told = unfit.told(std::path::Path::new("/x"));
            assert_eq!(told.0, format!("/x has version {version}, this husk knows {VERSION}"));
            assert!(told.1.contains(remedy), "{told:?}");
        }
    }
}
