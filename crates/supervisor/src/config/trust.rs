//! `husk config trust`: which `husk.toml` files the user trusts.
//!
//! ```text
//!   ./husk.toml ──read once──► text ──► path and content, hashed ──► one of STATE/trusted?
//!                                 │                                    yes: every key counts
//!                                 '── the same text is what counts     no: keys about data do not
//! ```
//!
//! Invariants
//! 1. What was hashed is what is used: a file is read once.
//! 2. A record is of one path and one content. Another content at the same path, or the same
//!    content in another directory (where a relative path means something else), is not trusted.
//! 3. Records that cannot be read trust nothing.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::state::State;
use crate::digest::hex;
use crate::output::failure::Failure;
use crate::run::request::reason;

/// Name of the file of records.
const RECORDS: &str = "trusted";
/// Most records; the oldest go first.
const RECORDS_MAX: usize = 4096;

/// One record.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
struct Record {
    /// For people, and for `husk config untrust`.
    path: String,
    /// `digest`.
    sha256: String,
}

/// The file of records.
#[derive(Serialize, Deserialize, Debug, Default)]
struct Records {
    files: Vec<Record>,
}

/// The real path of a file, its own name kept: a link is what was named.
pub fn real(path: &Path) -> Option<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::canonicalize(directory.unwrap_or(Path::new("."))).ok()?;
    Some(directory.join(path.file_name()?))
}

/// Whether the user trusts this content at this path.
pub fn is_trusted(path: &Path, text: &[u8]) -> bool {
    let Some(path) = real(path) else { return false };
    let records = State::find().and_then(|state| match state {
        Some(state) => parse(&state.read(RECORDS)?),
        None => Ok(Records::default()),
    });
    let sha256 = digest(&path, text);
    // Invariant 3.
    records.is_ok_and(|records| records.files.iter().any(|record| record.sha256 == sha256))
}

/// Trusts this content at this path from now on.
pub fn trust(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let path = real(path).unwrap_or_else(|| path.to_owned());
    let (shown, sha256) = (path.to_string_lossy().into_owned(), digest(&path, text));
    changed(&path, "trust", |records| {
        records.files.retain(|record| record.sha256 != sha256);
        records.files.push(Record { path: shown, sha256 });
        let surplus = records.files.len().saturating_sub(RECORDS_MAX);
        records.files.drain(..surplus);
    })
}

/// Trusts nothing at this path any more; whether anything was.
pub fn untrust(path: &Path) -> Result<bool, Failure> {
    let path = real(path).unwrap_or_else(|| path.to_owned());
    let shown = path.to_string_lossy().into_owned();
    let mut known = false;
    changed(&path, "untrust", |records| {
        let before = records.files.len();
        records.files.retain(|record| record.path != shown);
        known = records.files.len() != before;
    })?;
    Ok(known)
}

fn changed(path: &Path, verb: &str, change: impl FnOnce(&mut Records)) -> Result<(), Failure> {
    let what = format!("cannot {verb} {}", path.display());
    let state = State::make().map_err(|problem| {
        let remedy = "set XDG_STATE_HOME to a directory of yours";
        let why = format!("no directory of state: {}", reason(&problem));
        Failure::new(&what, why, remedy)
    })?;
    let done = state.change(RECORDS, |content| {
        let mut records = parse(&content)?;
        change(&mut records);
        Ok(serde_json::to_vec_pretty(&records)?)
    });
    done.map_err(|problem| {
        let records = state.path.join(RECORDS);
        let why = format!("{}: {}", records.display(), reason(&problem));
        Failure::new(&what, why, "fix or remove that file")
    })
}

fn parse(content: &[u8]) -> io::Result<Records> {
    match content.is_empty() {
        true => Ok(Records::default()),
        false => Ok(serde_json::from_slice(content)?),
    }
}

/// Of a path and a content together; the length keeps one from running into the other.
fn digest(path: &Path, text: &[u8]) -> String {
    let path = path.as_os_str().as_bytes();
    let mut hasher = Sha256::new();
    hasher.update((path.len() as u64).to_le_bytes());
    hasher.update(path);
    hasher.update(text);
    hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_path_and_of_the_content() {
        let of = |path: &str, text: &str| digest(Path::new(path), text.as_bytes());
        assert_eq!(of("/a", "x"), of("/a", "x"));
        assert_eq!(of("/a", "x").len(), 64);
        for (path, text) in [("/a", "y"), ("/b", "x"), ("/ax", ""), ("/", "ax")] {
            assert_ne!(of("/a", "x"), of(path, text), "{path} {text}");
        }
    }

    #[test]
    fn a_real_path_keeps_its_last_name() {
        let scratch = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(scratch.path()).unwrap();
        fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::os::unix::fs::symlink("elsewhere", base.join("real/husk.toml")).unwrap();
        assert_eq!(real(&base.join("link/husk.toml")), Some(base.join("real/husk.toml")));
        assert_eq!(real(&base.join("none/husk.toml")), None);
    }
}
