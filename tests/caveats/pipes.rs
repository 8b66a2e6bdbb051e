//! Pipes whose bytes go through the image.

use husk_tests::{Run, Scratch, Side, against_native};

use crate::LIMIT;

/// What a script prints on one side.
fn printed(side: Side, script: &str) -> String {
    let scratch = Scratch::new("pipe-caveats");
    let command = side.command(&[], &["python3", "-c", script]);
    let run = Run::start(command, &scratch.fresh("work"), scratch.path());
    let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
    assert!(outcome.status.success(), "{}", outcome.shown());
    String::from_utf8(outcome.stdout).expect("text")
}

#[test]
fn a_pipe_between_ring_and_host_holds_both() {
    let script = "
import os
reads, writes = os.pipe()
for _ in range(40):
    os.write(writes, b'x')
    os.read(reads, 1)
os.set_blocking(writes, False)
total = 0
try:
    while True:
        total += os.write(writes, bytes(4096))
except BlockingIOError:
    print(total)
";
    assert_eq!(printed(Side::Native, script), "65536\n");
    if !against_native() {
        assert_eq!(printed(Side::Husk, script), "131072\n");
    }
}
