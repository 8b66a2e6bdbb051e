//! Functions of a Go binary, from its table of program counters (`gopclntab`).
//!
//! Layout since Go 1.18 (`runtime/symtab.go`): magic, 2 zero bytes, instruction quantum, pointer
//! size, then words: functions, files, start of text, and five offsets of which the last leads to
//! pairs of 32-bit (entry - text, detail). Newer tool chains leave the start of text 0: it is then
//! that of the section. A stripped Go binary has this table and nothing else.

use crate::elf::Image;

const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;
/// Offsets of header words, bytes.
const FUNCTIONS: usize = 8;
const TEXT_START: usize = 24;
const PAIRS: usize = 64;

/// Calls `add(start, bytes)` for each function.
pub fn read(image: &Image<'_>, mut add: impl FnMut(u64, u64)) {
    let _ = try_read(image, &mut add);
}

fn try_read(image: &Image<'_>, add: &mut impl FnMut(u64, u64)) -> Option<()> {
    let table = image.pclntab?;
    let magic = u32::from_le_bytes(table.get(..4)?.try_into().ok()?);
    if !matches!(magic, MAGIC_1_18 | MAGIC_1_20) || table.get(6..8)? != [1, 8] {
        return None;
    }
    let count = usize::try_from(word(table, FUNCTIONS)?).ok()?;
    let text = match word(table, TEXT_START)? {
        0 => image.code_at(image.entry)?.address,
        start => start,
    };
    let pairs = table.get(usize::try_from(word(table, PAIRS)?).ok()?..)?;
    let entries = pairs.chunks_exact(8).take(count.checked_add(1)?);
    let starts: Vec<u64> = entries.map(|pair| text.wrapping_add(u64::from(half(pair)))).collect();
    for pair in starts.windows(2).filter(|pair| pair[0] < pair[1]) {
        add(pair[0], pair[1] - pair[0]);
    }
    Some(())
}

fn word(table: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(table.get(offset..offset + 8)?.try_into().ok()?))
}

fn half(pair: &[u8]) -> u32 {
    u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]])
}
