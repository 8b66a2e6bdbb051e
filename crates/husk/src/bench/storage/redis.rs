//! `husk bench redis`: Redis with an append-only file, unmodified.
//!
//! ```text
//!   parent --orders--> worker on a tmpfs                        --rates, latencies--> parent
//!      |-------------> worker on the file system of /var/tmp    ---------------'|
//!      '-------------> worker in an image, in a volume there    ----------------'
//!      '-------------> worker in an image, on the file system of /var/tmp
//!                        '-- husk trace: the calls of one request, and what is between them; of
//!                            the one in the volume, too
//! ```
//!
//! Server and client are on one side, and the sides take turns. A ratio is the median of the
//! rounds' ratios. Time between two calls is the server's own: the calls cannot tell its parts.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::volume::{Site, Worker};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::stop;
use crate::bench::report::median;
use crate::print;

const PART: &str = "redis-part";
const POLICIES: [&str; 3] = ["always", "everysec", "no"];
const CLIENTS: [u64; 3] = [1, 8, 50];
/// How long a trace takes to begin.
const BEGINNING: Duration = Duration::from_millis(500);

/// `husk bench redis`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the tables.
    #[arg(long)]
    json: bool,
    /// Rounds of each row.
    #[arg(long, default_value_t = 5, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    rounds: u32,
    /// Requests in a round of one client; of 8 and 50 clients four and ten times as many.
    #[arg(long, default_value_t = 2000,
        value_parser = crate::numbers::whole::<u64>(100..=1_000_000))]
    requests: u64,
    /// Only this policy of appendfsync: always, everysec or no.
    #[arg(long, value_name = "POLICY", value_parser = POLICIES)]
    only: Option<String>,
}

