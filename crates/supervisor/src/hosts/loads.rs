//! How many programs each host has places for: the file `loads` beside the socket `home`, which
//! programs look at that begin another one (`husk_proto::loads`).
//!
//! The supervisor makes it, with this host's places; a starter writes those of its host, and none
//! when that is lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread::available_parallelism;

use husk_proto::loads::{BYTES, places_at};

/// What the runtime reads.
const FILE: &str = "loads";

/// Makes it anew, with no other host.
pub fn make(home: &Path) -> io::Result<()> {
    let (part, whole) = (home.with_file_name("loads.part"), home.with_file_name(FILE));
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.set_len(BYTES as u64)?;
    let processors = available_parallelism().map_or(1, |count| count.get() as u32);
    put(&file, 0, processors)?;
    std::fs::rename(part, whole)
}

/// Says how many places a host has, 0: it is not there. What cannot be said keeps programs here.
pub fn tell(home: &Path, host: usize, places: u32) {
    let file = File::options().write(true).open(home.with_file_name(FILE));
    let _ = file.and_then(|file| put(&file, host, places));
}

fn put(file: &File, host: usize, places: u32) -> io::Result<()> {
    let at = places_at(host).ok_or(io::ErrorKind::InvalidInput)?;
    file.write_all_at(&places.to_le_bytes(), at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_proto::loads::Loads;

    #[test]
    fn places_are_what_was_said_last_and_a_host_without_any_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let chosen = || {
            let mut loads = Loads::empty();
            let bytes = std::fs::read(home.with_file_name(FILE)).unwrap();
            loads.bytes_mut().copy_from_slice(&bytes);
            loads.choose(1, 0, |_| true).0
        };
        tell(&home, 1, 5);
        make(&home).unwrap();
        assert_eq!(chosen(), 0, "nobody but this one");
        tell(&home, 2, 1 << 20);
        assert_eq!(chosen(), 2);
        tell(&home, 1 << 20, 1 << 30);
        tell(&home, 2, 0);
        assert_eq!(chosen(), 0);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "no part is left");
    }
}
