//! First half of a write-back: creates everything new under temporary names.
//!
//! Invariants
//! 1. Nothing the user can name changes here: a crash leaves temporary names and nothing else. What
//!    a name of the host is linked to gets its new attributes in the commit (`Kept::touches`).
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
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use husk_proto::fs::{Attributes, HostIdentity, Kind, Rights};
use husk_proto::{Errno, Inode};

use super::grow::{Growing, Tail};
use super::lose::Loss;
use super::small::{Small, Waiting};
use super::withheld::Withheld;
use crate::output::progress::Progress;
use crate::output::typed::typed;
use crate::write_back::host::beneath;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::{Beneath, object_of};
use crate::write_back::host::extended::Extended;
use crate::write_back::host::numbers::Numbers;
use crate::write_back::host::unsynced::Unsynced;
use crate::write_back::host::{content, extended};
use crate::write_back::plan::{Content, Object, Put, Touch};
use crate::write_back::record::ledger;
use crate::write_back::record::ledger::{Ledger, TakenOver};
use crate::write_back::record::manifest::{Facts, Manifest};
use crate::write_back::rescue::Rescue;
use crate::write_back::{Outcome, Source, Work, host};

/// What is said of what cannot be copied as it was at one moment.
const STILL_CHANGING: &str = "still changing";
/// What is said of what was made and is not there any more.
pub const TAKEN: &str = "another program has removed or replaced the new file";
/// What is said of a mode that is not all of what it was.
const NARROWED: &str = "its group may do no more than others, as the host's object that may have \
    an access control list is gone or replaced (so with all such objects)";
/// What is said of a directory in which a temporary name would stay.
const APPEND_ONLY: &str = "its directory is append-only: chattr -a it, and try again";

/// An object under its temporary name.
#[derive(Debug)]
pub struct Made {
    /// Where.
    pub temporary: PathBuf,
    /// What it is: something else may be there by now.
    pub which: beneath::Object,
    /// Everything below it could be made, too.
    pub complete: bool,
    /// Nothing was made: this goes to the end of what the name leads to.
    pub tail: Option<Tail>,
}

impl Made {
    /// Whether `found` is it.
    pub fn is(&self, found: &HostIdentity) -> io::Result<()> {
        match found.object() == self.which {
            true => Ok(()),
            false => Err(io::Error::other(TAKEN)),
        }
    }
}

/// What was made of a host file.
struct OfHost {
    /// That file.
    held: Held,
    /// Another one with its bytes; `None`: it has one more name.
    copied: Option<Held>,
    /// The later time of both sides; whether somebody else has changed it; a hash of the bytes.
    seen: (i64, bool, Option<u64>),
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
    /// Mode, owner and group that it is to have.
    pub rights: Rights,
    /// The same as it has them under that name.
    pub shown: Rights,
    /// It is a directory.
    pub tree: bool,
}

impl Noted {
    /// What the image has taken over since is known, too.
    pub fn learn(&mut self, taken: &HashMap<Inode, TakenOver>) {
        if let Some(taken) = taken.get(&self.inode) {
            self.content = self.content.or(taken.content);
            self.facts = taken.facts(self.facts);
        }
    }
}

/// What the making tells the second half.
#[derive(Debug, Default)]
pub struct Kept {
    /// Host paths whose content did not make it to its new place: they must stay.
    pub withheld: Withheld,
    /// Inodes that were not made: where an earlier write-back put them, they must stay.
    pub unmade: Vec<Inode>,
    /// The content of a file found no room anywhere.
    pub lost: bool,
    /// Whether the disk has everything that was made.
    pub durable: bool,
    /// Host files that got another name, by device and inode: when they were modified last, as
    /// their attributes in the image say.
    pub linked: HashMap<(u64, u64), i64>,
    /// New attributes of such files, by the names that they have before the commit.
    pub touches: Vec<Touch>,
}

