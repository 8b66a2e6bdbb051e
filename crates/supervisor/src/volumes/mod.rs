//! Volumes in an image: trees whose changes become durable at `fsync` and the like.
//!
//! ```text
//!   program: fsync ─► slot, bell ─► thread of the volume: look, write the log ─► answer
//!   policy `async`: answer ─► later, at most so many ms: write the log (`owed`)
//!   every 5 s ─► a part of what nobody has synced
//!   half of the log is full ─► the whole tree as a snapshot, in slices between syncs (`fuzzy`)
//!   a larger size ─► the next area, beside, then instead of the old one (`resize`)
//!   end of the image ─► everything that is not in the log
//!   the supervisor of an image with a name dies ─► the next one acquires the volume, and writes
//!                       the tree as it is now as a whole; who waits, waits for that
//! ```
//!
//! Invariants
//! 1. An answer is given when what was asked for is durable, never before; with policy `async`,
//!    when its place in the log is certain.
//! 2. After a failed write everybody is told EIO, and nothing is tried again.
//! 3. While this process lives, a program that waits is answered; when it has died, the program
//!    finds out, or waits for the next one where there is one.
//! 4. A volume whose log has stopped is stopped for all supervisors of its image.
//!
//! Not here: what a volume keeps (`husk_storage::tree`), what has changed
//! (`husk_kernel::fs::unsaved`).

#[cfg(test)]
mod crashes;
mod facts;
mod fuzzy;
mod look;
mod open;
mod owed;
pub mod resize;
mod save;
pub mod stat;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_host::slice;
use husk_proto::image::MOUNTS_MAX;
use husk_proto::volume::Asked;
use husk_proto::volume::Counter as VolumeCounter;
use husk_proto::volume::State as VolumeState;
use husk_proto::volume::State::Stopped;
use husk_proto::{Errno, Inode, Overview as _, VolumeLog as _};
use husk_region::Life;
use husk_storage::catalogue::Catalogue;
use husk_storage::log::Refusal;

use crate::image::attach;
use crate::image::clock::exact_ns;
use crate::output::failure::Failure;
use crate::output::{say, say_aside};
use crate::run::request::VolumePlan;
use resize::Making;
use save::Saver;

/// So often, at most, what nobody has synced is saved: as often as ext4 writes its journal.
const REST_EVERY: Duration = Duration::from_secs(5);
/// It takes less than this part of the time.
const REST_PART: u32 = 20;
/// What is written of a checkpoint before it is asked again who waits for a sync.
const SLICE_BYTES: u64 = 256 << 10;
/// How long the thread of a volume runs at a time where others want the core: it sleeps most of the
/// time, and whoever syncs waits until it has a core. Linux allows no less.
const SLICE_NS: u64 = 100_000;
/// Longest sleep before a look at what the dead have left, ns.
const LOOK: Duration = Duration::from_millis(100);

/// A volume that is in the image.
pub struct Volume {
    name: String,
    tree: u32,
    saver: Option<Saver>,
    thread: Option<(Arc<AtomicBool>, JoinHandle<Saver>)>,
}

impl Volume {
    /// Acquires a volume, and puts what it holds into the empty tree of `root`.
    pub fn open(
        direct: &mut Direct,
        root: Inode,
        VolumePlan { name, policy, .. }: &VolumePlan,
    ) -> Result<Volume, Failure> {
        let area = Catalogue::of_user()?.acquire(name)?;
        let saver = open::open(direct, root, name, area)?;
        direct.volume_set_policy(saver.tree(), *policy);
        Ok(Self::begun(direct, name, saver))
    }

    /// The volume that the tree of `root` is, as a supervisor that has died has left it. `None`: it
    /// is none.
    pub fn resume(direct: &mut Direct, root: Inode) -> Option<Volume> {
        let tree = direct.volume_of(root).ok()??;
        let name = name_of(direct, tree);
        // Invariant 4.
        let stopped = Volume { name: name.clone(), tree, saver: None, thread: None };
        if direct.volume_state(tree) == VolumeState::Stopped {
            return Some(stopped);
        }
        match again(direct, (tree, root), &name) {
            Ok(saver) => Some(Self::begun(direct, &name, saver)),
            Err(failure) => {
                say(&failure.to_string());
                direct.volume_set_state(tree, VolumeState::Stopped);
                Some(stopped)
            }
        }
    }

