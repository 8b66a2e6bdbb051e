//! The rest of a path during a walk: components are taken off, link targets are put in front.
//!
//! ```text
//!   text:  / a / link / b / c            after `link` -> x/y:     x/y / b / c
//!                   └at                                           └at
//! ```
//! Invariant: `at <= length <= TEXT_MAX`, and `text[length]` is 0 whenever the host is to see it.

use crate::buffers::{TEXT_MAX, Walk};
use crate::path::{Last, Target};
use husk_proto::Errno;

/// One component of a path.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub start: usize,
    pub end: usize,
    /// Nothing but slashes behind it.
    pub last: bool,
    /// A slash directly behind it.
    pub slash: bool,
}

/// A byte in each of the eight places of a word.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The lowest place of a zero byte in `word`, 0..8.
#[inline]
fn zero_byte(word: u64) -> Option<usize> {
    let found = word.wrapping_sub(all(1)) & !word & all(0x80);
    if found == 0 { None } else { Some(found.trailing_zeros() as usize / 8) }
}

/// The highest bit of every zero byte in `word`.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    let low = all(0x7f);
    !(((word & low) + low) | word | low)
}

impl Walk {
    /// Takes the next component off the front; `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Option<Piece> {
        let start = self.behind_slashes(self.at);
        if start >= self.length {
            self.at = start;
            return None;
        }
        let end = self.slash_or_end(start);
        let rest = self.behind_slashes(end);
        self.at = end;
        Some(Piece { start, end, last: rest >= self.length, slash: rest > end })
    }

    /// Eight bytes of the text from `at`; past its end they mean nothing.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        let at = at.min(TEXT_MAX);
        let mut eight = [0; 8];
        eight.copy_from_slice(&self.text[at..at + 8]);
        u64::from_le_bytes(eight)
    }

    /// Whether an absolute text has `.`, `..` or empty components in the middle: a slash or a dot
    /// behind a slash.
    #[inline]
    pub fn is_odd(&self) -> bool {
        let mut at = 0;
        while at + 1 < self.length {
            let next = self.word(at + 1);
            let odd = zero_bytes(next ^ all(b'/')) | zero_bytes(next ^ all(b'.'));
            // Of the last word only the bytes that another one of the text follows.
            let left = (self.length - 1 - at).min(8);
            let shown = u64::MAX >> (8 * (8 - left));
            if zero_bytes(self.word(at) ^ all(b'/')) & odd & shown != 0 {
                return true;
            }
            at += 8;
        }
        false
    }

    /// Where the last name of a text begins: behind its last slash, 0 without one.
    #[inline]
    pub fn behind_last_slash(&self) -> usize {
        let mut end = self.length;
        while end > 0 {
            let from = end.saturating_sub(8);
            // Of a text shorter than a word only the first bytes count.
            let shown = u64::MAX >> (8 * (8 - (end - from)));
            let slashes = zero_bytes(self.word(from) ^ all(b'/')) & shown;
            if slashes != 0 {
                return from + 8 - slashes.leading_zeros() as usize / 8;
            }
            end = from;
        }
        0
    }

    /// The first place at or behind `from` that is no slash, at most the end.
    #[inline]
    fn behind_slashes(&self, from: usize) -> usize {
        let mut at = from;
        while at < self.length {
            let differs = self.word(at) ^ all(b'/');
            if differs != 0 {
                return (at + differs.trailing_zeros() as usize / 8).min(self.length);
            }
            at += 8;
        }
        self.length
    }

    /// The first slash at or behind `from`, or the end.
    #[inline]
    fn slash_or_end(&self, from: usize) -> usize {
        let mut at = from;
        while at < self.length {
            if let Some(place) = zero_byte(self.word(at) ^ all(b'/')) {
                return (at + place).min(self.length);
            }
            at += 8;
        }
        self.length
    }

    /// Where the first name of `text[..end]` at or behind `from` begins and ends.
    pub fn name_within(&self, from: usize, end: usize) -> (usize, usize) {
        let start = self.behind_slashes(from).min(end);
        (start, self.slash_or_end(start).min(end))
    }

    /// Whether a component is `.` or `..`.
    #[inline]
    pub fn dots(&self, piece: Piece) -> Option<Last> {
        if self.text[piece.start] != b'.' {
            return None;
        }
        match &self.text[piece.start..piece.end] {
            b"." => Some(Last::Dot),
            b".." => Some(Last::DotDot),
            _ => None,
        }
    }

    /// What is left, from `at`.
    pub fn rest(&self) -> &[u8] {
        &self.text[self.at..self.length]
    }

    /// The last name, of a target that has one.
    #[inline]
    pub fn name(&self, target: &Target) -> &[u8] {
        self.text.get(target.name.0..target.name.1).unwrap_or(&[])
    }

    /// The whole text.
    pub fn whole(&self) -> &[u8] {
        &self.text[..self.length]
    }

    /// Whether what is left starts at the root.
    pub fn is_absolute(&self) -> bool {
        self.at < self.length && self.text[self.at] == b'/'
    }

    /// Replaces everything before `keep` by `front`; the walk goes on at the start of it.
    pub fn replace_front(&mut self, keep: usize, front: &[u8]) -> Result<(), Errno> {
        let rest = self.length - keep;
        if front.len() + rest > TEXT_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.text.copy_within(keep..self.length, front.len());
        self.text[..front.len()].copy_from_slice(front);
        self.at = 0;
        self.length = front.len() + rest;
        Ok(())
    }

    /// Puts directory `base` (absolute) before a relative text.
    pub fn join(&mut self, base: &[u8]) -> Result<(), Errno> {
        self.replace_front(0, base)?;
        if !base.ends_with(b"/") {
            self.insert_slash(base.len())?;
        }
        Ok(())
    }

    fn insert_slash(&mut self, place: usize) -> Result<(), Errno> {
        if self.length + 1 > TEXT_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.text.copy_within(place..self.length, place + 1);
        self.text[place] = b'/';
        self.length += 1;
        Ok(())
    }

    /// Ends the text for the host and tells where it starts.
    pub fn for_host(&mut self) -> usize {
        self.text[self.length] = 0;
        self.text.as_ptr() as usize
    }

    /// Length of the part up to the last component (without its slash, at least 1 for the root).
    pub fn directory_length(&self) -> usize {
        self.directory_of(self.length)
    }

    /// The same of `text[..end]`.
    pub fn directory_of(&self, mut end: usize) -> usize {
        end = self.without_slashes(end);
        while end > 0 && self.text[end - 1] != b'/' {
            end -= 1;
        }
        self.without_slashes(end).max(1)
    }

    /// Where `text[..end]` ends without slashes behind its last name; `/` stays.
    pub fn without_slashes(&self, mut end: usize) -> usize {
        while end > 1 && self.text[end - 1] == b'/' {
            end -= 1;
        }
        end
    }
}

