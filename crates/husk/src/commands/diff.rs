//! `husk diff`: what a write-back would do now.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use husk_supervisor::differences::{Differences, Look, show};
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::{print_bytes, say};
use husk_supervisor::run::request::reason;

use crate::failed;

/// Status where there are changes, and `--exit-code` was typed.
const STATUS_CHANGES: u8 = 1;

/// `husk diff IMAGE [PATH...]`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of an image, or process id of a `husk run` or of a program in it.
    pub image: String,
    /// Show only these paths and what is below them; relative to the current directory if that is
    /// in an overlay, otherwise to each overlay.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    form: Form,
    /// Exit with status 1 if there are changes.
    #[arg(long)]
    exit_code: bool,
}

/// How changes are shown.
#[derive(clap::Args, Debug, Default)]
struct Form {
    /// Print how many lines were added and removed, by file.
    #[arg(long, group = "form")]
    stat: bool,
    /// Print a patch for `git apply` and `patch -p1`; what a patch cannot contain (binary files,
    /// owners, devices) is a line that they skip.
    #[arg(long, short, group = "form")]
    patch: bool,
    /// Print one JSON document: a list with an object for each change.
    #[arg(long, group = "form")]
    json: bool,
    /// Print only the paths.
    #[arg(long, group = "form")]
    name_only: bool,
    /// With --name-only: end each path with a NUL byte, and quote none.
    #[arg(short = 'z', requires = "name_only")]
    nul: bool,
}

pub fn run(options: &Options) -> ExitCode {
    match shown(options) {
        Ok(changes) if changes && options.exit_code => ExitCode::from(STATUS_CHANGES),
        Ok(_) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

/// Shows the changes; whether there are any.
fn shown(options: &Options) -> Result<bool, Failure> {
    let mut look = Look::begin(&options.image)?;
    let found = look.differences(&options.paths)?;
    options.form.print(&mut look, &found)?;
    Ok(!found.changes.is_empty())
}

/// Shows what a write-back would do.
pub fn show(look: &mut Look, found: &Differences, stat: bool, json: bool) -> Result<(), Failure> {
    Form { stat, json, ..Form::default() }.print(look, found)
}

impl Form {
    fn print(&self, look: &mut Look, found: &Differences) -> Result<(), Failure> {
        found.unseen.iter().for_each(|line| say(&format!("would not be written back: {line}")));
        let unprinted = |problem: io::Error| {
            let (what, why) = ("cannot print the differences", reason(&problem));
            Failure::new(what, why, "check where the output goes").with_status(STATUS_HUSK)
        };
        let text = self.text(look, found).map_err(unprinted)?;
        print_bytes(&text).map_err(unprinted)
    }

    fn text(&self, look: &mut Look, found: &Differences) -> io::Result<Vec<u8>> {
        let changes = &found.changes;
        if self.patch {
            let mut text = Vec::new();
            look.patch(found, &mut text)?;
            return Ok(text);
        }
        Ok(match (self.stat, self.json, self.name_only) {
            (true, ..) => look.stat(found).into_bytes(),
            (_, true, _) => show::json(changes)?.into_bytes(),
            (.., true) => show::names(changes, self.nul),
            _ => show::list(changes, found.several).into_bytes(),
        })
    }
}
