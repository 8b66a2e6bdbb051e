//! Finishes or undoes a write-back that was killed.
//!
//! ```text
//!   forward   each step that is not done is done; then the old ones go
//!   back      each step that is done is undone, the last one first; then the new ones go
//! ```
//!
//! Invariants
//! 1. What a step finds is known by its identity. What is neither the old nor the new one is
//!    somebody's work since: it stays, and is told.
//! 2. Nothing old goes while something new has not got its name.
//! 3. What cannot be looked at is neither done nor gone: that is told, and nothing is removed.
//! 4. Killed in the middle, recovering can be continued, in either direction until something
//!    is about to be removed: which way is closed then is on the disk first.
//! 5. What was made, replaced or removed in a directory that has lost its name to another one, or
//!    to a link, is not given up: the manifest stays.

mod away;
mod tails;

pub use away::away;
use tails::grow_to_end;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use husk_proto::fs::{HostIdentity, Rights};
use rustix::fs::RenameFlags;

use super::manifest::{Facts, Pending, Seen, Step};
use crate::run::request::reason;
use crate::write_back::git::lock;
use crate::write_back::host;
use crate::write_back::host::below::Below;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{
    Beneath, Glance, Object as Which, lacks_flag, object_of, set_len, sync,
};
use crate::write_back::plan::beside;

/// Most lines that are told one by one.
const LINES_MAX: usize = 20;
/// Names that are tried for what is kept beside another.
const BESIDES_MAX: u32 = 20;

/// How it went.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Steps that were done, or undone.
    pub steps: usize,
    /// What could not be, one line each.
    pub lines: Vec<String>,
}

struct Recovery<'a> {
    beneath: Beneath,
    pending: &'a Pending,
    /// What gets other attributes before its name changes: when it was modified last, by device and
    /// inode, before and after.
    early: HashMap<(u64, u64), [i64; 2]>,
    directories: BTreeSet<PathBuf>,
    /// The directories that it worked in.
    worked_in: HashMap<PathBuf, Which>,
    told: Recovered,
    patience: Duration,
}

/// Brings a write-back to its end; `None`: somebody has begun to undo it, and what is new goes.
pub fn forward(pending: Pending) -> Option<Recovered> {
    if !is_redoable(&pending) {
        return None;
    }
    let told = {
        let mut recovery = Recovery::new(&pending);
        recovery.all_forward();
        recovery.finish()
    };
    Some(ended(pending, told, false))
}

/// Takes a write-back back; `None`: what is old has gone already.
pub fn back(mut pending: Pending) -> Option<Recovered> {
    if !Recovery::new(&pending).is_undoable() {
        return None;
    }
    // Without a note a file that was cut twice may keep the time of the first.
    let _ = pending.turn_back();
    let told = {
        let mut recovery = Recovery::new(&pending);
        recovery.all_back();
        recovery.finish()
    };
    Some(ended(pending, told, true))
}

/// Whether `forward` is possible.
pub fn is_redoable(pending: &Pending) -> bool {
    let recovery = Recovery::new(pending);
    let there = |step: &Step| match step {
        Step::Put { temporary, target, made, .. } => Ok::<_, io::Error>(
            recovery.is_at(&target.path(), *made)? || recovery.is_at(&temporary.path(), *made)?,
        ),
        _ => Ok(true),
    };
    let there = |step: &Step| there(step).unwrap_or(false);
    !pending.going && (!pending.undoing || pending.steps.iter().all(there))
}

/// Whether `back` is possible.
pub fn is_undoable(pending: &Pending) -> bool {
    Recovery::new(pending).is_undoable()
}

/// Steps that are done.
pub fn steps_done(pending: &Pending) -> usize {
    let recovery = Recovery::new(pending);
    pending.steps.iter().filter(|step| recovery.is_done(step).unwrap_or(false)).count()
}

/// Removes what a write-back has left that has changed no name yet.
pub fn abandon(pending: Pending) {
    if pending.ready || pending.is_busy() {
        return;
    }
    Recovery::new(&pending).remove_temporaries();
    // It is found again, and nothing is left to remove then.
    let _ = pending.end();
}