/// Rate and latencies of one side.
#[derive(Serialize, Debug, Clone, Copy)]
struct Side {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

#[derive(Serialize, Debug)]
struct Row {
    policy: &'static str,
    clients: u64,
    tmpfs: Side,
    disk: Side,
    volume: Side,
    /// Requests a second in the volume over those on the disk's file system.
    volume_over_disk: f64,
}

/// One part of a request.
#[derive(Serialize, Debug)]
struct Span {
    what: &'static str,
    /// Medians of the requests, us: in the volume, and on the disk's file system.
    volume_us: f64,
    disk_us: f64,
    /// What Arrakis (OSDI 2014) gives for Linux, us.
    arrakis_us: Option<f64>,
}

#[derive(Serialize, Debug)]
struct Breakdown {
    request: &'static str,
    /// Requests that were traced whole, in the volume and on the disk's file system.
    requests: [usize; 2],
    spans: Vec<Span>,
    /// What Arrakis gives for a whole request, us.
    arrakis_us: f64,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rows: Vec<Row>,
    /// In an image, one client; `always` for SET.
    breakdowns: Vec<Breakdown>,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let site = Site::make()?;
    let memory = Memory::make()?;
    let native = site.directory("native")?;
    let mut sides = [
        Worker::start(site.alone(PART, &memory.0))?,
        Worker::start(site.alone(PART, &native))?,
        Worker::start(site.in_volume(PART))?,
    ];
    let wanted = |policy: &&str| options.only.as_deref().is_none_or(|only| only == *policy);
    let mut rows = Vec::new();
    for policy in POLICIES.into_iter().filter(wanted) {
        rows.extend(of_policy(&mut sides, policy, options)?);
    }
    let policy = options.only.as_deref().unwrap_or("always");
    let mut on_disk = Worker::start(site.on_disk(PART)?)?;
    let mut breakdowns = Vec::new();
    for (request, calls) in [("SET", SET), ("GET", GET)] {
        let traced = |worker| traced(&site, worker, policy, (request, calls), options.requests);
        let both = [traced(&mut sides[2])?, traced(&mut on_disk)?];
        breakdowns.push(breakdown(request, calls, &both));
    }
    let report = Report { machine: Machine::look(None), rows, breakdowns };
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A directory on a tmpfs.
struct Memory(std::path::PathBuf);

impl Memory {
    fn make() -> anyhow::Result<Memory> {
        let path = Path::new("/dev/shm").join(format!("husk-bench-redis-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Memory(path))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What cannot be removed is left where its name says whose it was.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn of_policy(
    sides: &mut [Worker; 3],
    policy: &'static str,
    options: &Options,
) -> anyhow::Result<Vec<Row>> {
    for side in sides.iter_mut() {
        side.say(&format!("start {policy}"))?;
    }
    let rows = CLIENTS.into_iter().map(|clients| {
        let requests = options.requests * if clients > 8 { 10 } else { clients.div_ceil(2) };
        let mut rounds = Vec::new();
        for round in 0..=options.rounds {
            stop::check()?;
            let mut ask = |n: usize| ask(&mut sides[n], "set", clients, requests);
            let one = [ask(0)?, ask(1)?, ask(2)?];
            // The first one only warms up.
            if round > 0 {
                rounds.push(one);
            }
        }
        Ok(row(policy, clients, &rounds))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    for side in sides.iter_mut() {
        side.say("stop")?;
    }
    Ok(rows)
}

fn ask(side: &mut Worker, kind: &str, clients: u64, requests: u64) -> anyhow::Result<Side> {
    let said = side.say(&format!("ask {kind} {clients} {requests}"))?;
    let figures: Vec<f64> = said.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [per_s, p50_ms, p99_ms] = figures[..] else { anyhow::bail!("the worker said {said}") };
    Ok(Side { per_s, p50_ms, p99_ms })
}

fn row(policy: &'static str, clients: u64, rounds: &[[Side; 3]]) -> Row {
    let side = |n: usize| Side {
        per_s: median(rounds.iter().map(|one| one[n].per_s)),
        p50_ms: median(rounds.iter().map(|one| one[n].p50_ms)),
        p99_ms: median(rounds.iter().map(|one| one[n].p99_ms)),
    };
    let volume_over_disk = median(rounds.iter().map(|one| one[2].per_s / one[1].per_s));
    Row { policy, clients, tmpfs: side(0), disk: side(1), volume: side(2), volume_over_disk }
}

/// The calls of one request, in their order, and what is between each and the next; of each call,
/// the part of a request's time that Arrakis gives for it.
type Calls = &'static [(&'static [&'static str], &'static str, &'static str, Option<f64>)];

/// What a durable write and a read took on Linux there, us.
const ARRAKIS_US: [(&str, f64); 2] = [("SET", 163.0), ("GET", 8.7)];

const SET: Calls = &[
    (
        &["epoll_wait", "epoll_pwait"],
        "epoll_wait, with the client's time",
        "between epoll and recv",
        None,
    ),
    (&["read", "recvfrom"], "recv", "parse, look up, change, marshal for the log", None),
    (&["write"], "write to the log", "between log and sync", None),
    (&["fdatasync"], "make it durable (fdatasync)", "prepare the reply", Some(0.84)),
    (&["write", "sendto"], "send", "until the next epoll_wait", None),
];
const GET: Calls = &[
    (
        &["epoll_wait", "epoll_pwait"],
        "epoll_wait, with the client's time",
        "between epoll and recv",
        Some(0.27),
    ),
    (&["read", "recvfrom"], "recv", "parse, look up, prepare the reply", Some(0.11)),
    (&["write", "sendto"], "send", "until the next epoll_wait", Some(0.37)),
];

/// A line of `husk trace --json`. One that says how many calls were not recorded has no name of a
/// call: no request goes over it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Traced {
    time_ns: u64,
    call: String,
    result: Option<i64>,
    duration_ns: Option<u64>,
}

/// The times of each request that a server of one side was seen to answer.
fn traced(
    site: &Site,
    worker: &mut Worker,
    policy: &str,
    (request, calls): (&'static str, Calls),
    requests: u64,
) -> anyhow::Result<Vec<Vec<u64>>> {
    let pid = worker.say(&format!("start {policy}"))?;
    let file = site.directory("idle")?.join(format!("trace-{request}"));
    let mut trace: Command = site.husk();
    // It ends with the process.
    trace.args(["trace", &pid, "--pid", &pid, "--json", "--output"]).arg(&file);
    let mut trace = trace.spawn().context("cannot trace")?;
    std::thread::sleep(BEGINNING);
    let kind = request.to_lowercase();
    let asked = ask(worker, &kind, 1, requests);
    worker.say("stop")?;
    let ended = trace.wait().context("cannot trace")?;
    asked?;
    anyhow::ensure!(ended.success(), "husk trace: {ended}");
    let text = fs::read_to_string(&file).context("no trace")?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Traced>, _>>()?;
    let cycles = cycles(&lines, calls);
    anyhow::ensure!(!cycles.is_empty(), "no {request} was traced");
    Ok(cycles)
}

/// The parts of a request, in the volume and on the disk's file system.
fn breakdown(
    request: &'static str,
    calls: Calls,
    [volume, disk]: &[Vec<Vec<u64>>; 2],
) -> Breakdown {
    let arrakis_us = ARRAKIS_US.iter().find(|(name, _)| *name == request).map_or(0.0, |one| one.1);
    let us =
        |cycles: &[Vec<u64>], n: usize| median(cycles.iter().map(|cycle| cycle[n] as f64)) / 1000.0;
    let parts = calls.iter().flat_map(|(_, during, after, part)| [(during, *part), (after, None)]);
    let spans = parts.enumerate().map(|(n, (what, part))| Span {
        what,
        volume_us: us(volume, n),
        disk_us: us(disk, n),
        arrakis_us: part.map(|part| part * arrakis_us),
    });
    Breakdown { request, requests: [volume.len(), disk.len()], spans: spans.collect(), arrakis_us }
}

/// How long each call of a request took, and the time behind it, ns; for each whole request.
fn cycles(lines: &[Traced], calls: Calls) -> Vec<Vec<u64>> {
    let found = lines.windows(calls.len() + 1).filter(|window| {
        let are = |(line, (names, ..)): (&Traced, &(&'static [&'static str], _, _, _))| {
            names.contains(&line.call.as_str()) && line.result.is_some_and(|result| result >= 0)
        };
        // One event, and the next request begins behind the last call.
        let whole = window.iter().zip(calls).all(are) && window[0].result == Some(1);
        whole && calls[0].0.contains(&window[calls.len()].call.as_str())
    });
    let spans = |window: &[Traced]| {
        let both = |two: &[Traced]| {
            let during = two[0].duration_ns.unwrap_or(0);
            [during, two[1].time_ns.saturating_sub(two[0].time_ns + during)]
        };
        window.windows(2).flat_map(both).collect()
    };
    found.map(spans).collect()
}

impl Report {
    fn table(&self) -> String {
        let machine = &self.machine;
        let mut text =
            format!("{}, {} cores, Linux {}\n", machine.cpu, machine.cores, machine.kernel);
        text += &format!(
            "load {:.1}; SET of 64 bytes: requests a second, p50 and p99 in ms; ",
            machine.load
        );
        text += "medians\n\n";
        text += &format!(
            "{:<10} {:>3} {:>23} {:>23} {:>23} {:>12}\n",
            "policy", "c", "tmpfs", "disk", "volume", "volume/disk"
        );
        for row in &self.rows {
            let side = |side: &Side| {
                format!("{:>9.0} {:>6.2} {:>6.2}", side.per_s, side.p50_ms, side.p99_ms)
            };
            let sides = [&row.tmpfs, &row.disk, &row.volume].map(side).join(" ");
            let ratio = row.volume_over_disk;
            text += &format!("{:<10} {:>3} {sides} {ratio:>11.2}x\n", row.policy, row.clients);
        }
        text + &self.breakdowns.iter().map(Breakdown::table).collect::<String>()
    }
}

impl Breakdown {
    fn table(&self) -> String {
        let [volume, disk] = self.requests;
        let mut text = format!(
            "\n{} in an image, one client: us, medians of {volume} and {disk} requests\n",
            self.request
        );
        text += &format!("  {:<45} {:>8} {:>8} {:>15}\n", "", "volume", "disk", "Arrakis's Linux");
        let mut line = |what: &str, volume_us: f64, disk_us: f64, arrakis_us: Option<f64>| {
            let arrakis = arrakis_us.map_or("-".to_owned(), |us| format!("{us:.1}"));
            text += &format!("  {what:<45} {volume_us:>8.2} {disk_us:>8.2} {arrakis:>15}\n");
        };
        for Span { what, volume_us, disk_us, arrakis_us } in &self.spans {
            line(what, *volume_us, *disk_us, *arrakis_us);
        }
        // The wait for the client is not the server's.
        let own = |us: fn(&Span) -> f64| self.spans.iter().skip(1).map(us).sum::<f64>();
        let (volume_us, disk_us) = (own(|span| span.volume_us), own(|span| span.disk_us));
        line("all but epoll_wait", volume_us, disk_us, Some(self.arrakis_us));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time_ns: u64, call: &str, result: i64, duration_ns: u64) -> Traced {
        Traced { time_ns, call: call.into(), result: Some(result), duration_ns: Some(duration_ns) }
    }

    #[test]
    fn a_request_counts_if_all_its_calls_come_one_after_the_other() {
        let lines = [
            line(0, "epoll_wait", 1, 10),
            line(11, "read", 40, 2),
            line(15, "write", 5, 3),
            line(19, "epoll_wait", 1, 6),
            // Something else came in between.
            line(26, "read", 40, 2),
            line(29, "openat", 9, 2),
            line(32, "write", 5, 3),
            line(36, "epoll_wait", 0, 1),
            line(38, "read", 40, 2),
            line(41, "write", 5, 3),
            line(45, "epoll_wait", 1, 1),
            line(47, "read", 40, 2),
            serde_json::from_str(r#"{"not_recorded":7}"#).expect("it is no call"),
            line(51, "write", 5, 3),
            line(55, "epoll_wait", 1, 1),
        ];
        assert_eq!(cycles(&lines, GET), [[10, 1, 2, 2, 3, 1]]);
    }
}
