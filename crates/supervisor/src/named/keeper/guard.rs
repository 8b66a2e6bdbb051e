//! Keeps the image of a `husk run` that is killed: a process that holds its memory meanwhile.
//!
//! ```text
//!   husk run ── starts, after `DELAY` ──► guard ◄── region, runtime, what is known of the image
//!      ends:   over ─────► it ends, too
//!      killed: end of the socket ─► image run-N: lock, listener ─► a keeper, a supervisor
//! ```
//!
//! Invariants
//! 1. A run that has begun `DELAY` ago, and a little, has a guard with all that it needs. Shorter
//!    ones are not worth the 13 ms that its start costs them.
//! 2. The guard never looks into the region, and is no program of the image: the end of the run
//!    does not wait for it.
//! 3. A guard that is killed is replaced at once, up to `GUARDS_MAX` times.
//! 4. A write-back that was killed with its manifest ready has everything on the disk: then
//!    `husk recover` is the way on, and no image is kept.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::kept::{Left, OVER};
use super::{Keeper, part_from_caller, partner};
use crate::image::work::{Work, take_signals};
use crate::named::keeper;
use crate::named::message::{line, receive, send};
use crate::named::place::{Adopted, Held, Name, Place};
use crate::named::server::tend::{status, write_facts};
use crate::output::failure::Failure;
use crate::output::say;
use crate::run::request::{Settings, reason};
use crate::write_back::plan::scan::Run;
use crate::write_back::record::manifest::{looked_at, places};

/// What one is told to become.
const GUARD: &str = "guard";
/// Between tries to give a killed run's image a name, and how long that is tried.
const AGAIN: Duration = Duration::from_secs(1);
const TRIED_MAX: Duration = Duration::from_secs(600);
/// Between looks whether the killed write-back has let go of its manifest, and how many.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 1000;

/// Guards that may be killed during a run: more are somebody's intention.
const GUARDS_MAX: u32 = 8;
/// How old a run is that gets one.
const DELAY: Duration = Duration::from_millis(100);

/// The run's side of it.
pub struct Guard {
    state: Arc<Mutex<State>>,
    /// Goes with the guard: nobody waits for `DELAY` then.
    _ends: Sender<()>,
}

/// How far it is.
enum State {
    /// None has been started yet, or the last one was killed.
    Waits,
    /// Its process, and the socket to it.
    Started(Pid, UnixStream),
    /// The run is over, or there can be none.
    Over,
}

/// The option that a kept image cannot take over so far.
fn rules_out(settings: &Settings) -> Option<&'static str> {
    let options = [
        (!settings.volumes.is_empty(), "--volume"),
        (settings.nodes > 1, "--nodes"),
        (!settings.hosts.is_empty(), "--on"),
    ];
    options.iter().find(|(typed, _)| *typed).map(|(_, option)| *option)
}

impl Guard {
    const NONE: &str = "if this process is killed, its image is lost: no guard keeps one with";

    /// Sees to it that one starts; `None`: nothing of this run is to be kept, or not by a guard.
    pub fn begin(settings: &Settings, work: &Work, loader: BorrowedFd<'_>) -> Option<Guard> {
        let keeps = settings.has_overlay() && !settings.discard;
        let name = name_of(std::process::id()).ok().filter(|_| keeps)?;
        if let Some(option) = rules_out(settings) {
            if io::stderr().is_terminal() {
                say(&format!("note: {} {option}; `husk up` keeps it", Guard::NONE));
            }
            return None;
        }
        Guard::wait(name, settings, work, loader).map_err(|problem| unguarded(&problem)).ok()
    }

