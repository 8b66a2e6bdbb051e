//! Saves files that cannot be written to their places (full disk, no permission).
//!
//! ```text
//!   ~/.local/state/husk-rescue-RANDOM   else   /var/tmp/husk-rescue-RANDOM   else   /tmp/...
//!       list                     a line of JSON for each object: place, attributes, why
//!       tree/srv/src/a.c         the object that should have been /srv/src/a.c
//!       deep/7-a.c               one whose path would be too long, also a directory
//! ```
//!
//! Invariants
//! 1. Directories are made anew, mode 0700, under names that nobody can guess; what is in them is
//!    made anew, by the descriptor of a directory. So nothing is overwritten, and nobody else reads
//!    or leads astray what is saved: a directory that somebody puts in the place of one that was
//!    made takes nothing.
//! 2. Where one place does not take a file, the next does, which may be another file system.
//! 3. An object is in the list before it is there: what is saved is always listed.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use husk_proto::Inode;
use husk_proto::fs::{Attributes, HostIdentity};
use serde::{Deserialize, Serialize};

use super::host;
use super::host::beneath::schedule::before;
use super::host::beneath::{Beneath, sync};
use super::host::extended::Extended;
use super::record::ledger::Text;
use super::record::manifest::Bytes;
use crate::config::state::{self, State};

/// How directories of rescues are called; behind it comes what nobody can guess.
pub const PREFIX: &str = "husk-rescue-";
/// Where a directory of one's own can be made by everybody.
pub const EVERYBODYS: [&str; 2] = ["/var/tmp", "/tmp"];
/// The list of what is saved.
pub const LIST: &str = "list";
/// Bytes of a name that are kept: a number comes before.
const NAME_BYTES_MAX: usize = 200;
/// Longer paths are told by their beginning and end.
const SHOWN_BYTES_MAX: usize = 1000;
/// Longer paths are not kept as trees.
const TREE_PATH_BYTES_MAX: usize = 3000;

/// What an object is.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A file.
    File,
    /// A directory; what was in it has lines of its own.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// A saved object.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it should have been.
    pub place: Text,
    /// Where it is, from the directory of the rescue on.
    pub saved: Text,
    /// What it is.
    pub kind: Kind,
    /// Permissions, with set-ID bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last modification, ns since the epoch.
    pub modified_ns: i64,
    /// Length in bytes.
    pub size: u64,
    /// Why it could not be written.
    pub why: String,
    /// What was at its place: device, inode, size, times of modification and change. `None`:
    /// nothing.
    pub before: Option<[i128; 5]>,
    /// Its extended attributes; `None`: they are not known, or those of what was at its place.
    #[serde(default)]
    pub extended: Option<Vec<(Bytes, Bytes)>>,
    /// Where the first name of a file with several of them should have been.
    #[serde(default)]
    pub same_as: Option<Text>,
}

/// An identity as it is in a list.
pub fn numbers(identity: &HostIdentity) -> [i128; 5] {
    let HostIdentity { device, inode, size, modified_ns, changed_ns } = *identity;
    [device.into(), inode.into(), size.into(), modified_ns.into(), changed_ns.into()]
}

