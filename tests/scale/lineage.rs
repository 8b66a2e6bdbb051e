//! Many processes alive at once, a long line of them, many in a row, threads that hand a word to
//! each other; and many images one after the other.

use std::time::Duration;

use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side, against_native, husk};

use crate::{LIMIT, done};

/// Processes alive, generations, processes in a row, threads, turns: natively, short form, long.
const NATIVE: [&str; 5] = ["100", "100", "300", "100", "5000"];
const SHORT: [&str; 5] = ["150", "300", "500", "200", "20000"];
const LONG: [&str; 5] = ["1000", "1000", "10000", "500", "2000000"];
const SAID: &str = "alive: ok\nlineage: ok\nrow: ok\nthreads: ok\n";
/// Images one after the other, short form and long.
const IMAGES: (u32, u32) = (15, 1000);

fn full() -> bool {
    std::env::var_os("HUSK_FULL").is_some()
}

#[test]
fn a_thousand_processes_live_at_once_and_in_a_line_and_threads_lose_no_wake() {
    let scratch = Scratch::new("lineage");
    let program = scratch.path().join("lineage");
    build_c(include_str!("sources/lineage.c"), &program);
    let program = program.to_str().expect("a path in UTF-8");
    let argv = |numbers: &[&'static str]| [&[program], numbers].concat();
    done(Side::Native.command(&[], &argv(&NATIVE)), &scratch, SAID);
    if against_native() {
        return;
    }
    let numbers = if full() { LONG } else { SHORT };
    done(husk(&["--discard"], &argv(&numbers)), &scratch, SAID);
}

#[test]
fn a_thousand_images_come_and_go_and_leave_nothing() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("images");
    let rooms = ["run", "tmp"].map(|name| scratch.fresh(name));
    for round in 0..if full() { IMAGES.1 } else { IMAGES.0 } {
        let work = scratch.fresh("work");
        let mut command = husk(&[], &["sh", "-c", "echo made > file; exit 7"]);
        command.env("XDG_RUNTIME_DIR", &rooms[0]).env("TMPDIR", &rooms[1]);
        let outcome = Run::start(command, &work, scratch.path()).wait(LIMIT.min(PATIENCE));
        let outcome = outcome.unwrap_or_else(|hang| panic!("round {round}: {hang}"));
        let shown = outcome.shown();
        assert_eq!(outcome.code(), 7, "round {round}:\n{shown}");
        assert!(outcome.left.is_empty(), "round {round}: left running: {:?}", outcome.left);
        let made = std::fs::read(work.join("file")).expect("what was written back");
        assert_eq!(made, b"made\n", "round {round}:\n{shown}");
    }
    for room in rooms {
        let left: Vec<_> = std::fs::read_dir(&room).expect("a directory").flatten().collect();
        let empty = |entry: &std::fs::DirEntry| {
            std::fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.next().is_none())
        };
        assert!(left.iter().all(empty), "left: {left:?}");
    }
}

/// No image of these takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
