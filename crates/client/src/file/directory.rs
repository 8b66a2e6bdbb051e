//! Listings: `getdents64` and `getdents`.
//!
//! Offsets: 0 is before `.`, 1 before `..`, n + 2 at cookie n of the listing. The host's directory
//! of this process's descriptors in `/proc` is listed here, too: its cookies are the numbers.

use crate::buffers::BATCH_BYTES;
use crate::layout::{get32, get64, put, type_bits};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::proc::put_decimal;
use husk_abi::sys::general::{IN_ACCESS, O_PATH, PROC_SUPER_MAGIC};
use husk_abi::{PATH_MAX, nr};
use husk_proto::fs::Kind;
use husk_proto::{Errno, Inode, Result, Services};

/// Bytes of the longest record.
const RECORD_MAX: usize = 288;
/// Where a record has its length.
const LENGTH_AT: usize = 16;
/// Zeros put behind any name: its NUL and the padding, also where a longer name stood before.
const ZEROS: usize = 16;
/// `DT_UNKNOWN`.
const UNKNOWN: u8 = 0;
/// `DT_DIR` and `DT_LNK`.
const FOLDER: u8 = 4;
const LINK: u8 = 10;
/// Offset behind `.` and `..`.
const FIRST: u64 = 2;

/// Records on their way to the application: copied to it many at a time.
struct Sink<'a, M> {
    memory: &'a M,
    address: usize,
    room: usize,
    /// Bytes the application has, and bytes of records in `batch`.
    used: usize,
    filled: usize,
    wide: bool,
    failed: Option<Errno>,
    /// Where a listing goes on behind the records the application has, and behind the last one.
    next: u64,
    last: u64,
    batch: &'a mut [u8; BATCH_BYTES],
}

impl<'a, M: Memory> Sink<'a, M> {
    fn new(
        memory: &'a M,
        batch: &'a mut [u8; BATCH_BYTES],
        (address, room): (usize, usize),
        wide: bool,
        next: u64,
    ) -> Self {
        let (used, filled, failed, last) = (0, 0, None, next);
        Sink { memory, address, room, used, filled, wide, failed, next, last, batch }
    }

    /// Takes one record; `false` when it does not fit or memory faults.
    fn emit(&mut self, name: &[u8], number: u64, kind: u8, next: u64) -> bool {
        let head = if self.wide { 19 } else { 18 };
        let tail = if self.wide { 1 } else { 2 };
        let length = (head + name.len() + tail).next_multiple_of(8);
        if length > self.room - self.used - self.filled {
            if self.used + self.filled == 0 {
                self.failed = Some(Errno::EINVAL);
            }
            return false;
        }
        if self.filled + RECORD_MAX + ZEROS > BATCH_BYTES && !self.flush() {
            return false;
        }
        let (record, end) = (&mut self.batch[self.filled..], head + name.len());
        put(record, 0, number.to_le_bytes());
        put(record, 8, next.to_le_bytes());
        put(record, LENGTH_AT, (length as u16).to_le_bytes());
        record[head..end].copy_from_slice(name);
        put(record, end, [0; ZEROS]);
        record[if self.wide { 18 } else { length - 1 }] = kind;
        self.filled += length;
        self.last = next;
        true
    }

    /// Hands the batch over; `false` when memory faults.
    fn flush(&mut self) -> bool {
        if self.memory.write(self.address + self.used, &self.batch[..self.filled]).is_err() {
            self.flush_singly();
            return false;
        }
        self.used += self.filled;
        self.filled = 0;
        self.next = self.last;
        true
    }

    /// The records before the one whose place cannot be written.
    #[cold]
    fn flush_singly(&mut self) {
        let mut at = 0;
        while at < self.filled {
            let record = &self.batch[at..self.filled];
            let length = usize::from(record[LENGTH_AT]) | usize::from(record[LENGTH_AT + 1]) << 8;
            if let Err(errno) = self.memory.write(self.address + self.used, &record[..length]) {
                if self.used == 0 {
                    self.failed = Some(errno);
                }
                break;
            }
            self.next = get64(record, 8);
            self.used += length;
            at += length;
        }
        self.filled = 0;
    }

