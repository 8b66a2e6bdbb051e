//! The only way down to Linux for code that lives in the application: raw system calls.
//!
//! No libc, no TLS, no allocation, so that the runtime can link it into its own text (which
//! Syscall User Dispatch exempts) and tools can use it too. `calls` has the few calls the runtime
//! makes often, with errors as `Errno`.
#![no_std]
#[cfg(not(target_os = "none"))]
extern crate std;

#[cfg(not(target_os = "none"))]
pub mod bpf;
pub mod calls;
#[cfg(not(target_os = "none"))]
pub mod cbpf;
#[cfg(not(target_os = "none"))]
pub mod datagrams;
#[cfg(not(target_os = "none"))]
pub mod early;
#[cfg(not(target_os = "none"))]
pub mod end;
pub mod huge;
#[cfg(not(target_os = "none"))]
pub mod interface;
pub mod messages;
pub mod owner;
pub mod probe;
#[cfg(not(target_os = "none"))]
pub mod seized;
#[cfg(not(target_os = "none"))]
pub mod slice;

use core::arch::asm;

/// One system call; the raw return value (negative errno).
///
/// # Safety
/// The arguments must be sound for call `number`: pointers valid, memory not pulled from under
/// live references.
#[inline(always)]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the clobbers are those of the instruction.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
             in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
             in("r10") args[3], in("r8") args[4], in("r9") args[5],
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}
