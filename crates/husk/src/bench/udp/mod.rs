//! `husk bench udp`: what ways of receiving UDP are worth on this machine.
//!
//! Two tables, over a veth between two network namespaces: packets received a second when two
//! senders flood, and the time of a round trip. Rows and names are those of the paper on tuning
//! UDP that Husk follows, and some of our own.
//!
//! Invariants
//! 1. A round runs each row once, each first as often as any other; figures are medians over the
//!    rounds, gaps the medians of the rounds' quotients with `default`.
//! 2. `default, again` is the control: where it is far from `default`, nothing else counts.
//! 3. Nothing outside of the two namespaces is changed.

mod cores;
mod echo;
mod flood;

use std::process::ExitCode;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::bench::measure::lab::{self, Lab};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::stop;
use crate::bench::report::median;
use cores::Cores;

/// How far the control may be from 1.
const CONTROL: f64 = 0.1;
/// Received with a socket for each thread, over received with one for all.
const FLOOD_WANTED: f64 = 1.3;
/// Round trip of those who are awake, over that of those who sleep.
const ECHO_WANTED: f64 = 0.5;

/// `husk bench udp`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the tables.
    #[arg(long)]
    json: bool,
    /// Rounds; one takes some three seconds.
    #[arg(long, default_value_t = 11, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    rounds: u32,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    throughput: Vec<Flooded>,
    latency: Vec<Echoed>,
}

#[derive(Serialize)]
struct Flooded {
    name: &'static str,
    received_per_s: f64,
    received_per_cpu_s: f64,
    lost_percent: f64,
    /// Received a second over that of `default`, and for a second of processor time.
    over_default: f64,
    cpu_over_default: f64,
    met: Option<bool>,
}

#[derive(Serialize)]
struct Echoed {
    name: &'static str,
    p50_us: f64,
    p99_us: f64,
    lost_percent: f64,
    over_default: f64,
    met: Option<bool>,
}

/// Processor time of this process, in seconds.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    now.map_or(0.0, |now| now.num_nanoseconds() as f64 / 1e9)
}

/// While this process has one thread.
pub fn prepare() -> anyhow::Result<()> {
    lab::gain_rights()
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let cores = Cores::look()?;
    let lab = Lab::new()?;
    let machine = Machine::look(None);
    let floods =
        rounds(options.rounds, flood::ROWS.len(), |row| flood::ROWS[row].round(&lab, &cores))?;
    let echoes =
        rounds(options.rounds, echo::ROWS.len(), |row| echo::ROWS[row].round(&lab, &cores))?;
    let report = Report { machine, throughput: flooded(&floods), latency: echoed(&echoes) };
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => report.print(),
    }
    Ok(if report.control_holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rounds of all rows, by row; the first round does not count.
fn rounds<T: Clone>(
    number: u32,
    rows: usize,
    mut one: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<Vec<T>>> {
    let mut all = vec![Vec::new(); rows];
    for round in 0..=number as usize {
        for row in 0..rows {
            stop::check()?;
            let row = (row + round) % rows;
            let measured = one(row)?;
            if round > 0 {
                all[row].push(measured);
            }
        }
    }
    Ok(all)
}

/// The median of the rounds' quotients with the first row.
fn over_first<T>(all: &[Vec<T>], row: usize, figure: impl Fn(&T) -> f64) -> f64 {
    median(all[row].iter().zip(&all[0]).map(|(one, first)| figure(one) / figure(first)))
}

fn flooded(all: &[Vec<flood::Round>]) -> Vec<Flooded> {
    let of_row = |(at, row): (usize, &flood::Row)| {
        let over_default = over_first(all, at, |round| round.per_s);
        let cpu_over_default = over_first(all, at, |round| round.per_cpu_s);
        let judged = row.name == "binding port";
        Flooded {
            name: row.name,
            received_per_s: median(all[at].iter().map(|round| round.per_s)),
            received_per_cpu_s: median(all[at].iter().map(|round| round.per_cpu_s)),
            lost_percent: 100.0 * median(all[at].iter().map(|round| round.lost)),
            over_default,
            cpu_over_default,
            met: judged.then_some(over_default >= FLOOD_WANTED),
        }
    };
    flood::ROWS.iter().enumerate().map(of_row).collect()
}

fn echoed(all: &[Vec<echo::Round>]) -> Vec<Echoed> {
    let of_row = |(at, row): (usize, &echo::Row)| {
        let over_default = over_first(all, at, |round| round.p50_us);
        Echoed {
            name: row.name,
            p50_us: median(all[at].iter().map(|round| round.p50_us)),
            p99_us: median(all[at].iter().map(|round| round.p99_us)),
            lost_percent: 100.0 * median(all[at].iter().map(|round| round.lost)),
            over_default,
            met: row.awake.then_some(over_default <= ECHO_WANTED),
        }
    };
    echo::ROWS.iter().enumerate().map(of_row).collect()
}

/// A quotient as a gap.
fn gap(over: f64) -> String {
    format!("{:+.0} %", (over - 1.0) * 100.0)
}

fn mark(met: Option<bool>, wanted: &str) -> String {
    match met {
        Some(true) => format!("{wanted} ok"),
        Some(false) => format!("{wanted} MISSED"),
        None => String::new(),
    }
}

impl Report {
    fn control_holds(&self) -> bool {
        let near = |over: f64| (over - 1.0).abs() <= CONTROL;
        near(self.throughput[1].over_default) && near(self.latency[1].over_default)
    }

    fn print(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}; over a veth, medians; 64 bytes, 2 receiving threads\n", machine.load);
        println!(
            "{:<18} {:>10} {:>7} {:>8} {:>11}",
            "throughput", "packets/s", "lost", "gap", "gap per CPU"
        );
        for row in &self.throughput {
            let mark = mark(row.met, &format!(">= {:+.0} %", (FLOOD_WANTED - 1.0) * 100.0));
            let (gap, per_cpu) = (gap(row.over_default), gap(row.cpu_over_default));
            let (per_s, lost) = (row.received_per_s, row.lost_percent);
            println!("{:<18} {per_s:>10.0} {lost:>5.0} % {gap:>8} {per_cpu:>11} {mark}", row.name);
        }
        println!(
            "\n{:<18} {:>10} {:>10} {:>7} {:>8}",
            "round trip, us", "p50", "p99", "lost", "gap"
        );
        for row in &self.latency {
            let mark = mark(row.met, &format!("<= {:+.0} %", (ECHO_WANTED - 1.0) * 100.0));
            let (p50, p99, lost) = (row.p50_us, row.p99_us, row.lost_percent);
            let gap = gap(row.over_default);
            println!("{:<18} {p50:>10.1} {p99:>10.1} {lost:>5.1} % {gap:>8} {mark}", row.name);
        }
        if !self.control_holds() {
            println!("\nThe control is not 1.0: this machine was too busy, measure again.");
        }
    }
}
