//! Hare's thirteen workloads on an image of one node and on one of two, in turns; with `--without`,
//! on images of two nodes that do without a technique, too.
//!
//! ```text
//!   one  husk run            -- worker ─► parts, all in one region
//!   two  husk run --nodes 2  -- worker ─► part 0 on node 1, part 1 on node 0, with all they start
//! ```
//!
//! Node 0 is the home of all names on both. One process alone is on node 1: all that it does is
//! another node's. The time of a round is wall time, from the first start to the last end: the
//! agent of the home works, too, and is nobody's child.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use husk_supervisor::show::stat;
use serde::Serialize;

use super::nodes::image;
use crate::bench::files::workloads::{self, Workload};
use crate::bench::measure::pair::Worker;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::measure::technique::Technique;
use crate::bench::report::median;

/// Most processes at once: one on each node.
const PROCESSES_MAX: u32 = 2;
/// How long a round may take where each look is a message, and other programs have the cores.
const PATIENCE_MS: u16 = 60_000;

/// One workload with so many processes.
#[derive(Serialize, Debug)]
pub struct Row {
    pub name: &'static str,
    pub processes: u32,
    /// All in one directory, or each in one of its own.
    pub one_directory: bool,
    pub one_ms: f64,
    pub two_ms: f64,
    /// The least of all rounds: what others did on the cores is in all the others.
    pub one_least_ms: f64,
    pub two_least_ms: f64,
    /// Time on two nodes over time on one: median of the rounds' ratios.
    pub ratio: f64,
    /// Time on one node once more over time on one.
    pub control: f64,
    /// Requests that were sent to the home in one round, by all processes.
    pub requests: f64,
    /// The same by kind.
    pub kinds: BTreeMap<String, f64>,
    /// Time without each technique over time with all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<(Technique, f64)>,
}

/// One round, ns.
struct Round {
    one: f64,
    two: f64,
    again: f64,
    without: Vec<f64>,
}

/// The workers of all sides.
pub struct Sides {
    one: Worker,
    again: Worker,
    two: Worker,
    without: Vec<(Technique, Worker)>,
}

impl Sides {
    /// Starts them. The program's rewritten copy is there once the first one has worked.
    pub fn start(scratch: &Scratch, without: &[Technique]) -> anyhow::Result<Sides> {
        let mut one = Worker::start(image(scratch, &[], None))?;
        one.spend("own", 1, workloads::ALL[0].name)?;
        let two = || image(scratch, &["--nodes", "2"], None);
        let lacking = without.iter().map(|&technique| {
            let mut image = two();
            technique.switch_off(&mut image);
            let mut worker = Worker::start(image)?;
            worker.be_patient(PATIENCE_MS);
            Ok((technique, worker))
        });
        let without = lacking.collect::<anyhow::Result<_>>()?;
        let again = Worker::start(image(scratch, &[], None))?;
        Ok(Sides { one, again, two: Worker::start(two())?, without })
    }

    /// All workloads whose names contain `only`, with one process and with two.
    pub fn measure(&mut self, only: Option<&str>, rounds: u32) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for workload in crate::bench::chosen(workloads::ALL, |one| one.name, only)? {
            rows.push(self.row(workload, 1, false, rounds)?);
            rows.push(self.row(workload, PROCESSES_MAX, false, rounds)?);
            if workload.shares {
                rows.push(self.row(workload, PROCESSES_MAX, true, rounds)?);
            }
        }
        Ok(rows)
    }

    fn row(
        &mut self,
        workload: &Workload,
        processes: u32,
        one_directory: bool,
        rounds: u32,
    ) -> anyhow::Result<Row> {
        let place = if one_directory { "one" } else { "own" };
        self.round(workload, processes, place)?;
        let before = asked(&self.two)?;
        let mut all = Vec::new();
        for _ in 0..rounds {
            all.push(self.round(workload, processes, place)?);
        }
        let after = asked(&self.two)?;
        let each =
            |count: u64, before: u64| count.saturating_sub(before) as f64 / f64::from(rounds);
        let kinds = after.requests.iter().map(|(kind, count)| {
            (kind.to_string(), each(*count, before.requests.get(kind).copied().unwrap_or(0)))
        });
        let kinds: BTreeMap<_, _> = kinds.filter(|(_, count)| *count > 0.0).collect();
        let of = |pick: &dyn Fn(&Round) -> f64| median(all.iter().map(pick));
        let least = |pick: &dyn Fn(&Round) -> f64| all.iter().map(pick).fold(f64::MAX, f64::min);
        let worth = |n: usize| of(&|round: &Round| round.without[n] / round.two);
        Ok(Row {
            name: workload.name,
            processes,
            one_directory,
            one_ms: of(&|round| round.one) / 1e6,
            two_ms: of(&|round| round.two) / 1e6,
            one_least_ms: least(&|round| round.one) / 1e6,
            two_least_ms: least(&|round| round.two) / 1e6,
            ratio: of(&|round| round.two / round.one),
            control: of(&|round| round.again / round.one),
            requests: kinds.values().sum(),
            kinds,
            without: self.without.iter().enumerate().map(|(n, one)| (one.0, worth(n))).collect(),
        })
    }

    fn round(&mut self, workload: &Workload, processes: u32, place: &str) -> anyhow::Result<Round> {
        stop::check()?;
        let spread = format!("spread-{place}");
        let time = |worker: &mut Worker, verb: &str, side: &str| {
            let spent = worker.spend(verb, u64::from(processes), workload.name);
            Ok::<_, anyhow::Error>(
                spent.with_context(|| format!("{}, {side}", workload.name))?.wall_ns,
            )
        };
        let one = time(&mut self.one, place, "one node")?;
        let two = time(&mut self.two, &spread, "two nodes")?;
        let again = time(&mut self.again, place, "one node")?;
        let lacking = self.without.iter_mut().map(|(technique, worker)| {
            time(worker, &spread, &format!("without {}", technique.name()))
        });
        let without = lacking.collect::<anyhow::Result<_>>()?;
        Ok(Round { one, two, again, without })
    }
}

/// What the second node of an image has done and asked so far.
fn asked(worker: &Worker) -> anyhow::Result<stat::Report> {
    Ok(stat::report(&format!("run-{}-1", worker.pid()))?)
}

impl Row {
    /// The workload, its processes, and where they work.
    pub fn label(&self) -> String {
        match (self.processes, self.one_directory) {
            (1, _) => format!("{}, on the other node", self.name),
            (_, true) => format!("{}, one on each, one directory", self.name),
            (_, false) => format!("{}, one on each", self.name),
        }
    }
}

/// As text.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "\n{:<44}{:>9}{:>9}{:>7}{:>9}{:>10}\n",
        "Hare's workloads, wall, ms", "one node", "two", "ratio", "control", "requests"
    );
    for row in rows {
        let _ = write!(
            text,
            "{:<44}{:>9.1}{:>9.1}{:>7.2}{:>9.2}{:>10.0}",
            row.label(),
            row.one_ms,
            row.two_ms,
            row.ratio,
            row.control,
            row.requests
        );
        for (technique, worth) in &row.without {
            let _ = write!(text, "  {} {worth:.2}", technique.name());
        }
        text.push('\n');
    }
    if rows.iter().any(|row| !row.without.is_empty()) {
        text += "behind each technique: time on two nodes without it over time with all\n";
    }
    text
}
