//! `husk bench net`: connections from outside, accepted with and without steering.
//!
//! ```text
//!   clients, in one namespace ── veth ── nginx or apache, in another
//!     source ports of chosen           one socket | a socket for each kernel: hash | steered, no
//!     flow groups                                   moves | steered, Angel moves
//! ```
//!
//! Clients connect, wait for a page that the server compresses for each of them, and think; all
//! together ask for `DEMAND` processors of it. That is more than one kernel can do, and less than
//! two can.
//!
//! Invariants
//! 1. A round asks each way once, each first as often as any other; ratios are medians of the
//!    rounds' quotients.
//! 2. `hash, again` is the control: where its rate is far from that of `hash`, nothing else counts.
//! 3. Nothing counts before a second has passed: so long Angel may take.

mod clients;
mod cost;
mod site;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use husk_net::steer::{self, Moved};
use serde::Serialize;

use crate::bench::measure::lab::Lab;
use crate::bench::measure::machine::Machine;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::report::median;
use crate::bench::servers::cpu_ns;
use crate::picture::{self, Course, Line};
use clients::{Ask, CLIENTS, LOADS, Load, SETTLE, Seen, WINDOW};
use site::{Kind, Site};

/// Processors that are asked for.
const DEMAND: f64 = 1.25;
/// Windows of a course.
const COURSE: Duration = Duration::from_millis(100);
/// How far the control may be from 1.
const CONTROL: f64 = 0.1;
/// Time per request with Angel, over that without: all connections come to one kernel.
const P99_WANTED: f64 = 0.6;
/// Connections of the busiest kernel over the mean, a second after the load began.
const WORST_WANTED: f64 = 1.2;
/// A move of the whole table, in microseconds.
const TABLE_WANTED_US: f64 = 50.0;
/// Connecting, accepting and closing with steering, over without.
const STEERING_WANTED: f64 = 1.02;
/// Angel's part of a processor, in per cent.
const ANGEL_WANTED_PERCENT: f64 = 0.5;

/// `husk bench net`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the tables.
    #[arg(long)]
    json: bool,
    /// Rounds; one takes some 100 s.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only rows whose name (server and load, e.g. `nginx, even`) contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also write a page with pictures, net.html, into this directory: time per request and moves
    /// of flow groups over the time of a round.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// How connections find who accepts them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    One,
    Hash,
    HashAgain,
    Fixed,
    Angel,
}

const WAYS: &[(Way, &str)] = &[
    (Way::Hash, "hash"),
    (Way::HashAgain, "hash, again"),
    (Way::One, "one socket"),
    (Way::Fixed, "groups, no moves"),
    (Way::Angel, "groups, Angel"),
];

struct Row {
    name: String,
    kind: Kind,
    load: Load,
}

