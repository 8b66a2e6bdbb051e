//! Development tasks; `cargo xtask check` is the whole gate.
//!
//! ```text
//! main -> check, steps (in stages)    -+-> packages            what the tests need of Debian
//!                                      +-> edges, licences     what `cargo metadata` says
//!                                      +-> fences, tidy, links what the files say
//!                                      +-> command             cargo fmt, clippy, doc, build
//!                                      +-> watch, summary      cargo test, its hangs and results
//!                                      '-> fuzz                cargo fuzz, with --full
//! ```
//!
//! Invariants
//! 1. A step fails or passes; none is skipped because a tool is missing.
//! 2. A step that fails prints the command that runs it alone.
//! 3. Every command is bounded in time.
#![forbid(unsafe_code)]

mod check;
mod command;
mod fuzz;
mod packages;
mod rules;
mod steps;
mod summary;
mod toolchain;
mod watch;
mod workspace;

use anyhow::Result;
use std::process::ExitCode;
use steps::Extent;

const USAGE: &str = "\
Usage: cargo xtask check [--quick | --full] [--yes] [STEP...]
       cargo xtask syscalls

check       runs every check of the project, or only the steps named
  --quick   a first look: what is written, the build, and how Husk does beside Linux
  --full    also the long suites (HUSK_FULL=1), and a minute of each fuzz target
  --yes     installs the Debian packages that the tests lack without a question, as where CI is set
syscalls    writes docs/syscalls.md from the client's table of calls";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<ExitCode> {
    match args.split_first().map(|(task, rest)| (task.as_str(), rest)) {
        Some(("check", rest)) => check(rest),
        Some(("syscalls", [])) => {
            rules::syscalls::write(&workspace::Workspace::load()?)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn check(args: &[String]) -> Result<ExitCode> {
    let (flags, steps): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with('-'));
    let (mut extent, mut yes) = (Extent::Whole, false);
    let mut known = check::known(&steps);
    for flag in flags {
        match flag.as_str() {
            "--quick" if extent == Extent::Whole => extent = Extent::Quick,
            "--full" if extent == Extent::Whole => extent = Extent::Full,
            "--yes" => yes = true,
            _ => known = false,
        }
    }
    if !known {
        eprintln!("{USAGE}\nsteps: {}", check::names().join(" "));
        return Ok(ExitCode::from(2));
    }
    let passed = check::check(extent, yes, &steps)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
