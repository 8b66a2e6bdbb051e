//! The backend of real areas: O_DIRECT, one call for a write and its flush.
//!
//! Inline calls are as fast as io_uring where one write is in flight, which is how a log commits:
//! ADR 0054 has the figures.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags, preadv, pwritev2};

use super::{BLOCK_BYTES, Disk};

/// An open area, or its first `size_bytes`.
#[derive(Debug)]
pub struct Pwrite {
    file: File,
    size_bytes: u64,
}

impl Pwrite {
    /// The first `size_bytes` of `file`, which is open with O_DIRECT.
    pub fn new(file: File, size_bytes: u64) -> Self {
        Self { file, size_bytes }
    }

    fn write_with(&self, at: u64, from: &[u8], flags: ReadWriteFlags) -> io::Result<()> {
        self.assert_within(at, from);
        let mut done = 0;
        while done < from.len() {
            match pwritev2(&self.file, &[IoSlice::new(&from[done..])], at + done as u64, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => done += more,
                // Nothing of it was written.
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Invariant 1 of the trait.
    fn assert_within(&self, at: u64, bytes: &[u8]) {
        let aligned = |n: usize| n.is_multiple_of(BLOCK_BYTES);
        assert!(aligned(bytes.as_ptr() as usize) && aligned(bytes.len()) && aligned(at as usize));
        assert!(at + bytes.len() as u64 <= self.size_bytes, "beyond the area");
    }
}

impl AsFd for Pwrite {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Disk for Pwrite {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.assert_within(at, into);
        let mut done = 0;
        while done < into.len() {
            let rest = &mut [IoSliceMut::new(&mut into[done..])];
            match preadv(&self.file, rest, at + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.write_with(at, from, ReadWriteFlags::empty())
    }

    fn write_durable(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.write_with(at, from, ReadWriteFlags::DSYNC)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }
}
