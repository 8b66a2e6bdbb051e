//! Processes that change a watched directory die at any moment, and so do those who read what is
//! told: it adds up, whoever waits is woken, and no watch is left behind.

use std::time::Duration;

use husk_tests::case::findings;
use husk_tests::{Run, Scratch, Side};

use crate::{Dice, killing_time};

#[test]
fn what_watchers_are_told_adds_up_whoever_is_killed() {
    let scratch = Scratch::new("watched");
    for side in [Side::Native, Side::tested()] {
        let work = scratch.fresh("work");
        let seconds = killing_time().as_secs().to_string();
        let seed = Dice::new().below(1 << 20).to_string();
        let script = include_str!("sources/watched.py");
        let argv = ["python3", "-c", script, &seconds, &seed];
        let run = Run::start(side.command(&[], &argv), &work, scratch.path());
        let limit = killing_time() + Duration::from_secs(30);
        let outcome = run.wait(limit).unwrap_or_else(|hang| panic!("{side:?} {hang}"));
        let shown = outcome.shown();
        assert!(outcome.status.success(), "{side:?}:\n{shown}");
        println!("{side:?}: {}", String::from_utf8_lossy(&outcome.stdout).trim());
        assert!(outcome.left.is_empty(), "{side:?}: left running: {:?}", outcome.left);
        if side == Side::Husk {
            assert!(findings(&outcome.stderr).is_empty(), "{shown}");
        }
    }
}