fn ended(pending: Pending, mut told: Recovered, back: bool) -> Recovered {
    let more = told.lines.len().saturating_sub(LINES_MAX);
    if more > 0 {
        told.lines.truncate(LINES_MAX);
        told.lines.push(format!("and {more} more"));
    }
    if !told.lines.is_empty() && Recovery::new(&pending).has_left(back) {
        told.lines.push("it can be tried again: see `husk recover`".into());
        return told;
    }
    if let Err(problem) = pending.end() {
        told.lines.push(format!("the manifest cannot be removed: {}", reason(&problem)));
    }
    told
}

impl<'a> Recovery<'a> {
    fn new(pending: &'a Pending) -> Recovery<'a> {
        let roots = pending.roots();
        let beneath = Beneath::new(roots.iter().map(|root| &**root));
        let (directories, told) = Default::default();
        let early = pending.steps.iter().filter_map(|step| match step {
            Step::Touch { what, before, after, early: true, .. } => {
                Some((*what, [before.modified_ns, after.modified_ns]))
            }
            _ => None,
        });
        let early = early.collect();
        let noted = pending.head.directories.iter().zip(&pending.head.which);
        let worked_in = noted.filter_map(|(one, which)| Some((one.path(), (*which)?))).collect();
        let patience = lock::PATIENCE;
        Recovery { beneath, pending, early, directories, worked_in, told, patience }
    }

    fn at(&self, path: &Path) -> io::Result<Option<Glance>> {
        self.beneath.glance(path)
    }

    fn is_at(&self, path: &Path, which: (u64, u64)) -> io::Result<bool> {
        let identity = self.at(path)?.map(|found| found.identity);
        Ok(identity.is_some_and(|found| found.object() == which))
    }

    /// Whether what is at `path` is what was seen, unchanged.
    fn is_seen(&self, path: &Path, seen: &Seen) -> io::Result<bool> {
        let same = |found: Glance| {
            let now = Seen::of(&found.identity);
            let whole = match found.directory {
                true => !self.is_newer_below(path) && self.has_below(path, seen),
                false => {
                    let same = now.modified_ns == seen.modified_ns;
                    !found.content || same || self.is_early(&found.identity)
                }
            };
            now.which == seen.which && whole
        };
        Ok(self.at(path)?.is_some_and(same))
    }

    /// Whether something else of it than its name was to change, and no more has.
    fn is_early(&self, found: &HostIdentity) -> bool {
        let times = self.early.get(&found.object());
        times.is_some_and(|times| times.contains(&found.modified_ns))
    }

    /// Whether a directory has below it what the plan saw, whatever the clocks say. One whose
    /// removal has begun has less.
    fn has_below(&self, path: &Path, seen: &Seen) -> bool {
        let same = |below: Below| below.is_still(&self.beneath, path).unwrap_or(false);
        self.pending.past || seen.below.is_none_or(same)
    }

    /// Whether somebody has changed it since the manifest was ready.
    fn is_newer(&self, found: &HostIdentity) -> bool {
        found.changed_ns > self.pending.written_ns && !self.is_early(found)
    }

    /// Whether somebody has changed something below a directory since the manifest was ready. What
    /// cannot be looked at may be changed. A removal that was killed has changed directories.
    fn is_newer_below(&self, path: &Path) -> bool {
        let is_ours = |one: &Glance| one.directory && self.pending.past;
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.pop() {
            let Ok(names) = self.beneath.names(&directory) else { return true };
            for path in names.iter().map(|name| directory.join(name)) {
                match self.at(&path) {
                    Ok(Some(one)) if !is_ours(&one) && self.is_newer(&one.identity) => return true,
                    Ok(Some(one)) if one.directory => open.push(path),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return true,
                }
            }
        }
        false
    }

    /// Whether something still has a temporary name: nobody else may take that for a leftover.
    /// `back`: it was to be undone.
    fn has_left(&self, back: bool) -> bool {
        let left = |step: &Step| match step {
            Step::Put { temporary, made, replaces, .. } => {
                let temporary = temporary.path();
                let old = replaces.map(|old| self.is_at(&temporary, old.which)).transpose()?;
                Ok(old == Some(true) || self.is_at(&temporary, *made)?)
            }
            Step::Delete { temporary, what, .. } => self.is_at(&temporary.path(), what.which),
            // What somebody has changed is not tried again: its tail is beside it.
            Step::Append { path, size, .. } => {
                let short =
                    || Ok(self.at(&path.path())?.is_none_or(|one| one.identity.size == *size));
                let done = if back { short() } else { self.is_done(step) };
                let lacks_tail = || !back && self.lacks_tail(&path.path());
                Ok(!done? && (self.opened(step).is_ok() || lacks_tail()))
            }
            Step::Touch { .. } => Ok(false),
        };
        // Invariant 3.
        let left = |step: &Step| left(step).unwrap_or(true) || self.is_swapped(step);
        self.pending.steps.iter().any(left)
    }

    fn is_done(&self, step: &Step) -> io::Result<bool> {
        Ok(match step {
            Step::Put { target, made, .. } => self.is_at(&target.path(), *made)?,
            Step::Delete { path, what, .. } => !self.is_at(&path.path(), what.which)?,
            Step::Touch { path, what, after, early, .. } => {
                let path = path.path();
                match self.is_at(&path, *what)? {
                    true => self.has(&path, after)?,
                    // It has lost this name since.
                    false => *early,
                }
            }
            Step::Append { path, what, size, tail, after, .. } => {
                let (path, size) = (path.path(), size + tail.bytes().len() as u64);
                let there = self.at(&path)?.is_some_and(|found| found.identity.size == size);
                there && self.is_at(&path, what.which)? && self.has(&path, after)?
            }
        })
    }

    /// All that a step that is done has replaced or removed is still there.
    fn is_undoable(&self) -> bool {
        let kept = |step: &Step| match step {
            Step::Put { temporary, target, made, replaces: Some(old), .. } => Ok(!self
                .is_at(&target.path(), *made)?
                || self.is_at(&temporary.path(), old.which)?),
            Step::Delete { path, temporary, what } => Ok(self.is_at(&path.path(), what.which)?
                || self.is_at(&temporary.path(), what.which)?),
            _ => Ok::<_, io::Error>(true),
        };
        // What cannot be looked at fails when it is to be put back. Where there is no other way,
        // the rest is put back.
        let kept = || self.pending.steps.iter().all(|step| kept(step).unwrap_or(true));
        !self.pending.past && (!is_redoable(self.pending) || kept())
    }

    fn facts(&self, path: &Path) -> io::Result<Option<Facts>> {
        Ok(self.beneath.found(path)?.map(|found| Facts::of(&found)))
    }

    /// Whether it has these attributes; who looked at it last is no matter.
    fn has(&self, path: &Path, facts: &Facts) -> io::Result<bool> {
        Ok(self.facts(path)?.is_some_and(|now| now.is_like(facts)))
    }

    // ---- forward --------------------------------------------------------------------------------

    fn all_forward(&mut self) {
        self.release_locks();
        let steps = &self.pending.steps;
        let is_early = |step: &&Step| matches!(step, Step::Touch { early: true, .. });
        for step in steps.iter().filter(is_early) {
            self.one(step, Recovery::step_forward);
        }
        // They keep nothing old.
        let lines = std::mem::take(&mut self.told.lines);
        let is_put = |step: &&Step| matches!(step, Step::Put { .. } | Step::Append { .. });
        for step in steps.iter().filter(is_put) {
            self.one(step, Recovery::step_forward);
        }
        // Invariant 2.
        if self.told.lines.is_empty() {
            let is_delete = |step: &&Step| matches!(step, Step::Delete { .. });
            for step in steps.iter().filter(is_delete) {
                self.one(step, Recovery::step_forward);
            }
        } else {
            self.told.lines.push("what the image removed is kept".into());
        }
        // What is new has its name on the disk before anything old goes.
        self.sync_directories();
        if self.old_is_left() {
            self.then(Pending::let_go_of_old, Recovery::remove_old);
        }
        for step in steps.iter().filter(|step| matches!(step, Step::Touch { early: false, .. })) {
            self.one(step, Recovery::step_forward);
        }
        self.told.lines.extend(lines);
    }

    fn one(&mut self, step: &Step, act: fn(&mut Self, &Step) -> io::Result<bool>) {
        let path = step.path();
        match act(self, step) {
            Ok(true) => self.told.steps += 1,
            // Invariant 5.
            _ if self.is_swapped(step) => self.told.lines.push(swapped(&path)),
            Ok(false) => {}
            Err(problem) => {
                self.told.lines.push(format!("{}: {}", path.display(), reason(&problem)));
            }
        }
        self.directories.extend(path.parent().map(Path::to_owned));
    }

    /// Whether there was anything to do.
    fn step_forward(&mut self, step: &Step) -> io::Result<bool> {
        if self.is_done(step)? {
            if let Step::Put {
                temporary,
                target,
                made,
                replaces: Some(seen),
                rights: Some([old, _]),
            } = step
            {
                // Killed between the two.
                let pick = host::merged_rights;
                let heir = (&*target.path(), *made);
                self.carry_rights(&temporary.path(), seen.which, old, heir, pick)?;
            }
            return Ok(false);
        }
        match step {
            Step::Put { temporary, target, made, replaces, rights } => {
                let (temporary, target) = (temporary.path(), target.path());
                if let (Some([old, _]), Some(seen)) = (rights, replaces)
                    && self.is_at(&temporary, *made)?
                {
                    let pick = host::merged_rights;
                    self.carry_rights(&target, seen.which, old, (&temporary, *made), pick)?;
                }
                self.put(&temporary, &target, *made, replaces.as_ref())
            }
            Step::Delete { path, temporary, what } => {
                let (path, temporary) = (path.path(), temporary.path());
                if !self.is_seen(&path, what)? {
                    return Err(changed());
                }
                self.beneath.rename(&path, &temporary, RenameFlags::NOREPLACE)?;
                if !self.is_seen(&temporary, what)? {
                    // Somebody has changed it since that look.
                    self.beneath.rename(&temporary, &path, RenameFlags::NOREPLACE)?;
                    return Err(changed());
                }
                Ok(true)
            }
            Step::Append { path, size, tail, after, before, .. } => {
                let (path, tail) = (path.path(), tail.bytes());
                match self.opened(step) {
                    Ok(held) => {
                        let after = after.but_for_others(before, &Facts::of(&held.now()?));
                        grow_to_end(&held, *size, tail, &after).map(|()| true)
                    }
                    Err(problem) => self.lay_tail_beside(&path, tail, &problem),
                }
            }
            Step::Touch { path, what, before, after, .. } => {
                let (path, which) = (path.path(), *what);
                // Who has changed the content since has the times.
                let now = self.facts(&path)?.ok_or_else(changed)?;
                let ours = [before.modified_ns, after.modified_ns].contains(&now.modified_ns);
                let directory = self.at(&path)?.is_some_and(|found| found.directory);
                if !self.is_at(&path, which)? || !ours && !directory {
                    return Err(changed());
                }
                let after = if directory { *after } else { after.but_for_others(before, &now) };
                self.set(&path, which, &after).map(|()| true)
            }
        }
    }

    fn put(
        &mut self,
        temporary: &Path,
        target: &Path,
        made: (u64, u64),
        replaces: Option<&Seen>,
    ) -> io::Result<bool> {
        if !self.is_at(temporary, made)? {
            return Err(io::Error::other("what was made for it is not there any more"));
        }
        let mut names = host::Names::of_this_process();
        match lock::take(&self.beneath, &mut names, target, &mut self.patience)? {
            None => self.put_locked(temporary, target, replaces),
            Some(lock) => {
                let placed = self.put_locked(temporary, target, replaces);
                lock.release(&self.beneath)?;
                placed
            }
        }
    }

    fn put_locked(
        &mut self,
        temporary: &Path,
        target: &Path,
        replaces: Option<&Seen>,
    ) -> io::Result<bool> {
        let placed = match (replaces, self.at(target)?) {
            (None, None) => self.beneath.rename(temporary, target, RenameFlags::NOREPLACE),
            (Some(old), Some(found)) if self.is_seen(target, old)? => {
                match self.beneath.rename(temporary, target, RenameFlags::EXCHANGE) {
                    // Somebody has changed it since that look.
                    Ok(()) if !self.is_seen(temporary, old)? => {
                        self.beneath.rename(temporary, target, RenameFlags::EXCHANGE)?;
                        return self.lay_beside(temporary, target);
                    }
                    Err(problem) if lacks_flag(&problem) && !found.directory => {
                        self.beneath.rename(temporary, target, RenameFlags::empty())
                    }
                    other => other,
                }
            }
            _ => return self.lay_beside(temporary, target),
        };
        placed.map(|()| true)
    }

    /// Somebody else has the name by now.
    fn lay_beside(&mut self, temporary: &Path, target: &Path) -> io::Result<bool> {
        let aside = self.name_beside(temporary, target)?;
        let kept = host::kept_in_words(&self.beneath, &aside, target);
        Err(io::Error::other(format!("it was changed meanwhile, the image's is {kept}")))
    }

    /// Gives what is at `temporary` a name beside `path` that nothing has.
    fn name_beside(&self, temporary: &Path, path: &Path) -> io::Result<PathBuf> {
        let number = self.pending.head.number;
        let mut taken = io::ErrorKind::AlreadyExists.into();
        for n in 0..BESIDES_MAX {
            let aside = beside(path, number.wrapping_add(n));
            match self.beneath.rename(temporary, &aside, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(aside),
                Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => taken = problem,
                Err(problem) => return Err(problem),
            }
        }
        Err(taken)
    }

    /// Whether there is anything for `remove_old`.
    fn old_is_left(&self) -> bool {
        let left = |step: &Step| match step {
            Step::Put { temporary, target, made, replaces: Some(old), .. } => Ok(self
                .is_at(&target.path(), *made)?
                && self.is_at(&temporary.path(), old.which)?),
            Step::Delete { temporary, what, .. } => self.is_at(&temporary.path(), what.which),
            _ => Ok(false),
        };
        self.pending.steps.iter().any(|step| left(step).unwrap_or(true))
    }

    /// What is old goes, where what is new is in its place.
    fn remove_old(&mut self) {
        for step in &self.pending.steps {
            if let Err(problem) = self.remove_old_of(step) {
                let line = format!("{}: {}", step.path().display(), reason(&problem));
                self.told.lines.push(line);
            }
        }
    }

    fn remove_old_of(&mut self, step: &Step) -> io::Result<()> {
        let (temporary, path, old) = match step {
            Step::Put { temporary, target, made, replaces: Some(old), .. }
                if self.is_at(&target.path(), *made)? =>
            {
                (temporary, target, old)
            }
            Step::Delete { path, temporary, what } => (temporary, path, what),
            _ => return Ok(()),
        };
        let (temporary, path) = (temporary.path(), path.path());
        if self.is_seen(&temporary, old)? {
            self.remove(&temporary, old.which);
        } else if self.is_at(&temporary, old.which)? {
            self.name_old(&temporary, &path);
        }
        Ok(())
    }

    /// Somebody has changed what was taken from its name: it gets another.
    fn name_old(&mut self, temporary: &Path, path: &Path) {
        let (aside, why) = match self.name_beside(temporary, path) {
            Ok(aside) => (aside, String::new()),
            Err(problem) => (temporary.to_owned(), format!(" ({})", reason(&problem))),
        };
        let line = "was changed after the write-back had been killed, or just before, and is";
        self.told.lines.push(format!("{} {line} {}{why}", path.display(), aside.display()));
    }

    fn remove(&mut self, path: &Path, which: (u64, u64)) {
        if let Err(problem) = self.beneath.remove_tree_of(path, which) {
            self.told.lines.push(format!("{}: {}", path.display(), reason(&problem)));
        }
    }

    // ---- back -----------------------------------------------------------------------------------

    fn all_back(&mut self) {
        self.release_locks();
        let steps = &self.pending.steps;
        let is_touch = |step: &&Step| matches!(step, Step::Touch { .. });
        for step in steps.iter().filter(|step| !is_touch(step)).rev() {
            self.one(step, Recovery::step_back);
        }
        if !self.pending.going {
            self.name_new();
        }
        self.sync_directories();
        self.then(Pending::let_go_of_new, Recovery::remove_new);
        // Directories change with what is in them.
        for step in steps.iter().filter(is_touch) {
            self.one(step, Recovery::step_back);
        }
    }

    fn step_back(&mut self, step: &Step) -> io::Result<bool> {
        match step {
            Step::Put { temporary, target, made, replaces, rights } => {
                let (temporary, target) = (temporary.path(), target.path());
                if !self.is_at(&target, *made)? {
                    return match replaces {
                        Some(old) if self.is_at(&temporary, old.which)? => {
                            self.name_again(&temporary, &target)
                        }
                        _ => Ok(false),
                    };
                }
                if let (Some([_, new]), Some(old)) = (rights, replaces) {
                    // What somebody has given the new one is the last that was wanted.
                    let pick = |ours, before, now| host::merged_rights(now, before, ours);
                    self.carry_rights(&target, *made, new, (&temporary, old.which), pick)?;
                }
                let flags = match replaces {
                    Some(_) => RenameFlags::EXCHANGE,
                    None => RenameFlags::NOREPLACE,
                };
                self.beneath.rename(&target, &temporary, flags)?;
                Ok(true)
            }
            Step::Delete { path, temporary, what } => {
                let (path, temporary) = (path.path(), temporary.path());
                if !self.is_at(&temporary, what.which)? {
                    return Ok(false);
                }
                self.name_again(&temporary, &path)
            }
            Step::Append { path, what, size, before, after, .. } => {
                let path = path.path();
                let short = self.at(&path)?.is_some_and(|found| found.identity.size == *size);
                if short && self.is_seen(&path, what)? {
                    return Ok(false);
                }
                let held = self.opened(step)?;
                set_len(held.file()?, *size)?;
                held.set_facts(&before.but_for_others(after, &Facts::of(&held.now()?)))?;
                sync(held.file()?)?;
                Ok(true)
            }
            Step::Touch { path, what, before, after, .. } => {
                let path = path.path();
                if !self.is_at(&path, *what)? || self.has(&path, before)? {
                    return Ok(false);
                }
                let now = self.facts(&path)?.ok_or_else(changed)?;
                let directory = self.at(&path)?.is_some_and(|found| found.directory);
                let before = if directory { *before } else { before.but_for_others(after, &now) };
                self.set(&path, *what, &before).map(|()| true)
            }
        }
    }

    /// What is old gets its name, or where somebody has taken that meanwhile, one beside it.
    fn name_again(&self, temporary: &Path, path: &Path) -> io::Result<bool> {
        match self.beneath.rename(temporary, path, RenameFlags::NOREPLACE) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {
                let aside = self.name_beside(temporary, path)?;
                let kept = host::kept_in_words(&self.beneath, &aside, path);
                Err(io::Error::other(format!("it was made anew meanwhile, the old one is {kept}")))
            }
            other => other.map(|()| true),
        }
    }

