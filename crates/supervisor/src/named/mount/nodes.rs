//! FUSE's node numbers, and how each object is reached in the image.
//!
//! ```text
//!   number ─► directory: a descriptor that stands for it, however it is renamed
//!          ─► open file: the descriptor of who has it open, also when it has no name left
//!          ─► else:      (directory, name) where it was last seen, looked at once more
//!          ─► joint:     a directory that only leads to trees: /a/b where /a/b/tree is one
//! ```
//!
//! Invariants
//! 1. A number is the inode's as programs of the image see it, but for the root and for joints.
//! 2. What is reached by a name is what it was looked up as, or the call fails with ESTALE, and
//!    the host's kernel looks the name up again.
//! 3. A file that nobody has open is not held: what a program of the image removes gives its memory
//!    back at once, whatever the host's kernel remembers.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::{Errno, Result};

/// The number of what `DIR` shows.
pub const ROOT: u64 = 1;
/// Numbers of joints begin here.
const JOINTS: u64 = 1 << 62;
/// Set in numbers of objects of other file systems of the host, which lie in an overlay.
const ELSEWHERE: u64 = 1 << 63;
/// Names of a file that are remembered.
const PLACES_MAX: usize = 4;
/// Directories on the way to an object that are looked up by name, at most.
const DEPTH_MAX: usize = 256;

/// A directory that only leads to trees.
#[derive(Debug)]
pub struct Joint {
    /// The one above it.
    pub parent: u64,
    /// What it holds.
    pub entries: Vec<(OsString, u64)>,
}

/// All that the host's kernel knows.
#[derive(Debug)]
pub struct Nodes {
    joints: HashMap<u64, Joint>,
    table: Mutex<Table>,
    /// What all objects of the image have as their device.
    device: u64,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<u64, Node>,
    /// How many directories more may be held open.
    room: usize,
}

#[derive(Debug)]
struct Node {
    /// What is found where it is; the number itself, but for the root.
    identity: u64,
    /// The root of a tree: never forgotten.
    pinned: bool,
    lookups: u64,
    directory: Option<Arc<OwnedFd>>,
    /// Where it was seen, last at last.
    places: Vec<(u64, OsString)>,
    open: Vec<Arc<OwnedFd>>,
}

impl Nodes {
    /// Those of `trees` that lie in `root`, or the part of one that `root` is; at most `room`
    /// directories are held open. What is on the first one's device keeps its number: a mount has
    /// one device.
    pub fn plant(root: &Path, trees: &[PathBuf], room: usize) -> Result<Nodes> {
        let table = Mutex::new(Table { nodes: HashMap::new(), room });
        let mut nodes = Nodes { joints: HashMap::new(), table, device: 0 };
        if trees.iter().any(|tree| root.starts_with(tree)) {
            nodes.device = statat(CWD, root, AtFlags::empty())?.st_dev;
            nodes.pin(ROOT, root)?;
            return Ok(nodes);
        }
        nodes.joints.insert(ROOT, Joint { parent: ROOT, entries: Vec::new() });
        let inner = |tree: &Path| trees.iter().any(|one| one != tree && tree.starts_with(one));
        for tree in trees.iter().filter(|tree| !inner(tree)) {
            let Ok(way) = tree.strip_prefix(root) else { continue };
            if nodes.device == 0 {
                nodes.device = statat(CWD, tree, AtFlags::empty())?.st_dev;
            }
            nodes.lead_to(tree, way)?;
        }
        Ok(nodes)
    }

    /// Makes the joints on the way to a tree, and its root.
    fn lead_to(&mut self, tree: &Path, way: &Path) -> Result<()> {
        let mut at = ROOT;
        let mut names = way.components().peekable();
        while let Some(Component::Normal(name)) = names.next() {
            let known = self.joints[&at].entries.iter().find(|(known, _)| known == name);
            let number = match known.map(|(_, number)| *number) {
                Some(number) => number,
                None => {
                    let number = match names.peek() {
                        Some(_) => self.new_joint(at),
                        None => self.number_of(&statat(CWD, tree, AtFlags::empty())?),
                    };
                    self.joints.entry(at).and_modify(|j| j.entries.push((name.into(), number)));
                    number
                }
            };
            at = number;
        }
        self.pin(at, tree)
    }

    fn new_joint(&mut self, parent: u64) -> u64 {
        let number = JOINTS + self.joints.len() as u64;
        self.joints.insert(number, Joint { parent, entries: Vec::new() });
        number
    }

