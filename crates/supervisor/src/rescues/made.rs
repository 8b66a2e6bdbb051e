//! What `restore` has done to objects, for one who tries again: which directories it has made,
//! noted before they have their names, and which files have lost their names and got them back.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use husk_proto::fs::HostIdentity;

use crate::image::clock;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Beneath, Object as Which, object_of, sync};

/// The file, in the directory of the rescue.
pub(super) const MADE: &str = "made";
/// Longest such file that is read.
const BYTES_MAX: u64 = 256 << 20;

/// Which one, and when it came to be: numbers are given again. Of a file: when its status changed.
type Noted = (Which, i64);

/// Them.
pub(super) struct Made<'a> {
    /// The way to what is saved.
    pub own: &'a Beneath,
    path: PathBuf,
    file: Option<Held>,
    all: HashSet<Noted>,
}

impl<'a> Made<'a> {
    /// Those of earlier runs in the rescue at `top`.
    pub fn of(own: &'a Beneath, top: &Path) -> Made<'a> {
        let (path, mut text) = (top.join(MADE), Vec::new());
        if let Ok(file) = own.read(&path) {
            // Who is not known is somebody else's.
            let _ = file.take(BYTES_MAX).read_to_end(&mut text);
        }
        let lines = text.split(|&byte| byte == b'\n');
        let all = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        Made { own, path, file: None, all }
    }

    /// Notes a directory that was just made, durably.
    pub fn note(&mut self, found: &Metadata) -> io::Result<()> {
        self.add(born(found))
    }

    /// Notes that a file is as it was but for the time of its last status change.
    pub fn note_renamed(&mut self, found: &HostIdentity) -> io::Result<()> {
        self.add((found.object(), found.changed_ns))
    }

    fn add(&mut self, noted: Noted) -> io::Result<()> {
        // The last line of a run that was killed may be half.
        let line = format!("\n{}", serde_json::to_string(&noted)?);
        if self.file.is_none() {
            self.file = Some(match self.own.create(&self.path) {
                Ok(file) => Held::of_file(file)?,
                Err(_) => self.own.open_to_append(&self.path)?,
            });
        }
        if let Some(file) = &self.file {
            file.append(line.as_bytes())?;
            sync(file.file()?)?;
        }
        self.all.insert(noted);
        Ok(())
    }

    /// Whether `restore` has made this directory.
    pub fn has(&self, found: &Metadata) -> bool {
        self.all.contains(&born(found))
    }

    /// Whether `restore` was the last to change the status of this file.
    pub fn has_renamed(&self, found: &HostIdentity) -> bool {
        self.all.contains(&(found.object(), found.changed_ns))
    }
}

fn born(found: &Metadata) -> Noted {
    (object_of(found), clock::born_ns(found))
}
