//! Descriptors of an image: two memfds under high numbers, and those that the program inherits;
//! whether `pidfd_getfd` works between processes.
//!
//! Invariants
//! 1. Every descriptor the supervisor opens for itself is close-on-exec; only the region and the
//!    loader are handed down, under numbers that programs do not get by accident.
//! 2. The loader's bytes are sealed before anybody executes them; the region's size is sealed
//!    before anybody maps it.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use husk_host::calls;
use husk_host::early::closed_at_start;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Resource, getrlimit};
use rustix::thread::CapabilitySet;

use crate::output::failure::Failure;

/// Times a file is sealed that the host calls busy; each waits up to 150 ms for that to end.
const SEALS_MAX: u32 = 20;

/// The two numbers lie below this, whatever the limit: some programs loop over all numbers.
const NUMBERS_END_MAX: u64 = 1024;
/// Fewer numbers than this leave a program no room.
const NUMBERS_END_MIN: u64 = 16;

/// Where Yama says whom a process may look into.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Whether processes of one user may take descriptors from each other (`pidfd_getfd`), as the
/// rings of sockets need it: not before Linux 5.6, nor under some filters of containers, nor where
/// Yama lets nobody, or only ancestors, look into a process.
pub fn can_be_borrowed() -> bool {
    let scope = fs::read_to_string(YAMA).ok().and_then(|text| text.trim().parse().ok());
    let allowed = match scope.unwrap_or(0) {
        0 => true,
        1 | 2 => rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE)),
        _ => false,
    };
    allowed && borrow_own().is_ok()
}

/// Takes one of our own, which everybody may where the call exists.
fn borrow_own() -> rustix::io::Result<OwnedFd> {
    let (here, _there) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    rustix::process::pidfd_getfd(&own, here.as_raw_fd(), PidfdGetfdFlags::empty())
}

/// A memfd of `bytes` bytes that can neither shrink nor grow.
pub fn region(bytes: u64) -> Result<OwnedFd, Failure> {
    let made = memfd(c"husk-region", MemfdFlags::NOEXEC_SEAL).and_then(|region| {
        rustix::fs::ftruncate(&region, bytes)?;
        rustix::fs::fcntl_add_seals(&region, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(region)
    });
    made.map_err(|errno| {
        let remedy = match errno {
            Errno::FBIG => "raise the file size limit (ulimit -f) or choose a smaller --memory",
            Errno::NOSYS => "Husk needs memfd_create (Linux 3.17)",
            Errno::MFILE => "raise the limit on open files: ulimit -n 1024",
            _ => "choose a smaller --memory",
        };
        Failure::new(
            format!("cannot make an image of {}", crate::run::request::size(bytes)),
            in_words(errno),
            remedy,
        )
    })
}

/// A sealed memfd with the runtime, as a place to execute (`O_PATH`): programs that get at another
/// number of it can neither read nor write. On a host without `/proc`, as a descriptor to read.
pub fn loader(runtime: &[u8]) -> Result<OwnedFd, Failure> {
    let made = memfd(c"husk-runtime", MemfdFlags::EXEC).and_then(|loader| {
        let file = File::from(loader);
        crate::image::runtime_file::write(&file, runtime)
            .map_err(|problem| Errno::from_io_error(&problem).unwrap_or(Errno::IO))?;
        seal(&file)?;
        Ok(place_of(&file).unwrap_or_else(|_| OwnedFd::from(file)))
    });
    made.map_err(|errno| {
        let remedy = match errno {
            Errno::ACCESS => "allow executable memfds: sysctl vm.memfd_noexec=0",
            _ => "run `husk check`",
        };
        Failure::new("cannot load the runtime", in_words(errno), remedy)
    })
}

fn place_of(file: &File) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Nobody writes to it from now on. The host says that it is busy while it holds its pages itself
/// (to move them, say): it cannot tell that from a write under way.
fn seal(file: &File) -> Result<(), Errno> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    let mut sealed = rustix::fs::fcntl_add_seals(file, seals);
    for _ in 1..SEALS_MAX {
        if sealed != Err(Errno::BUSY) {
            break;
        }
        sealed = rustix::fs::fcntl_add_seals(file, seals);
    }
    sealed
}

/// `kind` is left away on a host that does not know it (before Linux 6.3).
fn memfd(name: &std::ffi::CStr, kind: MemfdFlags) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | kind) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
}

/// Gives `descriptor` the highest free number below the limit, without close-on-exec.
pub fn hand_down(descriptor: OwnedFd) -> Result<OwnedFd, Failure> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let few = |why: &str| {
        let remedy = "raise it: ulimit -n 1024";
        Failure::new("cannot place the image's descriptors", why, remedy)
    };
    if limit < NUMBERS_END_MIN {
        return Err(few("the limit on open files is too low"));
    }
    let end = limit.min(NUMBERS_END_MAX) as i32;
    for number in (3..end).rev().filter(|number| !is_open(*number)) {
        let Ok(placed) = rustix::io::fcntl_dupfd_cloexec(descriptor.as_fd(), number) else {
            continue;
        };
        if placed.as_raw_fd() == number {
            let set = rustix::io::fcntl_setfd(&placed, FdFlags::empty());
            return set.map(|()| placed).map_err(|errno| few(&in_words(errno)));
        }
    }
    Err(few("no number is free"))
}

fn is_open(number: i32) -> bool {
    fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
}

/// Numbers a program started now would inherit: not what was closed when we were started, whatever
/// lies there by now.
pub fn inherited() -> Vec<u32> {
    let listing = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = listing
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| !closed_at_start().any(|closed| closed == *number))
        // What has gone is not inherited either.
        .filter(|number| calls::is_close_on_exec(*number as usize) == Ok(false))
        .collect();
    numbers.sort_unstable();
    numbers
}

fn in_words(errno: Errno) -> String {
    crate::run::request::reason(&std::io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_handed_down_is_high_and_inherited() {
        let region = hand_down(region(1 << 20).unwrap()).unwrap();
        assert!(region.as_raw_fd() > 100, "{region:?}");
        assert!(inherited().contains(&(region.as_raw_fd() as u32)));
        assert!(rustix::fs::ftruncate(&region, 4096).is_err(), "the size is not sealed");
    }

    #[test]
    fn the_loader_cannot_be_changed_any_more() {
        let loader = loader(b"\x7fELF").unwrap();
        assert!(!inherited().contains(&(loader.as_raw_fd() as u32)));
        assert!(File::from(loader).write_all(b"x").is_err());
    }
}
