//! A store: one file, the structures in it, and the log that keeps them.
//!
//! Invariants
//! 1. The state in memory is what all records of the log make, in their order: a batch is logged
//!    and applied under one lock.
//! 2. A snapshot of the state fits into the file, so a full log can always be emptied: what would
//!    make it longer is refused first.
//! 3. After an error of a write nothing is logged or applied any more.
//!
//! Locks: `inner` before the log's own; `one_checkpoint` before `inner`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use husk_storage::area::header::{self, Header};
use husk_storage::area::{Area, Locked};
use husk_storage::disk::{BLOCK, Disk};
use husk_storage::log::{Found, Log as Records, Refusal};
use husk_storage::{Problem, Uuid};

use crate::batch::{self, Batch};
use crate::committer::{self, Callback, Errands};
use crate::doorbell::Doorbell;
use crate::record::{self, Kind, Operation};
use crate::state::{State, Structure};
use crate::structures::{Counter, Log, Map, Queue};
use crate::{Error, Lsn};

/// The name that the header of each store has, whatever its file is called.
const NAME: &str = "tenacious";
/// How often a batch that finds the log full makes room for itself: others may take it.
const TRIES: u32 = 8;
/// How long one sleep is, of who waits for ever.
const LOOK: Duration = Duration::from_secs(60);
/// Blocks of a snapshot that hold its content, of 65; the rest are heads.
const CONTENT_OF_65: u64 = 63;

/// How a store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long a change waits at most that nobody waits for, until it is written: 10 ms.
    pub delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { delay: Duration::from_millis(10) }
    }
}

/// What a store has done since it was opened, and how full it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Batches that are durable.
    pub batches: u64,
    /// Writes that brought them, each with a flush.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// How often the whole state was written, so that the log could begin anew.
    pub checkpoints: u64,
    /// What the state takes of `room_bytes`.
    pub used_bytes: u64,
    /// What the state may take.
    pub room_bytes: u64,
}

