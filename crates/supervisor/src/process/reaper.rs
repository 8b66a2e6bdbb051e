//! The supervisor's descendants, and how the remaining ones are ended.
//!
//! The supervisor is the subreaper of its image: a process that loses its parent becomes its child,
//! so that a walk from parent to child finds every process that was started in the image.

use std::collections::HashMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How long what outlives the program may take to end by itself, unasked: the rest of a pipeline.
pub const QUIET: Duration = Duration::from_millis(250);
/// Between hang-up and termination.
const HANGUP: Duration = Duration::from_millis(200);
/// Between termination and the kill.
const GRACE: Duration = Duration::from_secs(2);
/// Bound on waiting for what was killed.
const KILLED: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// Processes named in the line about them.
const NAMES_SHOWN_MAX: usize = 5;

/// All live descendants of a process.
pub fn descendants(of: u32) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut open = vec![of as i32];
    while let Some(parent) = open.pop() {
        for &child in children.get(&parent).map_or(&[][..], Vec::as_slice) {
            found.push(Pid::from_raw(child));
            open.push(child);
        }
    }
    found
}

/// (pid, parent) of every process that is no zombie.
fn processes() -> impl Iterator<Item = (i32, i32)> {
    let listing = fs::read_dir("/proc").into_iter().flatten().flatten();
    listing.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let (state, parent) = state_and_parent(pid)?;
        (state != "Z" && state != "X").then_some((pid, parent))
    })
}

/// State letter and parent of a process.
pub fn state_and_parent(pid: i32) -> Option<(String, i32)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name may hold spaces and brackets; what follows the last bracket may not.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Those who are to be ended.
pub trait Stragglers {
    /// Buries who has ended; whether nobody is left.
    fn none_left(&mut self) -> bool;
    /// Who is left.
    fn left(&mut self) -> Vec<Pid>;
}

/// All descendants of this process, which is their subreaper.
pub struct Descendants<F, G> {
    /// Told of each child that was waited for.
    pub buried: F,
    /// One that is none of the image's, and another thread's to wait for.
    pub guard: G,
}

impl<F: FnMut(Pid), G: Fn() -> Option<Pid>> Stragglers for Descendants<F, G> {
    fn none_left(&mut self) -> bool {
        bury(&mut self.buried)
    }

    fn left(&mut self) -> Vec<Pid> {
        let all = descendants(std::process::id()).into_iter();
        // Asked for once they are listed: it may have been started just now.
        let guard = (self.guard)();
        all.filter(|pid| Some(*pid) != guard).collect()
    }
}

/// The same but for those who work for other nodes: sessions whose leaders are named.
pub struct Programs<F> {
    /// Told of each child that was waited for.
    pub buried: F,
    /// Leaders of those sessions.
    pub aside: Vec<Pid>,
}

impl<F: FnMut(Pid)> Stragglers for Programs<F> {
    fn none_left(&mut self) -> bool {
        bury(&mut self.buried) || self.left().is_empty()
    }

    fn left(&mut self) -> Vec<Pid> {
        let works = |pid: &Pid| {
            nix::unistd::getsid(Some(*pid)).is_ok_and(|session| self.aside.contains(&session))
        };
        descendants(std::process::id()).into_iter().filter(|pid| !works(pid)).collect()
    }
}

/// Who is left when a moment has passed: the rest of a pipeline ends by itself.
fn after_a_moment(stragglers: &mut impl Stragglers) -> Vec<Pid> {
    if gone_within(QUIET, stragglers) { Vec::new() } else { stragglers.left() }
}

/// Ends who is left: waits a moment, then hangs up, terminates, kills. Returns who it was
/// and how they ended, if anybody had to be told.
pub fn end_stragglers(stragglers: &mut impl Stragglers) -> Option<(String, String)> {
    let left = after_a_moment(stragglers);
    if left.is_empty() {
        return None;
    }
    let told = names(&left);
    let steps = [(Signal::SIGHUP, HANGUP), (Signal::SIGTERM, GRACE), (Signal::SIGKILL, KILLED)];
    for (signal, patience) in steps {
        for pid in stragglers.left() {
            // It may have ended this moment.
            let _ = kill(pid, signal);
            // A stopped process takes no signal but this and the kill.
            let _ = kill(pid, Signal::SIGCONT);
        }
        if gone_within(patience, stragglers) {
            return Some((told, format!("ended with {signal}")));
        }
    }
    Some((told, "could not be killed".to_owned()))
}

fn gone_within(patience: Duration, stragglers: &mut impl Stragglers) -> bool {
    let end = Instant::now() + patience;
    loop {
        if stragglers.none_left() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        sleep(LOOK);
    }
}

/// Waits for all children that have ended. True: there is no other, and so no descendant either,
/// because orphans become our children.
fn bury(buried: &mut impl FnMut(Pid)) -> bool {
    loop {
        let own = WaitPidFlag::WNOHANG | WaitPidFlag::__WNOTHREAD;
        match waitpid(None, Some(own)) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => buried(pid),
            Ok(WaitStatus::StillAlive) => return false,
            Ok(_) => {}
            Err(problem) => return problem == Errno::ECHILD,
        }
    }
}

/// A few of them by name and number, and how many more there are.
pub fn names(pids: &[Pid]) -> String {
    let shown = pids.iter().take(NAMES_SHOWN_MAX).map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{} ({pid})", name.trim_end())
    });
    let shown: Vec<_> = shown.collect();
    match pids.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grandchild_is_a_descendant() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "sleep 20 & wait"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        // Other tests have processes of that name, too.
        let parent = child.id();
        let descendants = || descendants(parent);
        let is_sleep = |pid: &Pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        };
        let grandchild = loop {
            if let Some(&pid) = descendants().iter().find(|pid| is_sleep(pid)) {
                break pid;
            }
            assert!(Instant::now() < end, "the grandchild never appeared");
            sleep(LOOK);
        };
        kill(grandchild, Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!descendants().contains(&grandchild));
    }
}
