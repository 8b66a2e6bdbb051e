//! What a scan asks the image for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, Kind, Origin};
use husk_proto::{Errno, Inode};

use super::{Name, Scan, Whiteout};
use crate::write_back::host;
use crate::write_back::{PATH_BYTES_MAX, Source, path_of_origin};

impl<S: Source> Scan<'_, S> {
    /// The attributes of what has a name. Those of a file with several are the same for each of
    /// them, whatever programs do between two looks.
    pub(super) fn look(&mut self, inode: Inode) -> Result<Attributes, Errno> {
        let now = self.source.attributes(inode)?;
        if !self.run.live || now.step.kind == Kind::Directory {
            return Ok(now);
        }
        let known = self.looks.get(&inode).copied();
        if known.is_none() && now.links > 1 {
            self.looks.insert(inode, now);
        }
        Ok(Attributes { links: now.links, ..known.unwrap_or(now) })
    }

    pub(super) fn names(&mut self, dir: Inode) -> Result<Vec<Name>, Errno> {
        let mut names = Vec::new();
        self.source.list(dir, 0, &mut |entry| {
            let name = OsString::from_vec(entry.name.to_vec());
            names.push(Name { name, inode: entry.inode, from_host: entry.from_host });
            true
        })?;
        Ok(names)
    }

    pub(super) fn whiteouts(&mut self, dir: Inode) -> Result<Vec<Whiteout>, Errno> {
        let mut whiteouts = Vec::new();
        self.source.whiteouts(dir, &mut |name, origin| {
            whiteouts.push(Whiteout { name: OsString::from_vec(name.to_vec()), origin });
            Ok(())
        })?;
        Ok(whiteouts)
    }

    pub(super) fn origin_path(
        &mut self,
        attributes: &Attributes,
    ) -> Result<Option<PathBuf>, Errno> {
        crate::write_back::origin_path(self.source, attributes)
    }

    /// Whether the host still has at `path` what the image saw.
    pub(super) fn is_as_seen(&mut self, origin: Origin, path: &Path) -> Result<bool, Errno> {
        let seen = self.source.host_identity(origin)?;
        Ok(self.beneath.identity(path).ok().flatten() == Some(seen))
    }

    /// Whether the image has seen the host's object at `path`.
    pub(super) fn is_from(&mut self, origin: Origin, path: &Path) -> Result<bool, Errno> {
        Ok(path_of_origin(self.source, origin)? == path)
    }

    pub(super) fn link_target(&mut self, inode: Inode) -> Result<PathBuf, Errno> {
        let mut bytes = vec![0; PATH_BYTES_MAX];
        let length = self.source.read_link(inode, &mut bytes)?;
        Ok(host::path_of(&bytes[..length.min(PATH_BYTES_MAX)]))
    }
}
