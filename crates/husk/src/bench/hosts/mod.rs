//! `husk bench hosts`: a build on several hosts with a part of a processor each, by Husk, icecream
//! and distcc; and what it takes to begin there.
//!
//! ```text
//!   home: make ── link ── host 1   each with namespaces for mounts, processes and its network,
//!              ── link ── host 2   an sshd, and a quota of a control group
//! ```
//!
//! Each round has a build of each row, one after the other; ratios are medians of the rounds'
//! ratios to plain make on one such host. Everything a user waits for counts: the start of the
//! session, the build, what is written back, the end.
//!
//! Invariants
//! 1. All builds of all tools make the same bytes; one that does not is an error, not a figure.
//! 2. The control is plain make once more; where it is not 1.0, nothing else counts.
//! 3. A tool that is not installed has a row that says how to install it.
//! 4. Nothing of a host is left when this ends, whatever ends it.

mod host;
mod project;
mod quota;
mod ssh;
mod starts;
mod tools;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use husk_supervisor::output::print;
use nix::unistd::geteuid;
use serde::Serialize;

use crate::bench::measure::machine::Machine;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::report::median;
use crate::bench::{none_chosen, unable};
use host::{Host, Place};
use starts::Starts;
use tools::{Built, Site, Tool};

/// What the control may read.
const CONTROL: std::ops::RangeInclusive<f64> = 0.95..=1.05;
/// Jobs of make for each host: those that wait for the network leave theirs idle.
const JOBS: usize = 3;
/// Wanted: speed-up of four hosts, of one more than home, and of one more that is far away.
const FOUR: f64 = 3.2;
const FAR: f64 = 1.2;
const NEVER_LESS: f64 = 0.97;

/// `husk bench hosts`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Builds of each row.
    #[arg(long, default_value_t = 3, value_parser = crate::numbers::whole::<u32>(1..=100))]
    rounds: u32,
    /// C files of the project.
    #[arg(long, default_value_t = 150, value_parser = crate::numbers::whole::<u32>(2..=5000))]
    files: u32,
    /// On how many hosts, home included.
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_values_t = [1, 2, 4],
        value_parser = crate::numbers::whole::<u8>(1..=16))]
    hosts: Vec<u8>,
    /// Part of a processor that each host has, in per cent.
    #[arg(long, default_value_t = 25, value_parser = crate::numbers::whole::<u64>(10..=100))]
    quota: u64,
    /// Jobs at once for each host.
    #[arg(long, default_value_t = JOBS, value_parser = crate::numbers::whole::<usize>(1..=1024))]
    jobs: usize,
    /// Also build on two hosts between which a round trip takes so long; 0: do not.
    #[arg(long, value_name = "MS", default_value_t = 20,
        value_parser = crate::numbers::whole::<u64>(0..=1000))]
    delay: u64,
    /// Only rows whose name (tool and hosts, e.g. `husk, 4 hosts`) contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Leave out what it takes to begin.
    #[arg(long)]
    no_starts: bool,
}

/// One row, before it is measured.
struct Plan {
    name: String,
    tool: Tool,
    hosts: usize,
    is_far: bool,
    built: Vec<Built>,
    error: Option<String>,
}

#[derive(Serialize, Debug)]
struct Row {
    name: String,
    hosts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    wall_s: f64,
    /// Median of the rounds' ratios: plain make on one host over this.
    speed_up: f64,
    home_cpu_s: f64,
    all_cpu_s: f64,
    link_kib: f64,
    /// Part of the compiles and links that ran on other hosts.
    remote: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rounds: u32,
    files: u32,
    quota_percent: u64,
    jobs_for_each_host: usize,
    delay_ms: u64,
    /// Plain make over plain make.
    control: f64,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    starts: Option<Starts>,
}

/// The row that all others are compared with, and the control.
const BASE: &str = "make, 1 host";
const AGAIN: &str = "make, 1 host, again";

