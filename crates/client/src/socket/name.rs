//! Names of unix sockets: `struct sockaddr_un`, and what the host knows a node of a tree as.
//!
//! ```text
//!   bound to     /proc/self/fd/N/NUMBER.GENERATION.TAG.TEXT    N: the private directory
//!   reached by   PRIVATE/NUMBER.GENERATION.TAG.TEXT            TEXT: what was given, if it fits
//!   connected as NUL husk.TAG.LANE                             which lanes it has (`lanes`)
//! ```
//!
//! `/proc/net/unix` shows to everybody what a socket was bound to, so the path of the private
//! directory is not in it. The tag is the image's own: others, too, bind below `/proc/self/fd`.
//! It is no secret; it keeps names apart, and proves nothing.

use crate::layout::get16;
use husk_abi::proc::{DESCRIPTORS, put_decimal};
use husk_proto::{Errno, Inode, Result};

/// `AF_UNIX`.
pub(crate) const UNIX: u16 = 1;
/// Bytes of `struct sockaddr_un`.
pub(crate) const ADDRESS_BYTES: usize = 110;
/// Where the path stands in it.
pub(crate) const PATH_AT: usize = 2;
/// Bytes of a path; one as long has no NUL.
pub(crate) const TEXT_MAX: usize = ADDRESS_BYTES - PATH_AT;
/// How what a socket is bound to begins.
const BOUND: &[u8] = DESCRIPTORS;
/// How the name of a socket with lanes begins, which no file has.
const LANE: &[u8] = b"\0husk.";
const LANE_DIGITS: usize = 8;
/// Stands for a slash in the name of a file.
const SLASH: u8 = 1;
/// Bytes of a tag.
const TAG_BYTES: usize = 7;

/// A `struct sockaddr_un` and its length.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub bytes: [u8; ADDRESS_BYTES],
    pub length: usize,
}

impl Name {
    pub fn of(text: &[u8]) -> Result<Name> {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[0] = UNIX as u8;
        let place = bytes.get_mut(PATH_AT..PATH_AT + text.len()).ok_or(Errno::ENAMETOOLONG)?;
        place.copy_from_slice(text);
        Ok(Name { bytes, length: (PATH_AT + text.len() + 1).min(ADDRESS_BYTES) })
    }

    /// The text of a path, up to its NUL.
    pub fn text(&self) -> &[u8] {
        let text = &self.bytes[PATH_AT..self.length];
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        &text[..end]
    }

    /// Whether the text fills all there is: Linux shows it with a NUL behind the structure.
    pub fn is_unended(&self) -> bool {
        self.text().len() == TEXT_MAX
    }

    pub fn is_path(&self) -> bool {
        self.length > PATH_AT && get16(&self.bytes, 0) == UNIX && self.bytes[PATH_AT] != 0
    }

    /// No name yet, of `length` bytes.
    pub fn empty(length: usize) -> Name {
        Name { bytes: [0; ADDRESS_BYTES], length }
    }

    /// What the host knows a node as, in directory `private`. A text that does not fit behind that
    /// stands in the node only.
    pub fn of_node(private: &[u8], inode: Inode, text: &[u8]) -> Name {
        Name::below(private, private, inode, text)
    }

    fn below(directory: &[u8], private: &[u8], inode: Inode, text: &[u8]) -> Name {
        let mut name = Name::empty(PATH_AT);
        name.bytes[0] = UNIX as u8;
        name.push(directory);
        name.push_number(inode.number);
        name.push(b".");
        name.push_number(inode.generation);
        name.push(b".");
        name.push(tag(private));
        let file = name.length - PATH_AT - directory.len();
        if private.len() + file + 1 + text.len() < TEXT_MAX && !text.contains(&SLASH) {
            name.push(b".");
            for &byte in text {
                name.push(&[if byte == b'/' { SLASH } else { byte }]);
            }
        }
        name.length += 1;
        name
    }

    /// The same below descriptor `fd`, which is the private directory's.
    pub fn to_bind(fd: u32, private: &[u8], inode: Inode, text: &[u8]) -> Name {
        let mut directory = Name::empty(PATH_AT);
        directory.push(BOUND);
        directory.push_number(fd);
        directory.push(b"/");
        Name::below(&directory.bytes[PATH_AT..directory.length], private, inode, text)
    }

