//! Second half of a write-back: renames new files into place, then removes what the image removed.
//!
//! ```text
//!   make (temporary names) -> sync -> manifest -> times and modes of what is moved or linked
//!     -> rename into place -> rename what goes away
//!     -> sync -> remove what is old -> times and modes -> sync
//! ```
//!
//! All of it between opening and closing the directories their owner made unwritable (`unlock`).
//!
//! Invariants
//! 1. A rename into place is atomic: at each moment a name leads to the complete old or the
//!    complete new object.
//! 2. Deletions come after all renames, so that a moved file has its new name before it loses the
//!    old one. A crash in between leaves both.
//! 3. Whatever is not, at the very moment, what the plan expected stays, and is reported.
//! 4. Nothing old goes (replaced or deleted) before the disk has everything new, nor while
//!    something that was made of it, or is to take its place, could not be made.
//! 5. An object that cannot be removed whole gets its name back, or its temporary name is reported.
//! 6. What was made is known by its identity: what has its temporary name, or its name afterwards,
//!    and is another thing, is somebody else's. Then the image's is saved, and that is reported.
//! 7. A replaced or removed object loses its name before the last check of it: if somebody
//!    changes it in between, its name is restored.
//! 8. An object that has no name and no rescue keeps its temporary name, and the manifest stays
//!    to be recovered. Where there is neither, the image stays.

pub mod detach;
pub(super) mod grow;
mod lose;
pub mod make;
mod rights;
mod ruled;
mod small;
mod steps;
mod withheld;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use husk_proto::Inode;
use husk_proto::fs::{HostIdentity, Rights};
use rustix::fs::RenameFlags;

use self::lose::{LOST, Loss};
use self::make::{Kept, Made, Maker, TAKEN};
use self::steps::Prepared;
use super::git::lock;
use super::host;
use super::host::below::Below;
use super::host::beneath::{Beneath, Glance, Object as Which, lacks_flag};
use super::host::extended;
use super::host::numbers::Numbers;
use super::host::unlock::Unlocked;
use super::host::unsynced::Unsynced;
use super::moved;
use super::plan::derived;
use super::plan::{Delete, Put, Taken, Touch, beside};
use super::record::ledger::Ledger;
use super::record::manifest::Manifest;
use super::rescue::Rescue;
use super::{Outcome, Source, plan::Plan};
use crate::output::typed::typed;

/// What is said of content that found no room anywhere where the image stays.
const IN_THE_IMAGE: &str = "; the image keeps it";

/// Carries plans out.
pub struct Commit<'a, S> {
    /// The way to the host.
    pub beneath: &'a Beneath,
    /// The image.
    pub source: &'a mut S,
    /// Where is saved what takes no name.
    pub rescue: &'a mut Rescue,
    /// Number of this run.
    pub number: u32,
    /// Temporary names.
    pub names: &'a mut host::Names,
    /// What happened.
    pub outcome: &'a mut Outcome,
    /// Directories whose names changed.
    pub directories: BTreeSet<PathBuf>,
    /// Directories that are writable just for this.
    pub unlocked: &'a mut Unlocked,
    /// What the making has left to know.
    pub kept: Kept,
    /// Programs go on: what takes no name now is still in the image.
    pub live: bool,
    /// What is to go when everything new has its name.
    pub olds: Vec<Old>,
    /// What has been seen under a name: the one that it was to have, and the one it has.
    pub placed: Vec<(PathBuf, PathBuf)>,
    /// What happens is noted.
    pub noted: bool,
    /// The manifest is to stay (invariant 8).
    pub unsettled: bool,
    /// Files that have grown.
    pub unsynced: Unsynced,
    /// How long to wait for git yet.
    pub patience: Duration,
    /// See `Plan::below`.
    pub below: &'a HashMap<PathBuf, Below>,
    /// See `Plan::rights`.
    pub rights: &'a HashMap<Which, Rights>,
}

/// What has lost its name, and is still there under another one.
#[derive(Debug)]
pub struct Old {
    /// Where it is.
    pub(super) temporary: PathBuf,
    /// The name it had.
    target: PathBuf,
    /// What it is.
    expected: HostIdentity,
    /// What has its name now; `None`: nothing.
    by: Option<Which>,
}

