//! Updates git's index on the host after a write-back, so that git finds its files unchanged.
//!
//! ```text
//!   entry of the index ── says what the image shows, and the host's file is what was written?
//!                         └─► it says ctime, number, device and owner of the host's file
//! ```
//!
//! A file that is written back gets another number and status change on the host. Where git in the
//! image took it for unchanged, git outside does, too, and for nothing else.
//!
//! Invariants
//! 1. An entry is renewed only where it says of a file exactly what the image shows of it, and what
//!    this write-back or an earlier one has put there is still as it was put.
//! 2. Modification times stay, of the files and of the index: what is racy to git stays racy.
//! 3. The index is replaced as a whole, with git's lock on it, if it is the very one that was
//!    written back. Who is killed before that leaves one that git refreshes itself.
//! 4. What it replaces is looked at again when it has lost its name: another one, or one that has
//!    changed, gets the name back.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use husk_proto::Inode;
use husk_proto::fs::{Attributes, Backing, HostIdentity};
use rustix::fs::{RenameFlags, flistxattr};

use super::index::Remembered;
use super::lock;
use crate::write_back::host;
use crate::write_back::host::NS_PER_S;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Beneath, lacks_flag, sync, write_all_at};
use crate::write_back::plan::derived;
use crate::write_back::plan::{Content, Object, Plan};
use crate::write_back::record::ledger::Ledger;
use crate::write_back::{Outcome, Overlay, Source, Work};

/// Longest configuration of a repository that is looked into.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// What of a plan matters here.
#[derive(Debug, Default)]
pub struct Placed {
    /// Indexes, and their inodes in the image.
    indexes: Vec<(PathBuf, Inode)>,
    /// All that gets a name.
    inodes: HashSet<Inode>,
}

impl Placed {
    /// What `plan` puts.
    pub fn of(plan: &Plan) -> Placed {
        let mut placed = Placed::default();
        plan.puts.iter().filter(|put| !put.aside).for_each(|put| {
            placed.add(&put.object, put.target());
        });
        if placed.indexes.is_empty() { Placed::default() } else { placed }
    }

    fn add(&mut self, object: &Object, path: PathBuf) {
        self.inodes.insert(object.inode);
        match &object.content {
            Content::Tree(children) => {
                children.iter().for_each(|(name, child)| self.add(child, path.join(name)));
            }
            Content::Image
                if derived::is_index(path.file_name().unwrap_or_default().as_bytes()) =>
            {
                self.indexes.push((path, object.inode));
            }
            _ => {}
        }
    }
}

/// Renews the indexes that were placed, as far as that can be done; what cannot is left to git.
/// Whether the ledger knows more than before.
pub fn renew<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[Overlay],
    placed: &Placed,
    work: &mut Work,
    outcome: &mut Outcome,
) -> bool {
    let Work { names, ledger, .. } = work;
    let mut any = false;
    for (path, inode) in &placed.indexes {
        let overlay = overlays.iter().filter(|(_, root)| path.starts_with(root));
        let overlay = overlay.max_by_key(|(_, root)| root.as_os_str().len());
        // git that holds the lock finds out by itself what there is to renew.
        let mut patience = Duration::ZERO;
        if let Some(overlay) = overlay
            && let Ok(lock) = lock::take(beneath, names, path, &mut patience)
        {
            let object = (&**path, *inode);
            let renewed = renew_one(source, beneath, overlay, object, placed, names, ledger);
            if let Some(Err(problem)) = lock.map(|lock| lock.release(beneath)) {
                outcome.note(&lock::lock_of(path), Err(problem));
            }
            if let Ok(Some(found)) = renewed {
                ledger.replaced(path, found);
                any = true;
            }
        }
    }
    any
}

