//! `husk rescue`: lists and restores what write-backs could not write and have saved.
//!
//! ```text
//!   ~/.local/state, /var/tmp, /tmp ─► directories of this user ─► their lists ─► entries
//!   restore: the place as it was? ─ yes ─► copy beside it, then into it ─► no longer saved
//!                                 └ no ──► left, with what to type
//! ```
//!
//! Invariants
//! 1. A directory of another user, or one that others may enter, is none.
//! 2. Nothing is overwritten: an object goes to a place where nothing is, or where the very object
//!    still is that was there when it was saved.
//! 3. What is saved goes only once its place has it, durably.

mod made;
mod spot;

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use self::made::{MADE, Made};
use self::spot::Spot;

use crate::config::state;
use crate::output::failure::Failure;
use crate::output::typed::{in_json, typed};
use crate::run::request::{reason, size};
use crate::write_back::host::beneath::{Beneath, Object as Which, object_of};
use crate::write_back::host::remove_leftovers;
use crate::write_back::record::ledger::Text;
use crate::write_back::rescue::{EVERYBODYS, Entry, Kind, LIST, id_of};

/// Longest list that is read.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// What one write-back has saved in one place.
#[derive(Debug, Serialize)]
pub struct Rescue {
    /// What it is called.
    pub id: String,
    /// Its directory.
    #[serde(serialize_with = "in_json")]
    pub path: PathBuf,
    /// When something was last saved in it, s since the epoch.
    pub saved_s: i64,
    /// Files and links that are still there.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and links that are there and that its list does not name.
    pub unlisted: u64,
    /// The directory that all of them should have been in.
    #[serde(serialize_with = "in_json")]
    pub from: PathBuf,
    /// What is there.
    #[serde(skip)]
    entries: Vec<Entry>,
    /// Which directory it is.
    #[serde(skip)]
    which: Which,
}

/// Whether an object can go where it should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its place is as it was.
    Ready,
    /// Something else is there by now, or what was there has gone.
    Changed,
    /// It is there already, as a directory is whose files are to be restored, and whatever was
    /// put there by a `restore` that was killed.
    There,
}

/// An object that is saved.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// Where it should have been.
    #[serde(serialize_with = "in_json")]
    pub place: PathBuf,
    /// Where it is.
    #[serde(serialize_with = "in_json")]
    pub saved: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Why it could not be written.
    pub why: String,
    /// Whether it can go there.
    pub state: State,
}

/// How a `restore` went.
#[derive(Debug, Default, Serialize)]
pub struct Restored {
    /// Files and links that are in their places.
    pub restored: u64,
    /// What was left where it is, and what to type, a line each.
    pub left: Vec<String>,
    /// What the host did not take of attributes, a line each.
    pub notes: Vec<String>,
    /// Nothing is saved there any more: its directory is gone.
    pub emptied: bool,
}

/// All of this user, the oldest first.
pub fn all() -> Vec<Rescue> {
    let lasting = state::lasting_home().map(|home| home.join(".local/state"));
    let own = state::base().into_iter().chain(lasting);
    let bases = own.chain(EVERYBODYS.map(PathBuf::from));
    let mut real: Vec<PathBuf> = bases.filter_map(|base| fs::canonicalize(base).ok()).collect();
    real.sort();
    real.dedup();
    let entries = real.into_iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
    let mut found: Vec<Rescue> =
        entries.filter_map(|entry| Rescue::open(&entry.path()).ok()).collect();
    found.sort_by(|one, two| (one.saved_s, &one.id).cmp(&(two.saved_s, &two.id)));
    found
}

/// The one that is called `id`, or whose name begins so if no other's does.
pub fn find(id: &str) -> Result<Rescue, Failure> {
    let what = || format!("cannot find rescue {id}");
    let remedy = "see `husk rescue ls`";
    let mut found: Vec<Rescue> = all();
    if let Some(exact) = found.iter().position(|one| one.id == id) {
        return Ok(found.swap_remove(exact));
    }
    found.retain(|one| !id.is_empty() && one.id.starts_with(id));
    match found.len() {
        0 => Err(Failure::new(what(), "there is none of that name", remedy)),
        1 => Ok(found.remove(0)),
        _ => Err(Failure::new(what(), "several begin like that", remedy)),
    }
}

