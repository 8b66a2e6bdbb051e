//! Images of 2 to 64 nodes in one thread, from one seed.
//!
//! ```text
//!   programs of all nodes ─► messages ─► link::sim ─► the agent's dispatch ─► a real region
//!          (dice)                                            │ one after the other
//!                                                            '─► the obvious tree, the same
//! ```
//!
//! Everything above the link is what runs outside: messages as they are encoded, the dispatch and
//! the handlers of the home, its region, its supervisor's cleaning up. Of the other nodes there is
//! what they ask, and what they do that hear nothing (`husk_link::Unanswered::then`).
//!
//! `HUSK_SEED=7 cargo test -p husk-node sim::every -- --nocapture` plays one seed and prints it.

mod asker;
mod asks;
mod deaths;
mod dice;
mod faults;
mod held;
mod home;
mod offsets;
mod own_process;
mod play;
mod rules;
mod service;
mod strangers;
mod tree;
mod twice;

use faults::Fired;
use own_process::in_own_process;
use play::{play, play_caught};

/// Seeds that are played for every change, and with `HUSK_FULL`.
const SEEDS: (u64, u64) = (300, 10_000);

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("HUSK_FULL").is_some() => 1..SEEDS.1 + 1,
        None => 1..SEEDS.0 + 1,
    }
}

#[test]
fn every_answer_is_that_of_the_obvious_tree() {
    in_own_process("sim::every_answer_is_that_of_the_obvious_tree", || {
        home::map();
        let mut fired = Fired::default();
        for seed in seeds() {
            match play_caught(seed) {
                Ok(of_it) => fired.and(&of_it),
                Err(why) => panic!("HUSK_SEED={seed}: {why}"),
            }
        }
        println!("{fired:?}");
        if seeds().count() > 1 {
            assert_eq!(fired.missing(), [], "what never went wrong");
        }
    });
}

#[test]
fn a_seed_is_played_the_same_way_each_time() {
    in_own_process("sim::a_seed_is_played_the_same_way_each_time", || {
        home::map();
        for seed in 1..=SEEDS.0 / 10 {
            let [one, other] = [play(seed), play(seed)];
            assert_eq!(one, other, "HUSK_SEED={seed}");
        }
    });
}
