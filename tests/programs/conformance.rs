//! File calls are answered as Linux answers them: one after the other, and racing.
//!
//! The seed of a random sequence is its whole input:
//! `HUSK_SEED=7 cargo test -p husk-tests random_sequences`.

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Scratch};

/// Seeds tried for every change, and with `HUSK_FULL`.
const SEEDS: (u32, u32) = (12, 300);
/// Calls of one sequence.
const CALLS: &str = "1500";

fn seeds() -> Vec<String> {
    if let Ok(seed) = std::env::var("HUSK_SEED") {
        return vec![seed];
    }
    let count = if std::env::var_os("HUSK_FULL").is_some() { SEEDS.1 } else { SEEDS.0 };
    (1..=count).map(|seed| seed.to_string()).collect()
}

#[test]
fn random_sequences_of_file_calls_are_answered_as_linux_does() {
    let script = include_str!("sources/sequence.py");
    for seed in seeds() {
        println!("HUSK_SEED={seed}");
        Case::new("sequence", Length::Once, &["python3", "-c", script, &seed, CALLS]).check();
    }
}

#[test]
fn races_for_names_and_bytes_have_one_winner_each() {
    let scratch = Scratch::new("races-build");
    let program = scratch.path().join("races");
    build_c(include_str!("sources/races.c"), &program);
    Case::new("races", Length::Short, &[program.to_str().expect("a plain path")]).check();
}
