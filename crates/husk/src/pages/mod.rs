//! Completions for shells, and pages of the manual, made from the options themselves.

pub mod completing;
pub mod reference;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::{print, say};
use husk_supervisor::run::request::reason;

use crate::{Options, failed};

/// The command as people see it: without what only Husk itself starts.
pub(crate) fn command() -> Command {
    seen(&Options::command()).version(env!("CARGO_PKG_VERSION"))
}

/// A command and those below it that are not hidden.
fn seen(command: &Command) -> Command {
    if command.get_subcommands().all(|one| !one.is_hide_set()) {
        return command.clone();
    }
    let below: Vec<_> =
        command.get_subcommands().filter(|one| !one.is_hide_set()).map(seen).collect();
    let about = command.get_about().cloned().unwrap_or_default();
    let arguments = command.get_arguments().cloned().collect::<Vec<_>>();
    let again = Command::new(&*command.get_name().to_owned().leak()).about(about).args(arguments);
    again.subcommand_required(command.is_subcommand_required_set()).subcommands(below)
}

/// What is typed as `husk completions`.
pub fn completions(shell: Shell) -> ExitCode {
    match print(&script(shell)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!(
                "cannot print the completions: {}; check where the output goes",
                reason(&problem)
            ));
            ExitCode::from(STATUS_HUSK)
        }
    }
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = command();
    clap_complete::generate(shell, &mut command, "husk", &mut script);
    completing::with_names(shell, &command, &String::from_utf8_lossy(&script))
}

/// What is typed as `husk man`: writes a page for each command into `directory`.
pub fn manual(directory: &Path) -> ExitCode {
    let written = pages().and_then(|pages| {
        let write = |(name, page): &(PathBuf, Vec<u8>)| std::fs::write(directory.join(name), page);
        pages.iter().try_for_each(write)
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let what = format!("cannot write pages to {}", directory.display());
            let why = reason(&problem);
            failed(&Failure::new(what, why, "name a directory of yours"))
        }
    }
}

/// Name and text of each page.
fn pages() -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut pages = Vec::new();
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    add_pages(&mut pages, &whole)?;
    Ok(pages)
}

fn add_pages(pages: &mut Vec<(PathBuf, Vec<u8>)>, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    // Names are wanted for good; the process ends with the pages.
    let page = clap_mangen::Man::new(command.clone().name(&*name.leak()));
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename().into(), text));
    command.get_subcommands().try_for_each(|one| add_pages(pages, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Vec<String> {
        let whole = Options::command();
        let seen = whole.get_subcommands().filter(|one| !one.is_hide_set());
        seen.map(|one| one.get_name().to_owned()).collect()
    }

    #[test]
    fn every_command_is_completed_in_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for name in seen() {
                let word = |c: char| !(c.is_alphanumeric() || c == '_' || c == '-');
                let found = script.split(word).any(|one| one == name);
                assert!(found, "{shell}: {name} is not completed");
            }
            for hidden in ["resume", "worker"] {
                assert!(!script.contains(hidden), "{shell} completes {hidden}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(path, _)| path.as_os_str() == name);
            String::from_utf8_lossy(&found.unwrap_or_else(|| panic!("no {name}")).1).into_owned()
        };
        for name in seen() {
            let text = page(&format!("husk-{name}.1"));
            assert!(
                text.contains(".SH SYNOPSIS") && text.contains(&format!("husk {name}")),
                "{text}"
            );
        }
        assert!(page("husk.1").contains("exec(1)"));
        assert!(page("husk-config-show.1").contains("origin"));
        for hidden in ["husk-keep.1", "husk-bench-worker.1"] {
            assert!(!pages.iter().any(|(path, _)| path.as_os_str() == hidden), "{hidden}");
        }
    }
}
