//! Nodes with a core each, processes that compute and ask, homes with queues: one event after the
//! other.
//!
//! ```text
//!   process  compute ─► ask ──crossing/2──► core of the home: queue, service ──crossing/2──► next
//!               └─ on its node's core: the same queue, first come, first served
//! ```
//!
//! Invariants
//! 1. A core does one thing at a time: a slice of its process, or the service of a message. What
//!    computes longer than `SLICE_US` goes to the end of the queue after each slice.
//! 2. The same seed gives the same result.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// A scheduler would let the agent go first; so nobody waits longer than this for a process.
const SLICE_US: f64 = 20.0;
const NS_PER_US: f64 = 1e3;

/// What a process may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A change or an opening of one name, at the home of that name.
    Name,
    /// A rename: with a spread directory its two names may have two homes.
    Rename,
    /// Bytes of a file go to its home.
    Bytes,
    /// A directory is removed: a spread one at all homes, in two rounds after one message.
    RemoveDirectory,
    /// A directory is listed, without a message: a spread one at all homes, in their memory.
    List,
}

/// How names are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directory {
    /// Node 0 is the home of all.
    Plain,
    /// Each name is at the home that its hash says.
    Spread,
}

/// What things take, us.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// What a message about names adds to what is done locally, there and back.
    pub name_us: f64,
    /// The same of one with 4 KiB.
    pub bytes_us: f64,
    /// What of that is on no core of the home.
    pub crossing_us: f64,
    /// A look at another home's memory.
    pub look_us: f64,
}

/// What one process does: steps of this mix, which take `compute_us` each on one node.
#[derive(Clone, Debug)]
pub struct Work {
    pub mix: Vec<(Ask, f64)>,
    pub steps: u64,
    pub compute_us: f64,
}

/// So many homes, with processes on some nodes.
#[derive(Clone, Debug)]
pub struct Setting {
    pub homes: u32,
    pub processes: Vec<u32>,
    pub directory: Directory,
}

/// What wants a core.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// A slice of a process that has so much to compute before it asks.
    Compute(u32, f64),
    /// A message of a process.
    Serve(u32, f64),
}

struct Process {
    node: u32,
    left: u64,
    dice: u64,
    /// Rounds of messages that are to follow, each to some homes at once; answers awaited now.
    rounds: Vec<Vec<u32>>,
    awaited: u32,
    service_us: f64,
}

/// Something that happens on a node: a job comes to its core, or is done there.
struct Event {
    at_ns: u64,
    order: u64,
    node: u32,
    job: Job,
    is_done: bool,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// The earliest is the greatest: a heap gives that first.
    fn cmp(&self, other: &Event) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

/// What a core has to do after what it does.
#[derive(Default)]
struct Core {
    is_busy: bool,
    queue: VecDeque<Job>,
}

struct Run<'a> {
    costs: &'a Costs,
    work: &'a Work,
    setting: &'a Setting,
    processes: Vec<Process>,
    cores: Vec<Core>,
    events: BinaryHeap<Event>,
    order: u64,
}

/// How long it takes until the last process has ended, us.
pub fn makespan_us(costs: &Costs, work: &Work, setting: &Setting, seed: u64) -> f64 {
    let process = |(n, &node): (usize, &u32)| Process {
        node,
        left: work.steps,
        dice: seed ^ ((n as u64 + 1) << 32) ^ 0x9e37_79b9_7f4a_7c15,
        rounds: Vec::new(),
        awaited: 0,
        service_us: 0.0,
    };
    let processes = setting.processes.iter().enumerate().map(process).collect();
    let nodes = setting.processes.iter().max().map_or(0, |most| most + 1).max(setting.homes);
    let cores = (0..nodes).map(|_| Core::default()).collect();
    let events = BinaryHeap::new();
    let mut run = Run { costs, work, setting, processes, cores, events, order: 0 };
    for process in 0..setting.processes.len() as u32 {
        run.begin_step(process, 0.0);
    }
    run.go()
}

