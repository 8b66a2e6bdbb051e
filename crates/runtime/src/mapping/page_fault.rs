//! Pages of Husk mappings that nobody has touched: holes, and what lay past the end of its file.
//!
//! They are mapped from behind the end of the region's memfd, so that touching one is SIGBUS:
//!
//! ```text
//!   application ── SIGBUS ──► on_fault ─► touched ─► Client::map_in ─► the access goes on
//!   a call with such an address ──────► reach ────┘        └─ no page, no room: the SIGBUS is
//!                                                             the application's, as on a tmpfs
//! ```
//!
//! 1. A page is mapped in once: a private one that is there may have been stored to.
//! 2. Who touches pages one behind the other has more and more mapped at a time; who jumps has one.
//!    After many jumps it is more each time, for the host knows a bounded number of mappings.
//! 3. A thread that meets the same page again, though it was mapped in, is told: the host has no
//!    memory for it.
//! 4. The host takes no SIGBUS of ours: a call fails with EFAULT. So what its arguments point to
//!    is mapped in before (`reach`), and a service finds what it copies. While any page may be
//!    missing, calls that go straight to the host come this way as well (`table::divert`).
//! 5. When this process makes a file shorter, its pages past the end are taken away, the private
//!    ones too, and are as if nobody had touched them (`client::host`).
//! 6. What lies before the first gap of a mapping is never looked for again; behind it the host is
//!    asked about `WINDOW_MAX` pages at a time.

use crate::frame::Frame;
use crate::memory;
use crate::memory::mappings::{self, Entry};
use crate::memory::mmap_lock;
use crate::stubs::arguments;
use crate::thread::Thread;
use core::ops::Range;
use husk_abi::{Errno, PAGE, nr};
use husk_host::syscall;

/// Most pages mapped in at once.
const WINDOW_MAX: usize = 512;
/// From so many touches of one mapping on, so many pages at least (invariant 2).
const CROWDED: [(u32, usize); 2] = [(16_384, WINDOW_MAX), (4096, 16)];
/// Longest structure that an argument points to, other than buffers with a length.
pub const STRUCTURE_BYTES: usize = 512;
/// Most buffers of one call.
const BUFFERS_MAX: usize = 1024;

/// Whether the host can read a page: it is there.
fn is_there(page: usize) -> bool {
    const NO_SUCH_CHANGE: usize = 99;
    // SAFETY: reads a word and changes nothing, for it does not know the change.
    let result = unsafe { syscall(nr::rt_sigprocmask, [NO_SUCH_CHANGE, page, 0, 8, 0, 0]) };
    result as i64 != Errno::EFAULT.as_return()
}

/// A page that was SIGBUS: whether it is there now. On the service stack.
pub extern "C" fn touched(address: usize) -> usize {
    let thread = Thread::current();
    let page = address & !(PAGE - 1);
    let _still = mmap_lock::take();
    let Some(entry) = mappings::at(page) else { return 0 };
    if is_there(page) {
        return 1;
    }
    if entry.prot == 0 || thread.touched == (page, entry.birth) {
        return 0;
    }
    usize::from(map_in(thread, &entry, page, window(&entry, page)) > 0)
}

/// How many pages to map in at `page`.
fn window(entry: &Entry, page: usize) -> usize {
    let crowded = CROWDED.iter().find(|(touches, _)| entry.touches >= *touches);
    let least = crowded.map_or(1, |(_, pages)| *pages);
    let goes_on = entry.next == page;
    if goes_on { (2 * usize::from(entry.window)).clamp(least, WINDOW_MAX) } else { least }
}

/// Maps `pages` pages in, as far as the entry goes and (invariant 1) none is there; bytes.
fn map_in(thread: &mut Thread, entry: &Entry, page: usize, pages: usize) -> usize {
    let most = ((entry.end - page) / PAGE).min(pages);
    let count = match entry.is_private() {
        true => (1..most).take_while(|n| !is_there(page + n * PAGE)).count() + 1,
        false => most,
    };
    let done = thread.client.map_in(entry.inode, &entry.part(page, count * PAGE));
    if done > 0 {
        thread.touched = (page, entry.birth);
        mappings::note_touch(entry.birth, page..page + done, count);
    }
    done
}

