//! How an operation reaches its kernel.
//!
//! ```text
//!   client --trait of proto--> Direct --function call--> handler (kernel) --> state arena (region)
//! ```
//!
//! `Direct` is the carrier for kernels of this node: the caller runs the handler itself, under the
//! locks the handler takes. One value per thread. Its methods follow from the declarations in
//! `husk_proto` (`dispatch`); `steps` has what takes more than one handler, `far` what another node
//! answers.
//!
//! Invariants
//! 1. `Direct` exists only where the region is mapped at its addresses, for as long as the process
//!    runs: `map_region`, or the promise of `assume_mapped`.
//! 2. A value's journal slot is taken at its first operation and belongs to one thread.
#![no_std]

#[cfg(feature = "answers")]
mod answers;
mod copying;
mod counts;
mod dispatch;
mod extended;
mod far;
#[cfg(feature = "answers")]
mod holds;
mod mapping;
#[cfg(feature = "answers")]
mod passing;
mod place;
mod steps;
mod volumes;

#[cfg(feature = "answers")]
pub use answers::{ANSWERED, Asked, Changes, made};
pub use counts::{Counts, Seat};
pub use far::{AT_END, NOW_S, Onlooker, Stamp};
#[cfg(feature = "answers")]
pub use holds::{By, Hold};
pub use husk_kernel::check::{Finding, check, check_live, makes_sense, scratch_words};
pub use husk_kernel::image::Directories;
pub use husk_region::{
    CACHE_ADDRESS, CHUNK_BLOCKS, HEADER_BYTES, HOME_SLOTS_ADDRESS, Header, KERNELS_MAX, Layout,
    PASSES_MAX, PassWords, STATE_ADDRESS, Without, ended, read_header, with_descriptor_busy,
};

/// Bytes of the memory at `HOME_SLOTS_ADDRESS`.
pub const SLOTS_BYTES: usize = husk_link::Slots::BYTES;
pub use mapping::{assume_mapped, map_region, populate};
#[cfg(feature = "answers")]
pub use passing::{Adopted, Named};

use core::cell::Cell;

use husk_kernel::Kernel;
use husk_proto::fs::{Attributes, HostIdentity, Origin};
use husk_proto::{Errno, Inode, Process, Result};
use husk_region::{Region, Session};

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
    /// The description at home whose offset the call of now uses.
    pub(crate) shared: Option<husk_wire::record::Object>,
    /// Looks at the home's memory.
    pub(crate) home: Option<Kernel>,
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
        let (home, shared) = (None, None);
        Ok(Direct {
            kernel,
            clock,
            blocked_ns,
            newborn,
            is_away,
            recent,
            recent_identity,
            shared,
            home,
        })
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
}
