//! Descriptors that a program had on the home of all names when its exec went on at this node.
//!
//! ```text
//!   only the program had it:  the offset came along; all is as of a file that was opened here
//!   others there have it too: AT_HOME ─► read: the home says which bytes are ours, then as usual
//!                                      ─► write: the bytes go along with the request
//!   the host's:               it was inherited; here is noted what it shows
//! ```
//!
//! Invariants
//! 1. While a call runs at an offset of the home, the client is given places from `SHARED` on: what
//!    is read or written there is asked for at the offset, wherever that is by then.
//! 2. Bytes that were given to a reader who could not take them go back, unless somebody else has
//!    moved the offset meanwhile.

use husk_abi::sys::general::O_APPEND;
use husk_kernel::descriptor::open::{self, AT_HOME};
use husk_kernel::descriptor::table;
use husk_kernel::fs::walk;
use husk_proto::descriptor::{Description, Shown, Slot};
use husk_proto::fs::{Kind, Span};
use husk_proto::process::ALONG_MAX;
use husk_proto::{Errno, Files, Result, Shortcuts as _};
use husk_wire::record::{Object, Owning, Passed, Passing, Transfer};
use husk_wire::text::Bytes;
use husk_wire::{message, request};

use super::bytes::{WRITTEN, with_room};
use super::far;
use crate::Direct;

/// Places from here on are at the offset that the home has.
pub(super) const SHARED: u64 = 1 << 62;
const SHORT_ANSWER: usize = 256;

/// A description at home, as a word; never 0.
fn word(description: Object) -> u64 {
    u64::from(description.generation) << 32 | description.number & u64::from(u32::MAX)
}

fn description_of(word: u64) -> Object {
    Object { number: word & u64::from(u32::MAX), generation: (word >> 32) as u32 }
}

impl Direct {
    /// Notes in a new process's table what the home has open under these numbers of the process
    /// `pid`, as which it was a program of the home until now.
    pub fn take_passed(&mut self, pid: u32, numbers: &[u32]) -> Result<()> {
        let mut known = [(0, 0); ALONG_MAX];
        for (index, &number) in numbers.iter().enumerate() {
            let place = known.get_mut(index).ok_or(Errno::EMFILE)?;
            *place = (0, number);
            let description = self.take_one(pid, number, &known[..index])?;
            known[index] = (description, number);
        }
        Ok(())
    }

    /// One of them: the description, if it is one; those before are `known`.
    fn take_one(&mut self, pid: u32, fd: u32, known: &[(u64, u32)]) -> Result<u64> {
        let asked = request::PassDescription { process: pid, number: fd };
        let mut incoming = [0; SHORT_ANSWER];
        let said = self.ask::<message::PassDescription>(&asked, &mut [0; 64], &mut incoming)?;
        let (passed, hold) = (said.passed, said.grant.map_or(0, |grant| grant.number));
        let (files, inode) = (self.files(), far(passed.inode.object));
        let shown = match said.what {
            Passing::File => Shown::File(inode),
            Passing::Node => Shown::Node(inode),
            Passing::Description => {
                return self.take_description(files, fd, &passed, hold, known);
            }
        };
        self.far_host_opened(files, fd, false, shown).map(|_| 0)
    }

    fn take_description(
        &mut self,
        files: Files,
        fd: u32,
        passed: &Passed,
        hold: u64,
        known: &[(u64, u32)],
    ) -> Result<u64> {
        let description = word(passed.description.object);
        if let Some(&(_, first)) = known.iter().find(|(other, _)| *other == description) {
            self.far_give_back(&[hold]);
            let placed = table::duplicate(&self.kernel, files, first, fd, fd + 1, false);
            return placed.map(|_| description);
        }
        let is_shared = passed.state == Owning::UpdateNeeded;
        let named = if is_shared { description } else { 0 };
        let flags = passed.flags | if is_shared { AT_HOME } else { 0 };
        let own = self.stand_in_for(far(passed.inode.object), hold, named)?;
        self.far_number_for(files, own, hold, flags, (fd, fd + 1))?;
        if let Slot::Husk(here) = table::slot(&self.kernel, files, fd)
            && !is_shared
        {
            open::set_offset(&self.kernel, here, passed.offset)?;
        }
        Ok(description)
    }

    /// The description at home that has the offset of one of this node.
    fn shared_at_home(&self, description: Description) -> Option<Object> {
        let here = open::description(&self.kernel, description).ok()?;
        if here.flags & AT_HOME == 0 {
            return None;
        }
        let stands = walk::attributes(&self.kernel, here.inode).ok()?;
        Some(description_of(stands.accessed_ns as u64))
    }

