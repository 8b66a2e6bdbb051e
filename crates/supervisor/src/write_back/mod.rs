//! Brings host directories to the state their overlays have in the image.
//!
//! ```text
//!   image --scan--> plan --make--> temporary names --commit--> the host's tree
//!         (reads)   (data)         (new objects)              (renames, then deletions)
//! ```
//!
//! Folders: `plan` (what will change, and what is a conflict), `commit` (`make` and `commit`),
//! `record` (what is kept about write-backs), `host` (the host's files), `git` (its files).
//!
//! Invariants
//! 1. At each moment every name of the host leads to the complete old or the complete new object;
//!    a crash leaves those and temporary names, which a later run removes (`host`).
//! 2. What somebody changed on the host while the image ran is neither replaced nor removed: the
//!    image's version is written beside it as `NAME.husk-<run>` and reported.
//! 3. What cannot be written (full disk, no permission) is reported and, where it is file content,
//!    saved in a rescue directory; everything else is written nevertheless.
//! 4. All overlays are planned before anything is written.
//! 5. A directory that its owner made unwritable is opened for the commit and closed after it
//!    (`unlock`).
//! 6. A write-back that was killed is continued by the next, which knows what is done
//!    (`ledger`).
//! 7. Trees are walked by recursion of bounded depth on a stack that holds it, whatever the
//!    limits the command was started with (`STACK_BYTES`).
//! 8. While programs go on (`husk sync`) each file is written as it was at one moment
//!    (`content::export_still`), nothing goes that the image still needs (`detach`), and what
//!    changes too fast is left for the next time.
//! 9. The host is reached beneath the overlays' roots only, by descriptors (`beneath`).
//!
//! 10. What is made of other files is brought together by rule (`derived`), and git's index told of
//!     what was written (`restat`).
//!
//! 11. Every step is on disk before it happens (`manifest`): a write-back that was killed is
//!     finished or undone as a whole (`recover`).
//!
//! 12. Host calls for many small files are shared by several threads, phase by phase (`hands`).
//!
//! Not here: `--mount` trees and `--discard` (nothing is written back).

pub mod commit;
pub mod git;
pub mod host;
mod linked;
pub mod moved;
pub mod plan;
pub mod progress;
pub(crate) mod record;
pub mod rescue;
pub mod tally;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use husk_proto::fs::{Attributes, Imported, Origin, Rights};
use husk_proto::{Errno, Fs, Inode};
use rustix::fs::{Access, access};

use self::git::restat;
use self::host::beneath::Beneath;
use self::plan::scan::{self, Run};
use self::plan::{Plan, choose};
use self::record::ledger::Ledger;
use self::record::{manifest, recover};
use self::rescue::Rescue;
use crate::output::progress::Progress;
use crate::run::request::reason;

/// How long others may look at what a killed write-back of an image has left, or recover it, before
/// its next one begins without.
const LOOKED_MAX: Duration = Duration::from_secs(5);
/// Before the next try.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest host path.
const PATH_BYTES_MAX: usize = 4096;

/// Stacks tried for the write-back, largest first: address space, of which only what is used is
/// ever memory.
const STACK_BYTES: [usize; 2] = [256 << 20, 64 << 20];

/// The image as the write-back reads it.
pub trait Source: Fs {
    /// Reads bytes of a file in the image; 0 = the end.
    fn read_at(&mut self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, Errno>;
    /// Writes bytes to a file in the image; how many.
    fn write_at(&mut self, inode: Inode, offset: u64, from: &[u8]) -> Result<usize, Errno>;
    /// Whoever writes to a file waits until `let_writers_in`: for a moment.
    fn keep_writers_out(&mut self, inode: Inode) -> Result<(), Errno>;
    /// Ends what `keep_writers_out` has begun.
    fn let_writers_in(&mut self, inode: Inode);
    /// Names each inode that needs the host object it was imported from.
    fn each_on_host(&mut self, emit: &mut dyn FnMut(Inode, Origin));
    /// Names the record of each host object that the image has ever seen.
    fn each_origin(&mut self, emit: &mut dyn FnMut(Origin));
    /// Mode, owner and group that a host object had when it was last looked at.
    fn origin_rights(&mut self, origin: Origin) -> Result<Rights, Errno>;
    /// Gives an inode what the host alone has changed of its rights since they were `before`.
    fn take_rights(&mut self, inode: Inode, before: Rights, found: Rights) -> Result<bool, Errno>;
    /// A hash of what the host's object had of an extended attribute, 0: nothing.
    fn extended_base(&mut self, inode: Inode, name: &[u8]) -> Result<u64, Errno>;
    /// An extended attribute with the hash `seen` is what the host has `found` from now on.
    fn settle_extended(
        &mut self,
        inode: Inode,
        name: &[u8],
        seen: u64,
        found: Option<&[u8]>,
    ) -> Result<bool, Errno>;
    /// Names each inode that has names on the host for which the image has none, and how many.
    fn each_elsewhere(&mut self, emit: &mut dyn FnMut(Inode, u32));
    /// Names each inode that was imported, and the record of what it was imported from.
    fn each_imported(&mut self, emit: &mut dyn FnMut(Inode, Origin));
    /// An inode of a host object is found by the names that this has got since.
    fn note_links(&mut self, inode: Inode, found: &Imported<'_>) -> Result<bool, Errno>;
    /// A host object that is no directory has no longer the name that it was imported by, but this.
    fn move_origin(
        &mut self,
        dir: Inode,
        inode: Inode,
        found: &Imported<'_>,
    ) -> Result<bool, Errno>;
    /// Gives back the pin of `Fs::create_nameless`.
    fn unpin(&mut self, inode: Inode);
}

/// How a write-back ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Objects that took their names.
    pub written: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// What the host changed meanwhile, one line each; both versions are there.
    pub conflicts: Vec<String>,
    /// What could not be written, one line each.
    pub failures: Vec<String>,
    /// What changes while it is looked at, one line each: it is left for the next time.
    pub busy: Vec<String>,
    /// What is good to know, one line each.
    pub notes: Vec<String>,
    /// The image has all it had, and is to stay: it was stopped before anything changed on the
    /// host, or something found no room anywhere.
    pub untouched: bool,
}

impl Outcome {
    /// Everything is on the host as the image had it.
    pub fn is_complete(&self) -> bool {
        let told = [&self.conflicts, &self.failures, &self.busy];
        !self.untouched && told.iter().all(|lines| lines.is_empty())
    }

