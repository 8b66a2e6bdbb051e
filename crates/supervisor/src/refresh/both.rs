//! What both sides have made in the same way, and is no conflict: as write-backs judge it.
//!
//! ```text
//!   files with the same bytes         nothing to take in; the write-back sets mode and times
//!   directories of the same rights    one directory, whose names on the host are taken in
//! ```

use std::path::Path;

use husk_proto::fs::{Attributes, Origin};
use husk_proto::{Errno, Fs as _, Inode};

use super::{Look, There};
use crate::write_back::host;
use crate::write_back::host::content;
use crate::write_back::plan::scan::is_like;
use crate::write_back::record::ledger::Entry;

impl Look<'_> {
    /// Whether a file of the image has the bytes that the host's has.
    pub(super) fn is_equal(
        &mut self,
        path: &Path,
        inode: Inode,
        one: &There,
    ) -> Result<bool, Errno> {
        let shown = self.image.attributes(inode)?;
        let ours = host::has_own_bytes(&shown);
        if !ours || !one.found.is_file() || one.found.len() != shown.size {
            return Ok(false);
        }
        let file = self.beneath().hold(path).and_then(|held| held.read());
        let equal = file.and_then(|file| content::equal(self.image, inode, file));
        // What cannot be read now may differ.
        Ok(equal.unwrap_or(false))
    }

    /// Whether a directory that the image has made is the host's, too, from now on: `mkdir -p` on
    /// both sides. `replaced`: what the image has removed there.
    pub(super) fn joined(
        &mut self,
        (dir, inode): (Inode, Inode),
        path: &Path,
        shown: &Attributes,
        one: &There,
        replaced: Option<Origin>,
    ) -> Result<bool, Errno> {
        let free = match self.ledger.entry(path) {
            Some(Entry::Here(_)) => false,
            Some(Entry::Gone) => true,
            None => replaced.is_none(),
        };
        let held = self.beneath().hold(path).ok().filter(|held| held.found().is_dir());
        let Some(held) = held.filter(|_| free && shown.origin.is_none()) else {
            return Ok(false);
        };
        if !is_like(self.image, inode, shown, &held)? {
            return Ok(false);
        }
        self.settle((dir, inode), path, one)
    }
}
