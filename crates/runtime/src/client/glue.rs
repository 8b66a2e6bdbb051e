//! What the gate and the other rooms ask the client of their thread.
//!
//! Invariants
//! 1. The region is changed only with the guard open, and the guard is closed again before the
//!    service ends.
//! 2. A child that shares memory has its own client; a forked child goes on with its copy.
//! 3. Without a region (the gate alone) every call is the host's.

use crate::clock;
use crate::facts;
use crate::memory::{guard, region};
use crate::thread::Thread;
use crate::thread::client::{HINTS, Served, Side, ThreadClient};
use husk_abi::{Errno, nr};
use husk_carrier::{Direct, Without};
use husk_client::{After, Call, Client, Seen, Shortcut, Verdict, bells};
use husk_host::calls;
use husk_proto::Shortcuts as _;
use husk_proto::descriptor::Slot;
use husk_proto::process::{Process, Processes};

/// The calls that move bytes at a descriptor's own place; only for pipes they leave work after.
#[inline(always)]
pub const fn moves_bytes(number: usize) -> bool {
    matches!(number, nr::read | nr::write | nr::readv | nr::writev)
}

impl ThreadClient {
    #[cold]
    pub(crate) fn attach(&mut self, tid: u32) -> Result<&mut Served, Errno> {
        let mut direct = Direct::attach(clock::now_ns, Process(self.process), self.pid, tid)?;
        direct.set_unguard(guard::open_late);
        // SAFETY: blocks are never unmapped; the thread's client and its gate alone use the words.
        direct.set_passes(unsafe { &*core::ptr::from_ref(&self.passes) });
        if let Some(placed) = direct.placement(self.process, self.pid) {
            direct.prefer_kernel(Some(placed.kernel));
        }
        if direct.without().has(Without::DIRECT) {
            region::set_indirect();
        }
        // SAFETY: any bytes are valid buffers; blocks are never unmapped, and only this client,
        // which lives in the same block, uses them.
        let buffers = unsafe { &mut *self.buffers.as_mut_ptr() };
        Ok(self.client.insert(Client::new(direct, Side, Side, buffers)))
    }

    /// The client; `None` without an image. The guard must be open.
    #[inline(always)]
    pub(crate) fn served(&mut self) -> Option<&mut Served> {
        if self.client.is_none() { self.attached() } else { self.client.as_mut() }
    }

    /// What `step` says with the guard open; `None` without an image.
    pub(super) fn with_open<T>(&mut self, step: impl FnOnce(&mut Served) -> T) -> Option<T> {
        let _open = guard::open();
        self.served().map(step)
    }

    #[cold]
    #[inline(never)]
    fn attached(&mut self) -> Option<&mut Served> {
        // The first thread has attached, so the image is there: this cannot fail.
        facts::has_region().then(|| self.attach(calls::gettid()).ok()).flatten()
    }

    /// Asks the client; `then` sees the verdict where it lies (it is large). `looks`: the call
    /// changes nothing, as a rule.
    #[inline(always)]
    pub fn call<T>(&mut self, call: &Call, looks: bool, then: impl FnOnce(&Verdict) -> T) -> T {
        let _open = if looks { guard::look() } else { guard::open() };
        match self.served() {
            Some(served) => served.call_then(call, then),
            None => then(&Verdict::Pass),
        }
    }

    /// Moves bytes through a pipe of the image, for which the arena is only read. `None`: the
    /// descriptor is not known for one.
    #[inline(always)]
    pub fn piped<T>(&mut self, call: &Call, then: impl FnOnce(&Verdict) -> T) -> Option<T> {
        let fd = call.args[0];
        if fd >= HINTS || self.pipes >> fd & 1 == 0 {
            return None;
        }
        let _open = guard::look();
        let served = self.client.as_mut()?;
        let services = served.services();
        match services.pipe_end(services.files(), fd as u32) {
            Some(end) => Some(served.pipe_call_then(call, end, then)),
            None => {
                self.pipes &= !(1 << fd);
                None
            }
        }
    }

    /// Reads from or writes to a pipe of the image, if a few bytes can go at once; 0: ask `piped`.
    #[inline(always)]
    pub fn moved_swiftly(
        &mut self,
        number: usize,
        fd: usize,
        address: usize,
        length: usize,
    ) -> usize {
        if fd >= HINTS {
            return 0;
        }
        let _open = guard::look();
        let Some(served) = self.client.as_mut() else { return 0 };
        let Some((end, alone)) = served.services().pipe_sight(fd as u32) else { return 0 };
        served.moved_swiftly(number, end, alone, [fd, address, length, 0, 0, 0])
    }

    /// A call on `fd` turned out to be one of a pipe: the next one may take the short way.
    #[inline(always)]
    pub fn expect_pipe(&mut self, fd: usize) {
        if fd < HINTS {
            self.pipes |= 1 << fd;
        }
    }

    /// What a look at descriptor `fd` says of a call on it (`Client::glance`), the guard closed.
    #[inline(always)]
    pub fn glance(&mut self, number: usize, fd: usize, args: [usize; 4]) -> Seen {
        let (fd, hinted) = (fd as u32, self.hints >> (fd % HINTS) & 1 == 1);
        let _open = guard::look();
        let Some(served) = self.client.as_mut() else { return Seen::Nothing };
        let kept = || facts::kept_fds().contains(&fd) || bells::may_be_one(fd);
        let hosts = || hinted && !kept();
        let seen = served.glance(number, fd, args, hosts);
        if seen == Seen::Nothing {
            self.hints &= !(1 << (fd as usize % HINTS));
        }
        seen
    }

