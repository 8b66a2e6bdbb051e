//! Directories of the host that their owner made unwritable (mode 555, say), opened for a while.
//!
//! In the image the owner changed such a directory's mode, changed what it holds, and perhaps
//! changed the mode back. The host sees the end of that only, so the commit does the same:
//!
//! ```text
//!   open (u+rwx) -> puts, deletes, times, sync -> close (the mode it is to have)
//! ```
//!
//! Invariants
//! 1. Only directories are opened, only those this user owns, and only where access is denied.
//! 2. A mode is changed through a descriptor of the very directory: no symlink leads elsewhere.
//! 3. Whatever fails in between, what was opened is closed: with its mode of the image where that
//!    is written back, else with the mode it had. (Killed in between, it keeps u+rwx.)

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// What work in a directory takes.
const OWNER_ALL: u32 = 0o700;

/// What is open now.
#[derive(Debug, Default)]
pub struct Unlocked {
    directories: BTreeMap<PathBuf, Opened>,
}

/// One directory that was given u+rwx.
#[derive(Debug)]
struct Opened {
    /// Device and inode: another directory under this name is not ours to close.
    identity: (u64, u64),
    /// The mode it is to have in the end.
    mode: u32,
}

impl Unlocked {
    /// Opens `directory` if need be. Where that fails, so will the work in it, and say so.
    pub fn open(&mut self, directory: &Path) {
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let access = rustix::fs::accessat(CWD, directory, all, AtFlags::empty());
        if access != Err(Errno::ACCESS) {
            return;
        }
        let opened = hold(CWD, directory).and_then(|held| give(&held));
        if let Ok(Some(opened)) = opened {
            self.directories.insert(directory.to_owned(), opened);
        }
    }

    /// The mode to set on `path` now, if `mode` is its last: more while it is open.
    pub fn mode_for_now(&mut self, path: &Path, mode: u32) -> u32 {
        let Some(opened) = self.directories.get_mut(path) else { return mode };
        opened.mode = mode & 0o7777;
        mode | OWNER_ALL
    }

    /// Closes all, innermost first; hands out what could not be closed.
    pub fn close(self) -> Vec<(PathBuf, io::Error)> {
        let all = self.directories.into_iter().rev();
        all.filter_map(|(path, opened)| Some((opened.close(&path).err()?, path)))
            .map(|(problem, path)| (path, problem))
            .collect()
    }
}

impl Opened {
    fn close(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            // Removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            other => other?,
        };
        let found = rustix::fs::fstat(&directory)?;
        if (found.st_dev, found.st_ino) != self.identity {
            return Ok(());
        }
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(self.mode))?;
        Ok(rustix::fs::fsync(&directory)?)
    }
}

/// Opens `path` and every directory below it, as far as that goes: they are about to be removed.
pub fn open_tree(path: &Path) {
    open_below(CWD, path);
}

/// Recursion as deep as the tree, one descriptor a level.
fn open_below(parent: BorrowedFd<'_>, name: &Path) {
    let Ok(held) = hold(parent, name) else { return };
    // What stays shut shows when the tree is removed.
    let _ = give(&held);
    for name in directories_in(&held) {
        open_below(held.as_fd(), Path::new(&name));
    }
}

fn directories_in(held: &OwnedFd) -> Vec<OsString> {
    let entries = fs::read_dir(through(held)).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.file_name()).collect()
}

/// A descriptor of the directory `name`, whatever its mode.
fn hold(parent: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// Gives a directory of ours u+rwx; `None`: it is not ours, or has that.
fn give(held: &OwnedFd) -> io::Result<Option<Opened>> {
    let found = rustix::fs::fstat(held)?;
    let mode = found.st_mode & 0o7777;
    let ours = found.st_uid == rustix::process::geteuid().as_raw();
    if !ours || mode & OWNER_ALL == OWNER_ALL {
        return Ok(None);
    }
    let open = Mode::from_raw_mode(mode | OWNER_ALL);
    rustix::fs::chmodat(CWD, through(held), open, AtFlags::empty())?;
    Ok(Some(Opened { identity: (found.st_dev, found.st_ino), mode }))
}

/// A path that leads to the very directory `held` is open on.
fn through(held: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", held.as_raw_fd()).into()
}
