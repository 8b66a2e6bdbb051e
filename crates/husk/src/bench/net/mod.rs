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
//! two can. Or (`paced`) requests come at a constant rate, whoever waits: `PACED` of what all
//! kernels carry together.
//!
//! Invariants
//! 1. A round asks each way once, each first as often as any other; ratios are medians of the
//!    rounds' quotients.
//! 2. `hash, again` is the control: where its rate (of paced rows, its time per request) is far
//!    from that of `hash`, nothing else counts.
//! 3. Nothing counts before a second has passed, whatever the way: so long Angel may take. What
//!    the 99th percentile is with that second is printed, too.
//! 4. What kernels carry is measured in each round, so that the rate follows the machine; all ways
//!    of a round have the same rate.

mod clients;
mod cost;
mod figures;
mod paced;
mod site;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use husk_net::steer;

use crate::bench::measure::lab::Lab;
use crate::bench::measure::machine::Machine;
use crate::bench::measure::scratch::Scratch;
use crate::bench::measure::stop;
use crate::bench::report::median;
use crate::bench::servers::cpu_ns;
use crate::bench::unable;
use crate::picture;
use clients::{Ask, CLIENTS, LOADS, Load, Pace};
use figures::{Report, Turn, course, paced_by, summed};
use site::{Kind, Site};

/// Processors that clients ask for.
const DEMAND: f64 = 1.25;
/// A constant rate, as a part of what all kernels carry together.
const PACED: f64 = 0.75;

/// `husk bench net`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one JSON document instead of the tables.
    #[arg(long)]
    json: bool,
    /// Rounds; one takes some 300 s.
    #[arg(long, default_value_t = 3, value_parser = crate::numbers::whole::<u32>(1..=100))]
    rounds: u32,
    /// Only rows whose name (server, load and pace, e.g. `nginx, even` or `nginx, even, paced`)
    /// contains this.
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
    Plain,
}

const WAYS: &[(Way, &str)] = &[
    (Way::Hash, "hash"),
    (Way::HashAgain, "hash, again"),
    (Way::One, "one socket"),
    (Way::Fixed, "groups, no moves"),
    (Way::Angel, "groups, Angel"),
    (Way::Plain, "groups, cBPF"),
];

struct Row {
    name: String,
    kind: Kind,
    load: Load,
    is_paced: bool,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, server) in [(Kind::Nginx, "nginx"), (Kind::Apache, "apache")] {
        for (is_paced, pace) in [(false, ""), (true, ", paced")] {
            let name = |load: &Load| format!("{server}, {}{pace}", load.name);
            let row = |load: &Load| Row { name: name(load), kind, load: *load, is_paced };
            rows.extend(LOADS.iter().map(row));
        }
    }
    rows
}

/// Requests a second that kernels carry.
#[derive(Clone, Copy)]
struct Carried {
    by_all: f64,
    by_one: f64,
}

/// All rounds of a row.
struct Rounds {
    /// By way.
    turns: Vec<Vec<Turn>>,
    /// Of a row at a constant rate, by round.
    carried: Vec<Carried>,
}