/// What is to be saved.
pub enum Saved<'a> {
    /// A file, as this writes it.
    File(&'a mut dyn FnMut(&File) -> io::Result<()>),
    /// A directory; what is in it is saved by itself.
    Directory,
    /// A symbolic link to this.
    Symlink(&'a Path),
    /// Another name of the file that is saved here.
    Name(&'a Path),
}

/// Directories, made when the first file needs them.
#[derive(Debug, Default)]
pub struct Rescue {
    places: Vec<Place>,
    asked: bool,
    number: u64,
    /// Of files with several names the first that was saved: in which of the places, where there,
    /// and where it should have been.
    first: HashMap<Inode, (usize, PathBuf, PathBuf)>,
}

/// One of them.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// `None`: it is not made, or cannot be.
    open: Option<Open>,
    files: u64,
    /// The first file, or what is in its place.
    first: Option<First>,
}

#[derive(Debug)]
struct Open {
    beneath: Beneath,
    list: File,
}

#[derive(Debug, Clone)]
struct First {
    place: PathBuf,
    saved: PathBuf,
    why: String,
    file: bool,
}

impl Rescue {
    /// One that has saved nothing; nothing is made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that saves in a new directory in `base`, if that takes it, before anywhere else.
    pub fn preferring(base: &Path) -> Self {
        Self {
            places: place_in(base).into_iter().chain(places()).collect(),
            asked: true,
            ..Self::default()
        }
    }

    /// One that saves below `directory`.
    #[cfg(test)]
    pub fn into_directory(directory: PathBuf) -> Self {
        Self { places: vec![Place::new(directory)], asked: true, ..Self::default() }
    }

    /// Saves what should have been `shown`; whether it is saved. `why` it could not be written;
    /// `extended`: attributes, if they are known.
    pub fn save(
        &mut self,
        shown: &Path,
        (attributes, extended): (&Attributes, Option<&Extended>),
        why: &str,
        what: &mut Saved<'_>,
    ) -> bool {
        if !std::mem::replace(&mut self.asked, true) {
            self.places = places();
        }
        self.number += 1;
        let kind = match what {
            Saved::File(_) | Saved::Name(_) => Kind::File,
            Saved::Directory => Kind::Directory,
            Saved::Symlink(_) => Kind::Symlink,
        };
        let before = fs::symlink_metadata(shown).ok();
        let entry = Entry {
            place: Text::of(shown),
            saved: Text::of(Path::new("")),
            kind,
            mode: attributes.step.mode & 0o7777,
            uid: attributes.step.uid,
            gid: attributes.step.gid,
            modified_ns: attributes.modified_ns,
            size: if kind == Kind::File { attributes.size } else { 0 },
            why: why.to_owned(),
            before: before.map(|found| numbers(&host::identity_of(&found))),
            extended: extended.map(|all| {
                let bytes = |(name, value): &(CString, Vec<u8>)| {
                    (Bytes::of(name.to_bytes()), Bytes::of(value))
                };
                all.iter().map(bytes).collect()
            }),
            same_as: None,
        };
        let several = kind == Kind::File && attributes.links > 1;
        let inode = attributes.step.inode;
        several && self.save_name(shown, inode, &entry)
            || self.save_whole(shown, several.then_some(inode), &entry, what)
    }

    /// Where it can be another name of what is saved already.
    fn save_name(&mut self, shown: &Path, inode: Inode, entry: &Entry) -> bool {
        let Some((place, saved, first)) = self.first.get(&inode).cloned() else { return false };
        let entry = Entry { same_as: Some(Text::of(&first)), ..entry.clone() };
        let place = &mut self.places[place];
        place.save(self.number, shown, &entry, &mut Saved::Name(&saved)).is_some()
    }

    fn save_whole(
        &mut self,
        shown: &Path,
        first_of: Option<Inode>,
        entry: &Entry,
        what: &mut Saved<'_>,
    ) -> bool {
        let number = self.number;
        let mut places = self.places.iter_mut().enumerate();
        let saved = places.find_map(|(at, one)| Some((at, one.save(number, shown, entry, what)?)));
        if let (Some(inode), Some((at, path))) = (first_of, &saved) {
            self.first.insert(inode, (*at, path.clone(), shown.to_owned()));
        }
        saved.is_some()
    }

    /// What there is to tell of what was saved: a line for each directory. One in which nothing is
    /// saved goes.
    pub fn summary(&self) -> Vec<String> {
        self.places.iter().for_each(Place::tidy);
        self.places.iter().filter_map(Place::summary).collect()
    }
}

impl Place {
    fn new(path: PathBuf) -> Place {
        Place { path, open: None, files: 0, first: None }
    }

    fn save(
        &mut self,
        number: u64,
        shown: &Path,
        entry: &Entry,
        what: &mut Saved<'_>,
    ) -> Option<PathBuf> {
        if self.open.is_none() {
            self.open = open(&self.path).ok();
        }
        let open = self.open.as_mut()?;
        let is_there = |path: &PathBuf| {
            let path = self.path.join(path);
            let directory = entry.kind == Kind::Directory && open.beneath.is_directory(&path);
            // What leads to something that is saved may be made already.
            directory || open.is_free(&path)
        };
        let tree = in_tree(shown).filter(is_there);
        let saved = match tree {
            Some(path) => path,
            None => in_deep(number, shown),
        };
        let entry = Entry { saved: Text::of(&saved), ..entry.clone() };
        let path = self.path.join(&saved);
        open.save(&self.path, &path, &entry, what).ok()?;
        let file = entry.kind == Kind::File;
        self.files += u64::from(entry.kind != Kind::Directory);
        if self.first.as_ref().is_none_or(|first| file && !first.file) {
            let (place, why) = (shown.to_owned(), entry.why);
            self.first = Some(First { place, saved: path.clone(), why, file });
        }
        Some(path)
    }

    /// Removes a directory that was made in vain.
    fn tidy(&self) {
        if let (Some(open), None) = (&self.open, &self.first) {
            // What cannot be removed is listed as empty.
            let _ = open.beneath.remove_tree(&self.path);
        }
    }

    fn summary(&self) -> Option<String> {
        let First { place, saved, why, .. } = self.first.as_ref()?;
        let more = self.files.saturating_sub(1);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let id = id_of(&self.path).unwrap_or_default();
        let saved = if self.files == 1 { saved } else { &self.path };
        let (place, saved) = (shortened(place), saved.display());
        let how = format!("`husk rescue restore {id}` puts back what is saved");
        Some(format!("{place}{more}: {why}; {how}; saved as {saved}"))
    }
}

impl Open {
    fn is_free(&self, path: &Path) -> bool {
        // An error that is no answer is found when it is made.
        !matches!(self.beneath.found(path), Ok(Some(_)))
    }

    fn save(
        &mut self,
        top: &Path,
        path: &Path,
        entry: &Entry,
        what: &mut Saved<'_>,
    ) -> io::Result<()> {
        let beneath = &self.beneath;
        let mut leading = top.to_owned();
        let parent = path.parent().unwrap_or(top);
        for name in parent.strip_prefix(top).unwrap_or(Path::new("")) {
            leading.push(name);
            if !beneath.is_directory(&leading) {
                beneath.make_directory(&leading)?;
            }
        }
        // Invariant 3.
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        before("write")?;
        let end = self.list.stream_position()?;
        if let Err(problem) = self.list.write_all(&line).and_then(|()| sync(&self.list)) {
            // A full disk may take half a line, and the next one would be lost with it.
            let _ = self.list.set_len(end).and_then(|()| self.list.seek(SeekFrom::Start(end)));
            return Err(problem);
        }
        match what {
            Saved::Directory if beneath.is_directory(path) => {}
            Saved::Directory => drop(beneath.make_directory(path)?),
            Saved::Symlink(target) => drop(beneath.make_symlink(target, path)?),
            Saved::Name(saved) => beneath.link(&beneath.hold(saved)?, path)?,
            Saved::File(fill) => {
                let file = beneath.create(path)?;
                let filled = fill(&file).and_then(|()| sync(&file));
                if filled.is_err() {
                    // Half a file takes room that the next one may need.
                    let _ = beneath.remove(path);
                }
                filled?;
            }
        }
        beneath.sync_directory(parent)
    }
}

/// `/srv/a` is `tree/srv/a`.
fn in_tree(shown: &Path) -> Option<PathBuf> {
    let below = shown.strip_prefix("/").ok()?;
    (shown.as_os_str().len() <= TREE_PATH_BYTES_MAX).then(|| Path::new("tree").join(below))
}

fn in_deep(number: u64, shown: &Path) -> PathBuf {
    let name = shown.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|&at| name.is_char_boundary(at));
    Path::new("deep").join(format!("{number}-{}", &name[..end.unwrap_or(0)]))
}

