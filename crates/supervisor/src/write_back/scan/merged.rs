//! Which changes of both sides to one object are compatible.
//!
//! ```text
//!   on the host              in the image             written back
//!   chmod, chown, link       bytes, names, times      the image's, with the host's mode and owner
//!   touch, same size         mode, owner              the host's, with the image's mode and owner
//!   touch, same size         touch                    the host's, with the later time
//!   touch, same size         bytes at the end         the image's, if it begins with the host's
//!   chmod                    another chmod            a conflict
//! ```
//!
//! Whether bytes were changed on the host, size and modification time say.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::fs::{Attributes, HostIdentity};

use super::Scan;
use crate::write_back::{Source, host};

impl<S: Source> Scan<'_, S> {
    /// Whether `found` at `path` is what is expected, as far as others are concerned. Bytes that
    /// pass through a FIFO or a socket change its times, and nothing that the image has of it.
    pub(super) fn same(&self, path: &Path, expected: &HostIdentity, found: &HostIdentity) -> bool {
        let status = HostIdentity { changed_ns: expected.changed_ns, ..*found };
        let which = |one: &HostIdentity| (one.device, one.inode);
        status == *expected
            || self.ledger.same(expected, found)
            || which(expected) == which(found)
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
        let Some(origin) = attributes.origin.filter(|_| !untouched) else { return true };
        // What replaces the host's object has attributes of its own.
        let imported = self.source.host_identity(origin);
        let itself =
            imported.is_ok_and(|one| (one.device, one.inode) == (found.device, found.inode));
        let Ok((mode, uid, gid)) = self.source.origin_rights(origin) else { return true };
        if !itself {
            return true;
        }
        let step = &mut attributes.step;
        let all = [
            (mode, &mut step.mode, there.mode() & 0o7777),
            (uid, &mut step.uid, there.uid()),
            (gid, &mut step.gid, there.gid()),
        ];
        all.into_iter().fold(true, |all, (before, ours, theirs)| {
            let compatible = *ours == before || theirs == before || *ours == theirs;
            if *ours == before {
                *ours = theirs;
            }
            all && compatible
        })
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
}

/// A FIFO, a socket or a device.
pub(super) fn is_special(found: &std::fs::Metadata) -> bool {
    !found.is_file() && !found.is_dir() && !found.is_symlink()
}
