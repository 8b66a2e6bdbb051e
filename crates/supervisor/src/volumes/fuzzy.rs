//! A checkpoint beside syncs: the snapshot is written in slices, and the log goes on between them.
//!
//! ```text
//!   record L ─► slice ─ syncs ─ slice ─ syncs ─ ... ─► names, durable ─► root: replay from L on
//! ```
//!
//! The snapshot is how no moment was: each part is from another one. But each record says what is
//! there afterwards, so a replay of all records behind L ends as they do (a fuzzy checkpoint, as of
//! Mohan et al., ARIES, 1992).
//!
//! Invariants
//! 1. Whatever changes behind L and is acknowledged is in the log behind L: a slice takes no note
//!    of what is not saved.
//! 2. Names are those that the log knows; all records that the snapshot shows are durable before it
//!    counts.
//! 3. An object that is gone when its slice comes has no name in the log when the snapshot counts.
//! 4. A file that the snapshot shows shorter than a record behind L is logged once more: else its
//!    end would come back as zeros.
//! 5. The log goes on filling up: slices are written as fast as that.

use std::collections::HashMap;
use std::ops::Bound;

use husk_carrier::Direct;
use husk_proto::VolumeLog as _;
use husk_storage::disk::Disk;
use husk_storage::log::{Draft, Refusal};
use husk_storage::tree::{Change, Id, Kind, Writer, framed};

use super::facts::{Facts, attributes, id_of, inode_of};
use super::save::{
    Asked, DUE_PART, MARGIN_BYTES, Mutant, Saver, View, data_behind, found, planted, push_bytes,
};

/// Objects of one slice, at most.
const OBJECTS_MAX: usize = 256;
/// Names of a directory that are written at once.
const NAMES_MAX: usize = 1024;
/// A snapshot is written before this part of what the log had room for is used.
const PACE: (u64, u64) = (3, 4);

/// A checkpoint that is under way.
#[derive(Debug)]
pub struct Fuzzy {
    draft: Draft,
    /// Objects that are not in it yet.
    todo: Vec<Id>,
    /// The one that the last slice ended in.
    rest: Option<(Id, Part)>,
    /// Files that were logged since it began, with their greatest lengths in these records.
    logged: HashMap<Id, u64>,
    /// What of the log's ring was in use then.
    used_bytes: u64,
    /// How long the snapshot will be, about.
    likely_bytes: u64,
}

/// How much of an object is written.
#[derive(Debug, Clone)]
enum Part {
    None,
    /// Bytes up to there.
    Bytes(u64),
    /// Names up to this one.
    Names(Vec<u8>),
}

impl Fuzzy {
    /// A change goes to the log.
    pub fn note(&mut self, change: &Change<'_>) {
        if let Change::Size(id, size) = *change {
            let longest = self.logged.entry(id).or_default();
            *longest = size.max(*longest);
        }
    }

    /// Invariant 5: whether the log fills up faster, of whose `room` so much is `used`.
    fn is_late(&self, used: u64, room: u64) -> bool {
        let filled = u128::from(used.saturating_sub(self.used_bytes));
        let room = room.saturating_sub(self.used_bytes) * PACE.0 / PACE.1;
        u128::from(self.draft.bytes()) * u128::from(room) < filled * u128::from(self.likely_bytes)
    }
}

impl<D: Disk> Saver<D> {
    /// Goes on with a checkpoint, where one is due or has begun, by about `slice_bytes`; whether
    /// there is more to do.
    pub fn go_on(&mut self, direct: &mut Direct, slice_bytes: u64) -> bool {
        let (used, room) = self.log_room();
        let is_due = used > room / DUE_PART;
        if self.is_behind || (self.fuzzy.is_none() && !is_due) {
            return false;
        }
        match self.slices(direct, slice_bytes) {
            Ok(is_left) => is_left,
            Err(_) => {
                // What it has taken may not be in the log: all that is there is written at once.
                if self.checkpoint(direct).is_err() {
                    self.is_behind = true;
                }
                false
            }
        }
    }

    /// What the log uses and may use: its ring, as far as a snapshot has room for it as well.
    fn log_room(&self) -> (u64, u64) {
        let ((used, ring), (snapshot, room)) = (self.log.used_bytes(), self.log.snapshot_bytes());
        (used, ring.min(room.saturating_sub(snapshot + MARGIN_BYTES)))
    }

    /// Begins a checkpoint whether it is due or not.
    pub fn begin_fuzzy(&mut self) -> Result<(), Refusal> {
        let (used_bytes, (snapshot, _)) = (self.log.used_bytes().0, self.log.snapshot_bytes());
        let draft = self.log.begin_draft(self.log.appended())?;
        let todo = self.view.objects.keys().copied().collect();
        let (rest, logged, likely_bytes) = (None, HashMap::new(), snapshot + used_bytes);
        let mut fuzzy = Fuzzy { draft, todo, rest, logged, used_bytes, likely_bytes };
        let mut writer = Writer::default();
        writer.push(&Change::Root(id_of(self.view.root)));
        self.put_batches(&mut fuzzy, writer)?;
        self.fuzzy = Some(fuzzy);
        Ok(())
    }

