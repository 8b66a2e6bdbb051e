//! Reads one configuration file and checks every key and value; errors name line and column.
//!
//! Invariant: neither the file nor its content was chosen by anyone but this user or root.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, readlinkat};
use rustix::io::Errno;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::keys::{KEYS, Key, Kind, nearest};
use crate::output::failure::Failure;
use crate::run::request::reason;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Links that are followed, one after the other.
const LINKS_MAX: usize = 8;
/// Who may write: the group, and everybody.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;

/// What a file says: number of the key, its values, its line.
pub type Found = Vec<(usize, Vec<String>, usize)>;

/// A file that is there.
pub enum Fetched {
    /// What is written in it.
    Text(String),
    /// It is another user's, or others may write to it: why it does not count, what to do about
    /// it, and what is written in it, where that can be read.
    Refused(&'static str, &'static str, Option<String>),
}

/// What the file says; `None`: there is none.
pub fn read(path: &Path) -> Result<Option<Found>, Failure> {
    match fetch(path)? {
        None => Ok(None),
        Some(Fetched::Text(text)) => parse(path, &text).map(Some),
        Some(Fetched::Refused(why, remedy, _)) => {
            Err(Failure::new(format!("cannot read {}", path.display()), why, remedy))
        }
    }
}

/// What is written in the file; `None`: there is none.
pub fn fetch(path: &Path) -> Result<Option<Fetched>, Failure> {
    let what = || format!("cannot read {}", path.display());
    let failed = |problem: io::Error| {
        Failure::new(what(), reason(&problem), "fix it, or set HUSK_CONFIG=none")
    };
    let (held, found) = match reach(path) {
        Err(problem) if is_absent(&problem) => return Ok(None),
        reached => reached.map_err(failed)?,
    };
    let text = || -> io::Result<String> {
        // That which was judged, whatever its name leads to by now.
        let name = format!("/proc/self/fd/{}", held.as_raw_fd());
        let mut text = String::new();
        File::open(name)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        match text.len() as u64 == FILE_BYTES_MAX {
            true => Err(io::Error::other("it is too long")),
            false => Ok(text),
        }
    };
    Ok(Some(match objection(&found) {
        Some((why, remedy)) => {
            let text = found.is_file().then(|| text().ok()).flatten();
            Fetched::Refused(why, remedy, text)
        }
        None => Fetched::Text(text().map_err(failed)?),
    }))
}

/// What this text says, which is of the file `path`.
pub fn parse(path: &Path, text: &str) -> Result<Found, Failure> {
    understood(text).map_err(|wrong| {
        let (line, column) = place(text, wrong.at);
        let what = format!("cannot read {}:{line}:{column}", path.display());
        Failure::new(what, wrong.why, wrong.remedy)
    })
}

/// What is at `path`, or behind links that are this user's or root's; not opened yet: a FIFO would
/// wait for somebody.
fn reach(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits() as i32;
    let mut path = path.to_owned();
    for _ in 0..=LINKS_MAX {
        let held = File::options().read(true).custom_flags(flags).open(&path)?;
        let found = held.metadata()?;
        if !found.is_symlink() || !is_trusted(&found) {
            return Ok((held, found));
        }
        let target = readlinkat(&held, "", Vec::new())?;
        path.pop();
        path.push(OsStr::from_bytes(target.as_bytes()));
    }
    Err(Errno::LOOP.into())
}

/// Whether it is this user's or root's.
fn is_trusted(found: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
}

/// Whether anybody but its owner (and root) may write to it.
pub fn others_may_write(found: &Metadata) -> bool {
    // A group with the number of its user is that user's alone.
    let shared = if found.gid() == found.uid() { ALL_WRITE } else { ALL_WRITE | GROUP_WRITES };
    found.mode() & shared != 0
}

/// Why what was found does not count, and what to do about it.
fn objection(found: &Metadata) -> Option<(&'static str, &'static str)> {
    if !is_trusted(found) {
        Some(("it is another user's", "make it your own, or set HUSK_CONFIG=none"))
    } else if !found.is_file() {
        Some(("it is not a regular file", "replace it by one, or name one with HUSK_CONFIG"))
    } else if others_may_write(found) {
        Some(("others may write to it", "chmod go-w, or set HUSK_CONFIG=none"))
    } else {
        None
    }
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
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span: Range<usize>| span.start);
        unread(text, at, error.message())
    })?;
    let mut found = Vec::new();
    for (name, value) in table.get_ref().iter() {
        let (at, name) = (name.span().start, name.get_ref());
        let Some(index) = KEYS.iter().position(|key| key.name == name) else {
            let remedy = match nearest(name) {
                Some(key) => format!("did you mean {key}?"),
                None => "`husk config show` lists them".to_owned(),
            };
            return Err(Wrong { at, why: format!("there is no key {name}"), remedy });
        };
        found.push((index, values(&KEYS[index], value)?, place(text, at).0));
    }
    Ok(found)
}

/// What is wrong where the text is no TOML, and how the key of that line is written.
fn unread(text: &str, at: usize, why: &str) -> Wrong {
    let line = text.lines().nth(place(text, at).0 - 1).unwrap_or_default();
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let why = match value.trim() {
        "" if line.contains('=') => "there is no value".to_owned(),
        _ => why.replace('\n', ", "),
    };
    let remedy = match KEYS.iter().find(|key| key.name == name.trim()) {
        Some(key) => written(key),
        None => "see `husk config show` for how it is written".to_owned(),
    };
    Wrong { at, why, remedy }
}

fn written(key: &Key) -> String {
    format!("write for {}: {}", key.name, key.kind.form_in_file(key.name))
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
    let wrong = |why: String| Wrong { at: value.span().start, why, remedy: written(key) };
    let words = matches!(key.kind, Kind::Words(words) if words.contains(&"on"));
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if matches!(key.kind, Kind::Count | Kind::Size) => {
            number.as_str().replace('_', "")
        }
        DeValue::Boolean(on) if words => (if *on { "on" } else { "off" }).to_owned(),
        DeValue::Boolean(on) if key.kind == Kind::Switch => on.to_string(),
        other => return Err(wrong(format!("{} cannot be of type {}", key.name, other.type_str()))),
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
