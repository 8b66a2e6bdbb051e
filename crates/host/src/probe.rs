//! What this host's Linux and its processor can do, asked without changing anything.

use husk_abi::sys::general::F_GETFL;
use husk_abi::{Errno, nr};

use crate::syscall;

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;

/// Turns Syscall User Dispatch on and off again for the calling thread, with every address
/// exempt, so that no call is caught meanwhile. `EINVAL`: the host has none.
pub fn syscall_user_dispatch() -> Result<(), Errno> {
    dispatched(|| ())
}

/// Runs `body` with Syscall User Dispatch on and every address exempt: nothing is caught, but each
/// call takes the host's way through the dispatcher.
pub fn dispatched<T>(body: impl FnOnce() -> T) -> Result<T, Errno> {
    dispatch([PR_SYS_DISPATCH_ON, 1, usize::MAX - 1])?;
    let result = body();
    dispatch([PR_SYS_DISPATCH_OFF, 0, 0])?;
    Ok(result)
}

/// `fcntl(fd, F_GETFL)`: the call alone, nothing of libc around it.
#[inline(always)]
pub fn flags_of(fd: i32) -> i64 {
    let result: i64;
    // SAFETY: a question about a number; the clobbers are those of the instruction.
    unsafe {
        core::arch::asm!("mov eax, {number}", "syscall", number = const nr::fcntl,
            in("rdi") fd as isize, in("rsi") F_GETFL as usize, in("rdx") 0,
            lateout("rax") result, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// So many additions, 16 at a time, that wait for each other as little as the processor allows.
#[inline(never)]
pub fn keep_busy(additions: u64) {
    for _ in 0..additions / 16 {
        // SAFETY: four registers that it names, and the flags.
        unsafe {
            core::arch::asm!(
                ".rept 4", "add {a}, 1", "add {b}, 1", "add {c}, 1", "add {d}, 1", ".endr",
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                options(nomem, nostack));
        }
    }
}

fn dispatch([mode, start, length]: [usize; 3]) -> Result<(), Errno> {
    // SAFETY: no memory is passed; all addresses are exempt while it is on.
    let raw =
        unsafe { syscall(nr::prctl, [PR_SET_SYSCALL_USER_DISPATCH, mode, start, length, 0, 0]) };
    Errno::check(raw as i64).map(|_| ())
}

/// Takes a memory protection key and gives it back. `ENOSPC` or `EINVAL`: no keys here.
pub fn protection_key() -> Result<(), Errno> {
    // SAFETY: no memory is touched; the key is given back at once.
    let key = unsafe { syscall(nr::pkey_alloc, [0; 6]) };
    let key = Errno::check(key as i64)? as usize;
    // SAFETY: a key nobody uses.
    unsafe { syscall(nr::pkey_free, [key, 0, 0, 0, 0, 0]) };
    Ok(())
}
