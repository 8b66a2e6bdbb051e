//! Rates of a running image: the difference of two samples of its counters.
//!
//! ```text
//!   Watcher::look() ─► sample ─┐
//!   a while later   ─► sample ─┴─► Frame: rates of kernels, processes with their share
//! ```
//!
//! Nothing but the image's memory is read for that; other nodes are asked who runs there. What a
//! process is, `/proc` says, and only of those that somebody wants to see (`Watcher::describe`): an
//! image may have thousands.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::time::Instant;

use husk_carrier::Counts;
use husk_kernel::pipe::lanes::each_end;
use husk_kernel::pipe::seen;
use husk_proto::Overview as _;
use husk_proto::operation::{NAMES, OPERATIONS, Operation};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Serialize, Serializer};

use crate::image::attach::Visit;
use crate::named::{self, Name, Process, process};
use crate::nodes;
use crate::output::failure::Failure;
use crate::run::request::reason;
use crate::show::stat::{Done, Holds, holds, kernels};

/// Processes in the list for pipes.
const LISTED_MAX: usize = 20;

/// What one kernel does, each second.
#[derive(Serialize, Debug, Clone)]
pub struct Kernel {
    /// Its number; `None`: all of them.
    pub kernel: Option<u32>,
    /// Threads that act for it.
    pub threads: u32,
    /// Operations of all types.
    pub operations_per_s: f64,
    /// By type.
    #[serde(serialize_with = "by_type")]
    pub by_type_per_s: [f64; OPERATIONS],
    /// Transactions that changed something.
    pub transactions_per_s: f64,
    /// Waits for tokens and locks.
    pub waits_per_s: f64,
    /// Transactions undone.
    pub rollbacks_per_s: f64,
}

fn by_type<S: Serializer>(rates: &[f64; OPERATIONS], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(NAMES.iter().zip(rates))
}

impl Kernel {
    fn of(kernel: Option<u32>, threads: u32, done: &Counts, seconds: f64) -> Kernel {
        let rate = |count: u64| count as f64 / seconds;
        Kernel {
            kernel,
            threads,
            operations_per_s: rate(done.operations.iter().sum()),
            by_type_per_s: done.operations.map(rate),
            transactions_per_s: rate(done.transactions),
            waits_per_s: rate(done.waits),
            rollbacks_per_s: rate(done.rollbacks),
        }
    }

    /// The rate of some types together.
    pub fn rate_of(&self, operations: &[Operation]) -> f64 {
        operations.iter().map(|&operation| self.by_type_per_s[operation as usize]).sum()
    }
}

/// What one process does.
#[derive(Serialize, Debug, Clone)]
pub struct Share {
    /// Its number.
    pub pid: u32,
    /// Operations each second.
    pub operations_per_s: f64,
    /// Of all operations, percent.
    pub share_percent: f64,
    /// Bytes that came each second out of the rings of pipes and sockets that it reads from, and
    /// that went into those it writes to. Of an end that several processes have, each of them is
    /// shown all.
    pub ring_read_bytes_per_s: f64,
    /// The other direction.
    pub ring_written_bytes_per_s: f64,
    /// The node it runs on; `None`: the image has one. What is done at the first node for a program
    /// on another one counts as the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
}

/// What is going on.
#[derive(Serialize, Debug, Clone)]
pub struct Frame {
    /// What lies between the two looks, s.
    pub seconds: f64,
    /// All kernels together, then each.
    pub kernels: Vec<Kernel>,
    /// Bytes that went into rings of pipes and sockets, each second. Those of a pipe or connection
    /// that was closed since the last look are missing.
    pub ring_bytes_per_s: f64,
    /// What the image holds.
    #[serde(flatten)]
    pub holds: Holds,
    /// Its processes, who does most first.
    pub processes: Vec<Share>,
}

/// One look.
struct Sample {
    at: Instant,
    kernels: Vec<crate::show::stat::Kernel>,
    /// Operations by slot, and whose it is.
    slots: HashMap<u32, (u32, u64)>,
    /// Bytes that have gone into each ring, and out of it, by its name.
    rings: HashMap<u32, (u64, u64)>,
    /// Who reads from which ring, and who writes to which.
    ends: HashSet<(u32, u32, bool)>,
}

