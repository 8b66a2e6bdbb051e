//! Attributes of an image's object in a volume's form.

use husk_carrier::Direct;
use husk_proto::fs::{Attributes as Shown, Kind as ImageKind};
use husk_proto::{Errno, Fs as _, Inode};
use husk_storage::tree::{Attributes, Change, Id, Kind, Writer};

/// Longest target of a link, and longest list of names of extended attributes.
const TEXT_BYTES_MAX: usize = 4096;
/// Longest value of an extended attribute.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The number of an inode in a volume, for as long as it lives.
pub fn id_of(inode: Inode) -> Id {
    Id(u64::from(inode.generation) << 32 | u64::from(inode.number))
}

/// The inode that has that number.
pub fn inode_of(id: Id) -> Inode {
    Inode { number: id.0 as u32, generation: (id.0 >> 32) as u32 }
}

/// What a volume keeps of such an object; `None`: nothing (the name of a socket).
pub fn kind_of(kind: ImageKind) -> Option<Kind> {
    Some(match kind {
        ImageKind::File => Kind::File,
        ImageKind::Directory => Kind::Directory,
        ImageKind::Symlink => Kind::Symlink,
        ImageKind::Fifo => Kind::Fifo,
        ImageKind::CharacterDevice => Kind::CharacterDevice,
        ImageKind::BlockDevice => Kind::BlockDevice,
        ImageKind::Socket | ImageKind::Portal => return None,
    })
}

/// An object without its bytes and names.
#[derive(Debug, Clone)]
pub struct Facts {
    /// What `stat` shows.
    pub attributes: Attributes,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Facts {
    /// Of an object of the image. `ESTALE`: it is gone.
    pub fn of(direct: &mut Direct, inode: Inode) -> Result<Facts, Errno> {
        let attributes = attributes(direct, inode)?.0;
        let mut target = Vec::new();
        if attributes.kind == Kind::Symlink {
            target = vec![0; TEXT_BYTES_MAX];
            let length = direct.read_link(inode, &mut target)?;
            target.truncate(length);
        }
        Ok(Facts { attributes, target, extended: extended(direct, inode)? })
    }

    /// Writes them.
    pub fn push(&self, id: Id, writer: &mut Writer) {
        writer.push(&Change::Node(id, self.attributes));
        if self.attributes.kind == Kind::Symlink {
            writer.push(&Change::Target(id, &self.target));
        }
        writer.push(&Change::Bare(id));
        for (name, value) in &self.extended {
            writer.push(&Change::Extended(id, name, value));
        }
    }
}

/// What `stat` shows of an object, and its length.
pub fn attributes(direct: &mut Direct, inode: Inode) -> Result<(Attributes, u64), Errno> {
    let shown: Shown = direct.attributes(inode)?;
    let kind = kind_of(shown.step.kind).ok_or(Errno::EINVAL)?;
    let attributes = Attributes {
        kind,
        mode: shown.step.mode & 0o7777,
        uid: shown.step.uid,
        gid: shown.step.gid,
        device: shown.device,
        times_ns: [shown.accessed_ns, shown.modified_ns, shown.changed_ns, shown.born_ns],
    };
    Ok((attributes, shown.size))
}

/// Whether they differ in more than the time of the last access.
pub fn differ(one: &Attributes, other: &Attributes) -> bool {
    let mut other = *other;
    other.times_ns[0] = one.times_ns[0];
    *one != other
}

/// Extended attributes of an object.
pub fn extended(direct: &mut Direct, inode: Inode) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Errno> {
    let (mut found, mut after) = (Vec::new(), Vec::new());
    loop {
        let mut names = vec![0; TEXT_BYTES_MAX];
        direct.list_extended(inode, true, &after, &mut names)?;
        let before = found.len();
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; VALUE_BYTES_MAX];
            match direct.extended(inode, name, &mut value) {
                Ok(length) => value.truncate(length),
                Err(Errno::ENODATA) => continue,
                Err(errno) => return Err(errno),
            }
            after = name.to_vec();
            found.push((name.to_vec(), value));
        }
        if found.len() == before {
            return Ok(found);
        }
    }
}
