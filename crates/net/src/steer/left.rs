//! Left by a balancer that was killed while it steered by cBPF: its last table, and a note of the
//! sockets that have it.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::listeners::{Place, see};
use super::state::{file, files};

/// Ending of its file.
pub(super) const KIND: &str = "cbpf";
/// A note is shorter.
const NOTE_BYTES_MAX: u64 = 16 << 10;
/// Notes that are read in one directory.
const NOTES_MAX: usize = 256;

/// A table without a balancer.
pub(super) struct Left {
    pub pid: u32,
    pub place: Place,
    inodes: Vec<u64>,
}

impl Left {
    /// Of a place where a process of the server is `pid`.
    pub(super) fn of(pid: u32, place: &Place) -> Option<Left> {
        Left::at(&file(place, KIND)).filter(|left| left.place == *place && left.steers(pid))
    }

    /// All in a directory.
    pub(super) fn all(directory: &Path) -> Vec<Left> {
        let paths = files(directory, KIND).unwrap_or_default();
        let all = paths.iter().take(NOTES_MAX).filter_map(|path| Left::at(path));
        all.filter(|left| left.steers(left.pid)).collect()
    }

    /// Reads one note. Another user may have put anything there.
    fn at(path: &Path) -> Option<Left> {
        let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;
        let note = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let mut text = String::new();
        note.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        Left::read(&text)
    }

    fn read(text: &str) -> Option<Left> {
        let mut words = text.split_ascii_whitespace();
        let pid = words.next()?.parse().ok()?;
        let address: SocketAddr = words.next()?.parse().ok()?;
        let namespace = words.next()?.parse().ok()?;
        let inodes = words.map_while(|word| word.parse().ok()).collect();
        Some(Left { pid, place: Place { address, namespace }, inodes })
    }

    /// Whether one of the sockets still listens.
    fn steers(&self, pid: u32) -> bool {
        let listening = see(pid, &self.place).listening;
        listening.iter().any(|inode| self.inodes.contains(inode))
    }
}

/// Notes that these sockets have a table.
pub(super) fn note(pid: u32, place: &Place, inodes: &[u64]) -> std::io::Result<()> {
    let inodes: String = inodes.iter().map(|inode| format!(" {inode}")).collect();
    let text = format!("{pid} {} {}{inodes}\n", place.address, place.namespace);
    fs::write(file(place, KIND), text)
}
