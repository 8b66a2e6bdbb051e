//! A host that lacks something, an image that is full: errors, and nothing lost.

use std::fs;

use husk_tests::toolchain::build_c;
use husk_tests::{Scratch, against_native, husk};

use crate::{run, said};

/// A build whose outputs do not fit into the smallest image.
const FILLING: &str = "\
all: $(foreach n,1 2 3 4 5 6 7 8,out$(n))
out%: source
\thead -c 16M /dev/zero > $@
\tcat source >> $@
";

#[test]
fn a_full_image_tells_the_program_and_spares_the_host() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("full");
    let work = scratch.fresh("work");
    fs::write(work.join("source"), "precious\n").expect("a source");
    fs::write(work.join("Makefile"), FILLING).expect("a makefile");
    let outcome = run(&scratch, &work, husk(&["--memory", "64M"], &["make", "-s"]));
    assert_eq!(outcome.code(), 2, "make fails: {}", outcome.shown());
    assert!(outcome.stderr.contains("No space left on device"), "{}", outcome.shown());
    assert_eq!(fs::read(work.join("source")).expect("the source"), b"precious\n");
    assert_eq!(fs::read_to_string(work.join("Makefile")).expect("the makefile"), FILLING);
}

#[test]
fn removing_files_makes_room_again() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("room");
    let work = scratch.fresh("work");
    let script =
        "for n in 1 2 3 4 5 6 7 8 9; do head -c 24M /dev/zero > big || exit 1; rm big; done
        head -c 500M /dev/zero > big 2> /dev/null && exit 1
        rm big; head -c 24M /dev/zero > big";
    let outcome = run(&scratch, &work, husk(&["--memory", "64M"], &["bash", "-c", script]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(fs::metadata(work.join("big")).expect("the file").len(), 24 << 20);
}

/// A kernel without Syscall User Dispatch answers EINVAL; a filter makes this one do so.
#[test]
fn a_host_without_syscall_user_dispatch_is_named() {
    let scratch = Scratch::new("no-sud");
    let work = scratch.fresh("work");
    let filter = scratch.path().join("no-sud");
    build_c(include_str!("sources/no-sud.c"), &filter);
    let mut command = std::process::Command::new(&filter);
    if against_native() {
        assert_eq!(
            run(&scratch, &work, {
                command.arg("/bin/true");
                command
            })
            .code(),
            0
        );
        return;
    }
    let inner = husk(&[], &["/bin/true"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    let lines = said(&outcome);
    assert!(
        matches!(lines[..], [line] if line.to_lowercase().contains("syscall user dispatch")),
        "{}",
        outcome.stderr
    );
}
