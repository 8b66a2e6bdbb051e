//! Many names, deep paths, names of any bytes; many processes and threads; many calls on a few
//! names: programs that check themselves, natively and in an image. `HUSK_FULL=1`: a million names
//! in one directory, and a million files; ten thousand processes in a row; 200,000 files
//! written back.
#![forbid(unsafe_code)]

mod connections;
mod flood;
mod lineage;
mod written;

use std::process::Command;
use std::time::Duration;

use husk_tests::toolchain::build_c;
use husk_tests::{Outcome, Run, Scratch, against_native, husk};

/// Names of the short form and of the long one, and the memory an image needs for as many inodes.
const MANY: (&str, &str) = ("50000", "1G");
const MOST: (&str, &str) = ("1000000", "6G");
/// Natively the program itself is tested.
const FEW: &str = "3000";
const NAMES_SAID: &str = "many: ok\nspread: ok\ndeep: ok\nnames: ok\n";
const CREW_SAID: &str = "crew: ok\n";
/// Processes that race for a few names, and calls of each: natively, and in an image.
const RACERS: &str = "8";
const NATIVE_CALLS: &str = "5000";
const CALLS: &str = "100000";
const HISTORY_SAID: &str = "history: ok\n";
/// What it says first where too few calls were made beside others to say anything.
const HARDLY: &str = "only ";
const RACES: usize = 5;
const LIMIT: Duration = Duration::from_secs(600);

/// Processes at once, how often; processes in a row; threads at once: natively, short form, long.
const NATIVE_CREW: [&str; 4] = ["100", "1", "100", "2000"];
const SHORT_CREW: [&str; 4] = ["100", "3", "300", "2000"];
const LONG_CREW: [&str; 4] = ["100", "30", "10000", "2000"];

fn ended(command: Command, scratch: &Scratch) -> Outcome {
    let work = scratch.fresh("work");
    let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT);
    outcome.unwrap_or_else(|hang| panic!("{hang}"))
}

fn done(command: Command, scratch: &Scratch, says: &str) {
    as_said(&ended(command, scratch), says);
}

fn as_said(outcome: &Outcome, says: &str) {
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(said, says, "{}", outcome.shown());
    assert!(outcome.status.success(), "{}", outcome.shown());
}

#[test]
fn a_million_names_are_as_good_as_one() {
    let scratch = Scratch::new("scale");
    let program = scratch.path().join("crowd");
    build_c(include_str!("sources/crowd.c"), &program);
    let program = program.to_str().expect("a path in UTF-8");
    let place = scratch.fresh("native");
    let mut native = Command::new(program);
    native.arg(FEW).arg(&place);
    done(native, &scratch, NAMES_SAID);
    if against_native() {
        return;
    }
    let full = std::env::var_os("HUSK_FULL").is_some();
    let (count, memory) = if full { MOST } else { MANY };
    done(husk(&["--memory", memory, "--discard"], &[program, count, "/tmp"]), &scratch, NAMES_SAID);
}

#[test]
fn thousands_of_processes_and_threads_come_and_go_and_leave_nothing() {
    let scratch = Scratch::new("crew");
    let program = scratch.path().join("crew");
    build_c(include_str!("sources/crew.c"), &program);
    let program = program.to_str().expect("a path in UTF-8");
    let mut native = Command::new(program);
    native.args(NATIVE_CREW);
    done(native, &scratch, CREW_SAID);
    if against_native() {
        return;
    }
    let full = std::env::var_os("HUSK_FULL").is_some();
    let argv = [&[program], &(if full { LONG_CREW } else { SHORT_CREW })[..]].concat();
    done(husk(&["--discard"], &argv), &scratch, CREW_SAID);
}

#[test]
fn what_eight_processes_saw_of_four_names_has_an_order() {
    let scratch = Scratch::new("history");
    let program = scratch.path().join("history");
    build_c(include_str!("sources/history.c"), &program);
    let program = program.to_str().expect("a path in UTF-8");
    let seed = std::env::var("HUSK_SEED").unwrap_or_else(|_| std::process::id().to_string());
    let mut native = Command::new(program);
    native.args([RACERS, NATIVE_CALLS, &seed]);
    done(native, &scratch, HISTORY_SAID);
    if against_native() {
        return;
    }
    let argv = [program, RACERS, CALLS, &seed];
    let race = || ended(husk(&["--discard"], &argv), &scratch);
    // On a busy machine hardly two of them may run at once: again, then.
    let hardly = |outcome: &Outcome| {
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        said.starts_with(HARDLY) && said.lines().nth(1) == Some(HISTORY_SAID.trim_end())
    };
    let outcome = std::iter::repeat_with(race).take(RACES).find(|outcome| !hardly(outcome));
    as_said(&outcome.expect("they never ran at once"), HISTORY_SAID);
}
