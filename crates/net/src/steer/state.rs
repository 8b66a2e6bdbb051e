//! Where balancers are found by file.
//!
//! ```text
//!   /run/husk-net              of root, and of users who may write to it
//!   $XDG_RUNTIME_DIR/husk-net  a user's, where that is a directory of theirs
//!   /tmp/husk-net-UID          else
//! ```
//!
//! Invariant: only this user and root can make files in a user's directory.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::listeners::Place;

const OF_ROOT: &str = "/run/husk-net";
const NAME: &str = "husk-net";

/// Where this user's are.
pub(super) fn directory() -> PathBuf {
    let own = geteuid();
    if own.is_root() || access(OF_ROOT, Access::WRITE_OK).is_ok() {
        return OF_ROOT.into();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && is_own(path).is_ok());
    runtime.map_or_else(
        || Path::new("/tmp").join(format!("{NAME}-{}", own.as_raw())),
        |path| path.join(NAME),
    )
}

/// For root: the usual directories of other users, each with its owner, who may put anything there.
pub(super) fn of_others() -> Vec<(PathBuf, u32)> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let in_tmp = entries("/tmp").map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('-'))
    });
    let in_run = entries("/run/user").map(|entry| entry.path().join(NAME));
    let owned = |path: PathBuf| {
        let there = fs::symlink_metadata(&path).ok()?;
        (there.is_dir() && there.uid() != 0).then(|| (path, there.uid()))
    };
    in_tmp.chain(in_run).filter_map(owned).collect()
}

/// The files of a directory that have this ending, in order.
pub(super) fn files(directory: &Path, kind: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<_> = fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == kind));
    paths.sort();
    Ok(paths)
}

/// Makes it; an error if it is another user's.
pub(super) fn make() -> io::Result<()> {
    let path = directory();
    if path == Path::new(OF_ROOT) {
        return fs::create_dir_all(path);
    }
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(why),
        _ => is_own(&path),
    }
}

/// A directory of this user, to which no other user may write.
fn is_own(path: &Path) -> io::Result<()> {
    let there = fs::symlink_metadata(path)?;
    if there.is_dir() && there.uid() == geteuid().as_raw() && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other("it is no directory of yours to which nobody else may write"))
}

/// A file of a place.
pub(super) fn file(place: &Place, kind: &str) -> PathBuf {
    directory().join(place.file_name(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_others_may_write_to_or_a_link_is_not_this_user_s_own() {
        let base = std::env::temp_dir().join(format!("husk-net-test-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let with = |mode| {
            fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
            is_own(&base).is_ok()
        };
        assert_eq!(
            [0o700, 0o755, 0o775, 0o777, 0o1777].map(with),
            [true, true, false, false, false]
        );
        fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).unwrap();
        let link = base.join("link");
        symlink(&base, &link).unwrap();
        assert!(is_own(&link).is_err() && is_own(&base.join("none")).is_err());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&base, Some(65_534), None).unwrap();
            assert!(is_own(&base).is_err(), "another user's");
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
