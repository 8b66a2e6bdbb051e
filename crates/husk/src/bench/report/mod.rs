//! What was measured, as a table for people and as JSON for programs.

pub mod page;

use serde::Serialize;

use crate::bench::files::operations::Wanted;
use crate::bench::measure::calm::Figures;
use crate::bench::measure::machine::Machine;
use crate::bench::measure::technique::Technique;

/// Native `getppid` on the machine whose figures the goals in ns are. They grow by what it takes
/// here, as a slower machine is slower at everything, and never shrink: a goal is a promise.
const GOALS_GETPPID_NS: f64 = 104.0;
/// How far from 1.0 the control may read.
const CONTROL_TOLERANCE: f64 = 0.10;
/// An idle image, at most.
const IDLE_BYTES_MAX: u64 = 20 << 20;
/// State of an empty file, at most.
const FILE_BYTES_MAX: f64 = 1024.0;

/// One row.
#[derive(Serialize, Debug)]
pub struct Row {
    pub name: String,
    pub native_ns: f64,
    pub husk_ns: f64,
    /// Native over Husk: above 1 Husk is faster.
    pub native_over_husk: f64,
    /// Rounds, or calm slices, that the figures are medians of.
    pub rounds: usize,
    /// How much slower than alone on its core a fixed piece of work was beside the measured calls;
    /// absent where rounds are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    slowed: Option<f64>,
    /// What it should reach, in words; empty = nothing promised.
    pub wanted: String,
    /// Whether it does; absent where nothing is promised, or where somebody else took so much of
    /// the core that the figures tell nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// Techniques, and the time of an image without each over that of one with all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<(Technique, f64)>,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Memory figures.
#[derive(Serialize, Debug)]
pub struct State {
    /// Supervisor's private pages and all pages of the image's memfds, one program running.
    pub idle_bytes: u64,
    /// Growth of the memfds per empty file.
    pub bytes_per_empty_file: f64,
}

/// The whole measurement.
#[derive(Serialize, Debug)]
pub struct Report {
    pub machine: Machine,
    pub control: Row,
    /// Native `getppid` here over that on the machine the goals are for, 1 at least: goals in ns
    /// grow by it.
    pub goals_scaled_by: f64,
    pub rows: Vec<Row>,
    pub state: State,
}

impl Row {
    /// A row of measured rounds, (native, Husk) ns each.
    ///
    /// `slower`: how much slower this machine is than the one whose figures the goals in ns are.
    pub fn of(name: &str, wanted: Wanted, slower: f64, rounds: Vec<(f64, f64)>) -> Self {
        let native_ns = median(rounds.iter().map(|round| round.0));
        let husk_ns = median(rounds.iter().map(|round| round.1));
        let ratio = median(rounds.iter().map(|round| round.0 / round.1.max(0.01)));
        let (wanted, met) = judge(wanted, slower, native_ns, husk_ns, ratio);
        Self {
            name: name.to_owned(),
            native_ns,
            husk_ns,
            native_over_husk: ratio,
            rounds: rounds.len(),
            slowed: None,
            wanted,
            met,
            without: Vec::new(),
            error: None,
        }
    }

    /// A row of the calm slices of both sides, native ones on the left.
    pub fn of_slices(name: &str, wanted: Wanted, slower: f64, figures: Figures) -> Self {
        let mut row = Self::of(name, wanted, slower, vec![(figures.left_ns, figures.right_ns)]);
        row.rounds = figures.slices;
        row.slowed = Some(figures.slowed);
        if figures.shared() {
            row.wanted.push_str(" (core shared)");
            row.met = None;
        }
        row
    }

    /// Whether it reads 1.0, of a control.
    pub fn reads_one(&self) -> bool {
        (self.native_over_husk - 1.0).abs() <= CONTROL_TOLERANCE
    }

    /// As a line of the table, with `more` behind the ratio.
    pub fn print(&self, more: &str) {
        if let Some(error) = &self.error {
            return println!("{:<32} {error}", self.name);
        }
        let mark = self.met.map_or("", |met| if met { "ok" } else { "MISSED" });
        print!("{:<32} {:>10.0} {:>10.0}", self.name, self.native_ns, self.husk_ns);
        print!(" {:>7.2}x {more} {} {mark}", self.native_over_husk, self.wanted);
        for (technique, worth) in &self.without {
            print!("  {} {worth:.2}x", technique.name());
        }
        println!();
    }

    /// A row that could not be measured.
    pub fn failed(name: &str, error: String) -> Self {
        let empty = Self::of(name, Wanted::Nothing, 1.0, Vec::new());
        Self { error: Some(error), ..empty }
    }
}

impl Report {
    /// Whether two native workers read the same.
    pub fn control_holds(&self) -> bool {
        self.control.reads_one()
    }

    /// One JSON document.
    pub fn print_json(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string_pretty(self)?);
        Ok(())
    }

