//! `splice` between pipes of the host and Husk files; `tee` and `vmsplice`, which know no files.
//!
//! ```text
//!   file ──► bounce buffer ──► pipe      what does not fit stays in the file
//!   pipe ──► bounce buffer ──► file      room in the file first, then the bytes
//! ```
//!
//! Invariants
//! 1. A byte is taken out of a pipe only once there is a block for it in the file's map, and is
//!    then written whatever happens: none is lost to a full image (`Fs::receive`).
//! 2. Nothing waits within the call: the host is asked without waiting, and the runtime waits until
//!    the pipe is ready (`Verdict::Ready`).
//!
//! Limit: how many bytes of a file fit into a pipe that is nearly full may differ from Linux, which
//! counts pages.

use crate::file::data::Opened;
use crate::file::data::transfer::{BURST_BYTES, reads, writes};
use crate::iovec::Cursor;
use crate::pipe::waiting_at_host;
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_FDCWD, F_GETFL, F_GETPIPE_SZ, O_APPEND, O_CLOEXEC, O_NONBLOCK, POLLERR, POLLHUP, POLLIN,
    POLLOUT, RWF_NOWAIT, SIGPIPE, SPLICE_F_GIFT, SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK,
};
use husk_proto::fs::{Kind, Place};
use husk_proto::{Errno, Result, Services};

/// What these calls take.
const FLAGS: usize = (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT) as usize;
/// Nothing waits.
const NONBLOCK: usize = SPLICE_F_NONBLOCK as usize;

/// A descriptor of the host's.
struct Pipe {
    fd: usize,
    flags: u32,
    /// It is a pipe at all.
    is_one: bool,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `splice`.
    pub(crate) fn splice(&mut self, c: &Call) -> Answer {
        let [source, _, target, _, length, flags] = c.args;
        if length == 0 {
            return value(0);
        }
        let files = (self.opened(source)?, self.opened(target)?);
        if let (None, None) = files {
            return self.pass_surrendered(c, [0, 2]);
        }
        if flags & !FLAGS != 0 || length > isize::MAX as usize {
            return Err(Errno::EINVAL);
        }
        match files {
            (Some(file), None) => self.splice_out(c, file),
            (None, Some(file)) => self.splice_in(c, file),
            (Some(one), Some(other)) if one.reads() && other.writes() => Err(Errno::EINVAL),
            _ => Err(Errno::EBADF),
        }
    }

