//! Which descriptors come from outside: what `husk run`, or a `husk exec`, was started with.
//!
//! ```text
//!   run, exec ─► number, device, inode of each ─► file `apart` ◄── runtime: what a program has
//!                                                                  open beside the standard ones
//! ```
//!
//! They are nobody's who starts a program in the image, and do not keep it here. Of those who came
//! by `husk exec`, what they had counts as long as they live.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the runtime reads.
const FILE: &str = "apart";
/// Most bytes of it: 24 for each.
const BYTES_MAX: usize = 24 * 64;
/// The first number that is none of the standard descriptors.
const STANDARD_END: u32 = 3;

/// Who has come from outside, and what each was started with; the last one first.
#[derive(Default)]
pub struct Apart(Vec<(u32, Vec<u8>)>);

impl Apart {
    /// Process `pid` comes, and brings these descriptors along. Whether that is more than the
    /// standard ones.
    pub fn came(&mut self, pid: u32, inherited: &[u32]) -> bool {
        let mut own = Vec::new();
        for number in inherited.iter().copied().filter(|number| *number >= STANDARD_END) {
            let found = std::fs::metadata(format!("/proc/{pid}/fd/{number}"));
            // It may have ended.
            let Ok(found) = found else { continue };
            for value in [number.into(), found.dev(), found.ino()] {
                own.extend_from_slice(&value.to_le_bytes());
            }
        }
        if own.is_empty() {
            return false;
        }
        self.0.retain(|(pid, _)| Path::new(&format!("/proc/{pid}")).exists());
        self.0.insert(0, (pid, own));
        true
    }

    /// Writes them beside the socket `home`, as many as there is room for.
    pub fn write(&self, home: &Path) -> io::Result<()> {
        let mut all: Vec<u8> = self.0.iter().flat_map(|(_, own)| own).copied().collect();
        all.truncate(BYTES_MAX);
        let (part, whole) = (home.with_file_name("apart.part"), home.with_file_name(FILE));
        std::fs::write(&part, &all)?;
        std::fs::rename(part, whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_a_process_was_started_with_counts_as_long_as_it_lives() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let read = || std::fs::read(place.path().join(FILE)).unwrap();
        let mut apart = Apart::default();
        let own = std::process::id();
        assert!(!apart.came(own, &[0, 1, 2]));
        let file = File::open("/dev/zero").unwrap();
        let number = file.as_raw_fd() as u32;
        let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        assert!(!apart.came(child.id(), &[u32::MAX]), "nothing is open there");
        assert!(apart.came(own, &[0, number]));
        apart.write(&home).unwrap();
        let found = file.metadata().unwrap();
        let wanted = [u64::from(number), found.dev(), found.ino()].map(u64::to_le_bytes);
        assert_eq!(read(), wanted.as_flattened());
        apart.0.push((child.id(), vec![1; 24]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(apart.came(own, &[number]));
        apart.write(&home).unwrap();
        assert_eq!(read().len(), 48, "what the dead had is not there");
        for _ in 0..100 {
            apart.came(own, &[number]);
        }
        apart.write(&home).unwrap();
        assert_eq!(read().len(), BYTES_MAX);
    }
}
