//! Turns a plan into a list of changed paths.
//!
//! ```text
//!   plan.puts ────► added, changed, moved: each name, also below a directory that appears
//!   plan.deletes ─► removed: each name, also below a directory that goes
//!   plan.touches ─► attributes
//!   conflicts ────► marks on those, or changes that will not be
//! ```
//!
//! Invariants
//! 1. A path of the host that goes is told: as removed, or as where something else was.
//! 2. One path has one change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::change::{Bytes, Change, Thing, Verb, What};
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::content;
use crate::write_back::host::extended::Extended;
use crate::write_back::plan::{Content, Object, Plan, Put, Wanted, beside};
use crate::write_back::{Overlay, Source, origin_path};

/// What a plan comes to: changes in the order of their paths, and what could not be looked at, a
/// line each.
pub struct Collected {
    /// The changes.
    pub changes: Vec<Change>,
    /// What could not be looked at.
    pub unseen: Vec<String>,
}

/// Makes changes of a plan. `number`: of the run whose plan it is.
pub fn collect<S: Source>(
    source: &mut S,
    plan: &Plan,
    number: u32,
    overlays: &[Overlay],
) -> Collected {
    let mut overlays: Vec<&Path> = overlays.iter().map(|(_, path)| &**path).collect();
    // The deepest one that holds a path counts.
    overlays.sort_by_key(|path| std::cmp::Reverse(path.as_os_str().len()));
    let gone = plan.deletes.iter().map(|delete| delete.path.clone()).collect();
    let (changes, taken, trees, unseen) = Default::default();
    let aside = false;
    let mut collect = Collect { source, overlays, gone, changes, taken, trees, unseen, aside };
    // Asides of one run have one ending.
    let asides: HashMap<PathBuf, PathBuf> = (plan.conflicts.iter())
        .map(|conflict| (beside(&conflict.path, number), conflict.path.clone()))
        .collect();
    for put in &plan.puts {
        collect.put(put, &asides);
    }
    for delete in &plan.deletes {
        collect.removed(&delete.path);
    }
    for touch in &plan.touches {
        let old = Thing::at(&touch.path);
        let new = old.clone().map(|old| old.with(&touch.attributes));
        collect.kept(&touch.path, old, new, touch.extended.as_ref());
    }
    for conflict in &plan.conflicts {
        collect.mark(&conflict.path, conflict.wanted, &conflict.what);
    }
    let Collect { changes, mut unseen, .. } = collect;
    unseen.extend(plan.failures.iter().cloned());
    unseen.extend(plan.busy.iter().cloned());
    Collected { changes: changes.into_values().collect(), unseen }
}

struct Collect<'a, S> {
    source: &'a mut S,
    overlays: Vec<&'a Path>,
    /// Host paths that go, and with them what is below.
    gone: HashSet<PathBuf>,
    changes: BTreeMap<PathBuf, Change>,
    /// Host paths that something else was moved from.
    taken: HashSet<PathBuf>,
    /// The same of directories, with all that is below.
    trees: HashSet<PathBuf>,
    unseen: Vec<String>,
    /// What is looked at is to stand beside the host's, which stays.
    aside: bool,
}

