//! What another node knows of the image that it is a part of, and whether that is still there.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use husk_carrier::Direct;
use husk_proto::Inode;
use husk_proto::image::Cover;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::named;
use crate::process::reaper::state_and_parent;

/// A tree of the home, as another node is told of it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it shows a directory of the host.
    pub overlay: bool,
    /// Its root at home.
    pub root: [u32; 2],
    /// The device of an overlay.
    pub device: u64,
}

/// What another node is told of its image.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct PartOf {
    /// Its number.
    pub node: u16,
    /// The name of its image; `run-PID` of a `husk run`.
    pub image: String,
    /// Where the home of all names listens.
    pub home: PathBuf,
    /// Device and inode of the home's memory.
    pub known: (u64, u64),
    /// The process that it ends with; 0: it ends with its image, whoever supervises that.
    pub pid: u32,
    /// The home's trees.
    pub trees: Vec<Tree>,
}

impl PartOf {
    /// Whether the image is no more. One with a name goes on as long as somebody has its memory: a
    /// supervisor, a keeper, or a program that another supervisor takes it over from.
    pub fn has_lost_home(&self) -> bool {
        if self.pid != 0 {
            let gone = |state: &str| state == "Z" || state == "X";
            return state_and_parent(self.pid as i32).is_none_or(|(state, _)| gone(&state));
        }
        let directory = self.home.parent().and_then(Path::parent);
        !directory.is_some_and(is_locked) && !named::has_memory(self.known)
    }
}

/// Whether somebody holds the lock of a private directory.
fn is_locked(directory: &Path) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else { return false };
    flock(&opened, FlockOperation::NonBlockingLockShared).is_err()
}

/// Makes a region that of another node: it shows the home's trees, and has none of its own.
pub fn join(direct: &mut Direct, part: &PartOf) -> Result<(), husk_proto::Errno> {
    for tree in &part.trees {
        let root = Inode { number: tree.root[0], generation: tree.root[1] };
        let cover = if tree.overlay { Cover::Overlay } else { Cover::Memory };
        direct.add_far_mount(tree.path.as_os_str().as_bytes(), cover, root, tree.device)?;
    }
    direct.set_node(part.node, part.home.as_os_str().as_bytes(), part.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_image_is_there_while_its_directory_is_locked_or_somebody_has_its_memory() {
        let scratch = tempfile::tempdir().unwrap();
        let memory = tempfile::tempfile().unwrap().metadata().unwrap();
        let (home, known) = (scratch.path().join("inner/home"), (memory.dev(), memory.ino()));
        let (image, trees) = ("x".to_owned(), Vec::new());
        let part = PartOf { node: 1, image, home, known, pid: 0, trees };
        assert!(part.has_lost_home(), "nobody has the lock");
        let lock = File::open(scratch.path()).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!part.has_lost_home());
        drop(lock);
        assert!(part.has_lost_home());
        assert!(!PartOf { pid: std::process::id(), ..part.clone() }.has_lost_home());
        assert!(PartOf { pid: i32::MAX as u32, ..part }.has_lost_home());
    }
}
