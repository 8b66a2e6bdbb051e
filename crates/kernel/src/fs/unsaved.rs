//! Which changes of a volume's objects are not in its log yet.
//!
//! ```text
//!   word of a file       63 extended attributes | 32..63 end | 31 mapped | 0..31 begin, of bytes
//!   word of another      63 extended attributes | 0 names have changed, of a directory
//! ```
//!
//! Times tell nothing: they are coarse, a program sets them, and clocks go back. What is not noted
//! here and leaves mode, owner and times alone is not saved.
//!
//! 1. Bytes are noted under the file's writer lock before they change, and taken under it: whoever
//!    takes them sees the change, or it is noted once more.
//! 2. Names are counted as begun, then noted, before they change, and counted as ended after. While
//!    both counts agree, all changes are noted. A death in between leaves them apart; who lives and
//!    is in between says so in its slot, before and after it is counted.
//! 3. A note that is left by an inode that was freed is one too many, never one too few.

use husk_proto::volume::{Policy, Unsaved};
use husk_proto::{Inode, Result};
use husk_region::{Cell, INODE};

use crate::image::volume;
use crate::state::{high, ino, live, low};
use crate::{Kernel, SAVE, TELL};

/// Bytes are noted in units of so many.
const UNIT: u64 = 64;
/// Largest number of units that fits: what lies behind counts up to the end.
const UNITS_MAX: u64 = (1 << 31) - 1;
const MAPPED: u64 = 1 << 31;
const EXTENDED: u64 = 1 << 63;
const NAMES: u64 = 1;
const END_SHIFT: u32 = 32;

/// What the word of a file says.
fn unsaved_of(word: u64) -> Unsaved {
    let end = word >> END_SHIFT & UNITS_MAX;
    let last = if end == UNITS_MAX { u64::MAX } else { end * UNIT };
    Unsaved {
        bytes: ((word & UNITS_MAX) * UNIT, last),
        extended: word & EXTENDED != 0,
        mapped: word & MAPPED != 0,
    }
}

/// Whether an inode with these flags is a volume's.
#[inline(always)]
pub(crate) fn is_kept(ident: u64) -> bool {
    low(ident) & ino::DURABLE != 0
}

/// Notes that bytes of a file change; invariant 1.
#[inline(always)]
pub(crate) fn note_bytes(kernel: &Kernel, ident: u64, number: u32, from: u64, to: u64) {
    if is_kept(ident) {
        note_range(kernel, ident, number, from, to);
    }
}

/// Notes that a file becomes longer than its `size`, by bytes that nobody writes; invariant 1.
#[inline(always)]
pub(crate) fn note_growth(kernel: &Kernel, ident: u64, number: u32, size: u64) {
    note_bytes(kernel, ident, number, size, size + 1);
}

#[cold]
fn note_range(kernel: &Kernel, ident: u64, number: u32, from: u64, to: u64) {
    touch(kernel, ident, number);
    let begin = (from / UNIT).min(UNITS_MAX - 1);
    let end = to.div_ceil(UNIT).min(UNITS_MAX);
    change(kernel, number, |word| {
        let (old_begin, old_end) = (word & UNITS_MAX, word >> END_SHIFT & UNITS_MAX);
        let none = old_end == 0;
        let begin = if none { begin } else { begin.min(old_begin) };
        word & (MAPPED | EXTENDED) | begin | end.max(old_end) << END_SHIFT
    });
}

fn change(kernel: &Kernel, number: u32, new: impl Fn(u64) -> u64) -> u64 {
    let region = &kernel.session.region;
    let cell = region.map.unsaved(number);
    loop {
        let word = region.load(cell);
        let wanted = new(word);
        if wanted == word || region.swap_if(cell, word, wanted) {
            return word;
        }
    }
}

/// The identity of an inode, if it is one of a volume.
#[inline(always)]
fn kept(kernel: &Kernel, inode: Inode) -> Option<u64> {
    let ident = kernel.session.region.map.object(INODE, inode.number).word(ino::IDENT);
    Some(kernel.session.region.load(ident)).filter(|&ident| is_kept(ident))
}

fn note(kernel: &Kernel, inode: Inode, bits: u64) {
    if kept(kernel, inode).is_some() {
        change(kernel, inode.number, |word| word | bits);
    }
}

