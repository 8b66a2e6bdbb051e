//! What programs ask the *fetcher* for: a thread of the supervisor that looks at the host with the
//! rights of the image's user, in the image's user namespace (`docs/adr/0091`).
//!
//! ```text
//!   request: what (1 byte), 7 zeros, the inode (8), a name (`Name` alone)
//!   answer:  one byte, 0 or an error number
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
}

impl Fetch {
    const ALL: [Fetch; 4] = [Fetch::List, Fetch::Name, Fetch::Renew, Fetch::Extended];

    /// The request of this for `inode`.
    pub fn encode(self, inode: Inode) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = self as u8;
        bytes[8..12].copy_from_slice(&inode.number.to_le_bytes());
        bytes[12..].copy_from_slice(&inode.generation.to_le_bytes());
        bytes
    }

    /// What a request asks for, of which inode, and its name.
    pub fn decode(request: &[u8]) -> Option<(Fetch, Inode, &[u8])> {
        let (head, name) = request.split_first_chunk::<REQUEST_BYTES>()?;
        let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let inode = Inode { number: word(8)?, generation: word(12)? };
        let what = *Fetch::ALL.get(usize::from(head[0]))?;
        (name.is_empty() != (what == Fetch::Name)).then_some((what, inode, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_it_was_made_of_and_a_broken_one_nothing() {
        let inode = Inode { number: 7, generation: 0x0102_0304 };
        for what in Fetch::ALL {
            let mut request = what.encode(inode).to_vec();
            if what == Fetch::Name {
                assert_eq!(Fetch::decode(&request), None);
                request.extend(b"name");
            }
            let name: &[u8] = if what == Fetch::Name { b"name" } else { b"" };
            assert_eq!(Fetch::decode(&request), Some((what, inode, name)));
            request[0] = 200;
            assert_eq!(Fetch::decode(&request), None);
            assert_eq!(Fetch::decode(&request[..15]), None);
        }
    }
}
