//! The home's memory, where that is on this host: looked at without a message.
//!
//! ```text
//!   far_look ─► Direct::peek ─► handler on the home's region, as it is now
//!                     '─► not mapped, or somebody is changing it ─► a message (`ask`)
//! ```
//!
//! A process asks the home's agent for it once (`message::Memory`), and maps it to be read. What a
//! look sees is judged by the same lock words as on the home itself (`Session::read`), so it is as
//! exact as there, and writers at home do not notice readers. With it comes the memory in which the
//! agent takes short requests (`husk_link::Slots`).
//!
//! Invariants
//! 1. It is mapped to be read only: nothing here can change it, nor wait on it. What is writable is
//!    the agent's of requests, of which it believes nothing.
//! 2. Another host's agent gives none: all is asked by messages there.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use husk_abi::memory::{PROT_READ, PROT_WRITE};
use husk_abi::nr;
use husk_host::calls;
use husk_kernel::Kernel;
use husk_link::{PATH_BYTES_MAX, Slots, call_for_descriptors, is_whole};
use husk_proto::{Errno, Inode, Result};
use husk_region::{
    HOME_CACHE_ADDRESS, HOME_SLOTS_ADDRESS, HOME_STATE_ADDRESS, Layout, Region, Session, Without,
};
use husk_wire::messages::decode_reply;
use husk_wire::{AFAR, Header, Kind, message};

use super::FAR;
use crate::Direct;
use crate::mapping::map_part;

/// Nobody has asked.
const UNKNOWN: u32 = 0;
/// Somebody does; others send messages meanwhile.
const ASKING: u32 = 1;
/// It is mapped.
const MAPPED: u32 = 2;
/// Nobody asks any more.
const NONE: u32 = 3;
/// Times that it is asked for: the agent may have been killed, or all descriptors taken.
const ASKED_MAX: u32 = 8;
/// How long an answer may take, s.
const PATIENCE_S: u64 = 1;
/// Most bytes of arena and cache, for which there are addresses.
const BYTES_MAX: u64 = (HOME_STATE_ADDRESS - HOME_CACHE_ADDRESS) as u64;

/// This process's.
struct Home {
    state: AtomicU32,
    asked: AtomicU32,
    /// Whether the memory for requests is mapped.
    has_slots: AtomicBool,
    region: UnsafeCell<MaybeUninit<Region>>,
}

// SAFETY: `region` is written once, by who has made `state` ASKING, and read once it is MAPPED.
unsafe impl Sync for Home {}

static HOME: Home = Home {
    state: AtomicU32::new(UNKNOWN),
    asked: AtomicU32::new(0),
    has_slots: AtomicBool::new(false),
    region: UnsafeCell::new(MaybeUninit::uninit()),
};

/// As the handlers there know it.
pub(super) fn there(inode: Inode) -> Inode {
    Inode { number: inode.number & !FAR, ..inode }
}

impl Direct {
    /// What `look` sees at home. `None`: its memory is not to be had, or it is being changed where
    /// that looks: the home is asked.
    pub(super) fn peek<T>(&mut self, look: impl FnOnce(&Kernel) -> Result<T>) -> Option<Result<T>> {
        if self.home.is_none() {
            self.home = self.home_kernel();
        }
        match look(self.home.as_ref()?) {
            Err(Errno::EAGAIN | Errno::EIO) => None,
            seen => Some(seen),
        }
    }