impl<S: Source> Commit<'_, S> {
    /// All that is `prepared`, phase by phase.
    fn carry_out(
        &mut self,
        prepared: &Prepared<'_>,
        ledger: &Ledger,
        manifest: &mut Option<Manifest>,
    ) {
        let Prepared { plan, made, goings } = *prepared;
        std::mem::take(&mut self.kept.touches).iter().for_each(|touch| self.touch(touch));
        let all = plan.puts.iter().zip(made);
        let all = all.filter_map(|(put, made)| Some((put, made.as_ref()?)));
        let grows = |(_, made): &(&Put, &Made)| made.tail.is_some();
        all.clone().filter(|one| !grows(one)).for_each(|(put, made)| self.place(put, made));
        self.grow_all(all.filter(grows));
        // What could not take its name either.
        self.kept.withhold_unmade(ledger);
        if self.live {
            for (inode, path) in moved::moving(plan) {
                // What has no such name, or not yet, is found by the next one (`follow_all`).
                let _ = moved::follow(self.source, self.beneath, &plan.overlays, inode, &path);
            }
        }
        if self.kept.durable {
            let deletes = plan.deletes.iter().zip(goings);
            deletes.for_each(|(delete, temporary)| self.delete(delete, temporary));
        } else {
            let line = "what the image removed is kept: the new files may not be on the disk";
            self.outcome.failures.push(line.into());
        }
        if !self.olds.is_empty() {
            self.sync();
        }
        // Who is killed from here on is seen to have been here (`Manifest::past`).
        let anything = !self.olds.is_empty();
        let _ = manifest.as_mut().map(|manifest| manifest.past(anything));
        self.remove_olds();
        plan.touches.iter().for_each(|touch| self.touch(touch));
        self.sync();
    }

    /// Phase 2: what was made takes its name, unless the old has to stay (invariant 4).
    pub fn place(&mut self, put: &Put, made: &Made) {
        let target = put.target();
        if let Some(why) = old_must_stay(put, made, &self.kept) {
            return self.not_placed(put, made, &format!("{why}: the old one is kept"));
        }
        self.directories.insert(put.directory.clone());
        let lock = lock::take(self.beneath, self.names, &target, &mut self.patience);
        let placed = match lock {
            Err(held) if held.kind() == io::ErrorKind::WouldBlock => {
                return self.locked_out(put, made, &target, &held);
            }
            Err(problem) => Err(problem),
            Ok(lock) => {
                let placed = self.place_locked(put, made, &target);
                if let Some(Err(problem)) = lock.map(|lock| lock.release(self.beneath)) {
                    self.outcome.note(&lock::lock_of(&target), Err(problem));
                }
                placed
            }
        };
        self.conclude(put, made, placed);
    }

    fn place_locked(&mut self, put: &Put, made: &Made, target: &Path) -> io::Result<()> {
        self.is_at(&made.temporary, made)?;
        let is_index = |name: &OsStr| derived::is_index(name.as_encoded_bytes());
        let index = target.file_name().filter(|name| is_index(name));
        let index = index.and_then(|_| derived::remember_new(self.beneath, &made.temporary));
        let path = match put.replaces {
            None => self.place_new(made, target),
            Some(expected) => self.place_over(put, made, target, &expected),
        };
        let path = path?;
        self.is_at(&path, made)?;
        if path == target && !put.aside {
            let _ = index.map(|content| derived::placed(&path, content));
        }
        self.placed.push((target.to_owned(), path));
        Ok(())
    }

    /// Counts what has its name, and tells of what has not.
    pub(super) fn conclude(&mut self, put: &Put, made: &Made, placed: io::Result<()>) {
        match placed {
            Ok(()) => self.outcome.written += 1,
            Err(problem) => {
                let why = self.beneath.immutable_in_words(&put.target(), &problem);
                self.not_placed(put, made, &why.unwrap_or_else(|| super::reason(&problem)));
            }
        }
    }

    /// Invariant 6.
    pub(super) fn is_at(&self, path: &Path, made: &Made) -> io::Result<()> {
        self.beneath.identity(path)?.map_or(Err(io::Error::other(TAKEN)), |found| made.is(&found))
    }

    /// Tells of what has not got its name. Where programs go on, it is made again the next time;
    /// otherwise the temporary name holds the only copy.
    pub(super) fn not_placed(&mut self, put: &Put, made: &Made, why: &str) {
        let (target, temporary) = (put.target(), &*made.temporary);
        let there = self.is_at(temporary, made).is_ok();
        if !self.live {
            let line = format!("{}: {why}", target.display());
            if there && let Some(aside) = self.keep_aside(made, &target) {
                let line = format!("{line}; the image's is {}", aside.display());
                return self.outcome.failures.push(line);
            }
            if self.lose(put, why) && self.keep_unplaced(made, there) {
                return;
            }
        } else {
            self.outcome.failures.push(format!("{}: {why}", target.display()));
        }
        if there {
            self.remove_made(made);
        }
    }

    /// What cannot be removed is left over for the next one (`host::remove_leftovers`).
    pub(super) fn remove_made(&self, made: &Made) {
        let _ = self.beneath.remove_tree_of(&made.temporary, made.which);
    }

    /// Invariant 8, of what found no room anywhere. Whether what was made is to stay.
    fn keep_unplaced(&mut self, made: &Made, there: bool) -> bool {
        let stays = self.noted && (there || made.tail.is_some());
        let what = match stays {
            true => "; `husk recover forward` tries again",
            false => IN_THE_IMAGE,
        };
        self.unsettled |= stays;
        self.outcome.untouched |= !stays;
        for line in &mut self.outcome.failures {
            *line = line.replace(LOST, what);
        }
        stays
    }

    /// Saves elsewhere what takes no name; whether some of it found no room.
    fn lose(&mut self, put: &Put, why: &str) -> bool {
        let lost = std::mem::take(&mut self.kept.lost);
        let mut loss = Loss {
            source: self.source,
            rescue: self.rescue,
            kept: &mut self.kept,
            lines: &mut self.outcome.failures,
        };
        loss.lose(&put.object, &put.target(), why);
        let lost_now = self.kept.lost;
        self.kept.lost |= lost;
        lost_now
    }

    /// Whether `found` is what is `expected`. Links made from it moments ago (`make`) changed its
    /// status and, as the image has changed them, its times, but not its content. Bytes that pass
    /// through a FIFO or a socket change its times.
    fn is_same(&self, found: &Glance, expected: &HostIdentity) -> bool {
        let now = found.identity;
        let linked = self.kept.linked.get(&now.object());
        let times = now.modified_ns == expected.modified_ns || linked == Some(&now.modified_ns);
        now.object() == expected.object() && (times || !found.content)
    }

    /// Whether what was at `target`, and is at `temporary` now, has below it what the plan saw.
    fn has_the_same_below(&self, target: &Path, temporary: &Path) -> bool {
        let below = self.below.get(target);
        // What cannot be looked through may have changed.
        below.is_none_or(|below| below.is_still(self.beneath, temporary).unwrap_or(false))
    }

    fn place_new(&mut self, made: &Made, target: &Path) -> io::Result<PathBuf> {
        match self.beneath.rename(&made.temporary, target, RenameFlags::NOREPLACE) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {
                self.place_beside(made, target, "appeared on the host meanwhile")
            }
            other => other.map(|()| target.to_owned()),
        }
    }

    pub(super) fn place_over(
        &mut self,
        put: &Put,
        made: &Made,
        target: &Path,
        expected: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let Some(found) = self.beneath.glance(target)? else {
            return self.place_beside(made, target, "was removed on the host meanwhile");
        };
        if !self.is_same(&found, expected) {
            return self.place_by_rule(put, made, target, expected, &found.identity);
        }
        let placed = self.exchange(put, made, target, expected, found.directory)?;
        if placed == target {
            self.keep_rights(put, made, expected);
        }
        Ok(placed)
    }

    /// The new one and what is at `target` change their names, if that is what is expected.
    pub(super) fn exchange(
        &mut self,
        put: &Put,
        made: &Made,
        target: &Path,
        expected: &HostIdentity,
        directory: bool,
    ) -> io::Result<PathBuf> {
        match self.beneath.rename(&made.temporary, target, RenameFlags::EXCHANGE) {
            Ok(()) => self.exchanged(made, target, expected),
            Err(problem) if !lacks_flag(&problem) => Err(problem),
            // A file system without exchange, and without links.
            Err(_) if !directory && !put.object.is_tree() => {
                self.beneath.rename(&made.temporary, target, RenameFlags::empty())?;
                Ok(target.to_owned())
            }
            Err(_) => self.exchange_in_two_steps(made, target, expected),
        }
    }

    /// What was at `target` has the temporary name now (invariant 7).
    pub(super) fn exchanged(
        &mut self,
        made: &Made,
        target: &Path,
        expected: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let old = self.beneath.glance(&made.temporary)?;
        if !old.is_some_and(|old| self.is_same(&old, expected)) {
            return self.give_back(&made.temporary, made.which, target);
        }
        self.replaced(&made.temporary, made, target, expected);
        Ok(target.to_owned())
    }

    fn replaced(&mut self, temporary: &Path, made: &Made, target: &Path, expected: &HostIdentity) {
        let (temporary, target) = (temporary.to_owned(), target.to_owned());
        self.olds.push(Old { temporary, target, expected: *expected, by: Some(made.which) });
    }

    /// Somebody has changed the old one: it gets its name back, and the new one another.
    pub(super) fn give_back(
        &mut self,
        temporary: &Path,
        which: Which,
        target: &Path,
    ) -> io::Result<PathBuf> {
        let back = self.beneath.rename(temporary, target, RenameFlags::EXCHANGE);
        back.map_err(|problem| the_rest_is(temporary, &problem))?;
        let made = Made { temporary: temporary.to_owned(), which, complete: true, tail: None };
        self.place_beside(&made, target, "changed on the host meanwhile")
    }

    /// A short moment without the name. Who is killed in it leaves the old one under a name that
    /// nobody removes (invariant 1).
    pub(super) fn exchange_in_two_steps(
        &mut self,
        made: &Made,
        target: &Path,
        expected: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let Some(old) = self.aside(target, target) else {
            return Err(io::Error::other("the old one cannot be put aside"));
        };
        if let Err(problem) = self.beneath.rename(&made.temporary, target, RenameFlags::NOREPLACE) {
            // The name may be somebody else's by now.
            let back = self.beneath.rename(&old, target, RenameFlags::NOREPLACE).is_ok();
            return Err(if back { problem } else { the_rest_is(&old, &problem) });
        }
        self.replaced(&old, made, target, expected);
        Ok(target.to_owned())
    }

    pub(super) fn place_beside(
        &mut self,
        made: &Made,
        target: &Path,
        what: &str,
    ) -> io::Result<PathBuf> {
        let Some(aside) = self.keep_aside(made, target) else {
            return Err(io::Error::other(what));
        };
        let kept = host::kept_in_words(self.beneath, &aside, target);
        let conflict = format!("{} {what}: the image's is {kept}", typed(target));
        self.outcome.conflicts.push(conflict);
        Ok(aside)
    }

    /// Gives what was made a name beside `target`; `None`: it has none.
    fn keep_aside(&mut self, made: &Made, target: &Path) -> Option<PathBuf> {
        let aside = self.aside(&made.temporary, target)?;
        self.is_at(&aside, made).is_ok().then_some(aside)
    }

    pub(super) fn aside(&mut self, source: &Path, target: &Path) -> Option<PathBuf> {
        let aside = beside(target, self.number);
        // The other is for a name too long for an ending. Not the temporary one: a later run
        // removes it.
        let (number, count) = (self.number, self.outcome.failures.len());
        let short = target.with_file_name(format!("husk-{number}-{count}"));
        let free =
            |path: &PathBuf| self.beneath.rename(source, path, RenameFlags::NOREPLACE).is_ok();
        [aside, short].into_iter().find(free)
    }

    /// Phase 4: all that is new has its name, and what is old goes, if nobody has changed it since.
    pub fn remove_olds(&mut self) {
        for old in std::mem::take(&mut self.olds) {
            let removed = self.remove_old(&old);
            self.outcome.note(&old.target, removed);
        }
    }

    fn remove_old(&mut self, old: &Old) -> io::Result<()> {
        let Old { temporary, target, expected, by } = old;
        let which = expected.object();
        let found = self.beneath.glance(temporary)?;
        // Somebody else has removed it.
        let same = found.is_none_or(|found| {
            self.is_same(&found, expected) && self.has_the_same_below(target, temporary)
        });
        match (same, *by) {
            (true, Some(_)) => {
                let removed = self.beneath.remove_tree_of(temporary, which);
                removed.map_err(|problem| the_rest_is(temporary, &problem))
            }
            (false, Some(new)) => {
                self.outcome.written = self.outcome.written.saturating_sub(1);
                self.give_back(temporary, new, target).map(drop)
            }
            (true, None) => match self.beneath.remove_tree_of(temporary, which) {
                Ok(()) => {
                    self.outcome.removed += 1;
                    Ok(())
                }
                Err(problem) => self.name_again(temporary, target).and(Err(problem)),
            },
            (false, None) => {
                self.name_again(temporary, target)?;
                self.kept_as_changed(target)
            }
        }
    }

    /// Invariants 5 and 7. The name may be somebody else's by now.
    fn name_again(&self, temporary: &Path, path: &Path) -> io::Result<()> {
        let back = self.beneath.rename(temporary, path, RenameFlags::NOREPLACE);
        back.map_err(|problem| the_rest_is(temporary, &problem))
    }

    /// Phase 3: what the image removed loses its name, unless its content is needed (`withheld`).
    pub fn delete(&mut self, delete: &Delete, temporary: &Path) {
        if self.kept.is_withheld(&delete.path) {
            return;
        }
        let deleted = self.delete_if_same(delete, temporary);
        self.note(&delete.path, deleted);
    }

    /// Out of sight at once: a crash in the middle leaves no half directory under its name.
    fn delete_if_same(&mut self, delete: &Delete, temporary: &Path) -> io::Result<()> {
        let Delete { path, identity } = delete;
        let Some(found) = self.beneath.glance(path)? else { return Ok(()) };
        if !self.is_same(&found, identity) {
            return self.kept_as_changed(path);
        }
        self.directories.insert(path.parent().unwrap_or(Path::new("/")).to_owned());
        self.beneath.rename(path, temporary, RenameFlags::NOREPLACE)?;
        let found = self.beneath.glance(temporary);
        if !matches!(found, Ok(Some(found)) if self.is_same(&found, identity)) {
            self.name_again(temporary, path)?;
            return self.kept_as_changed(path);
        }
        let (temporary, target) = (temporary.to_owned(), path.clone());
        self.olds.push(Old { temporary, target, expected: *identity, by: None });
        Ok(())
    }

    fn kept_as_changed(&mut self, path: &Path) -> io::Result<()> {
        let path = typed(path);
        let line =
            format!("{path} changed on the host meanwhile: it is kept; remove it: rm -r {path}");
        self.outcome.conflicts.push(line);
        Ok(())
    }

    /// First what is moved or linked gets its attributes, in phase 5 what stays: what came and went
    /// has changed the times of directories.
    pub fn touch(&mut self, touch: &Touch) {
        let held = match self.beneath.hold(&touch.path) {
            Ok(held) => held,
            Err(problem) => return self.outcome.note(&touch.path, Err(problem)),
        };
        if !self.is_touched(held.found(), touch) {
            let Touch { path, attributes, before, .. } = touch;
            let how = host::given_in_words(path, attributes, before, held.found());
            let what = "changed on the host meanwhile: its attributes are kept";
            let line = format!("{} {what}{how}", typed(&touch.path));
            return self.outcome.conflicts.push(line);
        }
        if let Some(wanted) = &touch.extended {
            self.outcome.note(&touch.path, extended::set_even_closed(&held, wanted));
        }
        match held.found().is_dir() {
            true => drop(self.directories.insert(touch.path.clone())),
            false => self.unsynced.keep_attributes(&held),
        }
        let mut attributes = self.with_rights_since(touch, held.found());
        let mode = attributes.step.mode;
        attributes.step.mode = self.unlocked.mode_for_now(&touch.path, mode);
        self.note(&touch.path, held.set_attributes(&attributes));
    }

    fn note(&mut self, path: &Path, result: io::Result<()>) {
        let words = |problem| self.beneath.immutable_in_words(path, problem);
        let words = result.as_ref().err().and_then(words);
        self.outcome.note(path, words.map_or(result, |words| Err(io::Error::other(words))));
    }

    /// Whether `found` is what was looked at, or has another name with the new attributes.
    fn is_touched(&self, found: &fs::Metadata, touch: &Touch) -> bool {
        let now = host::identity_of(found);
        let times = now.modified_ns == touch.attributes.modified_ns;
        let same = now.object() == touch.before.object();
        same && (times || self.is_same(&Glance::of(found), &touch.before))
    }

    /// Names become durable: before anything old goes (invariant 4), and in the end. A directory
    /// that has another place by now is told: what was written into it is there.
    pub fn sync(&mut self) {
        for directory in std::mem::take(&mut self.directories) {
            if !self.beneath.is_still(&directory) {
                let why = "moved or replaced on the host meanwhile, with what was written into it";
                self.outcome.failures.push(format!("{}: {why}", directory.display()));
                continue;
            }
            self.unsynced.keep_names(self.beneath, &directory);
        }
        self.unsynced.sync(self.beneath, self.outcome);
    }
}

