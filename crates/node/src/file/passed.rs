//! Descriptors of programs that go on at another node, and the offsets that they share with others
//! here.
//!
//! ```text
//!   d-pass  process, number ─► kept open in our table, as a file that was opened for that node
//!           its own: the offset goes along     shared: it stays     the host's: what it shows
//!   d-io    read: the offset moves, the asker reads by place
//!           write: the offset moves, with the record of that; then the bytes are written by place
//! ```
//!
//! Invariant: of a write that an agent was killed over, the next one writes the rest at the same
//! place: the record says from where, and how many are there.

use husk_abi::sys::general::{IN_MODIFY, O_ACCMODE, O_APPEND, O_PATH, O_RDONLY};
use husk_carrier::{AT_END, Adopted, Asked, Changes, Named};
use husk_proto::descriptor::{Descriptors as _, Slot};
use husk_proto::fs::{Fs as _, Kind};
use husk_proto::watch::Watches as _;
use husk_proto::{Errno, Inode, Shortcuts as _};
use husk_wire::record::{Grant, Object, Owning, Passed, Passing, Place, Transfer};
use husk_wire::{Failure, Header, message, reply, request};

use crate::agent::{Agent, NUMBERS_END};
use crate::once::{Once, asked as record_of};
use crate::translate::{Handled, failure, object, put};

impl Agent {
    /// Tells what a program has open that goes on at the asker's node, and keeps it open.
    pub fn pass(
        &mut self,
        header: &Header,
        asked: request::PassDescription,
        room: &mut [u8],
    ) -> Handled {
        // It would look like somebody else who has the description.
        self.close_first_tries(header, None);
        let direct = self.direct();
        let from = direct.files_of(asked.process).ok_or(failure(Errno::ESRCH))?;
        let (what, passed, grant) = match direct.slot(from, asked.number) {
            Slot::Husk(_) => {
                let adopted = direct.keep_open(from, asked.number, (0, NUMBERS_END));
                let adopted = adopted.map_err(failure)?;
                let grant = self.keep(header, adopted.fd)?.1;
                (Passing::Description, told(asked.number, &adopted, &grant), Some(grant))
            }
            Slot::Host(Some(inode)) => {
                let kind = direct.step(inode).map_err(failure)?.kind;
                let what = if kind == Kind::File { Passing::File } else { Passing::Node };
                (what, shown(asked.number, inode), None)
            }
            _ => return Err(failure(Errno::EBADF)),
        };
        let answer = reply::PassDescription { what, passed, grant };
        put::<message::PassDescription>(header, &answer, room)
    }

    /// Uses the offset of a description that others here have, too.
    pub fn transfer(
        &mut self,
        header: &Header,
        asked: request::DescriptionIo<'_>,
        room: &mut [u8],
    ) -> Handled {
        let number = u32::try_from(asked.description.number).map_err(|_| failure(Errno::EBADF))?;
        let direct = self.direct();
        let named = direct.named(number, asked.description.generation);
        let (offset, count) = match asked.call {
            Transfer::Tell => (direct.tell_offset(named).map_err(failure)?, 0),
            Transfer::Seek => self.seek(header, named, asked.count, None)?,
            Transfer::Return => self.seek(header, named, asked.count, Some(asked.from))?,
            Transfer::Read => self.give(header, named, asked.count)?,
            Transfer::Write => {
                self.leave(asked.leaves);
                self.write_shared(header, named, &asked)?
            }
            _ => return Err(Failure::Unserved),
        };
        let answer = reply::DescriptionIo { count, offset, yours: None };
        put::<message::DescriptionIo>(header, &answer, room)
    }

    fn seek(
        &mut self,
        header: &Header,
        named: Named,
        to: u64,
        from: Option<u64>,
    ) -> Result<(u64, u64), Failure> {
        if self.before(header, Changes::Bytes)?.is_none() {
            self.once(header, Changes::Bytes, |direct| direct.seek_offset(named, to, from))?;
        }
        Ok((to, 0))
    }

    fn give(&mut self, header: &Header, named: Named, most: u64) -> Result<(u64, u64), Failure> {
        if let Some([offset, count]) = self.before(header, Changes::Bytes)? {
            return Ok((offset, count));
        }
        Ok(match self.once(header, Changes::Bytes, |direct| direct.reserve(named, most, true))? {
            Once::Now(given) => given,
            Once::Before([offset, count]) => (offset, count),
        })
    }

    fn write_shared(
        &mut self,
        header: &Header,
        named: Named,
        asked: &request::DescriptionIo<'_>,
    ) -> Result<(u64, u64), Failure> {
        let open = self.direct().open_of(named).map_err(failure)?;
        if open.flags & O_PATH != 0 || open.flags & O_ACCMODE == O_RDONLY {
            return Err(failure(Errno::EBADF));
        }
        let (inode, bytes) = (open.inode, asked.data.bytes());
        let written = if asked.flags & O_APPEND != 0 {
            self.append_shared(header, named, inode, bytes)
        } else {
            self.write_at_offset(header, named, inode, bytes)
        };
        self.direct().watch_note(inode, IN_MODIFY);
        written
    }

    fn append_shared(
        &mut self,
        header: &Header,
        named: Named,
        inode: Inode,
        bytes: &[u8],
    ) -> Result<(u64, u64), Failure> {
        let (offset, count) = self.written(header, (inode, AT_END), bytes)?;
        // It is open: the asker's node has it.
        let _ = self.direct().seek_offset(named, offset + count, None);
        Ok((offset, count))
    }

    fn write_at_offset(
        &mut self,
        header: &Header,
        named: Named,
        inode: Inode,
        bytes: &[u8],
    ) -> Result<(u64, u64), Failure> {
        let most = bytes.len() as u64;
        let [offset, done] = match self.before(header, Changes::Bytes)? {
            Some(words) => words,
            None => match self
                .once(header, Changes::Bytes, |direct| direct.reserve(named, most, false))?
            {
                Once::Now((offset, _)) => [offset, 0],
                Once::Before(words) => words,
            },
        };
        let rest = bytes.get(done as usize..).unwrap_or_default();
        if rest.is_empty() {
            return Ok((offset, done));
        }
        let asked = record_of(header, Changes::Bytes).map(|asked| Asked { written: done, ..asked });
        let direct = self.direct();
        let wrote = direct.on_request(asked, |direct| direct.write_at(inode, offset + done, rest));
        let count = done + wrote.unwrap_or(0) as u64;
        if count < most {
            let given = Some(offset + most);
            let _ = direct.seek_offset(named, offset + count, given);
        }
        match wrote {
            Err(errno) if count == 0 => Err(failure(errno)),
            _ => Ok((offset, count)),
        }
    }
}

fn told(number: u32, adopted: &Adopted, grant: &Grant) -> Passed {
    let Named { description, generation } = adopted.named;
    let description = Object { number: description.0.into(), generation };
    let state = if adopted.is_shared { Owning::UpdateNeeded } else { Owning::Done };
    Passed {
        number,
        description: Place { home: 0, object: description },
        inode: Place { home: 0, object: object(adopted.open.inode) },
        offset: adopted.offset,
        flags: adopted.open.flags,
        hold: grant.number,
        state,
        close_on_exec: false,
    }
}

/// What a descriptor of the host shows.
fn shown(number: u32, inode: Inode) -> Passed {
    let place = Place { home: 0, object: object(inode) };
    let (offset, flags, hold, state) = (0, 0, 0, Owning::Done);
    let description = Place { object: Object { number: 0, generation: 0 }, ..place };
    Passed { number, description, inode: place, offset, flags, hold, state, close_on_exec: false }
}
