//! `husk sim`: predicts the throughput of Hare's workloads on many nodes, for a directory whose
//! names have one home and for one whose names are spread over all.
//!
//! ```text
//!   bench nodes --workloads --json ─► mix of messages, local time, cost of a message
//!                                  ─► model (one event after the other) ─► workloads a second
//! ```
//!
//! What is counted and measured: messages by kind of each workload, its time on one node, and what
//! a message adds, from the two workloads that send one kind alone (`NAMES`, `BYTES`). Times are
//! the least of all rounds: what others do on the cores is not in them. What is assumed:
//! 1. Each node has one core, for its one process and for the messages that come to it, in order.
//!    Memory, caches and the host's locks are as fast on many cores as on one.
//! 2. All nodes are on one host: a message takes what it takes between two. A host has as many
//!    cores as nodes.
//! 3. All processes work in one directory, and all directories below it are of the same kind.
//! 4. Spread, which is not built yet: as in the notes of the protocol. A rename over two homes is
//!    three messages, a removed directory one and two rounds to all homes, a listing a look at
//!    each.
//!
//! The prediction for one and two nodes is printed beside what was measured, with its error.

mod model;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use husk_supervisor::output::failure::Failure;
use husk_supervisor::output::print;
use serde::Serialize;
use serde_json::Value;

use crate::bench::median;
use model::{Ask, Costs, Directory, Setting, Work, makespan_us};

/// Measured by `husk bench nodes --workloads --rounds 21 --json`.
const FIGURES: &str = include_str!("figures.json");
/// The workloads that send one kind of message alone.
const NAMES: &str = "renames";
const BYTES: &str = "writes";
/// Directories that a process lists, and that it removes (`bench::files::workloads`): no message
/// says so. Of `fsstress` a tenth of its steps each list, and try to.
const DIRECTORIES: [(&str, f64, f64); 7] = [
    ("rm dense", 9.0, 9.0),
    ("rm sparse", 2111.0, 2111.0),
    ("pfind dense", 9.0, 0.0),
    ("pfind sparse", 2111.0, 0.0),
    ("punzip", 11.0, 0.0),
    ("mailbench", 1.0, 0.0),
    ("fsstress", 600.0, 600.0),
];
/// The time of a slot to cross between two cores and a look at the home: `husk bench msg`, `husk
/// bench nodes` (docs/perf.md).
const CROSSING_US: f64 = 0.35;
const LOOK_US: f64 = 0.1;
/// Most nodes; messages of one run, about; steps of each process, at least.
const NODES_MAX: u32 = 1000;
const MESSAGES: f64 = 40_000.0;
const STEPS_MIN: u64 = 30;
/// Any other one moves what is printed in the third digit.
const SEED: u64 = 24;

/// `husk sim`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Numbers of nodes, FIRST..LAST: each twice the one before.
    #[arg(long, value_name = "RANGE", default_value = "1..1000", value_parser = range)]
    nodes: (u32, u32),
    /// What was measured: the output of `husk bench nodes --workloads --json` [default: that of the
    /// machine in docs/perf.md].
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Only workloads whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print one JSON document instead of the tables.
    #[arg(long)]
    json: bool,
}

fn range(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|n| (1..=NODES_MAX).contains(n));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => Err(format!("choose 1..{NODES_MAX}, or a part of it")),
    }
}

/// One workload as it was measured.
#[derive(Debug)]
struct Measured {
    name: String,
    /// All of it on one node, alone, ms; on the other node.
    local_ms: f64,
    away_ms: f64,
    /// Two processes, one on each node, in one directory where that was measured.
    each_ms: Option<f64>,
    work: Work,
}

/// One prediction.
#[derive(Serialize, Debug)]
struct Point {
    nodes: u32,
    /// Workloads that all processes together do in a second, one process on each node.
    plain_per_s: f64,
    spread_per_s: f64,
}

/// Beside what was measured.
#[derive(Serialize, Debug)]
struct Check {
    workload: String,
    what: &'static str,
    measured_ms: f64,
    predicted_ms: f64,
    /// Predicted over measured, less one. None where the costs are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
}

#[derive(Serialize, Debug)]
struct Report {
    name_us: f64,
    bytes_us: f64,
    points: Vec<(String, Vec<Point>)>,
    checks: Vec<Check>,
    /// Median of the errors without their signs.
    error: f64,
}

