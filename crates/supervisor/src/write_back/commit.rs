//! Second half of a write-back: what was made takes its names, then what the image removed goes.
//!
//! ```text
//!   make (temporary names) -> sync -> rename into place -> delete -> times and modes -> sync
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
//! 5. What cannot be removed whole gets its name back, or the temporary name it has is told.
//! 6. What was made is known by its identity: what has its temporary name, or its name afterwards,
//!    and is another thing, is somebody else's. Then the image's is saved, and that is told.
//! 7. What is replaced or removed has lost its name before it is looked at for the last time: who
//!    changes it in between gets it back.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use husk_proto::fs::HostIdentity;
use rustix::fs::RenameFlags;

use super::beneath::{Beneath, Glance, lacks_flag};
use super::detach;
use super::extended;
use super::host;
use super::make::{Kept, Loss, Made, Maker};
use super::plan::{Delete, Put, Touch, beside};
use super::rescue::Rescue;
use super::unlock::Unlocked;
use super::{Outcome, Source, plan::Plan};

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
}

impl<S: Source> Commit<'_, S> {
    /// Phase 2: what was made takes its name, unless the old has to stay (invariant 4).
    pub fn place(&mut self, put: &Put, made: &Made) {
        let target = put.target();
        if let Some(why) = old_must_stay(put, made, &self.kept) {
            return self.not_placed(put, made, &format!("{why}: the old one is kept"));
        }
        self.directories.insert(put.directory.clone());
        let placed = self.is_at(&made.temporary, made).and_then(|()| match put.replaces {
            None => self.place_new(made, &target),
            Some(expected) => self.place_over(put, made, &target, &expected),
        });
        match placed.and_then(|path| self.is_at(&path, made)) {
            Ok(()) => self.outcome.written += 1,
            Err(problem) => self.not_placed(put, made, &super::reason(&problem)),
        }
    }

    /// Invariant 6.
    fn is_at(&self, path: &Path, made: &Made) -> io::Result<()> {
        match self.beneath.identity(path)? {
            Some(found) if (found.device, found.inode) == made.which => Ok(()),
            _ => Err(io::Error::other("somebody has taken away or replaced what was written")),
        }
    }

    /// Tells of what has not got its name. Where programs go on, it is made again the next time;
    /// otherwise the temporary name holds the only copy.
    fn not_placed(&mut self, put: &Put, made: &Made, why: &str) {
        let (target, temporary) = (put.target(), &*made.temporary);
        let there = self.is_at(temporary, made).is_ok();
        if !self.live {
            let line = format!("{}: {why}", target.display());
            if there && let Some(aside) = self.keep_aside(made, &target) {
                let line = format!("{line}; the image's is {}", aside.display());
                return self.outcome.failures.push(line);
            }
            self.lose(put, why);
        } else {
            self.outcome.failures.push(format!("{}: {why}", target.display()));
        }
        if there {
            // What cannot be removed is left over for the next one (`host::remove_leftovers`).
            let _ = self.beneath.remove_tree(temporary);
        }
    }

    fn lose(&mut self, put: &Put, why: &str) {
        let mut loss = Loss {
            source: self.source,
            rescue: self.rescue,
            kept: &mut self.kept,
            lines: &mut self.outcome.failures,
        };
        loss.lose(&put.object, &put.target(), why);
    }

    /// Whether `found` is what is `expected`. Links made from it moments ago (`make`) changed its
    /// status and, as the image has changed them, its times, but not its content. Bytes that pass
    /// through a FIFO or a socket change its times.
    fn is_same(&self, found: &Glance, expected: &HostIdentity) -> bool {
        let now = found.identity;
        let linked = self.kept.linked.get(&(now.device, now.inode));
        let times = now.modified_ns == expected.modified_ns || linked == Some(&now.modified_ns);
        (now.device, now.inode) == (expected.device, expected.inode) && (times || !found.content)
    }

    fn place_new(&mut self, made: &Made, target: &Path) -> io::Result<PathBuf> {
        match self.beneath.rename(&made.temporary, target, RenameFlags::NOREPLACE) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {
                self.place_beside(made, target, "appeared on the host meanwhile")
            }
            other => other.map(|()| target.to_owned()),
        }
    }

    fn place_over(
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
            return self.place_beside(made, target, "changed on the host meanwhile");
        }
        match self.beneath.rename(&made.temporary, target, RenameFlags::EXCHANGE) {
            Ok(()) => self.exchanged(made, target, expected),
            Err(problem) if !lacks_flag(&problem) => Err(problem),
            // A file system without exchange.
            Err(_) if !found.directory && !put.object.is_tree() => {
                self.beneath.rename(&made.temporary, target, RenameFlags::empty())?;
                Ok(target.to_owned())
            }
            Err(_) => self.exchange_in_two_steps(made, target),
        }
    }

    /// What was at `target` has the temporary name now (invariant 7).
    fn exchanged(
        &mut self,
        made: &Made,
        target: &Path,
        expected: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let temporary = &made.temporary;
        let old = self.beneath.glance(temporary)?;
        if !old.is_some_and(|old| self.is_same(&old, expected)) {
            let back = self.beneath.rename(temporary, target, RenameFlags::EXCHANGE);
            back.map_err(|problem| the_rest_is(temporary, &problem))?;
            return self.place_beside(made, target, "changed on the host meanwhile");
        }
        let removed = self.remove_old(temporary);
        self.outcome.note(target, removed);
        Ok(target.to_owned())
    }

    /// A short moment without the name. Who is killed in it leaves the old one under a name that
    /// nobody removes (invariant 1).
    fn exchange_in_two_steps(&mut self, made: &Made, target: &Path) -> io::Result<PathBuf> {
        let Some(old) = self.aside(target, target) else {
            return Err(io::Error::other("the old one cannot be put aside"));
        };
        if let Err(problem) = self.beneath.rename(&made.temporary, target, RenameFlags::NOREPLACE) {
            // The name may be somebody else's by now.
            let back = self.beneath.rename(&old, target, RenameFlags::NOREPLACE).is_ok();
            return Err(if back { problem } else { the_rest_is(&old, &problem) });
        }
        let removed = self.remove_old(&old);
        self.outcome.note(target, removed);
        Ok(target.to_owned())
    }

    fn place_beside(&mut self, made: &Made, target: &Path, what: &str) -> io::Result<PathBuf> {
        let Some(aside) = self.keep_aside(made, target) else {
            return Err(io::Error::other(what));
        };
        let kept = host::beside_in_words(&aside);
        let conflict = format!("{} {what}: the image's is {kept}", target.display());
        self.outcome.conflicts.push(conflict);
        Ok(aside)
    }

    /// Gives what was made a name beside `target`; `None`: it has none.
    fn keep_aside(&mut self, made: &Made, target: &Path) -> Option<PathBuf> {
        let aside = self.aside(&made.temporary, target)?;
        self.is_at(&aside, made).is_ok().then_some(aside)
    }

    fn aside(&mut self, source: &Path, target: &Path) -> Option<PathBuf> {
        let aside = beside(target, self.number);
        // The other is for a name too long for an ending. Not the temporary one: a later run
        // removes it.
        let (number, count) = (self.number, self.outcome.failures.len());
        let short = target.with_file_name(format!("husk-{number}-{count}"));
        let free =
            |path: &PathBuf| self.beneath.rename(source, path, RenameFlags::NOREPLACE).is_ok();
        [aside, short].into_iter().find(free)
    }

    /// Removes what has lost its name to `temporary`; a failure says where the rest is.
    fn remove_old(&self, temporary: &Path) -> io::Result<()> {
        let removed = self.beneath.remove_tree(temporary);
        removed.map_err(|problem| the_rest_is(temporary, &problem))
    }

    /// Phase 3: what the image removed goes, unless its content is needed (`withheld`).
    pub fn delete(&mut self, delete: &Delete) {
        let path = &delete.path;
        if self.kept.withheld.iter().any(|kept| kept.starts_with(path) || path.starts_with(kept)) {
            return;
        }
        let deleted = self.delete_if_same(delete);
        self.outcome.note(path, deleted);
    }

    fn delete_if_same(&mut self, delete: &Delete) -> io::Result<()> {
        let path = &delete.path;
        let Some(found) = self.beneath.glance(path)? else { return Ok(()) };
        if !self.is_same(&found, &delete.identity) {
            return self.kept_as_changed(path);
        }
        let directory = path.parent().unwrap_or(Path::new("/"));
        self.directories.insert(directory.to_owned());
        // Out of sight at once: a crash in the middle leaves no half directory under its name.
        let temporary = self.names.fresh(directory);
        self.beneath.rename(path, &temporary, RenameFlags::NOREPLACE)?;
        let same = match self.beneath.glance(&temporary) {
            Ok(found) => found.is_some_and(|found| self.is_same(&found, &delete.identity)),
            Err(_) => false,
        };
        let removed = if same { self.beneath.remove_tree(&temporary) } else { Ok(()) };
        if same && removed.is_ok() {
            self.outcome.removed += 1;
            return Ok(());
        }
        // Invariants 5 and 7. The name may be somebody else's by now.
        let back = self.beneath.rename(&temporary, path, RenameFlags::NOREPLACE);
        back.map_err(|problem| the_rest_is(&temporary, &problem))?;
        if same { removed } else { self.kept_as_changed(path) }
    }

    fn kept_as_changed(&mut self, path: &Path) -> io::Result<()> {
        let line = format!("{} changed on the host meanwhile: it is kept", path.display());
        self.outcome.conflicts.push(line);
        Ok(())
    }

    /// Phase 4: attributes of what stays.
    pub fn touch(&mut self, touch: &Touch) {
        let held = match self.beneath.hold(&touch.path) {
            Ok(held) => held,
            Err(problem) => return self.outcome.note(&touch.path, Err(problem)),
        };
        if !self.is_touched(held.found(), touch) {
            let path = touch.path.display();
            let line = format!("{path} changed on the host meanwhile: its attributes are kept");
            return self.outcome.conflicts.push(line);
        }
        if let Some(wanted) = &touch.extended {
            self.outcome.note(&touch.path, extended::set(&held, wanted));
        }
        let mut attributes = touch.attributes;
        let mode = attributes.step.mode;
        attributes.step.mode = self.unlocked.mode_for_now(&touch.path, mode);
        self.outcome.note(&touch.path, held.set_attributes(&attributes));
    }

    /// Whether `found` is what was looked at, or has another name with the new attributes.
    fn is_touched(&self, found: &fs::Metadata, touch: &Touch) -> bool {
        let now = host::identity_of(found);
        let times = now.modified_ns == touch.attributes.modified_ns;
        let same = (now.device, now.inode) == (touch.before.device, touch.before.inode);
        same && (times || self.is_same(&Glance::of(found), &touch.before))
    }

    /// Phase 5: names become durable. A directory that has another place by now is told: what was
    /// written into it is there.
    pub fn sync(&mut self) {
        for directory in std::mem::take(&mut self.directories) {
            if !self.beneath.is_still(&directory) {
                let why = "moved or replaced on the host meanwhile, with what was written into it";
                self.outcome.failures.push(format!("{}: {why}", directory.display()));
                continue;
            }
            let synced = match self.beneath.sync_directory(&directory) {
                // Removed by a later deletion: it has nothing to sync.
                Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            };
            self.outcome.note(&directory, synced);
        }
    }
}

