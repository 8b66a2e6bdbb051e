//! The guard: what a stray store of a program does, and what programs with protection keys of their
//! own find. Where the processor has no keys there is no guard, and nothing to see.

use std::process::Command;

use husk_tests::case::findings;
use husk_tests::toolchain::build_c;
use husk_tests::{Outcome, Scratch, husk};

use crate::{run, said};

/// What `sources/keys.c` prints natively where there are keys.
const NATIVE_KEYS: &str = "15\n";

/// `script` in an image, with the program `./keys`; `None` without keys.
fn guarded(name: &str, script: &str) -> Option<Outcome> {
    let scratch = Scratch::new(name);
    let work = scratch.fresh("work");
    let program = work.join("keys");
    build_c(include_str!("../sources/keys.c"), &program);
    let count = Command::new(&program).arg("count").output().expect("the program starts");
    if count.stdout != NATIVE_KEYS.as_bytes() {
        return None;
    }
    let outcome =
        run(&scratch, &work, husk(&["--guard", "on", "--discard"], &["sh", "-c", script]));
    assert!(findings(&outcome.stderr).is_empty(), "{}", outcome.shown());
    Some(outcome)
}

fn printed(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

#[test]
fn a_stray_store_ends_its_program_with_a_line_and_harms_no_image() {
    let script = "for at in 0 8 512 100000; do ./keys stray $at; echo $?; done; \
                  echo on > it && cat it";
    let Some(outcome) = guarded("stray", script) else { return };
    assert_eq!(printed(&outcome), "139\n139\n139\n139\non\n", "{}", outcome.shown());
    let lines = said(&outcome);
    assert!(lines.len() == 4, "{lines:?}");
    let line = "husk: the program touched the image's state at 0000540000001000, which is guarded: \
                it ends, the image is unharmed";
    assert_eq!(lines[2], line, "of word 512");
}

#[test]
fn a_stray_pointer_in_a_call_is_a_bad_address() {
    let script = "for at in 0 512 100000; do ./keys call $at; done";
    let Some(outcome) = guarded("stray-call", script) else { return };
    assert_eq!(printed(&outcome), "Bad address\n".repeat(3), "{}", outcome.shown());
}

#[test]
fn programs_have_fourteen_keys_and_calls_leave_their_rights_alone() {
    let Some(outcome) = guarded("keys", "./keys keys") else { return };
    let expected = "14 keys, rights kept, Invalid argument, Invalid argument\n";
    assert_eq!(printed(&outcome), expected, "{}", outcome.shown());
}

#[test]
fn who_shuts_all_keys_is_answered_and_cannot_store_into_the_image() {
    let script = "for way in 0 1 2 3 4 5; do ./keys looks $way; echo $?; done";
    let Some(outcome) = guarded("looks", script) else { return };
    let expected = "2 139\n0 139\n1 139\n1 139\n0 139\n0 139\n";
    assert_eq!(printed(&outcome), expected, "{}", outcome.shown());
}

#[test]
fn a_handler_that_waits_for_a_lock_sleeps() {
    let Some(outcome) = guarded("handler", "./keys handler") else { return };
    assert_eq!(printed(&outcome), "slept\n", "{}", outcome.shown());
}
