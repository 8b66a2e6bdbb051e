//! The minder of a mount: makes it, starts its server, and ends it when the server has ended.
//!
//! Invariant: it never holds the descriptor that the server reads longer than until the server has
//! it, and never looks into the mount: a server that dies leaves nobody waiting.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::failure::Failure;
use crate::named::keep::part_from_caller;
use crate::named::place::{MOUNT, Place};
use crate::named::tend::{let_go, say_begun};
use crate::named::up::{Begun, SELF, START_MAX, answer};
use crate::request::reason;

use super::point::{Standing, standing_at};
use super::{Record, Wish, host};

/// What `husk mind-mount` does.
pub fn mind(typed: &OsStr, directory: &Path, trees: &[OsString]) {
    match begin(typed, directory, trees) {
        Ok(Some(mut mount)) => {
            say_begun(&Begun::Up);
            // Where that fails, whoever waits for the answer waits for the end of the mount.
            let _ = let_go();
            // It is our child; what else could be waited for?
            let _ = mount.server.wait();
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
    let device = host::attach(directory, &wish.source())?;
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
        let record = format!("{MOUNT}{}", server.id());
        let (directory, device) = (standing.directory.clone(), standing.device.clone());
        let told = Record { directory, device, server: server.id() };
        // Without it the image is ended as if a program ran in it.
        let _ = serde_json::to_string(&told).map(|text| place.write(&record, &text));
        Mount { server, standing, place, record }
    }

    /// The server has ended: nobody is to find what is left.
    fn end(&self) {
        let stands = standing_at(&self.standing.directory);
        if stands.is_some_and(|one| one.device == self.standing.device) {
            // If it cannot be ended, whoever uses it is told ENOTCONN.
            let _ = host::detach(&self.standing.directory, true);
        }
        self.place.remove(&self.record);
    }
}