/// One of them: what it is then, if it is another one.
fn renew_one<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlay: &Overlay,
    (path, inode): (&Path, Inode),
    placed: &Placed,
    names: &mut host::Names,
    ledger: &Ledger,
) -> io::Result<Option<HostIdentity>> {
    let Some(directory) = path.parent() else { return Ok(None) };
    let Some(tree) = working_tree(beneath, directory) else { return Ok(None) };
    let Ok(below) = tree.strip_prefix(&overlay.1) else { return Ok(None) };
    let file = beneath.read(path)?;
    let index = derived::index_of(beneath, path, &file);
    let (Some((found, index)), Ok(wanted)) = (index, source.attributes(inode)) else {
        return Ok(None);
    };
    let same = (found.size, found.modified_ns) == (wanted.size, wanted.modified_ns);
    if !same || file.metadata()?.nlink() != 1 || has_attributes(&file) {
        return Ok(None);
    }
    let mut look = Look::new(source, beneath, overlay.0, placed, ledger);
    let renewed = index.renewed(&mut |name, old| {
        let name = host::path_of(name);
        look.renewed(&below.join(&name), &tree.join(&name), old)
    });
    let Some(bytes) = renewed else { return Ok(None) };
    let name = names.fresh(path.parent().unwrap_or(Path::new("/")));
    replace(beneath, &name, path, &file, &found, &bytes)
}

/// Replaces the index at `path` that `old` is by `bytes`, if it is still as it was `found`.
/// What cannot be removed of it is left over for the next one (`host::remove_leftovers`).
fn replace(
    beneath: &Beneath,
    name: &Path,
    path: &Path,
    old: &File,
    found: &HostIdentity,
    bytes: &[u8],
) -> io::Result<Option<HostIdentity>> {
    let new = beneath.create(name)?;
    let made = host::identity_of(&new.metadata()?);
    let filled = fill(&new, old, bytes);
    let _ = derived::remember_new(beneath, name);
    let there = |path: &Path| beneath.identity(path);
    let is_same =
        |one: Option<HostIdentity>| one.is_some_and(|one| host::same_content(found, &one));
    let replaced = filled.and_then(|()| {
        if !is_same(there(path)?)
            || there(name)?.as_ref().map(HostIdentity::object) != Some(made.object())
        {
            return Ok(false);
        }
        match beneath.rename(name, path, RenameFlags::EXCHANGE) {
            // Without links either.
            Err(problem) if lacks_flag(&problem) => {
                return beneath.rename(name, path, RenameFlags::empty()).map(|()| true);
            }
            other => other?,
        }
        // Invariant 4. Where it does not get its name back, it keeps the one that it has.
        let same = is_same(there(name)?);
        if !same {
            beneath.rename(name, path, RenameFlags::EXCHANGE)?;
        }
        Ok(same)
    });
    // Nothing but what was made here or replaced goes.
    let left = there(name).ok().flatten();
    if left.is_some_and(|left| left.object() == made.object() || host::same_content(found, &left)) {
        let _ = beneath.remove(name);
    }
    Ok(replaced?.then_some(host::identity_of(&new.metadata()?)))
}

/// Content and attributes of the new one, durable.
fn fill(new: &File, old: &File, bytes: &[u8]) -> io::Result<()> {
    write_all_at(new, bytes, 0)?;
    Held::of_file(new.try_clone()?)?.set_like(&old.metadata()?)?;
    sync(new)
}

/// Attributes that a new file would not have by itself.
fn has_attributes(file: &File) -> bool {
    let mut list = vec![0; 65536];
    let length = flistxattr(file, &mut list[..]).unwrap_or(0);
    let mut names = list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.any(|name| name != b"security.selinux")
}

/// The tree whose files the index in `directory` is about: beside `.git`, or where a worktree or
/// submodule says.
pub(super) fn working_tree(beneath: &Beneath, directory: &Path) -> Option<PathBuf> {
    let tree = match configured(beneath, directory) {
        Some(tree) => directory.join(tree),
        None => match text_of(beneath, &directory.join("gitdir")) {
            Some(link) => directory.join(link.trim_end()).parent()?.to_owned(),
            None if directory.file_name()? == ".git" => directory.parent()?.to_owned(),
            None => return None,
        },
    };
    fs::canonicalize(tree).ok()
}

