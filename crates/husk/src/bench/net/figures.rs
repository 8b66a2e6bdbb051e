//! Figures of turns, and how they are shown.

use std::time::Duration;

use husk_net::steer::{Moved, Snapshot};
use serde::Serialize;

use super::clients::{CLIENTS, SETTLE, Seen, WINDOW};
use super::{Carried, DEMAND, PACED, Rounds, Row, WAYS, Way};
use crate::bench::measure::machine::Machine;
use crate::bench::report::median;
use crate::picture::{self, Course, Line};

/// Windows of a course.
const COURSE: Duration = Duration::from_millis(100);
/// How far the control may be from 1.
const CONTROL: f64 = 0.1;
/// Time per request with Angel, over that without: all connections come to one kernel.
const P99_WANTED: f64 = 0.6;
/// A constant rate shows something of that only where one kernel alone carries less: so many times
/// as much as that must come.
const TOO_MUCH: f64 = 1.1;
/// Connections of the busiest kernel over the mean, a second after the load began.
const WORST_WANTED: f64 = 1.2;
/// A move of the whole table, in microseconds.
const TABLE_WANTED_US: f64 = 50.0;
/// Connecting, accepting and closing with steering, over without.
const STEERING_WANTED: f64 = 1.02;
/// Angel's part of a processor, in per cent.
const ANGEL_WANTED_PERCENT: f64 = 0.5;

/// What one turn of a way showed.
#[derive(Clone, Default)]
pub struct Turn {
    /// Answers a second.
    pub per_s: f64,
    pub p50_ms: f64,
    p99_ms: f64,
    /// With what came before it counts.
    p99_whole_ms: f64,
    /// How late requests were sent, of a hundred the second latest.
    late_ms: f64,
    failed: u64,
    worst_over_mean: Option<f64>,
    moves: u64,
    pub angel_percent: f64,
    /// Mean time per request, and moves, by tenths of a second.
    took_ms: Vec<Option<f64>>,
    moved: Vec<usize>,
}

/// One way of a row.
#[derive(Serialize)]
pub struct Measured {
    row: String,
    way: &'static str,
    requests_per_s: f64,
    failed: u64,
    p50_ms: f64,
    p99_ms: f64,
    /// With the time that does not count.
    p99_whole_ms: f64,
    /// Against `groups, no moves`.
    p99_over_no_moves: f64,
    /// Connections of the busiest kernel over the mean.
    worst_over_mean: Option<f64>,
    moves: u64,
    met: Option<bool>,
}

/// The constant rate of a row.
#[derive(Serialize)]
pub struct Paced {
    row: String,
    requests_per_s: f64,
    /// What all kernels carry together, and one alone.
    all_carry_per_s: f64,
    one_carries_per_s: f64,
    /// How late requests were sent, of a hundred the second latest.
    sent_late_ms: f64,
}

impl Paced {
    /// Whether one kernel alone has too much.
    fn is_too_much(&self) -> bool {
        self.requests_per_s >= TOO_MUCH * self.one_carries_per_s
    }

    fn print(&self) {
        println!(
            "  {:.0} requests/s; all kernels carry {:.0}, one {:.0}{}; sent {:.1} ms late (p99)",
            self.requests_per_s,
            self.all_carry_per_s,
            self.one_carries_per_s,
            if self.is_too_much() { "" } else { " (nearly as much: nothing to gain)" },
            self.sent_late_ms
        );
    }
}

