//! Opens an image for a process that does not belong to it (`husk stat`, `top`, `fsck`).
//!
//! ```text
//!   PID  ─► a process that has the region ─► /proc/PID/fd/N ─┐
//!   NAME ─► its supervisor, over the socket ─────────────────┴─► checked ─► mapped
//! ```
//!
//! Invariant: nothing is mapped before it is certain that it is a region of this version.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use husk_carrier::{Direct, HEADER_BYTES, Header, Layout};
use husk_proto::image::Cover;
use husk_proto::{Errno, Overview as _, Shortcuts as _};
use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::image;
use crate::named;
use crate::output::failure::Failure;
use crate::run::request::reason;
use crate::write_back::{Overlay, host};

/// What is said of an image that holds more objects than it has room for.
pub const SENSELESS: &str = "its counts of objects are impossible: it is damaged";
/// What is said of a region that makes no sense.
const DAMAGED: &str = "its memory is damaged, or not Husk's";
/// How the host names a region's descriptor.
const REGION_LINK: &str = "/memfd:husk-region (deleted)";
/// Bytes of what the host counts as a block.
const HOST_BLOCK_BYTES: u64 = 512;

/// An image that is looked at. One at a time in a process: images lie at the same addresses.
pub struct Visit {
    /// What it was found by: its name, or a process.
    name: String,
    /// The process by which it was found.
    pub pid: u32,
    /// What it was made from.
    pub layout: Layout,
    /// The way to it.
    pub direct: Direct,
    region: File,
    /// Where that process has the region open.
    seen: PathBuf,
}

/// Why there is nothing to see.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// The overlays of an image, as it knows them itself.
pub fn overlays_of(direct: &Direct) -> Vec<Overlay> {
    let mounts = (0..direct.mounts()).map(|index| direct.mount(index));
    let overlays = mounts.filter(|mount| mount.cover == Cover::Overlay);
    overlays.map(|mount| (mount.root, host::path_of(mount.path))).collect()
}

impl Visit {
    /// Finds the image that `name` names, the process id of a `husk run` or of a program in it, or
    /// the name of an image, and maps it.
    pub fn begin(name: &str) -> Result<Visit, Refusal> {
        let (pid, region) = find(name)?;
        let layout =
            layout(&region).map_err(|why| Refusal { remedy: remedy_for(&why).to_owned(), why })?;
        let joined = husk_carrier::map_region(region.as_raw_fd() as u32, layout);
        let direct = joined.and_then(|()| image::attach()).map_err(|errno| match errno {
            Errno::ENOMEM => refuse("no address space is left for it", "raise `ulimit -v`"),
            errno => refuse(format!("{errno:?}"), "try again"),
        })?;
        let (name, seen) = (name.to_owned(), PathBuf::new());
        Ok(Visit { name, pid, layout, direct, region, seen })
    }

    /// The same, where what is refused is a failure of its own, as is an image whose numbers make
    /// no sense.
    pub fn of(name: &str) -> Result<Visit, Failure> {
        let what = || format!("cannot look at image {name}");
        let visit = Visit::begin(name)
            .map_err(|refusal| Failure::new(what(), refusal.why, refusal.remedy))?;
        match husk_carrier::makes_sense(visit.direct.kernel()) {
            true => Ok(visit),
            false => Err(Failure::new(what(), SENSELESS, "end it")),
        }
    }

    /// Its overlays, as it knows them itself.
    pub fn overlays(&self) -> Vec<Overlay> {
        overlays_of(&self.direct)
    }

    /// Maps in all that there is to look at: a page costs more than the look at it.
    pub fn populate(&self) {
        husk_carrier::populate(self.region.as_raw_fd() as u32, self.layout);
    }

    /// Descriptor of its memory.
    pub fn region_fd(&self) -> u32 {
        self.region.as_raw_fd() as u32
    }

    /// What it was found by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether process `pid` is one of it.
    pub fn has(&self, pid: u32) -> bool {
        let mut found = false;
        self.direct.each_pid(&mut |one| found |= one == pid);
        found
    }

