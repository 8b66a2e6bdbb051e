//! Handles of the structures of a store. Threads share them; clones are the same structure.

use std::time::Duration;

use crate::state::Structure;
use crate::store::Store;
use crate::{Error, Lsn};

/// What every handle is.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            pub(crate) store: Store,
            pub(crate) number: u32,
        }
    };
}

handle! {
    /// Entries in order, numbered from 0 on, that are read by number and removed from the front.
    Log
}
handle! {
    /// Items that leave in the order in which they came, each to one consumer.
    ///
    /// An item is delivered at least once: one that was taken and is not [`Queue::done`] when the
    /// process ends is there again when the store is opened.
    Queue
}
handle! {
    /// Values by keys, in the order of the keys' bytes.
    Map
}
handle! {
    /// A signed 64-bit number, 0 at first.
    Counter
}

impl Log {
    /// Adds an entry. Its number is the one that `end` said before, unless other threads append.
    pub fn append(&self, entry: &[u8]) -> Result<Lsn, Error> {
        self.store.batch().append(self, entry).commit()
    }

    /// Removes all entries before one.
    pub fn trim(&self, before: u64) -> Result<Lsn, Error> {
        self.store.batch().trim(self, before).commit()
    }

    /// The entry with a number; `None`: it was trimmed, or not appended yet.
    pub fn get(&self, number: u64) -> Option<Vec<u8>> {
        self.look(|first, entries| {
            entries.get(usize::try_from(number.checked_sub(first)?).ok()?).cloned()
        })
    }

    /// The number of the first entry that is there, or of the next one where there is none.
    pub fn begin(&self) -> u64 {
        self.look(|first, _| first)
    }

    /// The number of the next entry.
    pub fn end(&self) -> u64 {
        self.look(|first, entries| first + entries.len() as u64)
    }

    fn look<R>(&self, of: impl FnOnce(u64, &std::collections::VecDeque<Vec<u8>>) -> R) -> R {
        self.store.core().look(self.number, |structure| match structure {
            Structure::Log { first, entries } => of(*first, entries),
            _ => unreachable!("its kind was checked"),
        })
    }
}

/// An item that was taken from a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its number: items of a queue are numbered from 0 on.
    pub number: u64,
    /// What was pushed.
    pub bytes: Vec<u8>,
}

impl Queue {
    /// Adds an item.
    pub fn push(&self, item: &[u8]) -> Result<Lsn, Error> {
        self.store.batch().push(self, item).commit()
    }

    /// Takes the first item that nobody has; `None`: there is none.
    ///
    /// Its push may not be durable yet. Who does something outside of the store for it waits for
    /// [`Store::last`] first.
    pub fn take(&self) -> Option<Item> {
        self.store.core().take(self.number, Duration::ZERO)
    }

    /// The same, and waits so long at most for one to come.
    pub fn take_within(&self, limit: Duration) -> Option<Item> {
        self.store.core().take(self.number, limit)
    }

    /// Removes an item that was taken.
    pub fn done(&self, item: &Item) -> Result<Lsn, Error> {
        self.store.batch().done(self, item).commit()
    }

    /// Puts an item that was taken back to where it was.
    pub fn put_back(&self, item: &Item) -> Result<(), Error> {
        self.store.core().put_back(self.number, item.number)
    }

    /// How many items are there, taken ones too.
    pub fn len(&self) -> usize {
        self.store.core().look(self.number, |structure| match structure {
            Structure::Queue { items, .. } => items.len(),
            _ => unreachable!("its kind was checked"),
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Map {
    /// Gives a key a value; the one that it had before is gone.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<Lsn, Error> {
        self.store.batch().insert(self, key, value).commit()
    }

    /// Removes a key, if it is there.
    pub fn remove(&self, key: &[u8]) -> Result<Lsn, Error> {
        self.store.batch().remove(self, key).commit()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.look(|values| values.get(key).cloned())
    }

    /// The first key behind `key`, or the first of all, with its value.
    pub fn next(&self, key: Option<&[u8]>) -> Option<(Vec<u8>, Vec<u8>)> {
        use std::ops::Bound;
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.look(|values| {
            let mut behind = values.range::<[u8], _>((from, Bound::Unbounded));
            behind.next().map(|(key, value)| (key.clone(), value.clone()))
        })
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.look(std::collections::BTreeMap::len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn look<R>(&self, of: impl FnOnce(&std::collections::BTreeMap<Vec<u8>, Vec<u8>>) -> R) -> R {
        self.store.core().look(self.number, |structure| match structure {
            Structure::Map(values) => of(values),
            _ => unreachable!("its kind was checked"),
        })
    }
}

impl Counter {
    /// Adds `by`.
    pub fn add(&self, by: i64) -> Result<Lsn, Error> {
        self.store.batch().count(self, by).commit()
    }

    /// Its value now.
    pub fn get(&self) -> i64 {
        self.store.core().look(self.number, |structure| match structure {
            Structure::Counter(value) => *value,
            _ => unreachable!("its kind was checked"),
        })
    }
}
