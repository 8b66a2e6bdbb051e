//! Turns what was noted into entries, by a look at the host.
//!
//! Mode and owner that somebody gives an object in the middle of a write-back, after this has set
//! them, are not ours: the entry says then what was set, and of an earlier status. So the next look
//! finds them, and merges them as those of any later moment.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use husk_proto::fs::{HostIdentity, Rights};

use super::{Entry, Here, Intent, Ledger};
use crate::image::clock;
use crate::write_back::host;
use crate::write_back::host::beneath::{Beneath, Glance, Object as Which};
use crate::write_back::host::extended;

impl Ledger {
    /// Removes what is left under temporary names, makes names durable that may not be, and turns
    /// what was noted into entries (invariant 1).
    pub fn settle(&mut self, beneath: &Beneath) -> io::Result<()> {
        if self.working.is_empty() && self.pending.is_empty() {
            return Ok(());
        }
        for directory in std::mem::take(&mut self.working) {
            host::remove_leftovers(beneath, &directory);
            // One that has gone has nothing to sync; nor does one that cannot be opened.
            let _ = beneath.sync_directory(&directory);
        }
        let pending = std::mem::take(&mut self.pending);
        let inherited = std::mem::take(&mut self.inherited);
        let latest = -clock::exact_ns();
        for intent in &pending {
            if let Intent::Relink(device, inode) = intent {
                self.own.insert((*device, *inode), latest);
            }
        }
        for intent in &pending {
            self.settle_top(beneath, intent);
        }
        let mut looked_at = HashSet::new();
        for intent in &pending {
            self.settle_one(beneath, intent, inherited, &mut looked_at);
        }
        for intent in &pending {
            if let Intent::Put { path, .. } | Intent::Delete { path, .. } = intent {
                self.settle_directory(beneath, &path.path(), &looked_at);
            }
        }
        self.placed.clear();
        self.index();
        self.save()
    }

    /// Whether a path has been seen with what was noted for it, itself or in a tree.
    fn was_placed(&self, path: &Path) -> bool {
        path.ancestors().any(|one| self.placed.contains(one))
    }

    /// What is replaced or removed as a whole. What cannot be looked at is there.
    fn settle_top(&mut self, beneath: &Beneath, intent: &Intent) {
        match intent {
            Intent::Put { again: true, .. } => {}
            Intent::Put { path, here, top: true, replaces, .. } => {
                let path = path.path();
                match beneath.identity(&path) {
                    Ok(Some(found)) if is_object(&found, &here.identity) => self.forget(&path),
                    _ if self.placed.contains(&path) => self.forget(&path),
                    // Killed between two renames, on a file system that cannot exchange.
                    Ok(None) if *replaces => self.gone(path),
                    _ => {}
                }
            }
            Intent::Delete { path, noted_ns } => {
                let path = path.path();
                match beneath.identity(&path) {
                    Ok(None) => self.gone(path),
                    _ => drop(self.to_go.entry(path).or_insert(*noted_ns)),
                }
            }
            _ => {}
        }
    }