    /// Its processes.
    pub fn pids(&self) -> std::collections::HashSet<u32> {
        let mut found = std::collections::HashSet::new();
        self.direct.each_pid(&mut |pid| {
            found.insert(pid);
        });
        found
    }

    /// What it takes of the host's memory, bytes.
    pub fn memory_taken_bytes(&self) -> u64 {
        self.region.metadata().map_or(0, |found| found.blocks() * HOST_BLOCK_BYTES)
    }

    /// Whether it is still there; another supervisor may have taken it over.
    pub fn goes_on(&mut self) -> bool {
        let is_ours = |path: &Path| is_same(fs::metadata(path), self.region.metadata());
        if is_ours(&self.seen) {
            return true;
        }
        if let Ok(Some(path)) = region_of(self.pid)
            && is_ours(&path)
        {
            self.seen = path;
            return true;
        }
        let Ok((pid, region)) = find(&self.name) else { return false };
        self.pid = pid;
        is_same(region.metadata(), self.region.metadata())
    }
}

/// Whether both are of one file.
fn is_same(one: io::Result<Metadata>, two: io::Result<Metadata>) -> bool {
    let key = |found: io::Result<Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    let (one, two) = (key(one), key(two));
    one.is_some() && one == two
}

fn refuse(why: impl Into<String>, remedy: &str) -> Refusal {
    Refusal { why: why.into(), remedy: remedy.to_owned() }
}

/// The process by which an image is found, and its region.
fn find(name: &str) -> Result<(u32, File), Refusal> {
    let remedy = "give the name of an image, or the process id of a `husk run`";
    let Ok(pid) = name.parse::<u32>() else {
        return named::region(OsStr::new(name))
            .map_err(|failure| Refusal { why: failure.why, remedy: failure.remedy });
    };
    let path = region_of(pid).map_err(|problem| match problem.kind() {
        io::ErrorKind::NotFound => refuse("there is no such process", remedy),
        io::ErrorKind::PermissionDenied => refuse("it is another user's", remedy),
        _ => refuse(reason(&problem), remedy),
    })?;
    let path = path.ok_or_else(|| refuse("that process is in no image", remedy))?;
    let opened = File::options().read(true).write(true).open(path);
    Ok((pid, opened.map_err(|problem| refuse(reason(&problem), remedy))?))
}

/// Where process `pid` has a region open, if it does.
fn region_of(pid: u32) -> io::Result<Option<PathBuf>> {
    let listing = fs::read_dir(format!("/proc/{pid}/fd"))?;
    Ok(listing.flatten().map(|entry| entry.path()).find(|path| is_region(path)))
}

/// Where it has any region open.
pub fn regions_of(pid: u32) -> impl Iterator<Item = PathBuf> {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    listing.map(|entry| entry.path()).filter(|path| is_region(path))
}

fn is_region(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|link| link.as_os_str() == REGION_LINK)
}

/// What the region was made from, once it is certain that it is one; or why it is none.
pub fn layout(region: &File) -> Result<Layout, String> {
    let damaged = || DAMAGED.to_owned();
    let mut bytes = [0; HEADER_BYTES];
    region.read_exact_at(&mut bytes, 0).map_err(|_| damaged())?;
    let layout = match husk_carrier::read_header(&bytes) {
        Header::Ours(layout) => layout,
        Header::None => return Err(damaged()),
        Header::Another(format) => {
            return Err(format!("another version of Husk made it (format {format})"));
        }
    };
    let sealed = fcntl_get_seals(region).is_ok_and(|s| s.contains(SealFlags::SHRINK));
    let length = region.metadata().map_or(0, |found| found.len());
    if sealed && length == layout.file_bytes() { Ok(layout) } else { Err(damaged()) }
}

fn remedy_for(why: &str) -> &'static str {
    if why == DAMAGED { "end it" } else { "use that version's `husk fsck`" }
}
