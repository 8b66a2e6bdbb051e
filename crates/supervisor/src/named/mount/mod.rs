//! `husk mount`: shows the files of an image to all programs of its user through FUSE.
//!
//! ```text
//!   husk mount NAME DIR ── starts ──► minder (own session) ── mounts DIR, starts ──┐
//!        ◄──────────── one answer ────────────'                                    v
//!   a host program ─► host's kernel ─► /dev/fuse ─► server: a program of the image, as if
//!                                                   `husk exec` had started it
//! ```
//!
//! All that touches the host's mounts happens outside of the image (`host`, `point`), all that
//! touches its files inside (`serve`, `nodes`), where Husk's kernels answer each call.
//!
//! Invariants
//! 1. A mount whose server has ended, however, does not stay: its minder ends it. If both were
//!    killed, whoever uses it is told ENOTCONN, and nobody waits.
//! 2. A mount needs no supervisor while it stands; it ends before its image does, and soon after
//!    one that has died: what is written there is nobody's any more.
//! 3. One user's mounts are made one at a time: none is taken for another at the same directory.

mod attributes;
mod host;
mod mind;
mod nodes;
mod point;
mod serve;
mod start;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

pub use host::{DEVICE, helper};
pub use mind::mind;
pub(crate) use point::{Standing, mounts, standing_over};
pub use start::serve;

use super::commands::ask::{look, pids};
use super::commands::up::{Begun, SELF, START_MAX, answer};
use crate::image::work::ensure_able;
use crate::named::base;
use crate::named::place::{MOUNT, Name, Place};
use crate::output::failure::Failure;
use crate::run::request::reason;

/// What the server calls itself.
pub const SERVER: &str = "husk-mount";
/// How long a server may take to end whose mount has ended.
const END_MAX: Duration = Duration::from_secs(5);
/// Before the image is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// What an image's directory says of a mount.
#[derive(Serialize, Deserialize, Debug)]
pub struct Record {
    /// Where it is; the name need not be text.
    pub directory: OsString,
    /// Its number among the host's devices.
    pub device: String,
    /// The process that serves it.
    pub server: u32,
}

/// What is to be shown: `NAME`, or `NAME:/PATH`.
pub struct Wish {
    /// The image.
    pub name: Name,
    /// What of it.
    pub root: PathBuf,
}

impl Wish {
    /// What was typed.
    pub fn parse(typed: &OsStr) -> Result<Wish, Failure> {
        let bytes = typed.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':');
        let (name, root) = match colon {
            Some(at) => (&bytes[..at], Path::new(OsStr::from_bytes(&bytes[at + 1..]))),
            None => (bytes, Path::new("/")),
        };
        let name = Name::parse(OsStr::from_bytes(name))?;
        let plain = |part| matches!(part, std::path::Component::ParentDir);
        if !root.is_absolute() || root.components().any(plain) {
            let what = format!("cannot show {} of image {name}", root.display());
            let why = "that is not an absolute path";
            return Err(Failure::new(what, why, "write it as NAME:/path"));
        }
        Ok(Wish { name, root: root.components().collect() })
    }

    /// How the host lists it.
    pub fn source(&self) -> String {
        format!("husk:{}", self.name)
    }

    /// Where the image's trees begin, overlays first, of which some are to be seen.
    fn trees(&self) -> Result<Vec<String>, Failure> {
        let status = look(&self.name)?;
        let mut trees = status.overlays;
        trees.extend(status.mounts);
        let seen =
            |tree: &String| self.root.starts_with(tree) || Path::new(tree).starts_with(&self.root);
        if trees.iter().any(seen) {
            return Ok(trees);
        }
        let what = format!("cannot show {} of image {}", self.root.display(), self.name);
        let remedy = format!("name a path in one of its trees: {}", trees.join(" "));
        Err(Failure::new(what, "it belongs to the host, not to the image", remedy))
    }
}

