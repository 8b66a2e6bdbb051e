//! Memory that two nodes map: a sealed memfd, and checked access to what is in it.
//!
//! Invariants
//! 1. The file cannot shrink while it is mapped: the side that makes it seals it, and the side that
//!    receives it checks the seals. No access faults, whatever the other side does.
//! 2. Rust references are made to shared words only. Bytes are copied in and out, because the other
//!    side may write them at any moment.
//! 3. Every offset is checked against the size of the mapping. A wrong offset is a bug of this side
//!    (it comes from `layout`, not from the peer) and panics.

use core::ffi::CStr;
use core::marker::PhantomData;
use core::ptr::NonNull;

use husk_abi::{Errno, nr};
use husk_host::calls::{self, raw};

use crate::slots::Slots;
use crate::word::Word;

const MFD_CLOEXEC: usize = 1;
const MFD_ALLOW_SEALING: usize = 2;
const F_ADD_SEALS: usize = 1033;
const F_GET_SEALS: usize = 1034;
/// No more seals, no shrinking, no growing.
const SEALS: usize = 1 | 2 | 4;
const READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;

/// A mapping that is shared with another node.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    descriptor: usize,
}

// SAFETY: it is reached through `Area` alone, whose accesses are atomic or raw copies.
unsafe impl Send for Memory {}
// SAFETY: the same.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes some, all zero.
    pub fn create(name: &CStr, bytes: usize) -> Result<Memory, Errno> {
        let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
        // SAFETY: the name ends with NUL and outlives the call.
        let made = unsafe { raw(nr::memfd_create, [name.as_ptr() as usize, flags, 0, 0, 0, 0]) };
        let descriptor = made?;
        // SAFETY: numbers only.
        let sealed = unsafe {
            raw(nr::ftruncate, [descriptor, bytes, 0, 0, 0, 0])
                .and_then(|_| raw(nr::fcntl, [descriptor, F_ADD_SEALS, SEALS, 0, 0, 0]))
        };
        sealed.and_then(|_| map(descriptor, bytes)).inspect_err(|_| calls::close(descriptor))
    }

    /// Maps what another node has made; it takes the descriptor over. EINVAL: it is not sealed, or
    /// not of this size.
    pub fn open(descriptor: usize, bytes: usize) -> Result<Memory, Errno> {
        if !is_whole(descriptor, bytes) {
            return Err(Errno::EINVAL);
        }
        map(descriptor, bytes)
    }

    /// The memfd, to be given to the other node.
    pub fn descriptor(&self) -> usize {
        self.descriptor
    }

    /// All of it, of `Slots::BYTES`, for requests.
    pub fn slots(&self) -> Slots<'_> {
        assert!(self.bytes >= Slots::BYTES);
        // SAFETY: a mapping of ours of that size, which is lent.
        unsafe { Slots::at(self.base) }
    }

    /// All of it.
    pub fn area(&self) -> Area<'_> {
        Area { base: self.base, bytes: self.bytes, lent: PhantomData }
    }
}

/// Whether a memfd has this size for ever: no access to a mapping of it faults.
pub fn is_whole(descriptor: usize, bytes: usize) -> bool {
    // SAFETY: asks for flags of a number.
    let seals = unsafe { raw(nr::fcntl, [descriptor, F_GET_SEALS, 0, 0, 0, 0]) }.unwrap_or(0);
    seals & SEALS == SEALS && calls::fstat(descriptor).is_ok_and(|file| file.size == bytes as i64)
}

fn map(descriptor: usize, bytes: usize) -> Result<Memory, Errno> {
    // SAFETY: a new mapping at an address that the host chooses.
    let at = unsafe { raw(nr::mmap, [0, bytes, READ_WRITE, MAP_SHARED, descriptor, 0]) }?;
    let base = NonNull::new(at as *mut u8).ok_or(Errno::ENOMEM)?;
    Ok(Memory { base, bytes, descriptor })
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: areas borrow from this, so none is left; the mapping is ours.
        let _ = unsafe { raw(nr::munmap, [self.base.as_ptr() as usize, self.bytes, 0, 0, 0, 0]) };
        calls::close(self.descriptor);
    }
}

/// Shared memory, as lanes and doorbells reach it.
#[derive(Clone, Copy, Debug)]
pub struct Area<'m> {
    base: NonNull<u8>,
    bytes: usize,
    lent: PhantomData<&'m Memory>,
}

// SAFETY: accesses are atomic or raw copies of bytes that may change at any moment.
unsafe impl Send for Area<'_> {}
// SAFETY: the same.
unsafe impl Sync for Area<'_> {}

impl<'m> Area<'m> {
    /// The word at `offset`.
    #[inline(always)]
    pub(crate) fn word(&self, offset: usize) -> &'m Word {
        assert!(offset.is_multiple_of(8) && offset < self.bytes);
        // SAFETY: inside the mapping, which is whole pages and lives for 'm; aligned; only ever
        // accessed as a word, by both sides.
        unsafe { &*self.base.as_ptr().add(offset).cast::<Word>() }
    }

    #[inline(always)]
    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset <= self.bytes && length <= self.bytes - offset);
        // SAFETY: inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Copies bytes into it.
    #[inline]
    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` has judged it; nobody has a reference to these bytes, and `bytes` is not
        // inside the mapping.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes out of it.
    #[inline]
    pub(crate) fn copy(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `at` has judged it; the other side may write them meanwhile, then any mixture
        // is what was sent.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Makes all of it zero, unseen by the model.
    #[cfg(feature = "models")]
    pub fn clear(&self) {
        // SAFETY: nobody has a reference; models run in one thread.
        unsafe { core::ptr::write_bytes(self.base.as_ptr(), 0, self.bytes) }
    }

    /// Where `length` bytes at `offset` are, for a call of the host that fills or reads them.
    pub(crate) fn address(&self, offset: usize, length: usize) -> usize {
        self.at(offset, length) as usize
    }
}
