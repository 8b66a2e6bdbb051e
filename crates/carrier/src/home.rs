//! The image as the process that made it sees it: mapped once, for as long as the process lives.
//!
//! Everything is safe to call: a `Home` exists only when the region is mapped and formatted, and
//! it is never unmapped.

use husk_abi::{Errno, nr};
use husk_host::syscall;
use husk_proto::{Fs, Inode, Process, Result, fs::Span};
use husk_region::{CACHE_ADDRESS, Layout, STATE_ADDRESS};

use crate::Direct;

const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const MAP_NORESERVE: usize = 0x4000;

/// A mapped, formatted image.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    layout: Layout,
}

impl Home {
    /// Maps the zeroed region memfd `region` (its size is `layout.total_bytes()`) and writes a new
    /// image into it. Once a process: `EEXIST` when something is mapped there already.
    pub fn make(region: i32, layout: Layout, device: u64, copies_path: &[u8]) -> Result<Home> {
        let pieces = [
            (STATE_ADDRESS, layout.state_bytes(), 0),
            (CACHE_ADDRESS, layout.cache_bytes(), layout.cache_offset()),
        ];
        for (address, length, offset) in pieces {
            map(region, address, length as usize, offset as usize)?;
        }
        // SAFETY: both pieces have just been mapped, shared and writable, and are never unmapped.
        unsafe { crate::format(layout, device, copies_path) };
        Ok(Home { layout })
    }

    /// What the image was made from.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// A thread's way to the image; `process` is `Process(0)` for one that runs no program.
    pub fn attach(&self, clock: fn() -> i64, process: Process, pid: u32, tid: u32) -> Direct {
        // SAFETY: a `Home` exists, so the region is mapped and formatted, for good.
        unsafe { Direct::attach(clock, process, pid, tid) }
    }
}

impl Direct {
    /// Reads bytes of a file in the image; 0 = the end.
    pub fn read_at(&mut self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut at = 0;
        let length = into.len();
        self.read(inode, offset, length, &mut |span| {
            let room = into.get_mut(at..at + span.length).ok_or(Errno::EFAULT)?;
            copy_out(span, room);
            at += span.length;
            Ok(())
        })
    }

    /// Writes bytes to a file in the image; how many.
    pub fn write_at(&mut self, inode: Inode, offset: u64, from: &[u8]) -> Result<usize> {
        let mut at = 0;
        let place = husk_proto::fs::Place::At(offset);
        let wrote = self.write(inode, place, from.len(), &mut |span| {
            let bytes = from.get(at..at + span.length).ok_or(Errno::EFAULT)?;
            copy_in(bytes, span);
            at += span.length;
            Ok(())
        })?;
        Ok(wrote.1)
    }
}

fn copy_out(span: Span, into: &mut [u8]) {
    debug_assert_eq!(span.length, into.len());
    // SAFETY: the carrier gives spans inside the mapped buffer cache; `into` is ours and as long.
    // Other processes may write the bytes meanwhile: they are copied raw, never referenced.
    unsafe { core::ptr::copy(span.address as *const u8, into.as_mut_ptr(), into.len()) }
}

fn copy_in(bytes: &[u8], span: Span) {
    debug_assert_eq!(span.length, bytes.len());
    // SAFETY: the carrier gives spans inside the mapped buffer cache that this write owns.
    unsafe { core::ptr::copy(bytes.as_ptr(), span.address as *mut u8, bytes.len()) }
}

fn map(region: i32, address: usize, length: usize, offset: usize) -> Result<()> {
    let flags = MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    let args = [address, length, PROT_READ_WRITE, flags, region as usize, offset];
    // SAFETY: a new mapping that replaces none.
    let mapped = unsafe { syscall(nr::mmap, args) };
    match Errno::check(mapped as i64)? {
        there if there as usize == address => Ok(()),
        _ => Err(Errno::EEXIST),
    }
}
