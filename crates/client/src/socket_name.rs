//! Names of unix sockets: `struct sockaddr_un`, and how a node is spelt as an abstract name.
//!
//! ```text
//!   family │ NUL │ token │ inode and generation │ text, if it fits
//! ```

use crate::layout::{get16, put};
use husk_proto::{Errno, Inode, Result};

/// `AF_UNIX`.
pub(crate) const UNIX: u16 = 1;
/// Bytes of `struct sockaddr_un`.
pub(crate) const ADDRESS_BYTES: usize = 110;
/// Where the path stands in it.
pub(crate) const PATH_AT: usize = 2;
/// Where the token stands in a name of ours, after family and NUL; then the inode, then the text.
const TOKEN_AT: usize = 3;
const INODE_AT: usize = TOKEN_AT + SPELT_BYTES;
pub(crate) const TEXT_AT: usize = INODE_AT + SPELT_BYTES;
/// Bytes of a number as it is spelt in a name: six bits each, for `/proc/net/unix` shows them.
const SPELT_BYTES: usize = 11;
const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

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

    pub fn is_path(&self) -> bool {
        self.length > PATH_AT && get16(&self.bytes, 0) == UNIX && self.bytes[PATH_AT] != 0
    }

    /// No name yet, of `length` bytes.
    pub fn empty(length: usize) -> Name {
        Name { bytes: [0; ADDRESS_BYTES], length }
    }

    /// What the host knows a node as. A text that does not fit stands in the node only.
    pub fn of_node(token: u64, inode: Inode, text: &[u8]) -> Name {
        let mut name = Name::empty(TEXT_AT);
        name.bytes[0] = UNIX as u8;
        let node = u64::from(inode.generation) << 32 | u64::from(inode.number);
        put(&mut name.bytes, TOKEN_AT, spelt(token));
        put(&mut name.bytes, INODE_AT, spelt(node));
        if let Some(place) = name.bytes.get_mut(TEXT_AT..TEXT_AT + text.len()) {
            place.copy_from_slice(text);
            name.length = TEXT_AT + text.len();
        }
        name
    }
}

/// The node that an abstract name spells, if it is one of those with `token`.
pub(crate) fn node_of(token: u64, bytes: &[u8]) -> Option<Inode> {
    let ours = bytes.len() >= TEXT_AT && get16(bytes, 0) == UNIX && bytes[PATH_AT] == 0;
    if !ours || read_number(bytes, TOKEN_AT) != Some(token) {
        return None;
    }
    let node = read_number(bytes, INODE_AT)?;
    Some(Inode { number: node as u32, generation: (node >> 32) as u32 })
}

fn spelt(number: u64) -> [u8; SPELT_BYTES] {
    core::array::from_fn(|n| LETTERS[(number >> (6 * n) & 63) as usize])
}

fn read_number(bytes: &[u8], at: usize) -> Option<u64> {
    let digits = bytes.get(at..at + SPELT_BYTES)?;
    digits.iter().rev().try_fold(0u64, |number, digit| {
        let value = LETTERS.iter().position(|letter| letter == digit)?;
        Some(number << 6 | value as u64)
    })
}
