//! `husk bench nodes`: what calls and programs on another node cost, beside the same on one node.
//!
//! ```text
//!   one      husk run            -- husk bench worker DIR        all in one region
//!   control  the same once more
//!   far      husk run --nodes 2  -- env husk bench worker DIR    HUSK_NODE=1: the worker is there
//!   away     husk run --nodes 2  -- husk bench worker DIR        HUSK_NODE=1: what it starts is
//! ```
//!
//! The first worker has answered before another one starts: this program's rewritten copy is there
//! then. Without it calls are trapped, which is another measurement.
//!
//! Each round has a batch of each side, one after the other; a ratio is the median of the rounds'
//! ratios of wall time, because the agent of the home works, too. The builds are whole runs of a
//! generated C project, on one node, on two, and on one again, in turn. What others wait after a
//! death is in `deaths`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use husk_supervisor::output::print;
use serde::Serialize;

use crate::bench::measure::machine::Machine;
use crate::bench::measure::pair::Worker;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::measure::technique::Technique;
use crate::bench::messages::deaths::{self, Wait};
use crate::bench::messages::hares;
use crate::bench::report::{median, page};
use crate::picture;

/// What the control may read.
const CONTROL: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// Files of the project that is built.
const FILES: u32 = 40;
/// Agents that are killed at most: far fewer than are replaced.
const DEATHS_MAX: u32 = 21;
/// A program that is started.
const START: &str = "start of /bin/true";
/// Rows: what is done, how often in a batch, and the most that it may cost, times one node's.
const ROWS: [(&str, u64, Option<f64>); 11] = [
    ("compute", 20_000, None),
    ("stat", 300, Some(1.1)),
    ("access, name absent", 300, None),
    ("open + close", 300, Some(1.1)),
    ("pread 4 KiB", 300, Some(1.1)),
    ("pwrite 4 KiB in place", 300, None),
    ("create + close + unlink", 200, None),
    ("rename", 200, None),
    ("readdir of 1,000", 20, None),
    (SIGNAL, 200, None),
    (START, 10, None),
];
/// A signal to a process and one back.
pub const SIGNAL: &str = "signal there and back";

/// `husk bench nodes`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row; of the builds a third of it.
    #[arg(long, default_value_t = 21, value_parser = crate::numbers::whole::<u32>(3..=1000))]
    rounds: u32,
    /// Leave the builds out.
    #[arg(long)]
    no_builds: bool,
    /// Only Hare's thirteen workloads, on one node and on two.
    #[arg(long)]
    workloads: bool,
    /// With --workloads: only those whose name contains this.
    #[arg(long, value_name = "TEXT", requires = "workloads")]
    only: Option<String>,
    /// With --workloads: also measure two nodes without this optimisation. If repeated, each is
    /// left out separately.
    #[arg(long, value_name = "TECHNIQUE", requires = "workloads")]
    without: Vec<Technique>,
    /// Write one HTML page with plots, `nodes.html`, into this directory; it is created if its
    /// parent exists.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

#[derive(Serialize, Debug)]
struct Row {
    name: String,
    /// On one node, us.
    one_us: f64,
    other_us: f64,
    /// Median of the rounds' ratios.
    ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<f64>,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rounds: u32,
    /// One node over one node: 1.0 where the figures mean something.
    control: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<Wait>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workloads: Vec<hares::Row>,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &options.report {
        picture::make_directory(directory)?;
    }
    let scratch = Scratch::create(None)?;
    let report =
        if options.workloads { workloads(&scratch, options) } else { calls(&scratch, options) }?;
    if let Some(directory) = &options.report {
        picture::write(directory, "nodes.html", &report.page())?;
    }
    let text =
        if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() };
    print(&text)?;
    let holds = CONTROL.contains(&report.control);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn workloads(scratch: &Scratch, options: &Options) -> anyhow::Result<Report> {
    let machine = Machine::look(None);
    let mut sides = hares::Sides::start(scratch, &options.without)?;
    let workloads = sides.measure(options.only.as_deref(), options.rounds)?;
    let control = median(workloads.iter().map(|row| row.control));
    let (rows, waits) = (Vec::new(), Vec::new());
    Ok(Report { machine, rounds: options.rounds, control, rows, waits, workloads })
}

