//! What the application may not do to the runtime under it: map over it, close its descriptors,
//! take gs, Syscall User Dispatch or the guard's protection key away.

use crate::addresses;
use crate::clock;
use crate::facts;
use crate::frame::{Answer, Frame};
use crate::gate::seccomp;
use crate::memory::guard;
use crate::stubs::classes::PR_SET_SECCOMP;
use crate::thread::Thread;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use husk_abi::memory::{MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MREMAP_FIXED};
use husk_abi::{Errno, nr};
use husk_client::bells;
use husk_host::{calls, syscall};

const SHM_REMAP: usize = 0o40000;
const MADV_DONTFORK: usize = 10;

/// Why a change of memory is refused.
pub fn range(frame: &Frame) -> Option<Errno> {
    let [address, length, second, third, fourth, _] = frame.args;
    let fixed = |flags: usize| flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    let ours = match frame.number {
        nr::mmap => fixed(third) && addresses::covers(address, length),
        nr::mremap => {
            let target = third & MREMAP_FIXED != 0 && addresses::covers(fourth, second);
            target || addresses::covers(address, length)
        }
        nr::shmat => second & SHM_REMAP != 0 && addresses::covers(length, 1),
        nr::pkey_mprotect => guard::is_key(third) || addresses::covers(address, length),
        _ => addresses::covers(address, length),
    };
    heed(frame);
    ours.then_some(Errno::EINVAL)
}

/// What of the host's in this memory the runtime uses, and may not from now on.
fn heed(frame: &Frame) {
    let [address, length, second, third, fourth, _] = frame.args;
    match frame.number {
        nr::mmap if third & MAP_FIXED == 0 => {}
        nr::madvise if second == MADV_DONTFORK => clock::heed(address, length, true),
        nr::madvise => {}
        // How much is attached nobody knows here.
        nr::shmat if second & SHM_REMAP != 0 => clock::heed(length, usize::MAX, false),
        nr::shmat => {}
        nr::mremap => {
            clock::heed(address, length.max(1), true);
            if third & MREMAP_FIXED != 0 {
                clock::heed(fourth, second, false);
            }
        }
        number => clock::heed(address, length, number == nr::munmap),
    }
}

/// A mapping that takes the access to a whole range away, as ThreadSanitizer does with what is
/// between its shadows: ours stays between the parts, and whoever was to touch nothing there does
/// not notice. `None`: it is another call, or none of it is the application's.
pub fn fences(thread: &mut Thread, frame: &Frame) -> Option<i64> {
    let [address, length, prot, flags, ..] = frame.args;
    let wanted = MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE;
    if frame.number != nr::mmap || prot != 0 || flags & wanted != wanted {
        return None;
    }
    let (mut result, mut any) = (address as i64, false);
    addresses::around(address, length, |from, bytes| {
        any = true;
        let mut args = frame.args;
        (args[0], args[1]) = (from, bytes);
        // SAFETY: the application's own range, as it asked for.
        let done = unsafe { syscall(nr::mmap, args) as i64 };
        if done == from as i64 {
            thread.client.forget_mappings(from, from + bytes);
        } else {
            result = done;
        }
        done == from as i64
    });
    any.then_some(result)
}

/// Whether a call the client lets pass would take a descriptor that Husk keeps.
pub fn descriptor(frame: &Frame) -> bool {
    let kept = facts::kept_fds();
    let hit = |fd: usize| {
        let fd = fd as u32;
        kept.contains(&fd) || bells::may_be_one(fd) && Thread::current().client.is_bell(fd)
    };
    match frame.number {
        nr::dup2 | nr::dup3 => hit(frame.args[1]),
        nr::close | nr::fcntl => hit(frame.args[0]),
        _ => false,
    }
}

/// `close_range` on the host around the kept descriptors, in up to four pieces.
pub fn close_range(frame: &Frame) -> Answer {
    let (first, last) = (frame.args[0] as u32, frame.args[1] as u32);
    let mut kept = facts::kept_fds();
    kept.sort_unstable();
    if first > last || !kept.iter().any(|keep| (first..=last).contains(keep)) {
        return Answer::PASSED;
    }
    let mut from = first;
    for keep in kept {
        if keep > from && keep <= last {
            let result = piece(from, keep - 1, frame.args[2]);
            if result < 0 {
                return Answer::value(result);
            }
        }
        if keep >= from && keep <= last {
            from = keep.saturating_add(1);
        }
    }
    let done = from > last || from == u32::MAX;
    Answer::value(if done { 0 } else { piece(from, last, frame.args[2]) })
}

fn piece(first: u32, last: u32, flags: usize) -> i64 {
    // SAFETY: closes only descriptors the application asked to close.
    unsafe { syscall(nr::close_range, [first as usize, last as usize, flags, 0, 0, 0]) as i64 }
}

/// `pkey_free`: as if the guard's key had never been handed out.
pub fn free_key(frame: &Frame) -> Answer {
    match guard::is_key(frame.args[0]) {
        true => Answer::value(Errno::EINVAL.as_return()),
        false => Answer::PASSED,
    }
}

/// Lets the user know why a program that sets the GS base (Wine) cannot run, once a program.
#[cold]
fn say_taken() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let why =
            b" sets the GS base, which Husk uses itself: refused; run it outside of the image\n";
        for part in [&b"husk: note: "[..], facts::facts().path.to_bytes(), why] {
            calls::write(2, part);
        }
    }
}

/// `prctl` and `arch_prctl`.
pub fn control(thread: &mut Thread, frame: &Frame) -> Answer {
    const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
    const ARCH_SET_GS: usize = 0x1001;
    const ARCH_GET_GS: usize = 0x1004;
    let what = frame.args[0];
    match (frame.number, what) {
        // Not EINVAL: that a host without it answers, and `husk run` tells the two apart.
        (nr::prctl, PR_SET_SYSCALL_USER_DISPATCH) => Answer::value(Errno::EPERM.as_return()),
        (nr::prctl, PR_SET_SECCOMP) => seccomp::prctl(thread, frame),
        (nr::arch_prctl, ARCH_SET_GS) => {
            say_taken();
            Answer::value(Errno::EPERM.as_return())
        }
        (nr::arch_prctl, ARCH_GET_GS) => {
            Answer::value(match crate::memory::write_value(frame.args[1], &0usize) {
                Ok(()) => 0,
                Err(errno) => errno.as_return(),
            })
        }
        _ => Answer::PASSED,
    }
}
