//! Starts the first program of an image (`husk run`), or becomes a program of a running one
//! (`husk exec`).
//!
//! ```text
//!   posix_spawn | execve (/proc/self/fd/LOADER, argv, [HUSK_EXEC=..., environment...])
//! ```
//!
//! argv is the program's own, unchanged. `HUSK_EXEC` comes first in the environment: the runtime
//! takes it out again by moving what follows. The program gets the signal mask the supervisor was
//! started with, and SIGPIPE's default action, which Rust's start-up took away; of the standard
//! descriptors, those that the supervisor was started with.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use husk_proto::place::Policy;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, execve};

use crate::output::failure::Failure;

/// Flag bits of the hand-over.
const GUARD: u32 = 1;
const INITIAL: u32 = 2;
const TRAP_ONLY: u32 = 4;
const JOINS: u32 = 128;
/// Where in a hand-over the policy of an option lies.
pub const PLACE_SHIFT: u32 = 8;
/// Its bits.
pub const PLACE_MASK: u32 = 7;
/// What an option takes the place of.
const PLACE: &str = "HUSK_PLACE";

/// What the runtime is told in `HUSK_EXEC`.
#[derive(Debug, Clone, Copy)]
pub struct HandOver {
    /// Process record.
    pub process: u32,
    /// Number of the region's descriptor.
    pub region: i32,
    /// Number of the loader's descriptor.
    pub loader: i32,
    /// Protection key wanted.
    pub guard: bool,
    /// Rewritten copies not wanted.
    pub trap_only: bool,
    /// Nobody's child: it joins an image that lives on without it.
    pub joins: bool,
    /// How it and all that it starts are placed, where an option says so.
    pub place: Option<Policy>,
}

impl HandOver {
    fn entry(&self, typed: &OsStr) -> Vec<u8> {
        let flags = INITIAL
            | if self.guard { GUARD } else { 0 }
            | if self.trap_only { TRAP_ONLY } else { 0 }
            | if self.joins { JOINS } else { 0 }
            | self.place.map_or(0, |policy| (policy as u32 + 1) << PLACE_SHIFT);
        let Self { process, region, loader, .. } = self;
        let mut entry =
            format!("HUSK_EXEC=v1:{process:x}:{region}:{loader}:{flags:x}:").into_bytes();
        entry.extend_from_slice(typed.as_bytes());
        entry
    }
}

/// Starts `command` in the image.
pub fn in_image(command: &[OsString], hand_over: HandOver, mask: &SigSet) -> Result<Pid, Failure> {
    let entry = (hand_over.entry(&command[0]), hand_over.place.is_some());
    let path = format!("/proc/self/fd/{}", hand_over.loader);
    spawn(Path::new(&path), command, Some(entry), mask)
}

/// Starts `command` on the host, outside the image.
pub fn natively(path: &Path, command: &[OsString], mask: &SigSet) -> Result<Pid, Failure> {
    spawn(path, command, None, mask)
}

/// Starts a shell's script that reads `input` and writes to `terminal`.
pub fn shown_by(
    script: &[OsString],
    input: BorrowedFd<'_>,
    terminal: BorrowedFd<'_>,
    mask: &SigSet,
) -> io::Result<Pid> {
    let unstarted = |failure: Failure| io::Error::other(failure.why);
    let start = Start::new(Path::new("/bin/sh"), script, None).map_err(unstarted)?;
    let mut actions = PosixSpawnFileActions::init()?;
    for (from, to) in [(input, 0), (terminal, 1), (terminal, 2)] {
        actions.add_dup2(from.as_raw_fd(), to)?;
    }
    let attributes = attributes(mask)?;
    let Start { path, arguments, environment } = &start;
    let spawned = posix_spawn(path.as_c_str(), &actions, &attributes, arguments, environment);
    Ok(spawned?)
}

/// Becomes `command`, a program of the image: this process executes the runtime, as its caller
/// would have executed the command, with its descriptors, signals and limits.
/// It finds `shown` in place of what it was called by.
pub fn become_program(
    command: &[OsString],
    shown: Option<&OsStr>,
    hand_over: HandOver,
) -> Result<Infallible, Failure> {
    let loader = format!("/proc/self/fd/{}", hand_over.loader);
    let first = Some((hand_over.entry(&command[0]), hand_over.place.is_some()));
    let mut start = Start::new(Path::new(&loader), command, first)?;
    if let Some(Ok(shown)) = shown.map(|shown| CString::new(shown.as_bytes())) {
        start.arguments[0] = shown;
    }
    for closed in husk_host::early::closed_at_start() {
        // `/dev/null`, which nobody asked for.
        let _ = nix::unistd::close(closed as i32);
    }
    husk_host::early::restore_sigpipe();
    let Err(errno) = crate::run::umask::with_callers(|| {
        execve(&start.path, &start.arguments, &start.environment)
    });
    Err(refuse(command, &crate::run::request::reason(&errno.into())))
}

