//! Takes in mode, owner and group that the host alone has changed, of objects that the image has
//! changed otherwise.
//!
//! ```text
//!   what the host had      as a write-back left it (ledger), or as the image saw it (its record)
//!   changed there only     the image's from now on
//!   changed by both        a conflict, told; the image keeps its own, and so does the host
//! ```

use std::path::Path;

use husk_proto::fs::{Attributes, Rights, Step};
use husk_proto::{Admin as _, Errno, Inode};

use super::{Look, There, step};
use crate::write_back::host;
use crate::write_back::host::extended;
use crate::write_back::record::ledger;
use crate::write_back::record::ledger::Here;

/// What is told where both sides have changed them.
const BOTH: &str = "mode or owner changed on the host and in the image";

impl Look<'_> {
    /// Takes them in for an inode that a write-back has put at `path`, where the host still has the
    /// same object, or another directory, whose names the image has then. Whether there was such an
    /// entry.
    pub(super) fn take_written_rights(
        &mut self,
        path: &Path,
        inode: Inode,
        shown: &Attributes,
        one: &There,
    ) -> Result<bool, Errno> {
        let (found, theirs) = (host::identity_of(&one.found), host::rights_of(&one.found));
        let here = self.ledger.here_of(path, inode).copied();
        let same = |here: &Here| here.identity.object() == found.object() || one.found.is_dir();
        let here = here.filter(same);
        let Some((here, before)) = here.and_then(|here| Some((here, here.rights?))) else {
            return Ok(false);
        };
        if before != theirs {
            step("take rights")?;
            if !self.image.take_rights(inode, before, theirs)? {
                self.conflict(path, BOTH);
                return Ok(true);
            }
            self.told.renewed += u64::from(!one.found.is_dir());
        }
        let extended = extended::of(self.image, inode, shown)?;
        let unchanged = ledger::facts(shown, extended.as_ref()) == here.facts;
        let facts = |shown: &Attributes| ledger::facts(shown, extended.as_ref());
        let facts = unchanged.then(|| facts(&with_rights(shown, before, theirs)));
        self.ledger.status_changed(path, &found, theirs, facts);
        Ok(true)
    }

    /// The same for what the image has from the host, and no write-back has put there.
    pub(super) fn take_seen_rights(
        &mut self,
        path: &Path,
        inode: Inode,
        shown: &Attributes,
        one: &There,
    ) -> Result<(), Errno> {
        let Some(origin) = shown.origin else { return Ok(()) };
        let (before, theirs) = (self.image.origin_rights(origin)?, host::rights_of(&one.found));
        if before != theirs {
            step("take rights")?;
            match self.image.take_rights(inode, before, theirs)? {
                true => self.told.renewed += 1,
                false => self.conflict(path, BOTH),
            }
        }
        Ok(())
    }

    /// Tells where the image has kept rights that differ from those that the host has changed.
    pub(super) fn tell_rights(
        &mut self,
        path: &Path,
        shown: &Attributes,
        one: &There,
    ) -> Result<(), Errno> {
        let Some(origin) = shown.origin else { return Ok(()) };
        if self.image.origin_rights(origin)? != host::rights_of(&one.found) {
            self.conflict(path, BOTH);
        }
        Ok(())
    }
}

/// What is shown once the host's have been taken in.
fn with_rights(shown: &Attributes, before: Rights, theirs: Rights) -> Attributes {
    let (mode, uid, gid) = host::merged_rights(ledger::rights(shown), before, theirs);
    let (mut after, step) = (*shown, &shown.step);
    after.step = Step { mode: step.mode & !0o7777 | mode, uid, gid, ..*step };
    after
}