/// Why what `put` replaces may not go; `None`: it may, or there is nothing.
pub fn old_must_stay(put: &Put, made: &Made, kept: &Kept) -> Option<&'static str> {
    put.replaces?;
    if kept.durable && made.complete && kept.withheld.is_empty() {
        return None;
    }
    if !kept.durable {
        return Some("the new one may not be on the disk");
    }
    if !made.complete {
        return Some("not all of the new one could be written");
    }
    let target = put.target();
    kept.withheld.has_below(&target).then_some("what was moved out of it could not be written")
}

fn the_rest_is(temporary: &Path, problem: &io::Error) -> io::Error {
    let (why, rest) = (super::reason(problem), temporary.display());
    io::Error::other(format!("{why}; the rest of the old one is {rest}"))
}

/// Opens what `plan` works in, carries it out, and closes that again, whatever happened.
pub fn carry_out<S: Source>(
    source: &mut S,
    run: &mut super::Work,
    beneath: &Beneath,
    plan: Plan,
) -> Outcome {
    let mut unlocked = Unlocked::default();
    plan.directories().into_iter().for_each(|directory| unlocked.open(beneath, directory));
    let mut outcome = carry_out_unlocked(source, run, beneath, plan, &mut unlocked);
    for (path, problem) in unlocked.close(beneath) {
        outcome.note(&path, Err(problem));
    }
    outcome
}

