//! Signals: the application's handlers run exactly as on Linux, except never during a service.
//!
//! The host's handler of every signal the application catches is `husk_on_signal`, installed with
//! the application's own flags and mask, so nesting, `SA_NODEFER`, `SA_RESETHAND`, `SA_ONSTACK`
//! and `SA_RESTART` are the host's business, but for signals that it has delivered too early. The
//! wrapper only decides: now, or after the service, or in another thread (`redirect`).
//!
//! Invariants
//! 1. Deferring = the signal is blocked in the interrupted context, noted in `deferred`, and sent
//!    to this thread again with its siginfo; leaving the service unblocks it.
//! 2. Handlers are jumped to with the host's frame as it is, so unwinders see nothing of us.
//! 3. A handler that is due is not begun before one that came first: frames that the host has put
//!    over each other keep what their actions block, whatever is unblocked (`unblock_below`).
//! 4. SIGSYS, SIGSEGV, SIGBUS and SIGILL keep our handler whatever the application sets (`fault`),
//!    and are in no mask the host gets: a blocked fault would end the process, and ours are answers
//!    (a call that traps, a bad pointer, the guard).

pub(crate) mod fault;
pub(crate) mod masks;
pub(crate) mod redirect;
pub(crate) mod retry;
pub(crate) mod sigaction;

use crate::dump;
use crate::facts::facts;
use crate::frame::{Detour, THEN_AFTER, THEN_AGAIN, THEN_BITS, THEN_TRACED_AGAIN};
use crate::memory::guard;
use crate::stubs;
use crate::thread::actions::{
    HostAction, IDLE, KEPT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER,
    SA_SIGINFO, SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_UNBLOCK, SIGBUS, SIGILL, SIGKILL, SIGSEGV, SIGSYS,
    bit, kept,
};
use crate::thread::context::{Context, Register};
use crate::thread::{SIGNALS, Thread};
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use husk_abi::{Errno, nr};
use husk_client::After;
use husk_host::syscall;
use husk_runtime::handover;

/// Frames of handlers that have not begun which are looked at, one over the other: each blocks its
/// signal, but for those with `SA_NODEFER`.
const STACKED_MAX: usize = 128;

/// Changes of one action by other threads that are followed while it is set again.
const CHANGES_MAX: usize = 100;

/// Changes this thread's host mask; returns the old one.
pub fn change_mask(how: usize, set: u64) -> u64 {
    let mut old = 0u64;
    let args = [how, (&raw const set) as usize, (&raw mut old) as usize, 8, 0, 0];
    // SAFETY: both words live here.
    unsafe { syscall(nr::rt_sigprocmask, args) };
    old
}

/// Sends `signal` to this thread once more, as `info` describes it.
pub fn requeue(signal: usize, info: usize) {
    // SAFETY: getpid and gettid touch no memory; `info` is the handler's own siginfo.
    unsafe {
        let pid = syscall(nr::getpid, [0; 6]) as usize;
        let tid = syscall(nr::gettid, [0; 6]) as usize;
        syscall(nr::rt_tgsigqueueinfo, [pid, tid, signal, info, 0, 0]);
    }
}

/// Blocks `signal` in the interrupted context until the service ends (invariant 1), and from now
/// on: one with `SA_NODEFER` would come back to the very wrapper that defers it.
pub fn defer(thread: &Thread, signal: usize, info: usize, context: Context) {
    thread.deferred.fetch_or(bit(signal), Relaxed);
    context.set_mask(context.mask() | thread.deferred.load(Relaxed));
    change_mask(SIG_BLOCK, bit(signal));
    catch_again(thread, signal);
    requeue(signal, info);
}

/// What comes once (`SA_RESETHAND`) has not come yet where it is deferred, but the host has made
/// its action default: it gets its handler back, unless the application asks for another by then.
fn catch_again(thread: &Thread, signal: usize) {
    let flags = thread.group().actions[signal & SIGNALS_MASK].load().flags;
    if !kept(signal) && flags & SA_RESETHAND != 0 {
        install_asked(thread, signal);
    }
}

/// Gives the host the action that the application has asked for, also if another thread asks for
/// another one meanwhile.
fn install_asked(thread: &Thread, signal: usize) {
    let asked = &thread.group().actions[signal & SIGNALS_MASK];
    let mut action = asked.load();
    for _ in 0..CHANGES_MAX {
        let host = wrapped(signal, &action);
        host_action(signal, (&raw const host) as usize, 0);
        let now = asked.load();
        if now == action {
            return;
        }
        action = now;
    }
}

