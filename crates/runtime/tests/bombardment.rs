//! Signals from outside at a high rate, as Go allows: the hang that a plain stress never shows.
//!
//! A runtime that leaves one SIGURG blocked and pending stops a goroutine from being preempted;
//! the collector then waits for ever. So the program watches its collector, and we look at every
//! thread's blocked mask while it runs.

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{finished, programs, scratch, status, under_runtime};

const TGKILL: usize = 234;
const SIGURG: usize = 23;
const LIMIT_S: u64 = 60;

/// Threads of `pid` that block SIGURG now.
fn blocking(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let blocked = |tid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
        let text = text.unwrap_or_default();
        let mask = text.lines().find_map(|l| l.strip_prefix("SigBlk:"));
        let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
        mask >> (SIGURG - 1) & 1 == 1
    };
    threads.filter_map(|t| t.file_name().to_str()?.parse().ok()).filter(blocked).collect()
}

fn bombard(pid: u32, until: Instant) {
    while Instant::now() < until {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return };
        for tid in threads.flatten().filter_map(|t| t.file_name().to_str()?.parse().ok()) {
            for _ in 0..16 {
                let tid: usize = tid;
                // SAFETY: a signal that a Go program expects, to our own child.
                unsafe { husk_host::syscall(TGKILL, [pid as usize, tid, SIGURG, 0, 0, 0]) };
            }
        }
    }
}

#[test]
fn no_signal_stays_blocked_under_bombardment() {
    let program = scratch().join("endless");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(programs().join("endless.go"));
    build.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
    assert!(build.status().expect("go is installed").success());
    let mut command = under_runtime(&[program.to_str().expect("text")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let pid = child.id();
    bombard(pid, Instant::now() + Duration::from_millis(2200));
    // A thread may block all signals for an instant (clone); none may stay that way.
    let mut stuck = blocking(pid);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        let now = blocking(pid);
        stuck.retain(|tid| now.contains(tid));
    }
    assert!(stuck.is_empty(), "threads {stuck:?} block SIGURG");
    let output = finished(child, LIMIT_S);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(status(&output), 0, "{text}");
    assert!(text.ends_with("done true true true true\n"), "{text}");
}
