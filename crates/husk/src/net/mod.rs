//! `husk net`: connections from outside, who accepts them, and sockets of an image.

mod top;
mod tune;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command as Program, ExitCode};
use std::time::Duration;

use clap::Subcommand;
use husk_net::angel::Tuning;
use husk_net::sim;
use husk_net::steer::{self, Problem, Snapshot};
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::say;
use husk_supervisor::show::check::{Fact, State};
use husk_supervisor::show::sockets;

use crate::numbers::whole;
use crate::picture::{self, Course, Line};
use crate::{failed, shown};

/// `husk net COMMAND`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Steer the connections of a running TCP server, so that its processes are evenly loaded.
    ///
    /// The server listens with SO_REUSEPORT (nginx: `listen ... reuseport`), a socket for each
    /// process. Which one accepts is chosen by flow group, the upper 12 bits of the source port;
    /// idle groups move away from processes with too much. Connections that are open stay where
    /// they are. A server that listens at several addresses is steered at each. Root steers by
    /// eBPF. Every other user steers servers of their own by cBPF, or by eBPF with CAP_BPF and
    /// CAP_NET_ADMIN. A program that the server itself has attached to these sockets is replaced.
    Attach(Attach),
    /// Stop steering, also if the balancer was killed: Linux spreads connections by hash again.
    Detach {
        /// Process, port, or address with port.
        #[arg(value_name = "PID|PORT")]
        target: String,
    },
    /// Show what is steered, updated like top: listening sockets with the processes that accept,
    /// flow groups, connections, moves. Keys are shown in the last line.
    Top {
        /// Process, port, or address with port [default: all that is steered].
        #[arg(value_name = "PID|PORT")]
        target: Option<String>,
        /// Time between two updates, in seconds (0.1 to 3600).
        #[arg(long, value_name = "S", default_value = "1", value_parser = crate::top::interval)]
        interval: Duration,
        /// Print it once and end; needs no terminal.
        #[arg(long)]
        once: bool,
        /// Print it once, as a JSON document, and end.
        #[arg(long)]
        json: bool,
    },
    /// Show once what is steered: what `top` shows each second.
    Stat {
        /// Process, port, or address with port [default: all that is steered].
        #[arg(value_name = "PID|PORT")]
        target: Option<String>,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
        /// Print it for OpenMetrics (Prometheus).
        #[arg(long, conflicts_with = "json")]
        openmetrics: bool,
    },
    /// List the connected stream sockets of an image: who has each end (PID:NUMBER), and whether
    /// its bytes go through shared memory or through the host, and why.
    Ls {
        /// Name of the image, or process id of a `husk run` or of a program in it.
        #[arg(value_name = "IMAGE")]
        name: String,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Show whether this host supports steering. Status 0: `husk net attach` works.
    Check {
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Set an interface up so that each receive queue has a core of its own, for UDP at full rate:
    /// the hash that chooses the queue, interrupts, RPS, XPS, GRO, busy polling.
    ///
    /// Prints each setting with its value before and after, also those that the device does not
    /// support. `husk net untune` sets everything back, also after a crash. The two sysctls of busy
    /// polling apply to the whole host. Needs root, or CAP_NET_ADMIN and a /run to write to.
    Tune(tune::Tune),
    /// Set an interface back to what it was before `husk net tune`.
    ///
    /// A value that something else has changed since is left alone, and a line reports it.
    Untune(tune::Untune),
    /// Simulate how the balancer, Angel, evens out load: an even load, all flow groups on one
    /// kernel, and an attack on one kernel, without Angel and with it.
    ///
    /// Clients connect, wait for the answer and think; one connection takes 1 ms of a kernel on
    /// average. The same seed gives the same figures.
    Sim(Simulation),
    /// The balancer that `attach` starts.
    #[command(hide = true)]
    Balance {
        /// One process of the server.
        pid: u32,
        /// Where it listens.
        address: SocketAddr,
        /// In which network namespace.
        namespace: u64,
        #[command(flatten)]
        tuning: Tuned,
    },
}

impl Command {
    /// The image that it is about.
    pub fn image(&self) -> Option<&OsStr> {
        match self {
            Command::Ls { name, .. } => Some(name.as_ref()),
            _ => None,
        }
    }
}

/// `husk net attach`.
#[derive(clap::Args, Debug)]
pub struct Attach {
    /// Process, port, or address with port.
    #[arg(value_name = "PID|PORT")]
    target: String,
    #[command(flatten)]
    tuning: Tuned,
}

#[derive(clap::Args, Debug)]
pub struct Tuned {
    /// Window of the moving averages, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200,
          value_parser = whole::<u64>(100..=10_000))]
    window_ms: u64,
    /// Share of a CPU, in per cent, from which a process may count as overloaded.
    #[arg(long, value_name = "PERCENT", default_value_t = 25,
          value_parser = whole::<u8>(0..=100))]
    wake_percent: u8,
    /// Let no group move: connections go where the table leads them from the beginning.
    #[arg(long)]
    no_moves: bool,
    /// How to steer: `ebpf` needs privilege; `cbpf` does not, and a balancer that is killed leaves
    /// its last table [default: ebpf if it works, else cbpf].
    #[arg(long, value_name = "WAY", value_parser = way)]
    way: Option<steer::Kind>,
}

