//! State about the nodes that ask: the epoch of each, what is open for it here, and which of
//! its messages broke the rules.
//!
//! A session is one connection with one message (`husk_link::call`): one that breaks the rules is
//! counted by its fault and by the node that it says it is from, answered with `Protocol` where its
//! header can be read, and the session ends. The first of each is said in a line.
//!
//! Invariants
//! 1. A hold is its node's: no other node gives it back. All of a node fall together when it is
//!    dead (`bury`), so that files without a name go.
//! 2. A request of an epoch that is over is `Fenced` before anything is looked at: a node that
//!    was declared dead changes nothing if it wakes. An agent knows who is dead before it serves.
//! 3. No two holds of a home ever have the same number, of whichever agents they are: what is given
//!    back late is not mistaken.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use husk_wire::{Fault, Header};
use rustix::time::{ClockId, clock_gettime};

use crate::planted::planted;

const NS_PER_S: u64 = 1_000_000_000;
/// Lines about messages that were refused.
const LINES_MAX: usize = 32;

/// A file that is open for another node.
#[derive(Clone, Copy, Debug)]
struct Hold {
    node: u16,
    /// Which life of the node.
    epoch: u32,
    /// Which request it was opened for.
    request: u32,
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
    /// Nobody has asked yet. Numbers of holds begin with the ns since the host's start: no agent
    /// before this one has come so far, for a hold takes longer to make.
    pub fn begin(say: fn(&str)) -> Sessions {
        let now = clock_gettime(ClockId::Boottime);
        let now_ns = now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64;
        let next = if planted!(HoldsNumberedAgain) { 1 } else { now_ns };
        let table = Table { next, ..Table::default() };
        Sessions { table: Mutex::new(table), say }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No change of it stops half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps number `fd` of the agent's table for who asks: the number of the hold.
    pub fn hold(&self, asked: &Header, fd: u32) -> u64 {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        let (node, epoch, request) = (asked.source, asked.epoch, asked.request);
        table.holds.insert(number, Hold { node, epoch, request, fd });
        number
    }

    /// What a request that is asked again opened before: nobody has heard of it.
    pub fn first_try(&self, asked: &Header) -> Option<u32> {
        if !asked.again || planted!(FirstTryKept) {
            return None;
        }
        let of = (asked.source, asked.epoch, asked.request);
        let is_its = |hold: &Hold| (hold.node, hold.epoch, hold.request) == of;
        let mut table = self.table();
        let number = *table.holds.iter().find(|(_, hold)| is_its(hold))?.0;
        table.holds.remove(&number).map(|hold| hold.fd)
    }

    /// A node does not need it any more: what it was. `None`: it has no such hold.
    pub fn let_go(&self, node: u16, number: u64) -> Option<u32> {
        let mut table = self.table();
        let may = |hold: &&Hold| hold.node == node || planted!(AnyoneReturns);
        let held = table.holds.get(&number).filter(may)?.fd;
        table.holds.remove(&number);
        Some(held)
    }

    /// The number of the hold that was made last.
    #[cfg(test)]
    pub fn made(&self) -> u64 {
        self.table().next - 1
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
        if planted!(DeathKeepsHolds) {
            return Vec::new();
        }
        let is_its = |hold: &mut Hold| {
            hold.node == node && (hold.epoch < epoch || planted!(DeathOfAllLives))
        };
        table.holds.extract_if(|_, hold| is_its(hold)).map(|(_, hold)| hold.fd).collect()
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
    fn holds_are_their_nodes_and_fall_with_it_and_an_old_epoch_is_fenced() {
        let sessions = Sessions::begin(|_| {});
        let of =
            |node, epoch| Header { source: node, epoch, ..Header::new(Kind::Walk, Role::Request) };
        let [one, two, other] =
            [(1, 10), (1, 11), (2, 12)].map(|(n, fd)| sessions.hold(&of(n, 0), fd));
        assert_eq!(sessions.let_go(2, one), None, "it is another node's");
        assert_eq!(sessions.let_go(1, one), Some(10));
        assert_eq!(sessions.let_go(1, one), None, "once");
        let asks = |node, epoch| sessions.is_fenced(&of(node, epoch));
        assert!(!asks(1, 0));
        assert_eq!(sessions.bury(1, 1), [11]);
        assert!(asks(1, 0) && !asks(1, 1) && !asks(2, 0));
        assert_eq!(sessions.bury(1, 0), [0; 0], "epochs do not go back");
        assert!(asks(1, 0));
        let next = sessions.hold(&of(1, 1), 13);
        assert_eq!(sessions.bury(1, 1), [0; 0], "told once more: its next life is another one");
        assert_eq!(sessions.let_go(1, next), Some(13));
        assert!(Sessions::begin(|_| {}).hold(&of(1, 1), 10) > next, "another agent");
        assert_eq!((sessions.let_go(1, two), sessions.let_go(2, other)), (None, Some(12)));
    }
}