    /// The table.
    pub fn print_table(&self) {
        let machine = &self.machine;
        println!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        println!("load {:.1}, guard {}; ns, medians", machine.load, machine.guard);
        if machine.guard == "none" {
            println!("no protection keys here: figures with a guard are to be had elsewhere");
        }
        println!(
            "goals in ns are for a native getppid of {GOALS_GETPPID_NS} ns: here x {:.2}\n",
            self.goals_scaled_by
        );
        println!("{:<32} {:>10} {:>10} {:>8}  wanted", "", "native", "husk", "ratio");
        self.rows.iter().chain([&self.control]).for_each(|row| row.print(""));
        print_state(&self.state);
        if !self.control_holds() {
            println!("\nThe control is not 1.0: this machine was too busy, measure again.");
        }
    }
}

fn print_state(state: &State) {
    let mark = |met| if met { "ok" } else { "MISSED" };
    println!(
        "\n{:<32} {:>10.1} MiB  <= 20 MiB {}\n{:<32} {:>10.0} B    <= 1 KiB {}",
        "an idle image",
        state.idle_bytes as f64 / f64::from(1 << 20),
        mark(state.idle_bytes <= IDLE_BYTES_MAX),
        "state of an empty file",
        state.bytes_per_empty_file,
        mark(state.bytes_per_empty_file <= FILE_BYTES_MAX),
    );
}

/// By how much goals in ns grow here: what the control's native `getppid` took, over that of the
/// goals. Where somebody else had the core meanwhile it tells nothing, and they stay as they are.
pub fn slower(control: &Figures) -> f64 {
    if control.shared() { 1.0 } else { (control.left_ns / GOALS_GETPPID_NS).max(1.0) }
}

fn judge(
    wanted: Wanted,
    slower: f64,
    native_ns: f64,
    husk_ns: f64,
    ratio: f64,
) -> (String, Option<bool>) {
    match wanted {
        Wanted::Nothing => (String::new(), None),
        Wanted::FasterBy(least) => (format!(">= {least}x"), Some(ratio >= least)),
        Wanted::SlowerAtMost(most) => (format!("<= {most:.2}x native"), Some(1.0 / ratio <= most)),
        Wanted::AtMostNs(most) => {
            let here = most * slower;
            (format!("<= {most} ns: {here:.0} here"), Some(husk_ns <= here))
        }
        Wanted::ExtraAtMostNs(most) => {
            let here = most * slower;
            let words = format!("<= native + {most} ns: + {here:.0} here");
            (words, Some(husk_ns - native_ns <= here))
        }
    }
}

/// The middle value; 0 of nothing.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_spell_of_the_machine_does_not_move_the_ratio() {
        let mut rounds = vec![(300.0, 100.0); 6];
        rounds.extend([(900.0, 300.0), (1200.0, 400.0), (300.0, 900.0)]);
        let row = Row::of("stat", Wanted::FasterBy(2.5), 1.0, rounds);
        assert_eq!((row.native_over_husk, row.met), (3.0, Some(true)));
    }

    #[test]
    fn a_row_below_its_figure_is_missed() {
        let row = Row::of("stat", Wanted::FasterBy(2.5), 1.0, vec![(200.0, 100.0); 5]);
        assert_eq!(row.met, Some(false));
        let row = Row::of("start", Wanted::SlowerAtMost(1.2), 1.0, vec![(100.0, 121.0); 5]);
        assert_eq!(row.met, Some(false));
    }

    #[test]
    fn goals_grow_with_a_control_that_was_alone_on_its_core_and_never_shrink() {
        let control =
            |left_ns, slowed| slower(&Figures { left_ns, right_ns: left_ns, slices: 9, slowed });
        assert_eq!((control(208.0, 1.0), control(208.0, 1.3)), (2.0, 1.0));
        assert_eq!(control(52.0, 1.0), 1.0);
    }

    #[test]
    fn what_was_measured_on_a_shared_core_is_neither_met_nor_missed() {
        let row = |slowed| {
            let figures = Figures { left_ns: 300.0, right_ns: 100.0, slices: 9, slowed };
            Row::of_slices("stat", Wanted::FasterBy(2.5), 1.0, figures).met
        };
        assert_eq!((row(1.0), row(1.3)), (Some(true), None));
    }

    #[test]
    fn a_figure_in_ns_grows_with_the_machine_and_no_further() {
        let met = |husk_ns, slower| {
            Row::of("fcntl", Wanted::AtMostNs(45.0), slower, vec![(150.0, husk_ns); 5]).met
        };
        assert_eq!((met(44.0, 1.0), met(46.0, 1.0)), (Some(true), Some(false)));
        assert_eq!((met(66.0, 1.5), met(69.0, 1.5)), (Some(true), Some(false)));
        let passed = |husk_ns| {
            Row::of("getppid", Wanted::ExtraAtMostNs(10.0), 1.5, vec![(150.0, husk_ns); 5]).met
        };
        assert_eq!((passed(164.0), passed(166.0)), (Some(true), Some(false)));
    }
}
