//! The list of a write-back's steps, durable before the first step is taken.
//!
//! ```text
//!   begin: whose, where ─► (temporary names are made) ─► ready: all steps, durable
//!     ─► (names change hands; the old ones have temporary names) ─► past: nothing is undone now
//!     ─► (the old ones go) ─► end: no manifest
//! ```
//!
//! A write-back that is killed leaves its manifest, and whoever comes next finds it (`recover`).
//!
//! Invariants
//! 1. No name changes before `ready` is on the disk. One that is not ready tells of temporary names
//!    only: they are removed. A new directory is noted (`made`) before anything is put into it, so
//!    that nothing but what a write-back has made is removed with all below.
//! 2. Until `past` everything old has a name: forward and back are both possible.
//! 3. The file is locked as long as its write-back lives.
//! 4. Manifests are in directories of this user alone, never in the trees that are written to.

mod devices;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use husk_proto::fs::{Attributes, HostIdentity, Rights};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use super::ledger::Text;
use crate::config::state;
use crate::image::clock;
use crate::write_back::host;
use crate::write_back::host::below::Below;
use crate::write_back::host::beneath::schedule::{before, before_sync};
use crate::write_back::host::beneath::{Beneath, object_of};
use crate::write_back::host::hands;
use crate::write_back::plan::scan::Run;

/// What its syncs are called on a schedule.
const SYNC: &str = "fsync manifest";
/// How often is tried to take what others may be looking at, and the time in between. A child of
/// whoever held one holds it, too, until it runs its program: on a busy machine a while.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// Ending of the files.
const ENDING: &str = "manifest";
/// Longest manifest that is read.
const BYTES_MAX: u64 = 4 << 30;
/// Longest first line of one, in which all directories are.
const HEAD_BYTES_MAX: u64 = 16 << 20;
/// Lines that one thread makes at a time.
const LINES_AT_ONCE: usize = 64;

/// Whose write-back it is, and where.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Head {
    /// Number of the run, and when its image started: they name the image.
    pub number: u32,
    /// See `number`.
    pub started_ns: i64,
    /// How its temporary names begin.
    pub stem: String,
    /// The directories of its overlays.
    pub roots: Vec<Text>,
    /// Directories that may hold temporary names.
    pub directories: Vec<Text>,
    /// Device and inode of each.
    #[serde(default)]
    pub which: Vec<Option<(u64, u64)>>,
}

/// Which object, and when its content was changed last.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Device and inode.
    pub which: (u64, u64),
    /// In ns.
    pub modified_ns: i64,
    /// What was below it, if it is a directory.
    #[serde(default)]
    pub below: Option<Below>,
}

impl Seen {
    /// What an identity says of it.
    pub fn of(identity: &HostIdentity) -> Seen {
        let which = identity.object();
        Seen { which, modified_ns: identity.modified_ns, below: None }
    }
}

/// Bytes of a file, as they are written down.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(untagged)]
pub enum Bytes {
    /// They are a text.
    Text(String),
    /// They are none.
    Raw(Vec<u8>),
}

impl Bytes {
    /// Of these.
    pub fn of(bytes: &[u8]) -> Bytes {
        match std::str::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text.to_owned()),
            Err(_) => Bytes::Raw(bytes.to_vec()),
        }
    }

    /// Them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Bytes::Text(text) => text.as_bytes(),
            Bytes::Raw(bytes) => bytes,
        }
    }
}

/// Attributes that are set.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Mode bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last access, ns.
    pub accessed_ns: i64,
    /// Time of the last change, ns.
    pub modified_ns: i64,
}

impl Facts {
    /// What an object of the image is to have on the host.
    pub fn wanted(attributes: &Attributes) -> Facts {
        Facts {
            mode: attributes.step.mode & 0o7777,
            uid: attributes.step.uid,
            gid: attributes.step.gid,
            accessed_ns: attributes.accessed_ns,
            modified_ns: attributes.modified_ns,
        }
    }

    /// What an object is to have that had `last` as far as is known and has `now`: these, but for
    /// the rights that somebody else has changed.
    pub fn but_for_others(self, last: &Facts, now: &Facts) -> Facts {
        let pick = |ours: u32, last: u32, now: u32| if now == last { ours } else { now };
        Facts {
            mode: pick(self.mode, last.mode, now.mode),
            uid: pick(self.uid, last.uid, now.uid),
            gid: pick(self.gid, last.gid, now.gid),
            ..self
        }
    }

