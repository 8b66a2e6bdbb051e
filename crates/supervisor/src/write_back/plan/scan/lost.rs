//! Directories that the host has removed or moved.
//!
//! What is new in them needs a directory, as git's objects do, whose directories git removes when
//! it has packed what was in them.
//!
//! Invariant: what a write-back has put there, and the image has not changed since, went with them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, Backing, Kind};
use husk_proto::{Errno, Inode};

use super::{DEPTH_MAX, Scan};
use crate::write_back::host::beneath::Glance;
use crate::write_back::host::extended;
use crate::write_back::plan::{Content, Object, Put, Wanted, beside};
use crate::write_back::record::ledger;
use crate::write_back::{Source, host};

impl<S: Source> Scan<'_, S> {
    /// A directory of the image whose host directory is gone: if all that the image has in it is
    /// new since the last write-back, it is made again; else what the image has is written beside,
    /// so that nothing is lost.
    pub(super) fn lost_directory(
        &mut self,
        dir: Inode,
        path: &Path,
        what: &str,
    ) -> Result<(), Errno> {
        let attributes = self.source.attributes(dir)?;
        let children = self.changed_children(dir, path, 1, true)?;
        if children.is_empty() {
            return Ok(());
        }
        let aside = beside(path, self.run.number);
        if self.is_laid(&children, &aside)? {
            return Ok(());
        }
        let Some(parent) = path.parent().filter(|parent| self.beneath.is_directory(parent)) else {
            // It cannot be written there: so it is saved where the rest is.
            for (name, object) in children {
                let (directory, replaces) = (path.to_owned(), None);
                self.plan.puts.push(Put { directory, name, object, replaces, aside: false });
            }
            return Ok(());
        };
        let there = self.beneath.glance(path).ok().flatten();
        let is_made_again = there.is_none() && self.are_new(&children, path);
        let object = self.made_of(dir, attributes, Content::Tree(children))?;
        let directory = parent.to_owned();
        if is_made_again {
            let name = path.file_name().unwrap_or_default().to_owned();
            self.plan.made_again.insert(path.to_owned());
            self.plan.puts.push(Put { directory, name, object, replaces: None, aside: false });
            return Ok(());
        }
        let name = aside.file_name().unwrap_or_default().to_owned();
        let kept = host::beside_in_words(&aside, path, host::There::of(there.as_ref(), true));
        let outcome = format!("what the image changed in it is {kept}");
        self.conflict(path, Wanted::Object, what, &outcome);
        let known = self.ledger.here(&aside).map(|known| known.identity);
        let found = self.beneath.glance(&aside).ok().flatten();
        let ours = |found: &Glance| self.trouble(&aside, Some(*found), known).is_none();
        let replaces = found.filter(ours).map(|found| found.identity);
        self.plan.puts.push(Put { directory, name, object, replaces, aside: true });
        Ok(())
    }

    /// Whether the host has never had any of these: programs of the image have made them.
    fn are_new(&self, children: &[(OsString, Object)], place: &Path) -> bool {
        children.iter().all(|(name, object)| {
            let path = place.join(name);
            match &object.content {
                Content::Tree(children) => self.are_new(children, &path),
                _ => {
                    let written = self.ledger.here_of(&path, object.inode).is_some();
                    object.attributes.origin.is_none() && !written
                }
            }
        })
    }

    /// Whether an earlier write-back has put these into the directory `aside`, and they are there.
    fn is_laid(&mut self, children: &[(OsString, Object)], aside: &Path) -> Result<bool, Errno> {
        let mut open: Vec<_> = children.iter().map(|(name, one)| (aside.join(name), one)).collect();
        while let Some((path, Object { inode, attributes, extended, content, .. })) = open.pop() {
            let known = self.ledger.here_of(&path, *inode).copied();
            let Some(here) = known else { return Ok(false) };
            if let Content::Tree(children) = content {
                open.extend(children.iter().map(|(name, one)| (path.join(name), one)));
            } else if ledger::facts(attributes, extended.as_ref()) != here.facts {
                return Ok(false);
            }
            let bytes = matches!(content, Content::Image);
            if !self.is_there(&path) || bytes && !self.has_bytes_of(*inode, &here, &path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a write-back has put an object at `path` as the image has it now.
    fn is_written(
        &mut self,
        inode: Inode,
        attributes: &Attributes,
        path: &Path,
    ) -> Result<bool, Errno> {
        let known = self.ledger.here_of(path, inode).copied();
        let Some(here) = known else { return Ok(false) };
        let extended = extended::of(self.source, inode, attributes)?;
        let bytes = host::has_own_bytes(attributes);
        Ok(ledger::facts(attributes, extended.as_ref()) == here.facts
            && (!bytes || self.has_bytes_of(inode, &here, path)?))
    }

    /// What of a directory the host has not at `place`: what lies in the image only, and what the
    /// image has moved there; `gone`: and what the host has removed after it was written back does
    /// not count.
    pub(super) fn changed_children(
        &mut self,
        dir: Inode,
        place: &Path,
        depth: u32,
        gone: bool,
    ) -> Result<Vec<(OsString, Object)>, Errno> {
        if depth >= DEPTH_MAX {
            self.too_deep(dir)?;
            return Ok(Vec::new());
        }
        let mut children = Vec::new();
        for name in self.names(dir)? {
            let attributes = self.source.attributes(name.inode)?;
            let (origin, here) = (self.origin_path(&attributes)?, place.join(&name.name));
            let (kind, in_image) = (attributes.step.kind, attributes.backing == Backing::Image);
            let elsewhere = |origin: &PathBuf| *origin != here && self.is_there(origin);
            let moved = !name.from_host && origin.as_ref().is_some_and(elsewhere);
            let written = gone && self.ledger.here_of(&here, name.inode).is_some();
            if kind != Kind::Directory
                && written
                && self.is_written(name.inode, &attributes, &here)?
            {
                continue;
            }
            if moved && (kind == Kind::Directory || kind.is_special() || !in_image) {
                let object = self.object(name.inode, attributes, origin, depth)?;
                children.push((name.name, object));
                continue;
            }
            let content = match kind {
                Kind::File if in_image => Content::Image,
                Kind::Symlink => Content::Symlink(self.link_target(name.inode)?),
                kind if kind.is_special() && origin.is_none() => Content::Special,
                Kind::Directory => {
                    match self.changed_children(name.inode, &here, depth + 1, gone)? {
                        below if below.is_empty() && (written || attributes.origin.is_some()) => {
                            continue;
                        }
                        below => Content::Tree(below),
                    }
                }
                _ => continue,
            };
            children.push((name.name, self.made_of(name.inode, attributes, content)?));
        }
        Ok(children)
    }
}
