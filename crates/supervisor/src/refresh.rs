//! `husk refresh`: takes in what programs outside have changed below an image's overlays.
//!
//! ```text
//!   each listed directory of the image ◄── compared with ──► the host's
//!     same object as at the last look     nothing
//!     other, the image's is unchanged     renew: name, size, times and bytes of one moment
//!     came, went                          import_late, forget
//!     came, of a file known by another    the same inode (`links`)
//!     other, the image's as written back  give_back (`back`)
//!     other mode or owner, same content   take_rights (`rights`)
//!     other, and the image's changed too  a conflict, told; both stay as they are
//! ```
//!
//! Invariants
//! 1. Directories that nobody in the image has listed are not looked at: they are new anyway.
//! 2. Programs of the image go on; each object is taken in by one operation.
//! 3. What a write-back has put on the host (`ledger`) is no change of others. It is the host's
//!    again once the host changes it, as long as the image does not.
//! 4. The host is reached beneath the overlays' roots only. What cannot be looked at is told, and
//!    has not gone.

mod back;
mod both;
mod indexes;
mod links;
mod rights;
mod ruled;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use husk_carrier::Direct;
use husk_proto::fs::{Attributes, HostIdentity, Imported, Kind, Origin};
use husk_proto::image::Image as _;
use husk_proto::{Credentials, Errno, Fs, Inode};
use serde::Serialize;

use self::back::Back;
use self::links::Known;
use crate::image::attach::Visit;
use crate::named::{self, Place, Turn};
use crate::output::failure::Failure;
use crate::run::request::reason;
use crate::write_back::host::beneath::Beneath;
use crate::write_back::host::beneath::schedule::before;
use crate::write_back::plan::derived;
use crate::write_back::record::ledger::{Entry, Ledger};
use crate::write_back::{Overlay, host, origin_path};

/// All rights: what happens here has happened on the host.
const ALL: Credentials<'_> =
    Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };

/// Directories, and their inodes in the image.
pub type Changed = BTreeMap<PathBuf, Inode>;

/// How long a write-back is waited for.
const TURN_MAX: Duration = Duration::from_secs(30);

/// What was taken in.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
pub struct Refreshed {
    /// Objects that are others on the host, or have other attributes.
    pub renewed: u64,
    /// Names that came.
    pub added: u64,
    /// Names that went.
    pub removed: u64,
    /// What both sides have changed, one line each: each keeps its own.
    pub conflicts: Vec<String>,
    /// What could not be looked at, one line each.
    pub failures: Vec<String>,
}

impl Refreshed {
    /// Nothing was left as it is.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.failures.is_empty()
    }
}

/// Takes in what has changed at and below `path`, or in all overlays of the image.
pub fn refresh(name: &str, path: Option<&Path>) -> Result<Refreshed, Failure> {
    let mut session = Session::begin(name)?;
    let starts = session.starts(name, path)?;
    let Some(_turn) = session.turn(TURN_MAX) else {
        let (what, why) = (format!("cannot refresh image {name}"), "it is being written back");
        return Err(Failure::new(what, why, "try again when that has ended"));
    };
    Ok(session.look(|look| {
        for (inode, path) in starts {
            look.below(inode, path);
        }
    }))
}

/// An image that is compared with the host again and again.
pub struct Session {
    place: Option<Place>,
    visit: Visit,
}

impl Session {
    /// Finds it.
    pub fn begin(name: &str) -> Result<Session, Failure> {
        Ok(Session { visit: Visit::of(name)?, place: named::place_of(name) })
    }

    /// The turn, before a look; `None`: it does not come within `wait`. Who has it asks the
    /// supervisor nothing, which may wait for it.
    pub(crate) fn turn(&self, wait: Duration) -> Option<Option<Turn>> {
        named::turn(self.place.as_ref(), wait)
    }

    /// The directories to begin with: those of the overlays, or `path`.
    pub fn starts(&mut self, name: &str, path: Option<&Path>) -> Result<Vec<Overlay>, Failure> {
        let overlays = self.visit.overlays();
        let ledger = Ledger::default();
        Look::new(&mut self.visit.direct, &overlays, ledger).starts(name, path, overlays)
    }

