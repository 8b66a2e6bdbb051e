//! The supervisor's side of its keeper: stores descriptors there, and replaces a killed keeper.
//!
//! ```text
//!   keeper killed ─► a thread here sees the end of the socket ─► starts `husk attend NAME`
//!                    ─► sends it what was left: region, runtime, lock, listener, private lock
//! ```
//!
//! Invariants
//! 1. The thread waits for nothing but its keeper: one is replaced at once whatever the supervisor
//!    is doing, also while the image ends.
//! 2. The image is lost only where a keeper is killed together with its supervisor, before the next
//!    one has what was left (and even then a program that runs keeps it: `adopt`).
//! 3. A keeper may be killed at any moment, also while its supervisor takes over: that one goes on,
//!    and replaces it.
//! 4. `OVER` is the last that a keeper is told; an end of the socket without it is a death.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::image::work::Work;
use crate::named::keeper;
use crate::named::message::{Status, line, send};
use crate::named::place::Name;
use crate::named::server::Made;
use crate::output::say;
use crate::run::request::reason;

/// The last word to a keeper.
pub const OVER: &[u8] = b"over\n";
/// How long a keeper that is stopped holds up a supervisor.
const PATIENCE: Duration = Duration::from_secs(1);
/// Before a keeper that could not be started is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a supervisor leaves to its successor, beside descriptors.
#[derive(Serialize, Deserialize)]
pub struct Left {
    /// When the image was made, ns since the epoch.
    pub started_ns: i64,
    /// What `husk ls` shows.
    pub status: Status,
    /// Rewritten copies not wanted.
    pub trap_only: bool,
    /// It was a `husk run` that left it: nobody was killed.
    #[serde(default)]
    pub of_run: bool,
}

/// The keeper of an image.
pub struct Kept(Arc<Mutex<Keeper>>);

struct Keeper {
    stream: UnixStream,
    child: Option<Child>,
    pid: u32,
    left: (Vec<u8>, Vec<OwnedFd>),
    note: Option<String>,
    over: bool,
}

impl Kept {
    /// Leaves to the keeper at the other end of `stream` what is needed, and watches it.
    pub fn begin(
        name: &Name,
        stream: UnixStream,
        made: &Made,
        lock: BorrowedFd<'_>,
    ) -> io::Result<Kept> {
        let (pid, left) = (made.status.keeper, left(made, lock)?);
        let keeper = Keeper { stream, child: None, pid, left, note: None, over: false };
        unless_killed(keeper.leave())?;
        let keeper = Arc::new(Mutex::new(keeper));
        let (name, watched) = (name.clone(), Arc::clone(&keeper));
        thread::Builder::new().spawn(move || watch(&name, &watched))?;
        Ok(Kept(keeper))
    }

    /// Leaves to the keeper what has changed.
    pub fn update(&self, made: &Made, lock: BorrowedFd<'_>) -> io::Result<()> {
        let left = left(made, lock)?;
        let mut keeper = locked(&self.0);
        keeper.left = left;
        // One that is killed this moment is replaced, and the next one has it.
        let _ = keeper.leave();
        Ok(())
    }

    /// Its number, 0 where there is none; and what there is to say of it.
    pub fn state(&self) -> (u32, Option<String>) {
        let keeper = locked(&self.0);
        (keeper.pid, keeper.note.clone())
    }

    /// The image has ended.
    pub fn over(&self) {
        let mut keeper = locked(&self.0);
        keeper.over = true;
        // One that was killed needs no word.
        let _ = send(&keeper.stream, OVER, &[]);
    }
}

/// A keeper that has been killed is no failure: the thread that watches it replaces it.
fn unless_killed(left: io::Result<()>) -> io::Result<()> {
    left.or_else(|problem| if is_end(&problem) { Ok(()) } else { Err(problem) })
}

