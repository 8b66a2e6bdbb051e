//! The steps of `cargo xtask check`: the quick ones first, then in stages.
//!
//! ```text
//!   look ─► build ───────► test, doc-tests ────────────────► fuzz
//!        └► tests-build ─► kills, models, suites ──────────►
//!                        └► clippy, doc, fuzz-builds (nice) ►
//! ```
//!
//! Invariants
//! 1. The rows of a stage run beside each other. They do not wait for each other's lock of cargo:
//!    lints have a profile, and so a folder, of their own.
//! 2. Tests wait for others much of their time, and lints run in that: at the lowest priority.
//! 3. Each test program runs in one step: in the one that names it, or in `test`.

use crate::command::Ended;
use crate::fuzz;
use crate::rules::finding::Finding;
use crate::rules::{edges, fences, licences, links, pins, siblings, syscalls, tidy};
use crate::toolchain;
use crate::workspace::Workspace;
use anyhow::Result;

/// The commands of cargo that are part of a first look.
const QUICK: &[&str] = &["fmt", "build"];

/// Looks at the files.
type Static = fn(&Workspace) -> Result<Vec<Finding>>;

/// What all tests are compiled with: kill points let tests stop an operation after any store.
pub const TESTED: &[&str] = &["test", "--workspace", "--features", "husk-carrier/kill-points"];

/// What a step does.
pub enum Work {
    /// Looks at what is written.
    Look(Static),
    /// Runs cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// The same, while nothing else has work for a processor.
    Lint(&'static [&'static str]),
    /// Compiles all test programs.
    Compile,
    /// Runs these test programs, with further arguments.
    Programs(&'static [&'static str], &'static [&'static str]),
    /// Runs the tests that no other step names.
    Rest,
    /// Runs cargo's tests with these arguments.
    Tests(&'static [&'static str]),
    /// The same with `--quick` (the tests are among those of another step), or when it is named.
    First(&'static [&'static str]),
    /// Does this with `--full`, or when it is named.
    Long(fn(&Workspace) -> Result<Ended>),
}

/// How much is checked where no step is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What takes little time, for a first look.
    Quick,
    /// Everything but the long suites.
    Whole,
    /// Everything.
    Full,
}

/// Steps that run one after the other.
pub type Row = &'static [(&'static str, Work)];

/// All steps, in stages of rows that run beside each other.
pub const STAGES: &[&[Row]] = &[&[LOOKS], &[BUILD, COMPILE], &[TEST, BESIDE, LINTS], &[LAST]];

/// What takes seconds.
const LOOKS: Row = &[
    (
        "edges",
        Work::Look(|workspace| Ok([edges::check(workspace), siblings::check(workspace)].concat())),
    ),
    ("licences", Work::Look(licences::check)),
    ("fences", Work::Look(|workspace| Ok(fences::check(workspace)))),
    ("tidy", Work::Look(tidy::check)),
    ("links", Work::Look(|workspace| Ok(links::check(workspace)))),
    ("pins", Work::Look(|workspace| Ok(pins::check(workspace)))),
    ("syscalls", Work::Look(syscalls::check)),
    ("fmt", Work::Cargo(&["fmt", "--all", "--check"])),
];

const BUILD: Row = &[
    // What the tests run; also what the README's first command builds.
    ("build", Work::Cargo(&["build", "--release", "--package", "husk"])),
    (
        "first",
        Work::First(&["test", "--package", "husk-tests", "--test", "programs", "conformance::"]),
    ),
];

const LINTS: Row = &[
    (
        "clippy",
        Work::Lint(&[
            "clippy",
            "--profile",
            "lint",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    ),
    (
        "clippy-runtime",
        Work::Lint(&[
            "clippy",
            "--profile",
            "lint",
            "--package",
            "husk-runtime",
            "--bin",
            "husk-rt",
            "--target",
            toolchain::RUNTIME_TARGET,
            "--",
            "-D",
            "warnings",
        ]),
    ),
    (
        "doc",
        Work::Lint(&[
            "doc",
            "--profile",
            "lint",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]),
    ),
    // A workspace of its own, which the others do not see.
    (
        "fuzz-builds",
        Work::Lint(&[
            "check",
            "--locked",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target-dir",
            "target/fuzz",
        ]),
    ),
];

const COMPILE: Row = &[("tests-build", Work::Compile)];

const TEST: Row = &[
    ("test", Work::Rest),
    (
        "doc-tests",
        Work::Tests(&["test", "--workspace", "--features", "husk-carrier/kill-points", "--doc"]),
    ),
];

const BESIDE: Row = &[
    // Death at every store of every operation, no room at every allocation. What they print says
    // how many were killed.
    (
        "kills",
        Work::Programs(
            &["epoll", "full", "kills", "members", "pipes", "reserve", "thefts", "wide"],
            &["--", "--show-output"],
        ),
    ),
    // The protocols of the region and of links under a model checker, in the place of their memory.
    (
        "models",
        Work::Tests(&[
            "test",
            "--package",
            "husk-carrier",
            "--package",
            "husk-link",
            "--features",
            "husk-carrier/models,husk-link/models",
            "--test",
            "models",
        ]),
    ),
    // One test at a time, for minutes: others' suites, counts of instructions, documents' commands.
    ("suites", Work::Programs(&["suites", "growth", "bombardment", "docs"], &[])),
];

const LAST: Row = &[("fuzz", Work::Long(fuzz::run))];

/// All steps.
pub fn all() -> impl Iterator<Item = &'static (&'static str, Work)> {
    STAGES.iter().copied().flatten().copied().flatten()
}

/// The test programs that steps name.
pub fn named() -> impl Iterator<Item = &'static str> {
    all()
        .flat_map(|(_, work)| match work {
            Work::Programs(programs, _) => *programs,
            _ => &[],
        })
        .copied()
}

impl Work {
    /// Whether it belongs to an extent.
    pub fn is_in(&self, extent: Extent) -> bool {
        match self {
            Work::Look(_) => true,
            Work::Cargo(arguments) => extent != Extent::Quick || QUICK.contains(&arguments[0]),
            Work::Lint(_) | Work::Compile | Work::Programs(..) | Work::Rest | Work::Tests(_) => {
                extent != Extent::Quick
            }
            Work::First(_) => extent == Extent::Quick,
            Work::Long(_) => extent == Extent::Full,
        }
    }

    /// Whether it runs tests.
    pub fn is_tests(&self) -> bool {
        matches!(self, Work::Programs(..) | Work::Rest | Work::Tests(_) | Work::First(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_a_step_names_is_a_test_program_and_no_other_step_names_it() {
        let workspace = Workspace::load().expect("the workspace");
        let targets = workspace.members().flat_map(|package| &package.targets);
        let tests = targets.filter(|target| target.kind[0] == "test");
        let (models, others): (Vec<_>, Vec<_>) = tests.partition(|target| target.is_model());
        let all: BTreeSet<&str> = others.iter().map(|target| target.name.as_str()).collect();
        let mut seen = BTreeSet::new();
        for program in named() {
            assert!(all.contains(program), "there is no test program {program}");
            assert!(seen.insert(program), "{program} runs twice");
        }
        // Those that are compiled apart are of one name, which the step that compiles them has.
        let apart = |(_, work): &(&str, Work)| match work {
            Work::Tests(words) => words.ends_with(&["--test", "models"]),
            _ => false,
        };
        assert!(all_of(&models, "models") && super::all().any(apart));
    }

    fn all_of(targets: &[&crate::workspace::Target], name: &str) -> bool {
        targets.iter().all(|target| target.name == name)
    }
}
