//! Many names, deep paths, names of any bytes: a program that checks itself, natively and in an
//! image. `HUSK_FULL=1`: a million names in one directory, and a million files.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, against_native, husk};

/// Names of the short form and of the long one, and the memory an image needs for as many inodes.
const MANY: (&str, &str) = ("50000", "1G");
const MOST: (&str, &str) = ("1000000", "6G");
/// Natively the program itself is tested.
const FEW: &str = "3000";
const LIMIT: Duration = Duration::from_secs(600);

fn done(mut command: Command, scratch: &Scratch) {
    command.current_dir(scratch.path());
    let work = scratch.fresh("work");
    let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT);
    let outcome = outcome.unwrap_or_else(|hang| panic!("{hang}"));
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(said, "many: ok\nspread: ok\ndeep: ok\nnames: ok\n", "{}", outcome.shown());
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
    done(native, &scratch);
    if against_native() {
        return;
    }
    let full = std::env::var_os("HUSK_FULL").is_some();
    let (count, memory) = if full { MOST } else { MANY };
    done(husk(&["--memory", memory, "--discard"], &[program, count, "/tmp"]), &scratch);
}
