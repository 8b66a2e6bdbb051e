//! The experiments: the table, the clients, with Angel or without.

use serde::Serialize;

use super::report::{Outcome, Report, Row};
use super::world::{Seen, World};
use crate::groups::Table;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// The groups are spread over all kernels.
    Even,
    /// All groups are on one kernel.
    Skewed,
    /// The groups are spread, and an attacker floods a few groups of one kernel.
    Attacked,
}

/// Settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Numbers of kernels, each a row.
    pub kernels: Vec<usize>,
    /// The same figures from the same seed.
    pub seed: u64,
    /// Virtual time of each run.
    pub seconds: u64,
}

/// Runs all experiments, without Angel and with it.
pub fn run(options: &Options) -> Report {
    let experiments = [Experiment::Even, Experiment::Skewed, Experiment::Attacked];
    let row = |experiment: Experiment, kernels: usize| Row {
        experiment,
        kernels,
        without: outcome(experiment, kernels, false, options),
        with: outcome(experiment, kernels, true, options),
    };
    let rows = experiments.into_iter().flat_map(|experiment| {
        options.kernels.iter().map(move |&kernels| row(experiment, kernels))
    });
    Report { seed: options.seed, seconds: options.seconds, rows: rows.collect() }
}

fn outcome(experiment: Experiment, kernels: usize, angel: bool, options: &Options) -> Outcome {
    let table = match experiment {
        Experiment::Skewed => Table::all_on(0),
        Experiment::Even | Experiment::Attacked => Table::spread(kernels),
    };
    let mut world = World::new(table, kernels, options.seed);
    if experiment == Experiment::Attacked {
        world = world.with_attack();
    }
    if angel {
        world = world.with_angel();
    }
    let seen: Seen = world.run(options.seconds * 1_000_000);
    Outcome::of(&seen, options.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What clients of so many kernels see in a shorter run: what goes wrong at first weighs more.
    fn seen(experiment: Experiment, kernels: usize, angel: bool, seed: u64) -> Outcome {
        outcome(experiment, kernels, angel, &Options { kernels: Vec::new(), seed, seconds: 8 })
    }

    #[test]
    fn the_same_seed_gives_the_same_figures_and_another_does_not() {
        let report = |seed| run(&Options { kernels: vec![2, 3], seed, seconds: 1 });
        assert_eq!(report(7), report(7));
        assert_ne!(report(7), report(8));
    }

    #[test]
    fn a_skewed_load_is_even_within_a_second_and_costs_little_more_than_an_even_one() {
        for kernels in [2, 8, 24] {
            for seed in 1..=3 {
                let even = seen(Experiment::Even, kernels, false, seed);
                let skewed = seen(Experiment::Skewed, kernels, true, seed);
                let after_ms = skewed.balanced_ms.expect("balanced");
                assert!(after_ms <= 1000, "{kernels} kernels, seed {seed}: {after_ms} ms");
                let ratio = skewed.mean_ms / even.mean_ms;
                assert!(ratio <= 1.3, "{kernels} kernels, seed {seed}: {ratio}");
            }
        }
    }

    #[test]
    fn without_angel_a_skewed_load_stays_where_it_is() {
        let skewed = seen(Experiment::Skewed, 8, false, 1);
        assert_eq!((skewed.balanced_ms, skewed.moves), (None, 0));
        assert!(skewed.mean_ms > 10.0 * seen(Experiment::Even, 8, false, 1).mean_ms);
    }

    #[test]
    fn nothing_moves_under_an_even_load() {
        for seed in 1..=3 {
            let even = seen(Experiment::Even, 24, true, seed);
            assert_eq!((even.moves, even.balanced_ms), (0, Some(50)), "seed {seed}");
        }
    }

    #[test]
    fn who_shares_a_kernel_with_an_attacker_is_better_off_with_angel() {
        for seed in 1..=3 {
            let [without, with] =
                [false, true].map(|angel| seen(Experiment::Attacked, 24, angel, seed).mean_ms);
            assert!(with < 0.6 * without, "seed {seed}: {with} against {without}");
        }
    }
}