/// An open store. Clones are the same store; the last one to go makes everything durable.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.errands.close();
        let committer = self.committer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may go in a callback, which is on that very thread.
        if let Some(thread) = committer.filter(|one| one.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// The store without its thread.
pub(crate) struct Core {
    pub log: Records<Arc<dyn Disk>>,
    pub options: Options,
    pub errands: Errands,
    /// Invariant 2: longest snapshot.
    room_bytes: u64,
    inner: Mutex<Inner>,
    pushed: Condvar,
    one_checkpoint: Mutex<()>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    /// Items of queues that nobody has taken.
    ready: HashMap<u32, BTreeSet<u64>>,
}

impl Store {
    /// Makes a store of `size_bytes` at `path`, which must not be there. All of it is written, so
    /// that no later write waits for the file system to find room. A third of it holds data.
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        let what = format!("cannot make {}", path.display());
        let size_bytes = size_bytes.next_multiple_of(BLOCK);
        if !(husk_storage::area::SIZE_BYTES_MIN..=husk_storage::area::SIZE_BYTES_MAX)
            .contains(&size_bytes)
        {
            return Err(Error::Open(format!(
                "{what}: a store has 1 MiB to 64 TiB; choose another size"
            )));
        }
        let path =
            &std::path::absolute(path).map_err(|why| Error::Open(format!("{what}: {why}")))?;
        let uuid = Uuid::random().map_err(|why| Error::Open(format!("{what}: {why}")))?;
        let (name, owner_uid) = (NAME.to_owned(), rustix::process::geteuid().as_raw());
        let header = Header { uuid, name, size_bytes, owner_uid, epoch: 0, holder_pid: 0 };
        Area::make(path, &header, &what).map_err(|problem| not_open(&what, &problem))?;
        Self::open(path)
    }

    /// Opens the store at `path`. One process at a time can have it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, Options::default())
    }

    /// The same, with options.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref();
        let what = format!("cannot open {}", path.display());
        let failed = |problem: Problem| not_open(&what, &problem);
        let locked = Locked::take(path, &what).map_err(failed)?;
        let (copies, _) = locked.look().map_err(failed)?;
        let ours = copies.iter().flatten().find(|header| header.name == NAME);
        // Without one, the area says itself what is wrong with it.
        let uuid = ours.map_or(Uuid([0; 16]), |header| header.uuid);
        let area = locked.acquire(uuid).map_err(failed)?;
        let place = (header::CONTENT_AT, area.header.size_bytes);
        let user = (area.header.uuid, area.header.epoch);
        let core = Core::open(Arc::new(area), place, user, options)
            .map_err(|why| Error::Open(format!("{what}: {why}")))?;
        let core = Arc::new(core);
        let its = Arc::clone(&core);
        let run = move || committer::run(&its);
        let thread = thread::Builder::new().name("tenacious".into()).spawn(run);
        let thread = thread.map_err(|why| Error::Open(format!("{what}: {why}")))?;
        Ok(Self { shared: Arc::new(Shared { core, committer: Mutex::new(Some(thread)) }) })
    }

    /// A store without a thread.
    #[cfg(test)]
    pub(crate) fn of(core: Core) -> Self {
        let (core, committer) = (Arc::new(core), Mutex::default());
        Self { shared: Arc::new(Shared { core, committer }) }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.shared.core
    }

    pub(crate) fn is_same(&self, other: &Store) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn structure(&self, kind: Kind, name: &str) -> Result<(Self, u32), Error> {
        Ok((self.clone(), self.core().structure(kind, name.as_bytes())?))
    }

    /// The log of this name, made if there is none.
    pub fn log(&self, name: &str) -> Result<Log, Error> {
        self.structure(Kind::Log, name).map(|(store, number)| Log { store, number })
    }

    /// The queue of this name, made if there is none.
    pub fn queue(&self, name: &str) -> Result<Queue, Error> {
        self.structure(Kind::Queue, name).map(|(store, number)| Queue { store, number })
    }

    /// The map of this name, made if there is none.
    pub fn map(&self, name: &str) -> Result<Map, Error> {
        self.structure(Kind::Map, name).map(|(store, number)| Map { store, number })
    }

    /// The counter of this name, made if there is none.
    pub fn counter(&self, name: &str) -> Result<Counter, Error> {
        self.structure(Kind::Counter, name).map(|(store, number)| Counter { store, number })
    }

    /// Begins a batch: operations that count together.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// The number of the last change.
    pub fn last(&self) -> Lsn {
        self.core().log.appended()
    }

    /// All changes up to this one are durable.
    pub fn durable(&self) -> Lsn {
        self.core().log.durable()
    }

    /// Waits until the change with this number, and all before it, are durable.
    pub fn wait(&self, lsn: Lsn) -> Result<(), Error> {
        if lsn > self.last() {
            return Err(Error::Unknown);
        }
        Ok(self.core().log.wait(lsn)?)
    }

    /// Calls `callback` once the change with this number is durable, or with
    /// [`Error::Stopped`] where it never will be. Callbacks are called one after the other, in the
    /// order of their numbers, on a thread of the store: one that takes long delays the others.
    pub fn on_durable(
        &self,
        lsn: Lsn,
        callback: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Result<(), Error> {
        if lsn > self.last() {
            return Err(Error::Unknown);
        }
        self.core().errands.add(lsn, Box::new(callback) as Callback);
        Ok(())
    }

    /// Makes a descriptor that is readable when changes are durable: for epoll, poll and select.
    pub fn doorbell(&self) -> Result<Doorbell, Error> {
        Doorbell::new(self.clone())
    }

    /// Writes the whole state, so that the next open replays nothing.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.core().checkpoint()
    }

    /// What was done, and how full it is.
    pub fn counts(&self) -> Counts {
        self.core().counts()
    }
}

fn not_open(what: &str, problem: &Problem) -> Error {
    Error::Open(format!("{what}: {}", problem.why))
}