/// Calls, starts, deaths and builds.
fn calls(scratch: &Scratch, options: &Options) -> anyhow::Result<Report> {
    let mut one = Worker::start(image(scratch, &[], None))?;
    each_ns(&mut one, 1, ROWS[0].0)?;
    let mut again = Worker::start(image(scratch, &[], None))?;
    let mut far = Worker::start(image(scratch, &["--nodes", "2"], Some(true)))?;
    let mut away = Worker::start(image(scratch, &["--nodes", "2"], Some(false)))?;
    let (mut rows, mut controls) = (Vec::new(), Vec::new());
    for (name, count, wanted) in ROWS {
        let mut rounds = Vec::new();
        for round in 0..=options.rounds {
            stop::check()?;
            let spend = |worker: &mut Worker| each_ns(worker, count, name);
            let figures = [spend(&mut one)?, spend(&mut far)?, spend(&mut again)?];
            if round > 0 {
                rounds.push(figures);
            }
        }
        controls.extend(rounds.iter().map(|[one, _, again]| again / one));
        let pairs: Vec<_> = rounds.iter().map(|[one, far, _]| (*one, *far)).collect();
        rows.push(row(name.to_owned(), &pairs, wanted));
    }
    for (name, count, wanted) in [(SIGNAL, 200, None), (START, 10, Some(1.5))] {
        let mut pairs = Vec::new();
        for _ in 0..options.rounds {
            stop::check()?;
            pairs.push((each_ns(&mut one, count, name)?, each_ns(&mut away, count, name)?));
        }
        rows.push(row(format!("{name}, on the other node"), &pairs, wanted));
    }
    let deaths = options.rounds.min(DEATHS_MAX);
    let mut waits = vec![deaths::of_agents(&mut far, deaths)?];
    drop((one, again, far, away));
    waits.extend(deaths::of_nodes(scratch, deaths.div_ceil(3))?);
    if !options.no_builds {
        rows.extend(builds(scratch, options.rounds.div_ceil(3))?);
    }
    let control = median(controls.into_iter());
    let (machine, workloads) = (Machine::look(None), Vec::new());
    Ok(Report { machine, rounds: options.rounds, control, rows, waits, workloads })
}

/// Wall time of one of `count`.
fn each_ns(worker: &mut Worker, count: u64, name: &str) -> anyhow::Result<f64> {
    Ok(worker.spend("batch", count, name)?.wall_ns / count as f64)
}

fn row(name: String, pairs: &[(f64, f64)], wanted: Option<f64>) -> Row {
    let one_us = median(pairs.iter().map(|pair| pair.0)) / 1e3;
    let other_us = median(pairs.iter().map(|pair| pair.1)) / 1e3;
    let ratio = median(pairs.iter().map(|(one, other)| other / one));
    Row { name, one_us, other_us, ratio, wanted }
}

/// An image, without its command.
pub fn image_of(scratch: &Scratch, nodes: &[&str]) -> Command {
    let mut image = Command::new(&scratch.program);
    image.env("HUSK_CONFIG", "none").env_remove("HUSK_NODE").current_dir(&scratch.idle);
    image.args(["run", "--discard", "--memory", "512M"]).args(nodes);
    image.arg("--mount").arg(&scratch.mount).arg("--");
    image
}

/// A worker in an image. With nodes: on the second one, or on the first with what it starts there.
pub fn image(scratch: &Scratch, nodes: &[&str], is_there: Option<bool>) -> Command {
    let mut image = image_of(scratch, nodes);
    if is_there.is_some() {
        image.env("HUSK_NODE", "1");
    }
    // The first program of a run is on the first node; what it executes is placed.
    image.args(is_there.filter(|there| *there).map(|_| "env"));
    image.arg(&scratch.program).args(["bench", "worker"]).arg(&scratch.mount);
    image
}

/// Whole builds: with one node, with two, with one again.
fn builds(scratch: &Scratch, rounds: u32) -> anyhow::Result<Vec<Row>> {
    let project = scratch.disk.join("project");
    write_project(&project)?;
    let (mut pairs, mut controls) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let figures = ["1", "2", "1"].map(|nodes| build(scratch, &project, nodes));
        let [one, two, again] = figures;
        let (one, two, again) = (one?, two?, again?);
        if round > 0 {
            pairs.push((one, two));
            controls.push((one, again));
        }
    }
    let name = format!("make -j2 of {FILES} files");
    let control = row(format!("{name}, one node again"), &controls, None);
    Ok(vec![row(name, &pairs, Some(1.1)), control])
}

fn build(scratch: &Scratch, project: &Path, nodes: &str) -> anyhow::Result<f64> {
    stop::check()?;
    let mut image = Command::new(&scratch.program);
    image.env("HUSK_CONFIG", "none").env_remove("HUSK_NODE").current_dir(project);
    image.args(["run", "--discard", "--memory", "512M", "--nodes", nodes, "--overlay"]);
    image.arg(project).args(["--", "sh", "-c"]);
    // Wall time of the build alone: making nodes is another row's.
    image.arg("s=$(date +%s%N); make -s -j2 >&2 && e=$(date +%s%N) && echo $((e - s))");
    let output = image.stdin(Stdio::null()).output().context("cannot start husk")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "make with {nodes} nodes: {}\n{said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

fn write_project(project: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(project)?;
    for n in 0..FILES {
        let body = format!("char b[64]; sprintf(b, \"%d\", x * {n} + 1); return (int)strlen(b);");
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <time.h>\n\
             int f{n}(int x) {{ {body} }}\n"
        );
        fs::write(project.join(format!("f{n}.c")), text)?;
    }
    let rules = "objects := $(patsubst %.c,%.o,$(wildcard *.c))\nall.a: $(objects)\n\
                 \tar rcs $@ $^\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n";
    Ok(fs::write(project.join("Makefile"), rules)?)
}

