//! Images with a name: what lives in them, who reaches them, and how they end.
//!
//! Each test has its own directory of images, and its images end with it.
#![forbid(unsafe_code)]

mod bad_input;
mod border;
mod changes;
mod config;
mod copies;
mod life;
mod mount;
mod show;
mod sockets;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use husk_tests::Scratch;
use husk_tests::husk::binary;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};

/// No command of these tests takes longer, on a busy machine.
const LIMIT_S: u32 = 60;
/// How long is waited for what another process is about to do.
const UNTIL_MAX: Duration = Duration::from_secs(20);

/// A user's images, apart from all others.
pub struct Images {
    /// Scratch space.
    pub scratch: Scratch,
    /// What images overlay.
    pub work: PathBuf,
    room: PathBuf,
}

/// What `husk down` says, without the line that says before what it does.
pub fn without_plan(said: &str) -> String {
    let is_plan =
        |line: &&str| line.contains(": to be written back: ") || line.contains(": to be dropped: ");
    said.lines().filter(|line| !is_plan(line)).map(|line| format!("{line}\n")).collect()
}

impl Images {
    /// None yet.
    pub fn new(name: &str) -> Images {
        let scratch = Scratch::new(name);
        let (work, room) = (scratch.fresh("work"), scratch.fresh("images"));
        Images { scratch, work, room }
    }

    /// `program ARGUMENTS` in the overlaid directory, with these images.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        // In the foreground: whoever reads the terminal must be of its group.
        let limit = (LIMIT_S * husk_tests::run::patience()).to_string();
        command.args(["--foreground", "--kill-after=5", &limit, program]).args(arguments);
        command.current_dir(&self.work).stdin(Stdio::null());
        command.env("HUSK_IMAGES", self.all()).env("LC_ALL", "C").env("HUSK_FSCK", "1");
        // Notes of write-backs that other tests kill are told by every command that finds them.
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command.env("HOME", husk_tests::run::home("own"));
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// `husk ARGUMENTS`; of an end without the line that says before what it does.
    pub fn husk(&self, arguments: &[&str]) -> Output {
        let husk = binary().to_str().expect("a plain path");
        let mut output = self.command(husk, arguments).output().expect("timeout starts");
        if arguments[0] == "down" {
            output.stderr = without_plan(&text(&output.stderr)).into_bytes();
        }
        output
    }

    /// The same, which must succeed; its standard output.
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.husk(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes an image over the work directory.
    pub fn up(&self, name: &str) {
        let work = self.work.to_str().expect("a plain path");
        self.done(&["up", name, "--memory", "64M", "--overlay", work]);
    }

    /// Runs a script in an image; its standard output.
    pub fn script(&self, name: &str, script: &str) -> String {
        self.done(&["exec", name, "--", "bash", "-euc", script])
    }

    /// Takes an image down, whose structure must be clean; what else was said.
    pub fn down(&self, name: &str) -> String {
        let output = self.husk(&["down", name]);
        assert!(output.status.success(), "{}", shown(&output));
        let said = text(&output.stderr);
        assert!(said.contains("husk: fsck: clean\n"), "{said}");
        said.replace("husk: fsck: clean\n", "")
    }

    /// The one line of a refusal with this status.
    pub fn refused(&self, arguments: &[&str], status: i32) -> String {
        refusal(&self.husk(arguments), status)
    }

    /// The row of an image in `husk ls --json`.
    pub fn row(&self, name: &str) -> serde_json::Value {
        let list: serde_json::Value =
            serde_json::from_str(&self.done(&["ls", "--json"])).expect("JSON");
        let rows = list.as_array().expect("a list").clone();
        rows.into_iter().find(|row| row["name"] == name).unwrap_or_default()
    }

    /// The supervisor of an image.
    pub fn supervisor(&self, name: &str) -> i32 {
        self.row(name)["pid"].as_i64().expect("a supervisor") as i32
    }

    /// Kills an image's keeper and supervisor; it is dead then, if no program has kept it.
    pub fn kill(&self, name: &str) {
        self.kill_both(name);
        until("it is dead", || self.row(name)["state"] == "dead");
    }

    /// The same without a look at what becomes of it.
    pub fn kill_both(&self, name: &str) {
        let row = self.row(name);
        let number = |who: &str| row[who].as_i64().expect("a number") as i32;
        // One that is stopped starts no other keeper.
        let supervisor = Pid::from_raw(number("pid")).expect("a number");
        kill_process(supervisor, Signal::STOP).expect("it lives");
        for who in ["keeper", "pid"] {
            husk_tests::process::kill(number(who));
        }
        let lock = std::fs::File::open(self.place(name).join("lock")).expect("it is there");
        until("nobody holds it", || {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_ok()
        });
    }

    /// Kills the supervisor of an image, and waits for the next one.
    pub fn kill_supervisor(&self, name: &str) {
        let before = self.supervisor(name);
        husk_tests::process::kill(before);
        until("another supervisor", || {
            let row = self.row(name);
            row["state"] == "up" && row["pid"] != before
        });
    }

    /// The directory of an image.
    pub fn place(&self, name: &str) -> PathBuf {
        self.all().join(name)
    }

    /// The directory of all.
    pub fn all(&self) -> PathBuf {
        self.room.join("husk")
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        let base = self.all();
        close(&base);
        let left = std::fs::read_dir(base).into_iter().flatten().flatten();
        for name in left.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            // Whatever a failed test has left.
            self.husk(&["down", &name, "--discard", "--force"]);
        }
    }
}

/// Closes a directory to others, if it is one: a failed test may have left it open, or a link in
/// its place, which leads to what is none of the test's.
fn close(base: &Path) {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(base, flags, Mode::empty());
    let _ = opened.map(|opened| rustix::fs::fchmod(opened, Mode::RWXU));
}

/// The one line of a refusal with this status.
pub fn refusal(output: &Output, status: i32) -> String {
    let said = without_plan(&text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{}", shown(output));
    assert!(said.starts_with("husk: ") && said.lines().count() == 1, "{said}");
    assert!(output.stdout.is_empty(), "{}", shown(output));
    said
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An outcome for people.
pub fn shown(output: &Output) -> String {
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Waits until `what` holds (20 s at most, on a usual machine).
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let most = UNTIL_MAX * husk_tests::run::patience();
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < most, "not in {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
