//! The command line. What it does lies in `husk-supervisor`; here is only what is typed.
//!
//! ```text
//!   husk run [OPTIONS] -- COMMAND...     a throw-away image around one command
//!   husk check [--json]                  is this host able?
//!   husk fsck IMAGE [--json]             is the structure of a running image sound?
//!   husk bench fs [--json]               what do calls cost natively and in an image?
//! ```
//!
//! Exit status of `run`: the command's own, 128 + n when signal n ended it; 125 when Husk failed,
//! 126 when the command cannot be executed, 127 when it was not found. Of `fsck`: 0 clean, 1
//! findings, 2 not checked.
#![forbid(unsafe_code)]

mod bench;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use husk_supervisor::failure::STATUS_HUSK;
use husk_supervisor::request::parse_size;
use husk_supervisor::say::{print, say};
use husk_supervisor::{Request, check, fsck};

/// The runtime, built for its own target by `build.rs`.
static RUNTIME: &[u8] = include_bytes!(env!("HUSK_RUNTIME"));

/// Runs unmodified programs on many small user-space kernels that look like one Linux.
#[derive(Parser, Debug)]
#[command(version, name = "husk")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a command in a throw-away image; its changes are written back when it has ended.
    Run(RunOptions),
    /// Say whether this host is able, and what each missing thing costs.
    Check {
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Check the whole structure of a running image; its programs go on. Status 0: clean, 1:
    /// findings, 2: it could not be checked.
    Fsck {
        /// Process id of a `husk run`, or of a program in it.
        image: String,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Measure calls natively and in an image, side by side.
    Bench(bench::Options),
}

#[derive(clap::Args, Debug)]
struct RunOptions {
    /// Kernels of the image [default: one per online core].
    #[arg(long, value_name = "N")]
    kernels: Option<u32>,
    /// Most the image may hold, e.g. 512M or 8G [default: a quarter of the memory, at most 16G].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Keep changes below DIR in the image and write them back at the end [default: the current
    /// directory]. May be repeated.
    #[arg(long, value_name = "DIR")]
    overlay: Vec<PathBuf>,
    /// An empty tree in memory over DIR, gone at the end [default: /tmp]. May be repeated.
    #[arg(long, value_name = "DIR")]
    mount: Vec<PathBuf>,
    /// Write nothing back.
    #[arg(long)]
    discard: bool,
    /// Guard the image's state with a memory protection key [default: on, where the processor has
    /// keys].
    #[arg(long, value_name = "WHEN")]
    guard: Option<Switch>,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return explain(&error),
    };
    match options.command {
        Command::Run(options) => run(options),
        Command::Check { json } => print_check(json),
        Command::Fsck { image, json } => print_fsck(&image, json),
        Command::Bench(options) => bench::run(options).unwrap_or_else(|problem| {
            say(&format!("cannot measure: {problem:#}; see `husk check`"));
            ExitCode::from(STATUS_HUSK)
        }),
    }
}

/// One line for a mistake; help and version as clap prints them. Who types no command at all gets
/// the help, too.
fn explain(error: &clap::Error) -> ExitCode {
    let typed = std::env::args().nth(1).unwrap_or_default();
    let known = Options::command().find_subcommand(&typed).is_some();
    let status = if typed == "fsck" { fsck::STATUS_UNCHECKED } else { STATUS_HUSK };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // On standard error: nothing was done. Help that cannot be printed has no reader.
        let _ = error.print();
        return ExitCode::from(status);
    }
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Help that cannot be printed has no reader.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("unknown mistake");
    // An argument that is missing stands in the second line.
    let rest = lines.next().filter(|line| line.starts_with('<')).unwrap_or_default();
    let what = first.strip_prefix("error: ").unwrap_or(first);
    let command = if known { format!("husk {typed}") } else { "husk".to_owned() };
    say(&format!("{}; see `{command} --help`", format!("{what} {rest}").trim()));
    ExitCode::from(status)
}

fn run(options: RunOptions) -> ExitCode {
    let request = Request {
        kernels: options.kernels,
        memory_bytes: options.memory,
        overlays: options.overlay,
        mounts: options.mount,
        discard: options.discard,
        guard: options.guard.map(|guard| guard == Switch::On),
        command: options.command,
    };
    match husk_supervisor::run(request, RUNTIME) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.status)
        }
    }
}

fn print_check(json: bool) -> ExitCode {
    let report = check::check();
    let text = match json {
        true => serde_json::to_string_pretty(&report).map(|text| text + "\n"),
        false => Ok(report.table()),
    };
    let printed = text.map_err(io::Error::from).and_then(|text| print(&text));
    if let Err(problem) = &printed {
        say(&format!("cannot print the report: {problem}; look where the output goes"));
    }
    if printed.is_ok() && report.able { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

fn print_fsck(image: &str, json: bool) -> ExitCode {
    let report = match fsck::check(image) {
        Ok(report) => report,
        Err(failure) => {
            say(&failure.to_string());
            return ExitCode::from(failure.status);
        }
    };
    let text = match json {
        true => serde_json::to_string_pretty(&report).map(|text| text + "\n"),
        false => Ok(report.text()),
    };
    match text.map_err(io::Error::from).and_then(|text| print(&text)) {
        Ok(()) => ExitCode::from(report.status()),
        Err(problem) => {
            say(&format!("cannot print the report: {problem}; look where the output goes"));
            ExitCode::from(fsck::STATUS_UNCHECKED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn everything_behind_the_dashes_is_the_commands() {
        let typed = ["husk", "run", "--discard", "--", "make", "--discard", "-j2", "--", "x"];
        let Command::Run(run) = Options::try_parse_from(typed).unwrap().command else {
            panic!("run was typed")
        };
        assert!(run.discard && run.guard.is_none());
        assert_eq!(run.command, ["make", "--discard", "-j2", "--", "x"]);
    }

    #[test]
    fn a_command_without_dashes_keeps_its_options() {
        let typed = ["husk", "run", "--kernels", "2", "make", "-j2", "--kernels", "9"];
        let Command::Run(run) = Options::try_parse_from(typed).unwrap().command else {
            panic!("run was typed")
        };
        assert_eq!((run.kernels, run.command.len()), (Some(2), 4));
    }
}
