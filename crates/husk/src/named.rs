//! `husk up`, `exec`, `ls` and `down`: what is typed about images with a name.
//!
//! Exit status: of `exec` the command's own, for this process becomes it; 125 when Husk failed, 126
//! and 127 as of `run`. Of the others 0, or 125 when something failed; of `down` also when not all
//! changes could be written back as they were.

use std::ffi::OsString;
use std::process::ExitCode;

use husk_supervisor::failure::STATUS_HUSK;
use husk_supervisor::named;
use husk_supervisor::say::say;

use crate::{ImageOptions, RUNTIME, failed, shown};

#[derive(clap::Args, Debug)]
pub struct Up {
    /// What to call it: up to 64 letters, digits, - and _, beginning with a letter.
    name: OsString,
    #[command(flatten)]
    image: ImageOptions,
}

#[derive(clap::Args, Debug)]
pub struct Exec {
    /// Name of the image.
    name: OsString,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
pub struct Down {
    /// Name of the image.
    name: OsString,
    /// Write nothing back.
    #[arg(long)]
    discard: bool,
    /// End the programs that run in it.
    #[arg(long)]
    force: bool,
}

pub fn up(options: &Up) -> ExitCode {
    let arguments = std::env::args_os().skip_while(|argument| argument != "up").skip(1);
    match named::up(&options.name, &arguments.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

pub fn supervise(options: Up) -> ExitCode {
    named::supervise(&options.name, options.image.request(), RUNTIME);
    ExitCode::SUCCESS
}

pub fn exec(options: &Exec) -> ExitCode {
    let Err(failure) = named::enter(&options.name, &options.command);
    failed(&failure)
}

pub fn list(json: bool) -> ExitCode {
    match named::list() {
        Ok(rows) if shown(&rows, json, |rows| named::table(rows)) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

pub fn down(options: &Down) -> ExitCode {
    match named::down(&options.name, options.discard, options.force) {
        Err(failure) => failed(&failure),
        Ok(down) => {
            down.lines.iter().for_each(|line| say(line));
            if down.complete { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
        }
    }
}
