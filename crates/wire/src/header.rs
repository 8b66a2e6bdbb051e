//! The header of a message.
//!
//! ```text
//!    0 magic    2 major    3 minor    4 kind      6 status    8 source   10 target
//!   12 role    13 again   14 spare   16 length  20 epoch    24 sequence 28 request  32 answered
//!   36 behalf
//! ```
//!
//! Magic, versions and kind keep their places in every version to come, so that a peer of another
//! major version can be refused in its own words.

use crate::field::Reader;
use crate::version::{MAJOR, Version};
use crate::{BODY_BYTES_MAX, Failure, Fault, Field, Kind, NODES_MAX};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 40;
/// The first bytes of every message: `HK`.
const MAGIC: u16 = u16::from_le_bytes(*b"HK");

crate::field::choices! {
    /// What a message is to its receiver.
    Role {
        /// Asks, and is answered.
        Request = "request",
        /// Answers.
        Reply = "reply",
        /// Tells, and is not answered.
        Posted = "posted",
    }
}

/// What stands before every body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The version that both sides agreed on at HELLO.
    pub version: Version,
    /// Number of the kind: one that this version does not know is no fault.
    pub kind: u16,
    /// Of a reply: 0, or why it failed (`Failure`).
    pub status: u16,
    /// The node that sends.
    pub source: u16,
    /// The node that is meant.
    pub target: u16,
    /// Bytes of the body.
    pub length: u32,
    /// Epoch of the pair: what is of an older one is answered with `Failure::Fenced`.
    pub epoch: u32,
    /// Number among all that source sends to target in this epoch.
    pub sequence: u32,
    /// Number of the request, or of the one that this answers; 0 where nothing is asked.
    pub request: u32,
    /// All requests up to this one have been answered: their replies need not be kept.
    pub answered: u32,
    /// The process on whose behalf it is sent: host x 2^22 + its number there; 0: the node itself.
    pub behalf: u32,
    /// What it is.
    pub role: Role,
    /// Of a request: its sender has sent it before and does not know what came of it.
    pub again: bool,
}

/// Magic, versions, four of two bytes, role, again, two spare, six of four bytes: five whole words,
/// and nothing is left over.
const SPARE_BYTES: usize = 2;
const _: () = assert!(2 + 2 + 4 * 2 + 2 + SPARE_BYTES + 6 * 4 == HEADER_BYTES);
const _: () = assert!(HEADER_BYTES.is_multiple_of(8));

impl Header {
    /// A request, reply or posted message of `kind`; the other fields are the sender's to fill.
    pub const fn new(kind: Kind, role: Role) -> Self {
        Self {
            version: Version::CURRENT,
            kind: kind as u16,
            status: 0,
            source: 0,
            target: 0,
            length: 0,
            epoch: 0,
            sequence: 0,
            request: 0,
            answered: 0,
            behalf: 0,
            role,
            again: false,
        }
    }

    /// The header of the answer to this request.
    pub const fn answer(&self, failed: Option<Failure>) -> Self {
        let status = match failed {
            Some(failure) => failure.number(),
            None => 0,
        };
        let (source, target) = (self.target, self.source);
        let (length, answered, role, again) = (0, 0, Role::Reply, false);
        Self { status, source, target, length, answered, role, again, ..*self }
    }

    /// Its bytes.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Version { major, minor } = self.version;
        let versions = u64::from(major) | u64::from(minor) << 8;
        let words = [
            u64::from(MAGIC) | versions << 16 | both(self.kind, self.status) << 32,
            both(self.source, self.target) | (self.role as u64) << 32 | u64::from(self.again) << 40,
            u64::from(self.length) | u64::from(self.epoch) << 32,
            u64::from(self.sequence) | u64::from(self.request) << 32,
            u64::from(self.answered) | u64::from(self.behalf) << 32,
        ];
        let mut bytes = [0; HEADER_BYTES];
        for (room, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *room = word.to_le_bytes();
        }
        bytes
    }

    /// Reads and checks one; the body is judged by `decode`.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Fault> {
        let word = |n: usize| {
            let chunk = bytes.as_chunks().0.get(n);
            chunk.map_or(0, |chunk| u64::from_le_bytes(*chunk))
        };
        let [first, second, third, fourth, fifth] = [word(0), word(1), word(2), word(3), word(4)];
        if first as u16 != MAGIC {
            return Err(Fault::Magic);
        }
        let version = Version { major: (first >> 16) as u8, minor: (first >> 24) as u8 };
        if version.major != MAJOR {
            return Err(Fault::Major);
        }
        let role = match (second >> 32) as u8 {
            0 => Role::Request,
            1 => Role::Reply,
            2 => Role::Posted,
            _ => return Err(Fault::Role),
        };
        if second >> 41 != 0 {
            return Err(Fault::Spare);
        }
        let header = Self {
            version,
            kind: (first >> 32) as u16,
            status: (first >> 48) as u16,
            source: second as u16,
            target: (second >> 16) as u16,
            length: third as u32,
            epoch: (third >> 32) as u32,
            sequence: fourth as u32,
            request: (fourth >> 32) as u32,
            answered: fifth as u32,
            behalf: (fifth >> 32) as u32,
            role,
            again: second >> 40 & 1 != 0,
        };
        header.judge()
    }

    #[inline]
    fn judge(self) -> Result<Self, Fault> {
        if self.length as usize > BODY_BYTES_MAX {
            return Err(Fault::Length);
        }
        if self.source >= NODES_MAX || self.target >= NODES_MAX {
            return Err(Fault::Node);
        }
        // A reply fails or not; others have no status. Who asks has a number, who tells has none.
        let answers = self.role == Role::Reply;
        let failed = self.status != 0;
        if failed && (!answers || Failure::of(self.status).is_none()) {
            return Err(Fault::Status);
        }
        // Only a request is sent again.
        if self.again && self.role != Role::Request {
            return Err(Fault::Spare);
        }
        let numbered = self.request != 0;
        if numbered == (self.role == Role::Posted) {
            return Err(Fault::Role);
        }
        Ok(self)
    }

    /// Splits a whole message into its header and its body.
    pub fn split(message: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let (head, body) = message.split_first_chunk().ok_or(Fault::Short)?;
        let header = Self::decode(head)?;
        if header.length as usize != body.len() {
            return Err(Fault::Length);
        }
        Ok((header, body))
    }

    /// The major version that some message is of, if it is one of Husk's at all: all that may be
    /// asked of a message of another major version.
    pub fn version_of(message: &[u8]) -> Option<Version> {
        let mut from = Reader::new(message);
        let magic = u16::take(&mut from).ok()?;
        (magic == MAGIC).then(|| Version::take(&mut from).ok()).flatten()
    }
}

const fn both(low: u16, high: u16) -> u64 {
    low as u64 | (high as u64) << 16
}
