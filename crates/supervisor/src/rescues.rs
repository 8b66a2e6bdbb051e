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

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::RenameFlags;
use serde::Serialize;

use crate::config::state;
use crate::output::failure::Failure;
use crate::output::typed::{in_json, typed};
use crate::run::request::{reason, size};
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Beneath, Object as Which, lacks_flag, object_of};
use crate::write_back::host::{Names, identity_of};
use crate::write_back::record::ledger::Text;
use crate::write_back::rescue::{EVERYBODYS, Entry, Kind, LIST, id_of, numbers};

/// Longest list that is read.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;

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
    /// It is there already, as a directory is whose files are to be restored.
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
    fn open(path: &Path) -> io::Result<Rescue> {
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
        let shown = |entry: &Entry| {
            let place = entry.place.path();
            let state = Spot::of(&place).map_or(State::Changed, |spot| spot.state(entry));
            let (saved, kind, size) = (self.saved(entry), entry.kind, entry.size);
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
        let mut directories = Vec::new();
        for entry in &self.entries {
            let place = entry.place.path();
            let leads =
                entry.kind == Kind::Directory && paths.iter().any(|path| path.starts_with(&place));
            if !wanted(&place) && !leads {
                continue;
            }
            let made = Spot::of(&place).and_then(|spot| {
                let state = spot.state(entry);
                if state == State::Ready {
                    spot.put(entry, &own, &self.saved(entry))?;
                }
                Ok((spot, state))
            });
            match made {
                Ok((spot, State::Ready)) if entry.kind == Kind::Directory => {
                    directories.push((spot, entry));
                }
                Ok((_, State::Ready)) => restored.restored += 1,
                Ok((_, State::There)) => {}
                Ok((_, State::Changed)) => restored.left.push(self.changed(entry, &place)),
                Err(problem) => {
                    let why = reason(&problem);
                    restored.left.push(format!("{}: {why}", typed(&place)));
                }
            }
        }
        // Of whom names came or went, the times have changed.
        for (spot, entry) in directories.iter().rev() {
            let _ = spot.beneath.hold(&spot.place).and_then(|held| dress(&held, entry));
        }
        restored.emptied = self.is_emptied() && self.remove().is_ok();
        Ok(restored)
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
        matches!(left, Ok(0)) && self.files > 0
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
                Some(_) if path != top.join(LIST) => count += u64::from(!listed.contains(&path)),
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

/// Where an object should have been.
struct Spot {
    beneath: Beneath,
    place: PathBuf,
}

impl Spot {
    /// Reached over no link; an error: it is not a place on this host.
    fn of(place: &Path) -> io::Result<Spot> {
        let plain = place.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        if !place.is_absolute() || !plain || place.parent().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The uppermost directory is opened by its path, which leads over no link either.
        let top: PathBuf = place.components().take(2).collect();
        let root = if top == place { PathBuf::from("/") } else { top };
        Ok(Spot { beneath: Beneath::new([&*root]).deep(), place: place.to_owned() })
    }

    fn state(&self, entry: &Entry) -> State {
        let found = self.beneath.found(&self.place);
        match (found, entry.kind) {
            (Ok(Some(found)), Kind::Directory) if found.is_dir() => State::There,
            (Ok(Some(found)), kind) if kind != Kind::Directory => {
                let now = Some(numbers(&identity_of(&found)));
                if now == entry.before { State::Ready } else { State::Changed }
            }
            (Ok(None), _) if entry.before.is_none() => State::Ready,
            _ => State::Changed,
        }
    }

    /// Puts an object there that `saved` has (invariants 2 and 3).
    fn put(&self, entry: &Entry, own: &Beneath, saved: &Path) -> io::Result<()> {
        let Spot { beneath, place } = self;
        let directory = place.parent().unwrap_or(place);
        if entry.kind == Kind::Directory {
            let made = beneath.make_directory(place)?;
            dress(&made, entry)?;
            return beneath.sync_directory(directory);
        }
        let new = Names::of_this_process().fresh(directory);
        let which = || beneath.identity(&new).ok().flatten().map(|one| one.object());
        let made = self.make(entry, own, saved, &new);
        let own_one = which();
        let done = made.and_then(|()| self.give(entry, &new));
        if done.is_err() && which() == own_one {
            // What was not given its name is of no use.
            let _ = beneath.remove(&new);
        }
        done?;
        beneath.sync_directory(directory)?;
        own.remove(saved)
    }

    fn make(&self, entry: &Entry, own: &Beneath, saved: &Path, new: &Path) -> io::Result<()> {
        if entry.kind == Kind::Symlink {
            let target = own.hold(saved)?.read_link()?;
            let made = self.beneath.make_symlink(&target, new)?;
            return dress(&made, entry);
        }
        let (source, target) = (own.read(saved)?, self.beneath.create(new)?);
        copy(&source, &target)?;
        dress(&Held::of_file(target.try_clone()?)?, entry)?;
        target.sync_all()
    }

    /// Gives a new object its name.
    fn give(&self, entry: &Entry, new: &Path) -> io::Result<()> {
        let Spot { beneath, place } = self;
        let Some(before) = entry.before else {
            return beneath.rename(new, place, RenameFlags::NOREPLACE);
        };
        match beneath.rename(new, place, RenameFlags::EXCHANGE) {
            Err(problem) if lacks_flag(&problem) && self.state(entry) == State::Ready => {
                return beneath.rename(new, place, RenameFlags::empty());
            }
            exchanged => exchanged?,
        }
        let old = beneath.found(new)?.map(|found| numbers(&identity_of(&found)));
        // A rename changes the time of the last status change on most file systems.
        let same = old.is_some_and(|old| old[..4] == before[..4]);
        if !same {
            beneath.rename(new, place, RenameFlags::EXCHANGE)?;
            return Err(io::Error::other("it changes at this moment"));
        }
        beneath.remove(new)
    }
}

fn copy(source: &File, target: &File) -> io::Result<()> {
    let (mut bytes, mut at) = (vec![0; COPY_BYTES], 0);
    loop {
        let count = source.read_at(&mut bytes, at)?;
        if count == 0 {
            return target.set_len(at);
        }
        // Holes stay holes.
        if bytes[..count].iter().any(|&byte| byte != 0) {
            target.write_all_at(&bytes[..count], at)?;
        }
        at += count as u64;
    }
}

/// Gives an object the attributes that it had in the image.
fn dress(held: &Held, entry: &Entry) -> io::Result<()> {
    held.set_plain((entry.uid, entry.gid), entry.mode, entry.modified_ns)
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
mod tests {
    use super::*;

    /// A rescue of one file, whose place is `place`.
    fn rescue(base: &Path, place: &Path, before: Option<[i128; 5]>) -> Rescue {
        let path = base.join("husk-rescue-test");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(path.join("tree")).unwrap();
        fs::write(path.join("tree/f"), "saved").unwrap();
        let entry = Entry {
            place: Text::of(place),
            saved: Text::of(Path::new("tree/f")),
            kind: Kind::File,
            mode: 0o640,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            modified_ns: 1_000_000_000_000_000_001,
            size: 5,
            why: "no room".to_owned(),
            before,
        };
        let list = serde_json::to_string(&entry).unwrap();
        fs::write(path.join(LIST), list + "\n{\"half").unwrap();
        Rescue::open(&path).unwrap()
    }

    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(scratch.path()).unwrap();
        (scratch, real)
    }

    #[test]
    fn what_is_put_back_is_as_it_was_in_the_image_and_no_longer_saved() {
        let (_scratch, base) = scratch();
        let place = base.join("place");
        let saved = rescue(&base, &place, None);
        assert_eq!((saved.files, saved.bytes, &saved.from), (1, 5, &base));
        assert_eq!(saved.shown()[0].state, State::Ready);
        let done = saved.restore(&[]).unwrap();
        assert_eq!((done.restored, done.left.len(), done.emptied), (1, 0, true));
        let found = fs::metadata(&place).unwrap();
        assert_eq!(
            (found.mode() & 0o7777, found.mtime(), found.mtime_nsec()),
            (0o640, 1e9 as i64, 1)
        );
        assert_eq!(fs::read(&place).unwrap(), b"saved");
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "the rescue is gone, nothing is left");
    }

    #[test]
    fn nothing_is_overwritten_but_the_very_object_that_was_there() {
        let (_scratch, base) = scratch();
        let place = base.join("place");
        fs::write(&place, "host").unwrap();
        let before = numbers(&identity_of(&fs::metadata(&place).unwrap()));
        let mut other = before;
        other[3] -= 1;
        let changed = rescue(&base, &place, Some(other));
        assert_eq!(changed.shown()[0].state, State::Changed);
        let done = changed.restore(&[]).unwrap();
        assert_eq!((done.restored, done.left.len(), done.emptied), (0, 1, false));
        assert!(done.left[0].contains(&format!("cp {}", changed.path.join("tree/f").display())));
        assert_eq!(fs::read(&place).unwrap(), b"host");
        changed.remove().unwrap();
        // Where nothing was, somebody has made something.
        let taken = rescue(&base, &place, None);
        assert_eq!(taken.restore(&[]).unwrap().restored, 0);
        assert_eq!(fs::read(&place).unwrap(), b"host");
        taken.remove().unwrap();
        let same = rescue(&base, &place, Some(before));
        assert!(same.restore(&[PathBuf::from("/elsewhere")]).is_err());
        assert_eq!(same.restore(&[]).unwrap().restored, 1);
        assert_eq!(fs::read(&place).unwrap(), b"saved");
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
    }

    #[test]
    fn what_somebody_writes_while_something_is_put_back_is_there_afterwards() {
        use crate::write_back::host::beneath::schedule;
        use rustix::io::Errno;
        for lacking in [false, true] {
            for n in 1.. {
                let (_scratch, base) = scratch();
                let place = base.join("place");
                fs::write(&place, "host").unwrap();
                let before = numbers(&identity_of(&fs::metadata(&place).unwrap()));
                let saved = rescue(&base, &place, Some(before));
                let (count, theirs) = (std::rc::Rc::new(std::cell::Cell::new(0)), place.clone());
                let seen = count.clone();
                let plan = move |call| {
                    count.set(count.get() + 1);
                    if count.get() == n {
                        let new = theirs.with_extension("edited");
                        fs::write(&new, "theirs").unwrap();
                        fs::rename(new, &theirs).unwrap();
                    }
                    if lacking && call == "renameat2" { Err(Errno::INVAL.into()) } else { Ok(()) }
                };
                let done = schedule::during(plan, || saved.restore(&[])).unwrap();
                if seen.get() < n {
                    assert_eq!(fs::read(&place).unwrap(), b"saved");
                    break;
                }
                assert_eq!(fs::read(&place).unwrap(), b"theirs", "call {n}, {lacking}: {done:?}");
                let own = |name: &str| name.starts_with(".husk-tmp-");
                let names = fs::read_dir(&base).unwrap().map(|one| one.unwrap().file_name());
                let left = names.filter(|name| own(&name.to_string_lossy())).count();
                assert_eq!(left, 0, "call {n}, {lacking}");
            }
        }
    }

    #[test]
    fn what_others_may_enter_or_a_list_that_leads_out_is_none() {
        let (_scratch, base) = scratch();
        let saved = rescue(&base, &base.join("place"), None);
        fs::set_permissions(&saved.path, fs::Permissions::from_mode(0o710)).unwrap();
        assert!(Rescue::open(&saved.path).is_err());
        fs::set_permissions(&saved.path, fs::Permissions::from_mode(0o700)).unwrap();
        let list = fs::read_to_string(saved.path.join(LIST)).unwrap();
        fs::write(base.join("f"), "outside").unwrap();
        fs::write(saved.path.join(LIST), list.replace("tree/f", "../f")).unwrap();
        assert_eq!(Rescue::open(&saved.path).unwrap().files, 0);
    }

    #[test]
    fn no_link_leads_what_is_put_back_elsewhere() {
        let (_scratch, base) = scratch();
        fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
        let saved = rescue(&base, &base.join("link/place"), None);
        let done = saved.restore(&[]).unwrap();
        assert_eq!((done.restored, done.left.len()), (0, 1), "{:?}", done.left);
        assert_eq!(fs::read_dir(base.join("real")).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_took_the_place_of_a_rescue_is_neither_emptied_nor_put_back() {
        let (_scratch, base) = scratch();
        let place = base.join("place");
        let seen = rescue(&base, &place, None);
        fs::rename(&seen.path, base.join("away")).unwrap();
        // Just as private, and with the same names.
        let other = rescue(&base, &place, None);
        assert!(seen.remove().is_err() && seen.restore(&[]).is_err());
        assert!(!place.exists());
        for there in [&base.join("away"), &other.path] {
            assert_eq!(fs::read(there.join("tree/f")).unwrap(), b"saved");
        }
        // Nor is one that others may enter.
        fs::set_permissions(&other.path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(other.remove().is_err() && other.restore(&[]).is_err());
        assert_eq!(fs::read(other.path.join("tree/f")).unwrap(), b"saved");
    }
}
