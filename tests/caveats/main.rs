//! Differences from Linux that are known and written down in `docs/caveats.md`, each held in place.
//!
//! A script runs in an overlay of a prepared directory and must print what Husk is known to do.
//! The same script on Linux must print what Linux does: a difference that is none fails, too.
#![forbid(unsafe_code)]

mod files;
mod pipes;
mod processes;

use std::fs;
use std::path::Path;
use std::time::Duration;

use husk_tests::{Run, Scratch, Side, against_native};

/// No run of these tests takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// What Linux and Husk print for one script.
struct Difference<'a> {
    /// Python, run in the prepared directory.
    script: &'a str,
    /// `None`: hosts differ.
    linux: Option<&'a str>,
    husk: &'a str,
}

impl Difference<'_> {
    /// Runs both sides, each in a directory that `prepare` has filled.
    #[track_caller]
    fn check(&self, name: &str, prepare: fn(&Path)) {
        self.check_with(&[], name, prepare);
    }

    /// The same with options for `husk run`.
    #[track_caller]
    fn check_with(&self, options: &[&str], name: &str, prepare: fn(&Path)) {
        assert_ne!(self.linux, Some(self.husk), "no difference");
        let scratch = Scratch::new(name);
        if let Some(linux) = self.linux {
            assert_eq!(self.run(&scratch, Side::Native, options, prepare), linux, "on Linux");
        }
        if !against_native() {
            assert_eq!(self.run(&scratch, Side::Husk, options, prepare), self.husk, "in an image");
        }
    }

    fn run(&self, scratch: &Scratch, side: Side, options: &[&str], prepare: fn(&Path)) -> String {
        let work = scratch.fresh("work");
        prepare(&work);
        let command = side.command(options, &["python3", "-c", self.script]);
        let run = Run::start(command, &work, scratch.path());
        let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
        assert!(outcome.status.success(), "{}", outcome.shown());
        String::from_utf8(outcome.stdout).expect("text")
    }
}

/// A file of the host, `file`, with one line.
fn one_file(work: &Path) {
    fs::write(work.join("file"), "from the host\n").expect("a file");
}

/// Nothing.
fn nothing(_: &Path) {}
