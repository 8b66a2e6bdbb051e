//! A case: the same script on the same input, natively and in an image, and nothing may differ.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::husk::{Side, against_native};
use crate::run::{Outcome, Run};
use crate::scratch::{Scratch, remove};
use crate::tree::Tree;

/// Lines shown before the first that differs.
const CONTEXT_LINES: usize = 8;
/// Characters shown of a line.
const LINE_CHARACTERS: usize = 200;

/// How long a case takes, which decides how often it is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// One of many with another input each: 1 run.
    Once,
    /// Under a second natively: 4 runs, 20 in the long check.
    Short,
    /// Longer: 2 runs, 20 in the long check.
    Long,
    /// A row of the matrix of programs: 1 run, 10 in the long check.
    Program,
}

/// What a look at a finished tree says.
type Look = Box<dyn Fn(&Path)>;

/// A case under construction.
pub struct Case {
    name: &'static str,
    length: Length,
    limit: Duration,
    options: Vec<&'static str>,
    environment: Vec<(&'static str, &'static str)>,
    prepare: Box<dyn Fn(&Path)>,
    argv: Vec<String>,
    unspecified: fn(&Path) -> bool,
    afterwards: Look,
}

/// What one side made.
struct Made {
    outcome: Outcome,
    tree: Tree,
}

impl Case {
    /// A case called `name` that runs `argv` in a directory.
    pub fn new(name: &'static str, length: Length, argv: &[&str]) -> Self {
        Self {
            name,
            length,
            limit: Duration::from_secs(if length == Length::Short { 60 } else { 180 }),
            options: Vec::new(),
            environment: Vec::new(),
            prepare: Box::new(|_| {}),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            unspecified: |_| false,
            afterwards: Box::new(|_| {}),
        }
    }

    /// Fills the directory before each run.
    pub fn input(mut self, prepare: impl Fn(&Path) + 'static) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    /// Further options of `husk run`.
    pub fn options(mut self, options: &[&'static str]) -> Self {
        self.options = options.to_vec();
        self
    }

    /// A variable of both sides' environment.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Paths whose bytes may differ from run to run.
    pub fn unspecified(mut self, which: fn(&Path) -> bool) -> Self {
        self.unspecified = which;
        self
    }

    /// A look at each finished tree, natively on the host.
    pub fn afterwards(mut self, look: impl Fn(&Path) + 'static) -> Self {
        self.afterwards = Box::new(look);
        self
    }

    /// Runs both sides and compares.
    pub fn check(self) {
        let scratch = Scratch::new(self.name);
        let input = self.fill(&scratch);
        let native = self.run(&scratch, Side::Native);
        assert!(native.outcome.status.success(), "natively:\n{}", native.outcome.shown());
        for round in 1..=self.repetitions() {
            let tested = self.run(&scratch, Side::tested());
            let found = self.compare(&native, &tested, &input);
            let shown = tested.outcome.shown();
            assert!(found.is_empty(), "round {round}:\n  {}\n{shown}", found.join("\n  "));
        }
    }

    fn repetitions(&self) -> u32 {
        let asked = std::env::var("HUSK_REPEAT").ok();
        let asked = asked.map(|count| count.parse().expect("HUSK_REPEAT is a number"));
        let full = std::env::var_os("HUSK_FULL").is_some();
        match (asked, self.length) {
            (_, Length::Once) => 1,
            (Some(count), _) => count,
            _ if against_native() => 2,
            (None, Length::Program) => {
                if full {
                    10
                } else {
                    1
                }
            }
            (None, _) if full => 20,
            (None, Length::Short) => 4,
            (None, Length::Long) => 2,
        }
    }

    /// Both sides work under the same path, one after the other.
    fn fill(&self, scratch: &Scratch) -> Tree {
        let work = scratch.fresh("work");
        (self.prepare)(&work);
        age(&work);
        Tree::read(&work, None)
    }

    fn run(&self, scratch: &Scratch, side: Side) -> Made {
        self.fill(scratch);
        let work = scratch.path().join("work");
        let argv: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        let mut command = side.command(&self.options, &argv);
        command.envs(self.environment.iter().copied());
        let run = Run::start(command, &work, scratch.path());
        let outcome = run.wait(self.limit).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let tree = Tree::read(&work, Some((outcome.started, outcome.ended)));
        if outcome.status.success() {
            (self.afterwards)(&work);
        }
        remove(&work);
        Made { outcome, tree }
    }

    fn compare(&self, native: &Made, tested: &Made, input: &Tree) -> Vec<String> {
        let mut found = Vec::new();
        if native.outcome.status != tested.outcome.status {
            found.push(format!("{}, not {}", tested.outcome.status, native.outcome.status));
        }
        found.extend(first_difference(&native.outcome.stdout, &tested.outcome.stdout));
        found.extend(tested.outcome.left.iter().map(|left| format!("left running: {left:?}")));
        found.extend(findings(&tested.outcome.stderr));
        found.extend(native.tree.differences(&tested.tree, input, &self.unspecified));
        found
    }
}

/// The first line in which two outputs differ, and what came before it.
fn first_difference(native: &[u8], tested: &[u8]) -> Option<String> {
    if native == tested {
        return None;
    }
    let (native, tested) = (String::from_utf8_lossy(native), String::from_utf8_lossy(tested));
    let (native, tested): (Vec<_>, Vec<_>) = (native.lines().collect(), tested.lines().collect());
    let same = native.iter().zip(&tested).take_while(|(a, b)| a == b).count();
    let before = native[same.saturating_sub(CONTEXT_LINES)..same].join("\n      ");
    let line = |lines: &[&str]| lines.get(same).map_or("(nothing)".to_owned(), |line| clip(line));
    let (a, b) = (line(&native), line(&tested));
    Some(format!("standard output, line {}:\n      {before}\n    - {a}\n    + {b}", same + 1))
}

fn clip(line: &str) -> String {
    line.chars().take(LINE_CHARACTERS).collect()
}

/// What the image's own structure check reported; that it did not take place is a finding, too.
pub fn findings(stderr: &str) -> Vec<String> {
    if against_native() {
        return Vec::new();
    }
    let report = || stderr.lines().filter_map(|line| line.strip_prefix("husk: fsck: "));
    match report().count() {
        0 => vec!["the image's structure was not checked".to_owned()],
        _ => report().filter(|line| line.starts_with("finding")).map(str::to_owned).collect(),
    }
}

/// Gives every object of an input the same old time, so that what a run touches stands out.
pub fn age(root: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let times = fs::FileTimes::new().set_modified(old).set_accessed(old);
    for path in paths(root) {
        if let Ok(file) = fs::File::open(&path) {
            file.set_times(times).expect("an old time");
        }
    }
}

/// All directories and regular files below `root`, contents before their directory.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).expect("an input directory").flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(paths(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.push(root.to_owned());
    found
}
