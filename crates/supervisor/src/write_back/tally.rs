//! What a write-back has done, in numbers: what its closing line and `husk sync --json` say.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::output::progress::Progress;

/// Sums of one write-back, or of several that belong together.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files and directories that were written.
    pub files: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// Objects that somebody else has changed.
    pub conflicts: u64,
    /// What could not be written.
    pub failures: u64,
}

impl Tally {
    /// Of one that ended so, with `progress` as it was then.
    pub fn of(outcome: &Outcome, progress: &Progress) -> Tally {
        // A directory that appears counts with all that is in it.
        let files = if outcome.written > 0 { progress.get().0.max(outcome.written) } else { 0 };
        let (conflicts, failures) = (outcome.conflicts.len(), outcome.failures.len());
        Tally {
            files,
            removed: outcome.removed,
            conflicts: conflicts as u64,
            failures: failures as u64,
        }
    }
}

/// Most lines of one kind that are told one by one.
const LINES_MAX: usize = 20;

/// The lines about conflicts: of many the first ones, and how the others are found.
pub fn conflict_lines(conflicts: &[String]) -> Vec<String> {
    first_lines("conflict: ", conflicts, "what is kept of them: find . -name '*.husk-*'")
}

/// Lines of one kind, each with `before` it: of many the first ones, how many there are more, and
/// how these are found.
pub fn first_lines(before: &str, all: &[String], rest: &str) -> Vec<String> {
    let told = all.iter().take(LINES_MAX);
    let mut lines: Vec<_> = told.map(|line| format!("{before}{line}")).collect();
    let more = all.len().saturating_sub(LINES_MAX);
    if more > 0 {
        lines.push(format!("{before}and {more} more; {rest}"));
    }
    lines
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            files: self.files + other.files,
            removed: self.removed + other.removed,
            conflicts: self.conflicts + other.conflicts,
            failures: self.failures + other.failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_conflicts_the_first_are_told_and_the_rest_counted() {
        let all: Vec<_> = (0..500).map(|n| format!("file {n}")).collect();
        assert_eq!(conflict_lines(&all[..20]).len(), 20);
        let lines = conflict_lines(&all);
        assert_eq!((lines.len(), &*lines[0]), (21, "conflict: file 0"));
        assert!(lines[20].starts_with("conflict: and 480 more; "), "{}", lines[20]);
    }

    #[test]
    fn a_directory_counts_with_what_is_in_it_and_what_was_not_written_does_not() {
        let progress = Progress::default();
        progress.set(1203, 1203);
        let outcome = Outcome { written: 1, removed: 2, ..Outcome::default() };
        let tally = Tally::of(&outcome, &progress);
        assert_eq!((tally.files, tally.removed), (1203, 2));
        assert_eq!(Tally::of(&Outcome::default(), &progress), Tally::default());
        assert_eq!((tally + tally).files, 2406);
    }
}