    /// The same but for the time of the last access.
    pub fn is_like(&self, other: &Facts) -> bool {
        Facts { accessed_ns: other.accessed_ns, ..*self } == *other
    }

    /// Of what was `found`.
    pub fn of(found: &fs::Metadata) -> Facts {
        let ns = |seconds: i64, rest: i64| seconds * host::NS_PER_S + rest;
        Facts {
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            accessed_ns: ns(found.atime(), found.atime_nsec()),
            modified_ns: ns(found.mtime(), found.mtime_nsec()),
        }
    }
}

/// One step, from a look at the host just before the first.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// What was made gets its name; what it replaces gets the temporary one.
    Put {
        temporary: Text,
        target: Text,
        made: (u64, u64),
        replaces: Option<Seen>,
        /// Rights of what it replaces, and of what was made.
        #[serde(default)]
        rights: Option<[Rights; 2]>,
    },
    /// What was there gets a temporary name, and goes.
    Delete { path: Text, temporary: Text, what: Seen },
    /// A file grows at its end, from `size` bytes on.
    Append {
        path: Text,
        what: Seen,
        size: u64,
        /// A hash of these bytes; others' versions have noted none.
        #[serde(default)]
        begin: Option<u64>,
        tail: Bytes,
        after: Facts,
        before: Facts,
    },
    /// Attributes change.
    Touch {
        path: Text,
        what: (u64, u64),
        before: Facts,
        after: Facts,
        /// Before any name: under this one it is moved, removed or linked.
        #[serde(default)]
        early: bool,
    },
}

impl Step {
    /// The name it is about.
    pub fn path(&self) -> PathBuf {
        match self {
            Step::Put { target, .. } => target.path(),
            Step::Delete { path, .. } | Step::Touch { path, .. } | Step::Append { path, .. } => {
                path.path()
            }
        }
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize, Debug)]
enum Line {
    Head(Head),
    Step(Step),
    Made(Directory),
    Ready { steps: usize },
    Past,
    Back,
    Going,
}

/// A directory that was made under a temporary name, before anything is in it.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Directory {
    temporary: Text,
    which: (u64, u64),
    /// Numbers are given again: when it came to be, ns.
    born_ns: i64,
}

impl Directory {
    /// What was `found` at `temporary`.
    pub fn of(temporary: &Path, found: &fs::Metadata) -> Directory {
        let which = object_of(found);
        Directory { temporary: Text::of(temporary), which, born_ns: clock::born_ns(found) }
    }

    /// Removes it, if it is still there, with all below.
    pub fn remove(&self, beneath: &Beneath) {
        let temporary = self.temporary.path();
        let found = beneath.found(&temporary).ok().flatten();
        if found.is_some_and(|found| Directory::of(&temporary, &found).is(self)) {
            // What cannot be removed stays recognisable.
            let _ = beneath.remove_tree_of(&temporary, self.which);
        }
    }

    fn is(&self, other: &Directory) -> bool {
        (self.which, self.born_ns) == (other.which, other.born_ns)
    }
}

/// The manifest of a write-back that is under way.
#[derive(Debug)]
pub struct Manifest {
    path: PathBuf,
    file: File,
    /// What may be the half of a line is at its end: nothing more is written.
    torn: bool,
    ready: bool,
}

impl Manifest {
    /// Begins one in the first of `places` that takes it.
    pub fn begin(places: &[PathBuf], head: Head) -> io::Result<Manifest> {
        let mut trouble = io::Error::other("this user has no place for it");
        for place in places {
            match Manifest::begin_in(place, &head) {
                Ok(manifest) => return Ok(manifest),
                Err(problem) => trouble = problem,
            }
        }
        Err(trouble)
    }

