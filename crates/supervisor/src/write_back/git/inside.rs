//! An index of the host as it is to be in an image: the other way around of `restat`.
//!
//! ```text
//!   entry of the index ── says what the host's file is, as a write-back has put it there?
//!                         └─► it says ctime, number, device and owner that the image shows
//! ```
//!
//! Invariant: an entry is changed only where it says of a file exactly what the host has, and that
//! is what a write-back has put there of what the image shows. So git in the image takes for
//! unchanged what git outside does, and nothing else.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use husk_proto::fs::HostIdentity;

use super::index::Remembered;
use super::restat::{Facts, Look, Placed, says, working_tree};
use crate::write_back::host::beneath::Beneath;
use crate::write_back::plan::derived;
use crate::write_back::record::ledger::Ledger;
use crate::write_back::{Overlay, Source, host};

/// The bytes of the index at `path`, which was `seen` so, for the image. `None`: those that it has.
pub fn fitted<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[Overlay],
    (path, seen): (&Path, &HostIdentity),
    ledger: &Ledger,
) -> Option<Vec<u8>> {
    let holding = overlays.iter().filter(|(_, root)| path.starts_with(root));
    let (root, top) = holding.max_by_key(|(_, root)| root.as_os_str().len())?;
    let tree = working_tree(beneath, path.parent()?)?;
    let below = tree.strip_prefix(top).ok()?;
    let (found, index) = derived::index_of(beneath, path, &beneath.read(path).ok()?)?;
    if !host::same_content(seen, &found) {
        return None;
    }
    let placed = Placed::default();
    let mut look = Look::new(source, beneath, *root, &placed, ledger);
    index.renewed(&mut |name, old| {
        let name = host::path_of(name);
        look.shown(&below.join(&name), &tree.join(&name), old)
    })
}

impl<S: Source> Look<'_, S> {
    /// What is to be remembered of the file that is `below` the overlay's root, and `path` on the
    /// host; `None`: what is.
    fn shown(&mut self, below: &Path, path: &Path, old: Remembered) -> Option<Remembered> {
        let directory = self.directory(below.parent()?)?;
        let step = self.source.lookup(directory, below.file_name()?.as_bytes()).ok()?;
        let shown = self.source.attributes(step.inode).ok()?;
        if self.is_the_hosts(&shown) {
            return None;
        }
        let found = self.beneath.found(path).ok()??;
        let identity = host::identity_of(&found);
        let same = (identity.size, identity.modified_ns) == (shown.size, shown.modified_ns);
        let hosts = same && says(&old, &Facts::of_host(&found));
        let is_it = hosts && self.is_placed(path, step.inode, &identity);
        is_it.then(|| Facts::of_image(&shown).remembered(&old))
    }
}