/// Maps in what the arguments of a call point to.
#[cold]
#[inline(never)]
pub fn reach(thread: &mut Thread, frame: &Frame) {
    if is_about_memory(frame) {
        return;
    }
    for i in (0..frame.args.len()).filter(|i| arguments::addresses(frame.number) >> i & 1 == 1) {
        let bytes = arguments::bytes_at(frame, i).max(STRUCTURE_BYTES);
        reach_range(thread, frame.args[i], bytes);
    }
    let [_, first, second, ..] = frame.args;
    match frame.number {
        nr::readv
        | nr::writev
        | nr::preadv
        | nr::pwritev
        | nr::preadv2
        | nr::pwritev2
        | nr::vmsplice
        | nr::process_vm_readv
        | nr::process_vm_writev => {
            reach_buffers(thread, first, second);
        }
        nr::sendmsg | nr::recvmsg => reach_message(thread, first),
        nr::getsockopt => reach_option(thread, frame.args[3], frame.args[4]),
        nr::pselect6 => reach_buffers(thread, frame.args[5], 1),
        nr::futex_waitv => reach_words(thread, frame.args[0], first),
        nr::sendmmsg | nr::recvmmsg => {
            const MESSAGE_BYTES: usize = 64;
            for n in 0..(second as u32 as usize).min(BUFFERS_MAX) {
                reach_message(thread, first.wrapping_add(n * MESSAGE_BYTES));
            }
        }
        _ => {}
    }
}

/// Calls whose addresses are not looked at.
fn is_about_memory(frame: &Frame) -> bool {
    const POPULATE: [usize; 2] = [22, 23];
    match frame.number {
        nr::mmap
        | nr::munmap
        | nr::mprotect
        | nr::pkey_mprotect
        | nr::mremap
        | nr::shmat
        | nr::remap_file_pages => true,
        nr::madvise => !POPULATE.contains(&frame.args[2]),
        _ => false,
    }
}

/// Of `struct iovec`s.
fn reach_buffers(thread: &mut Thread, at: usize, count: usize) {
    for n in 0..count.min(BUFFERS_MAX) {
        let mut buffer = [0usize; 2];
        if memory::read_value(at.wrapping_add(16 * n), &mut buffer).is_err() {
            return;
        }
        reach_range(thread, buffer[0], buffer[1]);
    }
}

/// Of a `struct msghdr`.
fn reach_message(thread: &mut Thread, at: usize) {
    let mut message = [0usize; 6];
    if memory::read_value(at, &mut message).is_err() {
        return;
    }
    let [name, name_bytes, buffers, count, control, control_bytes] = message;
    reach_range(thread, name, name_bytes as u32 as usize);
    reach_range(thread, buffers, count.min(BUFFERS_MAX) * 16);
    reach_range(thread, control, control_bytes);
    reach_buffers(thread, buffers, count);
}

/// Of `getsockopt`, whose length lies in memory.
fn reach_option(thread: &mut Thread, at: usize, length_at: usize) {
    let mut length = 0u32;
    if memory::read_value(length_at, &mut length).is_ok() {
        reach_range(thread, at, length as usize);
    }
}

/// Of `struct futex_waitv`s.
fn reach_words(thread: &mut Thread, at: usize, count: usize) {
    for n in 0..count.min(BUFFERS_MAX) {
        let mut waiter = [0usize; 3];
        if memory::read_value(at.wrapping_add(24 * n), &mut waiter).is_err() {
            return;
        }
        reach_range(thread, waiter[1], size_of::<u32>());
    }
}

fn reach_range(thread: &mut Thread, start: usize, length: usize) {
    let untouched = mappings::untouched();
    let end = start.saturating_add(length).min(untouched.end);
    let mut page = start.max(untouched.start) & !(PAGE - 1);
    while page < end {
        page = reach_page(thread, page, end);
    }
}

/// Sees to the first pages at or after `page` that may not be there; where to go on.
fn reach_page(thread: &mut Thread, page: usize, end: usize) -> usize {
    let Some(entry) = mappings::at_or_after(page) else { return end };
    if entry.prot == 0 || entry.is_solid() {
        return entry.end;
    }
    let page = page.max(entry.solid);
    if page >= end {
        return end;
    }
    let is_one = end - page <= PAGE;
    if is_one && page > entry.solid && is_there(page) {
        return page + PAGE;
    }
    let _still = mmap_lock::take();
    let Some(entry) = mappings::at(page).filter(|entry| entry.prot != 0) else {
        return page + PAGE;
    };
    let stop = end.next_multiple_of(PAGE).min(entry.end).min(page + WINDOW_MAX * PAGE);
    let missing = first_missing(page..stop);
    mappings::note_there(entry.birth, page..missing);
    if missing == stop {
        return stop;
    }
    match map_in(thread, &entry, missing, (stop - missing) / PAGE) {
        0 => end,
        done => missing + done,
    }
}

/// Where the first page lies that is not there; the end: all are. The host tells it of many in one
/// call, and only when one is missing each is asked for.
fn first_missing(pages: Range<usize>) -> usize {
    const POPULATE_READ: usize = 22;
    let (start, length) = (pages.start, pages.len());
    // SAFETY: makes the host find pages that are there, as a read of each would.
    let all = || unsafe { syscall(nr::madvise, [start, length, POPULATE_READ, 0, 0, 0]) } == 0;
    if length > PAGE && all() {
        return pages.end;
    }
    pages.clone().step_by(PAGE).find(|page| !is_there(*page)).unwrap_or(pages.end)
}
