//! A split index: most entries are in another file, `sharedindex.<its checksum>`.
//!
//! ```text
//!   base:   e0 e1 e2 e3          index:   link: base, delete = {1}, replace = {3}
//!                                         entries: (e3, without its path)  (new ones)
//!   together:   e0 e2 e3' new
//! ```
//!
//! The bitmaps are in EWAH: words of running length, each followed by so many literal words.
//! Entries that replace others come first, in their order (gitformat-index(5), "Split index").

use super::{Checksum, MODE_AT, OBJECT_AT, get16, get32};

/// Name of the extension.
pub const LINK: &[u8; 4] = b"link";
/// Bits of a word.
const BITS: usize = 64;
/// Most literal words after a word of running length.
const LITERALS_MAX: usize = (1 << 31) - 1;

/// What the extension says.
#[derive(Debug)]
pub struct Link {
    /// Checksum of the base.
    pub base: Vec<u8>,
    /// Positions in the base that are gone.
    pub deleted: Vec<usize>,
    /// Positions in the base that the first entries replace.
    pub replaced: Vec<usize>,
}

impl Link {
    /// Reads the extension. `None`: it is none.
    pub fn parse(bytes: &[u8], checksum: Checksum) -> Option<Link> {
        let (base, mut rest) = bytes.split_at_checked(checksum.object_bytes())?;
        let mut lists = [Vec::new(), Vec::new()];
        if !rest.is_empty() {
            for list in &mut lists {
                let length;
                (*list, length) = bits(rest)?;
                rest = rest.get(length..)?;
            }
        }
        let [deleted, replaced] = lists;
        rest.is_empty().then(|| Link { base: base.to_vec(), deleted, replaced })
    }

    /// The extension, with its name and length.
    pub fn written(&self) -> Option<Vec<u8>> {
        let mut body = self.base.clone();
        body.extend(bitmap(&self.deleted)?);
        body.extend(bitmap(&self.replaced)?);
        let length = u32::try_from(body.len()).ok()?;
        Some([&LINK[..], &length.to_be_bytes(), &body].concat())
    }
}

/// The positions in a bitmap, and how many bytes it takes.
fn bits(bytes: &[u8]) -> Option<(Vec<usize>, usize)> {
    let (count, words) = (get32(bytes, 0)? as usize, get32(bytes, 4)? as usize);
    let word = |number: usize| {
        let at = number.checked_mul(8)?.checked_add(8)?;
        Some(u64::from_be_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
    };
    let (mut found, mut position, mut number) = (Vec::new(), 0_usize, 0);
    while number < words {
        let head = word(number)?;
        let run = ((head >> 1) as u32) as usize * BITS;
        if head & 1 == 1 {
            // What a bitmap says of more than it has is nonsense.
            (position.checked_add(run)? <= count.next_multiple_of(BITS)).then_some(())?;
            found.extend(position..position + run);
        }
        position = position.checked_add(run)?;
        for literal in number + 1..=number + (head >> 33) as usize {
            let literal = word(literal)?;
            found.extend((0..BITS).filter(|bit| literal >> bit & 1 == 1).map(|bit| position + bit));
            position += BITS;
        }
        number += 1 + (head >> 33) as usize;
    }
    // The count and the place of the last word of running length.
    let length = words.checked_mul(8)?.checked_add(12)?;
    (number == words && length <= bytes.len()).then_some((found, length))
}

/// A bitmap of these positions, in their order.
fn bitmap(positions: &[usize]) -> Option<Vec<u8>> {
    let count = positions.last().map_or(0, |last| last + 1);
    let mut literals = vec![0_u64; count.div_ceil(BITS)];
    positions.iter().for_each(|&one| literals[one / BITS] |= 1 << (one % BITS));
    (literals.len() <= LITERALS_MAX).then_some(())?;
    let mut bytes = Vec::from(u32::try_from(count).ok()?.to_be_bytes());
    bytes.extend(u32::try_from(literals.len() + 1).ok()?.to_be_bytes());
    bytes.extend(((literals.len() as u64) << 33).to_be_bytes());
    literals.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(0_u32.to_be_bytes());
    Some(bytes)
}

/// An entry of a base as one that replaces it: the same without its path, in an index of this
/// `version`.
pub fn without_path(entry: &[u8], version: u32, checksum: Checksum) -> Option<Vec<u8>> {
    let flags_at = OBJECT_AT + checksum.object_bytes();
    let flags = get16(entry, flags_at)?;
    let more = if flags & super::MORE == 0 { 0 } else { 2 };
    let mut bytes = entry.get(..flags_at + 2 + more)?.to_vec();
    bytes[flags_at..flags_at + 2].copy_from_slice(&(flags & !super::LENGTH).to_be_bytes());
    match version {
        // How much of the path before goes, which is empty, too; and the NUL.
        4 => bytes.extend([0, 0]),
        _ => bytes.resize((bytes.len() + 1).next_multiple_of(8), 0),
    }
    debug_assert!(bytes.len() > MODE_AT);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_as_a_bitmap_is_read_from_it() {
        for positions in [vec![], vec![0], vec![63], vec![64], vec![1, 5, 64, 127, 128, 1000]] {
            let bytes = bitmap(&positions).unwrap();
            assert_eq!(bits(&bytes), Some((positions, bytes.len())));
        }
    }

    #[test]
    fn runs_of_ones_and_zeros_are_read() {
        // 64 zeros, 64 ones, and a literal word.
        let words = [1_u64 << 1, 1 << 1 | 1 | 1 << 33, 0b101];
        let mut bytes = [&192_u32.to_be_bytes()[..], &3_u32.to_be_bytes()].concat();
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend(1_u32.to_be_bytes());
        let expected: Vec<usize> = (64..128).chain([128, 130]).collect();
        assert_eq!(bits(&bytes), Some((expected, bytes.len())));
    }

    #[test]
    fn what_is_cut_or_nonsense_is_no_bitmap() {
        let bytes = bitmap(&[1, 70]).unwrap();
        assert!((0..bytes.len()).all(|length| bits(&bytes[..length]).is_none()));
        let endless = [&1_u32.to_be_bytes()[..], &1_u32.to_be_bytes(), &[0, 0, 0, 1], &[0xff; 8]];
        assert!(bits(&endless.concat()).is_none());
    }
}
