//! The targets of `fuzz/`, each for a minute.
//!
//! `cargo fuzz` is installed on the first run, at one version, below `target/`. It builds with
//! coverage and without a sanitizer: those are the unstable compiler's, and the region lies at
//! addresses that they take. What was found lies in `fuzz/artifacts`, and runs again by
//! `cargo fuzz run --sanitizer none TARGET FILE`.

use crate::command::{self, Ended};
use crate::workspace::{Workspace, cargo};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "0.13.2";
const TARGETS: &[&str] = &["calls", "operations", "messages"];
const RUN_S: u64 = 60;
/// To fetch and build the tool, and a target.
const BUILD_MAX: Duration = Duration::from_secs(600);

/// Runs each target; what is found ends that.
pub fn run(workspace: &Workspace) -> Result<Ended> {
    let tools = workspace.target.join(format!("tools/cargo-fuzz-{VERSION}"));
    let mut said = String::new();
    if !tools.join("bin/cargo-fuzz").exists() {
        let ended = command::run(install(&tools), BUILD_MAX)?;
        if !ended.passed {
            return Ok(ended);
        }
    }
    for target in TARGETS {
        let limit = BUILD_MAX + Duration::from_secs(2 * RUN_S);
        let ended = command::run(fuzz(workspace, &tools, target)?, limit)?;
        said += &ended.text;
        if !ended.passed {
            return Ok(Ended { passed: false, text: said });
        }
        let last = ended.text.lines().rev().find(|line| line.starts_with("Done "));
        println!("fuzz {target}: {}", last.unwrap_or("no word of how many runs"));
    }
    Ok(Ended { passed: true, text: said })
}

fn install(root: &Path) -> Command {
    let mut command = Command::new(cargo());
    let which = format!("cargo-fuzz@{VERSION}");
    command.args(["install", "--locked", "--debug", "--no-track", &which, "--root"]).arg(root);
    command
}

fn fuzz(workspace: &Workspace, tools: &Path, target: &str) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).collect::<Vec<PathBuf>>();
    let path = std::env::join_paths([tools.join("bin")].into_iter().chain(folders));
    let mut command = Command::new(cargo());
    command.args(["fuzz", "run", "--sanitizer", "none", "--target-dir"]);
    command.arg(workspace.target.join("fuzz")).arg(target);
    command.args(["--".to_owned(), format!("-max_total_time={RUN_S}")]);
    command.current_dir(&workspace.root).env("PATH", path.context("an odd PATH")?);
    Ok(command)
}
