//! Requests to named images: `husk ls`, `husk down`, and commands that need the region.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::enter::{ANSWER_MAX, unanswered};
use super::unfinished::is_own;
use super::waiting::Waiting;
use crate::named::keeper::adopt::is_kept;
use crate::named::message::{Answer, Ask, Status, ask};
use crate::named::mount;
use crate::named::place::{Adopted, Ended, Held, MISSING, Name, Place, names};
use crate::output::failure::Failure;
use crate::recovery::{self, Half};
use crate::run::request::reason;
use crate::write_back::tally::Tally;

/// How long `husk ls` waits for one image.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How the lines begin that say why an image died.
pub const GIVEN_UP: &str = "the image is given up";
pub const NOT_TAKEN_OVER: &str = "cannot take the image over";
/// What a supervisor says that follows one that was killed.
pub const GOES_ON: &str = "the supervisor was killed: another one goes on";
/// Between two looks at an end.
const LOOK: Duration = Duration::from_millis(20);

/// How often a program is asked for an image that its last supervisor has left this moment.
const KEPT_ASKED_MAX: u32 = 3;

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
    /// It has ended, and nobody was told how.
    Ended,
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
    /// Of one that has died or ended: the last that was said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_word: Option<String>,
    /// Where it is mounted, and nobody answers any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost_mounts: Vec<String>,
    /// Write-backs in its trees that were killed half way, as `husk recover` calls them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub half_written: Vec<String>,
}

/// All images of this user, and what `halves` there are in their trees.
pub fn list(halves: &[Half]) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<_> = names()?.into_iter().filter_map(|name| row(&name)).collect();
    for row in &mut rows {
        let Some(facts) = &row.facts else { continue };
        let here = halves.iter().filter(|half| half.touches(&facts.overlays));
        row.half_written = here.map(|half| half.id.clone()).collect();
    }
    Ok(rows)
}

/// Whether this process runs in an image, where those of the host may be out of sight.
pub fn is_inside() -> bool {
    husk_host::probe::syscall_user_dispatch() == Err(husk_abi::Errno::EPERM)
}

/// What there is to know of an image that answers at once.
pub fn glance(place: &Place) -> Option<Status> {
    let stream = place.connect_now().ok()?;
    stream.set_read_timeout(Some(LOOK_MAX)).ok()?;
    match ask(&stream, &Ask::Look).ok()?.0 {
        Answer::Look(status) => Some(status),
        _ => None,
    }
}

/// `None`: it has ended meanwhile.
fn row(name: &Name) -> Option<Row> {
    let place = Place::find(name).ok()?;
    let (state, facts) = match glance(&place) {
        Some(status) => (State::Up, Some(status)),
        None => {
            let state = match place.is_held() {
                true => State::Busy,
                false if place.ended().is_some() => State::Ended,
                false => State::Dead,
            };
            (state, place.facts())
        }
    };
    let last_word = match state {
        State::Dead => place.last_word().filter(|word| tells_of_death(word)),
        State::Ended => place.last_word(),
        State::Up | State::Busy => None,
    };
    let lost = mount::lost(&place).into_iter();
    let lost_mounts = lost.map(|path| path.to_string_lossy().into_owned()).collect();
    let half_written = Vec::new();
    Some(Row { name: name.to_string(), state, facts, last_word, lost_mounts, half_written })
}

/// Whether a line of the log says why an image died: any other is of when it lived.
pub fn tells_of_death(word: &str) -> bool {
    word.starts_with(GIVEN_UP) || word.starts_with(NOT_TAKEN_OVER)
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
            State::Ended => "ended",
        };
        let _ = write!(text, "{:<16} {:<5}", row.name, state);
        let _ = match &row.facts {
            None => writeln!(text, " {:>9} {:>8} {:>9} its record cannot be read", "-", "-", "-"),
            Some(facts) => {
                let processes = match row.state {
                    State::Up => facts.processes.to_string(),
                    _ => "-".to_owned(),
                };
                let memory = format!("{}M", facts.memory_bytes >> 20);
                let overlays = match &facts.part_of {
                    Some(part) => format!("node {} of {}", part.node, part.image),
                    None => facts.overlays.join(" ").replace(char::is_control, "?"),
                };
                writeln!(text, " {processes:>9} {:>8} {memory:>9} {overlays}", facts.pid)
            }
        };
        let told = row.facts.iter().filter(|_| row.state == State::Up);
        let full = told.flat_map(|one| one.full.iter().chain(&one.note));
        full.for_each(|line| text += &format!("{:<16} {line}\n", ""));
        if let Some(word) = &row.last_word {
            let _ = writeln!(text, "{:<16} {}", "", word.replace(char::is_control, "?"));
        }
        for path in &row.lost_mounts {
            let path = path.replace(char::is_control, "?");
            let _ = writeln!(text, "{:<16} nobody answers at {path}: husk umount {path}", "");
        }
    }
    text
}