/// The text of a file of a repository.
fn text_of(beneath: &Beneath, path: &Path) -> Option<String> {
    let mut text = String::new();
    beneath.read(path).ok()?.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// `core.worktree` as it stands in a repository's own configuration.
fn configured(beneath: &Beneath, directory: &Path) -> Option<PathBuf> {
    let text = text_of(beneath, &directory.join("config"))?;
    let mut core = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            core = line.eq_ignore_ascii_case("[core]");
        } else if let Some((key, value)) = line.split_once('=')
            && core
            && key.trim().eq_ignore_ascii_case("worktree")
        {
            found = Some(PathBuf::from(value.trim().trim_matches('"')));
        }
    }
    found
}

/// What is looked at in the image, and what is known of its directories.
pub(super) struct Look<'a, S> {
    pub(super) source: &'a mut S,
    pub(super) beneath: &'a Beneath,
    root: Inode,
    known: HashMap<PathBuf, Option<Inode>>,
    placed: &'a Placed,
    ledger: &'a Ledger,
}

impl<'a, S: Source> Look<'a, S> {
    pub(super) fn new(
        source: &'a mut S,
        beneath: &'a Beneath,
        root: Inode,
        placed: &'a Placed,
        ledger: &'a Ledger,
    ) -> Look<'a, S> {
        Look { source, beneath, root, known: HashMap::new(), placed, ledger }
    }
}

impl<S: Source> Look<'_, S> {
    /// What is to be remembered of the file that is `below` the overlay's root, and `path` on the
    /// host; `None`: what is.
    fn renewed(&mut self, below: &Path, path: &Path, old: Remembered) -> Option<Remembered> {
        let directory = self.directory(below.parent()?)?;
        let step = self.source.lookup(directory, below.file_name()?.as_bytes()).ok()?;
        let shown = self.source.attributes(step.inode).ok()?;
        if self.is_the_hosts(&shown) || !says(&old, &Facts::of_image(&shown)) {
            return None;
        }
        let found = self.beneath.found(path).ok()??;
        let identity = host::identity_of(&found);
        let same = (identity.size, identity.modified_ns) == (shown.size, shown.modified_ns);
        let placed = same && self.is_placed(path, step.inode, &identity);
        placed.then(|| Facts::of_host(&found).remembered(&old))
    }

    /// The directory of the image that is there, if its names are known.
    pub(super) fn directory(&mut self, below: &Path) -> Option<Inode> {
        if let Some(known) = self.known.get(below) {
            return *known;
        }
        let found = match (below.parent(), below.file_name()) {
            (Some(parent), Some(name)) => self.directory(parent).and_then(|parent| {
                let step = self.source.lookup(parent, name.as_bytes()).ok()?;
                (step.kind == husk_proto::fs::Kind::Directory).then_some(step.inode)
            }),
            _ => Some(self.root),
        };
        let listed = |inode: &Inode| self.source.step(*inode).is_ok_and(|step| !step.unlisted);
        let found = found.filter(listed);
        self.known.insert(below.to_owned(), found);
        found
    }

    /// Whether the image has changed nothing of it: all is as it was.
    pub(super) fn is_the_hosts(&mut self, shown: &Attributes) -> bool {
        let Some(origin) = shown.origin else { return false };
        let imported = self.source.host_identity(origin);
        shown.backing == Backing::Host
            && imported.is_ok_and(|imported| imported.changed_ns == shown.changed_ns)
    }

    /// Invariant 1: what is at `path` was put there, and nobody else has changed it since.
    pub(super) fn is_placed(&self, path: &Path, inode: Inode, found: &HostIdentity) -> bool {
        match self.ledger.here(path) {
            Some(here) => here.is_of(inode) && self.ledger.same(&here.identity, found),
            None => self.placed.inodes.contains(&inode),
        }
    }
}

/// What git looks at of a file.
pub(super) struct Facts {
    changed_ns: i64,
    modified_ns: i64,
    device: u64,
    number: u64,
    size: u64,
    owner: (u32, u32),
}

