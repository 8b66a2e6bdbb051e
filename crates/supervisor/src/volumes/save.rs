//! Writes names, attributes and bytes that a program syncs to the log of a volume.
//!
//! ```text
//!   wishes ─► bytes of what took another's name ─► names that have changed
//!         ─► attributes and bytes of these files ─► log, durable
//!                                                            │ full
//!                                                            '──► checkpoint: the whole tree
//! ```
//!
//! Invariants
//! 1. Changes of names are one group, which a replay shows as a whole: how all names were at one
//!    moment.
//! 2. What is known to be in the log is noted before it is: after an error everything else goes
//!    through a checkpoint, which asks nothing of what is known.
//! 3. Snapshot and log together are never more than a snapshot may be: whatever a replay shows can
//!    be written as one.
//! 4. A name that led to one file leads to another only with all of that one's bytes: who replaces
//!    a file by a rename and syncs nothing has the old one or the new one. ext4 does so, too.
//! 5. Where a log takes the place of another one, both hold all that was acknowledged until it is
//!    durable which of them counts.
//! 6. A snapshot that is written at once has the bytes of every object that its names lead to:
//!    names are looked at last. One that is written beside syncs: `fuzzy`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use husk_carrier::Direct;
use husk_proto::volume::{Counter, Policy, Unsaved};
use husk_proto::{Errno, Fs as _, Inode, Overview as _, VolumeLog as _};
use husk_storage::area::Area;
use husk_storage::disk::Disk;
use husk_storage::log::{Counts, Log, Refusal, SnapshotWriter};
use husk_storage::tree::change::DATA_BYTES_MAX;
use husk_storage::tree::{Attributes, Change, Id, Kind, Writer, framed};

use super::facts::{attributes, differ, extended, id_of, inode_of};
use super::fuzzy::Fuzzy;
use super::look::{Names, Seen, Wanted};
use super::owed::Owed;

/// Rounds of a checkpoint before programs are held up for what is still missing.
const ROUNDS_MAX: u32 = 8;
/// Zeros are looked for in pieces of so many bytes.
const PAGE_BYTES: usize = 4096;
/// Bytes that nobody has synced, about, that one turn writes: whoever syncs waits for it.
const REST_BYTES_MAX: u64 = 16 << 20;
/// What a snapshot may take beside what its parts took in the log.
pub(super) const MARGIN_BYTES: u64 = 64 << 10;
/// A log that has used this part of its ring is due for a checkpoint.
pub(super) const DUE_PART: u64 = 2;

/// The tree, as its log knows it.
#[derive(Debug)]
pub(super) struct View {
    tree: u32,
    pub(super) root: Inode,
    pub(super) dirs: HashMap<Id, Names>,
    /// Attributes of all objects that have been in the log.
    pub(super) objects: HashMap<Id, Attributes>,
    /// Changes of names that are in the log; `None`: it is not known which.
    begun: Option<u64>,
}

/// What is to be made durable.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// These; `None`: everything.
    Wishes(&'a [Option<Inode>]),
    /// What nobody has asked for, as much as one turn writes.
    Rest,
}

/// A volume that is being written.
#[derive(Debug)]
pub struct Saver<D: Disk = Area> {
    pub(super) view: View,
    pub(super) log: Log<D>,
    /// Not all that is known is in the log.
    pub(super) is_behind: bool,
    /// A checkpoint that is being written beside syncs.
    pub(super) fuzzy: Option<Fuzzy>,
    pub(super) checkpoints: u64,
    /// What was done by the logs before this one.
    before: Counts,
    /// What is acknowledged and not durable yet.
    owed: Owed,
}

/// Where the volume is, for a log that is to be there instead of another one.
pub trait Place {
    /// From now on this log may count.
    fn take(&self) -> io::Result<()>;
    /// From now on the other one does not.
    fn settle(&self) -> io::Result<()>;
}

impl<D: Disk> Saver<D> {
    /// Begins to write the tree of `root`, volume `tree`, as it is now, to a log.
    pub fn begin(
        direct: &mut Direct,
        (tree, root): (u32, Inode),
        log: Log<D>,
    ) -> Result<Self, Refusal> {
        let (dirs, objects) = (HashMap::new(), HashMap::new());
        let view = View { tree, root, dirs, objects, begun: None };
        let (before, owed) = (Counts::default(), Owed::default());
        let (is_behind, fuzzy) = (true, None);
        let mut saver = Self { view, log, is_behind, fuzzy, checkpoints: 0, before, owed };
        saver.checkpoint(direct)?;
        Ok(saver)
    }

