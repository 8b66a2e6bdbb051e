//! Frames on a stream of bytes: between two hosts, and between a shadow and its host.
//!
//! ```text
//!   | length u32 | kind u8 | channel u32 | payload ... |     little-endian; length of the payload
//! ```
//!
//! Invariants
//! 1. A frame has at most `FRAME_BYTES_MAX` bytes; a longer one, or one of an unknown kind, ends
//!    the session: nothing is allocated for it.
//! 2. Frames are written whole, one after the other, in the order in which they were sent.

use std::io::{self, Read, Write};

/// Most bytes of a payload: the arguments and the environment of a program.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
const HEAD_BYTES: usize = 9;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)*) => {
        /// What a frame is.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind { $($(#[doc = $doc])+ $name = $number,)* }

        impl Kind {
            fn of(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Home: introduces itself, and says what it needs.
    Hello = 1,
    /// The other host is ready.
    Welcome = 2,
    /// The other host is not, and says why.
    Refused = 3,
    /// Nothing, so that both know that the other one is there.
    Alive = 4,
    /// A message of `husk-wire` for the home of all names.
    Request = 5,
    /// Its answer.
    Reply = 6,
    /// Home asks for the fingerprint of a program.
    Compare = 7,
    /// The fingerprint.
    Print = 8,
    /// A program is to run.
    Job = 9,
    /// A signal for it.
    Signal = 10,
    /// So many bytes of its output have been written.
    Credit = 11,
    /// Its shadow has ended: it is to end, too.
    Gone = 12,
    /// Bytes of its standard output.
    Output = 13,
    /// Bytes of its standard error.
    Errors = 14,
    /// How it has ended; from the guest also how long it has waited for home (ms, four bytes).
    Status = 15,
    /// Home calls back copies: a number of four bytes each.
    Revise = 16,
    /// An answer that may be kept: the number of the copy, then as `Reply`.
    Kept = 17,
    /// A file that may be kept: the number of the copy, the hold (eight bytes), all its bytes.
    File = 18,
    /// A question about home's files (`room`).
    Ask = 19,
    /// The answer.
    Told = 20,
    /// A directory at home that was listed has changed: its path; none: any of them.
    Stale = 21,
    /// The guest: something that people should know.
    Note = 22,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// To which conversation it belongs.
    pub channel: u32,
    /// The rest.
    pub payload: Vec<u8>,
}

/// Writes a frame whole.
pub fn put(to: &mut impl Write, kind: Kind, channel: u32, payload: &[u8]) -> io::Result<()> {
    if payload.len() > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut whole = Vec::with_capacity(HEAD_BYTES + payload.len());
    whole.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    whole.push(kind as u8);
    whole.extend_from_slice(&channel.to_le_bytes());
    whole.extend_from_slice(payload);
    to.write_all(&whole)?;
    to.flush()
}

/// The next frame; `None`: the stream has ended between two.
pub fn take(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD_BYTES];
    let first = loop {
        match from.read(&mut head) {
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[first..])?;
    let [a, b, c, d, kind, e, f, g, h] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let kind = Kind::of(kind).filter(|_| length <= FRAME_BYTES_MAX);
    let kind = kind.ok_or(io::ErrorKind::InvalidData)?;
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Some(Frame { kind, channel: u32::from_le_bytes([e, f, g, h]), payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_as_they_were_sent_and_an_end_inside_one_is_an_error() {
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::Output, 7, b"some").unwrap();
        put(&mut bytes, Kind::Alive, 0, b"").unwrap();
        let mut from = &bytes[..];
        let first = take(&mut from).unwrap().unwrap();
        assert_eq!(
            (first.kind, first.channel, &first.payload[..]),
            (Kind::Output, 7, &b"some"[..])
        );
        assert_eq!(take(&mut from).unwrap().unwrap().kind, Kind::Alive);
        assert_eq!(take(&mut from).unwrap(), None);
        for length in 1..13 {
            assert!(take(&mut &bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn long_frames_and_unknown_kinds_are_refused_before_anything_is_allocated() {
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::Output, 7, b"some").unwrap();
        for (at, value) in [(3, 0x7f), (3, 0xff), (4, 0), (4, 23), (4, 255)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(take(&mut &wrong[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert!(put(&mut Vec::new(), Kind::Output, 0, &vec![0; FRAME_BYTES_MAX + 1]).is_err());
    }
}
