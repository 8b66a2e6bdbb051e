//! The obvious tree: what the home must answer, one request after the other.
//!
//! It takes the numbers of what is made from the home's answer, and checks that they are new.

mod bytes;
mod names;
mod once;

use std::collections::{BTreeMap, BTreeSet};

use husk_abi::Errno;
use husk_wire::record::{Object, Sort};
use husk_wire::{Failure, Header};

use super::asks::{Ask, Facts, Heard, Letter};

/// As the home counts a directory's bytes.
const DIRECTORY_BYTES: u64 = 4096;
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

type Key = (u64, u32);
pub use once::Made;

/// Who asks: a node, which life of it, the number of the request, and whether it was sent before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Who {
    pub node: u16,
    pub epoch: u32,
    pub request: u32,
    pub again: bool,
}

impl From<&Header> for Who {
    fn from(header: &Header) -> Who {
        let Header { source: node, epoch, request, again, .. } = *header;
        Who { node, epoch, request, again }
    }
}

fn key(object: Object) -> Key {
    (object.number, object.generation)
}

fn errno<T>(errno: Errno) -> Result<T, Failure> {
    Err(Failure::Errno(errno))
}

/// An inode.
#[derive(Clone, PartialEq, Debug)]
struct Thing {
    object: Object,
    sort: Sort,
    mode: u32,
    links: u32,
    bytes: Vec<u8>,
    names: BTreeMap<Letter, Object>,
    parent: Option<Object>,
    extended: BTreeMap<Letter, Vec<u8>>,
    removed: bool,
}

/// A file that is open for a life of a node, whoever serves.
#[derive(Clone, PartialEq, Debug)]
struct Hold {
    node: u16,
    epoch: u32,
    request: u32,
    object: Object,
}

/// All of it, and what is open for whom.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    things: BTreeMap<Key, Thing>,
    /// Which of the agents serves.
    agent: u32,
    holds: BTreeMap<u64, Hold>,
    /// All numbers that holds have had.
    held: BTreeSet<u64>,
    epochs: BTreeMap<u16, u32>,
}

impl Tree {
    /// With nothing but its root.
    pub fn new(root: Object, mode: u32) -> Tree {
        let (holds, held, epochs) = Default::default();
        let mut tree = Tree { things: BTreeMap::new(), agent: 0, holds, held, epochs };
        let root = tree.make(Some(root), Sort::Directory, mode);
        tree.at(root).links = 2;
        tree.at(root).parent = Some(root);
        tree
    }

    fn at(&mut self, object: Object) -> &mut Thing {
        self.things.get_mut(&key(object)).expect("it is there")
    }

    fn there(&self, object: Object) -> Result<&Thing, Failure> {
        self.things.get(&key(object)).ok_or(Failure::Gone)
    }

    fn directory(&self, object: Object) -> Result<&Thing, Failure> {
        let thing = self.there(object)?;
        if thing.sort == Sort::Directory { Ok(thing) } else { errno(Errno::ENOTDIR) }
    }

    fn find(&self, dir: Object, name: Letter) -> Result<Object, Failure> {
        let found = self.directory(dir)?.names.get(&name).copied();
        found.ok_or(Failure::Errno(Errno::ENOENT))
    }

    fn make(&mut self, object: Option<Object>, sort: Sort, mode: u32) -> Object {
        // The home has answered with an error: that is seen elsewhere.
        let object = object.unwrap_or(Object { number: u64::MAX, generation: 0 });
        let (bytes, names, parent, extended) = Default::default();
        let (links, removed) = (1, false);
        let thing = Thing { object, sort, mode, links, bytes, names, parent, extended, removed };
        let before = self.things.insert(key(object), thing);
        assert!(before.is_none(), "the home gave the number of {before:?} once more");
        object
    }

    fn facts(&self, object: Object) -> Facts {
        let thing = self.there(object).expect("it is there");
        let (sort, mode) = (thing.sort, thing.mode);
        let directory = sort == Sort::Directory;
        let size = if directory { DIRECTORY_BYTES } else { thing.bytes.len() as u64 };
        Facts { object, sort, mode, links: thing.links, size }
    }