impl Rescue {
    /// The rescue in a directory (invariant 1).
    pub(crate) fn open(path: &Path) -> io::Result<Rescue> {
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let id = id_of(path).ok_or_else(none)?.to_owned();
        let beneath = Beneath::new([path.parent().unwrap_or(path)]);
        let found = beneath.directory(path)?.metadata()?;
        if !is_own(&found) {
            return Err(none());
        }
        let mut text = Vec::new();
        if let Ok(list) = beneath.read(&path.join(LIST)) {
            list.take(LIST_BYTES_MAX).read_to_end(&mut text)?;
        }
        // The last line of a write-back that was killed may be half.
        let lines = text.split(|&byte| byte == b'\n');
        let mut entries: Vec<Entry> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        entries.retain(|entry| {
            plain(&entry.saved)
                .is_some_and(|saved| matches!(beneath.found(&path.join(saved)), Ok(Some(_))))
        });
        let unlisted = unlisted(&beneath, path, &entries)?;
        let files = || entries.iter().filter(|entry| entry.kind != Kind::Directory);
        let from = files().map(|entry| entry.place.path()).reduce(common);
        let mut from = from.unwrap_or_default();
        if files().count() == 1 {
            from.pop();
        }
        Ok(Rescue {
            id,
            path: path.to_owned(),
            saved_s: found.mtime(),
            files: files().count() as u64,
            bytes: files().map(|entry| entry.size).sum(),
            unlisted,
            from,
            entries,
            which: object_of(&found),
        })
    }

    /// What is in it.
    pub fn shown(&self) -> Vec<Shown> {
        let own = self.beneath();
        let made = own.as_ref().map(|own| Made::of(own, &self.path));
        let shown = |entry: &Entry| {
            let (place, saved) = (entry.place.path(), self.saved(entry));
            let state = match (Spot::of(&place), &made) {
                (Ok(spot), Ok(made)) => spot.state(entry, made, &saved),
                _ => State::Changed,
            };
            let (kind, size) = (entry.kind, entry.size);
            Shown { place, saved, kind, size, why: entry.why.clone(), state }
        };
        self.entries.iter().map(shown).collect()
    }

    fn saved(&self, entry: &Entry) -> PathBuf {
        self.path.join(entry.saved.path())
    }

    /// Puts back what can be; of `paths` and what is below, or all, where none is named.
    pub fn restore(&self, paths: &[PathBuf]) -> Result<Restored, Failure> {
        let mut restored = Restored::default();
        let has =
            |path: &&PathBuf| self.entries.iter().any(|one| one.place.path().starts_with(path));
        if let Some(path) = paths.iter().find(|path| !has(path)) {
            let what = format!("cannot restore {} from rescue {}", typed(path), self.id);
            let remedy = format!("see `husk rescue show {}` for what is", self.id);
            return Err(Failure::new(what, "nothing that should have been there is saved", remedy));
        }
        let own = self.beneath().map_err(|problem| {
            let what = format!("cannot restore rescue {}", self.id);
            Failure::new(what, reason(&problem), "see `husk rescue ls`")
        })?;
        let wanted =
            |place: &Path| paths.is_empty() || paths.iter().any(|path| place.starts_with(path));
        let wanted = self.entries.iter().filter(|entry| {
            let place = entry.place.path();
            let leads = || paths.iter().any(|path| path.starts_with(&place));
            wanted(&place) || entry.kind == Kind::Directory && leads()
        });
        let mut work = Work::new(&own, &self.path);
        for entry in wanted {
            let place = entry.place.path();
            match self.one(entry, &mut work) {
                Ok(State::Ready | State::There) if entry.kind == Kind::Directory => {}
                Ok(State::Ready | State::There) => restored.restored += 1,
                Ok(State::Changed) => restored.left.push(self.changed(entry, &place)),
                Err(problem) => restored.left.push(line(&place, &problem)),
            }
        }
        // Of whom names came or went, the times have changed.
        for (spot, entry, which) in work.directories.iter().rev() {
            if let Err(problem) = spot.finish(entry, *which, &mut work.notes) {
                restored.left.push(line(&spot.place, &problem));
            }
        }
        restored.notes = work.notes;
        if restored.left.is_empty() && (paths.is_empty() || self.files > 0) {
            restored.emptied = self.is_emptied() && self.remove().is_ok();
        }
        Ok(restored)
    }

