//! New threads and processes: `clone`, `clone3`, `fork`, `vfork` in all their shapes.
//!
//! ```text
//!   parent, on its service stack                       child
//!   block all signals                                  gs = its block, SUD on
//!   block for the child, addresses kept still          carrier: enter_child
//!   embryo record, a count of what it will have mapped
//!   husk_clone ──────────── host clone ──────────────► child_main on its own service stack
//!                           └─ says in the record who that is
//!   let go, unblock, leave                             mask back, ORIGINAL registers, leave
//! ```
//!
//! Invariants
//! 1. The child returns with exactly the registers of the parent's call, rax = 0 and rsp = the
//!    stack it was given (or the same).
//! 2. Nothing of ours is kept on the application's stack meanwhile: a vfork child shares it.
//! 3. A child that shares memory has its own block before it runs its first instruction; if it is
//!    another process, the parent takes the block back when a vfork ends, the host when any other
//!    child ends or leaves this memory by exec.
//! 4. The child's mask is the parent's without signals that were only deferred.
//! 5. The host tells us the number of a pidfd, not the application: it may be one of Husk's, and
//!    nobody sees it before it has moved off.
//! 6. Record, counts and memory of a child are of one moment: nothing that goes by `mmap_lock`
//!    changes between. Nor does the application's memory get touched then: it may have to be mapped
//!    in.
//! 7. Where the application leaves room for it, the host writes the child's number into the embryo
//!    record before the child runs, with the guard open: it honours the key as we do.

use crate::addresses;
use crate::frame::{Answer, Frame};
use crate::mapping;
use crate::memory::{self, guard, mappings, mmap_lock};
use crate::process::limits;
use crate::signal::{self, sigaction};
use crate::stubs;
use crate::thread::actions::{SIG_BLOCK, SIG_SETMASK};
use crate::thread::parts::{Launch, LaunchFrame, Recording};
use crate::thread::{self, Thread};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use husk_abi::{Errno, nr};
use husk_host::syscall;

global_asm!(
    r#"
    .text
    .globl husk_clone
husk_clone:
    mov r9, rdi
    mov rax, rsi
    mov rdi, [r9]
    mov rsi, [r9 + 8]
    mov rdx, [r9 + 16]
    mov r10, [r9 + 24]
    mov r8, [r9 + 32]
    syscall
    .globl husk_cloned
husk_cloned:
    test rax, rax
    jz 7f
    ret
7:  mov rsp, [r9 + {launch_top}]
    mov rdi, r9
    call {child_main}
    mov rdi, [rax]
    mov rsi, [rax + 8]
    mov rdx, [rax + 16]
    mov r10, [rax + 24]
    mov r8, [rax + 32]
    mov r9, [rax + 40]
    mov rcx, [rax + 56]
    mov r15, [rax + 72]
    mov r14, [rax + 80]
    mov r13, [rax + 88]
    mov r12, [rax + 96]
    mov rbp, [rax + 104]
    mov rbx, [rax + 112]
    mov rsp, [rax + 64]
    xor eax, eax
    jmp husk_leave
"#,
    launch_top = const offset_of!(Launch, service_top),
    child_main = sym child_main,
);

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x10000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// What the parent of a forked process is told its end by.
const SIGCHLD: usize = 17;
/// Bytes of `struct clone_args` as of Linux 5.7.
const CLONE_ARGS_BYTES: usize = 88;
/// A host has made a child of this process and has not said so where it was to: it never will.
static SILENT: AtomicBool = AtomicBool::new(false);
/// What the threads of a process always share here: they have one record.
const THREADS_SHARE: u64 = CLONE_FS | CLONE_FILES;

/// What a call asks for, whatever its spelling.
struct Shape {
    flags: u64,
    /// The child's rsp, 0 = the caller's.
    stack: usize,
    /// Where the host puts a descriptor of the child; 0 = nowhere.
    pidfd_at: usize,
}

fn shape(frame: &Frame) -> Result<Shape, Errno> {
    match frame.number {
        nr::fork => Ok(Shape { flags: 0, stack: 0, pidfd_at: 0 }),
        nr::vfork => Ok(Shape { flags: CLONE_VM | CLONE_VFORK, stack: 0, pidfd_at: 0 }),
        nr::clone => {
            let [flags, stack, pidfd_at, ..] = frame.args;
            Ok(Shape { flags: flags as u64 & !0xff, stack, pidfd_at })
        }
        _ => clone3_shape(frame.args),
    }
}

