//! What is known of those who ask: the epoch of each node, what is open for it here, and what of
//! its messages broke the rules.
//!
//! A session is one connection with one message (`husk_link::call`): one that breaks the rules is
//! counted by its fault and by the node that it says it is from, answered with `Protocol` where its
//! header can be read, and the session ends. The first of each is said in a line.
//!
//! Invariants
//! 1. A hold is its node's: no other node gives it back. All of a node fall together when it is
//!    dead (`bury`), so that files without a name go.
//! 2. What is asked in an epoch that is over is `Fenced` before anything is looked at: a node that
//!    was declared dead changes nothing if it wakes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use husk_wire::{Fault, Header};

use crate::serve::now_ns;

const NS_PER_S: i64 = 1_000_000_000;
/// Lines about messages that were refused.
const LINES_MAX: usize = 32;

/// A file that is open for another node.
#[derive(Clone, Copy, Debug)]
struct Hold {
    node: u16,
    fd: u32,
}

#[derive(Debug, Default)]
struct Table {
    holds: HashMap<u64, Hold>,
    next: u64,
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
    /// Nobody has asked yet. Numbers of holds are another life's in another second: what is given
    /// back late is not mistaken.
    pub fn begin(say: fn(&str)) -> Sessions {
        let life = (now_ns() / NS_PER_S) as u64 & 0x3fff_ffff;
        let table = Table { next: life << 32 | 1, ..Table::default() };
        Sessions { table: Mutex::new(table), say }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No change of it stops half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps number `fd` of the agent's table for a node: the number of the hold.
    pub fn hold(&self, node: u16, fd: u32) -> u64 {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.holds.insert(number, Hold { node, fd });
        number
    }

    /// A node does not need it any more: what it was. `None`: it has no such hold.
    pub fn let_go(&self, node: u16, number: u64) -> Option<u32> {
        let mut table = self.table();
        let held = table.holds.get(&number).filter(|hold| hold.node == node)?.fd;
        table.holds.remove(&number);
        Some(held)
    }

    /// How many holds there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.table().holds.len()
    }

    /// A node is dead, and one of its number would have this epoch: what was open for it.
    pub fn bury(&self, node: u16, epoch: u32) -> Vec<u32> {
        let mut table = self.table();
        let known = table.epochs.entry(node).or_default();
        *known = epoch.max(*known);
        table.holds.extract_if(|_, hold| hold.node == node).map(|(_, hold)| hold.fd).collect()
    }

    /// Whether a message is of an epoch that is over.
    pub fn is_fenced(&self, header: &Header) -> bool {
        let mut table = self.table();
        let fenced = table.epochs.get(&header.source).is_some_and(|epoch| header.epoch < *epoch);
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
        let mut table = self.table();
        let lines = table.refused.len();
        let count = table.refused.entry((node, fault.index())).or_default();
        *count += 1;
        if *count == 1 && lines < LINES_MAX {
            (self.say)(&format!("refused a message from node {node}: {fault}"));
        }
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
    fn holds_are_their_nodes_and_fall_with_it_and_an_old_epoch_is_fenced() {
        let sessions = Sessions::begin(|_| {});
        let [one, two, other] = [(1, 10), (1, 11), (2, 12)].map(|(n, fd)| sessions.hold(n, fd));
        assert_eq!(sessions.let_go(2, one), None, "it is another node's");
        assert_eq!(sessions.let_go(1, one), Some(10));
        assert_eq!(sessions.let_go(1, one), None, "once");
        let asks = |node, epoch| {
            let header = Header { source: node, epoch, ..Header::new(Kind::Walk, Role::Request) };
            sessions.is_fenced(&header)
        };
        assert!(!asks(1, 0));
        assert_eq!(sessions.bury(1, 1), [11]);
        assert!(asks(1, 0) && !asks(1, 1) && !asks(2, 0));
        assert_eq!(sessions.bury(1, 0), [0; 0], "epochs do not go back");
        assert!(asks(1, 0));
        assert_eq!((sessions.let_go(1, two), sessions.let_go(2, other)), (None, Some(12)));
    }
}
