//! Listings: `getdents64` and `getdents`.
//!
//! Offsets: 0 is before `.`, 1 before `..`, n + 2 at cookie n of the listing.

use crate::layout::{put, type_bits};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::O_PATH;
use husk_proto::fs::Kind;
use husk_proto::{Errno, Inode, Result, Services};

/// Bytes of the longest record.
const RECORD_MAX: usize = 288;
/// `DT_UNKNOWN`.
const UNKNOWN: u8 = 0;
/// Offset behind `.` and `..`.
const FIRST: u64 = 2;

/// Records on their way to the application.
struct Sink<'a, M> {
    memory: &'a M,
    address: usize,
    room: usize,
    used: usize,
    wide: bool,
    failed: Option<Errno>,
}

impl<M: Memory> Sink<'_, M> {
    /// Stores one record; `false` when it does not fit or memory faults.
    fn emit(&mut self, name: &[u8], number: u32, kind: u8, next: u64) -> bool {
        let head = if self.wide { 19 } else { 18 };
        let tail = if self.wide { 1 } else { 2 };
        let length = (head + name.len() + tail).next_multiple_of(8);
        if length > self.room - self.used {
            if self.used == 0 {
                self.failed = Some(Errno::EINVAL);
            }
            return false;
        }
        let mut record = [0u8; RECORD_MAX];
        put(&mut record, 0, u64::from(number).to_le_bytes());
        put(&mut record, 8, next.to_le_bytes());
        put(&mut record, 16, (length as u16).to_le_bytes());
        record[if self.wide { 18 } else { length - 1 }] = kind;
        record[head..head + name.len()].copy_from_slice(name);
        if let Err(errno) = self.memory.write(self.address + self.used, &record[..length]) {
            if self.used == 0 {
                self.failed = Some(errno);
            }
            return false;
        }
        self.used += length;
        true
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `getdents64` (`wide`) and `getdents`.
    pub(crate) fn getdents(&mut self, c: &Call, wide: bool) -> Answer {
        let Some(file) = self.opened(c.args[0])? else { return Ok(Verdict::Pass) };
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        let step = self.services.step(file.inode)?;
        if step.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if step.unlisted {
            self.import(file.inode)?;
        }
        let memory = &self.memory;
        let (address, room) = (c.args[1], c.args[2] as u32 as usize);
        let used = self.services.advance(file.description, &mut |services, offset| {
            let mut sink = Sink { memory, address, room, used: 0, wide, failed: None };
            let offset = list(services, file.inode, offset, &mut sink)?;
            match sink.failed {
                Some(errno) => Err(errno),
                None => Ok((offset, sink.used)),
            }
        })?;
        value(used as u64)
    }
}

/// Lists from `offset` until the sink is full; returns where to go on.
fn list<S: Services, M: Memory>(
    services: &mut S,
    directory: Inode,
    mut offset: u64,
    sink: &mut Sink<'_, M>,
) -> Result<u64> {
    let folder = (type_bits(Kind::Directory) >> 12) as u8;
    if offset == 0 {
        if !sink.emit(b".", directory.number, folder, 1) {
            return Ok(0);
        }
        offset = 1;
    }
    if offset == 1 {
        let parent = services.parent(directory).unwrap_or(directory);
        if !sink.emit(b"..", parent.number, folder, FIRST) {
            return Ok(1);
        }
        offset = FIRST;
    }
    services.list(directory, offset - FIRST, &mut |entry| {
        let kind = match entry.kind {
            Kind::Portal => UNKNOWN,
            kind => (type_bits(kind) >> 12) as u8,
        };
        let stored = sink.emit(entry.name, entry.inode.number, kind, entry.next + FIRST);
        if stored {
            offset = entry.next + FIRST;
        }
        stored
    })?;
    Ok(offset)
}
