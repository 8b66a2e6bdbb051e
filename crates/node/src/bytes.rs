//! Serves other nodes' messages on bytes and open files.

use husk_abi::sys::general::{IN_MODIFY, O_CLOEXEC, O_PATH, O_TRUNC};
use husk_carrier::AT_END;
use husk_proto::descriptor::Descriptors as _;
use husk_proto::fs::Fs as _;
use husk_proto::watch::Watches as _;
use husk_proto::{Errno, Shortcuts as _};
use husk_wire::record::{Access, SpaceCall};
use husk_wire::text::Bytes;
use husk_wire::{Failure, Header, message, reply, request};

use crate::agent::{Agent, Handled, Who, held, inode, put};
use crate::planted::planted;
use crate::serve::failure;

/// Most files that are open for other nodes at once.
pub const NUMBERS_END: u32 = 1 << 16;
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
            if asked.access != Access::Read || asked.flags & O_TRUNC != 0 {
                let keep = if asked.flags & O_TRUNC != 0 { 0 } else { u64::MAX };
                self.own_for_afar(inode, keep)?;
            }
            let direct = self.direct();
            let (files, flags) = (direct.files(), asked.flags & !O_CLOEXEC);
            let who = who.credentials();
            match direct.open(&who, files, inode, flags, 0, NUMBERS_END) {
                Ok(fd) => Some(self.keep(header, fd)?.1),
                // The host's bytes: they are read by the inode, without a hold.
                Err(Errno::EIO) if self.is_host_file_for_afar(inode) => None,
                Err(errno) => return Err(failure(errno)),
            }
        };
        let attributes = self.attributes(inode)?;
        let answer = reply::Open { hold: 0, attributes, grant, data: None };
        put::<message::Open>(header, &answer, room)
    }

    /// Closes what another node does not need any more.
    pub fn give_back(
        &mut self,
        header: &Header,
        asked: request::Return<'_>,
        room: &mut [u8],
    ) -> Handled {
        for number in asked.grants.iter() {
            self.let_go(header.source, number);
        }
        put::<message::Return>(header, &reply::Return {}, room)
    }

    fn let_go(&mut self, node: u16, number: u64) {
        // One that it does not have was given back before, or by an agent before this one.
        if let Some(fd) = self.sessions.let_go(node, number) {
            let direct = self.direct();
            let files = direct.files();
            // It is open: nobody else closes.
            let _ = direct.close(files, fd);
        }
    }

    /// Nobody has taken the answer to the request of now: who asked was killed, or has given up. A
    /// hold whose number nobody knows is let go of.
    pub fn was_not_heard(&mut self) {
        if let Some((node, number)) = self.unheard.take()
            && !planted!(UnheardHoldKept)
        {
            self.let_go(node, number);
        }
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
        let direct = self.direct();
        let written = match asked.run.offset {
            AT_END => direct.append(inode, bytes),
            offset => direct.write_at(inode, offset, bytes).map(|count| (offset, count)),
        };
        let (offset, count) = written.map_err(failure)?;
        direct.watch_note(inode, IN_MODIFY);
        let attributes = self.attributes(inode)?;
        let answer = reply::WriteHome { attributes, offset, count: count as u64 };
        put::<message::WriteHome>(header, &answer, room)
    }

    /// Blocks and holes.
    pub fn space(&mut self, header: &Header, asked: request::Space, room: &mut [u8]) -> Handled {
        let (inode, offset, length) = (held(asked.hold)?, asked.offset, asked.length);
        self.leave(asked.leaves);
        let direct = self.direct();
        let done = match asked.call {
            SpaceCall::Allocate => {
                direct.allocate(inode, offset, length, asked.keep_size).map(|()| offset)
            }
            SpaceCall::Punch => direct.punch(inode, offset, length).map(|()| offset),
            SpaceCall::Data => direct.seek_data(inode, offset, true),
            SpaceCall::Hole => direct.seek_data(inode, offset, false),
        };
        let answer = reply::Space { offset: done.map_err(failure)?, change: 0 };
        put::<message::Space>(header, &answer, room)
    }
}
