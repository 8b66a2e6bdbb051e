//! Appends in place to host files that the image has only appended to.
//!
//! ```text
//!   make: the host's file is what was imported, and the image's begins with it? ─► its tail
//!   manifest: the tails are on the disk ─► commit: each is appended
//! ```
//!
//! Nothing is copied, and the file keeps its number. The file is opened to append: who writes to it
//! at that very moment loses nothing. What changed before is seen, and the image's version goes
//! beside it, as always.
//!
//! Several threads share the host calls (`hands`), each for files of its own. A file stays open
//! from the first look to its append, as far as there are descriptors (`numbers`); at the append
//! its name must still lead there.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use husk_proto::fs::{Backing, HostIdentity};

use super::make::{Made, Maker, Noted, TAKEN};
use super::small::{SMALL_BYTES, Waiting};
use super::{Commit, old_must_stay};
use crate::output::typed::typed;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::schedule;
use crate::write_back::host::beneath::{
    Object as Which, Place, object_of, set_len, sync_file_system,
};
use crate::write_back::host::{content, hands};
use crate::write_back::plan::{Content, Put};
use crate::write_back::record::ledger;
use crate::write_back::record::manifest::Facts;
use crate::write_back::{Source, host};

/// Longest tail; a longer one is no more work to copy with its file.
const TAIL_BYTES_MAX: u64 = 64 << 10;
/// All tails of a write-back: they are in memory and in its manifest.
const TAILS_BYTES_MAX: u64 = 64 << 20;

/// Files that are worth a thread beside the one that reads the image, or a sync beside appends.
const BESIDE_MIN: usize = 1024;

/// What is to be appended.
#[derive(Debug)]
pub struct Tail {
    /// To which file.
    pub which: Which,
    /// Its attributes before.
    pub before: Facts,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// `content::hash_of_start` of what the file has had before.
    pub begin: u64,
    /// The file, until it is appended to; `None`: it is opened once more.
    open: Mutex<Option<Held>>,
}

// ---- make ---------------------------------------------------------------------------------------

/// A file that may grow in place, if the host's is the beginning of it.
#[derive(Debug)]
pub(in crate::write_back) struct Growing<'p> {
    put: &'p Put,
    /// Its number among all.
    n: usize,
    old: HostIdentity,
    place: Place,
    /// All of it; `None`: it is longer than what is shared.
    bytes: Option<Vec<u8>>,
    /// It stays open.
    stays: bool,
}

/// Files that another thread looks at; none: no thread could be had.
pub(in crate::write_back) struct Beside<'s, 'p> {
    growings: Arc<Vec<Growing<'p>>>,
    thread: Option<ScopedJoinHandle<'s, Vec<Option<Tail>>>>,
}

impl Growing<'_> {
    /// What is to be appended; `None`: it is to be made anew.
    fn tail(&self) -> Option<Tail> {
        let held = self.unchanged()?;
        let (start, tail) = self.bytes.as_ref()?.split_at_checked(self.old.size as usize)?;
        let begin = content::hash_if_start(held.file().ok()?, start).ok()??;
        Some(self.tail_of(held, begin, tail.to_vec()))
    }

    /// The same of a long file.
    fn tail_from<S: Source>(&self, source: &mut S) -> Option<Tail> {
        let held = self.unchanged()?;
        let (inode, size) = (self.put.object.inode, self.old.size);
        let begin = content::begins_with(source, inode, held.file().ok()?, size).ok()??;
        let grown = self.put.object.attributes.size - size;
        let bytes = content::piece(source, inode, size, grown as usize).ok()?;
        Some(self.tail_of(held, begin, bytes))
    }

    fn tail_of(&self, held: Held, begin: u64, bytes: Vec<u8>) -> Tail {
        let (which, before) = (self.old.object(), Facts::of(held.found()));
        Tail { which, before, bytes, begin, open: Mutex::new(self.stays.then_some(held)) }
    }

    /// The host's file, if it is as it was imported, and has the attributes it is to have.
    fn unchanged(&self) -> Option<Held> {
        let held = self.place.open_to_append().ok()?;
        let found = held.found();
        let (step, mode) = (&self.put.object.attributes.step, found.mode() & 0o7777);
        let same = host::same_content(&self.old, &held.identity())
            && found.nlink() == 1
            && (mode, found.uid(), found.gid()) == (step.mode & 0o7777, step.uid, step.gid)
            && mode & host::SET_ID == 0;
        same.then_some(held)
    }
}

