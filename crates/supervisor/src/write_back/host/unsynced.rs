//! What a write-back has done and is to make durable: files, attributes, and names in directories.
//!
//! ```text
//!   up to 16 files and 16 directories   fsync of each
//!   more                                syncfs of their file system, once
//! ```
//!
//! A name is durable only with its directory: no order in which a file system writes is relied on.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::beneath;
use super::beneath::Beneath;
use super::beneath::held::Held;
use crate::write_back::Outcome;

/// Files, and directories, that are synced one by one; from here on the whole file system is, once.
const SYNCED_SINGLY_MAX: usize = 16;

/// Objects that are to be made durable.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// One by one.
    files: Vec<File>,
    /// Directories whose names have changed.
    directories: BTreeSet<PathBuf>,
    /// One file of each host file system that is synced as a whole, by `st_dev`.
    devices: HashMap<u64, File>,
}

impl Unsynced {
    /// Keeps a file that was made, or opened for writing.
    pub fn keep(&mut self, held: &Held) -> io::Result<()> {
        self.keep_as(held.found().dev(), || held.to_sync())
    }

    /// Keeps what is held by its path alone: a file, or a directory. What cannot be opened has
    /// only the syncs of others.
    pub fn keep_attributes(&mut self, held: &Held) {
        if held.found().is_file() {
            let _ = self.keep_as(held.found().dev(), || held.read());
        }
    }

    /// Keeps a directory in which names have changed.
    pub fn keep_names(&mut self, beneath: &Beneath, directory: &Path) {
        if self.directories.len() < SYNCED_SINGLY_MAX {
            self.directories.insert(directory.to_owned());
        } else if !self.directories.contains(directory)
            && let Ok(Some(found)) = beneath.identity(directory)
            && !self.devices.contains_key(&found.device)
        {
            match beneath.open_to_sync(directory) {
                Ok(opened) => drop(self.devices.insert(found.device, opened)),
                Err(_) => drop(self.directories.insert(directory.to_owned())),
            }
        }
    }

    /// Keeps a file of a file system; `open` is asked only if the file itself is needed.
    pub fn keep_as(
        &mut self,
        device: u64,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<()> {
        if self.devices.contains_key(&device) {
            return Ok(());
        }
        let file = open()?;
        if self.files.len() < SYNCED_SINGLY_MAX {
            self.files.push(file);
        } else {
            self.devices.insert(device, file);
        }
        Ok(())
    }

    /// Whether files are synced one by one, beside so many others that are to be kept.
    pub fn is_singly(&self, others: usize) -> bool {
        self.devices.is_empty() && self.files.len() + others <= SYNCED_SINGLY_MAX
    }

    /// Makes all durable.
    pub fn sync(&mut self, beneath: &Beneath, outcome: &mut Outcome) {
        let devices = std::mem::take(&mut self.devices);
        for device in devices.values() {
            outcome.note(Path::new("file system"), beneath::sync_file_system(device));
        }
        let synced = |device: u64| devices.contains_key(&device);
        for file in self.files.drain(..) {
            if !file.metadata().is_ok_and(|found| synced(found.dev())) {
                outcome.note(Path::new("file"), beneath::sync(&file));
            }
        }
        for directory in std::mem::take(&mut self.directories) {
            let found = beneath.identity(&directory);
            if found.is_ok_and(|found| found.is_some_and(|found| synced(found.device))) {
                continue;
            }
            let synced = match beneath.sync_directory(&directory) {
                // Removed since: it has nothing to sync.
                Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            };
            outcome.note(&directory, synced);
        }
    }
}
