//! Where functions begin and end, from symbols, unwind tables and Go tables.
//!
//! ```text
//!   symbols        .eh_frame        gopclntab
//!      '---------------+---------------'
//!             starts and spans
//!                     |  cut the code at every start and every end
//!   |--chunk--|-chunk-|--chunk--|gap|--chunk--|
//! ```
//!
//! A chunk is decoded from its first byte and must end exactly where the next begins. Chunks in
//! one span belong to one function.

mod golang;
mod unwind;

use crate::elf::{Code, Image};
use crate::targets::Targets;

/// Cuts and spans of a file's code.
pub struct Bounds {
    /// Sorted, without repeats.
    cuts: Vec<u64>,
    /// Sorted by start: first address, first address behind.
    spans: Vec<(u64, u64)>,
}

impl Bounds {
    /// Gathers bounds; function starts and landing pads are marked as targets.
    pub fn gather(image: &Image<'_>, targets: &mut Targets) -> Bounds {
        let mut bounds = Bounds { cuts: Vec::new(), spans: Vec::new() };
        for symbol in &image.symbols {
            bounds.add(image, symbol.address, symbol.size);
        }
        unwind::read(image, |start, len| bounds.add(image, start, len), targets);
        golang::read(image, |start, len| bounds.add(image, start, len));
        for code in &image.code {
            bounds.cuts.push(code.address);
        }
        bounds.cuts.sort_unstable();
        bounds.cuts.dedup();
        bounds.spans.sort_unstable();
        bounds.spans.dedup();
        for &(start, _) in &bounds.spans {
            targets.mark(start);
        }
        bounds
    }

    /// Adds a function; what reaches out of its code range is cut off there.
    fn add(&mut self, image: &Image<'_>, start: u64, len: u64) {
        let Some(code) = image.code_at(start) else { return };
        self.cuts.push(start);
        let end = start.saturating_add(len).min(code.end());
        if end > start {
            self.cuts.push(end);
            self.spans.push((start, end));
        }
    }

    /// Start addresses of the chunks of a code range, in order; the last ends with the range.
    pub fn chunks(&self, code: &Code) -> &[u64] {
        let first = self.cuts.partition_point(|&cut| cut < code.address);
        let behind = self.cuts.partition_point(|&cut| cut < code.end());
        &self.cuts[first..behind]
    }

    /// Functions with a known end.
    pub fn spans(&self) -> &[(u64, u64)] {
        &self.spans
    }
}
