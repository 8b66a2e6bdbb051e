//! Which changes of both sides to one object are compatible.
//!
//! ```text
//!   on the host              in the image             written back
//!   chmod, chown, link       bytes, names, times      the image's, with the host's mode and owner
//!   touch, same size         mode, owner              the host's, with the image's mode and owner
//!   touch, same size         touch                    the host's, with the later time
//!   touch, same size         bytes at the end         the image's, if it begins with the host's
//!   chmod                    another chmod            a conflict
//!   mkdir                    mkdir, the same rights   one directory with the names of both
//! ```
//!
//! Whether bytes were changed on the host, size and modification time say.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, HostIdentity, Kind, Rights};
use husk_proto::{Errno, Inode};

use rustix::process::geteuid;

use super::Scan;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Glance, object_of};
use crate::write_back::host::extended;
use crate::write_back::host::extended::{Extended, Settling};
use crate::write_back::plan::{Taken, Touch, Wanted};
use crate::write_back::{Source, host};

impl<S: Source> Scan<'_, S> {
    /// Whether `found` at `path` is what is expected, as far as others are concerned. Bytes that
    /// pass through a FIFO or a socket change its times, and nothing that the image has of it.
    pub(super) fn same(&self, path: &Path, expected: &HostIdentity, found: &HostIdentity) -> bool {
        host::same_content(expected, found)
            || self.ledger.same(expected, found)
            || expected.object() == found.object()
                && self.beneath.found(path).is_ok_and(|one| one.as_ref().is_some_and(is_special))
    }

    /// Takes mode and owner from the host's object at `path`, which `attributes` are to be those
    /// of, where the host alone has changed them. False: both have, each in its own way.
    pub(super) fn merge(
        &mut self,
        path: &Path,
        expected: &HostIdentity,
        attributes: &mut Attributes,
    ) -> bool {
        let Ok(Some(there)) = self.beneath.found(path) else { return true };
        let found = host::identity_of(&there);
        let untouched = found.changed_ns == expected.changed_ns || self.ledger.is_ours(&found);
        if untouched {
            return true;
        }
        let Some(base) = self.rights_before(path, &found, attributes) else {
            return true;
        };
        let (mode, uid, gid) = base;
        let step = &mut attributes.step;
        let before = (step.mode, step.uid, step.gid);
        let all = [
            (mode, &mut step.mode, there.mode() & 0o7777),
            (uid, &mut step.uid, there.uid()),
            (gid, &mut step.gid, there.gid()),
        ];
        let compatible = all.into_iter().fold(true, |all, (before, ours, theirs)| {
            let compatible = *ours == before || theirs == before || *ours == theirs;
            if *ours == before {
                *ours = theirs;
            }
            all && compatible
        });
        if (step.mode, step.uid, step.gid) != before {
            let found = host::rights_of(&there);
            self.plan.taken.push(Taken { inode: step.inode, before: base, found });
        }
        compatible
    }

    /// The rights of the object `found` at `path` as the last write-back has put it there, or as
    /// the image first saw it. `None`: it is another one, which has rights of its own.
    pub(super) fn rights_before(
        &mut self,
        path: &Path,
        found: &HostIdentity,
        attributes: &Attributes,
    ) -> Option<Rights> {
        let put = self.ledger.here(path).filter(|here| here.identity.object() == found.object());
        if let Some(rights) = put.and_then(|here| here.rights) {
            return Some(rights);
        }
        // What a program saves under a new name, and renames, has the rights that it saw there.
        [attributes.origin, self.replaced].into_iter().flatten().find_map(|origin| {
            let imported = self.source.host_identity(origin).ok()?;
            (imported.object() == found.object()).then(|| self.source.origin_rights(origin).ok())?
        })
    }

    /// Whether somebody has given the object at `path`, which had these rights, to another user and
    /// this one could not give it back: it is that user's, and stays. In words.
    pub(super) fn taken_over(&self, path: &Path, before: Option<Rights>) -> Option<String> {
        let (user, (_, owner, _)) = (geteuid(), before?);
        let there = self.beneath.found(path).ok().flatten()?.uid();
        let taken = !user.is_root() && there != owner && there != user.as_raw();
        taken.then(|| format!("was given to user {there} on the host meanwhile"))
    }

    /// The same; where both have, the image's count, and a line says so.
    pub(super) fn merge_or_note(
        &mut self,
        path: &Path,
        expected: &HostIdentity,
        attributes: &mut Attributes,
    ) {
        let found = self.beneath.found(path).ok().flatten();
        if !self.merge(path, expected, attributes) {
            let take = found.map(|found| host::hosts_in_words(path, attributes, &found));
            let what = "mode or owner changed on both sides: the image's are taken";
            let line = format!("{}: {what}{}", path.display(), take.unwrap_or_default());
            self.plan.notes.push(line);
        }
    }

    /// Brings the extended attributes of an object together with those of the host's object at
    /// `path`, which it has its own from (`extended`). Whether that is there.
    pub(super) fn merge_extended(
        &mut self,
        path: &Path,
        attributes: &Attributes,
        extended: &mut Option<Extended>,
    ) -> bool {
        let (inode, Some(ours)) = (attributes.step.inode, &extended) else { return false };
        let Some(theirs) = self.hosts_extended(path, attributes) else { return false };
        // What the image does not say now it says the next time.
        let Ok(merged) = extended::merge(self.source, inode, ours, &theirs) else { return true };
        for Settling { name, found, .. } in &merged.both {
            let how = extended::in_words(path, name, found.as_deref());
            let name = name.to_string_lossy();
            let outcome = format!("its extended attribute {name} is kept as it is there{how}");
            self.conflict(path, Wanted::Attributes, "changed on the host meanwhile", &outcome);
        }
        self.plan.taken_extended.extend(merged.taken);
        self.plan.told_extended.extend(merged.both);
        if !merged.ours.is_empty() {
            self.plan.our_extended.insert(inode, merged.ours);
        }
        *extended = Some(merged.wanted);
        true
    }

    /// What the host's object at `path` has, if it is the one that the image saw, or that a
    /// write-back has put there.
    fn hosts_extended(&mut self, path: &Path, attributes: &Attributes) -> Option<Extended> {
        let held = self.beneath.hold_if_there(path).ok().flatten()?;
        let which = object_of(held.found());
        let is_it = |one: &HostIdentity| one.object() == which;
        let put = self.ledger.here_of(path, attributes.step.inode);
        let imported = attributes.origin.and_then(|one| self.source.host_identity(one).ok());
        let known = put.is_some_and(|here| is_it(&here.identity))
            || imported.is_some_and(|one| is_it(&one));
        // Where it cannot be read, the image's are tried, and what the host says is told.
        known.then(|| extended::even_unreadable(&held).ok()).flatten()
    }

    /// The same where the host has a newer file of the same size, and the image has changed only
    /// mode, owner or times: it is the host's file that gets them, with the later time of the two.
    pub(super) fn merge_touched(
        &mut self,
        path: &Path,
        expected: &HostIdentity,
        found: &HostIdentity,
        attributes: &mut Attributes,
    ) -> bool {
        let which = |one: &HostIdentity| (one.device, one.inode, one.size);
        if which(found) != which(expected) {
            return false;
        }
        let Ok(Some(there)) = self.beneath.found(path) else { return false };
        let touched = attributes.modified_ns != expected.modified_ns;
        let ours = if touched { attributes.modified_ns } else { i64::MIN };
        attributes.modified_ns = ours.max(found.modified_ns);
        attributes.accessed_ns = there.atime() * host::NS_PER_S + there.atime_nsec();
        self.merge(path, expected, attributes)
    }

    /// Whether a directory that the image has made is the one that somebody has made on the host,
    /// as `mkdir -p` on both sides does: what is in it is looked at name by name then.
    pub(super) fn joins(&mut self, path: &Path, attributes: &Attributes) -> Result<bool, Errno> {
        let step = &attributes.step;
        if step.kind != Kind::Directory {
            return Ok(false);
        }
        let held = self.beneath.hold_if_there(path).ok().flatten();
        let Some(held) = held.filter(|held| held.found().is_dir()) else { return Ok(false) };
        if let Some(origin) = attributes.origin {
            // A refresh has found that already, and was killed before it could note all.
            let seen = self.source.host_identity(origin)?;
            let there = seen.object() == object_of(held.found());
            return Ok(there && self.is_from(origin, path)?);
        }
        // What cannot be opened is another file system that was mounted there, for example.
        Ok(self.beneath.directory(path).is_ok()
            && is_like(self.source, step.inode, attributes, &held)?)
    }

    /// Only attributes of what is at `path` are to be set, if nobody else has changed it.
    pub(super) fn touch(
        &mut self,
        path: PathBuf,
        inode: Inode,
        expected: &HostIdentity,
        attributes: Attributes,
        extended: Option<Extended>,
    ) {
        let (seen, mut attributes, mut extended) = (attributes, attributes, extended);
        match self.beneath.glance(&path) {
            Ok(Some(Glance { identity: before, rights, .. }))
                if self.may_touch(&path, &before, expected, &attributes)
                    && self.merge(&path, expected, &mut attributes)
                    || self.merge_touched(&path, expected, &before, &mut attributes) =>
            {
                self.merge_extended(&path, &attributes, &mut extended);
                if self.run.live {
                    self.looks.insert(inode, seen);
                }
                let touch = Touch { path, inode, before, rights, attributes, extended };
                self.plan.touches.push(touch);
            }
            Ok(_) => {
                let what = "changed on the host meanwhile";
                let found = self.beneath.found(&path).ok().flatten();
                let how =
                    found.map(|found| host::given_in_words(&path, &attributes, expected, &found));
                let outcome = format!("kept as it is there{}", how.unwrap_or_default());
                self.conflict(&path, Wanted::Attributes, what, &outcome);
            }
            Err(problem) => self.fail(&path, &problem.to_string()),
        }
    }

    /// Whether what is there is what is expected, or one that was killed set its attributes.
    fn may_touch(
        &self,
        path: &Path,
        found: &HostIdentity,
        expected: &HostIdentity,
        wanted: &Attributes,
    ) -> bool {
        let half = HostIdentity { modified_ns: wanted.modified_ns, ..*expected };
        self.same(path, expected, found) || self.ledger.same(&half, found)
    }
}

/// Whether a directory of the host has the mode, the owner and the extended attributes of one that
/// the image has made.
pub fn is_like<S: Source>(
    source: &mut S,
    inode: Inode,
    attributes: &Attributes,
    held: &Held,
) -> Result<bool, Errno> {
    let (step, found) = (&attributes.step, held.found());
    if host::rights_of(found) != (step.mode & 0o7777, step.uid, step.gid) {
        return Ok(false);
    }
    let ours = extended::of(source, inode, attributes)?;
    let theirs = extended::even_unreadable(held).ok();
    let all = |of: Option<Extended>| of.map(|all| extended::hash_of_all(&all));
    Ok(all(ours) == all(theirs))
}

/// A FIFO, a socket or a device.
pub(super) fn is_special(found: &std::fs::Metadata) -> bool {
    !found.is_file() && !found.is_dir() && !found.is_symlink()
}