    fn begun(direct: &mut Direct, name: &str, mut saver: Saver) -> Volume {
        let tree = saver.tree();
        saver.set_policy(direct.volume_policy(tree));
        direct.volume_begin(tree, name.as_bytes(), exact_ns());
        // Whoever asks before the thread runs waits for it.
        direct.volume_set_state(tree, VolumeState::Served);
        Volume { name: name.to_owned(), tree, saver: Some(saver), thread: None }
    }

    /// Says that another supervisor follows when this one dies.
    pub fn is_followed(&self, direct: &mut Direct) {
        direct.volume_set_followed(self.tree);
    }

    /// Begins to answer programs, in a thread of its own.
    pub fn serve(&mut self) {
        let Some(saver) = self.saver.take() else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let (told, name) = (Arc::clone(&stop), self.name.clone());
        let thread = thread::spawn(move || serve(saver, &name, &told));
        self.thread = Some((stop, thread));
    }

    /// Ends that, and makes durable what is not; `serve` begins again. What went wrong, as a line.
    pub fn rest(&mut self, direct: &mut Direct) -> Option<String> {
        if let Some((stop, thread)) = self.thread.take() {
            stop.store(true, Ordering::Release);
            // A panic there has been printed; what was acknowledged is in the log.
            self.saver = thread.join().ok();
        }
        let name = &self.name;
        let Some(saver) = &mut self.saver else {
            return Some(format!("volume {name}: {}", unsaved(Refusal::Stopped)));
        };
        let why = saver.save(direct, &[None]).err()?;
        Some(format!("volume {name}: {}", unsaved(why)))
    }

    /// Lets go of it after that.
    pub fn close(self, direct: &mut Direct) {
        direct.volume_set_state(self.tree, VolumeState::None);
        // What has failed was told: all that was saved is in the log.
        let _ = self.saver.map(Saver::close);
    }
}

/// Why a volume takes nothing more, and what helps.
fn told(why: Refusal) -> (String, &'static str) {
    match why {
        Refusal::Stopped => (why.to_string(), "look at the disk (`dmesg`)"),
        Refusal::Full | Refusal::TooLong => {
            ("it has no room".to_owned(), "give it a larger size with `husk volume resize`")
        }
    }
}

/// What is said at the end of an image where not everything could be saved.
fn unsaved(why: Refusal) -> String {
    let (why, remedy) = told(why);
    format!("{why}: what was synced is there, later changes are not; {remedy}")
}

fn again(direct: &mut Direct, tree: (u32, Inode), name: &str) -> Result<Saver, Failure> {
    let area = Catalogue::of_user()?.acquire(name)?;
    open::reopen(direct, tree, name, area)
}

/// Answers wishes until it is told to stop. It sleeps as soon as nobody waits: Linux may have put
/// the program that it has just woken on this core, which a look for the next wish would keep from
/// going on (ADR 0103).
fn serve(mut saver: Saver, name: &str, stop: &AtomicBool) -> Saver {
    let tree = saver.tree();
    let Ok(mut direct) = attach() else { return saver };
    // Without it, syncs are as slow as on an older Linux.
    let _ = slice::shorten_to(SLICE_NS);
    direct.volume_set_state(tree, VolumeState::Served);
    let begun = Instant::now();
    let now_ns = || begun.elapsed().as_nanos() as u64;
    let (mut making, mut rest_due) = (None, begun + REST_EVERY);
    loop {
        if saver.pay(&mut direct, now_ns()).is_err() {
            look_at(&mut direct, &saver, name);
        }
        if Instant::now() >= rest_due {
            rest_due = save_rest(&mut direct, &mut saver, name);
        }
        let bell = direct.volume_bell(tree);
        if answer(&mut direct, &mut saver, name, (&mut making, &now_ns)) {
            continue;
        }
        if stop.load(Ordering::Acquire) {
            return saver;
        }
        if saver.go_on(&mut direct, SLICE_BYTES) {
            continue;
        }
        look_at(&mut direct, &saver, name);
        let look_ns = LOOK.as_nanos() as u64;
        let due_ns = saver.due_in_ns(now_ns()).unwrap_or(look_ns);
        if direct.volume_await_wishes(tree, bell, due_ns.min(look_ns)) && due_ns >= look_ns {
            let is_dead = |pid, tid| husk_region::judge(pid, tid) == Life::Dead;
            direct.volume_sweep(tree, &is_dead);
        }
    }
}