impl<'a, S: Source> Maker<'a, S> {
    /// A put of which the host's file may be the beginning.
    pub(in crate::write_back) fn growing(&mut self, n: usize, put: &'a Put) -> Option<Growing<'a>> {
        let (object, old) = (&put.object, put.replaces?);
        let attributes = &object.attributes;
        let grown = attributes.size.checked_sub(old.size).filter(|&grown| grown > 0)?;
        let whole = put.aside || attributes.links != 1 || attributes.extended != Backing::Host;
        if whole || grown > TAIL_BYTES_MAX || self.tails_bytes + grown > TAILS_BYTES_MAX {
            return None;
        }
        let origin = self.source.host_identity(attributes.origin?).ok()?;
        let same = origin.object() == old.object();
        if !same || !matches!(object.content, Content::Image) {
            return None;
        }
        let place = self.beneath.within(&put.directory, &put.name).ok()?;
        let bytes = match attributes.size {
            size if size > SMALL_BYTES => None,
            size => Some(content::piece(self.source, object.inode, 0, size as usize).ok()?),
        };
        self.tails_bytes += grown;
        let stays = self.numbers.take();
        Some(Growing { put, n, old, place, bytes, stays })
    }

    /// What is to be made of it: at once, or with others.
    pub(in crate::write_back) fn make_growing(&mut self, growing: Growing<'a>) -> Option<Made> {
        match &growing.bytes {
            None => {
                let tail = growing.tail_from(self.source);
                self.grown(&growing, tail)
            }
            Some(bytes) => {
                self.waiting.add(&growing.place, bytes.len() as u64);
                self.growings.push(growing);
                None
            }
        }
    }

    /// Looks at all that wait.
    pub(in crate::write_back) fn make_growings(&mut self) {
        let growings = std::mem::take(&mut self.growings);
        let tails = hands::share(&growings, Growing::tail);
        self.all_grown(&growings, tails);
    }

    /// Has another thread look at them, once there are enough, while this one reads the next from
    /// the image; concludes those before.
    pub(in crate::write_back) fn make_growings_beside<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        beside: &mut Option<Beside<'s, 'a>>,
    ) where
        'a: 's,
    {
        if self.growings.len() < BESIDE_MIN || schedule::is_set() {
            return;
        }
        self.end_beside(beside.take());
        let growings = Arc::new(std::mem::take(&mut self.growings));
        let theirs = Arc::clone(&growings);
        let look = move || hands::share(&theirs, Growing::tail);
        let thread = thread::Builder::new().spawn_scoped(scope, look).ok();
        *beside = Some(Beside { growings, thread });
    }

    /// Concludes what another thread has looked at.
    pub(in crate::write_back) fn end_beside(&mut self, beside: Option<Beside<'_, 'a>>) {
        let Some(Beside { growings, thread }) = beside else { return };
        let tails = match thread.map(ScopedJoinHandle::join) {
            Some(Ok(tails)) => tails,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => hands::share(&growings, Growing::tail),
        };
        self.all_grown(&growings, tails);
    }

    fn all_grown(&mut self, growings: &[Growing<'a>], tails: Vec<Option<Tail>>) {
        for (growing, tail) in growings.iter().zip(tails) {
            self.all[growing.n] = self.grown(growing, tail);
        }
    }

    fn grown(&mut self, growing: &Growing<'a>, tail: Option<Tail>) -> Option<Made> {
        let Growing { put, n, old, .. } = *growing;
        let Some(tail) = tail else { return self.make_anew(n, put) };
        if self.ledger.notes() {
            let attributes = &put.object.attributes;
            let (size, modified_ns) = (attributes.size, attributes.modified_ns);
            let identity = HostIdentity { size, modified_ns, ..old };
            let facts = ledger::facts(attributes, put.object.extended.as_ref());
            let (path, inode, content, tree) = (put.target(), put.object.inode, None, false);
            let rights = ledger::rights(attributes);
            let shown = rights;
            self.noted.push(Noted { path, inode, identity, content, facts, rights, shown, tree });
        }
        self.progress.step();
        self.progress.wrote(tail.bytes.len() as u64);
        let (temporary, which) = (PathBuf::new(), tail.which);
        Some(Made { temporary, which, complete: true, tail: Some(tail) })
    }
}

// ---- commit -------------------------------------------------------------------------------------

/// A tail and the file it belongs to.
struct Append<'p> {
    put: &'p Put,
    made: &'p Made,
    old: HostIdentity,
    tail: &'p Tail,
    place: Place,
    /// Its descriptor is needed to sync it.
    keep: bool,
}

