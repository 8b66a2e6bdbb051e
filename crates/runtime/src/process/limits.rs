//! Keeps Husk's own work in the process from hitting the application's resource limits.
//!
//! The limit of address space (`RLIMIT_AS`): what the application sets and reads is its own share,
//! the host's limit is that and what Husk maps.
//!
//! Invariants
//! 1. Limits that are read and set again stay what they are; no limit stays none.
//! 2. Who has a limit has the buffer cache mapped, now and in the programs it becomes (`LIMITED`):
//!    what the application takes up to its limit is never missing to its files.
//!
//! The limit of core dumps (`RLIMIT_CORE`): the host is told one under which it makes none, and
//! what the application sets and reads is its own (`dump`). Where the host gives cores to a program
//! or a socket, the limit is the host's.
//!
//! Not here: a limit that is set from outside the image counts all that is mapped, and processes
//! outside have no share of Husk's.

use crate::dump;
use crate::facts::facts;
use crate::frame::{Answer, Frame};
use crate::memory;
use crate::memory::region;
use crate::memory::robust_lock::{Held, Lock};
use crate::signal;
use crate::thread::Thread;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use husk_abi::sys::general::{RLIMIT_AS, RLIMIT_CORE, RLIMIT_NOFILE};
use husk_abi::{Errno, nr};
use husk_host::calls;
use husk_runtime::core_dump;
use husk_runtime::handover::LIMITED;

const NONE: u64 = u64::MAX;
/// What lies beside the region: the runtime, its blocks of some hundred threads.
const BESIDE_BYTES: u64 = 64 << 20;

static SET: AtomicBool = AtomicBool::new(false);

/// `getrlimit`, `setrlimit`, `prlimit64`; `None`: not ours to answer.
pub fn serve(thread: &mut Thread, frame: &Frame) -> Option<Answer> {
    let [first, second, third, fourth, ..] = frame.args;
    let (pid, resource, new, old) = match frame.number {
        nr::getrlimit => (0, first, 0, second),
        nr::setrlimit => (0, first, second, 0),
        _ => (first, second, third, fourth),
    };
    if resource as u32 == RLIMIT_CORE && !dump::is_elsewhere() {
        let known = pid == 0 || thread.client.knows(pid as u32);
        let answer = |done: Result<(), Errno>| done.map_or_else(Errno::as_return, |()| 0);
        return known.then(|| Answer::value(answer(exchange_core(thread, pid, new, old))));
    }
    let ours = resource as u32 == RLIMIT_AS && region::mapped_bytes() != 0;
    if !ours || (pid != 0 && !thread.client.knows(pid as u32)) {
        return None;
    }
    Some(Answer::value(match exchange(pid, new, old) {
        Ok(()) => 0,
        Err(errno) => errno.as_return(),
    }))
}

fn exchange_core(thread: &Thread, pid: usize, new: usize, old: usize) -> Result<(), Errno> {
    let mut told = None;
    if new != 0 {
        let mut limits = [NONE; 2];
        memory::read_value(new, &mut limits)?;
        if limits[0] > limits[1] {
            return Err(Errno::EINVAL);
        }
        told = Some(core_dump::limit::told(limits));
    }
    let before = dump::exchange(pid, told)?;
    let own = pid == 0 || pid == calls::getpid() as usize;
    if told.is_some_and(|told| own && dump::note(core_dump::limit::meant(told))) {
        signal::catch_dumps(thread);
    }
    if old != 0 {
        memory::write_value(old, &core_dump::limit::meant(before))?;
    }
    Ok(())
}

fn exchange(pid: usize, new: usize, old: usize) -> Result<(), Errno> {
    let share = region::mapped_bytes() + BESIDE_BYTES;
    let (mut limit, mut before) = ([NONE; 2], [NONE; 2]);
    if new != 0 {
        memory::read_value(new, &mut limit)?;
        if limit[0] != NONE {
            // It may not be there to be had; then it is missing to the files alone.
            let _ = region::need_cache();
            SET.store(true, Relaxed);
        }
        limit = limit.map(|bytes| if bytes == NONE { NONE } else { bytes.saturating_add(share) });
    }
    let asked = if new != 0 { (&raw const limit) as usize } else { 0 };
    let args = [pid, RLIMIT_AS as usize, asked, (&raw mut before) as usize, 0, 0];
    // SAFETY: two words of ours each way.
    unsafe { calls::raw(nr::prlimit64, args) }?;
    if old != 0 {
        let shown = |bytes: u64| if bytes == NONE { NONE } else { bytes.saturating_sub(share) };
        memory::write_value(old, &core::hint::black_box(before).map(shown))?;
    }
    Ok(())
}

/// Who raises the limit of open files: one at a time, or it would stay higher.
static RAISING: Lock = Lock::new();

/// In a forked child.
pub fn reset() {
    RAISING.reset();
}

/// While it lives, the limit of open files is higher by some (other threads may take one of those,
/// and keep it).
pub struct MoreNumbers {
    before: [u64; 2],
    raised: [u64; 2],
    _held: Held,
}

impl MoreNumbers {
    const MORE: u64 = 16;

    /// `None`: it may not be raised.
    pub fn raised() -> Option<MoreNumbers> {
        let held = RAISING.take();
        let before = numbers()?;
        let [soft, hard] = before;
        let raised = [soft.saturating_add(Self::MORE).min(hard), hard];
        (raised > before).then_some(())?;
        exchange_numbers(Some(raised), None).ok()?;
        Some(MoreNumbers { before, raised, _held: held })
    }
}

impl Drop for MoreNumbers {
    fn drop(&mut self) {
        // What another thread has set meanwhile stays. What may be raised may be lowered.
        if numbers() == Some(self.raised) {
            let _ = exchange_numbers(Some(self.before), None);
        }
    }
}

/// The limit of open files, and how far it may be raised.
fn numbers() -> Option<[u64; 2]> {
    let mut now = [0u64; 2];
    exchange_numbers(None, Some(&mut now)).ok()?;
    Some(core::hint::black_box(now))
}

fn exchange_numbers(new: Option<[u64; 2]>, old: Option<&mut [u64; 2]>) -> Result<(), Errno> {
    let asked = new.as_ref().map_or(0, |limit| (&raw const *limit) as usize);
    let before = old.map_or(0, |limit| (&raw mut *limit) as usize);
    // SAFETY: two words of ours each way, or none.
    unsafe { calls::raw(nr::prlimit64, [0, RLIMIT_NOFILE as usize, asked, before, 0, 0]) }?;
    Ok(())
}

/// What the programs that follow are to know (invariant 2).
pub fn flag() -> u32 {
    if SET.load(Relaxed) || facts().handover.flags & LIMITED != 0 { LIMITED } else { 0 }
}
