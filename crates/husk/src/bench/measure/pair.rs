//! The parent's side: workers, the baton between them, rounds and medians.
//!
//! Failure: a worker that says nothing for long (`lines`) or ends is an error of the row's; an
//! image that does not start is an error of the whole.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::calm::{self, Figures, Slice};
use super::lines::Lines;
use super::machine::Machine;
use super::memory;
use super::scratch::Scratch;
use super::technique::Technique;
use crate::bench::files::hare::{Round, Spent};
use crate::bench::files::operations::{DISPATCHED, Operation, UNGUARDED, Wanted};
use crate::bench::files::workloads::Workload;
use crate::bench::processes::flow::Row as Flow;
use crate::bench::report::{self, Report, Row, State, median};

/// Fewest rounds of a row.
pub const ROUNDS_MIN: usize = 5;
/// Most rounds of a row.
const ROUNDS_MAX: usize = 1_000;
/// CPU time that one native batch of processes should take; time of all slices of one round.
const BATCH_NS: f64 = 3_000_000.0;
/// Time that one native slice should take: as short as a clock that takes 20 ns allows, because a
/// core is seldom left alone for long.
const SLICE_NS: f64 = 20_000.0;
/// Slices in one round of a row of `pipes`.
const SLICES: u64 = 150;
/// Empty files made to see what state one costs, after as many that fill the pages there are.
const EMPTY_FILES: u64 = 40_000;

/// One worker.
pub struct Worker {
    lines: Lines,
}

impl Worker {
    /// Starts one.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let lines = Lines::start(&mut command);
        Ok(Self { lines: lines.with_context(|| format!("cannot start {command:?}"))? })
    }

    /// Has it take longer for an answer.
    pub fn be_patient(&mut self, most_ms: u16) {
        self.lines.patience_ms = most_ms;
    }

    /// The image that it is in.
    pub fn pid(&self) -> u32 {
        self.lines.pid()
    }

    /// Hands the baton over and waits for it to come back; CPU time in ns.
    fn order(&mut self, verb: &str, count: u64, name: &str) -> anyhow::Result<f64> {
        self.spend(verb, count, name).map(|spent| spent.cpu_ns)
    }

    /// The same, with wall time.
    pub fn spend(&mut self, verb: &str, count: u64, name: &str) -> anyhow::Result<Spent> {
        let times = self.ask(&format!("{verb} {count} {name}\n"))?;
        let (cpu_ns, wall_ns) = times.split_once(' ').context("half an answer")?;
        Ok(Spent { cpu_ns: cpu_ns.parse()?, wall_ns: wall_ns.parse()? })
    }

    /// So many slices of so many repetitions each.
    fn slices(&mut self, times: u64, count: u64, name: &str) -> anyhow::Result<Vec<Slice>> {
        let slices = self.ask(&format!("slices {times} {count} {name}\n"))?;
        let slice = |word: &str| {
            let (ns, probe_ns) = word.split_once(':').context("half a slice")?;
            Ok(Slice { ns: ns.parse()?, probe_ns: probe_ns.parse()? })
        };
        slices.split(' ').map(slice).collect()
    }

    fn ask(&mut self, order: &str) -> anyhow::Result<String> {
        crate::bench::measure::stop::check()?;
        self.lines.send(order).context("worker ended")?;
        let line = self.lines.answer()?;
        match line.as_deref().and_then(|line| line.split_once(' ')) {
            Some(("ok", answer)) => Ok(answer.to_owned()),
            Some(("err", why)) => anyhow::bail!("{why}"),
            _ => anyhow::bail!("the worker ended"),
        }
    }

    /// CPU time of one repetition, ns.
    fn batch(&mut self, operation: &Operation, count: u64) -> anyhow::Result<f64> {
        Ok(self.order("batch", count, operation.name)? / count as f64)
    }
}

/// What a worker does (`worker`), with so many processes, and the row's name.
pub type Order<'a> = (&'a str, u32, &'a str);

