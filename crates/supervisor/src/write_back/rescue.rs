//! Where file content goes that its own place did not take (full disk, no permission).
//!
//! ```text
//!   ~/.local/state/husk-rescue-RANDOM   else   /var/tmp/husk-rescue-RANDOM   else   /tmp/...
//! ```
//!
//! Invariants
//! 1. Directories are made anew, mode 0700, under names that nobody can guess; files in them are
//!    made anew, by the descriptor of the directory. So nothing is overwritten, and nobody else
//!    reads or leads astray what is saved.
//! 2. Where one place does not take a file, the next does, which may be another file system.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use super::host;
use crate::config::state::{self, State};

/// Where a directory of one's own can be made by everybody.
const EVERYBODYS: [&str; 2] = ["/var/tmp", "/tmp"];
/// Bytes of a name that are kept: a number comes before.
const NAME_BYTES_MAX: usize = 200;

/// Directories, made when the first file needs them.
#[derive(Debug, Default)]
pub struct Rescue {
    places: Vec<Place>,
    asked: bool,
    saved: u64,
}

/// One of them; `None`: it is not made, or cannot be.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    directory: Option<File>,
}

impl Rescue {
    /// One that has saved nothing; nothing is made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that saves below `directory`.
    #[cfg(test)]
    pub fn into_directory(directory: PathBuf) -> Self {
        Self { places: vec![Place::new(directory)], asked: true, saved: 0 }
    }

    /// Saves what should have been `shown`, as `fill` writes it; where it is then.
    pub fn save(
        &mut self,
        shown: &Path,
        fill: &mut dyn FnMut(&File) -> io::Result<()>,
    ) -> Option<PathBuf> {
        if !std::mem::replace(&mut self.asked, true) {
            self.places = places();
        }
        self.saved += 1;
        let name = shown.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|&at| name.is_char_boundary(at));
        let name = format!("{}-{}", self.saved, &name[..end.unwrap_or(0)]);
        self.places.iter_mut().find_map(|place| place.save(&name, fill))
    }
}

impl Place {
    fn new(path: PathBuf) -> Place {
        Place { path, directory: None }
    }

    fn save(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&File) -> io::Result<()>,
    ) -> Option<PathBuf> {
        if self.directory.is_none() {
            self.directory = made(&self.path).ok();
        }
        let directory = self.directory.as_ref()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(directory, name, flags, Mode::from_raw_mode(0o600)).ok()?;
        let file = File::from(file);
        if fill(&file).and_then(|()| file.sync_all()).is_ok() {
            return Some(self.path.join(name));
        }
        // Half a file takes room that the next one may need.
        let _ = unlinkat(directory, name, AtFlags::empty());
        None
    }
}

/// Directories that are there and in which something would be saved, one after the other. Of one
/// that is yet to be made, the one that it will be in.
pub fn bases() -> impl Iterator<Item = PathBuf> {
    let there = |path: PathBuf| path.ancestors().find(|path| path.exists()).map(Path::to_owned);
    state::base().into_iter().chain(EVERYBODYS.map(PathBuf::from)).filter_map(there)
}

fn places() -> Vec<Place> {
    let name = format!("husk-rescue-{}", host::unguessable());
    let own = State::make().ok().map(|state| state.path.with_file_name(&name));
    let everybodys = EVERYBODYS.iter().map(|base| Path::new(base).join(&name));
    own.into_iter().chain(everybodys).map(Place::new).collect()
}

fn made(path: &Path) -> io::Result<File> {
    DirBuilder::new().mode(0o700).create(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn what_one_place_does_not_take_the_next_does() {
        let scratch = tempfile::tempdir().unwrap();
        let (full, free) = (scratch.path().join("full"), scratch.path().join("free"));
        let places = vec![Place::new(full.clone()), Place::new(free.clone())];
        let mut rescue = Rescue { places, asked: true, saved: 0 };
        let mut tries = 0;
        let mut fill = |mut file: &File| {
            tries += 1;
            if tries == 1 { Err(io::ErrorKind::StorageFull.into()) } else { file.write_all(b"x") }
        };
        let name = "n".repeat(255);
        let saved = rescue.save(Path::new(&name), &mut fill).expect("the second place takes it");
        assert!(saved.starts_with(&free));
        assert_eq!(fs::read(saved).unwrap(), b"x");
        assert_eq!(fs::read_dir(full).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_saved_where_somebody_else_has_made_something() {
        let scratch = tempfile::tempdir().unwrap();
        let taken = scratch.path().join("taken");
        std::os::unix::fs::symlink(scratch.path(), &taken).unwrap();
        let mut rescue = Rescue::into_directory(taken);
        assert_eq!(rescue.save(Path::new("file"), &mut |_| Ok(())), None);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
