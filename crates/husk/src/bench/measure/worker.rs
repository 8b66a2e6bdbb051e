//! One side of a measurement: does what the parent says, one line at a time, and tells the time.
//!
//! ```text
//!   batch COUNT NAME   ->   ok CPU_NS WALL_NS      NAME done COUNT times
//!   slices TIMES COUNT NAME -> ok NS:PROBE_NS ...  TIMES slices of COUNT times NAME (`calm`)
//!   files COUNT NAME   ->   the same               COUNT empty files in the new directory NAME
//!   own COUNT NAME     ->   ok CPU_NS WALL_NS      workload NAME once, with COUNT processes
//!   one COUNT NAME     ->   the same, all of them in one directory
//!   spread-own, spread-one  the same, on two nodes by turns, the first on the second one
//!   scale COUNT NAME   ->   the same, for 1,000 repetitions of row NAME of `scale` by COUNT
//!                           processes at once
//!   flow COUNT NAME    ->   the same               row NAME of `pipes`, COUNT times
//!   anything wrong     ->   err WHY         on one line
//! ```
//!
//! It ends with its standard input.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use super::calm;
use crate::bench::files::operations::{self, Place};
use crate::bench::files::scale_part;
use crate::bench::files::workloads;
use crate::bench::messages::nodes;
use crate::bench::processes::flow;

/// Serves in `directory` until the parent closes the pipe.
pub fn serve(directory: &Path) -> anyhow::Result<()> {
    std::env::set_current_dir(directory)
        .with_context(|| format!("cannot work in {}", directory.display()))?;
    let mut place = None;
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let answer = match obey(&mut place, &line?) {
            Ok(figures) => format!("ok {figures}\n"),
            Err(error) => format!("err {}\n", format!("{error:#}").replace('\n', " ")),
        };
        output.write_all(answer.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn obey(place: &mut Option<Place>, line: &str) -> anyhow::Result<String> {
    match line.strip_prefix("slices ") {
        Some(order) => sliced(place, order),
        None => whole(place, line).map(|(cpu_ns, wall_ns)| format!("{cpu_ns} {wall_ns}")),
    }
}

fn sliced(place: &mut Option<Place>, order: &str) -> anyhow::Result<String> {
    let (times, order) = order.split_once(' ').context("no count")?;
    let (count, name) = order.split_once(' ').context("no name")?;
    let (times, count) = (times.parse()?, count.parse()?);
    let slices = match operations::find(name) {
        Ok(operation) => {
            let place = prepared(place)?;
            calm::slices(times, count, || (operation.run)(place, count))?
        }
        Err(_) => flow::find(name)?.slices(times, count)?,
    };
    let words = slices.iter().map(|slice| format!("{:.2}:{:.0}", slice.ns, slice.probe_ns));
    Ok(words.collect::<Vec<_>>().join(" "))
}

fn prepared(place: &mut Option<Place>) -> anyhow::Result<&Place> {
    if place.is_none() {
        *place = Some(Place::prepare().context("preparing")?);
    }
    place.as_ref().context("nothing prepared")
}

fn whole(place: &mut Option<Place>, line: &str) -> anyhow::Result<(i64, u64)> {
    let mut words = line.splitn(3, ' ');
    let verb = words.next().unwrap_or_default();
    let count: u64 = words.next().context("no count")?.parse()?;
    let name = words.next().context("no name")?;
    let (nodes, spot) = verb.strip_prefix("spread-").map_or((1, verb), |spot| (2, spot));
    if spot == "own" || spot == "one" {
        let workload = workloads::find(name)?;
        return workload.run(u32::try_from(count)?, spot == "one", nodes);
    }
    if verb == "scale" {
        return scale_part::find(name)?.run(u32::try_from(count)?);
    }
    if verb == "flow" {
        return flow::find(name)?.run(count);
    }
    if verb == "files" {
        return timed(|| operations::make_files(name, u32::try_from(count)?));
    }
    anyhow::ensure!(verb == "batch", "unknown verb {verb:?}");
    if name == nodes::SIGNAL {
        return timed(|| nodes::signals(count));
    }
    let operation = operations::find(name)?;
    let place = prepared(place)?;
    timed(|| (operation.run)(place, count))
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<(i64, u64)> {
    let (before, start) = (cpu_ns()?, Instant::now());
    work()?;
    Ok((cpu_ns()? - before, start.elapsed().as_nanos() as u64))
}

/// CPU time of this thread and of the children it has waited for.
pub fn cpu_ns() -> anyhow::Result<i64> {
    let own = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(own.num_nanoseconds() + children_us()? * 1000)
}

/// CPU time of all children that this process has waited for.
pub fn children_us() -> anyhow::Result<i64> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(used.user_time().num_microseconds() + used.system_time().num_microseconds())
}
