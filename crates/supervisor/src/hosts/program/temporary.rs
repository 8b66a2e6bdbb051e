//! Where a compiler's parts on another host hand over files to each other: there, and not at home.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::nodes::Tree;

const VARIABLE: &[u8] = b"TMPDIR=";
/// Where temporary files are if nobody says otherwise.
const DEFAULT: &[u8] = b"/tmp";

/// A directory for temporary files that only one job looks at, if that is in none of the trees.
pub fn make(place: &Path, trees: &[Tree]) -> io::Result<Option<PathBuf>> {
    let path = place.join("tmp");
    if trees.iter().any(|tree| path.starts_with(&tree.path)) {
        return Ok(None);
    }
    fs::create_dir(&path)?;
    Ok(Some(path))
}

/// Whether somebody wants a job's temporary files in a place of their own.
pub fn is_told(environment: &[OsString]) -> bool {
    let place = |variable: &OsString| {
        variable.as_encoded_bytes().strip_prefix(VARIABLE).is_some_and(|place| place != DEFAULT)
    };
    environment.iter().any(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_place_than_the_usual_one_is_somebodys_wish() {
        let told = |text: &str| is_told(&["A=b".into(), text.into()]);
        assert!(told("TMPDIR=/var/tmp") && told("TMPDIR=/tmp/own") && told("TMPDIR="));
        assert!(!told("TMPDIR=/tmp") && !told("TMP=/var/tmp") && !told("XTMPDIR=/var/tmp"));
    }

    #[test]
    fn a_place_in_a_tree_of_home_is_none() {
        let place = tempfile::tempdir().unwrap();
        let tree = |path: &Path| {
            let path = path.to_owned();
            Tree { path, overlay: false, root: [1, 1], device: 0 }
        };
        assert_eq!(make(place.path(), &[tree(place.path())]).unwrap(), None);
        let made = make(place.path(), &[tree(&place.path().join("other"))]).unwrap();
        assert!(made.is_some_and(|path| path.is_dir()));
    }
}
