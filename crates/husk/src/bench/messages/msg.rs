//! `husk bench msg`: what a message between nodes costs on a ring, beside a futex, a pipe, a unix
//! socket and TCP over loopback.
//!
//! Every row is measured in each round, one after the other, by two threads on a core each. Printed
//! are the least and the median of the rounds: a neighbour on either core is in all of them, so the
//! load is printed, too. The control is the row of the pipe, measured twice in each round. A peer
//! that is there (`peer`) is measured in each round, too.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::exchange::{self, Goal, Row};
use super::peer::{self, Peer};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::stop;
use crate::bench::report::median;

/// Measured a second time in each round.
const CONTROL: &str = "pipe, 64 B there and back";
const CONTROL_TOLERANCE: f64 = 0.10;

/// `husk bench msg`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row.
    #[arg(long, default_value_t = 11, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    rounds: u32,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Program that sends 64 bytes by iceoryx2, built from tests/peers/iceoryx2 [default:
    /// husk-peer-iceoryx2, if there is one].
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rounds: u32,
    /// A row measured twice, one over the other: 1.0 where the figures mean something.
    control: f64,
    rows: Vec<Measured>,
    /// iceoryx2, if its program is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<peer::Figures>,
}

#[derive(Serialize, Debug)]
struct Measured {
    name: &'static str,
    least_ns: f64,
    median_ns: f64,
    /// What it should reach, in words; empty = nothing promised.
    wanted: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rows = crate::bench::chosen(exchange::ALL, |row| row.name, options.only.as_deref())?;
    let machine = Machine::look(None);
    let control = crate::bench::chosen(exchange::ALL, |row| row.name, Some(CONTROL))?[0];
    let mut peer = Peer::start(options.peer.as_deref())?;
    let (mut figures, mut twice) = (vec![Vec::new(); rows.len()], Vec::new());
    for _ in 0..options.rounds {
        for (row, figures) in rows.iter().zip(&mut figures) {
            stop::check()?;
            figures.push((row.measure)());
        }
        twice.push((control.measure)() / (control.measure)());
        peer.as_mut().map_or(Ok(()), Peer::measure)?;
    }
    let measured = measured(&rows, &figures);
    let own_ns = measured.iter().find(|row| row.name == exchange::ONE_WAY).map(|row| row.median_ns);
    let report = Report {
        machine,
        rounds: options.rounds,
        control: median(twice.into_iter()),
        rows: measured,
        peer: peer.map(|peer| peer.figures(own_ns)),
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print_table();
    }
    Ok(if report.control_holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measured(rows: &[&Row], figures: &[Vec<f64>]) -> Vec<Measured> {
    let middle = |n: usize| median(figures[n].iter().copied());
    let other = |name: &str| rows.iter().position(|row| row.name == name).map(middle);
    let one = |(n, row): (usize, &&Row)| {
        let median_ns = middle(n);
        let (wanted, met) = judge(row.goal, median_ns, other);
        let least_ns = figures[n].iter().copied().fold(f64::INFINITY, f64::min);
        Measured { name: row.name, least_ns, median_ns, wanted, met }
    };
    rows.iter().enumerate().map(one).collect()
}

fn judge(
    goal: Goal,
    median_ns: f64,
    other: impl Fn(&str) -> Option<f64>,
) -> (String, Option<bool>) {
    match goal {
        Goal::Nothing => (String::new(), None),
        Goal::Ns(most) => (format!("<= {most} ns"), Some(median_ns <= most)),
        Goal::Of(times, name) => {
            let met = other(name).map(|other_ns| median_ns <= times * other_ns);
            (format!("<= {times}x {name}"), met)
        }
    }
}

impl Report {
    fn control_holds(&self) -> bool {
        (self.control - 1.0).abs() <= CONTROL_TOLERANCE
    }

    fn print_table(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}, {} rounds; ns\n", machine.load, self.rounds);
        println!("{:<38} {:>10} {:>10}  wanted", "", "least", "median");
        for row in &self.rows {
            let mark = row.met.map_or("", |met| if met { "ok" } else { "MISSED" });
            let Measured { name, least_ns, median_ns, wanted, .. } = row;
            println!("{name:<38} {least_ns:>10.0} {median_ns:>10.0}  {wanted} {mark}");
        }
        match &self.peer {
            Some(peer) => print_peer(peer),
            None => println!("{:<38} {:>21}  {}", "iceoryx2", "not there:", peer::HOW),
        }
        println!("{:<38} {:>21.2}", "control: a pipe, measured twice", self.control);
        if !self.control_holds() {
            println!("\nThe control is not 1.0: this machine was too busy, measure again.");
        }
    }
}

fn print_peer(peer: &peer::Figures) {
    let peer::Figures { name, least_ns, median_ns, ratio } = peer;
    println!("{name:<38} {least_ns:>10.0} {median_ns:>10.0}");
    if let Some(ratio) = ratio {
        let mark = if *ratio <= peer::WANTED { "ok" } else { "MISSED" };
        let name = format!("{} over that", exchange::ONE_WAY);
        println!("{name:<38} {ratio:>21.2}  <= {} {mark}", peer::WANTED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_missed_above_its_goal_and_above_its_share_of_another() {
        let other = |_: &str| Some(1000.0);
        let met = |goal, ns| judge(goal, ns, other).1;
        assert_eq!(
            (met(Goal::Ns(150.0), 150.0), met(Goal::Ns(150.0), 151.0)),
            (Some(true), Some(false))
        );
        let of = Goal::Of(1.2, "futex");
        assert_eq!((met(of, 1200.0), met(of, 1201.0)), (Some(true), Some(false)));
    }

    #[test]
    fn a_share_of_a_row_that_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(judge(Goal::Of(1.2, "futex"), 1.0, |_| None).1, None);
    }
}
