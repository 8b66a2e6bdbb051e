//! Runs cargo's tests, shown as they come, and notices when no test ends any more.
//!
//! ```text
//!   cargo ─► pipe ─► a thread: shows each line; which program runs, which tests have ended
//!                                              │
//!   wait: ended? │ all time over? │ no test has ended for too long? ─► say who, end all, fail
//! ```
//!
//! Invariants
//! 1. Tests that hang are named, with what each of their processes waits for, and their step fails
//!    at once.

use crate::command::{self, Ended};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the last lines of tests that have ended may take to come.
const LAST_LINES_MAX: Duration = Duration::from_secs(2);
/// Longest time to list a program's tests, or to print a process's stacks.
const LOOK_MAX: Duration = Duration::from_secs(20);
/// Processes shown of a program that hangs.
const PROCESSES_MAX: usize = 12;
/// Calls shown of each stack.
const STACK_CALLS: &str = "thread apply all backtrace 16";

/// How long tests may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// All of them, and what is compiled for them.
    pub all: Duration,
    /// From one test's end (or its program's start) to the next one's.
    pub quiet: Duration,
}

/// How far the tests are.
#[derive(Default)]
struct Progress {
    /// The program that runs, if one does.
    program: Option<String>,
    /// Its tests that have ended.
    ended: BTreeSet<String>,
    /// When it started, or the last one ended.
    since: Option<Instant>,
}

/// What the tests have said.
#[derive(Default)]
struct Said {
    progress: Progress,
    text: String,
}

impl Progress {
    /// Reads a line of cargo's or of a test program's, which came at `now`.
    fn note(&mut self, line: &str, now: Instant) {
        if let Some(program) = started(line) {
            *self = Self { program: Some(program.to_owned()), ..Self::default() };
        } else if line.starts_with("test result: ") {
            *self = Self::default();
            return;
        } else if let Some(name) = ended(line) {
            self.ended.insert(name.to_owned());
        } else {
            return;
        }
        self.since = Some(now);
    }

    /// Whether at `now` no test has ended for so long.
    fn hangs(&self, quiet: Duration, now: Instant) -> bool {
        self.program.is_some() && self.since.is_some_and(|since| now - since > quiet)
    }

    /// The tests that have not ended.
    fn running(&self) -> Vec<String> {
        let Some(program) = &self.program else { return Vec::new() };
        let mut list = Command::new(program);
        list.args(["--list", "--format", "terse"]);
        let text = command::run(list, LOOK_MAX).map_or(String::new(), |ended| ended.text);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.filter(|name| !self.ended.contains(*name)).map(str::to_owned).collect()
    }
}

/// The program that cargo says it starts.
fn started(line: &str) -> Option<&str> {
    let (_, program) = line.trim_start().strip_prefix("Running ")?.rsplit_once('(')?;
    program.strip_suffix(')')
}

/// The test that has ended, well or not.
fn ended(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    ["ok", "FAILED", "ignored"].iter().any(|end| result.starts_with(end)).then_some(name)
}

/// Runs `command`, which is `cargo test`, within `limits`; shows what it says in `shown`, and
/// returns that, too.
pub fn run(
    mut command: Command,
    limits: Limits,
    shown: impl Write + Send + 'static,
) -> Result<(Ended, String)> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().context("cannot start the tests")?;
    // Our own ends of the pipe: its reader would wait for them.
    drop(command);
    let said = Arc::new(Mutex::new(Said::default()));
    let shower = thread::spawn({
        let said = Arc::clone(&said);
        move || show(reader, shown, &said)
    });
    let (cargo, begun) = (child.id(), Instant::now());
    let ended = command::wait(child, || {
        let progress = &said.lock().unwrap_or_else(PoisonError::into_inner).progress;
        if progress.hangs(limits.quiet, Instant::now()) {
            let why = format!("no test has ended for {} s\n", limits.quiet.as_secs());
            return Some(why + &report(progress, cargo));
        }
        let late = || command::over(limits.all) + &report(progress, cargo);
        (begun.elapsed() > limits.all).then(late)
    });
    let end = Instant::now() + LAST_LINES_MAX;
    // A process that outlives its test may keep the pipe open.
    while !shower.is_finished() && Instant::now() < end {
        thread::sleep(command::LOOK_INTERVAL);
    }
    let text = std::mem::take(&mut said.lock().unwrap_or_else(PoisonError::into_inner).text);
    Ok((ended?, text))
}

