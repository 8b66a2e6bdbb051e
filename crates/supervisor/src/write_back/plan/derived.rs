//! Rules for derived files (git's index, SQLite's side files), so that they are rarely a conflict.
//!
//! ```text
//!   index of git         one side has only refreshed it (same paths, modes, objects, flags): the
//!                        other's counts; else the newer whole one, with the other beside it
//!   references of git    the host has only packed them: the image's counts (`git_refs`)
//!   NAME-shm of SQLite   the host's stays: it is made anew of NAME-wal
//!   NAME-wal of SQLite   an empty one of the host has nothing in it: the image's counts
//! ```
//!
//! All else that looks made is treated as what it may be, somebody's work: locks and swap files of
//! editors say that somebody edits; `node_modules`, `target` and `.venv` fit together only as a
//! whole, so that the host's stays in all of their files.
//!
//! What an index said when the image first saw it is known by the host object's identity: who
//! lists a directory with an `index` in it asks the supervisor to look (`remember`), which keeps it
//! in the image's directory for the next one. Of an object that was replaced before the supervisor
//! looked, what was last known of its path is assumed. What is not known makes the newer one count.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use husk_proto::Inode;
use husk_proto::fs::HostIdentity;

use crate::write_back::git::index::Index;
use crate::write_back::git::refs;
use crate::write_back::host::beneath::Beneath;
use crate::write_back::host::content;
use crate::write_back::record::ledger::Text;
use crate::write_back::{Source, host};

/// Name of git's index.
pub const INDEX: &str = "index";
/// Longest index that is looked into, bytes.
const INDEX_BYTES_MAX: u64 = 512 << 20;
/// Indexes that are known at a time.
const KNOWN_MAX: usize = 4096;

/// What becomes of a file that both sides have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The image's takes the place of the host's, in which nothing is lost.
    Image,
    /// The host's stays, nothing of the image's is lost.
    Host,
    /// The image's is the newer one, and the host's is to be kept beside it.
    ImageIsNewer,
    /// The host's is the newer one, and the image's is to be kept beside it.
    HostIsNewer,
}

/// What is known of indexes: hashes of what they say.
#[derive(Default)]
struct Known {
    /// By host object.
    objects: HashMap<Object, u64>,
    /// By path: that of the last one.
    last: HashMap<PathBuf, u64>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// How it is kept.
type Kept = (Vec<(Object, u64)>, Vec<(Text, u64)>);

/// Where it is kept for others.
static KEPT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Device, number, size and time of an object, which others give it when they change it.
type Object = (u64, u64, u64, i64);

fn object(of: &HostIdentity) -> Object {
    (of.device, of.inode, of.size, of.modified_ns)
}

/// What an index at `path` said, which was this object.
fn known(path: &Path, of: &HostIdentity) -> Option<u64> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.objects.get(&object(of)).or_else(|| known.last.get(path)).copied()
}

/// Notes what an object says, and that `path` said so last.
fn note(path: Option<&Path>, of: Option<&HostIdentity>, content: u64) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.objects.len() >= KNOWN_MAX || known.last.len() >= KNOWN_MAX {
        *known = Known::default();
    }
    known.objects.extend(of.map(|of| (object(of), content)));
    known.last.extend(path.map(|path| (path.to_owned(), content)));
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = &*kept {
        // What is not kept is unknown to others: then the newer index counts.
        let _ = keep(file, &known);
    }
}

fn keep(file: &Path, known: &Known) -> io::Result<()> {
    let objects = known.objects.iter().map(|(&object, &content)| (object, content));
    let last = known.last.iter().map(|(path, &content)| (Text::of(path), content));
    let all: Kept = (objects.collect(), last.collect());
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(&all)?)?;
    fs::rename(&new, file)
}

/// Takes in what the supervisor of an image has kept in `file`.
pub fn recall(file: &Path) {
    let bytes = fs::read(file).unwrap_or_default();
    let (objects, last): Kept = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.objects.extend(objects);
    known.last.extend(last.into_iter().map(|(path, content)| (path.path(), content)));
}

/// The same, and all that is known from now on is kept there: for the next supervisor, and for
/// commands that look.
pub fn keep_in(file: PathBuf) {
    recall(&file);
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.objects.is_empty() {
        let _ = keep(&file, &known);
    }
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
}

/// Looks at what may be an index at `path`, and remembers what it says; `false`: what is there is
/// not the one with this `identity` any more.
pub fn remember(path: &Path, identity: &HostIdentity) -> bool {
    let Some(file) = open(path) else { return false };
    if !file.metadata().is_ok_and(|found| host::identity_of(&found) == *identity) {
        return false;
    }
    let beside = |name: &str| whole(&open(&path.with_file_name(name))?).map(|(_, bytes)| bytes);
    if let Some((found, index)) = index_in(&file, beside)
        && found == *identity
    {
        note(Some(path), Some(identity), index.content());
    }
    true
}

/// Looks at an index that is to get its name: the next command of the host may replace it as soon
/// as it has. What it says, for `placed`.
pub fn remember_new(beneath: &Beneath, temporary: &Path) -> Option<u64> {
    let (found, index) = index_beneath(beneath, temporary)?;
    let content = index.content();
    note(None, Some(&found), content);
    Some(content)
}

