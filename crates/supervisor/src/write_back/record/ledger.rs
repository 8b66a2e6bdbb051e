//! Records what write-backs have put on the host, so that the next one can tell changes of the
//! image from changes of other programs.
//!
//! ```text
//!   begin: directories to work in ──► note: what is about to happen ──► (it happens, or half)
//!                                                                              │
//!   the next plan ◄── entries: path -> what is there, and of which inode ◄── settle: look
//! ```
//!
//! Invariants
//! 1. All that is to get a name is noted before anything gets one, and becomes an entry by a look
//!    at the host: whether all went well, or somebody was killed in between, is the same. What was
//!    seen under its name (`placed`) is an entry even if somebody has replaced it before that look.
//! 2. Where there is no entry, what the image saw when it first looked counts; below a directory
//!    that a write-back made (`Here::made`) that is nothing.
//! 3. A status change (`ctime`) that we caused is nobody else's: the last one of each object is
//!    known (`own`); where it cannot be looked at, when it was done at the latest, negative.
//! 4. What a refresh gives back to the host is written down before (`returning`), and no entry any
//!    more once the image has another object of that name, or none.
//! 5. The file of a ledger is replaced as a whole. One without a file notes nothing.

mod settled;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, HostIdentity, Kind, Rights};
use husk_proto::{Errno, Fs, Inode};
use serde::{Deserialize, Serialize};

use crate::image::clock;
use crate::write_back::Source;
use crate::write_back::commit::make::Noted;
use crate::write_back::host;
use crate::write_back::host::beneath;
use crate::write_back::host::beneath::{Beneath, Glance, Object as Which};
use crate::write_back::host::extended;
use crate::write_back::host::extended::Extended;
use crate::write_back::plan::{Content, Object, Plan};

/// What is known of one path.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// This.
    Here(Here),
    /// Nothing: what was there has been removed, or could not be put into a new directory.
    Gone,
}

/// An object that is on the host as the image had it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Here {
    #[serde(with = "Identity")]
    /// What it is on the host.
    pub identity: HostIdentity,
    /// Number and generation of its inode in the image.
    inode: (u32, u32),
    /// A hash of the bytes (`content::hash`), where it is known.
    pub content: Option<u64>,
    /// A hash of the attributes (`facts`).
    pub facts: u64,
    /// Mode, owner and group, where they are known.
    #[serde(default)]
    pub rights: Option<Rights>,
    /// A directory that a write-back made, with all that is below.
    pub made: bool,
    /// Written beside what somebody else changed: the image has no such name.
    pub aside: bool,
}

impl Here {
    /// Whether it is of this inode.
    pub fn is_of(&self, inode: Inode) -> bool {
        self.inode == (inode.number, inode.generation)
    }
}

/// How an identity is written down.
#[derive(Serialize, Deserialize)]
#[serde(remote = "HostIdentity")]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
}

/// What is about to happen. `shown`: the rights that an object has before its change.
#[derive(Serialize, Deserialize, Debug, Clone)]
enum Intent {
    /// An object gets its name. `top`: with all that is below it, in one step. `again`: what is
    /// known of other names below it holds.
    Put {
        path: Text,
        here: Here,
        top: bool,
        replaces: bool,
        #[serde(default)]
        again: bool,
        #[serde(default)]
        shown: Option<Rights>,
    },
    /// A file gets another name, and with it the attributes it has in the image.
    Link {
        path: Text,
        here: Here,
        modified_ns: i64,
        #[serde(default)]
        shown: Option<Rights>,
    },
    /// An object goes; when that was decided, ns.
    Delete { path: Text, noted_ns: i64 },
    /// Attributes change to these; `extended`: a hash of the extended ones, if they do.
    Touch {
        path: Text,
        here: Here,
        mode: u32,
        modified_ns: i64,
        #[serde(default)]
        extended: Option<u64>,
        #[serde(default)]
        shown: Option<Rights>,
    },
    /// Another name of this object goes: device, inode.
    Relink(u64, u64),
    /// A new directory does not get this name, which it has in the image.
    Unmade { path: Text },
}

