//! Unique identifiers of areas.

use std::fmt;
use std::io;

/// A random UUID (RFC 9562, version 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A new one.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if filled != bytes.len() {
            return Err(io::Error::other("the host has no random bytes"));
        }
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Self(bytes))
    }

    /// The one that `text` spells, with or without dashes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .chars()
            .filter(|&c| c != '-')
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()?;
        let mut bytes = [0; 16];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        digits.chunks(2).zip(&mut bytes).for_each(|(two, byte)| *byte = two[0] << 4 | two[1]);
        Some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spelt_is_read_again_and_no_two_are_the_same() {
        let (one, two) = (Uuid::random().unwrap(), Uuid::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(Uuid::parse(&one.to_string()), Some(one));
        assert_eq!(one.to_string().len(), 36);
        for bad in ["", "12", &one.to_string()[1..], &one.to_string().replace('-', "x")] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
