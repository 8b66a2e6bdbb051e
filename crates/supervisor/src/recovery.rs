//! `husk recover`: finishes or undoes write-backs that were killed.
//!
//! The next command about such a directory reports it (`notes`, `halves`). The user chooses between
//! finishing and undoing the write-back (`write_back::recover`); the next write-back of the same
//! image finishes it by itself.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::output::failure::Failure;
use crate::output::typed::{all_in_json, typed};
use crate::write_back::record::manifest;
use crate::write_back::record::manifest::Pending;
use crate::write_back::record::recover;
use crate::write_back::record::recover::Recovered;

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
    #[serde(serialize_with = "all_in_json")]
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
    #[serde(serialize_with = "all_in_json")]
    pub directories: Vec<PathBuf>,
    /// Steps that were done, or undone.
    pub steps: usize,
    /// What could not be, one line each.
    pub failures: Vec<String>,
}

/// The one that is called `id`, or all that have not come to their end; temporary files of those
/// that were killed before their first step are removed.
pub fn list(id: Option<&str>) -> Result<Vec<Row>, Failure> {
    Ok(chosen(id)?.iter().map(row).collect())
}

fn chosen(id: Option<&str>) -> Result<Vec<Pending>, Failure> {
    let mut all = left();
    all.retain(|one| id.is_none_or(|id| one.id() == id));
    match id.filter(|_| all.is_empty()) {
        None => Ok(all),
        Some(id) => {
            let why = "there is no such write-back";
            Err(Failure::new(format!("cannot recover {id}"), why, "see `husk recover`"))
        }
    }
}

/// Brings them to an end: the one that is called `id`, or all that were killed.
pub fn bring(way: Way, id: Option<&str>) -> Result<Vec<Report>, Failure> {
    let what = "cannot recover";
    let mut reports = Vec::new();
    for pending in chosen(id)? {
        // It has ended meanwhile.
        let Ok(pending) = pending.taken() else { continue };
        if pending.is_busy() {
            if id.is_none() {
                continue;
            }
            let what = format!("{what} {}", pending.id());
            return Err(Failure::new(what, "it is still running", "wait for its end"));
        }
        let (id, directories) = (pending.id().to_owned(), pending.roots());
        if let Some(root) = recover::away(&pending) {
            let failures = vec![away(&root, pending.path())];
            reports.push(Report { id, directories, steps: 0, failures });
            continue;
        }
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

/// What is said where nothing of a write-back is to be found.
fn away(root: &Path, manifest: &Path) -> String {
    let (root, manifest) = (typed(root), typed(manifest));
    format!(
        "{root}: nothing of this write-back is there: mount or move back what it wrote to, and try \
         again; if that has gone for good: rm {manifest}"
    )
}

/// A write-back that was killed half way, for commands that only mention it.
#[derive(Debug)]
pub struct Half {
    /// What to call it.
    pub id: String,
    /// What happened and what to type, in one line.
    pub note: String,
    pending: Pending,
}

impl Half {
    /// Whether it wrote at, above or below one of these directories.
    pub fn touches<P: AsRef<Path>>(&self, directories: &[P]) -> bool {
        directories.iter().any(|path| self.pending.touches(path.as_ref()))
    }

    /// Whether it is a write-back of this image.
    pub fn is_of(&self, number: u32, made_ns: i64) -> bool {
        (self.pending.head.number, self.pending.head.started_ns) == (number, made_ns)
    }
}

/// All write-backs that were killed half way.
pub fn halves() -> Vec<Half> {
    let killed = left().into_iter().filter(|one| !one.is_busy());
    killed.map(|one| Half { id: one.id().to_owned(), note: note(&one), pending: one }).collect()
}

/// What there is to tell whoever begins to work in these directories.
pub fn notes(directories: &[PathBuf]) -> Vec<String> {
    halves().into_iter().filter(|one| one.touches(directories)).map(|one| one.note).collect()
}

fn note(one: &Pending) -> String {
    let roots: Vec<_> = one.roots().iter().map(|root| typed(root)).collect();
    let ways = match (recover::is_redoable(one), recover::is_undoable(one)) {
        _ if recover::away(one).is_some() => "nothing of it is there: see `husk recover forward`",
        (true, true) => "`husk recover forward` finishes it, `husk recover back` undoes it",
        (true, false) => "`husk recover forward` finishes it",
        (false, _) => "`husk recover back` undoes it",
    };
    let roots = roots.join(", ");
    format!("a write-back to {roots} was interrupted: some files there are old, some new; {ways}")
}

fn row(one: &Pending) -> Row {
    let state = if one.is_busy() { State::AtWork } else { State::Half };
    let open = !one.is_busy() && recover::away(one).is_none();
    Row {
        id: one.id().to_owned(),
        directories: one.roots(),
        state,
        steps: one.steps.len(),
        done: recover::steps_done(one),
        can_go_forward: open && recover::is_redoable(one),
        can_go_back: open && recover::is_undoable(one),
    }
}

/// Those that have changed names, or are about to.
fn left() -> Vec<Pending> {
    let mut left = Vec::new();
    for pending in manifest::looked_at(&manifest::places()) {
        if pending.ready || pending.is_busy() {
            left.push(pending);
        } else if let Ok(pending) = pending.taken() {
            recover::abandon(pending);
        }
    }
    left
}
