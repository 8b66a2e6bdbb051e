//! `husk bench scale`: how throughput grows with the number of processes, natively on a tmpfs and
//! in an image.
//!
//! Each row is one thing that 1, 2, 4, ... processes do at the same time (`scale_part`), mostly in
//! one directory or with one file, where the host's locks meet. A figure is operations a second of
//! all together; both sides take turns, medians of rounds.

use std::process::ExitCode;

use serde::Serialize;

use super::hare::Round;
use super::scale_part::{self, OPERATIONS, Row};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::pair::Pair;
use crate::bench::measure::{scratch, stop};
use crate::bench::report::median;

/// `husk bench scale`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row.
    #[arg(long, default_value_t = 3, value_parser = crate::numbers::whole::<u32>(1..=100))]
    rounds: u32,
    /// Most processes at once [default: the cores online].
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=64))]
    processes: Option<u32>,
    /// The `--guard` of `husk run`: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A row with so many processes.
#[derive(Serialize, Debug)]
struct Measured {
    name: &'static str,
    processes: u32,
    /// Operations a second, of all processes together.
    native_per_s: f64,
    husk_per_s: f64,
    /// Above 1 Husk is faster: median of the rounds' quotients.
    ratio: f64,
    /// Over the rate of one process.
    native_scale: f64,
    husk_scale: f64,
    /// Processor time of one operation, ns.
    native_cpu_ns: f64,
    husk_cpu_ns: f64,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
struct Scale {
    machine: Machine,
    /// Two native workers against each other, with most processes.
    control: f64,
    rows: Vec<Measured>,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let chosen = crate::bench::chosen(scale_part::ALL, |one| one.name, options.only.as_deref())?;
    let scratch = scratch::Scratch::create(None)?;
    let mut pair = Pair::start(&scratch, options.guard.as_deref(), &[])?;
    let machine = Machine::look(options.guard.as_deref());
    let most = options.processes.unwrap_or(machine.cores as u32);
    let mut rows = Vec::new();
    for row in chosen {
        let mut alone = (0.0, 0.0);
        for processes in counts(most) {
            stop::check()?;
            let measured = measure(&mut pair, row, processes, options.rounds)?;
            if processes == 1 {
                alone = (measured.native_per_s, measured.husk_per_s);
            }
            rows.push(Measured {
                native_scale: measured.native_per_s / alone.0,
                husk_scale: measured.husk_per_s / alone.1,
                ..measured
            });
        }
    }
    let control =
        pair.control_ratio(("scale", most, scale_part::ALL[0].name), options.rounds, |spent| {
            spent.wall_ns
        })?;
    let report = Scale { machine, control, rows };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(ExitCode::SUCCESS)
}

/// 1, 2, 4, ..., `most`.
fn counts(most: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = (0..).map(|n| 1 << n).take_while(|&count| count < most).collect();
    counts.push(most);
    counts
}

fn measure(pair: &mut Pair, row: &Row, processes: u32, rounds: u32) -> anyhow::Result<Measured> {
    let rounds = pair.rounds_of(("scale", processes, row.name), rounds)?;
    let per_s = |wall_ns: f64| OPERATIONS as f64 * 1e9 / wall_ns.max(1.0);
    let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick));
    Ok(Measured {
        name: row.name,
        processes,
        native_per_s: per_s(of(|round| round.native.wall_ns)),
        husk_per_s: per_s(of(|round| round.husk.wall_ns)),
        ratio: of(|round| round.native.wall_ns / round.husk.wall_ns.max(1.0)),
        native_scale: 1.0,
        husk_scale: 1.0,
        native_cpu_ns: of(|round| round.native.cpu_ns) / OPERATIONS as f64,
        husk_cpu_ns: of(|round| round.husk.cpu_ns) / OPERATIONS as f64,
    })
}

impl Scale {
    fn print(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}, guard {}; thousands a second", machine.load, machine.guard);
        println!("control (native twice): {:.2}\n", self.control);
        println!("{:<40} {:>2} {:>18} {:>18}", "", "P", "native", "husk");
        let mut last = "";
        for row in &self.rows {
            let name = if row.name == last { "" } else { row.name };
            last = row.name;
            println!(
                "{name:<40} {:>2} {:>10.1} {:>6.2}x {:>10.1} {:>6.2}x {:>7.2}x",
                row.processes,
                row.native_per_s / 1e3,
                row.native_scale,
                row.husk_per_s / 1e3,
                row.husk_scale,
                row.ratio
            );
        }
        println!("\nbehind each rate: over that of one process; last: Husk over native");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn processes_double_up_to_the_most() {
        assert_eq!(super::counts(1), [1]);
        assert_eq!(super::counts(2), [1, 2]);
        assert_eq!(super::counts(12), [1, 2, 4, 8, 12]);
    }
}
