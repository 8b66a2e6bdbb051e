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

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use husk_proto::fs::HostIdentity;

use super::detach;
use super::extended;
use super::host;
use super::lacking;
use super::make::{Kept, Made, Maker};
use super::plan::{Delete, Put, Touch, beside};
use super::unlock::Unlocked;
use super::{Outcome, Source, plan::Plan};

/// Carries plans out.
pub struct Commit<'a> {
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

impl Commit<'_> {
    /// Phase 2: what was made takes its name, unless the old has to stay (invariant 4).
    pub fn place(&mut self, put: &Put, made: &Made) {
        let (target, temporary) = (put.target(), &*made.temporary);
        if let Some(why) = old_must_stay(put, made, &self.kept) {
            let line = format!("{}: {why}: the old one is kept", target.display());
            return self.not_placed(temporary, &target, line);
        }
        let placed = match put.replaces {
            None => self.place_new(temporary, &target),
            Some(expected) => self.place_over(put, temporary, &target, expected),
        };
        self.directories.insert(put.directory.clone());
        match placed {
            Ok(()) => self.outcome.written += 1,
            Err(problem) => {
                let line = format!("{}: {}", target.display(), super::reason(&problem));
                self.not_placed(temporary, &target, line);
            }
        }
    }

    /// Tells of what has not got its name. Where programs go on, it is made again the next time;
    /// otherwise the temporary name holds the only copy.
    fn not_placed(&mut self, temporary: &Path, target: &Path, mut line: String) {
        if self.live {
            // What cannot be removed is left over for the next one (`host::remove_leftovers`).
            let _ = host::remove_tree(temporary);
        } else {
            let aside = self.keep_aside(temporary, target);
            line.push_str(&format!("; the image's is {}", aside.display()));
        }
        self.outcome.failures.push(line);
    }

    /// Whether `found` is what is `expected`. Links made from it moments ago (`make`) changed its
    /// status and, as the image has changed them, its times, but not its content.
    fn is_same(&self, found: &fs::Metadata, expected: &HostIdentity) -> bool {
        let now = host::identity_of(found);
        let linked = self.kept.linked.get(&(now.device, now.inode));
        let times = now.modified_ns == expected.modified_ns || linked == Some(&now.modified_ns);
        (now.device, now.inode) == (expected.device, expected.inode) && (found.is_dir() || times)
    }

    fn place_new(&mut self, temporary: &Path, target: &Path) -> io::Result<()> {
        match rename(temporary, target, RenameFlags::NOREPLACE) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {
                self.place_beside(temporary, target, "appeared on the host meanwhile")
            }
            other => other,
        }
    }

    fn place_over(
        &mut self,
        put: &Put,
        temporary: &Path,
        target: &Path,
        expected: HostIdentity,
    ) -> io::Result<()> {
        let found = fs::symlink_metadata(target)?;
        if !self.is_same(&found, &expected) {
            return self.place_beside(temporary, target, "changed on the host meanwhile");
        }
        if !found.is_dir() && !put.object.is_tree() {
            return fs::rename(temporary, target);
        }
        self.exchange(temporary, target)
    }

    /// Swaps `temporary` and `target`, then removes what was there (now under the temporary name).
    fn exchange(&mut self, temporary: &Path, target: &Path) -> io::Result<()> {
        match rename(temporary, target, RenameFlags::EXCHANGE) {
            Err(problem) if lacks_flag(&problem) => {}
            Err(problem) => return Err(problem),
            Ok(()) => {
                self.outcome.note(target, remove_old(temporary));
                return Ok(());
            }
        }
        // A file system without exchange: a short moment without the name. Who is killed in it
        // leaves the old one under a name that nobody removes (invariant 1).
        let old = self.keep_aside(target, target);
        if old == target {
            return Err(io::Error::other("the old one cannot be put aside"));
        }
        if let Err(problem) = rename(temporary, target, RenameFlags::NOREPLACE) {
            // The name may be somebody else's by now.
            let back = rename(&old, target, RenameFlags::NOREPLACE).is_ok();
            return Err(if back { problem } else { the_rest_is(&old, &problem) });
        }
        self.outcome.note(target, remove_old(&old));
        Ok(())
    }

    fn place_beside(&mut self, temporary: &Path, target: &Path, what: &str) -> io::Result<()> {
        let aside = self.keep_aside(temporary, target);
        let kept = host::beside_in_words(&aside);
        let conflict = format!("{} {what}: the image's is {kept}", target.display());
        self.outcome.conflicts.push(conflict);
        Ok(())
    }

    fn keep_aside(&mut self, temporary: &Path, target: &Path) -> PathBuf {
        let aside = beside(target, self.number);
        if rename(temporary, &aside, RenameFlags::NOREPLACE).is_ok() {
            return aside;
        }
        // A name too long for an ending. Not the temporary one: a later run removes it.
        let (number, count) = (self.number, self.outcome.failures.len());
        let short = target.with_file_name(format!("husk-{number}-{count}"));
        match rename(temporary, &short, RenameFlags::NOREPLACE) {
            Ok(()) => short,
            Err(_) => temporary.to_owned(),
        }
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
        let found = match fs::symlink_metadata(path) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if !self.is_same(&found, &delete.identity) {
            let line = format!("{} changed on the host meanwhile: it is kept", path.display());
            self.outcome.conflicts.push(line);
            return Ok(());
        }
        let directory = path.parent().unwrap_or(Path::new("/"));
        self.directories.insert(directory.to_owned());
        if found.is_dir() {
            self.delete_directory(path, directory)?;
        } else {
            fs::remove_file(path)?;
        }
        self.outcome.removed += 1;
        Ok(())
    }

    fn delete_directory(&mut self, path: &Path, parent: &Path) -> io::Result<()> {
        // Out of sight at once: a crash in the middle leaves no half directory under its name.
        let temporary = self.names.fresh(parent);
        fs::rename(path, &temporary)?;
        let Err(problem) = host::remove_tree(&temporary) else { return Ok(()) };
        // Invariant 5. The name may be somebody else's by now.
        let back = rename(&temporary, path, RenameFlags::NOREPLACE).is_ok();
        Err(if back { problem } else { the_rest_is(&temporary, &problem) })
    }

    /// Phase 4: attributes of what stays.
    pub fn touch(&mut self, touch: &Touch) {
        match fs::symlink_metadata(&touch.path) {
            Ok(found) if !self.is_touched(&found, touch) => {
                let path = touch.path.display();
                let line = format!("{path} changed on the host meanwhile: its attributes are kept");
                return self.outcome.conflicts.push(line);
            }
            // What has gone says so itself.
            _ => {}
        }
        if let Some(wanted) = &touch.extended {
            self.outcome.note(&touch.path, extended::set(&touch.path, wanted));
        }
        let mut attributes = touch.attributes;
        let mode = attributes.step.mode;
        attributes.step.mode = self.unlocked.mode_for_now(&touch.path, mode);
        let set = host::set_attributes(&touch.path, &attributes);
        self.outcome.note(&touch.path, set);
    }

    /// Whether `found` is what was looked at, or has another name with the new attributes.
    fn is_touched(&self, found: &fs::Metadata, touch: &Touch) -> bool {
        let now = host::identity_of(found);
        let times = now.modified_ns == touch.attributes.modified_ns;
        let same = (now.device, now.inode) == (touch.before.device, touch.before.inode);
        same && (found.is_dir() || times || self.is_same(found, &touch.before))
    }

    /// Phase 5: names become durable.
    pub fn sync(&mut self) {
        for directory in std::mem::take(&mut self.directories) {
            // A directory removed meanwhile by a later deletion has nothing to sync.
            if directory.exists() {
                self.outcome.note(&directory, host::sync_directory(&directory));
            }
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

/// Removes what has lost its name to `temporary`; a failure says where the rest is.
fn remove_old(temporary: &Path) -> io::Result<()> {
    host::remove_tree(temporary).map_err(|problem| the_rest_is(temporary, &problem))
}

fn the_rest_is(temporary: &Path, problem: &io::Error) -> io::Error {
    let (why, rest) = (super::reason(problem), temporary.display());
    io::Error::other(format!("{why}; the rest of the old one is {rest}"))
}

/// `renameat2`, or a checked plain rename on file systems without the flag.
fn rename(source: &Path, target: &Path, flags: RenameFlags) -> io::Result<()> {
    let renamed = match lacking::flags() {
        true => Err(rustix::io::Errno::INVAL),
        false => renameat_with(CWD, source, CWD, target, flags),
    };
    let Err(problem) = renamed.map_err(io::Error::from) else { return Ok(()) };
    if !lacks_flag(&problem) || flags != RenameFlags::NOREPLACE {
        return Err(problem);
    }
    // A link never replaces anything; directories have none, but replace only empty ones.
    match fs::hard_link(source, target) {
        Ok(()) => fs::remove_file(source),
        Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => Err(problem),
        Err(_) if fs::symlink_metadata(target).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(source, target),
    }
}

/// Whether that is what a file system says that knows no flags of `renameat2`.
fn lacks_flag(problem: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(problem);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Opens what `plan` works in, carries it out, and closes that again, whatever happened.
pub fn carry_out<S: Source>(source: &mut S, run: &mut super::Work, plan: Plan) -> Outcome {
    let mut unlocked = Unlocked::default();
    let deletes = plan.deletes.iter().filter_map(|delete| delete.path.parent());
    let directories: BTreeSet<_> =
        plan.puts.iter().map(|put| &*put.directory).chain(deletes).collect();
    directories.into_iter().for_each(|directory| unlocked.open(directory));
    let mut outcome = carry_out_unlocked(source, run, plan, &mut unlocked);
    for (path, problem) in unlocked.close() {
        outcome.note(&path, Err(problem));
    }
    outcome
}

/// Makes, places, deletes, touches and syncs everything in `plan`.
fn carry_out_unlocked<S: Source>(
    source: &mut S,
    run: &mut super::Work,
    mut plan: Plan,
    unlocked: &mut Unlocked,
) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.conflicts.extend(plan.conflicts.iter().map(ToString::to_string));
    outcome.failures.append(&mut plan.failures);
    outcome.busy.append(&mut plan.busy);
    for directory in plan.puts.iter().map(|put| &put.directory).collect::<BTreeSet<_>>() {
        host::remove_leftovers(directory);
    }
    let super::Work { number, live, names, rescue, progress, ledger } = run;
    // Without its notes, a successor takes what is done for somebody else's, and both are kept.
    if let Err(problem) = ledger.begin(&plan) {
        outcome.failures.push(format!("no notes of what is written: {}", super::reason(&problem)));
    }
    let maker = Maker::new(source, names, rescue, progress, &mut outcome);
    let mut maker = maker.of_run(*live, ledger.notes());
    let made: Vec<_> = plan.puts.iter().map(|put| maker.make(put)).collect();
    let (mut kept, mut noted) = maker.finish();
    if *live {
        let taken = detach::detach(source, &plan, &mut kept, ledger, &mut outcome);
        for one in &mut noted {
            one.content = one.content.or(taken.get(&one.inode).copied());
        }
    }
    if let Err(problem) = ledger.note(&plan, noted) {
        outcome.failures.push(format!("no notes of what is written: {}", super::reason(&problem)));
    }
    kept.withheld.append(&mut plan.withheld);
    for inode in std::mem::take(&mut kept.unmade) {
        kept.withheld.extend(ledger.places(inode).map(|(path, _)| path.to_owned()));
    }
    let directories = BTreeSet::new();
    let (durable, live) = (kept.durable, *live);
    let mut commit =
        Commit { number: *number, names, outcome: &mut outcome, directories, unlocked, kept, live };
    for (put, made) in plan.puts.iter().zip(&made) {
        if let Some(made) = made {
            commit.place(put, made);
        }
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
