//! `husk rescue`: files that write-backs could not write and have saved.

use std::path::PathBuf;
use std::process::ExitCode;

use husk_supervisor::named::all_unfinished;
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::say;
use husk_supervisor::rescues::{self, Restored, Shown};

use crate::{failed, shown};

/// What was typed.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// List files that write-backs could not write to their places and have saved.
    Ls {
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Show what one rescue holds: a line for each object, with its path and why it could not be
    /// written. ready: it can be restored; changed: something else is at its path now.
    Show {
        /// The rescue, or the beginning of its name.
        id: String,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Put objects back to their paths, unless something has changed there; nothing is overwritten.
    /// For each object that stays, a line says what to type, and the status is 125.
    Restore {
        /// The rescue, or the beginning of its name.
        id: String,
        /// Only these paths and what is below them.
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Print one JSON document with what was done.
        #[arg(long)]
        json: bool,
    },
    /// Remove rescues with all they hold.
    Rm {
        /// The rescues, by their whole names.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// What is typed as `husk rescue`.
pub fn run(command: Command) -> ExitCode {
    all_unfinished().iter().for_each(|line| say(&format!("note: {line}")));
    let done = match command {
        Command::Ls { json } => {
            let all = rescues::all();
            let lines =
                |all: &Vec<rescues::Rescue>| all.iter().map(|one| one.line() + "\n").collect();
            Ok(shown(&all, json, lines))
        }
        Command::Show { id, json } => rescues::find(&id).map(|rescue| {
            let lines = |all: &Vec<Shown>| all.iter().map(|one| one.line() + "\n").collect();
            shown(&rescue.shown(), json, lines)
        }),
        Command::Restore { id, paths, json } => restore(&id, paths, json),
        Command::Rm { ids } => remove(&ids),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

fn restore(id: &str, paths: Vec<PathBuf>, json: bool) -> Result<bool, Failure> {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let paths: Vec<PathBuf> = paths.into_iter().map(absolute).collect();
    let done = rescues::find(id)?.restore(&paths)?;
    done.left.iter().for_each(|line| say(line));
    done.notes.iter().for_each(|line| say(&format!("note: {line}")));
    let text = |done: &Restored| {
        let files = if done.restored == 1 { "file" } else { "files" };
        let left = match done.left.len() {
            0 => String::new(),
            left => format!("; {left} left"),
        };
        format!("{} {files} restored{left}\n", done.restored)
    };
    Ok(shown(&done, json, text) && done.left.is_empty())
}

/// What is removed is named in full: a beginning could mean another one tomorrow.
fn remove(ids: &[String]) -> Result<bool, Failure> {
    let found: Result<Vec<_>, _> = ids.iter().map(|id| rescues::find(id)).collect();
    let found = found?;
    if let Some((id, rescue)) = ids.iter().zip(&found).find(|(id, rescue)| **id != rescue.id) {
        let what = format!("cannot remove rescue {id}");
        let remedy = format!("write its whole name: {}", rescue.id);
        return Err(Failure::new(what, "it is the beginning of a name", remedy));
    }
    found.iter().try_for_each(rescues::Rescue::remove).map(|()| true)
}
