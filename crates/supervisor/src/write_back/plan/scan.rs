//! Walks an overlay's tree in the image, and decides what to change on the host and what is a
//! conflict.
//!
//! For each name of a listed directory one of these holds:
//!
//! ```text
//!   origin is this very path, nothing changed      nothing to do (the usual case: no host call);
//!                                                  so is a name that came from the host as it is
//!   origin is this very path, attributes changed   touch
//!   origin is this very path, bytes changed        put, replacing what was imported
//!   anything else                                  put, replacing what a whiteout names
//! ```
//!
//! and each whiteout whose name is not taken again is a delete.
//!
//! Invariants
//! 1. The scan changes nothing on the host, so the host can be compared with what was imported.
//! 2. What the host changed meanwhile is never replaced or deleted: the image's version goes
//!    beside it, and a conflict is noted.
//! 3. Recursion is at most `DEPTH_MAX` deep; deeper objects are reported and withheld.
//! 4. In a directory that the image removed or moved, changes of the host stay, and what leads to
//!    it; the rest goes. What the image has no record of was put there meanwhile, whatever its
//!    times say (`seen`).
//! 5. Where the host has removed a directory, what the image has made in it, or moved there, goes
//!    beside it; what the host had in it is gone.
//! 6. In a directory the image never listed, only names that it looked up count (a user who may
//!    search a directory, but not read it, works so); the rest of it is left alone.
//! 7. A name that a refresh has taken in is the host's, whatever an earlier write-back put there.

mod asked;
mod beside;
mod gone;
mod lost;
mod merged;
pub mod others;
mod seen;

pub use merged::is_like;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use husk_proto::fs::{Attributes, Backing, HostIdentity, Kind, Origin};
use husk_proto::{Errno, Inode};

use super::scan::seen::Seen;
use super::{Conflict, Content, Object, Plan, Touch, Wanted};
use crate::write_back::Source;
use crate::write_back::commit::detach;
use crate::write_back::host;
use crate::write_back::host::beneath::{Beneath, COVERED, Glance};
use crate::write_back::host::content;
use crate::write_back::host::extended;
use crate::write_back::host::extended::Extended;
use crate::write_back::record::ledger;
use crate::write_back::record::ledger::{Entry, Here, Ledger};

/// Deepest tree that is made at once. A host path of 4096 bytes leads less deep; the recursion of
/// the write-back needs less than 8 KiB of stack a level (`crate::write_back::STACK_BYTES`).
const DEPTH_MAX: u32 = 4096;

/// What the scan knows besides the image.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Number that tells this run's names from others' (its process).
    pub number: u32,
    /// When the image started, ns since the epoch: whatever the host shows as changed later in a
    /// directory that the image removed was not there when the image looked. The host's file system
    /// may have another clock, so that more than this counts (`seen`).
    pub started_ns: i64,
    /// Programs go on: what cannot be looked at now is looked at the next time.
    pub live: bool,
}

/// The host's coarse clock, from which the image has its times, goes on at least so often.
const STEP: Duration = Duration::from_millis(12);
/// Looks at all, while names come and go.
const SCANS: u32 = 3;
/// Looks at a directory that changes while it is looked at.
const LOOKS: u32 = 8;

/// Plans the write-back of all overlays: roots of their trees and where they lie on the host.
/// `ledger`: what earlier ones have put there.
pub fn scan<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    run: Run,
    ledger: &Ledger,
    overlays: &[(Inode, PathBuf)],
) -> Plan {
    let listed = others::list(source, beneath, overlays);
    for look in 1.. {
        let mut scan = Scan::new(source, beneath, run, ledger);
        for (root, path) in overlays {
            scan.directory_in_place(*root, path);
        }
        beneath.forget_looks();
        let (mut plan, has_listed) = (std::mem::take(&mut scan.plan), scan.has_listed);
        if has_listed && look < SCANS {
            // What the host has put into a directory that was moved here is known only now.
            continue;
        }
        others::find(scan.source, beneath, overlays, &mut plan);
        plan.notes.extend(others::told(scan.source, &plan));
        if let Err(problem) = listed {
            plan.notes.push(format!("other hard links of files cannot be looked for: {problem:?}"));
        }
        let takes = !plan.deletes.is_empty() || plan.puts.iter().any(|put| put.replaces.is_some());
        let unseen = !plan.busy.is_empty();
        if !run.live || !takes || !unseen && !scan.names_have_changed() {
            return plan;
        }
        if look == SCANS {
            // One may have been moved to where it was not seen.
            let count = plan.deletes.len();
            plan.deletes.clear();
            if count > 0 {
                plan.busy.push(format!("removed names ({count}): still changing"));
            }
            return plan;
        }
        thread::sleep(STEP);
    }
    unreachable!("the last look returns")
}

