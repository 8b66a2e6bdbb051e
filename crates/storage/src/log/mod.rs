//! The log of a volume: records that are durable in the order in which they were appended.
//!
//! ```text
//!   append ─► group that gathers ─► frame, one durable write ─► wait returns
//!                  '── whoever waits first writes it; others that wait come with the next one
//!
//!   ring    | ... freed | start | frame | frame | frame | head ...        replay: start to head
//!                           '── a checkpoint moves it behind what its snapshot covers
//! ```
//!
//! Invariants
//! 1. A record counts as durable when its frame's write has returned, never before; and a frame is
//!    written only when all before it are durable. So after a crash at most the last one is torn.
//! 2. A block that holds what counts is not written again until a durable root frees it.
//! 3. After an error of a write or a flush the log stops: it is not tried again, whoever waits gets
//!    the error, and nothing more is appended. What is in memory can still be read.
//! 4. A replay shows a prefix of what was appended, with all that was durable, or says where the
//!    log is damaged. Bytes that a frame does not vouch for are shown to nobody.
//! 5. The ring is bounded, and so is a replay; an append to a full ring fails.
//!
//! What is lost in silence: the last frame alone, where it rots after it was written and before the
//! log was closed. It cannot be told from one that a loss of power has torn.

mod ahead;
mod frame;
mod replay;
mod root;
mod snapshot;

#[cfg(test)]
mod crashes;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::Uuid;
use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk};
use frame::{Head, Kind, RECORD_HEAD_BYTES};
use replay::Replayed;
pub use replay::{Damage, Found, check};
use root::{Map, Mark, Root, Snapshot};
pub use snapshot::{Draft, SnapshotWriter};

/// Longest record.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Most that one frame holds: a record of any length at least.
const FRAME_PAYLOAD_BYTES_MAX: usize = RECORD_BYTES_MAX + RECORD_HEAD_BYTES;
/// Fewest bytes that a log can be in.
pub const LOG_BYTES_MIN: u64 = 16 * BLOCK;
/// How long one sleep waits for another's commit before it looks again.
const LOOK: Duration = Duration::from_secs(1);

/// Number of a record: 1 is the first of a volume; 0, none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    fn after(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

/// Why a record is not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The ring has no room for it: a checkpoint makes some.
    Full,
    /// It, or the snapshot, is longer than may be.
    TooLong,
    /// A write or a flush has failed, then or earlier.
    Stopped,
}

impl Refusal {
    /// What a program is told.
    pub fn errno(self) -> Errno {
        match self {
            Self::Full => Errno::NOSPC,
            Self::TooLong => Errno::FBIG,
            Self::Stopped => Errno::IO,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the log is full",
            Self::TooLong => "longer than the log takes",
            Self::Stopped => "a write to the log has failed",
        })
    }
}

impl std::error::Error for Refusal {}

/// What has been done by a log since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that became durable.
    pub records: u64,
    /// Frames that brought them: one flush each, or with the ring's end in it, one as well.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// An open log. Threads share it.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    map: Map,
    uuid: Uuid,
    epoch: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Where frames are put together, by whoever commits.
    frame: Mutex<Aligned>,
    /// One checkpoint at a time; how many drafts there were.
    checkpoint: Mutex<u64>,
}

#[derive(Debug)]
struct State {
    /// The group that gathers.
    pending: Vec<u8>,
    /// Room for the next one.
    spare: Vec<u8>,
    pending_records: u64,
    /// First record of that group.
    next: Lsn,
    durable: Lsn,
    is_committing: bool,
    /// Threads that wait for who writes.
    waiting: u32,
    is_stopped: bool,
    /// Block that the next frame begins at, and the checksum of the last one.
    head: u64,
    previous: u64,
    /// Frames from the start on, the one that is being written too.
    frames: VecDeque<Mark>,
    root: Root,
    counts: Counts,
}

impl State {
    /// The place of the next frame.
    fn mark(&self) -> Mark {
        Mark { position: self.head, lsn: self.next, previous: self.previous }
    }

    /// The last record that was appended.
    fn last(&self) -> Lsn {
        Lsn(self.next.0 + self.pending_records - 1)
    }

    /// Behind the last block that is taken, also by the group that gathers.
    fn end(&self) -> u64 {
        self.head + if self.pending.is_empty() { 0 } else { frame::blocks(self.pending.len()) }
    }

    /// Where a replay begins that needs record `needed`: at the last frame that begins at or before
    /// it.
    fn start_for(&self, needed: Lsn) -> Mark {
        // None is needed where the last one ends right before it.
        let covered = self.next <= needed && !self.is_committing;
        let begins = self.frames.iter().rev().find(|mark| mark.lsn <= needed).copied();
        begins.filter(|_| !covered).unwrap_or(self.mark())
    }
}