    fn told(&self, object: Object) -> Result<Heard, Failure> {
        Ok(Heard::Facts(self.facts(object), None, None))
    }

    /// How many files are open for others.
    pub fn holds(&self) -> usize {
        self.holds.len()
    }

    /// All that are open.
    pub fn all_holds(&self) -> impl Iterator<Item = u64> {
        self.holds.keys().copied()
    }

    /// What is open for another node than this one.
    pub fn held_by_another(&self, node: u16) -> Option<u64> {
        self.holds.iter().find(|(_, hold)| hold.node != node).map(|(number, _)| *number)
    }

    fn close_where(&mut self, which: impl Fn(&Hold) -> bool) {
        let of = self.holds.iter().filter(|(_, hold)| which(hold)).map(|(number, _)| *number);
        for number in of.collect::<Vec<u64>>() {
            let hold = self.holds.remove(&number).expect("it is there");
            self.drop_if_free(hold.object);
        }
    }

    /// The agent has died.
    pub fn agent_died(&mut self) {
        self.agent += 1;
    }

    /// Which of the agents serves.
    pub fn agent(&self) -> u32 {
        self.agent
    }

    /// Whether what a node asks in this epoch is not done.
    pub fn is_fenced(&self, node: u16, epoch: u32) -> bool {
        self.epochs.get(&node).is_some_and(|over| epoch < *over)
    }

    /// What a node asks before this epoch is not done.
    fn fence(&mut self, node: u16, epoch: u32) {
        let known = self.epochs.entry(node).or_default();
        *known = epoch.max(*known);
    }

    /// All that is open is closed.
    pub fn end_holds(&mut self) {
        self.close_where(|_| true);
    }

    /// The agent has died over a request that opens this object: these are its holds.
    pub fn settle(&mut self, who: Who, object: Object, numbers: &[u64]) {
        let of = (who.node, who.epoch, who.request);
        for &number in numbers {
            if !self.holds.contains_key(&number) {
                self.hold(Who { again: false, ..who }, object, Some(number));
            }
        }
        let its = |hold: &&Hold| (hold.node, hold.epoch, hold.request) == of;
        let gone =
            self.holds.iter().filter(|(number, hold)| its(hold) && !numbers.contains(number));
        for number in gone.map(|(number, _)| *number).collect::<Vec<u64>>() {
            self.close(who.node, number);
        }
    }

    /// A node is dead, and one of its number would have this epoch.
    pub fn bury(&mut self, node: u16, epoch: u32) {
        self.fence(node, epoch);
        self.close_where(|hold| hold.node == node && hold.epoch < epoch);
    }

    /// A node does not need one any more.
    pub fn close(&mut self, node: u16, number: u64) {
        if self.holds.get(&number).is_some_and(|hold| hold.node == node) {
            let hold = self.holds.remove(&number).expect("it is there");
            self.drop_if_free(hold.object);
        }
    }

    fn drop_if_free(&mut self, object: Object) {
        let held = self.holds.values().any(|hold| hold.object == object);
        let thing = self.at(object);
        if thing.links == 0 && !held {
            self.things.remove(&key(object));
        }
    }

    fn hold(&mut self, who: Who, object: Object, number: Option<u64>) -> Option<u64> {
        if let Some(number) = number {
            assert!(self.held.insert(number), "the home gave hold {number} twice");
            let Who { node, epoch, request, .. } = who;
            let first = self.first_try(who);
            self.holds.insert(number, Hold { node, epoch, request, object });
            first.into_iter().for_each(|number| self.close(node, number));
        }
        // Without one, what was to be told is `Some`, too.
        number.or(Some(0))
    }

