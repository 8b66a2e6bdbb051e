//! `husk sync`: what has changed in an image is written back while its programs go on.
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
use std::sync::Arc;
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use husk_proto::{Errno, Fs};

use crate::failure::Failure;
use crate::holds::{self, Work};
use crate::image;
use crate::named::ask::{look, pids};
use crate::named::enter::{ANSWER_MAX, unanswered};
use crate::named::message::{Answer, Ask, Synced, ask_patiently};
use crate::named::place::{Name, Place, names};
use crate::named::pulse;
use crate::onlooker::{Onlooker, Progress};
use crate::request::reason;
use crate::write_back::ledger::Ledger;
use crate::write_back::progress::ProgressLine;
use crate::write_back::scan::Run;
use crate::write_back::{self, Outcome, Overlay};

/// Supervisors that may be killed under one who asks; as many as a keeper bears.
const ASKED_MAX: u32 = 12;
/// Before the next one is asked.
const PAUSE: Duration = Duration::from_millis(50);

/// A write-back that is under way.
pub struct Syncing {
    asker: UnixStream,
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
            let ledger = Ledger::at(own.ledger());
            write_back::on_large_stack(|| {
                let mut direct = image::attach()?;
                holds::work(&direct, Work::WriteBack);
                direct.leave_access_times(true);
                let outcome = write_back::bring(&mut direct, run, &overlays, &known, ledger);
                direct.detach();
                Ok(outcome)
            })
        };
        match thread::Builder::new().spawn(work) {
            Ok(thread) => {
                let pulse = pulse::tell(Some(&asker), place, &progress);
                Ok(Syncing { asker, pulse, thread })
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
            Ok(Ok(outcome)) => Answer::Synced(Synced::from(outcome)),
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

impl From<Outcome> for Synced {
    fn from(outcome: Outcome) -> Synced {
        let complete = outcome.is_complete();
        let Outcome { written, removed, conflicts, failures, busy } = outcome;
        Synced { written, removed, conflicts, failures, changing: busy, complete }
    }
}

/// Has an image written back as it is now.
pub fn sync(name: &OsStr) -> Result<Synced, Failure> {
    let name = Name::parse(name)?;
    let what = format!("cannot sync image {name}");
    let mut asked = 0;
    loop {
        let place = Place::find(&name)?;
        let stream = match place.connect() {
            // Between two supervisors connections wait; an image that ends has no socket.
            Err(failure) => return Err(Failure { what, ..failure }),
            Ok(stream) => stream,
        };
        let problem = match ask(&stream) {
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
    let name = match name.parse::<u32>() {
        Err(_) => Name::parse(OsStr::new(name)).ok()?,
        Ok(pid) => names().ok()?.into_iter().find(|name| {
            let status = look(name);
            let own = status.is_ok_and(|status| [status.pid, status.keeper].contains(&pid));
            own || pids(name).is_ok_and(|pids| pids.contains(&pid))
        })?,
    };
    let place = Place::find(&name).ok()?;
    Some((Ledger::at(place.ledger()), look(&name).ok()?.number))
}

fn ask(stream: &UnixStream) -> io::Result<Answer> {
    let progress = Arc::<Progress>::default();
    let _line = ProgressLine::new(&progress);
    let told = &mut |done, total| progress.set(done, total);
    ask_patiently(stream, &Ask::Sync, ANSWER_MAX, told)
}