    /// What a socket with lanes is bound to once it is connected: who accepts it knows them.
    pub fn of_lane(private: &[u8], lane: u32) -> Name {
        let mut name = Name::empty(PATH_AT);
        name.bytes[0] = UNIX as u8;
        name.push(LANE);
        name.push(tag(private));
        name.push(b".");
        for digit in (0..LANE_DIGITS).rev() {
            name.push(&[b"0123456789abcdef"[(lane >> (4 * digit) & 15) as usize]]);
        }
        name
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    fn push_number(&mut self, number: u32) {
        let mut digits = [0; 10];
        let length = put_decimal(&mut digits, number);
        self.push(&digits[..length]);
    }
}

/// What tells names of this image: the end of the name of the private directory's parent, which
/// other users can see.
fn tag(private: &[u8]) -> &[u8] {
    let parent = private.rsplit(|&byte| byte == b'/').nth(2).unwrap_or(&[]);
    &parent[parent.len().saturating_sub(TAG_BYTES)..]
}

/// The node that what a socket is bound to stands for, and the text in it, if it is one of ours.
pub(crate) fn node_of(bytes: &[u8], private: &[u8]) -> Option<(Inode, Option<Name>)> {
    if bytes.len() <= PATH_AT || get16(bytes, 0) != UNIX {
        return None;
    }
    let path = bytes[PATH_AT..].split(|&byte| byte == 0).next()?.strip_prefix(BOUND)?;
    let slash = path.iter().position(|&byte| byte == b'/')?;
    decimal(&path[..slash])?;
    let mut parts = path[slash + 1..].splitn(4, |&byte| byte == b'.');
    let (number, generation) = (decimal(parts.next()?)?, decimal(parts.next()?)?);
    if parts.next()? != tag(private) {
        return None;
    }
    let text = parts.next().and_then(|text| {
        let mut name = Name::of(text).ok()?;
        let text = &mut name.bytes[PATH_AT..];
        text.iter_mut().filter(|byte| **byte == SLASH).for_each(|byte| *byte = b'/');
        Some(name)
    });
    Some((Inode { number, generation }, text))
}

/// The lane that a name of a socket stands for, if it is one of ours.
pub(crate) fn lane_of(bytes: &[u8], private: &[u8]) -> Option<u32> {
    let digits = bytes.get(PATH_AT..)?.strip_prefix(LANE)?.strip_prefix(tag(private))?;
    let lane = core::str::from_utf8(digits.strip_prefix(b".")?).ok()?;
    (lane.len() == LANE_DIGITS).then(|| u32::from_str_radix(lane, 16).ok())?
}

/// Whether a name of `full` bytes, of which `bytes` came, may be a lane's.
pub(crate) fn may_be_lanes(bytes: &[u8], full: usize, private: &[u8]) -> bool {
    let whole = Name::of_lane(private, 0);
    let known = whole.length - LANE_DIGITS;
    full == whole.length
        && bytes.len() >= PATH_AT
        && bytes.iter().take(known).eq(whole.bytes[..known].iter().take(bytes.len()))
}

fn decimal(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: &[u8] = b"/dev/shm/.husk-89abcdef/fedcba9876543210/";
    const NODE: Inode = Inode { number: 7, generation: 3 };

    #[test]
    fn a_name_of_ours_leads_to_its_node_and_text() {
        let name = Name::to_bind(5, PRIVATE, NODE, b"run/s.sock");
        assert_eq!(name.text(), b"/proc/self/fd/5/7.3.9abcdef.run\x01s.sock");
        let (node, text) = node_of(&name.bytes[..name.length], PRIVATE).unwrap();
        assert_eq!((node, text.unwrap().text()), (NODE, &b"run/s.sock"[..]));
        let (node, text) =
            node_of(&Name::to_bind(5, PRIVATE, NODE, &[b'l'; 100]).bytes, PRIVATE).unwrap();
        assert!(node == NODE && text.is_none());
    }

    #[test]
    fn the_name_of_a_socket_with_lanes_says_which_and_is_hidden_however_little_of_it_came() {
        let name = Name::of_lane(PRIVATE, 0x1f0_0007);
        assert_eq!(&name.bytes[PATH_AT..name.length], b"\0husk.9abcdef.01f00007");
        let bytes = &name.bytes[..name.length];
        assert_eq!(lane_of(bytes, PRIVATE), Some(0x1f0_0007));
        for length in PATH_AT..bytes.len() {
            assert_eq!(lane_of(&bytes[..length], PRIVATE), None);
            assert!(may_be_lanes(&bytes[..length], name.length, PRIVATE), "{length}");
            assert!(!may_be_lanes(&bytes[..length], name.length + 1, PRIVATE), "{length}");
        }
        let other = Name::of_lane(b"/dev/shm/.husk-12345678/fedcba9876543210/", 7);
        assert_eq!(lane_of(&other.bytes[..other.length], PRIVATE), None);
        assert!(!may_be_lanes(&other.bytes[..other.length], other.length, PRIVATE));
    }

    #[test]
    fn names_of_others_are_theirs() {
        for file in ["1.2", "1.2.sock", "7.3.0123456.run", "7.3.9abcde", "x.3.9abcdef"] {
            let name = Name::of(&[BOUND, b"5/", file.as_bytes()].concat()).unwrap();
            assert!(node_of(&name.bytes[..name.length], PRIVATE).is_none(), "{file}");
        }
    }
}
