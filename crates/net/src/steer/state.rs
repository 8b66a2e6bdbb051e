//! Where balancers are found by file.
//!
//! ```text
//!   /run/husk-net              root's, or of whoever may write to it
//!   $XDG_RUNTIME_DIR/husk-net  a user's, where that is a directory of theirs
//!   /tmp/husk-net-UID          else
//! ```
//!
//! Invariant: nobody but this user and root can make files in a user's directory.

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

/// Makes it; an error where it is somebody else's.
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

/// A directory of this user, to which nobody else may write.
fn is_own(path: &Path) -> io::Result<()> {
    let there = fs::symlink_metadata(path)?;
    if there.is_dir() && there.uid() == geteuid().as_raw() && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other("it is no directory of yours to which nobody else may write"))
}

/// A file of a place.
pub(super) fn file(place: &Place, kind: &str) -> PathBuf {
    directory().join(format!("{}.{kind}", place.key()))
}
