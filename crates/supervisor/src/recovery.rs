//! `husk recover`: write-backs that were killed, and what becomes of them.
//!
//! Who begins to work in a directory in which one was killed is told (`notes`). What it has left is
//! brought to its end, or taken back, by whoever asks for that (`write_back::recover`); the next
//! supervisor of the same image does the first without being asked.

use std::path::PathBuf;

use serde::Serialize;

use crate::failure::Failure;
use crate::write_back::manifest::{self, Pending};
use crate::write_back::recover::{self, Recovered};

/// How one stands.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Killed: some of its steps are done.
    Half,
    /// It is under way.
    AtWork,
}

/// A write-back that has not come to its end.
#[derive(Serialize, Debug)]
pub struct Row {
    /// What to call it.
    pub id: String,
    /// Where it writes.
    pub directories: Vec<PathBuf>,
    /// How it stands.
    pub state: State,
    /// Names that change, and attributes.
    pub steps: usize,
    /// How many of them are done.
    pub done: usize,
    /// What it has made is still there.
    pub can_go_forward: bool,
    /// What it has replaced and removed is still there.
    pub can_go_back: bool,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// What is not done yet is done.
    Forward,
    /// What is done is undone.
    Back,
}

/// What became of one.
#[derive(Serialize, Debug)]
pub struct Report {
    /// What it was called.
    pub id: String,
    /// Where it wrote.
    pub directories: Vec<PathBuf>,
    /// Steps that were done, or undone.
    pub steps: usize,
    /// What could not be, one line each.
    pub failures: Vec<String>,
}

/// All that have not come to their end; what nobody sees of those that were killed is removed.
pub fn list() -> Vec<Row> {
    left().iter().map(row).collect()
}

/// Brings them to an end: the one that is called `id`, or all that were killed.
pub fn bring(way: Way, id: Option<&str>) -> Result<Vec<Report>, Failure> {
    let chosen = |one: &Pending| id.is_none_or(|id| one.id() == id);
    let (all, what) = (left(), "cannot recover");
    let chosen: Vec<Pending> = all.into_iter().filter(chosen).collect();
    if let Some(id) = id.filter(|_| chosen.is_empty()) {
        let why = "there is no such write-back";
        return Err(Failure::new(format!("{what} {id}"), why, "see `husk recover`"));
    }
    let mut reports = Vec::new();
    for pending in chosen {
        if pending.is_busy() {
            if id.is_none() {
                continue;
            }
            let what = format!("{what} {}", pending.id());
            return Err(Failure::new(what, "it is under way", "wait for its end"));
        }
        let (id, directories) = (pending.id().to_owned(), pending.roots());
        let Recovered { steps, lines } = match way {
            Way::Forward => recover::forward(pending).ok_or_else(|| {
                let why = "it has begun to remove what it had made";
                let remedy = "take it back: husk recover back";
                Failure::new(format!("cannot finish {id}"), why, remedy)
            })?,
            Way::Back => recover::back(pending).ok_or_else(|| {
                let why = "it has begun to remove what it replaced";
                let remedy = "bring it to its end: husk recover forward";
                Failure::new(format!("cannot take {id} back"), why, remedy)
            })?,
        };
        reports.push(Report { id, directories, steps, failures: lines });
    }
    Ok(reports)
}

/// What there is to tell whoever begins to work in these directories.
pub fn notes(directories: &[PathBuf]) -> Vec<String> {
    let here = |one: &&Pending| directories.iter().any(|path| one.touches(path));
    left().iter().filter(|one| !one.is_busy()).filter(here).map(note).collect()
}

fn note(one: &Pending) -> String {
    let roots: Vec<_> = one.roots().iter().map(|root| root.display().to_string()).collect();
    let ways = match (recover::is_redoable(one), recover::is_undoable(one)) {
        (true, true) => "`husk recover forward` finishes it, `husk recover back` undoes it",
        (true, false) => "`husk recover forward` finishes it",
        (false, _) => "`husk recover back` undoes it",
    };
    let roots = roots.join(", ");
    format!(
        "a write-back to {roots} was killed half way: some files there are old, some new; {ways}"
    )
}

fn row(one: &Pending) -> Row {
    let state = if one.is_busy() { State::AtWork } else { State::Half };
    Row {
        id: one.id().to_owned(),
        directories: one.roots(),
        state,
        steps: one.steps.len(),
        done: recover::steps_done(one),
        can_go_forward: !one.is_busy() && recover::is_redoable(one),
        can_go_back: !one.is_busy() && recover::is_undoable(one),
    }
}

/// Those that have changed names, or are about to.
fn left() -> Vec<Pending> {
    let mut left = Vec::new();
    for pending in manifest::pending(&manifest::places()) {
        match pending.ready || pending.is_busy() {
            true => left.push(pending),
            false => recover::abandon(pending),
        }
    }
    left
}