fn rows() -> Vec<Row> {
    let kinds = [(Kind::Nginx, "nginx"), (Kind::Apache, "apache")];
    let row = |(kind, name): (Kind, &str)| {
        let of_load =
            move |&load: &Load| Row { name: format!("{name}, {}", load.name), kind, load };
        LOADS.iter().map(of_load).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(row).collect()
}

/// What one turn of a way showed.
#[derive(Clone, Default)]
struct Turn {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    failed: u64,
    worst_over_mean: Option<f64>,
    moves: u64,
    angel_percent: f64,
    /// Mean time per request, and moves, by tenths of a second.
    took_ms: Vec<Option<f64>>,
    moved: Vec<usize>,
}

#[derive(Serialize)]
struct Measured {
    row: String,
    way: &'static str,
    requests_per_s: f64,
    failed: u64,
    p50_ms: f64,
    p99_ms: f64,
    /// Against `groups, no moves`.
    p99_over_no_moves: f64,
    /// Connections of the busiest kernel over the mean.
    worst_over_mean: Option<f64>,
    moves: u64,
    met: Option<bool>,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    /// Rate of `hash, again` over that of `hash`.
    control: f64,
    rows: Vec<Measured>,
    whole_table_us: f64,
    connection_us: f64,
    connection_steered_over: f64,
    angel_cpu_percent: f64,
}

/// A server that is steered, for a while.
struct Attached {
    target: String,
}

/// Words of a balancer that moves nothing.
fn fixed() -> Vec<String> {
    vec!["--no-moves".to_owned()]
}

impl Attached {
    fn to(target: &str, options: Vec<String>) -> anyhow::Result<Attached> {
        let begun = steer::attach(target, || crate::net::balancer(options.clone()));
        let begun = begun.map_err(|why| anyhow::anyhow!("{}: {}", why.what, why.why))?;
        anyhow::ensure!(!begun.is_empty(), "nothing can be steered here: see `husk net check`");
        Ok(Attached { target: target.to_owned() })
    }

    fn look(&self) -> Option<steer::Snapshot> {
        steer::look(&self.target).ok()?.into_iter().next()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Where its balancer has ended there is nothing to end.
        let _ = steer::detach(&self.target);
    }
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let all = rows();
    let chosen = crate::bench::chosen(&all, |row| &row.name, options.only.as_deref())?;
    if let Some(directory) = &options.report {
        picture::make_directory(directory)?;
    }
    let able = steer::check::check().way == "ebpf";
    anyhow::ensure!(able, "nothing can be steered here: run as root, and see `husk net check`");
    let (lab, scratch) = (Lab::new()?, Scratch::create(None)?);
    let machine = Machine::look(None);
    let costs = cost::connections(options.rounds.max(5))?;
    let whole_table_us = cost::whole_table_us()?;
    let (mut measured, mut controls, mut angels) = (Vec::new(), Vec::new(), Vec::new());
    let mut courses = Vec::new();
    for kind in [Kind::Nginx, Kind::Apache] {
        let of_kind: Vec<_> = chosen.iter().filter(|row| row.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let pair = Pair::start(kind, &lab, &scratch)?;
        for row in of_kind {
            let turns = pair.rounds(row, options.rounds)?;
            let rates = |way: usize| turns[way].iter().map(|turn| turn.per_s);
            controls.extend(rates(1).zip(rates(0)).map(|(again, first)| again / first));
            angels.extend(turns[4].iter().map(|turn| turn.angel_percent));
            measured.extend(summed(row, &turns));
            courses.push(course(&row.name, &turns));
        }
    }
    let report = Report {
        machine,
        control: median(controls.into_iter()),
        rows: measured,
        whole_table_us,
        connection_us: median(costs.iter().map(|one| one.0)),
        connection_steered_over: median(costs.iter().map(|(without, with)| with / without)),
        angel_cpu_percent: median(angels.into_iter()),
    };
    if let Some(directory) = &options.report {
        picture::write(directory, "net.html", &report.page(&courses))?;
    }
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => report.print(),
    }
    Ok(if report.control_holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A server with one socket, and one with a socket for each kernel.
struct Pair<'a> {
    lab: &'a Lab,
    one: Site,
    several: Site,
    think_us: f64,
}

impl<'a> Pair<'a> {
    fn start(kind: Kind, lab: &'a Lab, scratch: &Scratch) -> anyhow::Result<Pair<'a>> {
        let one = Site::start(kind, true, lab, scratch)?;
        let several = Site::start(kind, false, lab, scratch)?;
        let think_us = CLIENTS as f64 / (DEMAND / several.request_s(lab)?) * 1e6;
        Ok(Pair { lab, one, several, think_us })
    }

    /// Turns by way.
    fn rounds(&self, row: &Row, rounds: u32) -> anyhow::Result<Vec<Vec<Turn>>> {
        let mut turns = vec![Vec::new(); WAYS.len()];
        for round in 0..rounds as usize {
            for n in 0..WAYS.len() {
                stop::check()?;
                let n = (n + round) % WAYS.len();
                turns[n].push(self.turn(row.load, WAYS[n].0, round as u64)?);
            }
        }
        Ok(turns)
    }

    fn turn(&self, load: Load, way: Way, seed: u64) -> anyhow::Result<Turn> {
        let site = if way == Way::One { &self.one } else { &self.several };
        let attach = |options| Attached::to(&site.pid().to_string(), options).map(Some);
        let attached = match way {
            Way::Fixed => attach(fixed())?,
            Way::Angel => attach(Vec::new())?,
            _ => None,
        };
        let look = || attached.as_ref().and_then(Attached::look);
        let balancer = look().map(|one| one.balancer);
        let ran_ns = || balancer.and_then(|pid| cpu_ns(pid).ok()).unwrap_or_default();
        // Whatever accepts, the same ports ask.
        let kernels = self.several.kernels;
        let ask = Ask { load, kernels, think_us: self.think_us, seed };
        let (mut settled, mut looked_ns, before_ns) = (None, 0, ran_ns());
        let began = Instant::now();
        let seen = clients::run(&self.lab.sender, site.address(), &ask, || {
            // What it takes to look is not the balancer's own.
            let at_ns = ran_ns();
            settled = look();
            looked_ns = ran_ns() - at_ns;
        })?;
        let ran_ns = ran_ns().saturating_sub(before_ns + looked_ns) as f64;
        let (after, lasted) = (look(), began.elapsed());
        let mut turn = Turn::of(seen);
        turn.angel_percent = ran_ns / (SETTLE + WINDOW).as_nanos() as f64 * 100.0;
        if let (Some(after), Some(before)) = (after, settled) {
            let came = after.kernels.iter().zip(&before.kernels);
            turn.worst_over_mean = worst(came.map(|(a, b)| a.syns - b.syns).collect());
            turn.moves = after.moves;
            turn.moved = moved(&after.moved, lasted);
        }
        Ok(turn)
    }
}

/// Moves by windows of a turn that has lasted so long.
fn moved(moved: &[Moved], lasted: Duration) -> Vec<usize> {
    let mut windows = vec![0; windows()];
    for Moved { ms_ago, groups } in moved {
        let at = lasted.saturating_sub(Duration::from_millis(*ms_ago));
        let window = (at.as_nanos() / COURSE.as_nanos()) as usize;
        // One that came before the clients is none of theirs.
        if let Some(count) = windows.get_mut(window).filter(|_| at > Duration::ZERO) {
            *count += groups;
        }
    }
    windows
}

fn windows() -> usize {
    ((SETTLE + WINDOW).as_nanos() / COURSE.as_nanos()) as usize
}

/// A drawing of the first round.
fn course(name: &str, turns: &[Vec<Turn>]) -> String {
    let first = |at: usize| turns[at].first();
    let line = |(at, &(_, name)): (usize, &(Way, &'static str))| {
        first(at).map(|turn| Line { name, values: &turn.took_ms })
    };
    let lines: Vec<Line<'_>> = WAYS.iter().enumerate().filter_map(line).collect();
    let angel = WAYS.iter().position(|(way, _)| *way == Way::Angel).and_then(first);
    let drawing = Course {
        title: name,
        of_lines: "ms per request",
        lines: &lines,
        of_bars: "moves",
        bars: angel.map_or(&[], |turn| &turn.moved),
        window_s: COURSE.as_secs_f64(),
    };
    drawing.drawing()
}

fn worst(counts: Vec<u64>) -> Option<f64> {
    let sum: u64 = counts.iter().sum();
    let most = counts.iter().max().filter(|_| sum > 0)?;
    Some((most * counts.len() as u64) as f64 / sum as f64)
}

impl Turn {
    fn of(seen: Seen) -> Turn {
        let mut took_ms = seen.took_ms;
        took_ms.sort_by(f64::total_cmp);
        let at = |part: usize| {
            let last = took_ms.len().saturating_sub(1);
            took_ms.get((took_ms.len() * part / 100).min(last)).copied().unwrap_or_default()
        };
        let counts: Vec<u64> = seen.workers.into_values().collect();
        let mut course = vec![(0.0, 0_u32); windows()];
        for (began, took_ms) in seen.course {
            let window = (began.as_nanos() / COURSE.as_nanos()) as usize;
            if let Some((sum, count)) = course.get_mut(window) {
                (*sum, *count) = (*sum + took_ms, *count + 1);
            }
        }
        let mean = |(sum, count)| (count > 0).then(|| sum / f64::from(count));
        Turn {
            took_ms: course.into_iter().map(mean).collect(),
            per_s: took_ms.len() as f64 / WINDOW.as_secs_f64(),
            p50_ms: at(50),
            p99_ms: at(99),
            failed: seen.failed,
            // One that answered nothing is not among them.
            worst_over_mean: if counts.len() == 1 { Some(2.0) } else { worst(counts) },
            ..Turn::default()
        }
    }
}

fn summed(row: &Row, turns: &[Vec<Turn>]) -> Vec<Measured> {
    let fixed = WAYS.iter().position(|(way, _)| *way == Way::Fixed).unwrap_or_default();
    let of_way = |(at, &(way, name)): (usize, &(Way, &'static str))| {
        let figure = |pick: &dyn Fn(&Turn) -> f64| median(turns[at].iter().map(pick));
        let quotients = turns[at].iter().zip(&turns[fixed]);
        let p99_over = median(quotients.map(|(one, no)| one.p99_ms / no.p99_ms.max(0.001)));
        let worst = figure(&|turn| turn.worst_over_mean.unwrap_or_default());
        let failed = turns[at].iter().map(|turn| turn.failed).sum();
        let evens_out = failed == 0 && worst <= WORST_WANTED;
        let met = match (way, row.load.name) {
            (Way::Angel, "attacked") => Some(evens_out && p99_over <= P99_WANTED),
            (Way::Angel, _) => Some(evens_out),
            _ => None,
        };
        Measured {
            row: row.name.clone(),
            way: name,
            requests_per_s: figure(&|turn| turn.per_s),
            failed,
            p50_ms: figure(&|turn| turn.p50_ms),
            p99_ms: figure(&|turn| turn.p99_ms),
            p99_over_no_moves: p99_over,
            worst_over_mean: (worst > 0.0).then_some(worst),
            moves: figure(&|turn| turn.moves as f64) as u64,
            met,
        }
    };
    WAYS.iter().enumerate().map(of_way).collect()
}

fn mark(met: bool) -> &'static str {
    if met { "ok" } else { "MISSED" }
}

impl Report {
    /// A page with the courses of all rows.
    fn page(&self, courses: &[String]) -> String {
        let Machine { cpu, cores, kernel, load, .. } = &self.machine;
        let mut page = picture::head("connections", "Connections from outside");
        page += &format!(
            "<p>{}, {cores} cores, Linux {}, load {load:.1}. Control (hash twice): {:.2}.</p>\
             <p>Mean time per request by tenths of a second, in the first round, and flow groups \
             that Angel moved. Figures count from {} s on.</p>",
            picture::escaped(cpu),
            picture::escaped(kernel),
            self.control,
            SETTLE.as_secs(),
        );
        page + &courses.concat()
    }

    fn control_holds(&self) -> bool {
        (self.control - 1.0).abs() <= CONTROL
    }

    fn print(&self) {
        let Machine { cpu, cores, kernel, load, .. } = &self.machine;
        println!("{cpu}, {cores} cores, Linux {kernel}");
        println!(
            "load {load:.1}; over a veth, medians; {CLIENTS} clients ask for {DEMAND} processors\n"
        );
        println!(
            "{:<18} {:>10} {:>7} {:>8} {:>8} {:>9} {:>9} {:>6}",
            "", "requests/s", "failed", "p50 ms", "p99 ms", "p99 ratio", "max/mean", "moves"
        );
        let mut last = "";
        for row in &self.rows {
            if row.row != last {
                println!("{}", row.row);
                last = &row.row;
            }
            let worst = row.worst_over_mean.map_or("-".to_owned(), |worst| format!("{worst:.2}"));
            println!(
                "  {:<16} {:>10.0} {:>7} {:>8.2} {:>8.2} {:>9.2} {worst:>9} {:>6} {}",
                row.way,
                row.requests_per_s,
                row.failed,
                row.p50_ms,
                row.p99_ms,
                row.p99_over_no_moves,
                row.moves,
                row.met.map_or("", mark)
            );
        }
        let table = self.whole_table_us;
        println!(
            "\na move of all groups: {table:.1} us (<= 50 {})",
            mark(table <= TABLE_WANTED_US)
        );
        let (over, us) = (self.connection_steered_over, self.connection_us);
        let met = mark(over <= STEERING_WANTED);
        println!("connect, accept, close: {us:.1} us, steered {over:.3}x (<= 1.02 {met})");
        let angel = self.angel_cpu_percent;
        let met = mark(angel <= ANGEL_WANTED_PERCENT);
        println!("Angel: {angel:.2} % of a processor (<= 0.5 {met})");
        if !self.control_holds() {
            println!("\nThe control is not 1.0: this machine was too busy, measure again.");
        }
    }
}
