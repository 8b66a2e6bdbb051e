//! The name an inode has in its directory, as the entry that it was last given says.

use husk_region::{Cell, INODE, LINE, Region};

use crate::state::text;
use crate::state::{ent, high, ino, kind_bits, low, tag};

/// Bytes of a name that lie in its entry; the others are text.
pub const INLINE: usize = 32;
/// Looks at a name before a moving one is given up.
pub const LOOKS_MAX: u32 = 1 << 10;

/// Copies an entry's name into `out`; its length.
pub fn copy_name(region: &Region, line: Cell, out: &mut [u8; 255]) -> usize {
    let length = (low(region.load(line)) >> 8 & 0xff) as usize;
    for n in 0..length.min(INLINE).div_ceil(8) {
        let word = region.load(line.word(ent::NAME + n as u32));
        out[8 * n..8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }
    if length > INLINE {
        text::copy(region, low(region.load(line.word(ent::PLACE))), &mut out[INLINE..length]);
    }
    length
}

/// The line and its head, if it is an entry that leads to `number`.
pub fn entry(region: &Region, number: u32, line: u32) -> Option<(Cell, u64)> {
    if line == 0 || line >= region.map.classes[LINE].count {
        return None;
    }
    let cell = region.map.object(LINE, line);
    let head = region.load(cell);
    let is_entry = low(head) & 0xff == tag::ENTRY && low(head) & ent::WHITEOUT == 0;
    (is_entry && low(region.load(cell.word(ent::LINK))) == number).then_some((cell, head))
}

/// The directory that any inode has its name in, and that name in `out`; only of those `wanted`.
pub(crate) fn place(
    region: &Region,
    number: u32,
    wanted: impl Fn(u32) -> bool,
    out: &mut [u8; 255],
) -> Option<(u32, usize)> {
    let cell = region.map.object(INODE, number);
    for _ in 0..LOOKS_MAX {
        let ident = region.load(cell.word(ino::IDENT));
        let directory = kind_bits(ident) == ino::DIRECTORY;
        let word = region.load(cell.word(ino::PARENT));
        if directory && low(ident) & ino::REMOVED != 0 {
            return None;
        }
        let (line, head) = entry(region, number, low(word))?;
        let dir = high(region.load(line.word(ent::LINK)));
        if !wanted(dir) {
            return None;
        }
        let length = copy_name(region, line, out);
        if region.load(line) == head && region.load(cell.word(ino::PARENT)) == word {
            return Some((dir, length));
        }
    }
    None
}
