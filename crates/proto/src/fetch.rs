//! What programs ask the *fetcher* for: a thread of the supervisor that looks at the host with the
//! rights of the image's user, in the image's user namespace (`docs/adr/0091`).
//!
//! ```text
//!   request: what (1 byte), 3 zeros, flags (4, `Open` and `Find` alone), the inode (8), a name
//!            (`Name` alone)
//!   answer:  one byte, 0 or an error number; with `Open` and `Find` a descriptor
//! ```

use crate::Inode;

/// The fetcher's socket in the image's private directory.
pub const FETCHER: &[u8] = b"fetcher";
/// Bytes of a request without its name.
pub const REQUEST_BYTES: usize = 16;

/// What is asked for, of an inode that is from the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// All names of a directory.
    List,
    /// One name of a directory that the image's user may search and not list.
    Name,
    /// What its host object is like now.
    Renew,
    /// Its extended attributes.
    Extended,
    /// A descriptor of a file, to be read, with these flags of `open`.
    Open(u32),
    /// The same of a file that is not where the image saw it, by another name that it has.
    Find(u32),
}

/// What a request says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// What is asked for.
    pub what: Fetch,
    /// Of which inode.
    pub inode: Inode,
    /// Of `Name`.
    pub name: &'a [u8],
}

impl Fetch {
    /// The request of this for `inode`.
    pub fn encode(self, inode: Inode) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        let (code, flags) = match self {
            Fetch::List => (0, 0),
            Fetch::Name => (1, 0),
            Fetch::Renew => (2, 0),
            Fetch::Extended => (3, 0),
            Fetch::Open(flags) => (4, flags),
            Fetch::Find(flags) => (5, flags),
        };
        bytes[0] = code;
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&inode.number.to_le_bytes());
        bytes[12..].copy_from_slice(&inode.generation.to_le_bytes());
        bytes
    }

    /// What a request says, if it is one.
    pub fn decode(request: &[u8]) -> Option<Request<'_>> {
        let (head, name) = request.split_first_chunk::<REQUEST_BYTES>()?;
        let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let inode = Inode { number: word(8)?, generation: word(12)? };
        let what = match head[0] {
            0 => Fetch::List,
            1 => Fetch::Name,
            2 => Fetch::Renew,
            3 => Fetch::Extended,
            4 => Fetch::Open(word(4)?),
            5 => Fetch::Find(word(4)?),
            _ => return None,
        };
        let whole = name.is_empty() != (what == Fetch::Name);
        whole.then_some(Request { what, inode, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_it_was_made_of_and_a_broken_one_nothing() {
        let inode = Inode { number: 7, generation: 0x0102_0304 };
        let plain = [Fetch::List, Fetch::Name, Fetch::Renew, Fetch::Extended];
        for what in plain.into_iter().chain([Fetch::Open(0x8000), Fetch::Find(0x8000)]) {
            let mut request = what.encode(inode).to_vec();
            if what == Fetch::Name {
                assert_eq!(Fetch::decode(&request), None);
                request.extend(b"name");
            }
            let name: &[u8] = if what == Fetch::Name { b"name" } else { b"" };
            assert_eq!(Fetch::decode(&request), Some(Request { what, inode, name }));
            request[0] = 200;
            assert_eq!(Fetch::decode(&request), None);
            assert_eq!(Fetch::decode(&request[..15]), None);
        }
    }
}
