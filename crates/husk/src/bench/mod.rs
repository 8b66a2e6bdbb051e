//! `husk bench`: what the same calls cost natively and inside an image, measured side by side.
//!
//! ```text
//!   parent --"batch create 2000"--> native worker (tmpfs)   --"cpu_ns wall_ns"--> parent
//!      |                            control worker (tmpfs, native too)
//!      '---"batch create 2000"----> husk worker (husk run --mount)
//! ```
//!
//! The workers are this same command, started again. The parent hands the baton from one to the
//! other batch by batch, so that only one works at a time and both see the same machine.
//!
//! Invariants
//! 1. A figure of a call is the median of slices of some microseconds, of those in which nobody
//!    else was on the core (`calm`); one of processes is CPU time of the worker's children, never
//!    wall time. Workloads print both: with several processes what counts is when the last ends.
//! 2. Slices are of at least `pair::ROUNDS_MIN` rounds; a row of processes is the median of as many
//!    at least, one of the workloads of as many as `--rounds` says; its ratio is the median of the
//!    rounds' ratios, so that a slow spell of the machine hits both sides of a quotient. The ratio
//!    of slices is that of the medians: a slow spell leaves none that count.
//! 3. Two native workers are compared on `getppid`, for workloads on `creates`: the control. When
//!    it is not 1.0, nothing else on the page counts.
//! 4. SIGINT, SIGTERM and SIGHUP end a measurement with nothing left behind (`stop`).
//! 5. Every wait for a worker is bounded; whatever was started is ended and removed.

mod files;
mod hosts;
mod measure;
mod messages;
mod net;
mod processes;
mod report;
mod servers;
mod storage;
mod udp;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use husk_supervisor::output::failure::{Failure, STATUS_SIGNAL_BASE};

use crate::picture;
pub use report::median;

use files::{hare, operations, scale, scale_part, workloads, write_back};
use measure::{fragment, pair, scratch, stop, technique, worker};
use messages::{msg, nodes};
use processes::{exec, flow, hold, pipes, place};
use report::page;
use storage::{redis, redis_part, volume};

