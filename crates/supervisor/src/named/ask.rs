//! What others ask of named images: `husk ls`, `husk down`, and whoever needs the region.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;
use crate::named::enter::{ANSWER_MAX, unanswered};
use crate::named::message::{Answer, Ask, Status, ask, ask_patiently};
use crate::named::place::{Name, Place, names};
use crate::onlooker::Tally;
use crate::write_back::progress::Progress;

/// How long `husk ls` waits for one image.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// How an image stands.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It answers.
    Up,
    /// It has a supervisor that does not answer: it starts, ends, or is stopped.
    Busy,
    /// Its supervisor has died.
    Dead,
}

/// One image, as listed.
#[derive(Serialize, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// What is known of it: nothing, where it does not answer and its file of facts cannot be read.
    #[serde(flatten)]
    pub facts: Option<Status>,
}

/// All images of this user.
pub fn list() -> Result<Vec<Row>, Failure> {
    Ok(names()?.into_iter().filter_map(|name| row(&name)).collect())
}

/// `None`: it has ended meanwhile.
fn row(name: &Name) -> Option<Row> {
    let place = Place::find(name).ok()?;
    let told = place.connect().ok().and_then(|stream| {
        stream.set_read_timeout(Some(LOOK_MAX)).ok()?;
        ask(&stream, &Ask::Look).ok()
    });
    let (state, facts) = match told {
        Some((Answer::Look(status), _)) => (State::Up, Some(status)),
        _ => {
            let state = if place.is_held() { State::Busy } else { State::Dead };
            let facts = place.read("facts").ok();
            (state, facts.and_then(|text| serde_json::from_str(&text).ok()))
        }
    };
    Some(Row { name: name.to_string(), state, facts })
}

/// The list for people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<16} {:<5} {:>9} {:>8} {:>9} OVERLAYS\n",
        "NAME", "STATE", "PROCESSES", "PID", "MEMORY"
    );
    for row in rows {
        let state = match row.state {
            State::Up => "up",
            State::Busy => "busy",
            State::Dead => "dead",
        };
        let _ = write!(text, "{:<16} {:<5}", row.name, state);
        let _ = match &row.facts {
            None => writeln!(text, " {:>9} {:>8} {:>9} its facts cannot be read", "-", "-", "-"),
            Some(facts) => {
                let processes = match row.state {
                    State::Up => facts.processes.to_string(),
                    _ => "-".to_owned(),
                };
                let memory = format!("{}M", facts.memory_bytes >> 20);
                let overlays = facts.overlays.join(" ").replace('\n', "?");
                writeln!(text, " {processes:>9} {:>8} {memory:>9} {overlays}", facts.pid)
            }
        };
    }
    text
}

/// How an image went down.
#[derive(Debug, PartialEq, Eq)]
pub struct Down {
    /// What there is to tell.
    pub lines: Vec<String>,
    /// Nothing was lost that was to be kept.
    pub complete: bool,
}

/// Ends an image, or cleans up after one whose supervisor has died.
pub fn down(name: &OsStr, discard: bool, force: bool) -> Result<Down, Failure> {
    let name = Name::parse(name)?;
    let place = Place::find(&name)?;
    let problem = match place.connect() {
        Ok(stream) => return end(&place, &stream, &Ask::Down { discard, force }),
        Err(problem) => problem,
    };
    let Some(held) = place.adopt()? else { return Err(problem) };
    let mut lines = held.place.log();
    lines.push(format!("image {name} had died: what it had not written back is lost"));
    held.remove().map_err(|problem| {
        let what = format!("cannot clean up after image {name}");
        Failure::new(what, crate::request::reason(&problem), "remove its directory")
    })?;
    Ok(Down { lines, complete: false })
}

/// The write-back takes as long as it takes; a supervisor that dies or falls silent ends the wait.
fn end(place: &Place, stream: &UnixStream, ask: &Ask) -> Result<Down, Failure> {
    let tally = Arc::<Tally>::default();
    let progress = Progress::new(&tally);
    let told = ask_patiently(stream, ask, ANSWER_MAX, &mut |done, total| tally.set(done, total));
    drop(progress);
    let what = format!("cannot take image {} down", place.name);
    match told {
        Ok(Answer::Down { lines, complete }) => Ok(Down { lines, complete }),
        Ok(Answer::Refused(failure)) => Err(failure),
        Ok(_) => {
            let why = "its supervisor's answer makes no sense";
            Err(Failure::new(what, why, "see `husk ls`"))
        }
        Err(problem) => Err(unanswered(place, what, &problem)),
    }
}

/// The region of an image, and the process by which it was found.
pub fn region(name: &OsStr) -> Result<(u32, File), Failure> {
    let name = Name::parse(name)
        .map_err(|failure| Failure { why: "there is no such image".to_owned(), ..failure })?;
    match asked(&name, &Ask::Region)? {
        (Answer::Region { pid }, mut descriptors) if !descriptors.is_empty() => {
            Ok((pid, File::from(descriptors.remove(0))))
        }
        _ => Err(senseless(&name)),
    }
}

/// Host processes that run in an image.
pub fn pids(name: &Name) -> Result<Vec<u32>, Failure> {
    match asked(name, &Ask::Processes)? {
        (Answer::Processes(pids), _) => Ok(pids),
        _ => Err(senseless(name)),
    }
}

/// What a living image answers, if that is no refusal.
fn asked(name: &Name, what: &Ask) -> Result<(Answer, Vec<OwnedFd>), Failure> {
    let place = Place::find(name)?;
    let stream = place.connect()?;
    let asked = stream.set_read_timeout(Some(ANSWER_MAX)).and_then(|()| ask(&stream, what));
    match asked {
        Ok((Answer::Refused(failure), _)) => Err(failure),
        Ok(told) => Ok(told),
        Err(problem) => Err(unanswered(&place, format!("cannot reach image {name}"), &problem)),
    }
}

fn senseless(name: &Name) -> Failure {
    let why = "its supervisor's answer makes no sense";
    Failure::new(format!("cannot reach image {name}"), why, "take it down")
}
