//! Programs that jump into what lies beside them, take it away, or are stopped in the middle: the
//! image survives, and others go on.

use std::time::Duration;

use husk_tests::case::findings;
use husk_tests::run::patience;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side, against_native};

/// How often a process is stopped, and for how long, ms: for every change, and with `HUSK_FULL`.
const STOPS: ([&str; 2], [&str; 2]) = (["8", "1500"], ["12", "10000"]);
/// Longest that anybody may wait for who is stopped.
const WAIT_MAX_MS: u64 = 1000;
/// No program here takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// Places in the runtime's text: so many, so far apart, odd and even, as any may hold instructions
/// that lead out of it again.
const JUMPS: usize = 16;
const JUMP_BYTES: usize = 0xd3b1;

/// What a shell beside the program says: its status, and that files are as they were.
const BESIDE: &str = "\"$@\"; status=$?; echo more >> before; cat before; rm -f before after
    exit $status";

fn beside(arguments: &[&str]) -> (i32, String, String) {
    let scratch = Scratch::new("hostile");
    let program = scratch.path().join("hostile");
    build_c(include_str!("sources/hostile.c"), &program);
    let work = scratch.fresh("work");
    let program = program.to_str().expect("a plain path");
    let argv = [&["bash", "-c", BESIDE, "bash", program], arguments].concat();
    let run = Run::start(Side::Husk.command(&[], &argv), &work, scratch.path());
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{arguments:?}: {hang}"));
    let shown = outcome.shown();
    assert!(findings(&outcome.stderr).is_empty(), "{arguments:?}: {shown}");
    assert!(outcome.left.is_empty(), "{arguments:?}: left running: {:?}", outcome.left);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    (outcome.code(), said, outcome.stderr)
}

#[test]
fn who_jumps_into_the_runtime_is_ended_with_a_line() {
    if against_native() {
        return;
    }
    let (mut told, mut quiet) = (0, 0);
    for place in (0..JUMPS).map(|n| (n * JUMP_BYTES).to_string()) {
        let (status, said, errors) = beside(&["jump", &place]);
        // It may be code that does nothing and returns, and the program ends by what follows; or
        // code that ends it with some status, seldom 0.
        quiet += usize::from(status == 0);
        assert!(said.ends_with("before\nmore\n"), "{place}: {said}{errors}");
        told += usize::from(errors.contains("husk: the program jumped into the runtime"));
    }
    assert!(told * 2 > JUMPS, "{told} of {JUMPS} were told");
    assert!(quiet * 8 <= JUMPS, "{quiet} of {JUMPS} ended as if nothing was wrong");
}

#[test]
fn who_takes_memory_or_descriptors_of_ours_away_gets_an_error() {
    if against_native() {
        return;
    }
    for kind in ["memory", "close"] {
        let (status, said, errors) = beside(&[kind]);
        assert_eq!((status, said.as_str()), (0, "goes on\nbefore\nmore\n"), "{kind}: {errors}");
    }
}

#[test]
fn who_overflows_its_stack_or_stores_into_ours_ends_alone() {
    if against_native() {
        return;
    }
    let text = ["store", "0x544000001000"];
    let table = ["store", "0x60000"];
    for (arguments, expected) in
        [(&["stack"][..], 139), (&["abort"][..], 134), (&text[..], 139), (&table[..], 139)]
    {
        let (status, said, errors) = beside(arguments);
        assert_eq!(status, expected, "{arguments:?}: {errors}");
        assert_eq!(said, "before\nmore\n", "{arguments:?}: {errors}");
    }
}

#[test]
fn who_is_stopped_in_the_middle_keeps_nobody_waiting() {
    let scratch = Scratch::new("stopped");
    let program = scratch.path().join("stopped");
    build_c(include_str!("sources/stopped.c"), &program);
    let program = program.to_str().expect("a plain path");
    let full = std::env::var_os("HUSK_FULL").is_some();
    let [rounds, stop_ms] = if full { STOPS.1 } else { STOPS.0 };
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let command = side.command(&[], &[program, rounds, stop_ms]);
        let outcome = Run::start(command, &work, scratch.path()).wait(Duration::from_secs(240));
        let outcome = outcome.unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        assert!(outcome.status.success(), "{side:?}:\n{shown}");
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let slowest = said.trim().strip_prefix("slowest_ms=").and_then(|ms| ms.parse::<u64>().ok());
        let slowest = slowest.unwrap_or_else(|| panic!("{side:?}:\n{shown}"));
        println!("{side:?}: {slowest} ms");
        assert!(slowest <= WAIT_MAX_MS * u64::from(patience()), "{side:?}: {slowest} ms");
        if side == Side::Husk {
            assert!(findings(&outcome.stderr).is_empty(), "{shown}");
        }
    }
}
