//! The runtime's data for each thread: a block with its service stack, found through gs.
//!
//! ```text
//!   low ─ guard page ─ service stack (grows down) ─ Thread ─ high        BLOCK_BYTES in all
//!                                               gs ──┘
//! ```
//!
//! The first thread's block is a static (`link.ld` leaves the page before it unmapped: its guard);
//! others come from a list of anonymous mappings at `addresses::BLOCKS` that only
//! grows and whose members are taken and given back by their `owner` word, without a lock.
//!
//! Invariants
//! 1. A block belongs to one thread from `take` until `husk_vanish` (or its creator's `give_back`).
//! 2. The list needs no lock. A fork leaves its blocks out, whose threads are not in the child
//!    (`MADV_DONTFORK`): the child begins a list of its own (`reset_after_fork`). Only the block
//!    of the thread that forks goes along (`take_along`).
//! 3. A child that shares memory without sharing handlers (`posix_spawn`) has its own `Group`.

pub(crate) mod actions;
pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod parts;

use crate::addresses::BLOCKS;
use crate::thread::actions::{Action, Known};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use husk_abi::memory::{
    MADV_DOFORK, MADV_DONTFORK, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE,
    PROT_READ, PROT_WRITE,
};
use husk_abi::{Errno, nr};
use husk_host::calls;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 256 * 1024;
/// Signals of Linux on x86-64.
pub const SIGNALS: usize = 64;

/// What the threads of one process share.
#[repr(C)]
pub struct Group {
    /// The application's signal actions, by number.
    pub actions: [Action; SIGNALS + 1],
    /// Threads that run.
    pub threads: AtomicU32,
    /// What is known of the actions.
    pub known: Known,
}

/// One thread. The first fields are read by the gate.
#[repr(C, align(64))]
pub struct Thread {
    /// Itself (gs:0).
    pub this: *mut Thread,
    /// Where the service stack starts.
    pub service_top: usize,
    /// The application's rsp during a service.
    pub app_rsp: usize,
    /// 1 while the service stack is in use.
    pub in_service: u64,
    /// Signals blocked because they came during a service.
    pub deferred: AtomicU64,
    /// The signal stack (`sigaltstack`) that a handler has begun on last: where it begins, and its
    /// bytes; 0 = none ever.
    pub signal_stack: [AtomicUsize; 2],
    /// Set from the moment on when exec is the host's: nothing is deferred any more
    /// (`signal::leave_actions`).
    pub hands_over: AtomicBool,
    /// Signals that have found that, and have a default action since.
    pub defaulted: AtomicU64,
    /// Above the frame of the outermost handler that may run now; 0 = none does.
    pub handler_at: AtomicUsize,
    /// Signals to be handled here although the first thread is due (`redirect`).
    pub stays: AtomicU64,
    /// 0 = free.
    pub owner: AtomicU32,
    /// Next in the list.
    next: AtomicPtr<Thread>,
    /// Handlers and count of the process.
    pub group: *mut Group,
    /// Set by `vfork`-like creation: memory is shared with another process.
    pub guest: AtomicBool,
    /// Its creator sleeps in `vfork` until this process starts a program or ends.
    pub creator_sleeps: AtomicBool,
    /// It has asked to be traced, which begins when it starts a program (`exec::trace`).
    pub traced_at_exec: AtomicBool,
    /// 1 while it reads or runs the vDSO (`clock`).
    pub in_vdso: AtomicU32,
    /// Where a guest that ends writes the word it must not give back.
    pub scrap: u32,
    /// Times this thread's call has started once more (`fd_race_retry`).
    pub restarts: u32,
    /// What PKRU is to be again after a fault opened the guard in a call that was to look only,
    /// marked; 0 = it did not.
    pub opened: u64,
    /// What this thread's next child starts from.
    pub launch: parts::Launch,
    /// The `stack_t` that the gate has taken from the host for the time of a service.
    pub laid_aside: [u64; 3],
    /// 1 while that is so.
    pub is_laid_aside: u64,
    /// Larger exec arguments than the stack takes: address and bytes of a mapping.
    pub exec_area: [usize; 2],
    /// The stack the application unmapped under itself, address and bytes: gone when it exits.
    pub doomed_stack: [usize; 2],
    /// The page of a Husk mapping it had mapped in last.
    pub touched: parts::LastTouched,
    /// Where its calls are recorded.
    pub trace: parts::Recording,
    /// The client of this thread.
    pub client: client::ThreadClient,
    /// The group of a process that shares memory with its creator.
    own_group: Group,
}

#[repr(C, align(4096))]
struct Block(UnsafeCell<[u8; BLOCK_BYTES]>);
// SAFETY: only the first thread touches it (invariant 1).
unsafe impl Sync for Block {}

#[repr(transparent)]
struct MainGroup(UnsafeCell<Group>);
// SAFETY: all fields are atomics.
unsafe impl Sync for MainGroup {}

