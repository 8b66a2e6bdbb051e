//! The runtime's file, laid out so that its code is mapped as one huge page.
//!
//! ```text
//!   as linked    | headers | gate table | code |
//!   as a memfd   | headers | gate table | hole ...         | code | hole ...         |
//!                0                                         2 MiB                     4 MiB
//! ```
//!
//! Invariants
//! 1. The code's segment begins at a multiple of a huge page in the file and in memory, and is as
//!    long as one: only so does the host map it by one entry.
//! 2. What is not of that kind is written as it is, and works as well.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use husk_host::huge::{self, HUGE_BYTES};

/// Places in the head of the file: where program headers are, bytes of one, how many.
const TABLE_AT: usize = 32;
const ENTRY_BYTES_AT: usize = 54;
const COUNT_AT: usize = 56;
/// Where our linker puts program headers, and bytes of one.
const HEADERS_AT: usize = 64;
const HEADER_BYTES: usize = 56;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;
/// Places in a program header.
const FLAGS: usize = 4;
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const FILE_BYTES: usize = 32;
const MEMORY_BYTES: usize = 40;
const HUGE: u64 = HUGE_BYTES as u64;

/// Where the code stands in the file as linked.
struct Code {
    /// Its program header.
    header: usize,
    offset: usize,
    bytes: usize,
}

/// Writes the runtime to an empty memfd.
pub fn write(file: &File, runtime: &[u8]) -> io::Result<()> {
    let Some(code) = code(runtime) else { return file.write_all_at(runtime, 0) };
    let mut head = runtime[..code.offset].to_vec();
    set(&mut head, code.header + OFFSET, HUGE);
    set(&mut head, code.header + FILE_BYTES, HUGE);
    set(&mut head, code.header + MEMORY_BYTES, HUGE);
    file.set_len(2 * HUGE)?;
    file.write_all_at(&head, 0)?;
    file.write_all_at(&runtime[code.offset..][..code.bytes], HUGE)?;
    // Without, every start has a few faults more.
    let _ = huge::gather(file.as_raw_fd() as usize, HUGE_BYTES);
    Ok(())
}

/// The code's segment, if it is one that can be laid out (invariant 1) and the last in the file.
fn code(runtime: &[u8]) -> Option<Code> {
    let count = header_count(runtime.first_chunk()?);
    let headers = (0..count).map(|i| HEADERS_AT + i * HEADER_BYTES);
    let loaded = |at: &usize| word(runtime, *at).map(|word| word as u32) == Some(PT_LOAD);
    let mut found = None;
    for header in headers.filter(loaded) {
        let get = |field| word(runtime, header + field);
        let (offset, bytes) = (get(OFFSET)?, get(FILE_BYTES)?);
        let executable = get(FLAGS)? as u32 & PF_X != 0;
        if executable && get(ADDRESS)?.is_multiple_of(HUGE) && (1..=HUGE).contains(&bytes) {
            found = Some((
                Code { header, offset: offset as usize, bytes: bytes as usize },
                get(ADDRESS)?,
            ));
        } else if let Some((code, address)) = &found {
            let behind = offset as usize >= code.offset + code.bytes;
            if get(ADDRESS)? < address + HUGE || (behind && bytes > 0) {
                return None;
            }
        }
    }
    let (code, _) = found?;
    runtime.get(code.offset..code.offset.checked_add(code.bytes)?)?;
    (code.offset >= HEADERS_AT + count * HEADER_BYTES && code.offset <= HUGE_BYTES).then_some(code)
}

/// How many program headers there are: where they are expected, or it is not our linker's file.
fn header_count(head: &[u8; HEADERS_AT]) -> usize {
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    assert_eq!(word(head, TABLE_AT), Some(HEADERS_AT as u64), "program headers elsewhere");
    assert_eq!(half(ENTRY_BYTES_AT), HEADER_BYTES as u16, "other program headers");
    half(COUNT_AT).into()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn set(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE_AT: usize = 0x1000;

    /// A file with one segment of code, 3 bytes long.
    fn runtime(address: u64) -> Vec<u8> {
        let mut bytes = vec![0; CODE_AT];
        set(&mut bytes, TABLE_AT, HEADERS_AT as u64);
        bytes[ENTRY_BYTES_AT] = HEADER_BYTES as u8;
        bytes[COUNT_AT] = 1;
        set(&mut bytes, HEADERS_AT, u64::from(PT_LOAD) | u64::from(PF_X) << 32);
        set(&mut bytes, HEADERS_AT + OFFSET, CODE_AT as u64);
        set(&mut bytes, HEADERS_AT + ADDRESS, address);
        set(&mut bytes, HEADERS_AT + FILE_BYTES, 3);
        set(&mut bytes, HEADERS_AT + MEMORY_BYTES, 3);
        bytes.extend_from_slice(b"abc");
        bytes
    }

    #[test]
    fn code_has_a_huge_page_to_itself() {
        let file = tempfile::tempfile().unwrap();
        write(&file, &runtime(5 * HUGE)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 * HUGE);
        let mut code = [0; 4];
        file.read_exact_at(&mut code, HUGE).unwrap();
        assert_eq!(&code, b"abc\0");
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, HEADERS_AT as u64).unwrap();
        for field in [OFFSET, FILE_BYTES, MEMORY_BYTES] {
            assert_eq!(word(&header, field), Some(HUGE));
        }
    }

    #[test]
    fn what_cannot_be_laid_out_stays_as_it_is() {
        let mut without_headers = runtime(5 * HUGE);
        without_headers[COUNT_AT] = 0;
        for bytes in [runtime(5 * HUGE + 0x1000), without_headers] {
            let file = tempfile::tempfile().unwrap();
            write(&file, &bytes).unwrap();
            let mut found = vec![0; bytes.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == bytes && file.metadata().unwrap().len() == bytes.len() as u64);
        }
    }

    #[test]
    #[should_panic(expected = "program headers elsewhere")]
    fn a_file_of_another_form_is_not_taken_for_ours() {
        let mut bytes = runtime(5 * HUGE);
        set(&mut bytes, TABLE_AT, HEADERS_AT as u64 + 8);
        code(&bytes);
    }

    #[test]
    fn all_program_headers_are_counted() {
        let mut bytes = runtime(5 * HUGE);
        bytes[COUNT_AT + 1] = 1;
        assert_eq!(header_count(bytes.first_chunk().unwrap()), 257);
    }
}