    /// Its number among the image's trees.
    pub fn tree(&self) -> u32 {
        self.view.tree
    }

    /// Whether a write has failed.
    pub fn is_stopped(&self) -> bool {
        self.log.is_stopped()
    }

    /// Says when what is asked for is to be durable.
    pub fn set_policy(&mut self, policy: Policy) {
        self.owed = Owed::new(policy);
    }

    /// Makes durable what is asked for; `None`: everything.
    pub fn save(&mut self, direct: &mut Direct, wishes: &[Option<Inode>]) -> Result<(), Refusal> {
        self.save_asked(direct, Asked::Wishes(wishes), true).map(drop)
    }

    /// The same as the policy says: with `async`, what is asked for has its place in the log when
    /// this returns, and is durable when `pay` has made it so. Who asks for everything waits.
    pub fn serve(
        &mut self,
        direct: &mut Direct,
        wishes: &[Option<Inode>],
        now_ns: &dyn Fn() -> u64,
    ) -> Result<(), Refusal> {
        if !self.owed.may_be() || wishes.iter().any(Option::is_none) {
            return self.save(direct, wishes);
        }
        let begun_ns = now_ns();
        if planted(Mutant::TakenLate) {
            self.owed.add(begun_ns);
            return self.pay(direct, now_ns());
        }
        self.save_asked(direct, Asked::Wishes(wishes), false)?;
        if self.log.durable() < self.log.appended() {
            self.owed.add(begun_ns);
        }
        self.pay(direct, now_ns())
    }

    /// Makes durable what is owed, where that is due.
    pub fn pay(&mut self, direct: &mut Direct, now_ns: u64) -> Result<(), Refusal> {
        if !self.owed.is_due(now_ns) || planted(Mutant::NeverPaid) {
            return Ok(());
        }
        if planted(Mutant::TakenLate) {
            return self.save(direct, &[None]);
        }
        self.flush()?;
        self.tell(direct);
        Ok(())
    }

