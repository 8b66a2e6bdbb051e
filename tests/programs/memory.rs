//! Programs have their memory to themselves: where they map, grow and lock it, nothing of Husk's is
//! in the way, and nothing of it is shown to them.

use std::path::PathBuf;
use std::time::Duration;

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Run, Scratch, against_native, husk};

fn built(scratch: &Scratch, source: &str) -> PathBuf {
    let program = scratch.path().join("program");
    build_c(source, &program);
    program
}

fn the_same_as_natively(name: &'static str, source: &str) {
    let scratch = Scratch::new("memory-built");
    let program = built(&scratch, source);
    Case::new(name, Length::Once, &[program.to_str().expect("its name is text")]).check();
}

/// What belongs to a thread of Husk's does not lie where a stack grows to.
#[test]
fn a_stack_grows_below_which_threads_were_made() {
    the_same_as_natively("growing", include_str!("sources/memory/growing.c"));
}

/// As ThreadSanitizer and MemorySanitizer map them, which give up where anything else lies there.
#[test]
fn shadows_of_sanitizers_find_their_places() {
    the_same_as_natively("shadows", include_str!("sources/memory/shadows.c"));
}

/// The image is as large as `--memory` says, and most of it is free.
#[test]
fn mlockall_locks_what_the_program_has_and_no_more() {
    the_same_as_natively("locked", include_str!("sources/memory/locked.c"));
}

/// What a hole is mapped from lies behind all that the image has, whatever its size: a store there
/// makes the page, and reaches nobody else's.
#[test]
fn holes_of_mapped_files_are_written_whatever_the_size_of_the_image() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("holes");
    let script = include_str!("sources/memory/holes.py");
    for memory in ["64M", "77M", "100M", "300M", "700M"] {
        let work = scratch.fresh("work");
        let command = husk(&["--discard", "--memory", memory], &["python3", "-c", script]);
        let outcome = Run::start(command, &work, scratch.path());
        let outcome = outcome.wait(Duration::from_secs(60)).expect("it ends");
        let said = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(said, "written\n", "{memory}: {}", outcome.shown());
    }
}
