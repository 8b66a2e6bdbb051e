//! The bytes of a file before and after a change, as they are at one moment.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

use husk_proto::Inode;

use super::change::{Bytes, Thing};
use crate::write_back::Source;
use crate::write_back::host::content::{from_errno, read_all};

/// Longest file of which the text is shown.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Looked at for a byte that no text has, as git does.
const LOOKED_BYTES: usize = 8000;
/// Looks at a file that changes meanwhile.
const LOOKS: u32 = 8;

/// What is in a file or, of a symbolic link, its target.
pub enum Content {
    /// A text, in whatever encoding.
    Text(Vec<u8>),
    /// Something else, or more than is shown; its length.
    Binary(u64),
}

impl Content {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Content::Text(bytes) => bytes.len() as u64,
            Content::Binary(length) => *length,
        }
    }

    fn of(bytes: Vec<u8>) -> Content {
        match bytes.iter().take(LOOKED_BYTES).any(|&byte| byte == 0) {
            true => Content::Binary(bytes.len() as u64),
            false => Content::Text(bytes),
        }
    }
}

/// Reads an object; nothing is in none.
pub fn read<S: Source>(source: &mut S, thing: Option<&Thing>) -> io::Result<Content> {
    let Some(thing) = thing else { return Ok(Content::Text(Vec::new())) };
    if thing.size > TEXT_BYTES_MAX {
        return Ok(Content::Binary(thing.size));
    }
    match &thing.bytes {
        Bytes::Link(target) => Ok(Content::Text(target.as_os_str().as_bytes().to_vec())),
        Bytes::None => Ok(Content::Text(Vec::new())),
        Bytes::Image(inode) => of_image(source, *inode),
        Bytes::Host(path) => {
            let mut bytes = Vec::new();
            File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            match bytes.len() as u64 > TEXT_BYTES_MAX {
                true => Ok(Content::Binary(bytes.len() as u64)),
                false => Ok(Content::of(bytes)),
            }
        }
    }
}

/// Programs that write wait meanwhile; where that cannot be had, times say whether one did.
fn of_image<S: Source>(source: &mut S, inode: Inode) -> io::Result<Content> {
    for look in 1.. {
        let held = source.keep_writers_out(inode).is_ok();
        let before = source.attributes(inode);
        let read = before.and_then(|before| {
            if before.size > TEXT_BYTES_MAX {
                return Ok(Content::Binary(before.size));
            }
            Ok(Content::of(read_all(source, inode, before.size)?))
        });
        let after = source.attributes(inode);
        if held {
            source.let_writers_in(inode);
        }
        let (before, after) = (before.map_err(from_errno)?, after.map_err(from_errno)?);
        let still = (before.size, before.modified_ns) == (after.size, after.modified_ns);
        if held || still || look >= LOOKS {
            return read.map_err(from_errno);
        }
    }
    unreachable!("the last look returns")
}
