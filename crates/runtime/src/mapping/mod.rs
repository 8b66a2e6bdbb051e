//! Calls on the program's memory, where Husk's files are mapped or may be.
//!
//! ```text
//!   mmap, munmap, mprotect, mremap ─► serve ─► the host's call ─► pins and table follow
//!   a page that nobody has touched ─► page_fault            mlockall ─► lock_all
//! ```
//!
//! Invariants
//! 1. A stack that its own thread unmaps stays until that thread exits (`end_stack`).
//! 2. What may not be written to is never made one to write to (`change_protection`), be it moved,
//!    cut, mapped anew or inherited: the host would let it, for the region is open for writing.

pub(crate) mod lock_all;
pub(crate) mod page_fault;
pub(crate) mod remap;

use crate::frame::{Answer, Frame};
use crate::memory::mappings::{end_of, first_kept, is_empty, meets};
use crate::thread::Thread;
use husk_abi::memory::{MAP_ANONYMOUS, MAP_FIXED, PROT_WRITE};
use husk_abi::{Errno, PAGE, nr};
use husk_host::calls;

/// Changes the protection of pages, up to the first that may not be written to when that is asked
/// for: what lies before it has changed then, as on Linux.
fn change_protection(thread: &mut Thread, frame: &Frame) -> i64 {
    let mut frame = *frame;
    let [start, length, prot, ..] = frame.args;
    let end = end_of(start, length);
    let kept = if prot & PROT_WRITE != 0 { first_kept(start, end) } else { None };
    let kept = kept.filter(|_| start.is_multiple_of(PAGE));
    let stop = kept.unwrap_or(end);
    if stop == start {
        return Errno::EACCES.as_return();
    }
    if stop != end {
        frame.call.args[1] = stop - start;
    }
    let result = frame.host();
    if result != 0 {
        return result;
    }
    thread.client.protect_mappings(start, stop, prot);
    kept.map_or(0, |_| Errno::EACCES.as_return())
}

/// Whether a call unmaps the stack it was made on: musl's detached threads do, right before they
/// exit. Calls need a stack here (a patched site pushes, a trapped one is a signal), so the thread
/// keeps it until then.
fn dooms_its_stack(frame: &Frame) -> bool {
    let [start, length, ..] = frame.args;
    // What goes beyond all addresses is the host's to refuse.
    let is_range = start.checked_add(length).is_some_and(|end| end <= isize::MAX as usize);
    frame.number == nr::munmap && is_range && frame.rsp.wrapping_sub(start) < length
}

/// Unmaps what the thread that ends has left for it.
pub fn end_stack(thread: &mut Thread) {
    let [start, length] = core::mem::take(&mut thread.doomed_stack);
    if length != 0 {
        // SAFETY: the application's own call, made late; the service stack is another.
        let _ = unsafe { calls::raw(nr::munmap, [start, length, 0, 0, 0, 0]) };
    }
}

/// Whether a call maps over an entry.
pub fn is_covered(frame: &Frame) -> bool {
    let [start, length, _, flags, ..] = frame.args;
    flags & MAP_FIXED != 0 && !is_empty() && meets(start, end_of(start, length))
}

/// Serves the calls that end or change mappings. `None`: no Husk file is concerned.
#[inline(never)]
pub fn serve(thread: &mut Thread, frame: &Frame) -> Option<Answer> {
    if dooms_its_stack(frame) {
        thread.doomed_stack = [frame.args[0], frame.args[1]];
        return Some(Answer::value(0));
    }
    if is_empty() {
        return None;
    }
    let [start, length, _, flags, ..] = frame.args;
    let end = end_of(start, length);
    let result = match frame.number {
        nr::munmap => {
            let result = frame.host();
            if result == 0 {
                thread.client.forget_mappings(start, end);
            }
            result
        }
        nr::mprotect | nr::pkey_mprotect if meets(start, end) => change_protection(thread, frame),
        nr::mremap => remap::serve(thread, frame),
        nr::remap_file_pages => remap::rearrange(thread, frame)?,
        nr::mmap if flags & MAP_FIXED != 0 && flags & MAP_ANONYMOUS != 0 => {
            let result = frame.host();
            if result == start as i64 {
                thread.client.forget_mappings(start, end);
            }
            result
        }
        _ => return None,
    };
    Some(Answer::value(result))
}
