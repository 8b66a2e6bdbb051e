//! Why a message is refused. The node counts the fault and may end the session because of it.

use core::fmt;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a message was refused.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            /// All, in the order of their numbers.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];

            /// In words, to stand after "refused a message from node 3: ".
            pub const fn text(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    /// Fewer bytes than its fields need.
    Short = "it is shorter than its fields",
    /// More bytes than its fields need, in a version that has no more fields.
    Long = "it is longer than its fields",
    /// The first bytes are not those of a message.
    Magic = "it does not begin like a message of Husk",
    /// Another major version.
    Major = "it is of another major version",
    /// The length in the header is not that of the body, or above the limit.
    Length = "its length is not the one its header says",
    /// A role that does not exist, or that the kind does not have.
    Role = "its role does not exist or does not fit its kind",
    /// A reply whose status is none.
    Status = "its status does not exist",
    /// Spare bytes that are not zero.
    Spare = "spare bytes of its header are not zero",
    /// A node's number at or above `NODES_MAX`.
    Node = "it names a node that cannot exist",
    /// A choice or flag that does not exist.
    Choice = "a field has a value that does not exist",
    /// A name that no directory can hold.
    Name = "a name is empty, too long, '.', '..', or has '/' or NUL in it",
    /// A list or text above its limit.
    Count = "a list or text is longer than its limit",
    /// A reply nobody asked for, or one for a request of another kind.
    Unasked = "it answers what was not asked",
}

impl Fault {
    /// Its place among counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Fault {}
