//! What a write-back has put, or was about to put, on the host: if it is killed, the next one goes
//! on where it was, instead of taking its own work for somebody else's.
//!
//! Nobody changes an image that ends, so that what was put in place once is what is to be there.
//!
//! Invariants
//! 1. All that is to get a name is noted before anything gets one. Of what is noted, that which
//!    is not there as noted was not put there.
//! 2. The file of a ledger is replaced as a whole.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use husk_proto::fs::HostIdentity;
use serde::{Deserialize, Serialize};

use super::host;
use super::make::Made;
use super::plan::Plan;
use crate::clock;

/// What is known of one path.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    /// A new object, before it had this name: device, inode, size and time of modification.
    Put(u64, u64, u64, i64),
    /// A new directory: device and inode.
    Tree(u64, u64),
    /// Attributes are to change.
    Touch,
    /// It goes; when that was decided, ns.
    Gone(i64),
}

/// The notes of a write-back, and of those before it that were killed.
#[derive(Debug, Default)]
pub struct Ledger {
    file: Option<PathBuf>,
    notes: HashMap<PathBuf, Note>,
}

impl Ledger {
    /// The ledger kept in `file`, which is read if it is there.
    pub fn at(file: PathBuf) -> Ledger {
        let text = fs::read(&file).unwrap_or_default();
        // What cannot be read is nothing: both versions are kept then.
        let notes: Vec<(Vec<u8>, Note)> = serde_json::from_slice(&text).unwrap_or_default();
        let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
        let notes = notes.into_iter().map(|(bytes, note)| (path(bytes), note)).collect();
        Ledger { file: Some(file), notes }
    }

    /// Removes what the others have left under temporary names, and makes names durable that they
    /// may not have.
    pub fn settle(&self) {
        let of = |(path, note): (&PathBuf, &Note)| match note {
            Note::Touch => None,
            _ => path.parent().map(Path::to_owned),
        };
        let directories: BTreeSet<_> = self.notes.iter().filter_map(of).collect();
        for directory in directories {
            host::remove_leftovers(&directory);
            // One that has gone has nothing to sync; nor does one that cannot be opened.
            let _ = host::sync_directory(&directory);
        }
    }

    /// Whether the object `found` at `path` was put there by one of the others.
    pub fn has_put(&self, path: &Path, found: &HostIdentity) -> bool {
        match self.notes.get(path) {
            Some(Note::Tree(device, inode)) => (*device, *inode) == (found.device, found.inode),
            Some(put) => *put == put_of(found),
            None => false,
        }
    }

    /// When one of the others decided to remove the object at `path`, if it did.
    pub fn to_go_since(&self, path: &Path) -> Option<i64> {
        match self.notes.get(path) {
            Some(Note::Gone(noted_ns)) => Some(*noted_ns),
            _ => None,
        }
    }

    /// Whether one of the others may have changed the attributes of `path`, and nothing else.
    pub fn has_touched(&self, path: &Path) -> bool {
        self.notes.get(path) == Some(&Note::Touch)
    }

    /// Notes all that `plan` is about to do, with what was `made` for its puts.
    pub fn note(&mut self, plan: &Plan, made: &[Option<Made>]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let noted_ns = clock::exact_ns();
        for (put, made) in plan.puts.iter().zip(made) {
            let Some(made) = made else { continue };
            let Some(identity) = host::identity(&made.temporary)? else { continue };
            let note = match put.object.is_tree() {
                true => Note::Tree(identity.device, identity.inode),
                false => put_of(&identity),
            };
            self.notes.insert(put.target(), note);
        }
        for delete in &plan.deletes {
            self.notes.entry(delete.path.clone()).or_insert(Note::Gone(noted_ns));
        }
        for touch in &plan.touches {
            self.notes.insert(touch.path.clone(), Note::Touch);
        }
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let notes: Vec<_> = self.notes.iter().map(|(path, note)| (bytes(path), note)).collect();
        host::replace(file, &serde_json::to_vec(&notes)?)
    }
}

fn put_of(identity: &HostIdentity) -> Note {
    Note::Put(identity.device, identity.inode, identity.size, identity.modified_ns)
}