/// A path as it is written down.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(untagged)]
pub enum Text {
    /// As it is.
    Plain(String),
    /// Bytes that are no text.
    Raw(Vec<u8>),
}

impl Text {
    /// Of a path.
    pub fn of(path: &Path) -> Text {
        match path.to_str() {
            Some(text) => Text::Plain(text.to_owned()),
            None => Text::Raw(path.as_os_str().as_bytes().to_vec()),
        }
    }

    /// The path.
    pub fn path(&self) -> PathBuf {
        match self {
            Text::Plain(text) => PathBuf::from(text),
            Text::Raw(bytes) => PathBuf::from(OsString::from_vec(bytes.clone())),
        }
    }
}

/// What the image has taken over of a host object.
#[derive(Debug, Default)]
pub struct TakenOver {
    /// A hash of its bytes.
    pub content: Option<u64>,
    /// Its extended attributes.
    pub extended: Option<Extended>,
}

impl TakenOver {
    /// What `facts` are then.
    pub fn facts(&self, facts: u64) -> u64 {
        self.extended.as_ref().map_or(facts, |extended| with_extended(facts, extended))
    }
}

/// The file of a ledger.
#[derive(Serialize, Deserialize, Default)]
struct Stored {
    entries: Vec<(Text, Entry)>,
    own: Vec<(u64, u64, i64)>,
    pending: Vec<Intent>,
    working: Vec<Text>,
    to_go: Vec<(Text, i64)>,
    #[serde(default)]
    returning: Vec<(Text, [u32; 4])>,
}

/// The notes of all write-backs of an image.
#[derive(Debug, Default)]
pub struct Ledger {
    file: Option<PathBuf>,
    entries: BTreeMap<PathBuf, Entry>,
    own: HashMap<(u64, u64), i64>,
    pending: Vec<Intent>,
    /// What has been seen under its name since it was noted.
    placed: HashSet<PathBuf>,
    /// Directories that may hold temporary names.
    working: BTreeSet<PathBuf>,
    /// What may be given back to the host: path, directory in the image, and inode there.
    returning: Vec<(PathBuf, Inode, Inode)>,
    /// What was to be removed and is still there, and when that was decided.
    to_go: HashMap<PathBuf, i64>,
    places: HashMap<(u32, u32), Vec<PathBuf>>,
    /// See `status_changed`.
    changed: bool,
    /// What is pending was noted by one that was killed.
    inherited: bool,
}

impl Ledger {
    /// The ledger kept in `file`, which is read if it is there.
    pub fn at(file: PathBuf) -> Ledger {
        let text = fs::read(&file).unwrap_or_default();
        // What cannot be read is nothing: both versions are kept then.
        let stored: Stored = serde_json::from_slice(&text).unwrap_or_default();
        let mut ledger = Ledger {
            file: Some(file),
            entries: stored.entries.into_iter().map(|(path, entry)| (path.path(), entry)).collect(),
            own: stored.own.into_iter().map(|(device, inode, ns)| ((device, inode), ns)).collect(),
            pending: stored.pending,
            placed: HashSet::new(),
            working: stored.working.iter().map(Text::path).collect(),
            returning: stored
                .returning
                .into_iter()
                .map(|(path, one)| returning(&path, one))
                .collect(),
            to_go: stored.to_go.into_iter().map(|(path, ns)| (path.path(), ns)).collect(),
            places: HashMap::new(),
            changed: false,
            inherited: false,
        };
        ledger.inherited = !ledger.pending.is_empty();
        ledger.index();
        ledger
    }

    /// Whether anything is noted here.
    pub fn notes(&self) -> bool {
        self.file.is_some()
    }

    fn index(&mut self) {
        self.places.clear();
        for (path, entry) in &self.entries {
            if let Entry::Here(here) = entry {
                self.places.entry(here.inode).or_default().push(path.clone());
            }
        }
    }

    // ---- asked by the plan ----------------------------------------------------------------------

    /// What is known of `path`.
    pub fn entry(&self, path: &Path) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// What is there, if something is.
    pub fn here(&self, path: &Path) -> Option<&Here> {
        match self.entries.get(path) {
            Some(Entry::Here(here)) => Some(here),
            _ => None,
        }
    }

