//! Suites that read back what they wrote: `fsx`, `fio --verify`, `dbench`.

use std::fs;
use std::time::Duration;

use husk_tests::scratch::room;

use crate::{Suite, full, no_names, tools, words};

const FSX_CONFIGURATION: &str = include_str!("sources/fsx.toml");
const FIO_JOBS: &str = include_str!("sources/verify.fio");
/// Where Debian keeps the recorded load.
const DBENCH_LOAD: &str = "/usr/share/dbench/client.txt";

/// A file of a suite, below `target/`.
pub fn written(name: &str, content: &str) -> String {
    let path = room().join("tools").join(name);
    fs::create_dir_all(room().join("tools")).expect("a directory");
    fs::write(&path, content).expect("a file");
    path.canonicalize().expect("its path").to_str().expect("a plain path").to_owned()
}

fn check(name: &'static str, argv: Vec<String>, limit_s: u64) {
    let limit = Duration::from_secs(limit_s);
    Suite { name, argv, limit, failures: no_names, exceptions: &[] }.check();
}

#[test]
fn fsx_finds_every_byte_where_it_was_put() {
    let program = tools::installed("fsx", tools::FSX_VERSION);
    let configuration = written("fsx.toml", FSX_CONFIGURATION);
    // It maps the file for ever at each look, so that the time grows with the square, natively too.
    let (seeds, operations) = if full() { (40, "20000") } else { (5, "20000") };
    // Another seed each time would find more, and nobody could repeat it: `HUSK_SEED` does.
    let first: u64 = std::env::var("HUSK_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in first..first + seeds {
        println!("HUSK_SEED={seed}");
        let program = program.to_str().expect("a plain path");
        let seed = seed.to_string();
        let argv = [program, "-q", "-f", &configuration, "-N", operations, "-S", &seed, "file"];
        check("fsx", words(&argv), 120);
    }
}

#[test]
fn fio_verifies_what_every_engine_wrote() {
    let jobs = written("verify.fio", FIO_JOBS);
    let loops = if full() { "--loops=40" } else { "--loops=4" };
    check("fio", words(&[&tools::packaged("fio"), "--minimal", loops, &jobs]), 240);
}

#[test]
fn dbench_runs_its_recorded_load() {
    let seconds = if full() { "60" } else { "4" };
    let dbench = tools::packaged("dbench");
    check("dbench", words(&[&dbench, "-t", seconds, "-D", ".", "-c", DBENCH_LOAD, "4"]), 150);
}
