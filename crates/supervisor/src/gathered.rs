//! Large programs that start again and again, put in huge pages of the region's file.
//!
//! A start maps a program's pages sixteen at a time, as it touches them, and its end lets each go;
//! the processor then has an entry for each small page. A compiler of 30 MB is eight times as fast
//! to map in pages of 2 MiB, and runs faster in them. They take memory of their own, so that it is
//! done only for programs that start often (`Image::count_start`), and in a room of fixed size.
//!
//! Invariants
//! 1. A program is announced when all its bytes are there and its file was still the same after
//!    the last was read.
//! 2. Room is taken before it is filled and not given back: whoever dies in between leaves bytes
//!    that nobody maps.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use husk_carrier::Direct;
use husk_host::huge::{self, HUGE_BYTES};
use husk_proto::fs::HostIdentity;
use husk_proto::image::{Image as _, Rewritten};
use husk_rewrite::Identity;
use husk_rewrite::huge::{HEAD_BYTES, Piece, pieces};

/// Bytes copied at a time: they stay in the processor's cache meanwhile.
const PART_BYTES: usize = 256 << 10;

/// Gathers the program `file` at `path`, of which there may be a rewritten `copy`. Where it cannot
/// be done, it goes on being mapped in small pages.
pub fn gather(
    direct: &mut Direct,
    region: &OwnedFd,
    file: &HostIdentity,
    path: &Path,
    copy: Option<&Path>,
) -> io::Result<()> {
    let source = File::open(copy.unwrap_or(path))?;
    let mut head = [0; HEAD_BYTES];
    let length = source.read_at(&mut head, 0)?;
    let Some(pieces) = pieces(&head[..length]) else { return Ok(()) };
    let bytes = pieces.last().map_or(0, Piece::end);
    let Some(at) = direct.room_to_gather(bytes) else { return Ok(()) };
    let target = File::from(region.try_clone()?);
    let mut gathered = at;
    for piece in &pieces {
        let page = (at + piece.place) & !(HUGE_BYTES as u64 - 1);
        for page in (page.max(gathered)..at + piece.end()).step_by(HUGE_BYTES) {
            huge::gather(target.as_raw_fd() as usize, page as usize)
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
            gathered = page + HUGE_BYTES as u64;
        }
        fill(&source, &target, piece, at)?;
    }
    let found = Identity::of(&fs::metadata(path)?);
    if found == crate::copies::identity(file) {
        direct.set_rewritten(file, Rewritten::Gathered(at));
    }
    Ok(())
}

/// Copies a piece of `source` to where it belongs in a program at `at` of `target`.
fn fill(source: &File, target: &File, piece: &Piece, at: u64) -> io::Result<()> {
    let mut bytes = vec![0; PART_BYTES];
    for done in (0..piece.bytes).step_by(PART_BYTES) {
        let part = &mut bytes[..(piece.bytes - done).min(PART_BYTES as u64) as usize];
        source.read_exact_at(part, piece.offset + done)?;
        target.write_all_at(part, at + piece.place + done)?;
    }
    Ok(())
}