impl Core {
    /// Opens the log in `place` of a disk and replays it.
    pub fn open(
        disk: Arc<dyn Disk>,
        place: (u64, u64),
        user: (Uuid, u64),
        options: Options,
    ) -> Result<Self, String> {
        let mut replay = Replay::default();
        let opened = Records::open(disk, place, user, |found| replay.take(&found));
        let (log, _) =
            opened.map_err(|damage| format!("it is damaged ({damage}); restore it from a copy"))?;
        replay.end();
        let newer = "a newer version has written it; use that one";
        let state = (!replay.is_strange).then_some(replay.state).ok_or(newer)?;
        let mut inner = Inner { state, ..Inner::default() };
        for number in 0..inner.state.next_structure() {
            if let Structure::Queue { items, .. } = inner.state.structure(number) {
                inner.ready.insert(number, items.keys().copied().collect());
            }
        }
        let blocks = log.snapshot_bytes().1 / BLOCK;
        let room_bytes = (blocks * CONTENT_OF_65 / 65).saturating_sub(1) * BLOCK;
        let (errands, pushed, one_checkpoint) = Default::default();
        let inner = Mutex::new(inner);
        Ok(Self { log, options, errands, room_bytes, inner, pushed, one_checkpoint })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a structure.
    pub fn look<R>(&self, number: u32, of: impl FnOnce(&Structure) -> R) -> R {
        of(self.inner().state.structure(number))
    }

    /// The structure of this name, made if there is none.
    pub fn structure(&self, kind: Kind, name: &[u8]) -> Result<u32, Error> {
        loop {
            if let Some(number) = self.inner().state.find(kind, name)? {
                return Ok(number);
            }
            let mut bytes = Vec::new();
            record::encode(&Operation::Create { kind, name }, &mut bytes);
            match self.commit(&bytes) {
                // Another thread has made it meanwhile.
                Err(Error::BadName) if self.inner().state.find(kind, name)?.is_some() => {}
                other => drop(other?),
            }
        }
    }

    /// Logs a batch and applies it.
    pub fn commit(&self, bytes: &[u8]) -> Result<Lsn, Error> {
        if bytes.is_empty() {
            return Ok(self.log.appended());
        }
        for _ in 0..TRIES {
            let mut inner = self.inner();
            let growth = batch::check(&inner.state, bytes)?;
            if growth > 0 && inner.state.bytes() + growth > self.room_bytes {
                return Err(Error::Full);
            }
            match self.log.append(bytes) {
                Ok(lsn) => {
                    let has_pushed = inner.apply(bytes);
                    drop(inner);
                    if has_pushed {
                        self.pushed.notify_all();
                    }
                    self.errands.stir();
                    return Ok(lsn);
                }
                Err(Refusal::Full) => {
                    drop(inner);
                    if self.log.used_bytes().0 == 0 {
                        return Err(Error::TooLong);
                    }
                    self.checkpoint()?;
                }
                Err(other) => return Err(other.into()),
            }
        }
        Err(Error::Full)
    }

    /// Takes the first item of a queue that nobody has.
    pub fn take(&self, queue: u32, limit: Duration) -> Option<crate::Item> {
        let until = Instant::now().checked_add(limit);
        let mut inner = self.inner();
        loop {
            if let Some(item) = inner.take(queue) {
                return Some(item);
            }
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let waited = self.pushed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Puts an item that was taken back.
    pub fn put_back(&self, queue: u32, number: u64) -> Result<(), Error> {
        let mut inner = self.inner();
        inner.state.check(&Operation::Done { queue, number })?;
        inner.ready.entry(queue).or_default().insert(number);
        drop(inner);
        self.pushed.notify_all();
        Ok(())
    }

    /// Writes the state; the log begins anew behind it.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let _one = self.one_checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = self.inner();
        let (bytes, lsn) = (inner.state.snapshot(), self.log.appended());
        drop(inner);
        Ok(self.log.checkpoint(lsn, |to| to.write(&bytes))?)
    }

    /// The same, once half of the log is used.
    pub fn checkpoint_if_needed(&self) {
        let (used, all) = self.log.used_bytes();
        if used > all / 2 {
            // Who appends to a full log is told what has failed.
            let _ = self.checkpoint();
        }
    }

    fn counts(&self) -> Counts {
        let (counts, used_bytes) = (self.log.counts(), self.inner().state.bytes());
        Counts {
            batches: counts.records,
            writes: counts.frames,
            written_bytes: counts.bytes,
            checkpoints: counts.checkpoints,
            used_bytes,
            room_bytes: self.room_bytes,
        }
    }

    /// All that is in memory.
    #[cfg(test)]
    pub fn state(&self) -> State {
        self.inner().state.clone()
    }
}

impl Inner {
    /// Applies a batch that was checked; whether it has pushed to a queue.
    fn apply(&mut self, bytes: &[u8]) -> bool {
        let mut has_pushed = false;
        for operation in record::operations(bytes).flatten() {
            match operation {
                Operation::Push { queue, .. } => {
                    if let Structure::Queue { next, .. } = self.state.structure(queue) {
                        self.ready.entry(queue).or_default().insert(*next);
                    }
                    has_pushed = true;
                }
                Operation::Done { queue, number } => {
                    self.ready.entry(queue).or_default().remove(&number);
                }
                _ => {}
            }
            self.state.apply(&operation);
        }
        has_pushed
    }

    fn take(&mut self, queue: u32) -> Option<crate::Item> {
        let number = self.ready.get_mut(&queue)?.pop_first()?;
        let Structure::Queue { items, .. } = self.state.structure(queue) else { return None };
        items.get(&number).map(|bytes| crate::Item { number, bytes: bytes.clone() })
    }
}

/// What a log holds, on its way into memory.
#[derive(Default)]
struct Replay {
    state: State,
    snapshot: Vec<u8>,
    is_strange: bool,
}

impl Replay {
    fn take(&mut self, found: &Found<'_>) {
        match found {
            Found::Snapshot(_, part) => self.snapshot.extend_from_slice(part),
            Found::Record(_, record) => {
                self.end();
                self.is_strange |= self.state.replay(record).is_none();
            }
        }
    }

    /// The snapshot is whole.
    fn end(&mut self) {
        let snapshot = std::mem::take(&mut self.snapshot);
        if snapshot.is_empty() {
            return;
        }
        let operations = record::snapshot(&snapshot);
        self.is_strange |= operations.and_then(|bytes| self.state.replay(bytes)).is_none();
    }
}