/// Why what `put` replaces may not go; `None`: it may, or there is nothing.
fn old_must_stay(put: &Put, made: &Made, kept: &Kept) -> Option<&'static str> {
    put.replaces?;
    if !kept.durable {
        return Some("the new one may not be on the disk");
    }
    if !made.complete {
        return Some("not all of the new one could be written");
    }
    let target = put.target();
    let needed = kept.withheld.iter().any(|path| path.starts_with(&target));
    needed.then_some("what was moved out of it could not be written")
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
    let deletes = plan.deletes.iter().filter_map(|delete| delete.path.parent());
    let directories: BTreeSet<_> =
        plan.puts.iter().map(|put| &*put.directory).chain(deletes).collect();
    directories.into_iter().for_each(|directory| unlocked.open(beneath, directory));
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
    let mut outcome = Outcome { notes: std::mem::take(&mut plan.notes), ..Outcome::default() };
    outcome.conflicts.extend(plan.conflicts.iter().map(ToString::to_string));
    outcome.failures.append(&mut plan.failures);
    outcome.busy.append(&mut plan.busy);
    for directory in plan.puts.iter().map(|put| &put.directory).collect::<BTreeSet<_>>() {
        host::remove_leftovers(beneath, directory);
    }
    // Without its notes, a successor takes what is done for somebody else's, and both are kept.
    if let Err(problem) = run.ledger.begin(beneath, &plan) {
        outcome.failures.push(format!("no notes of what is written: {}", super::reason(&problem)));
    }
    let mut maker = Maker::new(source, run, beneath, &mut outcome);
    let made: Vec<_> = plan.puts.iter().map(|put| maker.make(put)).collect();
    let (mut kept, mut noted) = maker.finish();
    let super::Work { number, live, names, rescue, ledger, .. } = run;
    if *live {
        let taken = detach::detach(source, beneath, &plan, &mut kept, ledger, &mut outcome);
        for one in &mut noted {
            one.content = one.content.or(taken.get(&one.inode).copied());
        }
    }
    if let Err(problem) = ledger.note(beneath, &plan, noted) {
        outcome.failures.push(format!("no notes of what is written: {}", super::reason(&problem)));
    }
    kept.withheld.append(&mut plan.withheld);
    for inode in std::mem::take(&mut kept.unmade) {
        kept.withheld.extend(ledger.places(inode).map(|(path, _)| path.to_owned()));
    }
    let (durable, live, number, directories) = (kept.durable, *live, *number, BTreeSet::new());
    let mut commit = Commit {
        beneath,
        source,
        rescue,
        number,
        names,
        outcome: &mut outcome,
        directories,
        unlocked,
        kept,
        live,
    };
    for (put, made) in plan.puts.iter().zip(&made) {
        if let Some(made) = made {
            commit.place(put, made);
        }
    }
    // What could not take its name either.
    for inode in std::mem::take(&mut commit.kept.unmade) {
        let places = ledger.places(inode).map(|(path, _)| path.to_owned());
        commit.kept.withheld.extend(places);
    }
    if durable {
        plan.deletes.iter().for_each(|delete| commit.delete(delete));
    } else {
        let line = "what the image removed is kept: the new files may not be on the disk";
        commit.outcome.failures.push(line.into());
    }
    for touch in &plan.touches {
        commit.touch(touch);
    }
    commit.sync();
    outcome
}