/// All that was measured.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    /// Rate (of paced rows, time per request) of `hash, again` over that of `hash`.
    pub control: f64,
    /// The first part of each turn, which does not count.
    pub skipped_s: f64,
    pub rows: Vec<Measured>,
    pub paced: Vec<Paced>,
    pub whole_table_us: f64,
    pub connection_us: f64,
    pub connection_steered_over: f64,
    pub angel_cpu_percent: f64,
    pub angel_by_cbpf_cpu_percent: f64,
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
pub fn course(name: &str, turns: &[Vec<Turn>]) -> String {
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

/// The value below which so many of a hundred are.
fn percentile(mut values: Vec<f64>, part: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((values.len() * part / 100).min(last)).copied().unwrap_or_default()
}

impl Turn {
    pub fn of(seen: Seen) -> Turn {
        let counts: Vec<u64> = seen.workers.into_values().collect();
        let mut course = vec![(0.0, 0_u32); windows()];
        for (began, took_ms) in &seen.course {
            let window = (began.as_nanos() / COURSE.as_nanos()) as usize;
            if let Some((sum, count)) = course.get_mut(window) {
                (*sum, *count) = (*sum + took_ms, *count + 1);
            }
        }
        let mean = |(sum, count)| (count > 0).then(|| sum / f64::from(count));
        let ends = |&(at, took_ms): &(Duration, f64)| at + Duration::from_secs_f64(took_ms / 1e3);
        let counts_now = |end: &Duration| (SETTLE..SETTLE + WINDOW).contains(end);
        let answered = seen.course.iter().map(ends).filter(counts_now).count();
        let counted = seen.course.iter().filter(|(at, _)| *at >= SETTLE);
        let took_ms: Vec<f64> = counted.map(|&(_, took_ms)| took_ms).collect();
        let whole_ms = seen.course.iter().map(|&(_, took_ms)| took_ms).collect();
        Turn {
            took_ms: course.into_iter().map(mean).collect(),
            per_s: answered as f64 / WINDOW.as_secs_f64(),
            p50_ms: percentile(took_ms.clone(), 50),
            p99_ms: percentile(took_ms, 99),
            p99_whole_ms: percentile(whole_ms, 99),
            late_ms: percentile(seen.late_ms, 99),
            failed: seen.failed,
            // One that answered nothing is not among them.
            worst_over_mean: if counts.len() == 1 { Some(2.0) } else { worst(counts) },
            ..Turn::default()
        }
    }

    /// What its balancer has said when it had settled, and after it; it lasted so long.
    pub fn steered(&mut self, before: &Snapshot, after: &Snapshot, lasted: Duration) {
        let came = after.kernels.iter().zip(&before.kernels);
        // A group that has moved since has taken its count along.
        let came: Option<Vec<u64>> =
            came.map(|(after, before)| Some(after.syns?.saturating_sub(before.syns?))).collect();
        self.worst_over_mean = self.worst_over_mean.or_else(|| came.and_then(worst));
        self.moves = after.moves;
        self.moved = moved(&after.moved, lasted);
    }
}

/// The constant rate of a row, if it has one.
pub fn paced_by(row: &Row, rounds: &Rounds) -> Option<Paced> {
    let of = |pick: &dyn Fn(&Carried) -> f64| median(rounds.carried.iter().map(pick));
    (!rounds.carried.is_empty()).then(|| Paced {
        row: row.name.clone(),
        requests_per_s: of(&|one| one.by_all * PACED),
        all_carry_per_s: of(&|one| one.by_all),
        one_carries_per_s: of(&|one| one.by_one),
        sent_late_ms: median(rounds.turns.iter().flatten().map(|turn| turn.late_ms)),
    })
}

/// What all rounds of a row say of each way.
pub fn summed(row: &Row, turns: &[Vec<Turn>], paced: Option<&Paced>) -> Vec<Measured> {
    let fixed = WAYS.iter().position(|(way, _)| *way == Way::Fixed).unwrap_or_default();
    let judges = row.load.name == "attacked" && paced.is_none_or(Paced::is_too_much);
    let of_way = |(at, &(way, name)): (usize, &(Way, &'static str))| {
        let figure = |pick: &dyn Fn(&Turn) -> f64| median(turns[at].iter().map(pick));
        let quotients = turns[at].iter().zip(&turns[fixed]);
        let p99_over = median(quotients.map(|(one, no)| one.p99_ms / no.p99_ms.max(0.001)));
        let worst = figure(&|turn| turn.worst_over_mean.unwrap_or_default());
        let failed = turns[at].iter().map(|turn| turn.failed).sum();
        let evens_out = failed == 0 && worst <= WORST_WANTED;
        let is_met = evens_out && (!judges || p99_over <= P99_WANTED);
        Measured {
            row: row.name.clone(),
            way: name,
            requests_per_s: figure(&|turn| turn.per_s),
            failed,
            p50_ms: figure(&|turn| turn.p50_ms),
            p99_ms: figure(&|turn| turn.p99_ms),
            p99_whole_ms: figure(&|turn| turn.p99_whole_ms),
            p99_over_no_moves: p99_over,
            worst_over_mean: (worst > 0.0).then_some(worst),
            moves: figure(&|turn| turn.moves as f64) as u64,
            met: (way == Way::Angel).then_some(is_met),
        }
    };
    WAYS.iter().enumerate().map(of_way).collect()
}

fn mark(met: bool) -> &'static str {
    if met { "ok" } else { "MISSED" }
}

impl Report {
    /// A page with the courses of all rows.
    pub fn page(&self, courses: &[String]) -> String {
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

    /// Whether the machine was quiet enough.
    pub fn control_holds(&self) -> bool {
        (self.control - 1.0).abs() <= CONTROL
    }

    /// For people.
    pub fn print(&self) {
        let Machine { cpu, cores, kernel, load, .. } = &self.machine;
        println!("{cpu}, {cores} cores, Linux {kernel}");
        println!(
            "load {load:.1}; over a veth, medians; {CLIENTS} clients ask for {DEMAND} processors, \
             or (paced) a constant rate;\nthe first {:.1} s of each turn do not count, but in \
             `whole`\n",
            self.skipped_s
        );
        println!(
            "{:<18} {:>10} {:>7} {:>8} {:>8} {:>9} {:>9} {:>9} {:>6}",
            "",
            "answers/s",
            "failed",
            "p50 ms",
            "p99 ms",
            "whole",
            "p99 ratio",
            "max/mean",
            "moves"
        );
        self.print_rows();
        let table = self.whole_table_us;
        println!(
            "\na move of all groups: {table:.1} us (<= 50 {})",
            mark(table <= TABLE_WANTED_US)
        );
        let (over, us) = (self.connection_steered_over, self.connection_us);
        let met = mark(over <= STEERING_WANTED);
        println!("connect, accept, close: {us:.1} us, steered {over:.3}x (<= 1.02 {met})");
        for (name, angel) in
            [("Angel", self.angel_cpu_percent), ("Angel, by cBPF", self.angel_by_cbpf_cpu_percent)]
        {
            let met = mark(angel <= ANGEL_WANTED_PERCENT);
            println!("{name}: {angel:.2} % of a processor (<= 0.5 {met})");
        }
        if !self.control_holds() {
            println!("\nThe control is not 1.0: this machine was too busy, measure again.");
        }
    }

    fn print_rows(&self) {
        let mut last = "";
        for row in &self.rows {
            if row.row != last {
                println!("{}", row.row);
                last = &row.row;
                self.paced.iter().filter(|paced| paced.row == row.row).for_each(Paced::print);
            }
            let worst = row.worst_over_mean.map_or("-".to_owned(), |worst| format!("{worst:.2}"));
            println!(
                "  {:<16} {:>10.0} {:>7} {:>8.2} {:>8.2} {:>9.2} {:>9.2} {worst:>9} {:>6} {}",
                row.way,
                row.requests_per_s,
                row.failed,
                row.p50_ms,
                row.p99_ms,
                row.p99_whole_ms,
                row.p99_over_no_moves,
                row.moves,
                row.met.map_or("", mark)
            );
        }
    }
}
