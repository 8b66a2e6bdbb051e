//! What is different for a node on another host: it opens no file of this host.
//!
//! Invariants
//! 1. Bytes of unmodified host files are read here, and are not made the image's own by that.
//! 2. Such a file that is opened to be written to, or cut, is made the image's own first.
//! 3. The path and the identity of an object of this host are never sent to it.
//! 4. Such a node could ask the same as this user itself: both have the same user number.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use husk_abi::sys::general::O_NOFOLLOW;
use husk_proto::fs::{Attributes, Backing, CAPABILITY, Fs as _, Kind, Origin};
use husk_proto::{Errno, Inode};
use husk_wire::record::AttributeCall;
use husk_wire::{Failure, Kind as Asked, request};

use crate::agent::{Agent, Lent};
use crate::translate::failure;

/// What is not answered over hosts: it is about this host's own objects.
pub fn is_refused(asked: Asked) -> bool {
    use Asked::{DescriptionIo, HostFile, Memory, PassDescription};
    matches!(asked, HostFile | Memory | PassDescription | DescriptionIo)
}

impl Agent {
    /// Of extended attributes one thing is served: who writes to a file takes what capabilities it
    /// gives, as who is at home does.
    pub fn may_ask(&self, asked: &request::Extended<'_>) -> Result<(), Failure> {
        let takes = asked.call == AttributeCall::Remove && asked.name.bytes() == CAPABILITY;
        if self.is_afar && !takes { Err(failure(Errno::EOPNOTSUPP)) } else { Ok(()) }
    }

    /// Devices and other mounts below a tree are this host's: they cannot be used elsewhere.
    pub fn may_see(&self, found: &Attributes) -> Result<(), Failure> {
        match self.is_afar && found.step.kind == Kind::Portal {
            true => Err(failure(Errno::EOPNOTSUPP)),
            false => Ok(()),
        }
    }

    fn host_origin(&mut self, inode: Inode) -> Option<Origin> {
        if !self.is_afar {
            return None;
        }
        let found = self.direct().attributes(inode).ok()?;
        let is_host = found.backing == Backing::Host && found.step.kind == Kind::File;
        found.origin.filter(|_| is_host)
    }

    /// Whether the bytes of `inode` are this host's, and another host asks.
    pub fn is_host_file_for_afar(&mut self, inode: Inode) -> bool {
        self.host_origin(inode).is_some()
    }

    /// Makes a host file the image's own, `keep` bytes of it, before another host changes it.
    pub fn own_for_afar(&mut self, inode: Inode, keep: u64) -> Result<(), Failure> {
        match self.host_origin(inode) {
            Some(_) => self.client.own_for_others(inode, keep).map_err(failure),
            None => Ok(()),
        }
    }

    /// Reads a file whose bytes are this host's; `None`: they are the image's.
    pub fn read_host(
        &mut self,
        inode: Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        let origin = self.host_origin(inode)?;
        if self.lent.as_ref().is_none_or(|lent| lent.inode != inode) {
            match self.open_origin(origin) {
                Ok(file) => self.lent = Some(Lent { inode, file }),
                Err(errno) => return Some(Err(errno)),
            }
        }
        let lent = self.lent.as_ref()?;
        let mut done = 0;
        while done < out.len() {
            match lent.file.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Some(Err(Errno::EIO)),
            }
        }
        // Made the image's own meanwhile: what was read may be half of either.
        self.host_origin(inode).map(|_| Ok(done))
    }

    fn open_origin(&mut self, origin: Origin) -> Result<File, Errno> {
        let mut text = [0; husk_abi::PATH_MAX];
        let direct = self.direct();
        let length = direct.host_path(origin, &mut text)?;
        let known = direct.host_identity(origin)?;
        let path = std::ffi::OsStr::from_bytes(text.get(..length).ok_or(Errno::ENAMETOOLONG)?);
        let mut options = File::options();
        let file = options.read(true).custom_flags(O_NOFOLLOW as i32).open(path);
        let file = file.map_err(|_| Errno::EIO)?;
        let found = file.metadata().map_err(|_| Errno::EIO)?;
        // Another object has the name now.
        let same = (found.dev(), found.ino()) == known.object();
        if same { Ok(file) } else { Err(Errno::EIO) }
    }
}