/// A group that is on its way.
struct Group {
    mark: Mark,
    records: u64,
    payload: Vec<u8>,
}

impl<D: Disk> Log<D> {
    /// Makes an empty log in the bytes from `begin` to `end`.
    pub fn format(disk: &D, begin: u64, end: u64, uuid: Uuid) -> io::Result<()> {
        assert!(end - begin >= LOG_BYTES_MIN, "too small for a log");
        let map = Map::new(begin, end);
        let start = Mark { position: 0, lsn: Lsn(1), previous: 0 };
        let snapshot = Snapshot { slot: 1, lsn: Lsn(0), blocks: 0, checksum: 0 };
        [1, 2].into_iter().try_for_each(|generation| {
            let root = Root { generation, start, durable: Lsn(0), snapshot };
            root::write(disk, &map, uuid, &root)
        })
    }

    /// Opens the log in the bytes from `begin` to `end` for the user with this `epoch`: `found` is
    /// given the snapshot part by part, then each record behind it. On an error, what it was given
    /// does not count.
    pub fn open(
        disk: D,
        (begin, end): (u64, u64),
        (uuid, epoch): (Uuid, u64),
        mut found: impl FnMut(Found<'_>),
    ) -> Result<(Self, Vec<Damage>), Damage> {
        let map = Map::new(begin, end);
        let replayed = replay::run(&disk, &map, uuid, epoch, &mut found)?;
        settle(&disk, &map, uuid, &replayed).map_err(|_| Damage::unsettled(begin))?;
        let state = State {
            pending: Vec::new(),
            spare: Vec::new(),
            pending_records: 0,
            next: replayed.end.lsn,
            durable: Lsn(replayed.end.lsn.0 - 1),
            is_committing: false,
            waiting: 0,
            is_stopped: false,
            head: replayed.end.position,
            previous: replayed.end.previous,
            frames: replayed.frames,
            root: replayed.root,
            counts: Counts::default(),
        };
        let (changed, checkpoint) = (Condvar::new(), Mutex::new(0));
        let (state, frame) = (Mutex::new(state), Mutex::new(Aligned::zeroed(BLOCK_BYTES)));
        let log = Self { disk, map, uuid, epoch, state, changed, frame, checkpoint };
        Ok((log, replayed.notes))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a record. It is durable once `wait` for its number has returned.
    pub fn append(&self, record: &[u8]) -> Result<Lsn, Refusal> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        let bytes = RECORD_HEAD_BYTES + record.len();
        let mut state = self.state();
        // A group that is full goes first.
        while !state.is_stopped && state.pending.len() + bytes > FRAME_PAYLOAD_BYTES_MAX {
            state = self.step(state);
        }
        if state.is_stopped {
            return Err(Refusal::Stopped);
        }
        let end = state.head + frame::blocks(state.pending.len() + bytes);
        if end - state.root.start.position > self.map.ring_blocks {
            return Err(Refusal::Full);
        }
        frame::push_record(&mut state.pending, record);
        state.pending_records += 1;
        Ok(state.last())
    }

    /// Waits until all records up to `lsn` are durable; writes them itself where nobody else does.
    pub fn wait(&self, lsn: Lsn) -> Result<(), Refusal> {
        let mut state = self.state();
        assert!(lsn <= state.last(), "nobody has appended it");
        while state.durable < lsn {
            if state.is_stopped {
                return Err(Refusal::Stopped);
            }
            state = self.step(state);
        }
        Ok(())
    }

    /// Brings the log nearer to its end: writes the group that gathers, or waits for who writes.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.is_committing {
            state.waiting += 1;
            let waited = self.changed.wait_timeout(state, LOOK);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            return state;
        }
        let spare = std::mem::take(&mut state.spare);
        let mut group = Group {
            mark: state.mark(),
            records: std::mem::take(&mut state.pending_records),
            payload: std::mem::replace(&mut state.pending, spare),
        };
        state.is_committing = true;
        state.head += frame::blocks(group.payload.len());
        state.next = state.next.after(group.records);
        state.frames.push_back(group.mark);
        if planted(Mutant::AcknowledgedFirst) {
            state.durable = Lsn(state.next.0 - 1);
        }
        drop(state);
        let written = self.write(&group);
        let mut state = self.state();
        state.is_committing = false;
        match written {
            Ok(checksum) => {
                state.previous = checksum;
                state.durable = Lsn(state.next.0 - 1);
                state.counts.records += group.records;
                state.counts.frames += 1;
                state.counts.bytes += frame::blocks(group.payload.len()) * BLOCK;
            }
            // Invariant 3.
            Err(_) => state.is_stopped = true,
        }
        group.payload.clear();
        state.spare = group.payload;
        // It costs a call of the host though nobody waits.
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        state
    }

    /// Writes a frame, durable on return; its checksum.
    fn write(&self, group: &Group) -> io::Result<u64> {
        let mark = group.mark;
        let head = Head {
            kind: Kind::Records,
            uuid: self.uuid,
            position: mark.position,
            epoch: self.epoch,
            lsn: mark.lsn,
            count: group.records as u32,
            previous: mark.previous,
        };
        let length = frame::blocks(group.payload.len()) as usize * BLOCK_BYTES;
        let mut room = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        if room.len() < length {
            *room = Aligned::zeroed(length);
        }
        let bytes = &mut room[..length];
        let checksum = frame::encode(&head, &group.payload, bytes);
        let written = match put(&self.disk, &self.map, mark.position, bytes) {
            Err(_) if planted(Mutant::FlushRetried) => self.disk.flush(),
            other => other,
        };
        written.map(|()| checksum)
    }

    /// Frees the ring up to `lsn`: `write` writes a snapshot that covers all records up to it, and
    /// none behind; none is older than the one before. Others go on appending meanwhile.
    pub fn checkpoint(
        &self,
        lsn: Lsn,
        write: impl FnOnce(&mut SnapshotWriter<'_, D>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut drafts = self.drafts();
        let mut draft = self.draft(lsn, &mut drafts)?;
        let mut writer = SnapshotWriter::new(self, &mut draft);
        write(&mut writer).map_err(|refusal| self.stopped_by(refusal))?;
        self.finish_draft(draft)
    }

    /// The same in steps, between which the caller does other things: all records up to `lsn` are
    /// durable on return. Any later checkpoint takes the draft's place.
    pub fn begin_draft(&self, lsn: Lsn) -> Result<Draft, Refusal> {
        self.draft(lsn, &mut self.drafts())
    }

    /// Writes more of a draft.
    pub fn write_draft(&self, draft: &mut Draft, bytes: &[u8]) -> Result<(), Refusal> {
        self.is_latest(draft, &self.drafts())?;
        let written = SnapshotWriter::new(self, draft).write(bytes);
        written.map_err(|refusal| self.stopped_by(refusal))
    }

    /// A snapshot counts from now on that may show more than the records up to its own: all that it
    /// shows is durable in the log, so that a replay of what is behind its record ends as the
    /// records do.
    pub fn end_draft(&self, draft: Draft) -> Result<(), Refusal> {
        let drafts = self.drafts();
        self.is_latest(&draft, &drafts)?;
        self.wait(self.appended())?;
        self.finish_draft(draft)
    }

    fn drafts(&self) -> MutexGuard<'_, u64> {
        self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_latest(&self, draft: &Draft, drafts: &MutexGuard<'_, u64>) -> Result<(), Refusal> {
        if draft.number() == **drafts { Ok(()) } else { Err(Refusal::Full) }
    }

    fn draft(&self, lsn: Lsn, drafts: &mut MutexGuard<'_, u64>) -> Result<Draft, Refusal> {
        if self.is_stopped() {
            return Err(Refusal::Stopped);
        }
        // A snapshot must not show what a crash may still take.
        self.wait(lsn)?;
        let before = self.state().root.snapshot;
        assert!(before.lsn <= lsn, "what is behind it may be gone");
        **drafts += 1;
        Ok(Draft::new(1 - before.slot, lsn, **drafts))
    }

    /// Invariant 3.
    fn stopped_by(&self, refusal: Refusal) -> Refusal {
        if refusal == Refusal::Stopped { self.stop() } else { refusal }
    }

    fn finish_draft(&self, mut draft: Draft) -> Result<(), Refusal> {
        let needed = Lsn(draft.lsn().0 + 1);
        let written = SnapshotWriter::new(self, &mut draft).finish();
        let snapshot = written.map_err(|refusal| self.stopped_by(refusal))?;
        self.put_root(|state| {
            state.root.start = state.start_for(needed);
            state.root.snapshot = snapshot;
            state.counts.checkpoints += 1;
        })
    }

    /// How many bytes of the ring a replay needs from the record behind `lsn` on.
    pub fn bytes_behind(&self, lsn: Lsn) -> u64 {
        let state = self.state();
        (state.end() - state.start_for(Lsn(lsn.0 + 1)).position) * BLOCK
    }

    /// Ends the use of the log, see `finish`; its area is free then.
    pub fn close(self) -> Result<(), Refusal> {
        self.finish()
    }

    /// Makes durable what was appended, and where it ends. A loss of the last frame is noticed
    /// then, too.
    pub fn finish(&self) -> Result<(), Refusal> {
        let last = self.state().last();
        self.wait(last)?;
        self.put_root(|_| ())
    }

    /// Writes the next root, with what `change` makes of it; the ring is freed once it is durable.
    fn put_root(&self, change: impl FnOnce(&mut State)) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.is_stopped {
            return Err(Refusal::Stopped);
        }
        let before = state.root;
        change(&mut state);
        let generation = before.generation + 1;
        let root = Root { generation, durable: state.durable, ..state.root };
        state.root = before;
        drop(state);
        if root::write(&self.disk, &self.map, self.uuid, &root).is_err() {
            return Err(self.stop());
        }
        let mut state = self.state();
        state.root = root;
        while state.frames.front().is_some_and(|mark| mark.position < root.start.position) {
            state.frames.pop_front();
        }
        Ok(())
    }

    /// Invariant 3.
    fn stop(&self) -> Refusal {
        self.state().is_stopped = true;
        self.changed.notify_all();
        Refusal::Stopped
    }

    /// How many bytes the snapshot takes that a replay would begin with, and how many one may.
    pub fn snapshot_bytes(&self) -> (u64, u64) {
        (self.state().root.snapshot.blocks * BLOCK, self.map.snapshot_blocks * BLOCK)
    }

    /// Stops it as after a failed write: what is on the disk is not certain for another reason.
    pub fn abandon(&self) {
        self.stop();
    }

    /// What it is on.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The last record that was appended.
    pub fn appended(&self) -> Lsn {
        self.state().last()
    }

    /// All records up to this one are durable.
    pub fn durable(&self) -> Lsn {
        self.state().durable
    }

    /// Whether a write or a flush has failed.
    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// How many bytes of the ring would be replayed now, and how many there are.
    pub fn used_bytes(&self) -> (u64, u64) {
        let state = self.state();
        let used = state.end() - state.root.start.position;
        (used * BLOCK, self.map.ring_blocks * BLOCK)
    }

    /// What has been done so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }
}