    fn note(&mut self, path: &Path, result: io::Result<()>) {
        if let Err(problem) = result {
            self.failures.push(format!("{}: {}", path.display(), reason(&problem)));
        }
    }
}

/// What one write-back works with.
pub struct Work {
    /// Number that tells this run's names from others'.
    pub number: u32,
    /// Programs go on.
    pub live: bool,
    /// Temporary names.
    pub names: host::Names,
    /// Where lost content goes.
    pub rescue: Rescue,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// What is done, for a successor.
    pub ledger: Ledger,
    /// Where is noted what is about to happen.
    pub manifests: Vec<PathBuf>,
    /// When the image started, ns.
    pub started_ns: i64,
}

/// An overlay to write back: the root of its tree and the host directory it lies on.
pub type Overlay = (Inode, PathBuf);

/// Writes all overlays back; `progress` says how far it is, `ledger` what one that was killed has
/// done. `chosen`: nothing but these paths and what is below; all, where none is named.
pub fn write_back<S: Source + Send>(
    source: &mut S,
    run: Run,
    overlays: &[Overlay],
    chosen: &[PathBuf],
    progress: &Arc<Progress>,
    ledger: Ledger,
) -> Outcome {
    on_large_stack(|| bring(source, run, overlays, chosen, progress, ledger))
}

/// The same; what cannot be written is saved in a new directory in `base`, if that takes it.
pub fn write_back_or_save<S: Source + Send>(
    source: &mut S,
    run: Run,
    overlays: &[Overlay],
    chosen: &[PathBuf],
    base: &Path,
    progress: &Arc<Progress>,
    ledger: Ledger,
) -> Outcome {
    on_large_stack(|| {
        let places = Places { rescue: Rescue::preferring(base), manifests: manifest::places() };
        scan_and_commit(source, run, overlays, chosen, places, progress, ledger)
    })
}

/// As `write_back`, on the caller's stack, which must be large (`on_large_stack`).
pub fn bring<S: Source>(
    source: &mut S,
    run: Run,
    overlays: &[Overlay],
    chosen: &[PathBuf],
    progress: &Arc<Progress>,
    ledger: Ledger,
) -> Outcome {
    let places = Places { rescue: Rescue::new(), manifests: manifest::places() };
    scan_and_commit(source, run, overlays, chosen, places, progress, ledger)
}

/// Invariant 7. Where no thread can be had, the work is done right here.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let once = || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.expect("the work is taken once")()
    };
    thread::scope(|scope| {
        for bytes in STACK_BYTES {
            let builder = thread::Builder::new().stack_size(bytes);
            if let Ok(worker) = builder.spawn_scoped(scope, once) {
                return worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        }
        once()
    })
}

/// Where on the host an object was imported from.
pub(crate) fn origin_path<S: Source>(
    source: &mut S,
    attributes: &Attributes,
) -> Result<Option<PathBuf>, Errno> {
    attributes.origin.map(|origin| path_of_origin(source, origin)).transpose()
}

/// The same of an origin. The buffer is not on the stack of a recursion.
#[inline(never)]
pub(crate) fn path_of_origin<S: Source>(source: &mut S, origin: Origin) -> Result<PathBuf, Errno> {
    let mut bytes = [0; PATH_BYTES_MAX];
    let length = source.host_path(origin, &mut bytes)?;
    Ok(host::path_of(&bytes[..length.min(PATH_BYTES_MAX)]))
}

