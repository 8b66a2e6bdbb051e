//! Which versions of the protocol understand each other; negotiated at HELLO.

use core::fmt;

use crate::field::records;

/// Changes when a message changes its meaning.
pub const MAJOR: u8 = 1;
/// Changes when something is added.
pub const MINOR: u8 = 3;

records! {
    /// A version of the protocol.
    #[derive(Eq)]
    Version {
        /// Others are refused.
        major: u8,
        /// The smaller of two is spoken.
        minor: u8,
    }
}

impl Version {
    /// The one that this code speaks.
    pub const CURRENT: Version = Version { major: MAJOR, minor: MINOR };

    /// Whether it may say more than this code knows.
    pub const fn is_newer(self) -> bool {
        self.minor > MINOR
    }

    /// What `self` and a peer that says `theirs` at HELLO speak from then on.
    pub const fn agree(self, theirs: Version) -> Result<Version, Refusal> {
        if self.major != theirs.major {
            return Err(Refusal { ours: self, theirs });
        }
        let minor = if self.minor < theirs.minor { self.minor } else { theirs.minor };
        Ok(Version { major: self.major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Two that cannot speak with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What this side speaks.
    pub ours: Version,
    /// What the other one speaks.
    pub theirs: Version,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { ours, theirs } = self;
        write!(
            f,
            "the other node speaks version {theirs} of the protocol, this one {ours}: start both \
             with the same version of husk"
        )
    }
}

impl core::error::Error for Refusal {}
