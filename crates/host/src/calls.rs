//! Host calls by name, errors as `Errno`.
//!
//! Paths are `&CStr`. Descriptors are plain numbers, because the runtime shares its descriptor
//! table with the application and does not own it.

use crate::syscall;
use core::ffi::CStr;
use husk_abi::{Errno, nr};

/// The result of a host call.
pub type Result<T> = core::result::Result<T, Errno>;

/// `AT_FDCWD` as an argument.
pub const AT_FDCWD: usize = -100isize as usize;
const O_CLOEXEC: usize = 0o2000000;

/// Any call, its error as `Errno`.
///
/// # Safety
/// As for `syscall`.
#[inline(always)]
pub unsafe fn raw(number: usize, args: [usize; 6]) -> Result<usize> {
    // SAFETY: passed on to the caller.
    let result = unsafe { syscall(number, args) };
    Errno::check(result as i64).map(|v| v as usize)
}

/// Opens a host path read-only, close-on-exec.
pub fn open(path: &CStr) -> Result<usize> {
    // SAFETY: the path ends with NUL and outlives the call.
    unsafe { raw(nr::openat, [AT_FDCWD, path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0]) }
}

/// Closes a descriptor.
pub fn close(fd: usize) {
    // SAFETY: no memory is involved.
    let _ = unsafe { raw(nr::close, [fd, 0, 0, 0, 0, 0]) };
}

/// Whether `fd` is closed by an exec; an error where nothing is open under that number.
pub fn is_close_on_exec(fd: usize) -> Result<bool> {
    const F_GETFD: usize = 1;
    const FD_CLOEXEC: usize = 1;
    // SAFETY: asks for a flag of a number, which need not be open; no memory is involved.
    let flags = unsafe { raw(nr::fcntl, [fd, F_GETFD, 0, 0, 0, 0]) }?;
    Ok(flags & FD_CLOEXEC != 0)
}

/// `pread` into `out`.
pub fn pread(fd: usize, out: &mut [u8], offset: u64) -> Result<usize> {
    let args = [fd, out.as_mut_ptr() as usize, out.len(), offset as usize, 0, 0];
    // SAFETY: `out` is writable for its length.
    unsafe { raw(nr::pread64, args) }
}

/// Writes to a descriptor; best effort.
pub fn write(fd: usize, text: &[u8]) {
    // SAFETY: `text` is readable for its length.
    let _ = unsafe { raw(nr::write, [fd, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// `fstat`.
pub fn fstat(fd: usize) -> Result<Stat> {
    let mut stat = Stat::default();
    // SAFETY: `stat` has the kernel's layout (asserted below) and is writable.
    unsafe { raw(nr::fstat, [fd, (&raw mut stat) as usize, 0, 0, 0, 0]) }?;
    Ok(stat)
}

/// `struct stat` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)]
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub pad: u32,
    pub rdev: u64,
    pub size: i64,
    pub block_bytes: i64,
    pub blocks: i64,
    pub accessed: [i64; 2],
    pub modified: [i64; 2],
    pub changed: [i64; 2],
    pub unused: [i64; 3],
}

const _: () = assert!(size_of::<Stat>() == 144);

/// The processor's clock.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it; a program that has switched it off is none of ours.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether two descriptors of this process are one open file. A host that does not tell says no.
pub fn are_one(one: usize, other: usize) -> bool {
    const FILE: usize = 0;
    let own = getpid() as usize;
    // SAFETY: no memory is involved.
    unsafe { raw(nr::kcmp, [own, own, FILE, one, other, 0]) == Ok(0) }
}

/// The calling process.
pub fn getpid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { syscall(nr::getpid, [0; 6]) as u32 }
}

/// The calling thread.
pub fn gettid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { syscall(nr::gettid, [0; 6]) as u32 }
}

/// Ends the process.
pub fn exit_group(status: usize) -> ! {
    loop {
        // SAFETY: nothing is used after it.
        unsafe { syscall(nr::exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}
