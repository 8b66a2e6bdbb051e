//! ELF headers of x86-64 programs: what the loader must know to map one.
//!
//! Invariants
//! 1. Nothing is believed: offsets, counts and sizes are checked against the bytes and against
//!    overflow before they are used.
//! 2. A file that Linux would answer with `ENOEXEC` is an error here too.

/// Bytes of an ELF file that one read should fetch: header and, nearly always, its segments.
pub const HEAD_BYTES: usize = 1024;
/// Most program headers accepted (Linux: 64 KiB of them; real programs have about a dozen).
pub const HEADERS_MAX: usize = 64;
/// Bytes of one program header.
pub const HEADER_BYTES: usize = 56;

const LOAD: u32 = 1;
const INTERP: u32 = 3;
const PHDR: u32 = 6;
const GNU_STACK: u32 = 0x6474_e551;

/// Segment may be executed.
pub const EXECUTE: u32 = 1;
/// Segment may be written.
pub const WRITE: u32 = 2;
/// Segment may be read.
pub const READ: u32 = 4;

/// The file header's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Address-independent (`ET_DYN`).
    pub relocatable: bool,
    /// Entry point, before relocation.
    pub entry: u64,
    /// Where the program headers lie in the file.
    pub headers_offset: u64,
    /// How many there are.
    pub headers: usize,
}

/// A `PT_LOAD` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `EXECUTE | WRITE | READ`.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Address, before relocation.
    pub address: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Alignment.
    pub align: u64,
}

/// What the program headers say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Lowest address, page aligned.
    pub low: u64,
    /// End of the highest segment, page aligned.
    pub high: u64,
    /// Largest alignment.
    pub align: u64,
    /// Where the program headers are in memory, before relocation.
    pub headers_address: Option<u64>,
    /// Place of the interpreter's path in the file: offset and bytes with its NUL.
    pub interpreter: Option<(u64, u64)>,
    /// The stack must be executable.
    pub executable_stack: bool,
}

/// Why a file is no program (`ENOEXEC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u16_at(bytes, at) as u32 | (u16_at(bytes, at + 2) as u32) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) as u64 | (u32_at(bytes, at + 4) as u64) << 32
}

impl Header {
    /// Reads the first 64 bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        const IDENT: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
        const X86_64: u16 = 62;
        if bytes.len() < 64 || bytes[..6] != IDENT || u16_at(bytes, 18) != X86_64 {
            return Err(Malformed);
        }
        let kind = u16_at(bytes, 16);
        let headers = u16_at(bytes, 56) as usize;
        let size_right = u16_at(bytes, 54) as usize == HEADER_BYTES;
        if !(2..=3).contains(&kind) || !size_right || !(1..=HEADERS_MAX).contains(&headers) {
            return Err(Malformed);
        }
        let headers_offset = u64_at(bytes, 32);
        headers_offset.checked_add((headers * HEADER_BYTES) as u64).ok_or(Malformed)?;
        Ok(Header { relocatable: kind == 3, entry: u64_at(bytes, 24), headers_offset, headers })
    }
}

/// The loadable segments of a table of program headers.
pub fn segments(table: &[u8]) -> impl Iterator<Item = Segment> + '_ {
    table.chunks_exact(HEADER_BYTES).filter(|h| u32_at(h, 0) == LOAD).map(segment)
}

fn segment(header: &[u8]) -> Segment {
    Segment {
        flags: u32_at(header, 4),
        offset: u64_at(header, 8),
        address: u64_at(header, 16),
        file_bytes: u64_at(header, 32),
        memory_bytes: u64_at(header, 40),
        align: u64_at(header, 48),
    }
}

impl Summary {
    /// Reads a table of program headers that lies at `headers_offset` in its file.
    pub fn parse(table: &[u8], headers_offset: u64) -> Result<Summary, Malformed> {
        let mut found = Summary {
            low: u64::MAX,
            high: 0,
            align: 4096,
            headers_address: None,
            interpreter: None,
            executable_stack: false,
        };
        for header in table.chunks_exact(HEADER_BYTES) {
            match u32_at(header, 0) {
                LOAD => found.add(&segment(header), headers_offset)?,
                INTERP => found.interpreter = Some((u64_at(header, 8), u64_at(header, 32))),
                PHDR => found.headers_address = Some(u64_at(header, 16)),
                GNU_STACK => found.executable_stack = u32_at(header, 4) & EXECUTE != 0,
                _ => {}
            }
        }
        if found.low >= found.high { Err(Malformed) } else { Ok(found) }
    }

    fn add(&mut self, segment: &Segment, headers_offset: u64) -> Result<(), Malformed> {
        const USER_END: u64 = 0x7fff_ffff_f000;
        let end = segment.address.checked_add(segment.memory_bytes).ok_or(Malformed)?;
        let file_end = segment.offset.checked_add(segment.file_bytes).ok_or(Malformed)?;
        let congruent = segment.address % 4096 == segment.offset % 4096;
        if segment.file_bytes > segment.memory_bytes || end > USER_END || !congruent {
            return Err(Malformed);
        }
        if (segment.offset..file_end).contains(&headers_offset) && self.headers_address.is_none() {
            self.headers_address = Some(segment.address + (headers_offset - segment.offset));
        }
        self.low = self.low.min(segment.address & !4095);
        self.high = self.high.max((end + 4095) & !4095);
        if segment.align.is_power_of_two() && segment.align <= 1 << 30 {
            self.align = self.align.max(segment.align);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        let mut bytes = vec![0; 64 + 2 * HEADER_BYTES];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        bytes[16] = 3;
        bytes[18] = 62;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 2;
        for (i, (at, size)) in [(0u64, 0x800u64), (0x1800, 0x100)].into_iter().enumerate() {
            let h = &mut bytes[64 + i * HEADER_BYTES..][..HEADER_BYTES];
            h[0] = 1;
            h[4] = 5;
            h[8..16].copy_from_slice(&at.to_le_bytes());
            h[16..24].copy_from_slice(&at.to_le_bytes());
            h[32..40].copy_from_slice(&size.to_le_bytes());
            h[40..48].copy_from_slice(&size.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_small_program_is_understood() {
        let bytes = image();
        let header = Header::parse(&bytes).unwrap();
        assert!(header.relocatable);
        let summary = Summary::parse(&bytes[64..], header.headers_offset).unwrap();
        assert_eq!((summary.low, summary.high), (0, 0x2000));
        assert_eq!(summary.headers_address, Some(64));
        assert_eq!(segments(&bytes[64..]).count(), 2);
    }

    #[test]
    fn wrong_class_machine_and_truncation_are_malformed() {
        for (at, value) in [(4, 1), (18, 40), (16, 1), (0, 0), (54, 32), (56, 0)] {
            let mut bytes = image();
            bytes[at] = value;
            assert_eq!(Header::parse(&bytes), Err(Malformed), "byte {at}");
        }
        assert_eq!(Header::parse(&image()[..40]), Err(Malformed));
    }

    #[test]
    fn sizes_that_wrap_are_malformed() {
        let mut bytes = image();
        bytes[64 + 40..64 + 48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Summary::parse(&bytes[64..], 64), Err(Malformed));
    }
}