    /// The same of an inode of the image, which is what a write-back has put there.
    pub fn here_of(&self, path: &Path, inode: Inode) -> Option<&Here> {
        self.here(path).filter(|here| here.is_of(inode))
    }

    /// What write-backs have put into the directory `path`.
    pub fn children<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Here)> {
        let behind = (Bound::Excluded(path), Bound::Unbounded);
        let below = self.entries.range::<Path, _>(behind);
        let below = below.take_while(move |(one, _)| one.starts_with(path));
        below.filter_map(move |(one, entry)| match entry {
            Entry::Here(here) if one.parent() == Some(path) => Some((&**one, here)),
            _ => None,
        })
    }

    /// Where an inode of the image is on the host.
    pub fn places(&self, inode: Inode) -> impl Iterator<Item = (&Path, &Here)> {
        let paths = self.places.get(&(inode.number, inode.generation)).into_iter().flatten();
        paths.filter_map(|path| Some((&**path, self.here(path)?)))
    }

    /// Every object that is there under a name of the image, and its inode in the image.
    pub fn objects(&self) -> impl Iterator<Item = (&Path, Inode, HostIdentity)> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::Here(Here { identity, inode: (number, generation), aside: false, .. }) => {
                let (number, generation) = (*number, *generation);
                Some((&**path, Inode { number, generation }, *identity))
            }
            _ => None,
        })
    }

    /// Whether the last change of an object is one of ours.
    pub fn is_ours(&self, found: &HostIdentity) -> bool {
        let ours = self.own.get(&found.object());
        ours.is_some_and(|&ns| found.changed_ns == ns || ns < 0 && found.changed_ns <= -ns)
    }

    /// Whether an object is one that write-backs have changed.
    pub fn knows(&self, which: Which) -> bool {
        self.own.contains_key(&which)
    }

    /// Whether `found` is what was `expected`, as far as others are concerned.
    pub fn same(&self, expected: &HostIdentity, found: &HostIdentity) -> bool {
        host::same_content(expected, found)
            && (found.changed_ns == expected.changed_ns || self.is_ours(found))
    }

    /// When it was decided that the object at `path` goes, if it was.
    pub fn to_go_since(&self, path: &Path) -> Option<i64> {
        self.to_go.get(path).copied()
    }

    // ---- told by who writes back ----------------------------------------------------------------

    /// What the image has taken over of an inode, as it is on the host by all its names.
    pub fn learn(&mut self, inode: Inode, taken: &TakenOver) {
        for path in self.places.get(&(inode.number, inode.generation)).into_iter().flatten() {
            if let Some(Entry::Here(here)) = self.entries.get_mut(path) {
                here.content = here.content.or(taken.content);
                here.facts = taken.facts(here.facts);
            }
        }
    }

    /// What a write-back has put at `path` is another object by now, which says the same.
    pub fn replaced(&mut self, path: &Path, identity: HostIdentity) {
        self.own.insert(identity.object(), identity.changed_ns);
        if let Some(Entry::Here(here)) = self.entries.get_mut(path) {
            here.identity = identity;
        }
    }

    /// The image has the rights of what was `found` at `path`, which somebody has changed: of the
    /// same object, or of another directory. `facts`: what it says then, if it had nothing else to
    /// say.
    pub fn status_changed(
        &mut self,
        path: &Path,
        found: &HostIdentity,
        rights: Rights,
        facts: Option<u64>,
    ) {
        let Some(Entry::Here(here)) = self.entries.get_mut(path) else { return };
        let before = *here;
        here.identity.changed_ns = found.changed_ns;
        (here.identity.device, here.identity.inode) = found.object();
        here.rights = Some(rights);
        here.facts = facts.unwrap_or(here.facts);
        self.changed |= *here != before;
    }

    /// Somebody has given what a write-back has put on the host for `inode` another name: `path`,
    /// where it was `found`.
    pub fn linked(&mut self, path: &Path, inode: Inode, found: HostIdentity) {
        let which = found.object();
        let is_it = |here: &&Here| here.identity.object() == which;
        let known = self.places(inode).map(|(_, here)| here).find(is_it).copied();
        if let Some(known) = known {
            let here = Here { identity: found, made: false, aside: false, ..known };
            self.entries.insert(path.to_owned(), Entry::Here(here));
            self.places.entry(known.inode).or_default().push(path.to_owned());
            self.changed = true;
        }
    }

    /// Writes it down, if that was said of anything since.
    pub fn save_if_changed(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.changed) {
            true => self.save(),
            false => Ok(()),
        }
    }

    /// Temporary names are about to be made for `plan`.
    pub fn begin<S: Source>(
        &mut self,
        source: &mut S,
        beneath: &Beneath,
        plan: &Plan,
    ) -> io::Result<()> {
        if !self.notes() {
            return Ok(());
        }
        let deletes = plan.deletes.iter().filter_map(|delete| delete.path.parent());
        let all = plan.puts.iter().map(|put| &*put.directory).chain(deletes);
        self.working.extend(all.map(Path::to_owned));
        plan.puts.iter().for_each(|put| self.note_links(source, beneath, &put.object));
        self.save()
    }

    /// Files of the host from which `object` is made: they change with their new name. One that
    /// somebody else has changed stays theirs.
    fn note_links<S: Source>(&mut self, source: &mut S, beneath: &Beneath, object: &Object) {
        match &object.content {
            Content::Host(path) => {
                let Ok(Some(Glance { identity, rights: there, .. })) = beneath.glance(path) else {
                    return;
                };
                if self.is_edited(source, object, path, &identity) {
                    return;
                }
                let inode = (object.inode.number, object.inode.generation);
                let (content, facts, made, aside) = (None, 0, false, false);
                let rights = Some(rights(&object.attributes));
                let here = Here { identity, inode, content, facts, rights, made, aside };
                let modified_ns = object.attributes.modified_ns;
                let (path, shown) = (Text::of(path), Some(there));
                self.pending.push(Intent::Link { path, here, modified_ns, shown });
            }
            Content::Tree(children) => {
                children.iter().for_each(|(_, child)| self.note_links(source, beneath, child));
            }
            _ => {}
        }
    }

    /// Whether the file of the host that `object` is made of has other bytes or times by now than
    /// the image and its write-backs know of.
    pub fn is_edited<S: Source>(
        &self,
        source: &mut S,
        object: &Object,
        path: &Path,
        found: &HostIdentity,
    ) -> bool {
        let put = self.here_of(path, object.inode);
        let origin = object.attributes.origin;
        let imported = || source.host_identity(origin?).ok();
        let known = put.map(|here| here.identity).or_else(imported);
        let which = |one: &HostIdentity| (one.device, one.inode, one.size, one.modified_ns);
        object.attributes.step.kind == Kind::File
            && known.is_some_and(|known| which(&known) != which(found))
    }

    /// `NotFound`, if what is `found` at `path`, where the file of `object` was, was put there by a
    /// write-back for something else.
    pub fn no_others(&self, object: &Object, path: &Path, found: &HostIdentity) -> io::Result<()> {
        let here = self.here(path).filter(|here| !here.is_of(object.inode) && !object.is_hosts);
        match here.is_some_and(|here| here.identity.object() == found.object()) {
            true => Err(io::Error::from_raw_os_error(Errno::ENOENT.0)),
            false => Ok(()),
        }
    }

    /// Notes all that `plan` is about to do, with what was made for its puts.
    pub fn note(&mut self, beneath: &Beneath, plan: &Plan, made: Vec<Noted>) -> io::Result<()> {
        if !self.notes() {
            return Ok(());
        }
        let noted_ns = clock::exact_ns();
        for put in &plan.puts {
            let replaced = put.replaces.map(|_| put.target());
            self.pending.extend(replaced.iter().flat_map(|path| relinks(beneath, path)));
        }
        for delete in &plan.deletes {
            self.pending.extend(relinks(beneath, &delete.path));
            self.pending.push(Intent::Delete { path: Text::of(&delete.path), noted_ns });
        }
        let replaced: BTreeSet<PathBuf> =
            plan.puts.iter().filter(|put| put.replaces.is_some()).map(|put| put.target()).collect();
        let asides: BTreeSet<PathBuf> =
            plan.puts.iter().filter(|put| put.aside).map(|put| put.target()).collect();
        let tops: BTreeSet<PathBuf> = plan.puts.iter().map(|put| put.target()).collect();
        let unmade = unmade(plan, &made);
        for one in made {
            let here = Here {
                identity: one.identity,
                inode: (one.inode.number, one.inode.generation),
                content: one.content,
                facts: one.facts,
                rights: Some(one.rights),
                made: one.tree,
                aside: asides.contains(&one.path),
            };
            let (top, replaces) = (tops.contains(&one.path), replaced.contains(&one.path));
            let again = plan.made_again.contains(&one.path);
            let (path, shown) = (Text::of(&one.path), Some(one.shown));
            self.pending.push(Intent::Put { path, here, top, replaces, again, shown });
        }
        self.pending.extend(unmade);
        for touch in &plan.touches {
            let known = self.here(&touch.path);
            let here = Here {
                identity: touch.before,
                inode: (touch.inode.number, touch.inode.generation),
                content: known.and_then(|known| known.content),
                facts: facts(&touch.attributes, touch.extended.as_ref()),
                rights: Some(rights(&touch.attributes)),
                made: known.is_some_and(|known| known.made),
                aside: known.is_some_and(|known| known.aside),
            };
            let (mode, modified_ns) = (touch.attributes.step.mode, touch.attributes.modified_ns);
            self.pending.push(Intent::Touch {
                path: Text::of(&touch.path),
                here,
                mode,
                modified_ns,
                extended: touch.extended.as_ref().map(extended::hash_of_all),
                shown: Some(touch.rights),
            });
        }
        self.save()
    }

    /// What was noted for the first path of each pair has been seen at the second one: the same, or
    /// beside it, where somebody else was first.
    pub fn placed(&mut self, names: Vec<(PathBuf, PathBuf)>) {
        let beside = names.iter().filter(|(path, name)| path != name);
        let beside: HashMap<&Path, &Path> = beside.map(|(path, name)| (&**path, &**name)).collect();
        for intent in &mut self.pending {
            if let Intent::Put { path, here, top: true, replaces, .. } = intent
                && let Some(name) = beside.get(&*path.path())
            {
                (*path, here.aside, *replaces) = (Text::of(name), true, false);
            }
        }
        self.placed.extend(names.into_iter().map(|(_, name)| name));
    }

    fn gone(&mut self, path: PathBuf) {
        self.forget(&path);
        self.entries.insert(path, Entry::Gone);
    }

    /// Nothing is known of `path` any more, nor of what was below.
    fn forget(&mut self, path: &Path) {
        beneath::forget_below(&mut self.entries, path);
        self.to_go.retain(|one, _| !one.starts_with(path));
    }

    /// These names of the image may be given back to the host from now on: path, directory, inode.
    pub fn returning(&mut self, names: Vec<(PathBuf, Inode, Inode)>) -> io::Result<()> {
        self.returning.extend(names);
        self.save()
    }

    /// Nothing is known any more of what was given back, whether by this process or by one that was
    /// killed; `paths`: nor of these.
    pub fn returned<F: Fs>(&mut self, image: &mut F, paths: &[PathBuf]) -> io::Result<()> {
        if self.returning.is_empty() && paths.is_empty() {
            return Ok(());
        }
        let mut whiteouts = HashMap::new();
        for (path, dir, inode) in std::mem::take(&mut self.returning) {
            let name = path.file_name().unwrap_or_default().as_bytes();
            let found = image.lookup(dir, name);
            let there = found.is_ok_and(|step| step.inode == inode);
            if !there && self.here_of(&path, inode).is_some() {
                self.forget(&path);
                let replaced = whiteouts.entry(dir).or_insert_with(|| whiteouts_of(image, dir));
                if found.is_err() && replaced.contains(name) {
                    // What the image had replaced there before has been removed by a write-back.
                    self.entries.insert(path, Entry::Gone);
                }
            }
        }
        paths.iter().for_each(|path| self.forget(path));
        self.index();
        self.save()
    }

    /// Writes it down.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let stored = Stored {
            entries: self.entries.iter().map(|(path, entry)| (Text::of(path), *entry)).collect(),
            own: self.own.iter().map(|(&(device, inode), &ns)| (device, inode, ns)).collect(),
            pending: self.pending.clone(),
            working: self.working.iter().map(|path| Text::of(path)).collect(),
            returning: self.returning.iter().map(stored_returning).collect(),
            to_go: self.to_go.iter().map(|(path, ns)| (Text::of(path), *ns)).collect(),
        };
        host::replace(file, &serde_json::to_vec(&stored)?)
    }
}

