//! Whether what an image has to write back finds room, as far as that can be known before anything
//! is touched.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use crate::write_back::Overlay;

/// Where content is saved that its own place does not take, after the user's state directory.
const ELSEWHERE: [&str; 2] = ["/var/tmp", "/tmp"];

/// Whether all overlays take `bytes` bytes, or the place where content is saved otherwise does.
pub fn is_there(overlays: &[Overlay], bytes: u64) -> bool {
    let mut paths = overlays.iter().map(|(_, path)| path);
    paths.all(|path| takes(path, bytes)) || saved_at().is_some_and(|path| takes(&path, bytes))
}

/// Whether this user can write so much in a directory.
fn takes(path: &Path, bytes: u64) -> bool {
    let free = statvfs(path).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    access(path, Access::WRITE_OK).is_ok() && free.is_ok_and(|free| free >= bytes)
}

/// Where content is saved: the first of those directories that this user can write to. Of one that
/// is yet to be made, the one that it will be in.
fn saved_at() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".local/state")));
    let there = |path: PathBuf| path.ancestors().find(|path| path.exists()).map(Path::to_owned);
    let places = state.into_iter().chain(ELSEWHERE.map(PathBuf::from)).filter_map(there);
    places.into_iter().find(|path| access(path, Access::WRITE_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_a_file_system_has_does_not_fit() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(takes(scratch.path(), 0));
        assert!(!takes(scratch.path(), u64::MAX));
        assert!(!takes(&scratch.path().join("absent"), 0));
    }
}
