//! Which of the other nodes are dead, and that the agent lets go of what they had open.
//!
//! A node is dead when nobody has its memory: no supervisor, no keeper, no program. So none that is
//! stopped, slow or being taken over is declared dead, and nothing of a dead one can wake.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::named::{self, Name};

/// Between two looks; one that is missing in two of them is dead.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the agent may take to hear of it, s, and when it is told again that has not.
const PATIENCE_S: u64 = 1;
const AGAIN: Duration = Duration::from_secs(5);
/// What a node asked that is dead was of an epoch before this one.
pub const EPOCH: u32 = 1;

/// What is known.
pub struct Deaths {
    next_look: Instant,
    missing: BTreeSet<u16>,
    /// Those that are dead; whether this agent has heard of it.
    dead: BTreeMap<u16, bool>,
}

impl Deaths {
    /// All live.
    pub fn new() -> Deaths {
        let (missing, dead) = Default::default();
        Deaths { next_look: Instant::now() + LOOK_EVERY, missing, dead }
    }

    /// The dead, for an agent that starts: it is to serve nothing of theirs, not even before it is
    /// told.
    pub fn dead(&self) -> impl Iterator<Item = u16> {
        self.dead.keys().copied()
    }

    /// There is another agent, which has heard of nothing.
    pub fn unheard(&mut self) {
        self.dead.values_mut().for_each(|heard| *heard = false);
        self.next_look = Instant::now();
    }

    /// A node on another host is dead.
    pub fn add(&mut self, node: u16) {
        self.dead.insert(node, false);
        self.next_look = Instant::now();
    }

    /// Looks for dead nodes, if it is time, and tells the agent that listens at `home`.
    pub fn look(&mut self, home: &Path, names: &[Name]) {
        if Instant::now() < self.next_look {
            return;
        }
        self.next_look = Instant::now() + LOOK_EVERY;
        for (node, name) in (1..).zip(names) {
            if self.dead.contains_key(&node) {
                continue;
            }
            if named::goes_on(name) {
                self.missing.remove(&node);
            } else if !self.missing.insert(node) {
                self.dead.insert(node, false);
            }
        }
        let home = home.as_os_str().as_bytes();
        if self.dead.values().all(|heard| *heard) {
            return;
        }
        let all: Vec<u16> = self.dead.keys().copied().collect();
        // In one message: nothing else is done meanwhile.
        if husk_node::tell_deaths(home, &all, EPOCH, PATIENCE_S) {
            self.dead.values_mut().for_each(|heard| *heard = true);
        } else {
            self.next_look = Instant::now() + AGAIN;
        }
    }
}