/// What came of it.
enum Grown {
    /// Somebody has changed the file: nothing is done to it.
    Changed,
    /// It is as it was.
    Failed(io::Error),
    /// It has grown; what has its name then.
    Done(HostIdentity, Option<File>),
}

impl Append<'_> {
    fn append(&self) -> Grown {
        let open = self.tail.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        let done = match open {
            Some(held) if self.is_named(&held) => {
                self.append_to(&held).and_then(|()| self.done(&held, after(&held)?))
            }
            Some(_) => return Grown::Changed,
            None => match self.place.open_to_append() {
                Ok(held) if host::same_content(&self.old, &held.identity()) => {
                    let there = |()| self.done(&held, self.place.glance()?.identity);
                    self.append_to(&held).and_then(there)
                }
                _ => return Grown::Changed,
            },
        };
        done.unwrap_or_else(Grown::Failed)
    }

    /// Whether the name leads to what is held, as it was.
    fn is_named(&self, held: &Held) -> bool {
        let there = self.place.glance().map(|there| there.identity);
        let same = |there: &HostIdentity| host::same_content(&self.old, there);
        there.is_ok_and(|there| same(&there) && there.inode == held.found().ino())
    }

    fn append_to(&self, held: &Held) -> io::Result<()> {
        let attributes = &self.put.object.attributes;
        if let Err(problem) = held.append(&self.tail.bytes) {
            // What it had before is all it has then, unless somebody else has written to it.
            if is_begun(held, self.old.size, &self.tail.bytes)? {
                set_len(held.file()?, self.old.size)?;
                held.set_times(attributes.accessed_ns, self.old.modified_ns, false)?;
            }
            return Err(problem);
        }
        match held.set_times(attributes.accessed_ns, attributes.modified_ns, false) {
            // A file of somebody else that we may write to, or one that can only be appended to: it
            // has its bytes, and its times follow by themselves.
            Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            set => set,
        }
    }

    fn done(&self, held: &Held, there: HostIdentity) -> io::Result<Grown> {
        let to_sync = self.keep.then(|| held.to_sync());
        if let Some(Err(_)) = to_sync {
            // Without a descriptor for later it is made durable at once.
            crate::write_back::host::beneath::sync(held.file()?)?;
        }
        Ok(Grown::Done(there, to_sync.and_then(Result::ok)))
    }
}

/// What a file is that was appended to. Somebody may have removed it at that moment.
fn after(held: &Held) -> io::Result<HostIdentity> {
    let now = held.now()?;
    if now.nlink() == 0 { Err(io::Error::other(TAKEN)) } else { Ok(host::identity_of(&now)) }
}

