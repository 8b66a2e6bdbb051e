//! Signals for the process that a trap made this thread take, although the first thread is due.
//!
//! The host interrupts the first thread for a signal that is for the whole process, unless that
//! thread blocks it. Until it runs, the signal is anybody's, and a return from a handler looks for
//! signals: a thread whose calls trap would take it, and the call that the first thread sleeps in
//! would go on. So such a signal is sent to the process again, and this thread waits until
//! somebody else has it.
//!
//! Invariants
//! 1. What is sent names no thread: whoever ends or blocks the signal meanwhile, the host finds
//!    another, and none is lost.
//! 2. The wait ends: what nobody took in `PATIENCE_NS` comes here again and is handled here.
//! 3. The host lets a thread say only of itself that it is somebody else's signal, so the code is
//!    `MARK`ed on the way, and each wrapper takes the mark away first.
//! 4. Only signals whose number and code say that they are for the process, of which the host
//!    keeps one at most (so the order among them means nothing).

use crate::signal;
use crate::stubs;
use crate::thread::Thread;
use crate::thread::actions::{self, bit};
use crate::thread::context::{Context, Register};
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::nr;
use husk_host::{calls, syscall};

const SIGHUP: usize = 1;
const SIGINT: usize = 2;
const SIGQUIT: usize = 3;
const SIGALRM: usize = 14;
const SIGCHLD: usize = 17;
/// `si_code` of `kill`.
const SI_USER: i32 = 0;
/// `si_code` of terminals and the interval timer.
const SI_KERNEL: i32 = 0x80;
/// Signals below this are kept once, however often they are sent.
const FIRST_QUEUED: usize = 32;

/// What makes a code one that may be sent to any thread; codes that are sent on are below 256.
const MARK: i32 = i32::MIN;

/// Longest wait for a thread that is due and gets no core.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Longest nap in it.
const NAP_NS: u64 = 1_000_000;

/// Where the code of a siginfo lies: its third word of 32 bits.
fn code_at(info: usize) -> *mut i32 {
    core::ptr::with_exposed_provenance_mut(info + 8)
}

/// Makes a siginfo what it was before it was sent on.
pub fn unmark(info: usize) {
    // SAFETY: the siginfo of the running handler, in its frame.
    unsafe {
        let code = *code_at(info);
        if (MARK..=MARK | 0xff).contains(&code) {
            *code_at(info) = code & !MARK;
        }
    }
}

/// Leaves `signal` to the first thread. False: it is to be handled here.
pub fn leave(thread: &Thread, signal: usize, info: usize, context: Context) -> bool {
    // SAFETY: siginfo of the running handler.
    let code = unsafe { *code_at(info) };
    if !after_trap(context) || !is_for_process(signal, code) {
        return false;
    }
    if thread.stays.fetch_and(!bit(signal), Relaxed) & bit(signal) != 0 {
        return false;
    }
    if calls::getpid() == calls::gettid() || !first_is_due(signal) {
        return false;
    }
    let mask = signal::change_mask(actions::SIG_BLOCK, bit(signal));
    if !is_sent(signal, info) {
        signal::change_mask(actions::SIG_SETMASK, mask);
        return false;
    }
    if !is_taken(signal) {
        thread.stays.fetch_or(bit(signal), Relaxed);
    }
    true
}

/// The signal came as the handler of a trap returned.
fn after_trap(context: Context) -> bool {
    stubs::is_entry(context.get(Register::Rip))
}

fn is_for_process(signal: usize, code: i32) -> bool {
    match code {
        SI_USER => signal < FIRST_QUEUED,
        SI_KERNEL => matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGALRM),
        1..=6 => signal == SIGCHLD,
        _ => false,
    }
}

/// Whether the first thread lives and does not block `signal`; only a guess a moment later.
fn first_is_due(signal: usize) -> bool {
    // Fields of `stat` from the one after the name on: the state, and the mask of signals < 32.
    const STATE: usize = 0;
    const BLOCKED: usize = 29;
    let mut text = [0u8; 512];
    let Ok(fd) = calls::open(c"/proc/self/stat") else { return false };
    let length = calls::pread(fd, &mut text, 0).unwrap_or(0);
    calls::close(fd);
    let text = text.get(..length).unwrap_or(&[]);
    let Some(name_end) = text.iter().rposition(|&byte| byte == b')') else { return false };
    let rest = text.get(name_end + 2..).unwrap_or(&[]);
    let mut fields = rest.split(|&byte| byte == b' ');
    let runs = matches!(fields.nth(STATE), Some(b"R" | b"S" | b"D"));
    let mask = fields.nth(BLOCKED - STATE - 1).unwrap_or(&[]);
    let digit = |byte: &u8| u64::from(byte.wrapping_sub(b'0'));
    let mask = mask.iter().fold(0u64, |sum, byte| sum.wrapping_mul(10).wrapping_add(digit(byte)));
    runs && mask & bit(signal) == 0
}

/// Sends `signal` to the process, the first thread first.
fn is_sent(signal: usize, info: usize) -> bool {
    let process = calls::getpid() as usize;
    // SAFETY: `info` is the handler's own siginfo, in its frame.
    unsafe {
        *code_at(info) |= MARK;
        let sent = calls::raw(nr::rt_sigqueueinfo, [process, signal, info, 0, 0, 0]);
        *code_at(info) &= !MARK;
        sent.is_ok()
    }
}

/// Waits until another thread has `signal`, which is blocked here; false: nobody took it.
fn is_taken(signal: usize) -> bool {
    let (mut slept, mut nap) = (0, 1_000);
    while is_pending(signal) {
        if slept >= PATIENCE_NS {
            return false;
        }
        let time = [0u64, nap];
        // SAFETY: the time lives here; the call touches no other memory.
        unsafe { syscall(nr::nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
        slept += nap;
        nap = NAP_NS.min(2 * nap);
    }
    true
}

/// Whether nobody has `signal`, which is blocked here.
fn is_pending(signal: usize) -> bool {
    let mut pending = 0u64;
    // SAFETY: the word lives here.
    unsafe { syscall(nr::rt_sigpending, [(&raw mut pending) as usize, 8, 0, 0, 0, 0]) };
    pending & bit(signal) != 0
}
