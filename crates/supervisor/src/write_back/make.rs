//! First half of the commit: everything new is made under temporary names.
//!
//! Invariants
//! 1. Nothing the user can name changes here: a crash leaves temporary names and nothing else.
//! 2. What is linked or copied from the host is taken while its old name still stands.
//! 3. Several names of one inode become hard links of one host file.
//! 4. An object that cannot be made is reported, and tried once more in the rescue directory;
//!    its siblings are made nevertheless.
//! 5. What the host still holds of an object that could not be made is withheld from deletion,
//!    whatever the object is: an old version is better than none.
//!
//! Recursion follows the tree of the plan, whose depth the scan bounds.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, HostIdentity};
use husk_proto::{Errno, Inode};

use super::plan::{Content, Object, Put};
use super::rescue::Rescue;
use super::{Outcome, Source, content, extended, host, ledger};
use crate::onlooker::Progress;

/// What is said of what cannot be copied as it was at one moment.
const STILL_CHANGING: &str = "still changing";
/// Files that are synced one by one; from here on the whole file system is, once.
const SYNCED_SINGLY_MAX: usize = 16;

/// An object under its temporary name.
#[derive(Debug)]
pub struct Made {
    /// Where.
    pub temporary: PathBuf,
    /// Everything below it could be made, too.
    pub complete: bool,
}

/// One object that was made, for the ledger.
#[derive(Debug)]
pub struct Noted {
    /// The name it is to have.
    pub path: PathBuf,
    /// Its inode in the image.
    pub inode: Inode,
    /// What it is on the host, under its temporary name.
    pub identity: HostIdentity,
    /// `content::hash` of its bytes, where it is known.
    pub content: Option<u64>,
    /// `ledger::facts` of its attributes.
    pub facts: u64,
    /// It is a directory.
    pub tree: bool,
}

/// What the making tells the second half.
#[derive(Debug)]
pub struct Kept {
    /// Host paths whose content did not make it to its new place: they must stay.
    pub withheld: Vec<PathBuf>,
    /// Inodes that were not made: where an earlier write-back put them, they must stay.
    pub unmade: Vec<Inode>,
    /// Whether the disk has everything that was made.
    pub durable: bool,
    /// Host files that got another name, by device and inode: when they were modified last, as
    /// their attributes in the image say.
    pub linked: HashMap<(u64, u64), i64>,
}

/// Makes the objects of a plan.
pub struct Maker<'a, S> {
    source: &'a mut S,
    names: &'a mut host::Names,
    rescue: &'a mut Rescue,
    progress: &'a Progress,
    outcome: &'a mut Outcome,
    /// Where an inode of the image already lies on the host (invariant 3).
    made: HashMap<Inode, (PathBuf, Option<u64>, u64)>,
    /// Programs go on: what cannot be made now is still in the image the next time.
    live: bool,
    /// What was made, if a ledger wants to know.
    noted: Option<Vec<Noted>>,
    /// Host paths whose content did not make it to its new place: they must stay.
    withheld: Vec<PathBuf>,
    /// As in `Kept`.
    unmade: Vec<Inode>,
    /// As in `Kept`.
    linked: HashMap<(u64, u64), i64>,
    /// Files to sync one by one.
    files: Vec<fs::File>,
    /// One file or directory of each host file system that is synced as a whole, by `st_dev`.
    devices: HashMap<u64, fs::File>,
}

impl<'a, S: Source> Maker<'a, S> {
    /// A maker that has made nothing yet.
    pub fn new(
        source: &'a mut S,
        names: &'a mut host::Names,
        rescue: &'a mut Rescue,
        progress: &'a Progress,
        outcome: &'a mut Outcome,
    ) -> Self {
        let (made, withheld, unmade, linked, files, devices, noted) = Default::default();
        let live = false;
        Self {
            source,
            names,
            rescue,
            progress,
            outcome,
            made,
            live,
            noted,
            withheld,
            unmade,
            linked,
            files,
            devices,
        }
    }

    /// `live`: programs go on; `notes`: what is made is noted.
    pub fn of_run(self, live: bool, notes: bool) -> Self {
        Self { live, noted: notes.then(Vec::new), ..self }
    }

