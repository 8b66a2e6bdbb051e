//! What an image has from the host: which object, and what it was like when it was read.

use crate::fs::Kind;

/// A record of the host object an inode was imported from. Records live as long as the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(pub u32);

/// What identified a host object when it was imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostIdentity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_size`, bytes.
    pub size: u64,
    /// Last modification, ns since the epoch.
    pub modified_ns: i64,
    /// Last status change, ns since the epoch.
    pub changed_ns: i64,
}

impl HostIdentity {
    /// Device and inode: which file it is, whatever is in it.
    pub const fn object(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// What the recording of the program with this identity is known by (`snapshot`).
    pub const fn recorded(self) -> HostIdentity {
        HostIdentity { device: self.device ^ 1 << 63, ..self }
    }

    /// By what it is known that the supervisor has looked at the file with this identity
    /// (`request_remembered`).
    pub const fn remembered(self) -> HostIdentity {
        HostIdentity { device: self.device ^ 1 << 62, ..self }
    }
}

/// One name of a host directory, offered with `import`.
#[derive(Clone, Copy, Debug)]
pub struct Imported<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What the host has there.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Identity for the conflict check at write-back; also size and times as shown.
    pub identity: HostIdentity,
    /// Last access, ns.
    pub accessed_ns: i64,
    /// Creation, ns; 0 where the host does not know.
    pub born_ns: i64,
    /// Space it takes on the host (`st_blocks`).
    pub blocks_512: u64,
    /// Hard links it has on the host (`st_nlink`).
    pub links: u32,
    /// Number of a device (`st_rdev`), else 0.
    pub device: u32,
    /// Target of a symlink, else empty.
    pub target: &'a [u8],
}

impl<'a> Imported<'a> {
    /// A directory of root's of which the host tells nothing else: what is at the top of a tree.
    pub const fn top(name: &'a [u8], mode: u32) -> Self {
        let identity = HostIdentity { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 };
        Self {
            name,
            kind: Kind::Directory,
            mode,
            uid: 0,
            gid: 0,
            identity,
            accessed_ns: 0,
            born_ns: 0,
            blocks_512: 0,
            links: 1,
            device: 0,
            target: b"",
        }
    }
}