    /// What the home must answer, where it has answered `said`; then that is done.
    pub fn apply(
        &mut self,
        who: Who,
        ask: &Ask,
        said: &Result<Heard, Failure>,
    ) -> Result<Heard, Failure> {
        if self.is_fenced(who.node, who.epoch) {
            return Err(Failure::Fenced);
        }
        let right = self.applied(who, ask, said);
        if right.is_err() {
            self.close_first_try(who);
        }
        right
    }

    fn applied(
        &mut self,
        who: Who,
        ask: &Ask,
        said: &Result<Heard, Failure>,
    ) -> Result<Heard, Failure> {
        let node = who.node;
        let (made, number) = match said {
            Ok(Heard::Facts(facts, _, number)) => (Some(facts.object), *number),
            _ => (None, None),
        };
        match ask {
            Ask::Create(..) | Ask::Symlink(..) | Ask::MakeDirectory(..) => {
                self.create(who, ask, made, number)
            }
            Ask::Link(object, dir, name) => self.link(*object, *dir, *name),
            Ask::Remove(dir, name, what) => self.remove(*dir, *name, *what),
            Ask::Rename(dir, name, to, new, flags) => {
                self.rename((*dir, *name), (*to, *new), *flags)
            }
            Ask::Open(object, flags) => self.open(who, *object, *flags, number),
            Ask::Return(numbers) => {
                numbers.iter().for_each(|number| self.close(node, *number));
                Ok(Heard::Nothing)
            }
            Ask::Dead(dead, epoch) => {
                for node in dead {
                    self.bury(*node, *epoch);
                }
                Ok(Heard::Nothing)
            }
            Ask::Walk(..) | Ask::List(_) | Ask::Above(_) => self.look(ask),
            Ask::SetMode(object, mode) => {
                self.there(*object)?;
                self.at(*object).mode = mode & 0o7777;
                self.told(*object)
            }
            Ask::GetExtended(..) | Ask::SetExtended(..) | Ask::RemoveExtended(..) => {
                self.extended(ask)
            }
            _ => self.bytes(ask),
        }
    }

    fn look(&self, ask: &Ask) -> Result<Heard, Failure> {
        match *ask {
            Ask::Walk(object, name) => {
                let found = match name {
                    None => self.there(object)?.object,
                    Some(name) => self.find(object, name)?,
                };
                let thing = self.there(found)?;
                let target = (thing.sort == Sort::Symlink).then(|| thing.bytes.clone());
                Ok(Heard::Facts(self.facts(found), target, None))
            }
            Ask::List(dir) => {
                let named = |(name, object): (&Letter, &Object)| {
                    (vec![*name], (*object, self.facts(*object).sort))
                };
                Ok(Heard::Names(self.directory(dir)?.names.iter().map(named).collect()))
            }
            Ask::Above(object) => {
                let thing = self.directory(object)?;
                let parent = thing.parent.ok_or(Failure::Gone)?;
                let names = &self.there(parent)?.names;
                let name = names.iter().find(|(_, named)| **named == object);
                let name = name.filter(|_| parent != object);
                Ok(Heard::Place(parent, name.map(|(name, _)| vec![*name])))
            }
            _ => unreachable!("another ask"),
        }
    }

    /// Every path, with what is there.
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        let root = self.things.values().find(|thing| thing.parent == Some(thing.object));
        let mut seen = BTreeMap::new();
        self.walk(root.expect("a root"), "", &mut seen);
        seen
    }

    fn walk(&self, thing: &Thing, path: &str, seen: &mut BTreeMap<String, String>) {
        let facts = self.facts(thing.object);
        seen.insert(path.to_owned(), line(&facts, &thing.bytes, &thing.extended));
        for (name, object) in &thing.names {
            let path = format!("{path}/{}", char::from(*name));
            self.walk(self.there(*object).expect("named"), &path, seen);
        }
    }
}

/// An inode in a line.
pub fn line(facts: &Facts, bytes: &[u8], extended: &BTreeMap<Letter, Vec<u8>>) -> String {
    let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte) + 1);
    format!("{facts:?} {sum} {extended:?}")
}