    /// What a look at these directories, and not below them, takes in. `None`: the image ends, and
    /// what changes is its write-back.
    pub fn look_at(&mut self, directories: &Changed) -> Option<Refreshed> {
        let ends = self.place.as_ref().is_some_and(|place| place.is_ending().is_some());
        let all = |look: &mut Look<'_>| {
            for (path, inode) in directories {
                look.only(*inode, path);
            }
        };
        (!ends).then(|| self.look(all))
    }

    /// Directories at and below `starts` that are in their place and that the image has listed.
    pub fn listed(&mut self, starts: &[Overlay]) -> Vec<(PathBuf, Inode)> {
        let (mut listed, mut open) = (Vec::new(), starts.to_vec());
        let ledger = self.place.as_ref().map(|place| Ledger::at(place.ledger()));
        let ledger = ledger.unwrap_or_default();
        let mut look = Look::new(&mut self.visit.direct, &[], ledger);
        while let Some((inode, path)) = open.pop() {
            let Ok(below) = look.directories(inode, &path) else { continue };
            open.extend(below.into_iter().map(|(name, inode)| (inode, path.join(name))));
            listed.push((path, inode));
        }
        listed
    }

    /// Looks, with what write-backs have put on the host until now.
    fn look(&mut self, at: impl FnOnce(&mut Look<'_>)) -> Refreshed {
        let ledger = self.place.as_ref().map(|place| Ledger::at(place.ledger()));
        self.place.iter().for_each(|place| derived::recall(&place.indexes()));
        let overlays = self.visit.overlays();
        let ledger = ledger.unwrap_or_default();
        Look::new(&mut self.visit.direct, &overlays, ledger).whole(|look| {
            at(look);
            look.place_all(overlays);
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.visit.direct.detach();
    }
}

struct Look<'a> {
    image: &'a mut Direct,
    overlays: Vec<Overlay>,
    ledger: Ledger,
    told: Refreshed,
    /// What is given back at the end (`back`): names of directories that have gone apart.
    backs: Vec<Back>,
    gone: Vec<Back>,
    /// Of these the ledger forgets what has gone in the image by then: path, directory, inode.
    returning: Vec<(PathBuf, Inode, Inode)>,
    /// Of these it forgets all.
    dropped: Vec<PathBuf>,
    /// Which inode has which file of the host (`links`), once that is asked.
    known: Option<Known>,
    /// Files that are no longer under the name that they were imported by.
    unplaced: HashSet<Inode>,
    /// Indexes of git, and the directories that they are in.
    indexes: Vec<(Inode, PathBuf)>,
}

/// A name on the host.
struct There {
    found: Metadata,
    target: PathBuf,
}

impl There {
    /// What is at `path`; `None`: nothing.
    fn of(beneath: &Beneath, path: &Path) -> io::Result<Option<There>> {
        let Some(held) = beneath.hold_if_there(path)? else { return Ok(None) };
        let found = held.found().clone();
        let target = if found.is_symlink() { held.read_link()? } else { PathBuf::new() };
        Ok(Some(There { found, target }))
    }

    fn imported<'a>(&'a self, name: &'a OsStr, kind: Kind) -> Imported<'a> {
        host::imported(name, kind, &self.found, &self.target)
    }
}

impl<'a> Look<'a> {
    fn new(image: &'a mut Direct, overlays: &[Overlay], ledger: Ledger) -> Look<'a> {
        let (told, backs, gone, returning, dropped) = Default::default();
        let (known, unplaced, indexes) = Default::default();
        Look {
            image,
            overlays: overlays.to_vec(),
            ledger,
            told,
            backs,
            gone,
            returning,
            dropped,
            known,
            unplaced,
            indexes,
        }
    }

    /// The way to the host, for one look: what somebody replaces meanwhile is another one then.
    fn beneath(&self) -> Beneath {
        Beneath::new(self.overlays.iter().map(|(_, root)| &**root))
    }

    /// What is at `path`.
    fn there(&self, path: &Path) -> io::Result<Option<There>> {
        There::of(&self.beneath(), path)
    }

    fn fail(&mut self, path: &Path, problem: &io::Error) {
        self.told.failures.push(format!("{}: {}", path.display(), reason(problem)));
    }

    /// All that is looked at, and given back.
    fn whole(mut self, at: impl FnOnce(&mut Self)) -> Refreshed {
        // Of what a refresh that was killed has given back.
        let settled = self.ledger.returned(self.image, &[]);
        if let Err(problem) = settled {
            self.told.failures.push(format!("cannot record what is there: {}", reason(&problem)));
        }
        at(&mut self);
        self.give_all_back();
        self.fit_indexes();
        if let Err(problem) = self.ledger.save_if_changed() {
            let why = reason(&problem);
            self.told.failures.push(format!("cannot record what was taken in: {why}"));
        }
        self.told
    }
}

impl Look<'_> {
    /// The directories to begin with. That of a file is looked at as a whole.
    fn starts(
        &mut self,
        name: &str,
        path: Option<&Path>,
        overlays: Vec<Overlay>,
    ) -> Result<Vec<Overlay>, Failure> {
        let what = || format!("cannot refresh image {name}");
        let Some(path) = path else { return Ok(overlays) };
        let path = std::path::absolute(path).map_err(|problem| {
            Failure::new(what(), format!("{}: {}", path.display(), reason(&problem)), "check it")
        })?;
        let holding = overlays.into_iter().filter(|(_, root)| path.starts_with(root));
        let Some((root, top)) = holding.max_by_key(|(_, root)| root.as_os_str().len()) else {
            let why = format!("{} is in none of its overlays", path.display());
            return Err(Failure::new(what(), why, "see `husk ls --json`"));
        };
        let (mut here, mut at) = (root, top.clone());
        for name in path.strip_prefix(&top).unwrap_or(Path::new("")) {
            let Ok(step) = self.image.lookup(here, name.as_bytes()) else { break };
            if step.kind != Kind::Directory {
                break;
            }
            at.push(name);
            here = step.inode;
        }
        Ok(vec![(here, at)])
    }

    fn below(&mut self, inode: Inode, path: PathBuf) {
        let mut open = vec![(inode, path)];
        while let Some((inode, path)) = open.pop() {
            open.extend(self.only(inode, &path));
        }
    }

    /// One directory; those in it.
    fn only(&mut self, inode: Inode, path: &Path) -> Vec<Overlay> {
        let mut below = Vec::new();
        match self.directory(inode, path, &mut below) {
            // Gone meanwhile, in the image or on the host.
            Ok(()) | Err(Errno::ENOENT | Errno::ESTALE) => {}
            Err(errno) => self.told.failures.push(format!("{}: {errno:?}", path.display())),
        }
        below
    }

    /// Directories in one that is listed, by name: those that are the host's, in their place.
    fn directories(&mut self, dir: Inode, at: &Path) -> Result<Vec<(OsString, Inode)>, Errno> {
        if self.image.step(dir)?.unlisted {
            return Err(Errno::ENOENT);
        }
        let (mut found, mut made, ledger) = (Vec::new(), Vec::new(), &self.ledger);
        self.image.list(dir, 0, &mut |entry| {
            let path = || at.join(OsStr::from_bytes(entry.name));
            let ours = || ledger.here_of(&path(), entry.inode).is_some();
            if entry.kind == Kind::Directory {
                let known = entry.from_host || ours();
                let list = if known { &mut found } else { &mut made };
                list.push((OsString::from_vec(entry.name.to_vec()), entry.inode));
            }
            true
        })?;
        for (name, inode) in made {
            // One that both sides have made (`joined`).
            let shown = self.image.attributes(inode)?;
            if origin_path(self.image, &shown)? == Some(at.join(&name)) {
                found.push((name, inode));
            }
        }
        Ok(found)
    }

    /// One directory that is in its place.
    fn directory(
        &mut self,
        dir: Inode,
        path: &Path,
        open: &mut Vec<(Inode, PathBuf)>,
    ) -> Result<(), Errno> {
        let shown = self.image.attributes(dir)?;
        let beneath = self.beneath();
        let looked = beneath.found(path).and_then(|itself| match itself {
            Some(itself) if itself.is_dir() => Ok(Some((listing(&beneath, path)?, itself))),
            _ => Ok(None),
        });
        let (there, itself) = match looked {
            Ok(Some(looked)) => looked,
            Ok(None) => return Ok(()),
            Err(problem) => {
                self.fail(path, &problem);
                return Ok(());
            }
        };
        let whiteouts = self.whiteouts(dir)?;
        let names = self.names(dir)?;
        for (name, (inode, from_host)) in &names {
            self.name(dir, (name, *inode, *from_host), &path.join(name), &there, &whiteouts, open)?;
        }
        if !shown.step.unlisted {
            for (name, one) in &there {
                if !names.contains_key(name) {
                    self.came(dir, name, one, &path.join(name), &whiteouts, &itself)?;
                }
            }
        }
        let one = There { found: itself, target: PathBuf::new() };
        self.renew(path, dir, &shown, &one).map(|_| ())
    }

    fn name(
        &mut self,
        dir: Inode,
        (name, inode, from_host): (&OsStr, Inode, bool),
        path: &Path,
        there: &HashMap<OsString, There>,
        whiteouts: &HashMap<OsString, Origin>,
        open: &mut Vec<(Inode, PathBuf)>,
    ) -> Result<(), Errno> {
        let shown = self.image.attributes(inode)?;
        let placed = origin_path(self.image, &shown)?.as_deref() == Some(path);
        let in_place = from_host || placed;
        let one = there.get(name);
        let directory = shown.step.kind == Kind::Directory;
        if directory && let Some(one) = one.filter(|one| one.found.is_dir()) {
            let replaced = whiteouts.get(name).copied();
            // The host's name of one below a directory that was moved is still that of before.
            if placed
                || self.settled(dir, inode, path, one)?
                || self.joined((dir, inode), path, &shown, one, replaced)?
            {
                open.push((inode, path.to_owned()));
            }
            return Ok(());
        }
        if self.is_others(path, inode, one) {
            if directory {
                return self.note_directory(dir, inode, path);
            }
            if let Some(one) = one {
                self.remember(dir, path, one);
            }
            self.backs.push(Back { dir, inode, path: path.to_owned() });
            return Ok(());
        }
        if !in_place {
            return self.hidden(path, one, whiteouts.get(name).copied(), (dir, inode));
        }
        match one {
            // Moved here, and not written yet.
            None if matches!(self.ledger.entry(path), Some(Entry::Gone))
                && origin_path(self.image, &shown)?.as_deref() != Some(path) =>
            {
                Ok(())
            }
            None if directory => self.note_directory(dir, inode, path),
            None => self.went(dir, inode, path).map(|_| ()),
            Some(one) => self.is_in_place((dir, inode), (name, path), (&shown, from_host), one),
        }
    }

    /// What is under its own name, and the host has something under that, too (`one`).
    fn is_in_place(
        &mut self,
        (dir, inode): (Inode, Inode),
        (name, path): (&OsStr, &Path),
        (shown, from_host): (&Attributes, bool),
        one: &There,
    ) -> Result<(), Errno> {
        let directory = shown.step.kind == Kind::Directory;
        let kind = host::kind_of(&one.found, shown.shown_device);
        self.remember(dir, path, one);
        if kind == shown.step.kind && !self.is_apart(shown, one)? {
            if shown.links > 1 && from_host && !directory {
                self.place(dir, path, inode, shown, one)?;
            }
            if self.renew(path, inode, shown, one)? {
                return Ok(());
            }
            return self.changed_by_both(path, (dir, inode), shown, one);
        }
        if directory {
            return self.note_directory(dir, inode, path);
        }
        self.name_goes(path, inode)?;
        step("forget")?;
        if !self.image.forget(dir, name.as_bytes(), inode)? {
            return self.changed_by_both(path, (dir, inode), shown, one);
        }
        self.link_up(one, kind)?;
        step("import")?;
        self.image.import_late(dir, &[one.imported(name, kind)])?;
        self.told.renewed += 1;
        Ok(())
    }

    /// What an index of git says now decides at write-back who has changed more of it.
    fn remember(&mut self, dir: Inode, path: &Path, one: &There) {
        let name = path.file_name().unwrap_or_default();
        if derived::is_index(name.as_bytes()) && one.found.is_file() {
            let found = host::identity_of(&one.found);
            self.image.request_remembered(&found, path.as_os_str().as_bytes());
            self.indexes.push((dir, path.to_owned()));
        }
    }

    /// Whether a name has become another file's on the host, where one of both has several.
    fn is_apart(&mut self, shown: &Attributes, one: &There) -> Result<bool, Errno> {
        let several = !one.found.is_dir() && (shown.links > 1 || one.found.nlink() > 1);
        let Some(origin) = shown.origin.filter(|_| several) else { return Ok(false) };
        let (seen, found) = (self.image.host_identity(origin)?, host::identity_of(&one.found));
        Ok(seen.object() != found.object())
    }

    /// Takes attributes of an object in; whether all of it is the host's, as it is now.
    fn renew(
        &mut self,
        path: &Path,
        inode: Inode,
        shown: &Attributes,
        one: &There,
    ) -> Result<bool, Errno> {
        let kind = shown.step.kind;
        let written = self.take_written_rights(path, inode, shown, one)?;
        let Some(origin) = shown.origin else { return Ok(true) };
        let found = host::identity_of(&one.found);
        if self.image.host_identity(origin)? == found {
            if shown.shown_number != found.inode {
                // Who has opened it has taken all in but its number.
                step("renew")?;
                self.image.renew(inode, &one.imported(OsStr::new(""), kind), true)?;
            }
            return Ok(true);
        }
        step("renew")?;
        let renewed = self.image.renew(inode, &one.imported(OsStr::new(""), kind), true)?;
        if renewed && !written {
            self.tell_rights(path, shown, one)?;
        }
        self.told.renewed += u64::from(renewed && kind != Kind::Directory);
        Ok(renewed)
    }

    /// A name of the host that the image does not have.
    fn came(
        &mut self,
        dir: Inode,
        name: &OsStr,
        one: &There,
        path: &Path,
        whiteouts: &HashMap<OsString, Origin>,
        parent: &Metadata,
    ) -> Result<(), Errno> {
        let gone = matches!(self.ledger.entry(path), Some(Entry::Gone));
        if let Some(origin) = whiteouts.get(name).filter(|_| !gone) {
            let seen = match self.ledger.here(path) {
                // Written back, and removed in the image since.
                Some(here) => here.identity,
                None => self.image.host_identity(*origin)?,
            };
            let found = host::identity_of(&one.found);
            if !self.ledger.same(&seen, &found) && !one.found.is_dir() {
                self.conflict(path, "changed on the host, removed in the image");
            }
            return Ok(());
        }
        if self.ledger.here(path).is_some() {
            // Written back, and removed in the image since.
            return Ok(());
        }
        let kind = host::kind_of(&one.found, parent.dev());
        self.remember(dir, path, one);
        self.link_up(one, kind)?;
        step("import")?;
        self.image.import_late(dir, &[one.imported(name, kind)])?;
        self.told.added += 1;
        if one.found.nlink() > 1 && !one.found.is_dir() {
            self.place_name(dir, path, one)?;
        }
        if gone {
            // The image's removal was written back, and the host has made another.
            self.dropped.push(path.to_owned());
        }
        Ok(())
    }

    /// Whether a directory that the image has made or moved, and that a write-back has put where
    /// the host has it still, is the host's from now on.
    fn settled(
        &mut self,
        dir: Inode,
        inode: Inode,
        path: &Path,
        one: &There,
    ) -> Result<bool, Errno> {
        if self.ledger.here_of(path, inode).is_none() {
            return Ok(false);
        }
        self.settle((dir, inode), path, one)
    }

    /// A directory of the image's is the host's at `path` from now on.
    fn settle(
        &mut self,
        (dir, inode): (Inode, Inode),
        path: &Path,
        one: &There,
    ) -> Result<bool, Errno> {
        step("settle")?;
        let name = path.file_name().unwrap_or_default();
        self.image.settle(dir, inode, &one.imported(name, Kind::Directory))
    }

    /// A directory that has gone on the host: all in it goes that the image has not changed, and
    /// then itself. Whether it did.
    fn directory_went(
        &mut self,
        dir: Inode,
        name: &OsStr,
        inode: Inode,
        path: &Path,
    ) -> Result<bool, Errno> {
        let shown = self.image.attributes(inode)?;
        if shown.step.unlisted {
            step("list")?;
            self.image.import_done(inode)?;
        }
        for (name, (below, from_host)) in self.names(inode)? {
            let (path, shown) = (path.join(&name), self.image.attributes(below)?);
            let origin = origin_path(self.image, &shown)?;
            let written = self.ledger.here_of(&path, below).is_some();
            // The image has made it or moved it there: the host has never had it.
            if !from_host && !written && origin.as_deref() != Some(&*path) {
                continue;
            }
            let _ = match shown.step.kind {
                Kind::Directory => self.directory_went(inode, &name, below, &path)?,
                _ => self.went(inode, below, &path)?,
            };
        }
        step("rmdir")?;
        let went = match self.image.forget(dir, name.as_bytes(), inode) {
            // The image has given it this name.
            Ok(false) => self.image.rmdir(&ALL, dir, name.as_bytes()),
            other => other.map(|_| ()),
        };
        match went {
            Ok(()) => {
                self.told.removed += 1;
                Ok(true)
            }
            // What the image has changed in it has been told.
            Err(Errno::ENOTEMPTY) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// What the image has put where the host may have something else by now.
    fn hidden(
        &mut self,
        path: &Path,
        one: Option<&There>,
        replaced: Option<Origin>,
        (dir, inode): (Inode, Inode),
    ) -> Result<(), Errno> {
        let Some(one) = one else { return Ok(()) };
        let found = host::identity_of(&one.found);
        let written = self.ledger.here(path).map(|here| here.identity);
        // Of another inode, too: programs save files under new names.
        let seen = match written {
            Some(written) => Some(written),
            None => self.seen(path, inode, replaced)?,
        };
        match seen {
            Some(seen) if self.ledger.same(&seen, &found) || one.found.is_dir() => {}
            _ if self.is_equal(path, inode, one)? => {}
            _ if self.by_rule((dir, inode), path, one, seen)? => {}
            Some(_) => self.conflict(path, "changed on the host and in the image"),
            None => self.conflict(path, "made on the host and in the image"),
        }
        Ok(())
    }

    /// What the host had at `path` when it was last looked at: what a write-back has put there for
    /// `inode`, or what `origin` says.
    fn seen(
        &mut self,
        path: &Path,
        inode: Inode,
        origin: Option<Origin>,
    ) -> Result<Option<HostIdentity>, Errno> {
        match (self.ledger.here(path), origin) {
            (Some(here), _) if here.is_of(inode) => Ok(Some(here.identity)),
            (_, Some(origin)) => self.image.host_identity(origin).map(Some),
            _ => Ok(None),
        }
    }

    /// What the image has changed; the host may have, too.
    fn changed_by_both(
        &mut self,
        path: &Path,
        (dir, inode): (Inode, Inode),
        shown: &Attributes,
        one: &There,
    ) -> Result<(), Errno> {
        let found = host::identity_of(&one.found);
        let seen = self.seen(path, inode, shown.origin)?;
        match seen.is_some_and(|seen| host::same_content(&seen, &found)) {
            true if self.take_written_rights(path, inode, shown, one)? => Ok(()),
            true => self.take_seen_rights(path, inode, shown, one),
            false if self.is_equal(path, inode, one)? => Ok(()),
            false if self.by_rule((dir, inode), path, one, seen)? => Ok(()),
            false => {
                self.conflict(path, "changed on the host and in the image");
                Ok(())
            }
        }
    }

    fn conflict(&mut self, path: &Path, what: &str) {
        self.told.conflicts.push(format!("{}: {what}", path.display()));
    }

    /// Names, what they lead to, and whether they are the host's, unchanged.
    fn names(&mut self, dir: Inode) -> Result<HashMap<OsString, (Inode, bool)>, Errno> {
        let mut names = HashMap::new();
        self.image.list(dir, 0, &mut |entry| {
            let name = OsString::from_vec(entry.name.to_vec());
            names.insert(name, (entry.inode, entry.from_host));
            true
        })?;
        Ok(names)
    }

    fn whiteouts(&mut self, dir: Inode) -> Result<HashMap<OsString, Origin>, Errno> {
        let mut whiteouts = HashMap::new();
        self.image.whiteouts(dir, &mut |name, origin| {
            whiteouts.insert(OsString::from_vec(name.to_vec()), origin);
            Ok(())
        })?;
        Ok(whiteouts)
    }
}

/// Comes before each change of the image.
fn step(what: &'static str) -> Result<(), Errno> {
    before(what).map_err(|_| Errno::EIO)
}

/// All names of a directory of the host but Husk's own.
fn listing(beneath: &Beneath, path: &Path) -> io::Result<HashMap<OsString, There>> {
    let mut there = HashMap::new();
    for name in beneath.names(path)?.into_iter().filter(|name| !host::is_own(name)) {
        // One that is not there has gone meanwhile.
        if let Some(one) = There::of(beneath, &path.join(&name))? {
            there.insert(name, one);
        }
    }
    Ok(there)
}

#[cfg(test)]
mod tests;
