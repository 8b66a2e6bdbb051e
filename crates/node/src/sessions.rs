//! State about the nodes that ask: the epoch of each, and which of its messages broke the rules.
//! What is open for them is in the region (`husk_carrier::Hold`).
//!
//! A session is one connection with one message (`husk_link::call`): one that breaks the rules is
//! counted by its fault and by the node that it says it is from, answered with `Protocol` where its
//! header can be read, and the session ends. The first of each is said in a line.
//!
//! Invariant: a request of an epoch that is over is `Fenced` before anything is looked at: a node
//! that was declared dead changes nothing if it wakes. An agent knows who is dead before it serves.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use husk_wire::{Fault, Header};

use crate::planted::planted;

/// Lines about messages that were refused.
const LINES_MAX: usize = 32;

#[derive(Debug, Default)]
struct Table {
    epochs: HashMap<u16, u32>,
    refused: BTreeMap<(u16, usize), u64>,
    fenced: u64,
}

/// All sessions of an agent, shared by its threads.
#[derive(Debug)]
pub struct Sessions {
    table: Mutex<Table>,
    say: fn(&str),
}

impl Sessions {
    /// Nobody has asked yet.
    pub fn begin(say: fn(&str)) -> Sessions {
        Sessions { table: Mutex::default(), say }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No change of it stops half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node is dead, and one of its number would have this epoch.
    pub fn fence(&self, node: u16, epoch: u32) {
        let mut table = self.table();
        let known = table.epochs.entry(node).or_default();
        *known = epoch.max(*known);
    }

    /// Whether a message is of an epoch that is over.
    pub fn is_fenced(&self, header: &Header) -> bool {
        let mut table = self.table();
        let over = table.epochs.get(&header.source).is_some_and(|epoch| header.epoch < *epoch);
        let fenced = over && !planted!(NoFence);
        table.fenced += u64::from(fenced);
        fenced
    }

    /// How many were.
    #[cfg(test)]
    pub fn fenced(&self) -> u64 {
        self.table().fenced
    }

    /// A message that says it is from `node` broke the rules.
    pub fn refuse(&self, node: u16, fault: Fault) {
        if planted!(FaultsUncounted) {
            return;
        }
        let mut table = self.table();
        let lines = table.refused.len();
        let count = table.refused.entry((node, fault.index())).or_default();
        *count += 1;
        if *count == 1 && lines < LINES_MAX {
            (self.say)(&format!("refused a message from node {node}: {fault}"));
        }
    }

    /// How many were.
    #[cfg(test)]
    pub fn refused_in_all(&self) -> u64 {
        self.table().refused.values().sum()
    }

    /// How many were refused for this.
    #[cfg(test)]
    pub fn refused(&self, fault: Fault) -> u64 {
        let table = self.table();
        let of = table.refused.iter().filter(|((_, index), _)| *index == fault.index());
        of.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_wire::{Kind, Role};

    #[test]
    fn an_epoch_that_is_over_is_fenced_and_epochs_do_not_go_back() {
        let sessions = Sessions::begin(|_| {});
        let of =
            |node, epoch| Header { source: node, epoch, ..Header::new(Kind::Walk, Role::Request) };
        let asks = |node, epoch| sessions.is_fenced(&of(node, epoch));
        assert!(!asks(1, 0));
        sessions.fence(1, 1);
        assert!(asks(1, 0) && !asks(1, 1) && !asks(2, 0));
        sessions.fence(1, 0);
        assert!(asks(1, 0) && !asks(1, 1));
    }
}