    /// Puts one back, if its place is as it was; how that was.
    fn one<'a>(&self, entry: &'a Entry, work: &mut Work<'a>) -> io::Result<State> {
        let (spot, saved) = (Spot::of(&entry.place.path())?, self.saved(entry));
        if let Some(directory) = spot.place.parent()
            && work.tidied.insert(directory.to_owned())
        {
            remove_leftovers(&spot.beneath, directory);
        }
        let state = spot.state(entry, &work.made, &saved);
        let directory = match (entry.kind, state) {
            (_, State::Changed) => None,
            (Kind::Directory, State::Ready) => Some(spot.make_directory(&mut work.made)?),
            (Kind::Directory, State::There) => spot.open_again(&work.made),
            (_, State::Ready) => {
                spot.put(entry, &mut work.made, &saved, &mut work.notes)?;
                None
            }
            (_, State::There) => {
                spot.forget(work.made.own, &saved)?;
                None
            }
        };
        work.directories.extend(directory.map(|which| (spot, entry, which)));
        Ok(state)
    }

    /// The way to what is in it.
    fn beneath(&self) -> io::Result<Beneath> {
        let beneath = Beneath::new([self.path.parent().unwrap_or(&self.path)]);
        let found = beneath.directory(&self.path)?.metadata()?;
        match object_of(&found) == self.which && is_own(&found) {
            true => Ok(beneath),
            false => Err(io::Error::other("another directory has taken its name")),
        }
    }

    fn is_emptied(&self) -> bool {
        let left = Rescue::open(&self.path).map(|now| now.files + now.unlisted);
        // Whoever has just begun to save something here has a list, and nothing in it yet.
        let begun = self.entries.is_empty() && self.path.join(LIST).exists();
        matches!(left, Ok(0)) && !begun
    }

    /// What to type for what cannot be put back.
    fn changed(&self, entry: &Entry, place: &Path) -> String {
        let (saved, place) = (typed(&self.saved(entry)), typed(place));
        match entry.kind {
            Kind::Directory => format!("{place} is no directory: move it away, and try again"),
            _ => format!(
                "{place} has changed since: diff {saved} {place}, then to take the saved one: \
                 cp {saved} {place}"
            ),
        }
    }

    /// Removes it with all that is in it.
    pub fn remove(&self) -> Result<(), Failure> {
        let removed = self.beneath().and_then(|own| own.remove_tree_of(&self.path, self.which));
        removed.map_err(|problem| {
            let what = format!("cannot remove rescue {}", self.id);
            Failure::new(what, reason(&problem), format!("look into {}", self.path.display()))
        })
    }

    /// It in a line.
    pub fn line(&self) -> String {
        let Rescue { id, files, bytes, from, path, unlisted, .. } = self;
        let (from, path) = (typed(from), typed(path));
        let count = |files: u64| match files {
            1 => "1 file".to_owned(),
            _ => format!("{files} files"),
        };
        let more = match unlisted {
            0 => String::new(),
            _ => format!(", and {} that its list does not name", count(*unlisted)),
        };
        format!("{id}  {}, {}, of {from}  in {path}{more}", count(*files), rounded(*bytes))
    }
}

/// A `restore` that is under way.
struct Work<'a> {
    made: Made<'a>,
    /// Directories that were made, and what they are to be like.
    directories: Vec<(Spot, &'a Entry, Which)>,
    /// Directories that have nothing any more of whoever was killed in them.
    tidied: HashSet<PathBuf>,
    notes: Vec<String>,
}

impl<'a> Work<'a> {
    fn new(own: &'a Beneath, top: &Path) -> Work<'a> {
        let (directories, tidied, notes) = Default::default();
        Work { made: Made::of(own, top), directories, tidied, notes }
    }
}

fn line(place: &Path, problem: &io::Error) -> String {
    format!("{}: {}", typed(place), reason(problem))
}

/// How many files and links are in the rescue at `top` that no entry names.
fn unlisted(beneath: &Beneath, top: &Path, entries: &[Entry]) -> io::Result<u64> {
    let listed: HashSet<PathBuf> =
        entries.iter().map(|entry| top.join(entry.saved.path())).collect();
    let (mut open, mut count) = (vec![top.to_owned()], 0);
    while let Some(directory) = open.pop() {
        for name in beneath.names(&directory)? {
            let path = directory.join(name);
            match beneath.found(&path)? {
                Some(found) if found.is_dir() => open.push(path),
                Some(_) if ![LIST, MADE].map(|own| top.join(own)).contains(&path) => {
                    count += u64::from(!listed.contains(&path))
                }
                _ => {}
            }
        }
    }
    Ok(count)
}

impl Shown {
    /// It in a line.
    pub fn line(&self) -> String {
        let state = match self.state {
            State::Ready => "ready  ",
            State::Changed => "changed",
            State::There => "there  ",
        };
        let slash = if self.kind == Kind::Directory { "/" } else { "" };
        let size = match self.kind {
            Kind::File => format!("  {}", rounded(self.size)),
            _ => String::new(),
        };
        format!("{state}  {}{slash}{size}  {}", typed(&self.place), self.why)
    }
}

/// Invariant 1.
fn is_own(found: &Metadata) -> bool {
    let own = found.uid() == rustix::process::geteuid().as_raw();
    found.is_dir() && own && found.permissions().mode() & 0o077 == 0
}

/// A path of a list, if it leads nowhere else.
fn plain(text: &Text) -> Option<PathBuf> {
    let path = text.path();
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && path.components().next().is_some()).then_some(path)
}

/// The deepest directory that holds both.
fn common(one: PathBuf, two: PathBuf) -> PathBuf {
    one.components().zip(two.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

fn rounded(bytes: u64) -> String {
    match bytes {
        0..1024 => size(bytes),
        1024..0x10_0000 => format!("{}K", bytes.div_ceil(1 << 10)),
        _ => format!("{:.1}M", bytes as f64 / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod adversity;
#[cfg(test)]
mod tests;
