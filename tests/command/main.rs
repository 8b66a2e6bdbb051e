//! The command itself: what it says about bad input, what status it ends with, what it gives back.
#![forbid(unsafe_code)]

mod changes;
mod hosts;
mod life;
mod memory;
mod net;
mod nodes;
mod volume;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use husk_tests::{Outcome, Run, Scratch};

/// No run of these tests takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `command` in `work` to its end.
fn run(scratch: &Scratch, work: &Path, command: Command) -> Outcome {
    Run::start(command, work, scratch.path()).wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
}

/// Lines on standard error that come from Husk, apart from the structure check's.
fn said(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.stderr.lines().filter(|line| line.starts_with("husk: "));
    // Commands of documents and tests of whole systems are run beside these tests, in directories
    // that the scratch is in.
    let told = |line: &&str| {
        let beside = line.strip_prefix("husk: note: another image overlays ");
        let place = beside.and_then(|rest| rest.split(',').next());
        let above =
            place.is_some_and(|place| Path::new(env!("CARGO_MANIFEST_DIR")).starts_with(place));
        !line.starts_with("husk: fsck: ") && !above
    };
    lines.filter(told).collect()
}

/// The user these tests use where being root would hide a refusal.
const NOBODY: &str = "65534";

/// `command` as an ordinary user; as it is when that is who we are.
fn as_nobody(command: &Command) -> Command {
    let mut words = vec![command.get_program().to_owned()];
    words.extend(command.get_args().map(ToOwned::to_owned));
    let mut wrapped = if rustix::process::getuid().is_root() {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).args(words);
        setpriv
    } else {
        let mut plain = Command::new(&words[0]);
        plain.args(&words[1..]);
        plain
    };
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    let home = husk_tests::run::home("nobody");
    give_to_nobody(&home);
    wrapped.env("HOME", home);
    wrapped
}

/// Gives `path` to the ordinary user.
fn give_to_nobody(path: &Path) {
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("chown");
    }
}
