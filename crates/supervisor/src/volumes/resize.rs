//! A volume gets larger while an image uses it.
//!
//! ```text
//!   husk volume resize ─► slot, bell ─► thread of the volume ─► a thread makes the next area
//!                                         │ answers syncs           │ beside, in pre-written zeros
//!                                         ▼                         ▼
//!                       the whole tree as a snapshot, durable ◄─ an empty log
//!                                         ▼
//!                       takes the place of the old one, directory synced ─► answer
//! ```
//!
//! Invariants
//! 1. Syncs are answered by the old log until the new one has its place, durably, and by the new
//!    one from then on: whatever a kill leaves at the volume's path has all that was acknowledged.
//! 2. A wish stays in its slot until it is granted: the next supervisor finds it there.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use husk_carrier::Direct;
use husk_proto::volume::{Counter, State, Wish};
use husk_proto::{Errno, Overview as _, VolumeLog as _};
use husk_storage::Problem;
use husk_storage::area::{Area, Successor};
use husk_storage::catalogue::{Catalogue, Row, State as Use, settle_size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::save::{Place, Saver};
use super::stat::tree_of;
use crate::image::attach::Visit;
use crate::output::failure::Failure;
use crate::output::progress::{Onlooker, Over, Progress};
use crate::run::request::size;

/// Bytes, and how long it will take.
const TEMPLATE: &str =
    "husk: resizing {msg} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}";

/// The next area of a volume, while it is made.
#[derive(Debug)]
pub struct Making {
    wish: Wish,
    next: Successor,
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Area>>>,
}

impl Making {
    fn begin(next: Successor, wish: Wish, size_bytes: u64) -> Making {
        let (written, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, told, from) = (Arc::clone(&written), Arc::clone(&stop), next.clone());
        let thread = thread::spawn(move || {
            from.make(size_bytes, &mut |bytes| {
                count.store(bytes, Relaxed);
                !told.load(Relaxed)
            })
        });
        Making { wish, next, written, stop, thread: Some(thread) }
    }

    fn is_made(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn made(&mut self) -> io::Result<Area> {
        // A panic there has been printed.
        let joined = self.thread.take().and_then(|thread| thread.join().ok());
        joined.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
    }
}

impl Drop for Making {
    /// The image ends: what is not made by now is not needed.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if self.thread.is_some() && self.made().is_ok() {
            // At worst a file is left, which the next resize removes.
            let _ = self.next.discard();
        }
    }
}

impl Place for Successor {
    fn take(&self) -> io::Result<()> {
        self.take_place()
    }

    fn settle(&self) -> io::Result<()> {
        Successor::settle(self)
    }
}

/// Goes on with what is being made, or begins with the first of `wanted`; a wish that is decided
/// on, and how.
pub fn go_on(
    direct: &mut Direct,
    saver: &mut Saver,
    making: &mut Option<Making>,
    wanted: &[(Wish, u64)],
) -> Option<(Wish, Result<(), Errno>)> {
    let tree = saver.tree();
    let Some(now) = making else {
        let &(wish, size_bytes) = wanted.first()?;
        return match check(saver.disk(), size_bytes) {
            Err(errno) => Some((wish, Err(errno))),
            Ok(None) => Some((wish, Ok(()))),
            Ok(Some(next)) => {
                direct.volume_set_count(tree, Counter::Growth, size_bytes);
                *making = Some(Making::begin(next, wish, size_bytes));
                None
            }
        };
    };
    direct.volume_set_count(tree, Counter::Grown, now.written.load(Relaxed));
    if !now.is_made() {
        return None;
    }
    let decided = (now.wish, finish(direct, saver, now));
    direct.volume_set_count(tree, Counter::Growth, 0);
    *making = None;
    Some(decided)
}

/// What the next area is made from, where there can be one of that size; `None`: it has it.
fn check(area: &Area, size_bytes: u64) -> Result<Option<Successor>, Errno> {
    let has_bytes = area.header.size_bytes;
    if fs::metadata(area.path()).is_ok_and(|found| !found.is_file()) {
        return Err(Errno::ENODEV);
    }
    match settle_size(size_bytes, "") {
        Err(_) => Err(Errno::EINVAL),
        // A supervisor that was killed before it could say so has done it.
        Ok(size_bytes) if size_bytes == has_bytes => Ok(None),
        Ok(size_bytes) if size_bytes < has_bytes => Err(Errno::EINVAL),
        Ok(_) => Ok(Some(area.successor())),
    }
}