fn plans(options: &Options) -> anyhow::Result<Vec<Plan>> {
    let plan = |name: String, tool, hosts, is_far| {
        let error = Tool::missing(tool);
        Plan { name, tool, hosts, is_far, built: Vec::new(), error }
    };
    let mut all = vec![
        plan(BASE.to_owned(), Tool::Native, 1, false),
        plan(AGAIN.to_owned(), Tool::Native, 1, false),
    ];
    for hosts in options.hosts.iter().map(|hosts| usize::from(*hosts)) {
        for (tool, name) in tools::ALL.iter().filter(|(tool, _)| *tool != Tool::Native) {
            if tool.builds_on(hosts) {
                let hosts_text = if hosts == 1 { "host" } else { "hosts" };
                all.push(plan(format!("{name}, {hosts} {hosts_text}"), *tool, hosts, false));
            }
        }
    }
    if options.delay > 0 {
        let name = format!("husk, 2 hosts, {} ms", options.delay);
        all.push(plan(name, Tool::Husk, 2, true));
    }
    let text = options.only.as_deref().unwrap_or_default();
    let is_chosen = |plan: &Plan| plan.tool == Tool::Native || plan.name.contains(text);
    let names = all.iter().map(|plan| plan.name.clone()).collect::<Vec<_>>().join(" | ");
    all.retain(is_chosen);
    let found = all.len() > 2 || text.is_empty() || BASE.contains(text);
    if found { Ok(all) } else { Err(none_chosen(text, &names).into()) }
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut plans = plans(options)?;
    if !geteuid().is_root() {
        let why = "hosts are made of namespaces and quotas";
        return Err(unable(why, "run it as root").into());
    }
    quota::remove_stale();
    let scratch = Scratch::create(None)?;
    let project = scratch.disk.join("project");
    project::write(&project, options.files)?;
    let place = Place { disk: scratch.disk.clone(), project, percent: options.quota };
    let most = plans.iter().map(|plan| plan.hosts).max().unwrap_or(1).max(2);
    // The last one is the far one.
    let bin = ssh::write(&place.disk, most)?;
    let home = Host::home(&place)?;
    let others = (1..most).map(|index| Host::joined(&place, &home, index, Duration::ZERO));
    let others = others.collect::<anyhow::Result<Vec<_>>>()?;
    let is_far = plans.iter().any(|plan| plan.is_far);
    let trip = Duration::from_millis(options.delay);
    let far = is_far.then(|| Host::joined(&place, &home, most, trip)).transpose()?;
    let site = |hosts: usize, is_far: bool| Site {
        program: &scratch.program,
        project: &place.project,
        bin: &bin,
        files: options.files,
        hosts: if is_far {
            std::iter::once(&home).chain(&far).collect()
        } else {
            std::iter::once(&home).chain(&others).take(hosts).collect()
        },
        jobs: options.jobs * hosts,
    };
    // Copies of husk on the hosts are made by the first session with each.
    for plan in plans.iter_mut().filter(|plan| plan.tool == Tool::Husk) {
        let prepared = site(plan.hosts, plan.is_far).prepare(plan.tool);
        plan.error = prepared.err().map(|why| format!("{why:#}"));
    }
    for _ in 0..options.rounds {
        let mut made = None;
        for plan in plans.iter_mut().filter(|plan| plan.error.is_none()) {
            stop::check()?;
            match site(plan.hosts, plan.is_far).build(plan.tool) {
                Ok(built) if *made.get_or_insert_with(|| built.made.clone()) != built.made => {
                    plan.error = Some("it makes other bytes than plain make".to_owned());
                }
                Ok(built) => plan.built.push(built),
                Err(why) => plan.error = Some(format!("{why:#}")),
            }
        }
    }
    stop::check()?;
    let starts = (!options.no_starts && !others.is_empty())
        .then(|| starts::measure(&site(2, false), options.rounds))
        .transpose()?;
    let report = summed(options, &plans, starts)?;
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() };
    print(&text)?;
    let holds = CONTROL.contains(&report.control);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summed(options: &Options, plans: &[Plan], starts: Option<Starts>) -> anyhow::Result<Report> {
    let walls = |plan: &Plan| -> Vec<f64> {
        plan.built.iter().map(|built| built.wall.as_secs_f64()).collect()
    };
    let base = &plans[0];
    if let Some(why) = &base.error {
        anyhow::bail!("plain make cannot be measured: {why}");
    }
    let base = walls(base);
    let speed_up = |plan: &Plan| median(base.iter().zip(walls(plan)).map(|(one, it)| one / it));
    let best_other = |hosts: usize| {
        let others = plans.iter().filter(|plan| {
            plan.hosts == hosts && matches!(plan.tool, Tool::Icecream | Tool::Distcc)
        });
        others.filter(|plan| plan.error.is_none()).map(&speed_up).fold(0.0, f64::max)
    };
    let row = |plan: &Plan| {
        let of = |pick: &dyn Fn(&Built) -> f64| median(plan.built.iter().map(pick));
        let wanted = (plan.tool == Tool::Husk && plan.hosts > 1).then(|| match plan.hosts {
            2 if plan.is_far => FAR,
            4 => FOUR.max(best_other(4)),
            hosts => NEVER_LESS.max(best_other(hosts)),
        });
        let speed_up = speed_up(plan);
        Row {
            name: plan.name.clone(),
            hosts: plan.hosts,
            error: plan.error.clone(),
            wall_s: of(&|built| built.wall.as_secs_f64()),
            speed_up,
            home_cpu_s: of(&|built| built.home_cpu.as_secs_f64()),
            all_cpu_s: of(&|built| built.all_cpu.as_secs_f64()),
            link_kib: of(&|built| built.link_bytes as f64 / 1024.0),
            // The link, and main.c, count, too.
            remote: of(&|built| built.remote as f64 / f64::from(options.files + 2)),
            wanted,
            met: wanted.filter(|_| plan.error.is_none()).map(|wanted| speed_up >= wanted),
        }
    };
    Ok(Report {
        machine: Machine::look(None),
        rounds: options.rounds,
        files: options.files,
        quota_percent: options.quota,
        jobs_for_each_host: options.jobs,
        delay_ms: options.delay,
        control: speed_up(&plans[1]),
        rows: plans.iter().map(row).collect(),
        starts,
    })
}

