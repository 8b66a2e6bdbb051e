//! Watches each process of the image through a pidfd, so that its end is noticed at once.
//!
//! ```text
//!   the records, at each tick ─► who is new ─► pidfd ─► epoll ─► who has ended
//! ```
//!
//! Invariant: at most half of the descriptors that may be open are for this. A process without one
//! is looked up in `/proc` at each tick.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::unistd::Pid;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{PidfdFlags, Resource, getrlimit, pidfd_open};

/// Ends that are taken at a time.
const ENDS_MAX: usize = 256;
/// Watched at most, where nothing limits descriptors.
const WATCHED_MAX: u64 = 1 << 20;

/// Who is watched.
pub struct Vigil {
    /// `None`: nobody is.
    epoll: Option<OwnedFd>,
    watched: HashMap<u32, OwnedFd>,
    unwatched: Vec<u32>,
    watched_max: usize,
}

impl Vigil {
    /// Nobody yet.
    pub fn begin() -> Vigil {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(WATCHED_MAX);
        let watched_max = limit.min(WATCHED_MAX) as usize / 2;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        Vigil { epoll, watched: HashMap::new(), unwatched: Vec::new(), watched_max }
    }

    /// Readable when somebody has ended.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }

    /// Watches process `pid`, whose descriptor this is; another one of that number is watched no
    /// more.
    pub fn watch(&mut self, pid: u32, pidfd: OwnedFd) -> bool {
        let Some(epoll) = self.epoll.as_ref().filter(|_| self.watched.len() < self.watched_max)
        else {
            return false;
        };
        let data = epoll::EventData::new_u64(pid.into());
        let added = epoll::add(epoll, &pidfd, data, epoll::EventFlags::IN).is_ok();
        if added {
            self.watched.insert(pid, pidfd);
        }
        added
    }

    /// Watches all of `pids` that are not watched yet; who of them had ended before.
    pub fn watch_all(&mut self, pids: &HashSet<u32>) -> Vec<u32> {
        self.unwatched.clear();
        let mut over = Vec::new();
        for &pid in pids.iter().filter(|pid| !self.watched.contains_key(pid)).collect::<Vec<_>>() {
            let number = rustix::process::Pid::from_raw(pid as i32);
            let pidfd = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
            if pidfd.is_some_and(|pidfd| self.watch(pid, pidfd)) {
                continue;
            }
            let list = if husk_carrier::ended(pid) { &mut over } else { &mut self.unwatched };
            list.push(pid);
        }
        over
    }

    /// Who has ended since the last call; they are watched no more.
    pub fn ended(&mut self) -> Vec<u32> {
        let mut over = Vec::new();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while let Some(epoll) = &self.epoll {
            let mut events = Vec::with_capacity(ENDS_MAX);
            // An interrupted look is as good as none.
            let _ = epoll::wait(epoll, spare_capacity(&mut events), Some(&now));
            let pids = events.iter().map(|event: &epoll::Event| event.data.u64() as u32);
            let pids: Vec<u32> = pids.collect();
            pids.iter().for_each(|pid| drop(self.watched.remove(pid)));
            over.extend(&pids);
            if pids.len() < ENDS_MAX {
                break;
            }
        }
        over.extend(self.unwatched.extract_if(.., |pid| husk_carrier::ended(*pid)));
        over
    }

    /// Those of `pids` that have not ended, in their order.
    pub fn living(&self, pids: &[u32]) -> Vec<Pid> {
        let watched = pids.iter().filter_map(|pid| self.watched.get(pid));
        let mut looks: Vec<PollFd<'_>> =
            watched.map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Interrupted, all count as living: whoever asks, asks again.
        let _ = poll(&mut looks, Some(&now));
        let mut looks = looks.iter();
        let mut lives = |pid: &&u32| match self.watched.contains_key(pid) {
            true => looks.next().is_some_and(|look| look.revents().is_empty()),
            false => !husk_carrier::ended(**pid),
        };
        let living = pids.iter().filter(|pid| lives(pid));
        living.map(|pid| Pid::from_raw(*pid as i32)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn ended_within(vigil: &mut Vigil, count: usize) -> Vec<u32> {
        let (end, mut over) = (Instant::now() + Duration::from_secs(20), Vec::new());
        while over.len() < count && Instant::now() < end {
            over.extend(vigil.ended());
        }
        over
    }

    #[test]
    fn who_ends_is_noticed_once_watched_or_not() {
        for watched_max in [0, 1, 100] {
            let mut vigil = Vigil { watched_max, ..Vigil::begin() };
            let mut children = [sleeper(), sleeper(), sleeper()];
            let pids = children.each_ref().map(Child::id);
            assert!(vigil.watch_all(&pids.into()).is_empty());
            assert_eq!(vigil.watched.len(), watched_max.min(3));
            assert!(vigil.ended().is_empty());
            assert_eq!(vigil.living(&pids).len(), 3);
            children[1].kill().unwrap();
            assert_eq!(ended_within(&mut vigil, 1), [pids[1]]);
            assert!(vigil.ended().is_empty());
            let left = [pids[0], pids[2]].map(|pid| Pid::from_raw(pid as i32));
            assert_eq!(vigil.living(&pids), left);
            // A zombie is no more than who is gone.
            assert_eq!(vigil.watch_all(&[pids[1]].into()).len() + vigil.ended().len(), 1);
            children.iter_mut().for_each(|child| drop((child.kill(), child.wait())));
            assert!(vigil.living(&pids).is_empty());
        }
    }
}
