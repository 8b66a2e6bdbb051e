//! `husk bench pipes`: pipes and sockets whose bytes pass through shared memory against the host's.
//!
//! Rows of one thread are calm slices, as in `fs`. Between processes wall time is what matters;
//! beside the median `best` compares the fastest round of each side, which is nearest to what a
//! machine with nothing else to do would show. `--host` measures what an image costs pipes that are
//! the host's: whoever would switch rings on compares with that, too.

use std::process::ExitCode;

use serde::Serialize;

use super::flow::{self, Row};
use crate::bench::files::operations::Wanted;
use crate::bench::measure::calm::Figures;
use crate::bench::measure::machine::Machine;
use crate::bench::measure::pair::Pair;
use crate::bench::measure::{scratch, stop};
use crate::bench::report;

/// What two native workers do for the control.
const CONTROL: &str = "one thread, 1 B";

/// `husk bench pipes`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row.
    #[arg(long, default_value_t = 21, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    rounds: u32,
    /// The `--guard` of `husk run`: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
    /// Measure an image whose pipes and sockets are the host's instead (HUSK_PIPES=host).
    #[arg(long)]
    host: bool,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
struct Pipes {
    machine: Machine,
    control: report::Row,
    rows: Vec<Measured>,
}

#[derive(Serialize, Debug)]
struct Measured {
    #[serde(flatten)]
    row: report::Row,
    /// The fastest native round over Husk's fastest; absent where calm slices are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<f64>,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rows = crate::bench::chosen(flow::ALL, |row| row.name, options.only.as_deref())?;
    let scratch = scratch::Scratch::create(None)?;
    let guard = options.guard.as_deref();
    let mut pair = match options.host {
        true => Pair::start_without_rings(&scratch, guard)?,
        false => Pair::start(&scratch, guard, &[])?,
    };
    let machine = Machine::look(guard);
    let twice = pair.flow_alone(flow::find(CONTROL)?, options.rounds, true)?;
    let control =
        report::Row::of_slices("control: the first row, native", Wanted::Nothing, 1.0, twice);
    let mut measured = Vec::new();
    for row in rows {
        stop::check()?;
        measured.push(if row.is_alone() {
            Measured::of_slices(row, pair.flow_alone(row, options.rounds, false))
        } else {
            Measured::of(row, pair.flow(row, options.rounds))
        });
    }
    let all = Pipes { machine, control, rows: measured };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        all.print_table();
    }
    Ok(if all.control.reads_one() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Measured {
    fn of_slices(row: &Row, figures: anyhow::Result<Figures>) -> Self {
        let row = match figures {
            Ok(figures) => report::Row::of_slices(row.name, row.wanted, 1.0, figures),
            Err(error) => report::Row::failed(row.name, format!("{error:#}")),
        };
        Self { row, best: None }
    }

    fn of(row: &Row, rounds: anyhow::Result<Vec<(f64, f64)>>) -> Self {
        match rounds {
            Ok(rounds) => {
                let least = |pick: fn(&(f64, f64)) -> f64| {
                    rounds.iter().map(pick).fold(f64::INFINITY, f64::min)
                };
                let best = least(|round| round.0) / least(|round| round.1).max(0.01);
                Self { row: report::Row::of(row.name, row.wanted, 1.0, rounds), best: Some(best) }
            }
            Err(error) => {
                Self { row: report::Row::failed(row.name, format!("{error:#}")), best: None }
            }
        }
    }
}

impl Pipes {
    fn print_table(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}, guard {}; ns, medians", machine.load, machine.guard);
        println!("one thread and epoll_wait: calm slices; others: wall time of rounds\n");
        println!("{:<32} {:>10} {:>10} {:>8}  best  wanted", "", "native", "husk", "ratio");
        for measured in &self.rows {
            measured
                .row
                .print(&measured.best.map_or(" ".repeat(7), |best| format!("{best:>5.2}x ")));
        }
        self.control.print("");
        if !self.control.reads_one() {
            println!("\nThe control is not 1.0: this machine was too busy, measure again.");
        }
    }
}
