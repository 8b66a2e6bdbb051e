//! Bytes: the `read` and `write` families.
//!
//! The bytes go straight between the buffer cache and the application; the description's offset
//! is held meanwhile, no token is.

use crate::vector::{Cursor, MOVE_MAX};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::{O_ACCMODE, O_APPEND, O_PATH, RWF_APPEND, RWF_DSYNC, RWF_HIPRI};
use husk_abi::sys::general::{RWF_NOWAIT, RWF_SYNC};
use husk_proto::fs::{Kind, Place};
use husk_proto::{Description, Errno, Inode, Result, Services};

/// `RWF_*` flags that mean nothing, or the same, in memory.
const RWF_HARMLESS: u32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT;

/// An open Husk file.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub description: Description,
    pub inode: Inode,
    pub flags: u32,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The Husk file behind `fd`; `None` = the host's business.
    #[inline]
    pub(crate) fn opened(&mut self, fd: usize) -> Result<Option<Opened>> {
        let Some(description) = self.described(fd)? else { return Ok(None) };
        let open = self.services.description(description)?;
        Ok(Some(Opened { description, inode: open.inode, flags: open.flags }))
    }

    #[inline]
    fn for_reading(&mut self, fd: usize) -> Result<Option<Opened>> {
        match self.opened(fd)? {
            Some(file) if !file.reads() => Err(Errno::EBADF),
            other => Ok(other),
        }
    }

    #[inline]
    fn for_writing(&mut self, fd: usize) -> Result<Option<Opened>> {
        match self.opened(fd)? {
            Some(file) if !file.writes() => Err(Errno::EBADF),
            other => Ok(other),
        }
    }

    /// `read`.
    pub(crate) fn read(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_reading(c.args[0])? else { return Ok(Verdict::Pass) };
        let length = c.args[2].min(MOVE_MAX);
        self.read_on(file, Cursor::plain(c.args[1], length), length)
    }

    /// `write`.
    pub(crate) fn write(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_writing(c.args[0])? else { return Ok(Verdict::Pass) };
        let length = c.args[2].min(MOVE_MAX);
        self.write_on(file, Cursor::plain(c.args[1], length), length)
    }

    /// `readv`.
    pub(crate) fn readv(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_reading(c.args[0])? else { return Ok(Verdict::Pass) };
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        self.read_on(file, cursor, length)
    }

    /// `writev`.
    pub(crate) fn writev(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_writing(c.args[0])? else { return Ok(Verdict::Pass) };
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        self.write_on(file, cursor, length)
    }

    /// `pread64`.
    pub(crate) fn pread(&mut self, c: &Call) -> Answer {
        if (c.args[3] as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let Some(file) = self.for_reading(c.args[0])? else { return Ok(Verdict::Pass) };
        let length = c.args[2].min(MOVE_MAX);
        self.read_at(file, Cursor::plain(c.args[1], length), length, c.args[3] as u64)
    }

    /// `pwrite64`.
    pub(crate) fn pwrite(&mut self, c: &Call) -> Answer {
        if (c.args[3] as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let Some(file) = self.for_writing(c.args[0])? else { return Ok(Verdict::Pass) };
        let length = c.args[2].min(MOVE_MAX);
        self.write_at(file, Cursor::plain(c.args[1], length), length, c.args[3] as u64)
    }

    /// `preadv`, and `preadv2` with `flags`.
    pub(crate) fn preadv(&mut self, c: &Call, flags: usize) -> Answer {
        let offset = c.args[3] as i64;
        let current = offset == -1 && c.number == husk_abi::nr::preadv2;
        if offset < 0 && !current {
            return Err(Errno::EINVAL);
        }
        let Some(file) = self.for_reading(c.args[0])? else { return Ok(Verdict::Pass) };
        if flags as u32 & !RWF_HARMLESS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        if current {
            return self.read_on(file, cursor, length);
        }
        self.read_at(file, cursor, length, offset as u64)
    }

    /// `pwritev`, and `pwritev2` with `flags`.
    pub(crate) fn pwritev(&mut self, c: &Call, flags: usize) -> Answer {
        let offset = c.args[3] as i64;
        let current = offset == -1 && c.number == husk_abi::nr::pwritev2;
        if offset < 0 && !current {
            return Err(Errno::EINVAL);
        }
        let Some(mut file) = self.for_writing(c.args[0])? else { return Ok(Verdict::Pass) };
        if flags as u32 & !(RWF_HARMLESS | RWF_APPEND) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags as u32 & RWF_APPEND != 0 {
            file.flags |= O_APPEND;
        }
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        if current {
            return self.write_on(file, cursor, length);
        }
        self.write_at(file, cursor, length, offset as u64)
    }

    /// Reads at the description's offset and moves it.
    fn read_on(&mut self, file: Opened, mut cursor: Cursor, length: usize) -> Answer {
        let memory = &self.memory;
        let result = self.services.advance(file.description, &mut |services, offset| {
            let mut copy =
                |span| cursor.each(memory, span, |m, span, target| m.copy_out(span, target));
            let count = services.read(file.inode, offset, length, &mut copy)?;
            Ok((offset + count as u64, count))
        });
        self.counted(file, result)
    }

    fn read_at(&mut self, file: Opened, mut cursor: Cursor, length: usize, at: u64) -> Answer {
        let memory = &self.memory;
        let mut copy = |span| cursor.each(memory, span, |m, span, target| m.copy_out(span, target));
        let result = self.services.read(file.inode, at, length, &mut copy);
        self.counted(file, result)
    }

    fn write_on(&mut self, file: Opened, mut cursor: Cursor, length: usize) -> Answer {
        if length == 0 {
            return value(0);
        }
        self.memory.ready()?;
        let memory = &self.memory;
        let append = file.flags & O_APPEND != 0;
        let result = self.services.advance(file.description, &mut |services, offset| {
            let place = if append { Place::End } else { Place::At(offset) };
            let mut copy =
                |span| cursor.each(memory, span, |m, span, source| m.copy_in(source, span));
            let (start, count) = services.write(file.inode, place, length, &mut copy)?;
            Ok((start + count as u64, count))
        });
        self.counted(file, result)
    }

    fn write_at(&mut self, file: Opened, mut cursor: Cursor, length: usize, at: u64) -> Answer {
        if length == 0 {
            return value(0);
        }
        self.memory.ready()?;
        let memory = &self.memory;
        let place = if file.flags & O_APPEND != 0 { Place::End } else { Place::At(at) };
        let mut copy = |span| cursor.each(memory, span, |m, span, source| m.copy_in(source, span));
        let result = self.services.write(file.inode, place, length, &mut copy);
        self.counted(file, result.map(|(_, count)| count))
    }

    /// The count, or the right error for what is no file.
    #[inline]
    fn counted(&mut self, file: Opened, result: Result<usize>) -> Answer {
        match result {
            Ok(count) => value(count as u64),
            Err(errno) => match self.services.step(file.inode)?.kind {
                Kind::Directory => Err(Errno::EISDIR),
                _ => Err(errno),
            },
        }
    }
}

impl Opened {
    /// Open for reading.
    #[inline]
    pub fn reads(&self) -> bool {
        self.flags & O_PATH == 0 && matches!(self.flags & O_ACCMODE, 0 | 2)
    }

    /// Open for writing.
    #[inline]
    pub fn writes(&self) -> bool {
        self.flags & O_PATH == 0 && matches!(self.flags & O_ACCMODE, 1 | 2)
    }
}