/// A native worker, a second one as control, and one in an image.
pub struct Pair {
    native: Worker,
    control: Worker,
    husk: Worker,
    /// Images that do without a technique, for whoever asks.
    without: Vec<(Technique, Worker)>,
    guard: Option<String>,
    /// The least of all probes so far: how fast the core is for who has it alone.
    fastest_ns: f64,
}

impl Pair {
    /// Starts all three, and one without each of some techniques.
    pub fn start(
        scratch: &Scratch,
        guard: Option<&str>,
        without: &[Technique],
    ) -> anyhow::Result<Self> {
        Self::start_with(image(scratch, guard), scratch, guard, without)
    }

    /// The same, with an image whose pipes are all the host's.
    pub fn start_without_rings(scratch: &Scratch, guard: Option<&str>) -> anyhow::Result<Self> {
        let mut image = image(scratch, guard);
        image.env("HUSK_PIPES", "host");
        Self::start_with(image, scratch, guard, &[])
    }

    fn start_with(
        whole: Command,
        scratch: &Scratch,
        guard: Option<&str>,
        without: &[Technique],
    ) -> anyhow::Result<Self> {
        let program = &scratch.program;
        let lacking = without.iter().map(|&technique| {
            let mut image = image(scratch, technique.guard(guard));
            technique.switch_off(&mut image);
            Ok((technique, Worker::start(image)?))
        });
        Ok(Self {
            without: lacking.collect::<anyhow::Result<_>>()?,
            native: Worker::start(native(program, &scratch.native.join("a")))?,
            control: Worker::start(native(program, &scratch.native.join("b")))?,
            husk: Worker::start(whole)?,
            guard: guard.map(str::to_owned),
            fastest_ns: f64::INFINITY,
        })
    }

    /// Rounds of a row of `pipes`, after one that does not count: wall ns per repetition.
    pub fn flow(&mut self, row: &Flow, rounds: u32) -> anyhow::Result<Vec<(f64, f64)>> {
        let once = |worker: &mut Worker| {
            let spent = worker.spend("flow", row.count, row.name)?;
            anyhow::Ok(spent.wall_ns / row.count as f64)
        };
        let mut round = || {
            let native = once(&mut self.native).context("native")?;
            Ok((native, once(&mut self.husk).context("husk")?))
        };
        (0..=rounds).map(|_| round()).skip(1).collect()
    }

