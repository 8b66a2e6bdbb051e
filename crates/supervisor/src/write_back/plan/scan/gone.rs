//! Removals.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::Errno;
use husk_proto::fs::{HostIdentity, Rights};

use super::seen::{Seen, There};
use super::{Scan, Whiteout};
use crate::output::typed::typed;
use crate::write_back::host::below::Below;
use crate::write_back::host::beneath::{Beneath, Glance};
use crate::write_back::plan::derived;
use crate::write_back::plan::{Delete, Wanted};
use crate::write_back::record::ledger::{Entry, Ledger};
use crate::write_back::{Source, host, reason};

impl<S: Source> Scan<'_, S> {
    pub(super) fn deleted(&mut self, dir: &Path, whiteout: &Whiteout) -> Result<(), Errno> {
        let identity = self.source.host_identity(whiteout.origin)?;
        let before = self.source.origin_rights(whiteout.origin)?;
        self.removed(&dir.join(&whiteout.name), identity, Some(before));
        Ok(())
    }

    /// The image has no `path` any more, where the host had `identity` with these rights.
    pub(super) fn removed(&mut self, path: &Path, identity: HostIdentity, before: Option<Rights>) {
        let glance = match self.beneath.glance(path) {
            Ok(None) => return,
            Ok(Some(found)) => found,
            Err(problem) => return self.fail(path, &reason(&problem)),
        };
        let changed = glance.identity.changed_ns != identity.changed_ns;
        let taken = |scan: &Self| changed.then(|| scan.taken_over(path, before)).flatten();
        let tampered = self.tampered(path, identity, glance);
        let is_changed = tampered.is_some();
        let Some(trouble) = tampered.or_else(|| taken(self)) else {
            return self.plan.deletes.push(Delete { path: path.to_owned(), identity });
        };
        if derived::is_shared_memory(self.beneath, path) {
            return;
        }
        let why = "that is kept, the image removed or moved it";
        let outcome = format!("{why}; remove it, too: rm -r {}", typed(path));
        self.conflict(path, Wanted::Removal, &trouble, &outcome);
        let found = glance.identity;
        let same = found.object() == identity.object();
        let below = is_changed && same && self.beneath.is_directory(path);
        if below && let Err(problem) = self.older_below(path) {
            self.fail(path, &reason(&problem));
        }
    }

    /// Of a directory that the image removed or moved, and that the host put something into: what
    /// was there before goes, what is newer stays, with the directories that lead to it.
    fn older_below(&mut self, path: &Path) -> io::Result<()> {
        let mut open = vec![(path.to_owned(), true)];
        while let Some((directory, judged)) = open.pop() {
            let (listed, known) = self.what_is_known(&directory)?;
            let judged = judged && listed;
            for name in self.beneath.names(&directory)? {
                let path = directory.join(&name);
                // Gone meanwhile.
                let Some(found) = There::at(self.beneath, &path)? else { continue };
                let Glance { identity, directory, .. } = found.glance;
                let noted_ns = self.ledger.to_go_since(&path);
                let since_ns = noted_ns.unwrap_or(self.run.started_ns);
                let ours = known && self.is_ours(&found);
                let stays = !ours && judged && !self.was_there(&path, &found, known);
                let older = ours
                    || identity.changed_ns <= since_ns
                    || self.has_latest(&path, &found, known);
                if stays && directory && !self.was_put(&path, &found) {
                    // Moved here: whatever is in it, nobody has removed.
                    continue;
                }
                if directory && self.newer_in(&path, since_ns, judged)?.is_some() {
                    open.push((path, judged));
                } else if !stays && (directory || older) {
                    self.plan.deletes.push(Delete { path, identity });
                }
            }
        }
        Ok(())
    }

    /// Something below `path` that somebody changed or put there after `started_ns`, if there is
    /// such: what the image has never seen counts, whatever its times say.
    pub(super) fn newer_below(
        &mut self,
        path: &Path,
        started_ns: i64,
    ) -> io::Result<Option<PathBuf>> {
        self.newer_in(path, started_ns, true)
    }

    /// The same; `judged`: whether the image knows all that was there.
    fn newer_in(
        &mut self,
        top: &Path,
        started_ns: i64,
        judged: bool,
    ) -> io::Result<Option<PathBuf>> {
        let device = self.beneath.directory(top)?.metadata()?.dev();
        let mut below = Below::default();
        let mut open = vec![(top.to_owned(), judged)];
        while let Some((directory, judged)) = open.pop() {
            let (listed, known) = self.what_is_known(&directory)?;
            let judged = judged && listed;
            for name in self.beneath.names(&directory)? {
                let path = directory.join(&name);
                let Some(found) = There::at(self.beneath, &path)? else { continue };
                let Glance { identity, directory, .. } = found.glance;
                // Bytes that pass through a FIFO change its times.
                let timely = !found.is_special() && identity.changed_ns > started_ns;
                let newer = |scan: &mut Self| {
                    timely && !scan.has_latest(&path, &found, known)
                        || judged && !scan.was_there(&path, &found, known)
                };
                if !(known && self.is_ours(&found)) && newer(self) {
                    return Ok(Some(path));
                }
                below.add(top, &path, &found.glance);
                if directory && identity.device == device {
                    open.push((path, judged));
                }
            }
        }
        self.plan.below.insert(top.to_owned(), below);
        Ok(None)
    }

    /// Whether a write-back has changed an object last; what is no file, whether it has ever.
    fn is_ours(&self, found: &There) -> bool {
        let known = || found.is_special() && self.ledger.knows(found.object());
        self.ledger.is_ours(&found.glance.identity) || known()
    }

    /// Whether a write-back has put what was `found` at `path` there.
    fn was_put(&self, path: &Path, found: &There) -> bool {
        let here = self.ledger.here(path).map(|here| here.identity);
        here.is_some_and(|here| here.object() == found.object())
    }

    /// Whether the image has read all names of a directory; and whether it has seen the directory,
    /// or has made it. In another one the host has made all names, those of files that the image
    /// knows by others, too.
    fn what_is_known(&mut self, directory: &Path) -> io::Result<(bool, bool)> {
        let found = There::of(&self.beneath.directory(directory)?.metadata()?);
        let source = &mut *self.source;
        let listed = !self.seen.get_or_insert_with(|| Seen::by(source)).is_unlisted(&found);
        let known = self.was_put(directory, &found)
            || self.is_ours(&found)
            || self.was_there(directory, &found, false);
        Ok((listed, known))
    }

    /// Whether a refresh, or who opened it, has seen what was `found` in a directory that is
    /// `known` as it is.
    fn has_latest(&mut self, path: &Path, found: &There, known: bool) -> bool {
        self.saw(path, found, known, true)
    }

    /// Whether the image has seen what was `found` in a directory that is `known`. Temporary names
    /// it shows to nobody.
    fn was_there(&mut self, path: &Path, found: &There, known: bool) -> bool {
        path.file_name().is_some_and(host::is_own) || self.saw(path, found, known, false)
    }

    fn saw(&mut self, path: &Path, found: &There, known: bool, latest: bool) -> bool {
        let Scan { source, seen, ledger, beneath, .. } = self;
        let seen = seen.get_or_insert_with(|| Seen::by(*source));
        let kept = |at: &Path| known && is_kept(ledger, beneath, at, found);
        seen.has(*source, (path, found), latest, kept)
    }
}

/// Whether the file that was `found` under another name is at `path` still, or was taken from there
/// by a write-back.
fn is_kept(ledger: &Ledger, beneath: &Beneath, path: &Path, found: &There) -> bool {
    let is_there =
        || beneath.identity(path).ok().flatten().is_some_and(|one| one.object() == found.object());
    let has_gone = |path: &Path| matches!(ledger.entry(path), Some(Entry::Gone));
    path.ancestors().any(has_gone) || is_there()
}
