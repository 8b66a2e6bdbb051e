//! Signals and their actions, as the threads of a process share them: data of `crate::signal`.

use crate::thread::Group;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub const SIGILL: usize = 4;
pub const SIGBUS: usize = 7;
pub const SIGKILL: usize = 9;
pub const SIGSEGV: usize = 11;
pub const SIGSTOP: usize = 19;
pub const SIGSYS: usize = 31;
/// `ss_flags` of no signal stack.
pub const SS_DISABLE: usize = 2;
pub const SIG_BLOCK: usize = 0;
pub const SIG_UNBLOCK: usize = 1;
pub const SIG_SETMASK: usize = 2;

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;

pub const SA_SIGINFO: u64 = 4;
pub const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTORER: u64 = 0x0400_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;

/// The bit of a signal in a set.
pub const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// Signals whose host action is always ours.
pub const fn kept(signal: usize) -> bool {
    matches!(signal, SIGILL | SIGBUS | SIGSEGV | SIGSYS)
}

/// The set of them.
pub const KEPT: u64 = bit(SIGILL) | bit(SIGBUS) | bit(SIGSEGV) | bit(SIGSYS);

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

/// Ignored by default: `SIGCHLD`, `SIGCONT`, `SIGURG`, `SIGWINCH`.
pub const IDLE: u64 = bit(17) | bit(18) | bit(23) | bit(28);

/// What is known of the actions of a group.
#[repr(C)]
pub struct Known {
    /// One bit a signal (`signal::sigaction`, invariant 1).
    pub signals: AtomicU64,
    /// Another process has the same handlers (`CLONE_SIGHAND` without `CLONE_THREAD`).
    shared: AtomicBool,
    /// Nobody has asked the host yet, and children would each ask (`learn`).
    pub owed: AtomicBool,
}

impl Known {
    /// Nothing.
    pub const fn new() -> Known {
        let (shared, owed) = (AtomicBool::new(false), AtomicBool::new(false));
        Known { signals: AtomicU64::new(0), shared, owed }
    }

    /// After an exec by somebody who knew that nothing was ignored.
    pub fn set_all(&self) {
        self.signals.store(!0, Relaxed);
    }

    /// The host is to be asked before the first child or exec; many programs have neither.
    pub fn owe(&self) {
        self.owed.store(true, Relaxed);
    }

    /// Nothing from now on: others change these actions, too.
    pub fn share(&self) {
        self.shared.store(true, Relaxed);
        self.signals.store(0, Relaxed);
    }

    /// A copy of the records of `source` has just been made for a new group.
    pub fn copy_from(&self, source: &Group) {
        let signals = if alone(source) { source.known.signals.load(Relaxed) } else { 0 };
        self.shared.store(false, Relaxed);
        self.signals.store(signals, Relaxed);
    }

    /// In a forked child of a process that had company: the records may have been in motion.
    pub fn forget(&self) {
        self.shared.store(false, Relaxed);
        self.signals.store(0, Relaxed);
    }

    /// Whether the record of `signal` is all there is to its action.
    pub fn has(&self, signal: usize) -> bool {
        self.signals.load(Relaxed) & bit(signal) != 0
    }
}

/// Whether nobody else can change these actions (`signal::sigaction`, invariant 2).
pub fn alone(group: &Group) -> bool {
    group.threads.load(Relaxed) == 1 && !group.known.shared.load(Relaxed)
}