fn whiteouts_of<F: Fs>(image: &mut F, dir: Inode) -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    // A directory that has gone has none.
    let _ = image.whiteouts(dir, &mut |name, _| {
        names.insert(name.to_vec());
        Ok(())
    });
    names
}

fn returning(
    path: &Text,
    [dir, dir_generation, inode, generation]: [u32; 4],
) -> (PathBuf, Inode, Inode) {
    let dir = Inode { number: dir, generation: dir_generation };
    (path.path(), dir, Inode { number: inode, generation })
}

fn stored_returning((path, dir, inode): &(PathBuf, Inode, Inode)) -> (Text, [u32; 4]) {
    (Text::of(path), [dir.number, dir.generation, inode.number, inode.generation])
}

/// Names in new directories for which nothing could be made. A later look must not take them for
/// names that the host has removed.
fn unmade(plan: &Plan, made: &[Noted]) -> Vec<Intent> {
    let objects: u64 = plan.puts.iter().map(|put| put.object.count()).sum();
    if objects == made.len() as u64 {
        return Vec::new();
    }
    let made: HashSet<&Path> = made.iter().map(|one| &*one.path).collect();
    let puts = plan.puts.iter().filter(|put| !put.aside);
    let mut open: Vec<_> = puts.map(|put| (put.target(), &put.object)).collect();
    let mut unmade = Vec::new();
    while let Some((path, object)) = open.pop() {
        let Content::Tree(children) = &object.content else { continue };
        if !made.contains(&*path) {
            continue;
        }
        for (name, child) in children {
            let path = path.join(name);
            match made.contains(&*path) {
                true => open.push((path, child)),
                false => unmade.push(Intent::Unmade { path: Text::of(&path) }),
            }
        }
    }
    unmade
}

