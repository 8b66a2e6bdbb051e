//! `husk bench workloads`: Hare's thirteen, natively and in an image, one process and several.
//!
//! The time of a round is wall time, from the first process's start to the last one's end: several
//! processes are what is measured. CPU time stands beside it, for a machine that does other things.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use super::machine::Machine;
use super::pair::Pair;
use super::report::median;
use super::workloads::{self, Workload};
use super::{page, scratch, stop};

/// `husk bench workloads`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Write one HTML page with plots, `workloads.html`, into this directory; it is made if only
    /// it is missing.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Rounds of each row, at least.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Most processes at once [default: the cores online].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: Option<u32>,
    /// Passed to `husk run` as it is: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
    /// Only workloads whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// One workload with so many processes.
#[derive(Serialize, Debug)]
pub struct Row {
    pub name: &'static str,
    pub processes: u32,
    /// All in one directory, or each in one of its own.
    pub one_directory: bool,
    pub native_wall_ns: f64,
    pub husk_wall_ns: f64,
    pub native_cpu_ns: f64,
    pub husk_cpu_ns: f64,
    /// Above 1 Husk is faster: medians of the rounds' quotients.
    pub wall_ratio: f64,
    pub cpu_ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
pub struct Workloads {
    pub machine: Machine,
    /// Two native workers against each other, in CPU time.
    pub control: f64,
    pub rows: Vec<Row>,
}

/// Wall and CPU time of one round, ns.
#[derive(Clone, Copy)]
pub struct Spent {
    pub cpu_ns: f64,
    pub wall_ns: f64,
}

impl Row {
    fn of(workload: &Workload, processes: u32, one: bool, rounds: &[(Spent, Spent)]) -> Self {
        let of = |pick: fn(&(Spent, Spent)) -> f64| median(rounds.iter().map(pick));
        Self {
            name: workload.name,
            processes,
            one_directory: one,
            native_wall_ns: of(|round| round.0.wall_ns),
            husk_wall_ns: of(|round| round.1.wall_ns),
            native_cpu_ns: of(|round| round.0.cpu_ns),
            husk_cpu_ns: of(|round| round.1.cpu_ns),
            wall_ratio: of(|round| round.0.wall_ns / round.1.wall_ns.max(1.0)),
            cpu_ratio: of(|round| round.0.cpu_ns / round.1.cpu_ns.max(1.0)),
            error: None,
        }
    }

    /// Where its processes work, in words.
    pub fn place(&self) -> &'static str {
        match (self.processes, self.one_directory) {
            (1, _) => "",
            (_, true) => "one directory",
            (_, false) => "own directories",
        }
    }
}

/// The directory of the report, before anything is measured: its parent must be there.
fn make_directory(directory: &Path) -> anyhow::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error)
            .with_context(|| format!("cannot make {} for the report", directory.display())),
        _ => Ok(()),
    }
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let chosen = super::chosen(workloads::ALL, |one| one.name, options.only.as_deref())?;
    if let Some(directory) = &options.report {
        make_directory(directory)?;
    }
    let scratch = scratch::Scratch::create(None)?;
    let mut pair = Pair::start(&scratch, options.guard.as_deref())?;
    let machine = Machine::look(options.guard.as_deref());
    let most = options.processes.unwrap_or(machine.cores as u32);
    let mut rows = Vec::new();
    for workload in chosen {
        for (processes, one) in places(workload, most) {
            stop::check()?;
            let rounds = pair.workload(workload, processes, one, options.rounds);
            rows.push(match rounds {
                Ok(rounds) => Row::of(workload, processes, one, &rounds),
                Err(error) => Row {
                    error: Some(format!("{error:#}")),
                    ..Row::of(workload, processes, one, &[])
                },
            });
        }
    }
    let control = pair.control_ratio(options.rounds)?;
    let report = Workloads { machine, control, rows };
    if let Some(directory) = &options.report {
        let path = directory.join("workloads.html");
        std::fs::write(&path, page::html(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print_table();
    }
    Ok(if report.rows.iter().any(|row| row.error.is_some()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// One process; then 2, 4, ... in own directories, and in one where that makes sense.
fn places(workload: &Workload, most: u32) -> Vec<(u32, bool)> {
    let mut places = vec![(1, false)];
    let mut processes = 2;
    while processes <= most {
        places.push((processes, false));
        if workload.shares {
            places.push((processes, true));
        }
        processes *= 2;
    }
    places
}

impl Workloads {
    fn print_table(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}, guard {}; ms, medians", machine.load, machine.guard);
        println!("control (native twice): {:.2}\n", self.control);
        println!("{:<14} {:>2} {:<16}{:>10} {:>10}   wall    CPU", "", "P", "", "native", "husk");
        for row in &self.rows {
            print!("{:<14} {:>2} {:<16}", row.name, row.processes, row.place());
            match &row.error {
                Some(error) => println!("{error}"),
                None => println!(
                    "{:>10.1} {:>10.1} {:>5.2}x {:>5.2}x",
                    row.native_wall_ns / 1e6,
                    row.husk_wall_ns / 1e6,
                    row.wall_ratio,
                    row.cpu_ratio
                ),
            }
        }
        let alone = self.rows.iter().filter(|row| row.processes == 1 && row.error.is_none());
        let (mut all, mut least) = (Vec::new(), f64::MAX);
        for row in alone {
            all.push(row.cpu_ratio);
            least = least.min(row.cpu_ratio);
        }
        let middle = median(all.into_iter());
        println!("\none process, CPU: median {middle:.2}x (wanted 3x), least {least:.2}x (1x)");
    }
}
