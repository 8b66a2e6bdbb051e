//! Small new files, whose host calls several threads share (`hands`).
//!
//! ```text
//!   image ─► bytes in memory ─► create, write, mode, times ─► told, noted, synced
//!            (this thread)      (any thread)                  (this thread)
//! ```
//!
//! A file is made so if it has one name, no extended attributes, and nobody writes to it any more.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use husk_proto::fs::{HostIdentity, Rights};

use super::make::{Made, Maker, Noted};
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Object as Which, Place, set_len, write_all_at};
use crate::write_back::host::content::Pieces;
use crate::write_back::host::{content, hands};
use crate::write_back::plan::{Content, Object};
use crate::write_back::record::ledger;
use crate::write_back::{Source, host};

/// Longest file that is made so.
pub const SMALL_BYTES: u64 = 64 << 10;
/// Errands, their bytes, and open directories that wait at most.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: u64 = 16 << 20;
const DIRECTORIES_MAX: usize = 128;

/// A file that is to be made.
#[derive(Debug)]
pub(in crate::write_back) struct Small<'p> {
    object: &'p Object,
    /// Where it is made, and the name the user knows it by.
    path: PathBuf,
    shown: PathBuf,
    place: Place,
    pieces: Pieces,
    /// It is all of this put.
    put: Option<usize>,
    /// Its descriptor is needed to sync it.
    keep: bool,
}

/// A file that was made.
struct Done {
    identity: HostIdentity,
    rights: Rights,
    descriptor: Option<File>,
}

impl Small<'_> {
    fn make(&self) -> io::Result<Done> {
        let (attributes, pieces) = &self.pieces;
        let held = Held::of_file(self.place.create()?)?;
        let mut written = 0;
        for (offset, bytes) in pieces {
            write_all_at(held.file()?, bytes, *offset)?;
            written = offset + bytes.len() as u64;
        }
        if written != attributes.size {
            set_len(held.file()?, attributes.size)?;
        }
        held.set_attributes(attributes)?;
        let now = held.now()?;
        let (identity, rights) = (host::identity_of(&now), host::rights_of(&now));
        let descriptor = self.keep.then(|| held.to_sync()).transpose()?;
        Ok(Done { identity, rights, descriptor })
    }
}

/// How much waits to be shared.
#[derive(Debug, Default)]
pub(in crate::write_back) struct Waiting {
    count: usize,
    bytes: u64,
    directories: usize,
    last: Option<Place>,
}

impl Waiting {
    /// One more, with so many bytes.
    pub(in crate::write_back) fn add(&mut self, place: &Place, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        if !self.last.as_ref().is_some_and(|last| last.is_beside(place)) {
            self.directories += 1;
            self.last = Some(place.clone());
        }
    }

    /// It is to be shared now.
    pub(in crate::write_back) fn is_full(&self) -> bool {
        self.count >= WAITING_MAX
            || self.bytes >= WAITING_BYTES_MAX
            || self.directories >= DIRECTORIES_MAX
    }
}

impl<'a, S: Source> Maker<'a, S> {
    /// What is to be made of a small file; `None`: it is made at once.
    pub(in crate::write_back) fn small(
        &mut self,
        object: &'a Object,
        path: &Path,
        shown: &Path,
        put: Option<usize>,
    ) -> Option<Small<'a>> {
        let attributes = &object.attributes;
        let plain = match &object.extended {
            Some(extended) => extended.is_empty(),
            None => attributes.origin.is_none(),
        };
        let small = attributes.size <= SMALL_BYTES && attributes.links == 1;
        let image = matches!(object.content, Content::Image);
        // What a directory hands down is taken away where a file is made at once.
        if self.is_live() || !image || !plain || !small || self.beneath.hands_down() {
            return None;
        }
        // What fails fails once more, and is told, where it is made at once.
        let place = self.beneath.at(path).ok()?;
        let mut pieces = content::pieces(self.source, object.inode).ok()?;
        // With mode and owner of the host, where the host alone has changed them.
        pieces.0.step = attributes.step;
        let keep = self.unsynced.is_singly(self.smalls.len());
        let (path, shown) = (path.to_owned(), shown.to_owned());
        self.waiting.add(&place, pieces.0.size);
        Some(Small { object, path, shown, place, pieces, put, keep })
    }

    /// Makes all that wait.
    pub(in crate::write_back) fn make_smalls(&mut self) {
        let smalls = std::mem::take(&mut self.smalls);
        let done = hands::share(&smalls, Small::make);
        for (small, done) in smalls.into_iter().zip(done) {
            let made = done.and_then(|done| self.note_small(&small, done));
            let Small { object, path, shown, put, .. } = small;
            let which = self.concluded(object, &path, &shown, made);
            if let (Some(put), Some(which)) = (put, which) {
                self.all[put] = Some(Made { temporary: path, which, complete: true, tail: None });
            }
        }
    }

    fn note_small(&mut self, small: &Small<'_>, done: Done) -> io::Result<Which> {
        let Done { identity, rights: shown, descriptor } = done;
        let (beneath, attributes) = (self.beneath, &small.pieces.0);
        self.progress.wrote(attributes.size);
        self.unsynced.keep_as(identity.device, || match descriptor {
            Some(descriptor) => Ok(descriptor),
            None => beneath.read(&small.path),
        })?;
        if self.ledger.notes() {
            let facts = ledger::facts(attributes, small.object.extended.as_ref());
            let (path, inode) = (small.shown.clone(), small.object.inode);
            let (content, tree, rights) = (None, false, ledger::rights(attributes));
            self.noted.push(Noted { path, inode, identity, content, facts, rights, shown, tree });
        }
        Ok(identity.object())
    }
}
