//! `husk refresh --follow`: the host tells of changes below an image's overlays (inotify), and they
//! are taken in at once.
//!
//! ```text
//!   each directory that the image has listed has a watch ──► these have changed
//!     ──► quiet for 20 ms, or 200 ms after the first ──► the turn (`named::turns`) ──► refresh
//!   every 500 ms: directories that were listed since get a watch, and one look
//! ```
//!
//! Invariants
//! 1. A directory is looked at after it is watched: what changes between two looks is not missed.
//! 2. Nothing is looked at while a write-back is at work: what it has put on the host is in its
//!    ledger then, and is no change of others.
//! 3. An image whose end has begun is left alone.
//! 4. Where the host has forgotten changes (its queue was full), all directories are looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use husk_proto::Inode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::named;
use crate::output::failure::Failure;
use crate::refresh::{Changed, Refreshed, Session};
use crate::run::request::reason;
use crate::write_back::host::beneath::forget_below;

/// Without another change for so long, those that came are taken in.
const QUIET: Duration = Duration::from_millis(20);
/// The first one waits no longer than this.
const LATEST: Duration = Duration::from_millis(200);
/// Between two looks for directories that are new to the image, and whether it is still there.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks in a row that find nobody before an image counts as ended: supervisors follow each other.
const GONE_LOOKS: u32 = 4;
/// How long the turn may take to come.
const TURN_MAX: Duration = Duration::from_secs(60);
/// Bytes of events that are read at a time.
const EVENTS_BYTES: usize = 16 << 10;

