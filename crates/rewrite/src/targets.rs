//! Possible jump targets: one bit for each byte of code.
//!
//! Marking too much only costs a trap later; marking too little would break a program. So
//! everything that could be a code pointer is marked: branch targets, `lea` of code, immediates,
//! words of data, relocations, symbols, unwind ranges, landing pads, entries of jump tables.

use crate::elf::Image;

/// Longest jump table that is followed, entries.
const TABLE_ENTRIES_MAX: usize = 8192;
/// Most steps of work: this many, and so many more for each byte of the file.
const STEPS_MIN: u64 = 1 << 20;
const STEPS_PER_BYTE: u64 = 16;

struct Range {
    address: u64,
    len: u64,
    bits: Vec<u64>,
}

/// A set of code addresses.
pub struct Targets {
    ranges: Vec<Range>,
    last: usize,
    steps_left: u64,
}

impl Targets {
    /// The empty set over the code of a file.
    pub fn new(image: &Image<'_>) -> Targets {
        let ranges = image.code.iter().map(|code| Range {
            address: code.address,
            len: code.len as u64,
            bits: vec![0; code.len.div_ceil(64)],
        });
        let steps_left = STEPS_MIN + STEPS_PER_BYTE * image.bytes.len() as u64;
        Targets { ranges: ranges.collect(), last: 0, steps_left }
    }

    /// Counts one step of work; false once there were too many for a file of this length, which
    /// only tables that are read again and again can bring about.
    pub fn step(&mut self) -> bool {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.steps_left > 0
    }

    /// Whether marks may be missing because there were too many steps.
    pub fn is_incomplete(&self) -> bool {
        self.steps_left == 0
    }

    /// Adds an address; returns whether it is code.
    pub fn mark(&mut self, address: u64) -> bool {
        let Some(index) = self.find(address) else { return false };
        self.last = index;
        let range = &mut self.ranges[index];
        let bit = (address - range.address) as usize;
        range.bits[bit / 64] |= 1 << (bit % 64);
        true
    }

    /// Whether an address is in the set.
    pub fn contains(&self, address: u64) -> bool {
        self.find(address).is_some_and(|index| {
            let range = &self.ranges[index];
            let bit = (address - range.address) as usize;
            range.bits[bit / 64] >> (bit % 64) & 1 == 1
        })
    }

    /// Whether any of `start + 1 .. start + len` is in the set.
    pub fn any_inside(&self, start: u64, len: u64) -> bool {
        (1..len).any(|step| self.contains(start + step))
    }

    fn find(&self, address: u64) -> Option<usize> {
        let holds = |range: &Range| address.wrapping_sub(range.address) < range.len;
        if self.ranges.get(self.last).is_some_and(holds) {
            return Some(self.last);
        }
        let after = self.ranges.partition_point(|range| range.address <= address);
        after.checked_sub(1).filter(|&index| holds(&self.ranges[index]))
    }
}

/// Marks what the file says without looking at instructions.
pub fn mark_declared(image: &Image<'_>, targets: &mut Targets) {
    targets.mark(image.entry);
    for symbol in &image.symbols {
        targets.mark(symbol.address);
    }
    for relocation in &image.relocations {
        targets.mark(relocation.addend);
    }
    // In position-independent files every pointer has a relocation; elsewhere any word may be one.
    for data in image.data.iter().filter(|_| image.absolute) {
        mark_words(data.address, data.bytes, targets);
    }
}

fn mark_words(address: u64, bytes: &[u8], targets: &mut Targets) {
    let skip = (address.wrapping_neg() % 8) as usize;
    let words = bytes.get(skip..).unwrap_or(&[]).chunks_exact(8);
    for word in words {
        targets.mark(u64::from_le_bytes(word.try_into().expect("8 bytes")));
    }
}

/// Marks the entries of the table of 32-bit offsets at `address`; returns how many there are.
///
/// The table is what compilers make of `switch` in position-independent code: each entry is the
/// distance from the table's start. It ends where an entry does not lead into code.
pub fn mark_table(image: &Image<'_>, address: u64, targets: &mut Targets) -> usize {
    let Some(bytes) = image.constants_at(address) else { return 0 };
    let entries = bytes.chunks_exact(4).take(TABLE_ENTRIES_MAX);
    entries
        .map(|entry| i32::from_le_bytes(entry.try_into().expect("4 bytes")))
        .take_while(|&distance| {
            targets.step() && targets.mark(address.wrapping_add_signed(i64::from(distance)))
        })
        .count()
}