fn way(typed: &str) -> Result<steer::Kind, String> {
    let found = steer::Kind::ALL.into_iter().find(|way| way.name() == typed);
    found.ok_or_else(|| "it is neither ebpf nor cbpf".to_owned())
}

impl Tuned {
    /// As words of a command line.
    fn words(&self) -> Vec<String> {
        let Tuned { window_ms, wake_percent, no_moves, way } = self;
        let mut words = vec![format!("--window-ms={window_ms}")];
        words.push(format!("--wake-percent={wake_percent}"));
        words.extend(no_moves.then(|| "--no-moves".to_owned()));
        words.extend(way.map(|way| format!("--way={way}")));
        words
    }

    fn tuning(&self) -> Tuning {
        let usual = Tuning::default();
        let (wake_cpu, wake_connections) = match self.no_moves {
            true => (f64::INFINITY, f64::INFINITY),
            false => (f64::from(self.wake_percent) / 100.0, usual.wake_connections),
        };
        Tuning { window_us: self.window_ms * 1000, wake_cpu, wake_connections, ..usual }
    }
}

/// `husk net sim`.
#[derive(clap::Args, Debug)]
pub struct Simulation {
    /// Numbers of kernels, 2 to 24 each.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8, 16, 24],
          value_parser = whole::<u64>(2..=24))]
    kernels: Vec<u64>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Simulated time of each experiment.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = whole::<u64>(1..=600))]
    seconds: u64,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Also write a page with pictures, net-sim.html, into this directory: time per request and
    /// moves of flow groups over time.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub fn run(command: Command) -> ExitCode {
    match command {
        Command::Attach(options) => done(attach(&options)),
        Command::Detach { target } => done(steer::detach(&target).map(|()| true)),
        Command::Top { target, interval, once: false, json: false } => {
            match top::watch(|| seen(target.as_deref()), interval) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => failed(&failure),
            }
        }
        Command::Top { target, json, .. } => done(look(target.as_deref(), json)),
        Command::Stat { target, openmetrics: true, .. } => {
            done(seen(target.as_deref()).map(|all| shown(&all, false, |all| steer::metrics(all))))
        }
        Command::Stat { target, json, .. } => done(look(target.as_deref(), json)),
        Command::Check { json } => {
            let report = steer::check::check();
            let printed = shown(&report, json, steer::check::Report::text);
            status(printed && report.way != "none")
        }
        Command::Ls { name, json } => match sockets::report(&name) {
            Ok(report) => status(shown(&report, json, sockets::Report::text)),
            Err(failure) => failed(&failure),
        },
        Command::Tune(typed) => done(tune::tune(&typed)),
        Command::Untune(typed) => done(tune::untune(&typed)),
        Command::Sim(options) => simulate(&options),
        Command::Balance { pid, address, namespace, tuning } => {
            let_go_of_descriptors();
            let Tuned { way, .. } = tuning;
            let wanted = steer::Wanted { pid, address, namespace, tuning: tuning.tuning(), way };
            done(steer::balance(&wanted).map(|()| true))
        }
    }
}

