//! Why a request failed: an errno for the program, or a failure between nodes.

use core::fmt;

use husk_abi::Errno;

/// The highest error number of Linux.
const ERRNO_MAX: u16 = 4095;

macro_rules! failures {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a request failed.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Failure {
            /// The call's own error, as Linux has it.
            Errno(Errno),
            $($(#[$doc])* $name,)*
        }

        impl Failure {
            /// Those between nodes, with what they are called.
            pub const OWN: &[(Failure, &'static str)] = &[$((Failure::$name, $text)),*];

            /// As a header has it; never 0.
            pub const fn number(self) -> u16 {
                match self {
                    Failure::Errno(Errno(number)) => number as u16,
                    $(Failure::$name => $number,)*
                }
            }

            /// The failure of this number; `None`: there is none.
            pub const fn of(number: u16) -> Option<Failure> {
                match number {
                    1..=ERRNO_MAX => Some(Failure::Errno(Errno(number as i32))),
                    $($number => Some(Failure::$name),)*
                    _ => None,
                }
            }
        }
    };
}

failures! {
    /// The sender is of an epoch that is over: HELLO again.
    Fenced = 0x8001, "FENCED: of an epoch that is over; the sender says HELLO again";
    /// The object is not there any more; ESTALE only where Linux shows it.
    Gone = 0x8002, "GONE: the object is not there any more";
    /// To be asked again; never shown to a program.
    Busy = 0x8003, "BUSY: to be asked again; no program sees it";
    /// The home is dead: EIO.
    HomeDead = 0x8004, "HOME-DEAD: the home is dead; programs see EIO";
    /// The sender broke the protocol: its session ends.
    Protocol = 0x8005, "PROTOCOL: the sender broke the rules, its session ends";
    /// A kind or a form that this node does not serve: of a newer version, or not its part.
    Unserved = 0x8006, "UNSERVED: this node does not serve that kind";
    /// The directory changed between two pages of a listing.
    Changed = 0x8007, "CHANGED: the directory changed meanwhile; listed again";
    /// The grant under which bytes were kept is void.
    Revoked = 0x8008, "REVOKED: the grant of these bytes is void";
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Failure::Errno(errno) = self {
            return write!(f, "{errno:?}");
        }
        let own = Self::OWN.iter().find(|own| own.0 == *self);
        f.write_str(own.map_or("", |own| own.1))
    }
}
