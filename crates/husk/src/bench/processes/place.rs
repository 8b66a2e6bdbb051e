//! `husk bench place`: what each policy of placement does to a build and to a script that forks.
//!
//! ```text
//!   parent ──► husk run -- husk bench placed ──► sh -c WORK, with HUSK_PLACE=host, host again,
//!                one image                        stay, ... in turn, round by round
//! ```
//!
//! All happens in one image: what is compared is the policy and nothing else. `host` is Linux's own
//! scheduler; a second `host` is the control, which must read 1.0.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::Context;
use husk_proto::place::Policy;
use serde::{Deserialize, Serialize};

use crate::bench::measure::machine::Machine;
use crate::bench::measure::worker::children_us;
use crate::bench::measure::{scratch, stop};
use crate::bench::report::median;

/// A script that starts many small processes: pipelines, subshells, background jobs.
const FORKS: &str = "i=0; while [ $i -lt 120 ]; do (echo $i | cat; /bin/true) > /dev/null; \
                     /bin/true & i=$((i + 1)); done; wait";
/// What the second `host` is called.
const CONTROL: &str = "host again";

/// `husk bench place`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
    /// Rounds of each row.
    #[arg(long, default_value_t = 9, value_parser = crate::numbers::whole::<u32>(1..=200))]
    rounds: u32,
    /// Directory of a project that `make` builds.
    #[arg(long, value_name = "DIR", default_value = "examples/hello-c")]
    project: PathBuf,
    /// Jobs of `make` at a time [default: the cores online].
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=1024))]
    jobs: Option<u32>,
    /// The `--guard` of `husk run`: `on` or `off`.
    #[arg(long, value_name = "on|off")]
    guard: Option<String>,
}

/// One run of a work under a policy.
#[derive(Serialize, Deserialize, Debug, Clone, Copy)]
struct Spent {
    wall_ms: f64,
    cpu_ms: f64,
}

/// The rounds of a work: a run for each policy, in the order of `policies`.
#[derive(Serialize, Deserialize, Debug)]
struct Rounds {
    work: String,
    rounds: Vec<Vec<Spent>>,
}

/// A work under a policy, against Linux's own scheduler.
#[derive(Serialize, Debug)]
struct Row {
    work: String,
    policy: &'static str,
    wall_ms: f64,
    cpu_ms: f64,
    /// Above 1 it is faster than `host`: medians of the rounds' quotients.
    wall_ratio: f64,
    cpu_ratio: f64,
}

#[derive(Serialize, Debug)]
struct Report {
    machine: Machine,
    rounds: u32,
    project: PathBuf,
    rows: Vec<Row>,
}

/// `host` comes first, and once more as its own control.
fn policies() -> Vec<(Policy, &'static str)> {
    let mut all: Vec<_> = Policy::ALL.map(|policy| (policy, policy.name())).to_vec();
    all.insert(1, (Policy::Host, CONTROL));
    all
}

/// The side in the image: works in `directory`, prints what it took.
pub fn inside(directory: &Path, project: &Path, rounds: u32, jobs: u32) -> anyhow::Result<()> {
    let copy = Command::new("cp").arg("-r").arg(project).arg(directory.join("project")).status()?;
    anyhow::ensure!(copy.success(), "cannot copy {}", project.display());
    let build = format!("make -s -B -C project -j{jobs} > /dev/null");
    let mut found = Vec::new();
    for (work, script) in [("build", build.as_str()), ("forks", FORKS)] {
        // One that does not count.
        spend(directory, script, Policy::Host)?;
        let turn = |round: u32| {
            let all = policies();
            let mut spent = vec![Spent { wall_ms: 0.0, cpu_ms: 0.0 }; all.len()];
            for n in 0..all.len() {
                // Each begins as often as any other.
                let n = (n + round as usize) % all.len();
                spent[n] = spend(directory, script, all[n].0)?;
            }
            anyhow::Ok(spent)
        };
        let rounds = (0..rounds).map(turn).collect::<anyhow::Result<_>>()?;
        found.push(Rounds { work: work.to_owned(), rounds });
    }
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn spend(directory: &Path, script: &str, policy: Policy) -> anyhow::Result<Spent> {
    let (began, before) = (Instant::now(), children_us()?);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(directory).env("HUSK_PLACE", policy.name());
    let status = shell.stdin(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "under {}: {status}", policy.name());
    let wall_ms = began.elapsed().as_secs_f64() * 1e3;
    Ok(Spent { wall_ms, cpu_ms: (children_us()? - before) as f64 / 1e3 })
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let project = options.project.canonicalize();
    let project = project.with_context(|| format!("cannot find {}", options.project.display()))?;
    anyhow::ensure!(project.join("Makefile").exists(), "{} has no Makefile", project.display());
    let machine = Machine::look(options.guard.as_deref());
    let jobs = options.jobs.unwrap_or(machine.cores as u32);
    let scratch = scratch::Scratch::create(None)?;
    let mut image = Command::new(&scratch.program);
    image.env("HUSK_CONFIG", "none").env_remove("HUSK_PLACE").current_dir(&scratch.idle);
    image.args(["run", "--discard", "--memory", "1G", "--mount"]).arg(&scratch.mount);
    image.args(options.guard.iter().map(|guard| format!("--guard={guard}"))).arg("--");
    image.arg(&scratch.program).args(["bench", "placed"]).arg(&scratch.mount).arg(&project);
    image.args([options.rounds.to_string(), jobs.to_string()]);
    let output = image.stderr(Stdio::inherit()).output().context("cannot start husk run")?;
    stop::check()?;
    anyhow::ensure!(output.status.success(), "the image ended with {}", output.status);
    let found: Vec<Rounds> = serde_json::from_slice(&output.stdout).context("half an answer")?;
    let rows = found.iter().flat_map(rows).collect();
    let report = Report { machine, rounds: options.rounds, project, rows };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print_table();
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(found: &Rounds) -> Vec<Row> {
    let row = |(n, (_, policy)): (usize, (Policy, &'static str))| {
        let of =
            |pick: &dyn Fn(&[Spent]) -> f64| median(found.rounds.iter().map(|round| pick(round)));
        Row {
            work: found.work.clone(),
            policy,
            wall_ms: of(&|round| round[n].wall_ms),
            cpu_ms: of(&|round| round[n].cpu_ms),
            wall_ratio: of(&|round| round[0].wall_ms / round[n].wall_ms.max(0.001)),
            cpu_ratio: of(&|round| round[0].cpu_ms / round[n].cpu_ms.max(0.001)),
        }
    };
    policies().into_iter().enumerate().map(row).collect()
}

impl Report {
    fn print_table(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}, {} rounds; ms, medians", machine.load, self.rounds);
        println!("ratios are time under host over time under the policy: above 1 it is faster\n");
        println!("{:<6} {:<14} {:>9} {:>9}   wall    CPU", "", "", "wall", "CPU");
        for row in &self.rows {
            let Row { work, policy, wall_ms, cpu_ms, wall_ratio, cpu_ratio } = row;
            println!(
                "{work:<6} {policy:<14} {wall_ms:>9.1} {cpu_ms:>9.1} {wall_ratio:>6.3} \
                 {cpu_ratio:>6.3}"
            );
        }
    }
}