    #[cold]
    fn home_kernel(&self) -> Option<Kernel> {
        let state = &HOME.state;
        let first = state.compare_exchange(UNKNOWN, ASKING, Ordering::Acquire, Ordering::Acquire);
        if first.is_ok() {
            let (region, has_slots) = self.map_home().unzip();
            let has = |technique| !self.without().has(technique);
            HOME.has_slots.store(has_slots == Some(true) && has(Without::SLOTS), Ordering::Release);
            let region = region.filter(|_| has(Without::LOOKS));
            if let Some(region) = region {
                // SAFETY: only this thread has made it ASKING, and nobody reads before MAPPED.
                unsafe { (*HOME.region.get()).write(region) };
            }
            let is_last = HOME.asked.fetch_add(1, Ordering::Relaxed) + 1 == ASKED_MAX;
            let next = match region {
                Some(_) => MAPPED,
                None if is_last || self.node() >= AFAR || !has(Without::LOOKS) => NONE,
                None => UNKNOWN,
            };
            state.store(next, Ordering::Release);
        }
        if state.load(Ordering::Acquire) != MAPPED {
            return None;
        }
        // SAFETY: written before it was MAPPED, and never again.
        let region = unsafe { (*HOME.region.get()).assume_init() };
        Some(Kernel::new(Session::that_looks(region), 0))
    }

    fn map_home(&self) -> Option<(Region, bool)> {
        if self.node() >= AFAR {
            return None;
        }
        let mut path = [0; PATH_BYTES_MAX];
        let path = self.home_path(&mut path).ok()?;
        ask_for_memory(path, &self.header(Kind::Memory, 0), map_slots)
    }

    /// The memory in which the home's agent takes requests, if it is known and the agent lives.
    pub(super) fn home_slots(&self) -> Option<Slots<'static>> {
        if !HOME.has_slots.load(Ordering::Acquire) {
            return None;
        }
        let base = NonNull::new(HOME_SLOTS_ADDRESS as *mut u8)?;
        // SAFETY: mapped for good before it was said so.
        let slots = unsafe { Slots::at(base) };
        if slots.is_alive() {
            return Some(slots);
        }
        leave_slots();
        None
    }
}

/// All requests of this process go to the socket from now on.
pub(super) fn leave_slots() {
    HOME.has_slots.store(false, Ordering::Relaxed);
}

/// Has the agent that listens at `path` lend its memory, and maps it; `slots` is given the
/// descriptor of that in which it takes requests.
pub(super) fn ask_for_memory(
    path: &[u8],
    header: &Header,
    slots: impl FnOnce(usize) -> bool,
) -> Option<(Region, bool)> {
    let mut room = [0; 256];
    let header = header.encode();
    let parts = [&header[..], &[]];
    let answer = call_for_descriptors(path, parts, &mut room, PATIENCE_S).ok()?;
    let (length, [memory, requests]) = answer;
    let region = memory.and_then(|fd| map(fd, &room[..length]));
    let has_slots = region.is_some() && requests.is_some_and(slots);
    [memory, requests].into_iter().flatten().for_each(calls::close);
    Some((region?, has_slots))
}

/// Maps the memory in which the agent takes requests.
fn map_slots(fd: usize) -> bool {
    let (prot, bytes) = (PROT_READ | PROT_WRITE, Slots::BYTES);
    is_whole(fd, bytes) && map_part(HOME_SLOTS_ADDRESS, bytes as u64, (fd as u32, 0), prot).is_ok()
}

fn map(fd: usize, answer: &[u8]) -> Option<Region> {
    let (header, body) = Header::split(answer).ok()?;
    let said = decode_reply::<message::Memory>(&header, body).ok()?.ok()?;
    let layout = Layout { kernels: said.kernels, memory_bytes: said.memory_bytes };
    let (state, cache) = (layout.state_bytes(), layout.cache_bytes());
    if state > BYTES_MAX || cache > BYTES_MAX {
        return None;
    }
    let fd = fd as u32;
    map_part(HOME_STATE_ADDRESS, state, (fd, 0), PROT_READ).ok()?;
    let behind = (fd, layout.cache_offset());
    if map_part(HOME_CACHE_ADDRESS, cache, behind, PROT_READ).is_err() {
        // SAFETY: mapped just now, and nothing leads there.
        let _ = unsafe { calls::raw(nr::munmap, [HOME_STATE_ADDRESS, state as usize, 0, 0, 0, 0]) };
        return None;
    }
    // SAFETY: mapped just now; nothing unmaps it while the process runs.
    unsafe { Region::of_another(layout, HOME_STATE_ADDRESS, HOME_CACHE_ADDRESS) }
}
