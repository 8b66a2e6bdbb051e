//! `husk sync`: writes changes back while the programs of the image go on.
//!
//! ```text
//!   husk sync ── Sync ──► supervisor ── starts ──► a thread with its own way into the image
//!             ◄── signs of life ──────────────────── plan, make, take over, place, delete
//!             ◄── Synced ── (next look) ◄────────── its outcome
//! ```
//!
//! Invariants
//! 1. One at a time: a second one is refused, an end waits for it.
//! 2. The supervisor does everything else meanwhile, and nothing of what it does waits for this.
//! 3. Killed with its supervisor, it has lost nothing: who asked asks the next one, which settles
//!    what was noted (`write_back::ledger`) and goes on.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use husk_proto::{Errno, Fs};

use super::pulse;
use super::turns;
use super::turns::{Turn, WRITE_BACK_WAITS};
use crate::differences::{Differences, Look, show};
use crate::image;
use crate::named::commands::ask::{glance, look, pids};
use crate::named::commands::enter::unanswered;
use crate::named::commands::waiting::Waiting;
use crate::named::message::{Answer, Ask, Synced};
use crate::named::mount;
use crate::named::place::{Name, Place, names};
use crate::output::failure::Failure;
use crate::output::progress::{Onlooker, Progress};
use crate::run::request::reason;
use crate::show::holds::{self, Work};
use crate::write_back::plan::derived;
use crate::write_back::plan::scan::Run;
use crate::write_back::record::ledger::Ledger;
use crate::write_back::tally::Tally;
use crate::write_back::{self, Outcome, Overlay};

/// Supervisors that may be killed under one who asks; as many as a keeper bears.
const ASKED_MAX: u32 = 12;
/// Why an image is not written back.
pub const DISCARDS: &str = "it was made with --discard: nothing of it is written back";
/// Before the next one is asked.
const PAUSE: Duration = Duration::from_millis(50);

/// A write-back that is under way.
pub struct Syncing {
    asker: UnixStream,
    name: String,
    progress: Arc<Progress>,
    pulse: Option<Onlooker>,
    thread: JoinHandle<Result<Outcome, Errno>>,
}

impl Syncing {
    /// Begins one for `asker`, which is given back if it cannot be.
    pub fn begin(
        asker: UnixStream,
        place: &Place,
        run: Run,
        overlays: Vec<Overlay>,
        chosen: Vec<PathBuf>,
    ) -> Result<Syncing, (UnixStream, Failure)> {
        let failed = |problem: io::Error| {
            let what = format!("cannot sync image {}", place.name);
            Failure::new(what, reason(&problem), "raise the limits on processes and open files")
        };
        let own = match place.again() {
            Ok(own) => own,
            Err(problem) => return Err((asker, failed(problem))),
        };
        let progress = Arc::<Progress>::default();
        let known = Arc::clone(&progress);
        let work = move || {
            // Who is stopped in the middle of a look holds nobody up for ever.
            let _turn = turns::take(&own, WRITE_BACK_WAITS);
            let ledger = Ledger::at(own.ledger());
            write_back::on_large_stack(|| {
                let mut direct = image::attach()?;
                holds::work(&direct, Work::WriteBack);
                direct.leave_access_times(true);
                let outcome =
                    write_back::bring(&mut direct, run, &overlays, &chosen, &known, ledger);
                direct.detach();
                Ok(outcome)
            })
        };
        match thread::Builder::new().spawn(work) {
            Ok(thread) => {
                let pulse = pulse::tell(Some(&asker), place, &progress);
                let name = place.name.to_string();
                Ok(Syncing { asker, name, progress, pulse, thread })
            }
            Err(problem) => Err((asker, failed(problem))),
        }
    }

    /// Whether `end` would not wait.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Who is to be told what.
    pub fn end(self) -> (UnixStream, Answer) {
        let outcome = self.thread.join();
        drop(self.pulse);
        let answer = match outcome {
            Ok(Ok(outcome)) if outcome.untouched => Answer::Refused(stopped(&self.name)),
            Ok(Ok(outcome)) => Answer::Synced(synced(outcome, &self.progress)),
            Ok(Err(errno)) => {
                let what = "cannot look into the image";
                Answer::Refused(Failure::new(what, format!("{errno:?}"), "try again"))
            }
            // It has been printed.
            Err(_) => Answer::Refused(Failure::new("cannot sync", "a bug in Husk", "report it")),
        };
        (self.asker, answer)
    }
}

fn stopped(name: &str) -> Failure {
    let what = format!("cannot sync image {name}");
    let why = "it was stopped before anything was written back";
    Failure::new(what, why, format!("the image has it all: husk sync {name}"))
}

fn synced(outcome: Outcome, progress: &Progress) -> Synced {
    let (complete, bytes) = (outcome.is_complete(), progress.bytes());
    let Tally { files, .. } = Tally::of(&outcome, progress);
    let Outcome { written, removed, conflicts, failures, busy: changing, notes, .. } = outcome;
    Synced { written, removed, files, bytes, conflicts, failures, changing, notes, complete }
}

