//! What a write-back will change on the host, decided before anything is changed.
//!
//! A `Plan` is data: the scan makes it, the commit carries it out, tests read it.

pub mod choose;
pub mod derived;
pub mod scan;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use husk_proto::Inode;
use husk_proto::fs::{Attributes, HostIdentity, Rights};

use super::Overlay;
use super::host::below::Below;
use super::host::extended::{Extended, Settling};
use crate::output::typed::typed;

/// Longest name on a file system of Linux.
const NAME_BYTES_MAX: usize = 255;

/// Everything a write-back will do.
#[derive(Debug, Default)]
pub struct Plan {
    /// Objects that appear under a name of a host directory.
    pub puts: Vec<Put>,
    /// Host objects that go.
    pub deletes: Vec<Delete>,
    /// Mode, owner and times of objects that stay; directories after what they hold.
    pub touches: Vec<Touch>,
    /// What somebody else did to the host meanwhile.
    pub conflicts: Vec<Conflict>,
    /// What could not even be looked at, one line each.
    pub failures: Vec<String>,
    /// Host paths that must stay because their content in the image will not be written.
    pub withheld: Vec<PathBuf>,
    /// What changes too fast to be looked at, one line each.
    pub busy: Vec<String>,
    /// What is good to know, one line each.
    pub notes: Vec<String>,
    /// What was below directories that go or are replaced, when they were looked through.
    pub below: HashMap<PathBuf, Below>,
    /// Mode and owner that only the host has changed.
    pub taken: Vec<Taken>,
    /// Extended attributes that only the host has changed.
    pub taken_extended: Vec<Settling>,
    /// Those that both have changed: they are told, and then no news.
    pub told_extended: Vec<Settling>,
    /// Those that only the image has changed or removed.
    pub our_extended: HashMap<Inode, Vec<CString>>,
    /// Mode and owner of what is replaced, by device and inode, before they were looked at.
    pub rights: HashMap<(u64, u64), Rights>,
    /// Directories that the host has removed, and that are made again for what is new in them. What
    /// write-backs have put into them before, and the image has not changed since, stays away.
    pub made_again: HashSet<PathBuf>,
    /// The trees that it is of.
    pub overlays: Vec<Overlay>,
}

/// Rights that the host alone has changed: the plan has those of the host, the image not yet. It
/// is to have them, so that no later write-back takes them back.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Whose.
    pub inode: Inode,
    /// What the host had.
    pub before: Rights,
    /// What it has.
    pub found: Rights,
}

impl Plan {
    /// Adds all of `other`.
    pub fn extend(&mut self, other: Plan) {
        self.puts.extend(other.puts);
        self.deletes.extend(other.deletes);
        self.touches.extend(other.touches);
        self.conflicts.extend(other.conflicts);
        self.failures.extend(other.failures);
        self.withheld.extend(other.withheld);
        self.busy.extend(other.busy);
        self.notes.extend(other.notes);
        self.below.extend(other.below);
        self.taken.extend(other.taken);
        self.taken_extended.extend(other.taken_extended);
        self.told_extended.extend(other.told_extended);
        self.our_extended.extend(other.our_extended);
        self.rights.extend(other.rights);
        self.made_again.extend(other.made_again);
    }

    /// Where something appears.
    pub fn directories_of_puts(&self) -> BTreeSet<&Path> {
        distinct(self.puts.iter().map(|put| &*put.directory))
    }

    /// Where something appears or goes.
    pub fn directories(&self) -> BTreeSet<&Path> {
        let deletes = self.deletes.iter().filter_map(|delete| delete.path.parent());
        distinct(self.puts.iter().map(|put| &*put.directory).chain(deletes))
    }

    /// Nothing to do and nothing to say.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty()
            && self.deletes.is_empty()
            && self.touches.is_empty()
            && self.conflicts.is_empty()
            && self.failures.is_empty()
            && self.busy.is_empty()
    }
}

/// Many in a row are the same.
fn distinct<'p>(paths: impl Iterator<Item = &'p Path>) -> BTreeSet<&'p Path> {
    let mut last = None;
    paths.filter(|path| last.replace(path.as_os_str()) != Some(path.as_os_str())).collect()
}

/// Where the host has changed meanwhile what the image has changed.
#[derive(Debug)]
pub struct Conflict {
    /// Where, on the host.
    pub path: PathBuf,
    /// What the image wants there.
    pub wanted: Wanted,
    /// What happened on the host.
    pub what: String,
    /// What comes of it.
    pub outcome: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", typed(&self.path), self.what, self.outcome)
    }
}

