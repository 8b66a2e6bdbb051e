//! Connects the runtime and the client: one value for each thread, attached at its first call.
//!
//! Invariants
//! 1. The region is changed only with the guard open, and the guard is closed again before the
//!    service ends.
//! 2. A child that shares memory has its own client; a forked child goes on with its copy.
//! 3. Without a region (the gate alone) every call is the host's.

mod copies;

use crate::client::host::Side;
use crate::gate::table;
use crate::load::copies::{open_copy, request};
use crate::load::programs::{S_IFMT, Source, described, descriptor_path};
use crate::load::programs::{host_program, stat_or_close};
use crate::load::start;
use crate::memory::{guard, mappings, region};
use crate::process::clock;
use crate::process::placement::{self, Who};
use crate::process::thread::Thread;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use husk_abi::{Errno, PATH_MAX, nr};
use husk_carrier::{Direct, PassWords, Without};
use husk_client::{Buffers, Client};
use husk_host::{calls, syscall};
use husk_proto::descriptor::{Descriptors, Slot};
use husk_proto::image::Image;
use husk_proto::process::{Process, Processes, Sharing};
use husk_proto::{Inode, pipe::Pipes, place::Placement};
use husk_runtime::handover;

pub use husk_client::{After, Call, ExecTarget, Mapping, Program, Seen, Shortcut, Verdict};

pub(crate) type Served = Client<Direct, Side, Side>;

/// A child before it runs; `None` for a thread, or without an image.
pub type Embryo = Option<Unborn>;

/// What a child is told of before it runs.
#[derive(Clone, Copy)]
pub struct Unborn {
    /// Its record.
    process: Process,
    /// How its parent was placed, who may have ended before it asks.
    parent: Option<Placement>,
}

/// Whether the client has business with a call.
pub const fn wants(number: usize) -> bool {
    husk_client::wants(number)
}

/// The calls that move bytes at a descriptor's own place; only for pipes they leave work after.
#[inline(always)]
pub const fn moves_bytes(number: usize) -> bool {
    matches!(number, nr::read | nr::write | nr::readv | nr::writev)
}

/// Descriptors with a hint of their own: a power of two.
pub const HINTS: usize = 64;

/// The client of one thread; what is large comes last (`repr(C)`), for pages touched are faults.
#[repr(C)]
pub struct Wire {
    client: Option<Served>,
    process: u32,
    pid: u32,
    /// Descriptors whose last call was passed, one bit for those that are the same modulo `HINTS`.
    /// Only a hint; the gate reads it.
    pub hints: u64,
    /// Low descriptors that were ends of pipes, one bit each. Only a hint; the gate reads it.
    pub pipes: u64,
    /// Descriptors whose calls are the host's for sure, one bit each (`Session::set_pass`). The
    /// gate reads it.
    pub passes: PassWords,
    /// A mapping of a Husk file that the call just made has noted.
    noted: Option<(Mapping, Inode)>,
    buffers: MaybeUninit<Buffers>,
}

impl Wire {
    /// Makes a fresh one of whatever bytes are there; the buffers stay as they are.
    pub fn reset(&mut self) {
        // SAFETY: plain fields of our own block; nothing in the old client needs dropping.
        unsafe { (&raw mut self.client).write(None) };
        self.passes = [const { AtomicU64::new(0) }; _];
        self.noted = None;
    }

    /// Joins the image as the process the hand-over names.
    pub fn start(&mut self) -> Result<(), Errno> {
        let handover = &start::facts().handover;
        if !start::has_region() {
            return Ok(());
        }
        region::join()?;
        self.process = handover.process;
        self.pid = calls::getpid();
        let _open = guard::open();
        let pid = self.pid;
        let served = self.attach(pid)?;
        served.services().set_alone(true);
        if region::made_table() {
            served.services().set_gate(table::identity());
        }
        if handover.flags & handover::INITIAL == 0 {
            placement::at_exec(served.services(), Who { process: handover.process, pid });
            served.services().finish_exec()?;
        } else {
            // Who has started it may die before it notes whom.
            served.services().enter_child(Process(handover.process), pid);
            if served.services().files().0 == 0 {
                // It took longer to come than anybody waits for it.
                return Err(Errno::ESRCH);
            }
            served.meet_inherited();
        }
        Ok(())
    }