/// Predicts.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let text = match &options.figures {
        Some(path) => std::fs::read_to_string(path).map_err(|why| {
            Failure::new(
                format!("cannot read {}", path.display()),
                why.to_string(),
                "name what `husk bench nodes --workloads --json` has printed",
            )
        })?,
        None => FIGURES.to_owned(),
    };
    let all = measured(&text).context("these are no figures of `husk bench nodes --workloads`")?;
    let costs = costs(&all)?;
    let only = options.only.as_deref().unwrap_or_default();
    let chosen: Vec<_> = all.iter().filter(|one| one.name.contains(only)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no workload's name contains {only:?}");
    let points = chosen.iter().map(|one| (one.name.clone(), points(one, &costs, options.nodes)));
    let points = points.collect();
    let checks: Vec<_> = chosen.iter().flat_map(|one| checks(one, &costs)).collect();
    let error = median(checks.iter().filter_map(|check| check.error.map(f64::abs)));
    let (name_us, bytes_us) = (costs.name_us, costs.bytes_us);
    let report = Report { name_us, bytes_us, points, checks, error };
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads what was measured.
fn measured(text: &str) -> Option<Vec<Measured>> {
    let document: Value = serde_json::from_str(text).ok()?;
    let rows = document["workloads"].as_array()?;
    let alone = rows.iter().filter(|row| row["processes"] == 1);
    alone.map(|row| one(row, rows)).collect()
}

fn one(row: &Value, rows: &[Value]) -> Option<Measured> {
    let name = row["name"].as_str()?.to_owned();
    let several =
        rows.iter().filter(|other| other["name"] == row["name"] && other["processes"] == 2);
    let each_ms = several.max_by_key(|row| row["one_directory"] == true);
    let (listed, removed) = directories(&name);
    let mut mix = vec![(Ask::List, listed), (Ask::RemoveDirectory, removed)];
    for (kind, count) in row["kinds"].as_object()? {
        let count = count.as_f64()?;
        mix.push(match kind.as_str() {
            "rename" => (Ask::Rename, count),
            "write-home" | "read" | "description-io" => (Ask::Bytes, count),
            "remove" => (Ask::Name, (count - removed).max(0.0)),
            _ => (Ask::Name, count),
        });
    }
    let steps = mix.iter().map(|part| part.1).sum::<f64>().max(1.0);
    let local_ms = row["one_least_ms"].as_f64().filter(|ms| *ms > 0.0)?;
    let work = Work { mix, steps: steps as u64, compute_us: local_ms * 1e3 / steps };
    let each_ms = each_ms.and_then(|row| row["two_least_ms"].as_f64());
    Some(Measured { name, local_ms, away_ms: row["two_least_ms"].as_f64()?, each_ms, work })
}

/// How many directories a workload lists and removes.
fn directories(name: &str) -> (f64, f64) {
    let found = DIRECTORIES.iter().find(|one| one.0 == name);
    found.map_or((0.0, 0.0), |&(_, listed, removed)| (listed, removed))
}

/// What a message adds, from who sends one kind.
fn costs(all: &[Measured]) -> anyhow::Result<Costs> {
    let of = |name: &str| {
        let found = all.iter().find(|one| one.name == name);
        let one = found.with_context(|| format!("no workload {name:?} among the figures"))?;
        let adds_us = (one.away_ms - one.local_ms) * 1e3 / one.work.steps as f64;
        anyhow::ensure!(adds_us > 0.0, "{name} is faster by messages: measure again");
        Ok(adds_us)
    };
    let (name_us, bytes_us) = (of(NAMES)?, of(BYTES)?);
    Ok(Costs { name_us, bytes_us, crossing_us: CROSSING_US, look_us: LOOK_US })
}

fn points(one: &Measured, costs: &Costs, (first, last): (u32, u32)) -> Vec<Point> {
    let (mut points, mut nodes) = (Vec::new(), first);
    loop {
        // A part of the work, where there are many processes: its rate is that of the whole.
        let most = (MESSAGES / f64::from(nodes)) as u64;
        let steps = one.work.steps.min(most.max(STEPS_MIN));
        let work = Work { steps, ..one.work.clone() };
        let done = f64::from(nodes) * steps as f64 / one.work.steps as f64;
        let per_s = |directory| {
            let setting = Setting { homes: nodes, processes: (0..nodes).collect(), directory };
            done * 1e6 / makespan_us(costs, &work, &setting, SEED)
        };
        let (plain_per_s, spread_per_s) = (per_s(Directory::Plain), per_s(Directory::Spread));
        points.push(Point { nodes, plain_per_s, spread_per_s });
        if nodes == last {
            return points;
        }
        nodes = (nodes * 2).min(last);
    }
}

/// What is predicted where it was measured, too.
fn checks(one: &Measured, costs: &Costs) -> Vec<Check> {
    let check = |what, measured_ms: f64, processes: &[u32], is_source: bool| {
        let processes = processes.to_vec();
        let setting = Setting { homes: 2, processes, directory: Directory::Plain };
        let predicted_ms = makespan_us(costs, &one.work, &setting, SEED) / 1e3;
        let error = (!is_source).then_some(predicted_ms / measured_ms - 1.0);
        Check { workload: one.name.clone(), what, measured_ms, predicted_ms, error }
    };
    let is_source = one.name == NAMES || one.name == BYTES;
    let mut checks = vec![check("alone on the other node", one.away_ms, &[1], is_source)];
    checks.extend(one.each_ms.map(|ms| check("one on each of two", ms, &[0, 1], false)));
    checks
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "A message about a name adds {:.2} us, one with 4 KiB {:.2} us (from {NAMES} and \
             {BYTES}).\nWorkloads a second by number of nodes, a process on each; one core a \
             node.\n",
            self.name_us, self.bytes_us
        );
        for (kind, of) in [
            ("plain: node 0 is the home of all names", (|p| p.plain_per_s) as fn(&Point) -> f64),
            ("spread: names are spread over all nodes", |p| p.spread_per_s),
        ] {
            let _ = write!(text, "\n{kind:<42}\n{:<14}", "nodes");
            for point in self.points.first().map_or(&[][..], |one| &one.1) {
                let _ = write!(text, "{:>9}", point.nodes);
            }
            for (name, points) in &self.points {
                let _ = write!(text, "\n{name:<14}");
                points.iter().for_each(|point| {
                    let _ = write!(text, "{:>9.1}", of(point));
                });
            }
            text.push('\n');
        }
        let _ = writeln!(text, "\n{:<40}{:>10}{:>11}{:>8}", "ms", "measured", "predicted", "error");
        for Check { workload, what, measured_ms, predicted_ms, error } in &self.checks {
            let error = error.map_or("source".to_owned(), |error| format!("{:+.0} %", error * 1e2));
            let name = format!("{workload}, {what}");
            let _ = writeln!(text, "{name:<40}{measured_ms:>10.1}{predicted_ms:>11.1}{error:>8}");
        }
        let _ = writeln!(text, "\nmedian error {:.0} %", self.error * 1e2);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_that_come_along_are_of_all_thirteen_and_give_costs() {
        let all = measured(FIGURES).expect("figures");
        assert_eq!(all.len(), 13);
        let costs = costs(&all).expect("costs");
        assert!((0.3..50.0).contains(&costs.name_us), "{costs:?}");
        assert!(all.iter().all(|one| one.each_ms.is_some()));
    }

    #[test]
    fn trees_have_as_many_directories_as_is_said() {
        fn below(path: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(path).expect("a directory").map(|entry| entry.unwrap());
            entries.filter(|one| one.path().is_dir()).map(|one| 1 + below(&one.path())).sum()
        }
        for name in ["rm dense", "rm sparse", "pfind dense", "pfind sparse", "punzip"] {
            let scratch = format!("husk-sim-{}-{name}", std::process::id());
            let scratch = std::env::temp_dir().join(scratch);
            std::fs::create_dir(&scratch).expect("a directory");
            let workload = crate::bench::workload(name).expect("a workload");
            let prepared = workload.prepare_in(&scratch);
            let directories_there = below(&scratch);
            std::fs::remove_dir_all(&scratch).expect("removed");
            prepared.expect("prepared");
            assert_eq!(directories_there as f64, directories(name).0, "{name}");
        }
    }

    #[test]
    fn ranges_are_of_1_to_1000_nodes() {
        assert_eq!((range("1..1000"), range("7")), (Ok((1, 1000)), Ok((7, 7))));
        for wrong in ["0..5", "1..1001", "5..4", "", "x", "1.."] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_number_of_nodes_is_twice_the_one_before_and_the_last_is_there() {
        let all = measured(FIGURES).expect("figures");
        let costs = costs(&all).expect("costs");
        let points = points(&all[0], &costs, (1, 5));
        assert_eq!(points.iter().map(|point| point.nodes).collect::<Vec<_>>(), [1, 2, 4, 5]);
        let alone = &points[0];
        assert!((alone.plain_per_s - 1e3 / all[0].local_ms).abs() < 1.0, "{alone:?}");
        assert!((alone.spread_per_s - alone.plain_per_s).abs() < 0.01, "{alone:?}");
    }
}
