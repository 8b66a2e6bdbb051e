//! Operations that count together: after a crash all of them are there, or none.

use std::collections::{HashMap, HashSet};

use crate::record::{self, Operation};
use crate::state::{State, Structure};
use crate::store::Store;
use crate::structures::{Counter, Item, Log, Map, Queue};
use crate::{BATCH_BYTES_MAX, Error, Lsn};

/// Operations that count together, in their order.
///
/// Nothing happens before [`Batch::commit`]. A handle of another store makes the commit fail.
#[derive(Debug)]
pub struct Batch {
    store: Store,
    bytes: Vec<u8>,
    is_foreign: bool,
}

impl Batch {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, bytes: Vec::new(), is_foreign: false }
    }

    fn add(&mut self, store: &Store, operation: &Operation<'_>) -> &mut Self {
        self.is_foreign |= !self.store.is_same(store);
        record::encode(operation, &mut self.bytes);
        self
    }

    /// Adds an entry to a log.
    pub fn append(&mut self, log: &Log, entry: &[u8]) -> &mut Self {
        self.add(&log.store, &Operation::Append { log: log.number, entry })
    }

    /// Removes the entries of a log before one.
    pub fn trim(&mut self, log: &Log, before: u64) -> &mut Self {
        self.add(&log.store, &Operation::Trim { log: log.number, before })
    }

    /// Adds an item to a queue.
    pub fn push(&mut self, queue: &Queue, item: &[u8]) -> &mut Self {
        self.add(&queue.store, &Operation::Push { queue: queue.number, item })
    }

    /// Removes an item that was taken from a queue.
    pub fn done(&mut self, queue: &Queue, item: &Item) -> &mut Self {
        let number = item.number;
        self.add(&queue.store, &Operation::Done { queue: queue.number, number })
    }

    /// Gives a key of a map a value.
    pub fn insert(&mut self, map: &Map, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(&map.store, &Operation::Insert { map: map.number, key, value })
    }

    /// Removes a key of a map, if it is there.
    pub fn remove(&mut self, map: &Map, key: &[u8]) -> &mut Self {
        self.add(&map.store, &Operation::Remove { map: map.number, key })
    }

    /// Adds to a counter.
    pub fn count(&mut self, counter: &Counter, by: i64) -> &mut Self {
        self.add(&counter.store, &Operation::Add { counter: counter.number, by })
    }

    /// Carries all of it out, in memory at once. An empty batch is the last change.
    pub fn commit(&mut self) -> Result<Lsn, Error> {
        if self.is_foreign {
            return Err(Error::OtherStore);
        }
        let lsn = self.store.core().commit(&self.bytes)?;
        self.bytes.clear();
        Ok(lsn)
    }
}

/// Checks a batch before it is logged; how much longer a snapshot may get by it.
pub(crate) fn check(state: &State, bytes: &[u8]) -> Result<u64, Error> {
    if bytes.len() > BATCH_BYTES_MAX {
        return Err(Error::TooLong);
    }
    let (mut done, mut sums, mut growth) = (HashSet::new(), HashMap::new(), 0);
    for operation in record::operations(bytes) {
        let operation = operation.expect("this process has encoded it");
        state.check(&operation)?;
        growth += state.growth(&operation);
        match operation {
            // What an earlier one of the batch has changed.
            Operation::Done { queue, number } if !done.insert((queue, number)) => {
                return Err(Error::NoItem);
            }
            Operation::Add { counter, by } => {
                let Structure::Counter(value) = state.structure(counter) else { continue };
                let sum = sums.entry(counter).or_insert(*value);
                *sum = sum.checked_add(by).ok_or(Error::Overflow)?;
            }
            _ => {}
        }
    }
    Ok(growth)
}