/// A path for a line: of a very long one the beginning and the end.
fn shortened(path: &Path) -> String {
    let text = path.display().to_string();
    if text.len() <= SHOWN_BYTES_MAX {
        return text;
    }
    let half = SHOWN_BYTES_MAX / 2;
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let begin = (0..=half).rev().find(is_boundary).unwrap_or(0);
    let end = (text.len() - half..text.len()).find(is_boundary).unwrap_or(text.len());
    format!("{}...{}", &text[..begin], &text[end..])
}

/// What a rescue is called, by its directory.
pub fn id_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)
}

/// Directories that are there and in which something would be saved, one after the other. Of one
/// that is yet to be made, the one that it will be in.
pub fn bases() -> impl Iterator<Item = PathBuf> {
    let there = |path: PathBuf| path.ancestors().find(|path| path.exists()).map(Path::to_owned);
    state::base().into_iter().chain(EVERYBODYS.map(PathBuf::from)).filter_map(there)
}

fn places() -> Vec<Place> {
    let own = State::make().ok().and_then(|state| Some(state.path.parent()?.to_owned()));
    let bases = own.into_iter().chain(EVERYBODYS.map(PathBuf::from));
    bases.filter_map(|base| place_in(&base)).collect()
}

/// One in a new directory in `base`, reached over no link.
fn place_in(base: &Path) -> Option<Place> {
    let base = fs::canonicalize(base).ok()?;
    Some(Place::new(base.join(format!("{PREFIX}{}", host::unguessable()))))
}

