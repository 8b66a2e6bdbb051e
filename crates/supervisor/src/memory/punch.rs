//! Returns the memory of deleted files to the host (hole punching).
//!
//! ```text
//!   chunk unchanged since the last look ─► set a gap aside ─► punch it ─► give it back ─► next gap
//!         changed, or punched already   ─► leave it
//! ```
//!
//! 1. Nobody can take a block while it is punched: it is set aside in the supervisor's slot.
//! 2. A chunk in which blocks come and go is left alone: its pages would be wanted again at once.
//! 3. Gaps shorter than `GAP_MIN` stay: they cost more calls than they give memory.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::Errno;
use rustix::fs::{FallocateFlags, fallocate};

/// Between two looks; memory comes back after two.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Least length of a gap worth a call, blocks.
const GAP_MIN: u32 = 64;
/// Gaps punched at one look: about 10 ms of work.
const GAPS_MAX: u32 = 256;
const BLOCK: u64 = 4096;

/// What is known of a chunk: its versions.
#[derive(Clone, Copy, Default)]
struct Chunk {
    seen: u64,
    punched: u64,
}

/// Gives memory back, look by look.
pub struct Punch {
    chunks: Vec<Chunk>,
    next_look: Instant,
    cache_offset: u64,
}

impl Punch {
    /// For the image behind `direct`.
    pub fn new(direct: &Direct) -> Punch {
        let region = &direct.kernel().session.region;
        let chunks = vec![Chunk::default(); region.map.chunk_count as usize];
        let cache_offset = region.layout().cache_offset();
        Punch { chunks, next_look: Instant::now() + LOOK_EVERY, cache_offset }
    }

    /// Looks, if it is time to.
    pub fn tick(&mut self, direct: &Direct, region: impl AsFd) {
        if Instant::now() < self.next_look {
            return;
        }
        self.next_look = Instant::now() + LOOK_EVERY;
        let session = &direct.kernel().session;
        let mut gaps_left = GAPS_MAX;
        for index in 0..self.chunks.len() {
            let version = session.chunk_version(index as u32);
            let chunk = &mut self.chunks[index];
            if version == chunk.punched || gaps_left == 0 {
                continue;
            }
            if version != chunk.seen {
                chunk.seen = version;
                continue;
            }
            // What fails now is tried again at a later look.
            if self.punch(direct, &region, index as u32, &mut gaps_left).is_ok() {
                let version = session.chunk_version(index as u32);
                self.chunks[index] = Chunk { seen: version, punched: version };
            }
        }
    }

    fn punch(
        &self,
        direct: &Direct,
        region: &impl AsFd,
        index: u32,
        gaps_left: &mut u32,
    ) -> Result<(), Errno> {
        let session = &direct.kernel().session;
        let mut from = 0;
        while *gaps_left > 0 {
            let Some(gap) = session.borrow_gap(index, from, GAP_MIN)? else { return Ok(()) };
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let offset = self.cache_offset + u64::from(gap.first) * BLOCK;
            // A host that cannot keeps the memory, as before.
            let length = u64::from(gap.count) * BLOCK;
            let _ = husk_carrier::with_descriptor_busy(|| fallocate(region, mode, offset, length));
            session.give_back_blocks()?;
            from = gap.first % husk_carrier::CHUNK_BLOCKS + gap.count;
            *gaps_left -= 1;
        }
        Err(Errno::EAGAIN)
    }
}
