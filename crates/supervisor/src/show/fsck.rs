//! `husk fsck`: the whole structure of a live image, checked from outside.
//!
//! ```text
//!   NAME or PID ─► the region (`visit`) ─► map ─► hold transactions up, look
//! ```
//!
//! Invariants
//! 1. Programs of the image go on: their next transaction waits while one look lasts (the report
//!    says how long), their reads do not.
//! 2. A finding counts when three looks in a row have it; between them the image runs. So a thread
//!    that slipped into a look (`region::freeze`) is not taken for damage.
//! 3. While transactions are held up nothing here sleeps, prints or asks for memory, and what there
//!    is to look at has been mapped in before.
//! 4. A killed fsck is recovered from as any program: nobody waits for it.

use std::time::{Duration, Instant};

use husk_carrier::{Direct, Finding};
use husk_proto::Errno;
use serde::Serialize;

use crate::image::attach::{SENSELESS, Visit};
use crate::output::failure::Failure;
use crate::show::holds::{self, Work};

/// The image could not be checked.
pub const STATUS_UNCHECKED: u8 = 2;
/// Looks that must agree on a finding.
const LOOKS: u32 = 3;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Looks begun before the image is found to grow too fast, or never to rest.
const BEGUN_MAX: u32 = 8;
/// Words of scratch beyond what an image needs now, for what it makes until it is held up.
const SPARE_WORDS: usize = 1 << 16;
/// Findings of one look that are kept; more say nothing more.
const FINDINGS_MAX: usize = 10_000;

/// What a check came to.
#[derive(Serialize, Debug)]
pub struct Report {
    /// How the image was found: its name, or a process.
    pub image: String,
    /// The process by which it was found.
    pub pid: u32,
    /// What is wrong.
    pub findings: Vec<Line>,
    /// Longest time that transactions were held up, us.
    pub held_up_us: u64,
}

/// One finding.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What is wrong.
    pub what: &'static str,
    /// Number of the inode, line, block, ...
    pub object: u32,
    /// What was found.
    pub found: u64,
    /// What there should be.
    pub expected: u64,
}

impl Report {
    /// 0: clean, 1: findings.
    pub fn status(&self) -> u8 {
        !self.findings.is_empty() as u8
    }

    /// One line a finding, then the sum.
    pub fn text(&self) -> String {
        let lines = self.findings.iter().map(|line| {
            format!("{} {}: {}, expected {}\n", line.what, line.object, line.found, line.expected)
        });
        let sum = match self.findings.len() {
            0 => "clean".to_owned(),
            count => format!("{count} findings"),
        };
        lines.collect::<String>() + &format!("{sum}; held up for {} us\n", self.held_up_us)
    }
}

/// Checks the image that `name` names: the process id of a `husk run` or of a program in it, or the
/// name of an image.
pub fn check(name: &str) -> Result<Report, Failure> {
    let visit = Visit::begin(name).map_err(|no| refuse(name, &no.why, &no.remedy))?;
    let wrong = |errno: Errno| refuse(name, &reason(errno), "try again");
    let mut scratch = Vec::new();
    let (mut findings, mut held_up_us) = look(&visit, &mut scratch).map_err(wrong)?;
    for _ in 1..LOOKS {
        if findings.is_empty() {
            break;
        }
        std::thread::sleep(PAUSE);
        let (again, us) = look(&visit, &mut scratch).map_err(wrong)?;
        held_up_us = held_up_us.max(us);
        let same =
            |one: &Line| again.iter().any(|two| (one.what, one.object) == (two.what, two.object));
        findings.retain(same);
    }
    let (image, pid) = (visit.name().to_owned(), visit.pid);
    let Visit { mut direct, .. } = visit;
    direct.detach();
    Ok(Report { image, pid, findings, held_up_us })
}

/// One look: what it found, and how long it held transactions up.
fn look(visit: &Visit, scratch: &mut Vec<u32>) -> Result<(Vec<Line>, u64), Errno> {
    for _ in 0..BEGUN_MAX {
        make_room(&visit.direct, scratch)?;
        visit.populate();
        if let Some(found) = look_once(&visit.direct, scratch)? {
            return Ok(found);
        }
    }
    Err(Errno::EBUSY)
}

/// Fills `scratch` with as many zeros as a look needs, and some more. That writes to every page of
/// it, so that none is missing later (invariant 3).
fn make_room(direct: &Direct, scratch: &mut Vec<u32>) -> Result<(), Errno> {
    if !husk_carrier::makes_sense(direct.kernel()) {
        return Err(Errno::EINVAL);
    }
    scratch.clear();
    scratch.resize(husk_carrier::scratch_words(direct.kernel()) + SPARE_WORDS, 0);
    Ok(())
}

/// An empty list whose pages are all there, also for the first findings (invariant 3).
fn room_for_lines() -> Vec<Line> {
    let blank = Line { what: "", object: 0, found: 0, expected: 0 };
    let mut lines = vec![blank; FINDINGS_MAX];
    lines.clear();
    lines
}

/// One look; `None` where the image has outgrown the room meanwhile.
fn look_once(direct: &Direct, scratch: &mut [u32]) -> Result<Option<(Vec<Line>, u64)>, Errno> {
    let mut lines = room_for_lines();
    let mut report = |finding: Finding| {
        if lines.len() < FINDINGS_MAX {
            let Finding { what, object, found, expected } = finding;
            lines.push(Line { what, object, found, expected });
        }
    };
    let kernel = direct.kernel();
    holds::work(direct, Work::Structure);
    kernel.session.freeze()?;
    let started = Instant::now();
    let sane = husk_carrier::makes_sense(kernel);
    let room = if sane { scratch.get_mut(..husk_carrier::scratch_words(kernel)) } else { None };
    let enough = room.map(|room| husk_carrier::check_live(kernel, room, &mut report)).is_some();
    kernel.session.thaw();
    let held_up_us = started.elapsed().as_micros() as u64;
    if sane { Ok(enough.then_some((lines, held_up_us))) } else { Err(Errno::EINVAL) }
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::EBUSY => "a stopped process is in the middle of an operation".to_owned(),
        Errno::EINVAL => SENSELESS.to_owned(),
        errno => format!("{errno:?}"),
    }
}

fn refuse(name: &str, why: &str, remedy: &str) -> Failure {
    Failure::new(format!("cannot check image {name}"), why, remedy).with_status(STATUS_UNCHECKED)
}
