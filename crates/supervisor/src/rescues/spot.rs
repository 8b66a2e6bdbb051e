//! The place of a saved object: what is there, and how the object gets there.
//!
//! ```text
//!   copy it to a name that nobody can guess ─► give it its name ─► is it the copy? ─► sync
//!     ─► what was there goes ─► it is no longer saved
//! ```
//!
//! Invariants
//! 1. What was there, or came there meanwhile, has a name at each moment; what somebody else has
//!    put there is not removed.
//! 2. Killed at any moment, the next `restore` finds the object saved, or in its place, or both.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use husk_proto::fs::HostIdentity;
use rustix::fs::RenameFlags;

use super::State;
use super::made::Made;
use crate::output::typed::typed;
use crate::run::request::reason;
use crate::write_back::host::Names;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{
    Beneath, Object as Which, lacks_flag, object_of, read_at, set_len, sync, write_all_at,
};
use crate::write_back::host::extended::{self, Extended};
use crate::write_back::plan::beside;
use crate::write_back::record::manifest::Bytes;
use crate::write_back::rescue::{Entry, Kind, numbers};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;
/// What work in a directory takes.
const OWNER_ALL: u32 = 0o700;
/// Names that are tried for what is kept beside another.
const BESIDES_MAX: u32 = 20;

/// Where an object should have been.
pub(super) struct Spot {
    pub beneath: Beneath,
    pub place: PathBuf,
}

impl Spot {
    /// Reached over no link; an error: it is not a place on this host.
    pub fn of(place: &Path) -> io::Result<Spot> {
        let plain = place.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        if !place.is_absolute() || !plain || place.parent().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The uppermost directory is opened by its path, which leads over no link either.
        let top: PathBuf = place.components().take(2).collect();
        let root = if top == place { PathBuf::from("/") } else { top };
        Ok(Spot { beneath: Beneath::new([&*root]).deep(), place: place.to_owned() })
    }

    /// What is there, if the object is saved as `saved`.
    pub fn state(&self, entry: &Entry, made: &Made<'_>, saved: &Path) -> State {
        match (self.beneath.hold_if_there(&self.place), entry.kind) {
            (Ok(Some(held)), Kind::Directory) if held.found().is_dir() => State::There,
            (Ok(Some(held)), kind) if kind != Kind::Directory => {
                match entry.before.is_some_and(|before| is_as(&held.identity(), before, made)) {
                    true => State::Ready,
                    false if has_it(&held, entry, made.own, saved).unwrap_or(false) => State::There,
                    false => State::Changed,
                }
            }
            (Ok(None), _) if entry.before.is_none() => State::Ready,
            _ => State::Changed,
        }
    }

    /// The directory that is there, if an earlier `restore` has made it; it is opened to its owner,
    /// who is about to put more into it.
    pub fn open_again(&self, made: &Made<'_>) -> Option<Which> {
        let held = self.beneath.hold_if_there(&self.place).ok()??;
        if !made.has(held.found()) {
            return None;
        }
        // What cannot be put into it is told.
        let _ = held.unlock();
        Some(object_of(held.found()))
    }

    /// Gives a directory that was made here its attributes, when all that is in it is there.
    pub fn finish(&self, entry: &Entry, which: Which, notes: &mut Vec<String>) -> io::Result<()> {
        let held = self.beneath.hold(&self.place)?;
        match object_of(held.found()) == which {
            true => self.dress(&held, entry, notes),
            false => Err(changing()),
        }
    }

    /// Makes the directory; which one it is. It has a name when it is noted.
    pub fn make_directory(&self, made: &mut Made<'_>) -> io::Result<Which> {
        let Spot { beneath, place } = self;
        let directory = place.parent().unwrap_or(place);
        let new = Names::of_this_process().fresh(directory);
        let held = beneath.make_directory(&new)?;
        // Without a note it keeps what it has if this is killed.
        let _ = made.note(held.found());
        let which = object_of(held.found());
        let named = beneath.rename(&new, place, RenameFlags::NOREPLACE);
        if named.is_err() && self.at(&new) == Some(which) {
            // It is of no use, and empty.
            let _ = beneath.remove_shallow(&new);
        }
        named?;
        beneath.sync_directory(directory)?;
        if self.at(place) == Some(which) { Ok(which) } else { Err(changing()) }
    }

