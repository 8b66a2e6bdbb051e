//! Moving bytes between descriptors: `sendfile`, `copy_file_range`.
//!
//! Bytes go through a bounded buffer. A call may move less than asked for, as Linux allows; what
//! goes to the host never waits there: a full pipe makes the call wait in the runtime instead.
//!
//! A connection between programs of the image (`socket::lanes`) keeps its rings: what is sent goes
//! the way that a `send` of the same bytes would, also from a file of the host's.

use crate::buffers::BOUNCE_BYTES;
use crate::file::data::Opened;
use crate::iovec::Cursor;
use crate::reason;
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    F_GETFL, F_GETPIPE_SZ, O_ACCMODE, O_APPEND, O_NONBLOCK, O_PATH, POLLOUT, RWF_NOWAIT, S_IFMT,
    S_IFREG, SEEK_CUR, SPLICE_F_NONBLOCK,
};
use husk_proto::fs::{Kind, Place};
use husk_proto::{Errno, Inode, Result, Services};

/// Most bytes one call moves, so that a signal is seen soon.
pub(crate) const BURST_BYTES: usize = 4 << 20;
/// Bytes written at once to a host object that cannot promise not to wait.
const CAREFUL_BYTES: usize = 4096;

/// Where one side of a transfer stands.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    /// At an offset the application keeps at this address.
    Explicit(usize, u64),
    /// At the description's.
    Own(u64),
}

