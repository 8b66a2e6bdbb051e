//! Memory in single pages: how a machine looks that has run for long, made on purpose.
//!
//! Nearly all free memory is filled with one file, then every second page of it is given back. What
//! is free afterwards is single pages; who wants a huge page has the kernel move others for it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use nix::fcntl::{FallocateFlags, fallocate};
use rustix::fs::{MemfdFlags, memfd_create};

const PAGE: u64 = 4096;
/// Bytes written at a time.
const PIECE: usize = 64 << 10;
/// Free memory that others may need meanwhile.
const LEFT_BYTES: u64 = 1 << 30;
/// More is not fragmented, for it would take minutes.
const MOST_BYTES: u64 = 16 << 30;
/// From this order on a free block has room for a huge page.
const HUGE_ORDER: usize = 9;

/// Keeps memory fragmented as long as it lives.
pub struct Fragmented {
    _pages: File,
}

impl Fragmented {
    /// Does it, and says what came of it.
    pub fn make() -> anyhow::Result<Fragmented> {
        let before = free_huge_pages();
        let pages = File::from(memfd_create("husk-bench", MemfdFlags::CLOEXEC)?);
        let piece = [b'f'; PIECE];
        let bytes = free_bytes()?.saturating_sub(LEFT_BYTES).min(MOST_BYTES);
        for at in (0..bytes).step_by(PIECE) {
            crate::bench::measure::stop::check()?;
            pages.write_all_at(&piece, at).context("filling memory")?;
        }
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        for at in (0..bytes).step_by(2 * PAGE as usize) {
            fallocate(&pages, hole, at as i64, PAGE as i64).context("giving pages back")?;
        }
        let (mib, now) = (bytes >> 20, free_huge_pages());
        eprintln!("fragmented {mib} MiB: {now} huge pages are free, {before} were before");
        Ok(Fragmented { _pages: pages })
    }
}

fn free_bytes() -> anyhow::Result<u64> {
    let facts = std::fs::read_to_string("/proc/meminfo")?;
    let line = facts.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("no MemFree in /proc/meminfo")? << 10)
}

/// Room for so many, without moving anything.
fn free_huge_pages() -> u64 {
    let zones = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    zones.lines().map(huge_pages_in).sum()
}

fn huge_pages_in(zone: &str) -> u64 {
    let counts = zone.split_whitespace().skip(4).filter_map(|count| count.parse::<u64>().ok());
    let large = counts.enumerate().skip(HUGE_ORDER);
    large.map(|(order, count)| count << (order - HUGE_ORDER)).sum()
}

#[cfg(test)]
mod tests {
    use super::huge_pages_in;

    #[test]
    fn only_blocks_of_a_huge_page_or_more_count() {
        let zone = "Node 0, zone   Normal   1854   1228    375    154     78     33      7     78 \
                         2     12      3 ";
        assert_eq!(huge_pages_in(zone), 12 + 2 * 3);
    }
}
