//! What is in a log that is opened, or where it is damaged.
//!
//! ```text
//!   root ─► snapshot, if there is one ─► frames from the start on ─► the first that is not whole
//!                                                                       │
//!              a whole one behind it: damage     none: the end, torn or not
//! ```
//!
//! One frame is written at a time, when all before it are durable. So a whole frame behind one that
//! is not whole says that this one was durable once: that is damage, and nothing is cut off. So
//! does one that the disk has put elsewhere, perhaps over the last.
//!
//! While this thread looks at what was read, another one reads what comes next (`ahead`).

use std::collections::VecDeque;
use std::fmt;
use std::thread::{self, Scope};

use super::ahead::Ahead;
use super::frame::{self, Frame, Head, Kind};
use super::root::{self, Fault, Map, Mark, Root};
use super::{Lsn, Mutant, planted};
use crate::Uuid;
use crate::area::{Finding, header};
use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk};

/// How much is read at once; a frame of any length at least.
const WINDOW_BLOCKS: u64 = 512;
const _: () =
    assert!((super::FRAME_PAYLOAD_BYTES_MAX + frame::HEAD_BYTES) as u64 <= WINDOW_BLOCKS * BLOCK);

/// Something that a replay has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// The next part of the snapshot, which covers all records up to this one.
    Snapshot(Lsn, &'a [u8]),
    /// The next record behind it.
    Record(Lsn, &'a [u8]),
}

/// Where a log is not what was written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Byte of the disk at which it begins.
    pub at_bytes: u64,
    /// What it is.
    pub what: String,
}

impl Damage {
    fn new(at_bytes: u64, what: impl Into<String>) -> Self {
        Self { at_bytes, what: what.into() }
    }

    pub(super) fn unsettled(at_bytes: u64) -> Self {
        Self::new(at_bytes, "the end of the log cannot be written again")
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at_bytes, self.what)
    }
}

impl std::error::Error for Damage {}

impl From<Damage> for Finding {
    fn from(damage: Damage) -> Self {
        Self { at_bytes: damage.at_bytes, what: damage.what }
    }
}

/// What a replay leaves to go on from.
#[derive(Debug)]
pub(super) struct Replayed {
    pub root: Root,
    /// The frames from the start on.
    pub frames: VecDeque<Mark>,
    /// Where the next one goes.
    pub end: Mark,
    /// A copy of the root that does not count.
    pub notes: Vec<Damage>,
}

/// Looks at the log in the bytes from `begin` to `end` and changes nothing: what is damaged.
pub fn check(disk: &impl Disk, (begin, end): (u64, u64), uuid: Uuid) -> Vec<Finding> {
    let replayed = run(disk, &Map::new(begin, end), uuid, u64::MAX, &mut |_| ());
    let damage = replayed.map_or_else(|damage| vec![damage], |replayed| replayed.notes);
    damage.into_iter().map(Finding::from).collect()
}

