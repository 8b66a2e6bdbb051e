//! Walks an overlay's tree in the image and decides what is to happen on the host.
//!
//! For each name of a listed directory one of these holds:
//!
//! ```text
//!   origin is this very path, nothing changed      nothing to do (the usual case: no host call)
//!   origin is this very path, attributes changed   touch
//!   origin is this very path, bytes changed        put, replacing what was imported
//!   anything else                                  put, replacing what a whiteout names
//! ```
//!
//! and each whiteout whose name is not taken again is a delete.
//!
//! Invariants
//! 1. The scan changes nothing on the host, so the host can be compared with what was imported.
//! 2. What the host changed meanwhile is never replaced or deleted: the image's version goes
//!    beside it, and a conflict is noted.
//! 3. Recursion is at most `DEPTH_MAX` deep; what lies deeper is reported and withheld.
//! 4. Of a directory that the image removed or moved what the host changed stays, and what leads to
//!    it; the rest goes.
//! 5. Of a directory the image never listed only those names count that it met one by one (who may
//!    search a directory, but not read it, works so); whatever else it holds is left alone.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, Backing, HostIdentity, Kind, Origin};
use husk_proto::{Errno, Inode};

use super::content;
use super::extended;
use super::host;
use super::ledger::Ledger;
use super::plan::{Content, Delete, Object, Plan, Put, Touch, beside};
use super::{PATH_BYTES_MAX, Source};

/// Deepest tree that is made at once. A host path of 4096 bytes leads less deep; the recursion of
/// the write-back needs less than 8 KiB of stack a level (`super::STACK_BYTES`).
const DEPTH_MAX: u32 = 4096;

/// What the scan knows besides the image.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Number that tells this run's names from others' (its process).
    pub number: u32,
    /// When the image started, ns since the epoch: whatever the host shows as changed later in a
    /// directory that the image removed was not there when the image looked.
    pub started_ns: i64,
}

/// Plans the write-back of the overlay on `path` whose root is `root`.
/// `ledger`: what one that was killed has done.
pub fn scan<S: Source>(
    source: &mut S,
    run: Run,
    ledger: &Ledger,
    root: Inode,
    path: &Path,
) -> Plan {
    let mut scan = Scan { source, run, ledger, plan: Plan::default() };
    scan.directory_in_place(root, path);
    scan.plan
}

struct Scan<'a, S> {
    source: &'a mut S,
    run: Run,
    ledger: &'a Ledger,
    plan: Plan,
}

/// One name of a directory of the image.
struct Name {
    name: OsString,
    inode: Inode,
}

/// A host name that the image removed or replaced.
struct Whiteout {
    name: OsString,
    origin: Origin,
}

