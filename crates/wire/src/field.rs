//! Fields: their encoding (little-endian), and their shape for code that shows or makes messages.

use crate::Fault;

/// Bytes of a body, read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What is left.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    #[inline(always)]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Fault::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Fault::Short)?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Room for a body, filled from the front.
#[derive(Debug)]
pub struct Writer<'a> {
    room: &'a mut [u8],
    at: usize,
    full: bool,
}

/// The room given is too small for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

impl<'a> Writer<'a> {
    /// Fills `room`.
    pub const fn new(room: &'a mut [u8]) -> Self {
        Self { room, at: 0, full: false }
    }

    /// Appends; what does not fit is noted and told at the end.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) {
        let end = self.at.saturating_add(bytes.len());
        match self.room.get_mut(self.at..end) {
            Some(room) if !self.full => {
                room.copy_from_slice(bytes);
                self.at = end;
            }
            _ => self.full = true,
        }
    }

    /// How many bytes were written.
    pub const fn finish(self) -> Result<usize, NoRoom> {
        if self.full { Err(NoRoom) } else { Ok(self.at) }
    }
}

/// What a field looks like: for pages, traces, and tests that make messages of every shape.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// An integer.
    Number {
        /// Its bytes.
        bytes: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// Yes (1) or no (0).
    Flag,
    /// One of these, by their place.
    Choice(&'static str, &'static [&'static str]),
    /// Any of these, a bit each from the lowest, in one byte.
    Flags(&'static str, &'static [&'static str]),
    /// A name of a directory: one byte of length, 1 to 255 bytes.
    Name,
    /// Four bytes of length, at most so many bytes.
    Bytes(u32),
    /// A byte that says whether it is there.
    Maybe(&'static Shape),
    /// Two bytes of count, at most so many.
    List(u16, &'static Shape),
    /// A record of this name.
    Record(&'static str, &'static [Member]),
}

/// One field of a record or body.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its name.
    pub name: &'static str,
    /// What it looks like.
    pub shape: Shape,
}

/// Most bytes that fields of these shapes take.
pub const fn most(members: &[Member]) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < members.len() {
        sum += members[at].shape.most();
        at += 1;
    }
    sum
}

impl Shape {
    /// Most bytes it takes.
    pub const fn most(&self) -> usize {
        match self {
            Shape::Number { bytes, .. } => *bytes as usize,
            Shape::Flag | Shape::Choice(..) | Shape::Flags(..) => 1,
            Shape::Name => 1 + husk_abi::NAME_MAX,
            Shape::Bytes(most) => 4 + *most as usize,
            Shape::Maybe(shape) => 1 + shape.most(),
            Shape::List(count, shape) => 2 + *count as usize * shape.most(),
            Shape::Record(_, members) => most(members),
        }
    }
}

/// Something that stands in a message.
pub trait Field<'a>: Sized {
    /// What it looks like.
    const SHAPE: Shape;
    /// Appends its bytes.
    fn put(&self, to: &mut Writer<'_>);
    /// Reads and checks it.
    fn take(from: &mut Reader<'a>) -> Result<Self, Fault>;
}

macro_rules! numbers {
    ($($type:ty, $signed:literal;)*) => { $(
        impl<'a> Field<'a> for $type {
            const SHAPE: Shape =
                Shape::Number { bytes: size_of::<$type>() as u8, signed: $signed };

            #[inline(always)]
            fn put(&self, to: &mut Writer<'_>) {
                to.put(&self.to_le_bytes());
            }

            #[inline(always)]
            fn take(from: &mut Reader<'a>) -> Result<Self, Fault> {
                from.array().map(<$type>::from_le_bytes)
            }
        }
    )* };
}

numbers! {
    u8, false;
    u16, false;
    u32, false;
    u64, false;
    i32, true;
    i64, true;
}

impl<'a> Field<'a> for bool {
    const SHAPE: Shape = Shape::Flag;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&[u8::from(*self)]);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Fault> {
        match from.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Fault::Choice),
        }
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    const SHAPE: Shape = Shape::Maybe(&T::SHAPE);

    fn put(&self, to: &mut Writer<'_>) {
        self.is_some().put(to);
        if let Some(field) = self {
            field.put(to);
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Fault> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

/// Declares records: fields in order, nothing between them.
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)?
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name $(<$life>)? { $($(#[$field_doc])* pub $field: $type),* }

        impl<'a> crate::Field<'a> for $name $(<$life>)? {
            const SHAPE: crate::Shape = crate::Shape::Record(stringify!($name), &[$(
                crate::field::Member {
                    name: stringify!($field),
                    shape: <$type as crate::Field>::SHAPE,
                }
            ),*]);

            #[inline]
            fn put(&self, _to: &mut crate::Writer<'_>) {
                $(crate::Field::put(&self.$field, _to);)*
            }

            #[inline]
            fn take(_from: &mut crate::Reader<'a>) -> Result<Self, crate::Fault> {
                Ok(Self { $($field: crate::Field::take(_from)?),* })
            }
        }
    )* };
}
pub(crate) use records;

/// Declares choices (one of several) and flags (any of several), a byte each.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$case_doc:meta])* $case:ident = $text:literal),* $(,)?
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$case_doc])* $case),* }

        impl<'a> crate::Field<'a> for $name {
            const SHAPE: crate::Shape = crate::Shape::Choice(stringify!($name), &[$($text),*]);

            #[inline]
            fn put(&self, to: &mut crate::Writer<'_>) {
                to.put(&[*self as u8]);
            }

            #[inline]
            fn take(from: &mut crate::Reader<'a>) -> Result<Self, crate::Fault> {
                const ALL: &[$name] = &[$($name::$case),*];
                let [number] = from.array()?;
                ALL.get(usize::from(number)).copied().ok_or(crate::Fault::Choice)
            }
        }
    )* };
}
pub(crate) use choices;

/// Declares sets of flags.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident {
        $($flag:ident = $bit:literal, $text:literal);* $(;)?
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name(u8);

        impl $name {
            $(#[doc = $text] pub const $flag: Self = Self(1 << $bit);)*
            const KNOWN: u8 = 0 $(| 1 << $bit)*;

            /// Both.
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether all of `other` are among them.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl<'a> crate::Field<'a> for $name {
            const SHAPE: crate::Shape = crate::Shape::Flags(stringify!($name), &[$($text),*]);

            fn put(&self, to: &mut crate::Writer<'_>) {
                to.put(&[self.0]);
            }

            fn take(from: &mut crate::Reader<'a>) -> Result<Self, crate::Fault> {
                let [bits] = from.array()?;
                if bits & !Self::KNOWN != 0 { Err(crate::Fault::Choice) } else { Ok(Self(bits)) }
            }
        }
    )* };
}
pub(crate) use flags;
