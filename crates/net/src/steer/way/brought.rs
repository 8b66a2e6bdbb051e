//! Connections of each flow group, guessed from the CPU time of kernels, if no program counts them.
//!
//! ```text
//!   connections that came to the whole namespace (TCP's PassiveOpens)
//!     ──by the CPU time of each kernel──► kernels
//!          ──by open connections that were seen──► their groups
//! ```
//!
//! A kernel that has worked twice as long counts as if twice as many had come to it, so that Angel
//! compares CPU time alone. It shows no more than 100 %: where a kernel has more than that, moves
//! take several rounds. How many came says how much of a difference may be chance.
//!
//! Among the groups of a kernel, those count more of which open connections were seen. As long as
//! few were seen, all count nearly the same: the mean of a gamma distribution after Poisson's
//! counts.
//!
//! Invariants
//! 1. What a group has brought never becomes less.
//! 2. Parts of a connection become whole ones at different times in different groups, so that a
//!    kernel's groups together bring as many as come to it, at any time.

use crate::average::kept;
use crate::groups::{GROUPS, Table};

/// Half of what was seen is forgotten within some of these.
const WINDOW_US: u64 = 2_000_000;

/// Fractions of its multiples are spread evenly, also those of every second or third one.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// The guess.
pub struct Brought {
    /// Connections by group, as they are guessed.
    came: Vec<f64>,
    /// Open ones that were seen of late.
    seen: Vec<f64>,
    seen_us: u64,
}

impl Brought {
    /// Nothing has come yet.
    pub fn new(now_us: u64) -> Brought {
        let came = (0..GROUPS).map(|group| (group as f64 * GOLDEN).fract());
        Brought { came: came.collect(), seen: vec![0.0; GROUPS], seen_us: now_us }
    }

    /// Takes in which connections are open.
    pub fn see(&mut self, now_us: u64, open: &[u64]) {
        let keep = kept(now_us.saturating_sub(self.seen_us), WINDOW_US);
        self.seen_us = now_us;
        for (seen, &open) in self.seen.iter_mut().zip(open) {
            *seen = *seen * keep + open as f64;
        }
    }

    /// So many connections have come, while each kernel has worked so long.
    pub fn add(&mut self, connections: u64, cpu: &[f64], table: &Table) {
        let worked: f64 = cpu.iter().sum();
        if worked <= 0.0 || connections == 0 {
            return;
        }
        let mut groups = vec![0.0; cpu.len()];
        let mut seen = vec![0.0; cpu.len()];
        for (group, one) in table.groups().iter().enumerate() {
            groups[one.kernel] += 1.0;
            seen[one.kernel] += self.seen[group];
        }
        // Each group: (what was seen of it + 1) over the same of all groups of its kernel.
        let each = |kernel: usize| {
            connections as f64 * cpu[kernel] / worked / (seen[kernel] + groups[kernel])
        };
        let each: Vec<f64> = (0..cpu.len()).map(each).collect();
        for (group, one) in table.groups().iter().enumerate() {
            self.came[group] += (self.seen[group] + 1.0) * each[one.kernel];
        }
    }