impl<S: Source> Scan<'_, S> {
    fn directory_in_place(&mut self, dir: Inode, path: &Path) {
        // An explicit stack: trees are as deep as the user makes them.
        let mut open = vec![(dir, path.to_owned())];
        while let Some((dir, path)) = open.pop() {
            if let Err(problem) = self.one_directory(dir, &path, &mut open) {
                self.fail(&path, &format!("cannot be read from the image: {problem:?}"));
            }
        }
        // Innermost first: what is written into a directory changes its times.
        self.plan.touches.sort_by(|a, b| b.path.cmp(&a.path));
    }

    fn one_directory(
        &mut self,
        dir: Inode,
        path: &Path,
        open: &mut Vec<(Inode, PathBuf)>,
    ) -> Result<(), Errno> {
        let attributes = self.source.attributes(dir)?;
        if !is_directory(path) {
            return self.lost_directory(dir, path);
        }
        if self.changed(&attributes)? {
            let extended = extended::of(self.source, dir, &attributes)?;
            self.plan.touches.push(Touch { path: path.to_owned(), attributes, extended });
        }
        let names = self.names(dir)?;
        let whiteouts = self.whiteouts(dir)?;
        for whiteout in &whiteouts {
            if !names.iter().any(|name| name.name == whiteout.name) {
                self.deleted(path, whiteout)?;
            }
        }
        for name in names {
            self.one_name(path, name, &whiteouts, open)?;
        }
        Ok(())
    }

    fn one_name(
        &mut self,
        dir: &Path,
        name: Name,
        whiteouts: &[Whiteout],
        open: &mut Vec<(Inode, PathBuf)>,
    ) -> Result<(), Errno> {
        let target = dir.join(&name.name);
        let attributes = self.source.attributes(name.inode)?;
        let origin = self.origin_path(&attributes)?;
        if origin.as_deref() == Some(&*target) {
            return match attributes.step.kind {
                Kind::Directory => {
                    open.push((name.inode, target));
                    Ok(())
                }
                _ => self.kept(dir, name, attributes),
            };
        }
        let replaced = whiteouts.iter().find(|whiteout| whiteout.name == name.name);
        let expected = match replaced {
            Some(whiteout) => Some(self.source.host_identity(whiteout.origin)?),
            None => None,
        };
        let object = self.object(name.inode, attributes, origin, 0)?;
        self.put(dir, name.name, object, expected);
        Ok(())
    }

    /// A file, symlink or portal that is where it was imported.
    fn kept(&mut self, dir: &Path, name: Name, attributes: Attributes) -> Result<(), Errno> {
        if !self.changed(&attributes)? {
            return Ok(());
        }
        let target = dir.join(&name.name);
        let Some(origin) = attributes.origin else { return Ok(()) };
        let expected = self.source.host_identity(origin)?;
        let in_image = attributes.step.kind == Kind::File && attributes.backing == Backing::Image;
        let same = !in_image || self.same_bytes(name.inode, &attributes, &expected, &target);
        if !same {
            let object = self.made_of(name.inode, attributes, Content::Image)?;
            self.put(dir, name.name, object, Some(expected));
            return Ok(());
        }
        match host::identity(&target) {
            Ok(Some(found)) if self.may_touch(&target, &found, &expected, &attributes) => {
                let extended = extended::of(self.source, name.inode, &attributes)?;
                self.plan.touches.push(Touch { path: target, attributes, extended });
            }
            Ok(_) => self.conflict(&target, "changed on the host meanwhile", "kept as it is there"),
            Err(problem) => self.fail(&target, &problem.to_string()),
        }
        Ok(())
    }

    /// Whether only attributes of what is at `path` are to be set, or one that was killed set them.
    fn may_touch(
        &self,
        path: &Path,
        found: &HostIdentity,
        expected: &HostIdentity,
        wanted: &Attributes,
    ) -> bool {
        let modified = [expected.modified_ns, wanted.modified_ns].contains(&found.modified_ns);
        let same = (found.device, found.inode, found.size)
            == (expected.device, expected.inode, expected.size);
        found == expected || (self.ledger.has_touched(path) && same && modified)
    }

    /// A file that was copied into the image for writing, and nothing was written after all.
    fn same_bytes(
        &mut self,
        inode: Inode,
        attributes: &Attributes,
        imported: &HostIdentity,
        path: &Path,
    ) -> bool {
        let untouched =
            attributes.size == imported.size && attributes.modified_ns == imported.modified_ns;
        untouched && content::equal(self.source, inode, path).unwrap_or(false)
    }

    /// Whether anything of an imported object differs from what was imported.
    fn changed(&mut self, attributes: &Attributes) -> Result<bool, Errno> {
        let Some(origin) = attributes.origin else { return Ok(true) };
        let imported = self.source.host_identity(origin)?;
        let in_image = attributes.step.kind == Kind::File && attributes.backing == Backing::Image;
        Ok(in_image
            || attributes.changed_ns != imported.changed_ns
            || attributes.modified_ns != imported.modified_ns)
    }

    // ---- objects that appear --------------------------------------------------------------------

    fn put(&mut self, dir: &Path, name: OsString, object: Object, expected: Option<HostIdentity>) {
        let mut put = Put { directory: dir.to_owned(), name, object, replaces: expected };
        let target = put.target();
        let trouble = match host::identity(&target) {
            Err(problem) => Some(super::reason(&problem)),
            Ok(Some(found)) if self.ledger.has_put(&target, &found) => return,
            Ok(found) => self.trouble(&target, found, expected),
        };
        if let Some(trouble) = trouble {
            let aside = beside(&target, self.run.number);
            put.name = aside.file_name().unwrap_or_default().to_owned();
            put.replaces = None;
            self.conflict(&target, &trouble, &format!("the image's is {}", aside.display()));
            let found = host::identity(&aside).ok().flatten();
            if found.is_some_and(|found| self.ledger.has_put(&aside, &found)) {
                return;
            }
        }
        self.plan.puts.push(put);
    }

    /// Why the image's object may not take its name; `None`: it may.
    fn trouble(
        &self,
        target: &Path,
        found: Option<HostIdentity>,
        expected: Option<HostIdentity>,
    ) -> Option<String> {
        match (expected, found) {
            (None, None) => None,
            (None, Some(_)) => Some("appeared on the host meanwhile".into()),
            (Some(_), None) => Some("was removed on the host meanwhile".into()),
            (Some(expected), Some(found)) => self.tampered(target, expected, found),
        }
    }

    /// Whether the host object at `path` is no longer what the image saw.
    fn tampered(&self, path: &Path, expected: HostIdentity, found: HostIdentity) -> Option<String> {
        let noted_ns = self.ledger.to_go_since(path);
        if !is_directory(path) {
            // Links that were made of it changed its status.
            let changed_ns =
                if noted_ns.is_some() { expected.changed_ns } else { found.changed_ns };
            let found = HostIdentity { changed_ns, ..found };
            return (found != expected).then(|| "changed on the host meanwhile".into());
        }
        let same = (found.device, found.inode) == (expected.device, expected.inode);
        if !same {
            return Some("was replaced on the host meanwhile".into());
        }
        match newer_below(path, noted_ns.unwrap_or(self.run.started_ns)) {
            Ok(None) => None,
            Ok(Some(newer)) => Some(format!("changed on the host meanwhile ({})", newer.display())),
            Err(problem) => Some(format!("cannot be looked through: {}", super::reason(&problem))),
        }
    }

    fn object(
        &mut self,
        inode: Inode,
        attributes: Attributes,
        origin: Option<PathBuf>,
        depth: u32,
    ) -> Result<Object, Errno> {
        let content = match (attributes.step.kind, attributes.backing, origin) {
            (Kind::Directory, _, Some(origin)) if attributes.step.unlisted => {
                self.moved_unlisted(inode, origin, depth)?
            }
            (Kind::Directory, ..) => Content::Tree(self.children(inode, depth + 1)?),
            (Kind::Symlink, ..) => Content::Symlink(self.link_target(inode)?),
            (Kind::Portal, _, Some(origin)) => Content::Host(origin),
            (Kind::Portal, _, None) => return Err(Errno::EIO),
            (Kind::File, Backing::Host, Some(origin)) => Content::Host(origin),
            (Kind::File, ..) => Content::Image,
            (Kind::Fifo | Kind::Socket | Kind::CharacterDevice | Kind::BlockDevice, ..) => {
                Content::Special
            }
        };
        self.made_of(inode, attributes, content)
    }

    /// A directory that was moved, and whose names were never all read: whole, as the host has it,
    /// unless some were changed. Then these alone move, and the rest stays.
    fn moved_unlisted(
        &mut self,
        dir: Inode,
        origin: PathBuf,
        depth: u32,
    ) -> Result<Content, Errno> {
        let changed = self.changed_children(dir, depth + 1)?;
        if changed.is_empty() && self.whiteouts(dir)?.is_empty() {
            return Ok(Content::HostTree(origin));
        }
        let why = "moved and changed, but cannot be listed: what was not changed stays here";
        self.fail(&origin, why);
        self.plan.withheld.push(origin);
        Ok(Content::Tree(changed))
    }

    fn made_of(
        &mut self,
        inode: Inode,
        attributes: Attributes,
        content: Content,
    ) -> Result<Object, Errno> {
        let extended = extended::of(self.source, inode, &attributes)?;
        Ok(Object { inode, attributes, extended, content })
    }

    fn children(&mut self, dir: Inode, depth: u32) -> Result<Vec<(OsString, Object)>, Errno> {
        let mut children = Vec::new();
        if depth >= DEPTH_MAX {
            self.too_deep(dir)?;
            return Ok(children);
        }
        for name in self.names(dir)? {
            let attributes = self.source.attributes(name.inode)?;
            let origin = self.origin_path(&attributes)?;
            children.push((name.name, self.object(name.inode, attributes, origin, depth)?));
        }
        Ok(children)
    }

    /// Invariant 3: what lies in `dir` is not planned, and the host's part in it stays.
    fn too_deep(&mut self, dir: Inode) -> Result<(), Errno> {
        let mut open: Vec<_> = self.names(dir)?;
        if let Some(first) = open.first() {
            let why = format!("and what is beside it: deeper than {DEPTH_MAX} directories");
            self.fail(&PathBuf::from(first.name.clone()), &why);
        }
        while let Some(name) = open.pop() {
            let attributes = self.source.attributes(name.inode)?;
            let origin = self.origin_path(&attributes)?;
            self.plan.withheld.extend(origin);
            if attributes.step.kind == Kind::Directory && !attributes.step.unlisted {
                open.extend(self.names(name.inode)?);
            }
        }
        Ok(())
    }

    /// A directory of the image whose host directory is gone: what the image changed in it is
    /// written beside, so that nothing is lost.
    fn lost_directory(&mut self, dir: Inode, path: &Path) -> Result<(), Errno> {
        let attributes = self.source.attributes(dir)?;
        let Some(parent) = path.parent().filter(|parent| is_directory(parent)) else {
            self.fail(path, "it was removed on the host meanwhile, and so was what holds it");
            return Ok(());
        };
        let children = self.changed_children(dir, 1)?;
        if children.is_empty() {
            return Ok(());
        }
        let aside = beside(path, self.run.number);
        let object = self.made_of(dir, attributes, Content::Tree(children))?;
        let name = aside.file_name().unwrap_or_default().to_owned();
        self.conflict(path, "was removed on the host meanwhile", &in_words(&aside));
        let directory = parent.to_owned();
        self.plan.puts.push(Put { directory, name, object, replaces: None });
        Ok(())
    }

    /// What of a directory lies in the image only.
    fn changed_children(
        &mut self,
        dir: Inode,
        depth: u32,
    ) -> Result<Vec<(OsString, Object)>, Errno> {
        if depth >= DEPTH_MAX {
            self.too_deep(dir)?;
            return Ok(Vec::new());
        }
        let mut children = Vec::new();
        for name in self.names(dir)? {
            let attributes = self.source.attributes(name.inode)?;
            let content = match attributes.step.kind {
                Kind::File if attributes.backing == Backing::Image => Content::Image,
                Kind::Symlink => Content::Symlink(self.link_target(name.inode)?),
                kind if kind.is_special() => Content::Special,
                Kind::Directory => match self.changed_children(name.inode, depth + 1)? {
                    below if below.is_empty() && attributes.origin.is_some() => continue,
                    below => Content::Tree(below),
                },
                _ => continue,
            };
            children.push((name.name, self.made_of(name.inode, attributes, content)?));
        }
        Ok(children)
    }

    // ---- objects that go ------------------------------------------------------------------------

    fn deleted(&mut self, dir: &Path, whiteout: &Whiteout) -> Result<(), Errno> {
        let path = dir.join(&whiteout.name);
        let identity = self.source.host_identity(whiteout.origin)?;
        let found = match host::identity(&path) {
            Ok(None) => return Ok(()),
            Ok(Some(found)) => found,
            Err(problem) => {
                self.fail(&path, &super::reason(&problem));
                return Ok(());
            }
        };
        let Some(trouble) = self.tampered(&path, identity, found) else {
            self.plan.deletes.push(Delete { path, identity });
            return Ok(());
        };
        self.conflict(&path, &trouble, "that is kept, the image removed or moved it");
        let same = (found.device, found.inode) == (identity.device, identity.inode);
        let below = same && fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        if below && let Err(problem) = self.older_below(&path) {
            self.fail(&path, &super::reason(&problem));
        }
        Ok(())
    }

    /// Of a directory that the image removed or moved, and that the host put something into: what
    /// was there before goes, what is newer stays, with the directories that lead to it.
    fn older_below(&mut self, path: &Path) -> io::Result<()> {
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let (path, found) = (entry.path(), entry.metadata()?);
                let identity = host::identity_of(&found);
                let noted_ns = self.ledger.to_go_since(&path);
                let since_ns = noted_ns.unwrap_or(self.run.started_ns);
                if found.is_dir() && newer_below(&path, since_ns)?.is_some() {
                    open.push(path);
                } else if found.is_dir() || identity.changed_ns <= since_ns {
                    self.plan.deletes.push(Delete { path, identity });
                }
            }
        }
        Ok(())
    }

    // ---- asking the image -----------------------------------------------------------------------

    fn names(&mut self, dir: Inode) -> Result<Vec<Name>, Errno> {
        let mut names = Vec::new();
        self.source.list(dir, 0, &mut |entry| {
            let name = OsString::from_vec(entry.name.to_vec());
            names.push(Name { name, inode: entry.inode });
            true
        })?;
        Ok(names)
    }

    fn whiteouts(&mut self, dir: Inode) -> Result<Vec<Whiteout>, Errno> {
        let mut whiteouts = Vec::new();
        self.source.whiteouts(dir, &mut |name, origin| {
            whiteouts.push(Whiteout { name: OsString::from_vec(name.to_vec()), origin });
            Ok(())
        })?;
        Ok(whiteouts)
    }

    fn origin_path(&mut self, attributes: &Attributes) -> Result<Option<PathBuf>, Errno> {
        super::origin_path(self.source, attributes)
    }

    fn link_target(&mut self, inode: Inode) -> Result<PathBuf, Errno> {
        let mut bytes = vec![0; PATH_BYTES_MAX];
        let length = self.source.read_link(inode, &mut bytes)?;
        Ok(host::path_of(&bytes[..length.min(PATH_BYTES_MAX)]))
    }

    fn conflict(&mut self, path: &Path, what: &str, outcome: &str) {
        self.plan.conflicts.push(format!("{} {what}: {outcome}", path.display()));
    }

    fn fail(&mut self, path: &Path, why: &str) {
        self.plan.failures.push(format!("{}: {why}", path.display()));
    }
}

fn in_words(aside: &Path) -> String {
    format!("what the image changed in it is {}", aside.display())
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Something below `path` that the host changed after `started_ns`, if there is such.
fn newer_below(path: &Path, started_ns: i64) -> io::Result<Option<PathBuf>> {
    let mut open = vec![path.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if host::identity_of(&found).changed_ns > started_ns {
                return Ok(Some(entry.path()));
            }
            if found.is_dir() && found.dev() == fs::symlink_metadata(path)?.dev() {
                open.push(entry.path());
            }
        }
    }
    Ok(None)
}