/// Bytes through rings between two looks.
struct Traffic {
    all: u64,
    /// By process: read, written.
    of: HashMap<u32, (u64, u64)>,
}

impl Traffic {
    fn between(before: &Sample, now: &Sample) -> Traffic {
        // What was not there has begun since: its name says which of a ring's lives it is.
        let since = |name: &u32, (written, read): (u64, u64)| {
            let then = before.rings.get(name).copied().unwrap_or_default();
            (written.saturating_sub(then.0), read.saturating_sub(then.1))
        };
        let moved: HashMap<u32, (u64, u64)> =
            now.rings.iter().map(|(name, moved)| (*name, since(name, *moved))).collect();
        let all = moved.values().map(|(written, _)| written).sum();
        let mut traffic = Traffic { all, of: HashMap::new() };
        for (pid, name, writes) in &now.ends {
            let (written, read) = moved.get(name).copied().unwrap_or_default();
            let sum = traffic.of.entry(*pid).or_default();
            if *writes { sum.1 += written } else { sum.0 += read }
        }
        traffic
    }
}

/// Somebody who looks again and again.
pub struct Watcher {
    visit: Visit,
    before: Sample,
    others: Vec<(u16, Name)>,
}

/// What the host says of a process.
#[derive(Debug, Clone)]
pub struct Described {
    /// What it is.
    pub process: Process,
    /// CPU time so far, in ticks of the host.
    pub ticks: u64,
}

impl Watcher {
    /// Looks for the first time.
    pub fn begin(name: &str) -> Result<Watcher, Failure> {
        let visit = Visit::of(name)?;
        let before = look(&visit);
        let named =
            |(node, name): (u16, String)| Some((node, Name::parse(OsStr::new(&name)).ok()?));
        let others = nodes::others(&visit.direct).into_iter().filter_map(named).collect();
        Ok(Watcher { visit, before, others })
    }

    /// Programs on other nodes; of one that does not answer, none.
    fn elsewhere(&self) -> HashMap<u32, u16> {
        let of = |(node, name): &(u16, Name)| {
            let pids = named::processes_of(name).unwrap_or_default();
            pids.into_iter().map(|pid| (pid, *node)).collect::<Vec<_>>()
        };
        self.others.iter().flat_map(of).collect()
    }

    /// Whether the image is still there.
    pub fn goes_on(&mut self) -> bool {
        self.visit.goes_on()
    }

    /// What has been going on since the last look.
    pub fn look(&mut self) -> Frame {
        let now = look(&self.visit);
        let before = std::mem::replace(&mut self.before, now);
        let now = &self.before;
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let mut all = (0, Counts::default());
        let mut rows = vec![];
        for (one, then) in now.kernels.iter().zip(&before.kernels) {
            let since = one.done.0.since(&then.done.0);
            all.0 += one.threads;
            all.1.add(&since);
            rows.push(Kernel::of(Some(one.kernel), one.threads, &since, seconds));
        }
        rows.insert(0, Kernel::of(None, all.0, &all.1, seconds));
        let mut by_pid: HashMap<u32, u64> = HashMap::new();
        self.visit.direct.each_pid(&mut |pid| {
            by_pid.insert(pid, 0);
        });
        let elsewhere = self.elsewhere();
        for pid in elsewhere.keys() {
            by_pid.entry(*pid).or_default();
        }
        for (slot, (pid, count)) in &now.slots {
            // What a slot's owner before has done is not this one's.
            let then = before.slots.get(slot).filter(|(owner, _)| owner == pid);
            if let (Some(sum), Some((_, then))) = (by_pid.get_mut(pid), then) {
                *sum += count.wrapping_sub(*then);
            }
        }
        let total = Done(all.1).operations().max(1) as f64;
        let several = !self.others.is_empty();
        let traffic = Traffic::between(&before, now);
        let share = |(pid, count): (u32, u64)| {
            let (read, written) = traffic.of.get(&pid).copied().unwrap_or_default();
            Share {
                node: several.then(|| elsewhere.get(&pid).copied().unwrap_or(0)),
                pid,
                operations_per_s: count as f64 / seconds,
                share_percent: (100.0 * count as f64 / total).min(100.0),
                ring_read_bytes_per_s: read as f64 / seconds,
                ring_written_bytes_per_s: written as f64 / seconds,
            }
        };
        let mut processes: Vec<Share> = by_pid.into_iter().map(share).collect();
        processes.sort_by(|one, two| {
            two.operations_per_s.total_cmp(&one.operations_per_s).then(one.pid.cmp(&two.pid))
        });
        let ring_bytes_per_s = traffic.all as f64 / seconds;
        let holds = holds(&mut self.visit);
        Frame { seconds, kernels: rows, ring_bytes_per_s, holds, processes }
    }