    fn begin_in(place: &Path, head: &Head) -> io::Result<Manifest> {
        before("mkdir")?;
        state::make_alone(place)?;
        let path = place.join(format!("{}.{ENDING}", host::unguessable()));
        let mut options = OpenOptions::new();
        before("open")?;
        let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        let mut manifest = Manifest { path, file, torn: false, ready: false };
        let locked = before("flock")
            .and_then(|()| Ok(flock(&manifest.file, FlockOperation::NonBlockingLockExclusive)?));
        let written = locked.and_then(|()| manifest.write(&[Line::Head(head.clone())]));
        written.inspect_err(|_| drop(fs::remove_file(&manifest.path)))?;
        Ok(manifest)
    }

    /// A directory was made under a temporary name. Not durable: after a loss of power it may stay.
    pub fn made(&mut self, temporary: &Path, found: &fs::Metadata) -> io::Result<()> {
        self.write(&[Line::Made(Directory::of(temporary, found))])
    }

    /// Invariant 1.
    pub fn ready(&mut self, steps: Vec<Step>) -> io::Result<()> {
        let mut lines: Vec<Line> = steps.into_iter().map(Line::Step).collect();
        lines.push(Line::Ready { steps: lines.len() });
        self.write(&lines)?;
        before_sync(SYNC, &self.file)?;
        self.file.sync_data()?;
        let directory = File::open(self.path.parent().unwrap_or(Path::new("/")))?;
        before_sync(SYNC, &directory)?;
        directory.sync_all()?;
        self.ready = true;
        Ok(())
    }

    /// Whether its steps can be recovered.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// From now on what is old goes (invariant 2). Durable, if anything goes: a directory of which
    /// the half is removed looks like one that can be put back.
    pub fn past(&mut self, anything: bool) -> io::Result<()> {
        self.write(&[Line::Past])?;
        if anything {
            before_sync(SYNC, &self.file)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// All is done.
    pub fn end(self) -> io::Result<()> {
        before("unlinkat")?;
        fs::remove_file(&self.path)
    }

    fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let some: Vec<_> = lines.chunks(LINES_AT_ONCE).collect();
        let text = hands::share(&some, |lines| text_of(lines));
        let text = text.into_iter().collect::<Result<Vec<_>, _>>()?;
        if self.torn {
            return Err(io::Error::other("an earlier line could not be written"));
        }
        let write = |()| text.iter().try_for_each(|part| self.file.write_all(part));
        let written = before("write").and_then(write);
        self.torn = written.is_err();
        written
    }
}

fn text_of(lines: &[Line]) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// A manifest whose write-back has not come to its end.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    /// Whose it is.
    pub head: Head,
    /// What was to be done; nothing, where it is not ready.
    pub steps: Vec<Step>,
    /// Directories that were made.
    pub made: Vec<Directory>,
    /// Names may have changed.
    pub ready: bool,
    /// What is old may have gone.
    pub past: bool,
    /// Somebody has begun to undo it.
    pub undoing: bool,
    /// What is new may have gone.
    pub going: bool,
    /// When its write-back has written to it last, ns: all of its making was over then.
    pub written_ns: i64,
    /// Its write-back, or somebody who recovers it, is at work.
    busy: bool,
    /// As long as this lives nobody else is; `None` where it was only looked at.
    lock: Option<File>,
}

