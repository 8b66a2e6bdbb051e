//! An index of git that the host has written remembers the host's files. Of those that the image
//! has made or changed, and a write-back has put there, the image shows other numbers and times:
//! what was taken in of the index says these, so that git in the image finds a clean tree clean.

use std::path::Path;

use husk_proto::fs::{Backing, Fs as _, Kind};
use husk_proto::{Errno, Inode};

use super::{Look, step};
use crate::write_back::commit::detach;
use crate::write_back::git::inside;
use crate::write_back::origin_path;

impl Look<'_> {
    /// Lets the indexes that were looked at fit, if anything of the host was taken in.
    pub(super) fn fit_indexes(&mut self) {
        let indexes = std::mem::take(&mut self.indexes);
        if self.told.renewed + self.told.added == 0 || self.ledger.objects().next().is_none() {
            return;
        }
        for (dir, path) in indexes {
            match self.fit(dir, &path) {
                // Gone meanwhile. Where there is no room, git finds out by itself what is clean.
                Ok(()) | Err(Errno::ENOENT | Errno::ESTALE | Errno::ENOSPC) => {}
                Err(errno) => {
                    self.told.failures.push(format!("{}: {errno:?}", path.display()));
                }
            }
        }
    }

    fn fit(&mut self, dir: Inode, path: &Path) -> Result<(), Errno> {
        let name = path.file_name().unwrap_or_default();
        let inode = self.image.lookup(dir, name.as_encoded_bytes())?.inode;
        let shown = self.image.attributes(inode)?;
        let hosts = shown.step.kind == Kind::File && shown.backing == Backing::Host;
        let Some(origin) = shown.origin.filter(|_| hosts) else { return Ok(()) };
        if origin_path(self.image, &shown)?.as_deref() != Some(path) {
            return Ok(());
        }
        let seen = self.image.host_identity(origin)?;
        let beneath = self.beneath();
        let overlays = &self.overlays;
        let bytes = inside::fitted(self.image, &beneath, overlays, (path, &seen), &self.ledger);
        if let Some(bytes) = bytes {
            step("adopt")?;
            detach::adopt_bytes(self.image, inode, &shown, &bytes)?;
        }
        Ok(())
    }
}