    /// How long until something is due; `None`: nothing is owed.
    pub fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        self.owed.due_in_ns(now_ns)
    }

    fn flush(&mut self) -> Result<(), Refusal> {
        self.log.wait(self.log.appended())?;
        self.owed.pay();
        Ok(())
    }

    /// Makes durable a part of what nobody has synced; whether nothing is left. A file that is
    /// mapped to write to is left out: it would be written as a whole each time.
    pub fn save_rest(&mut self, direct: &mut Direct) -> Result<bool, Refusal> {
        self.save_asked(direct, Asked::Rest, true)
    }

    /// `flushes`: it is durable on return.
    fn save_asked(
        &mut self,
        direct: &mut Direct,
        asked: Asked<'_>,
        flushes: bool,
    ) -> Result<bool, Refusal> {
        let saved = match self.is_behind {
            true => Err(Refusal::Full),
            false => self.write(direct, asked, flushes),
        };
        let result = match saved {
            Err(Refusal::Stopped) => Err(Refusal::Stopped),
            Err(_) => {
                self.is_behind = true;
                self.checkpoint(direct).map(|()| true)
            }
            Ok(is_all) => Ok(is_all),
        };
        self.tell(direct);
        result
    }

    /// What the log is on.
    pub fn disk(&self) -> &D {
        self.log.disk()
    }

    /// Writes the whole tree to an empty log, and goes on in it once it has taken its place. On an
    /// error the old one goes on, or is stopped where nobody knows which of both counts.
    pub fn move_to(
        &mut self,
        direct: &mut Direct,
        log: Log<D>,
        place: &impl Place,
    ) -> Result<(), Errno> {
        // Invariant 2: what is taken of the marks is not in the old log.
        (self.is_behind, self.fuzzy) = (true, None);
        if planted(Mutant::PlaceTakenFirst) {
            place.take().map_err(|_| Errno::EIO)?;
        }
        let view = &mut self.view;
        let written = log.checkpoint(log.appended(), |writer| view.snapshot(direct, writer));
        written.map_err(|refusal| match refusal {
            Refusal::TooLong => Errno::EOVERFLOW,
            Refusal::Full => Errno::EAGAIN,
            Refusal::Stopped => Errno::EIO,
        })?;
        place.take().map_err(|_| Errno::EIO)?;
        // Invariant 5.
        let settled = place.settle();
        let done = self.log.counts();
        self.before.frames += done.frames;
        self.before.bytes += done.bytes;
        self.log = log;
        self.owed.pay();
        if settled.is_err() {
            self.log.abandon();
            return Err(Errno::EIO);
        }
        self.is_behind = false;
        self.checkpoints += 1;
        self.tell(direct);
        Ok(())
    }

    /// Ends the use of the log.
    pub fn close(self) -> Result<(), Refusal> {
        self.log.close()
    }

    fn tell(&self, direct: &mut Direct) {
        let (counts, (used, room)) = (self.log.counts(), self.log.used_bytes());
        let mut set = |counter, to| direct.volume_set_count(self.view.tree, counter, to);
        let (snapshot, snapshot_room) = self.log.snapshot_bytes();
        set(Counter::Flushes, self.before.frames + counts.frames);
        set(Counter::Bytes, self.before.bytes + counts.bytes);
        set(Counter::Snapshot, snapshot);
        set(Counter::SnapshotRoom, snapshot_room);
        set(Counter::Checkpoints, self.checkpoints);
        set(Counter::Used, used);
        set(Counter::Room, room);
    }

    /// Whether nothing of what was asked for is left.
    pub(super) fn write(
        &mut self,
        direct: &mut Direct,
        asked: Asked<'_>,
        flushes: bool,
    ) -> Result<bool, Refusal> {
        let mut writer = Writer::default();
        let seen = match planted(Mutant::NamesNotWritten) {
            true => None,
            false => self.view.look_at_names(direct)?,
        };
        let begun = seen.as_ref().map_or(self.view.begun, |seen| seen.begun);
        if let Some(mut seen) = seen {
            let replacing = self.view.replacing(&seen);
            for id in &replacing {
                self.push_object(direct, *id, &mut writer)?;
            }
            // What was written with its bytes is newer than what was seen with its name.
            seen.facts.retain(|id, _| !replacing.contains(id));
            self.view.push_names(&seen, &mut writer);
            writer.seal();
            self.view.note_seen(&seen);
        }
        let (files, is_all) = self.view.asked(direct, asked);
        for id in files {
            self.push_object(direct, id, &mut writer)?;
        }
        self.append_all(writer)?;
        if planted(Mutant::AnsweredFirst) {
            return Ok(is_all);
        }
        if flushes {
            self.flush()?;
        }
        self.view.begun = begun;
        Ok(is_all)
    }

    pub(super) fn append_all(&self, writer: Writer) -> Result<(), Refusal> {
        writer.finish().iter().try_for_each(|batch| append(&self.log, batch))
    }

    pub(super) fn push_object(
        &mut self,
        direct: &mut Direct,
        id: Id,
        writer: &mut Writer,
    ) -> Result<(), Refusal> {
        let (log, fuzzy) = (&self.log, &mut self.fuzzy);
        self.view.push_object(direct, id, &mut |change| {
            if let Some(fuzzy) = fuzzy {
                fuzzy.note(change);
            }
            writer.push(change);
            writer.seal();
            writer.take_full().iter().try_for_each(|batch| append(log, batch))
        })
    }

    /// Writes the whole tree at once.
    pub(super) fn checkpoint(&mut self, direct: &mut Direct) -> Result<(), Refusal> {
        self.fuzzy = None;
        let (view, log) = (&mut self.view, &self.log);
        log.checkpoint(log.appended(), |writer| view.snapshot(direct, writer))?;
        self.is_behind = false;
        self.count_checkpoint(direct);
        Ok(())
    }

    /// All that was appended is durable.
    pub(super) fn count_checkpoint(&mut self, direct: &mut Direct) {
        self.owed.pay();
        self.checkpoints += 1;
        self.tell(direct);
    }
}

/// Adds a batch, where a snapshot has room for it as well (invariant 3).
fn append(log: &Log<impl Disk>, batch: &[u8]) -> Result<(), Refusal> {
    let ((snapshot, room), (used, _)) = (log.snapshot_bytes(), log.used_bytes());
    if snapshot + used + batch.len() as u64 + MARGIN_BYTES > room {
        return Err(Refusal::Full);
    }
    log.append(batch).map(drop)
}

/// Errors of the image, where it cannot be looked at: nothing is known to be durable.
fn unseen(_: Errno) -> Refusal {
    Refusal::Full
}

