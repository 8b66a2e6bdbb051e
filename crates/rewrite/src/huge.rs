//! Which bytes of a program go where in huge pages, by the head of its file.
//!
//! ```text
//!   file        | head | code       | constants | data |          by offset
//!   gathered    | head |   code     | constants |  | data |       by address
//!               0                2 MiB               4 MiB
//! ```
//!
//! The host maps 2 MiB by one entry where place in the file and address are the same but for a
//! multiple of 2 MiB, and one segment covers them all. So a program lies in the region's file as
//! it does in memory, from the 2 MiB on in which its first address is.

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

/// Bytes of a file that say it: headers stand at its beginning.
pub const HEAD_BYTES: usize = 4096;
/// Longest program that is worth the memory.
const BYTES_MAX: u64 = 128 << 20;
/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

/// A segment of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where its bytes are in the file.
    pub offset: u64,
    /// Where they go.
    pub place: u64,
    /// How many there are.
    pub bytes: u64,
}

impl Piece {
    /// Behind its last byte.
    pub fn end(&self) -> u64 {
        self.place + self.bytes
    }
}

/// The pieces of a program in ascending order, if some of its code fills a huge page.
pub fn pieces(head: &[u8]) -> Option<Vec<Piece>> {
    let header = elf::FileHeader64::<LE>::parse(head).ok()?;
    let kind = matches!(header.e_type(LE), elf::ET_EXEC | elf::ET_DYN);
    if header.e_machine(LE) != elf::EM_X86_64 || !kind {
        return None;
    }
    let headers = header.program_headers(LE, head).ok()?;
    let loads = || headers.iter().filter(|header| header.p_type(LE) == elf::PT_LOAD);
    let base = loads().next()?.p_vaddr(LE) / HUGE_BYTES * HUGE_BYTES;
    let (mut pieces, mut end, mut full) = (Vec::new(), 0, 0);
    for load in loads() {
        let place = load.p_vaddr(LE).checked_sub(base)?;
        let piece = Piece { offset: load.p_offset(LE), place, bytes: load.p_filesz(LE) };
        if place < end || place > BYTES_MAX || piece.bytes > BYTES_MAX - place {
            return None;
        }
        end = piece.end();
        if load.p_flags(LE).0 & (elf::PF_X.0 | elf::PF_W.0) == elf::PF_X.0 {
            full += (end / HUGE_BYTES).saturating_sub(place.div_ceil(HUGE_BYTES));
        }
        pieces.push(piece);
    }
    (full > 0).then_some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u32 = elf::PF_R.0 | elf::PF_X.0;
    const DATA: u32 = elf::PF_R.0 | elf::PF_W.0;

    /// The head of a program with these segments: flags, offset, address, bytes.
    fn head(loads: &[(u32, u64, u64, u64)]) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        head.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        head.extend([0; 8]);
        head.extend(64u64.to_le_bytes());
        head.extend([0; 12]);
        head.extend([64, 0, 56, 0, loads.len() as u8, 0, 64, 0, 0, 0, 0, 0]);
        for &(flags, offset, address, bytes) in loads {
            head.extend(1u32.to_le_bytes());
            head.extend(flags.to_le_bytes());
            for word in [offset, address, address, bytes, bytes, 4096] {
                head.extend(word.to_le_bytes());
            }
        }
        head
    }

    #[test]
    fn pieces_go_where_their_addresses_are_in_two_mebibytes() {
        let loads = [(CODE, 0x1000, 0x60_2000, 0x40_0000), (DATA, 0x40_1000, 0xa0_3000, 8)];
        let found = pieces(&head(&loads)).unwrap();
        let code = Piece { offset: 0x1000, place: 0x2000, bytes: 0x40_0000 };
        let data = Piece { offset: 0x40_1000, place: 0x40_3000, bytes: 8 };
        assert_eq!(found, [code, data]);
    }

    #[test]
    fn code_that_fills_no_huge_page_is_not_gathered() {
        // Just short of two, on both sides of a border.
        let loads = [(CODE, 0, 0x1000, 0x3f_e000)];
        assert_eq!(pieces(&head(&loads)), None);
        // Data do not count.
        assert_eq!(pieces(&head(&[(DATA, 0, 0, 0x40_0000)])), None);
        assert!(pieces(&head(&[(CODE, 0, 0, 0x20_0000)])).is_some());
    }

    #[test]
    fn what_is_no_sound_program_is_not_gathered() {
        let (large, end) = (BYTES_MAX + 1, u64::MAX);
        for loads in [
            vec![(CODE, 0, 0x20_0000, 0x40_0000), (CODE, 0, 0x30_0000, 0x40_0000)],
            vec![(CODE, 0, 0x40_0000, 0x40_0000), (CODE, 0, 0, 0x40_0000)],
            vec![(CODE, 0, 0, large)],
            vec![(CODE, 0, 0, end)],
            vec![(CODE, 0, 0, 0x40_0000), (DATA, 0, end, end)],
            vec![],
        ] {
            assert_eq!(pieces(&head(&loads)), None, "{loads:x?}");
        }
        let sound = head(&[(CODE, 0, 0, 0x40_0000)]);
        for length in 0..sound.len() {
            assert_eq!(pieces(&sound[..length]), None, "{length} bytes of its head");
        }
    }
}
