//! Volumes in an image: trees whose changes become durable when a program asks for that.
//!
//! ```text
//!   program: fsync ─► slot, bell ─► thread of the volume: look, write the log ─► answer
//!   end of the image ─► everything that is not in the log
//! ```
//!
//! Invariants
//! 1. An answer is given when what was asked for is durable, never before.
//! 2. After a failed write everybody is told EIO, and nothing is tried again.
//! 3. While this process lives, a program that waits is answered; when it has died, the program
//!    finds out.
//!
//! Not here: what a volume keeps (`husk_storage::tree`), what has changed
//! (`husk_kernel::fs::unsaved`).

mod facts;
mod look;
mod open;
mod save;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use husk_carrier::{Direct, VolumeCounter, VolumeState};
use husk_kernel::image::volume;
use husk_proto::{Errno, Inode};
use husk_region::Life;
use husk_storage::catalogue::Catalogue;
use husk_storage::log::Refusal;

use crate::failure::Failure;
use crate::image::attach;
use save::Saver;

/// Longest sleep before a look at what the dead have left, ns.
const LOOK_NS: u64 = 100_000_000;

/// A volume that is in the image.
pub struct Volume {
    name: String,
    saver: Option<Saver>,
    thread: Option<(Arc<AtomicBool>, JoinHandle<Saver>)>,
}

impl Volume {
    /// Acquires volume `name`, and puts what it holds into the empty tree of `root`.
    pub fn open(direct: &mut Direct, root: Inode, name: &str) -> Result<Volume, Failure> {
        let catalogue = Catalogue::of_user().map_err(told)?;
        let area = catalogue.acquire(name).map_err(told)?;
        let saver = open::open(direct, root, name, area)?;
        // Whoever asks before the thread runs waits for it.
        volume::set_state(direct.kernel(), saver.tree(), VolumeState::Served);
        Ok(Volume { name: name.to_owned(), saver: Some(saver), thread: None })
    }

    /// Begins to answer programs, in a thread of its own.
    pub fn serve(&mut self) {
        let Some(saver) = self.saver.take() else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(saver, &told));
        self.thread = Some((stop, thread));
    }

    /// Ends that, makes durable what is not, and lets go of the volume. What went wrong, as a line.
    pub fn close(mut self, direct: &mut Direct) -> Option<String> {
        if let Some((stop, thread)) = self.thread.take() {
            stop.store(true, Ordering::Release);
            // A panic there has been printed; what was acknowledged is in the log.
            self.saver = thread.join().ok();
        }
        let name = &self.name;
        let Some(saver) = self.saver else {
            return Some(format!("volume {name}: what was not asked to be durable is lost"));
        };
        volume::set_state(direct.kernel(), saver.tree(), VolumeState::None);
        let why = saver.close(direct).err()?;
        Some(format!(
            "volume {name}: {why}: what was synced is there, later changes are not; {}",
            if why == Refusal::Stopped { "look at the disk (`dmesg`)" } else { "it is too small" }
        ))
    }
}

fn told(problem: husk_storage::Problem) -> Failure {
    Failure::new(problem.what, problem.why, problem.remedy)
}

/// Answers wishes until it is told to stop.
fn serve(mut saver: Saver, stop: &AtomicBool) -> Saver {
    let tree = saver.tree();
    let Ok(mut direct) = attach() else { return saver };
    volume::set_state(direct.kernel(), tree, VolumeState::Served);
    loop {
        let bell = volume::bell(direct.kernel(), tree);
        if !answer(&mut direct, &mut saver) {
            if stop.load(Ordering::Acquire) {
                return saver;
            }
            if volume::await_wishes(direct.kernel(), tree, bell, LOOK_NS) {
                let is_dead = |pid, tid| husk_region::judge(pid, tid) == Life::Dead;
                volume::sweep(direct.kernel(), tree, &is_dead);
            }
        }
    }
}

/// Answers those who wait now, together; false: nobody does.
fn answer(direct: &mut Direct, saver: &mut Saver) -> bool {
    let tree = saver.tree();
    let mut waiting = Vec::new();
    volume::each_wish(direct.kernel(), tree, &mut |wish, inode| waiting.push((wish, inode)));
    if waiting.is_empty() {
        return false;
    }
    let wishes: Vec<_> = waiting.iter().map(|(_, inode)| *inode).collect();
    let result = saver.save(direct, &wishes).map_err(errno_of);
    if saver.is_stopped() {
        volume::set_state(direct.kernel(), tree, VolumeState::Stopped);
    }
    volume::count(direct.kernel(), tree, VolumeCounter::Wishes, waiting.len() as u64);
    for (wish, _) in waiting {
        volume::grant(direct.kernel(), wish, result);
    }
    saver.save_room(direct);
    true
}

fn errno_of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Stopped => Errno::EIO,
        Refusal::Full | Refusal::TooLong => Errno::ENOSPC,
    }
}