/// Shows an image, or a part of it, at `directory`. False: it could not be, and that was said.
pub fn mount(typed: &OsStr, directory: &Path) -> Result<bool, Failure> {
    ensure_able()?;
    let wish = Wish::parse(typed)?;
    let trees = wish.trees()?;
    let name = &wish.name;
    let _alone = base::lock_mounting()?;
    let point = point::settle(&name.to_string(), directory)?;
    let failed = |why: &str| {
        let what = format!("cannot show image {name} at {}", point.path.display());
        Failure::new(what, why, "try again, and see `husk ls`")
    };
    let mut minder = Command::new(SELF)
        .arg0("husk")
        .arg("mind-mount")
        .arg(typed)
        .arg(&point.path)
        .args(trees)
        .stdin(point.directory)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|problem| failed(&reason(&problem)))?;
    let Some(text) = answer(&mut minder, START_MAX) else {
        return Err(failed(&format!("its server did not start in {} s", START_MAX.as_secs())));
    };
    match serde_json::from_slice(&text) {
        Ok(Begun::Up) => Ok(true),
        Ok(Begun::Failed(failure)) => Err(failure),
        // The server has said why.
        Err(_) if minder.wait().is_ok_and(|status| status.success()) => Ok(false),
        Err(_) => Err(failed("its server was killed, or could not be started")),
    }
}

/// Ends the mount at `directory`; `force`: also if it is in use.
pub fn umount(typed: &Path, force: bool) -> Result<(), Failure> {
    let shown = typed.display();
    let refuse = |why: &str, remedy: &str| {
        Failure::new(format!("cannot end the mount at {shown}"), why, remedy)
    };
    let none = "no image is mounted there";
    let remedy = "see /proc/self/mounts";
    let named = Name::parse(typed.as_os_str()).and_then(|name| Place::find(&name)).ok();
    let directory = match point::real(typed) {
        Ok(directory) => directory,
        Err(problem) => match named {
            Some(place) => return Err(refuse("that is an image", &where_shown(&place))),
            None => return Err(refuse(&reason(&problem), remedy)),
        },
    };
    let Some(standing) = point::standing_at(&directory) else {
        return Err(refuse(none, remedy));
    };
    // Its minder forgets it at its end.
    let told = told_of(&standing);
    host::detach(&directory, force).map_err(|problem| match Errno::from_io_error(&problem) {
        Some(Errno::BUSY) => refuse("it is in use", "leave it, close its files, or add --force"),
        _ => refuse(&reason(&problem), "end it as the user who made it"),
    })?;
    if let Some((place, record)) = told {
        if force {
            end_server(record.server);
        }
        await_end(record.server);
        await_leave(&place, record.server);
        // Its minder has, unless it was killed.
        place.remove(&record_file(record.server));
    }
    Ok(())
}

/// What to do where an image was named instead of a directory.
fn where_shown(place: &Place) -> String {
    let shown: Vec<String> =
        place.mounts().iter().map(|one| Path::new(&one.directory).display().to_string()).collect();
    match shown.is_empty() {
        true => format!("it is not mounted; to end the image: husk down {}", place.name),
        false => format!("name where it is mounted: husk umount {}", shown.join(" ")),
    }
}

/// What an image of this user says of a mount that stands.
fn told_of(standing: &Standing) -> Option<(Place, Record)> {
    let name = standing.source.strip_prefix("husk:")?;
    let place = Place::find(&Name::parse(OsStr::new(name)).ok()?).ok()?;
    let record = place.mounts().into_iter().find(|one| one.device == standing.device)?;
    Some((place, record))
}

/// The file in which the minder of a server says where that shows the image.
fn record_file(server: u32) -> String {
    format!("{MOUNT}{server}")
}

/// Mounts of an image that have lost their servers and their minders, too.
pub fn lost(place: &Place) -> Vec<PathBuf> {
    let all = place.mounts().into_iter().filter(|record| !serves(record.server));
    all.filter(stands).map(|record| PathBuf::from(record.directory)).collect()
}

fn stands(record: &Record) -> bool {
    let standing = point::standing_at(Path::new(&record.directory));
    standing.is_some_and(|one| one.device == record.device)
}