/// Shows lines as they come.
fn show(reader: PipeReader, mut shown: impl Write, said: &Mutex<Said>) {
    let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        // Nobody may be there to read it; the tests go on.
        let _ = shown.write_all(&line);
        let (text, now) = (String::from_utf8_lossy(&line), Instant::now());
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.progress.note(text.trim_end(), now);
        said.text.push_str(&text);
        line.clear();
    }
}

/// Who had not ended, and what all processes were doing.
fn report(progress: &Progress, cargo: u32) -> String {
    let program = progress.program.as_deref().unwrap_or("no test program");
    let mut text = format!("{program} was running:\n");
    text.extend(progress.running().iter().map(|name| format!("  {name}\n")));
    for pid in command::tree(cargo).into_iter().skip(1).take(PROCESSES_MAX) {
        text.push_str(&process(pid));
    }
    text
}

/// A process, what its threads wait for in Linux, and their stacks where `gdb` is installed.
fn process(pid: u32) -> String {
    let read = |path: &str| fs::read_to_string(format!("/proc/{pid}/{path}")).unwrap_or_default();
    let mut text = format!("process {pid}: {}\n", read("cmdline").replace('\0', " "));
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let of = |name: &str| read(&format!("task/{thread}/{name}")).trim_end().to_owned();
        let (name, place, call) = (of("comm"), of("wchan"), of("syscall"));
        text.push_str(&format!("  {thread} {name}: {place} {call}\n"));
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", STACK_CALLS]);
    let stacks = command::run(gdb, LOOK_MAX).map_or(String::new(), |ended| ended.text);
    text + &stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `cargo test` would print before it hangs.
    const HANG: &str = "\
        echo '     Running tests/one.rs (./one)' >&2
        echo 'test a::first ... ok'
        echo 'test a::second ... FAILED'
        sleep 60";

    fn told(script: &str, all: u64, quiet: u64) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let limits =
            Limits { all: Duration::from_millis(all), quiet: Duration::from_millis(quiet) };
        run(command, limits, std::io::sink()).expect("sh runs").0
    }

    #[test]
    fn a_test_that_hangs_is_named_and_ended() {
        let directory = std::env::temp_dir().join(format!("husk-watch-{}", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        let list = directory.join("one");
        let names = "#!/bin/sh\necho 'a::first: test\na::second: test\na::third: test'\n";
        fs::write(&list, names).expect("a program");
        let chmod = Command::new("chmod").arg("+x").arg(&list).status();
        assert!(chmod.expect("chmod runs").success());
        let script = HANG.replace("./one", list.to_str().expect("a plain path"));
        let ended = told(&script, 20_000, 300);
        fs::remove_dir_all(&directory).expect("removed");
        let text = &ended.text;
        assert!(!ended.passed && text.starts_with("no test has ended for "), "{text}");
        assert!(text.contains("/one was running:\n  a::third\nprocess "), "{text}");
        assert!(text.contains("sleep 60"), "{text}");
    }

    #[test]
    fn only_a_program_whose_tests_do_not_end_hangs() {
        let (quiet, start) = (Duration::from_secs(600), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        let mut progress = Progress::default();
        progress.note("   Compiling husk v0.1.0", start);
        assert!(!progress.hangs(quiet, at(5000)), "compiling takes as long as it takes");
        progress.note("     Running tests/one.rs (./one)", at(5000));
        assert!(!progress.hangs(quiet, at(5600)) && progress.hangs(quiet, at(5601)));
        progress.note("test a ... ok", at(5500));
        progress.note("what a test prints", at(6000));
        assert!(!progress.hangs(quiet, at(6100)) && progress.hangs(quiet, at(6101)));
        progress.note("test result: ok. 1 passed", at(6100));
        assert!(!progress.hangs(quiet, at(9000)), "between two programs nothing runs");
    }

    #[test]
    fn all_of_it_has_a_limit() {
        let ended = told("sleep 60", 200, 60_000);
        assert!(!ended.passed && ended.text.contains("was running"), "{}", ended.text);
    }
}
