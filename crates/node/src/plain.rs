//! Host and memory for the part of the client that reads the host's side of an overlay.

use husk_abi::Errno;
use husk_client::{Host, Mapping, Memory};
use husk_proto::Inode;
use husk_proto::fs::{Run, Span};

use crate::serve::now_ns;

/// The host, called as it is; no application, and so no memory of one.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

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
