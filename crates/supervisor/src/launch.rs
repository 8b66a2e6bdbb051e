//! Starts the first program of an image.
//!
//! ```text
//!   posix_spawn(/proc/self/fd/LOADER, argv, [HUSK_EXEC=..., environment...])
//! ```
//!
//! argv is the program's own, unchanged. `HUSK_EXEC` comes first in the environment: the runtime
//! takes it out again by moving what follows. The program gets the signal mask the supervisor was
//! started with, and SIGPIPE's default action, which Rust's start-up took away; of the standard
//! descriptors, those that the supervisor was started with.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use crate::failure::Failure;

/// Flag bits of the hand-over.
const GUARD: u32 = 1;
const INITIAL: u32 = 2;
const TRAP_ONLY: u32 = 4;

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
}

impl HandOver {
    fn entry(&self, typed: &OsStr) -> Vec<u8> {
        let flags = INITIAL
            | if self.guard { GUARD } else { 0 }
            | if self.trap_only { TRAP_ONLY } else { 0 };
        let Self { process, region, loader, .. } = self;
        let mut entry =
            format!("HUSK_EXEC=v1:{process:x}:{region}:{loader}:{flags:x}:").into_bytes();
        entry.extend_from_slice(typed.as_bytes());
        entry
    }
}

/// Starts `command` in the image.
pub fn in_image(command: &[OsString], hand_over: HandOver, mask: &SigSet) -> Result<Pid, Failure> {
    let entry = hand_over.entry(&command[0]);
    let path = format!("/proc/self/fd/{}", hand_over.loader);
    spawn(Path::new(&path), command, Some(entry), mask)
}

/// Starts `command` on the host, outside the image.
pub fn natively(path: &Path, command: &[OsString], mask: &SigSet) -> Result<Pid, Failure> {
    spawn(path, command, None, mask)
}

fn spawn(
    path: &Path,
    command: &[OsString],
    first: Option<Vec<u8>>,
    mask: &SigSet,
) -> Result<Pid, Failure> {
    let what = format!("cannot start {}", command[0].to_string_lossy());
    let refuse = |why: String| Failure::new(what.as_str(), why, "check the command");
    let inherited = std::env::vars_os().map(|(name, value)| {
        let mut entry = name.into_encoded_bytes();
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        entry
    });
    let environment = first.into_iter().chain(inherited);
    let environment = strings(environment).ok_or_else(|| refuse("a NUL byte".into()))?;
    let arguments = command.iter().map(|argument| argument.as_bytes().to_vec());
    let arguments = strings(arguments).ok_or_else(|| refuse("a NUL byte".into()))?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|p| refuse(p.to_string()))?;
    let spawned = attributes(mask).and_then(|attributes| {
        let mut actions = PosixSpawnFileActions::init()?;
        for closed in husk_host::early::closed_at_start() {
            actions.add_close(closed as i32)?;
        }
        posix_spawn(path.as_c_str(), &actions, &attributes, &arguments, &environment)
    });
    spawned.map_err(|errno| refuse(crate::request::reason(&errno.into())))
}

fn strings(parts: impl Iterator<Item = Vec<u8>>) -> Option<Vec<CString>> {
    parts.map(|part| CString::new(part).ok()).collect()
}

fn attributes(mask: &SigSet) -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(mask)?;
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_over_is_what_the_runtime_reads() {
        let hand_over =
            HandOver { process: 26, region: 1023, loader: 1022, guard: true, trap_only: false };
        assert_eq!(hand_over.entry(OsStr::new("make")), b"HUSK_EXEC=v1:1a:1023:1022:3:make");
        let trapped = HandOver { guard: false, trap_only: true, ..hand_over };
        assert_eq!(trapped.entry(OsStr::new("a:b")), b"HUSK_EXEC=v1:1a:1023:1022:6:a:b");
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
