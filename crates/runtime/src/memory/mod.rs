//! Memory: copies that survive bad application pointers, and the routines the compiler expects.
//!
//! Invariants
//! 1. Application memory is touched between `husk_copy` and `husk_copy_fault` only; a fault there
//!    ends the copy early (`fault`), so every access here is an `EFAULT` and never a crash.
//! 2. What lies between the two has no stack of its own but its return address.
//! 3. The compiler's own `memcpy` is another piece of code: its fault is a bug of ours.

pub(crate) mod guard;
pub(crate) mod mappings;
pub(crate) mod mmap_lock;
pub(crate) mod region;
pub(crate) mod robust_lock;

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use husk_abi::{Errno, PAGE};
use husk_region::STATE_ADDRESS;
use husk_region::rings::pipes::PIPES_ADDRESS;

unsafe extern "C" {
    /// Copies; returns `target`, or `FAULTED`.
    fn husk_copy(target: usize, source: usize, count: usize) -> usize;
    /// Copies words until one has a NUL in it; returns how many bytes come before the NUL, all
    /// there are in `words` when there is none, or `FAULTED`.
    fn husk_copy_text(target: usize, source: usize, words: usize) -> usize;
    /// Reads a byte; the byte, or `FAULTED`.
    fn husk_peek(source: usize) -> usize;
    /// Where a faulting copy continues.
    pub fn husk_copy_fault();
    /// `memcpy` of the compiler.
    fn memcpy(target: *mut u8, source: *const u8, count: usize) -> *mut u8;
}

/// A copy met a fault.
const FAULTED: usize = usize::MAX;

/// Up to here words are moved one by one: `rep movsb` takes longer to start than that takes.
const WORDS_MAX: usize = 256;

global_asm!(
    r#"
    # Copies rdx bytes from rsi to rdi; rax = target. The last word, which may overlap the one
    # before it, is read first and written last.
    .macro husk_moves
    mov rax, rdi
    cmp rdx, {words_max}
    ja 6f
    cmp edx, 8
    jb 4f
    mov r9, [rsi + rdx - 8]
    lea r8, [rdi + rdx - 32]
    cmp rdi, r8
    ja 2f
1:  mov rcx, [rsi]
    mov r10, [rsi + 8]
    mov [rdi], rcx
    mov [rdi + 8], r10
    mov rcx, [rsi + 16]
    mov r10, [rsi + 24]
    mov [rdi + 16], rcx
    mov [rdi + 24], r10
    add rsi, 32
    add rdi, 32
    cmp rdi, r8
    jbe 1b
2:  add r8, 24
    cmp rdi, r8
    jae 3f
5:  mov rcx, [rsi]
    mov [rdi], rcx
    add rsi, 8
    add rdi, 8
    cmp rdi, r8
    jb 5b
3:  mov [r8], r9
    ret
4:  cmp edx, 4
    jb 5f
    mov ecx, [rsi]
    mov r8d, [rsi + rdx - 4]
    mov [rdi], ecx
    mov [rdi + rdx - 4], r8d
    ret
5:  test edx, edx
    jz 7f
    mov r8d, edx
    shr r8d, 1
    movzx r9d, byte ptr [rsi]
    movzx r10d, byte ptr [rsi + r8]
    movzx ecx, byte ptr [rsi + rdx - 1]
    mov [rdi], r9b
    mov [rdi + r8], r10b
    mov [rdi + rdx - 1], cl
7:  ret
6:  mov rcx, rdx
    rep movsb
    ret
    .endm

    .text
    .balign 64
    .globl husk_copy
husk_copy:
    husk_moves
    .balign 16
    .globl husk_copy_text
husk_copy_text:
    movabs r8, 0x0101010101010101
    movabs r9, 0x8080808080808080
    xor eax, eax
    shl rdx, 3
    jz 2f
1:  mov rcx, [rsi + rax]
    mov [rdi + rax], rcx
    mov r10, rcx
    not rcx
    sub r10, r8
    and rcx, r9
    and rcx, r10
    jnz 3f
    add rax, 8
    cmp rax, rdx
    jb 1b
2:  ret
3:  bsf rcx, rcx
    shr ecx, 3
    add rax, rcx
    ret
    .globl husk_peek
husk_peek:
    movzx eax, byte ptr [rdi]
    ret
    .globl husk_copy_fault
husk_copy_fault:
    mov rax, -1
    ret

    .balign 64
    .globl memcpy
memcpy:
    husk_moves
    .purgem husk_moves

    .balign 64
    .globl memset
memset:
    movzx ecx, sil
    movabs r8, 0x0101010101010101
    imul r8, rcx
    cmp rdx, {words_max}
    ja 6f
    mov rax, rdi
    cmp edx, 8
    jb 4f
    lea r9, [rdi + rdx - 8]
1:  mov [rdi], r8
    add rdi, 8
    cmp rdi, r9
    jb 1b
    mov [r9], r8
    ret
4:  test edx, edx
    jz 7f
5:  mov [rdi + rdx - 1], r8b
    dec edx
    jnz 5b
7:  ret
6:  mov r9, rdi
    mov rcx, rdx
    mov eax, r8d
    rep stosb
    mov rax, r9
    ret
"#,
    words_max = const WORDS_MAX,
);

