//! What is answered in the process is not asked of the host: its calls are counted by `strace`.

use std::process::Command;

use husk_tests::toolchain::build_c;
use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// Makes, writes, renames and removes a thousand files.
const CHANGES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    for (int n = 0; n < 1000; n++) {
        int fd = open("one", O_RDWR | O_CREAT, 0644);
        if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) || rename("one", "two") || unlink("two"))
            return 1;
    }
    return 0;
}
"#;

/// The host's calls for what they do, and for the time they note.
const ASKED: &str = "trace=open,openat,write,close,rename,unlink,clock_gettime";

/// Calls of `ASKED` that all processes of a command make.
fn asked(scratch: &Scratch, inner: &Command) -> usize {
    let (work, log) = (scratch.fresh("work"), scratch.path().join("calls"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", ASKED, "-o"]).arg(&log);
    strace.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(scratch, &work, strace);
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    std::fs::read_to_string(&log).expect("the calls").lines().count()
}

/// Not even what time it is: the host maps the program right below where it says so.
#[test]
fn changes_of_files_ask_the_host_for_nothing() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("changes");
    let program = scratch.path().join("changes");
    build_c(CHANGES, &program);
    let native = asked(&scratch, &Command::new(&program));
    assert!(native >= 5000, "{native} calls of the program alone");
    let inside = husk(&["--discard"], &[program.to_str().expect("a plain path")]);
    let calls = asked(&scratch, &inside);
    assert!(calls < 1000, "{calls} calls of all processes");
}
