//! Shell completion of values: names of images, process ids, and paths in images.
//!
//! ```text
//!   husk exec c|     ─► husk ls --names
//!   husk kill ci 4|  ─► husk offer numbers -- kill ci     "PID<TAB>COMMAND" lines
//!   husk cp ci:/t|   ─► husk offer paths -- ci:/t         "ci:/tmp/" lines
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::{Arg, Command};
use clap_complete::Shell;
use husk_supervisor::named::offer;
use husk_supervisor::output::failure::STATUS_HUSK;

/// What asks for the names; who has none is offered none.
const ASK: &str = "husk ls --names 2> /dev/null";

/// What is typed where something is offered.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum Kind {
    /// The number of a process.
    Numbers,
    /// A path in an image.
    Paths,
    /// The same, asked inside.
    Below,
}

/// Prints what is offered, a line each.
pub fn offer(kind: Kind, words: &[OsString]) -> ExitCode {
    let typed = words.last().cloned().unwrap_or_default();
    let lines: Vec<OsString> = match kind {
        Kind::Paths => offer::paths(&typed),
        Kind::Below => offer::below(&typed),
        Kind::Numbers => {
            let line =
                |one: &husk_supervisor::named::Process| format!("{}\t{}", one.pid, one.line());
            offer::numbers(words).iter().map(line).map(OsString::from).collect()
        }
    };
    let bytes: Vec<u8> = lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect();
    let printed = std::io::Write::write_all(&mut std::io::stdout(), &bytes);
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

/// `script`, made from the options, with what is offered beside them.
pub fn with_names(shell: Shell, command: &Command, script: &str) -> String {
    let verbs: Vec<&str> =
        command.get_subcommands().filter(|one| names_one(one)).map(Command::get_name).collect();
    match shell {
        Shell::Bash => format!("{}{}", without_placeholders(script), bash(command, &verbs)),
        Shell::Zsh => zsh(script),
        Shell::Fish => script.to_owned() + &fish(&verbs),
        _ => script.to_owned(),
    }
}

/// Whether the first word behind the command is the name of an image that there is.
fn names_one(command: &Command) -> bool {
    let first = command.get_positionals().next().map(|first| first.get_id().as_str());
    matches!(first, Some("name" | "image")) && command.get_name() != "up"
}

/// Options that are followed by a word of their own.
fn with_values(command: &Command) -> Vec<String> {
    let takes = |arg: &&Arg| {
        let valued = arg.get_action().takes_values() && !arg.is_require_equals_set();
        valued && !arg.is_positional()
    };
    let spelt = |arg: &Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        [long, short].into_iter().flatten().collect::<Vec<_>>()
    };
    let of = |one: &Command| one.get_arguments().filter(takes).flat_map(spelt).collect::<Vec<_>>();
    let mut all: Vec<String> = command.get_subcommands().flat_map(of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What stands for a word is none that anybody wants to have typed: `<NAME>`, `[COMMAND]...`.
fn without_placeholders(script: &str) -> String {
    let line = |line: &str| {
        let (before, words) = line.split_once("opts=\"")?;
        let words = words.strip_suffix('"')?.split_ascii_whitespace();
        let real: Vec<&str> = words.filter(|word| !word.starts_with(['<', '['])).collect();
        Some(format!("{before}opts=\"{}\"\n", real.join(" ")))
    };
    script.lines().map(|text| line(text).unwrap_or_else(|| format!("{text}\n"))).collect()
}

fn bash(command: &Command, verbs: &[&str]) -> String {
    let (verbs, valued) = (verbs.join("|"), with_values(command).join("|"));
    include_str!("completing/husk.bash")
        .replace("VALUED", &valued)
        .replace("VERBS", &verbs)
        .replace("ASK", ASK)
}

/// Lines that take the name of an image, a process or a path are told by what they say of it.
fn zsh(script: &str) -> String {
    let offered = [
        ("name -- Name of", "named"),
        ("image -- Name of", "named"),
        ("pid -- Number of", "numbers"),
        ("source -- What to copy", "paths"),
        ("target -- Where to, or", "paths"),
    ];
    let line = |line: &str| {
        let words = line.trim_start().trim_start_matches(['\'', ':']);
        let found = offered.iter().find(|(begin, _)| words.starts_with(begin));
        match found {
            Some((_, what)) => line.replace(":_default'", &format!(":_husk_{what}'")),
            None => line.to_owned(),
        }
    };
    let mut lines: Vec<String> = script.lines().map(line).collect();
    // Behind the line that says what is completed, before what is done.
    lines.insert(1, include_str!("completing/husk.zsh").replace("ASK", ASK));
    lines.join("\n") + "\n"
}

fn fish(verbs: &[&str]) -> String {
    let offer = |verb: &str, what: &str| {
        format!("complete -c husk -n \"__fish_husk_using_subcommand {verb}\" {what}\n")
    };
    let names = verbs.iter().map(|verb| offer(verb, &format!("-a \"({ASK})\"")));
    let ask = |what: &str| format!("-a \"(husk offer {what} 2> /dev/null)\"");
    let numbers = ["kill", "explain"]
        .map(|verb| offer(verb, &format!("-k {}", ask("numbers -- (commandline -opc)"))));
    let paths = ["cp", "mount"].map(|verb| offer(verb, &ask("paths -- (commandline -ct)")));
    // What stands behind the colon is no file of the host.
    let inside = "complete -c husk -n \"__fish_husk_using_subcommand cp; \
        and string match -q '*:*' -- (commandline -ct)\" -f\n";
    let traced = ask("numbers -- (commandline -opc)");
    let traced = offer("trace", &format!("-s p -l pid -x {traced}"));
    names.chain(numbers).chain(paths).chain([traced, inside.to_owned()]).collect()
}
