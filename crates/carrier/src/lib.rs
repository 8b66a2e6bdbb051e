//! How an operation reaches its kernel.
//!
//! ```text
//!   client --trait of proto--> Direct --function call--> handler (kernel) --> state arena (region)
//! ```
//!
//! `Direct` is the carrier for kernels of this node: the caller runs the handler itself, under the
//! locks the handler takes. One value per thread.
//!
//! Invariants
//! 1. `Direct` exists only where the region is mapped at its addresses, for as long as the process
//!    runs: `map_region`, or the promise of `assume_mapped`.
//! 2. A value's journal slot is taken at its first operation and belongs to one thread.
#![no_std]

mod copying;
mod counts;
mod descriptors;
mod epolls;
mod extended;
mod far;
mod files;
mod flights;
mod image;
mod mapping;
mod pipes;
mod place;
mod processes;
mod volumes;
mod watches;

pub use counts::{Counts, Seat};
pub use far::{AT_END, NOW_S};
pub use husk_kernel::check::{Finding, check, check_live, makes_sense, scratch_words};
pub use husk_kernel::image::Directories;
pub use husk_region::{
    CACHE_ADDRESS, CHUNK_BLOCKS, HEADER_BYTES, Header, KERNELS_MAX, Layout, PASSES_MAX, PassWords,
    STATE_ADDRESS, Without, ended, read_header,
};
pub use mapping::{assume_mapped, map_region, populate};
pub use volumes::{Unsaved, VolumeCounter, VolumeState, Wish};

use core::cell::Cell;

use husk_kernel::Kernel;
use husk_proto::fs::{Attributes, HostIdentity, Imported, Origin};
use husk_proto::image::Cover;
use husk_proto::{Errno, Inode, Process, Result};
use husk_region::{Life, Region, Session};

/// Naps of somebody who waits until another has released the dead.
const BURIAL_NAPS_MAX: u32 = 2000;

/// The direct carrier of one thread. What each call reads stands first.
#[derive(Debug)]
#[repr(C)]
pub struct Direct {
    pub(crate) kernel: Kernel,
    clock: fn() -> i64,
    /// Since when this thread waits for a file's lock, 0 = it does not.
    pub(crate) blocked_ns: i64,
    /// The process is a child that shares memory, and has no second thread.
    pub(crate) newborn: bool,
    /// Another node is the home of all names (`far`).
    pub(crate) is_away: bool,
    /// What the home has said in this call of an inode, and of a host object.
    pub(crate) recent: Cell<Option<Attributes>>,
    pub(crate) recent_identity: Cell<Option<(Origin, HostIdentity)>>,
}

/// Writes a new image into the mapped region, which is all zero. `device` is the `st_dev` of all
/// its inodes, `copies_path` the absolute host directory of rewritten programs.
pub fn format(layout: Layout, device: u64, copies_path: &[u8]) -> Result<()> {
    mapping::check()?;
    // SAFETY: mapped (checked) by somebody who knew the layout.
    let region = unsafe { Region::format(layout) };
    husk_kernel::image::format(&region, device, copies_path)
}

impl Direct {
    /// A thread's way into the image, acting for `process` (`Process(0)`: the supervisor). `clock`
    /// gives ns since the epoch, coarse. `ENODEV` when the region is not mapped or not formatted.
    pub fn attach(clock: fn() -> i64, process: Process, pid: u32, tid: u32) -> Result<Direct> {
        mapping::check()?;
        // SAFETY: mapped (checked).
        let region = unsafe { Region::attach() }.ok_or(Errno::ENODEV)?;
        let kernel = Kernel::new(Session::new(region, pid, tid), process.0);
        let is_away = husk_kernel::image::node(&kernel) != 0;
        let (recent, recent_identity) = (Cell::new(None), Cell::new(None));
        let (blocked_ns, newborn) = (0, false);
        Ok(Direct { kernel, clock, blocked_ns, newborn, is_away, recent, recent_identity })
    }

    /// Gives the journal slot back; the next operation takes one again.
    pub fn detach(&mut self) {
        self.kernel.session.detach();
    }

