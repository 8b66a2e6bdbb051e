//! Finds files of the host that the image has moved, and that the host has no longer where the
//! image saw them: by other names that they have below the overlays.
//!
//! ```text
//!   mv x y in the image; mv x z on the host ─► y is opened ─► fetcher ─► walk ─► z is that file
//! ```
//!
//! Invariants
//! 1. A walk finds all such files; the next one waits, so that who opens many does not walk for
//!    each.
//! 2. An inode number of the host counts as the same file only with the same time of birth; where
//!    there is none, with the same size and modification time.
//! 3. The result is for reads only: the write-back judges by itself (`plan::scan::others`).

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::fs::{Attributes, Backing, Fs as _, HostIdentity, Kind, Origin};
use husk_proto::{Admin as _, Inode};

use crate::image;
use crate::image::attach::overlays_of;
use crate::write_back::host;
use crate::write_back::host::beneath::{Beneath, Object as Which};
use crate::write_back::path_of_origin;

/// Between two walks: as much, and as often the time that the last one took.
const PAUSE: Duration = Duration::from_secs(1);
const SHARE: u32 = 10;

/// Files that walks have found.
#[derive(Default)]
pub(super) struct Moved {
    /// The way to the image, once it was needed.
    direct: Option<Direct>,
    places: HashMap<Which, PathBuf>,
    /// When there may be another walk.
    next: Option<Instant>,
}

/// A file as the image knows it.
struct Known {
    seen: HostIdentity,
    born_ns: i64,
}

impl Moved {
    /// Opens the host file of `inode`, whatever its name is (`O_PATH`).
    pub(super) fn find(&mut self, inode: Inode) -> Option<OwnedFd> {
        if self.direct.is_none() {
            self.direct = image::attach().ok();
        }
        let direct = self.direct.as_mut()?;
        let shown = direct.attributes(inode).ok()?;
        let seen = direct.host_identity(shown.origin?).ok()?;
        let known = Known { seen, born_ns: shown.born_ns };
        let beneath = beneath(direct);
        if let Some(found) = open(&beneath, &self.places, &known) {
            return Some(found);
        }
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return None;
        }
        self.places = walk(direct, &beneath);
        self.next = Some(Instant::now() + PAUSE.max(begin.elapsed() * SHARE));
        open(&beneath, &self.places, &known)
    }
}

fn beneath(direct: &Direct) -> Beneath {
    let overlays = overlays_of(direct);
    Beneath::new(overlays.iter().map(|(_, path)| &**path))
}

/// Opens the file where it was found, if it is there yet.
fn open(beneath: &Beneath, places: &HashMap<Which, PathBuf>, known: &Known) -> Option<OwnedFd> {
    let held = beneath.hold(places.get(&known.seen.object())?).ok()?;
    let found = host::imported(std::ffi::OsStr::new(""), Kind::File, held.found(), "".as_ref());
    let same = found.identity.object() == known.seen.object();
    let is_it = match found.born_ns > 0 && known.born_ns > 0 {
        true => found.born_ns == known.born_ns,
        false => host::same_content(&known.seen, &found.identity),
    };
    if same && is_it { held.as_fd().try_clone_to_owned().ok() } else { None }
}

/// Where the host has files of the image that are not where the image saw them.
fn walk(direct: &mut Direct, beneath: &Beneath) -> HashMap<Which, PathBuf> {
    let known = known(direct);
    let mut places = HashMap::new();
    let device_of = |root: &PathBuf| Some((beneath.identity(root).ok()??.device, root.clone()));
    let mut open: Vec<_> = beneath.roots().iter().filter_map(device_of).collect();
    while let Some((device, directory)) = open.pop() {
        // Nothing below a directory that cannot be listed can be read.
        for name in beneath.names(&directory).unwrap_or_default() {
            let path = directory.join(name);
            let Ok(Some(found)) = beneath.glance(&path) else { continue };
            if found.directory {
                // Other file systems have overlays of their own.
                if found.identity.device == device && !beneath.roots().contains(&path) {
                    open.push((device, path));
                }
            } else if let Some(origins) = known.get(&found.identity.object())
                && origins.iter().any(|origin| !leads_to(direct, *origin, &path))
            {
                places.insert(found.identity.object(), path);
            }
        }
    }
    places
}

/// Whether the image saw a file at `path`.
fn leads_to(direct: &mut Direct, origin: Origin, path: &Path) -> bool {
    path_of_origin(direct, origin).is_ok_and(|seen| seen == path)
}

/// Host files that programs of the image read, and where they were seen: one that the host has
/// moved may be known by both paths.
fn known(direct: &mut Direct) -> HashMap<Which, Vec<Origin>> {
    let mut all = Vec::new();
    direct.each_on_host(&mut |inode, origin| all.push((inode, origin)));
    let is_read =
        |shown: &Attributes| shown.step.kind == Kind::File && shown.backing == Backing::Host;
    all.retain(|(inode, _)| direct.attributes(*inode).is_ok_and(|shown| is_read(&shown)));
    let mut known: HashMap<_, Vec<Origin>> = HashMap::new();
    for (_, origin) in all {
        if let Ok(seen) = direct.host_identity(origin) {
            known.entry(seen.object()).or_default().push(origin);
        }
    }
    known
}
