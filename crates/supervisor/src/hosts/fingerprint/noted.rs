//! What is known of the files that programs start with, from one session to the next: `prints`
//! beside the notes of `known`, and by its rules.
//!
//! ```text
//!   prints: | path: identity, digest, interpreter, libraries |...| compilers that were compared |
//! ```
//!
//! Two that write at once: what one has noted is lost, and is read again later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::hosts::fingerprint::known::{Known, identity, is_settled};

/// How it is called.
const NAME: &str = "prints";
/// Most bytes of it; most files, and compilers.
const BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 1024;
const DRIVERS_MAX: usize = 8;

/// A file, and what it needs.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Part {
    identity: String,
    /// Of its bytes.
    pub digest: String,
    /// `None`: it is no program.
    pub needs: Option<Needs>,
}

/// The interpreter of a program, and the names of its libraries.
pub type Needs = (Option<PathBuf>, Vec<String>);

/// All that is known.
#[derive(Serialize, Deserialize, Default)]
struct All {
    parts: BTreeMap<PathBuf, Part>,
    drivers: BTreeSet<PathBuf>,
}

/// What this session knows.
pub struct Noted {
    known: Known,
    all: All,
    is_new: bool,
    /// Where the starters of an image tell each other what they have found.
    pub shared: Option<PathBuf>,
}

impl Noted {
    /// What earlier sessions have noted; rubbish is nothing.
    pub fn begin(known: Known) -> Noted {
        let all = read(&known);
        Noted { known, all, is_new: false, shared: None }
    }

    /// The compilers that were compared before.
    pub fn drivers(&self) -> Vec<PathBuf> {
        self.all.drivers.iter().take(DRIVERS_MAX).cloned().collect()
    }

    /// A compiler was compared.
    pub fn add_driver(&mut self, path: &Path) {
        if !self.all.drivers.contains(path) && self.all.drivers.len() < DRIVERS_MAX {
            self.is_new |= self.all.drivers.insert(path.to_owned());
        }
    }

    /// The file at `path`, read if it is not the one that was; `None`: it cannot be, or is larger.
    pub fn part(
        &mut self,
        path: &Path,
        bytes_max: u64,
        needs: &dyn Fn(&[u8]) -> Option<Needs>,
    ) -> Option<Part> {
        let mut file = File::open(path).ok()?;
        let found = file.metadata().ok().filter(|it| it.is_file() && it.len() <= bytes_max)?;
        let identity = identity(&found);
        if let Some(part) = self.all.parts.get(path).filter(|part| part.identity == identity) {
            return Some(part.clone());
        }
        let mut bytes = Vec::with_capacity(found.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        let part = Part { identity, digest: hex(&Sha256::digest(&bytes)), needs: needs(&bytes) };
        // A path that is no text cannot be written.
        if path.to_str().is_some() && is_settled(&found, SystemTime::now()) {
            self.all.parts.insert(path.to_owned(), part.clone());
            self.is_new = true;
        }
        Some(part)
    }

    /// Keeps what is new for later sessions, with what others have noted meanwhile.
    pub fn keep(&mut self) {
        if !std::mem::take(&mut self.is_new) {
            return;
        }
        let All { mut parts, mut drivers } = read(&self.known);
        parts.extend(self.all.parts.clone());
        drivers.extend(self.all.drivers.iter().cloned());
        if parts.len() > FILES_MAX {
            parts = self.all.parts.clone();
        }
        if drivers.len() > DRIVERS_MAX {
            drivers = self.all.drivers.clone();
        }
        let text = serde_json::to_string(&All { parts, drivers }).unwrap_or_default();
        if text.len() as u64 <= BYTES_MAX {
            self.known.replace(NAME, &text);
        }
    }
}

fn read(known: &Known) -> All {
    let all = known.text(NAME, BYTES_MAX).and_then(|text| serde_json::from_str::<All>(&text).ok());
    all.filter(|all| all.parts.len() <= FILES_MAX).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A file whose ctime is old enough to be noted: one of the system.
    const OLD: &str = "/bin/true";

    fn read_anew(noted: &mut Noted, path: &Path) -> (Part, bool) {
        let is_read = std::cell::Cell::new(false);
        let part = noted.part(path, 1 << 30, &|_| {
            is_read.set(true);
            None
        });
        (part.unwrap(), is_read.get())
    }

    fn noted_at(place: &Path) -> Noted {
        Noted::begin(Known::at(place.to_owned()))
    }

    #[test]
    fn a_file_is_read_once_for_all_sessions() {
        let place = tempfile::tempdir().unwrap();
        let mut first = noted_at(place.path());
        let (part, is_read) = read_anew(&mut first, Path::new(OLD));
        assert!(is_read && part.digest.len() == 64);
        first.add_driver(Path::new(OLD));
        first.keep();
        let mut second = noted_at(place.path());
        assert_eq!(read_anew(&mut second, Path::new(OLD)), (part, false));
        assert_eq!(second.drivers(), [Path::new(OLD)]);
    }

    #[test]
    fn a_file_with_the_same_size_and_mtime_is_read_anew() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "one").unwrap();
        let before = fs::metadata(&file).unwrap();
        let mut noted = noted_at(&place.path().join("notes"));
        let (one, _) = read_anew(&mut noted, &file);
        // As if it had been settled.
        noted.all.parts.insert(file.clone(), one.clone());
        assert!(!read_anew(&mut noted, &file).1);
        let written = fs::File::options().write(true).open(&file).unwrap();
        let old = before.modified().unwrap();
        loop {
            std::io::Write::write_all(&mut &written, b"two").unwrap();
            std::io::Seek::rewind(&mut &written).unwrap();
            written.set_modified(old).unwrap();
            use std::os::unix::fs::MetadataExt;
            let now = fs::metadata(&file).unwrap();
            // The clock of files ticks each few milliseconds.
            if (now.ctime(), now.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
                break;
            }
        }
        let after = fs::metadata(&file).unwrap();
        assert_eq!((after.len(), after.modified().unwrap()), (before.len(), old));
        let (two, is_read) = read_anew(&mut noted, &file);
        assert!(is_read && two.digest != one.digest);
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_noted_and_rubbish_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "one").unwrap();
        assert!(!is_settled(&fs::metadata(&file).unwrap(), SystemTime::now()));
        let mut noted = noted_at(place.path());
        assert!(read_anew(&mut noted, &file).1 && read_anew(&mut noted, &file).1);
        noted.keep();
        assert!(!place.path().join(NAME).exists());
        for rubbish in ["", "{", "[]", "{\"parts\":{\"/bin/true\":7},\"drivers\":[]}", "\0\0"] {
            Known::at(place.path().to_owned()).replace(NAME, rubbish);
            let mut noted = noted_at(place.path());
            assert!(noted.drivers().is_empty() && read_anew(&mut noted, Path::new(OLD)).1);
            noted.keep();
            assert!(!read_anew(&mut noted_at(place.path()), Path::new(OLD)).1, "{rubbish}");
        }
    }
}
