//! A consistent snapshot of all names of a volume.
//!
//! ```text
//!   begun = ended ─► list what is marked ─► begun as before?  yes: that is how it was
//!                            └────────── no: once more, at last while no transaction runs
//!   begun > ended ─► somebody lives who has begun?  wait;  no: the dead are counted as ended
//! ```
//!
//! 1. What is taken of the marks is listed, in this round or in a later one.
//! 2. Of each object that a look finds for the first time it brings all but bytes, from the same
//!    moment: afterwards it may be gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use husk_carrier::Direct;
use husk_proto::fs::Kind as ImageKind;
use husk_proto::{Errno, Fs as _, Inode, Overview as _, VolumeLog as _};
use husk_storage::tree::Id;

use super::facts::{Facts, id_of, inode_of, kind_of};

/// Looks before programs are held up for one.
const LOOKS_MAX: u32 = 64;
/// Waits for who is in the middle of a change, without and with a sleep, before the same.
const YIELDS_MAX: u32 = 64;
const WAITS_MAX: u32 = 4096;

/// Names of a directory.
pub type Names = BTreeMap<Vec<u8>, Id>;

/// What a look has found.
#[derive(Debug, Default)]
pub struct Seen {
    /// Directories that were listed.
    pub dirs: BTreeMap<Id, Names>,
    /// Objects that were asked for.
    pub facts: HashMap<Id, Facts>,
    /// Changes of names that had begun then; `None`: somebody was in the middle of one, and the
    /// next look is at all.
    pub begun: Option<u64>,
}

/// What to look for.
pub struct Wanted<'a> {
    /// The volume.
    pub tree: u32,
    /// Its root.
    pub root: Inode,
    /// Directories that are known: those with a mark are listed.
    pub dirs: &'a HashMap<Id, Names>,
    /// Whether an object is known: of others, facts are brought.
    pub is_known: &'a dyn Fn(Id) -> bool,
    /// All directories are listed, whatever is marked.
    pub all: bool,
}

impl Wanted<'_> {
    /// Looks.
    pub fn look(&self, direct: &mut Direct) -> Result<Seen, Errno> {
        let (mut marked, mut looks, mut waits) = (BTreeSet::new(), 0, 0);
        while looks < LOOKS_MAX && waits < WAITS_MAX {
            let (begun, ended) = direct.volume_names(self.tree);
            if begun != ended {
                waits += 1;
                match waits <= YIELDS_MAX {
                    true => std::thread::yield_now(),
                    false if direct.volume_is_any_naming() => husk_region::nap(),
                    false => break,
                }
                continue;
            }
            looks += 1;
            self.take_marks(direct, &mut marked);
            let seen = self.list(direct, &marked, self.all);
            if direct.volume_names(self.tree) == (begun, begun) {
                return seen.map(|seen| Seen { begun: Some(begun), ..seen });
            }
        }
        self.look_frozen(direct)
    }

    /// The same while no transaction runs: whoever has begun to change names and was killed is
    /// counted as through, and everything is listed. Who lives may do the change later, and its
    /// directory's mark may be taken.
    fn look_frozen(&self, direct: &mut Direct) -> Result<Seen, Errno> {
        direct.kernel().session.freeze()?;
        let begun = direct.volume_settle_names(self.tree);
        let seen = self.list(direct, &BTreeSet::new(), true);
        direct.kernel().session.thaw();
        seen.map(|seen| Seen { begun, ..seen })
    }

    fn take_marks(&self, direct: &mut Direct, marked: &mut BTreeSet<Id>) {
        for &id in self.dirs.keys() {
            if direct.unsaved_take_names(inode_of(id)) {
                marked.insert(id);
            }
        }
    }

    fn list(&self, direct: &mut Direct, marked: &BTreeSet<Id>, all: bool) -> Result<Seen, Errno> {
        let mut seen = Seen::default();
        let root = id_of(self.root);
        let mut todo: Vec<Id> = marked.iter().copied().collect();
        if all || !(self.is_known)(root) {
            todo.push(root);
            self.bring(direct, root, &mut seen)?;
        }
        while let Some(dir) = todo.pop() {
            if seen.dirs.contains_key(&dir) {
                continue;
            }
            let (names, below) = self.names(direct, dir, &mut seen)?;
            todo.extend(below.into_iter().filter(|id| all || !self.dirs.contains_key(id)));
            seen.dirs.insert(dir, names);
        }
        Ok(seen)
    }

    /// The names of a directory, none where it is gone, and the directories among them.
    fn names(
        &self,
        direct: &mut Direct,
        dir: Id,
        seen: &mut Seen,
    ) -> Result<(Names, Vec<Id>), Errno> {
        let (mut names, mut below) = (Names::new(), Vec::new());
        let listed = direct.list(inode_of(dir), 0, &mut |entry| {
            if kind_of(entry.kind).is_some() {
                let id = id_of(entry.inode);
                if entry.kind == ImageKind::Directory {
                    below.push(id);
                }
                names.insert(entry.name.to_vec(), id);
            }
            true
        });
        match listed {
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR) => {
                return Ok((Names::new(), Vec::new()));
            }
            other => other?,
        }
        for &id in names.values() {
            self.bring(direct, id, seen)?;
        }
        Ok((names, below))
    }

    fn bring(&self, direct: &mut Direct, id: Id, seen: &mut Seen) -> Result<(), Errno> {
        if (self.is_known)(id) || seen.facts.contains_key(&id) {
            return Ok(());
        }
        match Facts::of(direct, inode_of(id)) {
            Ok(facts) => {
                seen.facts.insert(id, facts);
                Ok(())
            }
            // Names have changed meanwhile: there will be another look.
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
