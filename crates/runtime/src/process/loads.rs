//! Where a program goes that is to run on another host if that has more room: what all programs
//! note in the file `loads` (`husk_proto::loads`), and whose children run beside each other.
//!
//! Whoever looks and notes holds the file's lock, so that programs that begin at once do not all go
//! to the same host. A holder may be stopped: the others wait for a bounded time, and go on.

use core::ffi::CStr;

use husk_abi::proc::put_decimal;
use husk_abi::{Errno, nr};
use husk_host::calls::{self, raw};
use husk_proto::loads::{self, Loads};
use husk_runtime::entry::Text;
use husk_runtime::reach::Descriptor;

use crate::thread::Thread;

/// Tries to get the lock, and ns between two.
const TRIES: u32 = 20;
const NAP_NS: u64 = 250_000;
const SHELLS: [&[u8]; 6] = [b"sh", b"bash", b"dash", b"zsh", b"ksh", b"busybox"];

/// The host with most room for this process, which is noted there; but for those that `refused` has
/// a bit for. 0: this one, or nothing is known.
pub fn take_turn(thread: &mut Thread, refused: u128) -> u64 {
    noted(thread, |all, own| all.choose(own, refused, lives)).unwrap_or(0) as u64
}

/// Notes that this process runs on `host`.
pub fn note(thread: &mut Thread, host: u64) {
    let _ = noted(thread, |all, own| (host as usize, all.choose(own, 0, lives).1));
}

#[cold]
fn noted(
    thread: &mut Thread,
    choose: impl FnOnce(&Loads, u32) -> (usize, Option<usize>),
) -> Option<usize> {
    const READ_WRITE_CLOEXEC: usize = 2 | 0o2000000;
    const CWD: usize = calls::AT_FDCWD;
    let (mut room, mut path_room) = ([0; 128], [0; 160]);
    let private = thread.client.private_path(&mut room)?;
    let mut path = Text::new(&mut path_room);
    let path = path.put(private.to_bytes()).put(b"loads\0").whole()?;
    let args = [CWD, path.as_ptr() as usize, READ_WRITE_CLOEXEC, 0, 0, 0];
    // SAFETY: the path ends with NUL and outlives the call.
    let file = Descriptor(unsafe { raw(nr::openat, args) }.ok()?);
    lock(&file);
    let mut all = Loads::empty();
    let got = calls::pread(file.0, all.bytes_mut(), 0).ok()?;
    let own = calls::getpid();
    let (host, slot) = choose(&all, own);
    if let Some(slot) = slot.filter(|_| got > 0) {
        let note = loads::job(own, host);
        let args = [file.0, note.as_ptr() as usize, note.len(), loads::job_at(slot), 0, 0];
        // SAFETY: `note` is readable for its length. What is not noted is not counted.
        let _ = unsafe { raw(nr::pwrite64, args) };
    }
    Some(host)
}

/// Locks the file until it is closed; one that cannot be had for long is done without.
fn lock(file: &Descriptor) {
    const EXCLUSIVE_AT_ONCE: usize = 2 | 4;
    for _ in 0..TRIES {
        // SAFETY: no memory is involved.
        match unsafe { raw(nr::flock, [file.0, EXCLUSIVE_AT_ONCE, 0, 0, 0, 0]) } {
            Err(Errno::EAGAIN) => {}
            _ => return,
        }
        let nap = [0, NAP_NS];
        // SAFETY: a `struct timespec`.
        let _ = unsafe { raw(nr::nanosleep, [nap.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
}

fn lives(pid: u32) -> bool {
    // SAFETY: signal 0 reaches nobody.
    let asked = unsafe { raw(nr::kill, [pid as usize, 0, 0, 0, 0, 0]) };
    asked != Err(Errno::ESRCH)
}

/// Whether others run beside this process: children of its parent, or, where that is a shell which
/// make or the like has started for one job, beside the shell.
pub fn has_siblings(thread: &mut Thread) -> bool {
    // SAFETY: no memory is involved.
    let parent = unsafe { husk_host::syscall(nr::getppid, [0; 6]) } as u32;
    // What else a supervisor has started are its own helpers.
    if thread.client.is_supervisor(parent) {
        return false;
    }
    // A host that does not say counts as yes.
    if has_more_children(parent).unwrap_or(true) {
        return true;
    }
    match shell(parent) {
        // A pipeline's part is a child of another shell.
        Some((true, above))
            if thread.client.knows(above) && !thread.client.is_supervisor(above) =>
        {
            shell(above).is_some_and(|(is_one, _)| !is_one)
                && has_more_children(above).unwrap_or(false)
        }
        _ => false,
    }
}

fn has_more_children(pid: u32) -> Option<bool> {
    let mut room = [0; 64];
    let children = read(pid, b"/children\0", &mut room)?;
    Some(children.iter().filter(|byte| **byte == b' ').count() > 1)
}

/// Whether a process is a shell, and its parent.
fn shell(pid: u32) -> Option<(bool, u32)> {
    let mut room = [0; 64];
    // `123 (sh) S 122 `
    let stat = read(pid, b"/stat\0", &mut room)?;
    let from = stat.iter().position(|byte| *byte == b'(')? + 1;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let is_shell = SHELLS.contains(&stat.get(from..end)?);
    let digits = stat.get(end + 4..)?.split(|byte| *byte == b' ').next()?;
    Some((is_shell, core::str::from_utf8(digits).ok()?.parse().ok()?))
}

/// The beginning of a file that the host has of a process's first thread; `None`: it does not say.
fn read<'a>(pid: u32, name: &[u8], room: &'a mut [u8; 64]) -> Option<&'a [u8]> {
    let mut digits = [0; 10];
    let length = put_decimal(&mut digits, pid);
    let (mut path_room, number) = ([0; 64], &digits[..length]);
    let mut text = Text::new(&mut path_room);
    text.put(b"/proc/").put(number).put(b"/task/").put(number).put(name);
    let path = text.whole().and_then(|path| CStr::from_bytes_with_nul(path).ok())?;
    let fd = calls::open(path).ok()?;
    let got = calls::pread(fd, room, 0);
    calls::close(fd);
    room.get(..got.ok()?)
}