/// Makes the objects of a plan.
pub struct Maker<'a, S> {
    pub(in crate::write_back) beneath: &'a Beneath,
    pub(in crate::write_back) source: &'a mut S,
    pub(in crate::write_back) names: &'a mut host::Names,
    rescue: &'a mut Rescue,
    pub(in crate::write_back) progress: &'a Progress,
    pub(super) outcome: &'a mut Outcome,
    pub(in crate::write_back) ledger: &'a Ledger,
    /// Where an inode of the image already lies on the host (invariant 3).
    made: HashMap<Inode, First>,
    /// Programs go on: what cannot be made now is still in the image the next time.
    live: bool,
    /// What was made, if the ledger wants to know.
    pub(in crate::write_back) noted: Vec<Noted>,
    kept: Kept,
    pub(in crate::write_back) unsynced: Unsynced,
    /// What was made for each put.
    pub(in crate::write_back) all: Vec<Option<Made>>,
    /// Files that may grow, small files that are to be made, and how much that is.
    pub(in crate::write_back) growings: Vec<Growing<'a>>,
    pub(in crate::write_back) smalls: Vec<Small<'a>>,
    pub(in crate::write_back) waiting: Waiting,
    /// Directories that are made but for their attributes, innermost first: what comes into them
    /// changes their times.
    open: Vec<(&'a Object, PathBuf, PathBuf)>,
    /// Where new directories are noted.
    manifest: Option<&'a mut Manifest>,
    /// Files may grow in place: that is noted before it happens.
    grows: bool,
    /// Bytes of all tails so far.
    pub(in crate::write_back) tails_bytes: u64,
    /// Descriptors for files that grow.
    pub(in crate::write_back) numbers: &'a mut Numbers,
    /// The directory that was looked at last, and whether names stay in it.
    append_only: Option<(PathBuf, bool)>,
}

/// The first name of an inode that has several, and what is known of it.
#[derive(Debug, Clone)]
struct First {
    path: PathBuf,
    which: beneath::Object,
    content: Option<u64>,
    facts: u64,
}

impl<'a, S: Source> Maker<'a, S> {
    /// A maker that has made nothing yet.
    pub fn new(
        source: &'a mut S,
        work: &'a mut Work,
        beneath: &'a Beneath,
        outcome: &'a mut Outcome,
        manifest: Option<&'a mut Manifest>,
        numbers: &'a mut Numbers,
    ) -> Self {
        let Work { names, rescue, progress, ledger, live, .. } = work;
        let (live, grows, tails_bytes) = (*live, manifest.is_some() && !*live, 0);
        let (made, noted, kept, unsynced) = Default::default();
        let (all, growings, smalls, waiting, open) = Default::default();
        Self {
            beneath,
            source,
            names,
            rescue,
            progress,
            outcome,
            ledger,
            made,
            live,
            noted,
            kept,
            unsynced,
            all,
            growings,
            smalls,
            waiting,
            open,
            manifest,
            grows,
            tails_bytes,
            numbers,
            append_only: None,
        }
    }

    /// Makes the objects of all `puts`, each under a temporary name in its directory.
    pub fn make_all(&mut self, puts: &'a [Put]) -> Vec<Option<Made>> {
        thread::scope(|scope| {
            let mut beside = None;
            for (n, put) in puts.iter().enumerate() {
                let made = if self.is_over() { None } else { self.make(n, put) };
                self.all.push(made);
                self.make_growings_beside(scope, &mut beside);
                if self.waiting.is_full() {
                    self.settle();
                }
            }
            self.end_beside(beside);
        });
        self.settle();
        std::mem::take(&mut self.all)
    }

    /// Does all that waits.
    fn settle(&mut self) {
        self.waiting = Waiting::default();
        self.make_growings();
        self.make_smalls();
    }

    /// `None`: it cannot be made, or waits.
    fn make(&mut self, n: usize, put: &'a Put) -> Option<Made> {
        if self.grows
            && let Some(growing) = self.growing(n, put)
        {
            return self.make_growing(growing);
        }
        self.make_anew(n, put)
    }

    /// The same of what does not grow in place.
    pub(in crate::write_back) fn make_anew(&mut self, n: usize, put: &'a Put) -> Option<Made> {
        let temporary = self.names.fresh(&put.directory);
        if self.is_append_only(&put.directory) {
            let trouble = Err(io::Error::other(APPEND_ONLY));
            self.concluded(&put.object, &temporary, &put.target(), trouble)?;
        }
        self.unsynced.keep_names(self.beneath, &put.directory);
        let (object, target) = (&put.object, put.target());
        if let Some(small) = self.small(object, &temporary, &target, Some(n)) {
            self.smalls.push(small);
            return None;
        }
        let troubles = |outcome: &Outcome| outcome.failures.len() + outcome.busy.len();
        if object.is_tree() {
            // What others lack is not lacking here.
            self.settle();
        }
        let before = troubles(self.outcome);
        let made = match self.object(object, &temporary, &target) {
            None if !self.open.is_empty() => self.close_all(),
            made => made,
        };
        let complete = troubles(self.outcome) == before;
        made.map(|which| Made { temporary, which, complete, tail: None })
    }

