//! What a killed balancer leaves that steers by cBPF: its last table, and a note of the sockets
//! that have it.

use std::fs;
use std::net::SocketAddr;

use super::listeners::{Place, see};
use super::state::{directory, file};

/// Ending of its file.
pub(super) const KIND: &str = "cbpf";

/// A table that nobody changes any more.
pub(super) struct Left {
    pub pid: u32,
    pub place: Place,
    inodes: Vec<u64>,
}

impl Left {
    /// Of a place.
    pub(super) fn of(place: &Place) -> Option<Left> {
        let left = Left::read(&fs::read_to_string(file(place, KIND)).ok()?)?;
        (left.place == *place && left.steers()).then_some(left)
    }

    /// All of this user's.
    pub(super) fn all() -> Vec<Left> {
        let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == KIND));
        paths.sort();
        let texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
        texts.filter_map(|text| Left::read(&text)).filter(Left::steers).collect()
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
    fn steers(&self) -> bool {
        let listening = see(self.pid, &self.place).listening;
        listening.iter().any(|inode| self.inodes.contains(inode))
    }
}

/// Notes that these sockets have a table.
pub(super) fn note(pid: u32, place: &Place, inodes: &[u64]) -> std::io::Result<()> {
    let inodes: String = inodes.iter().map(|inode| format!(" {inode}")).collect();
    let text = format!("{pid} {} {}{inodes}\n", place.address, place.namespace);
    fs::write(file(place, KIND), text)
}