    /// What the host says of a process of the image; `None`: it has ended.
    pub fn describe(pid: u32) -> Option<Described> {
        Some(Described { process: process(pid)?, ticks: ticks(pid)? })
    }

    /// Sends a signal to a process of the image, and to no other.
    pub fn kill(&self, pid: u32, signal: Signal) -> Result<(), String> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such process")?;
        // Held before it is looked for: its number cannot become another's between.
        let held = pidfd_open(number, PidfdFlags::empty()).map_err(|p| reason(&p.into()))?;
        let mut is_ours = false;
        self.visit.direct.each_pid(&mut |one| is_ours |= one == pid);
        if !is_ours && !self.elsewhere().contains_key(&pid) {
            return Err("it is not a process of the image".to_owned());
        }
        pidfd_send_signal(held, signal).map_err(|problem| reason(&problem.into()))
    }
}

/// User and system time of a process.
fn ticks(pid: u32) -> Option<u64> {
    /// Fields between the state and the user time.
    const BETWEEN: usize = 10;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(1 + BETWEEN);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn look(visit: &Visit) -> Sample {
    let mut slots = HashMap::new();
    visit.direct.each_seat(&mut |seat| {
        if seat.pid != 0 {
            slots.insert(seat.slot, (seat.pid, Done(seat.counts).operations()));
        }
    });
    let (kernel, mut rings, mut ends) = (visit.direct.kernel(), HashMap::new(), HashSet::new());
    each_end(kernel, &mut |pid, _, end| {
        ends.insert((pid, end.pipe.0, end.writes));
        if let Some(mate) = end.socket.then(|| seen::mate(end.pipe)).flatten() {
            ends.insert((pid, mate.0, true));
        }
    });
    seen::each_ring(kernel, &mut |pipe, written, read| {
        rings.insert(pipe.0, (written, read));
    });
    Sample { at: Instant::now(), kernels: kernels(visit), slots, rings, ends }
}

/// Types of operations side by side, as people are shown them.
pub const COLUMNS: [(&str, &[Operation]); 9] = [
    ("WALK", &[Operation::Walk]),
    ("STAT", &[Operation::Stat, Operation::List]),
    ("READ", &[Operation::Read]),
    ("WRITE", &[Operation::Write, Operation::Resize]),
    ("OPEN", &[Operation::Open]),
    ("CLOSE", &[Operation::Close]),
    ("CREATE", &[Operation::Create, Operation::Link]),
    ("REMOVE", &[Operation::Remove, Operation::Rename]),
    ("FORK", &[Operation::Fork, Operation::Exec]),
];

/// A rate in at most five places.
pub fn short(rate: f64) -> String {
    match rate {
        r if r < 0.05 => "0".to_owned(),
        r if r < 10.0 => format!("{r:.1}"),
        r if r < 1e4 => format!("{r:.0}"),
        r if r < 1e6 => format!("{:.0}k", r / 1e3),
        r => format!("{:.1}M", r / 1e6),
    }
}

impl Share {
    /// What stands over `rings`.
    pub const RINGS_HEAD: &str = "RING B/s";

    /// Bytes through its rings each second, in both directions, as people are shown them.
    pub fn rings(&self) -> String {
        let sum = self.ring_read_bytes_per_s + self.ring_written_bytes_per_s;
        format!("{:>8}", short(sum))
    }

    /// Its node, as people are shown it.
    pub fn node(&self) -> String {
        self.node.map_or("-".to_owned(), |node| node.to_string())
    }
}

impl Frame {
    /// What the image holds, on one line.
    pub fn summary(&self) -> String {
        let full = if self.holds.full.is_empty() { "" } else { "   FULL: see `husk stat`" };
        let rings = short(self.ring_bytes_per_s);
        format!(
            "{} processes   {}   rings {rings}B/s{full}",
            self.processes.len(),
            self.holds.line()
        )
    }

    /// For people who read it in a pipe.
    pub fn text(&self) -> String {
        let mut text = self.summary() + "\n\n" + &head() + "\n";
        self.kernels.iter().for_each(|kernel| text += &(kernel.line() + "\n"));
        let node = self.node_column("NODE".to_owned());
        let (pid, rings) = ("PID", Share::RINGS_HEAD);
        let _ = writeln!(text, "\n{pid:>8}{node} {:>7} {:>6} {rings} COMMAND", "OPS/s", "SHARE");
        for share in self.processes.iter().take(LISTED_MAX) {
            let Share { pid, operations_per_s, share_percent, .. } = share;
            let node = self.node_column(share.node());
            let told = Watcher::describe(*pid).map(|told| told.process.line()).unwrap_or_default();
            let rate = short(*operations_per_s);
            let percent = format!("{share_percent:>5.1}%");
            let _ = writeln!(text, "{pid:>8}{node} {rate:>7} {percent} {} {told}", share.rings());
        }
        text
    }

    /// A column that is there where the image has several nodes.
    pub fn node_column(&self, text: String) -> String {
        let several = self.processes.iter().any(|share| share.node.is_some());
        if several { format!(" {text:>4}") } else { String::new() }
    }
}

/// What stands over the kernels' lines. What a narrow terminal cuts off is types of operations.
pub fn head() -> String {
    let types: String = COLUMNS.iter().map(|(name, _)| format!(" {name:>6}")).collect();
    format!(
        "{:<6} {:>7} {:>7} {:>6} {:>6}{types} {:>6}",
        "KERNEL", "THREADS", "OPS/s", "WAITS", "UNDONE", "OTHER"
    )
}

impl Kernel {
    /// What one does, as people are shown it.
    pub fn line(&self) -> String {
        let types: String = COLUMNS
            .iter()
            .map(|(_, types)| format!(" {:>6}", short(self.rate_of(types))))
            .collect();
        format!(
            "{:<6} {:>7} {:>7} {:>6} {:>6}{types} {:>6}",
            self.kernel.map_or("all".to_owned(), |kernel| kernel.to_string()),
            self.threads,
            short(self.operations_per_s),
            short(self.waits_per_s),
            short(self.rollbacks_per_s),
            short(self.other_per_s()),
        )
    }

    /// Operations of the types that have no column: locks, pipes, attributes set, ...
    fn other_per_s(&self) -> f64 {
        let shown: f64 = COLUMNS.iter().map(|(_, types)| self.rate_of(types)).sum();
        (self.operations_per_s - shown).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_at_most_five_places() {
        for (rate, shown) in [
            (0.0, "0"),
            (0.04, "0"),
            (0.5, "0.5"),
            (9.94, "9.9"),
            (999.4, "999"),
            (9999.0, "9999"),
            (12_345.0, "12k"),
            (3_456_789.0, "3.5M"),
            (345_678_901.0, "345.7M"),
        ] {
            assert_eq!(short(rate), shown);
        }
    }

    #[test]
    fn the_lines_of_kernels_stand_below_their_head() {
        let done = Counts { operations: [1_000_000; OPERATIONS], ..Counts::default() };
        let line = Kernel::of(Some(63), 4095, &done, 1.0).line();
        assert_eq!(line.len(), head().len(), "{}\n{line}", head());
    }

    #[test]
    fn the_columns_of_types_add_up_to_all_operations() {
        let mut operations = [0; OPERATIONS];
        for (index, count) in operations.iter_mut().enumerate() {
            *count = 1 << index;
        }
        let done = Counts { operations, ..Counts::default() };
        let kernel = Kernel::of(None, 1, &done, 1.0);
        let shown: f64 = COLUMNS.iter().map(|(_, types)| kernel.rate_of(types)).sum();
        assert_eq!(shown + kernel.other_per_s(), kernel.operations_per_s);
        for hidden in [Operation::Lock, Operation::Pipe, Operation::Change] {
            assert!(kernel.other_per_s() >= kernel.rate_of(&[hidden]), "{hidden:?}");
        }
    }

    #[test]
    fn the_cpu_time_of_a_process_grows() {
        let own = std::process::id();
        let before = ticks(own).unwrap();
        let mut sum = 0_u64;
        while ticks(own).unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(ticks(u32::MAX >> 1).is_none());
    }
}