    /// Whether somebody has written to what was made, or put something into it, since the manifest
    /// was ready.
    fn is_written_to(&self, path: &Path) -> io::Result<bool> {
        let mut open = vec![path.to_owned()];
        while let Some(path) = open.pop() {
            let Some(found) = self.at(&path)? else { continue };
            if found.identity.modified_ns > self.pending.written_ns {
                return Ok(true);
            }
            if found.directory {
                open.extend(self.beneath.names(&path)?.iter().map(|name| path.join(name)));
            }
        }
        Ok(false)
    }

    /// What somebody has written to of what was made gets a name. Who is killed while it goes
    /// changes it, too: so that is before it.
    fn name_new(&mut self) {
        for step in &self.pending.steps {
            let Step::Put { temporary, target, made, .. } = step else { continue };
            let temporary = temporary.path();
            // What cannot be looked at cannot be removed, and is told then.
            let there = self.is_at(&temporary, *made).unwrap_or(false);
            if there && self.is_written_to(&temporary).unwrap_or(false) {
                self.name_old(&temporary, &target.path());
            }
        }
    }

    fn remove_new(&mut self) {
        for step in &self.pending.steps {
            let Step::Put { temporary, made, .. } = step else { continue };
            match self.is_at(&temporary.path(), *made) {
                Ok(true) => self.remove(&temporary.path(), *made),
                Ok(false) => {}
                Err(problem) => {
                    let line = format!("{}: {}", step.path().display(), reason(&problem));
                    self.told.lines.push(line);
                }
            }
        }
    }

