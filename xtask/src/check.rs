//! The steps of `cargo xtask check`, in order: the quick ones first.

use crate::command::{self, Ended};
use crate::finding::Finding;
use crate::toolchain;
use crate::watch::{self, Limits};
use crate::workspace::{Workspace, cargo};
use crate::{
    edges, fences, fuzz, licences, links, packages, pins, siblings, summary, syscalls, tidy,
};
use anyhow::Result;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time for a step that compiles, from an empty target folder.
const COMPILE_LIMIT: Duration = Duration::from_secs(600);
/// Longest times for tests, and for the long suites: on a slow machine, where one test may install
/// a suite or run a document's commands.
const TEST_LIMITS: Limits =
    Limits { all: Duration::from_secs(2100), quiet: Duration::from_secs(600) };
const FULL_TEST_LIMITS: Limits =
    Limits { all: Duration::from_secs(4 * 3600), quiet: Duration::from_secs(3600) };

/// The commands of cargo that are part of a first look.
const QUICK: &[&str] = &["fmt", "build"];

type Static = fn(&Workspace) -> Result<Vec<Finding>>;

/// What a step does.
enum Work {
    /// Looks at what is written.
    Look(Static),
    /// Runs cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// Runs cargo's tests with these arguments, shown as they come.
    Tests(&'static [&'static str]),
    /// The same with `--quick` (the tests are among those of another step), or when it is named.
    First(&'static [&'static str]),
    /// Does this with `--full`, or when it is named.
    Long(fn(&Workspace) -> Result<Ended>),
}

/// How much is checked where no step is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What takes little time, for a first look.
    Quick,
    /// Everything but the long suites.
    Whole,
    /// Everything.
    Full,
}