    /// Whether this thread is the only one that acts for its process: it need not lock what the
    /// process shares with nobody. To be taken back before a second thread starts.
    pub fn set_alone(&mut self, alone: bool) {
        self.kernel.session.set_alone(alone);
        self.newborn = false;
    }

    /// This thread is the first of a child that shares its parent's memory: until `set_alone`, no
    /// other acts for its process, though others have what lies in memory.
    pub fn set_newborn(&mut self) {
        self.newborn = true;
    }

    /// What is called before a call that only looks, as a rule, stores something.
    pub fn set_unguard(&mut self, unguard: fn()) {
        self.kernel.session.set_unguard(unguard);
    }

    /// Where it stands of which numbers calls go to the host at once (`Session::set_passes`).
    pub fn set_passes(&mut self, words: &'static PassWords) {
        self.kernel.session.set_passes(words);
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// The handlers' view of this thread, for the checker.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The host directory where the host's objects behind FIFOs and unix sockets stand, with a
    /// slash at its end; before the first program runs. `ENAMETOOLONG`.
    pub fn set_private_path(&mut self, path: &[u8]) -> Result<()> {
        husk_kernel::image::set_private_path(&self.kernel, path)
    }

    /// When the image was made, ns since the epoch; 0: nobody has said.
    pub fn made_ns(&self) -> i64 {
        husk_kernel::image::made_ns(&self.kernel)
    }

    /// Says so, before the first program runs.
    pub fn set_made_ns(&mut self, ns: i64) {
        husk_kernel::image::set_made_ns(&self.kernel, ns);
    }

    /// Adds a tree over host directory `path`. `root` describes that directory (its `name` is the
    /// path, kind `Directory`, mode and owner as shown).
    pub fn add_mount(&mut self, path: &[u8], cover: Cover, root: &Imported<'_>) -> Result<Inode> {
        let overlay = cover == Cover::Overlay;
        let root = Imported { name: path, ..*root };
        let inode = husk_kernel::fs::overlay::make_root(&self.kernel, &root, overlay, self.now())?;
        husk_kernel::image::add_mount(&self.kernel, path, inode, cover, root.identity.device)?;
        Ok(inode)
    }

    /// How directories are shared in this image. Before the first mount.
    pub fn set_directories(&mut self, rule: Directories) {
        husk_kernel::image::set_directories(&self.kernel.session.region, rule);
    }

    /// Switches techniques off in this image. Before the first mount, and before others join.
    pub fn set_without(&mut self, without: Without) {
        self.kernel.session.region.set_without(without);
    }

    /// Techniques that are switched off.
    pub fn without(&self) -> Without {
        self.kernel.session.region.without()
    }

    /// Widens or narrows one directory now, whatever the image's rule says.
    pub fn switch_directory(&mut self, dir: Inode, wide: bool) -> Result<()> {
        if wide {
            husk_kernel::fs::directory::switch::widen(&self.kernel, dir, true)
        } else {
            husk_kernel::fs::directory::switch::narrow(&self.kernel, dir, true)
        }
    }

    /// Whether a directory is wide.
    pub fn is_wide(&self, dir: Inode) -> bool {
        husk_kernel::fs::directory::share::is_wide_now(&self.kernel.session.region, dir)
    }

    /// Makes the record of the first program, host process `pid`, with these host numbers open.
    pub fn first_process(&mut self, pid: u32, host_fds: &[u32]) -> Result<Process> {
        husk_kernel::process::first(&self.kernel, pid, host_fds, self.now())
    }

    /// In the parent, after the host's fork: notes which host process the embryo became, so that
    /// `reap` finds it even if it dies before `enter_child`.
    pub fn note_child(&mut self, child: Process, pid: u32) {
        let _ = husk_kernel::process::set_pid(&self.kernel, child, pid, false);
    }

    /// Where the host is to write which process the embryo becomes (`CLONE_PARENT_SETTID`): then it
    /// is known however soon who makes it is killed.
    pub fn child_told_at(&self, child: Process) -> usize {
        let cell = husk_kernel::process::embryo::told_at(&self.kernel, child);
        STATE_ADDRESS + cell.index() as usize * size_of::<u64>()
    }

    /// In the parent, after the host's fork: false where the host has not written there after all.
    pub fn child_was_told(&self, child: Process) -> bool {
        husk_kernel::process::embryo::was_told(&self.kernel, child)
    }

    /// In the parent, before the host's fork: the host will not write there.
    pub fn child_untold(&mut self, child: Process) {
        let _ = husk_kernel::process::embryo::set_untold(&self.kernel, child);
    }

    /// Supervisor: host process `pid` is dead. Recovers its threads' journals and locks, and
    /// releases all it held; how many records that were. Again is fine.
    pub fn reap(&mut self, pid: u32) -> Result<u32> {
        if self.is_away {
            let burying = |me: &mut Self| me.burying(|me| me.release_dead(pid));
            return self.far_reap(pid, burying).unwrap_or(Ok(0));
        }
        self.burying(|me| me.release_dead(pid))
    }

    fn release_dead(&mut self, pid: u32) -> Result<u32> {
        let gone = |pid, tid| husk_region::judge(pid, tid) == Life::Dead;
        husk_kernel::process::reap(&self.kernel, pid, self.now(), &gone)
    }

    /// One at a time releases the dead. Who had to wait for another counts that as one found: what
    /// was in the way may be gone.
    fn burying(&mut self, step: impl FnOnce(&mut Self) -> Result<u32>) -> Result<u32> {
        let (word, region) =
            (husk_kernel::process::burial_word(&self.kernel), self.kernel.session.region);
        let me = u64::from(self.kernel.session.pid()) << 32 | u64::from(self.kernel.session.tid());
        let mut waited = 0;
        for _ in 0..BURIAL_NAPS_MAX {
            let owner = region.load(word);
            let gone = || husk_region::judge((owner >> 32) as u32, owner as u32) == Life::Dead;
            let free =
                owner == 0 || owner == me || gone() || husk_region::observe::kill::mutant() == 46;
            if free && region.swap_if(word, owner, me) {
                let found = step(self);
                region.store(word, 0);
                return found.map(|found| found + waited);
            }
            waited = 1;
            husk_region::nap();
        }
        Ok(waited)
    }

    /// Supervisor, now and then: recovers whatever dead threads and processes have left; how many.
    pub fn scan_dead(&mut self) -> Result<u32> {
        self.burying(Direct::release_all_dead)
    }

    fn release_all_dead(&mut self) -> Result<u32> {
        let mut found = self.kernel.session.recover_dead()?;
        let mut dead = [0u32; 64];
        let mut count = 0;
        husk_kernel::process::each_pid(&self.kernel, &mut |pid| {
            if count < dead.len() && husk_region::ended(pid) {
                dead[count] = pid;
                count += 1;
            }
        });
        for &pid in &dead[..count] {
            found += match self.is_away {
                true => self.far_reap(pid, |me| me.release_dead(pid)).unwrap_or(Ok(0))?,
                false => self.release_dead(pid)?,
            };
        }
        Ok(found + self.release_dead(0)?)
    }

    /// The host processes that have a record, the dead that nobody has buried included.
    pub fn each_pid(&self, emit: &mut dyn FnMut(u32)) {
        husk_kernel::process::each_pid(&self.kernel, emit);
    }

    /// Forgets which copies were asked for of a supervisor that has died.
    pub fn forget_requests(&mut self) {
        husk_kernel::image::copies::forget_requests(&self.kernel)
    }

    /// How often system call `number` was refused (`Image::count_unsupported`).
    pub fn unsupported(&self, number: usize) -> u64 {
        husk_kernel::image::unsupported(&self.kernel, number)
    }

    /// Mode of a host object when it was imported, and the origin of its directory (`None` for a
    /// mount's root).
    pub fn origin_facts(&self, origin: Origin) -> Result<(u32, Option<Origin>)> {
        husk_kernel::fs::overlay::origin_facts(&self.kernel, origin)
    }
}
