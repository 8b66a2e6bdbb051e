//! `rt_sigaction`: answered here where the record of an action is known to be all there is to it.
//!
//! ```text
//!   exec ─► all default? the hand-over says so ─► every record is known
//!   call ─► alone, record known? ─ a question, or default stays default ─► the record
//!                    └─ else ─► the host ─► default or ignored now? the record is known
//! ```
//!
//! The child of a `posix_spawn` asks for each of 64 actions and sets most of them to what they are.
//!
//! Invariants
//! 1. A record is known only while the host's action is the same, default or ignored. What the
//!    application catches is not: the host may have reset it (`SA_RESETHAND`).
//! 2. Records are trusted, and become known, only while the process has one thread and shares its
//!    handlers with nobody: from before the host is asked. Whoever has company makes unknown what
//!    it changes, before it does.
//! 3. What the host does besides storing the action, the host does: it throws pending signals away
//!    when they are ignored from now on, be it by default.

use crate::frame::{Answer, Frame};
use crate::memory;
use crate::signal;
use crate::stubs;
use crate::thread::actions::{
    HostAction, IDLE, SA_RESTORER, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGKILL, SIGSTOP, alone, bit, kept,
};
use crate::thread::{Group, SIGNALS, Thread};
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::Errno;

/// Flags that Linux keeps: all but those it does not know.
const FLAGS: u64 = 0xdc00_0807;

/// Signals that glibc keeps for itself (SIGCANCEL, SIGSETXID).
const SPAWNERS: [usize; 2] = [32, 33];

/// Asks the host for all actions, in the first program of an image or the first that joins it:
/// its children would each ask otherwise. The two signals of the C library that the supervisor's
/// `posix_spawn` ignores in its child (`spawned`) are default again.
#[cold]
pub fn learn(group: &Group, spawned: bool) {
    for signal in (1..=SIGNALS).filter(|&signal| !kept(signal) && !group.known.has(signal)) {
        let mut found = HostAction::default();
        let asked = if spawned && SPAWNERS.contains(&signal) {
            signal::host_action(signal, (&raw const found) as usize, 0) == 0
        } else {
            signal::host_action(signal, 0, (&raw mut found) as usize) == 0
        };
        if asked && found.handler <= SIG_IGN {
            group.actions[signal].store(&found);
            group.known.signals.fetch_or(bit(signal), Relaxed);
        }
    }
}

/// The same before the first child or exec of a program that has joined. What it catches is not
/// known by that, and who has company learns nothing (invariant 2).
pub fn learn_late(group: &Group) {
    // A store would cost every fork a copy of the page.
    if alone(group) && group.known.owed.load(Relaxed) {
        group.known.owed.store(false, Relaxed);
        learn(group, false);
    }
}

/// Whether the program of an exec finds every action default, as far as is known here.
pub fn all_default_after_exec(group: &Group) -> bool {
    let default = |signal: usize| match group.actions[signal].handler.load(Relaxed) {
        SIG_DFL => kept(signal) || group.known.has(signal),
        SIG_IGN => false,
        _ => true,
    };
    let fixed = |signal: usize| signal == SIGKILL || signal == SIGSTOP;
    alone(group) && (1..=SIGNALS).all(|signal| fixed(signal) || default(signal))
}

/// `rt_sigaction` of the application.
#[inline(never)]
pub fn sigaction(thread: &Thread, frame: &Frame) -> Answer {
    Answer::value(match try_sigaction(thread.group(), frame.args) {
        Ok(()) => 0,
        Err(errno) => errno.as_return(),
    })
}

fn try_sigaction(group: &Group, args: [usize; 6]) -> Result<(), Errno> {
    let (signal, new_at, old_at, size) = (args[0] as u32 as usize, args[1], args[2], args[3]);
    let fixed = signal == SIGKILL || signal == SIGSTOP;
    if size != 8 || signal == 0 || signal > SIGNALS || (fixed && new_at != 0) {
        return Err(Errno::EINVAL);
    }
    let before = group.actions[signal].load();
    let mut asked = None;
    if new_at != 0 {
        let mut action = HostAction::default();
        memory::read_value(new_at, &mut action)?;
        action.flags &= FLAGS;
        action.mask &= !(bit(SIGKILL) | bit(SIGSTOP));
        asked = Some(action);
    }
    let old = if answered_here(group, signal, &before, asked.as_ref()) {
        if let Some(action) = &asked {
            group.actions[signal].store(action);
        }
        before
    } else {
        at_the_host(group, signal, &before, asked.as_ref())?
    };
    if old_at != 0 {
        memory::write_value(old_at, &old)?;
    }
    Ok(())
}

/// Whether the host need not hear of it (invariants 2 and 3).
fn answered_here(
    group: &Group,
    signal: usize,
    before: &HostAction,
    asked: Option<&HostAction>,
) -> bool {
    let stays = |new: &HostAction| {
        new.handler == SIG_DFL && before.handler == SIG_DFL && IDLE & bit(signal) == 0
    };
    group.known.has(signal) && !kept(signal) && alone(group) && asked.is_none_or(stays)
}

/// Sets or asks; the action before as the application set it.
fn at_the_host(
    group: &Group,
    signal: usize,
    before: &HostAction,
    asked: Option<&HostAction>,
) -> Result<HostAction, Errno> {
    let action = &group.actions[signal];
    // Who has company now may hear an answer that the other makes stale, and then ends.
    let alone = alone(group);
    let known = group.known.has(signal) && alone;
    if let Some(asked) = asked {
        group.known.signals.fetch_and(!bit(signal), Relaxed);
        action.store(asked);
    }
    let host = asked.map(|asked| signal::wrapped(signal, asked));
    let host_at = host.as_ref().map_or(0, |host| core::ptr::from_ref(host) as usize);
    let mut old = HostAction::default();
    Errno::check(signal::host_action(signal, host_at, (&raw mut old) as usize))?;
    let old = if known { *before } else { seen(signal, before, &old) };
    let now = asked.unwrap_or(&old);
    if now.handler <= SIG_IGN && !kept(signal) && alone {
        action.store(now);
        group.known.signals.fetch_or(bit(signal), Relaxed);
    }
    Ok(old)
}

/// The old action as the application set it, whatever stands at the host.
fn seen(signal: usize, asked: &HostAction, host: &HostAction) -> HostAction {
    const OURS: u64 = SA_SIGINFO | SA_RESTORER;
    if kept(signal) {
        return *asked;
    }
    if host.restorer != stubs::husk_restorer as *const () as u64 {
        return *host;
    }
    let caught = host.handler == stubs::husk_on_signal as *const () as u64;
    HostAction {
        handler: if caught { asked.handler } else { host.handler },
        flags: host.flags & !OURS | asked.flags & OURS,
        restorer: asked.restorer,
        mask: asked.mask,
    }
}