    /// Puts a file or link there that `saved` has (invariants 2 and 3 of the module above).
    pub fn put(
        &self,
        entry: &Entry,
        log: &mut Made<'_>,
        saved: &Path,
        notes: &mut Vec<String>,
    ) -> io::Result<()> {
        let (Spot { beneath, place }, own) = (self, log.own);
        let directory = place.parent().unwrap_or(place);
        let new = Names::of_this_process().fresh(directory);
        let made = self.make(entry, own, saved, &new, notes);
        let ours = made.as_ref().ok().copied().or_else(|| self.at(&new));
        let done = made.and_then(|made| self.give(entry, &new, made, log));
        if done.is_err() && ours.is_some() && self.at(&new) == ours {
            // What was not given its name is of no use.
            let _ = beneath.remove(&new);
        }
        done?;
        self.forget(own, saved)
    }

    /// Removes what is saved, as its place has it, durably.
    pub fn forget(&self, own: &Beneath, saved: &Path) -> io::Result<()> {
        self.beneath.sync_directory(self.place.parent().unwrap_or(&self.place))?;
        own.remove(saved)
    }

    fn make(
        &self,
        entry: &Entry,
        own: &Beneath,
        saved: &Path,
        new: &Path,
        notes: &mut Vec<String>,
    ) -> io::Result<Which> {
        if entry.kind == Kind::Symlink {
            let target = own.hold(saved)?.read_link()?;
            let made = self.beneath.make_symlink(&target, new)?;
            self.dress(&made, entry, notes)?;
            return Ok(object_of(made.found()));
        }
        if let Some(first) = &entry.same_as {
            let first = first.path();
            if let Some(which) = self.linked(entry, &first, own, saved, new) {
                return Ok(which);
            }
            let (place, first) = (typed(&self.place), typed(&first));
            notes.push(format!("{place} is a file of its own now, not another name of {first}"));
        }
        let (source, target) = (own.read(saved)?, self.beneath.create(new)?);
        copy(&source, &target)?;
        let made = Held::of_file(target)?;
        self.dress(&made, entry, notes)?;
        sync(made.file()?)?;
        Ok(object_of(made.found()))
    }

    /// Another name of the file whose first name is in its place by now; `None`: it has to be a
    /// file of its own.
    fn linked(
        &self,
        entry: &Entry,
        first: &Path,
        own: &Beneath,
        saved: &Path,
        new: &Path,
    ) -> Option<Which> {
        let first = Spot::of(first).ok()?;
        let held = first.beneath.hold_if_there(&first.place).ok()??;
        if !has_it(&held, entry, own, saved).ok()? {
            return None;
        }
        self.beneath.link(&held, new).ok()?;
        Some(object_of(held.found()))
    }

    /// Gives an object the attributes that it had in the image. The host may refuse extended ones:
    /// that is noted.
    fn dress(&self, held: &Held, entry: &Entry, notes: &mut Vec<String>) -> io::Result<()> {
        let owner = (entry.uid, entry.gid);
        if entry.kind == Kind::Symlink {
            return held.set_plain(owner, entry.mode, entry.modified_ns);
        }
        let wanted = self.wanted(entry);
        let mode = match &wanted {
            Some(_) => entry.mode,
            None => extended::without_list(entry.mode),
        };
        // Nobody else has anything of it before it has its list.
        held.set_plain(owner, mode & OWNER_ALL, entry.modified_ns)?;
        let wanted = wanted.unwrap_or_default();
        let set = if wanted.is_empty() {
            extended::forget_lists(held)
        } else {
            extended::set_even_closed(held, &wanted)
        };
        if let Err(problem) = set {
            notes.push(format!("{}: {}", typed(&self.place), reason(&problem)));
        }
        held.set_mode(mode)?;
        held.set_times(entry.modified_ns, entry.modified_ns, held.found().is_dir())
    }

    /// The extended attributes that it is to have, if they are known.
    fn wanted(&self, entry: &Entry) -> Option<Extended> {
        if let Some(all) = &entry.extended {
            let name = |name: &Bytes| CString::new(name.bytes()).ok();
            let one = |(key, value): &(Bytes, Bytes)| Some((name(key)?, value.bytes().to_vec()));
            return Some(all.iter().filter_map(one).collect());
        }
        let before = entry.before?;
        let held = self.beneath.hold_if_there(&self.place).ok()??;
        let same = numbers(&held.identity()) == before;
        same.then(|| extended::even_unreadable(&held).ok())?
    }

    /// What is at a path.
    fn at(&self, path: &Path) -> Option<Which> {
        self.beneath.identity(path).ok().flatten().map(|one| one.object())
    }