/// What to measure.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(clap::Subcommand, Debug)]
enum Suite {
    /// File-system calls and process start, by one process, compared with tmpfs.
    Fs(FsOptions),
    /// Hare's thirteen workloads, by one process and several, compared with tmpfs.
    Workloads(hare::Options),
    /// How throughput grows with the number of processes, mostly in one directory or with one file,
    /// compared with tmpfs.
    Scale(scale::Options),
    /// One process of a row of `scale`, in the working directory.
    #[command(hide = true)]
    ScalePart {
        /// The row.
        name: String,
        /// Which of its processes.
        index: u32,
    },
    /// Common commands on a tree of some 10,000 entries, compared with tmpfs.
    Commands(hare::Options),
    /// Pipes in shared memory, in one process and between several, compared with the host's.
    Pipes(pipes::Options),
    /// Messages between nodes on a ring, compared with a futex, a pipe and sockets.
    Msg(msg::Options),
    /// Calls, programs and a build on another node of an image, compared with the same on one node.
    Nodes(nodes::Options),
    /// A build on several hosts with a part of a processor each, beside icecream and distcc; and
    /// what it takes to begin on another host, beside ssh. Needs root, iproute2 and openssh-server.
    Hosts(hosts::Options),
    /// The other process of a row of `nodes`.
    #[command(hide = true)]
    NodeEcho,
    /// The time to run a command in an image, and to make an image.
    Exec(exec::Options),
    /// How long the supervisor holds locks that programs wait for, by kind of work.
    Hold(hold::Options),
    /// What `hold` runs in the image.
    #[command(hide = true)]
    HoldPart {
        part: hold::Part,
        /// Where its files are, and how they are called.
        name: PathBuf,
    },
    /// Servers whose sockets are the host's: CPU time of a request, compared with native servers.
    Servers(servers::Options),
    /// Connections from outside to nginx and apache: plain accept, by hash, and steered by flow
    /// group without Angel and with it. Requests a second, failed ones, time per request. Needs
    /// root, iproute2, nginx and apache2.
    Net(net::Options),
    /// Ways of receiving UDP, over a veth between two network namespaces: packets a second with
    /// what is lost, and round trips. Needs root, or a user who may make namespaces; and iproute2.
    Udp(udp::Options),
    /// What programs make durable: records, files, SQLite, redis; in a volume, compared with the
    /// file system of /var/tmp, which the volume is on.
    Volume(volume::Options),
    /// One side of `volume`.
    #[command(hide = true)]
    VolumePart {
        /// Directory to work in.
        directory: PathBuf,
    },
    /// Redis with an append-only file on a tmpfs, on the file system of /var/tmp, and in a volume
    /// there: requests a second and latency; and what one request spends its time on.
    Redis(redis::Options),
    /// One side of `redis`.
    #[command(hide = true)]
    RedisPart {
        /// Directory to work in.
        directory: PathBuf,
    },
    /// Placement policies on a build and on a script that forks, compared with Linux's scheduler.
    Place(place::Options),
    /// Commands that change many files, with the write-back, compared with native ones and a sync.
    WriteBack(write_back::Options),
    /// The side of `place` in an image.
    #[command(hide = true)]
    Placed {
        /// Directory to work in.
        directory: PathBuf,
        /// What is built.
        project: PathBuf,
        rounds: u32,
        jobs: u32,
    },
    /// One process of a row of `pipes`.
    #[command(hide = true)]
    Flow {
        role: flow::Role,
        /// The row.
        name: String,
        /// How often it does what it does.
        count: u64,
    },
    /// One process of a workload, in the working directory.
    #[command(hide = true)]
    Part {
        /// The workload.
        name: String,
        /// Which of its processes.
        index: u32,
    },
    /// One of the two sides of a measurement.
    #[command(hide = true)]
    Worker {
        /// Directory to work in.
        directory: PathBuf,
    },
}

/// `husk bench fs`.
#[derive(clap::Args, Debug)]
pub struct FsOptions {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Write one HTML page with plots, `fs.html`, into this directory; it is created if its parent
    /// exists.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// About how long to measure, in seconds.
    #[arg(long, default_value_t = 20, value_parser = crate::numbers::whole::<u64>(1..=600))]
    seconds: u64,
    /// Directory on a tmpfs for the native side [default: a new one in /dev/shm].
    #[arg(long, value_name = "DIR")]
    tmpfs: Option<PathBuf>,
    /// The `--guard` of `husk run`: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
    /// Also measure an image without this optimisation. If repeated, each is left out separately.
    #[arg(long, value_name = "TECHNIQUE")]
    without: Vec<technique::Technique>,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// First leave free memory in single pages, so that a huge page is hard to get. For some
    /// seconds this takes nearly all free memory (at most 16 GiB), then half of it until the end.
    #[arg(long)]
    fragment: bool,
}

