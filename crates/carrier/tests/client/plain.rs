//! Host and memory as a thread without a gate sees them: calls made as they are, memory copied
//! as it is. Only for tests that pass sound addresses.

use husk_abi::{Errno, nr};
use husk_client::{Host, Mapping, Memory};
use husk_proto::Inode;
use husk_proto::fs::{Run, Span};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// `MAP_FIXED`.
const FIXED: usize = 0x10;
/// `MAP_PRIVATE | MAP_ANONYMOUS`.
const RESERVE: usize = 0x22;

/// The host, and the region's memfd.
#[derive(Clone, Copy)]
pub struct Plain {
    pub region: i32,
}

/// Words that stand for room on the stack.
const ROOM_WORDS: usize = 512;

/// Calls so far.
pub static CALLS: AtomicU64 = AtomicU64::new(0);

/// A raw call.
pub fn host(number: usize, args: [usize; 6]) -> i64 {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the tests pass addresses of live buffers, or 0 and 1 where the kernel is to refuse.
    unsafe { husk_host::syscall(number, args) as i64 }
}

impl Host for Plain {
    type Still = ();

    fn keep_still(&self) {}

    fn call(&self, number: usize, args: [usize; 6]) -> i64 {
        host(number, args)
    }

    fn now_ns(&self) -> i64 {
        super::clock()
    }

    fn map_cache(&self, mapping: &Mapping, runs: &[Run]) -> Result<usize, Errno> {
        let Mapping { address, length, prot, flags, .. } = *mapping;
        let reserve = RESERVE | flags & FIXED;
        let whole = host(nr::mmap, [address, length, 0, reserve, usize::MAX, 0]);
        let start = Errno::check(whole)? as usize;
        let mut at = start;
        for run in runs {
            let flags = flags | FIXED;
            let place = run.cache_offset.expect("nothing here maps a hole") as usize;
            let args = [at, run.length as usize, prot, flags, self.region as usize, place];
            Errno::check(host(nr::mmap, args))?;
            at += run.length as usize;
        }
        Ok(start)
    }

    fn map_runs(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENODEV)
    }

    fn note_mapping(&self, _: &Mapping, _: Inode) {}

    fn stack_room(&self, bytes: usize) -> usize {
        thread_local!(static ROOM: [Cell<u64>; ROOM_WORDS] = const {
            [const { Cell::new(0) }; ROOM_WORDS]
        });
        assert!(bytes <= 8 * ROOM_WORDS);
        ROOM.with(|room| room.as_ptr() as usize)
    }

    fn kept_fds(&self) -> [u32; 3] {
        [self.region as u32, u32::MAX, u32::MAX]
    }
}

/// Addresses below this fault, as the first pages do.
const LOWEST: usize = 65536;

fn check(address: usize) -> Result<(), Errno> {
    if address < LOWEST { Err(Errno::EFAULT) } else { Ok(()) }
}

impl Memory for Plain {
    fn read(&self, source: usize, target: &mut [u8]) -> Result<(), Errno> {
        check(source)?;
        // SAFETY: the tests pass live buffers.
        unsafe {
            core::ptr::copy(source as *const u8, target.as_mut_ptr(), target.len());
        }
        Ok(())
    }

    fn write(&self, target: usize, source: &[u8]) -> Result<(), Errno> {
        check(target)?;
        // SAFETY: as above.
        unsafe { core::ptr::copy(source.as_ptr(), target as *mut u8, source.len()) };
        Ok(())
    }

    fn read_string(&self, source: usize, target: &mut [u8]) -> Result<usize, Errno> {
        check(source)?;
        for (index, byte) in target.iter_mut().enumerate() {
            // SAFETY: as above; the string ends with NUL.
            *byte = unsafe { *((source + index) as *const u8) };
            if *byte == 0 {
                return Ok(index);
            }
        }
        Err(Errno::ENAMETOOLONG)
    }

    fn copy_out(&self, span: Span, target: usize) -> Result<(), Errno> {
        check(target)?;
        // SAFETY: the span lies in the buffer cache, the target in a live buffer.
        unsafe {
            core::ptr::copy(span.address as *const u8, target as *mut u8, span.length);
        }
        Ok(())
    }

    fn copy_in(&self, source: usize, span: Span) -> Result<(), Errno> {
        check(source)?;
        // SAFETY: as above.
        unsafe {
            core::ptr::copy(source as *const u8, span.address as *mut u8, span.length);
        }
        Ok(())
    }
}
