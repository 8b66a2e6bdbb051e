//! SIGSYS, SIGSEGV, SIGBUS and SIGILL: the runtime handles its own first.
//!
//! ```text
//!   SIGSYS of the dispatcher ─► context continues in husk_enter (or, from our vDSO use, made here)
//!   SIGILL in a patched site's tail ─► the jump meant the old syscall instruction: husk_enter
//!   SIGBUS at a page of a Husk mapping that nobody has touched ─► mapped in (`page_fault`)
//!   fault in husk_copy or husk_mask_load ─► EFAULT; in husk_path_look ─► found out by a copy
//!   fault elsewhere in a service ─► one line, die by that signal
//!   the application at the guarded arena, and it has no handler ─► one line, die by that signal
//!   anything else ─► the application's handler, or the default, as natural as Linux makes it
//! ```

use crate::addresses;
use crate::dump::{self, stop};
use crate::mapping::page_fault;
use crate::memory;
use crate::memory::guard;
use crate::memory::mappings;
use crate::memory::region;
use crate::signal;
use crate::stubs;
use crate::stubs::table;
use crate::thread::Thread;
use crate::thread::actions::{self, HostAction, SIG_DFL, SIG_IGN};
use crate::thread::context::{Context, Register};
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::nr;
use husk_host::{calls, syscall};

/// `si_code` of a store that a protection key forbids.
const SEGV_PKUERR: i32 = 4;
/// `si_code` of a page that is not there.
const BUS_ADRERR: i32 = 2;
/// `si_code` of Syscall User Dispatch.
const SYS_USER_DISPATCH: i32 = 2;

/// The wrapper: the address of the handler to jump to, or 0.
pub extern "C" fn on_fault(signal: usize, info: usize, context: usize) -> u64 {
    let context = Context(context);
    // SAFETY: siginfo of the running handler: si_code is its third word of 32 bits.
    let code = unsafe { *((info + 8) as *const i32) };
    if signal == actions::SIGSYS && code == SYS_USER_DISPATCH {
        trapped(context, info);
        return 0;
    }
    let thread = Thread::current();
    if stop::is_meant(signal, code, context, thread.in_service != 0) {
        return 0;
    }
    if code > 0 && thread.in_service != 0 && region::faulted(fault_address(info)) {
        return 0;
    }
    if signal == actions::SIGBUS
        && code == BUS_ADRERR
        && is_mapped_in(thread, fault_address(info), context)
    {
        return 0;
    }
    if code > 0 && fixed_up(signal, context) {
        return 0;
    }
    if code == SEGV_PKUERR && thread.in_service != 0 && stores_late(thread, info, context) {
        return 0;
    }
    if thread.in_service != 0 {
        if code > 0 {
            own_fault(signal, context);
        } else {
            signal::defer(thread, signal, info, context);
        }
        return 0;
    }
    hand_on(thread, signal, info, code, context)
}

/// A call that was to look only has to store into the arena.
fn stores_late(thread: &mut Thread, info: usize, context: Context) -> bool {
    memory::in_arena(fault_address(info)) && guard::open_interrupted(thread, context)
}

/// Maps in what nobody has touched. A service does not wait for others' locks here: it had its
/// arguments mapped in before (`page_fault::reach`). Another thread may have mapped the page in
/// since, and with it the last that was missing: so any mapping may be concerned.
fn is_mapped_in(thread: &mut Thread, address: usize, context: Context) -> bool {
    if thread.in_service != 0 || mappings::is_empty() {
        return false;
    }
    // What is deferred from here on comes back with the interrupted context's own mask.
    let deferred = thread.deferred.load(Relaxed);
    let in_service = &raw mut thread.in_service;
    // SAFETY: the flag of the thread's own block; the stack is free, for the flag was clear.
    unsafe {
        in_service.write_volatile(1);
        let there = match context.signal_stack() {
            None => stubs::husk_aside(page_fault::touched, address),
            Some(_) => touched_apart(address),
        };
        in_service.write_volatile(0);
        let fresh = thread.deferred.swap(deferred, Relaxed) & !deferred;
        if there == 0 && fresh != 0 {
            signal::change_mask(actions::SIG_UNBLOCK, fresh);
        }
        there != 0
    }
}

/// The same where this handler runs on a signal stack. While rsp is on the service stack, the host
/// would put the frame of another signal at the top of the signal stack, over ours: so there is no
/// signal and no signal stack meanwhile (`sigaltstack_entry`).
///
/// # Safety
///
/// As for `husk_aside`.
unsafe fn touched_apart(address: usize) -> usize {
    let mask = signal::change_mask(actions::SIG_BLOCK, !actions::KEPT);
    // SAFETY: the caller's.
    let there = unsafe { stubs::husk_aside(touched_without_stack, address) };
    signal::change_mask(actions::SIG_SETMASK, mask);
    there
}

/// On the service stack: the host changes no signal stack that rsp is on.
extern "C" fn touched_without_stack(address: usize) -> usize {
    static NONE: [usize; 3] = [0, actions::SS_DISABLE, 0];
    let mut stack = [0usize; 3];
    let (none, kept) = ((&raw const NONE) as usize, (&raw mut stack) as usize);
    // SAFETY: both are a `stack_t`.
    unsafe { syscall(nr::sigaltstack, [none, kept, 0, 0, 0, 0]) };
    let there = page_fault::touched(address);
    // SAFETY: as above, and the stack is what it was.
    unsafe { syscall(nr::sigaltstack, [kept, 0, 0, 0, 0, 0]) };
    there
}

fn in_text(context: Context) -> bool {
    let (start, end) = addresses::text();
    (start..end).contains(&context.get(Register::Rip))
}

fn fault_address(info: usize) -> usize {
    // SAFETY: siginfo of a fault: its address at 16.
    unsafe { *((info + 16) as *const usize) }
}