    fn pin(&mut self, number: u64, tree: &Path) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, tree, flags, Mode::empty())?;
        let identity = self.number_of(&fstat(&opened)?);
        let directory = Some(Arc::new(opened));
        let (places, open) = (Vec::new(), Vec::new());
        let node = Node { identity, pinned: true, lookups: 0, directory, places, open };
        self.table().nodes.insert(number, node);
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No change of it stops half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of what `found` describes.
    pub fn number_of(&self, found: &Stat) -> u64 {
        self.number_on(found.st_dev, found.st_ino)
    }

    /// The number of object `number` of a device.
    pub fn number_on(&self, device: u64, number: u64) -> u64 {
        let own = device == self.device && number > ROOT && number < JOINTS;
        if own { number } else { number ^ device.rotate_left(40) | ELSEWHERE }
    }

    /// The joint that has this number.
    pub fn joint(&self, number: u64) -> Option<&Joint> {
        self.joints.get(&number)
    }

    /// What a tree of these is reached by, for what is asked of a joint.
    pub fn any_tree(&self) -> Result<Arc<OwnedFd>> {
        let table = self.table();
        let mut pinned = table.nodes.values().filter(|node| node.pinned);
        pinned.find_map(|node| node.directory.clone()).ok_or(Errno::STALE)
    }

    /// Looks `name` up in directory `parent`: its number, if it is not a joint also what it is
    /// like. The host's kernel knows it from then on.
    pub fn look_up(&self, parent: u64, name: &OsStr) -> Result<(u64, Option<Stat>)> {
        if let Some(joint) = self.joint(parent) {
            let entry = joint.entries.iter().find(|(known, _)| known == name);
            let number = entry.ok_or(Errno::NOENT)?.1;
            let found = match self.joint(number) {
                Some(_) => None,
                None => Some(fstat(&*self.hold(number)?)?),
            };
            return Ok((number, found));
        }
        let directory = self.hold(parent)?;
        let found = statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let number = self.number_of(&found);
        self.seen(number, (parent, name), &directory, &found);
        Ok((number, Some(found)))
    }

    /// Takes note of what was seen at `place`, which is in `directory`.
    pub fn seen(&self, number: u64, place: (u64, &OsStr), directory: &OwnedFd, found: &Stat) {
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let wanted = is_directory && {
            let table = self.table();
            let known = table.nodes.get(&number);
            table.room > 0 && known.is_none_or(|node| node.directory.is_none())
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = wanted.then(|| openat(directory, place.1, flags, Mode::empty()).ok());
        let is_it = |opened: &OwnedFd| fstat(opened).is_ok_and(|it| self.number_of(&it) == number);
        let opened = opened.flatten().filter(is_it);
        let mut table = self.table();
        let Table { nodes, room } = &mut *table;
        let node = nodes.entry(number).or_insert_with(|| Node::new(number));
        node.lookups += 1;
        node.note(place, if is_directory { 1 } else { PLACES_MAX });
        if let (None, Some(opened)) = (&node.directory, opened) {
            node.directory = Some(Arc::new(opened));
            *room = room.saturating_sub(1);
        }
    }

    /// The host's kernel has forgotten `lookups` of what it learnt about `number`.
    pub fn forget(&self, number: u64, lookups: u64) {
        let mut table = self.table();
        let Table { nodes, room } = &mut *table;
        let Some(node) = nodes.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 && !node.pinned && node.open.is_empty() {
            *room += usize::from(node.directory.is_some());
            nodes.remove(&number);
        }
    }

    /// A descriptor for it, which may stand for the place alone (`O_PATH`).
    pub fn hold(&self, number: u64) -> Result<Arc<OwnedFd>> {
        self.hold_within(number, DEPTH_MAX)
    }

    fn hold_within(&self, number: u64, depth: usize) -> Result<Arc<OwnedFd>> {
        let (identity, places) = {
            let table = self.table();
            let node = table.nodes.get(&number).ok_or(Errno::STALE)?;
            if let Some(held) = node.directory.as_ref().or(node.open.last()) {
                return Ok(Arc::clone(held));
            }
            (node.identity, node.places.clone())
        };
        let depth = depth.checked_sub(1).ok_or(Errno::LOOP)?;
        for (parent, name) in places.iter().rev() {
            let Ok(parent) = self.hold_within(*parent, depth) else { continue };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(opened) = openat(&*parent, name, flags, Mode::empty()) else { continue };
            if fstat(&opened).is_ok_and(|found| self.number_of(&found) == identity) {
                return Ok(Arc::new(opened));
            }
        }
        Err(Errno::STALE)
    }

    /// Somebody has it open by `descriptor`.
    pub fn opened(&self, number: u64, descriptor: &Arc<OwnedFd>) {
        if let Some(node) = self.table().nodes.get_mut(&number) {
            node.open.push(Arc::clone(descriptor));
        }
    }

    /// And no longer.
    pub fn closed(&self, number: u64, descriptor: &Arc<OwnedFd>) {
        let mut table = self.table();
        let Some(node) = table.nodes.get_mut(&number) else { return };
        node.open.retain(|open| !Arc::ptr_eq(open, descriptor));
        if node.lookups == 0 && !node.pinned && node.open.is_empty() {
            table.nodes.remove(&number);
        }
    }
}