impl Run<'_> {
    fn go(&mut self) -> f64 {
        let mut last_us = 0.0f64;
        while let Some(Event { at_ns, node, job, is_done, .. }) = self.events.pop() {
            let at_us = at_ns as f64 / NS_PER_US;
            let core = &mut self.cores[node as usize];
            if !is_done {
                core.queue.push_back(job);
            } else {
                core.is_busy = false;
                last_us = last_us.max(at_us);
                self.done(node, job, at_us);
            }
            self.serve_next(node, at_us);
        }
        last_us
    }

    /// A core that has nothing to do takes what waits longest.
    fn serve_next(&mut self, node: u32, at_us: f64) {
        let core = &mut self.cores[node as usize];
        if core.is_busy {
            return;
        }
        let Some(job) = core.queue.pop_front() else { return };
        core.is_busy = true;
        let takes_us = match job {
            Job::Compute(_, left_us) => left_us.min(SLICE_US),
            Job::Serve(_, service_us) => service_us,
        };
        self.push(at_us + takes_us, node, job, true);
    }

    fn done(&mut self, node: u32, job: Job, at_us: f64) {
        match job {
            Job::Compute(process, left_us) if left_us > SLICE_US => {
                self.push(at_us, node, Job::Compute(process, left_us - SLICE_US), false);
            }
            Job::Compute(process, _) => self.next_round(process, at_us),
            Job::Serve(process, _) => {
                let asker = &mut self.processes[process as usize];
                asker.awaited -= 1;
                if asker.awaited == 0 {
                    self.next_round(process, at_us + self.costs.crossing_us / 2.0);
                }
            }
        }
    }

    fn push(&mut self, at_us: f64, node: u32, job: Job, is_done: bool) {
        self.order += 1;
        let at_ns = (at_us * NS_PER_US) as u64;
        self.events.push(Event { at_ns, order: self.order, node, job, is_done });
    }

    /// The next step of a process: it computes, then asks whom it has to.
    fn begin_step(&mut self, process: u32, at_us: f64) {
        let (homes, directory) = (self.setting.homes, self.setting.directory);
        let asker = &mut self.processes[process as usize];
        if asker.left == 0 {
            return;
        }
        asker.left -= 1;
        let ask = drawn(&self.work.mix, &mut asker.dice);
        let is_spread = directory == Directory::Spread;
        let home = |dice: &mut u64| if is_spread { below(dice, homes) } else { 0 };
        let mut compute_us = self.work.compute_us;
        let all = || (0..homes).collect::<Vec<_>>();
        let one = home(&mut asker.dice);
        // The last one comes first.
        asker.rounds = match ask {
            Ask::Name | Ask::Bytes => vec![vec![one]],
            Ask::Rename if is_spread => {
                let other = home(&mut asker.dice);
                if other == one { vec![vec![one]] } else { vec![vec![one], vec![other], vec![one]] }
            }
            Ask::RemoveDirectory if is_spread => vec![all(), all(), vec![one]],
            Ask::Rename | Ask::RemoveDirectory => vec![vec![one]],
            Ask::List => {
                let others = if is_spread { homes - 1 } else { 0 };
                compute_us += f64::from(others) * self.costs.look_us;
                Vec::new()
            }
        };
        let add_us = if ask == Ask::Bytes { self.costs.bytes_us } else { self.costs.name_us };
        asker.service_us = (add_us - self.costs.crossing_us).max(0.0);
        let node = asker.node;
        self.push(at_us, node, Job::Compute(process, compute_us), false);
    }

    /// Sends the messages of the next round; what is at home here needs none.
    fn next_round(&mut self, process: u32, at_us: f64) {
        let asker = &mut self.processes[process as usize];
        let Some(mut homes) = asker.rounds.pop() else { return self.begin_step(process, at_us) };
        let (node, service_us) = (asker.node, asker.service_us);
        homes.retain(|home| *home != node);
        if homes.is_empty() {
            return self.next_round(process, at_us);
        }
        asker.awaited = homes.len() as u32;
        for (n, home) in (1u32..).zip(homes) {
            // They leave one after the other.
            let there_us = at_us + f64::from(n) * self.costs.crossing_us / 2.0;
            self.push(there_us, home, Job::Serve(process, service_us), false);
        }
    }
}

/// Knuth's MMIX generator: the same on all machines.
fn next(dice: &mut u64) -> u64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *dice >> 33
}

fn below(dice: &mut u64, bound: u32) -> u32 {
    (next(dice) % u64::from(bound.max(1))) as u32
}

fn drawn(mix: &[(Ask, f64)], dice: &mut u64) -> Ask {
    let all: f64 = mix.iter().map(|part| part.1).sum();
    let mut at = next(dice) as f64 / (1u64 << 31) as f64 * all;
    for &(ask, share) in mix {
        at -= share;
        if at < 0.0 {
            return ask;
        }
    }
    mix.last().map_or(Ask::List, |part| part.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { name_us: 3.0, bytes_us: 5.0, crossing_us: 1.0, look_us: 0.5 };

    fn takes_us(ask: Ask, processes: &[u32], homes: u32, directory: Directory) -> f64 {
        let work = Work { mix: vec![(ask, 1.0)], steps: 1000, compute_us: 1.0 };
        makespan_us(&COSTS, &work, &Setting { homes, processes: processes.into(), directory }, 1)
    }

    #[test]
    fn a_message_adds_what_it_costs_and_one_s_own_home_costs_nothing() {
        use Directory::Plain;
        assert_eq!(takes_us(Ask::Name, &[0], 1, Plain), 1000.0);
        // The last answer is under way when the last core is done.
        assert_eq!(takes_us(Ask::Name, &[1], 1, Plain), 4000.0 - 0.5);
        assert_eq!(takes_us(Ask::Bytes, &[1], 1, Plain), 6000.0 - 0.5);
        assert_eq!(takes_us(Ask::List, &[1], 1, Plain), 1000.0);
    }

    #[test]
    fn a_plain_directory_is_as_fast_as_its_home_and_a_spread_one_grows() {
        let processes: Vec<u32> = (0..64).collect();
        let plain = takes_us(Ask::Name, &processes, 64, Directory::Plain);
        // 63 processes ask one core, which needs 2 us for each message.
        assert!((63_000.0 * 2.0..64_000.0 * 2.0 + 1000.0).contains(&plain), "{plain}");
        let spread = takes_us(Ask::Name, &processes, 64, Directory::Spread);
        assert!(spread < plain / 10.0, "{spread} {plain}");
    }

    #[test]
    fn what_is_done_at_all_homes_costs_more_where_a_directory_is_spread() {
        for (ask, homes) in [(Ask::RemoveDirectory, 64), (Ask::List, 64), (Ask::Rename, 2)] {
            let plain = takes_us(ask, &[1], homes, Directory::Plain);
            let spread = takes_us(ask, &[1], homes, Directory::Spread);
            let most = if ask == Ask::Rename { 1.0 } else { 10.0 };
            assert!(spread > plain * most, "{ask:?}: {spread} {plain}");
        }
    }
}
