//! What a store holds, in memory: the result of all operations up to a number.
//!
//! Invariants
//! 1. `apply` depends on nothing but the state and the operation, so a replay makes the same state.
//! 2. An operation is `check`ed before it is logged; one that was checked can be applied.
//! 3. `bytes` is an upper bound of the snapshot's length.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::record::{self, Kind, OVERHEAD_BYTES, Operation};
use crate::{Error, NAME_BYTES_MAX, STRUCTURES_MAX};

/// One structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Structure {
    /// Entries from number `first` on.
    Log { first: u64, entries: VecDeque<Vec<u8>> },
    /// Items by their numbers.
    Queue { next: u64, items: BTreeMap<u64, Vec<u8>> },
    /// Values by their keys.
    Map(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A number.
    Counter(i64),
}

impl Structure {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Log => Self::Log { first: 0, entries: VecDeque::new() },
            Kind::Queue => Self::Queue { next: 0, items: BTreeMap::new() },
            Kind::Map => Self::Map(BTreeMap::new()),
            Kind::Counter => Self::Counter(0),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Log { .. } => Kind::Log,
            Self::Queue { .. } => Kind::Queue,
            Self::Map(_) => Kind::Map,
            Self::Counter(_) => Kind::Counter,
        }
    }
}

/// All structures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    names: HashMap<Vec<u8>, u32>,
    structures: Vec<Structure>,
    /// Invariant 3.
    bytes: u64,
}

/// What a value costs in a snapshot.
fn cost(bytes: usize) -> u64 {
    (bytes + OVERHEAD_BYTES) as u64
}

impl State {
    /// The structure of this name, if there is one.
    pub fn find(&self, kind: Kind, name: &[u8]) -> Result<Option<u32>, Error> {
        let Some(&number) = self.names.get(name) else { return Ok(None) };
        let same = self.structures[number as usize].kind() == kind;
        if same { Ok(Some(number)) } else { Err(Error::OtherKind) }
    }

    /// The number that the next structure gets.
    pub fn next_structure(&self) -> u32 {
        self.structures.len() as u32
    }

    /// A structure.
    pub fn structure(&self, number: u32) -> &Structure {
        &self.structures[number as usize]
    }

    /// How long a snapshot would be at most.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much longer a snapshot may get by an operation.
    pub fn growth(&self, operation: &Operation<'_>) -> u64 {
        match *operation {
            Operation::Create { name, .. } => cost(name.len()) + cost(0),
            Operation::Append { entry, .. } => cost(entry.len()),
            Operation::Push { item, .. } => cost(item.len() + OVERHEAD_BYTES),
            Operation::Insert { map, key, value } => {
                let before = match self.structure(map) {
                    Structure::Map(values) => {
                        values.get(key).map_or(0, |one| cost(key.len() + one.len()))
                    }
                    _ => 0,
                };
                cost(key.len() + value.len()).saturating_sub(before)
            }
            _ => 0,
        }
    }

    /// Whether an operation can be applied (invariant 2).
    pub fn check(&self, operation: &Operation<'_>) -> Result<(), Error> {
        let at = |number: u32| self.structures.get(number as usize).ok_or(Error::OtherStore);
        let is = |number: u32, kind: Kind| match at(number)?.kind() == kind {
            true => Ok(()),
            false => Err(Error::OtherStore),
        };
        match *operation {
            Operation::Create { name, .. } => {
                let good = (1..=NAME_BYTES_MAX).contains(&name.len());
                let room = self.structures.len() < STRUCTURES_MAX && !self.names.contains_key(name);
                if good && room { Ok(()) } else { Err(Error::BadName) }
            }
            Operation::Append { log, .. } | Operation::Trim { log, .. } => is(log, Kind::Log),
            Operation::Push { queue, .. } | Operation::Number { queue, .. } => {
                is(queue, Kind::Queue)
            }
            Operation::Done { queue, number } => match at(queue)? {
                Structure::Queue { items, .. } if items.contains_key(&number) => Ok(()),
                Structure::Queue { .. } => Err(Error::NoItem),
                _ => Err(Error::OtherStore),
            },
            Operation::Insert { map, .. } | Operation::Remove { map, .. } => is(map, Kind::Map),
            Operation::Add { counter, by } => match at(counter)? {
                Structure::Counter(value) if value.checked_add(by).is_some() => Ok(()),
                Structure::Counter(_) => Err(Error::Overflow),
                _ => Err(Error::OtherStore),
            },
        }
    }

    /// Applies an operation that was checked.
    pub fn apply(&mut self, operation: &Operation<'_>) {
        let (mut more, mut less) = (self.growth(operation), 0);
        match *operation {
            Operation::Create { kind, name } => {
                self.names.insert(name.to_vec(), self.structures.len() as u32);
                self.structures.push(Structure::new(kind));
            }
            Operation::Append { log, entry } => {
                if let Structure::Log { entries, .. } = self.structure_mut(log) {
                    entries.push_back(entry.to_vec());
                }
            }
            Operation::Trim { log, before } => less = self.trim(log, before),
            Operation::Push { queue, item } => {
                if let Structure::Queue { next, items } = self.structure_mut(queue) {
                    items.insert(*next, item.to_vec());
                    *next += 1;
                }
            }
            Operation::Number { queue, next: new } => {
                if let Structure::Queue { next, .. } = self.structure_mut(queue) {
                    *next = new;
                }
            }
            Operation::Done { queue, number } => {
                if let Structure::Queue { items, .. } = self.structure_mut(queue) {
                    let gone = items.remove(&number);
                    less = gone.map_or(0, |item| cost(item.len() + OVERHEAD_BYTES));
                }
            }
            Operation::Insert { map, key, value } => {
                less = self.remove(map, key);
                if let Structure::Map(values) = self.structure_mut(map) {
                    values.insert(key.to_vec(), value.to_vec());
                }
                more = cost(key.len() + value.len());
            }
            Operation::Remove { map, key } => less = self.remove(map, key),
            Operation::Add { counter, by } => {
                if let Structure::Counter(value) = self.structure_mut(counter) {
                    *value += by;
                }
            }
        }
        self.bytes = self.bytes + more - less;
    }

