//! `husk bench workloads` and `husk bench commands`: natively and in an image, one process and
//! several; with `--without`, in an image that does without a technique, too.
//!
//! The time of a round is wall time, from the first process's start to the last one's end: several
//! processes are what is measured. CPU time stands beside it, for a machine that does other things.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::commands;
use super::workloads::{self, Workload};
use crate::bench::measure::fragment::Fragmented;
use crate::bench::measure::machine::Machine;
use crate::bench::measure::pair::Pair;
use crate::bench::measure::technique::Technique;
use crate::bench::measure::{scratch, stop};
use crate::bench::report::median;
use crate::bench::report::page;
use crate::picture;

/// Which ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Suite {
    /// Hare's thirteen.
    Hares,
    /// `commands`.
    Commands,
}

impl Suite {
    fn all(self) -> &'static [Workload] {
        match self {
            Suite::Hares => workloads::ALL,
            Suite::Commands => commands::ALL,
        }
    }

    /// What the page is called, and its file.
    pub fn title(self) -> (&'static str, &'static str) {
        match self {
            Suite::Hares => ("Hare's workloads", "workloads.html"),
            Suite::Commands => ("Commands on a tree of 10,000 entries", "commands.html"),
        }
    }
}

/// `husk bench workloads`, `husk bench commands`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Write one HTML page with plots, `workloads.html` or `commands.html`, into this directory; it
    /// is created if its parent exists.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Minimum number of rounds of each row.
    #[arg(long, default_value_t = 5, value_parser = crate::numbers::whole::<u32>(1..=100))]
    rounds: u32,
    /// Maximum number of processes at once [default: the cores online; for commands, 1].
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=64))]
    processes: Option<u32>,
    /// The `--guard` of `husk run`: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
    /// Also measure an image without this optimisation. If repeated, each is left out separately.
    #[arg(long, value_name = "TECHNIQUE")]
    without: Vec<Technique>,
    /// Only workloads whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// First leave free memory in single pages, so that a huge page is hard to get. For some
    /// seconds this takes nearly all free memory (at most 16 GiB), then half of it until the end.
    #[arg(long)]
    fragment: bool,
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
    /// What `cpu_ratio` of one process is to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<f64>,
    /// What techniques are worth.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<Worth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a technique is worth: time of an image without it over that of one with all.
#[derive(Serialize, Debug)]
pub struct Worth {
    pub technique: Technique,
    pub wall_worth: f64,
    pub cpu_worth: f64,
}

/// One round: each side once.
pub struct Round {
    pub native: Spent,
    pub husk: Spent,
    /// Images without a technique.
    pub without: Vec<(Technique, Spent)>,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
pub struct Workloads {
    pub suite: Suite,
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
    fn of(workload: &Workload, processes: u32, one: bool, rounds: &[Round]) -> Self {
        let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick));
        let wanted = (processes == 1 && workload.wanted > 0.0).then_some(workload.wanted);
        Self {
            name: workload.name,
            processes,
            one_directory: one,
            native_wall_ns: of(|round| round.native.wall_ns),
            husk_wall_ns: of(|round| round.husk.wall_ns),
            native_cpu_ns: of(|round| round.native.cpu_ns),
            husk_cpu_ns: of(|round| round.husk.cpu_ns),
            wall_ratio: of(|round| round.native.wall_ns / round.husk.wall_ns.max(1.0)),
            cpu_ratio: of(|round| round.native.cpu_ns / round.husk.cpu_ns.max(1.0)),
            wanted,
            without: worths(rounds),
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

/// What each technique is worth over the rounds.
fn worths(rounds: &[Round]) -> Vec<Worth> {
    let techniques = rounds.first().map_or(&[][..], |round| &round.without);
    let each = techniques.iter().enumerate().map(|(n, &(technique, _))| {
        let worth = |of: fn(&Spent) -> f64| {
            median(rounds.iter().map(|round| of(&round.without[n].1) / of(&round.husk).max(1.0)))
        };
        Worth {
            technique,
            wall_worth: worth(|spent| spent.wall_ns),
            cpu_worth: worth(|spent| spent.cpu_ns),
        }
    });
    each.collect()
}

/// Measures.
pub fn run(options: &Options, suite: Suite) -> anyhow::Result<ExitCode> {
    let chosen = crate::bench::chosen(suite.all(), |one| one.name, options.only.as_deref())?;
    if let Some(directory) = &options.report {
        picture::make_directory(directory)?;
    }
    let _fragmented = options.fragment.then(Fragmented::make).transpose()?;
    let scratch = scratch::Scratch::create(None)?;
    let mut pair = Pair::start(&scratch, options.guard.as_deref(), &options.without)?;
    let machine = Machine::look(options.guard.as_deref());
    let usual = if suite == Suite::Hares { machine.cores as u32 } else { 1 };
    let most = options.processes.unwrap_or(usual);
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
    let control =
        pair.control_ratio(("own", 1, "creates"), options.rounds, |spent| spent.cpu_ns)?;
    let report = Workloads { suite, machine, control, rows };
    if let Some(directory) = &options.report {
        picture::write(directory, suite.title().1, &page::workloads(&report))?;
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
        if self.rows.iter().any(|row| !row.without.is_empty()) {
            println!("behind each technique: CPU time of an image without it over one with all");
        }
        for row in &self.rows {
            print!("{:<14} {:>2} {:<16}", row.name, row.processes, row.place());
            match &row.error {
                Some(error) => println!("{error}"),
                None => print_figures(row),
            }
        }
        self.print_verdict();
    }

    fn print_verdict(&self) {
        let alone = self.rows.iter().filter(|row| row.processes == 1 && row.error.is_none());
        let (mut all, mut least) = (Vec::new(), f64::MAX);
        for row in alone {
            all.push(row.cpu_ratio);
            least = least.min(row.cpu_ratio);
        }
        let middle = median(all.into_iter());
        let wanted = if self.suite == Suite::Hares { " (wanted 3x)" } else { "" };
        println!("\none process, CPU: median {middle:.2}x{wanted}, least {least:.2}x (1x)");
    }
}

fn print_figures(row: &Row) {
    print!(
        "{:>10.1} {:>10.1} {:>5.2}x {:>5.2}x",
        row.native_wall_ns / 1e6,
        row.husk_wall_ns / 1e6,
        row.wall_ratio,
        row.cpu_ratio
    );
    if let Some(wanted) = row.wanted {
        let mark = if row.cpu_ratio >= wanted { "ok" } else { "MISSED" };
        print!("  >= {wanted:.1}x {mark}");
    }
    for worth in &row.without {
        print!("  {} {:.2}x", worth.technique.name(), worth.cpu_worth);
    }
    println!();
}
