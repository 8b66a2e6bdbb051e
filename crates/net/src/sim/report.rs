//! Results of the experiments, as a table or a JSON document.

use std::fmt::Write as _;

use serde::Serialize;

use super::experiment::Experiment;
use super::world::Seen;

/// Windows of the profile, each.
const PROFILE_US: u64 = 100_000;
/// The same, in seconds.
pub const PROFILE_S: f64 = PROFILE_US as f64 / 1e6;

/// All experiments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The seed of all figures.
    pub seed: u64,
    /// Virtual time of each run.
    pub seconds: u64,
    /// An experiment at a number of kernels each.
    pub rows: Vec<Row>,
}

/// One experiment at one number of kernels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub experiment: Experiment,
    /// How many.
    pub kernels: usize,
    /// Angel does not move anything.
    pub without: Outcome,
    /// Angel does.
    pub with: Outcome,
}

/// Figures of the clients of one run, without those of an attacker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Answered a second.
    pub requests_per_s: f64,
    /// Connections that found a queue full.
    pub failed: u64,
    /// Time per request.
    pub mean_ms: f64,
    /// Half of the requests took at most this.
    pub p50_ms: f64,
    /// Of a hundred, 99 did.
    pub p99_ms: f64,
    /// From when on the busiest kernel was sent at most 1.2 times the mean; `None`: never, or under
    /// an attack.
    pub balanced_ms: Option<u64>,
    /// Groups that moved.
    pub moves: usize,
    /// Mean time per request in each tenth of a second; `None`: no request was answered.
    pub profile_ms: Vec<Option<f64>>,
    /// Groups that moved in each tenth of a second.
    pub profile_moves: Vec<usize>,
}

impl Outcome {
    pub(super) fn of(seen: &Seen, seconds: u64) -> Outcome {
        let mut times: Vec<u64> = seen.answers.iter().map(|&(_, time_us)| time_us).collect();
        times.sort_unstable();
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            times.get(index).map_or(0.0, |&time_us| time_us as f64 / 1e3)
        };
        let windows = seconds * 1_000_000 / PROFILE_US;
        let moves =
            |window: u64| seen.moved_us.iter().filter(move |&&at| at / PROFILE_US == window);
        Outcome {
            requests_per_s: times.len() as f64 / seconds as f64,
            failed: seen.failed,
            mean_ms: mean_ms(&times).unwrap_or_default(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            balanced_ms: seen.even_from_us.map(|at_us| at_us / 1000),
            moves: seen.moved_us.len(),
            profile_ms: profile(seen, windows),
            profile_moves: (0..windows).map(|window| moves(window).count()).collect(),
        }
    }
}

fn mean_ms(times_us: &[u64]) -> Option<f64> {
    let sum_us: u64 = times_us.iter().sum();
    (!times_us.is_empty()).then(|| sum_us as f64 / times_us.len() as f64 / 1e3)
}

/// Answers come in the order of time.
fn profile(seen: &Seen, windows: u64) -> Vec<Option<f64>> {
    let mut rest = &seen.answers[..];
    let mut window = |end_us: u64| {
        let (now, later) = rest.split_at(rest.partition_point(|&(at_us, _)| at_us < end_us));
        rest = later;
        mean_ms(&now.iter().map(|&(_, time_us)| time_us).collect::<Vec<_>>())
    };
    (1..=windows).map(|index| window(index * PROFILE_US)).collect()
}

impl Report {
    /// A table for people: an experiment after the other, without Angel and with it.
    pub fn table(&self) -> String {
        let mut text = format!("seed {}, {} s each, simulated\n", self.seed, self.seconds);
        let mut last = None;
        for row in &self.rows {
            if last.replace(row.experiment) != Some(row.experiment) {
                let _ = writeln!(text, "\n{}\n{}", row.experiment.title(), HEAD);
            }
            line(&mut text, &row.kernels.to_string(), "without", &row.without);
            line(&mut text, "", "Angel", &row.with);
        }
        text
    }
}

const HEAD: &str = "kernels            requests/s   failed  time per request: mean      p50\
                    \x20     p99  balanced    moves";

impl Experiment {
    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Experiment::Even => "even load",
            Experiment::Skewed => "all groups on one kernel",
            Experiment::Attacked => "attack on one kernel (figures of the other clients)",
        }
    }
}

fn line(text: &mut String, kernels: &str, angel: &str, outcome: &Outcome) {
    let balanced = outcome.balanced_ms.map_or("-".to_owned(), |ms| format!("{ms} ms"));
    let _ = writeln!(
        text,
        "{kernels:>7}  {angel:<8} {:>11.0} {:>8} {:>20.2} ms {:>5.2} ms {:>5.1} ms {:>9} {:>8}",
        outcome.requests_per_s,
        outcome.failed,
        outcome.mean_ms,
        outcome.p50_ms,
        outcome.p99_ms,
        balanced,
        outcome.moves
    );
}
