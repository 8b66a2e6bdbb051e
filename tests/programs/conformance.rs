//! Random sequences of file calls, each answer as Linux gives it. A failing seed is the test's
//! whole input: `HUSK_SEED=7 cargo test -p husk-tests random_sequences`.

use husk_tests::{Case, Length};

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