    // ---- both -----------------------------------------------------------------------------------

    /// Whoever was killed may have held locks of git.
    fn release_locks(&self) {
        for directory in &self.pending.head.directories {
            lock::release_all(&self.beneath, &directory.path(), &self.pending.head.stem);
        }
    }

    fn remove_temporaries(&self) {
        self.pending.made.iter().for_each(|made| made.remove(&self.beneath));
        for directory in &self.pending.head.directories {
            host::remove_names(&self.beneath, &directory.path(), &self.pending.head.stem);
        }
    }

    /// Notes which way is closed, and then removes what would be needed for it.
    fn then(&mut self, note: fn(&Pending) -> io::Result<()>, remove: fn(&mut Self)) {
        match note(self.pending) {
            Ok(()) => remove(self),
            Err(problem) => {
                let line = "what is not needed any more is kept: that cannot be recorded";
                self.told.lines.push(format!("{line}: {}", reason(&problem)));
            }
        }
    }

    fn sync_directories(&mut self) {
        for directory in &self.directories {
            match self.beneath.sync_directory(directory) {
                Err(problem) if problem.kind() != io::ErrorKind::NotFound => {
                    let why = reason(&problem);
                    self.told.lines.push(format!("{}: {why}", directory.display()));
                }
                _ => {}
            }
        }
    }