    /// Gives what was `made` as `new` its name.
    fn give(&self, entry: &Entry, new: &Path, made: Which, log: &mut Made<'_>) -> io::Result<()> {
        let Spot { beneath, place } = self;
        let Some(before) = entry.before else {
            beneath.rename(new, place, RenameFlags::NOREPLACE)?;
            return if self.at(place) == Some(made) { Ok(()) } else { Err(changing()) };
        };
        match beneath.rename(new, place, RenameFlags::EXCHANGE) {
            Err(problem) if lacks_flag(&problem) && self.is_still(before, log) => {
                beneath.rename(new, place, RenameFlags::empty())?;
                return if self.at(place) == Some(made) { Ok(()) } else { Err(changing()) };
            }
            exchanged => exchanged?,
        }
        // A rename changes the time of the last status change on most file systems.
        let same = |found: HostIdentity| numbers(&found)[..4] == before[..4];
        match (beneath.identity(new), beneath.identity(place)) {
            (Ok(Some(old)), Ok(Some(now))) if same(old) && now.object() == made => {
                beneath.remove(new)
            }
            // Somebody has taken the temporary name, or has just replaced what was put there.
            (Ok(Some(old)), Ok(_)) if same(old) => Err(self.aside(new)),
            (Err(problem), _) | (_, Err(problem)) => Err(self.take_back(new, made, problem, log)),
            _ => Err(self.take_back(new, made, changing(), log)),
        }
    }

    /// What was there gets its name again; what to say.
    fn take_back(&self, new: &Path, made: Which, why: io::Error, log: &mut Made<'_>) -> io::Error {
        match self.beneath.rename(new, &self.place, RenameFlags::EXCHANGE) {
            Ok(()) if self.at(new) == Some(made) => {
                if let Ok(Some(found)) = self.beneath.identity(&self.place) {
                    // Without a note it has changed.
                    let _ = log.note_renamed(&found);
                }
                why
            }
            _ => self.aside(new),
        }
    }

    fn is_still(&self, before: [i128; 5], log: &Made<'_>) -> bool {
        let found = self.beneath.identity(&self.place).ok().flatten();
        found.is_some_and(|found| is_as(&found, before, log))
    }

    /// Gives what is at `new`, which is not ours to remove, a name beside the place; what to say.
    fn aside(&self, new: &Path) -> io::Error {
        for n in 0..BESIDES_MAX {
            let aside = beside(&self.place, std::process::id().wrapping_add(n));
            match self.beneath.rename(new, &aside, RenameFlags::NOREPLACE) {
                Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {}
                Ok(()) => {
                    let aside = aside.display();
                    return io::Error::other(format!("{}; what was there is {aside}", changing()));
                }
                Err(_) => break,
            }
        }
        io::Error::other(format!("{}; what was there is {}", changing(), new.display()))
    }
}

/// Whether what was `found` is as it was.
fn is_as(found: &HostIdentity, before: [i128; 5], log: &Made<'_>) -> bool {
    let now = numbers(found);
    now == before || now[..4] == before[..4] && log.has_renamed(found)
}

/// Whether what is `held` is the object, as somebody leaves it who is killed between putting it in
/// its place and removing what is saved.
fn has_it(held: &Held, entry: &Entry, own: &Beneath, saved: &Path) -> io::Result<bool> {
    let found = held.found();
    if held.identity().modified_ns != entry.modified_ns {
        return Ok(false);
    }
    if entry.kind == Kind::Symlink {
        return Ok(found.is_symlink() && held.read_link()? == own.hold(saved)?.read_link()?);
    }
    let mode = found.mode() & 0o7777 == entry.mode;
    Ok(mode && found.is_file() && same(&own.read(saved)?, &held.read()?)?)
}

fn changing() -> io::Error {
    io::Error::other("it changes at this moment")
}

fn copy(source: &File, target: &File) -> io::Result<()> {
    let (mut bytes, mut at) = (vec![0; COPY_BYTES], 0);
    loop {
        let count = read_at(source, &mut bytes, at)?;
        if count == 0 {
            return set_len(target, at);
        }
        // Holes stay holes.
        if bytes[..count].iter().any(|&byte| byte != 0) {
            write_all_at(target, &bytes[..count], at)?;
        }
        at += count as u64;
    }
}

/// Whether two files have the same bytes; the second one is durable then.
fn same(one: &File, other: &File) -> io::Result<bool> {
    let (size, mut at) = (one.metadata()?.len(), 0);
    if other.metadata()?.len() != size {
        return Ok(false);
    }
    let mut both = [vec![0; COPY_BYTES], vec![0; COPY_BYTES]];
    while at < size {
        let [mine, theirs] = &mut both;
        let count = read_at(one, mine, at)?;
        if count == 0 || other.read_exact_at(&mut theirs[..count], at).is_err() {
            return Ok(false);
        }
        if mine[..count] != theirs[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
    sync(other).map(|()| true)
}