    /// Whether what is made in a directory would stay there under its temporary name.
    fn is_append_only(&mut self, directory: &Path) -> bool {
        if let Some((last, known)) = &self.append_only
            && last == directory
        {
            return *known;
        }
        // What cannot be looked at takes nothing either, and is told.
        let known = self.beneath.is_append_only(directory).unwrap_or(false);
        self.append_only = Some((directory.to_owned(), known));
        known
    }

    /// Ends the directories that are open; what the outermost is.
    fn close_all(&mut self) -> Option<beneath::Object> {
        self.settle();
        let mut outermost = None;
        for (object, path, shown) in std::mem::take(&mut self.open) {
            let made = self.attempt(object, &path, &shown);
            outermost = self.concluded(object, &path, &shown, made);
        }
        outermost
    }

    /// Programs go on.
    pub(in crate::write_back) fn is_live(&self) -> bool {
        self.live
    }

    /// Whether what is made will not be needed: whoever can go on later does not go on now.
    pub fn is_over(&self) -> bool {
        self.progress.is_stopped() || !self.live && self.kept.lost
    }

    /// Makes everything made so far durable; then hands out what must not be deleted, and notes.
    pub fn finish(mut self) -> (Kept, Vec<Noted>) {
        let failures = self.outcome.failures.len();
        if !self.is_over() {
            self.unsynced.sync(self.beneath, self.outcome);
        }
        self.kept.durable = self.outcome.failures.len() == failures;
        (self.kept, self.noted)
    }

    /// Makes `object` at `path`; `shown` is the name the user knows it by. Directories stay `open`.
    fn object(&mut self, object: &'a Object, path: &Path, shown: &Path) -> Option<beneath::Object> {
        let Content::Tree(children) = &object.content else {
            let made = self.attempt(object, path, shown);
            return self.concluded(object, path, shown, made);
        };
        match self.tree(children, path, shown) {
            Ok(()) => self.open.push((object, path.to_owned(), shown.to_owned())),
            Err(problem) => drop(self.concluded(object, path, shown, Err(problem))),
        }
        None
    }

    /// What was made, if it was; else what it was to be is saved or put off, and that is told.
    pub(in crate::write_back) fn concluded(
        &mut self,
        object: &Object,
        path: &Path,
        shown: &Path,
        made: io::Result<beneath::Object>,
    ) -> Option<beneath::Object> {
        self.progress.step();
        let problem = match made {
            Ok(which) => return Some(which),
            Err(problem) => problem,
        };
        // What is half there under a temporary name is of no use. A directory is removed only for
        // one that was made.
        let _ = match object.is_tree() {
            true => self.beneath.remove_tree(path),
            false => self.beneath.remove(path),
        };
        if self.live {
            self.put_off(object, shown, &problem);
        } else {
            let mut loss = Loss {
                source: self.source,
                rescue: self.rescue,
                kept: &mut self.kept,
                lines: &mut self.outcome.failures,
            };
            loss.lose(object, shown, &crate::write_back::reason(&problem));
        }
        None
    }