impl Node {
    fn new(number: u64) -> Node {
        let (places, open) = (Vec::new(), Vec::new());
        Node { identity: number, pinned: false, lookups: 0, directory: None, places, open }
    }

    /// It was seen at `place`; of `most` places the last are remembered.
    fn note(&mut self, place: (u64, &OsStr), most: usize) {
        self.places.retain(|(parent, name)| (*parent, name.as_os_str()) != place);
        self.places.push((place.0, place.1.to_owned()));
        let surplus = self.places.len().saturating_sub(most);
        self.places.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn plant(root: &Path, trees: &[&Path]) -> Nodes {
        let trees: Vec<PathBuf> = trees.iter().map(|tree| (*tree).to_owned()).collect();
        Nodes::plant(root, &trees, 100).unwrap()
    }

    fn look(nodes: &Nodes, parent: u64, name: &str) -> Result<u64> {
        nodes.look_up(parent, OsStr::new(name)).map(|(number, _)| number)
    }

    #[test]
    fn joints_lead_to_trees_and_to_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        fs::create_dir_all(at.join("a/b/tree/sub")).unwrap();
        fs::create_dir_all(at.join("a/other")).unwrap();
        fs::write(at.join("a/b/tree/file"), "x").unwrap();
        let (tree, other) = (at.join("a/b/tree"), at.join("a/other"));
        let nodes = plant(at, &[&tree, &tree.join("sub"), &other]);
        let a = look(&nodes, ROOT, "a").unwrap();
        let b = look(&nodes, a, "b").unwrap();
        let root = look(&nodes, b, "tree").unwrap();
        assert!(nodes.joint(a).is_some() && nodes.joint(b).is_some());
        assert!(nodes.joint(root).is_none() && look(&nodes, root, "file").is_ok());
        assert!(look(&nodes, root, "sub").is_ok() && look(&nodes, a, "other").is_ok());
        assert_eq!(look(&nodes, a, "nothing"), Err(Errno::NOENT));
        // The part of a tree is a root of its own.
        let part = plant(&tree, &[&tree]);
        assert!(part.joint(ROOT).is_none() && look(&part, ROOT, "file").is_ok());
    }

    #[test]
    fn who_is_renamed_is_found_again_and_who_takes_its_place_is_not_taken_for_it() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        fs::create_dir(at.join("d")).unwrap();
        fs::write(at.join("d/file"), "first").unwrap();
        let nodes = plant(at, &[at]);
        let directory = look(&nodes, ROOT, "d").unwrap();
        let file = look(&nodes, directory, "file").unwrap();
        fs::rename(at.join("d"), at.join("e")).unwrap();
        assert!(nodes.hold(file).is_ok(), "its directory was renamed");
        fs::write(at.join("second"), "second").unwrap();
        fs::rename(at.join("second"), at.join("e/file")).unwrap();
        assert_eq!(nodes.hold(file).unwrap_err(), Errno::STALE);
    }

    #[test]
    fn one_of_two_names_may_go_and_what_is_forgotten_is_gone() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        fs::write(at.join("one"), "x").unwrap();
        fs::hard_link(at.join("one"), at.join("two")).unwrap();
        let nodes = plant(at, &[at]);
        let file = look(&nodes, ROOT, "one").unwrap();
        assert_eq!(look(&nodes, ROOT, "two"), Ok(file));
        fs::remove_file(at.join("two")).unwrap();
        let held = nodes.hold(file).unwrap();
        nodes.opened(file, &held);
        fs::remove_file(at.join("one")).unwrap();
        assert!(nodes.hold(file).is_ok(), "somebody has it open");
        nodes.forget(file, 2);
        assert!(nodes.hold(file).is_ok(), "somebody has it open");
        nodes.closed(file, &held);
        assert_eq!(nodes.hold(file).unwrap_err(), Errno::STALE);
        assert!(nodes.table().nodes.len() == 1);
    }
}
