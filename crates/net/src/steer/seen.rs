//! What a balancer shows.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A server that is steered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Address and port.
    pub address: String,
    /// The eldest of its processes.
    pub pid: u32,
    /// The process that balances.
    pub balancer: u32,
    /// How long it has been steered.
    pub seconds: u64,
    /// Connections that have come, and groups that have moved, since then.
    pub connections: u64,
    /// Groups that have moved.
    pub moves: u64,
    /// Load of the busiest kernel over the mean; 1 where there is none.
    pub worst_over_mean: f64,
    /// Listening sockets, each with who accepts from it.
    pub kernels: Vec<Kernel>,
}

/// One listening socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its number.
    pub kernel: usize,
    /// The process that accepts; `None`: several may, or nobody.
    pub pid: Option<u32>,
    /// Flow groups that lead to it.
    pub groups: usize,
    /// Connections that have come from its groups.
    pub syns: u64,
    /// Open ones, now.
    pub open: u64,
    /// Moving averages: connections a second, open connections, share of a CPU, load.
    pub arrivals_per_s: f64,
    /// Open connections.
    pub connections: f64,
    /// Share of a CPU.
    pub cpu: f64,
    /// What Angel compares: shares of a CPU.
    pub load: f64,
}

/// A table for people.
pub fn table(all: &[Snapshot]) -> String {
    let mut text = String::new();
    for one in all {
        let _ = writeln!(
            text,
            "{}  process {}, balancer {}, {} s: {} connections, {} moves, busiest {:.2}x the mean",
            one.address,
            one.pid,
            one.balancer,
            one.seconds,
            one.connections,
            one.moves,
            one.worst_over_mean
        );
        let _ = writeln!(text, "kernel      pid  groups    SYN/s     open  CPU %   load");
        for kernel in &one.kernels {
            let pid = kernel.pid.map_or("-".to_owned(), |pid| pid.to_string());
            let _ = writeln!(
                text,
                "{:>6} {pid:>8} {:>7} {:>8.0} {:>8} {:>6.1} {:>6.2}",
                kernel.kernel,
                kernel.groups,
                kernel.arrivals_per_s,
                kernel.open,
                kernel.cpu * 100.0,
                kernel.load
            );
        }
    }
    if all.is_empty() {
        text.push_str("nothing is steered; `husk net attach PID` begins\n");
    }
    text
}