/// What was asked of an object; `None`: it is gone, and no name leads there any more, or it is of a
/// kind that is not kept. Any other error is one: without an answer nothing counts as durable.
pub(super) fn found<T>(asked: Result<T, Errno>) -> Result<Option<T>, Refusal> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::ESTALE | Errno::EINVAL) => Ok(None),
        Err(errno) => Err(unseen(errno)),
    }
}

impl View {
    /// The objects that are asked for, and whether they are all.
    fn asked(&self, direct: &mut Direct, asked: Asked<'_>) -> (BTreeSet<Id>, bool) {
        let Asked::Wishes(wishes) = asked else { return self.rest(direct) };
        let files = match wishes.iter().any(Option::is_none) {
            true => self.objects.keys().copied().collect(),
            false => wishes.iter().flatten().map(|inode| id_of(*inode)).collect(),
        };
        (files, true)
    }

    fn rest(&self, direct: &mut Direct) -> (BTreeSet<Id>, bool) {
        let (mut files, mut bytes) = (BTreeSet::new(), 0);
        for &id in self.objects.keys() {
            let noted = direct.unsaved_look(inode_of(id));
            if bytes >= REST_BYTES_MAX {
                return (files, false);
            }
            if !noted.mapped {
                bytes += noted.bytes.1.saturating_sub(noted.bytes.0).min(REST_BYTES_MAX);
                files.insert(id);
            }
        }
        (files, true)
    }

    /// How names have changed; `None`: they have not.
    fn look_at_names(&self, direct: &mut Direct) -> Result<Option<Seen>, Refusal> {
        let (begun, ended) = direct.volume_names(self.tree);
        if self.begun == Some(begun) && begun == ended {
            return Ok(None);
        }
        let is_known = |id: Id| self.objects.contains_key(&id);
        let (tree, root, dirs) = (self.tree, self.root, &self.dirs);
        let all = self.begun.is_none();
        let wanted = Wanted { tree, root, dirs, is_known: &is_known, all };
        wanted.look(direct).map(Some).map_err(unseen)
    }

    /// Objects that names lead to which led to others before.
    fn replacing(&self, seen: &Seen) -> BTreeSet<Id> {
        if planted(Mutant::ReplacedUnwritten) {
            return BTreeSet::new();
        }
        let changed =
            seen.dirs.iter().filter_map(|(dir, names)| Some((self.dirs.get(dir)?, names)));
        let others = changed.flat_map(|(known, names)| {
            names.iter().filter(|(name, id)| known.get(*name).is_some_and(|other| other != *id))
        });
        others.map(|(_, id)| *id).collect()
    }

    fn push_names(&self, seen: &Seen, writer: &mut Writer) {
        for (&id, facts) in &seen.facts {
            facts.push(id, writer);
        }
        let none = Names::new();
        for (&dir, names) in &seen.dirs {
            let known = self.dirs.get(&dir).unwrap_or(&none);
            for name in known.keys().filter(|name| !names.contains_key(*name)) {
                writer.push(&Change::Gone(dir, name));
            }
            for (name, &id) in names.iter().filter(|(name, id)| known.get(*name) != Some(id)) {
                writer.push(&Change::Name(dir, name, id));
            }
        }
    }

    fn note_seen(&mut self, seen: &Seen) {
        let there: HashSet<Id> = seen.dirs.values().flat_map(BTreeMap::values).copied().collect();
        let mut gone = Vec::new();
        for (&dir, names) in &seen.dirs {
            let before = self.dirs.insert(dir, names.clone()).unwrap_or_default();
            gone.extend(before.into_values().filter(|id| !there.contains(id)));
        }
        // A directory has one name: without it, what was below is gone as well, or elsewhere.
        while let Some(id) = gone.pop() {
            let is_elsewhere = || there.contains(&id);
            if !is_elsewhere()
                && let Some(names) = self.dirs.remove(&id)
            {
                gone.extend(names.into_values());
            }
        }
        for (&id, facts) in &seen.facts {
            self.objects.insert(id, facts.attributes);
        }
    }