/// Saves a part of what nobody has synced; when the next one is due. What has no room there is
/// told to whoever syncs.
fn save_rest(direct: &mut Direct, saver: &mut Saver, name: &str) -> Instant {
    let begun = Instant::now();
    let least = match saver.save_rest(direct) {
        Ok(false) => Duration::ZERO,
        Ok(true) | Err(_) => REST_EVERY,
    };
    look_at(direct, saver, name);
    Instant::now() + least.max(begun.elapsed() * REST_PART)
}

/// Answers those who wait now, together; false: nobody waits for a sync.
fn answer(
    direct: &mut Direct,
    saver: &mut Saver,
    name: &str,
    (making, now_ns): (&mut Option<Making>, &dyn Fn() -> u64),
) -> bool {
    let tree = saver.tree();
    let (mut waiting, mut sizes) = (Vec::new(), Vec::new());
    direct.volume_each_wish(tree, &mut |wish, asked| match asked {
        Asked::Commit(inode) => waiting.push((wish, inode)),
        Asked::Size(bytes) => sizes.push((wish, bytes)),
    });
    if making.is_some() || !sizes.is_empty() {
        let decided = resize::go_on(direct, saver, making, &sizes);
        look_at(direct, saver, name);
        if let Some((wish, result)) = decided {
            direct.volume_grant(tree, &[wish], result);
        }
    }
    if waiting.is_empty() {
        return false;
    }
    let begun = Instant::now();
    let (wishes, inodes): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
    let result = saver.serve(direct, &inodes, now_ns).map_err(errno_of);
    look_at(direct, saver, name);
    direct.volume_count(tree, VolumeCounter::Wishes, wishes.len() as u64);
    direct.volume_count_group(tree, begun.elapsed().as_nanos() as u64);
    direct.volume_grant(tree, &wishes, result);
    saver.go_on(direct, SLICE_BYTES);
    look_at(direct, saver, name);
    true
}

/// Says once that a write has failed, before anybody is told that it has.
fn look_at(direct: &mut Direct, saver: &Saver, name: &str) {
    let tree = saver.tree();
    if saver.is_stopped() && direct.volume_state(tree) != VolumeState::Stopped {
        direct.volume_set_state(tree, VolumeState::Stopped);
        say_aside(stopped_line(name));
    }
}

fn stopped_line(name: &str) -> String {
    format!(
        "volume {name}: a write to its disk has failed: nothing is made durable any more, what was \
         synced is there; look at the disk (`dmesg`), then start again"
    )
}

/// Lines about the volumes of an image whose logs have stopped.
pub fn lines(direct: &Direct) -> Vec<String> {
    let trees = (0..MOUNTS_MAX as u32).filter(|tree| direct.volume_state(*tree) == Stopped);
    trees.map(|tree| stopped_line(&name_of(direct, tree))).collect()
}

/// What volume `tree` of an image is called.
pub fn name_of(direct: &Direct, tree: u32) -> String {
    let bytes = direct.volume_name(tree).0;
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn errno_of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Stopped => Errno::EIO,
        Refusal::Full | Refusal::TooLong => Errno::ENOSPC,
    }
}
