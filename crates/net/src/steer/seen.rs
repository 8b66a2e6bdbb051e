//! Output of a balancer: table, JSON, OpenMetrics.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::listeners::{Place, typed};
use super::way::Kind;

/// A server that is steered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Address and port.
    pub address: String,
    /// Number of the network namespace.
    #[serde(default)]
    pub namespace: u64,
    /// The eldest of its processes.
    pub pid: u32,
    /// The process that balances; 0: it was killed, and its last table, of cBPF, steers on.
    pub balancer: u32,
    /// By which way.
    #[serde(default)]
    pub way: Kind,
    /// How long it has been steered.
    pub seconds: u64,
    /// Connections that have come since then; cBPF does not count them.
    pub connections: Option<u64>,
    /// Groups that have moved.
    pub moves: u64,
    /// Moves of the last minute, the oldest first.
    #[serde(default)]
    pub moved: Vec<Moved>,
    /// Load of the busiest kernel over the mean; 1 where there is none.
    pub worst_over_mean: f64,
    /// Why Linux spreads its connections by hash for now.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Listening sockets, each with the process that accepts from it.
    pub kernels: Vec<Kernel>,
}

/// Groups that have moved at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// How long ago.
    pub ms_ago: u64,
    /// How many.
    pub groups: usize,
}

/// One listening socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its number.
    pub kernel: usize,
    /// The process that accepts; `None`: several do, or nobody.
    pub pid: Option<u32>,
    /// How many processes accept.
    pub processes: usize,
    /// Flow groups that lead to it.
    pub groups: usize,
    /// Connections that have come from its groups; cBPF does not count them.
    pub syns: Option<u64>,
    /// Open ones, now.
    pub open: u64,
    /// Connections that come, a second: a moving average; cBPF does not count them.
    pub arrivals_per_s: Option<f64>,
    /// Moving averages: open connections, share of a CPU, load.
    pub connections: f64,
    /// Share of a CPU.
    pub cpu: f64,
    /// What Angel compares: shares of a CPU.
    pub load: f64,
}

/// Names of the columns of [`Kernel::line`].
pub const COLUMNS: &str = "kernel      pid  groups    SYN/s     open  CPU %   load";

impl Snapshot {
    /// The word to type for it: its address in this network namespace, else a process of it.
    pub fn typed(&self) -> String {
        typed(self.namespace, &self.address, self.pid)
    }

    /// Why groups stay where they are though load may be uneven.
    pub fn unseen(&self) -> Option<&'static str> {
        let pids: Vec<u32> = self.kernels.iter().filter_map(|one| one.pid).collect();
        let is_twice = |(at, pid): (usize, &u32)| pids[..at].contains(pid);
        let is_unseen = self.way == Kind::Cbpf && pids.iter().enumerate().any(is_twice);
        is_unseen.then_some(
            "one process has several of the sockets, and cBPF cannot tell their loads apart: no \
             group moves between them (with eBPF, as root, they do)",
        )
    }

    /// A table that a killed balancer has left.
    pub(super) fn left(pid: u32, place: &Place) -> Snapshot {
        Snapshot {
            address: place.to_string(),
            namespace: place.namespace,
            pid,
            balancer: 0,
            way: Kind::Cbpf,
            seconds: 0,
            connections: None,
            moves: 0,
            moved: Vec::new(),
            worst_over_mean: 1.0,
            trouble: None,
            kernels: Vec::new(),
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        let Snapshot { address, pid, balancer, way, seconds, moves, .. } = self;
        if *balancer == 0 {
            let typed = self.typed();
            return format!(
                "{address}  process {pid}: the balancer was killed, and its last table steers on; \
                 `husk net attach {typed}` or `husk net detach {typed}` ends that"
            );
        }
        let connections = match self.connections {
            Some(count) => format!("{count} connections"),
            None => "connections are not counted".to_owned(),
        };
        let busiest = self.worst_over_mean;
        let trouble = self.trouble.as_ref().map_or(String::new(), |why| {
            format!("; Linux spreads by hash for now: {}", why.replace(char::is_control, " "))
        });
        let unseen = self.unseen().map_or(String::new(), |why| format!("; {why}"));
        format!(
            "{address}  process {pid}, balancer {balancer}, {way}, {seconds} s: {connections}, \
             {moves} moves, busiest {busiest:.2}x the mean{unseen}{trouble}"
        )
    }
}