    fn structure_mut(&mut self, number: u32) -> &mut Structure {
        &mut self.structures[number as usize]
    }

    /// Removes the entries of a log before one; what they cost.
    fn trim(&mut self, log: u32, before: u64) -> u64 {
        let mut less = 0;
        if let Structure::Log { first, entries } = self.structure_mut(log) {
            while *first < before {
                match entries.pop_front() {
                    Some(entry) => less += cost(entry.len()),
                    None => *first = before - 1,
                }
                *first += 1;
            }
        }
        less
    }

    /// Removes a key; what it has cost.
    fn remove(&mut self, map: u32, key: &[u8]) -> u64 {
        let Structure::Map(values) = self.structure_mut(map) else { return 0 };
        values.remove(key).map_or(0, |value| cost(key.len() + value.len()))
    }

    /// A snapshot: operations that make this state from an empty one.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = record::begin_snapshot();
        let mut names: Vec<(&u32, &Vec<u8>)> =
            self.names.iter().map(|(name, number)| (number, name)).collect();
        names.sort_unstable();
        for (&number, name) in names {
            let structure = self.structure(number);
            let mut put = |operation| record::encode(&operation, &mut bytes);
            put(Operation::Create { kind: structure.kind(), name });
            match structure {
                Structure::Log { first, entries } => {
                    put(Operation::Trim { log: number, before: *first });
                    entries.iter().for_each(|entry| put(Operation::Append { log: number, entry }));
                }
                Structure::Queue { next, items } => {
                    for (&item, bytes) in items {
                        put(Operation::Number { queue: number, next: item });
                        put(Operation::Push { queue: number, item: bytes });
                    }
                    put(Operation::Number { queue: number, next: *next });
                }
                Structure::Map(values) => values
                    .iter()
                    .for_each(|(key, value)| put(Operation::Insert { map: number, key, value })),
                Structure::Counter(by) => put(Operation::Add { counter: number, by: *by }),
            }
        }
        bytes
    }

    /// Applies what was written, a record or a snapshot's operations; `None`: it makes no sense to
    /// this version.
    pub fn replay(&mut self, bytes: &[u8]) -> Option<()> {
        for operation in record::operations(bytes) {
            let operation = operation?;
            self.check(&operation).ok()?;
            self.apply(&operation);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> State {
        let mut state = State::default();
        for (n, kind) in [Kind::Log, Kind::Queue, Kind::Map, Kind::Counter].into_iter().enumerate()
        {
            state.apply(&Operation::Create { kind, name: &[n as u8] });
        }
        for n in 0..5u8 {
            state.apply(&Operation::Append { log: 0, entry: &[n; 9] });
            state.apply(&Operation::Push { queue: 1, item: &[n; 3] });
            state.apply(&Operation::Insert { map: 2, key: &[n % 3], value: &[n; 100] });
            state.apply(&Operation::Add { counter: 3, by: -7 });
        }
        state.apply(&Operation::Trim { log: 0, before: 2 });
        state.apply(&Operation::Done { queue: 1, number: 1 });
        state.apply(&Operation::Done { queue: 1, number: 4 });
        state.apply(&Operation::Remove { map: 2, key: &[1] });
        state
    }

    #[test]
    fn a_snapshot_makes_the_same_state_and_is_no_longer_than_was_said() {
        let state = filled();
        let bytes = state.snapshot();
        assert!(bytes.len() as u64 <= state.bytes() + 4, "{} {}", bytes.len(), state.bytes());
        let mut again = State::default();
        again.replay(record::snapshot(&bytes).unwrap()).unwrap();
        assert_eq!(again, state);
    }

    #[test]
    fn what_is_removed_gives_back_all_that_it_took() {
        let mut state = filled();
        state.apply(&Operation::Trim { log: 0, before: 9 });
        [0, 2, 3].into_iter().for_each(|number| state.apply(&Operation::Done { queue: 1, number }));
        [0, 2].into_iter().for_each(|key| state.apply(&Operation::Remove { map: 2, key: &[key] }));
        let empty = 4 * (cost(1) + cost(0));
        assert_eq!(state.bytes(), empty);
    }

    #[test]
    fn what_cannot_be_applied_is_refused_with_its_reason() {
        let state = filled();
        let full = i64::MIN;
        for (operation, error) in [
            (Operation::Done { queue: 1, number: 1 }, Error::NoItem),
            (Operation::Add { counter: 3, by: full }, Error::Overflow),
            (Operation::Push { queue: 0, item: b"" }, Error::OtherStore),
            (Operation::Add { counter: 9, by: 1 }, Error::OtherStore),
            (Operation::Create { kind: Kind::Map, name: &[2] }, Error::BadName),
            (Operation::Create { kind: Kind::Map, name: b"" }, Error::BadName),
        ] {
            assert_eq!(state.check(&operation), Err(error));
        }
        assert_eq!(state.find(Kind::Map, &[0]), Err(Error::OtherKind));
    }
}
