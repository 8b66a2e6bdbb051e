//! `husk up`: a supervisor in the background.
//!
//! ```text
//!   husk up ARGUMENTS ── starts ──► husk supervise ARGUMENTS
//!        ◄── one answer on its standard output ──  then its own session, /dev/null and the log
//! ```
//!
//! Invariants
//! 1. Whatever can fail at the start fails before `husk up` ends, in one line of its own.
//! 2. The supervisor keeps nothing of its caller's: no descriptor, terminal, session or directory.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use husk_proto::image::Cover;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::descriptors::{inherited, loader};
use crate::failure::Failure;
use crate::named::message::{Status, VERSION};
use crate::named::place::{Held, Name, Place};
use crate::named::serve::{Made, Server};
use crate::request::{Request, Settings, reason};
use crate::say::{print, say};
use crate::variables::Variables;
use crate::work::{Work, ensure_able, lift_file_size_limit, take_signals};

/// The command as it was started, whatever has become of its file.
const SELF: &str = "/proc/self/exe";
const NS_PER_S: i64 = 1_000_000_000;
/// Longest answer of a supervisor that starts.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// The first number that is none of the standard descriptors.
const STANDARD_END: u32 = 3;

/// What a supervisor that was started says.
#[derive(Serialize, Deserialize)]
enum Begun {
    Up,
    Failed(Failure),
}

/// Makes image `name`; `arguments` are those of `husk up`, which its supervisor reads again.
pub fn up(name: &OsStr, arguments: &[OsString]) -> Result<(), Failure> {
    let name = Name::parse(name)?;
    let failed = |why: &str| {
        Failure::new(format!("cannot make image {name}"), why, "see `husk check`, and try again")
    };
    let mut supervisor = Command::new(SELF)
        .arg0("husk")
        .arg("supervise")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|problem| failed(&reason(&problem)))?;
    let mut text = Vec::new();
    if let Some(output) = supervisor.stdout.take() {
        // What could not be read is no answer.
        let _ = output.take(ANSWER_BYTES_MAX).read_to_end(&mut text);
    }
    match serde_json::from_slice(&text) {
        Ok(Begun::Up) => Ok(()),
        Ok(Begun::Failed(failure)) => Err(failure),
        Err(_) => {
            let end = supervisor.wait().map_or_else(|p| reason(&p), |status| status.to_string());
            Err(failed(&format!("its supervisor did not start: {end}")))
        }
    }
}

/// What `husk supervise` does: becomes the supervisor of a new image. Returns once it has ended.
pub fn supervise(name: &OsStr, request: Request, runtime: &[u8]) {
    let begun = part_from_caller().and_then(|()| begin(&Name::parse(name)?, request, runtime));
    let (server, told) = match begun {
        Ok(server) => (Some(server), Begun::Up),
        Err(failure) => (None, Begun::Failed(failure)),
    };
    let Some(server) = server else {
        // Whoever does not listen is not told.
        let _ = serde_json::to_string(&told).map(|text| print(&text));
        return;
    };
    let log = server.held.place.open_log();
    let told = serde_json::to_string(&told).map_err(io::Error::from).and_then(|text| print(&text));
    if told.is_err() || let_go(log).is_err() {
        // `husk up` has been killed: nobody knows of the image.
        let _ = server.held.remove();
        return;
    }
    server.serve();
}

/// Invariant 2, as far as answers are not concerned.
fn part_from_caller() -> Result<(), Failure> {
    let failed = |errno: rustix::io::Errno| {
        Failure::new("cannot part from the caller", reason(&errno.into()), "try again")
    };
    for number in inherited().into_iter().filter(|number| *number >= STANDARD_END) {
        // It was open a moment ago, and nobody else closes.
        let _ = nix::unistd::close(number as i32);
    }
    rustix::process::setsid().map(drop).map_err(failed)
}

/// The rest of it, once the answer is given.
fn let_go(log: io::Result<std::fs::File>) -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&log?)?;
    Ok(())
}

fn begin(name: &Name, request: Request, runtime: &[u8]) -> Result<Server, Failure> {
    let variables = Variables::read()?;
    ensure_able()?;
    let settings = request.settle()?;
    settings.notes.iter().for_each(|note| say(&format!("note: {note}")));
    let held = Place::take(name)?;
    match make(&held, &settings, &variables, runtime) {
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
    work.serve();
    let status = status(settings, &work);
    let facts = serde_json::to_string_pretty(&status).map_err(io::Error::from);
    let written = facts.and_then(|text| held.place.write("facts", &(text + "\n")));
    let listener = written.and_then(|()| held.place.listen()).map_err(|problem| {
        let what = format!("cannot make image {}", held.place.name);
        Failure::new(what, reason(&problem), "make room, or set XDG_RUNTIME_DIR")
    })?;
    // Nothing here holds a file system any more; all paths are absolute.
    let _ = std::env::set_current_dir("/");
    Ok(Made { work, loader, listener, signals, status, trap_only: variables.trap_only })
}

/// Each program that joins is watched by a descriptor.
fn lift_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Within the hard limit: cannot fail. If it did, ends of programs would be found by looking.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn status(settings: &Settings, work: &Work) -> Status {
    let of = |cover| {
        let mounts = settings.mounts.iter().filter(move |plan| plan.cover == cover);
        mounts.map(|plan| plan.path.to_string_lossy().into_owned()).collect()
    };
    Status {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        started_s: work.image.started_ns / NS_PER_S,
        kernels: settings.kernels,
        memory_bytes: settings.memory_bytes,
        guard: settings.guard,
        discard: settings.discard,
        overlays: of(Cover::Overlay),
        mounts: of(Cover::Memory),
        processes: 0,
    }
}