    /// Connections by group.
    pub fn read(&self, into: &mut [u64]) {
        into.iter_mut().zip(&self.came).for_each(|(to, &came)| *to = came as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::angel::{Angel, Tuning};
    use crate::groups::group_of;
    use crate::sim::Random;

    const STEP_US: u64 = 100_000;
    /// What a connection takes of a CPU, and how many come in a step.
    const COST_US: f64 = 1_000.0;

    /// More than are open.
    const BEFORE: u64 = 1000;

    /// A server whose connections take a millisecond each, and none more than its kernels can do.
    struct Scene {
        angel: Angel,
        brought: Brought,
        syns: Vec<u64>,
        queues: Vec<f64>,
        random: Random,
        now_us: u64,
        /// Of the last step.
        worst_over_mean: f64,
        moves: usize,
    }

    impl Scene {
        fn new(mut table: Table, kernels: usize) -> Scene {
            (0..GROUPS).for_each(|group| table.count(group, BEFORE, 0));
            Scene {
                angel: Angel::new(Tuning::default(), table, kernels, 0),
                brought: Brought::new(0),
                syns: vec![0; GROUPS],
                queues: vec![0.0; kernels],
                random: Random::new(7),
                now_us: 0,
                worst_over_mean: 0.0,
                moves: 0,
            }
        }

        /// So many connections come in each step, from these ports.
        fn steps(&mut self, steps: u64, come: u64, port: impl Fn(&mut Random) -> u16) {
            for _ in 0..steps {
                let mut came = vec![0.0; self.queues.len()];
                let mut open = vec![0; GROUPS];
                for number in 0..come {
                    let group = group_of(port(&mut self.random));
                    came[self.angel.table.group(group).kernel] += 1.0;
                    // A few are there when somebody looks.
                    open[group] += u64::from(number % 40 == 0);
                }
                self.now_us += STEP_US;
                let most = STEP_US as f64 / COST_US;
                let work = |(queue, came): (&mut f64, &f64)| {
                    let done = (*queue + came).min(most);
                    // A queue is bounded.
                    *queue = (*queue + came - done).min(most);
                    done / most
                };
                let cpu: Vec<f64> = self.queues.iter_mut().zip(&came).map(work).collect();
                self.brought.add(come, &cpu, &self.angel.table);
                self.brought.see(self.now_us, &open);
                self.brought.read(&mut self.syns);
                for (group, &open) in open.iter().enumerate() {
                    self.angel.table.count(group, BEFORE + self.syns[group], open);
                }
                self.angel.sample(self.now_us, &cpu);
                self.moves += self.angel.balance().len();
                let mean = come as f64 / came.len() as f64;
                self.worst_over_mean = came.iter().copied().fold(0.0, f64::max) / mean;
            }
        }
    }

    fn any(random: &mut Random) -> u16 {
        random.below(1 << 16) as u16
    }

    /// Of groups that the first of so many kernels has in the beginning.
    fn of_first(random: &mut Random, kernels: usize) -> u16 {
        let group = random.below(GROUPS / kernels) * kernels;
        (group * 16 + random.below(16)) as u16
    }

    #[test]
    fn all_that_come_are_counted_and_a_kernel_that_works_more_has_more_of_them() {
        let mut brought = Brought::new(0);
        let table = Table::spread(2);
        let mut syns = vec![0; GROUPS];
        for step in 1..=40 {
            brought.add(50, &[0.6, 0.2], &table);
            brought.read(&mut syns);
            let came = |kernel: usize| syns.iter().skip(kernel).step_by(2).sum::<u64>() as f64;
            let wanted = f64::from(step) * 50.0;
            assert!((came(0) - wanted * 0.75).abs() < 4.0, "step {step}: {}", came(0));
            assert!((came(1) - wanted * 0.25).abs() < 4.0, "step {step}: {}", came(1));
        }
    }

    #[test]
    fn groups_that_are_seen_count_more_and_the_first_that_are_seen_hardly() {
        let mut brought = Brought::new(0);
        let table = Table::all_on(0);
        let mut open = vec![0; GROUPS];
        open[7] = 1;
        brought.see(1, &open);
        brought.add(GROUPS as u64, &[1.0], &table);
        let [seen, other] =
            [7, 8].map(|group| brought.came[group] - (group as f64 * GOLDEN).fract());
        assert!((seen / other - 2.0).abs() < 1e-3 && (other - 1.0).abs() < 1e-2, "{seen} {other}");
        (2..50).for_each(|at_us| brought.see(at_us, &open));
        let before = brought.came.clone();
        brought.add(GROUPS as u64, &[1.0], &table);
        let [seen, other] = [7, 8].map(|group| brought.came[group] - before[group]);
        assert!(seen / other > 40.0, "{seen} {other}");
    }

    #[test]
    fn an_attack_on_one_kernel_is_even_within_two_seconds() {
        for kernels in [2, 3, 8] {
            let mut scene = Scene::new(Table::spread(kernels), kernels);
            let come = kernels as u64 * 60;
            scene.steps(20, come, |random| of_first(random, kernels));
            let mut worst = 0.0;
            for _ in 0..20 {
                scene.steps(1, come, |random| of_first(random, kernels));
                worst += scene.worst_over_mean / 20.0;
            }
            assert!(worst < 1.4, "{kernels} kernels: {worst}");
        }
    }

    #[test]
    fn a_skewed_load_is_even_within_two_seconds_and_then_stays() {
        let mut scene = Scene::new(Table::spread(2), 2);
        let port = |random: &mut Random| match random.below(10) {
            0..6 => of_first(random, 2),
            _ => any(random),
        };
        scene.steps(20, 110, port);
        let moves = scene.moves;
        let mut worst = 0.0;
        for _ in 0..40 {
            scene.steps(1, 110, port);
            worst += scene.worst_over_mean / 40.0;
        }
        assert!(worst < 1.25, "{worst}");
        assert!(scene.moves - moves < moves / 2, "{} after {moves}", scene.moves - moves);
    }

    #[test]
    fn nothing_moves_under_an_even_load_or_where_nobody_comes() {
        let mut scene = Scene::new(Table::spread(4), 4);
        scene.steps(100, 200, any);
        scene.steps(100, 0, any);
        assert_eq!(scene.moves, 0);
    }
}
