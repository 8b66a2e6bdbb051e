//! Finds other images over the same directories: neither sees the other's changes before they are
//! written back, and what both have changed is then a conflict.
//!
//! Each overlay that is written back is announced by an abstract socket of the host, which vanishes
//! with the supervisor and keeps no file system busy.
//!
//! ```text
//!   husk-overlay-DEVICE-INODE-N      N: the first that nobody has
//! ```
//!
//! Only a hint: another network namespace has names of its own, anybody may take one, and who
//! overlays a directory further up later is told nothing.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, connect, socket_with};

/// Images over one directory that are told of; a fifth has no name and is not seen.
const IMAGES_MAX: u32 = 4;

/// Overlays of others that one line names.
const NAMED_MAX: usize = 3;

/// The names of an image's overlays.
#[derive(Default)]
pub struct Neighbours {
    names: Vec<OwnedFd>,
}

impl Neighbours {
    /// Names these overlays of one image; what there is to tell of others.
    pub fn announce(&mut self, overlays: &[PathBuf]) -> Option<String> {
        let found = overlays.iter().filter_map(|path| self.announce_one(path, overlays));
        let mut found: Vec<String> = found.collect();
        let more = found.len().saturating_sub(NAMED_MAX);
        found.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let found = Some(found.join(", ")).filter(|found| !found.is_empty())?;
        Some(format!(
            "another image overlays {found}{more}: neither sees what the other changes, and of \
             what both change both versions are kept"
        ))
    }

    /// Names one overlay; which other image's it meets.
    fn announce_one(&mut self, path: &Path, overlays: &[PathBuf]) -> Option<String> {
        let own = (0..IMAGES_MAX).find(|&n| self.take(path, n));
        // Looked for once it has its own: of two that begin at once each finds the other.
        let is_anothers =
            |path: &Path, own| (0..IMAGES_MAX).any(|n| Some(n) != own && is_taken(path, n));
        let is_outer =
            |one: &&Path| !overlays.iter().any(|own| own == *one) && is_anothers(one, None);
        if is_anothers(path, own) {
            return Some(path.display().to_string());
        }
        let outer = path.ancestors().skip(1).find(is_outer)?;
        Some(format!("{}, which {} lies in", outer.display(), path.display()))
    }

    /// Whether name `n` of an overlay was free; it is this image's now.
    fn take(&mut self, path: &Path, n: u32) -> bool {
        let bound = || {
            let socket = socket()?;
            bind(&socket, &name(path, n)?).ok().map(|()| socket)
        };
        let taken = bound();
        let was_free = taken.is_some();
        self.names.extend(taken);
        was_free
    }
}

/// Whether an image has this name.
fn is_taken(path: &Path, n: u32) -> bool {
    let connected = || connect(socket()?, &name(path, n)?).ok();
    connected().is_some()
}

fn socket() -> Option<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

fn name(path: &Path, n: u32) -> Option<SocketAddrUnix> {
    let found = fs::metadata(path).ok()?;
    let name = format!("husk-overlay-{:x}-{}-{n}", found.dev(), found.ino());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()
}