    /// Hands over what is left: where to go on, and the bytes the application has.
    fn finish(mut self) -> Result<(u64, usize)> {
        if self.filled > 0 {
            self.flush();
        }
        match self.failed {
            Some(errno) => Err(errno),
            None => Ok((self.next, self.used)),
        }
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `getdents64` (`wide`) and `getdents`.
    pub(crate) fn getdents(&mut self, c: &Call, wide: bool) -> Answer {
        let Some(file) = self.opened(c.args[0])? else { return self.list_descriptors(c, wide) };
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        let step = self.services.step(file.inode)?;
        if step.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if i32::try_from(c.args[2] as u32).is_err() {
            return Err(Errno::EINVAL);
        }
        if self.services.attributes(file.inode)?.links == 0 {
            return Err(Errno::ENOENT);
        }
        if step.unlisted {
            self.import(file.inode)?;
        }
        let (memory, batch) = (&self.memory, &mut self.buffers.batch);
        let target = (c.args[1], c.args[2] as u32 as usize);
        let used = self.services.advance(file.description, |services, offset| {
            let mut sink = Sink::new(memory, batch, target, wide, offset);
            list(services, file.inode, offset, &mut sink)?;
            sink.finish()
        })?;
        self.services.watch_note(file.inode, IN_ACCESS);
        value(used as u64)
    }

    /// A directory of the host: one of this process's descriptors in `/proc` lists Husk's numbers,
    /// too, and not those that Husk keeps for itself.
    fn list_descriptors(&mut self, c: &Call, wide: bool) -> Answer {
        let fd = c.args[0];
        if self.services.is_outlying(fd as u32) || !self.shows_descriptors(fd) {
            return Ok(Verdict::Pass);
        }
        let offset = Errno::check(self.host.call(nr::lseek, [fd, 0, 1, 0, 0, 0]))?;
        let target = (c.args[1], c.args[2] as u32 as usize);
        let files = self.services.files();
        let mut sink = Sink::new(&self.memory, &mut self.buffers.batch, target, wide, offset);
        let mut next = offset;
        let dots: [&[u8]; 2] = [b".", b".."];
        while let Some(name) = dots.get(next as usize) {
            if !sink.emit(name, 1, FOLDER, next + 1) {
                break;
            }
            next += 1;
        }
        let (kept, mut full) = (self.host.kept_fds(), next < FIRST);
        let first = next.saturating_sub(FIRST) as u32;
        self.services.for_each(files, first, u32::MAX, &mut |number, _| {
            let mut digits = [0; 10];
            let length = put_decimal(&mut digits, number);
            let after = u64::from(number) + FIRST + 1;
            if full || kept.contains(&number) {
                return;
            }
            full = !sink.emit(&digits[..length], u64::from(number) + 1, LINK, after);
        });
        let (next, used) = sink.finish()?;
        self.host.call(nr::lseek, [fd, next as usize, 0, 0, 0, 0]);
        value(used as u64)
    }

    /// Whether a host descriptor is the directory of this process's descriptors in `/proc`.
    fn shows_descriptors(&mut self, fd: usize) -> bool {
        let out = self.buffers.base.as_mut_ptr() as usize;
        let raw = self.host.call(nr::fstatfs, [fd, out, 0, 0, 0, 0]);
        if raw != 0 || get32(&self.buffers.base, 0) != PROC_SUPER_MAGIC {
            return false;
        }
        let length = self.descriptor_path(fd as u32, out).clamp(0, PATH_MAX as i64) as usize;
        let Some(rest) = self.buffers.base[..length].strip_prefix(b"/proc/") else { return false };
        let mut own = [0; 10];
        let digits = put_decimal(&mut own, self.process_id());
        match rest.strip_prefix(&own[..digits]) {
            Some(b"/fd") => true,
            Some(task) => task.starts_with(b"/task/") && task.ends_with(b"/fd"),
            None => false,
        }
    }
}

/// Lists from `offset` until the sink is full.
fn list<S: Services, M: Memory>(
    services: &mut S,
    directory: Inode,
    mut offset: u64,
    sink: &mut Sink<'_, M>,
) -> Result<()> {
    if offset == 0 {
        let number = services.attributes(directory)?.shown_number;
        if !sink.emit(b".", number, FOLDER, 1) {
            return Ok(());
        }
        offset = 1;
    }
    if offset == 1 {
        let parent = services.parent(directory).unwrap_or(directory);
        let number =
            services.attributes(parent).map_or(u64::from(parent.number), |a| a.shown_number);
        if !sink.emit(b"..", number, FOLDER, FIRST) {
            return Ok(());
        }
        offset = FIRST;
    }
    services.list_numbers(directory, offset - FIRST, &mut |entry| {
        let kind = match entry.kind {
            Kind::Portal => UNKNOWN,
            kind => (type_bits(kind) >> 12) as u8,
        };
        sink.emit(entry.name, entry.shown_number, kind, entry.next + FIRST)
    })
}
