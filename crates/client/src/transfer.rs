//! Moving bytes between descriptors: `sendfile`, `copy_file_range`, `splice`.
//!
//! Bytes go through a bounded buffer. A call may move less than asked for, as Linux allows; what
//! goes to the host never waits there: a full pipe makes the call wait in the runtime instead.

use crate::buffers::BOUNCE_BYTES;
use crate::data::Opened;
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{O_APPEND, O_NONBLOCK, RWF_NOWAIT};
use husk_proto::fs::{Kind, Place, Span};
use husk_proto::{Errno, Result, Services};

/// Most bytes one call moves, so that a signal is seen soon.
const BURST_BYTES: usize = 4 << 20;
/// Bytes written at once to a host object that cannot promise not to wait.
const CAREFUL_BYTES: usize = 4096;
/// How long to wait before a full pipe is tried again, ns.
const FULL_NS: u64 = 1_000_000;
/// A word that never changes, to sleep on.
static STILL: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Where one side of a transfer stands.
#[derive(Clone, Copy)]
enum Position {
    /// At an offset the application keeps at this address.
    Explicit(usize, u64),
    /// At the description's.
    Own(u64),
}

impl Position {
    fn offset(self) -> u64 {
        match self {
            Position::Explicit(_, offset) | Position::Own(offset) => offset,
        }
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `sendfile`.
    pub(crate) fn sendfile(&mut self, c: &Call) -> Answer {
        let (target, source) = (self.opened(c.args[0])?, self.opened(c.args[1])?);
        if let (None, None) = (target, source) {
            return self.pass_surrendered(c, [0, 1]);
        }
        self.surrender(c.args[0])?;
        if target.is_some_and(|t| !t.writes()) || source.is_some_and(|s| !s.reads()) {
            return Err(Errno::EBADF);
        }
        if target.is_some_and(|t| t.flags & O_APPEND != 0) {
            return Err(Errno::EINVAL);
        }
        let length = c.args[3].min(BURST_BYTES);
        match (source, target) {
            (Some(source), Some(target)) => {
                self.check_files(source, target, true)?;
                let from = self.position(source, c.args[2])?;
                let to = self.position(target, 0)?;
                self.copy_between(source, from, target, to, length)
            }
            (Some(source), None) => self.send_out(c, source, length),
            (None, Some(target)) => self.take_in(c, target, length),
            (None, None) => Ok(Verdict::Pass),
        }
    }

    fn check_files(&mut self, source: Opened, target: Opened, sends: bool) -> Result<()> {
        for file in [source, target] {
            match self.services.step(file.inode)?.kind {
                Kind::File => {}
                Kind::Directory if !sends => return Err(Errno::EISDIR),
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(())
    }

    fn position(&mut self, file: Opened, address: usize) -> Result<Position> {
        if address == 0 {
            return Ok(Position::Own(self.services.offset(file.description)?));
        }
        let mut word = [0u8; 8];
        self.memory.read(address, &mut word)?;
        let offset = i64::from_le_bytes(word);
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        Ok(Position::Explicit(address, offset))
    }

    fn move_position(&mut self, file: Opened, position: Position, by: u64) -> Result<()> {
        match position {
            Position::Explicit(address, offset) => {
                self.memory.write(address, &(offset + by).to_le_bytes())
            }
            Position::Own(offset) => self.services.set_offset(file.description, offset + by),
        }
    }

    /// Copies between two Husk files through the bounce buffer.
    fn copy_between(
        &mut self,
        source: Opened,
        from: Position,
        target: Opened,
        to: Position,
        length: usize,
    ) -> Answer {
        let length = self.writable(target.inode, Place::At(to.offset()), length)?;
        let mut done = 0;
        while done < length {
            let wanted = (length - done).min(BOUNCE_BYTES);
            let got = self.fill_bounce(source, from.offset() + done as u64, wanted)?;
            let put = match self.drain_bounce(target, to.offset() + done as u64, got) {
                Err(errno) if done == 0 => return Err(errno),
                other => other.unwrap_or(0),
            };
            done += put;
            if got < wanted || put < got {
                break;
            }
        }
        self.move_position(source, from, done as u64)?;
        self.move_position(target, to, done as u64)?;
        value(done as u64)
    }

    /// Reads a Husk file into the bounce buffer.
    fn fill_bounce(&mut self, source: Opened, offset: u64, length: usize) -> Result<usize> {
        let memory = &self.memory;
        let mut place = self.buffers.bounce.as_mut_ptr() as usize;
        self.services.read(source.inode, offset, length, &mut |span| {
            memory.copy_out(span, place)?;
            place += span.length;
            Ok(())
        })
    }

    /// Writes the bounce buffer to a Husk file.
    fn drain_bounce(&mut self, target: Opened, offset: u64, length: usize) -> Result<usize> {
        if length == 0 {
            return Ok(0);
        }
        self.memory.ready()?;
        let memory = &self.memory;
        let mut place = self.buffers.bounce.as_ptr() as usize;
        let mut copy = |span: Span| {
            memory.copy_in(place, span)?;
            place += span.length;
            Ok(())
        };
        let at = Place::At(offset);
        self.services.write(target.inode, at, length, &mut copy).map(|(_, count)| count)
    }

    /// A Husk file to a host descriptor.
    fn send_out(&mut self, c: &Call, source: Opened, length: usize) -> Answer {
        if self.services.step(source.inode)?.kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        let from = self.position(source, c.args[2])?;
        let mut done = 0;
        while done < length {
            let wanted = (length - done).min(BOUNCE_BYTES);
            let got = self.fill_bounce(source, from.offset() + done as u64, wanted)?;
            if got == 0 {
                break;
            }
            match self.write_host(c.args[0], got) {
                Ok(put) => {
                    done += put;
                    if put < got {
                        break;
                    }
                }
                Err(errno) if done == 0 => return self.full_or(c.args[0], errno),
                Err(_) => break,
            }
        }
        self.move_position(source, from, done as u64)?;
        value(done as u64)
    }

    /// Writes the bounce buffer to a host descriptor without waiting there.
    fn write_host(&mut self, fd: usize, length: usize) -> Result<usize> {
        let bounce = self.buffers.bounce.as_ptr() as usize;
        let vector = [bounce, length];
        let args = [fd, vector.as_ptr() as usize, 1, usize::MAX, usize::MAX, RWF_NOWAIT as usize];
        match Errno::check(self.host.call(nr::pwritev2, args)) {
            Err(Errno::EOPNOTSUPP) => {}
            other => return other.map(|count| count as usize),
        }
        let mut poll = [0u8; 8];
        crate::layout::put(&mut poll, 0, (fd as i32).to_le_bytes());
        poll[4] = 4;
        let ready = self.host.call(nr::poll, [poll.as_mut_ptr() as usize, 1, 0, 0, 0, 0]);
        if ready == 0 {
            return Err(Errno::EAGAIN);
        }
        let args = [fd, bounce, length.min(CAREFUL_BYTES), 0, 0, 0];
        Errno::check(self.host.call(nr::write, args)).map(|count| count as usize)
    }

    /// A full target: wait, unless its descriptor says not to.
    fn full_or(&mut self, fd: usize, errno: Errno) -> Answer {
        if errno != Errno::EAGAIN {
            return Err(errno);
        }
        let flags = self.host.call(nr::fcntl, [fd, 3, 0, 0, 0, 0]);
        if flags as u32 & O_NONBLOCK != 0 {
            return Err(errno);
        }
        Ok(wait_a_little())
    }

    /// A host file to a Husk file.
    fn take_in(&mut self, c: &Call, target: Opened, length: usize) -> Answer {
        let to = self.position(target, 0)?;
        let own = c.args[2] == 0;
        let mut start = [0u8; 8];
        if !own {
            self.memory.read(c.args[2], &mut start)?;
        }
        let at = if own {
            Errno::check(self.host.call(nr::lseek, [c.args[1], 0, 1, 0, 0, 0]))
                .map_err(|_| Errno::EINVAL)?
        } else {
            u64::from_le_bytes(start)
        };
        let length = self.writable(target.inode, Place::At(to.offset()), length)?;
        let mut done = 0;
        while done < length {
            let wanted = (length - done).min(BOUNCE_BYTES);
            let bounce = self.buffers.bounce.as_mut_ptr() as usize;
            let args = [c.args[1], bounce, wanted, at as usize + done, 0, 0];
            let got = Errno::check(self.host.call(nr::pread64, args))? as usize;
            let put = self.drain_bounce(target, to.offset() + done as u64, got)?;
            done += put;
            if got < wanted || put < got {
                break;
            }
        }
        self.move_position(target, to, done as u64)?;
        let end = at + done as u64;
        if own {
            self.host.call(nr::lseek, [c.args[1], end as usize, 0, 0, 0, 0]);
        } else {
            self.memory.write(c.args[2], &end.to_le_bytes())?;
        }
        value(done as u64)
    }

    /// Why nothing is copied between a Husk file and host descriptor `fd`: it is no file, or one
    /// of another file system.
    fn apart_files(&mut self, fd: usize) -> Errno {
        match self.host_fact(fd, None) {
            Ok(fact) if fact.kind == Kind::File => Errno::EXDEV,
            Ok(fact) if fact.kind == Kind::Directory => Errno::EISDIR,
            Ok(_) => Errno::EINVAL,
            Err(errno) => errno,
        }
    }

    /// `copy_file_range`.
    pub(crate) fn copy_file_range(&mut self, c: &Call) -> Answer {
        let (source, target) = (self.opened(c.args[0])?, self.opened(c.args[2])?);
        let (source, target) = match (source, target) {
            (None, None) => return Ok(Verdict::Pass),
            (Some(source), Some(target)) => (source, target),
            (None, Some(_)) => return Err(self.apart_files(c.args[0])),
            (Some(_), None) => return Err(self.apart_files(c.args[2])),
        };
        if c.args[5] != 0 {
            return Err(Errno::EINVAL);
        }
        self.check_files(source, target, false)?;
        if !source.reads() || !target.writes() || target.flags & O_APPEND != 0 {
            return Err(Errno::EBADF);
        }
        // A negative offset is one past the end of all here.
        let beyond = |errno| if errno == Errno::EINVAL { Errno::EOVERFLOW } else { errno };
        let from = self.position(source, c.args[1]).map_err(beyond)?;
        let to = self.position(target, c.args[3]).map_err(beyond)?;
        let length = c.args[4].min(BURST_BYTES);
        if source.inode == target.inode {
            let (a, b, n) = (from.offset(), to.offset(), length as u64);
            if a < b.saturating_add(n) && b < a.saturating_add(n) {
                return Err(Errno::EINVAL);
            }
        }
        self.copy_between(source, from, target, to, length)
    }

    /// `splice`, `tee`, `vmsplice`: not with Husk files.
    pub(crate) fn splice(&mut self, c: &Call, other: Option<usize>) -> Answer {
        let first = self.opened(c.args[0])?;
        let second = match other {
            Some(index) => self.opened(c.args[index])?,
            None => None,
        };
        if first.is_none() && second.is_none() {
            return self.pass_surrendered(c, [0, other.unwrap_or(0)]);
        }
        self.refuse(c.number, Errno::EINVAL)
    }

    /// Passes a call that lets the host look into pipes.
    fn pass_surrendered(&mut self, c: &Call, places: [usize; 2]) -> Answer {
        for place in places {
            self.surrender(c.args[place])?;
        }
        Ok(Verdict::Pass)
    }
}

/// A short sleep, then the same call again.
pub(crate) fn wait_a_little() -> Verdict {
    let address = (&raw const STILL) as usize;
    Verdict::Wait { address, value: 0, timeout_ns: FULL_NS }
}