/// What the image wants at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// An object of its own.
    Object,
    /// Nothing.
    Removal,
    /// Other attributes of what is there.
    Attributes,
}

/// An object that appears.
#[derive(Debug)]
pub struct Put {
    /// Host directory; it is there.
    pub directory: PathBuf,
    /// Name in it.
    pub name: OsString,
    /// What.
    pub object: Object,
    /// What the image replaced under this name; `None`: the name was free.
    pub replaces: Option<HostIdentity>,
    /// It stands beside what somebody else changed.
    pub aside: bool,
}

impl Put {
    /// Where it will be.
    pub fn target(&self) -> PathBuf {
        let room = self.directory.as_os_str().len() + 1 + self.name.len();
        let mut target = PathBuf::with_capacity(room);
        target.extend([self.directory.as_os_str(), &self.name]);
        target
    }
}

/// A host object that goes.
#[derive(Debug)]
pub struct Delete {
    /// Where.
    pub path: PathBuf,
    /// What it was when the image saw it.
    pub identity: HostIdentity,
}

/// Attributes to be set in place.
#[derive(Debug)]
pub struct Touch {
    /// On what.
    pub path: PathBuf,
    /// Its inode in the image.
    pub inode: Inode,
    /// What it is on the host before.
    pub before: HostIdentity,
    /// Mode, owner and group that it has there.
    pub rights: Rights,
    /// To what.
    pub attributes: Attributes,
    /// Extended ones, if they are not to stay as they are.
    pub extended: Option<Extended>,
}

/// What appears under a name.
#[derive(Debug)]
pub struct Object {
    /// Its inode in the image: several names of one inode become hard links.
    pub inode: Inode,
    /// Its attributes.
    pub attributes: Attributes,
    /// Extended ones; `None`: those of the host object it was imported from.
    pub extended: Option<Extended>,
    /// Where its content comes from.
    pub content: Content,
    /// It is the host's version of a file that the image's replaces, and none of that one's names.
    pub is_hosts: bool,
}

/// Where the content of an object comes from.
#[derive(Debug)]
pub enum Content {
    /// Bytes in the image.
    Image,
    /// A host file the image only moved or linked: a hard link, or a copy.
    Host(PathBuf),
    /// A symlink to this target.
    Symlink(PathBuf),
    /// A FIFO, socket or device; its attributes say which.
    Special,
    /// A directory with these names.
    Tree(Vec<(OsString, Object)>),
    /// A directory that was moved and never looked into: all the host has below this path.
    HostTree(PathBuf),
}

impl Object {
    /// Files and directories that will be made, for the progress line.
    pub fn count(&self) -> u64 {
        match &self.content {
            Content::Tree(children) => 1 + children.iter().map(|(_, o)| o.count()).sum::<u64>(),
            _ => 1,
        }
    }

    /// Whether it is a directory.
    pub fn is_tree(&self) -> bool {
        matches!(self.content, Content::Tree(_) | Content::HostTree(_))
    }
}

/// `name.husk-<run>`: where the image's version goes when the host's has to stay. Of a name that
/// leaves no room for that, the beginning.
pub fn beside(path: &Path, run: u32) -> PathBuf {
    let ending = format!(".husk-{run}");
    let name = path.file_name().unwrap_or_default();
    let mut room = NAME_BYTES_MAX - ending.len();
    if name.len() > room {
        let is_inside = |at: usize| name.as_bytes()[at] & 0xc0 == 0x80;
        room -= (0..4).find(|back| !is_inside(room - back)).unwrap_or(0);
    }
    let mut beside = name.as_bytes()[..name.len().min(room)].to_vec();
    beside.extend(ending.bytes());
    path.with_file_name(OsStr::from_bytes(&beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beside_another_is_never_too_long_and_no_character_is_cut() {
        let ending = ".husk-1234567";
        for letter in ["l", "\u{fc}", "\u{20ac}", "\u{1f40d}"] {
            for count in 0..=NAME_BYTES_MAX / letter.len() {
                let name = letter.repeat(count) + "n";
                let beside = beside(&Path::new("/d").join(&name), 1_234_567);
                let got = beside.file_name().unwrap().to_str().expect("text");
                let begin = got.strip_suffix(ending).expect("its ending");
                assert!(got.len() <= NAME_BYTES_MAX && name.starts_with(begin), "{got}");
                let cut = name.len() - begin.len();
                let over = (name.len() + ending.len()).saturating_sub(NAME_BYTES_MAX);
                assert!(cut >= over && cut < over + letter.len().max(1) + 1, "{name} {got}");
            }
        }
    }
}