/// Whether `text` is `prefix` or lies below it.
#[inline]
pub(crate) fn lies_below(text: &[u8], prefix: &[u8]) -> bool {
    text.len() >= prefix.len()
        && text[..prefix.len()] == *prefix
        && (text.len() == prefix.len() || text[prefix.len()] == b'/' || prefix == b"/")
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::Buffers;
    use std::boxed::Box;
    use std::vec::Vec;

    /// The pieces of a text, the stale bytes behind it being `behind`.
    fn pieces(text: &[u8], behind: u8) -> Vec<(Vec<u8>, bool, bool)> {
        let mut buffers = Box::new(Buffers::new());
        let walk = &mut buffers.walks[0];
        walk.text.fill(behind);
        walk.text[..text.len()].copy_from_slice(text);
        (walk.at, walk.length) = (0, text.len());
        let mut found = Vec::new();
        while let Some(piece) = walk.next() {
            found.push((walk.text[piece.start..piece.end].to_vec(), piece.last, piece.slash));
        }
        found
    }

    /// The same, said with the standard library.
    fn split(text: &[u8]) -> Vec<(Vec<u8>, bool, bool)> {
        let names: Vec<&[u8]> = text.split(|&b| b == b'/').filter(|n| !n.is_empty()).collect();
        let slash = text.ends_with(b"/");
        let last = |n: usize| n + 1 == names.len();
        names.iter().enumerate().map(|(n, s)| (s.to_vec(), last(n), !last(n) || slash)).collect()
    }

    #[test]
    fn names_of_all_lengths_come_off_whole_whatever_lies_behind_the_text() {
        for length in 0..20 {
            for slashes in 1..18 {
                let (name, gap) = (&b"abcdefghijklmnopqrst"[..length], &[b'/'; 18][..slashes]);
                for text in [[name, gap, b"x"].concat(), [gap, name].concat(), [name, gap].concat()]
                {
                    for behind in [0, b'/', b'a'] {
                        assert_eq!(pieces(&text, behind), split(&text), "{text:?} {behind}");
                    }
                }
            }
        }
        let longest = [b'n'; TEXT_MAX];
        assert_eq!(pieces(&longest, b'/'), split(&longest));
    }

    #[test]
    fn texts_with_dots_or_empty_names_are_odd_whatever_lies_behind_them() {
        let mut buffers = Box::new(Buffers::new());
        let walk = &mut buffers.walks[0];
        for length in 0..20 {
            for place in 0..20 {
                for second in [b'/', b'.', b'x'] {
                    walk.text[..24].fill(b'n');
                    (walk.text[place], walk.text[place + 1]) = (b'/', second);
                    walk.length = length;
                    let odd = walk.whole().windows(2).any(|w| w == b"//" || w == b"/.");
                    assert_eq!(walk.is_odd(), odd, "{:?}", walk.whole());
                }
            }
        }
    }

    #[test]
    fn the_last_name_is_found_at_every_place_whatever_lies_behind_the_text() {
        let mut buffers = Box::new(Buffers::new());
        let walk = &mut buffers.walks[0];
        for length in 0..40 {
            for slash in 0..40 {
                walk.text[..40].fill(0x81);
                (walk.text[slash], walk.text[slash / 2]) = (b'/', b'/');
                walk.length = length;
                let text = walk.whole();
                let behind = text.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
                assert_eq!(walk.behind_last_slash(), behind, "{text:?}");
            }
        }
    }
}