    /// Rounds of a row whose calls are the worker's own, in slices.
    pub fn flow_alone(
        &mut self,
        row: &Flow,
        rounds: u32,
        control: bool,
    ) -> anyhow::Result<Figures> {
        if self.fastest_ns.is_infinite() {
            self.fastest_ns = calm::fastest_now();
        }
        let other = if control { &mut self.control } else { &mut self.husk };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            left.extend(self.native.slices(SLICES, row.count, row.name).context("native")?);
            right.extend(other.slices(SLICES, row.count, row.name).context("husk")?);
        }
        Ok(compared(&left, &right, &mut self.fastest_ns))
    }

    /// Measures `rows`, for about `time` all together.
    pub fn measure(
        &mut self,
        rows: &[&Operation],
        time: Duration,
        scratch: &Scratch,
    ) -> anyhow::Result<Report> {
        let machine = Machine::look(self.guard.as_deref());
        self.fastest_ns = calm::fastest_now();
        let state = self.state().context("the image does not work")?;
        let share = time / (rows.len() as u32 + 1);
        let figures = self.control(share)?;
        let slower = report::slower(&figures);
        let control = "control: getppid, native twice";
        let control = Row::of_slices(control, Wanted::Nothing, 1.0, figures);
        let rows = rows.iter().map(|row| self.row(row, slower, share, scratch)).collect();
        Ok(Report { machine, control, goals_scaled_by: slower, rows, state })
    }

    /// Rounds of a workload, after one that does not count.
    pub fn workload(
        &mut self,
        workload: &Workload,
        processes: u32,
        one_directory: bool,
        rounds: u32,
    ) -> anyhow::Result<Vec<Round>> {
        let verb = if one_directory { "one" } else { "own" };
        self.rounds_of((verb, processes, workload.name), rounds)
    }

    /// Rounds of an order to the workers, after one that does not count.
    pub fn rounds_of(&mut self, order: Order<'_>, rounds: u32) -> anyhow::Result<Vec<Round>> {
        let (verb, count, name) = (order.0, u64::from(order.1), order.2);
        let mut round = || {
            let native = self.native.spend(verb, count, name).context("native")?;
            let husk = self.husk.spend(verb, count, name).context("husk")?;
            let lacking = self.without.iter_mut().map(|(technique, worker)| {
                let spent = worker.spend(verb, count, name);
                Ok((*technique, spent.with_context(|| format!("without {}", technique.name()))?))
            });
            Ok(Round { native, husk, without: lacking.collect::<anyhow::Result<_>>()? })
        };
        (0..=rounds).map(|_| round()).skip(1).collect()
    }

    /// Two native workers against each other: what one spent on an order over what the other did.
    pub fn control_ratio(
        &mut self,
        order: Order<'_>,
        rounds: u32,
        of: fn(&Spent) -> f64,
    ) -> anyhow::Result<f64> {
        let (verb, count, name) = (order.0, u64::from(order.1), order.2);
        let mut quotients = Vec::new();
        for _ in 0..rounds {
            let one = of(&self.native.spend(verb, count, name)?);
            quotients.push(one / of(&self.control.spend(verb, count, name)?).max(1.0));
        }
        Ok(median(quotients.into_iter()))
    }

    /// Memory of the image before and after many empty files. Must come first: idle is idle.
    fn state(&mut self) -> anyhow::Result<State> {
        let supervisor = self.husk.pid();
        self.husk.order("files", 1, "warm")?;
        let idle_bytes = memory::image_bytes(supervisor)?;
        self.husk.order("files", EMPTY_FILES, "many")?;
        let before = memory::region_bytes(supervisor)?;
        self.husk.order("files", EMPTY_FILES, "more")?;
        let grown = memory::region_bytes(supervisor)?.saturating_sub(before);
        Ok(State { idle_bytes, bytes_per_empty_file: grown as f64 / EMPTY_FILES as f64 })
    }

    /// Two native workers against each other.
    fn control(&mut self, share: Duration) -> anyhow::Result<Figures> {
        let getppid = crate::bench::files::operations::find("getppid")?;
        let (native, control) = (&mut self.native, &mut self.control);
        figures(native, control, [getppid; 2], share, &mut self.fastest_ns)
    }

    fn row(&mut self, row: &Operation, slower: f64, share: Duration, scratch: &Scratch) -> Row {
        let measured = self.measured(row, slower, share, scratch);
        match measured.and_then(|measured| Ok((measured, self.worths(row, share)?))) {
            Ok((mut row, without)) => {
                row.without = without;
                row
            }
            Err(error) => Row::failed(row.name, format!("{error:#}")),
        }
    }

    fn measured(
        &mut self,
        row: &Operation,
        slower: f64,
        share: Duration,
        scratch: &Scratch,
    ) -> anyhow::Result<Row> {
        let (native, husk) = (&mut self.native, &mut self.husk);
        let fastest_ns = &mut self.fastest_ns;
        let figures = match row.name {
            UNGUARDED => {
                let mut husk = Worker::start(image(scratch, Some("off")))?;
                figures(native, &mut husk, [row; 2], share, fastest_ns)?
            }
            DISPATCHED => {
                let plain = crate::bench::files::operations::find("getppid")?;
                figures(native, &mut self.control, [plain, row], share, fastest_ns)?
            }
            _ if row.batch_max > 0 => {
                return Ok(Row::of(
                    row.name,
                    row.wanted,
                    slower,
                    rounds(native, husk, row, share)?,
                ));
            }
            _ => figures(native, husk, [row; 2], share, fastest_ns)?,
        };
        Ok(Row::of_slices(row.name, row.wanted, slower, figures))
    }

    /// What each technique is worth for an operation.
    fn worths(
        &mut self,
        row: &Operation,
        share: Duration,
    ) -> anyhow::Result<Vec<(Technique, f64)>> {
        let mut worths = Vec::new();
        for (technique, lacking) in &mut self.without {
            let worth = if row.batch_max > 0 {
                let rounds = rounds(&mut self.husk, lacking, row, share)?;
                median(rounds.iter().map(|round| round.1 / round.0.max(0.01)))
            } else {
                let figures =
                    figures(&mut self.husk, lacking, [row; 2], share, &mut self.fastest_ns)?;
                figures.right_ns / figures.left_ns.max(0.01)
            };
            worths.push((*technique, worth));
        }
        Ok(worths)
    }
}