impl Report {
    fn table(&self) -> String {
        let Machine { cpu, cores, kernel, load, guard } = &self.machine;
        let mut text = format!(
            "{cpu}, {cores} cores, Linux {kernel}\nload {load:.1}, guard {guard}; {} C files, {} % \
             of a processor and {} jobs for each host; medians of {} rounds\n\n\
             {:<26} {:>8} {:>9} {:>10} {:>9} {:>9} {:>7}  wanted\n",
            self.files,
            self.quota_percent,
            self.jobs_for_each_host,
            self.rounds,
            "",
            "wall, s",
            "speed-up",
            "home CPU s",
            "all CPU s",
            "link KiB",
            "remote",
        );
        for row in &self.rows {
            if let Some(error) = &row.error {
                let _ = writeln!(text, "{:<26} {error}", row.name);
                continue;
            }
            let goal = row.wanted.map_or(String::new(), |wanted| {
                let mark = if row.met == Some(true) { "ok" } else { "MISSED" };
                format!(">= {wanted:.2} {mark}")
            });
            let _ = writeln!(
                text,
                "{:<26} {:>8.2} {:>9.2} {:>10.2} {:>9.2} {:>9.0} {:>6.0}%  {goal}",
                row.name,
                row.wall_s,
                row.speed_up,
                row.home_cpu_s,
                row.all_cpu_s,
                row.link_kib,
                row.remote * 100.0,
            );
        }
        if let Some(starts) = &self.starts {
            text += "\n";
            text += &starts.text();
        }
        let _ = writeln!(text, "control: plain make over plain make {:.2}", self.control);
        if !CONTROL.contains(&self.control) {
            text += "\nThe control is not 1.0: this machine was too busy, measure again.\n";
        }
        text
    }
}
