//! Who serves other nodes keeps descriptions open for them, and moves shared offsets.

use husk_kernel::descriptor::passing;
use husk_proto::descriptor::{Description, Files, Open};
use husk_proto::{Result, Shortcuts as _};

pub use husk_kernel::descriptor::passing::{Adopted, Named};

use crate::Direct;

impl Direct {
    /// Keeps what is open under `fd` of another table open in this process's own, too.
    pub fn keep_open(&mut self, from: Files, fd: u32, range: (u32, u32)) -> Result<Adopted> {
        passing::adopt(&self.kernel, (from, fd), self.files(), range)
    }

    /// Which of those that had its number a description is.
    pub fn generation_of(&self, description: Description) -> u32 {
        passing::generation_of(&self.kernel, description)
    }

    /// A description of that number.
    pub fn named(&self, number: u32, generation: u32) -> Named {
        Named { description: Description(number), generation }
    }

    /// What is open under that name.
    pub fn open_of(&mut self, named: Named) -> Result<Open> {
        passing::named(&self.kernel, named)
    }

    /// Moves the offset by `most`, or to read by what there is of that: from where, and by how
    /// much.
    pub fn reserve(&mut self, named: Named, most: u64, is_read: bool) -> Result<(u64, u64)> {
        passing::reserve(&self.kernel, named, most, is_read)
    }

    /// The offset.
    pub fn tell_offset(&mut self, named: Named) -> Result<u64> {
        passing::tell(&self.kernel, named)
    }

    /// Sets the offset; if it is to be at `from`, only where it is.
    pub fn seek_offset(&mut self, named: Named, to: u64, from: Option<u64>) -> Result<()> {
        passing::seek(&self.kernel, named, to, from)
    }
}