    /// Makes the object of `put` under a temporary name in its directory.
    pub fn make(&mut self, put: &Put) -> Option<Made> {
        let temporary = self.names.fresh(&put.directory);
        let troubles = |outcome: &Outcome| outcome.failures.len() + outcome.busy.len();
        let before = troubles(self.outcome);
        let made = self.object(&put.object, &temporary, &put.target());
        let complete = troubles(self.outcome) == before;
        made.then_some(Made { temporary, complete })
    }

    /// Makes everything made so far durable; then hands out what must not be deleted, and notes.
    pub fn finish(self) -> (Kept, Vec<Noted>) {
        let failures = self.outcome.failures.len();
        for device in self.devices.values() {
            let synced = rustix::fs::syncfs(device).map_err(io::Error::from);
            self.outcome.note(Path::new("file system"), synced);
        }
        for file in &self.files {
            self.outcome.note(Path::new("file"), file.sync_all());
        }
        let durable = self.outcome.failures.len() == failures;
        let (withheld, unmade, linked) = (self.withheld, self.unmade, self.linked);
        (Kept { withheld, unmade, durable, linked }, self.noted.unwrap_or_default())
    }

    /// Makes `object` at `path`; `shown` is the name the user knows it by.
    fn object(&mut self, object: &Object, path: &Path, shown: &Path) -> bool {
        let made = self.attempt(object, path, shown);
        self.progress.step();
        let Err(problem) = made else { return true };
        // What is half there under a temporary name is of no use.
        let _ = host::remove_tree(path);
        if self.live {
            self.put_off(object, shown, &problem);
        } else {
            self.lose(object, shown, &problem);
        }
        false
    }

    fn attempt(&mut self, object: &Object, path: &Path, shown: &Path) -> io::Result<()> {
        if let Some((first, content, facts)) = self.made.get(&object.inode)
            && fs::hard_link(first, path).is_ok()
        {
            let (content, facts) = (*content, *facts);
            return self.note(object, path, shown, content, facts);
        }
        let (mut attributes, mut hash) = (object.attributes, None);
        match &object.content {
            Content::Image if self.live => {
                let still = content::export_still(self.source, object.inode, path)?;
                let still = still.ok_or_else(|| io::Error::other(STILL_CHANGING))?;
                (attributes, hash) = (still.attributes, Some(still.content));
                self.keep(still.file)?;
            }
            Content::Image => {
                let file = content::export(self.source, object.inode, path)?;
                self.keep(file)?;
            }
            Content::Host(origin) => content::link_or_copy(origin, path)?,
            Content::Symlink(target) => symlink(target, path)?,
            Content::Special => host::make_special(path, &object.attributes)?,
            Content::Tree(children) => self.tree(children, path, shown)?,
            Content::HostTree(origin) => self.host_tree(origin, path)?,
        }
        self.set_all(object, &attributes, path, shown)?;
        if let Content::Host(_) = object.content {
            let found = host::identity_of(&fs::symlink_metadata(path)?);
            self.linked.insert((found.device, found.inode), found.modified_ns);
        }
        let facts = ledger::facts(&attributes, object.extended.as_ref());
        if !object.is_tree() && object.attributes.links > 1 {
            self.made.insert(object.inode, (path.to_owned(), hash, facts));
        }
        self.note(object, path, shown, hash, facts)
    }

    fn note(
        &mut self,
        object: &Object,
        path: &Path,
        shown: &Path,
        content: Option<u64>,
        facts: u64,
    ) -> io::Result<()> {
        let Some(noted) = &mut self.noted else { return Ok(()) };
        let identity = host::identity_of(&fs::symlink_metadata(path)?);
        let (path, inode, tree) = (shown.to_owned(), object.inode, object.is_tree());
        noted.push(Noted { path, inode, identity, content, facts, tree });
        Ok(())
    }

    /// What cannot be made while programs go on: it is in the image, and the old one stays.
    fn put_off(&mut self, object: &Object, shown: &Path, problem: &io::Error) {
        self.withhold_all(object);
        let gone = [Errno::ESTALE.0, Errno::ENOENT.0];
        let busy = problem.to_string() == STILL_CHANGING
            || problem.raw_os_error().is_some_and(|errno| gone.contains(&errno));
        match busy {
            true => self.outcome.busy.push(format!("{}: {STILL_CHANGING}", shown.display())),
            false => {
                let why = super::reason(problem);
                self.outcome.failures.push(format!("{}: {why}", shown.display()));
            }
        }
    }

    fn withhold_all(&mut self, object: &Object) {
        self.withhold(object);
        if let Content::Tree(children) = &object.content {
            children.iter().for_each(|(_, child)| self.withhold_all(child));
        }
    }