/// Ends an image, or cleans up after one whose supervisor has died. An end that its supervisor did
/// not survive is continued by the next one: it is waited for, and so is an image that starts.
pub fn down(name: &OsStr, discard: bool, force: bool, waiting: &Waiting) -> Result<Ended, Failure> {
    let name = Name::parse(name).map_err(|failure| not_taken_down(name, failure))?;
    let place = Place::find(&name)?;
    let part = place.facts().and_then(|facts| facts.part_of);
    // Who has made it may end it, as the other host's side of a session does (`hosts::guest`).
    let asker = nix::unistd::getppid().as_raw() as u32;
    let part = part.filter(|part| part.pid == 0 || part.pid != asker);
    if let Some(part) = part.filter(|part| place.is_held() && !part.has_lost_home()) {
        let why = format!("it is node {} of {}, and ends with that", part.node, part.image);
        let remedy = if part.pid == 0 {
            format!("husk down {}", part.image)
        } else {
            format!("kill {}", part.pid)
        };
        return Err(Failure::new(format!("cannot take image {name} down"), why, remedy));
    }
    down_at(&place, discard, force, waiting)
}

/// Ends another node of an image that ends: nothing of it is kept. One that is not there any more
/// has ended before its time.
pub fn down_part(name: &Name) -> Result<Ended, Failure> {
    match Place::find(name) {
        Ok(place) => down_at(&place, true, true, &Waiting::unseen()),
        Err(failure) if failure.remedy == MISSING => Ok(Ended::default()),
        Err(failure) => Err(failure),
    }
}

fn down_at(place: &Place, discard: bool, force: bool, waiting: &Waiting) -> Result<Ended, Failure> {
    let what = format!("cannot take image {} down", place.name);
    mount::end_all(place, force)?;
    let (mut touched, mut since) = (None, Instant::now());
    // Who has kept it is asked with the next connection, a few times.
    let mut asked = 0..KEPT_ASKED_MAX;
    loop {
        if let Ok(stream) = place.connect_now()
            && let Some(told) = end(place, &stream, &Ask::Down { discard, force }, waiting)
        {
            return told;
        }
        match place.adopt()? {
            // It has ended, with nothing to tell, or somebody else was told.
            Adopted::Gone => return Ok(Ended { complete: true, ..Ended::default() }),
            Adopted::Held(held) if is_kept(&held.place) && asked.next().is_some() => {}
            Adopted::Held(held) => return clean_up(&held),
            Adopted::Supervised => {}
        }
        if touched != place.ending_touched() {
            (touched, since) = (place.ending_touched(), Instant::now());
        }
        if since.elapsed() > ANSWER_MAX {
            return Err(unanswered(place, what, &io::ErrorKind::WouldBlock.into()));
        }
        sleep(LOOK);
    }
}

/// Why what was typed is no name of an image that can be taken down.
fn not_taken_down(typed: &OsStr, failure: Failure) -> Failure {
    match typed.to_str().filter(|typed| typed.parse::<u32>().is_ok()) {
        None => failure,
        Some(pid) => {
            let why = "that is the number of a process: a `husk run` ends with its command";
            Failure::new(format!("cannot take image {pid} down"), why, format!("kill {pid}"))
        }
    }
}

