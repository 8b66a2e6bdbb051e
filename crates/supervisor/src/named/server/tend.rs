//! Starts the supervisor of a new image, or of one whose supervisor was killed.
//!
//! Its standard input is a socket to its keeper (`keep`), its standard output the answer to
//! `husk up`; both are let go of before it serves, and standard error becomes the log.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use husk_proto::image::Cover;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Made, Server};
use crate::config::Config;
use crate::image::Image;
use crate::image::descriptors::loader;
use crate::image::work::{Work, ensure_able, lift_file_size_limit, take_signals};
use crate::named::base;
use crate::named::commands::ask::{GOES_ON, NOT_TAKEN_OVER, glance};
use crate::named::commands::up::{Begun, START_MAX};
use crate::named::keeper;
use crate::named::keeper::kept;
use crate::named::keeper::kept::{Kept, Left, is_end};
use crate::named::keeper::partner;
use crate::named::message::{Region, Status, VERSION, line, receive, send};
use crate::named::place::{Held, Name, Place};
use crate::output::failure::Failure;
use crate::output::{say, try_print};
use crate::run::request::{Request, Settings, reason};
use crate::run::variables::Variables;

const NS_PER_S: i64 = 1_000_000_000;
/// A supervisor that goes on; whether it does so after a `husk run`.
type Successor = (Server, Kept, bool);

/// Between two looks for a supervisor that takes over.
const LOOK: Duration = Duration::from_millis(5);

/// What `husk tend` does: becomes the supervisor of a new image. Returns once it has ended.
pub fn tend(name: &OsStr, request: Request, runtime: &[u8]) {
    let begun = Name::parse(name).and_then(|name| begin(&name, request, runtime));
    let server = match begun {
        Ok(server) => server,
        Err(failure) => return say_begun(&Begun::Failed(failure)),
    };
    let kept = server.kept_by(partner());
    let ready = kept.and_then(|kept| tell(&Begun::Up).map(|()| kept)).and_then(|kept| {
        let_go()?;
        log_to(&server.held.place)?;
        Ok(kept)
    });
    match ready {
        Ok(kept) => server.serve(kept),
        // `husk up` has been killed: nobody knows of the image.
        Err(_) => drop(server.held.remove()),
    }
}

/// What `husk resume` does: becomes the supervisor of an image whose supervisor was killed.
pub fn resume(name: &OsStr) {
    let found = Name::parse(name).and_then(|name| Place::find(&name));
    let Ok(place) = found else { return };
    // Without a log it goes on unheard.
    let _ = log_to(&place);
    let variables = Config::load().map(|config| Variables::of(&config));
    match variables.and_then(|variables| take_over(place, &variables)) {
        Ok(Some((server, kept, of_run))) => {
            if !of_run {
                say(GOES_ON);
            }
            server.serve(kept);
        }
        Ok(None) => {}
        Err(failure) => say(&failure.to_string()),
    }
}

/// Leaves the image of a `husk run`, in which nobody runs, to a keeper and a supervisor under a
/// name. Where that fails, it is still ours.
pub fn leave(settings: &Settings, runtime: &[u8], work: &Work) -> Result<Name, Failure> {
    let name = Name::parse(OsStr::new(&format!("run-{}", std::process::id())))?;
    let held = Place::take_free(&name)?;
    let left = give_away(&held, settings, runtime, work);
    if left.is_err() {
        // What cannot be removed is found by `husk ls`.
        let _ = held.remove();
    }
    left.map(|()| held.place.name)
}

/// The keeper starts a supervisor where one was killed: we are as good as that.
fn give_away(held: &Held, settings: &Settings, runtime: &[u8], work: &Work) -> Result<(), Failure> {
    let failed = |problem: io::Error| {
        let what = format!("cannot keep the image as {}", held.place.name);
        Failure::new(what, reason(&problem), "see `husk check`")
    };
    let loader = loader(runtime)?;
    let number = std::process::id();
    let status = Status { keeper: 0, number, ..status(settings, work) };
    write_facts(held, &status).map_err(failed)?;
    let listener = held.place.listen().map_err(failed)?;
    let (mut keeper, stream) =
        keeper::start(&held.place.name, keeper::ATTEND, &[], true).map_err(failed)?;
    let (started_ns, trap_only) = (work.image.started_ns, work.traps_only());
    let left = Left { started_ns, status, trap_only, of_run: true };
    let descriptors = kept::descriptors(work, &loader, held.lock.as_fd(), &listener);
    let sent = line(&left).and_then(|left| send(&stream, &left, &descriptors));
    drop(stream);
    let end = Instant::now() + START_MAX;
    while sent.is_ok() && Instant::now() < end {
        if glance(&held.place).is_some_and(|status| status.pid != number) {
            return Ok(());
        }
        sleep(LOOK);
    }
    // It may have ended by itself.
    let _ = keeper.kill();
    Err(failed(sent.err().unwrap_or_else(|| io::ErrorKind::TimedOut.into())))
}

/// The one answer to `husk up`.
fn tell(begun: &Begun) -> io::Result<()> {
    try_print(&serde_json::to_string(begun)?)
}

/// The same, to somebody who may have gone.
pub fn say_begun(begun: &Begun) {
    // Whoever does not listen is not told.
    let _ = tell(begun);
}

/// Nothing is left of the caller's: standard descriptors lead nowhere.
pub fn let_go() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// What the supervisor says goes to the log from now on.
pub fn log_to(place: &Place) -> io::Result<()> {
    rustix::stdio::dup2_stderr(&place.open_log()?)?;
    Ok(())
}

