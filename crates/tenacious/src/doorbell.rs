//! A descriptor that becomes readable when changes are durable, for event loops.
//!
//! ```text
//!   append ─► number ─► ring_at ─► thread of the store: durable ─► readable
//!                                                      not any more ◄─ take ◄─┘
//! ```
//!
//! 1. It is readable only once a change that was asked for is durable, or never will be.
//! 2. A ring is never lost: `take` first makes the descriptor unreadable, then looks how far the
//!    store is.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::store::Store;
use crate::{Error, Lsn};

/// A descriptor for epoll, poll and select, see [`Store::doorbell`].
///
/// It can be watched for reading, by a level or an edge; nobody else may read it or write to it.
#[derive(Debug)]
pub struct Doorbell {
    store: Store,
    bell: Arc<OwnedFd>,
}

impl Doorbell {
    pub(crate) fn new(store: Store) -> Result<Self, Error> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = made.map_err(|why| Error::Descriptor(why.raw_os_error()))?;
        Ok(Self { store, bell: Arc::new(bell) })
    }

    /// Makes the descriptor readable once the change with this number is durable, or never will be.
    /// May be asked for any number of changes; rings that come before [`Doorbell::take`] are one.
    pub fn ring_at(&self, lsn: Lsn) -> Result<(), Error> {
        if lsn <= self.store.durable() {
            ring(&self.bell);
            return Ok(());
        }
        let bell = Arc::clone(&self.bell);
        self.store.on_durable(lsn, move |_| ring(&bell))
    }

    /// Answers the bell: it is not readable until the next ring. Up to which change all are durable
    /// now; [`Error::Stopped`] where no more will be.
    pub fn take(&self) -> Result<Lsn, Error> {
        // Invariant 2. Nothing to read: nobody has rung.
        let _ = read(&*self.bell, &mut [0; 8]);
        match self.store.core().log.is_stopped() {
            true => Err(Error::Stopped),
            false => Ok(self.store.durable()),
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

fn ring(bell: &OwnedFd) {
    // A count that is at its end is readable, too.
    while write(bell, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use husk_storage::Uuid;
    use husk_storage::disk::sim::Sim;
    use husk_storage::disk::{BLOCK, Disk};
    use husk_storage::log::Log as Records;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::Doorbell;
    use crate::store::{Core, Options, Store};
    use crate::{Error, committer};

    const PLACE: (u64, u64) = (2 * BLOCK, 130 * BLOCK);

    fn is_readable(bell: &Doorbell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    /// The store's thread does what this test says, when it says so.
    #[test]
    fn a_bell_rings_when_its_change_is_durable_or_never_will_be_and_not_before() {
        let disk = Arc::new(Sim::new(PLACE.1, 1));
        Records::format(&disk, PLACE.0, PLACE.1, Uuid([3; 16])).unwrap();
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as _;
        let core = Core::open(shared, PLACE, (Uuid([3; 16]), 1), Options::default()).unwrap();
        let store = Store::of(core);
        let (bell, counter) = (store.doorbell().unwrap(), store.counter("c").unwrap());
        let first = counter.add(1).unwrap();
        bell.ring_at(first).unwrap();
        assert!(!is_readable(&bell), "it is not durable yet");
        store.wait(first).unwrap();
        committer::call_due(store.core());
        assert!(is_readable(&bell));
        assert_eq!((bell.take(), is_readable(&bell)), (Ok(first), false));
        // Two of them are one ring, up to the last.
        let changes = [counter.add(1).unwrap(), counter.add(1).unwrap()];
        changes.iter().for_each(|lsn| bell.ring_at(*lsn).unwrap());
        store.wait(changes[1]).unwrap();
        committer::call_due(store.core());
        assert_eq!((bell.take(), is_readable(&bell)), (Ok(changes[1]), false));
        disk.fail_write(0);
        let lost = counter.add(1).unwrap();
        bell.ring_at(lost).unwrap();
        assert_eq!((is_readable(&bell), store.wait(lost)), (false, Err(Error::Stopped)));
        committer::call_due(store.core());
        assert_eq!((is_readable(&bell), bell.take()), (true, Err(Error::Stopped)));
    }
}
