//! What the words of inodes, entries and records mean.
//!
//! ```text
//!   inode  0 lock   1 generation:32 flags:16 kind:4 mode:12   2 pins:32 opens:32
//!          3 size | entries | device
//!          4 mtime  5 ctime   6 links (`fs::shared`) | subdirectories   7 height:32 root:32 (tree)
//!          8 uid:32 gid:32   9 atime   10 born (`fs::extended`)   11 locks:32 origin:32
//!          12 parent:32 entry:32 (directories) | writers:32 entry:32 (`fs::named`)
//!             | parent:32 its generation:32 (removed directories)
//!          13 map sequence | hole:32 next:32   14 blocks | share word (directories)
//!          15 writer lock (never anything else: who waits for it may come late)
//!   entry  0 version:32 flags:8 kind:8 length:8 tag:8   1 hash:32 next:32   2 dir:32 inode:32
//!          3 slot:32 text:32   4..8 first 32 bytes of the name
//! ```
//!
//! An inode's words are guarded by its lock, except: a directory's 3..8 and 12..15 by the token of
//! its home partition (`fs::directory::share`); a file's 13 only grows, every reader of blocks
//! compares it.

pub(crate) mod fd_table;
pub(crate) mod hold;
pub(crate) mod name;
pub(crate) mod numbers;
pub(crate) mod process;
pub(crate) mod text;
pub(crate) mod tree;

use husk_proto::fs::{Kind, Step};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, Region};

/// Upper half of a word.
#[inline(always)]
pub fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Lower half of a word.
#[inline(always)]
pub fn low(word: u64) -> u32 {
    word as u32
}

/// A word of two halves.
#[inline(always)]
pub fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Words of an inode.
pub mod ino {
    pub const IDENT: u32 = 1;
    pub const USERS: u32 = 2;
    pub const SIZE: u32 = 3;
    pub const MTIME: u32 = 4;
    pub const CTIME: u32 = 5;
    pub const LINKS: u32 = 6;
    pub const ROOT: u32 = 7;
    pub const OWNER: u32 = 8;
    pub const ATIME: u32 = 9;
    pub const BORN: u32 = 10;
    pub const ORIGIN: u32 = 11;
    pub const WRITER: u32 = 15;
    pub const PARENT: u32 = 12;
    pub const KNOWN: u32 = 12;
    pub const MAP_SEQUENCE: u32 = 13;
    pub const ARRAY: u32 = 13;
    /// Of a file: blocks it has; while the bytes are the host's, what it takes there / 512.
    pub const BLOCKS: u32 = 14;
    pub const SHARE: u32 = 14;

    pub const FILE: u32 = 1;
    pub const DIRECTORY: u32 = 2;
    pub const SYMLINK: u32 = 3;
    pub const PORTAL: u32 = 4;
    pub const FIFO: u32 = 5;
    pub const SOCKET: u32 = 6;
    pub const CHARACTER_DEVICE: u32 = 7;
    pub const BLOCK_DEVICE: u32 = 8;

    /// What holds a text instead of a tree.
    pub const fn keeps_text(kind: u32) -> bool {
        kind == SYMLINK || kind == SOCKET
    }

    /// No name leads here any more (directories).
    pub const REMOVED: u32 = 1 << 16;
    /// The host listing has not been imported.
    pub const UNLISTED: u32 = 1 << 17;
    /// The bytes are the host's.
    pub const HOST: u32 = 1 << 18;
    /// Blocks past the end are still to be taken away.
    pub const TRIM: u32 = 1 << 19;
    /// Without a name so far, and may be given one (`O_TMPFILE`).
    pub const LINKABLE: u32 = 1 << 20;
    /// The extended attributes of the host's object are taken over.
    pub const EXTENDED: u32 = 1 << 21;
    /// Among the extended attributes are a program's capabilities.
    pub const CAPABLE: u32 = 1 << 22;
    /// Nothing holds it any more, and what it has goes step by step (`fs::orphan`).
    pub const GOING: u32 = 1 << 23;
    /// The mount whose tree it was made in (`image::shown_in`): no object leaves its tree.
    pub const TREE: u32 = 0xf << TREE_SHIFT;
    pub const TREE_SHIFT: u32 = 24;
    /// It is a volume's: what changes is noted until it is in the log (`fs::unsaved`).
    pub const DURABLE: u32 = 1 << 28;
    /// It has an access control list.
    pub const ACL: u32 = 1 << 29;
    /// A directory with a default list: what is made in it gets that.
    pub const DEFAULT_ACL: u32 = 1 << 30;
    /// The host has put another file in the place of the one that was imported.
    pub const REPLACED: u32 = 1 << 31;
    /// What objects have of the directory they are made in.
    pub const INHERITED: u32 = TREE | DURABLE;
}

