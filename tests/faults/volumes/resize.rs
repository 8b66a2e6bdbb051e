//! A volume gets larger while a program syncs in it, and everything that serves it is killed.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use husk_tests::against_native;
use husk_tests::toolchain::build_c_with;
use serde_json::Value;

use super::{Room, Verb};
use crate::Dice;

const ROUNDS: u64 = 8;
/// Steps at most before a kill.
const STEPS_MAX: usize = 600;

impl Room {
    fn stat(&self) -> Value {
        let output = self.volume(&["stat", "data", "--json"]).output().expect("husk");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Makes it larger once an image serves it, and waits for that; `None`: none has.
    fn enlarge(&self, size: &str, is_over: &AtomicBool) -> Option<Output> {
        while self.stat()["served"].is_null() {
            if is_over.load(Ordering::Acquire) {
                return None;
            }
        }
        Some(self.volume(&["resize", "data", "--size", size]).output().expect("husk"))
    }
}

#[test]
fn what_was_acknowledged_while_a_volume_got_larger_survives_the_death_of_all() {
    if against_native() {
        return;
    }
    let (mut dice, room) = (Dice::new(), Room::new("larger", "16M"));
    let program = room.path("durable");
    build_c_with(include_str!("../sources/durable.c"), Path::new(&program), &[]);
    let tree = room.tree();
    let command = |verb: Verb| room.command("128M", &[&program, verb.word(), "fsync", &tree]);
    let (mut acknowledged, mut before) = (0, 16 << 20);
    for round in 1..=ROUNDS {
        let (size_mib, is_over) = (16 + 16 * round, AtomicBool::new(false));
        let (printed, resized) = thread::scope(|scope| {
            let size = format!("{size_mib}M");
            let resize = scope.spawn({
                let is_over = &is_over;
                let room = &room;
                move || room.enlarge(&size, is_over)
            });
            let printed = room.kill_after(command(Verb::Go), "fsync", 1 + dice.below(STEPS_MAX));
            is_over.store(true, Ordering::Release);
            (printed, resize.join().expect("no panic"))
        });
        acknowledged = printed.max(acknowledged);
        let there = room.there(command(Verb::Look), "fsync");
        assert!(there >= acknowledged, "round {round}: {acknowledged}, but {there}");
        let has = room.stat()["size_bytes"].as_u64().expect("a size");
        assert!([before, size_mib << 20].contains(&has), "round {round}: {has}");
        if resized.is_some_and(|output| output.status.success()) {
            assert_eq!(has, size_mib << 20, "round {round}");
        }
        before = has;
    }
    room.is_clean();
}
