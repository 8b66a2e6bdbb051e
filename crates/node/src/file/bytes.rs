//! Serves other nodes' messages on bytes and open files.

use husk_abi::sys::general::{IN_MODIFY, O_CLOEXEC, O_PATH, O_TRUNC};
use husk_carrier::{AT_END, Asked, Changes, Direct};
use husk_proto::fs::Fs as _;
use husk_proto::watch::Watches as _;
use husk_proto::{Errno, Inode, Shortcuts as _};
use husk_wire::record::{Access, Grant, SpaceCall};
use husk_wire::text::Bytes;
use husk_wire::{Failure, Header, message, reply, request};

use crate::agent::{Agent, NUMBERS_END};
use crate::once::{Once, asked};
use crate::translate::{Handled, Who, failure, held, inode, put};

/// The flags of open that there are: a kernel keeps marks of its own among the others.
pub const OPEN_FLAGS: u32 = 0o37_777_777;
/// Most bytes of an answer.
const READ_MAX: usize = 64 << 10;

impl Agent {
    /// Opens a file in our table for another node, or (with `O_PATH`) only looks whether that may
    /// be run or written to.
    pub fn open(&mut self, header: &Header, asked: request::Open<'_>, room: &mut [u8]) -> Handled {
        if asked.flags & !OPEN_FLAGS != 0 {
            return Err(failure(Errno::EINVAL));
        }
        let (inode, who) = (inode(asked.object).map_err(failure)?, Who::of(&asked.caller));
        self.leave(asked.leaves);
        let only_looks = asked.flags & O_PATH != 0 && asked.access != Access::Read;
        let grant = if only_looks {
            let direct = self.direct();
            let may = match asked.access {
                Access::Run => direct.may_run(inode),
                _ => direct.may_write(inode),
            };
            may.map_err(failure)?;
            None
        } else {
            self.open_now(header, &asked, inode, &who)?
        };
        let attributes = self.attributes(inode)?;
        let answer = reply::Open { hold: 0, attributes, grant, data: None };
        put::<message::Open>(header, &answer, room)
    }

    /// Opens it; what is cut by that, once.
    fn open_now(
        &mut self,
        header: &Header,
        asked: &request::Open<'_>,
        inode: Inode,
        who: &Who,
    ) -> Result<Option<Grant>, Failure> {
        let (cuts, flags) = (asked.flags & O_TRUNC != 0, asked.flags & !O_CLOEXEC);
        if cuts && self.before(header, Changes::Bytes)?.is_some() {
            let fd = self.open_again(inode, flags)?;
            return Ok(Some(self.keep(header, fd)?.1));
        }
        if asked.access != Access::Read || cuts {
            self.own_for_afar(inode, if cuts { 0 } else { u64::MAX })?;
        }
        let who = who.credentials();
        let open = |direct: &mut Direct| {
            let files = direct.files();
            direct.open(&who, files, inode, flags, 0, NUMBERS_END)
        };
        let opened = match cuts {
            true => self.once(header, Changes::Bytes, open),
            // Nothing changes by it.
            false => open(self.direct()).map(Once::Now).map_err(failure),
        };
        let fd = match opened {
            Ok(Once::Now(fd)) => fd,
            Ok(Once::Before(_)) => self.open_again(inode, flags)?,
            // The host's bytes: they are read by the inode, without a hold.
            Err(Failure::Errno(Errno::EIO)) if self.is_host_file_for_afar(inode) => {
                return Ok(None);
            }
            Err(failed) => return Err(failed),
        };
        Ok(Some(self.keep(header, fd)?.1))
    }

