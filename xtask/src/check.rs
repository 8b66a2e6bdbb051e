//! Runs the steps of `cargo xtask check` (`steps`).
//!
//! What the tests of a stage's second row print is shown when they have ended.

use crate::command;
use crate::steps::{self, Extent, Row, STAGES, TESTED, Work};
use crate::toolchain;
use crate::watch::{self, Limits};
use crate::workspace::{Workspace, cargo};
use crate::{packages, summary};
use anyhow::Result;
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for a step that compiles, from an empty target folder.
const COMPILE_LIMIT: Duration = Duration::from_secs(900);
/// The same for a lint, which gives way to tests for as long as they run.
const LINT_LIMIT: Duration = Duration::from_secs(3000);
/// Longest times for tests, and for the long suites: on a slow machine, where one test may install
/// a suite or run a document's commands.
const TEST_LIMITS: Limits =
    Limits { all: Duration::from_secs(2100), quiet: Duration::from_secs(600) };
const FULL_TEST_LIMITS: Limits =
    Limits { all: Duration::from_secs(4 * 3600), quiet: Duration::from_secs(3600) };

/// How many tests of a program run at the same time: one more than there are cores, as most of them
/// wait for others most of the time.
const THREADS: &str = "RUST_TEST_THREADS";

/// What a row has done.
#[derive(Default)]
struct Done {
    failed: Vec<&'static str>,
    /// What its tests said.
    said: String,
}

/// What a step needs to know.
struct Context<'a> {
    workspace: &'a Workspace,
    full: bool,
    /// Tests are shown as they come.
    shown: bool,
}

/// Names of all steps.
pub fn names() -> Vec<&'static str> {
    steps::all().map(|(name, _)| *name).collect()
}

/// Whether all of `steps` exist.
pub fn known(steps: &[&String]) -> bool {
    steps.iter().all(|step| names().contains(&step.as_str()))
}

/// Runs the steps named (none = all of this extent); whether all passed. `yes`: installs what the
/// tests lack without a question.
pub fn check(extent: Extent, yes: bool, chosen: &[&String]) -> Result<bool> {
    toolchain::complete()?;
    let wanted = |name: &str, work: &Work| {
        chosen.iter().any(|step| *step == name) || chosen.is_empty() && work.is_in(extent)
    };
    if steps::all().any(|(name, work)| wanted(name, work) && work.is_tests()) {
        packages::complete(yes)?;
    }
    let workspace = Workspace::load()?;
    let started = Instant::now();
    let mut all = Done::default();
    for stage in STAGES {
        let context = |at: usize| Context {
            workspace: &workspace,
            full: extent == Extent::Full,
            shown: at == 0 || !chosen.is_empty(),
        };
        let rows = stage.iter().enumerate().map(|(at, row)| (context(at), *row));
        let rows: Vec<Result<Done>> = thread::scope(|scope| {
            let rows: Vec<_> =
                rows.map(|(context, row)| scope.spawn(move || context.row(row, wanted))).collect();
            rows.into_iter().map(|row| row.join().expect("a row does not panic")).collect()
        });
        for row in rows {
            let row = row?;
            all.failed.extend(row.failed);
            all.said.push_str(&row.said);
        }
    }
    print!("{}", summary::of(&all.said));
    let seconds = started.elapsed().as_secs_f32();
    if all.failed.is_empty() {
        println!("check          ok    {seconds:6.1} s");
    } else {
        println!("check          FAILED {seconds:5.1} s: {}", all.failed.join(", "));
    }
    Ok(all.failed.is_empty())
}

