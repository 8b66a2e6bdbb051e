//! `husk net`: connections from outside, and which kernel accepts them.

use std::process::ExitCode;

use clap::Subcommand;
use husk_net::sim;
use husk_supervisor::failure::STATUS_HUSK;

use crate::shown;

/// `husk net COMMAND`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Simulate how Angel evens out load: an even load, all flow groups on one kernel, and an
    /// attack on one kernel, without Angel and with it.
    ///
    /// Clients connect, wait for the answer and think; one connection takes 1 ms of a kernel on
    /// average. The same seed gives the same figures.
    Sim(Simulation),
}

/// `husk net sim`.
#[derive(clap::Args, Debug)]
pub struct Simulation {
    /// Numbers of kernels, 2 to 24 each.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8, 16, 24],
          value_parser = clap::value_parser!(u64).range(2..=24))]
    kernels: Vec<u64>,
    /// Where the figures come from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulated time of each experiment.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &Command) -> ExitCode {
    let Command::Sim(options) = command;
    let kernels = options.kernels.iter().map(|&kernels| kernels as usize).collect();
    let wanted = sim::Options { kernels, seed: options.seed, seconds: options.seconds };
    match shown(&sim::run(&wanted), options.json, sim::Report::table) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(STATUS_HUSK),
    }
}
