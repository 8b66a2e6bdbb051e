//! Bytes: the `read` and `write` families.
//!
//! The bytes go straight between the buffer cache and the application; the description's offset
//! is held meanwhile, no token is.

pub(crate) mod limit;
pub(crate) mod seek;
pub(crate) mod space;
mod straight_copy;
pub(crate) mod transfer;

use crate::iovec::{Cursor, MOVE_MAX, check_buffer};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::{
    O_ACCMODE, O_APPEND, O_DSYNC, O_NOATIME, O_PATH, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_SYNC,
};
use husk_proto::fs::{Kind, Place};
use husk_proto::{Description, Errno, Inode, Result, Services};

/// `RWF_*` flags that `check_flags` takes as they are.
const RWF_HARMLESS: u32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC;
/// `RWF_NOAPPEND`: not in all headers.
const RWF_NOAPPEND: u32 = 0x20;

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
        let Some(file) = self.for_reading(c.args[0])? else { return self.piped(c) };
        check_buffer(c.args[1], c.args[2])?;
        let length = c.args[2].min(MOVE_MAX);
        let memory = &self.memory;
        let moved = self.services.advance(file.description, |services, at| {
            let count = read_piece(services, memory, file, c.args[1], length, at);
            Ok((at + count.unwrap_or(0) as u64, count.unwrap_or(MISSED)))
        });
        match moved {
            Ok(count) if count != MISSED => value(count as u64),
            _ => self.read_on(file, Cursor::plain(c.args[1], length), length),
        }
    }

    /// `write`.
    pub(crate) fn write(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_writing(c.args[0])? else { return self.piped(c) };
        check_buffer(c.args[1], c.args[2])?;
        let length = c.args[2].min(MOVE_MAX);
        self.write_on(file, Cursor::plain(c.args[1], length), length)
    }

    /// `readv`.
    pub(crate) fn readv(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_reading(c.args[0])? else { return self.piped(c) };
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        if length == 0 {
            return value(0);
        }
        self.read_on(file, cursor, length)
    }

    /// `writev`.
    pub(crate) fn writev(&mut self, c: &Call) -> Answer {
        let Some(file) = self.for_writing(c.args[0])? else { return self.piped(c) };
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        self.write_on(file, cursor, length)
    }

    /// `pread64`.
    pub(crate) fn pread(&mut self, c: &Call) -> Answer {
        if (c.args[3] as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let Some(file) = self.for_reading(c.args[0])? else { return Ok(Verdict::Pass) };
        check_buffer(c.args[1], c.args[2])?;
        check_end(c.args[3], c.args[2])?;
        let length = c.args[2].min(MOVE_MAX);
        let (services, memory, at) = (&mut self.services, &self.memory, c.args[3] as u64);
        match read_piece(services, memory, file, c.args[1], length, at) {
            Some(count) => value(count as u64),
            None => self.read_at(file, Cursor::plain(c.args[1], length), length, at),
        }
    }

    /// `pwrite64`.
    pub(crate) fn pwrite(&mut self, c: &Call) -> Answer {
        if (c.args[3] as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let Some(file) = self.for_writing(c.args[0])? else { return Ok(Verdict::Pass) };
        check_buffer(c.args[1], c.args[2])?;
        check_end(c.args[3], c.args[2])?;
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
        let Some(file) = self.for_reading(c.args[0])? else {
            self.surrender(c.args[0])?;
            return Ok(Verdict::Pass);
        };
        check_flags(flags as u32)?;
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        if length == 0 {
            return value(0);
        }
        if current {
            return self.read_on(file, cursor, length);
        }
        check_end(offset as usize, length)?;
        self.read_at(file, cursor, length, offset as u64)
    }

    /// `pwritev`, and `pwritev2` with `flags`.
    pub(crate) fn pwritev(&mut self, c: &Call, flags: usize) -> Answer {
        let offset = c.args[3] as i64;
        let current = offset == -1 && c.number == husk_abi::nr::pwritev2;
        if offset < 0 && !current {
            return Err(Errno::EINVAL);
        }
        let Some(mut file) = self.for_writing(c.args[0])? else {
            self.surrender(c.args[0])?;
            return Ok(Verdict::Pass);
        };
        check_flags(flags as u32)?;
        if flags as u32 & RWF_APPEND != 0 {
            file.flags |= O_APPEND;
        }
        if flags as u32 & (RWF_DSYNC | RWF_SYNC) != 0 {
            file.flags |= O_DSYNC;
        }
        if flags as u32 & RWF_NOAPPEND != 0 {
            file.flags &= !O_APPEND;
        }
        let (cursor, length) = self.cursor(c.args[1], c.args[2])?;
        if current {
            return self.write_on(file, cursor, length);
        }
        check_end(offset as usize, length)?;
        self.write_at(file, cursor, length, offset as u64)
    }

    /// Reads at the description's offset and moves it.
    fn read_on(&mut self, file: Opened, cursor: Cursor, length: usize) -> Answer {
        self.reading(file, |client| {
            let memory = &client.memory;
            client.services.advance(file.description, |services, offset| {
                check_end(offset as usize, length)?;
                let count = read_bytes(services, memory, file.inode, cursor, length, offset)?;
                Ok((offset + count as u64, count))
            })
        })
    }

    fn read_at(&mut self, file: Opened, cursor: Cursor, length: usize, at: u64) -> Answer {
        self.reading(file, |client| {
            let (services, memory) = (&mut client.services, &client.memory);
            read_bytes(services, memory, file.inode, cursor, length, at)
        })
    }

    /// Reads, and leaves the access time alone where the description says so.
    #[inline]
    fn reading(&mut self, file: Opened, read: impl FnOnce(&mut Self) -> Result<usize>) -> Answer {
        let quiet = file.flags & O_NOATIME != 0;
        if quiet {
            self.services.leave_access_times(true);
        }
        let result = read(self);
        if quiet {
            self.services.leave_access_times(false);
        }
        self.counted(file, result)
    }

    fn write_on(&mut self, file: Opened, cursor: Cursor, length: usize) -> Answer {
        if length == 0 {
            return value(0);
        }
        self.memory.ready()?;
        let (append, d) = (file.flags & O_APPEND != 0, file.description);
        let (limit, mut over) = (self.size_limit(), false);
        let result = self.changing(file.inode, |client| {
            let memory = &client.memory;
            client.services.advance(d, |services, offset| {
                check_end(offset as usize, length)?;
                let place = if append { Place::End } else { Place::At(offset) };
                let mut length = length;
                if limit != limit::NONE {
                    let place = if append { place } else { Place::At(services.offset(d)?) };
                    let room = limit::room(services, limit, file.inode, place, length);
                    over = room == Err(Errno::EFBIG);
                    length = room?;
                }
                let (start, count) =
                    write_bytes(services, memory, file.inode, cursor, length, place)?;
                Ok((start + count as u64, count))
            })
        });
        if over { Err(self.exceeded()) } else { self.written(file, result) }
    }

    fn write_at(&mut self, file: Opened, cursor: Cursor, length: usize, at: u64) -> Answer {
        if length == 0 {
            return value(0);
        }
        self.memory.ready()?;
        let place = if file.flags & O_APPEND != 0 { Place::End } else { Place::At(at) };
        let length = self.writable(file.inode, place, length)?;
        let result = self.changing(file.inode, |client| {
            let (services, memory) = (&mut client.services, &client.memory);
            write_bytes(services, memory, file.inode, cursor, length, place)
        });
        self.written(file, result.map(|(_, count)| count))
    }

    /// The count, once it is durable where every write is to be (`O_SYNC`, `O_DSYNC`).
    #[inline]
    pub(crate) fn written(&mut self, file: Opened, result: Result<usize>) -> Answer {
        if file.flags & O_DSYNC != 0 && result.is_ok_and(|count| count > 0) {
            self.services.commit(file.inode, false)?;
        }
        self.counted(file, result)
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

/// Instead of a count: `read_piece` has read nothing.
const MISSED: usize = usize::MAX;

/// What `length` bytes of a file at `at` are, where one copy to `target` does it: nearly all reads.
/// `None`: nothing has been read, and `read_bytes` knows.
#[inline(always)]
fn read_piece<S: Services, M: Memory>(
    services: &mut S,
    memory: &M,
    file: Opened,
    target: usize,
    length: usize,
    at: u64,
) -> Option<usize> {
    if file.flags & O_NOATIME != 0 || check_end(at as usize, length).is_err() {
        return None;
    }
    let piece = services.piece(file.inode, at, length)?;
    memory.copy_out(piece.span, target).ok()?;
    services.has_read(file.inode, piece).then_some(piece.span.length)
}

/// Reads bytes of a file: all of `length` there are, or as many as memory has room for.
fn read_bytes<S: Services, M: Memory>(
    services: &mut S,
    memory: &M,
    inode: Inode,
    start: Cursor,
    length: usize,
    at: u64,
) -> Result<usize> {
    let mut read = |mut cursor: Cursor, length, at| {
        let mut copy = |span| cursor.each(memory, span, |m, span, target| m.copy_out(span, target));
        (services.read(inode, at, length, &mut copy), cursor)
    };
    let (result, cursor) = read(start, length, at);
    if !cursor.ended {
        return result;
    }
    // A piece of which memory took a part counts for nothing yet.
    let done = result.unwrap_or(0);
    let rest = cursor.reached().saturating_sub(done);
    if rest == 0 {
        return result;
    }
    let mut behind = start;
    if behind.skip(memory, done).is_err() {
        // The list of buffers has gone meanwhile, or lay in one of them.
        return result;
    }
    match read(behind, rest, at + done as u64).0 {
        Err(errno) if done == 0 => Err(errno),
        more => Ok(done + more.unwrap_or(0)),
    }
}

/// Writes bytes to a file: all of `length`, or as many as memory has.
fn write_bytes<S: Services, M: Memory>(
    services: &mut S,
    memory: &M,
    inode: Inode,
    start: Cursor,
    length: usize,
    place: Place,
) -> Result<(u64, usize)> {
    if let Some(mut source) = start.whole(length) {
        let mut failed = false;
        let result = services.write(inode, place, length, &mut |span| {
            let copied = memory.copy_in(source, span);
            source += span.length;
            failed |= copied.is_err();
            copied
        });
        // Where memory ended meanwhile it is written again, up to there; but no second append.
        if !failed || place == Place::End && result.is_ok() {
            return result;
        }
    }
    let mut write = |mut cursor: Cursor, length| {
        let mut copy = |span| cursor.each(memory, span, |m, span, source| m.copy_in(source, span));
        (services.write(inode, place, length, &mut copy), cursor)
    };
    let (result, cursor) = write(start, length);
    let there = cursor.reached();
    match result {
        // The same again: an append that has begun would be one more.
        Ok((_, count)) if count >= there || place == Place::End => result,
        Err(_) if there == 0 => result,
        _ if cursor.ended => write(start, there).0,
        _ => result,
    }
}

/// The flags of `preadv2` and `pwritev2`, as a tmpfs takes them.
fn check_flags(flags: u32) -> Result<()> {
    const KNOWN: u32 = RWF_HARMLESS | RWF_APPEND | RWF_NOAPPEND;
    match flags & (RWF_APPEND | RWF_NOAPPEND) {
        _ if flags & !KNOWN != 0 => Err(Errno::EOPNOTSUPP),
        both if both == RWF_APPEND | RWF_NOAPPEND => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Where explicit offsets end: no byte may lie behind the last one.
fn check_end(offset: usize, length: usize) -> Result<()> {
    let end = (offset as u64).checked_add(length as u64);
    if end.is_some_and(|end| end <= i64::MAX as u64) { Ok(()) } else { Err(Errno::EINVAL) }
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
