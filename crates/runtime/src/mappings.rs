//! Mappings of Husk files: which inode each one pins, so that unmapping takes the pin back.
//!
//! Invariants
//! 1. One entry = one pin. A mapping that is cut in two pins twice.
//! 2. The table is the process's; a forked child pins again what it inherited (`inherited`).
//! 3. The lock is never held across a host call or a service; a forked child clears it.
//! 4. A stack that its own thread unmaps stays until that thread exits (`end_stack`).

use crate::gate::{Answer, Frame};
use crate::service;
use crate::thread::Thread;
use crate::wire::Wire;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use husk_abi::{Errno, PAGE, nr};
use husk_host::calls;
use husk_proto::Inode;

/// Most mappings of Husk files in one process: what Linux allows of all kinds
/// (`vm.max_map_count`). Further ones are `ENOMEM`, as there.
const MAPPINGS_MAX: usize = 65_530;

#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    end: usize,
    inode: Inode,
}

const EMPTY: Mapping = Mapping { start: 0, end: 0, inode: Inode { number: 0, generation: 0 } };

struct Table(UnsafeCell<[Mapping; MAPPINGS_MAX]>);
// SAFETY: only touched with `LOCK` held.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([EMPTY; MAPPINGS_MAX]));
#[unsafe(link_section = ".bss.hot")]
static COUNT: AtomicUsize = AtomicUsize::new(0);
#[unsafe(link_section = ".bss.hot")]
static LOCK: AtomicBool = AtomicBool::new(false);

fn locked<R>(step: impl FnOnce(&mut [Mapping; MAPPINGS_MAX], &AtomicUsize) -> R) -> R {
    while LOCK.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    // SAFETY: the lock is ours; services are not interrupted by handlers.
    let result = step(unsafe { &mut *TABLE.0.get() }, &COUNT);
    LOCK.store(false, Ordering::Release);
    result
}

/// Notes a mapping and its pin. False: the table is full.
pub fn note(address: usize, length: usize, inode: Inode) -> bool {
    let end = address + length.next_multiple_of(PAGE);
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        let Some(entry) = table.get_mut(used) else { return false };
        *entry = Mapping { start: address, end, inode };
        count.store(used + 1, Ordering::Relaxed);
        true
    })
}

/// Calls `step` with the inode of every entry (a forked child pins them again).
pub fn inherited(mut step: impl FnMut(Inode)) {
    LOCK.store(false, Ordering::Relaxed);
    for i in 0..COUNT.load(Ordering::Relaxed) {
        step(locked(|table, _| table[i].inode));
    }
}

/// What one step of forgetting asks of the services.
enum Step {
    Unpin(Inode),
    Pin(Inode),
    Done,
}

/// Cuts one entry that meets `start..end`.
fn cut(start: usize, end: usize) -> Step {
    locked(|table, count| {
        let used = count.load(Ordering::Relaxed);
        for i in 0..used {
            let entry = table[i];
            if entry.start >= end || entry.end <= start {
                continue;
            }
            if entry.start >= start && entry.end <= end {
                table[i] = table[used - 1];
                count.store(used - 1, Ordering::Relaxed);
                return Step::Unpin(entry.inode);
            }
            if entry.start < start {
                table[i].end = start;
                if entry.end > end && used < MAPPINGS_MAX {
                    table[used] = Mapping { start: end, ..entry };
                    count.store(used + 1, Ordering::Relaxed);
                    return Step::Pin(entry.inode);
                }
            } else {
                table[i].start = end;
            }
        }
        Step::Done
    })
}

/// Forgets what lay in `start..end`.
fn forget(wire: &mut Wire, start: usize, end: usize) {
    loop {
        match cut(start, end) {
            Step::Unpin(inode) => wire.unpin(inode),
            Step::Pin(inode) => wire.pin(inode),
            Step::Done => return,
        }
    }
}

/// The inode mapped at `address`.
fn at(address: usize) -> Option<Inode> {
    locked(|table, count| {
        let used = &table[..count.load(Ordering::Relaxed)];
        used.iter().find(|m| (m.start..m.end).contains(&address)).map(|m| m.inode)
    })
}

/// Takes over what the client has just mapped: whatever lay there before is gone. `ENOMEM`: it is
/// one too many, and is unmapped again.
#[inline(never)]
pub fn keep_noted(wire: &mut Wire) -> Result<(), Errno> {
    let Some((address, length, inode)) = wire.take_noted() else { return Ok(()) };
    forget(wire, address, address + length.next_multiple_of(PAGE));
    if note(address, length, inode) {
        return Ok(());
    }
    // SAFETY: what the client has mapped a moment ago; the application does not know of it yet.
    let _ = unsafe { calls::raw(nr::munmap, [address, length, 0, 0, 0, 0]) };
    wire.unpin(inode);
    Err(Errno::ENOMEM)
}

/// Whether a call unmaps the stack it was made on: musl's detached threads do, right before they
/// exit. Calls need a stack here (a patched site pushes, a trapped one is a signal), so the thread
/// keeps it until then.
fn dooms_its_stack(frame: &Frame) -> bool {
    let [start, length, ..] = frame.args;
    frame.number == nr::munmap && frame.rsp.wrapping_sub(start) < length
}

/// Unmaps what the thread that ends has left for it.
pub fn end_stack(thread: &mut Thread) {
    let [start, length] = core::mem::take(&mut thread.doomed_stack);
    if length != 0 {
        // SAFETY: the application's own call, made late; the service stack is another.
        let _ = unsafe { calls::raw(nr::munmap, [start, length, 0, 0, 0, 0]) };
    }
}

/// Serves the calls that end mappings. `None`: no Husk file is concerned.
#[inline(never)]
pub fn serve(thread: &mut Thread, frame: &Frame) -> Option<Answer> {
    if dooms_its_stack(frame) {
        thread.doomed_stack = [frame.args[0], frame.args[1]];
        return Some(Answer::value(0));
    }
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    const MAP_FIXED: usize = 0x10;
    const MAP_ANONYMOUS: usize = 0x20;
    let [start, length, _, flags, ..] = frame.args;
    let end = start.saturating_add(length.saturating_add(PAGE - 1) & !(PAGE - 1));
    match frame.number {
        nr::munmap => {
            let result = service::host(frame);
            if result == 0 {
                forget(&mut thread.client, start, end);
            }
            Some(Answer::value(result))
        }
        nr::mremap => Some(Answer::value(remap(thread, frame))),
        nr::mmap if flags & MAP_FIXED != 0 && flags & MAP_ANONYMOUS != 0 => {
            let result = service::host(frame);
            if result == start as i64 {
                forget(&mut thread.client, start, end);
            }
            Some(Answer::value(result))
        }
        _ => None,
    }
}

fn remap(thread: &mut Thread, frame: &Frame) -> i64 {
    const MREMAP_DONTUNMAP: usize = 4;
    let [old, old_length, new_length, flags, ..] = frame.args;
    let inode = at(old);
    if inode.is_some() && new_length.next_multiple_of(PAGE) > old_length.next_multiple_of(PAGE) {
        // What lies behind a run of the buffer cache is another file's: map anew instead.
        return Errno::ENOMEM.as_return();
    }
    let result = service::host(frame);
    if result < 0 {
        return result;
    }
    if flags & MREMAP_DONTUNMAP == 0 {
        forget(&mut thread.client, old, old.saturating_add(old_length));
    }
    if let Some(inode) = inode {
        thread.client.pin(inode);
        // When the table is full the pin stays until exec or exit.
        let _ = note(result as usize, new_length, inode);
    }
    result
}
