//! Bytes of files of another node: read in its memory (`home`) or by a message, written by one.

use husk_kernel::fs::bytes;
use husk_link::SLOT_BYTES_MAX;
use husk_proto::fs::{Fs as _, Piece, Place, Span, SpanKind};
use husk_proto::process::Processes as _;
use husk_proto::{Errno, Inode, Result};
use husk_wire::record::{Run, SpaceCall};
use husk_wire::text::Bytes;
use husk_wire::{HEADER_BYTES, message, request};

use super::home::there;
use super::passed::SHARED;
use super::stand_in::everything;
use super::{Room, hold};
use crate::Direct;

/// Most bytes of a file in one message.
const PIECE: usize = 64 << 10;
/// The same of those that are written: they stand beside the message that has them.
pub(super) const WRITTEN: usize = 40 << 10;
/// As many go by way of the stack.
const FEW: usize = 4 << 10;
/// Around the bytes of a file in a message.
const AROUND: usize = 512;
/// In the place of an offset: at the end, wherever that is.
pub const AT_END: u64 = u64::MAX;

/// Room for `count` bytes of a file twice and what is around them: on the stack if they are few.
pub(super) fn with_room<T>(count: usize, step: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
    match count {
        0..=FEW => step(&mut [0; 2 * FEW + AROUND]),
        _ if count + AROUND <= SLOT_BYTES_MAX => step(Room::of(2 * SLOT_BYTES_MAX)?.bytes()),
        _ => step(Room::new()?.bytes()),
    }
}

impl Direct {
    /// `Shortcuts::piece`: in the home's memory, once that is mapped.
    #[inline]
    pub(crate) fn far_piece(&self, inode: Inode, offset: u64, length: usize) -> Option<Piece> {
        // From there on places are at an offset of the home.
        let home = self.home.as_ref().filter(|_| offset < SHARED)?;
        bytes::piece(home, there(inode), offset, length)
    }

