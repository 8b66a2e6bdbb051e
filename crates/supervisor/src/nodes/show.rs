//! `husk nodes`: the nodes of an image, and who runs on each.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_node::AFAR;
use serde::Serialize;

use crate::hosts::{self, Account};
use crate::image::attach::Visit;
use crate::named::{self, Name};
use crate::output::failure::Failure;
use husk_proto::{Overview as _, Shortcuts as _};

/// How long they are looked at for what they do in a second.
const SPAN: Duration = Duration::from_millis(250);

/// One node, as listed.
#[derive(Serialize, Debug, Clone, Default)]
pub struct Row {
    /// Its number; 0 is the home of all names.
    pub node: u16,
    /// What commands of Husk know it by.
    pub image: String,
    /// Whether its supervisor answers.
    pub up: bool,
    /// Kernels.
    pub kernels: u32,
    /// Most memory it may use, bytes.
    pub memory_bytes: u64,
    /// The programs that run on it.
    pub processes: Vec<u32>,
    /// Cores that these have used while it was looked at; of another host, and of a node that is
    /// lost, it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Requests that its programs have sent to node 0, so far.
    pub requests: u64,
    /// The same in a second, while it was looked at.
    pub requests_per_s: f64,
    /// It is on another host, and that went on with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Account>,
}

/// The nodes of the image that `image` names: the process id of a `husk run` or of a program of its
/// first node, or the name of an image. They are looked at for `SPAN`.
pub fn nodes(image: &str) -> Result<Vec<Row>, Failure> {
    let (before, begun) = (used(&found(image)?), Instant::now());
    thread::sleep(SPAN);
    let mut rows = found(image)?;
    let (current, span_s) = (used(&rows), begun.elapsed().as_secs_f64());
    for (row, now) in rows.iter_mut().zip(current) {
        let Some(then) = before.iter().find(|then| then.node == row.node) else { continue };
        row.requests_per_s = now.requests.saturating_sub(then.requests) as f64 / span_s;
        // Who has begun meanwhile has used all that it has; who has ended is not known of any more.
        // It may have been on another node then.
        let then_ms = |pid| before.iter().find_map(|used| used.processes.get(pid).copied());
        let used_ms =
            now.processes.iter().map(|(pid, ms)| ms.saturating_sub(then_ms(pid).unwrap_or(0)));
        row.load = row.load.map(|_| used_ms.sum::<u64>() as f64 / 1e3 / span_s);
    }
    Ok(rows)
}

/// What a node has used so far.
struct Used {
    node: u16,
    requests: u64,
    /// Processor time of each of its programs, ms.
    processes: HashMap<u32, u64>,
}

fn used(rows: &[Row]) -> Vec<Used> {
    let time = |&pid: &u32| Some((pid, named::process(pid)?.cpu_ms));
    let of = |row: &Row| {
        let processes = row.processes.iter().filter_map(time).collect();
        Used { node: row.node, requests: row.requests, processes }
    };
    rows.iter().map(of).collect()
}

/// The same, what is measured left out.
fn found(image: &str) -> Result<Vec<Row>, Failure> {
    let visit = Visit::of(image)?;
    let run = visit.direct.home_pid();
    let mut here = Vec::new();
    visit.direct.each_pid(&mut |pid| here.push(pid));
    let mut rows: Vec<Row> =
        others(&visit.direct).into_iter().map(|(node, image)| other(node, image)).collect();
    let hosts = other_hosts(&visit.direct);
    let names = host_names(image, run);
    rows.extend(
        (1..).zip(hosts).map(|(number, account)| {
            host(AFAR + number, account, names.get(usize::from(number) - 1))
        }),
    );
    // Who has gone on elsewhere has a record here until it ends.
    let elsewhere = |pid: &u32| rows.iter().any(|row| row.processes.contains(pid));
    here.retain(|pid| !husk_carrier::ended(*pid) && !elsewhere(pid) && !serves(*pid));
    here.sort_unstable();
    here.dedup();
    let (kernels, memory_bytes) = (visit.layout.kernels, visit.layout.memory_bytes);
    let image = if run == 0 { image.to_owned() } else { run.to_string() };
    let (processes, load) = (here, Some(0.0));
    let home = Row { image, up: true, kernels, memory_bytes, processes, load, ..Row::default() };
    rows.insert(0, home);
    Ok(rows)
}