    #[cold]
    fn attach(&mut self, tid: u32) -> Result<&mut Served, Errno> {
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
        start::has_region().then(|| self.attach(calls::gettid()).ok()).flatten()
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
        let hosts = || hinted && !start::kept_fds().contains(&fd);
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
        if self.hints >> (fd % HINTS) & 1 == 0 {
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

    /// The process it belongs to.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Operations done so far, and for which kernel (`Direct::so_far`).
    pub fn so_far(&mut self, sits: bool) -> (u64, Option<u32>) {
        let _open = guard::open();
        self.served().map_or((0, None), |served| served.services().so_far(sits))
    }

    /// The process record's number.
    pub fn process(&mut self) -> u32 {
        let _open = guard::open();
        self.served().map_or(0, |served| served.services().current().0)
    }

    // ---- processes ----------------------------------------------------------------------------

    /// A record for a child.
    pub fn prepare_fork(&mut self, files: bool, context: bool) -> Result<Embryo, Errno> {
        let _open = guard::open();
        let (own, pid) = (self.process, self.pid);
        let Some(served) = self.served() else { return Ok(None) };
        let parent = served.services().placement(own, pid);
        let process = served.services().prepare_fork(Sharing { files, context })?;
        Ok(Some(Unborn { process, parent }))
    }

    /// Does something with the record of a child; `None` without one.
    fn of<T>(&mut self, child: Embryo, step: impl FnOnce(&mut Direct, Process) -> T) -> Option<T> {
        let _open = guard::open();
        Some(step(self.served()?.services(), child?.process))
    }

    /// The host refused.
    pub fn cancel_fork(&mut self, embryo: Embryo) {
        self.of(embryo, |direct, child| direct.cancel_fork(child));
    }

    /// Where the host is to write which process the child is; `None` without an image.
    pub fn child_told_at(&mut self, embryo: Embryo) -> Option<usize> {
        self.of(embryo, |direct, child| direct.child_told_at(child))
    }

    /// In the parent, when there is a child: false where the host has written nothing there.
    pub fn child_was_told(&mut self, embryo: Embryo) -> bool {
        self.of(embryo, |direct, child| direct.child_was_told(child)) != Some(false)
    }

    /// The host will not write it there.
    pub fn child_untold(&mut self, embryo: Embryo) {
        self.of(embryo, |direct, child| direct.child_untold(child));
    }

    /// In the parent: the child runs as `pid`.
    pub fn note_child(&mut self, embryo: Embryo, pid: u32) {
        self.of(embryo, |direct, child| direct.note_child(child, pid));
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

    /// A block for a child that shares memory: whose thread it will be.
    pub fn inherit(&mut self, parent: &mut Wire) {
        self.process = parent.process();
        self.pid = parent.pid;
    }

    /// Before this process gets a second thread.
    pub fn expect_company(&mut self) {
        let Some(served) = self.client.as_mut() else { return };
        served.services().set_alone(false);
    }

    /// Counts for a child what it will have mapped, while addresses are kept still.
    pub fn count_for_child(&mut self, embryo: Embryo) -> Result<(), Errno> {
        let _open = guard::open();
        let (Some(embryo), Some(served)) = (embryo, self.served()) else { return Ok(()) };
        mappings::each_file(|inode, count, writes| {
            served.services().pin_for(embryo.process, inode, count, writes)
        })
    }

    /// In a child process.
    pub fn enter_child(&mut self, embryo: Embryo, shares_memory: bool) {
        let Some(Unborn { process, parent }) = embryo else { return };
        let _open = guard::open();
        let pid = calls::getpid();
        self.pid = pid;
        let Some(served) = self.served() else { return };
        let child = Who { process: process.0, pid };
        placement::at_fork(served.services(), parent, child, shares_memory);
        served.services().enter_child(process, pid);
        served.services().set_alone(!shares_memory);
        if shares_memory {
            served.services().set_newborn();
        }
        self.process = process.0;
    }

    /// The process ends with other threads in it: writers of its pipes, and the other sides of its
    /// sockets, are to notice.
    pub fn leave_pipes(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            served.leave_lanes();
            served.services().leave_pipes();
        }
    }

    /// Right before a program starts that is none of the image's: it gets pipes as the host's.
    pub fn surrender_pipes(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            served.surrender_all();
        }
    }

    /// The thread ends; `last`: its process too.
    pub fn leave(&mut self, last: bool) {
        let _open = guard::open();
        if last && self.client.is_none() {
            let _ = self.served();
        }
        let Some(served) = self.client.as_mut() else { return };
        if last {
            served.leave_lanes();
            let services = served.services();
            if let Some(placed) = services.placement(self.process, self.pid) {
                services.leave_kernel(&placed);
            }
            services.exit();
            // Closing is an event, too; what is told takes a seat again.
            served.tell();
            served.services().detach();
        } else {
            served.services().detach();
        }
    }

    /// Right before the host's exec.
    pub fn before_exec(&mut self) {
        let _open = guard::open();
        if let Some(served) = self.client.as_mut() {
            // Bytes that nobody has read: of what exec closes the host tells the loss.
            served.leave_lanes();
            served.services().detach();
        }
    }

    /// The first program of an image, or one that joins it, is about to begin.
    pub fn place_first(&mut self) {
        let _open = guard::open();
        let who = Who { process: self.process, pid: self.pid };
        if let Some(served) = self.served() {
            let services = served.services();
            placement::at_exec(services, who);
            if services.placement(who.process, who.pid).is_some() {
                // It takes a seat of its kernel with its next change.
                services.detach();
            }
        }
    }

    /// The program has set on which cores a thread may run; 0: the calling one.
    pub fn chose_cores(&mut self, thread: u32) {
        let who = Who { process: self.process, pid: self.pid };
        if ![0, who.pid, calls::gettid()].contains(&thread) {
            return;
        }
        let _open = guard::open();
        let Some(served) = self.served() else { return };
        let services = served.services();
        if let Some(placed) = services.placement(who.process, who.pid) {
            services.note_placement(who.process, &Placement { own: true, ..placed });
        }
    }

    // ---- mappings -----------------------------------------------------------------------------

    /// One more pin.
    pub fn pin(&mut self, inode: Inode) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            // A gone inode has nothing left to keep.
            let _ = served.services().pin(inode);
        }
    }

    /// One less.
    pub fn unpin(&mut self, inode: Inode) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            served.services().unpin(inode);
        }
    }

    /// The client mapped a Husk file; kept until the call is over (`take_noted`).
    pub fn note_mapping(&mut self, mapping: &Mapping, inode: Inode) {
        self.noted = Some((*mapping, inode));
    }

    /// What the last call mapped.
    pub fn take_noted(&mut self) -> Option<(Mapping, Inode)> {
        self.noted.take()
    }

    /// Maps pages of a pinned file in that nobody has touched (`Client::map_in`); bytes.
    pub fn map_in(&mut self, inode: Inode, mapping: &Mapping) -> usize {
        let _open = guard::open();
        self.served().map_or(0, |served| served.map_in(inode, mapping))
    }

    /// Maps a file once more, at the place given, and notes it.
    pub fn map_anew(&mut self, inode: Inode, mapping: &Mapping) -> Result<(), Errno> {
        let _open = guard::open();
        let Some(served) = self.served() else { return Err(Errno::ENOMEM) };
        served.map_anew(inode, *mapping)?;
        mappings::keep_noted(self)
    }

    // ---- programs -----------------------------------------------------------------------------

    /// Opens a program by path, as the loader does.
    pub fn open_program(&mut self, path: &CStr) -> Result<Program, Errno> {
        self.open_to_execute(calls::AT_FDCWD, path.to_bytes_with_nul(), 0)
    }

    /// Opens the program that the process record names, as the loader does.
    #[cold]
    pub fn open_running(&mut self) -> Result<Program, Errno> {
        let _open = guard::open();
        self.served().ok_or(Errno::ENOENT)?.open_running()
    }

    /// Opens an interpreter: directly, when this image knows that its path leads into no tree.
    pub fn open_interpreter(&mut self, path: &CStr) -> Result<Program, Errno> {
        const EXECUTABLE_FILE: u32 = 0o100_111;
        if self.known_outside(path.to_bytes()) {
            let fd = calls::open(path)?;
            let stat = stat_or_close(fd)?;
            if stat.mode & (S_IFMT | 0o111) == EXECUTABLE_FILE {
                return Ok(described(fd, &stat));
            }
            calls::close(fd);
        }
        self.open_program(path)
    }

    fn known_outside(&mut self, path: &[u8]) -> bool {
        let _open = guard::open();
        self.served().is_some_and(|served| served.services().known_outside(path))
    }

    /// Opens what `execveat(at, path, flags)` names; `path` ends with NUL.
    pub fn open_to_execute(
        &mut self,
        at: usize,
        path: &[u8],
        flags: usize,
    ) -> Result<Program, Errno> {
        let _open = guard::open();
        let address = path.as_ptr() as usize;
        match self.served() {
            Some(served) => served.open_program(at as i32, address, flags as u32),
            None => host_program(at, path, flags),
        }
    }

    /// Whether an open descriptor is closed by exec.
    pub fn closes_on_exec(&mut self, fd: u32) -> bool {
        const F_GETFD: usize = 1;
        let _open = guard::open();
        let known = self.served().and_then(|served| {
            let services = served.services();
            let files = services.files();
            services.close_on_exec(files, fd).ok()
        });
        // SAFETY: passes no memory.
        let hosts = || unsafe { syscall(nr::fcntl, [fd as usize, F_GETFD, 0, 0, 0, 0]) } & 1 != 0;
        known.unwrap_or_else(hosts)
    }

    /// The real path of the program just opened, or `given`.
    pub fn path_of(&mut self, program: &Program, given: &[u8], out: &mut [u8; PATH_MAX]) {
        let found = self.client.as_ref().map_or(&b""[..], |c| c.program_text(program));
        if let (true, ExecTarget::Host(fd)) = (found.is_empty(), program.target) {
            let length = descriptor_path(fd as usize, &mut out[..PATH_MAX - 1]);
            out[length] = 0;
            if length > 0 {
                return;
            }
        }
        let text = if found.is_empty() { given } else { found };
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len()).min(PATH_MAX - 1);
        out[..end].copy_from_slice(&text[..end]);
        out[end] = 0;
    }

    /// Whether a real path lies outside every tree of the image.
    pub fn outside_mounts(&mut self, path: &[u8]) -> bool {
        let _open = guard::open();
        let Some(served) = self.served() else { return true };
        let services = served.services();
        (0..services.mounts()).all(|i| {
            let rest = path.strip_prefix(services.mount(i).path);
            !rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// Whether what lies outside them is read-only.
    pub fn outside_is_sealed(&mut self) -> bool {
        let _open = guard::open();
        self.served().is_some_and(|served| served.services().outside_is_sealed())
    }

    /// This process runs a file from now on, to which nobody can write then; what it ran before.
    pub fn set_program(&mut self, inode: Option<Inode>) -> Result<Option<Inode>, Errno> {
        let _open = guard::open();
        self.served().map_or(Ok(None), |served| served.services().set_program(inode))
    }

    /// Reads a program's bytes.
    pub fn read_program(
        &mut self,
        program: &Program,
        out: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let _open = guard::open();
        match (program.target, self.client.as_mut()) {
            (ExecTarget::Host(fd), _) => calls::pread(fd as usize, out, offset),
            (_, Some(served)) => served.read_program(program, offset, out),
            _ => Err(Errno::EBADF),
        }
    }

    /// Maps a program's bytes at a fixed place inside a reserved span.
    pub fn map_file(
        &mut self,
        program: &Program,
        start: usize,
        length: usize,
        prot: usize,
        offset: usize,
    ) -> Result<(), Errno> {
        use husk_abi::memory::{MAP_FIXED, MAP_PRIVATE};
        let _open = guard::open();
        match (program.target, self.client.as_mut()) {
            (ExecTarget::Host(fd), _) => {
                crate::load::map_host(fd as usize, start, length, prot, offset)
            }
            (_, Some(served)) => {
                let length = length.next_multiple_of(husk_abi::PAGE);
                let flags = MAP_PRIVATE | MAP_FIXED;
                served.map_program(program, start, length, prot, flags, offset as u64)?;
                mappings::keep_noted(self)
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Lets a program go.
    pub fn close_program(&mut self, program: Program) {
        let _open = guard::open();
        match (program.target, self.client.as_mut()) {
            (ExecTarget::Host(fd), _) => calls::close(fd as usize),
            (_, Some(served)) => served.close_program(program),
            _ => {}
        }
    }
}

/// The client's own thread (for callbacks that have no other way to it).
pub fn current() -> &'static mut Wire {
    &mut Thread::current().client
}