/// Runs the chosen suite. The status is a failure when the control did not read 1.0.
pub fn run(options: Options) -> anyhow::Result<ExitCode> {
    match options.suite {
        Suite::Worker { directory } => worker::serve(&directory).map(|()| ExitCode::SUCCESS),
        Suite::Part { name, index } => {
            workloads::find(&name)?.part(index).map(|()| ExitCode::SUCCESS)
        }
        Suite::ScalePart { name, index } => {
            scale_part::find(&name)?.play(index).map(|()| ExitCode::SUCCESS)
        }
        Suite::Flow { role, name, count } => {
            flow::find(&name)?.play(role, count).map(|()| ExitCode::SUCCESS)
        }
        Suite::HoldPart { part, name } => part.run(&name).map(|()| ExitCode::SUCCESS),
        Suite::Hold(options) => measure(|| hold::run(&options)),
        Suite::Exec(options) => measure(|| exec::run(&options)),
        Suite::Servers(options) => measure(|| servers::run(&options)),
        Suite::Net(options) => measure(|| net::run(&options)),
        Suite::Udp(options) => {
            udp::prepare()?;
            measure(|| udp::run(&options))
        }
        Suite::WriteBack(options) => measure(|| write_back::run(&options)),
        Suite::Volume(options) => measure(|| volume::run(&options)),
        Suite::VolumePart { directory } => volume::serve(&directory).map(|()| ExitCode::SUCCESS),
        Suite::Redis(options) => measure(|| redis::run(&options)),
        Suite::RedisPart { directory } => redis_part::serve(&directory).map(|()| ExitCode::SUCCESS),
        Suite::Place(options) => measure(|| place::run(&options)),
        Suite::Placed { directory, project, rounds, jobs } => {
            place::inside(&directory, &project, rounds, jobs).map(|()| ExitCode::SUCCESS)
        }
        Suite::Nodes(options) => measure(|| nodes::run(&options)),
        Suite::Hosts(options) => measure(|| hosts::run(&options)),
        Suite::NodeEcho => nodes::echo().map(|()| ExitCode::SUCCESS),
        Suite::Msg(options) => measure(|| msg::run(&options)),
        Suite::Pipes(options) => measure(|| pipes::run(&options)),
        Suite::Fs(options) => measure(|| measure_all(&options)),
        Suite::Workloads(options) => measure(|| hare::run(&options, hare::Suite::Hares)),
        Suite::Scale(options) => measure(|| scale::run(&options)),
        Suite::Commands(options) => measure(|| hare::run(&options, hare::Suite::Commands)),
    }
}

fn measure(all: impl FnOnce() -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    stop::watch()?;
    let result = all();
    match stop::came() {
        Some(signal) => Ok(ExitCode::from(STATUS_SIGNAL_BASE + signal as u8)),
        None => result,
    }
}

/// Why nothing is measured, where it is known what to do about it.
fn unable(why: impl Into<String>, remedy: impl Into<String>) -> Failure {
    Failure::new("cannot measure", why, remedy)
}

/// No row is chosen.
fn none_chosen(text: &str, names: &str) -> Failure {
    unable(format!("no row's name contains {text:?}"), format!("there are {names}"))
}

/// The rows whose names contain what `--only` says.
fn chosen<'a, T>(
    all: &'a [T],
    name: fn(&T) -> &str,
    only: Option<&str>,
) -> Result<Vec<&'a T>, Failure> {
    let text = only.unwrap_or_default();
    let rows: Vec<_> = all.iter().filter(|row| name(row).contains(text)).collect();
    if rows.is_empty() {
        let names = all.iter().map(name).collect::<Vec<_>>().join(" | ");
        return Err(none_chosen(text, &names));
    }
    Ok(rows)
}

fn measure_all(options: &FsOptions) -> anyhow::Result<ExitCode> {
    let rows = chosen(operations::ALL, |row| row.name, options.only.as_deref())?;
    if let Some(directory) = &options.report {
        picture::make_directory(directory)?;
    }
    let _fragmented = options.fragment.then(fragment::Fragmented::make).transpose()?;
    let scratch = scratch::Scratch::create(options.tmpfs.as_deref())?;
    let mut pair = pair::Pair::start(&scratch, options.guard.as_deref(), &options.without)?;
    let report = pair.measure(&rows, Duration::from_secs(options.seconds), &scratch)?;
    stop::check()?;
    if let Some(directory) = &options.report {
        picture::write(directory, "fs.html", &page::calls(&report))?;
    }
    if options.json {
        report.print_json()?
    } else {
        report.print_table()
    }
    Ok(if report.control_holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Hare's workload called `name`.
#[cfg(test)]
pub fn workload(name: &str) -> anyhow::Result<&'static workloads::Workload> {
    workloads::find(name)
}
