//! A process ends in the middle, in every way there is; who waits for what it held is told within a
//! second, gets it once, and nothing of it is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use husk_tests::case::findings;
use husk_tests::run::patience;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side, process};

/// How a process ends, and what its parent is told of it: a signal, or less than one for a status.
const WAYS: [(&str, i32); 8] = [
    ("killed", 9),
    ("fault", 11),
    ("stack", 11),
    ("abort", 6),
    ("broken", 13),
    ("changing", 9),
    ("leaves", 0),
    ("memory", 9),
];
/// Rounds and waiters of the program.
const ROUNDS: usize = 5;
const WAITERS: usize = 10;
/// What a group of processes may have before it is out of memory.
const GROUP_BYTES: &str = "33554432";
const LIMIT: Duration = Duration::from_secs(90);

/// A group of processes with little memory, removed in the end.
struct Group(PathBuf);

impl Group {
    /// `None` where groups cannot be made.
    fn new() -> Option<Self> {
        let name = format!("husk-victims-{}", std::process::id());
        let kinds =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(&name);
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            let limit = group.0.join(limit);
            (limit.exists() && fs::write(limit, GROUP_BYTES).is_ok()).then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it has just ended; at worst an empty group is left.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn who_waits_for_what_the_dead_held_is_told_within_a_second_and_gets_it_once() {
    let scratch = Scratch::new("victims");
    let program = scratch.path().join("victims");
    build_c(include_str!("sources/victims.c"), &program);
    let program = program.to_str().expect("a plain path");
    let group = Group::new();
    for (way, signal) in WAYS {
        let place = group.as_ref().map_or("", |group| group.0.to_str().expect("a plain path"));
        if way == "memory" && place.is_empty() {
            println!("memory: groups of processes cannot be made here");
            continue;
        }
        let limit = (1000 * patience()).to_string();
        let lines = format!("ended {signal}\nwoken {WAITERS}\n").repeat(ROUNDS);
        for side in [Side::Native, Side::tested()] {
            let work = scratch.fresh("work");
            let run = Run::start(
                side.command(&[], &[program, way, place, &limit]),
                &work,
                scratch.path(),
            );
            let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{way}, {side:?} {hang}"));
            let shown = outcome.shown();
            let husk = side == Side::Husk;
            let expected = format!("{lines}{}", if husk { "lost: 0\n" } else { "" });
            let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
            assert_eq!(said, expected, "{way}, {side:?}:\n{shown}");
            println!("{way}, {side:?}: {}", outcome.stderr.lines().next().unwrap_or_default());
            assert!(outcome.status.success(), "{way}, {side:?}:\n{shown}");
            let left: Vec<process::Found> = outcome.left;
            assert!(left.is_empty(), "{way}, {side:?}: left running: {left:?}");
            assert!(!husk || findings(&outcome.stderr).is_empty(), "{way}: {shown}");
        }
    }
}
