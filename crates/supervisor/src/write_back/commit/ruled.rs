//! What becomes of files that were changed on the host after the plan, and of those that git holds
//! locked.

use std::io;
use std::path::{Path, PathBuf};

use husk_proto::fs::HostIdentity;
use rustix::fs::RenameFlags;

use super::Commit;
use super::make::Made;
use crate::output::typed::typed;
use crate::write_back::host::beneath::lacks_flag;
use crate::write_back::plan::derived;
use crate::write_back::plan::derived::Verdict;
use crate::write_back::plan::{Content, Put};
use crate::write_back::{Source, host};

/// What happened on the host.
const WHAT: &str = "changed on the host meanwhile";

impl<S: Source> Commit<'_, S> {
    /// The host has changed what the image has changed: both are kept, if there is no rule.
    pub(in crate::write_back) fn place_by_rule(
        &mut self,
        put: &Put,
        made: &Made,
        target: &Path,
        expected: &HostIdentity,
        found: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let (beneath, expected) = (self.beneath, Some(expected));
        let look = derived::Look { beneath, target, expected, found: Some(found), directory: None };
        let image = matches!(put.object.content, Content::Image) && !put.aside;
        let verdict = match image {
            true => derived::verdict(self.source, put.object.inode, &look),
            false => None,
        };
        match verdict {
            Some(Verdict::Image) => self.exchange(put, made, target, found, false),
            Some(Verdict::ImageIsNewer) => self.place_and_keep(made, target, found),
            _ => self.place_beside(made, target, WHAT),
        }
    }

    /// The image's takes the place of the host's, which is kept beside it.
    fn place_and_keep(
        &mut self,
        made: &Made,
        target: &Path,
        found: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let count = self.olds.len();
        let placed = match self.beneath.rename(&made.temporary, target, RenameFlags::EXCHANGE) {
            Ok(()) => self.exchanged(made, target, found),
            Err(problem) if lacks_flag(&problem) => self.exchange_in_two_steps(made, target, found),
            Err(problem) => Err(problem),
        }?;
        // What was replaced is not to go.
        let Some(old) = (self.olds.len() > count).then(|| self.olds.pop()).flatten() else {
            return Ok(placed);
        };
        let aside = match old.temporary == made.temporary {
            true => self.aside(&old.temporary, target),
            false => Some(old.temporary.clone()),
        };
        let Some(aside) = aside else {
            return self.give_back(&old.temporary, made.which, target);
        };
        let kept = host::kept_in_words(self.beneath, &aside, target);
        let newer = "the image's is the newer one and takes its place, the host's is";
        self.outcome.conflicts.push(format!("{} {WHAT}: {newer} {kept}", typed(target)));
        Ok(placed)
    }

    /// Somebody holds git's lock on a file. Where programs go on, it is written the next time.
    pub(in crate::write_back) fn locked_out(
        &mut self,
        put: &Put,
        made: &Made,
        target: &Path,
        why: &io::Error,
    ) {
        if self.live {
            self.remove_made(made);
            return self.outcome.busy.push(format!("{}: {why}", typed(target)));
        }
        let placed = self.place_beside(made, target, &format!("is not replaced: {why}"));
        self.conclude(put, made, placed.map(drop));
    }
}
