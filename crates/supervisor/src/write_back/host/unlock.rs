//! Makes directories writable for a moment whose mode denies their owner writing (555, say).
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
use std::io;
use std::path::{Path, PathBuf};

use super::beneath::{Beneath, Object, object_of, sync};

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
    /// Another directory under this name is not ours to close.
    object: Object,
    /// The mode it is to have in the end.
    mode: u32,
    /// The mode it had.
    before: u32,
}

impl Unlocked {
    /// Opens `directory` if need be. Where that fails, so will the work in it, and say so.
    pub fn open(&mut self, beneath: &Beneath, directory: &Path) {
        let Ok(held) = beneath.hold(directory) else { return };
        let denied = held.access().is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied);
        if denied
            && held.found().is_dir()
            && let Ok(Some(mode)) = held.unlock()
        {
            let object = object_of(held.found());
            self.directories.insert(directory.to_owned(), Opened { object, mode, before: mode });
        }
    }

    /// The mode that `path` had before, if it is open.
    pub fn mode_before(&self, path: &Path) -> Option<u32> {
        self.directories.get(path).map(|opened| opened.before)
    }

    /// The `mode` that `path` has, without what opening it has added.
    pub fn mode_without(&self, path: &Path, mode: u32) -> u32 {
        let before = self.mode_before(path).filter(|before| mode == before | OWNER_ALL);
        before.unwrap_or(mode)
    }

    /// The mode to set on `path` now, if `mode` is its last: more while it is open.
    pub fn mode_for_now(&mut self, path: &Path, mode: u32) -> u32 {
        let Some(opened) = self.directories.get_mut(path) else { return mode };
        opened.mode = mode & 0o7777;
        mode | OWNER_ALL
    }

    /// Closes all, innermost first; hands out what could not be closed.
    pub fn close(self, beneath: &Beneath) -> Vec<(PathBuf, io::Error)> {
        let all = self.directories.into_iter().rev();
        all.filter_map(|(path, opened)| Some((opened.close(beneath, &path).err()?, path)))
            .map(|(problem, path)| (path, problem))
            .collect()
    }
}

impl Opened {
    fn close(&self, beneath: &Beneath, path: &Path) -> io::Result<()> {
        // It may have been removed or replaced meanwhile.
        let Some(held) = beneath.hold_if_there(path)? else { return Ok(()) };
        if object_of(held.found()) != self.object {
            return Ok(());
        }
        // With its last mode it may not be opened any more.
        let opened = beneath.open_to_sync(path);
        held.set_mode(self.mode)?;
        sync(&opened?)
    }
}