    /// `tee`: both are pipes, or it is an error.
    pub(crate) fn tee(&mut self, c: &Call) -> Answer {
        let [source, target, length, flags, ..] = c.args;
        let files = (self.opened(source)?, self.opened(target)?);
        if let (None, None) = files {
            return self.pass_surrendered(c, [0, 1]);
        }
        if flags & !FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return value(0);
        }
        let from = match files.0 {
            Some(file) => file.reads(),
            None => reads(self.pipe_of(source)?.flags),
        };
        let to = match files.1 {
            Some(file) => file.writes(),
            None => writes(self.pipe_of(target)?.flags),
        };
        Err(if from && to { Errno::EINVAL } else { Errno::EBADF })
    }

    /// `vmsplice`.
    pub(crate) fn vmsplice(&mut self, c: &Call) -> Answer {
        match self.opened(c.args[0])? {
            None => self.pass_surrendered(c, [0, 0]),
            Some(_) if c.args[3] & !FLAGS != 0 => Err(Errno::EINVAL),
            Some(_) => Err(Errno::EBADF),
        }
    }

    /// What the host has at `fd`. `EBADF`.
    fn pipe_of(&self, fd: usize) -> Result<Pipe> {
        let flags = Errno::check(self.host_fcntl(fd, F_GETFL, 0))? as u32;
        let is_one = self.host_fcntl(fd, F_GETPIPE_SZ, 0) > 0;
        Ok(Pipe { fd, flags, is_one })
    }

    /// A file into a pipe.
    fn splice_out(&mut self, c: &Call, file: Opened) -> Answer {
        let [_, offset, target, other_offset, length, flags] = c.args;
        let pipe = self.pipe_of(target)?;
        if pipe.is_one && other_offset != 0 {
            return Err(Errno::ESPIPE);
        }
        if !file.reads() || !writes(pipe.flags) {
            return Err(Errno::EBADF);
        }
        if !pipe.is_one {
            return Err(Errno::EINVAL);
        }
        let from = self.position(file, offset)?;
        if self.services.step(file.inode)?.kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        self.surrender(target)?;
        // A pipe without room or reader is told of before the end of the file.
        match self.ready_for(target, POLLOUT as u16) {
            0 => return full(&pipe, flags, POLLOUT as u16),
            events if events & POLLERR as u16 != 0 => {
                self.signal(SIGPIPE);
                return Err(Errno::EPIPE);
            }
            _ => {}
        }
        match self.push(file, from.offset(), target, length.min(BURST_BYTES)) {
            Ok(done) => {
                self.move_position(file, from, done as u64)?;
                value(done as u64)
            }
            Err(Errno::EAGAIN) => full(&pipe, flags, POLLOUT as u16),
            Err(errno) => Err(errno),
        }
    }

    /// A pipe into a file.
    fn splice_in(&mut self, c: &Call, file: Opened) -> Answer {
        let [source, other_offset, _, offset, length, flags] = c.args;
        let pipe = self.pipe_of(source)?;
        if pipe.is_one && other_offset != 0 {
            return Err(Errno::ESPIPE);
        }
        if !file.writes() || !reads(pipe.flags) {
            return Err(Errno::EBADF);
        }
        if !pipe.is_one || file.flags & O_APPEND != 0 {
            return Err(Errno::EINVAL);
        }
        let to = self.position(file, offset)?;
        self.surrender(source)?;
        self.memory.ready()?;
        let (mut done, length) = (0, length.min(BURST_BYTES));
        while done < length {
            let (at, left) = (to.offset() + done as u64, length - done);
            match self.changing(file.inode, |client| client.draw(source, file, at, left)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::EAGAIN) if done == 0 => return full(&pipe, flags, POLLIN as u16),
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        self.move_position(file, to, done as u64)?;
        self.written(file, Ok(done))
    }

    /// Moves some of the bytes that wait in a pipe to a file: 0 at the end of the pipe, `EAGAIN`
    /// while it is empty.
    fn draw(&mut self, fd: usize, file: Opened, offset: u64, most: usize) -> Result<usize> {
        let there = waiting_at_host(&self.host, fd) as usize;
        if there == 0 {
            return if self.has_ended(fd) { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let most = most.min(there).min(self.buffers.bounce.len());
        let most = self.writable(file.inode, Place::At(offset), most)?;
        let (memory, host) = (&self.memory, &self.host);
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let mut cursor = Cursor::plain(bounce, most);
        let mut take = |room| read_pipe(host, fd, bounce, room);
        let mut copy = |span| cursor.each(memory, span, |m, span, source| m.copy_in(source, span));
        self.services.receive(file.inode, offset, most, &mut take, &mut copy)
    }

    /// Whether nothing is in a pipe and nobody left to write; no byte is taken to find out. That
    /// nobody has ever opened a FIFO to write is told by `tee` alone.
    fn has_ended(&self, fd: usize) -> bool {
        match u32::from(self.ready_for(fd, POLLIN as u16)) {
            0 => {}
            events => return events & (POLLIN | POLLHUP) == POLLHUP,
        }
        let Ok([read, write]) = self.own_pipe() else { return false };
        let copied = self.host.call(nr::tee, [fd, write as usize, 1, NONBLOCK, 0, 0]);
        self.host_close(read);
        self.host_close(write);
        copied == 0
    }

    /// A pipe that nobody else has: where to read from it, and to write to it. Neither waits.
    pub(crate) fn own_pipe(&self) -> Result<[u32; 2]> {
        let mut pair = [0u32; 2];
        let flags = (O_CLOEXEC | O_NONBLOCK) as usize;
        let made = self.host.call(nr::pipe2, [pair.as_mut_ptr() as usize, flags, 0, 0, 0, 0]);
        Errno::check(made).map(|_| core::hint::black_box(pair))
    }

    /// What of `events`, or an error, holds for a descriptor now.
    pub(crate) fn ready_for(&self, fd: usize, events: u16) -> u16 {
        let mut entry = fd as u64 & 0xffff_ffff | u64::from(events) << 32;
        self.host.call(nr::poll, [&raw mut entry as usize, 1, 0, 0, 0, 0]);
        (core::hint::black_box(entry) >> 48) as u16
    }
}

/// The call waits for a pipe, or says that it would have to.
fn full(pipe: &Pipe, flags: usize, events: u16) -> Answer {
    if flags & NONBLOCK != 0 || pipe.flags & O_NONBLOCK != 0 {
        return Err(Errno::EAGAIN);
    }
    Ok(Verdict::Ready { fd: pipe.fd, events })
}

/// Reads from a pipe without waiting.
pub(crate) fn read_pipe<H: Host>(host: &H, fd: usize, into: usize, length: usize) -> Result<usize> {
    let vector = [into, length];
    let nowhere = usize::MAX;
    let args = [fd, vector.as_ptr() as usize, 1, nowhere, nowhere, RWF_NOWAIT as usize];
    match Errno::check(host.call(nr::preadv2, args)) {
        Err(Errno::EOPNOTSUPP) => read_fifo(host, fd, into, length),
        other => other.map(|count| count as usize),
    }
}

/// The same of a FIFO, which does not take that flag: by a descriptor of our own.
#[cold]
fn read_fifo<H: Host>(host: &H, fd: usize, into: usize, length: usize) -> Result<usize> {
    let name = husk_abi::proc::descriptor(fd as u32);
    let flags = (O_NONBLOCK | O_CLOEXEC) as usize;
    let args = [AT_FDCWD as usize, name.as_ptr() as usize, flags, 0, 0, 0];
    let own = Errno::check(host.call(nr::openat, args))? as usize;
    let got = host.call(nr::read, [own, into, length, 0, 0, 0]);
    host.call(nr::close, [own, 0, 0, 0, 0, 0]);
    Errno::check(got).map(|count| count as usize)
}
