//! A list of application buffers (`struct iovec`), filled or drained span by span.

use crate::layout::get64;
use crate::{Client, Host, Memory};
use husk_proto::fs::Span;
use husk_proto::{Errno, Result, Services};

/// Buffers in one call (`UIO_MAXIOV`).
const BUFFERS_MAX: usize = 1024;
/// Most bytes one call moves (`MAX_RW_COUNT`).
pub(crate) const MOVE_MAX: usize = 0x7fff_f000;
/// Bytes of `struct iovec`.
const IOVEC_BYTES: usize = 16;

/// Where the next byte goes or comes from.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    table: usize,
    left_buffers: usize,
    address: usize,
    left: usize,
    /// Where the last span began: table, buffers, address, bytes.
    mark: [usize; 4],
}

impl Cursor {
    /// One buffer.
    pub fn plain(address: usize, length: usize) -> Cursor {
        Cursor { table: 0, left_buffers: 0, address, left: length, mark: [0; 4] }
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
        if span.again {
            [self.table, self.left_buffers, self.address, self.left] = self.mark;
        }
        self.mark = [self.table, self.left_buffers, self.address, self.left];
        while span.length > 0 {
            if self.left == 0 {
                self.refill(memory)?;
            }
            let length = span.length.min(self.left);
            step(memory, Span { length, ..span }, self.address)?;
            self.address = self.address.wrapping_add(length);
            self.left -= length;
            span.address += length;
            span.length -= length;
        }
        Ok(())
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// A cursor over `count` buffers at `table`, and their bytes in all.
    pub(crate) fn cursor(&self, table: usize, count: usize) -> Result<(Cursor, usize)> {
        if count > BUFFERS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut total = 0usize;
        for index in 0..count {
            let mut entry = [0u8; IOVEC_BYTES];
            self.memory.read(table + index * IOVEC_BYTES, &mut entry)?;
            let length = get64(&entry, 8);
            if length > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            total = total.saturating_add(length as usize);
        }
        let cursor = Cursor { table, left_buffers: count, address: 0, left: 0, mark: [0; 4] };
        Ok((cursor, total.min(MOVE_MAX)))
    }
}