    /// `Shortcuts::has_read` of such a piece.
    #[inline]
    pub(crate) fn far_has_read(&self, inode: Inode, piece: Piece) -> bool {
        let now_ns = self.now();
        self.home.as_ref().is_some_and(|home| bytes::has_looked(home, there(inode), piece, now_ns))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_read(
        &mut self,
        inode: Inode,
        offset: u64,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        if let Some(shared) = self.shared_from(offset) {
            let (offset, count) = self.given(shared, length)?;
            let read = self.far_read(inode, offset, count, copy);
            let done = read.unwrap_or(0);
            if done < count {
                self.unread(shared, offset, count, done);
            }
            return read;
        }
        // Where the bytes that were copied last begin, and how many they are.
        let (mut done, mut start, mut last) = (0, 0, 0);
        let now_ns = self.now();
        let seen = self.peek(|home| {
            bytes::look(
                home,
                there(inode),
                (offset, length),
                &mut done,
                &mut |span| {
                    start += if span.kind == SpanKind::Again { 0 } else { last };
                    last = span.length;
                    copy(span)
                },
                now_ns,
            )
        });
        if let Some(seen) = seen {
            return seen.map(|()| done);
        }
        // What was copied last may have been changed meanwhile.
        let mut again = done < start + last;
        let copy = &mut |span| match core::mem::take(&mut again) {
            true => copy(Span { kind: SpanKind::Again, ..span }),
            false => copy(span),
        };
        // Also of nothing: what is no file says so.
        loop {
            let (at, most) = (offset + done as u64, (length - done).min(PIECE));
            match with_room(most, |room| self.far_read_piece(inode, at, most, room, copy)) {
                Ok(count) => {
                    done += count;
                    if count < most || done == length {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn far_read_piece(
        &mut self,
        inode: Inode,
        offset: u64,
        most: usize,
        room: &mut [u8],
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        // A short answer comes a shorter way.
        let (room, _) = room.split_at_mut(most + AROUND);
        let (hold, length) = (hold(inode), most as u32);
        let asked = request::Read { hold, offset, length, ahead: 0 };
        let said = self.ask::<message::Read>(&asked, &mut [0; 128], room)?;
        let bytes = said.data.bytes();
        if bytes.is_empty() {
            return Ok(0);
        }
        copy(Span::new(bytes.as_ptr() as usize, bytes.len()))?;
        Ok(bytes.len())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_write(
        &mut self,
        inode: Inode,
        place: Place,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<(u64, usize)> {
        self.far_forget();
        let shared = match place {
            Place::At(offset) => self.shared_from(offset),
            Place::End => self.shared,
        };
        if let Some(shared) = shared {
            let appends = matches!(place, Place::End);
            return self.write_shared(shared, appends, length, copy).map(|done| (SHARED, done));
        }
        let (mut start, mut done) = (0, 0);
        while done < length {
            let most = (length - done).min(WRITTEN);
            let offset = match place {
                Place::At(offset) => offset + done as u64,
                Place::End if done == 0 => AT_END,
                Place::End => start + done as u64,
            };
            let put = with_room(most, |room| self.far_write_piece(inode, offset, most, room, copy));
            match put {
                Ok((at, count)) => {
                    if done == 0 {
                        start = at;
                    }
                    done += count;
                    if count < most {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok((start, done))
    }

    fn far_write_piece(
        &mut self,
        inode: Inode,
        offset: u64,
        most: usize,
        room: &mut [u8],
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<(u64, usize)> {
        // The bytes are put where the message has them, behind all that is around them.
        let (outgoing, bytes) = room.split_at_mut(room.len() - most);
        copy(Span::new(bytes.as_mut_ptr() as usize, most))?;
        let data = Bytes::new(core::hint::black_box(&*bytes)).map_err(|_| Errno::EFBIG)?;
        let (run, hold) = (Run { offset, data }, hold(inode));
        let (size, modified) = (None, None);
        let (leaves, grant, close) = (self.leaves(), 0, false);
        let asked = request::WriteHome { hold, grant, run, size, modified, close, leaves };
        let mut incoming = [0; HEADER_BYTES + AROUND];
        let said = self.ask::<message::WriteHome>(&asked, outgoing, &mut incoming)?;
        Ok((said.offset, said.count as usize))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_space(
        &mut self,
        inode: Inode,
        call: SpaceCall,
        (offset, length): (u64, u64),
        keep_size: bool,
    ) -> Result<u64> {
        self.far_forget();
        let (hold, leaves) = (hold(inode), self.leaves());
        let asked = request::Space { hold, call, offset, length, keep_size, leaves };
        let mut incoming = [0; 128];
        self.ask::<message::Space>(&asked, &mut [0; 128], &mut incoming).map(|said| said.offset)
    }

    /// A file of this node with the bytes of a far one in `offset..offset + length`, at their
    /// place, for memory to map; pinned.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_copy(&mut self, inode: Inode, offset: u64, length: u64) -> Result<Inode> {
        let size = self.far_look(inode, None, None)?.0.size;
        let copy = self.nameless(&everything(0, 0), 0o600)?;
        let filled = self.far_fill(inode, copy, offset, (offset + length).min(size));
        let filled = filled.and_then(|()| self.truncate(copy, size));
        if let Err(errno) = filled {
            self.unpin(copy);
            return Err(errno);
        }
        Ok(copy)
    }

    fn far_fill(&mut self, inode: Inode, copy: Inode, mut at: u64, end: u64) -> Result<()> {
        while at < end {
            let most = (end - at).min(PIECE as u64) as usize;
            let mut room = Room::new()?;
            let asked =
                request::Read { hold: hold(inode), offset: at, length: most as u32, ahead: 0 };
            let said = self.ask::<message::Read>(&asked, &mut [0; 128], room.bytes())?;
            let bytes = said.data.bytes();
            if bytes.is_empty() {
                return Ok(());
            }
            let mut done = 0;
            while done < bytes.len() {
                match self.write_at(copy, at + done as u64, &bytes[done..])? {
                    0 => return Err(Errno::ENOSPC),
                    count => done += count,
                }
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
