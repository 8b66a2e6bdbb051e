//! Measures the load of the cores of an image's kernels, for the policy `least-loaded`.
//!
//! ```text
//!   /proc/stat, each 100 ms ─► share of each core that was busy ─► moving average in the region
//! ```
//!
//! It begins when a process is first placed by load. Processes that come or go between two looks
//! are counted in the region (`husk_kernel::process::placement`).

use std::fs;

use husk_carrier::Direct;
use husk_proto::place::LOAD_ONE;
use husk_proto::{Admin as _, Overview as _};

/// Ticks of the supervisor between two looks.
const TICKS: u32 = 4;

/// Ticks of the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Times {
    busy: u64,
    all: u64,
}

/// Looks at cores now and then.
#[derive(Debug, Default)]
pub struct Loads {
    ticks: u32,
    before: Vec<(u32, Times)>,
}

impl Loads {
    /// Time to look, perhaps.
    pub fn tick(&mut self, direct: &mut Direct) {
        if !direct.are_loads_wanted() {
            return;
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS) {
            let text = fs::read_to_string("/proc/stat").unwrap_or_default();
            self.look(direct, cores(&text));
        }
    }

    fn look(&mut self, direct: &mut Direct, now: Vec<(u32, Times)>) {
        for kernel in 0..direct.kernels() {
            let of = |all: &[(u32, Times)]| {
                let core = direct.core_of(kernel)?;
                all.iter().find(|(number, _)| *number == core).map(|(_, times)| *times)
            };
            if let (Some(before), Some(now)) = (of(&self.before), of(&now)) {
                direct.fold_load(kernel, share(before, now));
            }
        }
        self.before = now;
    }
}

/// How busy a core was between two looks.
fn share(before: Times, now: Times) -> u32 {
    let all = now.all.saturating_sub(before.all).max(1);
    let busy = now.busy.saturating_sub(before.busy).min(all);
    (busy * u64::from(LOAD_ONE) / all) as u32
}

/// Times of each core: `cpuN user nice system idle iowait irq softirq steal ...`.
fn cores(text: &str) -> Vec<(u32, Times)> {
    let core = |line: &str| {
        // Behind the name of all together are two blanks.
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let number = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some((number, Times { busy: all - idle, all }))
    };
    text.lines().filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_as_busy_as_they_were_not_idle() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 0\n\
                    cpu13 0 0 0 100 0 0 0 0 0 0\nintr 1 2 3\n";
        let (zero, idle) = (Times { busy: 20, all: 100 }, Times { busy: 0, all: 100 });
        assert_eq!(cores(text), [(0, zero), (13, idle)]);
        assert_eq!(share(zero, Times { busy: 45, all: 150 }), LOAD_ONE / 2);
        assert_eq!(share(zero, zero), 0);
        assert_eq!(share(zero, Times { busy: 10, all: 200 }), 0, "it may go back");
        assert!(!cores(&fs::read_to_string("/proc/stat").unwrap()).is_empty());
    }
}