/// The wrapper: the address of the handler to jump to, or 0. `deferred` is the thread's, which has
/// none now.
pub extern "C" fn on_signal(signal: usize, info: usize, context: usize, deferred: u64) -> u64 {
    let thread = Thread::current();
    let context = Context(context);
    redirect::unmark(info);
    if thread.hands_over.load(Relaxed) {
        thread.deferred.fetch_or(deferred, Relaxed);
        act_by_default(thread, signal, info);
        return 0;
    }
    let action = thread.group().actions[signal & SIGNALS_MASK].load();
    let once = action.flags & SA_RESETHAND != 0;
    if thread.in_service == 0 && dump_due(thread, &action, signal) {
        deliver(thread, &action, signal, context, deferred);
        return dump::handler();
    }
    let is_ours = thread.in_service != 0 || action.handler <= SIG_IGN;
    if is_ours || !once && redirect::leave(thread, signal, info, context) {
        thread.deferred.fetch_or(deferred, Relaxed);
        if thread.in_service != 0 {
            defer(thread, signal, info, context);
        } else if action.handler == SIG_DFL {
            // Another thread has just changed the action: the host knows the right one by now.
            requeue(signal, info);
        }
        if thread.in_service == 0 {
            // The handler of another signal may have run over this frame.
            retry::look_again(context);
        }
        return 0;
    }
    deliver(thread, &action, signal, context, deferred);
    action.handler
}

/// A signal that ends the program with a core has come, and its action is still the default one.
fn dump_due(thread: &Thread, action: &HostAction, signal: usize) -> bool {
    action.handler == SIG_DFL && dump::is_due(thread, signal)
}

const SIGNALS_MASK: usize = 2 * SIGNALS - 1;

/// What a handler that runs now must find: earlier deferrals undone, a sleep restarted.
pub fn deliver(
    thread: &Thread,
    action: &HostAction,
    signal: usize,
    context: Context,
    deferred: u64,
) {
    guard::show();
    thread.handler_at.fetch_max(context.0, Relaxed);
    if let Some([start, bytes]) = context.signal_stack() {
        thread.signal_stack[0].store(start, Relaxed);
        thread.signal_stack[1].store(bytes, Relaxed);
    }
    if deferred != 0 {
        let keep = unblock_below(thread, context, deferred, 0) | blocked_by(action, signal);
        change_mask(SIG_UNBLOCK, deferred & !keep);
    }
    restart_sleep(action, context);
    retry::look_again(context);
}

/// What is blocked while a handler runs.
fn blocked_by(action: &HostAction, signal: usize) -> u64 {
    let own = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
    action.mask | own
}

/// Unblocks what was deferred in `context` and in those of the handlers below it that are due and
/// have not begun; returns what these block (invariant 3).
fn unblock_below(thread: &Thread, context: Context, deferred: u64, depth: usize) -> u64 {
    let mut held = 0;
    if stubs::begins_handler(context.get(Register::Rip)) && depth < STACKED_MAX {
        let signal = context.get(Register::Rdi) & SIGNALS_MASK;
        let below = Context(context.get(Register::Rdx));
        held = unblock_below(thread, below, deferred, depth + 1);
        held |= blocked_by(&thread.group().actions[signal].load(), signal);
    }
    context.set_mask(context.mask() & !(deferred & !held));
    held
}

/// A sleep inside a `Detour` that goes on again after a handler with `SA_RESTART`.
fn restart_sleep(action: &HostAction, context: Context) {
    const EINTR: usize = Errno::EINTR.as_return() as usize;
    let done = [
        stubs::husk_detour_done as *const () as usize,
        stubs::husk_detour_asked as *const () as usize,
    ];
    if !done.contains(&context.get(Register::Rip)) || context.get(Register::Rax) != EINTR {
        return;
    }
    // SAFETY: at these addresses rsp points to the Detour the thread sleeps in.
    let detour = unsafe { &*(context.get(Register::Rsp) as *const Detour) };
    let kind = detour.then & ((1 << THEN_BITS) - 1);
    let reads = kind == THEN_AFTER && After::is_sleeping_read(detour.reason as u32);
    let again = reads || matches!(kind, THEN_AGAIN | THEN_TRACED_AGAIN);
    if again && action.flags & SA_RESTART != 0 {
        context.set(Register::Rax, 0);
    }
}

pub fn host_action(signal: usize, new: usize, old: usize) -> i64 {
    // SAFETY: both are null or addresses of `HostAction`s of our callers.
    unsafe { syscall(nr::rt_sigaction, [signal, new, old, 8, 0, 0]) as i64 }
}

/// The host's view of an action that the application catches.
pub fn wrapped(signal: usize, asked: &HostAction) -> HostAction {
    if kept(signal) {
        return kept_action(signal, asked);
    }
    let dumps = asked.handler == SIG_DFL && dump::concerns(signal);
    if asked.handler <= SIG_IGN && !dumps {
        return HostAction { mask: asked.mask & !KEPT, ..*asked };
    }
    HostAction {
        handler: stubs::husk_on_signal as *const () as u64,
        flags: asked.flags | SA_SIGINFO | SA_RESTORER,
        restorer: stubs::husk_restorer as *const () as u64,
        mask: asked.mask & !KEPT,
    }
}

