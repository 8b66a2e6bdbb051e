//! Opens directories beneath a root, over no link.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::schedule::before;
use super::{DIRECTORY, NO_LINKS, TRIES};
use crate::write_back::PATH_BYTES_MAX;

/// The directory `rest`, beneath `base`: as many names at a time as one call takes.
pub(super) fn open_beneath(base: &File, rest: &Path) -> io::Result<File> {
    let resolve = ResolveFlags::BENEATH | NO_LINKS;
    let open = |base: &File, part: &Path| {
        opened(base.as_fd(), part, resolve, || walk(base.try_clone()?, part))
    };
    if rest.as_os_str().len() < PATH_BYTES_MAX {
        return open(base, rest);
    }
    let (mut here, mut part) = (base.try_clone()?, PathBuf::new());
    for name in rest {
        if part.as_os_str().len() + 1 + name.len() >= PATH_BYTES_MAX {
            here = open(&here, &std::mem::take(&mut part))?;
        }
        part.push(name);
    }
    open(&here, &part)
}

/// The directory at an absolute path.
pub(super) fn open_without_links(path: &Path) -> io::Result<File> {
    opened(CWD, path, NO_LINKS, || {
        let root = File::from(openat(CWD, "/", DIRECTORY, Mode::empty())?);
        walk(root, path.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?)
    })
}

fn opened(
    base: BorrowedFd<'_>,
    path: &Path,
    resolve: ResolveFlags,
    step_by_step: impl Fn() -> io::Result<File>,
) -> io::Result<File> {
    for _ in 0..TRIES {
        let opened = before("openat2")
            .and_then(|()| Ok(openat2(base, path, DIRECTORY, Mode::empty(), resolve)?));
        match opened {
            Ok(opened) => return Ok(File::from(opened)),
            Err(problem) => match Errno::from_io_error(&problem) {
                Some(Errno::AGAIN) => {}
                Some(Errno::ACCESS) => return owned(base, path.as_os_str(), DIRECTORY, resolve),
                // An older host, or a filter of system calls.
                Some(Errno::NOSYS | Errno::PERM) => return step_by_step(),
                _ => return Err(problem),
            },
        }
    }
    Err(Errno::AGAIN.into())
}

/// One name after the other: a link is no directory.
fn walk(start: File, rest: &Path) -> io::Result<File> {
    let mut here = start;
    for name in rest.components() {
        let Component::Normal(name) = name else { return Err(io::ErrorKind::InvalidInput.into()) };
        before("openat")?;
        here = File::from(openat(&here, name, DIRECTORY, Mode::empty())?);
    }
    Ok(here)
}

/// The same directory, for listing and syncing.
pub(super) fn readable(directory: BorrowedFd<'_>) -> io::Result<File> {
    before("openat")?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::empty()) {
        Err(Errno::ACCESS) => owned(directory, OsStr::new("."), flags, ResolveFlags::empty()),
        other => Ok(File::from(other?)),
    }
}

/// Opens what only a mode keeps this user from, who owns it.
pub(super) fn owned(
    directory: BorrowedFd<'_>,
    path: &OsStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> io::Result<File> {
    let path = CString::new(path.as_bytes())?;
    let (flags, resolve) = (u64::from(flags.bits()), resolve.bits());
    match husk_host::owner::open(directory, &path, flags, resolve) {
        Ok(opened) => Ok(File::from(opened)),
        Err(errno) => Err(io::Error::from_raw_os_error(errno.0)),
    }
}