#[unsafe(link_section = ".bss.block")]
static MAIN: Block = Block(UnsafeCell::new([0; BLOCK_BYTES]));
#[unsafe(link_section = ".bss.hot")]
static MAIN_GROUP: MainGroup = MainGroup(UnsafeCell::new(Group {
    actions: [const { Action::new() }; SIGNALS + 1],
    threads: AtomicU32::new(0),
    known: Known::new(),
}));
#[unsafe(link_section = ".bss.hot")]
static LIST: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// Blocks that were mapped, so that the next one lies behind them.
#[unsafe(link_section = ".bss.hot")]
static MAPPED: AtomicUsize = AtomicUsize::new(0);
#[unsafe(link_section = ".bss.hot")]
static FSGSBASE: AtomicBool = AtomicBool::new(false);

/// Where in a block the `Thread` lies: its first fields share a page with the upper part of the
/// service stack, so that a short service touches one page.
const THREAD_AT: usize = BLOCK_BYTES
    - (size_of::<Thread>() + STACK_SHARE).next_multiple_of(husk_abi::PAGE)
    + STACK_SHARE;
/// Bytes of service stack in the page where the `Thread` begins.
const STACK_SHARE: usize = 2048;

impl Thread {
    /// The calling thread's block.
    #[inline(always)]
    pub fn current() -> &'static mut Thread {
        let this: *mut Thread;
        // SAFETY: gs points to this thread's block from `enter` on, whose first word is its own
        // address; only this thread uses it (invariant 1), and signal wrappers touch atomics only.
        unsafe {
            asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly));
            &mut *this
        }
    }

    /// The application's actions.
    pub fn group(&self) -> &'static Group {
        // SAFETY: set by `prepare`; groups live as long as a thread of theirs.
        unsafe { &*self.group }
    }

    /// Makes gs point here, for the calling thread.
    pub fn enter(&self) {
        let base = core::ptr::from_ref(self) as usize;
        if FSGSBASE.load(Ordering::Relaxed) {
            // SAFETY: the host says the instruction is allowed; gs is ours alone.
            unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
        } else {
            const ARCH_SET_GS: usize = 0x1001;
            // SAFETY: as above, by the host.
            unsafe { husk_host::syscall(nr::arch_prctl, [ARCH_SET_GS, base, 0, 0, 0, 0]) };
        }
    }

    /// Gives the block back from outside: its process has left this memory.
    pub fn give_back(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// Lets the host clear the owner word when the calling process leaves this memory, however.
    pub fn give_back_at_end(&self) {
        let word = self.owner.as_ptr() as usize;
        // SAFETY: a word of a block that is never unmapped; nothing of the block is used after.
        unsafe { husk_host::syscall(nr::set_tid_address, [word, 0, 0, 0, 0, 0]) };
    }

    /// Sees to it that a signal stack which was laid aside comes back when this thread leaves the
    /// service (`sigaltstack_entry`, invariant 1).
    pub fn owe_signal_stack(&self) {
        if self.is_laid_aside != 0 {
            self.deferred.fetch_or(actions::bit(actions::SIGKILL), Ordering::Relaxed);
        }
    }

    /// Handlers of its own, as they are now (a child without `CLONE_SIGHAND`).
    pub fn copy_group(&mut self, source: &Group) {
        for (own, theirs) in self.own_group.actions.iter().zip(&source.actions) {
            own.copy_from(theirs);
        }
        self.own_group.known.copy_from(source);
        self.own_group.threads.store(1, Ordering::Relaxed);
        self.group = &raw mut self.own_group;
    }

    /// Fresh state for a new owner.
    fn prepare(&mut self, group: *mut Group) {
        self.this = self;
        self.service_top = core::ptr::from_mut(self) as usize;
        self.in_service = 0;
        self.deferred = AtomicU64::new(0);
        self.hands_over = AtomicBool::new(false);
        self.defaulted = AtomicU64::new(0);
        self.handler_at = AtomicUsize::new(0);
        self.signal_stack = [const { AtomicUsize::new(0) }; 2];
        self.is_laid_aside = 0;
        self.stays = AtomicU64::new(0);
        self.group = group;
        self.guest = AtomicBool::new(false);
        self.creator_sleeps = AtomicBool::new(false);
        self.traced_at_exec = AtomicBool::new(false);
        self.in_vdso = AtomicU32::new(0);
        self.opened = 0;
        self.touched = (0, 0);
        self.trace = parts::Recording::default();
        self.client.reset();
    }
}

/// The first thread's block, gs set.
pub fn first(fsgsbase: bool) -> &'static mut Thread {
    FSGSBASE.store(fsgsbase, Ordering::Relaxed);
    let at = first_place();
    // SAFETY: the static is large and aligned enough, zeroed (every field is valid zeroed), and
    // nobody else has it yet.
    let thread = unsafe { &mut *(at as *mut Thread) };
    thread.owner.store(1, Ordering::Relaxed);
    thread.prepare(MAIN_GROUP.0.get());
    thread.group().threads.store(1, Ordering::Relaxed);
    thread.enter();
    thread
}