/// Remembers what this thread changes in a volume where each change is to be durable at once.
fn touch(kernel: &Kernel, ident: u64, number: u32) {
    if volume::policy(kernel, volume::tree_of(ident)) == Policy::Immediate {
        kernel.touched.set(Inode { generation: high(ident), number });
        kernel.session.note(SAVE);
    }
}

/// Attributes of an inode have changed.
#[inline(always)]
pub(crate) fn note_attributes(kernel: &Kernel, inode: Inode) {
    if let Some(ident) = kept(kernel, inode) {
        touch(kernel, ident, inode.number);
    }
}

/// Whether this thread has changed something that is to be durable before its call returns, or has
/// left somebody to be told.
#[inline(always)]
pub fn owes_anything(kernel: &Kernel) -> bool {
    kernel.session.attention() & (SAVE | TELL) != 0
}

/// What it has changed last, if anything; not from now on. One call changes one object, and names:
/// these are saved with any object of their volume.
pub fn take_touched(kernel: &Kernel) -> Option<Inode> {
    let is_any = kernel.session.attention() & SAVE != 0;
    kernel.session.forget(SAVE);
    is_any.then(|| kernel.touched.get())
}

/// Notes that a process may change a file's bytes without a call.
pub fn note_mapped(kernel: &Kernel, inode: Inode) {
    note(kernel, inode, MAPPED);
}

/// Notes that extended attributes change.
pub fn note_extended(kernel: &Kernel, inode: Inode) {
    note(kernel, inode, EXTENDED);
    note_attributes(kernel, inode);
}

/// Of a new inode nothing is noted.
pub(crate) fn forget(kernel_region: &husk_region::Region, number: u32) {
    kernel_region.store(kernel_region.map.unsaved(number), 0);
}

/// Names in a directory are about to change: what to give to `names_ended`.
#[inline(always)]
pub fn names_begin(kernel: &Kernel, dir: Inode) -> Option<Cell> {
    let region = &kernel.session.region;
    let ident = region.load(region.map.object(INODE, dir.number).word(ino::IDENT));
    if is_kept(ident) { Some(begin(kernel, ident, dir)) } else { None }
}

#[cold]
fn begin(kernel: &Kernel, ident: u64, dir: Inode) -> Cell {
    let words = volume::words(kernel, volume::tree_of(ident));
    // In this order: a look that takes the mark of who has not begun would be the last one at it.
    kernel.session.enter();
    kernel.session.region.add(words.word(volume::BEGUN), 1);
    change(kernel, dir.number, |word| word | NAMES);
    touch(kernel, ident, dir.number);
    words
}

/// They have changed, or nothing has.
#[inline(always)]
pub fn names_ended(kernel: &Kernel, begun: Option<Cell>) {
    if let Some(words) = begun {
        kernel.session.region.add(words.word(volume::ENDED), 1);
        kernel.session.leave();
    }
}

/// Takes what is noted of a file, under its writer lock.
pub fn take(kernel: &Kernel, inode: Inode) -> Result<Unsaved> {
    super::bytes::keep_writers_out(kernel, inode)?;
    let word = change(kernel, inode.number, |word| word & MAPPED);
    super::bytes::let_writers_in(kernel, inode);
    live(&kernel.session.region, inode)?;
    Ok(unsaved_of(word))
}

/// What is noted of a file.
pub fn look(kernel: &Kernel, inode: Inode) -> Unsaved {
    let region = &kernel.session.region;
    unsaved_of(region.load(region.map.unsaved(inode.number)))
}

/// Whether names in a directory are noted as changed; they are not from now on.
pub fn take_names(kernel: &Kernel, dir: Inode) -> bool {
    change(kernel, dir.number, |word| word & !NAMES) & NAMES != 0
}

/// Takes what is noted of an object that is no file, but for its names.
pub fn take_extended(kernel: &Kernel, inode: Inode) -> Unsaved {
    let word = change(kernel, inode.number, |word| word & !EXTENDED);
    Unsaved { extended: word & EXTENDED != 0, ..Unsaved::default() }
}

#[cfg(test)]
mod tests {
    use super::{MAPPED, UNIT, UNITS_MAX, Unsaved, unsaved_of};

    #[test]
    fn the_last_unit_that_fits_stands_for_all_behind_it() {
        let word = UNITS_MAX << 32 | MAPPED | 3;
        let all = Unsaved { bytes: (3 * UNIT, u64::MAX), extended: false, mapped: true };
        assert_eq!(unsaved_of(word), all);
        assert!(!unsaved_of(MAPPED).is_any());
    }
}
