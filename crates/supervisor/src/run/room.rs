//! Estimates, before anything is written, whether the disk has room for a write-back.

use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use crate::write_back::{Overlay, rescue};

/// Whether all overlays take `bytes` bytes, or the place where content is saved otherwise does.
pub fn is_there(overlays: &[Overlay], bytes: u64) -> bool {
    short(overlays, bytes).is_none()
}

/// An overlay that does not take `bytes` bytes, where no other place does either.
pub fn short(overlays: &[Overlay], bytes: u64) -> Option<&Path> {
    let mut paths = overlays.iter().map(|(_, path)| &**path);
    let saved_at = || rescue::bases().find(|path| access(path, Access::WRITE_OK).is_ok());
    paths
        .find(|path| !takes(path, bytes))
        .filter(|_| !saved_at().is_some_and(|path| takes(&path, bytes)))
}

/// Whether this user can write so much in a directory.
pub fn takes(path: &Path, bytes: u64) -> bool {
    let free = statvfs(path).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    access(path, Access::WRITE_OK).is_ok() && free.is_ok_and(|free| free >= bytes)
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
