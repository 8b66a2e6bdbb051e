//! `husk recover`: interrupted write-backs.

use std::path::Path;
use std::process::ExitCode;

use husk_supervisor::output::failure::STATUS_HUSK;
use husk_supervisor::output::say;
use husk_supervisor::output::typed::typed;
use husk_supervisor::recovery::{self, Report, Row, State, Way};

use crate::{failed, shown};

/// What was typed.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// What to do.
    #[arg(value_enum, default_value_t = Action::Ls)]
    action: Action,
    /// Which write-back, as `husk recover` lists it [default: all].
    id: Option<String>,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// List write-backs that have not finished.
    Ls,
    /// Finish them: all files become as the image had them.
    Forward,
    /// Undo them: all files become as they were before.
    Back,
}

/// What is typed as `husk recover`.
pub fn run(options: &Options) -> ExitCode {
    let (id, json) = (options.id.as_deref(), options.json);
    let way = match options.action {
        Action::Ls => return list(id, json),
        Action::Forward => Way::Forward,
        Action::Back => Way::Back,
    };
    let reports = match recovery::bring(way, id) {
        Ok(reports) => reports,
        Err(failure) => return failed(&failure),
    };
    let printed = shown(&reports, json, |reports| told(reports, way));
    let failures = reports.iter().flat_map(|report| &report.failures);
    let whole = failures.inspect(|line| say(line)).count() == 0;
    if printed && whole { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

fn list(id: Option<&str>, json: bool) -> ExitCode {
    let rows = match recovery::list(id) {
        Ok(rows) => rows,
        Err(failure) => return failed(&failure),
    };
    match shown(&rows, json, |rows| table(rows)) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(STATUS_HUSK),
    }
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no write-back was interrupted\n".into();
    }
    let mut text = format!(
        "{:<8} {:<8} {:>8} {:>8} {:<12} DIRECTORY\n",
        "ID", "STATE", "STEPS", "DONE", "WAYS"
    );
    for row in rows {
        let state = match row.state {
            State::Half => "half",
            State::AtWork => "at-work",
        };
        let ways = match (row.can_go_forward, row.can_go_back) {
            (true, true) => "forward,back",
            (true, false) => "forward",
            (false, true) => "back",
            (false, false) => "-",
        };
        let place = places(&row.directories);
        text += &format!(
            "{:<8} {state:<8} {:>8} {:>8} {ways:<12} {place}\n",
            row.id, row.steps, row.done
        );
    }
    text
}

fn told(reports: &[Report], way: Way) -> String {
    let line = |report: &Report| {
        let how = match way {
            _ if report.steps == 0 && !report.failures.is_empty() => "as it was",
            Way::Forward => "finished",
            Way::Back => "undone",
        };
        let (steps, place) = (report.steps, places(&report.directories));
        format!(
            "the write-back to {place} is {how}: {steps} steps, {} failures\n",
            report.failures.len()
        )
    };
    match reports.is_empty() {
        true => "no write-back was interrupted\n".into(),
        false => reports.iter().map(line).collect(),
    }
}

fn places(directories: &[impl AsRef<Path>]) -> String {
    let all: Vec<_> = directories.iter().map(|one| typed(one.as_ref())).collect();
    all.join(", ")
}