/// A block for a new thread. `None`: no memory.
pub fn take(group: *mut Group) -> Option<&'static mut Thread> {
    let mut at = LIST.load(Ordering::Acquire);
    while !at.is_null() {
        // SAFETY: members of the list are never unmapped.
        let free = unsafe { &(*at).owner };
        if free.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: taking the owner word made it ours.
            let thread = unsafe { &mut *at };
            thread.prepare(group);
            return Some(thread);
        }
        // SAFETY: as above.
        at = unsafe { (*at).next.load(Ordering::Acquire) };
    }
    grow(group)
}

fn grow(group: *mut Group) -> Option<&'static mut Thread> {
    let base = map_block()?;
    // SAFETY: our own fresh page.
    let _ = unsafe { calls::raw(nr::mprotect, [base, husk_abi::PAGE, 0, 0, 0, 0]) };
    advise(base, MADV_DONTFORK);
    // SAFETY: fresh zeroed memory, aligned, ours alone.
    let thread = unsafe { &mut *((base + THREAD_AT) as *mut Thread) };
    thread.owner.store(1, Ordering::Relaxed);
    thread.prepare(group);
    let mut head = LIST.load(Ordering::Relaxed);
    loop {
        thread.next.store(head, Ordering::Relaxed);
        match LIST.compare_exchange(head, thread, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Some(thread),
            Err(now) => head = now,
        }
    }
}

/// A fresh block where blocks lie. `None`: no memory, or no place is left.
fn map_block() -> Option<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    loop {
        let at = BLOCKS.start + MAPPED.fetch_add(1, Ordering::Relaxed) * BLOCK_BYTES;
        if at >= BLOCKS.end {
            return None;
        }
        let map = [at, BLOCK_BYTES, PROT_READ | PROT_WRITE, flags, -1isize as usize, 0];
        // SAFETY: a fresh mapping that replaces nothing.
        match unsafe { calls::raw(nr::mmap, map) } {
            Ok(base) => return Some(base),
            // The block that came along when this process was forked.
            Err(Errno::EEXIST) => {}
            Err(_) => return None,
        }
    }
}

/// Whether any thread of this memory reads or runs the vDSO, or one that was killed there.
pub fn any_in_vdso() -> bool {
    // SAFETY: the static, zeroed or prepared, or a member of the list, never unmapped; only an
    // atomic is looked at.
    let inside = |at: *const Thread| unsafe { (*at).in_vdso.load(Ordering::SeqCst) != 0 };
    let mut at = LIST.load(Ordering::Acquire);
    while !at.is_null() && !inside(at) {
        // SAFETY: as above.
        at = unsafe { (*at).next.load(Ordering::Acquire) };
    }
    !at.is_null() || inside(first_place() as *const Thread)
}

/// Says what a fork does with the block at `base`; a block that goes along costs time, no more.
fn advise(base: usize, advice: usize) {
    // SAFETY: a block of ours; nothing of it changes in this process.
    let _ = unsafe { calls::raw(nr::madvise, [base, BLOCK_BYTES, advice, 0, 0, 0]) };
}

/// Before and after a fork by the thread of `own`: its block goes along, and what it needs of
/// another one (which may go along from then on).
pub fn take_along(own: &Thread, on: bool) {
    let at = core::ptr::from_ref(own) as usize;
    if at != first_place() {
        advise(at - THREAD_AT, if on { MADV_DOFORK } else { MADV_DONTFORK });
    }
    let group = own.group as usize;
    let borrowed =
        group != MAIN_GROUP.0.get() as usize && group != (&raw const own.own_group) as usize;
    if on && borrowed {
        advise(group - core::mem::offset_of!(Thread, own_group) - THREAD_AT, MADV_DOFORK);
    }
}

/// Where the first thread's `Thread` lies.
fn first_place() -> usize {
    MAIN.0.get() as usize + THREAD_AT
}

/// In a forked child: only the calling thread is here, and of the blocks only its own.
pub fn reset_after_fork(own: &mut Thread) {
    let listed = core::ptr::from_mut(own) as usize != first_place();
    own.next.store(core::ptr::null_mut(), Ordering::Relaxed);
    let first = if listed { core::ptr::from_mut(own) } else { core::ptr::null_mut() };
    // What is as it should be stays untouched: a store costs a copy of the page.
    if LIST.load(Ordering::Relaxed) != first {
        LIST.store(first, Ordering::Relaxed);
    }
    if MAPPED.load(Ordering::Relaxed) != 0 {
        MAPPED.store(0, Ordering::Relaxed);
    }
    // SAFETY: the static; its thread is this one, or is not in this process.
    let first = unsafe { &(*(first_place() as *const Thread)).in_vdso };
    if first.load(Ordering::Relaxed) != 0 {
        first.store(0, Ordering::Relaxed);
    }
    let main = MAIN_GROUP.0.get();
    let group = own.group;
    if !actions::alone(own.group()) {
        own.group().known.forget();
    }
    if group == main || group == &raw mut own.own_group {
        if own.group().threads.load(Ordering::Relaxed) != 1 {
            own.group().threads.store(1, Ordering::Relaxed);
        }
    } else {
        // SAFETY: the group lies in a block that came along (`take_along`).
        own.copy_group(unsafe { &*group });
    }
}