impl Kernel {
    /// One line, by columns.
    pub fn line(&self) -> String {
        let pid = match (self.pid, self.processes) {
            (Some(pid), _) => pid.to_string(),
            (None, 0) => "-".to_owned(),
            (None, several) => format!("{several} proc"),
        };
        let Kernel { kernel, groups, open, load, .. } = self;
        let came = self.arrivals_per_s.map_or("-".to_owned(), |came| format!("{came:.0}"));
        let cpu = self.cpu * 100.0;
        format!("{kernel:>6} {pid:>8} {groups:>7} {came:>8} {open:>8} {cpu:>6.1} {load:>6.2}")
    }
}

/// Shown if nothing is steered.
pub const NOTHING: &str = "nothing is steered; `husk net attach PID` starts steering";

/// A table for people.
pub fn table(all: &[Snapshot]) -> String {
    let mut text = String::new();
    for one in all {
        let _ = writeln!(text, "{}", one.line());
        if !one.kernels.is_empty() {
            let _ = writeln!(text, "{COLUMNS}");
        }
        for kernel in &one.kernels {
            let _ = writeln!(text, "{}", kernel.line());
        }
    }
    if all.is_empty() {
        let _ = writeln!(text, "{NOTHING}");
    }
    text
}

/// The same for OpenMetrics (Prometheus). Counters are of a server, not of its kernels: groups take
/// their counts along when they move.
pub fn metrics(all: &[Snapshot]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# TYPE husk_net_{name} {kind}\n# HELP husk_net_{name} {help}");
    };
    let server =
        |one: &Snapshot| format!("address=\"{}\",namespace=\"{}\"", one.address, one.namespace);
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&Kernel) -> Option<f64>| {
        head(&mut text, name, "gauge", help);
        for one in all {
            for kernel in &one.kernels {
                let labels = format!("{},kernel=\"{}\"", server(one), kernel.kernel);
                if let Some(figure) = of(kernel) {
                    let _ = writeln!(text, "husk_net_{name}{{{labels}}} {figure}");
                }
            }
        }
    };
    gauge("groups", "Flow groups that lead to it.", &|one| Some(one.groups as f64));
    gauge("open_connections", "Connections that are open.", &|one| Some(one.open as f64));
    gauge("arrivals_per_second", "Connections that come, moving average.", &|one| {
        one.arrivals_per_s
    });
    gauge("cpu_share", "Share of a CPU, moving average.", &|one| Some(one.cpu));
    gauge("load", "What the balancer compares, shares of a CPU.", &|one| Some(one.load));
    let mut counter = |name: &str, help: &str, of: &dyn Fn(&Snapshot) -> Option<u64>| {
        head(&mut text, name, "counter", help);
        for one in all {
            if let Some(count) = of(one) {
                let _ = writeln!(text, "husk_net_{name}_total{{{}}} {count}", server(one));
            }
        }
    };
    counter("connections", "Connections that have come.", &|one| one.connections);
    counter("moves", "Groups moved.", &|one| Some(one.moves));
    text.push_str("# EOF\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_each_listening_socket_and_end_as_they_must() {
        let kernel = Kernel {
            kernel: 1,
            pid: Some(7),
            processes: 1,
            groups: 2048,
            syns: Some(30),
            open: 2,
            arrivals_per_s: Some(1.5),
            connections: 2.0,
            cpu: 0.25,
            load: 0.5,
        };
        let one = Snapshot {
            address: "[::1]:80".to_owned(),
            namespace: 4026531833,
            pid: 7,
            balancer: 8,
            way: Kind::Ebpf,
            seconds: 9,
            connections: Some(30),
            moves: 4,
            moved: Vec::new(),
            worst_over_mean: 1.0,
            trouble: None,
            kernels: vec![kernel],
        };
        let text = metrics(std::slice::from_ref(&one));
        for line in [
            "# TYPE husk_net_connections counter",
            "husk_net_connections_total{address=\"[::1]:80\",namespace=\"4026531833\"} 30",
            "husk_net_cpu_share{address=\"[::1]:80\",namespace=\"4026531833\",kernel=\"1\"} 0.25",
            "husk_net_moves_total{address=\"[::1]:80\",namespace=\"4026531833\"} 4",
        ] {
            assert!(text.lines().any(|one| one == line), "no {line} in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let mut alike = one;
        alike.kernels.push(alike.kernels[0].clone());
        assert!(!alike.line().contains("cBPF cannot"), "{}", alike.line());
        alike.way = Kind::Cbpf;
        assert!(alike.line().contains("cBPF cannot tell"), "{}", alike.line());
        alike.kernels[1].pid = Some(8);
        assert_eq!(alike.unseen(), None);
        assert_eq!(metrics(&[]).lines().last(), Some("# EOF"));
    }
}
