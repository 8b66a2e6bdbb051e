//! Whether there is anything of a write-back where it wrote: the disk may not be mounted, or the
//! directory may have another name for now. Whoever went on then would find nothing of what was
//! made, and give up for good what is there again later.

use std::io;
use std::path::{Path, PathBuf};

use super::Recovery;
use crate::write_back::host::beneath::object_of;
use crate::write_back::record::manifest::{Pending, Step};

/// A directory that it wrote to, and where nothing of it is to be found.
pub fn away(pending: &Pending) -> Option<PathBuf> {
    let recovery = Recovery::new(pending);
    pending.roots().into_iter().find(|root| recovery.is_away(root))
}

impl Recovery<'_> {
    /// Whether nothing of a step is to be found, and the directory in which it was to be is another
    /// one, or a link. One that has gone is none.
    pub(super) fn is_swapped(&self, step: &Step) -> bool {
        let path = step.path();
        let Some(directory) = path.parent() else { return false };
        let Some(which) = self.worked_in.get(directory) else { return false };
        let other = match self.beneath.directory(directory).and_then(|one| one.metadata()) {
            Ok(found) => object_of(&found) != *which,
            Err(problem) => problem.kind() != io::ErrorKind::NotFound,
        };
        // What cannot be looked at is not found.
        other && self.finds(step).unwrap_or(Some(false)) == Some(false)
    }

    fn is_away(&self, root: &Path) -> bool {
        let below = self.pending.steps.iter().filter(|step| step.path().starts_with(root));
        let mut looked_for = false;
        for step in below {
            // What cannot be looked at is not found.
            match self.finds(step).unwrap_or(Some(false)) {
                Some(true) => return false,
                found => looked_for |= found.is_some(),
            }
        }
        looked_for
    }

    /// Whether something that the step has made, moved or changed is there; `None`: it may have
    /// gone by this write-back itself.
    fn finds(&self, step: &Step) -> io::Result<Option<bool>> {
        Ok(match step {
            Step::Put { temporary, target, made, replaces, .. } => {
                let places = [temporary.path(), target.path()];
                let all = std::iter::once(*made).chain(replaces.map(|old| old.which));
                let mut found = false;
                for (place, which) in all.flat_map(|one| places.each_ref().map(|at| (at, one))) {
                    found |= self.is_at(place, which)?;
                }
                (found || !self.pending.going || replaces.is_some()).then_some(found)
            }
            Step::Delete { path, temporary, what } => {
                let found = self.is_at(&path.path(), what.which)?
                    || self.is_at(&temporary.path(), what.which)?;
                (found || !self.pending.past).then_some(found)
            }
            Step::Append { path, what, .. } => Some(self.is_at(&path.path(), what.which)?),
            Step::Touch { path, what, early: false, .. } => Some(self.is_at(&path.path(), *what)?),
            // It may have lost this name.
            Step::Touch { early: true, .. } => None,
        })
    }
}
