//! One file: read, and every key and value in it checked, with the place of what is wrong.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::keys::{KEYS, Key, Kind, nearest};
use crate::failure::Failure;
use crate::request::reason;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file says: number of the key, its values, its line.
type Found = Vec<(usize, Vec<String>, usize)>;

/// What the file says; `None`: there is none.
pub fn read(path: &Path) -> Result<Option<Found>, Failure> {
    let what = || format!("cannot read {}", path.display());
    let failed = |problem: io::Error| {
        Failure::new(what(), reason(&problem), "mend it, or set HUSK_CONFIG=none")
    };
    let found = match std::fs::metadata(path) {
        Err(problem) if is_absent(&problem) => return Ok(None),
        found => found.map_err(failed)?,
    };
    // What is no file is not opened: a FIFO would wait for somebody.
    let mut file = match found.is_file() {
        true => File::open(path).map_err(failed)?,
        false => return Err(Failure::new(what(), "it is no file", "remove it")),
    };
    let found = file.metadata().map_err(failed)?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if !own {
        let remedy = "make it your own, or set HUSK_CONFIG=none";
        return Err(Failure::new(what(), "it is another user's", remedy));
    }
    let mut text = String::new();
    (&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 == FILE_BYTES_MAX {
        return Err(Failure::new(what(), "it is too long", "set HUSK_CONFIG=none"));
    }
    let mistake = |wrong: Wrong| {
        let (line, column) = place(&text, wrong.at);
        let what = format!("cannot read {}:{line}:{column}", path.display());
        Failure::new(what, wrong.why, wrong.remedy)
    };
    understood(&text).map(Some).map_err(mistake)
}

/// Whether there is no such file, as far as this user can see: a directory that may not be searched
/// (the home of another, kept in `HOME`) holds nothing of theirs.
fn is_absent(problem: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(problem.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// What is wrong, and where.
struct Wrong {
    at: usize,
    why: String,
    remedy: String,
}

fn understood(text: &str) -> Result<Found, Wrong> {
    let table = DeTable::parse(text).map_err(|error| Wrong {
        at: error.span().map_or(text.len(), |span: Range<usize>| span.start),
        why: error.message().replace('\n', ", "),
        remedy: "see `husk config show` for how it is written".to_owned(),
    })?;
    let mut found = Vec::new();
    for (name, value) in table.get_ref().iter() {
        let (at, name) = (name.span().start, name.get_ref());
        let Some(index) = KEYS.iter().position(|key| key.name == name) else {
            let remedy = match nearest(name) {
                Some(key) => format!("did you mean {key}?"),
                None => "see `husk config show` for those there are".to_owned(),
            };
            return Err(Wrong { at, why: format!("there is no key {name}"), remedy });
        };
        found.push((index, values(&KEYS[index], value)?, place(text, at).0));
    }
    Ok(found)
}

/// The values of a key.
fn values(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Wrong> {
    let listed = matches!(key.kind, Kind::Paths | Kind::Techniques);
    match value.get_ref() {
        DeValue::Array(all) if listed => all.iter().map(|one| checked(key, one)).collect(),
        _ => Ok(vec![checked(key, value)?]),
    }
}

fn checked(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<String, Wrong> {
    let wrong = |why: String| {
        let form = key.kind.form(key.name);
        Wrong { at: value.span().start, why, remedy: format!("write for {}: {form}", key.name) }
    };
    let words = matches!(key.kind, Kind::Words(words) if words.contains(&"on"));
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if matches!(key.kind, Kind::Count | Kind::Size) => {
            number.as_str().replace('_', "")
        }
        DeValue::Boolean(on) if words => (if *on { "on" } else { "off" }).to_owned(),
        DeValue::Boolean(on) if key.kind == Kind::Switch => on.to_string(),
        other => return Err(wrong(format!("{} is no {}", key.name, other.type_str()))),
    };
    match key.check(std::slice::from_ref(&text)) {
        Ok(()) => Ok(text),
        Err(why) => Err(wrong(why)),
    }
}

/// Line and column of a byte, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