/// Replays the log for a user with this `epoch`.
pub(super) fn run(
    disk: &impl Disk,
    map: &Map,
    uuid: Uuid,
    epoch: u64,
    found: &mut dyn FnMut(Found<'_>),
) -> Result<Replayed, Damage> {
    let (root, notes) = find_root(disk, map, uuid)?;
    thread::scope(|scope| replay_snapshot(scope, disk, (map, uuid), &root, found))?;
    thread::scope(|scope| {
        let mut ring = Ring::new(scope, disk, map, uuid, root.start.position + map.ring_blocks);
        replay_ring(&mut ring, (root, notes), epoch, found)
    })
}

fn replay_ring(
    ring: &mut Ring<'_, '_, impl Disk>,
    (root, notes): (Root, Vec<Damage>),
    epoch: u64,
    found: &mut dyn FnMut(Found<'_>),
) -> Result<Replayed, Damage> {
    let (map, mut end) = (ring.map, root.start);
    let (mut frames, mut last_epoch) = (VecDeque::new(), 0);
    while let Some((frame, blocks)) = ring.next(&end)? {
        if frame.head.epoch > epoch {
            let what = format!("a later user (epoch {}) has written here", frame.head.epoch);
            return Err(Damage::new(map.in_ring(end.position).0, what));
        }
        if frame.head.epoch < last_epoch {
            break;
        }
        last_epoch = frame.head.epoch;
        let count = u64::from(frame.head.count);
        let numbered =
            frame::records(frame.payload).zip(frame.head.lsn.0..).map(|(r, n)| (Lsn(n), r));
        for (lsn, record) in numbered.filter(|(lsn, _)| *lsn > root.snapshot.lsn) {
            found(Found::Record(lsn, record));
        }
        let (lsn, previous) = (frame.head.lsn, frame.checksum);
        frames.push_back(Mark { lsn, ..end });
        end = Mark { position: end.position + blocks, lsn: lsn.after(count), previous };
    }
    let at = map.in_ring(end.position).0;
    if end.lsn <= root.durable {
        let what = format!("record {} is gone, {} was durable", end.lsn.0, root.durable.0);
        return Err(Damage::new(at, what));
    }
    if let Some(behind) = ring.frame_behind(&end) {
        let what = format!("record {} is damaged, there is {} behind it", end.lsn.0, behind.0);
        return Err(Damage::new(at, what));
    }
    Ok(Replayed { root, frames, end, notes })
}

/// The newer root that is whole, and what is to be said of the other copy.
fn find_root(disk: &impl Disk, map: &Map, uuid: Uuid) -> Result<(Root, Vec<Damage>), Damage> {
    let copies = root::read(disk, map, uuid);
    let told = |&(at, ref copy): &(u64, Result<Root, Fault>)| match copy {
        Ok(_) => None,
        Err(Fault::Version(version)) => {
            let remedy = header::husk_for(*version, root::VERSION);
            Some(Damage::new(at, format!("the log has version {version}; {remedy}")))
        }
        Err(Fault::Damaged) => Some(Damage::new(at, "this copy of the log's root is damaged")),
        Err(Fault::Overwritten) => Some(Damage::new(at, "a frame is where the log's root was")),
        Err(Fault::Unreadable) => {
            Some(Damage::new(at, "this copy of the log's root cannot be read"))
        }
    };
    let notes: Vec<Damage> = copies.iter().filter_map(told).collect();
    let is_fatal =
        |copy: &Result<Root, Fault>| matches!(copy, Err(Fault::Version(_) | Fault::Overwritten));
    if let Some(fatal) = copies.iter().find(|(_, copy)| is_fatal(copy)) {
        return Err(told(fatal).expect("it is no root"));
    }
    match copies.into_iter().filter_map(|(_, copy)| copy.ok()).max_by_key(|root| root.generation) {
        Some(root) => Ok((root, notes)),
        None => Err(Damage::new(map.begin, "both copies of the log's root are damaged")),
    }
}

fn replay_snapshot<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    disk: &'env impl Disk,
    (map, uuid): (&Map, Uuid),
    root: &Root,
    found: &mut dyn FnMut(Found<'_>),
) -> Result<(), Damage> {
    let snapshot = root.snapshot;
    let end_bytes = map.snapshot_at(snapshot.slot) + snapshot.blocks * BLOCK;
    let mut ahead = Ahead::new(scope, disk, end_bytes);
    let mut window = Aligned::zeroed((WINDOW_BLOCKS.min(snapshot.blocks) * BLOCK) as usize);
    let (mut position, mut previous) = (0, 0);
    while position < snapshot.blocks {
        let at = map.snapshot_at(snapshot.slot) + position * BLOCK;
        let damaged = |what: &str| Damage::new(at, format!("the snapshot {what}"));
        let mut read =
            |into: &mut [u8]| ahead.read(at, into).map_err(|_| damaged("cannot be read"));
        read(&mut window[..BLOCK_BYTES])?;
        let (_, blocks) = frame::claim(&window, uuid)
            .filter(|&(claimed, n)| claimed == position && position + n <= snapshot.blocks)
            .ok_or_else(|| damaged("is damaged"))?;
        let bytes = &mut window[..blocks as usize * BLOCK_BYTES];
        read(bytes)?;
        let fits = |frame: &Frame<'_>| {
            let head = &frame.head;
            (head.kind, head.lsn, head.previous) == (Kind::Snapshot, snapshot.lsn, previous)
        };
        let frame = frame::decode(bytes).filter(fits).ok_or_else(|| damaged("is damaged"))?;
        found(Found::Snapshot(snapshot.lsn, frame.payload));
        previous = frame.checksum;
        position += blocks;
    }
    if previous != snapshot.checksum {
        let at = map.snapshot_at(snapshot.slot);
        return Err(Damage::new(at, "the snapshot is another one"));
    }
    Ok(())
}

/// The ring from a start on, read ahead.
struct Ring<'scope, 'env, D> {
    disk: &'env D,
    ahead: Ahead<'scope, 'env, D>,
    map: &'env Map,
    uuid: Uuid,
    /// Behind the last block that may hold a frame.
    limit: u64,
    window: Aligned,
    from: u64,
    held: u64,
}

impl<'scope, 'env, D: Disk> Ring<'scope, 'env, D> {
    fn new(
        scope: &'scope Scope<'scope, 'env>,
        disk: &'env D,
        map: &'env Map,
        uuid: Uuid,
        limit: u64,
    ) -> Self {
        let ahead = Ahead::new(scope, disk, map.ring_at + map.ring_blocks * BLOCK);
        let blocks = WINDOW_BLOCKS.min(map.ring_blocks);
        let window = Aligned::zeroed((blocks * BLOCK) as usize);
        Self { disk, ahead, map, uuid, limit, window, from: 0, held: 0 }
    }

    /// The whole frame that belongs at `mark`, and how many blocks it has.
    fn next(&mut self, mark: &Mark) -> Result<Option<(Frame<'_>, u64)>, Damage> {
        let mut position = mark.position;
        if planted(Mutant::NoPrefixRule) {
            let fits = |ring: &mut Self, at: u64| {
                ring.frame(at).ok().flatten().is_some_and(|(frame, _)| frame.head.lsn >= mark.lsn)
            };
            position = (position..self.limit).find(|&at| fits(self, at)).unwrap_or(position);
            return self.frame(position);
        }
        let found = self.frame(position)?;
        Ok(found.filter(|(frame, _)| {
            let head = &frame.head;
            (head.kind, head.lsn, head.previous) == (Kind::Records, mark.lsn, mark.previous)
        }))
    }

    /// Whether there is a whole frame that was written after `end`, also one that belongs
    /// elsewhere; its first record.
    fn frame_behind(&mut self, end: &Mark) -> Option<Lsn> {
        if planted(Mutant::NoPrefixRule) {
            return None;
        }
        (end.position..self.limit).find_map(|position| {
            let head = self.head_at(position)?;
            let is_later = match head.kind {
                // No part of a snapshot belongs here: it may be over what did.
                Kind::Snapshot => true,
                Kind::Records if head.position == position => head.lsn > end.lsn,
                Kind::Records => head.lsn >= end.lsn,
            };
            is_later.then_some(head.lsn)
        })
    }

    /// What the whole frame at `position` says of itself, wherever it belongs. One that goes over
    /// the ring's end is written in two parts, of which the disk may have put the first one here.
    fn head_at(&mut self, position: u64) -> Option<Head> {
        if let Some((frame, _)) = self.claimed(position).ok()? {
            return Some(frame.head);
        }
        let (map, uuid) = (self.map, self.uuid);
        let (claimed, blocks) = frame::claim(self.blocks(position, 1).ok()?, uuid)?;
        let first = map.in_ring(claimed).1.min(blocks);
        let mut bytes = Aligned::zeroed((blocks * BLOCK) as usize);
        let (before, behind) = bytes.split_at_mut(first as usize * BLOCK_BYTES);
        self.disk.read(map.in_ring(position).0, before).ok()?;
        self.disk.read(map.ring_at, behind).ok()?;
        frame::decode(&bytes).map(|frame| frame.head)
    }

    /// The whole frame at `position`, if there is one that belongs there.
    fn frame(&mut self, position: u64) -> Result<Option<(Frame<'_>, u64)>, Damage> {
        let limit = self.limit;
        let found = self.claimed(position)?;
        let fits = |at: u64, blocks: u64| at == position && position + blocks <= limit;
        Ok(found.filter(|(frame, blocks)| fits(frame.head.position, *blocks)))
    }

    /// The whole frame at `position`, wherever it belongs: one that an older root knows
    /// nothing of may go over the limit.
    fn claimed(&mut self, position: u64) -> Result<Option<(Frame<'_>, u64)>, Damage> {
        if position >= self.limit {
            return Ok(None);
        }
        let uuid = self.uuid;
        let Some((_, blocks)) = frame::claim(self.blocks(position, 1)?, uuid) else {
            return Ok(None);
        };
        if blocks > self.window.len() as u64 / BLOCK {
            return Ok(None);
        }
        let bytes = self.blocks(position, blocks)?;
        Ok(frame::decode(bytes).map(|frame| (frame, blocks)))
    }

    /// The bytes of `count` blocks.
    fn blocks(&mut self, position: u64, count: u64) -> Result<&[u8], Damage> {
        let is_held = self.from <= position && position + count <= self.from + self.held;
        if !is_held {
            let ahead = (self.window.len() as u64 / BLOCK).min(self.limit - position).max(count);
            if self.fill(position, ahead).is_err() {
                let unreadable = |_| {
                    Damage::new(self.map.in_ring(position).0, "a block of the log cannot be read")
                };
                self.held = 0;
                self.fill(position, count).map_err(unreadable)?;
            }
        }
        let first = (position - self.from) as usize * BLOCK_BYTES;
        Ok(&self.window[first..][..count as usize * BLOCK_BYTES])
    }

    /// Reads `count` blocks into the window; what it holds of them already stays.
    fn fill(&mut self, position: u64, count: u64) -> std::io::Result<()> {
        let end = self.from + self.held;
        let is_inside = (self.from..end).contains(&position);
        let kept = if is_inside { (end - position).min(count) } else { 0 };
        let first = position.wrapping_sub(self.from) as usize * usize::from(is_inside);
        let [first, kept_bytes, bytes] = [first, kept as usize, count as usize].map(in_bytes);
        self.window.copy_within(first..first + kept_bytes, 0);
        (self.from, self.held) = (position, kept);
        let rest = &mut self.window[kept_bytes..bytes];
        let read = &mut |at, into: &mut [u8]| self.ahead.read(at, into);
        read_over(self.map, position + kept, rest, read)?;
        self.held = count;
        Ok(())
    }
}

fn in_bytes(blocks: usize) -> usize {
    blocks * BLOCK_BYTES
}

/// Reads blocks of the ring, over its end.
pub(super) fn read(
    disk: &impl Disk,
    map: &Map,
    position: u64,
    into: &mut [u8],
) -> std::io::Result<()> {
    read_over(map, position, into, &mut |at, into| disk.read(at, into))
}

fn read_over(
    map: &Map,
    position: u64,
    into: &mut [u8],
    read: &mut dyn FnMut(u64, &mut [u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (at, left) = map.in_ring(position);
    let (before, after) = into.split_at_mut(into.len().min(left as usize * BLOCK_BYTES));
    read(at, before)?;
    if after.is_empty() { Ok(()) } else { read(map.ring_at, after) }
}
