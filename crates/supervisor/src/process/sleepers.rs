//! Whoever sleeps in an epoll set, or in `poll`, is woken for bytes in a ring, though the writer
//! was killed right after it had written them (`docs/adr/0059`, `0109`).
//!
//! ```text
//!   a process has ended ──► who sleeps beside bytes? ── the same a little later? ──► a bell
//!   bell   of a set: an eventfd of ours there at the host, told once; closed at a later tick
//!          of a thread in `poll`: its own
//! ```
//!
//! A bell that nobody needed costs the sleeper one look at its rings.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::Overview as _;
use husk_proto::epoll::{BELL, Sleeper, bell_parts};
use rustix::event::epoll::{EventData, EventFlags, add};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// How long a living writer may take between its bytes and the wake-up.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a bell is kept: the sleeper needs it until it runs.
const RINGS: Duration = Duration::from_secs(2);
/// Bells at a time.
const BELLS_MAX: usize = 64;

/// Who was seen asleep beside bytes after a death, and the bells that ring.
#[derive(Default)]
pub struct Sleepers {
    seen: Vec<(Sleeper, Instant)>,
    bells: Vec<(OwnedFd, Instant)>,
}

impl Sleepers {
    /// Somebody has died.
    pub fn look(&mut self, direct: &Direct) {
        let now = Instant::now();
        direct.each_beside_bytes(&mut |sleeper| {
            if self.seen.len() < BELLS_MAX && self.seen.iter().all(|(known, _)| *known != sleeper) {
                self.seen.push((sleeper, now));
            }
        });
    }

    /// Wakes those who sleep there still.
    pub fn tick(&mut self, direct: &Direct) {
        self.bells.retain(|(_, since)| since.elapsed() < RINGS);
        if self.seen.iter().all(|(_, since)| since.elapsed() < PATIENCE) {
            return;
        }
        let mut still = Vec::new();
        direct.each_beside_bytes(&mut |sleeper| still.push(sleeper));
        self.seen.retain(|(sleeper, _)| still.contains(sleeper));
        for (sleeper, _) in self.seen.extract_if(.., |(_, since)| since.elapsed() >= PATIENCE) {
            // Who cannot be reached may be gone; what else there is is found at the next death.
            match sleeper {
                Sleeper::Set { pid, fd, .. } => {
                    if let Ok(bell) = ring(pid, fd) {
                        self.bells.push((bell, Instant::now()));
                    }
                }
                Sleeper::Poll { bell, .. } => drop(ring_own(bell)),
            }
        }
    }
}

/// Descriptor `fd` of process `pid`.
fn borrow(pid: u32, fd: u32) -> Result<OwnedFd> {
    let number = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
    let process = pidfd_open(number, PidfdFlags::empty())?;
    pidfd_getfd(&process, fd as i32, PidfdGetfdFlags::empty())
}

/// Rings the bell that a word names, if its number is still that eventfd's.
fn ring_own(bell: u64) -> Result<()> {
    let (pid, fd, id) = bell_parts(bell);
    let bell = borrow(pid, fd)?;
    let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", bell.as_raw_fd()));
    let shown = shown.unwrap_or_default();
    let line = shown.lines().find_map(|line| line.strip_prefix("eventfd-id:"));
    if line.and_then(|line| line.trim().parse().ok()) != Some(id) {
        return Err(Errno::SRCH);
    }
    rustix::io::write(&bell, &1u64.to_ne_bytes()).map(|_| ())
}

/// Puts a bell that rings into set `fd` of process `pid`. It goes from there when it is closed.
fn ring(pid: u32, fd: u32) -> Result<OwnedFd> {
    let set = borrow(pid, fd)?;
    let bell = eventfd(1, EventfdFlags::CLOEXEC)?;
    add(&set, &bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ONESHOT)?;
    Ok(bell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_proto::epoll::bell_word;
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{CreateFlags, Event, create, wait};

    #[test]
    fn a_bell_wakes_the_sleeper_of_a_set_once_and_leaves_nothing_there() {
        let set = create(CreateFlags::CLOEXEC).unwrap();
        let told = |ms: i64| {
            let time = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: 0 };
            let mut events: Vec<Event> = Vec::with_capacity(4);
            wait(&set, spare_capacity(&mut events), Some(&time)).unwrap();
            events.iter().map(|event| event.data.u64()).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| told(20_000));
            let bell = ring(std::process::id(), set.as_raw_fd() as u32).unwrap();
            assert_eq!(sleeper.join().unwrap(), [BELL]);
            assert!(told(0).is_empty(), "it rings once");
            drop(bell);
        });
        assert!(told(0).is_empty());
    }

    #[test]
    fn the_bell_of_a_poll_is_rung_only_if_it_is_that_eventfd() {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", bell.as_raw_fd()));
        let shown = shown.unwrap();
        let id = shown.lines().find_map(|line| line.strip_prefix("eventfd-id:")).unwrap();
        let id: u64 = id.trim().parse().unwrap();
        let word = |id| bell_word(std::process::id(), bell.as_raw_fd() as u32, id).unwrap();
        assert!(ring_own(word(id + 1)).is_err());
        let mut count = [0; 8];
        assert!(rustix::io::read(&bell, &mut count).is_err(), "another one's number");
        ring_own(word(id)).unwrap();
        assert_eq!(rustix::io::read(&bell, &mut count), Ok(8));
    }

    #[test]
    fn a_bell_for_what_is_no_set_is_an_error() {
        assert!(ring(std::process::id(), 0).is_err());
        assert!(ring(0, 0).is_err());
        assert!(ring_own(bell_word(std::process::id(), 0, 1).unwrap()).is_err());
    }
}
