//! The supervisor's main loop: waits for the program, cleans up after processes that end, forwards
//! signals.
//!
//! ```text
//!   signal descriptor --+                    +-- child ended: reap, tell the image
//!                       +-- poll, 25 ms ---- +-- signal for us alone: send it on
//!   the tick -----------+                    +-- tick: `dead()` looks for killed grandchildren
//! ```
//!
//! Invariants
//! 1. The image is told of every death within 100 ms, whoever the parent was.
//! 2. When the program stops (Ctrl-Z) in our process group, or in one of its own that is in the
//!    terminal's foreground (`suspend` of a shell), so do we, by the same signal, and we take it
//!    along when we go on, so that a shell's job control sees one job. Without a terminal there is
//!    none: nobody but who stopped the program continues it, and nobody us.
//! 3. Nothing else ends the wait: a program that ignores SIGTERM is waited for.

use std::fs::File;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg};
use nix::sys::wait::WaitPidFlag;
use nix::unistd::{Pid, getpgid, getpgrp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait as wait_for_child};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::process::signals::{Event, Signals};

/// Between two looks for the dead nobody tells us about.
const TICK: Duration = Duration::from_millis(25);

/// How long a signal to the whole group may take to end the program before it is sent on.
const MOMENT: Duration = Duration::from_millis(30);

/// The terminal of this process.
const TERMINAL: &str = "/dev/tty";

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Exit(i32),
    /// The signal of this number ended it.
    Signal(i32),
}

/// What the watch tells the image.
pub trait Burial {
    /// A child has ended and was waited for.
    fn child(&mut self, pid: Pid);
    /// Time to look for the dead.
    fn tick(&mut self);
}

/// Waits until `program` has ended.
pub fn watch(program: Pid, signals: &Signals, burial: &mut impl Burial) -> End {
    loop {
        // Reap first: a child may have ended before its signal was blocked.
        if let Some(end) = reap(program, burial) {
            return end;
        }
        wait(signals);
        while let Some(event) = signals.next() {
            if let Event::Forward(signal) = event
                && let Some(end) = forward(program, signal, burial)
            {
                return end;
            }
        }
        burial.tick();
    }
}

/// Sends `signal` on. `kill(1)` to a process group (as `timeout` does) looks to us like one to us
/// alone: a program of our group may have it already, and is given a moment to end of it.
fn forward(program: Pid, signal: Signal, burial: &mut impl Burial) -> Option<End> {
    if getpgid(Some(program)) == Ok(getpgrp()) {
        sleep(MOMENT);
        if let Some(end) = reap(program, burial) {
            return Some(end);
        }
    }
    // It may be gone already; then the next reap ends the watch.
    let _ = kill(program, signal);
    None
}

fn wait(signals: &Signals) {
    let mut watched = [PollFd::from_borrowed_fd(signals.descriptor.as_fd(), PollFlags::IN)];
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    // An interrupted wait is as good as a tick.
    let _ = poll(&mut watched, Some(&tick));
}

fn reap(program: Pid, burial: &mut impl Burial) -> Option<End> {
    // Those whom another thread has seized (`aid`) are not its own.
    let own = WaitOptions::from_bits_retain(WaitPidFlag::__WNOTHREAD.bits() as u32);
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | own;
    loop {
        // Failed: there is no child.
        let (pid, status) = wait_for_child(options).ok().flatten()?;
        let pid = Pid::from_raw(pid.as_raw_pid());
        if status.stopped() {
            if let Some(signal) = status.stopping_signal().filter(|_| pid == program) {
                stop_along(program, signal);
            }
            continue;
        }
        burial.child(pid);
        if pid == program {
            let exited = status.exit_status().map(End::Exit);
            return exited.or(status.terminating_signal().map(End::Signal));
        }
    }
}

/// Invariant 2. A group of its own in the background is nobody's who waits at the terminal.
fn stop_along(program: Pid, signal: i32) {
    let Ok(terminal) = File::options().read(true).write(true).open(TERMINAL) else { return };
    let (Ok(group), own) = (getpgid(Some(program)), getpgrp()) else { return };
    if group == own {
        husk_host::end::stop_by(signal);
        let _ = kill(program, Signal::SIGCONT);
        return;
    }
    if !pass_foreground(&terminal, group, own) {
        return;
    }
    husk_host::end::stop_by(signal);
    // Continued in the background, we have nothing to pass on.
    pass_foreground(&terminal, own, group);
    let _ = killpg(group, Signal::SIGCONT);
}

/// Passes the foreground of the terminal on, if `from` has it.
fn pass_foreground(terminal: &File, from: Pid, to: Pid) -> bool {
    let raw = |group: Pid| rustix::process::Pid::from_raw(group.as_raw());
    let (Some(from), Some(to)) = (raw(from), raw(to)) else { return false };
    if tcgetpgrp(terminal) != Ok(from) {
        return false;
    }
    // Whoever is not in front is stopped otherwise.
    let blocked = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let passed = tcsetpgrp(terminal, to).is_ok();
    let _ = blocked.map(|mask| mask.thread_set_mask());
    passed
}
