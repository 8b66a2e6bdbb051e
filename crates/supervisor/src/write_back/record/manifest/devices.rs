//! Numbers of devices in a manifest: after a restart of the machine a file system may have another
//! one (btrfs, USB, device mapper), and its objects are the same.
//!
//! Invariants
//! 1. A number is taken for another only where an object with the inode that was noted has the
//!    temporary name that was noted: nobody can guess that.
//! 2. Where one such object has the device that was noted, that number is right.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{Pending, Step};
use crate::write_back::host::beneath::{Beneath, Object as Which};

impl Pending {
    /// Gives devices the numbers that they have now.
    pub(super) fn renumber(&mut self) {
        let roots = self.roots();
        let beneath = Beneath::new(roots.iter().map(|root| &**root));
        let mut devices: HashMap<u64, u64> = HashMap::new();
        for (temporary, all) in self.steps.iter().filter_map(temporary) {
            let is_open = |(device, _): &Which| devices.get(device) != Some(device);
            if !all.iter().any(is_open) {
                continue;
            }
            let Ok(Some(found)) = beneath.found(&temporary) else { continue };
            if let Some((device, _)) = all.iter().find(|(_, inode)| *inode == found.ino()) {
                let now = devices.entry(*device).or_insert(found.dev());
                if found.dev() == *device {
                    *now = *device;
                }
            }
        }
        devices.retain(|noted, now| noted != now);
        if !devices.is_empty() {
            let renumber = |which: &mut Which| {
                which.0 = devices.get(&which.0).copied().unwrap_or(which.0);
            };
            self.steps.iter_mut().flat_map(objects).for_each(renumber);
            self.head.which.iter_mut().flatten().for_each(renumber);
            self.made.iter_mut().map(|made| &mut made.which).for_each(renumber);
        }
    }
}

/// The temporary name of a step, and what may have it.
fn temporary(step: &Step) -> Option<(PathBuf, Vec<Which>)> {
    match step {
        Step::Put { temporary, made, replaces, .. } => {
            let all = std::iter::once(*made).chain(replaces.map(|old| old.which));
            Some((temporary.path(), all.collect()))
        }
        Step::Delete { temporary, what, .. } => Some((temporary.path(), vec![what.which])),
        Step::Append { .. } | Step::Touch { .. } => None,
    }
}

/// All objects that a step is about.
fn objects(step: &mut Step) -> Vec<&mut Which> {
    match step {
        Step::Put { made, replaces, .. } => {
            std::iter::once(made).chain(replaces.as_mut().map(|old| &mut old.which)).collect()
        }
        Step::Delete { what, .. } | Step::Append { what, .. } => vec![&mut what.which],
        Step::Touch { what, .. } => vec![what],
    }
}