fn begin(name: &Name, request: Request, runtime: &[u8]) -> Result<Server, Failure> {
    let config = Config::load()?;
    let variables = Variables::of(&config);
    ensure_able()?;
    let settings = config.complete(request).settle()?;
    settings.notes.iter().for_each(|note| say(&format!("note: {note}")));
    let held = Place::take(name)?;
    let made = make(&held, &settings, &variables, runtime);
    match made {
        Ok(made) => Ok(Server::new(held, made)),
        Err(failure) => {
            // What cannot be removed is found by `husk ls`.
            let _ = held.remove();
            Err(failure)
        }
    }
}

fn make(
    held: &Held,
    settings: &Settings,
    variables: &Variables,
    runtime: &[u8],
) -> Result<Made, Failure> {
    let signals = take_signals()?;
    lift_file_size_limit();
    lift_descriptor_limit();
    let loader = loader(runtime)?;
    let mut work = Work::make(settings, variables, None)?;
    let image = &mut work.image;
    image.volumes.iter().for_each(|volume| volume.is_followed(&mut image.direct));
    work.serve();
    work.begin_nodes(settings, &held.place.name.to_string(), 0)?;
    let status = status(settings, &work);
    let written = write_facts(held, &status);
    let listener = written.and_then(|()| held.place.listen()).map_err(|problem| {
        let what = format!("cannot make image {}", held.place.name);
        let otherwise = "make room, or set HUSK_IMAGES to a directory of yours".to_owned();
        Failure::new(what, reason(&problem), base::remedy(&problem, otherwise))
    })?;
    // Nothing here holds a file system any more; all paths are absolute.
    let _ = std::env::set_current_dir("/");
    Ok(Made { work, loader, listener, signals, status, trap_only: variables.trap_only })
}

/// What a supervisor needs to go on where another was killed; whether that was a `husk run`.
/// `None`: the keeper has been killed, too, and has left nothing. The image is not at fault then:
/// no word of its death is said, and a program that has kept it is asked (`adopt`).
fn take_over(place: Place, variables: &Variables) -> Result<Option<Successor>, Failure> {
    let failed = |why: &str| Failure::new(NOT_TAKEN_OVER, why, "take it down");
    let unread = |problem: io::Error| failed(&reason(&problem));
    let keeper = partner().map_err(unread)?;
    keeper.set_read_timeout(Some(START_MAX)).map_err(unread)?;
    let (text, descriptors) = match receive(&keeper, true) {
        Err(problem) if is_end(&problem) => return Ok(None),
        received => received.map_err(unread)?,
    };
    let mut left: Left = serde_json::from_slice(&text).map_err(|p| unread(p.into()))?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| failed("a descriptor is missing"));
    let (region, loader, lock, listener) = (next()?, next()?, next()?, next()?);
    let signals = take_signals()?;
    lift_file_size_limit();
    lift_descriptor_limit();
    let image = Image::resume(region, left.started_ns)?;
    let mut work = Work::resume(image, next().ok().map(File::from), variables);
    work.serve();
    let of = (&place.name, left.status.root);
    work.resume_nodes(next().ok(), of, &left.status.hosts);
    (left.status.pid, left.status.keeper) = (std::process::id(), parent());
    let held = Held { place, lock: File::from(lock) };
    // For people only.
    let _ = write_facts(&held, &left.status);
    let (listener, trap_only) = (UnixListener::from(listener), left.trap_only);
    let made = Made { work, loader, listener, signals, status: left.status, trap_only };
    let server = Server::new(held, made);
    let kept = server.kept_by(Ok(keeper)).map_err(unread)?;
    Ok(Some((server, kept, left.of_run)))
}

fn known_by(work: &Work) -> Option<Region> {
    let trap_only = work.traps_only();
    let found = rustix::fs::fstat(&work.image.region).ok()?;
    let (device, inode, made_ns) = (found.st_dev, found.st_ino, work.image.started_ns);
    Some(Region { device, inode, made_ns, trap_only })
}

fn parent() -> u32 {
    nix::unistd::getppid().as_raw() as u32
}

pub fn write_facts(held: &Held, status: &Status) -> io::Result<()> {
    held.place.write("facts", &(serde_json::to_string_pretty(status)? + "\n"))
}

/// Each program that joins is watched by a descriptor.
fn lift_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Within the hard limit: cannot fail. If it did, ends of programs would be found by looking.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

pub fn status(settings: &Settings, work: &Work) -> Status {
    let of = |cover| {
        let mounts = settings.mounts.iter().filter(move |plan| plan.cover == cover);
        mounts.map(|plan| plan.path.to_string_lossy().into_owned()).collect()
    };
    Status {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        keeper: parent(),
        number: parent(),
        started_s: work.image.started_ns / NS_PER_S,
        kernels: settings.kernels,
        memory_bytes: settings.memory_bytes,
        guard: settings.guard,
        discard: settings.discard,
        read_only_outside: settings.sealed,
        overlays: of(Cover::Overlay),
        mounts: of(Cover::Memory),
        processes: 0,
        full: Vec::new(),
        region: known_by(work),
        nodes: if settings.nodes > 1 { settings.nodes } else { 0 },
        requests: 0,
        hosts: settings.hosts.clone(),
        root: settings.root,
        part_of: settings.part_of.clone(),
        note: None,
    }
}