/// Whether a fault at this address of ours is one of a copy's.
pub fn copies_at(address: usize) -> bool {
    (husk_copy as *const () as usize..husk_copy_fault as *const () as usize).contains(&address)
}

/// First address that no application memory has.
const USER_END: usize = 0x7fff_ffff_f000;

/// Copies between the application and this runtime; `EFAULT`. Nothing is copied into the state
/// arena: a stray pointer in a call must do no more harm than a stray store.
pub fn copy(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    if !inside(source, count) { Err(Errno::EFAULT) } else { copy_out(target, source, count) }
}

#[inline(always)]
fn inside(at: usize, count: usize) -> bool {
    at.checked_add(count).is_some_and(|end| end <= USER_END)
}

/// Copies to the application from what is ours.
#[inline(always)]
pub fn copy_out(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    if !inside(target, count) || in_arena(target) {
        return Err(Errno::EFAULT);
    }
    copied(target, source, count)
}

/// Copies from the application to what is ours.
#[inline(always)]
pub fn copy_in(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    if inside(source, count) { copied(target, source, count) } else { Err(Errno::EFAULT) }
}

#[inline(always)]
fn copied(target: usize, source: usize, count: usize) -> Result<(), Errno> {
    // SAFETY: one side is ours and valid; the other may fault, which ends the copy.
    if unsafe { husk_copy(target, source, count) } == FAULTED { Err(Errno::EFAULT) } else { Ok(()) }
}

/// The application's byte at `source`.
#[inline(always)]
pub fn peek(source: usize) -> Result<u8, Errno> {
    if source >= USER_END {
        return Err(Errno::EFAULT);
    }
    // SAFETY: it reads one byte, and may fault, which ends it.
    match unsafe { husk_peek(source) } {
        FAULTED => Err(Errno::EFAULT),
        byte => Ok(byte as u8),
    }
}

/// Whether an address belongs to the room set aside for the state arena.
#[inline(always)]
pub fn in_arena(address: usize) -> bool {
    (STATE_ADDRESS..PIPES_ADDRESS).contains(&address)
}

/// Reads application bytes.
pub fn read(source: usize, target: &mut [u8]) -> Result<(), Errno> {
    copy_in(target.as_mut_ptr() as usize, source, target.len())
}

/// Writes application bytes.
pub fn write(target: usize, source: &[u8]) -> Result<(), Errno> {
    copy_out(target, source.as_ptr() as usize, source.len())
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

/// Bytes of a word.
const WORD: usize = 8;

/// Copies a string into `target`; its length without the NUL. `ENAMETOOLONG`.
#[inline]
pub fn read_string(source: usize, target: &mut [u8]) -> Result<usize, Errno> {
    // Nearly all end in the page they begin in.
    let count = (PAGE - source % PAGE).min(target.len()) & !(WORD - 1);
    if source <= USER_END - PAGE {
        let at = target.as_mut_ptr() as usize;
        // SAFETY: `target` has room for the words; reading the application's may fault.
        let found = unsafe { husk_copy_text(at, source, count / WORD) };
        if found < count {
            return Ok(found);
        }
    }
    read_long_string(source, target)
}

#[inline(never)]
fn read_long_string(source: usize, target: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < target.len() {
        let at = source.checked_add(done).ok_or(Errno::EFAULT)?;
        // Whole words up to the end of the page, for the next may not be there; then single bytes.
        let count = (PAGE - at % PAGE).min(target.len() - done);
        let count = if count < WORD { count } else { count & !(WORD - 1) };
        let found = read_text(at, &mut target[done..done + count])?;
        done += found;
        if found < count {
            return Ok(done);
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// Copies up to a NUL; how many bytes come before it, all of `target` when there is none.
fn read_text(source: usize, target: &mut [u8]) -> Result<usize, Errno> {
    if target.len() < WORD {
        read(source, target)?;
        return Ok(target.iter().position(|&b| b == 0).unwrap_or(target.len()));
    }
    if source.checked_add(target.len()).is_none_or(|end| end > USER_END) {
        return Err(Errno::EFAULT);
    }
    let (at, words) = (target.as_mut_ptr() as usize, target.len() / WORD);
    // SAFETY: `target` has room for the words; reading the application's may fault, which ends it.
    match unsafe { husk_copy_text(at, source, words) } {
        FAULTED => Err(Errno::EFAULT),
        found => Ok(found),
    }
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
