//! Summarises what is below a host directory in two numbers, to see whether it changed without a
//! clock.
//!
//! Invariants
//! 1. The numbers are sums of one hash for each object: the order of the walk does not count.
//! 2. A walk stays on its file system, as the removal does not.
//! 3. A status change counts for nothing: links that a write-back makes are such changes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::fs::HostIdentity;
use serde::{Deserialize, Serialize};

use super::beneath::{Beneath, Glance};

/// What is below a directory.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Below {
    /// Which objects, by which names.
    names: u64,
    /// The same, and when their content was changed last.
    whole: u64,
}

impl Below {
    /// Adds what was `found` at `path` below `top`.
    pub fn add(&mut self, top: &Path, path: &Path, found: &Glance) {
        let HostIdentity { device, inode, size, modified_ns, .. } = found.identity;
        let mut hasher = DefaultHasher::new();
        path.strip_prefix(top).unwrap_or(path).hash(&mut hasher);
        (device, inode).hash(&mut hasher);
        self.names = self.names.wrapping_add(hasher.finish());
        if found.content {
            (size, modified_ns).hash(&mut hasher);
        }
        self.whole = self.whole.wrapping_add(hasher.finish());
    }

    /// Whether this is below the directory `top`. A file that has other names counts by its name
    /// alone: a write-back gives the file the times that it has in the image, and what somebody
    /// writes to it is there by the other name.
    pub fn is_still(&self, beneath: &Beneath, top: &Path) -> io::Result<bool> {
        let device = beneath.directory(top)?.metadata()?.dev();
        let (mut now, mut linked) = (Below::default(), false);
        let mut open = vec![top.to_owned()];
        while let Some(directory) = open.pop() {
            for path in beneath.names(&directory)?.iter().map(|name| directory.join(name)) {
                let Some(found) = beneath.glance(&path)? else { return Ok(false) };
                now.add(top, &path, &found);
                linked |= !found.directory && found.links > 1;
                if found.directory && found.identity.device == device {
                    open.push(path);
                }
            }
        }
        Ok(now.names == self.names && (linked || now.whole == self.whole))
    }
}
