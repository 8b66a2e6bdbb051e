//! The keeper of a named image: a process that only holds the supervisor's descriptors, and starts
//! another supervisor when that is killed.
//!
//! ```text
//!   keeper ── starts ──► supervisor ── makes the image, and leaves to the keeper, over a socket:
//!                           region, loader, lock, listener, private lock, what it knows
//!   killed? ── starts ──► another one ◄── all of that; it finds the rest in the region
//!
//!   supervisor ── starts, where its keeper was killed ──► another keeper ◄── the same (`kept`)
//! ```
//!
//! Invariants
//! 1. The keeper never looks into the region and makes no change: nothing in it can fail half-way.
//! 2. While keeper or supervisor lives, the image's memory and its lock are held, and connections
//!    wait in the listener's queue.
//! 3. A supervisor that is killed again and again is given up, and the image's log says so.

pub(super) mod adopt;
pub(super) mod guard;
pub(super) mod half;
pub(super) mod kept;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use self::kept::OVER;
use super::commands::ask::GIVEN_UP;
use super::commands::up::{Begun, START_MAX, patience};
use super::server::tend::{let_go, say_begun};
use crate::image::descriptors::inherited;
use crate::image::work::take_signals;
use crate::named::message::{receive, send};
use crate::named::place::{Name, Place};
use crate::output::failure::Failure;
use crate::run::request::reason;

/// What the halves of an image are: the supervisor of a new one, of one whose supervisor was
/// killed, and the keeper of one whose keeper was.
const TEND: &str = "tend";
const RESUME: &str = "resume";
pub const ATTEND: &str = "attend";
/// The keeper of one that has lost both.
pub const ADOPT: &str = "adopt";
/// Supervisors that may be killed within `WHILE` before the image is given up.
const KILLED_MAX: usize = 10;
/// The time in which they count.
const WHILE: Duration = Duration::from_secs(60);
/// The first number that is none of the standard descriptors.
const STANDARD_END: u32 = 3;

/// What `husk keep` does: starts a supervisor with `arguments`, and others when it is killed.
pub fn keep(name: &OsStr, arguments: &[OsString]) {
    let started = part_from_caller().and_then(|()| {
        Name::parse(name)
            .and_then(|name| Ok((start(&name, TEND, arguments, false).map_err(unstarted)?, name)))
    });
    let ((mut supervisor, stream), name) = match started {
        Ok(started) => started,
        Err(failure) => return say_begun(&Begun::Failed(failure)),
    };
    // None: it could not begin, and has said why, or it was killed, which `husk up` sees.
    let patience = Some(patience(arguments));
    let left = stream.set_read_timeout(patience).and_then(|()| receive(&stream, true));
    match left {
        Ok(left) => Keeper { name, stream, supervisor: Some(supervisor), left }.keep(),
        // If it is stopped, `husk up` has given up, too.
        Err(_) => drop(supervisor.kill()),
    }
}

/// What `husk attend` does: becomes the keeper of an image whose keeper was killed.
pub fn attend(name: &OsStr) {
    let Ok(name) = Name::parse(name) else { return };
    let stream = part_from_caller().ok().and_then(|()| partner().ok());
    let Some(stream) = stream else { return };
    let left = stream.set_read_timeout(Some(START_MAX)).and_then(|()| receive(&stream, true));
    if let Ok(left) = left {
        Keeper { name, stream, supervisor: None, left }.keep();
    }
}

/// A keeper that has what it needs.
pub struct Keeper {
    name: Name,
    stream: UnixStream,
    /// `None`: it was started by the supervisor, and not the other way round.
    supervisor: Option<Child>,
    left: (Vec<u8>, Vec<OwnedFd>),
}

impl Keeper {
    /// One that has what an image needs, and starts its supervisor.
    pub fn begin(name: Name, left: (Vec<u8>, Vec<OwnedFd>)) -> Result<Keeper, Failure> {
        let (supervisor, stream) = start(&name, RESUME, &[], true).map_err(unstarted)?;
        let keeper = Keeper { name, stream, supervisor: Some(supervisor), left };
        keeper.leave();
        Ok(keeper)
    }

    /// Keeps until the image has ended.
    pub fn keep(mut self) {
        // The supervisor answers; here only its own end matters.
        let _signals = take_signals();
        if let_go().is_err() || std::env::set_current_dir("/").is_err() {
            return;
        }
        let mut killed = Vec::new();
        while self.supervisor_was_killed() {
            killed.retain(|at: &Instant| at.elapsed() < WHILE);
            killed.push(Instant::now());
            if killed.len() > KILLED_MAX {
                let (count, seconds) = (killed.len(), WHILE.as_secs());
                return self.give_up(&format!("{count} supervisors were killed in {seconds} s"));
            }
            if let Err(failure) = self.start_another() {
                return self.give_up(&failure.to_string());
            }
        }
    }

    /// Waits for the supervisor's end, and takes what it leaves meanwhile.
    fn supervisor_was_killed(&mut self) -> bool {
        // A clock is of no use here.
        let _ = self.stream.set_read_timeout(None);
        loop {
            match receive(&self.stream, true) {
                Ok((text, _)) if text == OVER => return false,
                Ok(left) => self.left = left,
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // One that has ended by itself has said why.
        let ended = self.supervisor.as_mut().map(Child::wait);
        !ended.is_some_and(|ended| ended.is_ok_and(|status| status.code().is_some()))
    }

    fn start_another(&mut self) -> Result<(), Failure> {
        let (next, stream) = start(&self.name, RESUME, &[], true).map_err(unstarted)?;
        (self.supervisor, self.stream) = (Some(next), stream);
        self.leave();
        Ok(())
    }

    /// Tells the supervisor what it needs.
    fn leave(&self) {
        let held: Vec<_> = self.left.1.iter().map(OwnedFd::as_fd).collect();
        let sent = self.stream.set_write_timeout(Some(START_MAX));
        if let Err(problem) = sent.and_then(|()| send(&self.stream, &self.left.0, &held)) {
            self.note(&format!("cannot tell the next supervisor: {}", reason(&problem)));
        }
    }

    /// Says in the image's log why it dies, for `husk ls` and whoever cleans up.
    fn give_up(&self, why: &str) {
        self.note(&format!("{GIVEN_UP}: {why}"));
    }

    /// The keeper's own standard error leads nowhere.
    fn note(&self, what: &str) {
        let place = Place::find(&self.name);
        // Without a log nobody can be told.
        if let Some(mut log) = place.ok().and_then(|place| place.open_log().ok()) {
            let _ = writeln!(log, "husk: {what}");
        }
    }
}

fn unstarted(problem: io::Error) -> Failure {
    let remedy = "raise the limits on processes and open files";
    Failure::new("cannot start a supervisor", reason(&problem), remedy)
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

/// Starts the other half of an image, in `role`, with a socket to us as its standard input.
pub fn start(
    name: &Name,
    role: &str,
    arguments: &[OsString],
    quiet: bool,
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = half::command(name, theirs);
    if quiet {
        command.stdout(Stdio::null());
    }
    let child = command.spawn()?;
    // What is left in the command is the other end of the socket.
    drop(command);
    let (dashes, named) = (OsString::from("--"), OsString::from(name.to_string()));
    let own = [dashes, named];
    let words = if arguments.is_empty() { &own } else { arguments };
    half::tell(&ours, [OsStr::new(role)].into_iter().chain(words.iter().map(AsRef::as_ref)))?;
    Ok((child, ours))
}

/// The socket to who started this process, which is standard input no more.
pub fn partner() -> io::Result<UnixStream> {
    let stream = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    Ok(stream)
}