struct Scan<'a, S> {
    beneath: &'a Beneath,
    source: &'a mut S,
    run: Run,
    ledger: &'a Ledger,
    plan: Plan,
    /// Hashes of files, each taken once: all names of one are treated alike.
    hashes: HashMap<Inode, Option<u64>>,
    /// Attributes, each of one look, too, where that may be seen.
    looks: HashMap<Inode, Attributes>,
    /// What the image has seen of the host, once that is asked.
    seen: Option<Seen>,
    /// Directories that were looked at, and when they had changed last.
    visited: Vec<(Inode, i64)>,
    /// The one that is looked at.
    directory: Option<Inode>,
    /// The host's object whose name the image has given to another one.
    replaced: Option<Origin>,
    /// A directory that the image has moved was read.
    has_listed: bool,
}

/// A directory of the image that has its place on the host.
struct InPlace {
    inode: Inode,
    path: PathBuf,
    /// A write-back made it: what the image saw of the host before counts for nothing below it.
    made: bool,
}

/// How long the parts of a plan are, to go back to.
struct Mark([usize; 8]);

/// One name of a directory of the image.
struct Name {
    name: OsString,
    inode: Inode,
    /// The host's own name of it, unchanged.
    from_host: bool,
}

/// A host name that the image removed or replaced.
struct Whiteout {
    name: OsString,
    origin: Origin,
}

impl<'a, S: Source> Scan<'a, S> {
    fn new(source: &'a mut S, beneath: &'a Beneath, run: Run, ledger: &'a Ledger) -> Self {
        let (plan, hashes, looks, seen, visited, directory, replaced) = Default::default();
        let has_listed = false;
        Scan {
            beneath,
            source,
            run,
            ledger,
            plan,
            hashes,
            looks,
            seen,
            visited,
            directory,
            replaced,
            has_listed,
        }
    }

    /// Notes that a directory is looked at. One changed within `STEP` may change again untold.
    fn visit(&mut self, dir: Inode, changed_ns: i64) {
        let settled = changed_ns < crate::image::clock::exact_ns() - STEP.as_nanos() as i64;
        self.visited.push((dir, if settled { changed_ns } else { i64::MIN }));
    }

    /// Whether a name came or went since its directory was looked at.
    fn names_have_changed(&mut self) -> bool {
        let visited = std::mem::take(&mut self.visited);
        visited.iter().any(|(dir, changed_ns)| {
            let now = self.source.attributes(*dir);
            now.map_or(true, |now| now.changed_ns != *changed_ns)
        })
    }

    fn directory_in_place(&mut self, dir: Inode, path: &Path) {
        // An explicit stack: trees are as deep as the user makes them.
        let mut open = vec![InPlace { inode: dir, path: path.to_owned(), made: false }];
        while let Some(place) = open.pop() {
            self.look_at(&place, &mut open);
        }
        // Innermost first: what is written into a directory changes its times.
        self.plan.touches.sort_by(|a, b| b.path.cmp(&a.path));
    }

    /// Once, or as often as it takes while programs go on in it.
    fn look_at(&mut self, place: &InPlace, open: &mut Vec<InPlace>) {
        let mark = self.mark(open);
        self.directory = Some(place.inode);
        for _ in 0..LOOKS {
            let problem = match self.one_directory(place, open) {
                Ok(()) => return,
                Err(problem) => problem,
            };
            self.back_to(&mark, open);
            let vanished = matches!(problem, Errno::ESTALE | Errno::ENOENT);
            if !self.run.live || !vanished {
                let why = format!("cannot be read from the image: {problem:?}");
                return self.fail(&place.path, &why);
            }
        }
        self.plan.busy.push(format!("{}: still changing", place.path.display()));
    }

