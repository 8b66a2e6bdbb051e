//! Programs that start often are linked once: what a process holds when its loader has linked
//! everything, and no function of a library has run yet, is recorded; later starts begin with that.
//!
//! ```text
//!   wish ─► husk record (a process of its own) ─► run twice, in two guises (`run`)
//!                                                   ─► linking changed no code (`objects`)
//!                                                   ─► what differs is explained (`compare`)
//!   region's file ◄─ `grant` ◄─ head and pages (`husk_proto::snapshot`) ◄─┘
//! ```
//!
//! Invariants
//! 1. What was the same in two starts that differ in arguments, environment, stack, randomness,
//!    clock and numbers depends on the files alone; what differs is explained, or it is refused.
//! 2. The files are those of both starts, and none has changed a moment before.

mod compare;
pub mod grant;
mod memory;
mod objects;
mod run;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use husk_proto::snapshot::{self, Facts, File, HEAD_BYTES_MAX, Source};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::alarm;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use run::{Guise, Recorded};

const PAGE: u64 = 4096;
/// Files must have been as they are for so long, ns: times of files are coarse.
const SETTLED_NS: u64 = 2_000_000_000;
/// How long a recording may take, s: it takes some milliseconds.
const RECORD_MAX_S: u32 = 5;
/// Most bytes of a recording.
pub const BYTES_MAX: usize = 4 << 20;

/// What is said in place of a recording of a program that may be recorded another time.
pub const LATER: &[u8] = b"later";
/// And of one that may not.
pub const NEVER: &[u8] = b"never";

/// Why a program is not recorded: it is started as before.
#[derive(Debug)]
pub struct Refusal {
    why: String,
    /// It may be otherwise soon.
    pub passes: bool,
}

impl Refusal {
    fn of(why: &str) -> Refusal {
        Refusal { why: why.to_owned(), passes: false }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<io::Error> for Refusal {
    fn from(problem: io::Error) -> Refusal {
        Refusal::of(&format!("it cannot be followed: {problem}"))
    }
}

impl From<nix::Error> for Refusal {
    fn from(problem: nix::Error) -> Refusal {
        Refusal::from(io::Error::from(problem))
    }
}

/// Records `program`, to lie at `low`: a head of one page, then the recorded ones.
pub fn record(program: &Path, low: u64) -> Result<Vec<u8>, Refusal> {
    // Whatever is waited for, and whoever asked: this process ends then.
    alarm::set(RECORD_MAX_S);
    stay_on_this_core();
    let one = Guise { called: "record", arguments: &[], environment: &[] };
    let two = Guise {
        called: "/a/program/recorded/again",
        arguments: &["one", "two"],
        environment: &[("ONE", "1"), ("HOME", "/nowhere"), ("THREE", "three")],
    };
    let (one, two) = (run::record(program, &one, low)?, run::record(program, &two, low)?);
    objects::check(&one)?;
    settled(&one)?;
    assemble(&one, &compare::compare(&one, &two)?)
}

/// A processor has numbers that differ from core to core.
fn stay_on_this_core() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let here = sched_getcpu();
    if allowed.is_set(here) {
        let mut only = CpuSet::new();
        only.set(here);
        // Where it is not allowed, the two recordings differ, and are refused.
        let _ = sched_setaffinity(None, &only);
    }
}

/// No file has changed a moment ago.
fn settled(recorded: &Recorded) -> Result<(), Refusal> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let last = recorded.noted.files.iter().map(|file| file.identity.changed_ns).max();
    let last = last.map_or(0, i64::cast_unsigned);
    let why = "one of its files has just changed".to_owned();
    match last {
        // The clock does not say when.
        last if last > now => Err(Refusal { why, passes: false }),
        last if last + SETTLED_NS > now => Err(Refusal { why, passes: true }),
        _ => Ok(()),
    }
}

fn assemble(recorded: &Recorded, state: &compare::State) -> Result<Vec<u8>, Refusal> {
    let opened = &recorded.noted.files;
    let lists = (opened.len(), state.areas.len(), state.fixups.len());
    let before = snapshot::words_before_paths(lists.0, lists.1, lists.2) * 8;
    let (mut files, mut paths) = (Vec::new(), Vec::new());
    for file in opened {
        files.push(File { identity: file.identity, path: (before + paths.len()) as u32 });
        paths.extend_from_slice(file.path.as_os_str().as_bytes());
        paths.push(0);
    }
    let mut bytes = Vec::new();
    let put = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    let lists = (&files[..], &state.areas[..], &state.fixups[..]);
    snapshot::write(&facts(recorded)?, lists, paths.len(), put);
    bytes.extend_from_slice(&paths);
    let whole = |source| !matches!(source, Source::File(index, _) if index as usize >= files.len());
    let known = state.areas.iter().all(|area| whole(area.source));
    let large = bytes.len() + 8 > HEAD_BYTES_MAX || state.pages.len() > BYTES_MAX - HEAD_BYTES_MAX;
    if large || !known {
        return Err(Refusal::of("it is too large, or rests on what is not a file"));
    }
    bytes.resize(HEAD_BYTES_MAX, 0);
    bytes.extend_from_slice(&state.pages);
    Ok(bytes)
}

fn facts(recorded: &Recorded) -> Result<Facts, Refusal> {
    let (noted, registers) = (&recorded.noted, &recorded.registers);
    Ok(Facts {
        begin: recorded.begin,
        entry: registers.rax,
        interpreter: noted.interpreter,
        headers: noted.headers[0],
        headers_count: noted.headers[1],
        thread: registers.fs_base,
        tid: noted.tid,
        robust: noted.robust,
        rseq: noted.rseq[0],
        rseq_shape: noted.rseq[1],
        stack_limit: getrlimit(Resource::RLIMIT_STACK)?.0,
    })
}

/// The start of a program that is about to be followed: waits for a word, then becomes it.
pub fn start(called: &OsStr, program: &Path, arguments: &[impl AsRef<OsStr>]) -> io::Error {
    let mut word = [0];
    if let Err(problem) = io::Read::read_exact(&mut io::stdin(), &mut word) {
        return problem;
    }
    Command::new(program).arg0(called).args(arguments).exec()
}