/// A worker in an image of its own.
fn image(scratch: &Scratch, guard: Option<&str>) -> Command {
    let mut image = Command::new(&scratch.program);
    // What is measured is the product as it comes, not as its user has set it up.
    image.env("HUSK_CONFIG", "none");
    image.current_dir(&scratch.idle).arg("run").arg("--discard");
    image.arg("--mount").arg(&scratch.mount).args(["--memory", "1G"]);
    image.args(guard.map(|guard| format!("--guard={guard}"))).arg("--");
    image.arg(&scratch.program).args(["bench", "worker"]).arg(&scratch.mount);
    image
}

fn native(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["bench", "worker"]).arg(directory);
    command
}

/// Slices of both sides in turn, round by round; at least `ROUNDS_MIN` of them.
fn figures(
    left: &mut Worker,
    right: &mut Worker,
    [one, other]: [&Operation; 2],
    share: Duration,
    fastest_ns: &mut f64,
) -> anyhow::Result<Figures> {
    let least = one.slice_min.max(other.slice_min);
    let once_ns = calibrate(left, one, u64::MAX).context("native")?;
    let count = ((SLICE_NS / once_ns) as u64).max(least);
    let times = ((BATCH_NS / once_ns) as u64 / count).max(1);
    right.slices(1, least, other.name).context("husk")?;
    let rounds = alternate(share, || {
        let left = left.slices(times, count, one.name).context("native")?;
        Ok((left, right.slices(times, count, other.name).context("husk")?))
    })?;
    let (left, right): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    let (left, right) = (left.concat(), right.concat());
    Ok(compared(&left, &right, fastest_ns))
}

fn compared(left: &[Slice], right: &[Slice], fastest_ns: &mut f64) -> Figures {
    *fastest_ns = fastest_ns.min(calm::fastest_ns(left.iter().chain(right).copied()));
    Figures::of(left, right, *fastest_ns)
}

/// (left, right) ns per repetition, round by round; at least `ROUNDS_MIN` of them.
fn rounds(
    left: &mut Worker,
    right: &mut Worker,
    operation: &Operation,
    share: Duration,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let most = operation.batch_max;
    let once_ns = calibrate(left, operation, most).context("native")?;
    let count = ((BATCH_NS / once_ns) as u64).clamp(1, most);
    right.batch(operation, 1).context("husk")?;
    alternate(share, || {
        let native = left.batch(operation, count).context("native")?;
        Ok((native, right.batch(operation, count).context("husk")?))
    })
}

/// As many rounds as `share` has room for, within the bounds.
fn alternate<T>(
    share: Duration,
    mut round: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let end = Instant::now() + share;
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS_MIN || (Instant::now() < end && rounds.len() < ROUNDS_MAX) {
        rounds.push(round()?);
    }
    Ok(rounds)
}

/// CPU time of one repetition, ns: counts grow until a quarter of a batch is filled.
fn calibrate(worker: &mut Worker, operation: &Operation, most: u64) -> anyhow::Result<f64> {
    let mut count = operation.slice_min;
    loop {
        let once_ns = worker.batch(operation, count)?.max(1.0);
        if count >= most || once_ns * count as f64 >= BATCH_NS / 4.0 {
            return Ok(once_ns);
        }
        count = (count * 8).min(most);
    }
}