    fn attempt(
        &mut self,
        object: &Object,
        path: &Path,
        shown: &Path,
    ) -> io::Result<beneath::Object> {
        if let Some(first) = self.first_of(object)
            && let Ok(held) = self.beneath.hold(&first.path)
            && object_of(held.found()) == first.which
            && self.beneath.link(&held, path).is_ok()
        {
            return self.note(object, &held, shown, first.content, first.facts);
        }
        let mut attributes = object.attributes;
        let (mut hash, mut from, mut linked, mut edited) = (None, None, None, false);
        let held = match &object.content {
            Content::Image => {
                let file = self.beneath.create(path)?;
                if self.live {
                    let still = content::export_still(self.source, object.inode, &file)?;
                    let still = still.ok_or_else(|| io::Error::other(STILL_CHANGING))?;
                    (attributes, hash) = (still.attributes, Some(still.content));
                } else {
                    content::export(self.source, object.inode, &file)?;
                }
                self.progress.wrote(attributes.size);
                let held = Held::of_file(file)?;
                self.unsynced.keep(&held)?;
                held
            }
            Content::Host(origin) => {
                let of_host = self.made_of_host(object, origin, path)?;
                (attributes.modified_ns, edited, hash) = of_host.seen;
                match of_host.copied {
                    Some(copied) => {
                        from = Some(extended::even_unreadable(&of_host.held));
                        copied
                    }
                    None => {
                        linked = Some(origin);
                        of_host.held
                    }
                }
            }
            Content::Symlink(target) => self.beneath.make_symlink(target, path)?,
            Content::Special => {
                let kind = host::special_kind(object.attributes.step.kind);
                self.beneath.make_special(path, kind, object.attributes.device.into())?
            }
            // All that is below it is there.
            Content::Tree(_) => self.beneath.hold(path)?,
            Content::HostTree(origin) => self.host_tree(origin, path)?,
        };
        match linked {
            Some(origin) => self.touch_later(object, &attributes, origin, &held),
            None => self.set_all(object, &attributes, &held, from, shown)?,
        }
        if let Content::Host(_) = object.content {
            self.unsynced.keep_attributes(&held);
        }
        // The image goes on to have the times that it has.
        let shows = if edited { &object.attributes } else { &attributes };
        let facts = ledger::facts(shows, object.extended.as_ref());
        if self.may_have_names(object) {
            let which = object_of(held.found());
            let first = First { path: path.to_owned(), which, content: hash, facts };
            self.made.insert(object.inode, first);
        }
        self.note(object, &held, shown, hash, facts)
    }

    /// What was made for the first name of an object.
    fn first_of(&self, object: &Object) -> Option<First> {
        self.made.get(&object.inode).filter(|_| self.may_have_names(object)).cloned()
    }

    /// While programs go on, a file may have got another name since it was looked at.
    fn may_have_names(&self, object: &Object) -> bool {
        !object.is_tree() && !object.is_hosts && (self.live || object.attributes.links > 1)
    }

    /// A host file that the image has moved or linked.
    fn made_of_host(&mut self, object: &Object, origin: &Path, path: &Path) -> io::Result<OfHost> {
        let (held, mut modified_ns) = (self.beneath.hold(origin)?, object.attributes.modified_ns);
        let found = held.identity();
        self.ledger.no_others(object, origin, &found)?;
        let edited = self.ledger.is_edited(self.source, object, origin, &found);
        if edited {
            modified_ns = modified_ns.max(found.modified_ns);
        }
        // What somebody else has changed keeps its name, with a file of its own.
        let copied = match edited && object.attributes.links == 1 {
            true => Some(content::copy_of_host(self.beneath, &held, path)?),
            false => content::link_or_copy(self.beneath, &held, path)?,
        };
        let seen = (modified_ns, edited, self.hash_of(object, &held, edited));
        Ok(OfHost { held, copied, seen })
    }

    /// A hash of the bytes of a file whose bytes are the image's, and which the host has, too: a
    /// refresh compares with it. Others have one once the image has taken them over (`detach`).
    fn hash_of(&self, object: &Object, held: &Held, edited: bool) -> Option<u64> {
        let ours = host::has_own_bytes(&object.attributes);
        if !self.live || !ours || edited {
            return None;
        }
        // Without one the image's is not given back.
        held.read().and_then(|file| content::hash_of_host(&file)).ok()
    }

    /// What the host had under the name `origin` has another name now; what else is new of it comes
    /// in the commit (invariant 1).
    fn touch_later(
        &mut self,
        object: &Object,
        attributes: &Attributes,
        origin: &Path,
        held: &Held,
    ) {
        let (found, wanted) = (Facts::of(held.found()), Facts::wanted(attributes));
        let mut modified_ns = found.modified_ns;
        if (found != wanted || object.extended.is_some()) && self.is_own(object, held) {
            modified_ns = wanted.modified_ns;
            self.kept.touches.push(Touch {
                path: origin.to_owned(),
                inode: object.inode,
                before: held.identity(),
                rights: host::rights_of(held.found()),
                attributes: *attributes,
                extended: object.extended.clone(),
            });
        }
        self.kept.linked.insert(object_of(held.found()), modified_ns);
    }

    /// Whether what a name of the host leads to is what the image has its attributes from, or what
    /// was put there, or is new. Another one may be anybody's: it gets a name, and nothing else.
    fn is_own(&mut self, object: &Object, held: &Held) -> bool {
        let which = object_of(held.found());
        let origin = object.attributes.origin;
        let imported = origin.and_then(|origin| self.source.host_identity(origin).ok());
        let imported = imported.is_some_and(|one| one.object() == which);
        imported || self.ledger.knows(which) || held.found().nlink() == 1
    }

