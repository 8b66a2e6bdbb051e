//! One change that a write-back would make, as data.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use husk_proto::Inode;
use husk_proto::fs::{Attributes, Kind};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::write_back::host::NS_PER_S;
use crate::write_back::plan::{Content, Object};

/// Bits of a mode that `chmod` sets.
const MODE_BITS: u32 = 0o7777;
/// What space is counted in.
const BLOCK_BYTES: u64 = 512;

/// What happens to a path.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// It appears.
    Added,
    /// Its content becomes another, or it becomes another kind of object.
    Changed,
    /// It goes.
    Removed,
    /// It appears, and the path it had goes.
    Moved,
    /// Only its mode, owner, times or extended attributes change.
    Attributes,
}

/// What kind of object is at a path.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A unix socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

/// Where the content of an object can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// In the image.
    Image(Inode),
    /// In this file of the host.
    Host(PathBuf),
    /// It is a symbolic link with this target.
    Link(PathBuf),
    /// There is none.
    None,
}

/// An object before or after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// Its kind.
    pub what: What,
    /// Permissions, with set-ID bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Length in bytes.
    pub size: u64,
    /// Bytes without holes.
    pub held: u64,
    /// Last modification, ns since the epoch.
    pub modified_ns: i64,
    /// Its content.
    pub bytes: Bytes,
}

impl Thing {
    /// What the host has at `path`, whose metadata is `found`.
    pub fn of_host(path: &Path, found: &Metadata) -> Thing {
        let kind = found.file_type();
        let (what, bytes) = if kind.is_dir() {
            (What::Directory, Bytes::None)
        } else if kind.is_symlink() {
            (What::Symlink, Bytes::Link(std::fs::read_link(path).unwrap_or_default()))
        } else if kind.is_fifo() {
            (What::Fifo, Bytes::None)
        } else if kind.is_socket() {
            (What::Socket, Bytes::None)
        } else if kind.is_char_device() {
            (What::CharacterDevice, Bytes::None)
        } else if kind.is_block_device() {
            (What::BlockDevice, Bytes::None)
        } else {
            (What::File, Bytes::Host(path.to_owned()))
        };
        Thing {
            what,
            mode: found.mode() & MODE_BITS,
            owner: (found.uid(), found.gid()),
            size: found.size(),
            held: found.blocks() * BLOCK_BYTES,
            modified_ns: found.mtime() * NS_PER_S + found.mtime_nsec(),
            bytes,
        }
    }

    /// What is at `path` of the host now, if something is.
    pub fn at(path: &Path) -> Option<Thing> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some(Thing::of_host(path, &found))
    }

    /// The same with the attributes that it is to have.
    pub fn with(self, wanted: &Attributes) -> Thing {
        Thing {
            mode: wanted.step.mode & MODE_BITS,
            owner: (wanted.step.uid, wanted.step.gid),
            modified_ns: wanted.modified_ns,
            ..self
        }
    }

    /// An object that a write-back makes. `None`: what it is made from has gone from the host.
    pub fn of_object(object: &Object) -> Option<Thing> {
        let wanted = &object.attributes;
        let what = match wanted.step.kind {
            Kind::Directory => What::Directory,
            Kind::Symlink => What::Symlink,
            Kind::Fifo => What::Fifo,
            Kind::Socket => What::Socket,
            Kind::CharacterDevice => What::CharacterDevice,
            Kind::BlockDevice => What::BlockDevice,
            Kind::File | Kind::Portal => What::File,
        };
        let bytes = match &object.content {
            Content::Image => Bytes::Image(object.inode),
            Content::Host(path) => return Thing::at(path).map(|found| found.with(wanted)),
            Content::Symlink(target) => Bytes::Link(target.clone()),
            Content::Special | Content::Tree(_) | Content::HostTree(_) => Bytes::None,
        };
        let (mode, size) = (wanted.step.mode & MODE_BITS, wanted.size);
        let held = wanted.blocks_512 * BLOCK_BYTES;
        let (owner, modified_ns) = ((wanted.step.uid, wanted.step.gid), wanted.modified_ns);
        Some(Thing { what, mode, owner, size, held, modified_ns, bytes })
    }

    /// The name of its kind, for people.
    pub fn name(&self) -> &'static str {
        match self.what {
            What::File => "file",
            What::Directory => "directory",
            What::Symlink => "symbolic link",
            What::Fifo => "FIFO",
            What::Socket => "socket",
            What::CharacterDevice => "character device",
            What::BlockDevice => "block device",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happens.
    pub verb: Verb,
    /// The overlay it is in, by its directory on the host.
    pub overlay: PathBuf,
    /// Where, below that.
    pub path: PathBuf,
    /// Where it was, on the host; of a moved object.
    pub from: Option<PathBuf>,
    /// What is there now.
    pub old: Option<Thing>,
    /// What will be there.
    pub new: Option<Thing>,
    /// Extended attributes change.
    pub extended: bool,
    /// What somebody else has done to it on the host, where the image's version does not take its
    /// place for that.
    pub conflict: Option<String>,
    /// A directory that holds it moves, and it with that: only patches tell of it.
    pub implied: bool,
}

