//! Gives back to the host what it has changed of objects that a write-back has put there.
//!
//! ```text
//!   a name of the ledger's that is other on the host ──► noted ──► all are written down (ledger)
//!     ──► each: its mark, what it is, as it was written? ──► given back, if it has that mark still
//! ```
//!
//! Invariants
//! 1. Only what is in the image exactly as it was written back is given back; whatever changed
//!    later, however late, stays, and is a conflict (`Fs::give_back`).
//! 2. Whoever is killed leaves a ledger that says what may have been given back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Backing, Kind};
use husk_proto::{Errno, Fs, Inode};

use super::{Look, There, step};
use crate::run::request::reason;
use crate::write_back::host;
use crate::write_back::host::{content, extended};
use crate::write_back::record::ledger;
use crate::write_back::record::ledger::Here;

/// Looks at a file that others open meanwhile.
const TRIES: u32 = 16;

/// A name that is noted.
pub(super) struct Back {
    pub dir: Inode,
    pub inode: Inode,
    pub path: PathBuf,
}

/// What became of one.
enum Given {
    Back,
    /// It is not what was written back.
    Changed,
    /// Somebody may write to it.
    Busy,
}

impl Look<'_> {
    /// Whether a write-back has put the object at `path`, and the host has something else there by
    /// now (`one`), or nothing.
    pub(super) fn is_others(&self, path: &Path, inode: Inode, one: Option<&There>) -> bool {
        let Some(here) = self.ledger.here_of(path, inode) else {
            return false;
        };
        let found = one.map(|one| host::identity_of(&one.found));
        !found.is_some_and(|found| self.ledger.same(&here.identity, &found))
    }

    /// Notes what a write-back has put below a directory that has gone on the host.
    fn note_gone(&mut self, inode: Inode, path: &Path) -> Result<(), Errno> {
        let mut open = vec![(inode, path.to_owned())];
        while let Some((dir, path)) = open.pop() {
            for (name, (inode, _)) in self.names(dir)? {
                let path = path.join(name);
                if self.ledger.here_of(&path, inode).is_some() {
                    self.returning.push((path.clone(), dir, inode));
                }
                if self.image.step(inode)?.kind == Kind::Directory {
                    open.push((inode, path));
                }
            }
        }
        Ok(())
    }

    /// A directory of the image has gone on the host.
    pub(super) fn note_directory(
        &mut self,
        dir: Inode,
        inode: Inode,
        path: &Path,
    ) -> Result<(), Errno> {
        self.note_gone(inode, path)?;
        self.gone.push(Back { dir, inode, path: path.to_owned() });
        Ok(())
    }

    /// Gives back all that was noted.
    pub(super) fn give_all_back(&mut self) {
        let (backs, gone) = (std::mem::take(&mut self.backs), std::mem::take(&mut self.gone));
        let all = backs.iter().chain(&gone).map(|one| (one.path.clone(), one.dir, one.inode));
        self.returning.extend(all);
        let names = std::mem::take(&mut self.returning);
        if names.is_empty() && self.dropped.is_empty() {
            return;
        }
        let noted = step("note").map(|()| self.ledger.returning(names));
        if !matches!(noted, Ok(Ok(()))) {
            let why = noted.ok().and_then(Result::err).map(|problem| reason(&problem));
            let why = why.unwrap_or_default();
            return self.told.failures.push(format!("cannot record what is given back: {why}"));
        }
        for (back, directory) in
            backs.iter().map(|one| (one, false)).chain(gone.iter().map(|one| (one, true)))
        {
            let one = match self.there(&back.path) {
                Ok(one) => one,
                Err(problem) => {
                    self.fail(&back.path, &problem);
                    continue;
                }
            };
            let done = match directory {
                true => self.directory_back(back, one),
                false => self.one_back(back, one),
            };
            match done {
                // Gone meanwhile.
                Ok(()) | Err(Errno::ENOENT | Errno::ESTALE) => {}
                Err(errno) => {
                    self.told.failures.push(format!("{}: {errno:?}", back.path.display()));
                }
            }
        }
        let dropped = std::mem::take(&mut self.dropped);
        if step("settle").is_ok()
            && let Err(problem) = self.ledger.returned(self.image, &dropped)
        {
            let why = reason(&problem);
            self.told.failures.push(format!("cannot record what was given back: {why}"));
        }
    }

    /// An object, for what the host has there now.
    fn one_back(&mut self, back: &Back, one: Option<There>) -> Result<(), Errno> {
        let given = self.give_back(back.dir, back.inode, &back.path, one.as_ref())?;
        let (path, shown) = (&*back.path, self.image.attributes(back.inode));
        if let (Given::Busy | Given::Changed, Some(one)) = (&given, &one)
            && self.has_content_of(back, one)
        {
            return self.take_written_rights(path, back.inode, &shown?, one).map(drop);
        }
        match (given, &one) {
            (Given::Back, Some(_)) => self.told.renewed += 1,
            (Given::Back, None) => self.told.removed += 1,
            (Given::Busy, Some(_)) => {
                self.conflict(path, "changed on the host, open for writing in the image");
            }
            (Given::Busy, None) => {
                self.conflict(path, "removed on the host, open for writing in the image");
            }
            (Given::Changed, None) => {
                self.conflict(path, "removed on the host, changed in the image");
            }
            (Given::Changed, Some(one)) => {
                let shown = shown?;
                let kind = host::kind_of(&one.found, shown.shown_device);
                let origin = super::origin_path(self.image, &shown)?;
                let own = origin.as_deref() == Some(path) && kind == shown.step.kind;
                let taken = own && self.renew(path, back.inode, &shown, one)?;
                let seen = self.ledger.here_of(path, back.inode).map(|here| here.identity);
                let equal = taken || self.is_equal(path, back.inode, one)?;
                if !equal && !self.by_rule((back.dir, back.inode), path, one, seen)? {
                    self.conflict(path, "changed on the host and in the image");
                }
            }
        }
        Ok(())
    }

    /// Whether the host has at most changed the rights of what a write-back has put there.
    fn has_content_of(&self, back: &Back, one: &There) -> bool {
        let here = self.ledger.here_of(&back.path, back.inode);
        here.is_some_and(|here| host::same_content(&here.identity, &host::identity_of(&one.found)))
    }

    /// A directory that has gone, for what the host has there now.
    fn directory_back(&mut self, back: &Back, one: Option<There>) -> Result<(), Errno> {
        let name = back.path.file_name().unwrap_or_default();
        let went = self.directory_went(back.dir, name, back.inode, &back.path)?;
        let Some(one) = one.filter(|_| went) else { return Ok(()) };
        self.import(back.dir, name, &one)?;
        self.told.removed -= 1;
        self.told.renewed += 1;
        Ok(())
    }

    /// Takes a name in that the image has no longer.
    fn import(&mut self, dir: Inode, name: &OsStr, one: &There) -> Result<(), Errno> {
        let kind = host::kind_of(&one.found, self.device(dir)?);
        self.link_up(one, kind)?;
        step("import")?;
        self.image.import_late(dir, &[one.imported(name, kind)])
    }

    fn device(&mut self, dir: Inode) -> Result<u64, Errno> {
        Ok(self.image.attributes(dir)?.shown_device)
    }

    /// Gives a name that is no directory's back for what the host has there (`one`).
    fn give_back(
        &mut self,
        dir: Inode,
        inode: Inode,
        path: &Path,
        one: Option<&There>,
    ) -> Result<Given, Errno> {
        let name = path.file_name().unwrap_or_default();
        let here = self.ledger.here_of(path, inode).copied();
        let Some(here) = here else { return Ok(Given::Changed) };
        let kind = match one {
            Some(one) => Some(host::kind_of(&one.found, self.device(dir)?)),
            None => None,
        };
        let at_once = one.zip(kind).filter(|(one, kind)| {
            one.found.nlink() == 1 && !matches!(kind, Kind::Directory | Kind::Portal)
        });
        let at_once = at_once.map(|(one, kind)| one.imported(name, kind));
        for _ in 0..TRIES {
            let seen = match self.image.unmoved(inode) {
                Err(Errno::ETXTBSY) => return Ok(Given::Busy),
                seen => seen?,
            };
            if !self.is_as_written(inode, &here)? && !self.has_been_renewed(inode, one)? {
                return Ok(Given::Changed);
            }
            step("give back")?;
            if self.image.give_back(dir, name.as_bytes(), inode, seen, at_once.as_ref())? {
                if let Some(one) = one.filter(|_| at_once.is_none()) {
                    self.import(dir, name, one)?;
                    self.renew_joined((dir, inode), path, one)?;
                }
                return Ok(Given::Back);
            }
        }
        Ok(Given::Busy)
    }

    /// Whether another name of a file, whose bytes are the host's, has taken in what it is now.
    fn has_been_renewed(&mut self, inode: Inode, one: Option<&There>) -> Result<bool, Errno> {
        let shown = self.image.attributes(inode)?;
        let hosts = shown.step.kind == Kind::File && shown.backing == Backing::Host;
        let (Some(one), Some(origin)) = (one, shown.origin) else { return Ok(false) };
        let found = host::identity_of(&one.found);
        Ok(hosts && shown.links > 1 && self.image.host_identity(origin)? == found)
    }

    /// A name that was given back may lead to its inode again, by another name that the inode has.
    /// If the bytes are the host's, it shows what the host has now, and so the name is the host's.
    fn renew_joined(
        &mut self,
        (dir, inode): (Inode, Inode),
        path: &Path,
        one: &There,
    ) -> Result<(), Errno> {
        let name = path.file_name().unwrap_or_default();
        let shown = self.image.attributes(inode)?;
        let hosts = shown.step.kind == Kind::File && shown.backing == Backing::Host;
        if hosts && self.image.lookup(dir, name.as_bytes())?.inode == inode {
            self.renew(path, inode, &shown, one)?;
            self.dropped.push(path.to_owned());
        }
        Ok(())
    }

    /// Whether the image has of an inode what was written back.
    fn is_as_written(&mut self, inode: Inode, here: &Here) -> Result<bool, Errno> {
        let shown = self.image.attributes(inode)?;
        let extended = extended::of(self.image, inode, &shown)?;
        if ledger::facts(&shown, extended.as_ref()) != here.facts {
            return Ok(false);
        }
        let bytes = host::has_own_bytes(&shown);
        Ok(!bytes
            || here.content.is_some() && content::hash(self.image, inode).ok() == here.content)
    }

    /// A name that is no directory's, and whose host object has gone; whether it has, too.
    pub(super) fn went(&mut self, dir: Inode, inode: Inode, path: &Path) -> Result<bool, Errno> {
        let name = path.file_name().unwrap_or_default();
        self.name_goes(path, inode)?;
        step("forget")?;
        if self.image.forget(dir, name.as_bytes(), inode)?
            || matches!(self.give_back(dir, inode, path, None)?, Given::Back)
        {
            self.told.removed += 1;
            return Ok(true);
        }
        self.conflict(path, "removed on the host, changed in the image");
        Ok(false)
    }
}
