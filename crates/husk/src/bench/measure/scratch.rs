//! Where a measurement works: three new directories, removed at the end.
//!
//! Not below `/tmp`: `husk run` shows its programs a private one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

/// A file that has just been written may still change: until then its calls are trapped.
const SETTLED: Duration = Duration::from_millis(300);

/// The directories of one measurement.
pub struct Scratch {
    /// On a tmpfs: where the two native workers work, each in its own part.
    pub native: PathBuf,
    /// Covered by the image's `--mount`.
    pub mount: PathBuf,
    /// Working directory of `husk run`, empty.
    pub idle: PathBuf,
    /// This command, where an image sees it, too.
    pub program: PathBuf,
    /// On disk, holds `mount` and `idle`; outside every tree.
    pub disk: PathBuf,
}

impl Scratch {
    /// Makes them; `tmpfs` names the directory that holds the native part.
    pub fn create(tmpfs: Option<&Path>) -> anyhow::Result<Self> {
        let name = format!("husk-bench-{}", std::process::id());
        let tmpfs = tmpfs.unwrap_or(Path::new("/dev/shm"));
        ensure_tmpfs(tmpfs)?;
        let native = tmpfs.join(&name);
        let disk = Path::new("/var/tmp").join(&name);
        let (mount, idle, program) = (disk.join("mount"), disk.join("idle"), disk.join("husk"));
        let scratch = Self { native, mount, idle, program, disk };
        for directory in
            [&scratch.native.join("a"), &scratch.native.join("b"), &scratch.mount, &scratch.idle]
        {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let own = std::env::current_exe().context("cannot find this command")?;
        std::fs::copy(&own, &scratch.program)
            .with_context(|| format!("cannot copy {}", own.display()))?;
        std::thread::sleep(SETTLED);
        Ok(scratch)
    }
}

/// Figures against anything else would say nothing.
fn ensure_tmpfs(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    let found = statfs(directory).with_context(|| format!("cannot look at {shown}"))?;
    let suits = found.filesystem_type() == TMPFS_MAGIC;
    anyhow::ensure!(suits, "{shown} is not on a tmpfs, as /dev/shm is");
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for directory in [&self.native, &self.disk] {
            // What cannot be removed is left where its name says whose it was.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