/// Invariant 4: ours always; the application's wishes about stack, mask and restart apply.
fn kept_action(signal: usize, asked: &HostAction) -> HostAction {
    let caught = asked.handler > SIG_IGN;
    // A handler of the program's may begin over ours, and a fault of it is answered, too: an
    // untouched page, a bad pointer, the guard.
    let (mut flags, mut mask) = (SA_ONSTACK | SA_NODEFER, 0);
    if caught {
        flags = asked.flags & !SA_RESETHAND | SA_NODEFER;
        mask = asked.mask & !KEPT;
    }
    if signal == SIGSYS {
        (flags, mask) = (SA_ONSTACK | SA_RESTART, !0);
    }
    HostAction {
        handler: stubs::husk_on_fault as *const () as u64,
        flags: flags | SA_SIGINFO | SA_RESTORER,
        restorer: stubs::husk_restorer as *const () as u64,
        mask,
    }
}

/// Installs what invariant 4 keeps; notes what was ignored before `exec`.
pub fn install(thread: &Thread) {
    change_mask(SIG_UNBLOCK, KEPT);
    if facts().handover.flags & handover::DEFAULTS != 0 {
        thread.group().known.set_all();
    } else if facts().handover.flags & handover::INITIAL != 0 {
        match facts().handover.flags & handover::JOINS {
            0 => sigaction::learn(thread.group(), true),
            _ => thread.group().known.owe(),
        }
    }
    for signal in [SIGSYS, SIGSEGV, SIGBUS, SIGILL] {
        let new = kept_action(signal, &HostAction::default());
        let mut old = HostAction::default();
        host_action(signal, (&raw const new) as usize, (&raw mut old) as usize);
        if old.handler == SIG_IGN {
            thread.group().actions[signal].handler.store(SIG_IGN, Relaxed);
        }
    }
}

/// The limit of cores has changed, or the program begins with one: signals that make a core get a
/// handler, or lose it.
pub fn catch_dumps(thread: &Thread) {
    for signal in dump::signals().filter(|&signal| !kept(signal)) {
        let mut old = HostAction::default();
        host_action(signal, 0, (&raw mut old) as usize);
        let ours = stubs::husk_on_signal as *const () as u64;
        let asked = &thread.group().actions[signal];
        let default = asked.handler.load(Relaxed) == SIG_DFL;
        if default && (old.handler == SIG_DFL || old.handler == ours) {
            install_asked(thread, signal);
        }
    }
}

/// Before the host's `exec`: what the application ignores stays ignored, also of the kept signals;
/// and what is caught is default from now on, as in the program that begins. A signal that is
/// deferred would stay blocked there, and pending.
pub fn leave_actions(thread: &Thread) {
    hand_over_ignored(thread, false);
    thread.hands_over.store(true, Relaxed);
    compiler_fence(SeqCst);
    // The signal stack that is owed stays so.
    let deferred = thread.deferred.fetch_and(bit(SIGKILL), Relaxed);
    change_mask(SIG_UNBLOCK, deferred & !bit(SIGKILL));
}

/// The host has refused: our actions again, and what would have been ignored is sent once more.
pub fn take_actions_back(thread: &Thread) {
    hand_over_ignored(thread, true);
    thread.hands_over.store(false, Relaxed);
    compiler_fence(SeqCst);
    let defaulted = thread.defaulted.swap(0, Relaxed);
    for signal in (1..=SIGNALS).filter(|&signal| defaulted & bit(signal) != 0) {
        install_asked(thread, signal);
        if IDLE & bit(signal) != 0 {
            // SAFETY: touches no memory.
            unsafe {
                let pid = syscall(nr::getpid, [0; 6]) as usize;
                syscall(nr::kill, [pid, signal, 0, 0, 0, 0]);
            }
        }
    }
}

/// What a caught signal does once nobody is left to catch it: what it does by default.
fn act_by_default(thread: &Thread, signal: usize, info: usize) {
    if thread.group().actions[signal & SIGNALS_MASK].load().handler == SIG_IGN {
        return;
    }
    thread.defaulted.fetch_or(bit(signal), Relaxed);
    if IDLE & bit(signal) != 0 {
        return;
    }
    let default = HostAction::default();
    host_action(signal, (&raw const default) as usize, 0);
    requeue(signal, info);
}

fn hand_over_ignored(thread: &Thread, undo: bool) {
    for signal in [SIGSYS, SIGSEGV, SIGBUS, SIGILL] {
        if thread.group().actions[signal].handler.load(Relaxed) != SIG_IGN {
            continue;
        }
        let ignore = HostAction { handler: SIG_IGN, ..Default::default() };
        let new = if undo { kept_action(signal, &HostAction::default()) } else { ignore };
        host_action(signal, (&raw const new) as usize, 0);
    }
}

/// A child with `CLONE_CLEAR_SIGHAND`: what was caught is default again.
pub fn clear_caught(thread: &Thread) {
    for action in &thread.group().actions {
        if action.handler.load(Relaxed) > SIG_IGN {
            action.store(&HostAction::default());
        }
    }
    thread.group().known.forget();
    install_again();
    catch_dumps(thread);
}

fn install_again() {
    for signal in [SIGSYS, SIGSEGV, SIGBUS, SIGILL] {
        let new = kept_action(signal, &HostAction::default());
        host_action(signal, (&raw const new) as usize, 0);
    }
}