    /// What somebody has changed of the rights of the object at `path` since they were `before`,
    /// its `heir` gets, too, which is about to take its name.
    fn carry_rights(
        &self,
        path: &Path,
        which: (u64, u64),
        before: &Rights,
        (heir, heirs): (&Path, Which),
        pick: impl Fn(Rights, Rights, Rights) -> Rights,
    ) -> io::Result<()> {
        // What has other names, too, has got the rights that it has in the image.
        let Some(found) = self.beneath.found(path)?.filter(|found| {
            object_of(found) == which
                && !self.early.contains_key(&which)
                && found.mode() & host::SET_ID == 0
        }) else {
            return Ok(());
        };
        let now = host::rights_of(&found);
        if now == *before {
            return Ok(());
        }
        let Some(held) = self.held(heir, heirs)? else { return Ok(()) };
        let (mode, uid, gid) = pick(host::rights_of(held.found()), *before, now);
        held.set_facts(&Facts { mode, uid, gid, ..Facts::of(held.found()) })
    }

    /// What is at `path`, if it is this. By its name it could be anything by now.
    fn held(&self, path: &Path, which: Which) -> io::Result<Option<Held>> {
        let held = self.beneath.hold_if_there(path)?;
        Ok(held.filter(|held| object_of(held.found()) == which))
    }

    /// Sets attributes, durably as far as the object can be opened.
    fn set(&mut self, path: &Path, which: Which, facts: &Facts) -> io::Result<()> {
        let held = self.held(path, which)?.ok_or_else(changed)?;
        held.set_facts(facts)?;
        if held.found().is_dir() {
            self.directories.insert(path.to_owned());
        } else if let Ok(file) = held.read() {
            sync(&file)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Recovered {
        self.sync_directories();
        // What was made and has no step: nobody can come back to it.
        if self.told.lines.is_empty() {
            self.remove_temporaries();
        }
        self.told
    }
}

fn swapped(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path).display();
    let path = path.display();
    format!("{path}: {directory} is another directory now, or a link: move the old one back")
}

fn changed() -> io::Error {
    io::Error::other("it was changed meanwhile: it is kept")
}
