//! One bounded run of a command: its output, its status, its processes, its end.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process;

/// Output shown of a failed run, bytes.
const SHOWN_BYTES: usize = 4000;
/// How long processes of a run may outlive it.
const LINGER: Duration = Duration::from_secs(2);
/// The environment variable that marks the processes of a run.
const MARKER: &str = "HUSK_TEST_RUN";

/// A running command.
pub struct Run {
    child: Child,
    marker: String,
    output: PathBuf,
    started: SystemTime,
    timer: Instant,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// When it started.
    pub started: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Processes it left behind (now killed).
    pub left: Vec<process::Found>,
}

impl Run {
    /// Starts `command` in `directory`, its output in files of the existing directory `output`.
    pub fn start(mut command: Command, directory: &Path, output: &Path) -> Self {
        command.stdin(Stdio::null());
        Self::start_as_is(command, directory, output)
    }

    /// The same with a pipe as standard input (`stdin`).
    pub fn start_piped(mut command: Command, directory: &Path, output: &Path) -> Self {
        command.stdin(Stdio::piped());
        Self::start_as_is(command, directory, output)
    }

    fn start_as_is(mut command: Command, directory: &Path, output: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let marker = format!("run-{}-{count}.", std::process::id());
        let file = |name: &str| File::create(output.join(name)).expect("an output file");
        command.current_dir(directory).env(MARKER, &marker);
        quiet_environment(&mut command);
        command.stdout(file("stdout")).stderr(file("stderr"));
        let (started, timer) = (SystemTime::now(), Instant::now());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, marker, output: output.to_owned(), started, timer }
    }

    /// The process that was started.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its standard input, of a run that was started piped.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// All living processes of this run but the one that was started.
    pub fn descendants(&self) -> Vec<process::Found> {
        let own = self.pid();
        process::marked(&self.marker).into_iter().filter(|found| found.pid != own).collect()
    }

    /// What it wrote to standard output so far.
    pub fn stdout(&self) -> Vec<u8> {
        fs::read(self.output.join("stdout")).unwrap_or_default()
    }

    /// Waits for the end; after `limit` from the start (`patience`), kills all of it and tells what
    /// hung.
    pub fn wait(mut self, limit: Duration) -> Result<Outcome, String> {
        let limit = limit * patience();
        if !ends_within(self.pid(), limit.saturating_sub(self.timer.elapsed())) {
            let threads = process::describe(&self.marker);
            self.kill_all();
            let outcome = self.outcome();
            return Err(format!("HANG: no end in {limit:?}\n{threads}{}", outcome.shown()));
        }
        Ok(self.outcome())
    }

    fn kill_all(&self) {
        for found in process::marked(&self.marker) {
            process::kill(found.pid);
        }
    }

    fn outcome(&mut self) -> Outcome {
        let status = self.child.wait().expect("its status");
        let left = self.left_behind();
        Outcome {
            status,
            stdout: self.stdout(),
            stderr: String::from_utf8_lossy(
                &fs::read(self.output.join("stderr")).unwrap_or_default(),
            )
            .into_owned(),
            started: self.started,
            ended: SystemTime::now(),
            left,
        }
    }

    /// Gives processes a moment to be gone, then kills and names those that are not.
    fn left_behind(&self) -> Vec<process::Found> {
        let end = Instant::now() + LINGER * patience();
        let mut left = process::marked(&self.marker);
        while !left.is_empty() && Instant::now() < end {
            ends_within(left[0].pid, Duration::from_millis(50));
            left = process::marked(&self.marker);
        }
        for found in &left {
            process::kill(found.pid);
        }
        left
    }
}

impl Drop for Run {
    /// A run whose test gave up leaves nothing behind either.
    fn drop(&mut self) {
        if !self.ended() {
            self.kill_all();
            // It was just killed; a failure means it is gone.
            let _ = self.child.wait();
        }
    }
}

/// The same environment everywhere: no user's configuration, no locale, one time zone, and a home
/// directory that outlives the run, for the copies of programs that Husk keeps there.
fn quiet_environment(command: &mut Command) {
    // What cargo sets for test programs is none of theirs: with it, no start is from a recording.
    command.env_remove("LD_LIBRARY_PATH");
    if command.get_envs().all(|(name, _)| name != "HOME") {
        command.env("HOME", home("own"));
    }
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.env("PATH", path).env("LC_ALL", "C").env("TZ", "UTC");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO")
            || name.starts_with("GIT_")
            || name.starts_with("MAKE")
            || name.starts_with("XDG_")
        {
            command.env_remove(&*name);
        }
    }
}

/// How many times longer than on a usual machine all may take: `HUSK_TEST_PATIENCE`, for emulated
/// processors.
pub fn patience() -> u32 {
    let asked = std::env::var("HUSK_TEST_PATIENCE").ok();
    asked.map_or(1, |times| times.parse().expect("HUSK_TEST_PATIENCE is a number"))
}

/// A home directory that all tests of one user share.
pub fn home(user: &str) -> PathBuf {
    let path = crate::scratch::room().join("home").join(user);
    fs::create_dir_all(&path).expect("a home directory");
    path.canonicalize().expect("its real path")
}

/// Waits for the end of a process, without reaping it.
fn ends_within(pid: i32, limit: Duration) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let timeout =
        Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)), Ok(1))
}

impl Outcome {
    /// Status, and the ends of both outputs.
    pub fn shown(&self) -> String {
        format!(
            "  {}\n  stdout: {}\n  stderr: {}",
            self.status,
            end_of(&String::from_utf8_lossy(&self.stdout)),
            end_of(&self.stderr)
        )
    }

    /// Exit status as a shell shows it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

fn end_of(text: &str) -> String {
    let start = text.len().saturating_sub(SHOWN_BYTES);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[start..].trim_end().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    fn shell(script: &str) -> (Scratch, Run) {
        let scratch = Scratch::new("run");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let run = Run::start(command, scratch.path(), scratch.path());
        (scratch, run)
    }

    #[test]
    fn a_hang_is_described_and_killed() {
        let (_scratch, run) = shell("sleep 71 | cat");
        let marker = run.marker.clone();
        let hang = run.wait(Duration::from_millis(300)).expect_err("it sleeps");
        assert!(hang.contains("HANG") && hang.contains("sleep 71"), "{hang}");
        assert!(process::marked(&marker).is_empty());
    }

    #[test]
    fn what_is_left_behind_is_named_and_killed() {
        let await_it = "until grep -qs sleep /proc/$!/comm; do :; done";
        let (_scratch, run) = shell(&format!("setsid sleep 72 & {await_it}; exit 3"));
        let outcome = run.wait(Duration::from_secs(10)).expect("no hang");
        assert_eq!(outcome.code(), 3);
        assert!(matches!(&outcome.left[..], [left] if left.arguments == "sleep 72"), "{outcome:?}");
    }
}