/// Whether connections can be steered, as a line of `husk check`.
pub fn steering() -> Fact {
    let steer::check::Report { way, facts } = steer::check::check();
    let works = way != "none";
    let lacks = facts.iter().find(|fact| !fact.works);
    let found = match (way, lacks) {
        ("cbpf", _) => {
            "works for servers of one's own, by cbpf; as root for all, by ebpf".to_owned()
        }
        ("none", Some(fact)) => fact.found.clone(),
        _ => format!("works, by {way}"),
    };
    let cost = "husk net attach does not work: Linux spreads connections by hash";
    let remedy = "sudo husk net check";
    let (state, cost, remedy) =
        if works { (State::Ok, "", "") } else { (State::Limited, cost, remedy) };
    Fact { name: "steering of connections", state, found, cost, remedy }
}

fn status(fine: bool) -> ExitCode {
    if fine { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

fn done(result: Result<bool, Problem>) -> ExitCode {
    match result {
        Ok(fine) => status(fine),
        Err(Problem { what, why, remedy }) => failed(&Failure::new(what, why, remedy)),
    }
}

/// A balancer lives long: it does not keep open what it inherits, a lock for instance.
fn let_go_of_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> =
        open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The one that listed them is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// The command of a balancer, with its options.
pub fn balancer(options: Vec<String>) -> Program {
    let husk = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut balance = Program::new(husk);
    balance.args(["net", "balance"]).args(options);
    balance
}

/// Whether it steers; the balancer has said why not.
fn attach(options: &Attach) -> Result<bool, Problem> {
    let begun = steer::attach(&options.target, || balancer(options.tuning.words()))?;
    for one in &begun {
        let how = match one.way {
            steer::Kind::Ebpf => "",
            steer::Kind::Cbpf => " by cBPF",
        };
        say(&format!(
            "steers the connections of {} among {} sockets{how}; `husk net detach {}` ends it",
            one.address,
            one.kernels.len(),
            one.typed()
        ));
        if let Some(why) = one.unseen() {
            say(&format!("{}: {why}", one.address));
        }
    }
    Ok(!begun.is_empty())
}

fn seen(target: Option<&str>) -> Result<Vec<Snapshot>, Problem> {
    target.map_or_else(steer::everywhere, steer::look)
}

/// Whether all could be printed.
fn look(target: Option<&str>, json: bool) -> Result<bool, Problem> {
    Ok(shown(&seen(target)?, json, |all| steer::table(all)))
}

fn simulate(options: &Simulation) -> ExitCode {
    let kernels = options.kernels.iter().map(|&kernels| kernels as usize).collect();
    let wanted = sim::Options { kernels, seed: options.seed, seconds: options.seconds };
    let report = sim::run(&wanted);
    if let Some(directory) = &options.report {
        let written = picture::make_directory(directory)
            .and_then(|()| picture::write(directory, "net-sim.html", &page(&report)));
        if let Err(failure) = written {
            return failed(&failure);
        }
    }
    status(shown(&report, options.json, sim::Report::table))
}

/// A picture of each row.
fn page(report: &sim::Report) -> String {
    let sim::Report { seed, seconds, rows } = report;
    let mut page = picture::head("flow groups", "Angel, simulated");
    page += &format!(
        "<p>Seed {seed}, {seconds} s each. Mean time per request by tenths of a second, and flow \
         groups that Angel moved.</p>"
    );
    for row in rows {
        let lines = [("without", &row.without), ("Angel", &row.with)];
        let lines = lines.map(|(name, outcome)| Line { name, values: &outcome.profile_ms });
        let course = Course {
            title: &format!("{}, {} kernels", row.experiment.title(), row.kernels),
            of_lines: "ms per request",
            lines: &lines,
            of_bars: "moves",
            bars: &row.with.profile_moves,
            window_s: sim::PROFILE_S,
        };
        page += &course.drawing();
    }
    page
}
