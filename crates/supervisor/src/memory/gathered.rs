//! Puts large programs that start often into huge pages of the region's file.
//!
//! A start maps a program's pages sixteen at a time, as it touches them, and its end lets each go;
//! the processor then has an entry for each small page. A compiler of 30 MB is eight times as fast
//! to map in pages of 2 MiB, and runs faster in them. They take memory of their own, so that it is
//! done only for programs that start often (`Image::count_start`), and in a room of fixed size.
//!
//! Invariants
//! 1. A program is announced when all its bytes are there and its file was still the same after
//!    the last was read.
//! 2. Room is taken when it is announced: whoever dies or fails before leaves bytes that nobody
//!    maps, and the next one gives them back.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use husk_carrier::Direct;
use husk_host::huge::{self, HUGE_BYTES};
use husk_proto::Shortcuts as _;
use husk_proto::fs::HostIdentity;
use husk_proto::image::Image as _;
use husk_rewrite::Identity;
use husk_rewrite::huge::{HEAD_BYTES, Piece, pieces};
use rustix::fs::{FallocateFlags, fallocate};

use crate::image::copies;

const _: () = assert!(husk_rewrite::huge::HUGE_BYTES == HUGE_BYTES as u64);

/// Bytes copied at a time: they stay in the processor's cache meanwhile.
const PART_BYTES: usize = 256 << 10;

/// Gathers the program `file` at `path`, of which there may be a rewritten `copy`. Where it cannot
/// be done, it goes on being mapped in small pages; an error is one of the moment.
pub fn gather(
    direct: &mut Direct,
    region: &OwnedFd,
    file: &HostIdentity,
    path: &Path,
    copy: Option<&Path>,
) -> io::Result<()> {
    let source = File::open(copy.unwrap_or(path))?;
    if copy.is_some() && source.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("another user has made it"));
    }
    let mut head = [0; HEAD_BYTES];
    let length = source.read_at(&mut head, 0)?;
    let pieces = pieces(&head[..length]).unwrap_or_default();
    let bytes = pieces.last().map_or(0, Piece::end);
    let (at, left) = direct.room_to_gather();
    if bytes == 0 || bytes.next_multiple_of(HUGE_BYTES as u64) > left {
        direct.refuse_to_gather(file);
        return Ok(());
    }
    let target = File::from(region.try_clone()?);
    // Another may have died, or failed, half-way.
    clear(&target, at, left)?;
    let filled = fill(&source, &target, &pieces, at);
    let found = fs::metadata(path).map(|found| Identity::of(&found));
    match (filled, found) {
        (Ok(()), Ok(found)) if found == copies::identity(file) => direct.set_gathered(file, bytes),
        _ => clear(&target, at, left)?,
    }
    Ok(())
}

/// Gives what is there back to the host.
fn clear(target: &File, at: u64, bytes: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(target, mode, at, bytes)?)
}

/// Fills a program's place at `at` of `target`, huge page by huge page.
fn fill(source: &File, target: &File, pieces: &[Piece], at: u64) -> io::Result<()> {
    let mut gathered = at;
    for piece in pieces {
        let first = (at + piece.place) & !(HUGE_BYTES as u64 - 1);
        for page in (first.max(gathered)..at + piece.end()).step_by(HUGE_BYTES) {
            huge::gather(target.as_raw_fd() as usize, page as usize)
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
            gathered = page + HUGE_BYTES as u64;
        }
        copy(source, target, piece, at)?;
    }
    Ok(())
}

/// Copies a piece of `source` to where it belongs in a program at `at` of `target`.
fn copy(source: &File, target: &File, piece: &Piece, at: u64) -> io::Result<()> {
    let mut bytes = vec![0; PART_BYTES];
    for done in (0..piece.bytes).step_by(PART_BYTES) {
        let part = &mut bytes[..(piece.bytes - done).min(PART_BYTES as u64) as usize];
        source.read_exact_at(part, piece.offset + done)?;
        target.write_all_at(part, at + piece.place + done)?;
    }
    Ok(())
}