fn clone3_shape(args: [usize; 6]) -> Result<Shape, Errno> {
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
    let mut fields = [0u64; 8];
    if args[1] < 64 {
        return Err(Errno::EINVAL);
    }
    memory::read_value(args[0], &mut fields)?;
    let stack = if fields[5] == 0 { 0 } else { fields[5].wrapping_add(fields[6]) };
    Ok(Shape { flags: fields[0], stack: stack as usize, pidfd_at: fields[1] as usize })
}

/// Serves the call. `frame` is the start of a `LaunchFrame`.
#[inline(never)]
pub fn launch(thread: &mut Thread, frame: &mut Frame) -> Answer {
    // SAFETY: class 2 of the gate pushes the saved registers right above the frame.
    let whole = unsafe { *core::ptr::from_mut(frame).cast::<LaunchFrame>() };
    Answer::value(match try_launch(thread, &whole) {
        Ok(value) => value,
        Err(errno) => errno.as_return(),
    })
}

fn try_launch(thread: &mut Thread, whole: &LaunchFrame) -> Result<i64, Errno> {
    let shape = shape(&whole.base)?;
    if shape.flags & CLONE_NEWPID != 0 {
        // Whoever judges a holder of a lock must see the same numbers as the holder.
        return Err(Errno::EPERM);
    }
    if shape.flags & CLONE_THREAD != 0 && shape.flags & THREADS_SHARE != THREADS_SHARE {
        return Err(Errno::EINVAL);
    }
    if shape.flags & CLONE_NEWUSER != 0 {
        // The child could not look into this process.
        thread.client.forgo_lanes();
        let _open = guard::open();
        thread.client.served().map_or(Ok(()), |served| served.leave_namespace())?;
    }
    if shape.flags & CLONE_PIDFD != 0 {
        thread.client.need_descriptor()?;
    }
    let here = shape.flags & CLONE_PIDFD != 0 && is_there(shape.pidfd_at);
    let answer = Answered { here, ..Answered::default() };
    let mask = signal::change_mask(SIG_BLOCK, !0);
    let result = launch_blocked(thread, whole, &shape, mask, answer);
    signal::change_mask(SIG_SETMASK, mask);
    result
}

/// Whether a number can be put there. Found out before signals are blocked: a fault would end the
/// process then.
fn is_there(at: usize) -> bool {
    let mut there = 0i32;
    memory::read_value(at, &mut there).and_then(|()| memory::write_value(at, &there)).is_ok()
}

fn launch_blocked(
    thread: &mut Thread,
    whole: &LaunchFrame,
    shape: &Shape,
    mask: u64,
    mut answer: Answered,
) -> Result<i64, Errno> {
    let is = |flag: u64| shape.flags & flag != 0;
    if !is(CLONE_THREAD) {
        sigaction::learn_late(thread.group());
    }
    let block = if is(CLONE_VM) {
        core::ptr::from_mut(thread::take(thread.group).ok_or(Errno::EAGAIN)?)
    } else {
        core::ptr::from_mut(thread)
    };
    let mask = mask & !thread.deferred.load(Relaxed);
    let mut launch = Launch {
        frame: *whole,
        // SAFETY: a block just taken, or our own.
        service_top: unsafe { (*block).service_top },
        block,
        flags: shape.flags,
        mask,
        process: None,
        rights: 0,
        still: 0,
        args: whole.base.args,
    };
    if shape.stack != 0 {
        launch.frame.base.rsp = shape.stack;
    }
    // What the host would refuse, it is to see as it is.
    if answer.here {
        answer.redirect(&mut launch.frame.base);
    }
    if !is(CLONE_VM) {
        thread::take_along(thread, true);
    }
    let child = match is(CLONE_THREAD) {
        true => start(thread, launch, false),
        false => start_process(thread, launch, &mut answer),
    };
    if !is(CLONE_VM) {
        thread::take_along(thread, false);
    }
    let child = child?;
    if is(CLONE_PIDFD) {
        answer.note(thread, shape.pidfd_at);
    }
    Ok(child)
}

/// Where the host puts the pidfd and the number of a child, and the arguments that say so.
struct Answered {
    pidfd: i32,
    /// `struct clone_args`.
    fields: [u8; CLONE_ARGS_BYTES],
    /// The arguments point to `fields`.
    copied: bool,
    here: bool,
}

impl Default for Answered {
    fn default() -> Answered {
        Answered { pidfd: -1, fields: [0; CLONE_ARGS_BYTES], copied: false, here: false }
    }
}

impl Answered {
    /// Directs the host's answer here.
    fn redirect(&mut self, frame: &mut Frame) {
        let address = &raw mut self.pidfd as usize;
        if frame.number == nr::clone {
            frame.call.args[2] = address;
        } else {
            self.here = self.copy(frame);
            if self.here {
                self.fields[8..16].copy_from_slice(&address.to_le_bytes());
            }
        }
    }

