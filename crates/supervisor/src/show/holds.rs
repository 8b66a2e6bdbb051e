//! Measures how long the supervisor's work holds locks and tokens of the image.
//!
//! Enabled by `holds` in a configuration file or `HUSK_HOLDS=1`: at the end of its image a
//! supervisor prints a line for each kind of work. `husk bench hold` makes an image, exercises each
//! kind, and shows the lines as a table. `husk_region::observe::lock_hold_stats` defines a hold.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::{Errno, Shortcuts as _};
use husk_region::observe::lock_hold_stats::{Held, held, switch_on};
use husk_region::observe::trace::ticks;
use serde::Serialize;

use crate::image::attach::Visit;
use crate::output::failure::Failure;

/// What a hold may take, ns.
pub const LIMIT_NS: u64 = 50_000;
/// For so long the processor's clock is compared with the host's before anything is measured.
const CALIBRATION: Duration = Duration::from_millis(5);
/// How each line begins.
const MARK: &str = "hold:";

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// None of the others.
    Other,
    /// What the dead held is released.
    Deaths,
    /// Memory of removed files goes back to the host.
    Memory,
    /// Loads of cores are looked at.
    Loads,
    /// FIFOs, sockets and watches of the host's tree.
    Watches,
    /// A program gets its record.
    Entering,
    /// Copies of programs.
    Programs,
    /// Changes are written back.
    WriteBack,
    /// A directory is switched between one token and many.
    Directories,
    /// The structure is checked.
    Structure,
    /// Counters are read.
    Statistics,
}

const ALL: [(Work, &str); 11] = [
    (Work::Other, "other"),
    (Work::Deaths, "deaths"),
    (Work::Memory, "memory"),
    (Work::Loads, "loads"),
    (Work::Watches, "watches"),
    (Work::Entering, "entering"),
    (Work::Programs, "programs"),
    (Work::WriteBack, "write-back"),
    (Work::Directories, "directories"),
    (Work::Structure, "structure"),
    (Work::Statistics, "statistics"),
];

/// What `direct` does from now on is work of this kind.
pub fn work(direct: &Direct, kind: Work) {
    direct.kernel().session.work_as(kind as usize);
}

/// The holds of one kind of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was done.
    pub work: String,
    /// How often something was held.
    pub count: u64,
    /// Longest by the clock, us.
    pub longest_us: f64,
    /// Longest in processor time, us.
    pub longest_cpu_us: f64,
    /// Most words that one hold has changed and locks it has taken.
    pub entries: u64,
    /// How many took longer than 50 us by the clock.
    pub late: u64,
    /// How many did in processor time.
    pub slow: u64,
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { work, count, longest_us, longest_cpu_us, entries, late, slow } = self;
        write!(
            out,
            "{MARK} {work} {count} times, longest {longest_us:.1} us, in processor time \
             {longest_cpu_us:.1} us, entries {entries}, over 50 us {late}, in processor time {slow}"
        )
    }
}

impl FromStr for Row {
    type Err = ();

    /// Reads what `Display` has written, whatever stands before it.
    fn from_str(line: &str) -> Result<Row, ()> {
        let (_, rest) = line.split_once(MARK).ok_or(())?;
        let mut words = rest.split_ascii_whitespace();
        let work = words.next().ok_or(())?.to_owned();
        let plain = words.map(|word| word.trim_end_matches(','));
        let mut numbers = plain.filter_map(|word| word.parse::<f64>().ok());
        let mut next = || numbers.next().ok_or(());
        let (count, longest_us, longest_cpu_us, entries) = (next()?, next()?, next()?, next()?);
        // The limit itself.
        next()?;
        let (late, slow) = (next()? as u64, next()? as u64);
        let (count, entries) = (count as u64, entries as u64);
        Ok(Row { work, count, longest_us, longest_cpu_us, entries, late, slow })
    }
}

/// When measuring began, by both clocks.
static BEGUN: OnceLock<(Instant, u64)> = OnceLock::new();

/// Measures in this process from now on.
pub fn measure() {
    BEGUN.get_or_init(|| {
        let begun = (Instant::now(), ticks());
        while begun.0.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        switch_on(LIMIT_NS, (ticks_per_ns(begun) * LIMIT_NS as f64) as u64);
        begun
    });
}

fn ticks_per_ns((when, before): (Instant, u64)) -> f64 {
    (ticks() - before) as f64 / when.elapsed().as_nanos().max(1) as f64
}

/// What was measured in this process so far: kinds of work that have held something.
pub fn rows() -> Vec<Row> {
    let Some(&begun) = BEGUN.get() else { return Vec::new() };
    let ticks_per_us = ticks_per_ns(begun) * 1e3;
    let row = |&(kind, name): &(Work, &str)| {
        let Held { count, late, slow, longest_ticks, longest_cpu_ns, entries } =
            held(kind as usize);
        let longest_us = longest_ticks as f64 / ticks_per_us;
        let longest_cpu_us = longest_cpu_ns as f64 / 1e3;
        let work = name.to_owned();
        (count > 0).then_some(Row { work, count, longest_us, longest_cpu_us, entries, late, slow })
    };
    ALL.iter().filter_map(row).collect()
}

/// What there is to say of an image at its end.
pub fn lines() -> Vec<String> {
    rows().iter().map(Row::to_string).collect()
}

/// Switches the first tree of an image between one token and many, `times` there and back, while
/// its programs run.
pub fn switch_directory(image: &str, times: u32) -> Result<(), Failure> {
    let mut visit = Visit::of(image)?;
    work(&visit.direct, Work::Directories);
    let root = visit.direct.mount(0).root;
    let failed = |errno: Errno| {
        let what = format!("cannot switch a directory of image {image}");
        Failure::new(what, format!("{errno:?}"), "make the image with more --memory")
    };
    // Who has a seat finds free objects beside it.
    visit.direct.kernel().session.slot().map_err(failed)?;
    for time in 0..2 * times {
        visit.direct.switch_directory(root, time % 2 == 0).map_err(failed)?;
    }
    visit.direct.detach();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = Row {
            work: "write-back".to_owned(),
            count: 12_345,
            longest_us: 49.5,
            longest_cpu_us: 7.0,
            entries: 255,
            late: 3,
            slow: 0,
        };
        assert_eq!(format!("husk: {row}").parse(), Ok(row));
        assert_eq!("husk: fsck: clean".parse::<Row>(), Err(()));
    }

    #[test]
    fn each_kind_of_work_has_its_place() {
        for (index, (kind, _)) in ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
        assert!(ALL.len() <= husk_region::observe::lock_hold_stats::HOLDERS);
    }
}
