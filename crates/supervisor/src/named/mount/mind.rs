//! The minder of a mount: makes it, starts its server, and ends it when the server has ended.
//!
//! Invariants
//! 1. It never holds the descriptor that the server reads longer than until the server has it, and
//!    never looks into the mount: a server that dies leaves nobody waiting.
//! 2. What it mounts on is its standard input: the directory that was looked at (`point`).
//! 3. An image that has died is shown no longer than until the next look.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::named::base::lock_mounting;
use crate::named::commands::up::{Begun, SELF, START_MAX, answer};
use crate::named::keeper::adopt;
use crate::named::keeper::part_from_caller;
use crate::named::place::Place;
use crate::named::server::tend::{let_go, say_begun};
use crate::output::failure::Failure;
use crate::run::request::reason;

use super::point::{Point, Standing, path_of, standing_at};
use super::{Record, Wish, host, record_file, serves};

/// Between two looks at the image.
const IMAGE_LOOK: Duration = Duration::from_secs(1);
/// So many looks that find it dead, one after the other, are believed.
const DEAD_LOOKS: u32 = 2;

/// What `husk mind-mount` does.
pub fn mind(typed: &OsStr, directory: &Path, trees: &[OsString]) {
    match begin(typed, directory, trees) {
        Ok(Some(mut mount)) => {
            say_begun(&Begun::Up);
            // Where that fails, whoever waits for the answer waits for the end of the mount.
            let _ = let_go();
            mount.wait();
            mount.end();
        }
        // The server has said why.
        Ok(None) => {}
        Err(failure) => say_begun(&Begun::Failed(failure)),
    }
}

/// A mount that stands.
struct Mount {
    server: Child,
    standing: Standing,
    place: Place,
    record: String,
}

/// `None`: it could not begin, and who could not has said why.
fn begin(typed: &OsStr, directory: &Path, trees: &[OsString]) -> Result<Option<Mount>, Failure> {
    part_from_caller()?;
    let wish = Wish::parse(typed)?;
    let place = Place::find(&wish.name)?;
    // Nothing here holds a file system.
    let _ = std::env::set_current_dir("/");
    let point = point_of(directory)?;
    let device = host::attach(&point, &wish.source())?;
    // It may have been moved; the mount has gone with it.
    let directory = &path_of(&point.directory).unwrap_or(point.path);
    drop(point.directory);
    let failed = |why: String| {
        let what = format!("cannot show image {} at {}", wish.name, directory.display());
        Failure::new(what, why, "try again, and see `husk ls`")
    };
    let begun = serve(&wish, typed, directory, trees, device).map_err(|p| failed(reason(&p)));
    let begun = begun.and_then(|mut server| {
        let said = answer(&mut server, START_MAX);
        match said.as_deref().map(serde_json::from_slice) {
            Some(Ok(Begun::Up)) => Ok(Some(server)),
            Some(Ok(Begun::Failed(failure))) => Err(failure),
            // It failed before it could answer, and its last words are on standard error.
            Some(Err(_)) if server.wait().is_ok_and(|status| status.code().is_some()) => Ok(None),
            _ => Err(failed("its server was killed, or did not start in time".to_owned())),
        }
    });
    let mount = begun.and_then(|server| match (server, standing_at(directory)) {
        (Some(server), Some(standing)) => Ok(Some(Mount::new(server, standing, place))),
        (Some(_), None) => Err(failed("the mount has ended meanwhile".to_owned())),
        (None, _) => Ok(None),
    });
    if !matches!(mount, Ok(Some(_))) {
        // Nobody uses it yet.
        let _ = host::detach(directory, true);
    }
    mount
}

/// What `husk mount` has looked at.
fn point_of(path: &Path) -> Result<Point, Failure> {
    let failed = |problem: io::Error| {
        Failure::new(format!("cannot mount at {}", path.display()), reason(&problem), "try again")
    };
    let directory = rustix::stdio::stdin().try_clone_to_owned().map_err(failed)?;
    // Nothing here holds a file system.
    let null = File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|errno| failed(errno.into()))?;
    Ok(Point { path: path.to_owned(), directory })
}

/// Starts the server as a program of the image: this very file, which may be out of its sight.
fn serve(
    wish: &Wish,
    typed: &OsStr,
    directory: &Path,
    trees: &[OsString],
    device: OwnedFd,
) -> io::Result<Child> {
    let own: OwnedFd = File::open(SELF)?.into();
    rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(SELF);
    command.arg0("husk").args(["exec", "--argv0", "husk", &wish.name.to_string(), "--"]);
    command.arg(format!("/proc/self/fd/{}", own.as_raw_fd())).arg("serve-mount");
    command.arg(typed).arg(directory).args(trees);
    command.stdin(device).stdout(Stdio::piped()).spawn()
}

impl Mount {
    /// It stands: takes note of it where `husk down` looks.
    fn new(server: Child, standing: Standing, place: Place) -> Mount {
        let record = record_file(server.id());
        let (directory, device) =
            (standing.directory.clone().into_os_string(), standing.device.clone());
        let told = Record { directory, device, server: server.id() };
        // Without it the image is ended as if a program ran in it.
        let _ = serde_json::to_string(&told).map(|text| place.write(&record, &text));
        Mount { server, standing, place, record }
    }

    /// Until the server ends, or the image has died.
    fn wait(&mut self) {
        let number = Pid::from_raw(self.server.id() as i32);
        let descriptor = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut dead = 0;
        while let Some(descriptor) = descriptor.as_ref().filter(|_| dead < DEAD_LOOKS) {
            let look = Timespec { tv_sec: IMAGE_LOOK.as_secs() as i64, tv_nsec: 0 };
            let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
            if poll(&mut watched, Some(&look)).is_ok_and(|ready| ready > 0) {
                break;
            }
            // The server keeps the image's memory.
            let lives = self.place.is_held() || adopt::revive(&self.place);
            dead = if lives { 0 } else { dead + 1 };
        }
        if dead == DEAD_LOOKS {
            self.end();
            // It may have ended this moment.
            let _ = self.server.kill();
        }
        // It is our child; what else could be waited for?
        let _ = self.server.wait();
    }

    /// The server has ended: nobody is to find what is left.
    fn end(&self) {
        // Who mounts there meanwhile has said so before the lock is free. If it cannot be had, the
        // host's list alone says what stands.
        let _alone = lock_mounting();
        if standing_at(&self.standing.directory).is_some_and(|one| one == self.standing)
            && !self.is_followed()
        {
            // If it cannot be ended, whoever uses it is told ENOTCONN.
            let _ = host::detach(&self.standing.directory, true);
        }
        self.place.remove(&self.record);
    }

    /// Whether the image is shown there again: the host gives a device number away as soon as it
    /// is free.
    fn is_followed(&self) -> bool {
        let (directory, device) = (self.standing.directory.as_os_str(), &self.standing.device);
        self.place.mounts().iter().any(|other| {
            let is_there = other.directory == directory && other.device == *device;
            is_there && other.server != self.server.id() && serves(other.server)
        })
    }
}