    fn mark(&self, open: &[InPlace]) -> Mark {
        let plan = &self.plan;
        Mark([
            plan.puts.len(),
            plan.deletes.len(),
            plan.touches.len(),
            plan.conflicts.len(),
            plan.failures.len(),
            plan.withheld.len(),
            open.len(),
            self.visited.len(),
        ])
    }

    fn back_to(&mut self, mark: &Mark, open: &mut Vec<InPlace>) {
        let plan = &mut self.plan;
        let Mark([puts, deletes, touches, conflicts, failures, withheld, opened, visited]) = *mark;
        plan.puts.truncate(puts);
        plan.deletes.truncate(deletes);
        plan.touches.truncate(touches);
        plan.conflicts.truncate(conflicts);
        plan.failures.truncate(failures);
        plan.withheld.truncate(withheld);
        open.truncate(opened);
        self.visited.truncate(visited);
    }

    fn one_directory(&mut self, place: &InPlace, open: &mut Vec<InPlace>) -> Result<(), Errno> {
        let (dir, path) = (place.inode, &*place.path);
        let mut attributes = self.source.attributes(dir)?;
        self.visit(dir, attributes.changed_ns);
        let imported = attributes.origin.map(|origin| self.source.host_identity(origin));
        let imported = imported.transpose()?;
        if let Some(imported) = imported {
            self.beneath.expect(path, imported.device);
        }
        let opened = self.beneath.directory(path).and_then(|opened| {
            self.beneath.ask_for_list(&opened);
            opened.metadata()
        });
        let (found, rights) = match opened {
            Ok(found) => (host::identity_of(&found), host::rights_of(&found)),
            Err(problem) if problem.to_string() == COVERED => {
                return self.lost_directory(dir, path, "is under a mount now");
            }
            Err(_) => return self.lost_directory(dir, path, "was removed on the host meanwhile"),
        };
        let mut extended = extended::of(self.source, dir, &attributes)?;
        let differs = self.differs(path, dir, &attributes, extended.as_ref())?;
        let before = self.plan.puts.len() + self.plan.deletes.len();
        self.names_of(place, &attributes, open)?;
        // Names that come and go change its time, whatever the image says of it.
        if differs || self.plan.puts.len() + self.plan.deletes.len() != before {
            let put = self.ledger.here(path).map(|here| here.identity);
            match put.or(imported) {
                Some(expected) => self.merge_or_note(path, &expected, &mut attributes),
                // Of a directory that both sides have made (`joins`).
                None => attributes.modified_ns = attributes.modified_ns.max(found.modified_ns),
            }
            self.merge_extended(path, &attributes, &mut extended);
            let (inode, before, path) = (dir, found, path.to_owned());
            self.plan.touches.push(Touch { path, inode, before, rights, attributes, extended });
        }
        Ok(())
    }

    fn names_of(
        &mut self,
        place: &InPlace,
        attributes: &Attributes,
        open: &mut Vec<InPlace>,
    ) -> Result<(), Errno> {
        let (dir, path) = (place.inode, &*place.path);
        if self.run.live && attributes.step.unlisted {
            if self.nothing_in(dir)? {
                return Ok(());
            }
            detach::list(self.source, self.beneath, dir, path)?;
        }
        let names = self.names(dir)?;
        let whiteouts = self.whiteouts(dir)?;
        let here: HashSet<&OsStr> = names.iter().map(|name| &*name.name).collect();
        let replaced: HashMap<&OsStr, Origin> =
            whiteouts.iter().map(|one| (&*one.name, one.origin)).collect();
        for whiteout in &whiteouts {
            let target = path.join(&whiteout.name);
            let known = match self.ledger.entry(&target) {
                // A refresh that was killed has taken another one in since (invariant 7).
                Some(Entry::Gone) => !self.is_as_seen(whiteout.origin, &target)?,
                entry => entry.is_some(),
            };
            let here = here.contains(&*whiteout.name);
            if !known && !here && (!place.made || self.is_from(whiteout.origin, &target)?) {
                self.deleted(path, whiteout)?;
            }
        }
        let ledger = self.ledger;
        for (path, known) in ledger.children(path) {
            if !known.aside && !here.contains(path.file_name().unwrap_or_default()) {
                self.removed(path, known.identity, known.rights);
            }
        }
        for name in &names {
            self.one_name(place, name, replaced.get(&*name.name).copied(), open)?;
        }
        Ok(())
    }