/// What there is to tell of notes that cannot be kept.
fn unsaid(noted: io::Result<()>) -> Vec<String> {
    let line = |problem| format!("cannot record what is written: {}", reason(&problem));
    noted.err().map(line).into_iter().collect()
}

/// What a write-back of `chosen` paths would do now; of all, where none is named.
pub fn planned<S: Source>(
    source: &mut S,
    run: Run,
    ledger: &Ledger,
    overlays: &[Overlay],
    chosen: &[PathBuf],
) -> Plan {
    let beneath = Beneath::new(overlays.iter().map(|(_, path)| &**path));
    planned_beneath(source, &beneath, run, ledger, overlays, chosen)
}

fn planned_beneath<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    run: Run,
    ledger: &Ledger,
    overlays: &[Overlay],
    chosen: &[PathBuf],
) -> Plan {
    let plan = scan::scan(source, beneath, run, ledger, overlays);
    let plan = match chosen.is_empty() {
        true => plan,
        false => choose::choose(source, beneath, plan, run.number, chosen),
    };
    Plan { overlays: overlays.to_vec(), ..plan }
}

/// Where a write-back keeps what is not in the trees.
struct Places {
    rescue: Rescue,
    manifests: Vec<PathBuf>,
}

/// All manifests; those of this image not before others have looked at them.
fn own_taken(places: &[PathBuf], run: &Run) -> Vec<manifest::Pending> {
    let since = Instant::now();
    loop {
        let all = manifest::pending(places);
        let held = all.iter().any(|one| one.is_busy() && one.is_of(run));
        if !held || since.elapsed() > LOOKED_MAX {
            return all;
        }
        drop(all);
        sleep(PAUSE);
    }
}

/// Brings to its end what a write-back of this image has left that was killed; of others only what
/// nobody sees is removed. What there is to tell.
fn go_on(places: &[PathBuf], run: &Run, overlays: &[Overlay]) -> Vec<String> {
    let mut lines = Vec::new();
    for pending in own_taken(places, run) {
        if pending.is_busy() {
        } else if !pending.ready {
            recover::abandon(pending);
        } else if pending.is_of(run) && overlays.iter().any(|(_, path)| pending.touches(path)) {
            let told = match recover::is_redoable(&pending) {
                true => recover::forward(pending),
                false => recover::back(pending),
            };
            lines.extend(told.unwrap_or_default().lines);
        }
    }
    lines
}

/// A write-back: all overlays are planned, then what has changed is made and renamed.
fn scan_and_commit<S: Source>(
    source: &mut S,
    run: Run,
    overlays: &[Overlay],
    chosen: &[PathBuf],
    places: Places,
    progress: &Arc<Progress>,
    mut ledger: Ledger,
) -> Outcome {
    let Places { rescue, manifests } = places;
    let mut unsettled = go_on(&manifests, &run, overlays);
    // Without notes both versions are kept of what was written before.
    let beneath = &Beneath::new(overlays.iter().map(|(_, path)| &**path));
    unsettled.extend(unsaid(ledger.settle(beneath)));
    unsettled.extend(unsaid(ledger.returned(source, &[])));
    overlays.iter().for_each(|(_, path)| host::remove_leftovers(beneath, path));
    if run.live {
        moved::follow_all(source, beneath, overlays, &ledger);
    }
    linked::take_in(source, beneath, overlays, &mut ledger);
    let plan = planned_beneath(source, beneath, run, &ledger, overlays, chosen);
    if plan.is_empty() {
        // Links that the host has made were noted.
        unsettled.extend(unsaid(ledger.save_if_changed()));
        return Outcome { failures: unsettled, ..Outcome::default() };
    }
    progress.set(0, plan.puts.iter().map(|put| put.object.count()).sum());
    let placed = restat::Placed::of(&plan);
    let (names, progress) = (host::Names::of_this_process(), Arc::clone(progress));
    let Run { number, live, started_ns } = run;
    let mut work = Work { number, live, names, rescue, progress, ledger, manifests, started_ns };
    let mut outcome = commit::carry_out(source, &mut work, beneath, plan);
    unsettled.extend(unsaid(work.ledger.settle(beneath)));
    let renewed = !outcome.untouched
        && restat::renew(source, beneath, overlays, &placed, &mut work, &mut outcome);
    if renewed {
        unsettled.extend(unsaid(work.ledger.save()));
    }
    unsettled.dedup();
    outcome.failures.extend(work.rescue.summary());
    if !outcome.failures.is_empty() {
        outcome.failures.splice(0..0, overlays.iter().filter_map(|(_, path)| unwritable(path)));
    }
    outcome.failures.append(&mut unsettled);
    outcome
}

/// What there is to tell of an overlay whose directory takes nothing.
fn unwritable(path: &Path) -> Option<String> {
    let why = reason(&access(path, Access::WRITE_OK).err()?.into());
    let remedy = "let this user write to it and copy what is saved, or use --discard";
    Some(format!("{}, the whole overlay: {why}; {remedy}", path.display()))
}