    fn note(
        &mut self,
        object: &Object,
        held: &Held,
        shown: &Path,
        content: Option<u64>,
        facts: u64,
    ) -> io::Result<beneath::Object> {
        let which = object_of(held.found());
        if self.ledger.notes() {
            let now = held.now()?;
            let (mut identity, there) = (host::identity_of(&now), host::rights_of(&now));
            if let Some(modified_ns) = self.kept.linked.get(&which) {
                // As it will be.
                identity.modified_ns = *modified_ns;
            }
            let (path, inode, tree) = (shown.to_owned(), object.inode, object.is_tree());
            let (rights, shown) = (ledger::rights(&object.attributes), there);
            self.noted.push(Noted { path, inode, identity, content, facts, rights, shown, tree });
        }
        Ok(which)
    }

    /// What cannot be made while programs go on: it is in the image, and the old one stays.
    fn put_off(&mut self, object: &Object, shown: &Path, problem: &io::Error) {
        self.withhold_all(object);
        let gone = [Errno::ESTALE.0, Errno::ENOENT.0];
        let gone = problem.raw_os_error().is_some_and(|errno| gone.contains(&errno));
        let of_host = match &object.content {
            Content::Host(origin) | Content::HostTree(origin) => Some(origin),
            _ => None,
        };
        if let Some(origin) = of_host.filter(|_| gone) {
            let line = format!("{}: {}", shown.display(), moved_away(origin, shown));
            return self.outcome.failures.push(line);
        }
        match gone || problem.to_string() == STILL_CHANGING {
            true => self.outcome.busy.push(format!("{}: {STILL_CHANGING}", shown.display())),
            false => {
                let why = crate::write_back::reason(problem);
                self.outcome.failures.push(format!("{}: {why}", shown.display()));
            }
        }
    }

    fn withhold_all(&mut self, object: &Object) {
        self.kept.withhold(self.source, object);
        if let Content::Tree(children) = &object.content {
            children.iter().for_each(|(_, child)| self.withhold_all(child));
        }
    }

    /// All attributes. The extended ones come after the owner, whose change takes capabilities
    /// away, and before the mode, which may deny its owner to read or write them.
    fn set_all(
        &mut self,
        object: &Object,
        attributes: &Attributes,
        held: &Held,
        from: Option<io::Result<Extended>>,
        shown: &Path,
    ) -> io::Result<()> {
        let (mut attributes, of_host) = (*attributes, from.is_some());
        let extended = match (&object.extended, from) {
            (Some(extended), _) => Ok(extended.clone()),
            (None, Some(from)) => from,
            (None, None) => match self.extended_of_origin(object, shown) {
                Ok(Some(extended)) => Ok(extended),
                Ok(None) => {
                    self.narrow(&mut attributes, shown);
                    Ok(Extended::new())
                }
                Err(problem) => {
                    self.narrow(&mut attributes, shown);
                    Err(problem)
                }
            },
        };
        if self.beneath.hands_down() && extended.as_ref().is_ok_and(Vec::is_empty) {
            extended::forget_lists(held)?;
        }
        let mut set = Ok(());
        held.set_attributes_around(&attributes, || {
            // A list changes the mode.
            let any = extended.as_ref().is_ok_and(|all| !all.is_empty());
            set = extended.and_then(|all| extended::set(held, &all));
            any
        })?;
        self.outcome.note(shown, set);
        if of_host {
            self.tell_owner(held, (attributes.step.uid, attributes.step.gid), shown)?;
        }
        Ok(())
    }

    /// The extended attributes of the host's object that the image has changed; `None`: it is not
    /// there. What has its name instead may be anybody's, and give anybody rights.
    fn extended_of_origin(
        &mut self,
        object: &Object,
        shown: &Path,
    ) -> io::Result<Option<Extended>> {
        let Some(origin) = object.attributes.origin else { return Ok(Some(Extended::new())) };
        let imported = self.source.host_identity(origin).ok();
        let imported = imported.map(|one| one.object());
        let path =
            crate::write_back::origin_path(self.source, &object.attributes).unwrap_or_default();
        for path in path.into_iter().chain([shown.to_owned()]) {
            let Some(held) = self.beneath.hold_if_there(&path)? else { continue };
            let which = object_of(held.found());
            // An earlier write-back has put it there.
            let put = self.ledger.here_of(&path, object.inode);
            let put = put.is_some_and(|here| here.identity.object() == which);
            if put || imported == Some(which) {
                return extended::even_unreadable(&held).map(Some);
            }
        }
        Ok(None)
    }