/// Makes the directory of a rescue (invariant 1).
fn open(path: &Path) -> io::Result<Open> {
    let beneath = Beneath::new([path.parent().unwrap_or(path)]);
    beneath.make_directory(path)?;
    let list = beneath.create(&path.join(LIST))?;
    Ok(Open { beneath, list })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_back::host::beneath::schedule;
    use husk_proto::fs::{Backing, Step};
    use std::os::unix::fs::MetadataExt;

    fn attributes() -> Attributes {
        let inode = husk_proto::Inode { number: 1, generation: 1 };
        let kind = husk_proto::fs::Kind::File;
        Attributes {
            step: Step { inode, kind, mode: 0o640, uid: 0, gid: 0, unlisted: false, acl: false },
            shown_device: 0,
            shown_number: 1,
            links: 1,
            size: 1,
            blocks_512: 0,
            device: 0,
            accessed_ns: 0,
            modified_ns: 0,
            changed_ns: 0,
            born_ns: 0,
            backing: Backing::Image,
            extended: Backing::Image,
            origin: None,
            replaced: false,
        }
    }

    fn text(bytes: &'static [u8]) -> impl FnMut(&File) -> io::Result<()> {
        move |mut file: &File| file.write_all(bytes)
    }

    #[test]
    fn what_one_place_does_not_take_the_next_does() {
        let scratch = tempfile::tempdir().unwrap();
        let (full, free) = (scratch.path().join("full"), scratch.path().join("free"));
        let places = vec![Place::new(full.clone()), Place::new(free.clone())];
        let mut rescue = Rescue { places, asked: true, ..Rescue::default() };
        let mut tries = 0;
        let mut fill = |mut file: &File| {
            tries += 1;
            if tries == 1 { Err(io::ErrorKind::StorageFull.into()) } else { file.write_all(b"x") }
        };
        let name = PathBuf::from("/").join("n".repeat(255));
        let wanted = attributes();
        assert!(rescue.save(&name, (&wanted, None), "full", &mut Saved::File(&mut fill)));
        assert_eq!(fs::read(free.join("tree").join("n".repeat(255))).unwrap(), b"x");
        assert_eq!(fs::read_dir(full.join("tree")).unwrap().count(), 0);
        assert_eq!(rescue.summary().len(), 1);
        assert!(!full.exists() && free.exists(), "what was made in vain goes");
    }

    #[test]
    fn trees_stay_trees_and_one_line_tells_of_all() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().join("husk-rescue-x");
        let mut rescue = Rescue::into_directory(top.clone());
        let wanted = attributes();
        let mut save = |path: &str, what: &mut Saved<'_>| {
            assert!(rescue.save(Path::new(path), (&wanted, None), "no room", what), "{path}");
        };
        save("/none/d", &mut Saved::Directory);
        save("/none/d/a", &mut Saved::File(&mut text(b"a")));
        save("/none/d/l", &mut Saved::Symlink(Path::new("a")));
        save("/none/e/b", &mut Saved::File(&mut text(b"b")));
        save("/none/e", &mut Saved::Directory);
        // The same again, and one whose path is too long.
        save("/none/d/a", &mut Saved::File(&mut text(b"again")));
        let deep = format!("/none{}/low", "/d".repeat(2000));
        save(&deep, &mut Saved::File(&mut text(b"low")));
        let read = |path: &str| fs::read_to_string(top.join(path)).unwrap();
        assert_eq!((read("tree/none/d/a"), read("tree/none/e/b")), ("a".into(), "b".into()));
        assert_eq!(fs::read_link(top.join("tree/none/d/l")).unwrap(), Path::new("a"));
        assert_eq!((read("deep/6-a"), read("deep/7-low")), ("again".into(), "low".into()));
        assert_eq!(read(LIST).lines().count(), 7);
        assert_eq!(
            rescue.summary(),
            [format!(
                "/none/d/a and 4 more: no room; `husk rescue restore x` puts back what is saved; \
                 saved as {}",
                top.display()
            )]
        );
    }

    #[test]
    fn names_of_one_file_stay_names_of_one_and_attributes_are_listed() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().join("husk-rescue-x");
        let mut rescue = Rescue::into_directory(top.clone());
        let wanted = Attributes { links: 2, ..attributes() };
        let extended = vec![(c"user.k".to_owned(), b"v\xff".to_vec())];
        for path in ["/none/a", "/none/d/b"] {
            let mut fill = text(b"x");
            let what = &mut Saved::File(&mut fill);
            let attributes = (&wanted, Some(&extended));
            assert!(rescue.save(Path::new(path), attributes, "no room", what), "{path}");
        }
        let number = |path| fs::metadata(top.join(path)).unwrap().ino();
        assert_eq!(number("tree/none/a"), number("tree/none/d/b"));
        let list = fs::read_to_string(top.join(LIST)).unwrap();
        let entries: Vec<Entry> =
            list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let first = entries[1].same_as.as_ref().map(Text::path);
        assert_eq!((&entries[0].same_as, first), (&None, Some("/none/a".into())));
        let value = (Bytes::of(b"user.k"), Bytes::of(b"v\xff"));
        assert!(entries.iter().all(|one| one.extended == Some(vec![value.clone()])));
    }

    #[test]
    fn a_line_that_the_disk_did_not_take_is_in_no_other_s_way() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().join("husk-rescue-x");
        let mut rescue = Rescue::into_directory(top.clone());
        let mut save = |path: &str, fails: &'static str| {
            let plan = move |call| match call == fails {
                true => Err(rustix::io::Errno::NOSPC.into()),
                false => Ok(()),
            };
            let mut fill = text(b"x");
            let what = &mut Saved::File(&mut fill);
            schedule::during(plan, || {
                rescue.save(Path::new(path), (&attributes(), None), "full", what)
            })
        };
        assert!(save("/none/a", ""));
        assert!(!save("/none/b", "fsync"));
        assert!(save("/none/c", ""));
        let list = fs::read_to_string(top.join(LIST)).unwrap();
        let places = list.lines().map(|line| {
            let entry: Entry = serde_json::from_str(line).unwrap();
            entry.place.path()
        });
        assert_eq!(places.collect::<Vec<_>>(), [Path::new("/none/a"), Path::new("/none/c")]);
    }

    #[test]
    fn nothing_is_saved_where_somebody_else_has_made_something() {
        let scratch = tempfile::tempdir().unwrap();
        let taken = scratch.path().join("taken");
        std::os::unix::fs::symlink(scratch.path(), &taken).unwrap();
        let mut rescue = Rescue::into_directory(taken);
        let (wanted, mut fill) = (attributes(), text(b"x"));
        assert!(!rescue.save(
            Path::new("/f"),
            (&wanted, None),
            "full",
            &mut Saved::File(&mut fill)
        ));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        assert!(rescue.summary().is_empty());
    }

    /// What somebody puts in the place of a directory: a link, or another directory.
    fn swap(path: &Path, theirs: &Path, link: bool) -> io::Result<()> {
        if fs::rename(path, theirs.with_file_name("away")).is_ok() {
            match link {
                true => std::os::unix::fs::symlink(theirs, path)?,
                false => fs::rename(theirs, path)?,
            }
        }
        Ok(())
    }

    /// Somebody swaps before the n-th host call; whether there was one. What they put there gets
    /// nothing: of a directory in the place of that above the rescue, if it was there before the
    /// rescue, at most a directory that nobody else can enter.
    fn saved_beside(n: u32, link: bool, above: bool) -> bool {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let (base, theirs) = (at("base"), at("theirs"));
        let top = base.join("husk-rescue-x");
        fs::create_dir(&base).unwrap();
        fs::create_dir(&theirs).unwrap();
        let which = fs::metadata(&theirs).unwrap().ino();
        let begin = std::time::Instant::now();
        while begin.elapsed() < std::time::Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let swapped = if above { base.clone() } else { top.clone() };
        let count = std::rc::Rc::new(std::cell::Cell::new(0));
        let (seen, by) = (std::rc::Rc::clone(&count), theirs.clone());
        let plan = move |_| {
            count.set(count.get() + 1);
            if count.get() == n { swap(&swapped, &by, link) } else { Ok(()) }
        };
        let mut rescue = Rescue::into_directory(top.clone());
        let saved = schedule::during(plan, || {
            ["/none/a", "/none/d/b"].map(|path| {
                let mut fill = text(b"ours");
                let what = &mut Saved::File(&mut fill);
                rescue.save(Path::new(path), (&attributes(), None), "no room", what)
            })
        });
        let there = [&base, &top, &theirs].map(|path| fs::canonicalize(path).ok());
        let mut there = there.into_iter().flatten();
        let theirs = there.find(|path| fs::metadata(path).unwrap().ino() == which).unwrap();
        for entry in fs::read_dir(theirs).unwrap().map(Result::unwrap) {
            let mode = entry.metadata().unwrap().mode() & 0o7777;
            let closed = entry.file_name() == "husk-rescue-x" && mode == 0o700;
            assert!(above && !link && closed, "call {n}: {entry:?} {mode:o}");
        }
        // What is said to be saved is there.
        let here = [top, at("away"), at("away").join("husk-rescue-x")];
        for (path, saved) in ["tree/none/a", "tree/none/d/b"].into_iter().zip(saved) {
            let is_there = here.iter().any(|one| one.join(path).is_file());
            assert!(is_there || !saved, "call {n}: {path}");
        }
        assert!(seen.get() >= n || saved == [true, true]);
        seen.get() >= n
    }

    #[test]
    fn whoever_swaps_the_directory_of_a_rescue_or_that_above_it_gets_nothing_of_it() {
        for (link, above) in [(true, false), (false, false), (true, true), (false, true)] {
            let calls = (1..1000).take_while(|&n| saved_beside(n, link, above)).count();
            assert!(calls > 10, "{calls} host calls");
        }
    }
}
