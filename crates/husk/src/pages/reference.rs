//! `docs/commands.md`: every command with its options, as `--help` shows them.
//!
//! ```text
//!   Options ──page()──► docs/commands.md      husk reference > docs/commands.md
//! ```
//!
//! A test compares the page with the options.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Command;
use husk_supervisor::output::failure::STATUS_HUSK;
use husk_supervisor::output::{print, say};
use husk_supervisor::run::request::reason;

use crate::pages::command;

const HEAD: &str = "\
# Commands

The `--help` text of each command. This page is generated: `cargo run --release -- reference >
docs/commands.md`. [images.md](images.md) and the [tutorial](tutorial.md) show the commands in use.

If Husk itself fails, the exit status is 125 (`husk fsck`: 2), and one line on standard error says
what failed, why, and what to do.
";

/// What is typed as `husk reference`: prints the page.
pub fn run() -> ExitCode {
    match print(&page()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!(
                "cannot print the page: {}; check where the output goes",
                reason(&problem)
            ));
            ExitCode::from(STATUS_HUSK)
        }
    }
}

fn page() -> String {
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    let mut page = HEAD.to_owned();
    whole.get_subcommands().for_each(|one| add(&mut page, one, 2));
    page
}

/// A command's part, and those of the commands below it.
fn add(page: &mut String, command: &Command, depth: usize) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut shown = command.clone().term_width(96);
    let help = shown.render_long_help().to_string();
    let lines = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let rank = "#".repeat(depth);
    let _ = write!(page, "\n{rank} {name}\n\n```text\n{}\n```\n", lines.trim_end());
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    below.for_each(|one| add(page, one, depth + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_says_what_can_be_typed() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let written = std::fs::read_to_string(path).expect("docs/commands.md");
        let remedy = "type: cargo run --release -- reference > docs/commands.md";
        assert!(written == page(), "docs/commands.md is not what the options say; {remedy}");
    }
}
