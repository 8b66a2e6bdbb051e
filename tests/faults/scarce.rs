//! Real programs where there is less and less room, of bytes or of names: git, tar, sqlite3 and gcc
//! fail with a status, spoil nothing, and leave no room taken. Natively that is a small tmpfs.

use std::process::Command;
use std::time::Duration;

use husk_tests::case::findings;
use husk_tests::run::patience;
use husk_tests::{Run, Scratch, Side};
use rustix::process::getuid;

const SCRIPT: &str = include_str!("sources/scarce.py");
/// At least so much more room at each attempt, blocks or names: for every change, and with
/// `HUSK_FULL`.
const STEPS: (&str, &str) = ("9", "1");
const LIMIT: Duration = Duration::from_secs(400);
const SAID: &str = "git: ok\ntar: ok\nsqlite: ok\ngcc: ok\n";
/// A tmpfs in the current directory, of this namespace alone.
const NATIVE: &str = r#"mount -t tmpfs -o size=16m,nr_inodes=3k small "$PWD" && cd "$PWD"
exec python3 -c "$@""#;

fn command(side: Side, kind: &str, step: &str) -> Command {
    if side == Side::Husk {
        return side
            .command(&["--memory", "32M", "--discard"], &["python3", "-c", SCRIPT, kind, step]);
    }
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([user, "sh", "-euc", NATIVE, "sh", SCRIPT, kind, step]);
    command
}

#[test]
fn programs_without_room_say_so_and_spoil_nothing() {
    let scratch = Scratch::new("no-room");
    let step = if std::env::var_os("HUSK_FULL").is_some() { STEPS.1 } else { STEPS.0 };
    for kind in ["bytes", "names"] {
        for side in [Side::Native, Side::tested()] {
            let work = scratch.fresh("work");
            let run = Run::start(command(side, kind, step), &work, scratch.path());
            let outcome = run.wait(LIMIT * patience());
            let outcome = outcome.unwrap_or_else(|hang| panic!("{side:?}, {kind} {hang}"));
            let shown = outcome.shown();
            println!("{side:?}, {kind}:\n{}", outcome.stderr);
            let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
            assert_eq!(said, SAID, "{side:?}, {kind}:\n{shown}");
            assert!(outcome.status.success() && outcome.left.is_empty(), "{side:?}:\n{shown}");
            assert!(side == Side::Native || findings(&outcome.stderr).is_empty(), "{shown}");
        }
    }
}