/// Objects at and below `path` that have other names, which will see them go.
fn relinks(beneath: &Beneath, path: &Path) -> Vec<Intent> {
    let (mut open, mut found) = (vec![path.to_owned()], Vec::new());
    while let Some(path) = open.pop() {
        let Ok(Some(one)) = beneath.glance(&path) else { continue };
        if one.directory {
            let names = beneath.names(&path).unwrap_or_default();
            open.extend(names.iter().map(|name| path.join(name)));
        } else if one.links > 1 {
            found.push(Intent::Relink(one.identity.device, one.identity.inode));
        }
    }
    found
}

/// Mode, owner and group that a write-back sets.
pub fn rights(attributes: &Attributes) -> Rights {
    let step = &attributes.step;
    (step.mode & 0o7777, step.uid, step.gid)
}

/// A hash of the attributes that a write-back sets; `extended`: `None`: the host's.
pub fn facts(attributes: &Attributes, extended: Option<&Extended>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let step = &attributes.step;
    (step.mode & 0o7777, step.uid, step.gid, attributes.modified_ns).hash(&mut hasher);
    (step.kind == Kind::Directory).hash(&mut hasher);
    hasher.finish() ^ of_extended(extended)
}

/// The same once the image has taken over the extended attributes that were the host's.
pub fn with_extended(facts: u64, extended: &Extended) -> u64 {
    facts ^ of_extended(None) ^ of_extended(Some(extended))
}

fn of_extended(extended: Option<&Extended>) -> u64 {
    let mut hasher = DefaultHasher::new();
    extended.hash(&mut hasher);
    hasher.finish()
}