    /// Where a list is not known.
    fn narrow(&mut self, attributes: &mut Attributes, shown: &Path) {
        let mode = attributes.step.mode;
        let narrowed = extended::without_list(mode);
        if narrowed == mode || attributes.step.kind == Kind::Symlink {
            return;
        }
        attributes.step.mode = narrowed;
        let notes = &mut self.outcome.notes;
        if !notes.iter().any(|line| line.ends_with(NARROWED)) {
            notes.push(format!("{}: {NARROWED}", shown.display()));
        }
    }

    /// What is made is held again when all below is: one descriptor a level would be too many.
    fn tree(
        &mut self,
        children: &'a [(OsString, Object)],
        path: &Path,
        shown: &Path,
    ) -> io::Result<()> {
        self.directory(path)?;
        for (name, child) in children {
            let (path, shown) = (path.join(name), shown.join(name));
            match self.small(child, &path, &shown, None) {
                Some(small) => self.smalls.push(small),
                None => drop(self.object(child, &path, &shown)),
            }
            if self.waiting.is_full() {
                self.settle();
            }
        }
        Ok(())
    }

    /// A new directory. One that has a temporary name is noted: whoever finds it can know it then.
    fn directory(&mut self, path: &Path) -> io::Result<()> {
        let made = self.beneath.make_directory(path)?;
        if self.open.is_empty()
            && let Some(manifest) = &mut self.manifest
        {
            // Where that fails, the steps cannot be noted either, which is told.
            let _ = manifest.made(path, made.found());
        }
        self.unsynced.keep_names(self.beneath, path);
        Ok(())
    }

    /// All of a host directory, by hard links (invariant 2).
    fn host_tree(&mut self, origin: &Path, path: &Path) -> io::Result<Held> {
        self.directory(path)?;
        self.fill_from_host(origin, path)
    }

    fn fill_from_host(&mut self, origin: &Path, path: &Path) -> io::Result<Held> {
        for name in self.beneath.names(origin)? {
            let (from, to) = (origin.join(&name), path.join(&name));
            let held = self.beneath.hold(&from)?;
            if !held.found().is_dir() {
                if let Some(copied) = content::link_or_copy(self.beneath, &held, &to)? {
                    self.make_like(&copied, &held, &from)?;
                }
                continue;
            }
            let (found, extended) = (held.found().clone(), held.extended()?);
            drop(held);
            self.beneath.make_directory(&to)?;
            self.unsynced.keep_names(self.beneath, &to);
            let made = self.fill_from_host(&from, &to)?;
            made.set_like(&found)?;
            self.outcome.note(&from, extended::set(&made, &extended));
        }
        self.beneath.hold(path)
    }
}

/// What is said of what the image has moved from `origin` to `shown`, and its bytes are not there.
fn moved_away(origin: &Path, shown: &Path) -> String {
    let (origin, shown) = (typed(origin), typed(shown));
    format!(
        "another program has moved or removed {origin}, where its content is: move that back, or \
         remove {shown} in the image"
    )
}

impl Kept {
    /// Whether something at, above or below `path` must stay.
    pub fn is_withheld(&self, path: &Path) -> bool {
        self.withheld.touches(path)
    }

    /// Where earlier write-backs have put what was not made now, it stays.
    pub fn withhold_unmade(&mut self, ledger: &Ledger) {
        for inode in std::mem::take(&mut self.unmade) {
            self.withheld.extend(ledger.places(inode).map(|(path, _)| path.to_owned()));
        }
    }

    /// Invariant 5.
    pub(super) fn withhold<S: Source>(&mut self, source: &mut S, object: &Object) {
        self.unmade.push(object.inode);
        if let Content::Host(origin) | Content::HostTree(origin) = &object.content {
            return self.withheld.insert(origin.clone());
        }
        // Where the image does not say, there is nothing of it on the host.
        let origin = crate::write_back::origin_path(source, &object.attributes);
        self.withheld.extend(origin.ok().flatten());
    }
}