/// Words and bits of an entry, a line of tag `tag::ENTRY`.
pub mod ent {
    pub const NEXT: u32 = 1;
    pub const LINK: u32 = 2;
    pub const PLACE: u32 = 3;
    pub const NAME: u32 = 4;

    /// Imported from the host.
    pub const FROM_HOST: u32 = 1 << 24;
    /// Removed name of the host; `LINK` holds its origin.
    pub const WHITEOUT: u32 = 1 << 25;
    /// The inode may have an origin, whose number it shows. Never taken away.
    pub const NUMBERED: u32 = 1 << 26;
}

/// What lives in a line (the low byte of word 0) or a record (the low half of word 1). There a free
/// record has a link to the next one, which no tag of a record can be.
pub mod tag {
    use husk_region::NEVER_IN_NUMBERS;

    pub const ENTRY: u32 = 1;
    pub const TEXT: u32 = 2;
    pub const LOCK: u32 = 3;
    pub const PIN: u32 = 4;
    pub const DESCRIPTION: u32 = NEVER_IN_NUMBERS | 5;
    pub const FILES: u32 = NEVER_IN_NUMBERS | 6;
    pub const CONTEXT: u32 = NEVER_IN_NUMBERS | 7;
    pub const PART: u32 = 8;
    pub const ATTRIBUTE: u32 = 9;
    pub const WATCH: u32 = 10;
    pub const SHARED: u32 = 11;
    pub const HOLD: u32 = NEVER_IN_NUMBERS | 12;
    pub const LEASE: u32 = NEVER_IN_NUMBERS | 13;
}

/// The inode behind a number, and a check that it is still the same.
#[inline]
pub fn live(region: &Region, inode: Inode) -> Result<Cell> {
    here_without(region, inode, 0)
}

/// The same of what may be going in steps, which take no lock of the inode (`fs::orphan`). With its
/// lock held: it does not begin to go before that is let go. Behind a look without it: nothing of
/// what was seen had gone.
#[inline]
pub fn whole(region: &Region, inode: Inode) -> Result<Cell> {
    here_without(region, inode, ino::GOING)
}

#[inline(always)]
fn here_without(region: &Region, inode: Inode, bits: u32) -> Result<Cell> {
    let cell = region.map.object(INODE, inode.number);
    let ident = region.load(cell.word(ino::IDENT));
    let here = high(ident) == inode.generation && inode.number != 0;
    if here && low(ident) & bits == 0 { Ok(cell) } else { Err(Errno::ESTALE) }
}

/// Kind bits of an identity word.
#[inline(always)]
pub fn kind_bits(ident: u64) -> u32 {
    low(ident) >> 12 & 0xf
}

/// The kind as the protocol names it.
pub fn kind_of(bits: u32) -> Kind {
    match bits {
        ino::DIRECTORY => Kind::Directory,
        ino::SYMLINK => Kind::Symlink,
        ino::PORTAL => Kind::Portal,
        ino::FIFO => Kind::Fifo,
        ino::SOCKET => Kind::Socket,
        ino::CHARACTER_DEVICE => Kind::CharacterDevice,
        ino::BLOCK_DEVICE => Kind::BlockDevice,
        _ => Kind::File,
    }
}

/// The bits of a kind.
pub fn bits_of(kind: Kind) -> u32 {
    match kind {
        Kind::File => ino::FILE,
        Kind::Directory => ino::DIRECTORY,
        Kind::Symlink => ino::SYMLINK,
        Kind::Portal => ino::PORTAL,
        Kind::Fifo => ino::FIFO,
        Kind::Socket => ino::SOCKET,
        Kind::CharacterDevice => ino::CHARACTER_DEVICE,
        Kind::BlockDevice => ino::BLOCK_DEVICE,
    }
}

/// What a path walk needs of inode `number`.
#[inline]
pub fn step_of(number: u32, ident: u64, owner: u64) -> Step {
    Step {
        inode: Inode { number, generation: high(ident) },
        kind: kind_of(kind_bits(ident)),
        mode: low(ident) & 0o7777,
        uid: high(owner),
        gid: low(owner),
        unlisted: low(ident) & ino::UNLISTED != 0,
        acl: low(ident) & ino::ACL != 0,
    }
}
