//! A process that stands for a program on another host: it was the one that called exec, and keeps
//! its number, parent, group and terminal here.
//!
//! ```text
//!   runtime ── exec ──► shadow: job ─────────────► starter ─► the other host
//!                       signals ─────────────────►
//!                       its output ◄─────────────  written here, credit given back
//!                       its end ◄────────────────  and ours is the same
//! ```
//!
//! Its standard input is the connection to the starter: a program that reads its standard input is
//! not placed elsewhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::hosts::fingerprint;
use crate::hosts::program::job::{Fate, Job};
use crate::hosts::session::stream::{Kind, put, take};
use crate::output::failure::{STATUS_HUSK, STATUS_NOT_EXECUTABLE};
use crate::output::say;

/// How the runtime calls it.
pub const SHADOW: &str = "husk: shadow";
/// Words before those of the program: itself, the umask, the directory, the program.
const WORDS: usize = 4;
/// Signals that are passed on. The others do here what they do to any process.
const PASSED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGXCPU,
    Signal::SIGWINCH,
];

/// Is a shadow, if these are a shadow's words; its exit status.
pub fn at_a_glance(words: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut words = words.peekable();
    words.peek().filter(|first| *first == SHADOW)?;
    let words: Vec<_> = words.collect();
    Some(stand(&words).unwrap_or_else(|why| {
        say(&format!("cannot run a program on another host: {why}; run it with HUSK_NODE=0"));
        STATUS_HUSK
    }))
}

fn stand(words: &[OsString]) -> Result<u8, &'static str> {
    let unsound = "its message is not valid";
    let [_, umask, here, program, arguments @ ..] = words else { return Err(unsound) };
    debug_assert_eq!(words.len() - arguments.len(), WORDS);
    let umask = umask.to_str().and_then(|text| text.parse().ok()).ok_or(unsound)?;
    let environment = std::env::vars_os().map(|(name, value)| {
        let text = [name.into_vec(), value.into_vec()].join(&b'=');
        OsString::from_vec(text)
    });
    let job = Job {
        umask,
        is_one: husk_host::calls::are_one(1, 2),
        is_driver: fingerprint::is_driver(Path::new(program)),
        here: here.clone(),
        program: program.clone(),
        arguments: arguments.to_vec(),
        environment: environment.collect(),
    };
    let passed = passed();
    passed.thread_block().map_err(|_| "signals cannot be blocked")?;
    let socket = rustix::stdio::stdin().try_clone_to_owned().map_err(|_| "no descriptor")?;
    let mut from = UnixStream::from(socket);
    let lost = "its host is lost";
    // The runtime has bounded its waits.
    from.set_read_timeout(None).and_then(|()| from.set_write_timeout(None)).map_err(|_| lost)?;
    let mut to = from.try_clone().map_err(|_| lost)?;
    put(&mut to, Kind::Job, 0, &job.encode()).map_err(|_| lost)?;
    let mut signals = from.try_clone().map_err(|_| lost)?;
    thread::spawn(move || {
        while let Ok(signal) = passed.wait() {
            if put(&mut signals, Kind::Signal, 0, &[signal as u8]).is_err() {
                return;
            }
        }
    });
    Ok(end(relay(&mut from, &mut to)))
}

/// Those of `PASSED` that are not ignored: what ignores them there was told so by us.
fn passed() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    PASSED.into_iter().filter(|signal| ignored >> (*signal as i32 - 1) & 1 == 0).collect()
}

/// Writes what the program writes, until it has ended.
fn relay(from: &mut UnixStream, to: &mut UnixStream) -> Fate {
    let (mut output, mut errors) = (descriptor(1), descriptor(2));
    loop {
        let Ok(Some(frame)) = take(from) else { return Fate::Lost };
        let target = match frame.kind {
            Kind::Output => &mut output,
            Kind::Errors => &mut errors,
            Kind::Status => return Fate::decode(&frame.payload).unwrap_or(Fate::Lost),
            _ => return Fate::Lost,
        };
        let written = target.as_mut().map_or(Ok(()), |target| target.write_all(&frame.payload));
        if written.is_err_and(|why| why.kind() == io::ErrorKind::BrokenPipe) {
            // Nobody reads on: it is told as it would have been here.
            let _ = put(to, Kind::Signal, 0, &[Signal::SIGPIPE as u8]);
            *target = None;
        }
        let count = (frame.payload.len() as u32).to_le_bytes();
        // Who is gone is found at the next frame.
        let _ = put(to, Kind::Credit, 0, &count);
    }
}

fn descriptor(number: u32) -> Option<File> {
    let descriptor = match number {
        1 => rustix::stdio::stdout().try_clone_to_owned(),
        _ => rustix::stdio::stderr().try_clone_to_owned(),
    };
    descriptor.ok().map(File::from)
}

/// Ends as the program did.
fn end(fate: Fate) -> u8 {
    match fate {
        Fate::Exit(status) => status,
        Fate::Signal(signal) => {
            husk_host::end::end_by(signal.into());
            STATUS_NOT_EXECUTABLE
        }
        Fate::Unstarted(status) => status,
        Fate::Lost => {
            say("the host of this program is lost: it ends as killed; start it again");
            husk_host::end::end_by(Signal::SIGKILL as i32);
            STATUS_HUSK
        }
    }
}
