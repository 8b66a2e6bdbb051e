//! The steps of `cargo xtask check`, in order: the quick ones first.

use crate::command::{self, Ended};
use crate::finding::Finding;
use crate::watch::{self, Limits};
use crate::workspace::{Workspace, cargo};
use crate::{edges, fences, fuzz, licences, links, pins, syscalls, tidy, toolchain};
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

type Static = fn(&Workspace) -> Result<Vec<Finding>>;

/// What a step does.
enum Work {
    /// Looks at what is written.
    Look(Static),
    /// Runs cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// Runs cargo's tests with these arguments, shown as they come.
    Tests(&'static [&'static str]),
    /// Does this with `--full`, or when it is named.
    Long(fn(&Workspace) -> Result<Ended>),
}

/// The steps: name, work.
const STEPS: &[(&str, Work)] = &[
    ("edges", Work::Look(|workspace| Ok(edges::check(workspace)))),
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
    // The region's protocols under a model checker, in the place of the region's memory.
    (
        "models",
        Work::Tests(&[
            "test",
            "--package",
            "husk-carrier",
            "--features",
            "models",
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

/// Runs the steps named (none = all); whether all passed.
pub fn check(full: bool, chosen: &[&String]) -> Result<bool> {
    toolchain::complete()?;
    let workspace = Workspace::load()?;
    let started = Instant::now();
    let mut failed = Vec::new();
    let wanted = |name: &str, work: &Work| {
        let named = chosen.iter().any(|step| *step == name);
        named || chosen.is_empty() && (full || !matches!(work, Work::Long(_)))
    };
    for (name, work) in STEPS.iter().filter(|(name, work)| wanted(name, work)) {
        if !step(&workspace, name, work, full)? {
            failed.push(*name);
        }
    }
    let seconds = started.elapsed().as_secs_f32();
    if failed.is_empty() {
        println!("check          ok    {seconds:6.1} s");
    } else {
        println!("check          FAILED {seconds:5.1} s: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn step(workspace: &Workspace, name: &str, work: &Work, full: bool) -> Result<bool> {
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
        Work::Tests(arguments) => tests(workspace, arguments, full)?,
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
fn tests(workspace: &Workspace, arguments: &[&str], full: bool) -> Result<(bool, String, String)> {
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
    let ended = watch::run(command, limits, std::io::stdout())?;
    Ok((ended.passed, ended.text, format!("{prefix}{}", rerun(arguments))))
}