    /// Whether `epoll_wait` finds nothing (`Client::finds_nothing`).
    #[inline(always)]
    pub fn finds_nothing(&self, fd: usize, address: usize, most: usize, timeout: usize) -> bool {
        let served = self.client.as_ref();
        served.is_some_and(|served| served.finds_nothing(fd as u32, address, most, timeout))
    }

    /// What becomes of a call whose path lately led outside (`Client::outside`), the guard closed.
    #[inline(always)]
    pub fn outside(&mut self, call: &Call) -> Option<Shortcut> {
        let _open = guard::look();
        self.client.as_mut()?.outside(call)
    }

    /// Whether a handler makes the next call (`Client::tell_handler`).
    pub fn tell_handler(&mut self, runs: bool) {
        if let Some(served) = self.client.as_mut() {
            served.tell_handler(runs);
        }
    }

    /// Before what a file that is kept open could change, or tell (`Client::give_back_spares`).
    #[inline]
    pub fn give_back_spares(&mut self) {
        if let Some(served) = self.client.as_mut().filter(|served| served.has_spares()) {
            let _open = guard::open();
            served.give_back_spares();
        }
    }

    /// Before this process comes to where it cannot look into others (`Client::forgo_lanes`).
    #[cold]
    pub fn forgo_lanes(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.client.as_mut() {
            served.forgo_lanes();
        }
    }

    /// Notes what the host has opened for one (`Client::note_opened_outside`).
    #[inline(always)]
    pub fn note_opened_outside(&mut self, fd: u32, close_on_exec: bool) -> i64 {
        self.expect_hosts(fd as usize);
        let _open = guard::open();
        let served = self.client.as_mut();
        served.map_or(fd.into(), |served| served.note_opened_outside(fd, close_on_exec))
    }

    /// Whether closing `fd`, the host's lately, is all the host's (`Client::closes_host`).
    #[inline(always)]
    pub fn closes_host(&mut self, fd: usize) -> bool {
        if self.hints >> (fd % HINTS) & 1 == 0 || bells::may_be_one(fd as u32) {
            return false;
        }
        let _open = guard::open();
        self.client.as_mut().is_some_and(|served| served.closes_host(fd as u32))
    }

    /// A call on `fd` was passed: the next one is worth a look (`fast_path`).
    #[inline(always)]
    pub fn expect_hosts(&mut self, fd: usize) {
        if fd <= i32::MAX as usize {
            self.hints |= 1 << (fd % HINTS);
        }
    }

    /// The result of a call that process `pid` passed: this one, or the one it was forked from.
    pub fn after(&mut self, after: After, pid: u32, result: i64) -> i64 {
        let of_pipe = moves_bytes(after.number);
        let _open = if of_pipe { guard::look() } else { guard::open() };
        let own = pid == self.pid;
        self.served().map_or(result, |served| {
            if own { served.after(after, result) } else { served.after_in_child(after, result) }
        })
    }

    /// Operations done so far, and for which kernel (`Direct::so_far`).
    pub fn so_far(&mut self, sits: bool) -> (u64, Option<u32>) {
        let _open = guard::open();
        self.served().map_or((0, None), |served| served.services().so_far(sits))
    }

    /// `Client::moved_by_ring`.
    pub fn moved_by_ring(&mut self, number: usize, fd: usize) -> Option<u64> {
        let _open = guard::look();
        self.served().and_then(|served| served.moved_by_ring(number, fd))
    }

    /// The process record's number.
    pub fn process(&mut self) -> u32 {
        let _open = guard::open();
        self.served().map_or(0, |served| served.services().current().0)
    }

    /// Whether number `fd` is a bell's (`Client::is_bell`).
    pub fn is_bell(&mut self, fd: u32) -> bool {
        let _open = guard::look();
        self.served().is_some_and(|served| served.is_bell(fd))
    }

    /// What number `fd` is, as the table has it.
    pub fn slot(&mut self, fd: u32) -> Slot {
        let _open = guard::look();
        self.served().map_or(Slot::Free, |served| served.slot(fd))
    }

    /// `EMFILE` if the host is to make none.
    pub fn need_descriptor(&mut self) -> Result<(), Errno> {
        let _open = guard::open();
        self.served().map_or(Ok(()), |served| served.need_descriptor())
    }

    /// Whether a process is one of the image's.
    pub fn knows(&mut self, pid: u32) -> bool {
        let _open = guard::open();
        self.served().is_some_and(|served| served.services().working_directory_of(pid).is_some())
    }

    /// The host made descriptor `fd` by itself; the number it has from now on.
    pub fn note_host_descriptor(&mut self, fd: u32) -> i64 {
        let _open = guard::open();
        match self.served() {
            Some(served) => served.note_host_descriptor(fd),
            None => i64::from(fd),
        }
    }
}

/// The client's own thread (for callbacks that have no other way to it).
pub fn current() -> &'static mut ThreadClient {
    &mut Thread::current().client
}
