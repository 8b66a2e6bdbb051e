//! Files that grow at their ends: what the image has put there, and what others have.

use std::io;
use std::path::Path;

use super::{Recovery, changed};
use crate::run::request::reason;
use crate::write_back::commit::grow;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{sync, write_all_at};
use crate::write_back::host::content;
use crate::write_back::plan::beside;
use crate::write_back::record::manifest::{Facts, Step};

impl Recovery<'_> {
    /// Somebody has changed the file that was to grow.
    pub(super) fn lay_tail_beside(
        &mut self,
        path: &Path,
        tail: &[u8],
        why: &io::Error,
    ) -> io::Result<bool> {
        let aside = beside(path, self.pending.head.number);
        let file = self.beneath.create(&aside)?;
        write_all_at(&file, tail, 0)?;
        sync(&file)?;
        let (why, aside) = (reason(why), aside.display());
        Err(io::Error::other(format!("{why}; what the image has put at its end is {aside}")))
    }

    /// A file that is to grow, if what it has is what it had, or a part of what it is to have.
    /// After a loss of power it may have the time of a write and none of its bytes.
    pub(super) fn opened(&self, step: &Step) -> io::Result<Held> {
        let Step::Append { path, what, size, begin, tail, .. } = step else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (size, tail) = (*size, tail.bytes());
        let held = self.beneath.open_to_append(&path.path())?;
        let found = held.identity();
        let same = found.object() == what.which;
        let seen = found.modified_ns == what.modified_ns;
        let begins = || {
            let now = held.file().and_then(|file| content::hash_of_start(file, size)).ok();
            begin.is_some() && now == *begin
        };
        let whole = found.size != size || seen || self.pending.undoing || begins();
        if same && whole && grow::is_begun(&held, size, tail)? { Ok(held) } else { Err(changed()) }
    }

    /// Whether the end of a file is nowhere but in the manifest.
    pub(super) fn lacks_tail(&self, path: &Path) -> bool {
        let directory = path.parent().unwrap_or(path);
        let aside = || self.beneath.glance(&beside(path, self.pending.head.number));
        self.beneath.directory(directory).is_ok() && !matches!(aside(), Ok(Some(_)))
    }
}

/// Gives a file what was to be at its end, or the rest of that.
pub(super) fn grow_to_end(held: &Held, size: u64, tail: &[u8], after: &Facts) -> io::Result<()> {
    // Somebody may have cut it since it was looked at.
    let there = held.now()?.len().checked_sub(size).and_then(|there| tail.get(there as usize..));
    held.append(there.ok_or_else(changed)?)?;
    held.set_facts(after)?;
    sync(held.file()?)
}