/// Ends all mounts of an image that is about to end, unless it will not: because programs run in
/// it, or, without `force`, because a mount is in use.
pub fn end_all(place: &Place, force: bool) -> Result<(), Failure> {
    let records = place.mounts();
    let serves = |pid: &u32| records.iter().any(|record| record.server == *pid);
    let others = || pids(&place.name).is_ok_and(|pids| !pids.iter().all(serves));
    if records.is_empty() || !force && others() {
        return Ok(());
    }
    let busy = |record: &&Record| stands(record) && host::is_busy(Path::new(&record.directory));
    let refused = match force {
        // All or none.
        false => records.iter().find(busy).map(|one| (one, Errno::BUSY.into())),
        true => None,
    };
    let ended = || records.iter().find_map(|one| Some((one, end_one(one, force).err()?)));
    match refused.or_else(ended) {
        None => Ok(()),
        Some((record, problem)) => {
            let what = format!("cannot take image {} down", place.name);
            let shown = Path::new(&record.directory).display();
            let remedy = format!("end it: husk umount {shown}; or add --force");
            let why = match Errno::from_io_error(&problem) {
                Some(Errno::BUSY) => format!("{shown}, where it is mounted, is in use"),
                _ => format!("{shown}, where it is mounted: {}", reason(&problem)),
            };
            Err(Failure::new(what, why, remedy))
        }
    }
}

fn end_one(record: &Record, force: bool) -> io::Result<()> {
    let directory = Path::new(&record.directory);
    let done = match stands(record) {
        true => host::detach(directory, false),
        false => Ok(()),
    };
    match done {
        // Who uses it is told that the server is gone.
        Err(_) if force => host::detach(directory, true)?,
        other => other?,
    }
    // Of one that is used out of sight no end is to be waited for.
    if force {
        end_server(record.server);
    }
    await_end(record.server);
    Ok(())
}

/// Ends a server that would go on for those who use a mount that is out of sight.
fn end_server(pid: u32) {
    // By a descriptor: its number may be another's the next moment.
    let Some(server) = server(pid) else { return };
    for signal in [Signal::TERM, Signal::KILL] {
        if is_over(&server, Duration::ZERO) {
            return;
        }
        // It may have ended this moment.
        let _ = pidfd_send_signal(&server, signal);
        if is_over(&server, END_MAX) {
            return;
        }
    }
}

/// Waits for the end of a server, not for ever.
fn await_end(pid: u32) {
    let _ = server(pid).is_none_or(|server| is_over(&server, END_MAX));
}

/// Waits until the image counts a server that has ended among its processes no longer, not for
/// ever.
fn await_leave(place: &Place, pid: u32) {
    let since = Instant::now();
    while since.elapsed() < END_MAX && pids(&place.name).is_ok_and(|all| all.contains(&pid)) {
        sleep(PAUSE);
    }
}

/// Whether process `pid` is the server of a mount.
pub(crate) fn serves(pid: u32) -> bool {
    server(pid).is_some_and(|server| !is_over(&server, Duration::ZERO))
}

/// The server of a mount that process `pid` is, or was if nobody has waited for it yet.
fn server(pid: u32) -> Option<OwnedFd> {
    let server = pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    (name.trim_ascii_end() == SERVER.as_bytes()).then_some(server)
}

/// Whether all threads of a process have ended, after `patience` at the latest. Of one whose first
/// thread alone has, /proc says the same as of a dead one; but it holds its places in the image.
fn is_over(process: &OwnedFd, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            told => return told.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_shown_is_an_image_or_a_path_in_one() {
        for (typed, name, root) in
            [("ci", "ci", "/"), ("ci:/a//b/", "ci", "/a/b"), ("ci:/a:b", "ci", "/a:b")]
        {
            let wish = Wish::parse(OsStr::new(typed)).unwrap();
            assert_eq!(
                (wish.name.to_string().as_str(), wish.root.as_path()),
                (name, Path::new(root))
            );
        }
        for unfit in ["", ":/a", "ci:", "ci:a", "ci:/a/../b", "a/b"] {
            let failure = Wish::parse(OsStr::new(unfit)).map(drop).unwrap_err();
            assert_eq!(failure.to_string().lines().count(), 1, "{failure}");
        }
    }

    #[test]
    fn a_process_is_over_when_its_last_thread_is() {
        let script = "import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall(60, 0)";
        let mut process = Command::new("python3").args(["-c", script]).spawn().unwrap();
        let pid = process.id() as i32;
        let end = Instant::now() + Duration::from_secs(20);
        let first_is_over =
            || crate::process::reaper::state_and_parent(pid).is_some_and(|(state, _)| state == "Z");
        while !first_is_over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(first_is_over());
        let descriptor = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        assert!(!is_over(&descriptor, Duration::ZERO));
        process.kill().unwrap();
        assert!(is_over(&descriptor, END_MAX));
        process.wait().unwrap();
    }
}