impl<S: Source> Commit<'_, S> {
    /// Appends tails to the files they belong to. While the next ones are appended, the disk gets
    /// what the ones before have left.
    pub(in crate::write_back) fn grow_all<'p>(
        &mut self,
        all: impl Iterator<Item = (&'p Put, &'p Made)>,
    ) {
        thread::scope(|scope| {
            let (mut appends, mut waiting, mut directory) = (Vec::new(), Waiting::default(), None);
            let mut early = None;
            for (put, made) in all {
                if let Some(why) = old_must_stay(put, made, &self.kept) {
                    self.not_placed(put, made, &format!("{why}: the old one is kept"));
                    continue;
                }
                if directory != Some(&put.directory) {
                    self.directories.insert(put.directory.clone());
                    directory = Some(&put.directory);
                }
                let Some(append) = self.to_append(put, made, appends.len()) else {
                    let placed = self.made_after_all(put);
                    self.conclude(put, made, placed.map(drop));
                    continue;
                };
                waiting.add(&append.place, append.tail.bytes.len() as u64);
                appends.push(append);
                if waiting.is_full() || appends.len() == BESIDE_MIN {
                    self.append_all(&std::mem::take(&mut appends));
                    waiting = Waiting::default();
                    self.sync_early(scope, &mut early, &put.directory);
                }
            }
            self.append_all(&appends);
        });
    }

    /// Begins to sync, unless that is going on. It promises nothing: errors are those of the sync
    /// at the end, whose descriptor was opened before the writes and is another one.
    fn sync_early<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        early: &mut Option<ScopedJoinHandle<'s, ()>>,
        directory: &Path,
    ) {
        let goes_on = early.as_ref().is_some_and(|thread| !thread.is_finished());
        if goes_on || schedule::is_set() {
            return;
        }
        if let Ok(opened) = self.beneath.open_to_sync(directory) {
            let sync = move || drop(sync_file_system(&opened));
            *early = thread::Builder::new().spawn_scoped(scope, sync).ok();
        }
    }

    /// `None`: nothing can be noted, or there is nothing to append to.
    fn to_append<'p>(&self, put: &'p Put, made: &'p Made, waiting: usize) -> Option<Append<'p>> {
        let (old, tail) = (put.replaces?, made.tail.as_ref()?);
        let place = self.beneath.within(&put.directory, &put.name);
        let place = place.ok().filter(|_| self.noted)?;
        let keep = self.unsynced.is_singly(waiting);
        Some(Append { put, made, old, tail, place, keep })
    }

    fn append_all(&mut self, appends: &[Append<'_>]) {
        let done = hands::share(appends, Append::append);
        for (append, done) in appends.iter().zip(done) {
            let Append { put, made, .. } = *append;
            let placed = match done {
                Grown::Changed => self.made_after_all(put).map(drop),
                Grown::Failed(problem) => Err(problem),
                Grown::Done(there, descriptor) => self.grown(append, &there, descriptor),
            };
            self.conclude(put, made, placed);
        }
    }

    fn grown(
        &mut self,
        append: &Append<'_>,
        there: &HostIdentity,
        descriptor: Option<File>,
    ) -> io::Result<()> {
        let (beneath, put) = (self.beneath, append.put);
        self.unsynced.keep_as(append.old.device, || match descriptor {
            Some(descriptor) => Ok(descriptor),
            None => beneath.read(&put.target()),
        })?;
        append.made.is(there)?;
        if there.size != put.object.attributes.size {
            let line = "was written to at the same moment: it has what both have written";
            let path = typed(&put.target());
            self.outcome.conflicts.push(format!("{path} {line}; see it: tail {path}"));
        }
        Ok(())
    }

    /// It does not grow in place: somebody has changed it, or nothing can be noted.
    fn made_after_all(&mut self, put: &Put) -> io::Result<PathBuf> {
        let Some(old) = put.replaces else { return Err(io::ErrorKind::InvalidInput.into()) };
        let temporary = self.names.fresh(&put.directory);
        let file = self.beneath.create(&temporary)?;
        content::export(self.source, put.object.inode, &file)?;
        let held = Held::of_file(file)?;
        held.set_attributes(&put.object.attributes)?;
        crate::write_back::host::beneath::sync(held.file()?)?;
        let found = held.found();
        let which = object_of(found);
        let late = Made { temporary, which, complete: true, tail: None };
        self.place_over(put, &late, &put.target(), &old)
    }
}

/// Whether what a file has from `size` on is the beginning of `tail`, or all of it.
pub fn is_begun(held: &Held, size: u64, tail: &[u8]) -> io::Result<bool> {
    let there = held.now()?.len();
    let Some(more) = there.checked_sub(size).filter(|&more| more <= tail.len() as u64) else {
        return Ok(false);
    };
    let mut bytes = vec![0; more as usize];
    crate::write_back::host::beneath::read_exact_at(held.file()?, &mut bytes, size)?;
    Ok(tail.starts_with(&bytes))
}