impl Position {
    pub fn offset(self) -> u64 {
        match self {
            Position::Explicit(_, offset) | Position::Own(offset) => offset,
        }
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `sendfile`.
    pub(crate) fn sendfile(&mut self, c: &Call) -> Answer {
        let (target, source) = (self.opened(c.args[0])?, self.opened(c.args[1])?);
        let lane = self.sending_lane(c.args[0]);
        if let (None, None) = (target, source) {
            return match lane {
                Some(_) => self.send_hosts(c),
                None => self.pass_surrendered(c, [0, 1]),
            };
        }
        if lane.is_none() {
            self.surrender(c.args[0])?;
        }
        let mut offset = [0u8; 8];
        if c.args[2] != 0 {
            self.memory.read(c.args[2], &mut offset)?;
        }
        let side = source.map_or_else(|| self.side(c.args[1]), |file| Ok(Side::Husk(file)))?;
        if !reads(side.flags()) {
            return Err(Errno::EBADF);
        }
        let offset = i64::from_le_bytes(offset);
        if offset < 0 || offset.checked_add_unsigned(c.args[3] as u64).is_none() {
            return Err(Errno::EINVAL);
        }
        match (source, target) {
            (Some(source), None) => self.send_out(c, source),
            (_, Some(target)) => self.send_in(c, side, target),
            (None, None) => Ok(Verdict::Pass),
        }
    }

    /// A host file into a lane; the host sends, or refuses, what is of no local file system.
    fn send_hosts(&mut self, c: &Call) -> Answer {
        let mut offset = [0u8; 8];
        if c.args[2] != 0 {
            self.memory.read(c.args[2], &mut offset)?;
        }
        let source = self.side(c.args[1])?;
        if !reads(source.flags()) {
            return Err(Errno::EBADF);
        }
        let near = i64::from_le_bytes(offset).checked_add_unsigned(c.args[3] as u64);
        let plain = i64::from_le_bytes(offset) >= 0 && near.is_some();
        if !plain || self.check_side(source).is_err() || !self.is_local(c.args[1]) {
            return self.pass_surrendered(c, [0, 1]);
        }
        let from = self.side_position(source, c.args[2])?;
        let length = c.args[3].min(BURST_BYTES);
        let (mut done, mut full) = (0, false);
        while done < length && !full {
            let wanted = (length - done).min(BOUNCE_BYTES);
            let got = match self.fill_from(source, from.offset() + done as u64, wanted) {
                Ok(0) => break,
                Ok(got) => got,
                Err(_) if done == 0 => return self.pass_surrendered(c, [0, 1]),
                Err(_) => break,
            };
            match self.write_host(c.args[0], got) {
                Ok(put) => {
                    done += put;
                    full = put < got;
                }
                Err(errno) if done == 0 => return self.full_or(c.args[0], errno),
                Err(_) => full = true,
            }
        }
        self.move_side(source, from, done as u64)?;
        match full && self.host_fcntl(c.args[0], F_GETFL, 0) as u32 & O_NONBLOCK == 0 {
            true => self.sent_by_host(c, done),
            false => value(done as u64),
        }
    }

    /// The host waits for room for the rest, behind `done` bytes that went through a lane, as with
    /// a `send`.
    #[cold]
    pub(crate) fn sent_by_host(&mut self, c: &Call, done: usize) -> Answer {
        let lane = self.sending_lane(c.args[0]);
        let flight = lane.map(|lane| self.begin_host_write(c, lane, done));
        match flight {
            Some(Ok(Some(verdict))) => return Ok(verdict),
            Some(Err(_)) if self.surrender(c.args[0]).is_err() => return value(done as u64),
            _ => {}
        }
        let mut args = c.args;
        args[3] -= done;
        args[4] = done;
        let call = After { number: c.number, args, reason: reason::REST };
        Ok(Verdict::Instead { call, room: 0 })
    }

    /// To a Husk file.
    fn send_in(&mut self, c: &Call, source: Side, target: Opened) -> Answer {
        if !target.writes() {
            return Err(Errno::EBADF);
        }
        if target.flags & O_APPEND != 0 {
            return Err(Errno::EINVAL);
        }
        let length = c.args[3].min(BURST_BYTES);
        match source {
            _ if length == 0 => value(0),
            Side::Husk(file) => {
                self.check_files(file, target)?;
                let from = self.position(file, c.args[2])?;
                let to = self.position(target, 0)?;
                self.copy_between(source, from, Side::Husk(target), to, length)
            }
            Side::Host(..) => self.take_in(c, source, target, length),
        }
    }

    fn check_files(&mut self, source: Opened, target: Opened) -> Result<()> {
        for file in [source, target] {
            if self.services.step(file.inode)?.kind != Kind::File {
                return Err(Errno::EINVAL);
            }
        }
        Ok(())
    }

    pub(crate) fn position(&mut self, file: Opened, address: usize) -> Result<Position> {
        if address == 0 {
            return Ok(Position::Own(self.services.offset(file.description)?));
        }
        self.position_at(address)
    }

    fn position_at(&self, address: usize) -> Result<Position> {
        let mut word = [0u8; 8];
        self.memory.read(address, &mut word)?;
        let offset = i64::from_le_bytes(word);
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        Ok(Position::Explicit(address, offset))
    }

    pub(crate) fn move_position(
        &mut self,
        file: Opened,
        position: Position,
        by: u64,
    ) -> Result<()> {
        match position {
            Position::Explicit(address, offset) => {
                self.memory.write(address, &(offset + by).to_le_bytes())
            }
            Position::Own(offset) => self.services.set_offset(file.description, offset + by),
        }
    }

    /// Reads a Husk file into the bounce buffer.
    fn fill_bounce(&mut self, source: Opened, offset: u64, length: usize) -> Result<usize> {
        let memory = &self.memory;
        let mut cursor = Cursor::plain(self.buffers.bounce.as_mut_ptr() as usize, length);
        self.services.read(source.inode, offset, length, &mut |span| {
            cursor.each(memory, span, |m, span, target| m.copy_out(span, target))
        })
    }

    /// Writes the bounce buffer's bytes to a Husk file.
    fn drain_bounce(&mut self, target: Opened, offset: u64, length: usize) -> Result<usize> {
        if length == 0 {
            return Ok(0);
        }
        self.memory.ready()?;
        let memory = &self.memory;
        let mut cursor = Cursor::plain(self.buffers.bounce.as_ptr() as usize, length);
        let mut copy = |span| cursor.each(memory, span, |m, span, source| m.copy_in(source, span));
        let at = Place::At(offset);
        self.services.write(target.inode, at, length, &mut copy).map(|(_, count)| count)
    }

    /// A Husk file to a host descriptor. Where nothing was sent, that may not be open for writing,
    /// which is told before what is wrong with the file.
    fn send_out(&mut self, c: &Call, source: Opened) -> Answer {
        let sent = self.send_some(c, source, c.args[3].min(BURST_BYTES));
        if matches!(sent, Ok(Verdict::Return(0)) | Err(_)) && !writes(self.side(c.args[0])?.flags())
        {
            return Err(Errno::EBADF);
        }
        sent
    }

    fn send_some(&mut self, c: &Call, source: Opened, length: usize) -> Answer {
        if length == 0 {
            return value(0);
        }
        if self.services.step(source.inode)?.kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        let from = self.position(source, c.args[2])?;
        match self.push(source, from.offset(), c.args[0], length) {
            Ok(done) => {
                self.move_position(source, from, done as u64)?;
                value(done as u64)
            }
            Err(errno) => self.full_or(c.args[0], errno),
        }
    }

    /// Moves bytes of a Husk file to a host descriptor; the error if none could be.
    pub(crate) fn push(
        &mut self,
        source: Opened,
        offset: u64,
        fd: usize,
        length: usize,
    ) -> Result<usize> {
        let mut done = 0;
        while done < length {
            let wanted = (length - done).min(BOUNCE_BYTES);
            let got = self.fill_bounce(source, offset + done as u64, wanted)?;
            if got == 0 {
                break;
            }
            match self.write_host(fd, got) {
                Ok(put) => {
                    done += put;
                    if put < got {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes the bounce buffer to a host descriptor without waiting there.
    fn write_host(&mut self, fd: usize, length: usize) -> Result<usize> {
        let bounce = self.buffers.bounce.as_ptr() as usize;
        if let Some(lane) = self.sending_lane(fd) {
            return self.send_into(fd, lane, (bounce, length), 0);
        }
        let vector = [bounce, length];
        let args = [fd, vector.as_ptr() as usize, 1, usize::MAX, usize::MAX, RWF_NOWAIT as usize];
        match Errno::check(self.host.call(nr::pwritev2, args)) {
            Err(Errno::EOPNOTSUPP) => {}
            other => return other.map(|count| count as usize),
        }
        if self.host_fcntl(fd, F_GETPIPE_SZ, 0) > 0 {
            return self.write_fifo(fd, length);
        }
        if self.ready_for(fd, POLLOUT as u16) == 0 {
            return Err(Errno::EAGAIN);
        }
        // A file takes all, or has no room; anything else may wait for room for the rest.
        let whole = self.host_stat(fd).is_ok_and(|stat| {
            crate::layout::get32(&stat, crate::layout::STAT_MODE_AT) & S_IFMT == S_IFREG
        });
        let length = if whole { length } else { length.min(CAREFUL_BYTES) };
        let args = [fd, bounce, length, 0, 0, 0];
        Errno::check(self.host.call(nr::write, args)).map(|count| count as usize)
    }

    /// The same to a FIFO, which takes no such flag, and may fill between a look and a write: by
    /// way of a pipe of our own.
    #[cold]
    fn write_fifo(&mut self, fd: usize, length: usize) -> Result<usize> {
        let [read, write] = self.own_pipe()?;
        let bounce = self.buffers.bounce.as_ptr() as usize;
        let there = self.host.call(nr::write, [write as usize, bounce, length, 0, 0, 0]);
        let args = [read as usize, 0, fd, 0, there as usize, SPLICE_F_NONBLOCK as usize];
        let put = self.host.call(nr::splice, args);
        self.host_close(read);
        self.host_close(write);
        Errno::check(put).map(|count| count as usize)
    }

    /// A full target: wait, unless its descriptor says not to.
    fn full_or(&mut self, fd: usize, errno: Errno) -> Answer {
        if errno != Errno::EAGAIN {
            return Err(errno);
        }
        let flags = self.host_fcntl(fd, F_GETFL, 0);
        if flags as u32 & O_NONBLOCK != 0 {
            return Err(errno);
        }
        Ok(Verdict::Ready { fd, events: POLLOUT as u16 })
    }

    /// A host file to a Husk file.
    fn take_in(&mut self, c: &Call, source: Side, target: Opened, length: usize) -> Answer {
        // What has no offset is no source.
        let odd = |errno| if errno == Errno::ESPIPE { Errno::EINVAL } else { errno };
        let from = self.side_position(source, c.args[2]).map_err(odd)?;
        let to = self.position(target, 0)?;
        self.copy_between(source, from, Side::Husk(target), to, length)
    }

    /// `copy_file_range`.
    pub(crate) fn copy_file_range(&mut self, c: &Call) -> Answer {
        let (source, target) = (self.side(c.args[0])?, self.side(c.args[2])?);
        if let (Side::Host(..), Side::Host(..)) = (source, target) {
            return Ok(Verdict::Pass);
        }
        if c.args[5] != 0 {
            return Err(Errno::EINVAL);
        }
        self.check_side(source)?;
        self.check_side(target)?;
        if !reads(source.flags()) || !writes(target.flags()) || target.flags() & O_APPEND != 0 {
            return Err(Errno::EBADF);
        }
        let (from, to) =
            self.both_positions([(source, c.args[1]), (target, c.args[3])], c.args[4])?;
        let mut length = c.args[4] as u64;
        if let (Side::Husk(a), Side::Husk(b)) = (source, target)
            && a.inode == b.inode
        {
            length = self.length_apart(a.inode, from.offset(), to.offset(), length)?;
        }
        self.copy_between(source, from, target, to, length.min(BURST_BYTES as u64) as usize)
    }

    /// Where a copy of `length` bytes reads and writes. Offsets are judged once both are there.
    fn both_positions(
        &mut self,
        [source, target]: [(Side, usize); 2],
        length: usize,
    ) -> Result<(Position, Position)> {
        let from = self.side_position(source.0, source.1);
        let to = self.side_position(target.0, target.1);
        for (position, (_, address)) in [(&from, source), (&to, target)] {
            let mut word = [0u8; 8];
            match position {
                Ok(position) => word = position.offset().to_le_bytes(),
                Err(Errno::EINVAL) => self.memory.read(address, &mut word)?,
                Err(errno) => return Err(*errno),
            }
            u64::from_le_bytes(word).checked_add(length as u64).ok_or(Errno::EOVERFLOW)?;
        }
        if to.is_ok_and(|to| to.offset() == i64::MAX as u64) {
            return Err(Errno::EFBIG);
        }
        Ok((from?, to?))
    }

    /// How many of `length` bytes of a file there are at `from` to be copied to `to` of the same
    /// file: `EINVAL` if both would overlap.
    fn length_apart(&mut self, inode: Inode, from: u64, to: u64, length: u64) -> Result<u64> {
        let size = self.services.attributes(inode)?.size;
        let length = length.min(size.saturating_sub(from));
        let overlap = from < to.saturating_add(length) && to < from.saturating_add(length);
        if overlap { Err(Errno::EINVAL) } else { Ok(length) }
    }

    /// What a descriptor is. `EBADF`.
    fn side(&mut self, fd: usize) -> Result<Side> {
        let side = match self.opened(fd)? {
            Some(file) => Side::Husk(file),
            None => {
                let flags = Errno::check(self.host_fcntl(fd, F_GETFL, 0))?;
                Side::Host(fd, flags as u32)
            }
        };
        if side.flags() & O_PATH != 0 { Err(Errno::EBADF) } else { Ok(side) }
    }

    /// Bytes are copied from file to file.
    fn check_side(&mut self, side: Side) -> Result<()> {
        let kind = match side {
            Side::Husk(file) => self.services.step(file.inode)?.kind,
            Side::Host(fd, _) => self.host_fact(fd, None)?.kind,
        };
        match kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn side_position(&mut self, side: Side, address: usize) -> Result<Position> {
        match side {
            Side::Host(fd, _) if address == 0 => {
                let at = self.host.call(nr::lseek, [fd, 0, SEEK_CUR as usize, 0, 0, 0]);
                Errno::check(at).map(Position::Own)
            }
            Side::Host(..) => self.position_at(address),
            Side::Husk(file) => self.position(file, address),
        }
    }

    fn move_side(&mut self, side: Side, position: Position, by: u64) -> Result<()> {
        match (side, position) {
            (Side::Host(fd, _), Position::Own(offset)) => {
                let end = (offset + by) as usize;
                Errno::check(self.host.call(nr::lseek, [fd, end, 0, 0, 0, 0])).map(|_| ())
            }
            (Side::Host(..), Position::Explicit(address, offset)) => {
                self.memory.write(address, &(offset + by).to_le_bytes())
            }
            (Side::Husk(file), _) => self.move_position(file, position, by),
        }
    }

    fn fill_from(&mut self, side: Side, offset: u64, length: usize) -> Result<usize> {
        match side {
            Side::Husk(file) => self.fill_bounce(file, offset, length),
            Side::Host(fd, _) => {
                let bounce = self.buffers.bounce.as_mut_ptr() as usize;
                self.host_read(fd, bounce, length, offset)
            }
        }
    }

    fn drain_to(&mut self, side: Side, offset: u64, length: usize) -> Result<usize> {
        match side {
            Side::Husk(file) => {
                self.changing(file.inode, |client| client.drain_bounce(file, offset, length))
            }
            Side::Host(_, _) if length == 0 => Ok(0),
            Side::Host(fd, _) => {
                let bounce = self.buffers.bounce.as_ptr() as usize;
                let args = [fd, bounce, length, offset as usize, 0, 0];
                Errno::check(self.host.call(nr::pwrite64, args)).map(|count| count as usize)
            }
        }
    }

    /// Copies between two files through the bounce buffer.
    fn copy_between(
        &mut self,
        source: Side,
        from: Position,
        target: Side,
        to: Position,
        length: usize,
    ) -> Answer {
        let length = match target {
            Side::Husk(file) => self.writable(file.inode, Place::At(to.offset()), length)?,
            Side::Host(..) => length,
        };
        let (mut done, period) = (0, period(source, from, target, to));
        while done < length {
            if let (Side::Husk(a), Side::Husk(b)) = (source, target)
                && a.inode != b.inode
            {
                let (at, there) = (from.offset() + done as u64, to.offset() + done as u64);
                done += self.copy_straight((a, at), (b, there), length - done);
                if done == length {
                    break;
                }
            }
            let wanted = (length - done).min(BOUNCE_BYTES);
            let got = match self.fill_from(source, from.offset() + done as u64, wanted.min(period))
            {
                Err(errno) if done == 0 => return Err(errno),
                Ok(got) if got == period => self.repeat_bounce(period, wanted),
                other => other.unwrap_or(0),
            };
            let put = match self.drain_to(target, to.offset() + done as u64, got) {
                Err(errno) if done == 0 => return Err(errno),
                other => other.unwrap_or(0),
            };
            done += put;
            if put == 0 || put < got {
                break;
            }
        }
        self.move_side(source, from, done as u64)?;
        self.move_side(target, to, done as u64)?;
        match target {
            Side::Husk(file) => self.written(file, Ok(done)),
            Side::Host(..) => value(done as u64),
        }
    }

    /// Repeats the first `period` bytes of the bounce buffer up to `length`, which is returned.
    fn repeat_bounce(&mut self, period: usize, length: usize) -> usize {
        for at in period..length {
            self.buffers.bounce[at] = self.buffers.bounce[at - period];
        }
        length
    }

    /// Passes a call that lets the host look into pipes.
    pub(crate) fn pass_surrendered(&mut self, c: &Call, places: [usize; 2]) -> Answer {
        for place in places {
            self.surrender(c.args[place])?;
        }
        Ok(Verdict::Pass)
    }
}

/// Bytes from where a copy reads to where it writes, if that is ahead in the same file: a byte
/// that is copied is read again so much later, as by Linux, which copies page by page.
fn period(source: Side, from: Position, target: Side, to: Position) -> usize {
    match (source, target) {
        (Side::Husk(a), Side::Husk(b)) if a.inode == b.inode && to.offset() > from.offset() => {
            usize::try_from(to.offset() - from.offset()).unwrap_or(usize::MAX)
        }
        _ => usize::MAX,
    }
}

/// One end of a copy.
#[derive(Clone, Copy)]
enum Side {
    Husk(Opened),
    /// The host's, with its status flags.
    Host(usize, u32),
}

impl Side {
    fn flags(&self) -> u32 {
        let (Side::Husk(Opened { flags, .. }) | Side::Host(_, flags)) = self;
        *flags
    }
}

/// Whether a descriptor with these status flags can be read.
pub(crate) fn reads(flags: u32) -> bool {
    flags & O_PATH == 0 && matches!(flags & O_ACCMODE, 0 | 2)
}

/// Whether one can be written to.
pub(crate) fn writes(flags: u32) -> bool {
    flags & O_PATH == 0 && matches!(flags & O_ACCMODE, 1 | 2)
}
