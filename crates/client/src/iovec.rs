//! A list of application buffers (`struct iovec`), filled or drained span by span.

use crate::layout::get64;
use crate::{Client, Host, Memory};
use husk_abi::PAGE;
use husk_proto::fs::{Span, SpanKind};
use husk_proto::{Errno, Result, Services};

/// Buffers in one call (`UIO_MAXIOV`).
const BUFFERS_MAX: usize = 1024;
/// Most bytes one call moves (`MAX_RW_COUNT`).
pub(crate) const MOVE_MAX: usize = 0x7fff_f000;
/// No program has memory from here on.
const MEMORY_END: usize = 0x7fff_ffff_f000;
/// Bytes of `struct iovec`.
const IOVEC_BYTES: usize = 16;

/// Where the next byte goes or comes from.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    table: usize,
    left_buffers: usize,
    address: usize,
    left: usize,
    /// Bytes that have been moved.
    moved: usize,
    /// Where the last span began: table, buffers, address, bytes, moved.
    mark: [usize; 5],
    /// Memory ended behind what was moved.
    pub ended: bool,
}

impl Cursor {
    /// One buffer.
    pub fn plain(address: usize, length: usize) -> Cursor {
        Cursor { address, left: length, ..Cursor::over(0, 0) }
    }

    /// `count` buffers at `table`.
    fn over(table: usize, count: usize) -> Cursor {
        let (address, left) = (0, 0);
        let left_buffers = count;
        Cursor { table, left_buffers, address, left, moved: 0, mark: [0; 5], ended: false }
    }

    /// Where the next `count` bytes lie, if they are in one buffer.
    #[inline]
    pub fn whole(&self, count: usize) -> Option<usize> {
        (self.left >= count).then_some(self.address)
    }

    /// Where the next bytes lie in one buffer, `most` at most, and how many; moves on behind them.
    pub fn next_piece<M: Memory>(&mut self, memory: &M, most: usize) -> Option<(usize, usize)> {
        self.refill(memory).ok()?;
        let (address, length) = (self.address, self.left.min(most));
        self.advance(length);
        Some((address, length))
    }

    /// The bytes that lie before memory ends, once it has (`ended`).
    pub fn reached(&self) -> usize {
        self.moved
    }

    /// Leaves out the next `count` bytes.
    pub fn skip<M: Memory>(&mut self, memory: &M, mut count: usize) -> Result<()> {
        while count > 0 {
            if self.left == 0 {
                self.refill(memory)?;
            }
            let step = count.min(self.left);
            self.advance(step);
            count -= step;
        }
        self.moved = 0;
        Ok(())
    }

    #[inline]
    fn advance(&mut self, by: usize) {
        self.address = self.address.wrapping_add(by);
        self.left -= by;
        self.moved += by;
    }

    fn refill<M: Memory>(&mut self, memory: &M) -> Result<()> {
        while self.left == 0 {
            if self.left_buffers == 0 {
                return Err(Errno::EFAULT);
            }
            let mut entry = [0u8; IOVEC_BYTES];
            memory.read(self.table, &mut entry)?;
            self.address = get64(&entry, 0) as usize;
            self.left = get64(&entry, 8) as usize;
            self.table += IOVEC_BYTES;
            self.left_buffers -= 1;
        }
        Ok(())
    }

    /// Moves one span, piece by piece.
    #[inline]
    pub fn each<M: Memory>(
        &mut self,
        memory: &M,
        mut span: Span,
        mut step: impl FnMut(&M, Span, usize) -> Result<()>,
    ) -> Result<()> {
        if span.kind == SpanKind::Again {
            [self.table, self.left_buffers, self.address, self.left, self.moved] = self.mark;
        }
        self.mark = [self.table, self.left_buffers, self.address, self.left, self.moved];
        while span.length > 0 {
            if self.left == 0
                && let Err(errno) = self.refill(memory)
            {
                self.ended = true;
                return Err(errno);
            }
            let length = span.length.min(self.left);
            if let Err(errno) = step(memory, Span { length, ..span }, self.address) {
                self.up_to_the_end(memory, Span { length, ..span }, step);
                return Err(errno);
            }
            self.advance(length);
            span.address += length;
            span.length -= length;
        }
        Ok(())
    }

    /// Moves what lies before the first page that is not there.
    #[cold]
    fn up_to_the_end<M: Memory>(
        &mut self,
        memory: &M,
        mut span: Span,
        mut step: impl FnMut(&M, Span, usize) -> Result<()>,
    ) {
        self.ended = true;
        while span.length > 0 {
            let length = span.length.min(PAGE - self.address % PAGE);
            if step(memory, Span { length, ..span }, self.address).is_err() {
                return;
            }
            self.advance(length);
            span.address += length;
            span.length -= length;
        }
    }
}

/// Whether a buffer lies where programs have memory, be any there or not.
#[inline]
pub(crate) fn check_buffer(address: usize, length: usize) -> Result<()> {
    match address.checked_add(length) {
        Some(end) if end <= MEMORY_END => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// A cursor over `count` buffers at `table`, and their bytes in all.
    pub(crate) fn cursor(&self, table: usize, count: usize) -> Result<(Cursor, usize)> {
        // Linux looks at so many bits of it.
        let count = count as u32 as usize;
        if count > BUFFERS_MAX {
            return Err(Errno::EINVAL);
        }
        let (mut total, mut inside) = (0usize, true);
        for index in 0..count {
            let mut entry = [0u8; IOVEC_BYTES];
            self.memory.read(table + index * IOVEC_BYTES, &mut entry)?;
            let (address, length) = (get64(&entry, 0) as usize, get64(&entry, 8));
            if length > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            let length = length as usize;
            // A single one is cut before it is looked at.
            let seen = if count == 1 { length.min(MOVE_MAX) } else { length };
            inside &= check_buffer(address, seen).is_ok();
            total = total.saturating_add(length);
        }
        if !inside {
            return Err(Errno::EFAULT);
        }
        Ok((Cursor::over(table, count), total.min(MOVE_MAX)))
    }
}
