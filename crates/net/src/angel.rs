//! Angel, the balancer: which flow groups move from a kernel that has too much to others.
//!
//! ```text
//!   sample ──► averages ──► who is above the mark? ──► asks all kernels
//!                                                        │ those above the mean decline
//!              quiet for a window ◄── idle groups move ◄─┘ the willing, least loaded first
//! ```
//!
//! The load of a kernel is its share of a CPU, or the average cost of a connection times those that
//! come to it, whichever is more. The second says more than the first where a kernel has
//! reached 100 %, and follows a move at once. Small differences show in what the groups of each
//! kernel have brought in the last windows (their history).
//!
//! Invariants
//! 1. Only idle groups move: connections stay with the kernel that accepted them, so that a
//!    group's open connections are all at its kernel.
//! 2. No group moves twice within `rest_us`.
//! 3. Nothing moves where the difference may be chance: it must be `SIGNIFICANT` standard
//!    deviations of what so many connections would show if all were even.
//! 4. No kernel is given more than takes it to the mean.
//! 5. Moves are spread evenly over the ports, and neighbours go to different kernels: clients take
//!    their ports one after the other, and from a part of all.
//!
//! It tunes itself: where moves did not help, they become fewer and the mark higher; where they
//! helped and more would have, they become more. In peace the mark comes down again.
//!
//! Not here: groups that are never idle do not move, so those of an attacker that keeps connections
//! open stay, and the others leave.

use crate::average::{Average, kept};
use crate::groups::{GROUPS, Group, Table};

/// Standard deviations that are not taken for chance.
const SIGNIFICANT: f64 = 5.0;
/// Connections take different times: so many say as much about a CPU as one would if all took the
/// same time (exponentially distributed times).
const TIMES_VARY: f64 = 2.0;
/// Windows of a kernel's average in one of a group's, which has few connections.
const GROUP_WINDOWS: u64 = 10;
/// Tries for more idle groups, one a sample, before a kernel is quiet.
const RETRIES_MAX: u32 = 5;
/// A kernel that has moved groups is quiet for so many windows, until the effect shows.
const QUIET_WINDOWS: u64 = 2;
/// A move has helped when the load above the mean has fallen at least to this part.
const HELPED: f64 = 0.8;
/// The mark is never higher than so many times the mean.
const MARK_MAX: f64 = 3.0;
/// How much the mark rises after moves that did not help, and how much of that is left a sample
/// later.
const MARK_STEP: f64 = 1.25;
const MARK_KEPT: f64 = 0.98;

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Window of the moving averages.
    pub window_us: u64,
    /// Share of a CPU from which on a kernel may have too much.
    pub wake_cpu: f64,
    /// Or its open connections.
    pub wake_connections: f64,
    /// The mark: load from which on a kernel has too much, as a multiple of the mean.
    pub mark: f64,
    /// Fewer groups than this are not worth a round, unless they are all it takes.
    pub moves_min: usize,
    /// At most so many groups move in a round.
    pub moves_max: usize,
    /// How long a group stays where it has moved to.
    pub rest_us: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            window_us: 200_000,
            wake_cpu: 0.25,
            wake_connections: 32.0,
            mark: 1.2,
            moves_min: 8,
            moves_max: GROUPS,
            rest_us: 1_000_000,
        }
    }
}

/// A group goes from one kernel to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub group: usize,
    /// From where.
    pub source: usize,
    /// Where to.
    pub target: usize,
}

/// Averages of one kernel.
#[derive(Debug, Clone, Copy, Default)]
struct Kernel {
    arrivals_per_s: Average,
    connections: Average,
    cpu: Average,
    /// It asks for nothing before.
    quiet_until_us: u64,
    retries: u32,
    /// When it last moved groups, what it had above the mean.
    judged: Option<f64>,
}

/// How even the load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evenness {
    /// Nothing is to be moved.
    Even,
    /// A kernel has much more than the others, which is still little.
    Leans,
    /// Groups would move if they are idle.
    Uneven,
}

