//! Mode and owner that somebody gives a file while the one that takes its place is made.
//!
//! ```text
//!   scan ─► rights of what is replaced ─► make ─► exchange ─► the old one has others by now?
//!     ─► the new one gets them, and so does the image
//! ```
//!
//! A right that is taken away in this time must not be there again.
//!
//! Also what a copy has of a host file that cannot be linked: all but, perhaps, its owner.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::fs::{Attributes, HostIdentity};

use super::make::Maker;
use super::{Commit, Made};
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::object_of;
use crate::write_back::host::extended;
use crate::write_back::plan::{Put, Touch};
use crate::write_back::record::manifest::Facts;
use crate::write_back::{Source, host};

/// What a copy has of its mode until it has all else.
const OWNER_ALONE: u32 = 0o600;
/// What is said of a file that another user had, and that could only be copied.
const TAKEN_OVER: &str = "this user owns it now, as it is a copy: a user may not link or give away \
    files of others (so with all such files)";

impl<S: Source> Maker<'_, S> {
    /// Gives a copy of the host file `held`, which is at `path`, all that the file has.
    pub(super) fn make_like(&mut self, copied: &Held, held: &Held, path: &Path) -> io::Result<()> {
        let facts = Facts::of(held.found());
        // Its mode may deny its owner to set attributes.
        copied.set_facts(&Facts { mode: OWNER_ALONE, ..facts })?;
        let set = extended::even_unreadable(held).and_then(|all| extended::set(copied, &all));
        self.outcome.note(path, set);
        copied.set_facts(&facts)?;
        self.unsynced.keep_attributes(copied);
        self.tell_owner(copied, (facts.uid, facts.gid), path)
    }

    /// Tells once that a file has not the owner that it had.
    pub(super) fn tell_owner(
        &mut self,
        held: &Held,
        (uid, gid): (u32, u32),
        path: &Path,
    ) -> io::Result<()> {
        let now = held.now()?;
        let notes = &mut self.outcome.notes;
        if (now.uid(), now.gid()) != (uid, gid)
            && !notes.iter().any(|line| line.ends_with(TAKEN_OVER))
        {
            notes.push(format!("{}: {TAKEN_OVER}", path.display()));
        }
        Ok(())
    }
}

impl<S: Source> Commit<'_, S> {
    /// What was made has its name, and the old one another: it gets the rights that the old one got
    /// meanwhile, unless the image has changed the same.
    pub(super) fn keep_rights(&mut self, put: &Put, made: &Made, expected: &HostIdentity) {
        let target = put.target();
        let which = expected.object();
        // What has another name now has got the rights that it has in the image (`touches`).
        let before = self.rights.get(&which).filter(|_| !self.kept.linked.contains_key(&which));
        let before = before.copied();
        let old = self.olds.last().filter(|old| old.target == target);
        // Whoever may write to the directory may have put something else there.
        let old = old.and_then(|old| self.beneath.found(&old.temporary).ok().flatten());
        let old = old.filter(|old| object_of(old) == which && old.mode() & host::SET_ID == 0);
        let Some((before, now)) = before.zip(old.map(|old| host::rights_of(&old))) else { return };
        let held = self.beneath.hold(&target).ok();
        let Some(held) = held.filter(|one| before != now && object_of(one.found()) == made.which)
        else {
            return;
        };
        let (mode, uid, gid) = host::merged_rights(host::rights_of(held.found()), before, now);
        let facts = Facts { mode, uid, gid, ..Facts::of(held.found()) };
        let set = held.set_facts(&facts);
        self.outcome.note(&target, set);
        if self.live {
            // What a program has changed since is its own.
            let _ = self.source.take_rights(put.object.inode, before, now);
        }
    }

    /// What is to be set on what was `found`: with the rights that somebody has given it since it
    /// was looked at, where the image has not changed the same.
    pub(super) fn with_rights_since(&mut self, touch: &Touch, found: &Metadata) -> Attributes {
        let (mut attributes, before) = (touch.attributes, touch.rights);
        let mut now = host::rights_of(found);
        now.0 = self.unlocked.mode_without(&touch.path, now.0);
        if now == before || found.is_symlink() {
            return attributes;
        }
        let step = &mut attributes.step;
        let ours = (step.mode & 0o7777, step.uid, step.gid);
        let (mode, uid, gid) = host::merged_rights(ours, before, now);
        (step.mode, step.uid, step.gid) = (step.mode & !0o7777 | mode, uid, gid);
        if self.live {
            // As above.
            let _ = self.source.take_rights(touch.inode, before, now);
        }
        attributes
    }
}
