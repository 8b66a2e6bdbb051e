//! The processors that this process may use.

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// All, and the two that threads are pinned to.
pub struct Cores {
    all: CpuSet,
    two: [CpuSet; 2],
}

impl Cores {
    /// Of the calling thread.
    pub fn look() -> anyhow::Result<Cores> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut mine = (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu).unwrap_or(false));
        let mut next = || {
            let mut one = CpuSet::new();
            let cpu = mine.next().context("it takes two cores; this process may use one")?;
            one.set(cpu)?;
            anyhow::Ok(one)
        };
        let two = [next()?, next()?];
        Ok(Cores { all, two })
    }

    /// Pins the calling thread to one of the two, or to none. Where Linux refuses, it runs where
    /// it runs.
    pub fn pin(&self, which: Option<usize>) {
        let set = which.map_or(&self.all, |which| &self.two[which]);
        let _ = sched_setaffinity(Pid::from_raw(0), set);
    }
}