/// The figures of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Connections that come, a second.
    pub arrivals_per_s: f64,
    /// Open connections.
    pub connections: f64,
    /// Share of a CPU.
    pub cpu: f64,
    /// What Angel compares: shares of a CPU.
    pub load: f64,
}

/// A move, and the connections a second that it takes along.
#[derive(Debug, Clone, Copy)]
struct Gift {
    what: Move,
    per_s: f64,
}

/// Angel's memory of a group, beside the table.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    arrivals_per_s: Average,
    syns_seen: u64,
    moved_us: Option<u64>,
}

/// The table, and the balancer over it.
#[derive(Debug)]
pub struct Angel {
    tuning: Tuning,
    /// The kernel of each group.
    pub table: Table,
    kernels: Vec<Kernel>,
    histories: Vec<History>,
    sampled_us: u64,
    /// The mark and the most moves of a round, as they have tuned themselves.
    mark: f64,
    moves_max: usize,
}

impl Angel {
    /// Over a table of so many kernels.
    pub fn new(tuning: Tuning, table: Table, kernels: usize, now_us: u64) -> Angel {
        let seen = |group: &Group| History { syns_seen: group.syns, ..History::default() };
        Angel {
            tuning,
            kernels: vec![Kernel::default(); kernels],
            histories: table.groups().iter().map(seen).collect(),
            table,
            sampled_us: now_us,
            mark: tuning.mark,
            moves_max: tuning.moves_max,
        }
    }

    /// The figures of each kernel.
    pub fn looks(&self) -> Vec<Look> {
        let look = |(kernel, load): (&Kernel, f64)| Look {
            arrivals_per_s: kernel.arrivals_per_s.get(),
            connections: kernel.connections.get(),
            cpu: kernel.cpu.get(),
            load,
        };
        self.kernels.iter().zip(self.scales_now().loads).map(look).collect()
    }

    /// Reads the table as it is now, and each kernel's share of a CPU since the last time.
    pub fn sample(&mut self, now_us: u64, cpu: &[f64]) {
        let step_us = now_us.saturating_sub(self.sampled_us);
        if step_us == 0 {
            return;
        }
        self.sampled_us = now_us;
        let step_s = step_us as f64 / 1e6;
        let mut came = vec![0; self.kernels.len()];
        let mut open = vec![0; self.kernels.len()];
        let keep = kept(step_us, self.tuning.window_us * GROUP_WINDOWS);
        for (group, history) in self.table.groups().iter().zip(&mut self.histories) {
            let new = group.syns - history.syns_seen;
            history.syns_seen = group.syns;
            history.arrivals_per_s.add(new as f64 / step_s, keep);
            came[group.kernel] += new;
            open[group.kernel] += group.open();
        }
        let keep = kept(step_us, self.tuning.window_us);
        for (index, kernel) in self.kernels.iter_mut().enumerate() {
            kernel.arrivals_per_s.add(came[index] as f64 / step_s, keep);
            kernel.connections.add(open[index] as f64, keep);
            kernel.cpu.add(cpu[index], keep);
        }
    }

    /// Moves groups where that helps, and says which. To be asked after each sample.
    pub fn balance(&mut self) -> Vec<Move> {
        let mut scales = self.scales_now();
        let mut askers = self.overloaded(&scales);
        if askers.is_empty() {
            scales = self.scales_of_history();
            askers = self.overloaded(&scales);
        }
        if askers.is_empty() {
            self.mark = self.tuning.mark + (self.mark - self.tuning.mark) * MARK_KEPT;
        }
        askers.into_iter().flat_map(|asker| self.ask(asker, &mut scales)).collect()
    }