impl<S: Source> Collect<'_, S> {
    fn put(&mut self, put: &Put, asides: &HashMap<PathBuf, PathBuf>) {
        let target = put.target();
        let target = asides.get(&target).filter(|_| put.aside).cloned().unwrap_or(target);
        self.aside = put.aside;
        self.object(&target, &put.object, false);
    }

    /// An object that appears at `target`. `along`: the directory that holds it was moved with it.
    fn object(&mut self, target: &Path, object: &Object, along: bool) {
        let from = self.moved_from(target, object);
        let old = match &from {
            Some(from) => Thing::at(from),
            None => Thing::at(target),
        };
        let Some(new) = Thing::of_object(object) else {
            let line = format!("{}: what it is made from has gone", target.display());
            return self.unseen.push(line);
        };
        match &object.content {
            Content::Tree(children) => {
                self.tree(target, object, (from, old, new), along, children);
            }
            Content::HostTree(origin) => {
                let below = self.below(origin);
                self.trees.insert(origin.clone());
                self.add(target, Verb::Moved, from, old, Some(new), along);
                for path in below {
                    let moved = path.strip_prefix(origin).map(|rest| target.join(rest));
                    let found = Thing::at(&path);
                    if let Ok(moved) = moved {
                        self.add(&moved, Verb::Moved, Some(path), found.clone(), found, true);
                    }
                }
            }
            _ => match from {
                Some(from) => {
                    // With its directory, and as it was: nothing of its own to tell.
                    let as_it_was = matches!(&object.content, Content::Host(_))
                        && old
                            .as_ref()
                            .is_some_and(|old| (old.mode, old.owner) == (new.mode, new.owner));
                    let along = along && (as_it_was || old.as_ref() == Some(&new));
                    self.add(target, Verb::Moved, Some(from), old, Some(new), along);
                }
                None => self.kept(target, old, Some(new), object.extended.as_ref()),
            },
        }
    }

    /// A directory that appears with names in it.
    fn tree(
        &mut self,
        target: &Path,
        object: &Object,
        (from, old, new): (Option<PathBuf>, Option<Thing>, Thing),
        along: bool,
        children: &[(std::ffi::OsString, Object)],
    ) {
        let before = match &from {
            Some(from) => Some(from.clone()),
            None => Some(target.to_owned()).filter(|_| is_directory(old.as_ref())),
        };
        let moved = from.is_some();
        match from {
            Some(from) => self.add(target, Verb::Moved, Some(from), old, Some(new), along),
            None => self.kept(target, old, Some(new), object.extended.as_ref()),
        }
        for (name, child) in children {
            let with = before.as_ref().filter(|_| moved).map(|before| before.join(name));
            let along = with.is_some() && self.origin(child) == with;
            self.object(&target.join(name), child, along);
        }
        // What a directory held that another one takes the place of.
        let replaced = before.filter(|_| !moved && !self.aside);
        let names: HashSet<_> = children.iter().map(|(name, _)| &**name).collect();
        let held = replaced.map(|directory| self.names(&directory)).unwrap_or_default();
        for path in held {
            if !names.contains(path.file_name().unwrap_or_default()) {
                self.removed(&path);
            }
        }
    }

    /// Where an object is on the host, or was when it was imported.
    fn origin(&mut self, object: &Object) -> Option<PathBuf> {
        match &object.content {
            Content::HostTree(path) | Content::Host(path) => Some(path.clone()),
            _ => origin_path(self.source, &object.attributes).ok().flatten(),
        }
    }

    /// Where it was, if that goes; the first of several names of one file has it.
    fn moved_from(&mut self, target: &Path, object: &Object) -> Option<PathBuf> {
        let origin = self.origin(object)?;
        let goes = origin.ancestors().any(|above| self.gone.contains(above));
        (goes && origin != target && self.taken.insert(origin.clone())).then_some(origin)
    }

    /// What is at a path stays, or becomes another.
    fn kept(
        &mut self,
        target: &Path,
        old: Option<Thing>,
        new: Option<Thing>,
        extended: Option<&Extended>,
    ) {
        let (Some(before), Some(after)) = (&old, &new) else {
            let verb = if old.is_none() { Verb::Added } else { Verb::Removed };
            return self.add(target, verb, None, old, new, false);
        };
        let directory = before.what == What::Directory && after.what == What::Directory;
        let content =
            before.what != after.what || !directory && !self.has_same_bytes(before, after);
        let differs = extended.is_some_and(|wanted| {
            let found = Held::at(target).and_then(|held| held.extended());
            found.is_ok_and(|found| !is_alike(&found, wanted))
        });
        let (mode, owner) = (before.mode != after.mode, before.owner != after.owner);
        // Names that come and go change the times of a directory.
        let times = !directory && before.modified_ns != after.modified_ns;
        if content || differs || mode && before.what != What::Symlink || owner || times {
            let verb = if content { Verb::Changed } else { Verb::Attributes };
            self.add(target, verb, None, old, new, false);
            if let Some(change) = self.changes.get_mut(target) {
                change.extended = differs;
            }
        }
    }

    /// Whether a name that gets another object shows the same content.
    fn has_same_bytes(&mut self, before: &Thing, after: &Thing) -> bool {
        match (&before.bytes, &after.bytes) {
            (Bytes::Host(path), Bytes::Image(inode)) => {
                let file = || Held::at(path).and_then(|held| held.read());
                let equal = |file| content::equal(self.source, *inode, file);
                before.size == after.size && file().and_then(equal).unwrap_or(false)
            }
            (one, two) => one == two,
        }
    }

    /// All at and below a path of the host goes, but for what was moved away.
    fn removed(&mut self, path: &Path) {
        let all = std::iter::once(path.to_owned()).chain(self.below(path));
        for path in all.collect::<Vec<_>>() {
            let tree = path.ancestors().any(|above| self.trees.contains(above));
            // Another object has taken the name.
            if tree || self.taken.contains(&path) || self.changes.contains_key(&path) {
                continue;
            }
            if let Some(old) = Thing::at(&path) {
                self.add(&path, Verb::Removed, None, Some(old), None, false);
            }
        }
    }

    /// All that the host has below a directory. No link is followed.
    fn below(&mut self, path: &Path) -> Vec<PathBuf> {
        let (mut found, mut open) = (Vec::new(), vec![path.to_owned()]);
        while let Some(directory) = open.pop() {
            for path in self.names(&directory) {
                if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
                    open.push(path.clone());
                }
                found.push(path);
            }
        }
        found
    }

    /// What the host has in a directory; nothing, where it is none.
    fn names(&mut self, directory: &Path) -> Vec<PathBuf> {
        if !fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir()) {
            return Vec::new();
        }
        let listed = fs::read_dir(directory)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        listed.unwrap_or_else(|problem: io::Error| {
            let why = crate::run::request::reason(&problem);
            self.unseen.push(format!("{}: {why}", directory.display()));
            Vec::new()
        })
    }

    fn add(
        &mut self,
        target: &Path,
        verb: Verb,
        from: Option<PathBuf>,
        old: Option<Thing>,
        new: Option<Thing>,
        implied: bool,
    ) {
        let overlay = self.overlays.iter().find(|overlay| target.starts_with(overlay));
        let Some(overlay) = overlay.map(|overlay| overlay.to_path_buf()) else { return };
        let path = target.strip_prefix(&overlay).map(Path::to_owned).unwrap_or_default();
        let (extended, conflict) = (false, None);
        let change = Change { verb, overlay, path, from, old, new, extended, conflict, implied };
        self.changes.insert(target.to_owned(), change);
    }

    /// Somebody else has changed what the image has changed.
    fn mark(&mut self, path: &Path, wanted: Wanted, what: &str) {
        if !self.changes.contains_key(path) {
            let old = Thing::at(path);
            let verb = match wanted {
                Wanted::Object => Verb::Changed,
                Wanted::Removal => Verb::Removed,
                Wanted::Attributes => Verb::Attributes,
            };
            self.add(path, verb, None, old, None, false);
        }
        if let Some(change) = self.changes.get_mut(path) {
            change.conflict = Some(what.to_owned());
        }
    }
}

fn is_directory(thing: Option<&Thing>) -> bool {
    thing.is_some_and(|thing| thing.what == What::Directory)
}

/// Whether both say the same, in whatever order.
fn is_alike(one: &Extended, two: &Extended) -> bool {
    let sorted = |all: &Extended| {
        let mut all = all.clone();
        all.sort();
        all
    };
    sorted(one) == sorted(two)
}
