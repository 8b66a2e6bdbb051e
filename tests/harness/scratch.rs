//! A new directory on disk for one test, removed when the test passed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one whose name begins with `name`.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = room().join("scratch").join(format!("{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self { path: path.canonicalize().expect("its real path") }
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The new, empty directory `name` in it.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        remove(&path);
        std::fs::create_dir(&path).expect("an empty directory");
        path
    }
}

/// Where tests keep what they make: in the target directory, unless that lies below /tmp, which is
/// empty inside an image; then programs of a test could not be found there.
pub fn room() -> PathBuf {
    let room = crate::husk::workspace().join("target/husk-tests");
    if !room.starts_with("/tmp") {
        return room;
    }
    Path::new("/var/tmp").join(format!("husk-tests-{}", rustix::process::getuid().as_raw()))
}

/// Removes a tree, if it is there.
pub fn remove(path: &Path) {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_dir_all(path).expect("removing a scratch tree");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for a look: {}", self.path.display());
        } else {
            // Left behind at worst; the next `cargo clean` takes it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