impl Report {
    fn table(&self) -> String {
        let Machine { cpu, cores, kernel, load, guard } = &self.machine;
        let mut text = format!(
            "{cpu}, {cores} cores, Linux {kernel}\nload {load:.1}, guard {guard}; wall time, \
             medians of {} rounds\n",
            self.rounds
        );
        if self.workloads.is_empty() {
            text += &self.calls_and_deaths();
        } else {
            text += &hares::table(&self.workloads);
        }
        let _ = writeln!(text, "\n{:<40} {:>29.2}", "control: one node, twice", self.control);
        if !CONTROL.contains(&self.control) {
            text += "\nThe control is not 1.0: this machine was too busy, measure again.\n";
        }
        text
    }

    fn calls_and_deaths(&self) -> String {
        let (one, other, ratio) = ("one node", "other", "ratio");
        let mut text = format!("\n{:<40} {one:>10} {other:>10} {ratio:>7}  wanted\n", "us");
        for Row { name, one_us, other_us, ratio, wanted } in &self.rows {
            let goal = wanted.map_or(String::new(), |most| {
                format!("<= {most} {}", if *ratio <= most { "ok" } else { "MISSED" })
            });
            let _ =
                writeln!(text, "{name:<40} {one_us:>10.1} {other_us:>10.1} {ratio:>7.2}  {goal}");
        }
        let _ = writeln!(
            text,
            "\n{:<46} {:>8} {:>8}  wanted",
            "after a death, ms", "median", "longest"
        );
        for wait in &self.waits {
            let Wait { name, median_ms, longest_ms, wanted_ms } = wait;
            let mark = if wait.is_met() { "ok" } else { "MISSED" };
            let _ = writeln!(
                text,
                "{name:<46} {median_ms:>8.1} {longest_ms:>8.1}  <= {wanted_ms} {mark}"
            );
        }
        text
    }

    /// Drawn, in the same order.
    fn page(&self) -> String {
        let times =
            |name: String, one: f64, other: f64| [name, format!("{one:.1}"), format!("{other:.1}")];
        let ratios = self.rows.iter().map(|row| (row.name.clone(), row.ratio));
        let ratios = ratios.chain(self.workloads.iter().map(|row| (row.label(), row.ratio)));
        let mut plots = vec![("Time on two nodes / time on one".to_owned(), ratios.collect())];
        let techniques = self.workloads.first().map_or(&[][..], |row| &row.without);
        for (n, (technique, _)) in techniques.iter().enumerate() {
            let worths = self.workloads.iter().map(|row| (row.label(), row.without[n].1));
            let title = format!("What {} is worth: time without / with", technique.name());
            plots.push((title, worths.collect()));
        }
        let figures = self.rows.iter().map(|row| times(row.name.clone(), row.one_us, row.other_us));
        let more = self.workloads.iter().map(|row| times(row.label(), row.one_ms, row.two_ms));
        let unit = if self.workloads.is_empty() { "us" } else { "ms" };
        let heads = ["", &format!("one node, {unit}"), &format!("two nodes, {unit}")];
        let figures: Vec<_> = figures.chain(more).collect();
        page::nodes((&self.machine, self.control), &plots, heads, &figures)
    }
}

/// The other process of the row of signals: answers each signal with one.
pub fn echo() -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal, kill};
    let mut set = SigSet::empty();
    set.add(Signal::SIGUSR1);
    set.thread_block()?;
    let parent = nix::unistd::getppid();
    // It is there.
    kill(parent, Signal::SIGUSR1)?;
    loop {
        set.wait()?;
        if nix::unistd::getppid() != parent {
            return Ok(());
        }
        kill(parent, Signal::SIGUSR1)?;
    }
}

/// `count` signals to another process, and back.
pub fn signals(count: u64) -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal, kill};
    let mut set = SigSet::empty();
    set.add(Signal::SIGUSR1);
    set.thread_block()?;
    let own = std::env::current_exe().context("cannot find this command")?;
    let mut child = Command::new(own).args(["bench", "node-echo"]).spawn()?;
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    set.wait()?;
    let exchanged = (0..count).try_for_each(|_| {
        kill(pid, Signal::SIGUSR1)?;
        set.wait().map(drop)
    });
    child.kill()?;
    child.wait()?;
    Ok(exchanged?)
}
