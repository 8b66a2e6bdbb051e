//! A process that is signalled all the time, in every way, does what it would natively: queued
//! signals come once and in order, calls end whole, jumps out of handlers leave nothing behind. So
//! does one that is stepped through its calls, and signalled at each instruction.

use std::time::Duration;

use husk_tests::case::findings;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side};

/// Signals sent: for every change, and with `HUSK_FULL`.
const SIGNALS: (&str, &str) = ("40000", "1000000");
/// At every how many instructions a stepped process gets a signal.
const STRIDES: (&str, &str) = ("97", "7");
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn queued_signals_come_once_and_in_order_whatever_they_interrupt() {
    let count = if full() { SIGNALS.1 } else { SIGNALS.0 };
    let queued = count.parse::<u64>().expect("a number") / 2;
    let expected = format!("queued {queued}, lost or twice 0, wrong 0\n");
    says("tempest", include_str!("sources/tempest.c"), count, &expected);
}

#[test]
fn a_signal_at_any_instruction_of_a_call_is_handled_once_and_the_call_is_whole() {
    let calls =
        ["open and close", "pwrite and pread", "fstat", "fcntl", "pipe", "getppid", "rename"];
    let line = |call: &str| format!("{call}: 0, handlers missing or twice 0\n");
    let expected: String = calls.into_iter().map(line).collect();
    let stride = if full() { STRIDES.1 } else { STRIDES.0 };
    says("stepped", include_str!("sources/stepped.c"), stride, &expected);
}

fn full() -> bool {
    std::env::var_os("HUSK_FULL").is_some()
}

/// Builds a program and runs it on both sides: it says this, and nothing else.
fn says(name: &str, source: &str, argument: &str, expected: &str) {
    let scratch = Scratch::new(name);
    let program = scratch.path().join(name);
    build_c(source, &program);
    let program = program.to_str().expect("a plain path");
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let run = Run::start(side.command(&[], &[program, argument]), &work, scratch.path());
        let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert_eq!(said, expected, "{side:?}:\n{shown}");
        assert!(outcome.status.success() && outcome.left.is_empty(), "{side:?}:\n{shown}");
        println!("{side:?}: {}", outcome.stderr.trim_end());
        assert!(side == Side::Native || findings(&outcome.stderr).is_empty(), "{shown}");
    }
}