    /// All attributes. The extended ones first, while the file may be written to, and again at the
    /// end, for a change of owner takes capabilities away.
    fn set_all(
        &mut self,
        object: &Object,
        attributes: &Attributes,
        path: &Path,
        shown: &Path,
    ) -> io::Result<()> {
        let linked = matches!(object.content, Content::Host(_));
        let extended = match &object.extended {
            Some(extended) => Ok(extended.clone()),
            None if linked => extended::on_host(path),
            None => match super::origin_path(self.source, &object.attributes) {
                Ok(Some(origin)) => extended::on_host(&origin),
                _ => Ok(Vec::new()),
            },
        };
        let early = extended.as_ref().is_ok_and(|all| extended::set(path, all).is_ok());
        host::set_attributes(path, attributes)?;
        let late = |all: extended::Extended| match early && all.is_empty() {
            true => Ok(()),
            false => extended::set(path, &all),
        };
        self.outcome.note(shown, extended.and_then(late));
        Ok(())
    }

    /// Keeps a new file to be synced.
    fn keep(&mut self, file: fs::File) -> io::Result<()> {
        let device = file.metadata()?.dev();
        if self.devices.contains_key(&device) {
            return Ok(());
        }
        if self.files.len() < SYNCED_SINGLY_MAX {
            self.files.push(file);
        } else {
            self.devices.insert(device, file);
        }
        Ok(())
    }

    fn tree(
        &mut self,
        children: &[(OsString, Object)],
        path: &Path,
        shown: &Path,
    ) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)?;
        for (name, child) in children {
            self.object(child, &path.join(name), &shown.join(name));
        }
        Ok(())
    }

    /// All of a host directory, by hard links (invariant 2).
    fn host_tree(&mut self, origin: &Path, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)?;
        for entry in fs::read_dir(origin)? {
            let entry = entry?;
            let (from, to) = (entry.path(), path.join(entry.file_name()));
            let found = entry.metadata()?;
            if !found.is_dir() {
                content::link_or_copy(&from, &to)?;
                continue;
            }
            self.host_tree(&from, &to)?;
            copy_directory_attributes(&found, &to)?;
        }
        Ok(())
    }

    /// Invariant 5.
    fn withhold(&mut self, object: &Object) {
        self.unmade.push(object.inode);
        if let Content::Host(origin) | Content::HostTree(origin) = &object.content {
            return self.withheld.push(origin.clone());
        }
        // Where the image does not say, there is nothing of it on the host.
        let origin = super::origin_path(self.source, &object.attributes);
        self.withheld.extend(origin.ok().flatten());
    }

    /// Saves a file's bytes in the rescue directory; says how that went.
    fn saved(&mut self, inode: Inode, shown: &Path) -> String {
        let Some(saved) = self.rescue.path_for(shown) else {
            return "; its content is lost".into();
        };
        if content::export(self.source, inode, &saved).is_ok() {
            return format!("; saved as {}", saved.display());
        }
        // Half a file takes room that the next one may need.
        let _ = host::remove_tree(&saved);
        "; its content is lost".into()
    }

    fn lose(&mut self, object: &Object, shown: &Path, problem: &io::Error) {
        self.withhold(object);
        let why = super::reason(problem);
        let mut line = format!("{}: {why}", shown.display());
        match &object.content {
            Content::Host(origin) | Content::HostTree(origin) => {
                line.push_str(&format!("; it is still {}", origin.display()));
            }
            Content::Image => line.push_str(&self.saved(object.inode, shown)),
            Content::Symlink(target) => {
                line.push_str(&format!("; it was a symlink to {}", target.display()));
            }
            Content::Special => line.push_str("; it was a FIFO, a socket or a device"),
            Content::Tree(children) => {
                self.outcome.failures.push(line);
                for (name, child) in children {
                    self.lose(child, &shown.join(name), problem);
                }
                return;
            }
        }
        self.outcome.failures.push(line);
    }
}

fn copy_directory_attributes(found: &fs::Metadata, target: &Path) -> io::Result<()> {
    let _ = std::os::unix::fs::lchown(target, Some(found.uid()), Some(found.gid()));
    fs::set_permissions(target, found.permissions())?;
    let times =
        fs::FileTimes::new().set_accessed(found.accessed()?).set_modified(found.modified()?);
    fs::File::open(target)?.set_times(times)
}
