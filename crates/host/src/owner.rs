//! Makes one call with the rights of a file's owner, whatever the mode of the file.
//!
//! ```text
//!   caller ──clone (same memory and descriptors, new user namespace)──► child
//!     │ sleeps                                              maps its own user and group
//!     │                                                     makes the call
//!     ◄──────── result, and what the call has opened ────── ends
//! ```
//!
//! Invariants
//! 1. The child has capabilities over files of the caller's own user and group only: no other id
//!    means anything in its namespace.
//! 2. All signals are blocked meanwhile, also in the child, so no handler runs there.
//! 3. The child ends without a signal and is reaped here. No other process notices it.
//!
//! Where the host forbids user namespaces, the result is `EACCES`, as of the call itself.

use core::arch::asm;
use core::mem::MaybeUninit;

use husk_abi::{Errno, nr};

use crate::syscall;

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_VFORK: usize = 0x4000;
const CLONE_NEWUSER: usize = 0x1000_0000;
const WAIT_ALL: usize = 0x4000_0000;
const AT_FDCWD: usize = -100isize as usize;
const O_WRONLY: usize = 1;
const SIG_SETMASK: usize = 2;
const STACK_BYTES: usize = 8192;
/// `4294967295 4294967295 1`, with room.
const MAP_BYTES: usize = 32;

#[repr(C, align(16))]
struct Stack(MaybeUninit<[u8; STACK_BYTES]>);

/// What the child is to do.
struct Errand {
    number: usize,
    args: [usize; 6],
    user: u32,
    group: u32,
    result: isize,
}

/// Makes call `number` as the owner of what the calling process owns; the raw return value.
///
/// # Safety
/// As for `syscall`. The calling thread's memory and descriptors are the call's.
pub unsafe fn call_as_owner(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: these touch no memory.
    let (user, group) = unsafe {
        let none = [0; 6];
        (syscall(nr::geteuid, none) as u32, syscall(nr::getegid, none) as u32)
    };
    let refused = Errno::EACCES.as_return() as isize;
    let mut errand = Errand { number, args, user, group, result: refused };
    let mut stack = Stack(MaybeUninit::uninit());
    let top = (&raw mut stack) as usize + STACK_BYTES;
    let (all, mut before) = (u64::MAX, 0u64);
    let kept = (&raw mut before) as usize;
    // SAFETY: both sets are eight bytes; the mask is what it was in the end. The child runs on
    // `stack` while the caller sleeps, and is gone when it wakes.
    unsafe {
        syscall(nr::rt_sigprocmask, [SIG_SETMASK, (&raw const all) as usize, kept, 8, 0, 0]);
        let child = start(&raw mut errand, top);
        if child > 0 {
            while syscall(nr::wait4, [child as usize, 0, WAIT_ALL, 0, 0, 0])
                == Errno::EINTR.as_return() as isize
            {}
        }
        syscall(nr::rt_sigprocmask, [SIG_SETMASK, kept, 0, 8, 0, 0]);
    }
    core::hint::black_box(&errand).result
}

/// Opens `path` in `directory` as the owner of what the calling process owns: flags and resolve
/// flags as of `openat2`.
#[cfg(not(target_os = "none"))]
pub fn open(
    directory: std::os::fd::BorrowedFd<'_>,
    path: &core::ffi::CStr,
    flags: u64,
    resolve: u64,
) -> Result<std::os::fd::OwnedFd, Errno> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let how = [flags, 0, resolve];
    let (at, size) = ((&raw const how) as usize, size_of_val(&how));
    let args = [directory.as_raw_fd() as usize, path.as_ptr() as usize, at, size, 0, 0];
    // SAFETY: a path with its NUL and a `struct open_how`.
    let fd = Errno::check(unsafe { call_as_owner(nr::openat2, args) } as i64)?;
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Starts the child on the stack that ends at `top`; its number, or an error.
///
/// # Safety
/// `errand` and the stack are the child's until this returns.
unsafe fn start(errand: *mut Errand, top: usize) -> isize {
    let flags = CLONE_VM | CLONE_FILES | CLONE_VFORK | CLONE_NEWUSER;
    let result: isize;
    // SAFETY: the child uses its own stack alone and does not return; it finds `errand` and `run`
    // in registers that the host keeps.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") nr::clone as isize => result,
            in("rdi") flags, in("rsi") top, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") errand, in("r13") run as extern "C" fn(*mut Errand) -> !,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// The child.
extern "C" fn run(errand: *mut Errand) -> ! {
    // SAFETY: the caller's, who sleeps meanwhile.
    let errand = unsafe { &mut *errand };
    let mapped = write(c"/proc/self/uid_map", errand.user, true)
        && write(c"/proc/self/setgroups", 0, false)
        && write(c"/proc/self/gid_map", errand.group, true);
    if mapped {
        // SAFETY: the caller of `call_as_owner` vouches for it.
        errand.result = unsafe { syscall(errand.number, errand.args) };
    }
    loop {
        // SAFETY: ends the child.
        unsafe { syscall(nr::exit, [0; 6]) };
    }
}

/// Writes that `id` is itself, or that the groups are for good; whether that was taken.
fn write(path: &core::ffi::CStr, id: u32, maps: bool) -> bool {
    let mut text = [0u8; MAP_BYTES];
    let length = if maps {
        let mut at = 0;
        for _ in 0..2 {
            at += husk_abi::proc::put_decimal(&mut text[at..], id);
            text[at] = b' ';
            at += 1;
        }
        text[at] = b'1';
        at + 1
    } else {
        text[..4].copy_from_slice(b"deny");
        4
    };
    let text = core::hint::black_box(&text);
    // SAFETY: a path with its NUL, and bytes of `text`.
    unsafe {
        let fd = syscall(nr::openat, [AT_FDCWD, path.as_ptr() as usize, O_WRONLY, 0, 0, 0]);
        if fd < 0 {
            return false;
        }
        let done = syscall(nr::write, [fd as usize, text.as_ptr() as usize, length, 0, 0, 0]);
        syscall(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        done == length as isize
    }
}