impl Facts {
    /// In the image.
    pub(super) fn of_image(shown: &Attributes) -> Facts {
        Facts {
            changed_ns: shown.changed_ns,
            modified_ns: shown.modified_ns,
            device: shown.shown_device,
            number: shown.shown_number,
            size: shown.size,
            owner: (shown.step.uid, shown.step.gid),
        }
    }

    /// On the host.
    pub(super) fn of_host(found: &Metadata) -> Facts {
        let HostIdentity { device, inode, size, modified_ns, changed_ns } =
            host::identity_of(found);
        let owner = (found.uid(), found.gid());
        Facts { changed_ns, modified_ns, device, number: inode, size, owner }
    }

    /// As git remembers it that has remembered `old` of the same bytes.
    pub(super) fn remembered(&self, old: &Remembered) -> Remembered {
        let rest = self.changed_ns.rem_euclid(NS_PER_S) as u32;
        let seconds = self.changed_ns.div_euclid(NS_PER_S) as u32;
        Remembered {
            changed: (seconds, if old.changed.1 == 0 { 0 } else { rest }),
            device: self.device as u32,
            number: self.number as u32,
            user: self.owner.0,
            group: self.owner.1,
            ..*old
        }
    }
}

/// Whether git takes the file that it remembers so for unchanged.
pub(super) fn says(old: &Remembered, facts: &Facts) -> bool {
    let time = |(seconds, rest): (u32, u32), ns: i64| {
        seconds == ns.div_euclid(NS_PER_S) as u32
            && (rest == 0 || rest == ns.rem_euclid(NS_PER_S) as u32)
    };
    time(old.changed, facts.changed_ns)
        && time(old.modified, facts.modified_ns)
        && old.number == facts.number as u32
        && old.size == facts.size as u32
        && (old.user, old.group) == facts.owner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_back::host::beneath::schedule;
    use rustix::io::Errno;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::SystemTime;

    /// What is in the directory, after an index was replaced and somebody has written theirs before
    /// the n-th host call, and how many calls there were.
    fn replaced(n: u32, whole: bool, lacking: bool) -> (Vec<(String, String)>, u32) {
        let scratch = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(scratch.path()).unwrap();
        let (path, name) = (base.join("index"), base.join(".husk-tmp-1-1-1"));
        fs::write(&path, "old").unwrap();
        let old = File::open(&path).unwrap();
        let found = host::identity_of(&old.metadata().unwrap());
        let beneath = Beneath::new([&*base]);
        let (count, theirs) = (Rc::new(Cell::new(0)), path.clone());
        let seen = Rc::clone(&count);
        let plan = move |call| {
            count.set(count.get() + 1);
            if count.get() == n {
                let new = if whole { theirs.with_extension("lock") } else { theirs.clone() };
                fs::write(&new, "theirs").unwrap();
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
                File::open(&new).unwrap().set_modified(time).unwrap();
                fs::rename(&new, &theirs).unwrap();
            }
            if lacking && call == "renameat2" { Err(Errno::INVAL.into()) } else { Ok(()) }
        };
        let done = schedule::during(plan, || replace(&beneath, &name, &path, &old, &found, b"new"));
        done.unwrap();
        let entries = fs::read_dir(&base).unwrap().map(Result::unwrap);
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        let all = entries.map(|one| (one.file_name().into_string().unwrap(), text(&one.path())));
        (all.collect(), seen.get())
    }

    #[test]
    fn an_index_that_somebody_writes_at_any_moment_is_theirs() {
        for (whole, lacking) in [(false, false), (false, true), (true, false), (true, true)] {
            let (left, calls) = replaced(0, whole, lacking);
            assert_eq!(left, [("index".to_owned(), "new".to_owned())]);
            for n in 1..=calls {
                let (left, _) = replaced(n, whole, lacking);
                let expected = [("index".to_owned(), "theirs".to_owned())];
                assert_eq!(left, expected, "before call {n}; whole: {whole}, lacking: {lacking}");
            }
        }
    }
}