    /// How even the load is.
    pub fn evenness(&self) -> Evenness {
        let both = [self.scales_now(), self.scales_of_history()];
        let heavy = |&kernel: &usize| both.iter().any(|scales| self.is_heavy(kernel, scales));
        let busy = (0..self.kernels.len()).filter(heavy).map(|kernel| self.is_busy(kernel)).max();
        match busy {
            None => Evenness::Even,
            Some(false) => Evenness::Leans,
            Some(true) => Evenness::Uneven,
        }
    }

    /// Whether a kernel has work to speak of.
    fn is_busy(&self, kernel: usize) -> bool {
        let kernel = &self.kernels[kernel];
        kernel.cpu.get() >= self.tuning.wake_cpu
            || kernel.connections.get() >= self.tuning.wake_connections
    }

    /// Whether it has much more than the others, and is not quiet.
    fn is_heavy(&self, kernel: usize, scales: &Scales) -> bool {
        let mark = scales.mean * self.mark.max(1.0 + scales.chance);
        scales.loads[kernel] > mark && self.sampled_us >= self.kernels[kernel].quiet_until_us
    }

    /// The cost of one connection, in seconds of a CPU.
    fn cost_s(&self) -> f64 {
        let arrivals: f64 = self.kernels.iter().map(|kernel| kernel.arrivals_per_s.get()).sum();
        let cpu: f64 = self.kernels.iter().map(|kernel| kernel.cpu.get()).sum();
        if arrivals > 0.0 { cpu / arrivals } else { 0.0 }
    }

    /// Kernels, compared by their averages.
    fn scales_now(&self) -> Scales {
        let cost_s = self.cost_s();
        let arrivals: Vec<_> =
            self.kernels.iter().map(|kernel| kernel.arrivals_per_s.get()).collect();
        let load = |kernel: &Kernel| kernel.cpu.get().max(kernel.arrivals_per_s.get() * cost_s);
        let loads = self.kernels.iter().map(load).collect();
        let windows = self.kernels[0].arrivals_per_s.windows();
        let seen = arrivals.iter().sum::<f64>() * windows * self.tuning.window_us as f64 / 1e6;
        Scales::new(loads, arrivals, seen / TIMES_VARY)
    }

    /// Kernels, compared by the history of their groups.
    fn scales_of_history(&self) -> Scales {
        let mut arrivals = vec![0.0; self.kernels.len()];
        for (group, history) in self.table.groups().iter().zip(&self.histories) {
            arrivals[group.kernel] += history.arrivals_per_s.get();
        }
        let cost_s = self.cost_s();
        let loads = arrivals.iter().map(|per_s| per_s * cost_s).collect();
        let windows = self.histories[0].arrivals_per_s.windows();
        let seen = arrivals.iter().sum::<f64>() * windows * self.history_s();
        Scales::new(loads, arrivals, seen)
    }

    fn history_s(&self) -> f64 {
        (self.tuning.window_us * GROUP_WINDOWS) as f64 / 1e6
    }

    /// Kernels that have work to speak of, and much more than the others; the worst first.
    fn overloaded(&self, scales: &Scales) -> Vec<usize> {
        let wakes = |&kernel: &usize| self.is_busy(kernel) && self.is_heavy(kernel, scales);
        let mut askers: Vec<_> = (0..self.kernels.len()).filter(wakes).collect();
        askers.sort_by(|&a, &b| scales.loads[b].total_cmp(&scales.loads[a]));
        askers
    }

    /// One kernel asks all others to take some of its groups. Where too few are idle, it asks
    /// again after the next sample, a few times; then it is quiet for a while.
    fn ask(&mut self, asker: usize, scales: &mut Scales) -> Vec<Move> {
        let excess = scales.loads[asker] / scales.mean - 1.0;
        if self.kernels[asker].retries == 0 {
            self.judge(asker, excess);
        }
        let (mut gifts, then) = self.choose(asker, scales);
        let short = then[asker] > scales.mean * self.tuning.mark;
        if short && gifts.len() < self.tuning.moves_min {
            gifts.clear();
        } else {
            scales.loads = then;
        }
        let kernel = &mut self.kernels[asker];
        if !gifts.is_empty() {
            kernel.judged.get_or_insert(excess);
        }
        if short && kernel.retries < RETRIES_MAX {
            kernel.retries += 1;
        } else {
            kernel.retries = 0;
            kernel.quiet_until_us = self.sampled_us + self.tuning.window_us * QUIET_WINDOWS;
        }
        self.carry_out(asker, &gifts);
        gifts.into_iter().map(|gift| gift.what).collect()
    }