/// Writes whole blocks of the ring, over its end, durable on return.
fn put(disk: &impl Disk, map: &Map, position: u64, bytes: &[u8]) -> io::Result<()> {
    let (at, left) = map.in_ring(position);
    let (before, after) = bytes.split_at(bytes.len().min(left as usize * BLOCK_BYTES));
    if after.is_empty() && !planted(Mutant::NoFlush) {
        return disk.write_durable(at, before);
    }
    disk.write(at, before)?;
    if !after.is_empty() {
        disk.write(map.ring_at, after)?;
    }
    if planted(Mutant::NoFlush) { Ok(()) } else { disk.flush() }
}

/// Writes again what a replay has shown and what may not be durable: the root, and the last frame.
/// Who wrote them may have been killed before the disk said so, or the disk may have said that it
/// could not; a flush would not help then. The same bytes go over themselves, so a tear does no
/// harm.
fn settle(disk: &impl Disk, map: &Map, uuid: Uuid, replayed: &Replayed) -> io::Result<()> {
    if planted(Mutant::OpenedUnsettled) {
        return Ok(());
    }
    root::write(disk, map, uuid, &replayed.root)?;
    let Some(last) = replayed.frames.back() else { return Ok(()) };
    if replayed.end.lsn.0 - 1 <= replayed.root.durable.0 {
        return Ok(());
    }
    let blocks = (replayed.end.position - last.position) as usize;
    let mut bytes = Aligned::zeroed(blocks * BLOCK_BYTES);
    replay::read(disk, map, last.position, &mut bytes)?;
    put(disk, map, last.position, &bytes)
}

/// Bugs that tests plant, to see that the crash tests find them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// A frame is written, not flushed.
    NoFlush,
    /// Frames count whatever their checksum is.
    NoChecksum,
    /// What is behind a damaged frame counts.
    NoPrefixRule,
    /// After an error, another flush decides.
    FlushRetried,
    /// A record counts as durable before its frame is written.
    AcknowledgedFirst,
    /// A replay shows what a loss of power may still take.
    OpenedUnsettled,
    /// A root is written before its snapshot is durable.
    RootFirst,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether a test has planted this bug in this thread.
fn planted(mutant: Mutant) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(mutant);
    #[cfg(not(test))]
    {
        let _ = mutant;
        false
    }
}
