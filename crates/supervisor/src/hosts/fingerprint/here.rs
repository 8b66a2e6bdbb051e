//! What is known of programs at home: a starter's half of a comparison.
//!
//! Compilers that earlier sessions have compared are looked at while ssh makes its connection: the
//! first jobs of a build come all at once, and would keep this from getting a processor.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::hosts::fingerprint;
use crate::hosts::fingerprint::known::{Known, identity};
use crate::hosts::fingerprint::noted::Noted;
use crate::hosts::session::guest::lock;

/// A file's identity, and its fingerprint; `None`: it is no program.
type Print = (String, Option<String>);

/// Programs here.
pub struct Here {
    noted: Mutex<Noted>,
    prints: Mutex<HashMap<PathBuf, Print>>,
    /// Compilers that earlier sessions have compared.
    pub drivers: Vec<PathBuf>,
}

impl Here {
    /// Begins with what is noted; in the file `shared` starters tell each other of headers.
    pub fn begin(known: Known, shared: PathBuf) -> Arc<Here> {
        let mut noted = Noted::begin(known);
        noted.shared = Some(shared);
        let (drivers, prints) = (noted.drivers(), Mutex::default());
        let here = Arc::new(Here { noted: Mutex::new(noted), prints, drivers });
        let early = here.clone();
        thread::spawn(move || {
            for driver in &early.drivers {
                early.print(driver);
            }
        });
        here
    }

    /// Whether an earlier session has compared this compiler.
    pub fn is_driver(&self, path: &Path) -> bool {
        self.drivers.iter().any(|driver| driver == path)
    }

    /// The fingerprint of a program as it is now, as far as that is known; within, `None`: it is no
    /// program.
    pub fn known(&self, path: &Path) -> Option<Option<String>> {
        let Ok(found) = fs::metadata(path) else { return Some(None) };
        let prints = lock(&self.prints);
        prints.get(path).filter(|known| known.0 == identity(&found)).map(|known| known.1.clone())
    }

    /// The same, looked at if need be.
    pub fn print(&self, path: &Path) -> Option<String> {
        if let Some(known) = self.known(path) {
            return known;
        }
        let mut noted = lock(&self.noted);
        // Somebody else has looked meanwhile.
        if let Some(known) = self.known(path) {
            return known;
        }
        let identity = identity(&fs::metadata(path).ok()?);
        let print = fingerprint::fingerprint(path, &mut noted);
        lock(&self.prints).insert(path.to_owned(), (identity, print.clone()));
        print
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_once_it_was_looked_at_and_until_it_changes() {
        let place = tempfile::tempdir().unwrap();
        let (program, shared) = (place.path().join("true"), place.path().join("headers"));
        fs::copy("/bin/true", &program).unwrap();
        let here = Here::begin(Known::nowhere(), shared);
        assert!(here.drivers.is_empty() && !here.is_driver(&program));
        assert_eq!(here.known(&program), None);
        let print = here.print(&program);
        assert!(print.is_some());
        assert_eq!(here.known(&program), Some(print.clone()));
        fs::write(&program, "#!/bin/sh\n").unwrap();
        assert_eq!(here.known(&program), None);
        assert_eq!(here.print(&program), None);
        assert_eq!(here.known(&program), Some(None), "it is none");
        fs::remove_file(&program).unwrap();
        assert_eq!(here.known(&program), Some(None), "it is gone");
    }
}
