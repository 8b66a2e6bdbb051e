//! `husk run --ask`: shows what a command has changed, and writes back what the user chooses.
//!
//! ```text
//!   image ── differences ──► dialogue ◄──► terminal (question, pager)
//!                               │ choice (patterns, one by one), summary
//!                               '──► decision
//! ```
//!
//! The dialogue knows neither image nor terminal, so that tests answer from a list.

mod choice;
pub mod dialogue;
mod summary;
pub mod terminal;

use std::path::PathBuf;

use self::dialogue::{Changes, Decision, Talk};
use crate::differences::change::Change;
use crate::differences::{self, Differences, patch};
use crate::image::work::Work;
use crate::run::shortage::bytes_of;
use crate::write_back::plan::scan::Run;
use crate::write_back::record::ledger::Ledger;

/// An image after its command, whose changes are looked at. Nothing changes it any more.
pub struct Review<'a> {
    work: &'a mut Work,
    run: Run,
    found: Differences,
}

impl Review<'_> {
    /// Looks at an image, as the write-back will.
    pub fn begin(work: &mut Work) -> Review<'_> {
        work.release_dead();
        let run = work.end_run();
        let found = look(work, run, &[]);
        Review { work, run, found }
    }

    /// Bytes that a write-back of `paths` makes; of all, where none is named.
    pub fn bytes(&mut self, paths: &[PathBuf]) -> u64 {
        match paths.is_empty() {
            true => bytes_of(&self.found.changes),
            false => bytes_of(&self.with(paths)),
        }
    }

    /// Whether there is anything to decide about.
    pub fn is_empty(&self) -> bool {
        self.found.changes.is_empty() && self.found.unseen.is_empty()
    }

    /// Asks what becomes of the changes.
    pub fn decide(&mut self, talk: &mut impl Talk) -> Decision {
        dialogue::decide(talk, self)
    }
}

fn look(work: &mut Work, run: Run, chosen: &[PathBuf]) -> Differences {
    let overlays = work.image.overlays();
    differences::differences(&mut work.image.direct, run, &Ledger::default(), &overlays, chosen)
}

impl Changes for Review<'_> {
    fn found(&self) -> &[Change] {
        &self.found.changes
    }

    fn unseen(&self) -> &[String] {
        &self.found.unseen
    }

    fn patch(&mut self, of: &[usize]) -> Vec<u8> {
        let all = &self.found.changes;
        let some: Vec<Change> = of.iter().map(|index| all[*index].clone()).collect();
        let shown = if some.len() == all.len() { all } else { &some };
        let (direct, several) = (&mut self.work.image.direct, self.found.several);
        let mut text = Vec::new();
        if let Err(problem) = patch::patch(direct, shown, several, &mut text) {
            let why = crate::run::request::reason(&problem);
            text.extend(format!("# the rest cannot be shown: {why}\n").bytes());
        }
        text
    }

    fn with(&mut self, paths: &[PathBuf]) -> Vec<Change> {
        look(self.work, self.run, paths).changes
    }
}