    fn wait(
        name: Name,
        settings: &Settings,
        work: &Work,
        loader: BorrowedFd<'_>,
    ) -> io::Result<Guard> {
        let status = status(settings, work);
        let (keeper, number) = (0, status.pid);
        let left = Left {
            started_ns: work.image.started_ns,
            status: crate::named::Status { keeper, number, ..status },
            trap_only: work.traps_only(),
            of_run: false,
        };
        let held = [work.image.region.as_fd(), loader].into_iter();
        let held = held.chain(work.private_lock().map(AsFd::as_fd));
        let held: Vec<_> = held.map(|one| one.try_clone_to_owned()).collect::<io::Result<_>>()?;
        let (text, state) = (line(&left)?, Arc::new(Mutex::new(State::Waits)));
        let (ends, is_over) = channel();
        let shared = state.clone();
        // The parent of a process is a thread: no other waits for this one's.
        thread::Builder::new().spawn(move || {
            if is_over.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                guard_again(&name, &shared, (&text, &held));
            }
        })?;
        Ok(Guard { state, _ends: ends })
    }

    /// Its process.
    pub fn pid(&self) -> Option<Pid> {
        match &*lock(&self.state) {
            State::Started(pid, _) => Some(*pid),
            _ => None,
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One guard after the other, until the run is over (invariant 3).
fn guard_again(name: &Name, state: &Mutex<State>, given: (&[u8], &[OwnedFd])) {
    for _ in 0..=GUARDS_MAX {
        let Some(mut child) = start(name, state, given) else { return };
        let _ = child.wait();
        match &mut *lock(state) {
            State::Over => return,
            killed => *killed = State::Waits,
        }
    }
    unguarded(&io::Error::other(format!("{GUARDS_MAX} of them were killed")));
}

/// Starts the process, unless the run is over. Nobody sees it before it is known by its number.
fn start(name: &Name, state: &Mutex<State>, (text, held): (&[u8], &[OwnedFd])) -> Option<Child> {
    let mut state = lock(state);
    let State::Waits = std::mem::replace(&mut *state, State::Over) else { return None };
    let (child, stream) =
        keeper::start(name, GUARD, &[], true).map_err(|problem| unguarded(&problem)).ok()?;
    let held: Vec<_> = held.iter().map(AsFd::as_fd).collect();
    if let Err(problem) = send(&stream, text, &held) {
        unguarded(&problem);
    }
    // Known by its number in any case; without what it needs it ends by itself.
    *state = State::Started(Pid::from_raw(child.id() as i32), stream);
    Some(child)
}

impl Drop for Guard {
    fn drop(&mut self) {
        // What ends by a bug is kept as if it was killed.
        if !thread::panicking()
            && let State::Started(_, stream) =
                &std::mem::replace(&mut *lock(&self.state), State::Over)
        {
            let _ = send(stream, OVER, &[]);
        }
    }
}

fn unguarded(problem: &io::Error) {
    let why = reason(problem);
    say(&format!("note: no process keeps the changes if this one is killed: {why}"));
}

fn name_of(number: u32) -> Result<Name, Failure> {
    Name::parse(OsStr::new(&format!("run-{number}")))
}

/// What there is to say of an image that keeps the changes of a `husk run`.
pub fn keeps(name: &Name) -> String {
    format!(
        "image {name} keeps its changes; `husk diff {name}` shows them, \
         `husk down {name}` writes them back, with --discard it drops them"
    )
}

// ---- the guard's own process --------------------------------------------------------------------

/// What `husk guard` does.
pub fn guard(name: &OsStr) {
    let Ok(name) = Name::parse(name) else { return };
    let stream = part_from_caller().ok().and_then(|()| partner().ok());
    let Some(stream) = stream else { return };
    let _signals = take_signals();
    let _ = std::env::set_current_dir("/");
    // None: the run could not begin, and has said why.
    let Ok((text, descriptors)) = receive(&stream, true) else { return };
    let Ok(left) = serde_json::from_slice::<Left>(&text) else { return };
    if is_over(&stream) || is_noted(&left) {
        return;
    }
    drop(stream);
    let number = left.status.number;
    if let Some((name, keeper)) = kept(&name, &left, descriptors) {
        say(&format!("`husk run` (process {number}) was killed: {}", keeps(&name)));
        keeper.keep();
    }
}

/// Waits for the end of the run; whether it ended by itself.
fn is_over(stream: &UnixStream) -> bool {
    loop {
        match receive(stream, true) {
            Ok((text, _)) => return text == OVER,
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Invariant 4.
fn is_noted(left: &Left) -> bool {
    let (number, started_ns) = (left.status.number, left.started_ns);
    let run = Run { number, started_ns, live: false };
    for _ in 0..LOOKS_MAX {
        let all = looked_at(&places());
        let own: Vec<_> = all.iter().filter(|one| one.is_of(&run)).collect();
        if !own.iter().any(|one| one.is_busy()) {
            return own.iter().any(|one| one.ready);
        }
        thread::sleep(LOOK);
    }
    true
}

/// A keeper for it, tried again while there is no place. `None`: a supervisor has it already.
fn kept(name: &Name, left: &Left, descriptors: Vec<OwnedFd>) -> Option<(Name, Keeper)> {
    let (end, mut told) = (Instant::now() + TRIED_MAX, false);
    loop {
        match try_keep(name, left, &descriptors) {
            Ok(keeper) => return keeper,
            Err(failure) if !told => say(&format!("`husk run` was killed: {failure}")),
            Err(_) if Instant::now() > end => return None,
            Err(_) => {}
        }
        told = true;
        thread::sleep(AGAIN);
    }
}

fn try_keep(
    name: &Name,
    left: &Left,
    descriptors: &[OwnedFd],
) -> Result<Option<(Name, Keeper)>, Failure> {
    let held = match given_away(name, left)? {
        Some(Adopted::Held(held)) => held,
        Some(Adopted::Supervised) => return Ok(None),
        Some(Adopted::Gone) | None => Place::take_free(name)?,
    };
    let begun = begin(&held, left, descriptors);
    if begun.is_err() {
        // What cannot be removed is found by `husk ls`.
        let _ = held.remove();
    }
    begun.map(|keeper| Some((held.place.name, keeper)))
}

/// The place that the run had begun to give this image away in, if it had.
fn given_away(name: &Name, left: &Left) -> Result<Option<Adopted>, Failure> {
    let own = left.status.region;
    let is_own = |place: &Place| own.is_some() && place.facts().and_then(|it| it.region) == own;
    let places = name.and_numbered().filter_map(|name| Place::find(&name).ok());
    // Others may have the name: from another container, or of a run with the same number before.
    places.into_iter().find(is_own).map(|place| place.adopt()).transpose()
}

fn begin(held: &Held, left: &Left, descriptors: &[OwnedFd]) -> Result<Keeper, Failure> {
    let name = &held.place.name;
    let failed = |problem: io::Error| {
        Failure::new(format!("cannot keep the image as {name}"), reason(&problem), "make room")
    };
    write_facts(held, &left.status).map_err(failed)?;
    held.place.stop_listening();
    let listener = held.place.listen().map_err(failed)?;
    let (own, more) = descriptors.split_at(descriptors.len().min(2));
    let new = [held.lock.as_fd(), listener.as_fd()];
    let all = own.iter().map(AsFd::as_fd).chain(new).chain(more.iter().map(AsFd::as_fd));
    let all: io::Result<Vec<_>> = all.map(|one| one.try_clone_to_owned()).collect();
    let text = line(left).map_err(failed)?;
    Keeper::begin(name.clone(), (text, all.map_err(failed)?))
}