impl Context<'_> {
    /// Runs those steps of a row that are wanted.
    fn row(&self, row: Row, wanted: impl Fn(&str, &Work) -> bool) -> Result<Done> {
        let mut done = Done::default();
        for (name, work) in row.iter().filter(|(name, work)| wanted(name, work)) {
            if !self.step(name, work, &mut done.said)? {
                done.failed.push(name);
            }
        }
        Ok(done)
    }

    /// Runs a step; what its tests say is added to `said`.
    fn step(&self, name: &str, work: &Work, said: &mut String) -> Result<bool> {
        let started = Instant::now();
        let alone = format!("cargo xtask check {}{name}", if self.full { "--full " } else { "" });
        let (passed, text, rerun) = match work {
            Work::Look(look) => {
                let found = look(self.workspace)?;
                let text = found.iter().map(|finding| format!("{finding}\n")).collect();
                (found.is_empty(), text, alone)
            }
            Work::Cargo(arguments) => {
                let ended = command::run(cargo_command(arguments), COMPILE_LIMIT)?;
                (ended.passed, ended.text, rerun(arguments))
            }
            Work::Lint(arguments) => {
                let ended = command::run(giving_way(cargo_command(arguments)), LINT_LIMIT)?;
                (ended.passed, ended.text, rerun(arguments))
            }
            Work::Compile => {
                let all = self.selected(|_| true);
                let arguments = [TESTED, &words(&all), &["--no-run"]].concat();
                let ended = command::run(cargo_command(&arguments), COMPILE_LIMIT)?;
                (ended.passed, ended.text, alone)
            }
            Work::Programs(programs, more) => {
                let programs: Vec<_> = programs.iter().flat_map(|name| ["--test", name]).collect();
                let arguments = [TESTED, &["--no-fail-fast"], &programs, more].concat();
                self.tests(&arguments, alone, said)?
            }
            Work::Rest => {
                let rest = self.selected(|name| steps::named().all(|named| named != name));
                let arguments = [TESTED, &["--no-fail-fast"], &words(&rest)].concat();
                self.tests(&arguments, alone, said)?
            }
            Work::Tests(arguments) | Work::First(arguments) => {
                self.tests(arguments, rerun(arguments), said)?
            }
            Work::Long(run) => {
                let ended = run(self.workspace)?;
                (ended.passed, ended.text, alone)
            }
        };
        let seconds = started.elapsed().as_secs_f32();
        if passed {
            println!("{name:14} ok    {seconds:6.1} s");
        } else {
            println!("{text}{name:14} FAILED {seconds:5.1} s   again: {rerun}");
        }
        Ok(passed)
    }

    /// Cargo's words for the unit tests, and for those test programs that `wanted` takes.
    fn selected(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut words = vec!["--lib".to_owned()];
        for target in self.workspace.members().flat_map(|package| &package.targets) {
            let kind = target.kind[0].as_str();
            let is_unit = kind == "bin" && target.test;
            if is_unit || kind == "test" && !target.is_model() && wanted(&target.name) {
                words.extend([format!("--{kind}"), target.name.clone()]);
            }
        }
        words
    }

    /// The tests use the command that the step before built (`HUSK_BIN`), not one more.
    fn tests(
        &self,
        arguments: &[&str],
        again: String,
        said: &mut String,
    ) -> Result<(bool, String, String)> {
        let mut command = cargo_command(arguments);
        let built = self.workspace.target.join("release/husk");
        if built.exists() {
            command.env("HUSK_BIN", built);
        }
        if std::env::var_os(THREADS).is_none() {
            let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
            command.env(THREADS, (cores + 1).to_string());
        }
        let limits = if self.full { FULL_TEST_LIMITS } else { TEST_LIMITS };
        if self.full {
            command.env("HUSK_FULL", "1");
        }
        let (ended, lines) = match self.shown {
            true => watch::run(command, limits, std::io::stdout())?,
            false => watch::run(command, limits, std::io::sink())?,
        };
        if !self.shown {
            // Nobody may be there to read it.
            let _ = std::io::stdout().lock().write_all(lines.as_bytes());
        }
        said.push_str(&lines);
        Ok((ended.passed, ended.text, again))
    }
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// Warnings of rustdoc count as errors; the other tools get that by argument.
fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command.args(arguments).env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The same command at the lowest priority.
fn giving_way(command: Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    nice.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    nice
}

fn rerun(arguments: &[&str]) -> String {
    let flags = if arguments.contains(&"doc") { "RUSTDOCFLAGS='-D warnings' " } else { "" };
    format!("{flags}cargo {}", arguments.join(" "))
}