impl Synced {
    /// The same in numbers.
    pub fn tally(&self) -> Tally {
        let (conflicts, failures) = (self.conflicts.len() as u64, self.failures.len() as u64);
        Tally { files: self.files, removed: self.removed, conflicts, failures }
    }
}

/// What `husk sync` would do to these paths, or to all, where none is named.
pub fn planned(name: &OsStr, paths: &[PathBuf]) -> Result<(Look, Differences), Failure> {
    let name = Name::parse(name)?;
    if look(&name)?.discard {
        let what = format!("cannot sync image {name}");
        return Err(Failure::new(what, DISCARDS, "copy what you need: husk cp NAME:PATH TARGET"));
    }
    let mut look = Look::begin(&name.to_string())?;
    let found = look.planned(paths)?;
    Ok((look, found))
}

/// What the end of an image comes to, in a line, if it changes anything or drops changes. Whoever
/// cannot be asked, or would not end, says so when it is told to.
pub fn foreseen(name: &OsStr, discard: bool, force: bool) -> Option<String> {
    let name = Name::parse(name).ok()?;
    let status = glance(&Place::find(&name).ok()?)?;
    let discards = discard || status.discard;
    // Those of mounts end with what they show.
    let serves = |pid: &u32| mount::serves(*pid);
    if !force && status.processes > 0 && !pids(&name).ok()?.iter().all(serves) {
        return None;
    }
    let found = Look::begin(&name.to_string()).ok()?.planned(&[]).ok()?;
    let sum = show::sum_with_removed(&found.changes)?;
    let what = if discards { "dropped" } else { "written back" };
    Some(format!("image {name}: to be {what}: {sum}"))
}

/// Has an image written back as it is now: these paths and what is below, or all, where none is
/// named.
pub fn sync(name: &OsStr, paths: &[PathBuf], waiting: &Waiting) -> Result<Synced, Failure> {
    let name = Name::parse(name)?;
    let what = format!("cannot sync image {name}");
    let chosen = match paths.is_empty() {
        true => Vec::new(),
        false => Look::begin(&name.to_string())?.chosen(paths)?,
    };
    let ask = Ask::Sync { paths: chosen.into_iter().map(PathBuf::into_os_string).collect() };
    let mut asked = 0;
    loop {
        let place = Place::find(&name)?;
        let stream = match place.connect() {
            // Between two supervisors connections wait; an image that ends has no socket.
            Err(failure) => return Err(Failure { what, ..failure }),
            Ok(stream) => stream,
        };
        let problem = match waiting.ask(&stream, &ask) {
            Ok(Answer::Synced(synced)) => return Ok(synced),
            Ok(Answer::Refused(failure)) => return Err(failure),
            Ok(_) => io::ErrorKind::InvalidData.into(),
            Err(problem) => problem,
        };
        // Before the letter was sent, before it was read, before the answer came.
        let gone = [
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::UnexpectedEof,
        ];
        asked += 1;
        if !gone.contains(&problem.kind()) || asked >= ASKED_MAX {
            return Err(unanswered(&place, what, &problem));
        }
        sleep(PAUSE);
    }
}

/// What write-backs of an image have put on the host, and the number of its names beside others'.
/// `name`: as it was typed, a name or the number of one of its processes. `None`: no image with a
/// name is meant, and nothing has been written back.
pub fn written(name: &str) -> Option<(Ledger, u32)> {
    let name = meant(name)?;
    let place = Place::find(&name).ok()?;
    derived::recall(&place.indexes());
    Some((Ledger::at(place.ledger()), look(&name).ok()?.number))
}

/// The image with a name that is meant.
pub fn meant(name: &str) -> Option<Name> {
    match name.parse::<u32>() {
        Err(_) => Name::parse(OsStr::new(name)).ok(),
        Ok(pid) => names().ok()?.into_iter().find(|name| {
            let status = look(name);
            let own = status.is_ok_and(|status| [status.pid, status.keeper].contains(&pid));
            own || pids(name).is_ok_and(|pids| pids.contains(&pid))
        }),
    }
}

/// Where the image is that is meant; `None`: it has no name.
pub fn place_of(name: &str) -> Option<Place> {
    Place::find(&meant(name)?).ok()
}

/// The turn of an image (`turns`): of one without a name everybody has it. `None`: it does not come
/// within `wait`.
pub fn turn(place: Option<&Place>, wait: Duration) -> Option<Option<Turn>> {
    match place {
        None => Some(None),
        Some(place) => turns::take(place, wait).map(Some),
    }
}

/// Whether the image that is meant has somebody who looks after it, or the process is there.
pub fn lives(name: &str) -> bool {
    match name.parse::<u32>() {
        Ok(pid) => Path::new("/proc").join(pid.to_string()).exists(),
        Err(_) => {
            let place = Name::parse(OsStr::new(name)).and_then(|name| Place::find(&name));
            place.is_ok_and(|place| place.is_held())
        }
    }
}