    /// Where a call goes on that uses the offset of a description, which stands `at` here.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_begin(&mut self, description: Description, at: u64) -> Result<u64> {
        self.shared = self.shared_at_home(description);
        let Some(shared) = self.shared else { return Ok(at) };
        let inode = self.far_description(description)?.inode;
        if self.far_step(inode, None)?.kind == Kind::Directory {
            // Places of a listing are names, not counts: no two programs read one in turns.
            return self.transfer(shared, Transfer::Tell, 0, 0).map(|told| told.0);
        }
        Ok(SHARED)
    }

    /// The call is over, and the offset is to be `next`: what is to be stored here.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_end(&mut self, next: Option<u64>) -> Option<u64> {
        let Some(shared) = self.shared.take() else { return next };
        if let Some(next) = next.filter(|next| *next < SHARED) {
            // Its description is open here, so it is at home.
            let _ = self.transfer(shared, Transfer::Seek, next, 0);
        }
        None
    }

    /// `Descriptors::offset`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_offset(&mut self, description: Description) -> Result<u64> {
        match self.shared_at_home(description) {
            Some(shared) => self.transfer(shared, Transfer::Tell, 0, 0).map(|told| told.0),
            None => open::offset(&self.kernel, description),
        }
    }

    /// `Descriptors::set_offset`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_set_offset(&mut self, description: Description, offset: u64) -> Result<()> {
        match self.shared_at_home(description) {
            Some(shared) => self.transfer(shared, Transfer::Seek, offset, 0).map(drop),
            None => open::set_offset(&self.kernel, description, offset),
        }
    }

    /// Bytes that the home gives to a reader at its offset: where they begin, and how many.
    pub(super) fn given(&mut self, shared: Object, most: usize) -> Result<(u64, usize)> {
        let (offset, count) = self.transfer(shared, Transfer::Read, most as u64, 0)?;
        Ok((offset, count as usize))
    }

    /// Of `count` bytes from `offset` on that were given only `done` were read.
    pub(super) fn unread(&mut self, shared: Object, offset: u64, count: usize, done: usize) {
        let (from, to) = (offset + count as u64, offset + done as u64);
        // Who cannot say so has lost the home, and all that is open there.
        let _ = self.transfer(shared, Transfer::Return, to, from);
    }

    fn transfer(
        &mut self,
        description: Object,
        call: Transfer,
        count: u64,
        from: u64,
    ) -> Result<(u64, u64)> {
        let (flags, leaves, data) = (0, self.leaves(), Bytes::new(&[]));
        let data = data.map_err(|_| Errno::EINVAL)?;
        let asked = request::DescriptionIo { description, call, count, from, flags, leaves, data };
        let mut incoming = [0; SHORT_ANSWER];
        let said = self.ask::<message::DescriptionIo>(&asked, &mut [0; 128], &mut incoming)?;
        Ok((said.offset, said.count))
    }

    /// Writes at the offset of the home, or behind all that is there: how many bytes.
    pub(super) fn write_shared(
        &mut self,
        shared: Object,
        appends: bool,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        let flags = if appends { O_APPEND } else { 0 };
        let mut done = 0;
        while done < length {
            let most = (length - done).min(WRITTEN);
            match with_room(most, |room| self.write_shared_piece(shared, flags, most, room, copy)) {
                Ok(count) => {
                    done += count;
                    if count < most {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn write_shared_piece(
        &mut self,
        description: Object,
        flags: u32,
        most: usize,
        room: &mut [u8],
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        // The bytes are put where the message has them, behind all that is around them.
        let (outgoing, bytes) = room.split_at_mut(room.len() - most);
        copy(Span::new(bytes.as_mut_ptr() as usize, most))?;
        let data = Bytes::new(core::hint::black_box(&*bytes)).map_err(|_| Errno::EFBIG)?;
        let (call, count, from, leaves) = (Transfer::Write, most as u64, 0, self.leaves());
        let asked = request::DescriptionIo { description, call, count, from, flags, leaves, data };
        let mut incoming = [0; SHORT_ANSWER];
        let said = self.ask::<message::DescriptionIo>(&asked, outgoing, &mut incoming)?;
        Ok(said.count as usize)
    }

    /// The home's description where a call goes on at its offset, if `place` is there.
    pub(super) fn shared_from(&self, place: u64) -> Option<Object> {
        self.shared.filter(|_| place >= SHARED)
    }
}