/// Makes, places, deletes, touches and syncs everything in `plan`.
fn carry_out_unlocked<S: Source>(
    source: &mut S,
    run: &mut super::Work,
    beneath: &Beneath,
    mut plan: Plan,
    unlocked: &mut Unlocked,
) -> Outcome {
    let mut outcome = told(&mut plan);
    for directory in plan.directories_of_puts() {
        host::remove_leftovers(beneath, directory);
    }
    // Without its notes, a successor takes what is done for somebody else's, and both are kept.
    if let Err(problem) = run.ledger.begin(source, beneath, &plan) {
        outcome.failures.push(no_notes(&problem));
    }
    // What lies side by side on the disk is written in one go.
    plan.puts.sort_by_cached_key(|put| put.replaces.map(|old| old.object()));
    take_in(source, &plan, run.live);
    let mut manifest = steps::begin(run, beneath, &plan, &mut outcome);
    let goings = steps::goings(&mut run.names, &plan);
    let replacing = plan.puts.iter().filter(|put| put.replaces.is_some()).count();
    let mut numbers = Numbers::all(replacing);
    let mut maker = Maker::new(source, run, beneath, &mut outcome, manifest.as_mut(), &mut numbers);
    let made = maker.make_all(&plan.puts);
    let over = maker.is_over();
    let (mut kept, mut noted) = maker.finish();
    if over {
        return untouched(beneath, &made, manifest, outcome);
    }
    let super::Work { number, live, names, rescue, ledger, .. } = run;
    if *live {
        let taken = detach::detach(source, beneath, &plan, &mut kept, ledger, &mut outcome);
        noted.iter_mut().for_each(|one| one.learn(&taken));
    }
    let objects: Vec<_> = noted.iter().map(|one| (one.path.clone(), one.inode)).collect();
    if let Err(problem) = ledger.note(beneath, &plan, noted) {
        outcome.failures.push(no_notes(&problem));
    }
    kept.withheld.extend(std::mem::take(&mut plan.withheld));
    kept.withhold_unmade(ledger);
    let prepared = steps::Prepared { plan: &plan, made: &made, goings: &goings };
    steps::ready(&mut manifest, beneath, &prepared, &kept, unlocked, &mut outcome);
    let mut commit = Commit {
        beneath,
        source,
        rescue,
        number: *number,
        names,
        outcome: &mut outcome,
        directories: BTreeSet::new(),
        unlocked,
        kept,
        live: *live,
        olds: Vec::new(),
        placed: Vec::new(),
        noted: manifest.as_ref().is_some_and(Manifest::is_ready),
        unsettled: false,
        unsynced: Unsynced::default(),
        patience: lock::PATIENCE,
        below: &plan.below,
        rights: &plan.rights,
    };
    commit.carry_out(&prepared, ledger, &mut manifest);
    ledger.placed(std::mem::take(&mut commit.placed));
    let over = manifest.filter(|_| !commit.unsettled);
    settle(source, beneath, &plan, objects, *live);
    end(over, &mut outcome);
    outcome
}