/// A call that was not patched: continue in the gate as if it had been.
fn trapped(context: Context, info: usize) {
    // SAFETY: siginfo of SIGSYS: the call's number at 24.
    let number = unsafe { *((info + 24) as *const i32) } as usize;
    if Thread::current().in_service != 0 {
        // Only code of the vDSO that we called ourselves comes here.
        made_here(context, number);
        return;
    }
    context.set(Register::Rcx, context.get(Register::Rip));
    context.set(Register::Rax, number);
    context.set(Register::Rip, entry());
}

fn made_here(context: Context, number: usize) {
    // Register indices of rdi, rsi, rdx, r10, r8, r9 in a ucontext.
    const ARGS: [usize; 6] = [8, 9, 12, 2, 0, 1];
    // SAFETY: the running handler's ucontext; the call is the vDSO's own.
    let result = unsafe {
        let at = |i: usize| *((context.0 + 40 + 8 * i) as *const usize);
        syscall(number, ARGS.map(at))
    };
    context.set(Register::Rax, result as usize);
}

fn fixed_up(signal: usize, context: Context) -> bool {
    let rip = context.get(Register::Rip);
    if memory::copies_at(rip) {
        context.set(Register::Rip, memory::husk_copy_fault as *const () as usize);
        return true;
    }
    if rip == stubs::husk_mask_load as *const () as usize {
        context.set(Register::Rip, stubs::husk_efault as *const () as usize);
        return true;
    }
    if rip == stubs::husk_path_look as *const () as usize {
        context.set(Register::Rip, stubs::husk_glance as *const () as usize);
        return true;
    }
    signal == actions::SIGILL && patched_tail(context, rip)
}

/// The last two bytes of `ff 14 25 xx xx 06 00` were once a syscall instruction.
fn patched_tail(context: Context, rip: usize) -> bool {
    let mut site = [0u8; 7];
    if memory::read(rip.wrapping_sub(5), &mut site).is_err() {
        return false;
    }
    let table = u32::from_le_bytes([site[3], site[4], site[5], site[6]]);
    if site[..3] != [0xff, 0x14, 0x25] || !addresses::TABLE.contains(&(table as usize)) {
        return false;
    }
    context.set(Register::Rcx, rip + 2);
    context.set(Register::Rip, entry());
    true
}

/// A bug of ours: say where, then let the fault happen again without a handler.
fn own_fault(signal: usize, context: Context) {
    let mut line = *b"husk: fault in the runtime, signal 00 at 0000000000000000\n";
    line[35] = b'0' + (signal / 10) as u8;
    line[36] = b'0' + (signal % 10) as u8;
    write_hex(&mut line[41..57], context.get(Register::Rip));
    calls::write(2, &line);
    set_default(signal);
}

/// A bug of the application's that is about to end it: an image without a guard would be damaged.
fn tell_stray(info: usize) {
    let mut line = *b"husk: the program touched the image's state at 0000000000000000, which is \
        guarded: it ends, the image is unharmed\n";
    write_hex(&mut line[47..63], fault_address(info));
    calls::write(2, &line);
}

/// The application jumped to where only the gate's calls lead.
fn tell_jump(context: Context) {
    let mut line =
        *b"husk: the program jumped into the runtime, at 0000000000000000: it ends, the \
        image is unharmed\n";
    write_hex(&mut line[46..62], context.get(Register::Rip));
    calls::write(2, &line);
}

fn write_hex(places: &mut [u8], value: usize) {
    for (i, place) in places.iter_mut().rev().enumerate() {
        *place = b"0123456789abcdef"[value >> (4 * i) & 15];
    }
}

fn set_default(signal: usize) {
    let default = HostAction::default();
    // SAFETY: a host action on our stack.
    unsafe { syscall(nr::rt_sigaction, [signal, (&raw const default) as usize, 0, 8, 0, 0]) };
}

/// Not ours: what the application wants done, else the default.
fn hand_on(thread: &Thread, signal: usize, info: usize, code: i32, context: Context) -> u64 {
    let slot = &thread.group().actions[signal];
    let action = slot.load();
    let forced = code > 0;
    match action.handler {
        SIG_IGN if !forced => 0,
        SIG_DFL | SIG_IGN => {
            if code == SEGV_PKUERR && memory::in_arena(fault_address(info)) {
                tell_stray(info);
            } else if forced && in_text(context) {
                tell_jump(context);
            }
            if dump::is_due(thread, signal) {
                let deferred = thread.deferred.swap(0, Relaxed);
                signal::deliver(thread, &action, signal, context, deferred);
                return dump::handler();
            }
            set_default(signal);
            if !forced || signal == actions::SIGSYS {
                signal::requeue(signal, info);
            }
            0
        }
        handler => {
            if action.flags & actions::SA_RESETHAND != 0 {
                slot.handler.store(SIG_DFL, Relaxed);
            }
            if signal == actions::SIGSYS {
                own_mask(&action, context);
            }
            let deferred = thread.deferred.swap(0, Relaxed);
            signal::deliver(thread, &action, signal, context, deferred);
            handler
        }
    }
}

/// SIGSYS's host action blocks everything; the application's handler gets the mask it asked for.
fn own_mask(action: &HostAction, context: Context) {
    let mask = (context.mask() | action.mask) & !actions::KEPT;
    signal::change_mask(actions::SIG_SETMASK, mask);
}

/// Where a call that was not patched goes on.
fn entry() -> usize {
    if table::is_traced() {
        return stubs::husk_traced as *const () as usize;
    }
    let diverted = mappings::has_untouched();
    if diverted {
        stubs::husk_diverted as *const () as usize
    } else {
        stubs::husk_enter as *const () as usize
    }
}
