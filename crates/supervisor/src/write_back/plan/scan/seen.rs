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
use std::io;
use std::path::Path;

use husk_proto::fs::{HostIdentity, Origin};

use crate::image::clock::born_ns;
use crate::write_back::host::beneath::{Beneath, Glance, Object};
use crate::write_back::{PATH_BYTES_MAX, Source, host};

/// What the host has at a name.
pub(super) struct There {
    pub(super) glance: Glance,
    /// When it was made; 0: of files, or where that is not known.
    born_ns: i64,
}

impl There {
    /// What is at `path`: one look, unless it is told apart by its birth.
    pub(super) fn at(beneath: &Beneath, path: &Path) -> io::Result<Option<There>> {
        let Some(glance) = beneath.glance(path)? else { return Ok(None) };
        if glance.content {
            return Ok(Some(There { glance, born_ns: 0 }));
        }
        Ok(beneath.found(path)?.as_ref().map(There::of))
    }

    /// What was `found`.
    pub(super) fn of(found: &Metadata) -> There {
        There { glance: Glance::of(found), born_ns: born_ns(found) }
    }

    /// Device and inode.
    pub(super) fn object(&self) -> Object {
        self.glance.identity.object()
    }

    /// A FIFO, a socket or a device.
    pub(super) fn is_special(&self) -> bool {
        !self.glance.directory && !self.glance.content
    }
}

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
            Some(identity.object())
        };
        let unlisted = on_host.into_iter().filter_map(|(_, origin)| object(origin)).collect();
        let record = |origin: Origin| Some((object(origin)?, origin.0));
        let mut records: Vec<_> = origins.into_iter().filter_map(record).collect();
        records.sort_unstable();
        Seen { records, unlisted, bytes: vec![0; PATH_BYTES_MAX] }
    }

    /// Invariant 4.
    pub(super) fn is_unlisted(&self, directory: &There) -> bool {
        self.unlisted.contains(&directory.object())
    }

    /// Whether what was `found` at `path` is what the image saw there; `latest`: nor has anybody
    /// changed it since.
    ///
    /// `kept`: whether a file that was at this path is there still, or was taken from it by the
    /// image.
    pub(super) fn has<S: Source>(
        &mut self,
        source: &mut S,
        (path, found): (&Path, &There),
        latest: bool,
        kept: impl Fn(&Path) -> bool,
    ) -> bool {
        let (now, which) = (found.glance.identity, found.object());
        let loose = found.glance.directory || found.is_special();
        let same = |seen: HostIdentity| match (latest, loose) {
            (true, _) => seen == now,
            // One that was made later has the number of what is gone.
            (false, true) => found.born_ns <= seen.changed_ns,
            (false, false) => (seen.size, seen.modified_ns) == (now.size, now.modified_ns),
        };
        let another_name = !found.glance.directory && found.glance.links > 1;
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
