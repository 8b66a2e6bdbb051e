//! File bytes in and out of the caller's own memory, for whoever is no application (supervisor,
//! tests). Applications copy spans themselves, because their memory may fault.

use husk_proto::fs::{Place, Span, SpanKind};
use husk_proto::{Errno, Fs, Inode, Result};

use crate::Direct;

impl Direct {
    /// Reads bytes of a file in the image; 0 = the end.
    pub fn read_at(&mut self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize> {
        let (mut at, mut before) = (0, 0);
        let length = into.len();
        self.read(inode, offset, length, &mut |span| {
            at = if span.kind == SpanKind::Again { before } else { at };
            before = at;
            let room = into.get_mut(at..at + span.length).ok_or(Errno::EFAULT)?;
            copy_out(span, room);
            at += span.length;
            Ok(())
        })
    }

    /// Adds bytes at the end of a file in the image: where they begin, and how many.
    pub fn append(&mut self, inode: Inode, from: &[u8]) -> Result<(u64, usize)> {
        let mut at = 0;
        self.write(inode, Place::End, from.len(), &mut |span| {
            let bytes = from.get(at..at + span.length).ok_or(Errno::EFAULT)?;
            copy_in(bytes, span);
            at += span.length;
            Ok(())
        })
    }

    /// Writes bytes to a file in the image; how many.
    pub fn write_at(&mut self, inode: Inode, offset: u64, from: &[u8]) -> Result<usize> {
        let mut at = 0;
        let wrote = self.write(inode, Place::At(offset), from.len(), &mut |span| {
            let bytes = from.get(at..at + span.length).ok_or(Errno::EFAULT)?;
            copy_in(bytes, span);
            at += span.length;
            Ok(())
        })?;
        Ok(wrote.1)
    }
}

fn copy_out(span: Span, into: &mut [u8]) {
    assert_eq!(span.length, into.len());
    // SAFETY: the carrier gives spans inside the mapped buffer cache; `into` is ours and as long.
    // Other processes may write the bytes meanwhile: they are copied raw, never referenced.
    unsafe { core::ptr::copy(span.address as *const u8, into.as_mut_ptr(), into.len()) }
}

fn copy_in(bytes: &[u8], span: Span) {
    assert_eq!(span.length, bytes.len());
    let source = bytes.as_ptr() as usize;
    let done = match span.kind == SpanKind::Unmapped {
        true => husk_region::write_unmapped(span.address, source, bytes.len()),
        false => 0,
    };
    let (rest, target) = (&bytes[done..], (span.address + done) as *mut u8);
    // SAFETY: the carrier gives spans inside the mapped buffer cache that this write owns.
    unsafe { core::ptr::copy(rest.as_ptr(), target, rest.len()) }
}
