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
pub(crate) mod sigaction;

use crate::frame::{Detour, THEN_AGAIN, THEN_BITS, THEN_TRACED_AGAIN};
use crate::gate;
use crate::gate::fd_race_retry;
use crate::load::start::facts;
use crate::memory::guard;
use crate::process::thread::{SIGNALS, Thread};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use husk_abi::{Errno, nr};
use husk_host::syscall;
use husk_runtime::handover;

/// Offset of `uc_sigmask` in a ucontext.
pub const UC_MASK: usize = 296;
/// Offset of the general registers in a ucontext, 8 bytes each.
const UC_REGISTERS: usize = 40;

/// Index of a register in a ucontext.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub enum Register {
    Rdi = 8,
    Rdx = 12,
    Rax = 13,
    Rcx = 14,
    Rsp = 15,
    Rip = 16,
}

pub const SIGILL: usize = 4;
pub const SIGBUS: usize = 7;
pub const SIGKILL: usize = 9;
pub const SIGSEGV: usize = 11;
pub const SIGSYS: usize = 31;
/// `ss_flags` of no signal stack.
pub const SS_DISABLE: usize = 2;
pub const SIG_BLOCK: usize = 0;
pub const SIG_UNBLOCK: usize = 1;
pub const SIG_SETMASK: usize = 2;

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;

pub const SA_SIGINFO: u64 = 4;
const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTORER: u64 = 0x0400_0000;
const SA_RESTART: u64 = 0x1000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;

/// Frames of handlers that have not begun which are looked at, one over the other: each blocks its
/// signal, but for those with `SA_NODEFER`.
const STACKED_MAX: usize = 128;

/// Changes of one action by other threads that are followed while it is set again.
const CHANGES_MAX: usize = 100;

/// The bit of a signal in a set.
pub const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// `struct sigaction` of the host.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct HostAction {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// What the application asked for, word by word (read by wrappers at any moment).
#[repr(C)]
pub struct Action {
    pub handler: AtomicU64,
    pub flags: AtomicU64,
    pub restorer: AtomicU64,
    pub mask: AtomicU64,
}

impl Action {
    /// Default, nothing asked for.
    pub const fn new() -> Action {
        Action {
            handler: AtomicU64::new(SIG_DFL),
            flags: AtomicU64::new(0),
            restorer: AtomicU64::new(0),
            mask: AtomicU64::new(0),
        }
    }

    pub fn copy_from(&self, other: &Action) {
        self.store(&other.load());
    }

    pub fn load(&self) -> HostAction {
        HostAction {
            handler: self.handler.load(Relaxed),
            flags: self.flags.load(Relaxed),
            restorer: self.restorer.load(Relaxed),
            mask: self.mask.load(Relaxed),
        }
    }

    pub fn store(&self, action: &HostAction) {
        self.flags.store(action.flags, Relaxed);
        self.restorer.store(action.restorer, Relaxed);
        self.mask.store(action.mask, Relaxed);
        self.handler.store(action.handler, Relaxed);
    }
}

/// The interrupted context of a handler.
#[derive(Clone, Copy)]
pub struct Context(pub usize);

impl Context {
    pub fn get(self, register: Register) -> usize {
        // SAFETY: the host put a ucontext there for the handler that runs now.
        unsafe { *((self.0 + UC_REGISTERS + 8 * register as usize) as *const usize) }
    }
    pub fn set(self, register: Register, value: usize) {
        // SAFETY: as above; the host reads it at sigreturn.
        unsafe { *((self.0 + UC_REGISTERS + 8 * register as usize) as *mut usize) = value }
    }
    /// Where the frame keeps PKRU; `None` where the host saves none.
    pub fn protection_keys(self) -> Option<*mut u32> {
        const STATE_POINTER: usize = 224;
        const LEGACY_BYTES: usize = 512;
        const PKRU: u32 = 9;
        // SAFETY: the processor has protection keys, so it has this leaf; the host put a ucontext
        // here, whose state pointer leads to an XSAVE area in standard format.
        unsafe {
            let offset = core::arch::x86_64::__cpuid_count(0xd, PKRU).ebx as usize;
            let state = *((self.0 + STATE_POINTER) as *const usize);
            if state == 0 || offset == 0 {
                return None;
            }
            let present = (state + LEGACY_BYTES) as *mut u64;
            *present |= 1 << PKRU;
            Some((state + offset) as *mut u32)
        }
    }
    /// The signal stack that the handler runs on, if it does: where it begins, and its bytes.
    pub fn signal_stack(self) -> Option<[usize; 2]> {
        const STACK: usize = 16;
        const STACK_BYTES: usize = 32;
        // SAFETY: as above.
        let [start, bytes] =
            [STACK, STACK_BYTES].map(|at| unsafe { *((self.0 + at) as *const usize) });
        (self.0.wrapping_sub(start) < bytes).then_some([start, bytes])
    }
    pub fn mask(self) -> u64 {
        // SAFETY: as above.
        unsafe { *((self.0 + UC_MASK) as *const u64) }
    }
    pub fn set_mask(self, mask: u64) {
        // SAFETY: as above.
        unsafe { *((self.0 + UC_MASK) as *mut u64) = mask }
    }
}

/// Signals whose host action is always ours.
pub const fn kept(signal: usize) -> bool {
    matches!(signal, SIGILL | SIGBUS | SIGSEGV | SIGSYS)
}

/// The set of them.
pub const KEPT: u64 = bit(SIGILL) | bit(SIGBUS) | bit(SIGSEGV) | bit(SIGSYS);

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
            fd_race_retry::look_again(context);
        }
        return 0;
    }
    deliver(thread, &action, signal, context, deferred);
    action.handler
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
    fd_race_retry::look_again(context);
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
    if gate::begins_handler(context.get(Register::Rip)) && depth < STACKED_MAX {
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
        gate::husk_detour_done as *const () as usize,
        gate::husk_detour_asked as *const () as usize,
    ];
    if !done.contains(&context.get(Register::Rip)) || context.get(Register::Rax) != EINTR {
        return;
    }
    // SAFETY: at these addresses rsp points to the Detour the thread sleeps in.
    let detour = unsafe { &*(context.get(Register::Rsp) as *const Detour) };
    let kind = detour.then & ((1 << THEN_BITS) - 1);
    let again = matches!(kind, THEN_AGAIN | THEN_TRACED_AGAIN);
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
    if asked.handler <= SIG_IGN {
        return HostAction { mask: asked.mask & !KEPT, ..*asked };
    }
    HostAction {
        handler: gate::husk_on_signal as *const () as u64,
        flags: asked.flags | SA_SIGINFO | SA_RESTORER,
        restorer: gate::husk_restorer as *const () as u64,
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
        handler: gate::husk_on_fault as *const () as u64,
        flags: flags | SA_SIGINFO | SA_RESTORER,
        restorer: gate::husk_restorer as *const () as u64,
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
        if sigaction::IDLE & bit(signal) != 0 {
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
    if sigaction::IDLE & bit(signal) != 0 {
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
}

fn install_again() {
    for signal in [SIGSYS, SIGSEGV, SIGBUS, SIGILL] {
        let new = kept_action(signal, &HostAction::default());
        host_action(signal, (&raw const new) as usize, 0);
    }
}
