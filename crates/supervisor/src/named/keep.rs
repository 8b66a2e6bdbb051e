//! The keeper of a named image: a process that does nothing but keep what a supervisor needs, and
//! start another one when it is killed.
//!
//! ```text
//!   keeper ── starts ──► supervisor ── makes the image, and leaves to the keeper, over a socket:
//!                           region, loader, lock, listener, private lock, what it knows
//!   killed? ── starts ──► another one ◄── all of that; it finds the rest in the region
//! ```
//!
//! Invariants
//! 1. The keeper never looks into the region and makes no change: nothing in it can fail half-way.
//! 2. While keeper or supervisor lives, the image's memory and its lock are held, and connections
//!    wait in the listener's queue.
//! 3. A supervisor that is killed again and again is given up, and the image's log says so.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::descriptors::inherited;
use crate::failure::Failure;
use crate::named::ask::GIVEN_UP;
use crate::named::message::{receive, send};
use crate::named::place::{Name, Place};
use crate::named::tend::{let_go, say_begun};
use crate::named::up::{Begun, SELF, START_MAX};
use crate::request::reason;
use crate::work::take_signals;

/// Supervisors that may be killed within `WHILE` before the image is given up.
const KILLED_MAX: usize = 10;
/// The time in which they count.
const WHILE: Duration = Duration::from_secs(60);
/// The first number that is none of the standard descriptors.
const STANDARD_END: u32 = 3;

/// What `husk keep` does: starts a supervisor with `arguments`, and others when it is killed.
pub fn keep(name: &OsStr, arguments: &[OsString]) {
    let started = part_from_caller().and_then(|()| {
        let words = [OsStr::new("tend")].into_iter().chain(arguments.iter().map(AsRef::as_ref));
        start(words, false)
    });
    let (mut supervisor, stream) = match started {
        Ok(started) => started,
        Err(failure) => return say_begun(&Begun::Failed(failure)),
    };
    // None: it could not begin, and has said why, or it was killed, which `husk up` sees.
    let left = stream.set_read_timeout(Some(START_MAX)).and_then(|()| receive(&stream, true));
    let Ok((text, descriptors)) = left else {
        // If it is stopped, `husk up` has given up, too.
        let _ = supervisor.kill();
        return;
    };
    // The supervisor answers; here only its own end matters.
    let _signals = take_signals();
    if let_go().is_err() || std::env::set_current_dir("/").is_err() {
        return;
    }
    let mut killed = Vec::new();
    loop {
        if supervisor.wait().is_ok_and(|status| status.code().is_some()) {
            return;
        }
        killed.retain(|at: &Instant| at.elapsed() < WHILE);
        killed.push(Instant::now());
        if killed.len() > KILLED_MAX {
            let why = format!("{} supervisors were killed in {} s", killed.len(), WHILE.as_secs());
            return give_up(name, &why);
        }
        let words = [OsStr::new("resume"), OsStr::new("--"), name];
        let (next, stream) = match start(words, true) {
            Ok(started) => started,
            Err(failure) => return give_up(name, &failure.to_string()),
        };
        let held: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
        let sent = stream.set_write_timeout(Some(START_MAX));
        if let Err(problem) = sent.and_then(|()| send(&stream, &text, &held)) {
            note(name, &format!("cannot tell the next supervisor: {}", reason(&problem)));
        }
        supervisor = next;
    }
}

/// Says in the image's log why it dies, for `husk ls` and whoever cleans up.
fn give_up(name: &OsStr, why: &str) {
    note(name, &format!("{GIVEN_UP}: {why}"));
}

/// The keeper's own standard error leads nowhere.
fn note(name: &OsStr, what: &str) {
    let place = Name::parse(name).and_then(|name| Place::find(&name));
    // Without a log nobody can be told.
    if let Some(mut log) = place.ok().and_then(|place| place.open_log().ok()) {
        let _ = writeln!(log, "husk: {what}");
    }
}

/// Nothing is kept of the caller's but standard output and error, for the answer and notes: no
/// descriptor, terminal, session.
pub fn part_from_caller() -> Result<(), Failure> {
    let failed = |errno: rustix::io::Errno| {
        Failure::new("cannot part from the caller", reason(&errno.into()), "try again")
    };
    for number in inherited().into_iter().filter(|number| *number >= STANDARD_END) {
        // It was open a moment ago, and nobody else closes.
        let _ = nix::unistd::close(number as i32);
    }
    rustix::process::setsid().map(drop).map_err(failed)
}

/// Starts a supervisor with a socket to us as its standard input.
fn start<'a>(
    words: impl IntoIterator<Item = &'a OsStr>,
    quiet: bool,
) -> Result<(Child, UnixStream), Failure> {
    let failed = |problem: std::io::Error| {
        let remedy = "raise the limits on processes and open files";
        Failure::new("cannot start a supervisor", reason(&problem), remedy)
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(SELF);
    command.arg0("husk").args(words).stdin(OwnedFd::from(theirs));
    if quiet {
        command.stdout(Stdio::null());
    }
    Ok((command.spawn().map_err(failed)?, ours))
}
