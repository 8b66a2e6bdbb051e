//! Where file content goes that its own place did not take (full disk, no permission).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory made when the first file needs it.
#[derive(Debug)]
pub struct Rescue {
    candidates: Vec<PathBuf>,
    directory: Option<PathBuf>,
    saved: u64,
}

impl Rescue {
    /// A rescue directory for run `number`; nothing is made yet.
    pub fn new(number: u32) -> Self {
        let name = format!("husk-rescue-{number}");
        let state = env::var_os("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".local/state")));
        let bases = state.into_iter().chain(["/var/tmp".into(), "/tmp".into()]);
        Self { candidates: bases.map(|base| base.join(&name)).collect(), directory: None, saved: 0 }
    }

    /// One that saves below `directory`.
    #[cfg(test)]
    pub fn into_directory(directory: PathBuf) -> Self {
        Self { candidates: vec![directory], directory: None, saved: 0 }
    }

    /// A new path for what should have been `shown`.
    pub fn path_for(&mut self, shown: &Path) -> Option<PathBuf> {
        let directory = self.directory()?;
        self.saved += 1;
        let name = shown.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(directory.join(format!("{}-{name}", self.saved)))
    }

    fn directory(&mut self) -> Option<PathBuf> {
        if self.directory.is_none() {
            self.directory =
                self.candidates.iter().find(|path| fs::create_dir_all(path).is_ok()).cloned();
        }
        self.directory.clone()
    }
}
