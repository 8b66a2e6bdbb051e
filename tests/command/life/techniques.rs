//! `HUSK_WITHOUT`: an image does without a technique, and its programs see no difference.
//! `husk bench`: every row of `pipes` and `msg` can be measured, and a server of each kind.

use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// Reads and writes a file a thousand times each, then says how many calls of the host that were
/// (`/proc/self/io` counts reads and writes).
const SCRIPT: &str = r#"
import os
def calls():
    facts = dict(line.split(': ') for line in open('/proc/self/io'))
    return int(facts['syscr']) + int(facts['syscw'])
file = os.open('file', os.O_RDWR | os.O_CREAT)
os.write(file, b'x' * 4096)
before = calls()
for n in range(1000):
    assert os.pwrite(file, bytes([n % 256]) * 100, n) == 100
    assert os.pread(file, 100, n) == bytes([n % 256]) * 100
try:
    os.preadv(file, [memoryview(bytearray(10))], 5000)
except OSError:
    pass
print(calls() - before)
"#;

/// Calls of the host for the bytes of two thousand of the program.
fn calls_of_the_host(without: &str) -> u32 {
    let scratch = Scratch::new("techniques");
    let work = scratch.fresh("work");
    let mut command = husk(&["--discard"], &["python3", "-c", SCRIPT]);
    command.env("HUSK_WITHOUT", without);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 0, "{without}: {}", outcome.shown());
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    said.trim().parse().unwrap_or_else(|_| panic!("{without}: {}", outcome.shown()))
}

#[test]
fn bytes_pass_through_the_host_only_without_direct_copies() {
    if against_native() {
        return;
    }
    let (with, without) = (calls_of_the_host(""), calls_of_the_host("direct"));
    assert!(with < 100 && without >= 2000, "{with} calls, {without} without");
}

#[test]
fn a_build_is_the_same_without_any_technique() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("without-all");
    let work = scratch.fresh("work");
    let script = "mkdir d; seq 100000 > d/numbers; cp d/numbers d/copy; sort -R d/copy | sort -n \
                  > d/sorted; cmp d/numbers d/sorted; for n in $(seq 300); do echo $n > d/$n; done
                  mv d e; ls e | wc -l; rm -r e; ls";
    let mut command = husk(&["--discard"], &["bash", "-euc", script]);
    command.env("HUSK_WITHOUT", "optimistic,direct,affinity,ahead,gathered").env("HUSK_FSCK", "1");
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"303\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("fsck: clean"), "{}", outcome.shown());
}

/// One round of the rows of a suite of `husk bench` whose names contain `only`. The status tells of
/// the control, which a busy machine may move.
fn rows(suite: &str, only: &str) -> Vec<serde_json::Value> {
    let scratch = Scratch::new(&format!("bench-{suite}"));
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.args(["bench", suite, "--rounds", "1", "--json", "--only", only]);
    let outcome = run(&scratch, &work, command);
    let all: serde_json::Value = serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", outcome.shown()));
    all["rows"].as_array().expect("rows").clone()
}

#[test]
fn a_server_of_each_kind_can_be_measured() {
    for only in ["redis, set", "nginx, of the image", "the same, 1 connection"] {
        let all = rows("servers", only);
        let [row] = &all[..] else { panic!("{all:?}") };
        let figures = ["native_ns", "husk_ns", "control", "rate"];
        let measured = figures.map(|name| row[name].as_f64() > Some(0.0));
        assert!(measured == [true; 4] && row["error"].is_null(), "{row}");
        // A server takes a MiB, and the image some more.
        let memory = |side: &str| row[format!("{side}_memory_bytes")].as_u64();
        assert!(memory("native") > Some(1 << 20) && memory("husk") > memory("native"), "{row}");
    }
}

#[test]
fn every_row_of_pipes_can_be_measured() {
    let all = rows("pipes", "");
    assert_eq!(all.len(), 23, "{all:?}");
    for row in all {
        // Rows of one thread are of slices, the others of rounds, with their best.
        let kind = if row["slowed"].is_null() { "best" } else { "slowed" };
        let measured = ["native_ns", "husk_ns", kind].map(|name| row[name].as_f64() > Some(0.0));
        assert!(measured == [true; 3] && row["error"].is_null(), "{row}");
    }
}

#[test]
fn every_row_of_messages_can_be_measured() {
    let all = rows("msg", "");
    assert_eq!(all.len(), 16, "{all:?}");
    for row in all {
        // Where sides sleep, what they do meanwhile is taken off: on a busy machine too much.
        let measured = ["least_ns", "median_ns"].map(|name| row[name].is_f64());
        assert!(measured == [true; 2] && row["name"].is_string(), "{row}");
    }
}
