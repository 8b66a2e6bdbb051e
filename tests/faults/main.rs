//! Deaths: kill -9 at any instruction, and the image goes on.
//!
//! All tests run natively first: what they ask of an image, Linux must give.
#![forbid(unsafe_code)]

mod build;
mod hostile;
mod memory;
mod scarce;
mod soak;
mod storm;
mod tempest;
mod victims;
mod volumes;
mod watched;

use std::time::Duration;

use husk_tests::Run;
use husk_tests::run::patience;

/// How long the killer is at work: a quick look for every change, longer with `HUSK_FULL`.
fn killing_time() -> Duration {
    Duration::from_secs(if std::env::var_os("HUSK_FULL").is_some() { 60 } else { 6 }) * patience()
}

/// The rest of the line that begins with `word`, once the run has printed it (10 s at most, on a
/// usual machine).
fn await_line(run: &mut Run, word: &str) -> String {
    for _ in 0..2000 * patience() {
        let text = String::from_utf8_lossy(&run.stdout()).into_owned();
        if let Some(rest) = text.lines().find_map(|line| line.strip_prefix(word)) {
            return rest.trim().to_owned();
        }
        assert!(!run.ended(), "it ended before it printed {word:?}; it printed {text:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no {word:?} in 10 s");
}

/// 2^64 over the golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A small generator: its seed is printed, so that a failing order of victims can be had again.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok());
        // Whatever follows one number is far from what follows the next one.
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()).wrapping_mul(SPREAD));
        println!("HUSK_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}
