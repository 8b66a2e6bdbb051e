//! How many descriptors a write-back may keep open, and the limit on them.
//!
//! Programs of the image have limits of their own, so this process takes all that it may have while
//! it writes back.

use std::fs::{self, File};
use std::os::fd::RawFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are left for everything else.
const OTHERS: usize = 512;
/// Kept open at most, whatever the limit.
const KEPT_MAX: usize = 1 << 18;

/// As many as are open by one write-back.
#[derive(Debug)]
pub struct Numbers {
    left: usize,
    before: Option<Rlimit>,
}

impl Numbers {
    /// All there are; the limit is raised until this is dropped. `wanted` will be taken, at most.
    pub fn all(wanted: usize) -> Numbers {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, ..before };
        let before = (raised.current != before.current
            && setrlimit(Resource::Nofile, raised).is_ok())
        .then_some(before);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let open = fs::read_dir("/proc/self/fd").map_or(usize::MAX, Iterator::count);
        let left = (limit.min(KEPT_MAX as u64) as usize).saturating_sub(open.max(OTHERS));
        let left = left.saturating_sub(OTHERS);
        make_room(open.saturating_add(left.min(wanted)));
        Numbers { left, before }
    }

    /// Takes one, if one is left.
    pub fn take(&mut self) -> bool {
        let any = self.left > 0;
        self.left -= usize::from(any);
        any
    }
}

/// Gives the table of descriptors its size at once: each time that it grows, by a factor of two,
/// Linux has a process of several threads wait until no core looks at the old one any more.
fn make_room(count: usize) {
    if count > OTHERS
        && let Ok(any) = File::open("/dev/null")
    {
        // Where it cannot be had, the table grows as always.
        let _ = fcntl_dupfd_cloexec(any, count as RawFd);
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // Lowering it is always allowed; what is open stays open.
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_there_are() {
        let mut numbers = Numbers { left: 1, before: None };
        assert!(numbers.take() && !numbers.take() && !numbers.take());
    }

    #[test]
    fn the_limit_leaves_room_for_all_that_may_be_taken() {
        let numbers = Numbers::all(0);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!((numbers.left as u64).saturating_add(OTHERS as u64) <= limit, "{numbers:?}");
    }
}