    fn slices(&mut self, direct: &mut Direct, slice_bytes: u64) -> Result<bool, Refusal> {
        if self.fuzzy.is_none() {
            self.begin_fuzzy()?;
        }
        while let Some(mut fuzzy) = self.fuzzy.take() {
            if !self.slice(direct, &mut fuzzy, slice_bytes)? {
                self.finish(direct, fuzzy)?;
                return Ok(false);
            }
            let (used, room) = self.log_room();
            if !self.fuzzy.insert(fuzzy).is_late(used, room) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes some more; whether there is more.
    fn slice(
        &mut self,
        direct: &mut Direct,
        fuzzy: &mut Fuzzy,
        slice_bytes: u64,
    ) -> Result<bool, Refusal> {
        let mut writer = Writer::default();
        for _ in 0..OBJECTS_MAX {
            let left = slice_bytes.saturating_sub(writer.bytes() as u64);
            let next = || Some((fuzzy.todo.pop()?, Part::None));
            let Some((id, part)) = fuzzy.rest.take().or_else(next) else { break };
            if left == 0 {
                fuzzy.rest = Some((id, part));
                break;
            }
            let part = self.view.push_part(direct, (id, part), left, &mut writer)?;
            match part {
                None => self.log_what_was_cut(direct, fuzzy, id)?,
                Some(part) => fuzzy.rest = Some((id, part)),
            }
        }
        self.put_batches(fuzzy, writer)?;
        Ok(fuzzy.rest.is_some() || !fuzzy.todo.is_empty())
    }

    fn put_batches(&self, fuzzy: &mut Fuzzy, writer: Writer) -> Result<(), Refusal> {
        let batches = writer.finish();
        batches.iter().try_for_each(|batch| self.log.write_draft(&mut fuzzy.draft, &framed(batch)))
    }

    /// Invariant 4.
    fn log_what_was_cut(
        &mut self,
        direct: &mut Direct,
        fuzzy: &Fuzzy,
        id: Id,
    ) -> Result<(), Refusal> {
        let Some(&longest) = fuzzy.logged.get(&id) else { return Ok(()) };
        let Some((_, size)) = found(attributes(direct, inode_of(id)))? else { return Ok(()) };
        if size >= longest || planted(Mutant::CutNotLogged) {
            return Ok(());
        }
        let mut writer = Writer::default();
        self.push_object(direct, id, &mut writer)?;
        self.append_all(writer)
    }

    /// The snapshot counts from now on.
    fn finish(&mut self, direct: &mut Direct, fuzzy: Fuzzy) -> Result<(), Refusal> {
        // Invariants 2 and 3.
        if !planted(Mutant::GoneStillNamed) {
            self.write(direct, Asked::Wishes(&[]), true)?;
        }
        let (behind, (_, room)) =
            (self.log.bytes_behind(fuzzy.draft.lsn()), self.log.snapshot_bytes());
        // Whatever a replay shows can be written as one snapshot.
        if fuzzy.draft.bytes() + behind + MARGIN_BYTES > room {
            return Err(Refusal::Full);
        }
        self.log.end_draft(fuzzy.draft)?;
        self.count_checkpoint(direct);
        Ok(())
    }
}

impl View {
    /// Writes some of an object, as it is now; how much of it, `None`: all.
    fn push_part(
        &mut self,
        direct: &mut Direct,
        (id, part): (Id, Part),
        most_bytes: u64,
        writer: &mut Writer,
    ) -> Result<Option<Part>, Refusal> {
        let inode = inode_of(id);
        let Some(facts) = found(Facts::of(direct, inode))? else {
            // Invariant 3.
            self.objects.remove(&id);
            return Ok(None);
        };
        if planted(Mutant::NotesTaken) {
            let _ = direct.unsaved_take(inode);
        }
        let from = match part {
            Part::None => {
                facts.push(id, writer);
                0
            }
            Part::Bytes(at) => at,
            Part::Names(last) => return Ok(self.push_some_names(id, &last, writer)),
        };
        match facts.attributes.kind {
            Kind::File => push_some_bytes(direct, id, (from, most_bytes), writer),
            Kind::Directory => Ok(self.push_some_names(id, b"", writer)),
            _ => Ok(None),
        }
    }

    /// Names behind `last`, as the log knows them.
    fn push_some_names(&self, dir: Id, last: &[u8], writer: &mut Writer) -> Option<Part> {
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        let names = self.dirs.get(&dir)?.range::<[u8], _>(behind).take(NAMES_MAX);
        let mut pushed = None;
        for (count, (name, id)) in names.enumerate() {
            writer.push(&Change::Name(dir, name, *id));
            writer.seal();
            pushed = (count + 1 == NAMES_MAX).then(|| Part::Names(name.clone()));
        }
        pushed
    }
}

/// Bytes of a file, about so many.
fn push_some_bytes(
    direct: &mut Direct,
    id: Id,
    (from, most_bytes): (u64, u64),
    writer: &mut Writer,
) -> Result<Option<Part>, Refusal> {
    let Some((_, size)) = found(attributes(direct, inode_of(id)))? else { return Ok(None) };
    let (data, hole) =
        if from < size { data_behind(direct, id, from, size)? } else { (size, size) };
    let to = hole.min(data + most_bytes);
    push_bytes(direct, (id, size), (data, to), false, &mut |change| {
        writer.push(change);
        writer.seal();
        Ok(())
    })?;
    Ok((to < size).then_some(Part::Bytes(to)))
}