    /// Whether the last moves of a kernel helped; makes the next ones fewer or more.
    fn judge(&mut self, asker: usize, excess: f64) {
        let Some(before) = self.kernels[asker].judged.take() else { return };
        if excess > before * HELPED {
            self.mark = (self.mark * MARK_STEP).min(MARK_MAX);
            self.moves_max = (self.moves_max / 2).max(self.tuning.moves_min);
        } else {
            self.moves_max = (self.moves_max * 2).min(self.tuning.moves_max);
        }
    }

    /// Idle groups of a kernel for the willing ones, and the loads after these moves.
    fn choose(&self, asker: usize, scales: &Scales) -> (Vec<Gift>, Vec<f64>) {
        let Scales { loads, arrivals, mean, .. } = scales;
        let mut then = loads.clone();
        let willing: Vec<_> = (0..loads.len()).filter(|&kernel| loads[kernel] < *mean).collect();
        let own = self.table.groups().iter().filter(|group| group.kernel == asker).count();
        let usual_per_s = arrivals[asker] / own as f64;
        if own == 0 || usual_per_s <= 0.0 {
            return (Vec::new(), then);
        }
        let of_asker = |&group: &usize| self.table.group(group).kernel == asker;
        let movable = (0..GROUPS).filter(of_asker).filter(|&group| self.may_move(group));
        let movable: Vec<_> =
            movable.map(|group| (group, self.expected_per_s(group, usual_per_s))).collect();
        let cost_s = loads[asker] / arrivals[asker];
        let all = movable.iter().map(|&(_, per_s)| per_s * cost_s).sum::<f64>();
        let part = ((loads[asker] - mean) / all).min(self.moves_max as f64 / movable.len() as f64);
        let (mut gifts, mut due) = (Vec::new(), 0.0);
        for (group, per_s) in movable {
            let load = per_s * cost_s;
            due += load * part.min(1.0);
            let least = willing.iter().min_by(|&&a, &&b| then[a].total_cmp(&then[b]));
            let Some(&target) = least.filter(|&&kernel| then[kernel] + load <= *mean) else {
                continue;
            };
            if due >= load / 2.0 && then[asker] - load >= *mean {
                due -= load;
                then[asker] -= load;
                then[target] += load;
                gifts.push(Gift { what: Move { group, source: asker, target }, per_s });
            }
        }
        (gifts, then)
    }

    /// Idle, and rested.
    fn may_move(&self, group: usize) -> bool {
        let rested = |moved_us| self.sampled_us >= moved_us + self.tuning.rest_us;
        self.table.group(group).open() == 0 && self.histories[group].moved_us.is_none_or(rested)
    }

    /// Connections a second that a group will bring: its history, and as long as that is short, the
    /// usual rate (the mean of a gamma distribution after Poisson's counts).
    fn expected_per_s(&self, group: usize, usual_per_s: f64) -> f64 {
        let (brought, watched) = self.histories[group].arrivals_per_s.seen();
        (brought * self.history_s() + 1.0) / (watched * self.history_s() + 1.0 / usual_per_s)
    }

