//! Host and memory for the part of the client that reads the host's side of an overlay.

use std::os::fd::{FromRawFd, OwnedFd};

use husk_abi::{Errno, nr};
use husk_client::{Host, Mapping, Memory};
use husk_proto::Inode;
use husk_proto::fs::{Run, Span};
use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: i64 = 1_000_000_000;

/// The host, called as it is; no application, and so no memory of one.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// Now, ns since the epoch, coarse.
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec * NS_PER_S + now.tv_nsec
}

/// Has Linux run this thread soon after it wakes, also where all cores are busy: it sleeps nearly
/// always, and a program waits for it. Before Linux 6.12 nothing changes.
pub fn take_short_turns() {
    /// In place of some 3 ms.
    const TURN_NS: u64 = 200_000;
    /// `struct sched_attr`: size and policy, flags, nice value and priority, runtime, and two more.
    const RUNTIME: usize = 3;
    let mut attributes = [0u64; 6];
    let (place, bytes) = (attributes.as_mut_ptr() as usize, size_of_val(&attributes));
    // SAFETY: the host writes at most so many bytes there.
    let got = unsafe { husk_host::syscall(nr::sched_getattr, [0, place, bytes, 0, 0, 0]) };
    if got == 0 {
        attributes[RUNTIME] = TURN_NS;
        let place = attributes.as_ptr() as usize;
        // SAFETY: the host reads what it has just written.
        unsafe { husk_host::syscall(nr::sched_setattr, [0, place, 0, 0, 0, 0]) };
    }
}

/// A descriptor that the client has opened for its caller.
pub fn owned(fd: usize) -> OwnedFd {
    // SAFETY: nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

impl Host for Plain {
    type Still = ();

    fn keep_still(&self) {}

    fn call(&self, number: usize, args: [usize; 6]) -> i64 {
        // SAFETY: the client passes addresses of its own buffers and of the region, which is
        // mapped; no application's arguments come this way.
        unsafe { husk_host::syscall(number, args) as i64 }
    }

    fn call_as_owner(&self, number: usize, args: [usize; 6]) -> i64 {
        // SAFETY: as for `call`.
        unsafe { husk_host::owner::call_as_owner(number, args) as i64 }
    }

    fn now_ns(&self) -> i64 {
        now_ns()
    }

    fn map_cache(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENODEV)
    }

    fn map_runs(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENODEV)
    }

    fn note_mapping(&self, _: &Mapping, _: Inode) {}

    fn stack_room(&self, _: usize) -> usize {
        0
    }
}

impl Memory for Plain {
    fn read(&self, _: usize, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EFAULT)
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EFAULT)
    }

    fn read_string(&self, _: usize, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::EFAULT)
    }

    fn copy_out(&self, _: Span, _: usize) -> Result<(), Errno> {
        Err(Errno::EFAULT)
    }

    fn copy_in(&self, _: usize, _: Span) -> Result<(), Errno> {
        Err(Errno::EFAULT)
    }
}
