//! Mode and owner that somebody gives a file while the one that takes its place is made.
//!
//! ```text
//!   scan ─► rights of what is replaced ─► make ─► exchange ─► the old one has others by now?
//!     ─► the new one gets them, and so does the image
//! ```
//!
//! A right that is taken away in this time must not be there again.

use std::os::unix::fs::MetadataExt;

use husk_proto::fs::{HostIdentity, Rights};

use super::{Commit, Made};
use crate::write_back::Source;
use crate::write_back::host::beneath::object_of;
use crate::write_back::plan::Put;
use crate::write_back::record::manifest::Facts;

/// Set-user-ID and set-group-ID: they are no rights of the new one's owner.
const SET_IDS: u32 = 0o6000;

fn rights(found: &std::fs::Metadata) -> Rights {
    (found.mode() & 0o7777, found.uid(), found.gid())
}

impl<S: Source> Commit<'_, S> {
    /// What was made has its name, and the old one another: it gets the rights that the old one got
    /// meanwhile, unless the image has changed the same.
    pub(super) fn keep_rights(&mut self, put: &Put, made: &Made, expected: &HostIdentity) {
        let target = put.target();
        let which = (expected.device, expected.inode);
        // What has another name now has got the rights that it has in the image (`touches`).
        let before = self.rights.get(&which).filter(|_| !self.kept.linked.contains_key(&which));
        let before = before.copied();
        let old = self.olds.last().filter(|old| old.target == target);
        // Whoever may write to the directory may have put something else there.
        let old = old.and_then(|old| self.beneath.found(&old.temporary).ok().flatten());
        let old = old.filter(|old| object_of(old) == which && old.mode() & SET_IDS == 0);
        let Some((before, now)) = before.zip(old.map(|old| rights(&old))) else { return };
        let held = self.beneath.hold(&target).ok();
        let Some(held) = held.filter(|one| before != now && object_of(one.found()) == made.which)
        else {
            return;
        };
        let one = |ours: u32, before: u32, now: u32| if ours == before { now } else { ours };
        let mut facts = Facts::of(held.found());
        facts.mode = facts.mode & !0o7777 | one(facts.mode & 0o7777, before.0, now.0);
        (facts.uid, facts.gid) = (one(facts.uid, before.1, now.1), one(facts.gid, before.2, now.2));
        let set = held.set_facts(&facts);
        self.outcome.note(&target, set);
        if self.live {
            // What a program has changed since is its own.
            let _ = self.source.take_rights(put.object.inode, before, now);
        }
    }
}