    /// Moves groups. The averages follow at once, so that no move is decided twice.
    fn carry_out(&mut self, asker: usize, gifts: &[Gift]) {
        let source = self.kernels[asker];
        // Groups may be expected to bring more than comes now, as when connections have just
        // stopped: they take along what the kernel does, and no more.
        let given_per_s: f64 = gifts.iter().map(|gift| gift.per_s).sum();
        let cpu_each = source.cpu.get() / source.arrivals_per_s.get().max(given_per_s);
        for gift in gifts {
            let Move { group, source, target } = gift.what;
            for (kernel, per_s) in [(source, -gift.per_s), (target, gift.per_s)] {
                self.kernels[kernel].arrivals_per_s.shift(per_s);
                self.kernels[kernel].cpu.shift(per_s * cpu_each);
            }
            self.table.assign(group, target);
            self.histories[group].moved_us = Some(self.sampled_us);
        }
    }
}

/// Kernels, compared.
struct Scales {
    /// In shares of a CPU.
    loads: Vec<f64>,
    /// Connections a second.
    arrivals: Vec<f64>,
    /// Of the loads.
    mean: f64,
    /// By which part of the mean one may be above it by chance.
    chance: f64,
}

impl Scales {
    /// After so many connections to all kernels.
    fn new(loads: Vec<f64>, arrivals: Vec<f64>, seen: f64) -> Scales {
        let each = seen / loads.len() as f64;
        let chance = if each > 0.0 { SIGNIFICANT / each.sqrt() } else { f64::INFINITY };
        Scales { mean: mean(&loads), loads, arrivals, chance }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const STEP_US: u64 = 50_000;

    /// An Angel that sees so many connections come to each group and go again, step for step.
    struct Scene {
        angel: Angel,
        now_us: u64,
        moves: Vec<(u64, Move)>,
    }

    impl Scene {
        fn new(table: Table, kernels: usize) -> Scene {
            let angel = Angel::new(Tuning::default(), table, kernels, 0);
            Scene { angel, now_us: 0, moves: Vec::new() }
        }

        /// Steps in which `arrivals` come to each group; one costs `cost_us` of a CPU.
        fn steps(&mut self, steps: u64, cost_us: f64, arrivals: impl Fn(usize) -> u64) {
            for _ in 0..steps {
                let mut cpu = vec![0.0; self.angel.kernels.len()];
                for group in 0..GROUPS {
                    for _ in 0..arrivals(group) {
                        cpu[self.angel.table.group(group).kernel] += cost_us / STEP_US as f64;
                        self.angel.table.opened(group);
                        self.angel.table.closed(group);
                    }
                }
                self.now_us += STEP_US;
                cpu.iter_mut().for_each(|cpu| *cpu = cpu.min(1.0));
                self.angel.sample(self.now_us, &cpu);
                let moves = self.angel.balance();
                self.moves.extend(moves.into_iter().map(|one| (self.now_us, one)));
            }
        }

        fn worst_over_mean(&self) -> f64 {
            let arrivals: Vec<_> =
                self.angel.looks().iter().map(|look| look.arrivals_per_s).collect();
            arrivals.iter().copied().fold(0.0, f64::max) / mean(&arrivals)
        }
    }

    #[test]
    fn all_on_one_kernel_is_even_within_a_second() {
        for kernels in [2, 3, 8, 24] {
            let mut scene = Scene::new(Table::all_on(0), kernels);
            scene.steps(20, 12.0, |_| 1);
            assert!(scene.worst_over_mean() <= 1.2, "{kernels}: {}", scene.worst_over_mean());
        }
    }

    #[test]
    fn nothing_moves_where_all_are_even() {
        let mut scene = Scene::new(Table::spread(8), 8);
        scene.steps(200, 12.0, |_| 1);
        assert!(scene.moves.is_empty());
    }

    #[test]
    fn nothing_moves_where_nobody_has_work_to_speak_of() {
        let mut scene = Scene::new(Table::all_on(0), 8);
        scene.steps(200, 0.1, |_| 1);
        assert!(scene.moves.is_empty());
    }

    #[test]
    fn nothing_moves_for_a_handful_of_connections() {
        let mut scene = Scene::new(Table::spread(2), 2);
        scene.steps(10, 20_000.0, |group| u64::from(group == 4));
        assert!(scene.moves.is_empty());
    }

    #[test]
    fn a_group_with_an_open_connection_stays() {
        let mut scene = Scene::new(Table::all_on(0), 2);
        (0..100).for_each(|group| scene.angel.table.opened(group));
        scene.steps(40, 12.0, |_| 1);
        assert!(!scene.moves.is_empty());
        assert!(scene.moves.iter().all(|(_, one)| one.group >= 100));
    }

    #[test]
    fn no_group_moves_twice_within_a_second() {
        let mut scene = Scene::new(Table::all_on(0), 4);
        let mut last = HashMap::new();
        // The load follows the groups around: those of kernel 1, then those of kernel 2, ...
        for round in 0..40 {
            let table = scene.angel.table.clone();
            scene.steps(5, 12.0, |group| 4 * u64::from(table.group(group).kernel == round % 4));
        }
        assert!(scene.moves.len() > GROUPS, "{}", scene.moves.len());
        for (at_us, one) in scene.moves {
            let before = last.insert(one.group, at_us);
            assert!(before.is_none_or(|before| at_us >= before + 1_000_000), "{one:?}");
        }
    }

    #[test]
    fn who_is_above_the_mean_gets_nothing() {
        let mut scene = Scene::new(Table::spread(4), 4);
        // Kernel 0 has most, kernel 1 more than the mean, too.
        scene.steps(20, 12.0, |group| [8, 5, 1, 1][group % 4]);
        assert!(scene.moves.iter().any(|(_, one)| one.target == 2));
        assert!(scene.moves.iter().all(|(_, one)| one.target > 1));
    }

    #[test]
    fn a_kernel_whose_groups_are_never_idle_tries_again_and_then_rests() {
        let mut scene = Scene::new(Table::spread(2), 2);
        (0..GROUPS).for_each(|group| scene.angel.table.opened(group));
        scene.steps(RETRIES_MAX.into(), 12.0, |group| 4 * u64::from(group % 2 == 0));
        assert_eq!((scene.moves.len(), scene.angel.kernels[0].retries), (0, RETRIES_MAX));
        scene.steps(1, 12.0, |group| 4 * u64::from(group % 2 == 0));
        assert!(scene.angel.kernels[0].quiet_until_us > scene.now_us);
    }

    #[test]
    fn a_kernel_that_works_for_long_after_the_last_connection_leaves_all_figures_finite() {
        let mut scene = Scene::new(Table::spread(2), 2);
        // It has much, and moves so much of it that its average is to be nothing. Then nobody
        // comes, and it goes on.
        (0..GROUPS).for_each(|group| scene.angel.table.opened(group));
        scene.steps(40, 12.0, |group| 4 * u64::from(group % 2 == 0));
        (0..GROUPS).for_each(|group| scene.angel.table.closed(group));
        scene.angel.kernels[0].arrivals_per_s.shift(-1e9);
        for _ in 0..20 {
            scene.now_us += STEP_US;
            scene.angel.sample(scene.now_us, &[1.0, 0.0]);
            let moves = scene.angel.balance();
            scene.moves.extend(moves.into_iter().map(|one| (scene.now_us, one)));
        }
        let looks = scene.angel.looks();
        assert!(!scene.moves.is_empty(), "{looks:?}");
        assert!(looks.iter().all(|look| look.load.is_finite()), "{looks:?}");
    }

    #[test]
    fn moves_that_do_not_help_become_rare() {
        let mut scene = Scene::new(Table::spread(2), 2);
        // All the load is in one group, which is never idle.
        scene.angel.table.opened(0);
        scene.steps(100, 12.0, |group| 3000 * u64::from(group == 0));
        assert!(scene.angel.mark > Tuning::default().mark);
        assert!(scene.angel.moves_max < GROUPS);
        let first_s = scene.moves.iter().filter(|&&(at_us, _)| at_us < 1_000_000).count();
        assert!(scene.moves.len() < 2 * first_s, "{} of {first_s}", scene.moves.len());
    }
}