/// What a start needs.
struct Start {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Start {
    /// `first` stands before the environment; with it, whether an option says how to place.
    fn new(
        path: &Path,
        command: &[OsString],
        first: Option<(Vec<u8>, bool)>,
    ) -> Result<Start, Failure> {
        let (first, placed) = first.map_or((None, false), |(entry, placed)| (Some(entry), placed));
        let inherited = std::env::vars_os().filter(|(name, _)| !(placed && name == PLACE)).map(
            |(name, value)| {
                let mut entry = name.into_encoded_bytes();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                entry
            },
        );
        let nul = || refuse(command, "a NUL byte");
        let environment = strings(first.into_iter().chain(inherited)).ok_or_else(nul)?;
        let arguments = command.iter().map(|argument| argument.as_bytes().to_vec());
        let arguments = strings(arguments).ok_or_else(nul)?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| nul())?;
        Ok(Start { path, arguments, environment })
    }
}

fn refuse(command: &[OsString], why: &str) -> Failure {
    let what = format!("cannot start {}", command[0].to_string_lossy());
    Failure::new(what, why, "check the command")
}

fn spawn(
    path: &Path,
    command: &[OsString],
    first: Option<(Vec<u8>, bool)>,
    mask: &SigSet,
) -> Result<Pid, Failure> {
    let start = Start::new(path, command, first)?;
    let spawned = attributes(mask).and_then(|attributes| {
        let mut actions = PosixSpawnFileActions::init()?;
        for closed in husk_host::early::closed_at_start() {
            actions.add_close(closed as i32)?;
        }
        let Start { path, arguments, environment } = &start;
        crate::run::umask::with_callers(|| {
            posix_spawn(path.as_c_str(), &actions, &attributes, arguments, environment)
        })
    });
    spawned.map_err(|errno| refuse(command, &crate::run::request::reason(&errno.into())))
}

fn strings(parts: impl Iterator<Item = Vec<u8>>) -> Option<Vec<CString>> {
    parts.map(|part| CString::new(part).ok()).collect()
}

fn attributes(mask: &SigSet) -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(mask)?;
    // Rust has it ignored.
    if !husk_host::early::sigpipe_was_ignored() {
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    }
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_runtime::handover::{self, Handover};

    /// What the runtime reads of a hand-over and a command.
    fn read(hand_over: HandOver, typed: &str) -> (Handover, String) {
        let entry = hand_over.entry(OsStr::new(typed));
        let (read, at) = Handover::parse(&entry).expect("a hand-over");
        (read, String::from_utf8_lossy(&entry[at..]).into_owned())
    }

    #[test]
    fn the_hand_over_is_what_the_runtime_reads() {
        let (process, region, loader) = (26, 1023, 1022);
        for n in 0..8 {
            let (guard, trap_only, joins) = (n & 1 != 0, n & 2 != 0, n & 4 != 0);
            for place in [None, Some(Policy::Host), Some(Policy::Random)] {
                let hand_over =
                    HandOver { process, region, loader, guard, trap_only, joins, place };
                let (read, command) = read(hand_over, "a:b");
                assert_eq!((read.process, read.region_fd, read.loader_fd), (26, 1023, 1022));
                let has = |flag| read.flags & flag != 0;
                assert_eq!([has(handover::GUARD), has(handover::PLAIN)], [guard, trap_only]);
                assert_eq!([has(handover::JOINS), has(handover::INITIAL)], [joins, true]);
                let policy = handover::place_of(read.flags);
                assert_eq!(policy, place.map(|policy| policy as u32));
                assert_eq!(command, "a:b");
            }
        }
    }

    #[test]
    fn a_native_program_gets_arguments_and_the_given_mask() {
        // No shell in between: shells change their mask.
        let command = ["grep", "-q", "^SigBlk:\t0*200$", "/proc/self/status"].map(OsString::from);
        let mask = SigSet::from(Signal::SIGUSR1);
        let pid = natively(Path::new("/bin/grep"), &command, &mask).unwrap();
        let ended = nix::sys::wait::waitpid(pid, None).unwrap();
        assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(pid, 0));
    }
}