    /// Makes the arguments of `clone3` point to a copy of what the application's point to.
    fn copy(&mut self, frame: &mut Frame) -> bool {
        let Some(fields) = self.fields.get_mut(..frame.args[1]) else { return false };
        if !self.copied && memory::read(frame.args[0], fields).is_err() {
            return false;
        }
        self.copied = true;
        frame.call.args[0] = self.fields.as_ptr() as usize;
        true
    }

    /// Has the host write the child's number to `at` before the child runs. False: the call has no
    /// room for that, or somebody judges calls who may know this one and no other.
    fn announce(&mut self, frame: &mut Frame, flags: u64, at: usize) -> bool {
        if flags & CLONE_PARENT_SETTID != 0 || SILENT.load(Relaxed) || is_filtered() {
            return false;
        }
        let flag = CLONE_PARENT_SETTID as usize;
        match frame.number {
            nr::clone3 => {
                if !self.copy(frame) {
                    return false;
                }
                self.fields[..8].copy_from_slice(&(flags | CLONE_PARENT_SETTID).to_le_bytes());
                self.fields[24..32].copy_from_slice(&at.to_le_bytes());
            }
            nr::clone if flags & CLONE_PIDFD != 0 => return false,
            nr::clone => (frame.call.args[0], frame.call.args[2]) = (frame.args[0] | flag, at),
            _ => {
                frame.call.args = [flags as usize | flag | SIGCHLD, 0, at, 0, 0, 0];
                frame.call.number = nr::clone;
            }
        }
        true
    }

    /// The host knows nothing of Husk's numbers: a pidfd under one of them moves elsewhere, and
    /// then the application gets it.
    fn note(&self, thread: &mut Thread, at: usize) {
        // SAFETY: our own field, always initialised; volatile, as the host writes to it unseen.
        let mut fd = unsafe { (&raw const self.pidfd).read_volatile() };
        if !self.here && memory::read_value(at, &mut fd).is_err() {
            return;
        }
        let moved = thread.client.note_host_descriptor(fd as u32).max(-1) as i32;
        let _ = memory::write_value(at, &moved);
    }
}

/// Whether a filter of calls (seccomp) judges this thread.
fn is_filtered() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: only asks.
    unsafe { syscall(nr::prctl, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) != 0 }
}

/// Makes a process, nothing of whose descriptors and mappings changes before it has them.
fn start_process(
    thread: &mut Thread,
    mut launch: Launch,
    answer: &mut Answered,
) -> Result<i64, Errno> {
    let is = |flag: u64| launch.flags & flag != 0;
    let (sleeps, shares_memory) = (is(CLONE_VFORK), is(CLONE_VM));
    let mut still = Some(mmap_lock::take());
    let prepared = thread.client.prepare_fork(is(CLONE_FILES), is(CLONE_FS));
    let counted = prepared.and_then(|process| {
        let counted = if shares_memory { Ok(()) } else { thread.client.count_for_child(process) };
        counted.map(|()| process).inspect_err(|_| thread.client.cancel_fork(process))
    });
    launch.process = match counted {
        Ok(process) => process,
        Err(errno) => {
            if shares_memory {
                // SAFETY: taken for the child, who will never run.
                unsafe { (*launch.block).give_back() };
            }
            return Err(errno);
        }
    };
    let told = match thread.client.child_told_at(launch.process) {
        Some(at) => answer.announce(&mut launch.frame.base, launch.flags, at),
        None => false,
    };
    if !told {
        thread.client.child_untold(launch.process);
    }
    match (sleeps, shares_memory) {
        (true, true) => launch.still = still.as_ref().map_or(0, mmap_lock::Still::owner),
        (true, false) => still = None,
        (false, _) => {}
    }
    let child = start(thread, launch, told);
    drop(still);
    child
}