    /// Writes attributes and bytes of an object, as far as they are not in the log.
    fn push_object(
        &mut self,
        direct: &mut Direct,
        id: Id,
        push: &mut dyn FnMut(&Change<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let inode = inode_of(id);
        let noted = direct.unsaved_look(inode);
        let Some((now, _)) = found(attributes(direct, inode))? else { return Ok(()) };
        let known = self.objects.get(&id).copied();
        let is_same = known.is_some_and(|known| !differ(&known, &now));
        let is_file = now.kind == Kind::File;
        let is_noted = if is_file { noted.is_any() || noted.mapped } else { noted.extended };
        if is_same && !is_noted {
            return Ok(());
        }
        let taken = match is_file {
            true => found(direct.unsaved_take(inode))?.unwrap_or_default(),
            false => Unsaved { extended: true, ..direct.unsaved_take_extended(inode) },
        };
        let Some((now, size)) = found(attributes(direct, inode))? else { return Ok(()) };
        push(&Change::Node(id, now))?;
        if taken.extended || known.is_none() {
            let all = found(extended(direct, inode))?.unwrap_or_default();
            push(&Change::Bare(id))?;
            for (name, value) in &all {
                push(&Change::Extended(id, name, value))?;
            }
        }
        if is_file && !planted(Mutant::BytesNotWritten) {
            let bytes = if taken.mapped { (0, size) } else { taken.bytes };
            push_bytes(direct, (id, size), bytes, true, push)?;
        }
        self.objects.insert(id, now);
        Ok(())
    }

    /// Writes the whole tree.
    fn snapshot(
        &mut self,
        direct: &mut Direct,
        to: &mut SnapshotWriter<'_, impl Disk>,
    ) -> Result<(), Refusal> {
        let mut written = HashSet::new();
        for round in 0..=ROUNDS_MAX {
            let seen = self.look_at_all(direct)?;
            let missing = self.without_bytes(direct, &seen, &written);
            if missing.is_empty() {
                return self.put_names(seen, &written, to);
            }
            if round == ROUNDS_MAX {
                break;
            }
            for id in missing {
                put_bytes(direct, id, &mut written, to)?;
            }
        }
        // Files come faster than they can be written.
        Err(Refusal::Full)
    }

    fn look_at_all(&self, direct: &mut Direct) -> Result<Seen, Refusal> {
        let (tree, root, dirs) = (self.tree, self.root, &self.dirs);
        let wanted = Wanted { tree, root, dirs, is_known: &|_| false, all: true };
        wanted.look(direct).map_err(unseen)
    }

    /// Files whose bytes are not written: those that names lead to, and those without a name whose
    /// bytes are in the log.
    fn without_bytes(&self, direct: &Direct, seen: &Seen, written: &HashSet<Id>) -> Vec<Id> {
        let is_file = |kind: Kind| kind == Kind::File;
        let named = seen.facts.iter().filter(|(_, facts)| is_file(facts.attributes.kind));
        let nameless = self.objects.iter().filter(|(id, known)| {
            is_file(known.kind) && !seen.facts.contains_key(id) && direct.is_live(inode_of(**id))
        });
        let all = named.map(|(id, _)| *id).chain(nameless.map(|(id, _)| *id));
        all.filter(|id| !written.contains(id)).collect()
    }

    fn put_names(
        &mut self,
        seen: Seen,
        written: &HashSet<Id>,
        to: &mut SnapshotWriter<'_, impl Disk>,
    ) -> Result<(), Refusal> {
        let mut writer = Writer::default();
        writer.push(&Change::Root(id_of(self.root)));
        for (&id, facts) in &seen.facts {
            facts.push(id, &mut writer);
        }
        let names = seen.dirs.iter().flat_map(|(dir, names)| names.iter().map(move |n| (*dir, n)));
        names.for_each(|(dir, (name, id))| writer.push(&Change::Name(dir, name, *id)));
        put(writer.finish(), to)?;
        self.objects.retain(|id, _| written.contains(id));
        for (&id, facts) in &seen.facts {
            self.objects.insert(id, facts.attributes);
        }
        self.dirs = seen.dirs.into_iter().collect();
        self.begun = seen.begun;
        Ok(())
    }
}

/// Writes the bytes of a file to a snapshot, and how many they are.
fn put_bytes(
    direct: &mut Direct,
    id: Id,
    written: &mut HashSet<Id>,
    to: &mut SnapshotWriter<'_, impl Disk>,
) -> Result<(), Refusal> {
    let inode = inode_of(id);
    let taken = direct.unsaved_take(inode).and_then(|_| attributes(direct, inode));
    let Some((now, size)) = found(taken)? else { return Ok(()) };
    let mut writer = Writer::default();
    writer.push(&Change::Node(id, now));
    push_bytes(direct, (id, size), (0, size), false, &mut |change| {
        writer.push(change);
        writer.seal();
        put(writer.take_full(), to)
    })?;
    put(writer.finish(), to)?;
    written.insert(id);
    Ok(())
}

fn put(batches: Vec<Vec<u8>>, to: &mut SnapshotWriter<'_, impl Disk>) -> Result<(), Refusal> {
    batches.iter().try_for_each(|batch| to.write(&framed(batch)))
}

/// Writes bytes of a file that is `size` long; holes and pages of zeros only where there may be
/// other bytes. What takes time is what a file holds, not how long it is.
pub(super) fn push_bytes(
    direct: &mut Direct,
    (id, size): (Id, u64),
    (from, to): (u64, u64),
    zeros: bool,
    push: &mut dyn FnMut(&Change<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    push(&Change::Cut(id, size))?;
    let (mut at, end) = (from, to.min(size));
    let mut bytes = Vec::new();
    while at < end {
        let (data, hole) = data_behind(direct, id, at, end)?;
        if zeros && data > at {
            push(&Change::Zeros(id, at, data - at))?;
        }
        at = data;
        while at < hole {
            bytes.resize(DATA_BYTES_MAX.min((hole - at) as usize), 0);
            let got = found(direct.read_at(inode_of(id), at, &mut bytes))?.unwrap_or(0);
            if got == 0 {
                return push(&Change::Size(id, size));
            }
            let mut rest = &bytes[..got];
            while !rest.is_empty() {
                let (run, is_zero) = run_of(rest);
                match is_zero {
                    true if zeros => push(&Change::Zeros(id, at, run as u64))?,
                    true => {}
                    false => push(&Change::Data(id, at, &rest[..run]))?,
                }
                at += run as u64;
                rest = &rest[run..];
            }
        }
    }
    push(&Change::Size(id, size))
}

/// Where the first bytes between `at` and `end` begin that are in no hole, and where the next hole
/// does.
pub(super) fn data_behind(
    direct: &mut Direct,
    id: Id,
    at: u64,
    end: u64,
) -> Result<(u64, u64), Refusal> {
    let mut next = |from: u64, data| match direct.seek_data(inode_of(id), from, data) {
        Err(Errno::ENXIO) => Ok(end),
        other => Ok(found(other)?.map_or(end, |at| at.min(end))),
    };
    let data = next(at, true)?;
    Ok((data, if data < end { next(data, false)? } else { end }))
}

/// How many bytes at the beginning are pages of zeros, or are none, and which.
fn run_of(bytes: &[u8]) -> (usize, bool) {
    let is_zero = |page: &[u8]| page.iter().all(|&byte| byte == 0);
    let mut pages = bytes.chunks(PAGE_BYTES);
    let first = pages.next().is_some_and(is_zero);
    let more = pages.take_while(|page| is_zero(page) == first).map(<[u8]>::len).sum::<usize>();
    (bytes.len().min(PAGE_BYTES) + more, first)
}

/// Bugs that the tests plant, to see that they are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A sync of a file leaves out the names that lead to it.
    NamesNotWritten,
    /// It leaves out the bytes.
    BytesNotWritten,
    /// It is answered before its records are durable.
    AnsweredFirst,
    /// It writes a name that led to another file, and not the bytes of the new one.
    ReplacedUnwritten,
    /// Another log takes the place of one before the tree is in it.
    PlaceTakenFirst,
    /// What was acknowledged before it was durable is not made durable in time.
    NeverPaid,
    /// It is taken from the image when it is due, not when it is acknowledged.
    TakenLate,
    /// A checkpoint beside syncs takes the notes of what it reads.
    NotesTaken,
    /// It counts before the names of what was gone are taken from the log.
    GoneStillNamed,
    /// It does not log again what was cut off.
    CutNotLogged,
}

#[cfg(test)]
impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 10] = [
        Self::NamesNotWritten,
        Self::BytesNotWritten,
        Self::AnsweredFirst,
        Self::ReplacedUnwritten,
        Self::PlaceTakenFirst,
        Self::NeverPaid,
        Self::TakenLate,
        Self::NotesTaken,
        Self::GoneStillNamed,
        Self::CutNotLogged,
    ];
}

#[cfg(test)]
thread_local! {
    /// What is planted in this thread.
    pub static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether a test has planted this bug in this thread.
pub(super) fn planted(mutant: Mutant) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(mutant);
    #[cfg(not(test))]
    {
        let _ = mutant;
        false
    }
}
