//! Brings host directories to the state their overlays have in the image.
//!
//! ```text
//!   image --scan--> plan --make--> temporary names --commit--> the host's tree
//!         (reads)   (data)         (new objects)              (renames, then deletions)
//! ```
//!
//! Invariants
//! 1. At each moment every name of the host leads to the complete old or the complete new object;
//!    a crash leaves those and temporary names, which a later run removes (`host`).
//! 2. What somebody changed on the host while the image ran is neither replaced nor removed: the
//!    image's version is written beside it as `NAME.husk-<run>` and reported.
//! 3. What cannot be written (full disk, no permission) is reported and, where it is file content,
//!    saved in a rescue directory; everything else is written nevertheless.
//! 4. All overlays are planned before anything is written.
//!
//! Not here: `--mount` trees and `--discard` (nothing is written back), extended attributes.

pub mod commit;
pub mod content;
pub mod host;
pub mod make;
pub mod plan;
pub mod progress;
pub mod rescue;
pub mod scan;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use husk_proto::{Errno, Fs, Inode};

use self::plan::Plan;
use self::progress::Progress;
use self::rescue::Rescue;
use self::scan::Run;
use crate::request::reason;

/// The image as the write-back reads it.
pub trait Source: Fs {
    /// Reads bytes of a file in the image; 0 = the end.
    fn read_at(&mut self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, Errno>;
}

/// How a write-back ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Objects that took their names.
    pub written: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// What the host changed meanwhile, one line each; both versions are there.
    pub conflicts: Vec<String>,
    /// What could not be written, one line each.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Everything is on the host as the image had it.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.failures.is_empty()
    }

    fn note(&mut self, path: &Path, result: io::Result<()>) {
        if let Err(problem) = result {
            self.failures.push(format!("{}: {}", path.display(), reason(&problem)));
        }
    }
}

/// What one write-back works with.
pub struct Work {
    /// Number that tells this run's names from others'.
    pub number: u32,
    /// Temporary names.
    pub names: host::Names,
    /// Where lost content goes.
    pub rescue: Rescue,
    /// The progress line.
    pub progress: Progress,
}

/// An overlay to write back: the root of its tree and the host directory it lies on.
pub type Overlay = (Inode, PathBuf);

/// Writes all overlays back.
pub fn write_back<S: Source>(source: &mut S, run: Run, overlays: &[Overlay]) -> Outcome {
    write_back_with(source, run, overlays, Rescue::new(run.number))
}

fn write_back_with<S: Source>(
    source: &mut S,
    run: Run,
    overlays: &[Overlay],
    rescue: Rescue,
) -> Outcome {
    let mut plan = Plan::default();
    for (root, path) in overlays {
        host::remove_leftovers(path);
        plan.extend(scan::scan(source, run, *root, path));
    }
    if plan.is_empty() {
        return Outcome::default();
    }
    let total = plan.puts.iter().map(|put| put.object.count()).sum();
    let (number, names, progress) =
        (run.number, host::Names::of_this_process(), Progress::new(total));
    commit::carry_out(source, &mut Work { number, names, rescue, progress }, plan)
}