/// What is left of an image that nobody supervises.
fn clean_up(held: &Held) -> Result<Ended, Failure> {
    let (place, name) = (&held.place, &held.place.name);
    // What it bore says nothing of its death.
    let mut lines = place.log();
    lines.retain(|line| line != GOES_ON);
    let mut tally = Tally::default();
    let complete = if let Some(ended) = place.ended() {
        lines.retain(|line| !ended.lines.contains(line));
        lines.extend(ended.lines);
        tally = ended.tally;
        ended.complete
    } else {
        let status = place.facts();
        let own = |half: &Half| status.as_ref().is_some_and(|status| is_own(half, status));
        let half = recovery::halves().into_iter().find(own);
        lines.push(match (place.is_ending(), half) {
            (_, Some(half)) => format!("image {name} has died: {}", half.note),
            (Some(false), None) => {
                format!("image {name} died while it was written back: what is not there is lost")
            }
            _ => format!("image {name} had died: what it had not written back is lost"),
        });
        false
    };
    held.remove().map_err(|problem| {
        let what = format!("cannot clean up after image {name}");
        let remedy = format!("remove {}", place.base().join(name.to_string()).display());
        Failure::new(what, reason(&problem), remedy)
    })?;
    Ok(Ended { lines, complete, tally })
}

/// The write-back takes as long as it takes; a supervisor that falls silent ends the wait. `None`:
/// so does one that dies.
fn end(
    place: &Place,
    stream: &UnixStream,
    ask: &Ask,
    waiting: &Waiting,
) -> Option<Result<Ended, Failure>> {
    let told = waiting.ask(stream, ask);
    let what = format!("cannot take image {} down", place.name);
    // Before the letter was sent, before it was read, before the answer came.
    let gone =
        [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
    Some(match told {
        Ok(Answer::Down { lines, complete, tally }) => {
            // Its supervisor may have been killed before it could remove what was left.
            if let Ok(Adopted::Held(held)) = place.adopt() {
                let _ = held.remove();
            }
            Ok(Ended { lines, complete, tally })
        }
        Ok(Answer::Refused(failure)) => Err(failure),
        Err(problem) if gone.contains(&problem.kind()) => return None,
        Err(problem) => Err(unanswered(place, what, &problem)),
        Ok(_) => {
            let why = "its supervisor's answer is not valid";
            Err(Failure::new(what, why, "see `husk ls`"))
        }
    })
}

/// The region of an image, and the process by which it was found.
pub fn region(name: &OsStr) -> Result<(u32, File), Failure> {
    let name = Name::parse(name)
        .map_err(|failure| Failure { why: "there is no such image".to_owned(), ..failure })?;
    match asked(&name, &Ask::Region)? {
        (Answer::Region { pid }, mut descriptors) if !descriptors.is_empty() => {
            Ok((pid, File::from(descriptors.remove(0))))
        }
        // It was sent; the host had no room for it here.
        (Answer::Region { .. }, _) => Err(Failure::new(
            format!("cannot reach image {name}"),
            "it gave no descriptor",
            "raise the limit: ulimit -n 1024",
        )),
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

/// What there is to know of a living image.
pub fn look(name: &Name) -> Result<Status, Failure> {
    match asked(name, &Ask::Look)? {
        (Answer::Look(status), _) => Ok(status),
        _ => Err(senseless(name)),
    }
}

/// What a living image answers, if that is no refusal.
fn asked(name: &Name, what: &Ask) -> Result<(Answer, Vec<OwnedFd>), Failure> {
    asked_within(name, what, ANSWER_MAX)
}

/// The same where that may take so long.
pub fn asked_within(
    name: &Name,
    what: &Ask,
    patience: Duration,
) -> Result<(Answer, Vec<OwnedFd>), Failure> {
    let place = Place::find(name)?;
    let stream = place.connect()?;
    let asked = stream.set_read_timeout(Some(patience)).and_then(|()| ask(&stream, what));
    match asked {
        Ok((Answer::Refused(failure), _)) => Err(failure),
        Ok(told) => Ok(told),
        Err(problem) => Err(unanswered(&place, format!("cannot reach image {name}"), &problem)),
    }
}

fn senseless(name: &Name) -> Failure {
    let why = "its supervisor's answer is not valid";
    Failure::new(format!("cannot reach image {name}"), why, "take it down")
}
