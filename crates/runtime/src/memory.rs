//! Memory: copies that survive bad application pointers, and the routines the compiler expects.
//!
//! Invariant: application memory is touched by `husk_copy` only; a fault at its one instruction
//! ends the copy early (`fault`), so every access here is an `EFAULT` and never a crash.

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use husk_abi::{Errno, PAGE};
use husk_region::{CACHE_ADDRESS, STATE_ADDRESS};

unsafe extern "C" {
    /// Copies; returns how many bytes are missing.
    fn husk_copy(target: usize, source: usize, count: usize) -> usize;
    /// Its one instruction that may fault.
    pub fn husk_copy_at();
    /// Where a faulting copy continues.
    pub fn husk_copy_fault();
}

global_asm!(
    ".text",
    ".globl husk_copy",
    "husk_copy:",
    "mov rcx, rdx",
    ".globl husk_copy_at",
    "husk_copy_at:",
    "rep movsb",
    ".globl husk_copy_fault",
    "husk_copy_fault:",
    "mov rax, rcx",
    "ret",
);

/// First address that no application memory has.
const USER_END: usize = 0x7fff_ffff_f000;

/// Copies between the application and this runtime; `EFAULT`. Nothing is copied into the state
/// arena: a stray pointer in a call must do no more harm than a stray store.
pub fn copy(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    let inside = |at: usize| at.checked_add(count).is_some_and(|end| end <= USER_END);
    if !inside(target) || !inside(source) || in_arena(target) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: one side is ours and valid; the other may fault, which ends the copy.
    if unsafe { husk_copy(target, source, count) } == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether an address belongs to the room set aside for the state arena.
#[inline(always)]
pub fn in_arena(address: usize) -> bool {
    (STATE_ADDRESS..CACHE_ADDRESS).contains(&address)
}

/// Reads application bytes.
pub fn read(source: usize, target: &mut [u8]) -> Result<(), Errno> {
    copy(target.as_mut_ptr() as usize, source, target.len())
}

/// Writes application bytes.
pub fn write(target: usize, source: &[u8]) -> Result<(), Errno> {
    copy(target, source.as_ptr() as usize, source.len())
}

/// Reads a plain value (integers and structs of integers).
pub fn read_value<T: Copy>(source: usize, target: &mut T) -> Result<(), Errno> {
    copy(core::ptr::from_mut(target) as usize, source, size_of::<T>())
}

/// Writes a plain value.
pub fn write_value<T: Copy>(target: usize, source: &T) -> Result<(), Errno> {
    copy(target, core::ptr::from_ref(source) as usize, size_of::<T>())
}

/// Reads one word.
pub fn word(source: usize) -> Result<usize, Errno> {
    let mut value = MaybeUninit::<usize>::zeroed();
    copy(value.as_mut_ptr() as usize, source, 8)?;
    // SAFETY: zeroed or written as a whole; any bits are a usize.
    Ok(unsafe { value.assume_init() })
}

/// Copies a string into `target`; its length without the NUL. `ENAMETOOLONG`.
pub fn read_string(source: usize, target: &mut [u8]) -> Result<usize, Errno> {
    const STEP: usize = 64;
    let mut done = 0;
    while done < target.len() {
        let at = source.checked_add(done).ok_or(Errno::EFAULT)?;
        let count = STEP.min(PAGE - at % PAGE).min(target.len() - done);
        read(at, &mut target[done..done + count])?;
        if let Some(end) = target[done..done + count].iter().position(|&b| b == 0) {
            return Ok(done + end);
        }
        done += count;
    }
    Err(Errno::ENAMETOOLONG)
}

/// `memcpy` of the compiler.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(target: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller's regions are valid and apart.
    unsafe {
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") target => _,
             inout("rsi") source => _, options(nostack, preserves_flags));
    }
    target
}

/// `memmove` of the compiler.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(target: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    if (target as usize).wrapping_sub(source as usize) >= count {
        // SAFETY: copying upwards is right when the target does not start inside the source.
        return unsafe { memcpy(target, source, count) };
    }
    // SAFETY: the caller's regions are valid; downwards is right here.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") count => _,
             inout("rdi") target.wrapping_add(count).wrapping_sub(1) => _,
             inout("rsi") source.wrapping_add(count).wrapping_sub(1) => _, options(nostack));
    }
    target
}

/// `memset` of the compiler.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(target: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller's region is valid.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") target => _,
             in("al") byte as u8, options(nostack, preserves_flags));
    }
    target
}

/// `memcmp` of the compiler.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    let mut i = 0;
    // Eight bytes at a time, then the byte that differs.
    while i + 8 <= count {
        // SAFETY: both regions have `count` bytes.
        let (l, r) = unsafe {
            (
                left.add(i).cast::<u64>().read_unaligned(),
                right.add(i).cast::<u64>().read_unaligned(),
            )
        };
        if l != r {
            break;
        }
        i += 8;
    }
    while i < count {
        // SAFETY: as above; volatile keeps the compiler from calling memcmp here.
        let (l, r) = unsafe { (left.add(i).read_volatile(), right.add(i).read_volatile()) };
        if l != r {
            return i32::from(l) - i32::from(r);
        }
        i += 1;
    }
    0
}

/// `bcmp` of the compiler.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, count) }
}

/// `strlen` of the compiler.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller's string ends with NUL.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}
