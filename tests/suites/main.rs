//! Suites that others wrote, inside a mount of an image and natively on a tmpfs: Husk scores at
//! least what Linux scores on the same machine.
//!
//! ```text
//!   suite ─┬─► natively, in a new directory of /dev/shm ──► names that failed there
//!          └─► husk run --mount DIR -- suite ─────────────► names that failed here
//!                                          here, not there, not excepted = a failure of Husk
//! ```
//!
//! Exceptions stand beside the test, each with its reason; one that nothing needs is a failure.
//! `HUSK_FULL=1` runs the long forms.
#![forbid(unsafe_code)]

mod data;
mod pjdfstest;
mod python;
mod stress_ng;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use husk_tests::case::findings;
use husk_tests::{Outcome, Run, Scratch, Side, tools};

/// One suite at a time: each measures itself with its own time-outs.
static TURN: Mutex<()> = Mutex::new(());

/// Whether the long forms were asked for.
fn full() -> bool {
    std::env::var_os("HUSK_FULL").is_some()
}

/// What a suite said on one side.
struct Score {
    outcome: Outcome,
    failed: BTreeSet<String>,
}

/// Reads the names of what failed out of an outcome.
type Failures = fn(&Outcome) -> BTreeSet<String>;

/// A directory of a tmpfs, removed in the end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(name: &str) -> Self {
        let path = Path::new("/dev/shm").join(format!("husk-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory in /dev/shm");
        Self(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A suite to be run on both sides, in the current directory.
struct Suite<'a> {
    name: &'static str,
    argv: Vec<String>,
    limit: Duration,
    failures: Failures,
    /// Names (or beginnings or ends, with `*`) that Husk does not score, with the reason.
    exceptions: &'a [(&'static str, &'static str)],
}

impl Suite<'_> {
    /// Runs both sides: nothing may be lost.
    #[track_caller]
    fn check(&self) {
        let lost = self.compare();
        assert!(lost.is_none(), "{}", lost.unwrap_or_default());
    }

    /// Runs both sides; what Husk did not score.
    fn compare(&self) -> Option<String> {
        let _turn = TURN.lock();
        let scratch = Scratch::new(self.name);
        let tmpfs = Tmpfs::new(self.name);
        let native = self.run(&scratch, &tmpfs.0, Side::Native);
        // As short a path: sockets have names of 107 bytes.
        let image = Tmpfs::new(&format!("{}-image", self.name));
        let husk = self.run(&scratch, &image.0, Side::tested());
        let excepted = |name: &&String| self.exceptions.iter().any(|(like, _)| alike(like, name));
        let lost: Vec<_> = husk.failed.difference(&native.failed).collect();
        let (known, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(excepted);
        let name = self.name;
        println!("{name}: {} failed natively, {} excepted", native.failed.len(), known.len());
        let needless = |like: &str| !known.iter().any(|name| alike(like, name));
        if let Some((like, why)) = self.exceptions.iter().find(|(like, _)| needless(like)) {
            return Some(format!("{name}: no longer lost, take it off the list: {like} ({why})"));
        }
        let (status, shown) = (husk.outcome.status, husk.outcome.shown());
        if !lost.is_empty() {
            return Some(format!("{name}: lost in an image: {lost:#?}\n{shown}"));
        }
        let same = status == native.outcome.status || !known.is_empty();
        (!same).then(|| format!("{name}: {status}, and no name failed\n{shown}"))
    }

    fn run(&self, scratch: &Scratch, work: &Path, side: Side) -> Score {
        let argv: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        let options = ["--mount", work.to_str().expect("a plain path"), "--discard"];
        let command: Command = match side {
            // A mount is anonymous memory: what an overlay adds is tested with programs.
            Side::Husk => husk_tests::husk(&options, &argv),
            Side::Native => side.command(&[], &argv),
        };
        let run = Run::start(command, work, scratch.path());
        let outcome = run.wait(self.limit).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        if side == Side::Husk {
            let found = findings(&outcome.stderr);
            assert!(found.is_empty(), "{}: {found:?}\n{}", self.name, outcome.shown());
        }
        Score { failed: (self.failures)(&outcome), outcome }
    }
}

/// Whether `name` is `like`, which may begin or end with `*`.
fn alike(like: &str, name: &str) -> bool {
    match (like.strip_prefix('*'), like.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => name == like,
    }
}

/// Nothing has names: the exit status says all.
fn no_names(_: &Outcome) -> BTreeSet<String> {
    BTreeSet::new()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn a_failure_of_one_side_alone_is_seen() {
    let only_here = "case $PWD in *-image-*) echo lost ;; esac";
    let suite = Suite {
        name: "planted",
        argv: words(&["sh", "-c", only_here]),
        limit: Duration::from_secs(30),
        failures: |outcome| {
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            text.lines().map(str::to_owned).collect()
        },
        exceptions: &[],
    };
    assert!(suite.compare().is_some(), "a suite that fails in the image only has passed");
    let excepted = Suite { exceptions: &[("lo*", "planted")], ..suite };
    assert_eq!(excepted.compare(), None);
    let stale = Suite { exceptions: &[("lo*", "planted"), ("*gone", "stale")], ..excepted };
    assert!(stale.compare().is_some_and(|told| told.contains("*gone (stale)")));
}