    /// `inherited`: nobody knows how far it has come. `looked_at`: of all that was seen here.
    fn settle_one(
        &mut self,
        beneath: &Beneath,
        intent: &Intent,
        inherited: bool,
        looked_at: &mut HashSet<Which>,
    ) {
        match intent {
            Intent::Link { path, here, modified_ns, shown } => {
                let path = path.path();
                let Some((seen, _)) = self.own_if(beneath, &path, here, *shown, looked_at) else {
                    return;
                };
                let (before, found) = (here.identity, seen.identity);
                let ours = found.size == before.size && found.modified_ns == *modified_ns;
                if ours && found.modified_ns != before.modified_ns {
                    let known = self.here(&path).copied().unwrap_or(*here);
                    self.entries.insert(path, Entry::Here(Here { identity: found, ..known }));
                }
            }
            Intent::Put { path, here, shown, .. } => {
                let path = path.path();
                let identity = match self.own_if(beneath, &path, here, *shown, looked_at) {
                    Some((seen, _)) => as_found(&seen.identity, here),
                    None if self.was_placed(&path) => here.identity,
                    None => return,
                };
                self.entries.insert(path, Entry::Here(Here { identity, ..*here }));
            }
            Intent::Touch { path, here, mode, modified_ns, extended, shown } => {
                let path = path.path();
                let Some((seen, ours)) = self.own_if(beneath, &path, here, *shown, looked_at)
                else {
                    return;
                };
                let identity = seen.identity;
                let set = seen.symlink || seen.rights.0 == *mode & 0o7777;
                // Ours was there before the one that is there now.
                let whole = set || !ours && !inherited;
                let size = seen.directory || identity.size == here.identity.size;
                let extended =
                    !inherited || extended.is_none_or(|all| has_all(beneath, &path, all));
                if whole && size && extended && identity.modified_ns == *modified_ns {
                    self.entries.insert(path, Entry::Here(Here { identity, ..*here }));
                }
            }
            Intent::Unmade { path } => {
                let path = path.path();
                let directory = path.parent().and_then(|parent| self.here(parent));
                if directory.is_some_and(|here| here.made) {
                    self.entries.insert(path, Entry::Gone);
                }
            }
            Intent::Delete { .. } | Intent::Relink(..) => {}
        }
    }

    /// The directory of a name that came or went. What was looked at before may have been changed
    /// by somebody since.
    fn settle_directory(&mut self, beneath: &Beneath, path: &Path, looked_at: &HashSet<Which>) {
        let found = path.parent().map(|parent| beneath.identity(parent));
        if let Some(Ok(Some(found))) = found
            && !looked_at.contains(&found.object())
        {
            self.own.insert(found.object(), found.changed_ns);
        }
    }

    /// The object that is noted, if it is at `path`, with the last status that is ours, and whether
    /// its last change is: unless it has other rights than it was to get, and than those `shown`
    /// before.
    fn own_if(
        &mut self,
        beneath: &Beneath,
        path: &Path,
        noted: &Here,
        shown: Option<Rights>,
        looked_at: &mut HashSet<Which>,
    ) -> Option<(Glance, bool)> {
        let found = beneath.glance(path).ok().flatten();
        let mut found = found.filter(|found| is_object(&found.identity, &noted.identity))?;
        let which = found.identity.object();
        let ours = found.symlink || are_ours(found.rights, noted.rights, shown);
        if ours {
            self.own.insert(which, found.identity.changed_ns);
        } else {
            found.identity.changed_ns = noted.identity.changed_ns;
            self.own.entry(which).or_insert(found.identity.changed_ns);
        }
        looked_at.insert(which);
        Some((found, ours))
    }
}

/// Whether each of the rights that something has is the one it was to get, or, where that could not
/// be set, the one it had.
fn are_ours(found: Rights, wanted: Option<Rights>, shown: Option<Rights>) -> bool {
    let (Some(wanted), Some(shown)) = (wanted, shown) else { return true };
    let one = |found: u32, wanted: u32, shown: u32| found == wanted || found == shown;
    one(found.0, wanted.0, shown.0)
        && one(found.1, wanted.1, shown.1)
        && one(found.2, wanted.2, shown.2)
}

/// Whether what is at `path` has these extended attributes. What cannot be read it may not have.
fn has_all(beneath: &Beneath, path: &Path, all: u64) -> bool {
    let held = beneath.hold_if_there(path).ok().flatten();
    let found = held.and_then(|held| extended::even_unreadable(&held).ok());
    found.is_some_and(|found| extended::hash_of_all(&found) == all)
}

fn is_object(found: &HostIdentity, object: &HostIdentity) -> bool {
    found.object() == object.object()
}

/// What was `found`, if it is as it was made; if somebody has changed it since, what was made.
fn as_found(found: &HostIdentity, here: &Here) -> HostIdentity {
    let made = here.identity;
    let same = (found.size, found.modified_ns) == (made.size, made.modified_ns);
    if here.made || same { *found } else { made }
}