/// The steps: name, work.
const STEPS: &[(&str, Work)] = &[
    (
        "edges",
        Work::Look(|workspace| Ok([edges::check(workspace), siblings::check(workspace)].concat())),
    ),
    ("licences", Work::Look(licences::check)),
    ("fences", Work::Look(|workspace| Ok(fences::check(workspace)))),
    ("tidy", Work::Look(tidy::check)),
    ("links", Work::Look(|workspace| Ok(links::check(workspace)))),
    ("pins", Work::Look(|workspace| Ok(pins::check(workspace)))),
    ("syscalls", Work::Look(syscalls::check)),
    ("fmt", Work::Cargo(&["fmt", "--all", "--check"])),
    ("clippy", Work::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    (
        "clippy-runtime",
        Work::Cargo(&[
            "clippy",
            "--package",
            "husk-runtime",
            "--bin",
            "husk-rt",
            "--target",
            toolchain::RUNTIME_TARGET,
            "--",
            "-D",
            "warnings",
        ]),
    ),
    ("doc", Work::Cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"])),
    // What the tests run; also what the README's first command builds.
    ("build", Work::Cargo(&["build", "--release", "--package", "husk"])),
    (
        "first",
        Work::First(&["test", "--package", "husk-tests", "--test", "programs", "conformance::"]),
    ),
    // Death at every store of every operation, no room at every allocation: needs kill points
    // compiled in.
    (
        "kills",
        Work::Tests(&[
            "test",
            "--package",
            "husk-carrier",
            "--features",
            "kill-points",
            "--test",
            "kills",
            "--test",
            "full",
            "--test",
            "reserve",
            "--test",
            "wide",
            "--",
            // How many were killed.
            "--show-output",
        ]),
    ),
    // The protocols of the region and of links under a model checker, in the place of their memory.
    (
        "models",
        Work::Tests(&[
            "test",
            "--package",
            "husk-carrier",
            "--package",
            "husk-link",
            "--features",
            "husk-carrier/models,husk-link/models",
            "--test",
            "models",
        ]),
    ),
    ("test", Work::Tests(&["test", "--workspace", "--no-fail-fast"])),
    // A workspace of its own, which the steps above do not see.
    (
        "fuzz-builds",
        Work::Cargo(&[
            "check",
            "--locked",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target-dir",
            "target/fuzz",
        ]),
    ),
    ("fuzz", Work::Long(fuzz::run)),
];

/// Names of all steps.
pub fn names() -> Vec<&'static str> {
    STEPS.iter().map(|(name, _)| *name).collect()
}

/// Whether all of `steps` exist.
pub fn known(steps: &[&String]) -> bool {
    steps.iter().all(|step| names().contains(&step.as_str()))
}

/// Runs the steps named (none = all of this extent); whether all passed. `yes`: installs what the
/// tests lack without a question.
pub fn check(extent: Extent, yes: bool, chosen: &[&String]) -> Result<bool> {
    toolchain::complete()?;
    let wanted = |(name, work): &&(&str, Work)| {
        chosen.iter().any(|step| step == name) || chosen.is_empty() && work.is_in(extent)
    };
    let steps: Vec<_> = STEPS.iter().filter(wanted).collect();
    if steps.iter().any(|(_, work)| matches!(work, Work::Tests(_))) {
        packages::complete(yes)?;
    }
    let workspace = Workspace::load()?;
    let started = Instant::now();
    let (mut failed, mut said) = (Vec::new(), String::new());
    for (name, work) in steps {
        if !step(&workspace, name, work, extent == Extent::Full, &mut said)? {
            failed.push(*name);
        }
    }
    print!("{}", summary::of(&said));
    let seconds = started.elapsed().as_secs_f32();
    if failed.is_empty() {
        println!("check          ok    {seconds:6.1} s");
    } else {
        println!("check          FAILED {seconds:5.1} s: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

impl Work {
    /// Whether it belongs to an extent.
    fn is_in(&self, extent: Extent) -> bool {
        match self {
            Work::Look(_) => true,
            Work::Cargo(arguments) => extent != Extent::Quick || QUICK.contains(&arguments[0]),
            Work::Tests(_) => extent != Extent::Quick,
            Work::First(_) => extent == Extent::Quick,
            Work::Long(_) => extent == Extent::Full,
        }
    }
}

/// Runs a step; what its tests say is added to `said`.
fn step(
    workspace: &Workspace,
    name: &str,
    work: &Work,
    full: bool,
    said: &mut String,
) -> Result<bool> {
    let started = Instant::now();
    let (passed, text, rerun) = match work {
        Work::Look(look) => {
            let found = look(workspace)?;
            let text = found.iter().map(|finding| format!("{finding}\n")).collect();
            (found.is_empty(), text, format!("cargo xtask check {name}"))
        }
        Work::Cargo(arguments) => {
            let ended = command::run(cargo_command(arguments), COMPILE_LIMIT)?;
            (ended.passed, ended.text, rerun(arguments))
        }
        Work::Tests(arguments) | Work::First(arguments) => tests(workspace, arguments, full, said)?,
        Work::Long(run) => {
            let ended = run(workspace)?;
            (ended.passed, ended.text, format!("cargo xtask check {name}"))
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

/// Warnings of rustdoc count as errors; the other tools get that by argument.
fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command.args(arguments).env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn rerun(arguments: &[&str]) -> String {
    let flags = if arguments.contains(&"doc") { "RUSTDOCFLAGS='-D warnings' " } else { "" };
    format!("{flags}cargo {}", arguments.join(" "))
}

/// The tests use the command that the step before built (`HUSK_BIN`), not one more.
fn tests(
    workspace: &Workspace,
    arguments: &[&str],
    full: bool,
    said: &mut String,
) -> Result<(bool, String, String)> {
    let mut command = cargo_command(arguments);
    let built = workspace.target.join("release/husk");
    if built.exists() {
        command.env("HUSK_BIN", built);
    }
    let (limits, prefix) = if full {
        command.env("HUSK_FULL", "1");
        (FULL_TEST_LIMITS, "HUSK_FULL=1 ")
    } else {
        (TEST_LIMITS, "")
    };
    let (ended, lines) = watch::run(command, limits, std::io::stdout())?;
    said.push_str(&lines);
    Ok((ended.passed, ended.text, format!("{prefix}{}", rerun(arguments))))
}
