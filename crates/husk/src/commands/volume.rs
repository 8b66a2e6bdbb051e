//! `husk volume`: storage areas that outlive images.

use std::path::PathBuf;
use std::process::ExitCode;

use husk_storage::catalogue::{Catalogue, Report, Row, State};
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::say;
use husk_supervisor::run::request::{parse_size, size};
use husk_supervisor::volumes::{resize, stat};

use crate::{failed, shown};

/// Status of a check with findings.
const STATUS_FINDINGS: u8 = 1;

/// What was typed.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Make a volume. Its whole size is written once, which reserves the space.
    Create {
        /// The new volume's name: up to 64 letters, digits, - and _, beginning with a letter.
        name: String,
        /// Its size, e.g. 512M or 8G; at least 1M.
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Make it in this directory of a local disk, or on this empty block device [default:
        /// ~/.local/state/husk/volumes].
        #[arg(long, value_name = "DIR|DEVICE")]
        on: Option<PathBuf>,
    },
    /// List this user's volumes.
    Ls {
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Read a whole volume, which must not be in use, and list what is damaged, and where. Status
    /// 0: clean, 1: findings, 125: it could not be checked.
    Check {
        /// Name of the volume.
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Show the activity of a volume in the image that uses it: how full its log is, flushes a
    /// second, how many syncs share one, how long they take.
    Stat {
        /// Name of the volume.
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
        /// Print OpenMetrics (Prometheus).
        #[arg(long, conflicts_with = "json")]
        openmetrics: bool,
    },
    /// Give a volume another size: what it holds is written to a new file, which then takes its
    /// place. While an image uses the volume, it can only get larger.
    Resize {
        /// Which volume.
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// How large, e.g. 512M or 8G; at least 1M, and what it holds.
        #[arg(long, value_parser = parse_size)]
        size: u64,
    },
    /// Remove a volume with all that is in it.
    Rm {
        /// Name of the volume.
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Forget its name and leave what is on the disk.
        #[arg(long)]
        forget: bool,
    },
}

/// What is typed as `husk volume`.
pub fn run(command: Command) -> ExitCode {
    match done(command) {
        Ok(status) => status,
        Err(failure) => failed(&failure),
    }
}

fn done(command: Command) -> Result<ExitCode, Failure> {
    let catalogue = Catalogue::of_user()?;
    match command {
        Command::Create { name, size, on } => {
            catalogue.create(&name, size, on.as_deref())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Ls { json } => list(&catalogue, json),
        Command::Check { volume, json } => {
            let report = catalogue.check(&volume)?;
            let printed = shown(&report, json, findings);
            Ok(match (printed, report.findings.is_empty()) {
                (false, _) => ExitCode::from(STATUS_HUSK),
                (true, true) => ExitCode::SUCCESS,
                (true, false) => ExitCode::from(STATUS_FINDINGS),
            })
        }
        Command::Stat { volume, json, openmetrics } => {
            let report = stat::report(&volume)?;
            let text = if openmetrics { stat::Report::metrics } else { stat::Report::text };
            let printed = shown(&report, json, text);
            Ok(if printed { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) })
        }
        Command::Resize { volume, size } => {
            resize::resize(&volume, size)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Rm { volume, forget } => {
            catalogue.remove(&volume, forget)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(catalogue: &Catalogue, json: bool) -> Result<ExitCode, Failure> {
    let (rows, problems) = catalogue.list()?;
    problems.iter().for_each(|problem| say(&problem.to_string()));
    let printed = shown(&rows, json, |rows| table(rows));
    let whole = printed && problems.is_empty();
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) })
}

/// A line for each volume; why one cannot be used, at its end.
fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<16} {:>8} {:>6} {:<10} AREA\n", "NAME", "SIZE", "EPOCH", "STATE");
    for row in rows {
        let state = match (row.state, row.holder_pid) {
            (State::Free, _) => "free".to_owned(),
            (State::InUse, Some(pid)) => format!("used:{pid}"),
            (State::InUse, None) => "used".to_owned(),
            (State::BeingMade, _) => "being-made".to_owned(),
            (State::HalfMade, _) => "half-made".to_owned(),
            (State::Missing, _) => "missing".to_owned(),
            (State::Unfit, _) => "unfit".to_owned(),
        };
        let epoch = row.epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
        let size = size(row.size_bytes);
        let place = row.why.clone().unwrap_or_else(|| row.path.display().to_string());
        text += &format!("{:<16} {size:>8} {epoch:>6} {state:<10} {place}\n", row.name);
    }
    text
}

fn findings(report: &Report) -> String {
    if report.findings.is_empty() {
        return format!("{}: clean\n", report.name);
    }
    let line = |finding: &husk_storage::area::Finding| {
        format!("{}: byte {}: {}\n", report.path.display(), finding.at_bytes, finding.what)
    };
    report.findings.iter().map(line).collect()
}