/// An index that says this has got the name `path`.
pub fn placed(path: &Path, content: u64) {
    note(Some(path), None, content);
}

/// Whether a name may be that of a file of this kind.
pub fn is_index(name: &[u8]) -> bool {
    name == INDEX.as_bytes()
}

/// Whether a name is that of SQLite's shared memory.
pub fn is_shared_memory(beneath: &Beneath, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let base = name.strip_suffix(b"-shm").filter(|base| !base.is_empty());
    let there = |base| beneath.found(&path.with_file_name(host::path_of(base)));
    base.is_some_and(|base| matches!(there(base), Ok(Some(_))))
}

fn open(path: &Path) -> Option<File> {
    const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    const NO_WAIT: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(NO_FOLLOW | NO_WAIT).open(path).ok()
}

/// All bytes of `file`, as they are at one moment.
fn whole(file: &File) -> Option<(HostIdentity, Vec<u8>)> {
    let before = file.metadata().ok().filter(|found| found.is_file())?;
    if before.len() > INDEX_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::with_capacity(before.len() as usize);
    file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let (before, after) = (host::identity_of(&before), host::identity_of(&file.metadata().ok()?));
    // Its links may change meanwhile, its bytes not.
    (object(&before) == object(&after)).then_some((after, bytes))
}

/// The index in `file`; `beside`: the bytes of files in its directory.
fn index_in(
    file: &File,
    mut beside: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Option<(HostIdentity, Index)> {
    let (found, bytes) = whole(file)?;
    Some((found, Index::parse(bytes, &mut beside)?))
}

/// The index at `path` on the host.
fn index_beneath(beneath: &Beneath, path: &Path) -> Option<(HostIdentity, Index)> {
    index_of(beneath, path, &beneath.read(path).ok()?)
}

/// The index in `file`, whose path is this.
pub fn index_of(beneath: &Beneath, path: &Path, file: &File) -> Option<(HostIdentity, Index)> {
    index_in(file, |name| bytes_beside(beneath, path, name))
}

fn bytes_beside(beneath: &Beneath, path: &Path, name: &str) -> Option<Vec<u8>> {
    bytes_at(beneath, &path.with_file_name(name))
}

/// All bytes of the host's file at `path`.
pub fn bytes_at(beneath: &Beneath, path: &Path) -> Option<Vec<u8>> {
    whole(&beneath.read(path).ok()?).map(|(_, bytes)| bytes)
}

/// Where a file is to be, and what the host has there.
pub struct Look<'a> {
    /// The way to it.
    pub beneath: &'a Beneath,
    /// Where.
    pub target: &'a Path,
    /// What the image saw there.
    pub expected: Option<&'a HostIdentity>,
    /// What is there instead.
    pub found: Option<&'a HostIdentity>,
    /// The image's directory that it is in.
    pub directory: Option<Inode>,
}

/// What becomes of `inode`, a file with its bytes in the image. `None`: no rule.
pub fn verdict<S: Source>(source: &mut S, inode: Inode, look: &Look<'_>) -> Option<Verdict> {
    let Look { beneath, target, expected, found, directory } = *look;
    let Some(found) = found else {
        let packed = refs::is_only_packed(source, beneath, target, directory?);
        return packed.then_some(Verdict::Image);
    };
    let name = target.file_name()?.as_encoded_bytes();
    if is_shared_memory(beneath, target) {
        return Some(Verdict::Host);
    }
    if name.ends_with(b"-wal") && found.size == 0 {
        return Some(Verdict::Image);
    }
    if !is_index(name) {
        return None;
    }
    let theirs = index_beneath(beneath, target);
    let (there, theirs) = theirs.filter(|(there, _)| object(there) == object(found))?;
    let attributes = source.attributes(inode).ok()?;
    let ours = index_of_image(source, inode, look)?.content();
    let (theirs, before) = (theirs.content(), expected.and_then(|seen| known(target, seen)));
    // What is decided here is expected to be there when it is done.
    note(None, Some(found), theirs);
    Some(match before {
        _ if theirs == ours => Verdict::Image,
        Some(before) if theirs == before => Verdict::Image,
        Some(before) if ours == before => Verdict::Host,
        _ if attributes.modified_ns >= there.modified_ns => Verdict::ImageIsNewer,
        _ => Verdict::HostIsNewer,
    })
}

fn index_of_image<S: Source>(source: &mut S, inode: Inode, look: &Look<'_>) -> Option<Index> {
    let bytes = bytes_of_image(source, inode)?;
    // The name of a file beside it says what is in it, so that the host's is the same.
    Index::parse(bytes, &mut |name| {
        bytes_beside(look.beneath, look.target, name).or_else(|| {
            let step = source.lookup(look.directory?, name.as_bytes()).ok()?;
            bytes_of_image(source, step.inode)
        })
    })
}

/// All bytes of a file of the image.
pub fn bytes_of_image<S: Source>(source: &mut S, inode: Inode) -> Option<Vec<u8>> {
    let size = source.attributes(inode).ok().filter(|one| one.size <= INDEX_BYTES_MAX)?.size;
    let bytes = content::read_all(source, inode, size).ok()?;
    (bytes.len() as u64 == size).then_some(bytes)
}
