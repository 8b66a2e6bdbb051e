//! Takes in names that the host has given to files which the image knows by other names.
//!
//! ```text
//!   a name that came, of a file with several ──► which inode has that file? ──► that inode's name
//!         its record (`Admin::each_imported`), or where a write-back has put it (ledger)
//!   the name that a file was imported by went ──► its record moves to another name that it has
//! ```
//!
//! Invariants
//! 1. An inode number of the host counts as the same file only with the same time of birth, or the
//!    same size and modification time: numbers are given again.
//! 2. Who is killed before a record has moved leaves that to the next look at the name.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::fs::{Attributes, HostIdentity, Imported, Kind};
use husk_proto::{Admin as _, Errno, Fs as _, Inode};

use super::{Look, There, step};
use crate::write_back::host::beneath::{Object as Which, object_of};
use crate::write_back::{Overlay, host, origin_path};

/// Inodes of host objects, and what these were when a write-back or the image saw them last.
pub(super) type Known = HashMap<Which, Vec<(Inode, HostIdentity)>>;

impl Look<'_> {
    /// Before a name is imported: whether it becomes another name of an inode that is there.
    pub(super) fn link_up(&mut self, one: &There, kind: Kind) -> Result<(), Errno> {
        if one.found.nlink() < 2 || one.found.is_dir() || kind == Kind::Portal {
            return Ok(());
        }
        let known = match self.known.take() {
            Some(known) => known,
            None => self.all_known(),
        };
        let found = host::identity_of(&one.found);
        let candidates = known.get(&found.object());
        let candidates = candidates.into_iter().flatten().copied().collect::<Vec<_>>();
        self.known = Some(known);
        for (inode, seen) in candidates {
            let Ok(shown) = self.image.attributes(inode) else { continue };
            let found = one.imported(OsStr::new(""), kind);
            let born = found.born_ns > 0 && found.born_ns == shown.born_ns;
            if !born && !host::same_content(&seen, &found.identity) {
                continue;
            }
            step("note links")?;
            match self.image.note_links(inode, &found) {
                // Gone meanwhile.
                Err(Errno::ESTALE | Errno::ENOENT) | Ok(false) => {}
                Ok(true) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The name that a file was imported by goes, and other names may lead to it yet.
    pub(super) fn name_goes(&mut self, path: &Path, inode: Inode) -> Result<(), Errno> {
        let shown = self.image.attributes(inode)?;
        let several = shown.links > 1 && shown.step.kind != Kind::Directory;
        if several && origin_path(self.image, &shown)?.as_deref() == Some(path) {
            self.unplaced.insert(inode);
        }
        Ok(())
    }

    /// If the host has a file no longer by the name that it was imported by: it has it by this one.
    pub(super) fn place(
        &mut self,
        dir: Inode,
        path: &Path,
        inode: Inode,
        shown: &Attributes,
        one: &There,
    ) -> Result<(), Errno> {
        let (Some(origin), Some(was)) = (shown.origin, origin_path(self.image, shown)?) else {
            return Ok(());
        };
        let seen = self.image.host_identity(origin)?;
        let is_its = |found: &fs::Metadata| object_of(found) == seen.object();
        // What cannot be looked at may be there.
        let is_there = || match self.beneath().found(&was) {
            Ok(found) => found.is_some_and(|found| is_its(&found)),
            Err(_) => true,
        };
        if was == path || !is_its(&one.found) || is_there() {
            return Ok(());
        }
        let (mode, uid, gid) = self.image.origin_rights(origin)?;
        let name = path.file_name().unwrap_or_default();
        let found = one.imported(name, shown.step.kind);
        step("move origin")?;
        let as_seen = Imported { identity: seen, mode, uid, gid, ..found };
        if self.image.move_origin(dir, inode, &as_seen)? {
            self.unplaced.remove(&inode);
        }
        Ok(())
    }

    /// The same of a name that has just come.
    pub(super) fn place_name(&mut self, dir: Inode, path: &Path, one: &There) -> Result<(), Errno> {
        let name = path.file_name().unwrap_or_default();
        let inode = self.image.lookup(dir, name.as_encoded_bytes())?.inode;
        self.ledger.linked(path, inode, host::identity_of(&one.found));
        let shown = self.image.attributes(inode)?;
        self.place(dir, path, inode, &shown, one)
    }

    /// Looks in all listed directories for names of what has lost its own.
    pub(super) fn place_all(&mut self, mut open: Vec<Overlay>) {
        let image = &mut *self.image;
        let mut wanted: HashSet<_> = std::mem::take(&mut self.unplaced);
        wanted.retain(|inode| image.attributes(*inode).is_ok_and(|shown| shown.links > 0));
        while let Some((dir, path)) = open.pop().filter(|_| !wanted.is_empty()) {
            let Ok(names) = self.names(dir) else { continue };
            for (name, (inode, from_host)) in names {
                let path = path.join(&name);
                if from_host
                    && wanted.contains(&inode)
                    && let Ok(Some(one)) = self.there(&path)
                {
                    let shown = self.image.attributes(inode);
                    // Gone meanwhile; another may lead there.
                    let _ = shown.and_then(|shown| self.place(dir, &path, inode, &shown, &one));
                }
            }
            let below = self.directories(dir, &path).unwrap_or_default();
            open.extend(below.into_iter().map(|(name, inode)| (inode, path.join(name))));
        }
    }

    /// What a write-back has put somewhere else is not where it came from any more.
    fn all_known(&mut self) -> Known {
        let mut imported = Vec::new();
        self.image.each_imported(&mut |inode, origin| imported.push((inode, origin)));
        let mut known = Known::new();
        let mut add = |inode, seen: HostIdentity| {
            known.entry(seen.object()).or_default().push((inode, seen));
        };
        for (inode, origin) in imported {
            if self.ledger.places(inode).next().is_none()
                && let Ok(seen) = self.image.host_identity(origin)
            {
                add(inode, seen);
            }
        }
        self.ledger.objects().for_each(|(_, inode, seen)| add(inode, seen));
        known
    }
}