fn finish(direct: &mut Direct, saver: &mut Saver, making: &mut Making) -> Result<(), Errno> {
    let area = making.made().map_err(|error| errno_of(&error))?;
    let opened = area.open_log(|_| ());
    let moved = match opened {
        Ok((log, _)) => saver.move_to(direct, log, &making.next),
        Err(_) => Err(Errno::EIO),
    };
    if moved.is_err() {
        // What is left is removed by the next one.
        let _ = making.next.discard();
    }
    moved
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno)
}

/// Gives volume `name` another size: where an image uses it, by asking its supervisor.
pub fn resize(name: &str, size_bytes: u64) -> Result<(), Failure> {
    let catalogue = Catalogue::of_user()?;
    let what = format!("cannot resize volume {name}");
    let size_bytes = settle_size(size_bytes, &what)?;
    let row = catalogue.find(name).map_err(|problem| Problem { what: what.clone(), ..problem })?;
    let progress = Arc::<Progress>::default();
    let _line = line(name, &progress);
    let user = row.holder_pid.filter(|_| row.state == Use::InUse);
    match user.and_then(|pid| tree_of(pid, name)) {
        Some((visit, tree)) => {
            ask(visit, tree, (&row, size_bytes), &progress)?;
            Ok(catalogue.note_size(name, size_bytes)?)
        }
        None => Ok(catalogue.resize(name, size_bytes, &mut |bytes| {
            progress.set(bytes, size_bytes);
            true
        })?),
    }
}

fn ask(
    mut visit: Visit,
    tree: u32,
    (row, size_bytes): (&Row, u64),
    progress: &Progress,
) -> Result<(), Failure> {
    let direct = &mut visit.direct;
    let asked = direct.volume_resize(tree, size_bytes, &mut |done, all| progress.set(done, all));
    let Err(errno) = asked else { return Ok(()) };
    let what = format!("cannot resize volume {}", row.name);
    let again = "end what uses it, then try again";
    Err(match errno {
        Errno::EINVAL => {
            let has = size(row.size_bytes);
            let why = format!("while an image uses it, it can only get larger than its {has}");
            Failure::new(what, why, again)
        }
        Errno::ENODEV => {
            let remedy = "make another volume, and copy what this one holds";
            Failure::new(what, format!("{} is a device", row.path.display()), remedy)
        }
        Errno::EOVERFLOW => Failure::new(what, "what it holds does not fit", "choose more --size"),
        Errno::EAGAIN => {
            Failure::new(what, "files change faster than they can be written", "try again")
        }
        Errno::EIO if direct.volume_state(tree) == State::Stopped => {
            Failure::new(what, "a write to its disk has failed", "look at the disk (`dmesg`)")
        }
        Errno::EIO if is_left(row) => {
            Failure::new(what, "the image that uses it has ended meanwhile", "try again")
        }
        Errno(errno) => Problem::of_resize(what, &io::Error::from_raw_os_error(errno)).into(),
    })
}

/// Whether nobody uses a volume any more, or somebody else does.
fn is_left(row: &Row) -> bool {
    let now = Catalogue::of_user().and_then(|catalogue| catalogue.find(&row.name));
    now.is_ok_and(|now| now.holder_pid != row.holder_pid)
}

/// A line about it, on a terminal.
fn line(name: &str, progress: &Arc<Progress>) -> Option<Onlooker> {
    let target = ProgressDrawTarget::stderr();
    if target.is_hidden() {
        return None;
    }
    let (name, progress) = (name.to_owned(), Arc::clone(progress));
    Some(Onlooker::begin(move |over| paint(over, &name, &progress, target)))
}

fn paint(over: &Over, name: &str, progress: &Progress, target: ProgressDrawTarget) {
    let bar = ProgressBar::with_draw_target(Some(0), target);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    while !over.within(super::LOOK) {
        let (done, total) = progress.get();
        if total != 0 {
            bar.set_length(total);
            bar.set_position(done);
        }
    }
    bar.finish_and_clear();
}
