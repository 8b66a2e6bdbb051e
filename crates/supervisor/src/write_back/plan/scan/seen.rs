//! What the image has seen of the host: who else has put something into a directory is known by
//! that, and not by a clock.
//!
//! Invariants
//! 1. The record of a host object is there as long as the image, whatever becomes of its name.
//! 2. Another name of a file with several has no record of its own: that the file has one counts,
//!    as long as somebody else has not taken the file from the name in that record.
//! 3. An image that an older Husk has made has no records: there the times alone count.
//! 4. What the image has not looked into is not judged: it moves as a whole, whatever is in it.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::fs::{HostIdentity, Origin};

use super::merged::is_special;
use crate::image::clock::born_ns;
use crate::write_back::host::beneath::{Object, object_of, which};
use crate::write_back::{PATH_BYTES_MAX, Source, host};

/// Every host object that the image has a record of.
pub(super) struct Seen {
    /// Sorted.
    records: Vec<(Object, u32)>,
    /// Directories whose names are not all known to the image.
    unlisted: HashSet<Object>,
    /// For paths.
    bytes: Vec<u8>,
}

impl Seen {
    pub(super) fn by<S: Source>(source: &mut S) -> Seen {
        let (mut origins, mut on_host) = (Vec::new(), Vec::new());
        source.each_origin(&mut |origin| origins.push(origin));
        source.each_on_host(&mut |inode, origin| on_host.push((inode, origin)));
        on_host.retain(|(inode, _)| source.attributes(*inode).is_ok_and(|one| one.step.unlisted));
        let mut object = |origin| {
            let identity = source.host_identity(origin).ok()?;
            Some(which(&identity))
        };
        let unlisted = on_host.into_iter().filter_map(|(_, origin)| object(origin)).collect();
        let record = |origin: Origin| Some((object(origin)?, origin.0));
        let mut records: Vec<_> = origins.into_iter().filter_map(record).collect();
        records.sort_unstable();
        Seen { records, unlisted, bytes: vec![0; PATH_BYTES_MAX] }
    }

    /// Invariant 4.
    pub(super) fn is_unlisted(&self, directory: &Metadata) -> bool {
        self.unlisted.contains(&object_of(directory))
    }

    /// Whether what was `found` at `path` is what the image saw there; `latest`: nor has anybody
    /// changed it since.
    ///
    /// `kept`: whether a file that was at this path is there still, or was taken from it by the
    /// image.
    pub(super) fn has<S: Source>(
        &mut self,
        source: &mut S,
        (path, found): (&Path, &Metadata),
        latest: bool,
        kept: impl Fn(&Path) -> bool,
    ) -> bool {
        let (now, which) = (host::identity_of(found), object_of(found));
        let loose = found.is_dir() || is_special(found);
        let same = |seen: HostIdentity| match (latest, loose) {
            (true, _) => seen == now,
            // One that was made later has the number of what is gone.
            (false, true) => born_ns(found) <= seen.changed_ns,
            (false, false) => (seen.size, seen.modified_ns) == (now.size, now.modified_ns),
        };
        let another_name = !found.is_dir() && found.nlink() > 1;
        let first = self.records.partition_point(|(one, _)| *one < which);
        let records = self.records[first..].iter().take_while(|(one, _)| *one == which);
        for origin in records.map(|(_, origin)| Origin(*origin)) {
            if !source.host_identity(origin).is_ok_and(same) {
                continue;
            }
            // One that is too long to be told is taken for this one.
            let there = source.host_path(origin, &mut self.bytes).map_or(true, |length| {
                let seen = host::path_of(&self.bytes[..length.min(PATH_BYTES_MAX)]);
                seen == path || another_name && kept(&seen)
            });
            if there {
                return true;
            }
        }
        !latest && self.records.is_empty()
    }
}