/// `told`: the host says in the child's record which process it is.
fn start(thread: &mut Thread, launch: Launch, told: bool) -> Result<i64, Errno> {
    let shares_memory = launch.flags & CLONE_VM != 0;
    let is_thread = launch.flags & CLONE_THREAD != 0;
    // SAFETY: the block is ours or taken for the child, who does not run yet.
    let child = unsafe { &mut *launch.block };
    child.launch = launch;
    if shares_memory && launch.flags & CLONE_SIGHAND == 0 {
        child.copy_group(thread.group());
    }
    if shares_memory && launch.flags & CLONE_SIGHAND != 0 && !is_thread {
        thread.group().known.share();
    }
    if is_thread {
        thread.group().threads.fetch_add(1, Relaxed);
        thread.client.expect_company();
    }
    if shares_memory {
        child.client.inherit(&mut thread.client);
    }
    if shares_memory && launch.flags & CLONE_VFORK != 0 && !is_thread {
        (child.laid_aside, child.is_laid_aside) = (thread.laid_aside, thread.is_laid_aside);
        child.owe_signal_stack();
    }
    let open = told.then(guard::open);
    child.launch.rights = open.as_ref().map_or(0, guard::Opened::rights);
    // SAFETY: the application's own call with its own arguments, but for where the host's answers
    // go; the child continues from `child.launch`, which stays until its next launch.
    let result = unsafe { stubs::husk_clone(&raw mut child.launch, launch.frame.base.number) };
    drop(open);
    let failed = result < 0;
    if !failed && told && !thread.client.child_was_told(launch.process) {
        SILENT.store(true, Relaxed);
    }
    if failed {
        thread.client.cancel_fork(launch.process);
        if is_thread {
            thread.group().threads.fetch_sub(1, Relaxed);
        }
    }
    if !failed && !is_thread {
        // Of a vfork's child this is news only if it was killed before it noted itself.
        thread.client.note_child(launch.process, result as u32);
    }
    let done = launch.flags & CLONE_VFORK != 0 && !is_thread;
    if shares_memory && (failed || done) {
        child.give_back();
    }
    Errno::check(result).map(|v| v as i64)
}

/// The child's first Rust: everything that is per thread or per process made its own.
pub extern "C" fn child_main(launch: *mut Launch) -> *const LaunchFrame {
    // SAFETY: gs may still be the parent's, so the block comes from the launch itself.
    let (launch, thread) = unsafe { (&mut *launch, &mut *(*launch).block) };
    guard::close(launch.rights);
    launch.frame.base.call.args = launch.args;
    if launch.flags & CLONE_VM != 0 {
        thread.enter();
        if launch.still != 0 {
            mmap_lock::let_go_for(launch.still);
        }
        thread.in_service = 1;
        thread.guest.store(launch.flags & CLONE_THREAD == 0, Relaxed);
    } else {
        thread.deferred.store(0, Relaxed);
        thread.owe_signal_stack();
        thread.trace = Recording::default();
        thread::reset_after_fork(thread);
    }
    if launch.flags & (CLONE_VM | CLONE_THREAD | CLONE_VFORK | CLONE_CHILD_CLEARTID) == CLONE_VM {
        thread.give_back_at_end();
    }
    thread.creator_sleeps.store(launch.flags & CLONE_VFORK != 0, Relaxed);
    thread.traced_at_exec.store(false, Relaxed);
    dispatch_calls();
    if launch.flags & CLONE_CLEAR_SIGHAND != 0 {
        signal::clear_caught(thread);
    }
    if launch.flags & CLONE_THREAD == 0 {
        thread.client.enter_child(launch.process, launch.flags & CLONE_VM != 0);
    }
    if launch.flags & CLONE_VM == 0 {
        mmap_lock::reset();
        limits::reset();
        mappings::settle_child();
        if launch.flags & CLONE_VFORK != 0 {
            // Nobody kept still for it: what came between is counted now, the rest twice.
            let _ = thread.client.count_for_child(launch.process);
        }
    }
    signal::change_mask(SIG_SETMASK, launch.mask);
    &launch.frame
}

/// Arms Syscall User Dispatch for the calling thread: all but our own text.
pub fn dispatch_calls() -> bool {
    const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
    let (start, end) = addresses::text();
    let args = [PR_SET_SYSCALL_USER_DISPATCH, 1, start, end - start, 0, 0];
    // SAFETY: only says which text may call the host.
    unsafe { syscall(nr::prctl, args) == 0 }
}

/// `exit` of one thread: its block goes back as its very last act.
#[inline(never)]
pub fn exit_thread(thread: &mut Thread, frame: &Frame) -> ! {
    let last = thread.group().threads.fetch_sub(1, Relaxed) == 1;
    thread.client.leave(last);
    signal::change_mask(SIG_BLOCK, !0);
    mapping::end_stack(thread);
    // A guest's block is its creator's to take back: it still sleeps in vfork.
    let guest = thread.guest.load(Relaxed);
    let owner = if guest { &raw mut thread.scrap } else { thread.owner.as_ptr() };
    // SAFETY: nothing of this block is used after; signals are blocked.
    unsafe { stubs::husk_vanish(owner, frame.rsp, frame.args[0]) }
}