    /// Bytes of a file.
    pub fn read(&mut self, header: &Header, asked: request::Read, room: &mut [u8]) -> Handled {
        let most = (asked.length as usize).min(READ_MAX);
        let mut bytes = core::mem::take(&mut self.bytes);
        bytes.resize(most, 0);
        let inode = held(asked.hold)?;
        let got = match self.read_host(inode, asked.offset, &mut bytes) {
            Some(got) => got,
            None => self.direct().read_at(inode, asked.offset, &mut bytes),
        };
        self.bytes = bytes;
        let got = got.map_err(failure)?;
        let data = self.bytes.get(..got).unwrap_or_default();
        let data = Bytes::new(data).map_err(|_| Failure::Protocol)?;
        put::<message::Read>(header, &reply::Read { data, change: 0 }, room)
    }

    /// Bytes for a file.
    pub fn write(
        &mut self,
        header: &Header,
        asked: request::WriteHome<'_>,
        room: &mut [u8],
    ) -> Handled {
        let (inode, bytes) = (held(asked.hold)?, asked.run.data.bytes());
        self.leave(asked.leaves);
        let (offset, count) = self.written(header, (inode, asked.run.offset), bytes)?;
        self.direct().watch_note(inode, IN_MODIFY);
        let attributes = self.attributes_since(inode)?;
        let answer = reply::WriteHome { attributes, offset, count };
        put::<message::WriteHome>(header, &answer, room)
    }

    /// Writes bytes at a place or at the end, once: where, and how many.
    pub fn written(
        &mut self,
        header: &Header,
        (inode, at): (Inode, u64),
        bytes: &[u8],
    ) -> Result<(u64, u64), Failure> {
        let written = match self.before(header, Changes::Bytes)? {
            Some(words) => Once::Before(words),
            None => self.once(header, Changes::Bytes, |direct| match at {
                AT_END => direct.append(inode, bytes),
                offset => direct.write_at(inode, offset, bytes).map(|count| (offset, count)),
            })?,
        };
        Ok(match written {
            Once::Now((offset, count)) => (offset, count as u64),
            Once::Before(words) => self.write_on(header, (inode, at), bytes, words),
        })
    }

    /// Where bytes were written and how many, of which some had been when an agent died over them;
    /// the rest is written now.
    fn write_on(
        &mut self,
        header: &Header,
        (inode, at): (Inode, u64),
        bytes: &[u8],
        [offset, done]: [u64; 2],
    ) -> (u64, u64) {
        let rest = bytes.get(done as usize..).unwrap_or_default();
        let end = offset + done;
        // Behind what somebody else has appended since, nothing of it goes on.
        let is_last = |size| size == end;
        let goes_on =
            at != AT_END || self.direct().attributes(inode).is_ok_and(|it| is_last(it.size));
        if rest.is_empty() || !goes_on {
            return (offset, done);
        }
        let asked = asked(header, Changes::Bytes).map(|asked| Asked { written: done, ..asked });
        let more = self.direct().on_request(asked, |direct| direct.write_at(inode, end, rest));
        (offset, done + more.unwrap_or(0) as u64)
    }

    /// Blocks and holes.
    pub fn space(&mut self, header: &Header, asked: request::Space, room: &mut [u8]) -> Handled {
        let (inode, offset, length) = (held(asked.hold)?, asked.offset, asked.length);
        self.leave(asked.leaves);
        let looked = match asked.call {
            SpaceCall::Data => Some(self.direct().seek_data(inode, offset, true)),
            SpaceCall::Hole => Some(self.direct().seek_data(inode, offset, false)),
            SpaceCall::Allocate | SpaceCall::Punch => None,
        };
        let offset = match looked {
            Some(found) => found.map_err(failure)?,
            None => {
                if self.before(header, Changes::Bytes)?.is_none() {
                    self.once(header, Changes::Bytes, |direct| match asked.call {
                        SpaceCall::Punch => direct.punch(inode, offset, length),
                        _ => direct.allocate(inode, offset, length, asked.keep_size),
                    })?;
                }
                offset
            }
        };
        let answer = reply::Space { offset, change: 0 };
        put::<message::Space>(header, &answer, room)
    }
}