impl Change {
    /// Where, on the host.
    pub fn target(&self) -> PathBuf {
        self.overlay.join(&self.path)
    }

    /// What is there after it, or before if nothing is.
    pub fn thing(&self) -> Option<&Thing> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Where it was, as `path` is written: below the overlay, if it was in that.
    pub fn source(&self) -> Option<&Path> {
        let from = self.from.as_deref()?;
        Some(from.strip_prefix(&self.overlay).unwrap_or(from))
    }

    /// Which attributes differ, of an object that was there and stays.
    pub fn attributes(&self) -> Vec<&'static str> {
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return Vec::new() };
        let links = old.what == What::Symlink || new.what == What::Symlink;
        let mut differ = Vec::new();
        differ.extend((old.mode != new.mode && !links).then_some("mode"));
        differ.extend((old.owner != new.owner).then_some("owner"));
        differ.extend((old.modified_ns != new.modified_ns).then_some("times"));
        differ.extend(self.extended.then_some("extended"));
        differ
    }
}

/// Where a path that is text is text, and what it is otherwise.
fn text_or_bytes(path: &Path) -> serde_json::Value {
    use std::os::unix::ffi::OsStrExt;
    match path.to_str() {
        Some(text) => text.into(),
        None => path.as_os_str().as_bytes().into(),
    }
}

impl Serialize for Thing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_struct("Thing", 7)?;
        all.serialize_field("kind", &self.what)?;
        all.serialize_field("mode", &format!("{:04o}", self.mode))?;
        all.serialize_field("uid", &self.owner.0)?;
        all.serialize_field("gid", &self.owner.1)?;
        all.serialize_field("size", &self.size)?;
        all.serialize_field("modified_ns", &self.modified_ns)?;
        match &self.bytes {
            Bytes::Link(target) => all.serialize_field("target", &text_or_bytes(target))?,
            _ => all.skip_field("target")?,
        }
        all.end()
    }
}

/// Paths are texts, or lists of bytes where they are none.
impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_struct("Change", 9)?;
        all.serialize_field("change", &self.verb)?;
        all.serialize_field("overlay", &text_or_bytes(&self.overlay))?;
        all.serialize_field("path", &text_or_bytes(&self.path))?;
        all.serialize_field("from", &self.source().map(text_or_bytes))?;
        all.serialize_field("kind", &self.thing().map(|thing| thing.what))?;
        all.serialize_field("attributes", &self.attributes())?;
        all.serialize_field("old", &self.old)?;
        all.serialize_field("new", &self.new)?;
        all.serialize_field("conflict", &self.conflict)?;
        all.end()
    }
}
