//! Runs a command for a bounded time, and keeps what it says.
//!
//! Invariants
//! 1. When the time is over, the command and everything it started are ended.
//! 2. Output goes to a file, so that a talkative command never waits for us.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running command is looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How a command ended.
pub struct Ended {
    /// It succeeded in time.
    pub passed: bool,
    /// What it said, and why it was ended.
    pub text: String,
}

/// Runs `command`, at most for `limit`.
pub fn run(mut command: Command, limit: Duration) -> Result<Ended> {
    let path = log_path();
    let log = File::create(&path).with_context(|| format!("cannot write {path:?}"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let child = command.spawn().context("cannot start the command")?;
    let started = Instant::now();
    let late = || (started.elapsed() > limit).then(|| over(limit));
    let ended = wait(child, late);
    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    fs::remove_file(&path)?;
    let ended = ended?;
    Ok(Ended { text: text + &ended.text, ..ended })
}

/// Says that a command was not through in time.
pub fn over(limit: Duration) -> String {
    format!("stopped after {} s\n", limit.as_secs())
}

/// A name nobody else uses, here or in another process.
fn log_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("husk-xtask-{}-{number}.log", std::process::id()))
}

/// Waits for the end, or until `stop` says why the command and all it started are to be ended.
pub fn wait(mut child: Child, mut stop: impl FnMut() -> Option<String>) -> Result<Ended> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended { passed: status.success(), text: String::new() });
        }
        if let Some(text) = stop() {
            end_tree(child.id());
            child.wait()?;
            return Ok(Ended { passed: false, text });
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Ends a process and all its descendants.
fn end_tree(root: u32) {
    let pids = tree(root).into_iter().map(|pid| pid.to_string());
    // Nobody is left to tell when `kill` fails: the processes are gone then.
    let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
}

/// A process and all its descendants.
pub fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut tree = vec![root];
    let mut next = 0;
    while next < tree.len() {
        let parent = tree[next];
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    tree
}

/// Every process and its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let after_name = text.rsplit_once(')')?.1;
        Some((pid, after_name.split_whitespace().nth(1)?.parse().ok()?))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended_with_its_children() {
        let mark = format!("3{}", std::process::id());
        let script = format!("sleep {mark} & sleep {mark}; true");
        let limit = Duration::from_millis(300);
        let ended = run(shell(&script), limit).expect("sh runs");
        assert!(!ended.passed && ended.text.contains("stopped after"));
        let argument = format!("sleep\0{mark}\0");
        let left = || {
            parents().into_iter().any(|(pid, _)| {
                let line = fs::read(format!("/proc/{pid}/cmdline"));
                line.is_ok_and(|line| line == argument.as_bytes())
            })
        };
        // A killed process needs a moment to be gone.
        let started = Instant::now();
        while left() && started.elapsed() < Duration::from_secs(5) {
            thread::sleep(LOOK_INTERVAL);
        }
        assert!(!left(), "a child was left running");
    }

    #[test]
    fn what_a_command_says_is_kept() {
        let command = shell("echo out; echo err >&2; false");
        let ended = run(command, Duration::from_secs(5)).expect("sh runs");
        assert!(!ended.passed);
        assert_eq!(ended.text, "out\nerr\n");
    }
}