/// Follows the host until the image ends, at and below `path` or everywhere. `tell` hears how many
/// directories are followed when that begins, and what was taken in; false ends it.
pub fn follow(
    name: &str,
    path: Option<&Path>,
    tell: &mut dyn FnMut(Event<'_>) -> bool,
) -> Result<(), Failure> {
    let what = || format!("cannot follow the host for image {name}");
    let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
    let queue = queue.map_err(|errno| {
        let remedy = "raise fs.inotify.max_user_instances";
        Failure::new(what(), reason(&errno.into()), remedy)
    })?;
    let mut session = Session::begin(name)?;
    let starts = session.starts(name, path)?;
    let mut follower = Follower { queue, watched: BTreeMap::new(), numbers: HashMap::new() };
    let (mut told, mut missing, mut first) = (Conflicts::default(), 0, true);
    loop {
        let mut changed = follower.watch_new(&mut session, &starts).map_err(|errno| {
            let remedy = "raise fs.inotify.max_user_watches, or name a PATH";
            Failure::new(what(), reason(&errno.into()), remedy)
        })?;
        if first && !tell(Event::Following(follower.watched.len())) {
            return Ok(());
        }
        first = false;
        changed.extend(
            follower
                .wait()
                .map_err(|errno| Failure::new(what(), reason(&errno.into()), "try again"))?,
        );
        if !changed.is_empty() {
            let turn = session.turn(TURN_MAX);
            if !named::lives(name) {
                return Ok(());
            }
            let Some(_turn) = turn else {
                let why = "a write-back has been at work for more than a minute";
                return Err(Failure::new(what(), why, "try again when it has ended"));
            };
            let found = session.look_at(&changed);
            if found.is_some_and(|found| !tell(Event::TakenIn(told.new_of(&changed, found)))) {
                return Ok(());
            }
        }
        missing = if named::lives(name) { 0 } else { missing + 1 };
        if missing >= GONE_LOOKS {
            return Ok(());
        }
    }
}

/// What a follower says.
#[derive(Debug)]
pub enum Event<'a> {
    /// So many directories have a watch.
    Following(usize),
    /// This was taken in; conflicts only the first time.
    TakenIn(&'a Refreshed),
}

/// Conflicts that were told, by directory.
#[derive(Default)]
struct Conflicts {
    known: BTreeSet<String>,
    last: Refreshed,
}

impl Conflicts {
    /// What was `found` in directories that have `changed`, without what was told before.
    fn new_of(&mut self, changed: &Changed, mut found: Refreshed) -> &Refreshed {
        let keys: HashSet<_> = changed.keys().map(|path| path.to_string_lossy()).collect();
        let here = |line: &String| paths_in(line).any(|path| keys.contains(path));
        let still: BTreeSet<String> = found.conflicts.iter().cloned().collect();
        found.conflicts.retain(|line| !self.known.contains(line));
        self.known.retain(|line| !here(line));
        self.known.extend(still);
        self.last = found;
        &self.last
    }
}

/// What may be the path that a line tells of, or a directory above it.
fn paths_in(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices(['/', ':']).map(|(at, _)| &line[..at.max(1)])
}

struct Follower {
    queue: OwnedFd,
    /// Directories that have a watch, and its number.
    watched: BTreeMap<PathBuf, (Inode, i32)>,
    numbers: HashMap<i32, PathBuf>,
}

impl Follower {
    /// Invariant 1: watches directories that are new; these.
    fn watch_new(
        &mut self,
        session: &mut Session,
        starts: &[(Inode, PathBuf)],
    ) -> rustix::io::Result<Changed> {
        let mut new = Changed::new();
        for (path, inode) in session.listed(starts) {
            if self.watched.get(&path).is_some_and(|(known, _)| *known == inode) {
                continue;
            }
            let flags = WatchFlags::ONLYDIR
                | WatchFlags::DONT_FOLLOW
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF;
            match inotify::add_watch(&self.queue, &path, flags) {
                Ok(number) => {
                    // Of a directory that has another name now.
                    if let Some(old) = self.numbers.insert(number, path.clone()) {
                        self.unwatch(&old, number);
                    }
                    self.watched.insert(path.clone(), (inode, number));
                    new.insert(path, inode);
                }
                // It has gone on the host: who looks at what holds it finds that.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(new)
    }

    /// Waits for changes, but not for long; the directories that have them.
    fn wait(&mut self) -> rustix::io::Result<Changed> {
        let (mut changed, began) = (Changed::new(), Instant::now());
        let mut since = None;
        loop {
            let rest = match since {
                None => LOOK_EVERY.saturating_sub(began.elapsed()),
                Some(first) => QUIET.min(LATEST.saturating_sub(Instant::elapsed(&first))),
            };
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(rest.subsec_nanos()) };
            let mut polled = [PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
                Ok(_) => {
                    self.read(&mut changed)?;
                    let first = *since.get_or_insert_with(Instant::now);
                    if first.elapsed() < LATEST {
                        continue;
                    }
                }
            }
            if since.is_some() || began.elapsed() >= LOOK_EVERY {
                return Ok(changed);
            }
        }
    }

    fn read(&mut self, changed: &mut Changed) -> rustix::io::Result<()> {
        let mut room = [MaybeUninit::uninit(); EVENTS_BYTES];
        let (mut events, mut moved) = (Reader::new(&self.queue, &mut room), Vec::new());
        let mut gone = Vec::new();
        loop {
            let event = match events.next() {
                Err(Errno::AGAIN) => break,
                other => other?,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // Invariant 4.
                let all = self.watched.iter().map(|(path, (inode, _))| (path.clone(), *inode));
                changed.extend(all);
                continue;
            }
            let Some(path) = self.numbers.get(&event.wd()).cloned() else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                // The directory has gone, and its watch with it.
                self.numbers.remove(&event.wd());
                gone.push((event.wd(), path));
                continue;
            }
            if event.events().contains(ReadFlags::MOVE_SELF) {
                moved.push((event.wd(), path));
            } else if let Some((inode, _)) = self.watched.get(&path) {
                changed.insert(path, *inode);
            }
        }
        for (number, path) in gone {
            self.unwatch(&path, number);
        }
        for (number, path) in moved {
            // Another directory may have the name by now, and all below it.
            forget_below(&mut self.watched, &path);
            let _ = inotify::remove_watch(&self.queue, number);
        }
        Ok(())
    }

    /// The watch with this number is not that of `path` any more.
    fn unwatch(&mut self, path: &Path, number: i32) {
        if self.watched.get(path).is_some_and(|(_, its)| *its == number) {
            self.watched.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_told_again_once_its_directory_was_looked_at_without_it() {
        let mut conflicts = Conflicts::default();
        let inode = Inode { number: 1, generation: 1 };
        let mut told = |directory: &str, lines: &[&str]| {
            let changed = Changed::from([(PathBuf::from(directory), inode)]);
            let conflicts_now = lines.iter().map(|line| line.to_string()).collect();
            let found = Refreshed { conflicts: conflicts_now, ..Refreshed::default() };
            conflicts.new_of(&changed, found).conflicts.len()
        };
        assert_eq!(told("/t/a", &["/t/a/x: changed on both sides"]), 1);
        assert_eq!(told("/t/a", &["/t/a/x: changed on both sides"]), 0);
        // What is beside it, whatever its name begins with, says nothing of it.
        for beside in ["/t/b", "/t/a/x2", "/t/a-b"] {
            assert_eq!(told(beside, &[]), 0);
        }
        assert_eq!(told("/t/a", &["/t/a/x: changed on both sides"]), 0);
        for above in ["/t/a", "/t", "/"] {
            assert_eq!(told(above, &[]), 0);
            assert_eq!(told("/t/a", &["/t/a/x: changed on both sides"]), 1, "{above}");
        }
    }
}
