//! Fields of any length, each with a limit: names, bytes, lists. They borrow the message.

use core::fmt;

use crate::field::{Reader, Shape, Writer};
use crate::{Fault, Field};

/// A name of a directory: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Fault> {
        let long = bytes.is_empty() || bytes.len() > husk_abi::NAME_MAX;
        let none = long || bytes == b"." || bytes == b"..";
        let wrong = none || bytes.iter().any(|&byte| byte == b'/' || byte == 0);
        if wrong { Err(Fault::Name) } else { Ok(Self(bytes)) }
    }

    /// Its bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Field<'a> for Name<'a> {
    const SHAPE: Shape = Shape::Name;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&[self.0.len() as u8]);
        to.put(self.0);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let [length] = from.array()?;
        Name::new(from.take(usize::from(length))?)
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// At most `MOST` bytes of any kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bytes<'a, const MOST: u32>(&'a [u8]);

impl<'a, const MOST: u32> Bytes<'a, MOST> {
    /// Checks the length.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, Fault> {
        if bytes.len() > MOST as usize { Err(Fault::Count) } else { Ok(Self(bytes)) }
    }

    /// They.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a, const MOST: u32> Field<'a> for Bytes<'a, MOST> {
    const SHAPE: Shape = Shape::Bytes(MOST);

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&(self.0.len() as u32).to_le_bytes());
        to.put(self.0);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let length = u32::take(from)?;
        if length > MOST {
            return Err(Fault::Count);
        }
        from.take(length as usize).map(Self)
    }
}

impl<const MOST: u32> fmt::Debug for Bytes<'_, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// At most `MOST` fields of one kind. Read from a message it was checked as a whole, and is read
/// again one by one.
#[derive(Clone, Copy)]
pub struct List<'a, T, const MOST: u16>(Source<'a, T>);

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Own(&'a [T]),
    Message { count: u16, bytes: &'a [u8] },
}

impl<'a, T: Field<'a> + Copy, const MOST: u16> List<'a, T, MOST> {
    /// Checks the count.
    pub const fn new(fields: &'a [T]) -> Result<Self, Fault> {
        if fields.len() > MOST as usize { Err(Fault::Count) } else { Ok(Self(Source::Own(fields))) }
    }

    /// How many.
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Own(fields) => fields.len(),
            Source::Message { count, .. } => count as usize,
        }
    }

    /// None.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T, MOST> {
        let source = self.0;
        let bytes = match source {
            Source::Own(_) => &[],
            Source::Message { bytes, .. } => bytes,
        };
        let mut reader = Reader::new(bytes);
        (0..self.len()).map_while(move |at| match source {
            Source::Own(fields) => fields.get(at).copied(),
            Source::Message { .. } => T::take(&mut reader).ok(),
        })
    }
}

impl<'a, T: Field<'a> + Copy, const MOST: u16> Field<'a> for List<'a, T, MOST> {
    const SHAPE: Shape = Shape::List(MOST, &T::SHAPE);

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&(self.len() as u16).to_le_bytes());
        match self.0 {
            Source::Own(fields) => fields.iter().for_each(|field| field.put(to)),
            Source::Message { bytes, .. } => to.put(bytes),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let count = u16::take(from)?;
        if count > MOST {
            return Err(Fault::Count);
        }
        let all = from.rest();
        for _ in 0..count {
            T::take(from)?;
        }
        let bytes = &all[..all.len() - from.rest().len()];
        Ok(Self(Source::Message { count, bytes }))
    }
}

impl<'a, T: Field<'a> + Copy + PartialEq, const MOST: u16> PartialEq for List<'a, T, MOST> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Field<'a> + Copy + fmt::Debug, const MOST: u16> fmt::Debug for List<'a, T, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