fn end(manifest: Option<Manifest>, outcome: &mut Outcome) {
    if let Some(Err(problem)) = manifest.map(Manifest::end) {
        let line = format!("the record of it cannot be removed: {}", super::reason(&problem));
        outcome.failures.push(line);
    }
}

/// Where programs go on, what the host alone has changed of attributes is the image's from now on.
/// What a program has changed since is its own.
fn take_in<S: Source>(source: &mut S, plan: &Plan, live: bool) {
    for &Taken { inode, before, found } in plan.taken.iter().filter(|_| live) {
        // One that has gone needs nothing.
        let _ = source.take_rights(inode, before, found);
    }
    plan.taken_extended.iter().filter(|_| live).for_each(|one| one.settle(source));
}

/// Where programs go on, what the host has of extended attributes is what it had at the next look.
fn settle<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    plan: &Plan,
    mut objects: Vec<(PathBuf, Inode)>,
    live: bool,
) {
    if !live {
        return;
    }
    objects.extend(plan.touches.iter().map(|touch| (touch.path.clone(), touch.inode)));
    // What the image does not say now is looked at the next time.
    let _ = extended::settle(source, beneath, &objects, &plan.our_extended);
    plan.told_extended.iter().for_each(|one| one.settle(source));
}

/// What the plan itself has to tell.
fn told(plan: &mut Plan) -> Outcome {
    let conflicts = plan.conflicts.iter().map(ToString::to_string).collect();
    let failures = std::mem::take(&mut plan.failures);
    let (busy, notes) = (std::mem::take(&mut plan.busy), std::mem::take(&mut plan.notes));
    Outcome { conflicts, failures, busy, notes, ..Outcome::default() }
}

/// Nothing has its name yet: what was made goes, and the image keeps everything.
fn untouched(
    beneath: &Beneath,
    made: &[Option<Made>],
    manifest: Option<Manifest>,
    mut outcome: Outcome,
) -> Outcome {
    for made in made.iter().flatten().filter(|made| made.tail.is_none()) {
        // What cannot be removed is left over for the next one (`host::remove_leftovers`).
        let _ = beneath.remove_tree_of(&made.temporary, made.which);
    }
    let _ = manifest.map(Manifest::end);
    for line in &mut outcome.failures {
        *line = line.replace(LOST, IN_THE_IMAGE);
    }
    outcome.untouched = true;
    outcome
}

fn no_notes(problem: &io::Error) -> String {
    format!("cannot record what is written: {}", super::reason(problem))
}