impl Rounds {
    /// `hash, again` over `hash`: rates, and times per request where the rate is given.
    fn controls(&self) -> impl Iterator<Item = f64> {
        let of = |turn: &Turn| if self.carried.is_empty() { turn.per_s } else { turn.p50_ms };
        self.turns[1].iter().zip(&self.turns[0]).map(move |(again, first)| of(again) / of(first))
    }
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
    if steer::check::check().way != "ebpf" {
        let remedy = "run it as root, and see `husk net check`";
        return Err(unable("nothing can be steered by eBPF here", remedy).into());
    }
    let (lab, scratch) = (Lab::new()?, Scratch::create(None)?);
    let machine = Machine::look(None);
    let costs = cost::connections(options.rounds.max(5))?;
    let whole_table_us = cost::whole_table_us()?;
    let (mut measured, mut controls) = (Vec::new(), Vec::new());
    let (mut angels, mut plain) = (Vec::new(), Vec::new());
    let (mut courses, mut rates) = (Vec::new(), Vec::new());
    for kind in [Kind::Nginx, Kind::Apache] {
        let of_kind: Vec<_> = chosen.iter().filter(|row| row.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let pair = Pair::start(kind, &lab, &scratch)?;
        for row in of_kind {
            let rounds = pair.rounds(row, options.rounds)?;
            controls.extend(rounds.controls());
            angels.extend(rounds.turns[4].iter().map(|turn| turn.angel_percent));
            plain.extend(rounds.turns[5].iter().map(|turn| turn.angel_percent));
            let rate = paced_by(row, &rounds);
            measured.extend(summed(row, &rounds.turns, rate.as_ref()));
            rates.extend(rate);
            courses.push(course(&row.name, &rounds.turns));
        }
    }
    let report = Report {
        machine,
        control: median(controls.into_iter()),
        skipped_s: clients::SETTLE.as_secs_f64(),
        rows: measured,
        paced: rates,
        whole_table_us,
        connection_us: median(costs.iter().map(|one| one.0)),
        connection_steered_over: median(costs.iter().map(|(without, with)| with / without)),
        angel_cpu_percent: median(angels.into_iter()),
        angel_by_cbpf_cpu_percent: median(plain.into_iter()),
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

    fn rounds(&self, row: &Row, rounds: u32) -> anyhow::Result<Rounds> {
        let (mut turns, mut carried) = (vec![Vec::new(); WAYS.len()], Vec::new());
        for round in 0..rounds as usize {
            let mut pace = Pace::Waiting { think_us: self.think_us };
            if row.is_paced {
                let carries = self.carries(round as u64)?;
                pace = Pace::Constant { per_s: carries.by_all * PACED };
                carried.push(carries);
            }
            for n in 0..WAYS.len() {
                let n = (n + round) % WAYS.len();
                turns[n].push(self.turn(row.load, WAYS[n].0, pace, round as u64)?);
            }
        }
        Ok(Rounds { turns, carried })
    }

    /// What kernels carry: clients that do not think, by all groups and by those of one kernel.
    fn carries(&self, seed: u64) -> anyhow::Result<Carried> {
        let [even, .., attacked] = LOADS else { unreachable!("there are several loads") };
        let pace = Pace::Waiting { think_us: 0.0 };
        Ok(Carried {
            by_all: self.turn(*even, Way::Fixed, pace, seed)?.per_s,
            by_one: self.turn(*attacked, Way::Fixed, pace, seed)?.per_s,
        })
    }

    fn turn(&self, load: Load, way: Way, pace: Pace, seed: u64) -> anyhow::Result<Turn> {
        stop::check()?;
        let site = if way == Way::One { &self.one } else { &self.several };
        let attach = |options| Attached::to(&site.pid().to_string(), options).map(Some);
        let attached = match way {
            Way::Fixed => attach(fixed())?,
            Way::Angel => attach(Vec::new())?,
            Way::Plain => attach(vec!["--way=cbpf".to_owned()])?,
            _ => None,
        };
        let look = || attached.as_ref().and_then(Attached::look);
        let balancer = look().map(|one| one.balancer);
        let ran_ns = || balancer.and_then(|pid| cpu_ns(pid).ok()).unwrap_or_default();
        // Whatever accepts, the same ports ask.
        let ask = Ask { load, kernels: self.several.kernels, pace, seed };
        let (mut settled, mut looked_ns, before_ns) = (None, 0, ran_ns());
        let began = Instant::now();
        let seen = clients::run(&self.lab.sender, site.address(), &ask, || {
            // What it takes to look is not the balancer's own.
            let at_ns = ran_ns();
            settled = look();
            looked_ns = ran_ns() - at_ns;
        })?;
        let (ran_ns, lasted) = (ran_ns().saturating_sub(before_ns + looked_ns), began.elapsed());
        let mut turn = Turn::of(seen);
        turn.angel_percent = ran_ns as f64 / lasted.as_nanos() as f64 * 100.0;
        if let (Some(after), Some(before)) = (look(), settled) {
            turn.steered(&before, &after, lasted);
        }
        Ok(turn)
    }
}
