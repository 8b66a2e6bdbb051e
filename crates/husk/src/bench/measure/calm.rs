//! Slices of a measurement, and which of them count: those in which the core was the process's own.
//!
//! What runs on the other hyperthread of a core takes up to half of its execution units, mostly
//! for microseconds, and nothing in the guest tells of it: on a rented machine it is somebody
//! else's. Code in user space then takes twice its time and a call of the host 1.3 times, so that
//! a median over everything tells of the neighbour. A probe on both sides of each slice, additions
//! that keep four integer units busy, tells how much of the core there was; of a neighbour that
//! takes caches alone it tells nothing. A slice is judged by its probe alone, never by its own
//! time, and native slices and Husk's by the same measure.

use std::time::Instant;

use crate::bench::report::median;

/// How far above the least of all probes one of a calm slice is.
const CALM: f64 = 1.05;
/// So many of the calmest are taken where fewer are calm: a figure needs some.
const AT_LEAST: usize = 9;
/// How far above the least the median probe of those that are taken may be; else the row says so.
const SHARED: f64 = 1.1;
/// Probes to begin with: some tenth of a second, in which most neighbours rest for a microsecond.
const FIRST: u32 = 100_000;
/// Additions of a probe.
const ADDITIONS: u64 = 6_400;

/// A few repetitions in one go.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// What one repetition took, ns.
    pub ns: f64,
    /// The slower one of the probes before and after it, ns.
    pub probe_ns: f64,
}

/// What slices of two sides come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Medians, ns per repetition.
    pub left_ns: f64,
    pub right_ns: f64,
    /// How many slices they are of, of the side that has fewer.
    pub slices: usize,
    /// How much slower the probes of these slices were than the fastest one. 1: alone on the core.
    pub slowed: f64,
}

impl Figures {
    /// Medians of the calm slices of both sides; `fastest_ns` is the least of all probes.
    pub fn of(left: &[Slice], right: &[Slice], fastest_ns: f64) -> Self {
        let (left, right) = (calm(left, fastest_ns), calm(right, fastest_ns));
        let middle = |slices: &[Slice]| median(slices.iter().map(|slice| slice.ns));
        let slowed = |slices: &[Slice]| {
            median(slices.iter().map(|slice| slice.probe_ns)) / fastest_ns.max(1.0)
        };
        Self {
            left_ns: middle(&left),
            right_ns: middle(&right),
            slices: left.len().min(right.len()),
            slowed: slowed(&left).max(slowed(&right)),
        }
    }

    /// Whether somebody else had so much of the core that times in ns say nothing of Husk.
    pub fn shared(&self) -> bool {
        self.slowed > SHARED
    }
}

/// The slices that count: all calm ones, the calmest of many at least.
fn calm(slices: &[Slice], fastest_ns: f64) -> Vec<Slice> {
    let mut slices = slices.to_vec();
    slices.sort_by(|one, other| one.probe_ns.total_cmp(&other.probe_ns));
    let calm = slices.partition_point(|slice| slice.probe_ns <= fastest_ns * CALM);
    slices.truncate(calm.max(AT_LEAST));
    slices
}

/// The least of all probes.
pub fn fastest_ns(slices: impl Iterator<Item = Slice>) -> f64 {
    slices.map(|slice| slice.probe_ns).fold(f64::INFINITY, f64::min)
}

/// Does `once` so many times, a probe before and after each.
pub fn slices(
    times: u64,
    repetitions: u64,
    mut once: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Slice>> {
    let mut before = probe_ns();
    let mut slices = Vec::with_capacity(times as usize);
    for _ in 0..times {
        let start = Instant::now();
        once()?;
        let ns = start.elapsed().as_nanos() as f64 / repetitions as f64;
        let after = probe_ns();
        slices.push(Slice { ns, probe_ns: before.max(after) });
        before = after;
    }
    Ok(slices)
}

/// The least of many probes now.
pub fn fastest_now() -> f64 {
    (0..FIRST).map(|_| probe_ns()).fold(f64::INFINITY, f64::min)
}

/// How long a fixed amount of independent work takes now.
fn probe_ns() -> f64 {
    let start = Instant::now();
    husk_supervisor::show::check::keep_busy(ADDITIONS);
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(count: usize, ns: f64, probe_ns: f64) -> Vec<Slice> {
        vec![Slice { ns, probe_ns }; count]
    }

    #[test]
    fn slices_beside_a_busy_neighbour_do_not_count() {
        let left = [many(20, 94.0, 500.0), many(60, 130.0, 830.0)].concat();
        let right = [many(70, 28.0, 800.0), many(10, 14.0, 510.0)].concat();
        let all = left.iter().chain(&right).copied();
        let figures = Figures::of(&left, &right, fastest_ns(all));
        assert_eq!((figures.left_ns, figures.right_ns, figures.slices), (94.0, 14.0, 10));
        assert!(!figures.shared(), "{figures:?}");
    }

    #[test]
    fn a_slice_counts_by_its_probe_and_not_by_its_time() {
        let right = [many(40, 14.0, 800.0), many(10, 28.0, 500.0)].concat();
        assert_eq!(Figures::of(&right, &right, 500.0).right_ns, 28.0);
    }

    #[test]
    fn where_the_neighbour_never_rests_the_calmest_count_and_it_is_said() {
        let slices: Vec<_> =
            (0..160).map(|n| Slice { ns: f64::from(n), probe_ns: 800.0 + f64::from(n) }).collect();
        let figures = Figures::of(&slices, &slices, 500.0);
        assert_eq!((figures.slices, figures.left_ns), (9, 4.0));
        assert!(figures.shared(), "{figures:?}");
    }

    #[test]
    fn a_probe_takes_time_and_ten_times_as_much_takes_longer() {
        let least = |additions| {
            let once = |_| {
                let start = Instant::now();
                husk_supervisor::show::check::keep_busy(additions);
                start.elapsed().as_nanos()
            };
            (0..200).map(once).min().expect("some")
        };
        assert!(least(10 * ADDITIONS) > 5 * least(ADDITIONS));
    }
}
