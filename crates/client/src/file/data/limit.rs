//! The limit on the size of files (`RLIMIT_FSIZE`).
//!
//! The host does not see writes to the image's files, so the client judges them: a write that
//! begins at the limit or behind it is `EFBIG` and sends `SIGXFSZ`, one that reaches over it is
//! cut short. The limit is the process's: it is asked for once, and again after the process has
//! set it. One that another process sets (`prlimit`) is not noticed.

use crate::{Client, Host, Memory};
use core::sync::atomic::{AtomicU64, Ordering};
use husk_abi::nr;
use husk_abi::sys::general::{RLIMIT_FSIZE, SIGXFSZ};
use husk_proto::fs::Place;
use husk_proto::{Errno, Inode, Result, Services};

/// No limit: any file may be as large as files can be.
pub(crate) const NONE: u64 = u64::MAX;
/// To be asked.
const UNKNOWN: u64 = u64::MAX - 1;

/// The limit of this process less `UNKNOWN`, so that nothing has to be set at start. Threads share
/// it; whoever sets it forgets what is here.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// A passed call may have changed the limit.
pub(crate) fn forget<H: Host>(host: &H) {
    LIMIT.store(0, Ordering::Relaxed);
    host.note_size_limit(true);
}

/// How many of `length` bytes may be written at `place`: `EFBIG` at the limit.
pub(crate) fn room<S: Services>(
    services: &mut S,
    limit: u64,
    inode: Inode,
    place: Place,
    length: usize,
) -> Result<usize> {
    let start = match place {
        Place::At(offset) => offset,
        Place::End => services.attributes(inode)?.size,
    };
    let left = limit.checked_sub(start).filter(|&left| left > 0).ok_or(Errno::EFBIG)?;
    Ok(usize::try_from(left).unwrap_or(usize::MAX).min(length))
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The limit; `NONE` nearly always.
    #[inline]
    pub(crate) fn size_limit(&self) -> u64 {
        match LIMIT.load(Ordering::Relaxed).wrapping_add(UNKNOWN) {
            UNKNOWN => self.fetch_size_limit(),
            limit => limit,
        }
    }

    #[cold]
    fn fetch_size_limit(&self) -> u64 {
        let mut limit = [NONE; 2];
        let address = limit.as_mut_ptr() as usize;
        self.host.call(nr::prlimit64, [0, RLIMIT_FSIZE as usize, 0, address, 0, 0]);
        let limit = core::hint::black_box(limit)[0];
        LIMIT.store(limit.wrapping_sub(UNKNOWN), Ordering::Relaxed);
        self.host.note_size_limit(limit != NONE);
        limit
    }

    /// Tells the thread that it has reached the limit.
    #[cold]
    pub(crate) fn exceeded(&self) -> Errno {
        self.signal(SIGXFSZ);
        Errno::EFBIG
    }

    /// Sends the calling thread a signal, as a call of the host's would.
    #[cold]
    pub(crate) fn signal(&self, signal: u32) {
        let process = self.host.call(nr::getpid, [0; 6]) as usize;
        let thread = self.host.call(nr::gettid, [0; 6]) as usize;
        self.host.call(nr::tgkill, [process, thread, signal as usize, 0, 0, 0]);
    }

    /// How many of `length` bytes a call may write at `place`; the thread is told when none.
    #[inline]
    pub(crate) fn writable(&mut self, inode: Inode, place: Place, length: usize) -> Result<usize> {
        let limit = self.size_limit();
        if limit == NONE || length == 0 {
            return Ok(length);
        }
        match room(&mut self.services, limit, inode, place, length) {
            Err(Errno::EFBIG) => Err(self.exceeded()),
            other => other,
        }
    }

    /// Checks that a file may grow to `size`.
    pub(crate) fn may_grow(&mut self, inode: Inode, size: u64) -> Result<()> {
        let limit = self.size_limit();
        if size <= limit || size <= self.services.attributes(inode)?.size {
            return Ok(());
        }
        Err(self.exceeded())
    }
}
