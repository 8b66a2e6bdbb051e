//! Processes create, rename, link and remove the same few names, and die at any moment.

use std::fs;
use std::time::{Duration, Instant};

use husk_tests::case::findings;
use husk_tests::run::patience;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side, process};

use crate::{Dice, await_line, killing_time};

/// Longest that any operation of the survivor may take, on a processor.
const WAIT_MAX_MS: u64 = 1000;
/// Between two deaths.
const PAUSE: Duration = Duration::from_millis(3);

#[test]
fn the_survivor_of_a_storm_goes_on_and_nothing_leaks() {
    let scratch = Scratch::new("storm");
    let program = scratch.path().join("storm");
    build_c(include_str!("sources/storm.c"), &program);
    for side in [Side::Native, Side::tested()] {
        storm(&scratch, side);
    }
}

fn storm(scratch: &Scratch, side: Side) {
    let work = scratch.fresh("work");
    let seconds = killing_time().as_secs().to_string();
    let program = scratch.path().join("storm");
    let argv = [program.to_str().expect("a plain path"), "4", &seconds];
    let mut run = Run::start(side.command(&[], &argv), &work, scratch.path());
    let survivor: i32 = await_line(&mut run, "ready").parse().expect("a process id");
    let killed = kill_children(survivor);
    let limit = killing_time() + Duration::from_secs(30);
    let outcome = run.wait(limit).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
    let shown = outcome.shown();
    assert!(outcome.status.success(), "{side:?}, {killed} killed:\n{shown}");
    assert!(killed >= 100, "{side:?}: only {killed} killed; the storm was none\n{shown}");
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let number = |name| number(&text, name);
    println!("{side:?}: {killed} killed; {}", text.lines().last().unwrap_or_default());
    assert!(
        number("slowest_ms") <= WAIT_MAX_MS * u64::from(patience()),
        "{side:?}: somebody waited\n{shown}"
    );
    assert!(number("operations") > 100, "{side:?}: the survivor got nothing done\n{shown}");
    assert!(outcome.left.is_empty(), "{side:?}: left running: {:?}", outcome.left);
    if side == Side::Husk {
        assert_eq!(number("lost_inodes"), 0, "inodes leaked\n{shown}");
        assert_eq!(number("lost_blocks"), 0, "blocks leaked\n{shown}");
        assert!(findings(&outcome.stderr).is_empty(), "{shown}");
    }
    assert_eq!(fs::read_dir(&work).expect("the directory").count(), 0, "{side:?}: not all removed");
}

/// Kills children of `survivor`, and ends before it starts its last, peaceful program.
fn kill_children(survivor: i32) -> u32 {
    let mut dice = Dice::new();
    let mut killed = 0;
    let end = Instant::now() + killing_time() - Duration::from_secs(1);
    while Instant::now() < end {
        let path = format!("/proc/{survivor}/task/{survivor}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        let children: Vec<i32> =
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        if !children.is_empty() && process::kill(children[dice.below(children.len())]) {
            killed += 1;
        }
        std::thread::sleep(PAUSE);
    }
    killed
}

/// The number after `name=` in the last such place.
fn number(text: &str, name: &str) -> u64 {
    let found = text.rsplit(&format!("{name}=")).next().filter(|_| text.contains(name));
    let digits = found.and_then(|rest| rest.split_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}
