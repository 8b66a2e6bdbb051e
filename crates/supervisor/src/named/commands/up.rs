//! `husk up`: an image in the background.
//!
//! ```text
//!   husk up ARGUMENTS ── starts ──► husk keep ARGUMENTS ── starts ──► husk tend ARGUMENTS
//!        ◄────────────── one answer on its standard output ─────────────────'
//! ```
//!
//! The files of configuration are read here; what they say goes on as variables.
//!
//! Invariant: whatever can fail at the start fails before `husk up` ends, in one line of its own;
//! also that nothing happens at all.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::hosts;
use crate::named::keeper::half;
use crate::named::place::Name;
use crate::output::failure::Failure;
use crate::output::say;
use crate::process::reaper::descendants;
use crate::run::request::reason;

/// The command as it was started, whatever has become of its file.
pub const SELF: &str = "/proc/self/exe";
/// Longest answer of a supervisor that starts.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long an image may take to be made: a thousand times as long as it does.
pub const START_MAX: Duration = Duration::from_secs(60);

/// How long an image with these arguments may take: one with other hosts waits for them.
pub fn patience(arguments: &[OsString]) -> Duration {
    let on = |word: &OsString| word.as_encoded_bytes().starts_with(b"--on");
    if arguments.iter().any(on) { START_MAX + hosts::START_MAX } else { START_MAX }
}

/// What a supervisor that was started says.
#[derive(Serialize, Deserialize)]
pub enum Begun {
    /// It serves.
    Up,
    /// It has ended.
    Failed(Failure),
}

/// Makes image `name`; `arguments` are those of `husk up`, which its supervisor reads again.
pub fn up(name: &OsStr, arguments: &[OsString]) -> Result<(), Failure> {
    let name = Name::parse(name)?;
    let failed = |why: &str| {
        Failure::new(format!("cannot make image {name}"), why, "see `husk check`, and try again")
    };
    // What files say holds as long as the image lives, whatever becomes of them.
    let config = Config::load()?;
    config.notes().for_each(|note| say(&format!("note: {note}")));
    let said = config.variables();
    let unstarted = |problem: io::Error| failed(&reason(&problem));
    let (ours, theirs) = UnixStream::pair().map_err(unstarted)?;
    let mut command = half::command(&name, theirs);
    let started = command.envs(said).stdout(Stdio::piped()).spawn();
    drop(command);
    let mut keeper = started.map_err(unstarted)?;
    let words = [OsStr::new("keep")].into_iter().chain(arguments.iter().map(AsRef::as_ref));
    // One that does not take them does not answer.
    let _ = half::tell(&ours, words);
    let patience = patience(arguments);
    let Some(text) = answer(&mut keeper, patience) else {
        let why = format!("its supervisor did not start in {} s", patience.as_secs());
        return Err(failed(&why));
    };
    match serde_json::from_slice(&text) {
        Ok(Begun::Up) => Ok(()),
        Ok(Begun::Failed(failure)) => Err(failure),
        Err(_) => Err(failed("its supervisor was killed, or could not be started")),
    }
}

/// What the keeper, or the supervisor it starts, writes to standard output until that is closed.
/// `None`: nothing in time, as where they are stopped; they are killed then, with all they were
/// about to begin.
pub fn answer(keeper: &mut Child, patience: Duration) -> Option<Vec<u8>> {
    let end = Instant::now() + patience;
    let mut output = keeper.stdout.take()?;
    let mut text = Vec::new();
    while text.len() < ANSWER_BYTES_MAX {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut watched = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        match poll(&mut watched, Some(&left)) {
            Ok(0) => {
                kill_all(keeper);
                return None;
            }
            Err(rustix::io::Errno::INTR) => continue,
            _ => {}
        }
        let mut bytes = [0; 4096];
        match output.read(&mut bytes) {
            // What could not be read is no answer.
            Ok(0) | Err(_) => break,
            Ok(got) => text.extend_from_slice(&bytes[..got]),
        }
    }
    Some(text)
}

/// Kills the keeper, and the supervisor that it may have started.
fn kill_all(keeper: &mut Child) {
    let started = descendants(keeper.id());
    // Any of them may have ended this moment.
    let _ = keeper.kill();
    for pid in started {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::reaper::state_and_parent;
    use std::process::Command;

    /// What a shell as the keeper says within `patience`.
    fn said(script: &str, patience: Duration) -> (Option<Vec<u8>>, Child) {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().unwrap();
        (answer(&mut keeper, patience), keeper)
    }

    #[test]
    fn who_is_stopped_at_the_start_is_not_waited_for() {
        let (told, mut keeper) = said("echo $$; kill -STOP $$", Duration::from_millis(300));
        assert_eq!(told, None);
        assert!(!keeper.wait().unwrap().success());
        assert!(state_and_parent(keeper.id() as i32).is_none());
        let (told, mut keeper) = said("echo told", Duration::from_secs(60));
        assert_eq!(told.as_deref(), Some(&b"told\n"[..]));
        keeper.wait().unwrap();
    }
}