/// Whether who was at the other end of a socket has gone.
pub fn is_end(problem: &io::Error) -> bool {
    let ends =
        [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
    ends.contains(&problem.kind())
}

impl Keeper {
    fn leave(&self) -> io::Result<()> {
        self.stream.set_write_timeout(Some(PATIENCE))?;
        let descriptors: Vec<_> = self.left.1.iter().map(OwnedFd::as_fd).collect();
        send(&self.stream, &self.left.0, &descriptors)
    }

    /// Starts another one. It has what it needs when this returns.
    fn replace(&mut self, name: &Name) -> io::Result<UnixStream> {
        let (child, stream) = keeper::start(name, keeper::ATTEND, &[], true)?;
        self.pid = child.id();
        (self.child, self.stream) = (Some(child), stream);
        self.leave()?;
        self.stream.try_clone()
    }
}

fn locked(keeper: &Mutex<Keeper>) -> MutexGuard<'_, Keeper> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Descriptors that a successor needs, in the order in which it takes them.
pub fn descriptors<'a>(
    work: &'a Work,
    loader: &'a impl AsFd,
    lock: BorrowedFd<'a>,
    listener: &'a impl AsFd,
) -> Vec<BorrowedFd<'a>> {
    let all = [work.image.region.as_fd(), loader.as_fd(), lock, listener.as_fd()];
    // An image with nodes has a private directory: the last two are told apart by their order.
    all.into_iter()
        .chain(work.private_lock().map(AsFd::as_fd))
        .chain(work.home_listener())
        .collect()
}

/// What a successor needs.
fn left(made: &Made, lock: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let Made { work, loader, listener, status, trap_only, .. } = made;
    let left = Left {
        started_ns: work.image.started_ns,
        status: status.clone(),
        trap_only: *trap_only,
        of_run: false,
    };
    let held = descriptors(work, loader, lock, listener);
    let held: io::Result<_> = held.iter().map(BorrowedFd::try_clone_to_owned).collect();
    Ok((line(&left)?, held?))
}

/// Waits for the end of one keeper after the other.
fn watch(name: &Name, keeper: &Mutex<Keeper>) {
    let mut stream = locked(keeper).stream.try_clone();
    loop {
        if let Ok(mut stream) = stream {
            // It says nothing: this is its end, whatever is returned.
            let _ = stream.read(&mut [0]);
        }
        let mut keeper = locked(keeper);
        if keeper.over {
            return;
        }
        keeper.pid = 0;
        if let Some(mut dead) = keeper.child.take() {
            // Its end of the socket is closed; if it is not dead, it is of no use.
            let _ = dead.kill();
            let _ = dead.wait();
        }
        stream = keeper.replace(name);
        let note = match &stream {
            Ok(_) => format!("its keeper was killed: process {} keeps it now", keeper.pid),
            Err(problem) => {
                let why = reason(problem);
                format!("it has no keeper ({why}): a supervisor that is killed is its end")
            }
        };
        if keeper.note.as_ref() != Some(&note) {
            say(&note);
        }
        keeper.note = Some(note);
        drop(keeper);
        if stream.is_err() {
            thread::sleep(AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::message::receive;

    fn keeper(stream: UnixStream) -> Keeper {
        let left = (b"left\n".to_vec(), Vec::new());
        Keeper { stream, child: None, pid: 0, left, note: None, over: false }
    }

    #[test]
    fn a_keeper_that_was_killed_does_not_end_the_supervisor_that_takes_over() {
        // Before it has read what it had to, and without anything to read.
        for unread in [true, false] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            if unread {
                send(&ours, b"earlier\n", &[]).unwrap();
            }
            drop(theirs);
            assert!(keeper(ours).leave().is_err());
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&ours, b"earlier\n", &[]).unwrap();
        drop(theirs);
        let gone = [keeper(ours.try_clone().unwrap()).leave(), receive(&ours, true).map(drop)];
        for one in gone {
            assert!(unless_killed(one).is_ok());
        }
        // Anything else is a failure.
        let full = io::Error::from(io::ErrorKind::OutOfMemory);
        assert!(unless_killed(Err(full)).is_err());
    }
}
