//! Processes of a run, found through /proc by a marker in their environment.

use std::fmt::Write;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Threads described at most when a run hangs.
const THREADS_MAX: usize = 40;

/// One process of a run.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its process id.
    pub pid: i32,
    /// Its arguments, joined by spaces.
    pub arguments: String,
}

/// Every living process whose environment holds `marker`.
pub fn marked(marker: &str) -> Vec<Found> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| holds(pid, marker))
        .map(|pid| Found { pid, arguments: arguments(pid) })
        .collect()
}

fn holds(pid: i32, marker: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|entry| entry.ends_with(marker.as_bytes()))
}

fn arguments(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

/// kill -9; false when it had ended before.
pub fn kill(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

/// What every thread of the marked processes is doing, for the report of a hang.
pub fn describe(marker: &str) -> String {
    let mut text = String::new();
    for found in marked(marker) {
        let _ = writeln!(text, "  process {}: {}", found.pid, clipped(&found.arguments, 120));
        for thread in threads(found.pid).into_iter().take(THREADS_MAX) {
            let _ = writeln!(text, "    {}", describe_thread(found.pid, thread));
        }
    }
    text
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn describe_thread(pid: i32, thread: i32) -> String {
    let read = |what| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/{what}"));
        text.unwrap_or_default().trim().to_owned()
    };
    let status = read("status");
    let field = |name| field(&status, name).unwrap_or("?").to_owned();
    format!(
        "thread {thread} {}: blocked {} pending {}/{} wchan {} syscall {}",
        field("State:"),
        field("SigBlk:"),
        field("SigPnd:"),
        field("ShdPnd:"),
        read("wchan"),
        clipped(&read("syscall"), 60),
    )
}

/// The value of a line of /proc/PID/status.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn clipped(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}
