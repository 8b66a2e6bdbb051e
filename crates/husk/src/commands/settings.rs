//! `husk config`: the settings that apply where no option is given, and checks of them.

use std::path::PathBuf;
use std::process::ExitCode;

use husk_supervisor::config::{self, Config};
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::{print, say};
use serde::Serialize;

use crate::{failed, shown};

/// What was typed.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Print the settings in effect as a configuration file; defaults are comments.
    Show {
        /// Show for each key which file or variable sets it.
        #[arg(long)]
        origin: bool,
        /// Print one JSON document with value and origin of each key.
        #[arg(long)]
        json: bool,
    },
    /// Let a husk.toml, with its present content, decide about your data: which directories an
    /// image overlays or mounts, and whether changes are dropped. A husk.toml in the current
    /// directory needs this, because it may have come with somebody else's files, and again after
    /// each change.
    Trust {
        /// The file [default: husk.toml in the current directory].
        file: Option<PathBuf>,
    },
    /// Undo `husk config trust` for a file, whatever its content.
    Untrust {
        /// The file [default: husk.toml in the current directory].
        file: Option<PathBuf>,
    },
    /// Check the configuration files and variables, or one file. Exit status 0: no errors.
    Check {
        /// Check only this file.
        file: Option<PathBuf>,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
}

/// What is typed as `husk config`.
pub fn run(command: Command) -> ExitCode {
    let done = match command {
        Command::Show { origin, json } => Config::load().map(|config| {
            config.notes().for_each(|note| say(&format!("note: {note}")));
            shown(&config, json, |config| config.text(origin))
        }),
        Command::Trust { file } => config::trust(file.as_deref()).and_then(|text| told(&text)),
        Command::Untrust { file } => config::untrust(file.as_deref()).and_then(|text| told(&text)),
        Command::Check { file: Some(file), json } => check_file(&file, json),
        Command::Check { file: None, json } => check_all(json),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

/// A file, or all variables, without an error.
#[derive(Serialize)]
struct Checked {
    /// Its path, or `variables`.
    place: String,
    /// Whether it is there.
    there: bool,
    /// What of it is ignored.
    note: Option<String>,
}

impl Checked {
    fn text(all: &[Checked]) -> String {
        let mut text = String::new();
        for Checked { place, there, note } in all {
            let state = if *there { "ok" } else { "not there" };
            text += &format!("{place}: {state}\n");
            text.extend(note.iter().map(|note| format!("note: {note}\n")));
        }
        text
    }
}

fn check_file(file: &std::path::Path, json: bool) -> Result<bool, Failure> {
    let mut config = Config::default();
    if config.read_file(file)? {
        config.check()?;
        let place = file.display().to_string();
        let checked = [Checked { place, there: true, note: None }];
        return Ok(shown(&checked, json, |all| Checked::text(all)));
    }
    let what = format!("cannot read {}", file.display());
    Err(Failure::new(what, "there is no such file", "name another file"))
}

fn check_all(json: bool) -> Result<bool, Failure> {
    let mut all = Vec::new();
    for place in config::files()? {
        let mut config = Config::default();
        let there = config.read(&place)?;
        let note = config.notes().next();
        if there && place.here && !config.is_refused() {
            // Also what does not count here: it would, once it is trusted.
            config.read_file(&place.path)?;
        }
        config.check()?;
        all.push(Checked { place: place.path.display().to_string(), there, note });
    }
    Config::of_variables()?.check()?;
    Config::load()?.check()?;
    config::check_names_of_variables()?;
    all.push(Checked { place: "variables".to_owned(), there: true, note: None });
    Ok(shown(&all, json, |all| Checked::text(all)))
}

fn told(text: &str) -> Result<bool, Failure> {
    let failed = |problem: std::io::Error| {
        let why = husk_supervisor::run::request::reason(&problem);
        Failure::new("cannot print the report", why, "check where the output goes")
    };
    print(text).map(|()| true).map_err(failed)
}