impl Pending {
    /// `take`: to recover it. Who only looks lets go of it at once, so that nobody who is to
    /// recover it finds it taken.
    fn read(path: PathBuf, take: bool) -> io::Result<Pending> {
        let mut options = OpenOptions::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = options.read(true).write(true).custom_flags(flags).open(&path)?;
        let busy = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
        if !busy && !take {
            flock(&file, FlockOperation::Unlock)?;
        }
        let lock = (take && !busy).then(|| file.try_clone()).transpose()?;
        let written_ns = host::identity_of(&file.metadata()?).modified_ns;
        let mut text = Vec::new();
        // What is at work writes on: only whose it is can be known.
        let most = if busy { HEAD_BYTES_MAX } else { BYTES_MAX };
        file.take(most).read_to_end(&mut text)?;
        let lines = text.split_inclusive(|&byte| byte == b'\n');
        // A line that is not whole was the last one of somebody who lost power.
        let mut lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let Some(Line::Head(head)) = lines.next() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (steps, ready, past) = (Vec::new(), false, false);
        let (undoing, going, made) = (false, false, Vec::new());
        let mut pending = Pending {
            path,
            head,
            steps,
            made,
            ready,
            past,
            undoing,
            going,
            written_ns,
            busy,
            lock,
        };
        for line in lines {
            match line {
                Line::Step(step) => pending.steps.push(step),
                Line::Made(directory) => pending.made.push(directory),
                Line::Ready { steps } => pending.ready = steps == pending.steps.len(),
                Line::Past => pending.past = true,
                Line::Back => pending.undoing = true,
                Line::Going => pending.going = true,
                Line::Head(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        if !pending.ready {
            pending.steps.clear();
        } else if !pending.busy {
            pending.renumber();
        }
        Ok(pending)
    }

    /// What people call it.
    pub fn id(&self) -> &str {
        let stem = self.path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        stem.get(..8).unwrap_or(stem)
    }

    /// Somebody is at work on it.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// The same one, to be recovered.
    pub fn taken(&self) -> io::Result<Pending> {
        let mut taken = Pending::read(self.path.clone(), true)?;
        for _ in 0..TRIES {
            if !taken.busy {
                break;
            }
            // Who only looks lets go at once.
            sleep(PAUSE);
            taken = Pending::read(self.path.clone(), true)?;
        }
        Ok(taken)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it works.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.head.roots.iter().map(Text::path).collect()
    }

    /// Whether it works at, above or below `path`.
    pub fn touches(&self, path: &Path) -> bool {
        self.roots().iter().any(|root| root.starts_with(path) || path.starts_with(root))
    }

    /// Whether it is a write-back of this image.
    pub fn is_of(&self, run: &Run) -> bool {
        (self.head.number, self.head.started_ns) == (run.number, run.started_ns)
    }

    /// It is about to be undone.
    pub fn turn_back(&mut self) -> io::Result<()> {
        self.note(&Line::Back)?;
        self.undoing = true;
        Ok(())
    }

    /// It is undone, and what is new goes: nobody may go forward from here on.
    pub fn let_go_of_new(&self) -> io::Result<()> {
        self.note(&Line::Going)
    }

    /// It is done, and what is old goes: nobody may go back from here on.
    pub fn let_go_of_old(&self) -> io::Result<()> {
        if self.past { Ok(()) } else { self.note(&Line::Past) }
    }

    /// Adds a line, durably.
    fn note(&self, line: &Line) -> io::Result<()> {
        let Some(mut file) = self.lock.as_ref() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        // Before it may be the half of another line.
        let line = format!("\n{}\n", serde_json::to_string(line)?);
        before("write")?;
        file.write_all(line.as_bytes())?;
        before_sync(SYNC, file)?;
        // What is changed after the steps were noted is known by that time.
        let written = UNIX_EPOCH + Duration::from_nanos(self.written_ns.unsigned_abs());
        file.set_modified(written)?;
        file.sync_data()
    }

    /// What was to be done is done, or undone: it goes.
    pub fn end(self) -> io::Result<()> {
        before("unlinkat")?;
        fs::remove_file(&self.path)
    }
}

/// All manifests that there are, to be recovered.
pub fn pending(places: &[PathBuf]) -> Vec<Pending> {
    all(places, true)
}

/// The same for who only looks.
pub fn looked_at(places: &[PathBuf]) -> Vec<Pending> {
    all(places, false)
}

fn files(places: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let own = places.iter().filter(|place| state::is_alone(place).is_ok());
    let files = own.filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.extension() == Some(ENDING.as_ref()))
}

/// Whether there is one, whatever it says: a look that holds up nobody.
pub fn any(places: &[PathBuf]) -> bool {
    files(places).next().is_some()
}

fn all(places: &[PathBuf], take: bool) -> Vec<Pending> {
    let files = files(places);
    let mut all: Vec<_> = files.filter_map(|path| Pending::read(path, take).ok()).collect();
    all.sort_by_key(|one| one.written_ns);
    all
}

/// How the temporary names begin of all write-backs that can still be recovered. Where one cannot
/// be read, any may be its: all are kept.
#[derive(Debug)]
pub struct Kept {
    stems: Vec<String>,
    all: bool,
}

impl Kept {
    /// Those of this user.
    pub fn by_this_user() -> Kept {
        Kept::of(&places())
    }

    fn of(places: &[PathBuf]) -> Kept {
        let mut kept = Kept { stems: Vec::new(), all: false };
        for place in places {
            let files = match state::is_alone(place).and_then(|()| fs::read_dir(place)) {
                Ok(files) => files,
                Err(problem) => {
                    // There is none, or it is somebody else's.
                    let known = [io::ErrorKind::NotFound, io::ErrorKind::Other];
                    kept.all |= !known.contains(&problem.kind());
                    continue;
                }
            };
            for file in files {
                match file.map(|file| file.path()) {
                    Ok(path) if path.extension() == Some(ENDING.as_ref()) => kept.add(path),
                    Ok(_) => {}
                    Err(_) => kept.all = true,
                }
            }
        }
        kept
    }

    fn add(&mut self, path: PathBuf) {
        match Pending::read(path, false) {
            // Of a long one that somebody recovers only the beginning is read.
            Ok(one) if one.ready || one.busy => self.stems.push(one.head.stem),
            Ok(_) => {}
            Err(problem) => {
                // One has ended meanwhile, or has not begun: it has nothing that is needed.
                let known = [io::ErrorKind::NotFound, io::ErrorKind::InvalidData];
                self.all |= !known.contains(&problem.kind());
            }
        }
    }

    /// Whether a temporary name is one of them.
    pub fn keeps(&self, name: &OsStr) -> bool {
        self.all || self.stems.iter().any(|stem| name.as_bytes().starts_with(stem.as_bytes()))
    }
}

/// Where this user's manifests are.
pub fn places() -> Vec<PathBuf> {
    let own = state::base().map(|base| base.join("husk/write-back"));
    let uid = rustix::process::geteuid().as_raw();
    own.into_iter().chain([PathBuf::from(format!("/var/tmp/husk-write-back-{uid}"))]).collect()
}

/// Makes the place for manifests before an image shows the trees, if it lies in one of them: one
/// that came with the write-back would meet what the image has of that name (`~/.local`).
pub fn prepare<'a>(mut trees: impl Iterator<Item = &'a Path>) {
    let places = places();
    let Some(place) = places.first() else { return };
    let real = place.ancestors().find_map(|above| fs::canonicalize(above).ok());
    if real.is_some_and(|real| trees.any(|tree| real.starts_with(tree))) {
        // What cannot be made now is told of when it is needed.
        let _ = state::make_alone(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn temporary_names_of_what_can_be_recovered_are_kept_and_all_where_that_is_unknown() {
        let scratch = tempfile::tempdir().unwrap();
        let places = [scratch.path().join("own"), scratch.path().join("none")];
        let head = |stem: &str| Head {
            number: 1,
            started_ns: 2,
            stem: stem.into(),
            roots: Vec::new(),
            directories: Vec::new(),
            which: Vec::new(),
        };
        let keeps = |name: &str| Kept::of(&places).keeps(OsStr::new(name));
        // A child that another test has just forked still holds what this one has dropped.
        let has_gone = |name| {
            (0..TRIES).any(|_| {
                let kept = keeps(name);
                sleep(if kept { PAUSE } else { Duration::ZERO });
                !kept
            })
        };
        assert!(!keeps(".husk-tmp-ready-1"));
        let mut ready = Manifest::begin(&places, head(".husk-tmp-ready-")).unwrap();
        ready.ready(Vec::new()).unwrap();
        let begun = Manifest::begin(&places, head(".husk-tmp-begun-")).unwrap();
        let at_work = Manifest::begin(&places, head(".husk-tmp-at-work-")).unwrap();
        drop((ready, begun));
        assert!(keeps(".husk-tmp-ready-1") && keeps(".husk-tmp-at-work-1"));
        assert!(has_gone(".husk-tmp-begun-1") && !keeps(".husk-tmp-other-1"));
        drop(at_work);
        // One that cannot be opened may be anybody's, and so may what is in such a directory.
        let unknown = places[0].join(format!("x.{ENDING}"));
        symlink("x", &unknown).unwrap();
        assert!(keeps(".husk-tmp-other-1"));
        fs::remove_file(unknown).unwrap();
        assert!(!keeps(".husk-tmp-other-1"));
        // A directory that others may enter is none of this user's.
        fs::set_permissions(&places[0], fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!keeps(".husk-tmp-ready-1"));
    }
}