    /// An unlisted directory in which nothing was changed.
    fn nothing_in(&mut self, dir: Inode) -> Result<bool, Errno> {
        Ok(self.names(dir)?.is_empty() && self.whiteouts(dir)?.is_empty())
    }

    /// Whether a directory in its place has other attributes than the host's.
    fn differs(
        &mut self,
        path: &Path,
        inode: Inode,
        attributes: &Attributes,
        extended: Option<&Extended>,
    ) -> Result<bool, Errno> {
        match self.ledger.here(path) {
            Some(here) if here.is_of(inode) => {
                Ok(here.facts != ledger::facts(attributes, extended))
            }
            _ => self.changed(attributes),
        }
    }

    fn one_name(
        &mut self,
        place: &InPlace,
        name: &Name,
        replaced: Option<Origin>,
        open: &mut Vec<InPlace>,
    ) -> Result<(), Errno> {
        let target = place.path.join(&name.name);
        let attributes = self.look(name.inode)?;
        let origin = self.origin_path(&attributes)?;
        let directory = attributes.step.kind == Kind::Directory;
        // Invariant 7: taken in after what a write-back has done there.
        let named_so = origin.as_deref() == Some(&*target) || attributes.links > 1;
        let entry = self.ledger.entry(&target);
        // A name of several that is gone was moved here in the image, and not made yet.
        let moved = || matches!(entry, Some(Entry::Gone)) && !self.is_there(&target);
        let taken_in = name.from_host && named_so && !moved();
        let expected = match entry {
            Some(Entry::Here(here)) if here.is_of(name.inode) => {
                if directory {
                    let (inode, path, made) = (name.inode, target, here.made);
                    open.push(InPlace { inode, path, made });
                    return Ok(());
                }
                return self.written(&place.path, name, attributes, *here);
            }
            Some(Entry::Here(here)) if !taken_in => Some(here.identity),
            Some(Entry::Gone) if !taken_in => None,
            None if place.made && !taken_in => self.replaced_later(replaced, &target)?,
            _ if name.from_host || origin.as_deref() == Some(&*target) => {
                if directory {
                    open.push(InPlace { inode: name.inode, path: target, made: false });
                    return Ok(());
                }
                return self.kept(&place.path, name, attributes);
            }
            _ => replaced.map(|origin| self.source.host_identity(origin)).transpose()?,
        };
        if expected.is_none() && self.joins(&target, &attributes)? {
            open.push(InPlace { inode: name.inode, path: target, made: true });
            return Ok(());
        }
        let object = self.object(name.inode, attributes, origin, 0)?;
        self.replaced = replaced;
        self.put(&place.path, name.name.clone(), object, expected);
        self.replaced = None;
        Ok(())
    }

