//! Linux as the other rooms see it: numbers, flags, layouts and errors of x86-64.
//!
//! `sys` is the kernel's own header, generated; this crate adds only what a header cannot say.
//! Nothing here calls anything.
#![no_std]
#![forbid(unsafe_code)]

pub mod cbpf;
pub mod errno;
pub mod memory;
pub mod nr;
pub mod proc;
pub mod shape;

pub use errno::Errno;
pub use linux_raw_sys as sys;

/// Bytes in a page of memory and in a block of the buffer cache.
pub const PAGE: usize = 4096;
/// Bytes of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;
/// Longest name of one path component, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path including its terminating NUL, in bytes.
pub const PATH_MAX: usize = 4096;
/// Symbolic links followed in one path walk before `ELOOP`.
pub const SYMLINKS_MAX: usize = 40;
/// Times this, numbers that lie close together lie far apart in their upper bits: 2^64 over the
/// golden ratio, odd (Knuth, The Art of Computer Programming, volume 3, section 6.4).
pub const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The same for 32 bits: the prime next to 2^32 over the golden ratio.
pub const SPREAD_32: u32 = 0x9e37_79b1;

/// Capabilities that the file system asks about (bit numbers as in `capability.h`).
pub mod capability {
    /// Change owners.
    pub const CHOWN: u32 = 0;
    /// Ignore read, write and execute permission.
    pub const DAC_OVERRIDE: u32 = 1;
    /// Ignore read permission, and execute permission of directories.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// Act as the owner of a file.
    pub const FOWNER: u32 = 3;
    /// Keep set-id bits on change.
    pub const FSETID: u32 = 4;
    /// Administer: the attributes `trusted.*` and `security.*`.
    pub const SYS_ADMIN: u32 = 21;
    /// Give capabilities to files.
    pub const SETFCAP: u32 = 31;
    /// Make device nodes.
    pub const MKNOD: u32 = 27;
}