/// Whether a process is an agent, and no program.
pub fn serves(pid: u32) -> bool {
    named::process(pid).is_some_and(|found| found.name == super::AGENT)
}

/// The other nodes of an image whose home `direct` is, and what each is called. Those on other
/// hosts have no name here.
pub fn others(direct: &Direct) -> Vec<(u16, String)> {
    let base = String::from_utf8_lossy(direct.nodes_base()).into_owned();
    let here = Some(direct.nodes()).filter(|nodes| *nodes < husk_node::AFAR).unwrap_or(0);
    (1..here).map(|node| (node, super::name(&base, node))).collect()
}

/// Another node of an image.
fn other(node: u16, image: String) -> Row {
    let name = Name::parse(OsStr::new(&image)).ok();
    let status = name.as_ref().and_then(|name| named::look(name).ok());
    let processes = name.and_then(|name| named::processes_of(&name).ok()).unwrap_or_default();
    let up = status.is_some();
    let (kernels, memory_bytes, requests) =
        status.map_or((0, 0, 0), |status| (status.kernels, status.memory_bytes, status.requests));
    let load = up.then_some(0.0);
    Row { node, image, up, kernels, memory_bytes, processes, load, requests, ..Row::default() }
}

/// What went on with the other hosts of an image; `None`: that one is not heard of.
pub fn other_hosts(direct: &Direct) -> Vec<Option<Account>> {
    let hosts = direct.nodes().saturating_sub(AFAR);
    let private = Path::new(OsStr::from_bytes(direct.private_path()));
    if hosts == 0 { Vec::new() } else { hosts::seen(private, hosts) }
}

/// What the other hosts of an image with a name are called, whether or not they are there.
fn host_names(image: &str, run: u32) -> Vec<String> {
    let name = Name::parse(OsStr::new(image)).ok().filter(|_| run == 0);
    name.and_then(|name| named::look(&name).ok()).map(|status| status.hosts).unwrap_or_default()
}

/// A node on another host, which has no memory for files.
fn host(node: u16, account: Option<Account>, name: Option<&String>) -> Row {
    let name = account.as_ref().map(|account| &account.host).or(name);
    let image = name.filter(|name| !name.is_empty()).map_or("-".to_owned(), String::clone);
    let up = account.as_ref().is_some_and(|account| !account.is_lost);
    let running = account.iter().flat_map(|account| &account.running);
    let processes = running.map(|running| running.pid).collect();
    let requests = account.as_ref().map_or(0, |account| account.round_trips);
    Row { node, image, up, processes, requests, host: account, ..Row::default() }
}

/// The list for people.
pub fn table(rows: &[Row]) -> String {
    let mut table =
        "NODE IMAGE            STATE KERNELS   MEMORY PROGRAMS  LOAD REQUESTS   PER S\n".to_owned();
    for row in rows {
        let state = if row.up { "up" } else { "lost" };
        let (memory, programs) = (format!("{}M", row.memory_bytes >> 20), row.processes.len());
        let load = row.load.map_or("-".to_owned(), |load| format!("{load:.2}"));
        let Row { node, image, kernels, requests, requests_per_s, .. } = row;
        let _ = writeln!(
            table,
            "{node:>4} {image:<16} {state:<5} {kernels:>7} {memory:>8} {programs:>8} {load:>5} \
             {requests:>8} {requests_per_s:>7.0}"
        );
        if let Some(host) = &row.host {
            table.push_str(&host.text());
        }
    }
    table
}
