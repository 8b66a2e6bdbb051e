//! Appends in place to a host file that the image has only appended to.
//!
//! ```text
//!   make: the host's file is what was imported, and the image's begins with it? ─► its tail
//!   manifest: the tails are on the disk ─► commit: each is appended
//! ```
//!
//! Nothing is copied, and the file keeps its number. The file is opened to append: who writes to it
//! at that very moment loses nothing. What changed before is seen, and the image's version goes
//! beside it, as always.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use husk_proto::fs::{Backing, HostIdentity};

use super::beneath::held::Held;
use super::beneath::{Object, set_len};
use super::commit::Commit;
use super::make::{Made, Maker, Noted};
use super::manifest::Facts;
use super::plan::{Content, Put};
use super::{Source, content, host, ledger};

/// Longest tail; a longer one is no more work to copy with its file.
const TAIL_BYTES_MAX: u64 = 64 << 10;
/// All tails of a write-back: they are in memory and in its manifest.
const TAILS_BYTES_MAX: u64 = 64 << 20;
/// Bits of a mode that a write takes away.
const SET_ID: u32 = 0o6000;

/// What is to be appended.
#[derive(Debug)]
pub struct Tail {
    /// To which file.
    pub which: Object,
    /// Its attributes before.
    pub before: Facts,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// `content::hash_of_start` of what the file has had before.
    pub begin: u64,
}

impl<S: Source> Maker<'_, S> {
    /// What is to be appended to which file of the host; `None`: it is to be made anew.
    pub(super) fn tail(&mut self, put: &Put) -> Option<Tail> {
        let (object, old) = (&put.object, put.replaces?);
        let attributes = &object.attributes;
        let grown = attributes.size.checked_sub(old.size).filter(|&grown| grown > 0)?;
        let whole = put.aside || attributes.links != 1 || attributes.extended != Backing::Host;
        if whole || grown > TAIL_BYTES_MAX || self.tails_bytes + grown > TAILS_BYTES_MAX {
            return None;
        }
        if !matches!(object.content, Content::Image) {
            return None;
        }
        let origin = self.source.host_identity(attributes.origin?).ok()?;
        let which = (old.device, old.inode);
        let target = put.target();
        let held = self.beneath.open_to_append(&target).ok()?;
        let found = held.found();
        let (step, mode) = (&attributes.step, found.mode() & 0o7777);
        let same = (origin.device, origin.inode) == which
            && is_unchanged(&held, &old)
            && found.nlink() == 1
            && (mode, found.uid(), found.gid()) == (step.mode & 0o7777, step.uid, step.gid)
            && mode & SET_ID == 0;
        let file = held.file().ok()?;
        if !same {
            return None;
        }
        let begin = content::begins_with(self.source, object.inode, file, old.size).ok()??;
        let bytes = content::piece(self.source, object.inode, old.size, grown as usize).ok()?;
        let before = Facts::of(found);
        self.tails_bytes += grown;
        if self.ledger.notes() {
            let (size, modified_ns) = (attributes.size, attributes.modified_ns);
            let identity = HostIdentity { size, modified_ns, ..old };
            let facts = ledger::facts(attributes, object.extended.as_ref());
            let (inode, content, tree) = (object.inode, None, false);
            self.noted.push(Noted { path: target, inode, identity, content, facts, tree });
        }
        Some(Tail { which, before, bytes, begin })
    }
}

impl<S: Source> Commit<'_, S> {
    /// Appends a tail to the file it belongs to; where the image's version is then.
    pub(super) fn grow(&mut self, put: &Put, made: &Made, tail: &[u8]) -> io::Result<PathBuf> {
        let target = put.target();
        let Some(old) = put.replaces else { return Err(io::ErrorKind::InvalidInput.into()) };
        let held = match self.beneath.open_to_append(&target) {
            Ok(held) if self.noted && is_unchanged(&held, &old) => held,
            _ => return self.made_after_all(put, made, &old),
        };
        let attributes = &put.object.attributes;
        if let Err(problem) = held.append(tail) {
            // What it had before is all it has then.
            set_len(held.file()?, old.size)?;
            held.set_times(attributes.accessed_ns, old.modified_ns, false)?;
            return Err(problem);
        }
        held.set_times(attributes.accessed_ns, attributes.modified_ns, false)?;
        self.unsynced.keep(&held)?;
        if self.is_at(&target, made)?.size != attributes.size {
            let line = "was written to at the same moment: it has what both have written";
            self.outcome.conflicts.push(format!("{} {line}", target.display()));
        }
        Ok(target)
    }

    /// It does not grow in place: somebody has changed it, or nothing can be noted.
    fn made_after_all(
        &mut self,
        put: &Put,
        made: &Made,
        old: &HostIdentity,
    ) -> io::Result<PathBuf> {
        let file = self.beneath.create(&made.temporary)?;
        content::export(self.source, put.object.inode, &file)?;
        let held = Held::of_file(file)?;
        held.set_attributes(&put.object.attributes)?;
        super::beneath::sync(held.file()?)?;
        let found = held.found();
        let (temporary, which) = (made.temporary.clone(), (found.dev(), found.ino()));
        let late = Made { temporary, which, complete: true, tail: None };
        self.place_over(put, &late, &put.target(), old)
    }
}

/// Whether a file is what was imported.
fn is_unchanged(held: &Held, old: &HostIdentity) -> bool {
    let found = host::identity_of(held.found());
    HostIdentity { changed_ns: old.changed_ns, ..found } == *old
}

/// Whether what a file has from `size` on is the beginning of `tail`, or all of it.
pub fn is_begun(held: &Held, size: u64, tail: &[u8]) -> io::Result<bool> {
    let there = held.now()?.len();
    let Some(more) = there.checked_sub(size).filter(|&more| more <= tail.len() as u64) else {
        return Ok(false);
    };
    let mut bytes = vec![0; more as usize];
    super::beneath::read_exact_at(held.file()?, &mut bytes, size)?;
    Ok(tail.starts_with(&bytes))
}
