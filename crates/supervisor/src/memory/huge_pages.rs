//! Moves full parts of the image into huge pages.
//!
//! ```text
//!   no page more than at the last look ─► nothing to do
//!   2 MiB without a hole               ─► one huge page, once
//!   2 MiB with a hole                  ─► looked at again when there are more pages
//! ```
//!
//! A process maps small pages as it touches them, some sixteen with each fault, and lets go of each
//! when it ends: what a short command pays for walking a tree is half that. A huge page is one
//! fault.
//!
//! 1. What is full takes no more memory as one page than as 512, so a sparse part is left alone.
//! 2. While the host copies a part, whoever touches it waits: `PARTS_MAX` at a look and each part
//!    once keep that rare.
//! 3. It is an attempt: where the host has no huge page, all is as before (`REST`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use husk_host::huge::{self, HUGE_BYTES};
use rustix::fs::{SeekFrom, fstat, seek};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Before the next look where the host had no huge page.
const REST: Duration = Duration::from_secs(30);
/// Parts moved at one look.
const PARTS_MAX: usize = 4;
const PART: u64 = HUGE_BYTES as u64;

/// What is known of an image's parts.
pub struct Dense {
    /// A bit for each part: it is one page, or was.
    moved: Vec<bool>,
    /// Blocks of the file at the last look that left nothing to do.
    blocks: u64,
    next_look: Instant,
}

impl Dense {
    /// Of a region whose first `bytes` every process maps.
    pub fn new(bytes: u64) -> Dense {
        let moved = vec![false; (bytes / PART) as usize];
        Dense { moved, blocks: 0, next_look: Instant::now() + LOOK_EVERY }
    }

    /// Looks, if it is time to.
    pub fn tick(&mut self, region: impl AsFd) {
        let region = region.as_fd();
        let gather = |part| huge::gather(region.as_raw_fd() as usize, part * HUGE_BYTES).is_ok();
        self.look(region, gather);
    }

    /// The same; `gather` moves a part, and says whether it could.
    fn look(&mut self, region: BorrowedFd, mut gather: impl FnMut(usize) -> bool) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        let blocks = fstat(region).map_or(0, |stat| stat.st_blocks as u64);
        if blocks == self.blocks {
            return;
        }
        let mut left = PARTS_MAX;
        while left > 0 {
            let Some(part) = self.next_full(region) else {
                self.blocks = blocks;
                return;
            };
            if !gather(part) {
                self.next_look = now + REST;
                return;
            }
            self.moved[part] = true;
            left -= 1;
        }
    }

    /// The first full part that is not moved yet.
    fn next_full(&self, region: BorrowedFd) -> Option<usize> {
        let mut part = 0;
        loop {
            part += self.moved.get(part..)?.iter().position(|moved| !moved)?;
            let start = part as u64 * PART;
            let data = seek(region, SeekFrom::Data(start)).ok()?;
            if data == start && seek(region, SeekFrom::Hole(start)).ok()? >= start + PART {
                return Some(part);
            }
            part = (part + 1).max((data / PART) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    /// The parts that a look at `file` moves, where the host has pages for them or not.
    fn look(dense: &mut Dense, file: &File, able: bool) -> Vec<usize> {
        let mut asked = Vec::new();
        dense.next_look = Instant::now();
        dense.look(file.as_fd(), |part| {
            asked.push(part);
            able
        });
        asked
    }

    #[test]
    fn full_parts_are_moved_once_and_sparse_ones_never() {
        let file = File::from(memfd_create("dense", MemfdFlags::CLOEXEC).expect("memfd"));
        file.set_len(4 * PART).expect("length");
        let mut dense = Dense::new(4 * PART);
        file.write_all_at(&vec![7; HUGE_BYTES - 4096], PART).expect("a part but for a page");
        file.write_all_at(&vec![9; HUGE_BYTES], 3 * PART).expect("a part");
        assert_eq!(look(&mut dense, &file, false), [3], "tried");
        assert_eq!(look(&mut dense, &file, true), [3], "and again, as it could not be");
        file.write_all_at(&[7; 4096], 2 * PART - 4096).expect("the last page");
        assert_eq!(look(&mut dense, &file, true), [1]);
        assert!(look(&mut dense, &file, true).is_empty());
        let mut fresh = Dense::new(4 * PART);
        fresh.next_look = Instant::now();
        fresh.tick(&file);
        let mut bytes = vec![0; HUGE_BYTES];
        file.read_exact_at(&mut bytes, PART).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 7), "the same bytes");
    }
}