    /// What the image has replaced in a directory that a write-back has made: what a refresh has
    /// taken in there.
    fn replaced_later(
        &mut self,
        replaced: Option<Origin>,
        target: &Path,
    ) -> Result<Option<HostIdentity>, Errno> {
        match replaced {
            Some(origin) if self.is_from(origin, target)? => {
                self.source.host_identity(origin).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What an earlier write-back has put where it still is.
    fn written(
        &mut self,
        dir: &Path,
        name: &Name,
        attributes: Attributes,
        here: Here,
    ) -> Result<(), Errno> {
        let target = dir.join(&name.name);
        let in_image = host::has_own_bytes(&attributes);
        if in_image && !self.has_bytes_of(name.inode, &here, &target)? {
            let object = self.made_of(name.inode, attributes, Content::Image)?;
            self.put(dir, name.name.clone(), object, Some(here.identity));
            return Ok(());
        }
        let extended = extended::of(self.source, name.inode, &attributes)?;
        if ledger::facts(&attributes, extended.as_ref()) == here.facts {
            return Ok(());
        }
        self.touch(target, name.inode, &here.identity, attributes, extended);
        Ok(())
    }

    /// Whether a file of the image still has the bytes that a write-back has put at `path`.
    fn has_bytes_of(&mut self, inode: Inode, here: &Here, path: &Path) -> Result<bool, Errno> {
        let Some(content) = self.hash(inode) else { return Err(Errno::ESTALE) };
        if let Some(known) = here.content {
            return Ok(known == content);
        }
        let found = self.beneath.identity(path).ok().flatten();
        let same = found.is_some_and(|found| self.ledger.same(&here.identity, &found));
        let of_host = || self.beneath.read(path).and_then(|file| content::hash_of_host(&file)).ok();
        Ok(same && of_host() == Some(content))
    }

    fn hash(&mut self, inode: Inode) -> Option<u64> {
        let source = &mut *self.source;
        *self.hashes.entry(inode).or_insert_with(|| content::hash(source, inode).ok())
    }

    /// Where the host has the very file, bytes and all: its other names are made from it.
    fn on_host(&mut self, inode: Inode, attributes: &Attributes) -> Result<Option<PathBuf>, Errno> {
        let ledger = self.ledger;
        for (path, here) in ledger.places(inode) {
            let found = self.beneath.identity(path).ok().flatten();
            let same = found.is_some_and(|found| self.same(path, &here.identity, &found));
            let file = attributes.step.kind == Kind::File;
            if same && (!file || self.has_bytes_of(inode, here, path)?) {
                return Ok(Some(path.to_owned()));
            }
        }
        Ok(self.unchanged_origin(inode, attributes)?.filter(|path| ledger.entry(path).is_none()))
    }

    /// Where a file was imported from, if that is still there and the image has not changed it.
    fn unchanged_origin(
        &mut self,
        inode: Inode,
        attributes: &Attributes,
    ) -> Result<Option<PathBuf>, Errno> {
        let (Some(origin), Some(path)) = (attributes.origin, self.origin_path(attributes)?) else {
            return Ok(None);
        };
        let imported = self.source.host_identity(origin)?;
        let found = self.beneath.identity(&path).ok().flatten();
        let same = found.is_some_and(|found| self.same(&path, &imported, &found));
        let file = attributes.step.kind == Kind::File;
        let same = same && (!file || self.same_bytes(inode, attributes, &imported, &path));
        Ok(same.then_some(path))
    }

    /// A file, symlink or portal that is where it was imported.
    fn kept(&mut self, dir: &Path, name: &Name, attributes: Attributes) -> Result<(), Errno> {
        if !self.changed(&attributes)? {
            return Ok(());
        }
        let target = dir.join(&name.name);
        let Some(origin) = attributes.origin else { return Ok(()) };
        let expected = self.source.host_identity(origin)?;
        let in_image = host::has_own_bytes(&attributes);
        let same = !in_image || self.same_bytes(name.inode, &attributes, &expected, &target);
        if !same {
            let object = self.made_of(name.inode, attributes, Content::Image)?;
            self.put(dir, name.name.clone(), object, Some(expected));
            return Ok(());
        }
        let extended = extended::of(self.source, name.inode, &attributes)?;
        self.touch(target, name.inode, &expected, attributes, extended);
        Ok(())
    }

    /// A file that was copied into the image for writing, and nothing was written after all.
    fn same_bytes(
        &mut self,
        inode: Inode,
        attributes: &Attributes,
        imported: &HostIdentity,
        path: &Path,
    ) -> bool {
        let untouched =
            attributes.size == imported.size && attributes.modified_ns == imported.modified_ns;
        untouched && self.has_bytes(inode, path)
    }

    /// Whether the host's file at `path` has the bytes that the image has.
    fn has_bytes(&mut self, inode: Inode, path: &Path) -> bool {
        let file = self.beneath.read(path);
        file.and_then(|file| content::equal(self.source, inode, file)).unwrap_or(false)
    }

    /// Whether anything of an imported object differs from what was imported.
    fn changed(&mut self, attributes: &Attributes) -> Result<bool, Errno> {
        let Some(origin) = attributes.origin else { return Ok(true) };
        let imported = self.source.host_identity(origin)?;
        let in_image = host::has_own_bytes(attributes);
        // Extended attributes set within the tick of the host's last change leave no trace in the
        // times; other attributes do (`kernel::fs::attributes`).
        let extended = attributes.extended == Backing::Image;
        Ok(in_image
            || extended
            || attributes.changed_ns != imported.changed_ns
            || attributes.modified_ns != imported.modified_ns)
    }

    // ---- objects that appear --------------------------------------------------------------------

    /// Why the image's object may not take its name; `None`: it may.
    fn trouble(
        &mut self,
        target: &Path,
        found: Option<Glance>,
        expected: Option<HostIdentity>,
    ) -> Option<String> {
        match (expected, found) {
            (None, None) => None,
            (None, Some(_)) => Some("appeared on the host meanwhile".into()),
            (Some(_), None) => Some("was removed on the host meanwhile".into()),
            (Some(expected), Some(found)) => self.tampered(target, expected, found),
        }
    }

    /// Whether the host object at `path` is no longer what the image saw.
    fn tampered(&mut self, path: &Path, expected: HostIdentity, found: Glance) -> Option<String> {
        let noted_ns = self.ledger.to_go_since(path);
        let directory = found.directory && self.beneath.directory(path).is_ok();
        if !found.directory && !found.content {
            // Bytes that pass through a FIFO change its times.
            let same = found.identity.object() == expected.object();
            return (!same).then(|| "was replaced on the host meanwhile".into());
        }
        let found = found.identity;
        if !directory {
            // Links that were made of it changed its status.
            let changed_ns =
                if noted_ns.is_some() { expected.changed_ns } else { found.changed_ns };
            let found = HostIdentity { changed_ns, ..found };
            let same = self.same(path, &expected, &found);
            return (!same).then(|| "changed on the host meanwhile".into());
        }
        let same = found.object() == expected.object();
        if !same {
            return Some("was replaced on the host meanwhile".into());
        }
        match self.newer_below(path, noted_ns.unwrap_or(self.run.started_ns)) {
            Ok(None) => None,
            Ok(Some(newer)) => Some(format!("changed on the host meanwhile ({})", newer.display())),
            Err(problem) => {
                Some(format!("cannot be looked through: {}", crate::write_back::reason(&problem)))
            }
        }
    }

    /// Reads the names of a moved directory, where that is wanted; false: who makes it has it from
    /// the host as a whole.
    fn lists(&mut self, inode: Inode, origin: &Path) -> Result<bool, Errno> {
        if !self.run.live {
            return Ok(false);
        }
        match detach::list(self.source, self.beneath, inode, origin) {
            Ok(()) => {
                self.has_listed = true;
                Ok(true)
            }
            // This user may not read it, or somebody has moved it on the host, too: who makes this
            // tells it.
            Err(Errno::EACCES) => Ok(false),
            Err(Errno::ENOENT | Errno::ENOTDIR) if !self.is_there(origin) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn object(
        &mut self,
        inode: Inode,
        attributes: Attributes,
        origin: Option<PathBuf>,
        depth: u32,
    ) -> Result<Object, Errno> {
        let mut attributes = attributes;
        let was = origin.clone();
        let content = match (attributes.step.kind, attributes.backing, origin) {
            (Kind::Directory, _, Some(origin)) if attributes.step.unlisted => {
                match self.lists(inode, &origin)? {
                    true => Content::Tree(self.children(inode, depth + 1)?),
                    false => self.moved_unlisted(inode, origin, depth)?,
                }
            }
            (Kind::Directory, ..) => Content::Tree(self.children(inode, depth + 1)?),
            (Kind::Symlink, ..) => match self.on_host(inode, &attributes)? {
                Some(path) => Content::Host(path),
                None => Content::Symlink(self.link_target(inode)?),
            },
            (Kind::Portal, _, Some(origin)) => Content::Host(origin),
            (Kind::Portal, _, None) => return Err(Errno::EIO),
            (Kind::File, Backing::Host, Some(origin)) => Content::Host(origin),
            (Kind::File, ..) => match self.on_host(inode, &attributes)? {
                Some(path) => Content::Host(path),
                None => Content::Image,
            },
            (Kind::Fifo | Kind::Socket | Kind::CharacterDevice | Kind::BlockDevice, ..) => {
                match self.on_host(inode, &attributes)? {
                    Some(path) => Content::Host(path),
                    None => Content::Special,
                }
            }
        };
        if let (Content::Image, Some(path), Some(origin)) = (&content, was, attributes.origin) {
            let expected = self.source.host_identity(origin)?;
            self.merge_or_note(&path, &expected, &mut attributes);
        }
        self.made_of(inode, attributes, content)
    }

    /// A directory that was moved, and whose names were never all read: whole, as the host has it,
    /// unless some were changed. Then these alone move, and the rest stays.
    fn moved_unlisted(
        &mut self,
        dir: Inode,
        origin: PathBuf,
        depth: u32,
    ) -> Result<Content, Errno> {
        let changed = self.changed_children(dir, &origin, depth + 1, false)?;
        if changed.is_empty() && self.whiteouts(dir)?.is_empty() {
            return Ok(Content::HostTree(origin));
        }
        let why = "moved and changed, but cannot be listed: what was not changed stays here";
        self.fail(&origin, why);
        self.plan.withheld.push(origin);
        Ok(Content::Tree(changed))
    }

    fn made_of(
        &mut self,
        inode: Inode,
        mut attributes: Attributes,
        content: Content,
    ) -> Result<Object, Errno> {
        let moved = match &content {
            Content::Host(path) | Content::HostTree(path) => {
                self.beneath.pin(path);
                Some(path.clone())
            }
            // The names of a directory that has moved are looked at one by one.
            Content::Tree(_) => self.origin_path(&attributes)?,
            _ => None,
        };
        if let (Some(path), Some(origin)) = (moved, attributes.origin) {
            let expected = self.source.host_identity(origin)?;
            self.merge_or_note(&path, &expected, &mut attributes);
        }
        let mut extended = extended::of(self.source, inode, &attributes)?;
        if extended.is_some() {
            let put = self.ledger.places(inode).filter(|(_, here)| !here.aside);
            let put: Vec<PathBuf> = put.map(|(path, _)| path.to_owned()).collect();
            // An earlier write-back may have moved it.
            for path in put.into_iter().chain(self.origin_path(&attributes)?) {
                if self.merge_extended(&path, &attributes, &mut extended) {
                    break;
                }
            }
        }
        Ok(Object { inode, attributes, extended, content, is_hosts: false })
    }

    fn children(&mut self, dir: Inode, depth: u32) -> Result<Vec<(OsString, Object)>, Errno> {
        let mut children = Vec::new();
        if depth >= DEPTH_MAX {
            self.too_deep(dir)?;
            return Ok(children);
        }
        let attributes = self.source.attributes(dir)?;
        self.visit(dir, attributes.changed_ns);
        for name in self.names(dir)? {
            let attributes = self.look(name.inode)?;
            let origin = self.origin_path(&attributes)?;
            children.push((name.name, self.object(name.inode, attributes, origin, depth)?));
        }
        Ok(children)
    }

    /// Invariant 3: what lies in `dir` is not planned, and the host's part in it stays.
    fn too_deep(&mut self, dir: Inode) -> Result<(), Errno> {
        let mut open: Vec<_> = self.names(dir)?;
        if let Some(first) = open.first() {
            let why = format!("and what is beside it: deeper than {DEPTH_MAX} directories");
            self.fail(&PathBuf::from(first.name.clone()), &why);
        }
        while let Some(name) = open.pop() {
            let attributes = self.source.attributes(name.inode)?;
            let origin = self.origin_path(&attributes)?;
            self.plan.withheld.extend(origin);
            if attributes.step.kind == Kind::Directory && !attributes.step.unlisted {
                open.extend(self.names(name.inode)?);
            }
        }
        Ok(())
    }

    /// Whether the host still has an object.
    fn is_there(&self, path: &Path) -> bool {
        self.beneath.identity(path).is_ok_and(|found| found.is_some())
    }

    fn conflict(&mut self, path: &Path, wanted: Wanted, what: &str, outcome: &str) {
        let (path, what, outcome) = (path.to_owned(), what.to_owned(), outcome.to_owned());
        self.plan.conflicts.push(Conflict { path, wanted, what, outcome });
    }

    fn fail(&mut self, path: &Path, why: &str) {
        self.plan.failures.push(format!("{}: {why}", path.display()));
    }
}
