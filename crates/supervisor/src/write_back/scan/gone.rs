//! Removals.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::Errno;
use husk_proto::fs::HostIdentity;

use super::{Scan, Whiteout};
use crate::write_back::plan::{Delete, Wanted};
use crate::write_back::{Source, derived, host, reason};

impl<S: Source> Scan<'_, S> {
    pub(super) fn deleted(&mut self, dir: &Path, whiteout: &Whiteout) -> Result<(), Errno> {
        let identity = self.source.host_identity(whiteout.origin)?;
        self.removed(&dir.join(&whiteout.name), identity);
        Ok(())
    }

    /// The image has no `path` any more, where the host had `identity`.
    pub(super) fn removed(&mut self, path: &Path, identity: HostIdentity) {
        let glance = match self.beneath.glance(path) {
            Ok(None) => return,
            Ok(Some(found)) => found,
            Err(problem) => return self.fail(path, &reason(&problem)),
        };
        let Some(trouble) = self.tampered(path, identity, glance) else {
            return self.plan.deletes.push(Delete { path: path.to_owned(), identity });
        };
        if derived::is_shared_memory(self.beneath, path) {
            return;
        }
        let outcome = "that is kept, the image removed or moved it";
        self.conflict(path, Wanted::Removal, &trouble, outcome);
        let found = glance.identity;
        let same = (found.device, found.inode) == (identity.device, identity.inode);
        let below = same && self.beneath.is_directory(path);
        if below && let Err(problem) = self.older_below(path) {
            self.fail(path, &reason(&problem));
        }
    }

    /// Of a directory that the image removed or moved, and that the host put something into: what
    /// was there before goes, what is newer stays, with the directories that lead to it.
    fn older_below(&mut self, path: &Path) -> io::Result<()> {
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.pop() {
            for name in self.beneath.names(&directory)? {
                let path = directory.join(name);
                // Gone meanwhile.
                let Some(found) = self.beneath.found(&path)? else { continue };
                let identity = host::identity_of(&found);
                let noted_ns = self.ledger.to_go_since(&path);
                let since_ns = noted_ns.unwrap_or(self.run.started_ns);
                let older = identity.changed_ns <= since_ns || self.ledger.is_ours(&identity);
                if found.is_dir() && self.newer_below(&path, since_ns)?.is_some() {
                    open.push(path);
                } else if found.is_dir() || older {
                    self.plan.deletes.push(Delete { path, identity });
                }
            }
        }
        Ok(())
    }

    /// Something below `path` that somebody changed after `started_ns`, if there is such.
    pub(super) fn newer_below(&self, path: &Path, started_ns: i64) -> io::Result<Option<PathBuf>> {
        let device = self.beneath.directory(path)?.metadata()?.dev();
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.pop() {
            for name in self.beneath.names(&directory)? {
                let path = directory.join(name);
                let Some(found) = self.beneath.found(&path)? else { continue };
                let identity = host::identity_of(&found);
                if identity.changed_ns > started_ns && !self.ledger.is_ours(&identity) {
                    return Ok(Some(path));
                }
                if found.is_dir() && found.dev() == device {
                    open.push(path);
                }
            }
        }
        Ok(None)
    }
}
