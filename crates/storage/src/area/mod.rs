//! An area: one pre-written extent, a file or a device, that one user at a time has.
//!
//! ```text
//!   make    file ─► zeros, synced ─► header                  a kill before the header: half-made
//!   acquire lock ─► header found sound ─► epoch + 1, durable ─► descriptor
//! ```
//!
//! Invariants
//! 1. The descriptor is the capability: it has the lock, and so has each process that it is passed
//!    to, until all of them are closed. Other requests are refused meanwhile.
//! 2. An epoch is durable before the area is handed out: data that the previous user left, or has
//!    still in flight, carries a lower one.
//! 3. An area is handed out only if it is what the catalogue says, whole.

pub mod header;
pub mod place;
mod resize;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::Serialize;

use crate::disk::{Aligned, BLOCK, BLOCK_BYTES, Disk, Pwrite};
use crate::log::{self, Damage, Found, Log};
use crate::{Problem, Uuid};
use header::{Copies, Fault, Header};
use place::{CHUNK_BYTES, Use};
pub use resize::Successor;

/// Smallest area.
pub const SIZE_BYTES_MIN: u64 = 1 << 20;
/// Largest one.
pub const SIZE_BYTES_MAX: u64 = 64 << 40;
/// Most findings that a check tells one by one.
const FINDINGS_MAX: usize = 20;

/// Something that is not as it should be, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Byte of the area at which it begins.
    pub at_bytes: u64,
    /// What it is.
    pub what: String,
}

/// Why an area cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Its header was never written.
    HalfMade,
    /// It has no header, and had one.
    Empty,
    /// It is on a device that has no disk now.
    Absent,
    /// What is there is something else.
    Foreign,
    /// A newer version has made it, or an older one whose form this one does not know.
    Version(u32),
    /// Neither copy of its header is what was written.
    Damaged,
    /// It is shorter than it was made, this long.
    Truncated(u64),
    /// Its header cannot be read.
    Unreadable,
}

impl Unfit {
    /// Why, and what to do.
    pub fn told(&self, path: &Path) -> (String, &'static str) {
        let shown = path.display();
        let restore = "restore it from a copy";
        match self {
            Self::HalfMade => (
                format!("{shown} is half-made: what made it was ended"),
                "remove it with `husk volume rm`, and make it again",
            ),
            Self::Empty => (
                format!("{shown} is empty: it has no header (bytes 0, 4096)"),
                "bring the volume back, or forget it with `husk volume rm --forget`",
            ),
            Self::Absent => (
                format!("{shown} has no disk"),
                "attach the disk again, or forget the volume with `husk volume rm --forget`",
            ),
            Self::Foreign => (
                format!("{shown} is something else (byte 0)"),
                "bring the volume back, or forget it with `husk volume rm --forget`",
            ),
            Self::Version(version) => (
                format!("{shown} has version {version}, this husk knows {}", header::VERSION),
                header::husk_for(*version, header::VERSION),
            ),
            Self::Damaged => {
                (format!("{shown} is damaged: both copies of its header (bytes 0, 4096)"), restore)
            }
            Self::Truncated(length) => (format!("{shown} ends at byte {length}"), restore),
            Self::Unreadable => (
                format!("{shown} cannot be read: both copies of its header (bytes 0, 4096)"),
                "look at the disk (`dmesg`)",
            ),
        }
    }
}

/// The header that counts, of an area of `length_bytes` that should be `uuid`.
pub fn judge(copies: &Copies, uuid: Uuid, length_bytes: u64) -> Result<Header, Unfit> {
    let any = |fault: Fault| copies.iter().any(|copy| copy.as_ref() == Err(&fault));
    let own = copies.iter().flatten().filter(|header| header.uuid == uuid);
    if let Some(Err(Fault::Version(version))) =
        copies.iter().find(|copy| matches!(copy, Err(Fault::Version(_))))
    {
        return Err(Unfit::Version(*version));
    }
    match own.max_by_key(|header| header.epoch) {
        Some(header) if header.size_bytes > length_bytes => Err(Unfit::Truncated(length_bytes)),
        Some(header) => Ok(header.clone()),
        None if copies.iter().all(|copy| copy == &Err(Fault::Empty)) => Err(Unfit::Empty),
        None if any(Fault::Damaged) => Err(Unfit::Damaged),
        None if any(Fault::Foreign) || copies.iter().any(Result::is_ok) => Err(Unfit::Foreign),
        None => Err(Unfit::Unreadable),
    }
}

/// What is wrong with single copies.
fn faults(copies: &Copies, uuid: Uuid) -> Vec<Finding> {
    let told = |copy: &Result<Header, Fault>| match copy {
        Ok(header) if header.uuid == uuid => None,
        Ok(_) => Some("this copy of the header is another volume's"),
        Err(Fault::Empty) => Some("this copy of the header is missing"),
        Err(Fault::Unreadable) => Some("this copy of the header cannot be read"),
        Err(Fault::Version(_)) => Some("this copy of the header is of another version"),
        Err(Fault::Foreign | Fault::Damaged) => Some("this copy of the header is damaged"),
    };
    let found = copies.iter().zip(header::copies_at());
    found
        .filter_map(|(copy, at_bytes)| {
            told(copy).map(|what| Finding { at_bytes, what: what.to_owned() })
        })
        .collect()
}

/// An area that this process has: the lock is held.
#[derive(Debug)]
pub struct Area {
    disk: Pwrite,
    /// What its header says now.
    pub header: Header,
    /// What was found on the way and put right by it: a copy of the header that is not as the
    /// other.
    pub notes: Vec<Finding>,
    path: PathBuf,
}

impl AsFd for Area {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.disk.as_fd()
    }
}

/// A lock that was taken, before anything else is looked at.
#[derive(Debug)]
pub struct Locked {
    file: File,
    path: PathBuf,
    what: String,
}

impl Locked {
    /// Takes the lock of the area at `path`; `what` fails where it cannot be.
    pub fn take(path: &Path, what: &str) -> Result<Self, Problem> {
        let in_use = |why: String| Problem::new(what, why, "end what uses it, then try again");
        let file = match place::open(path, Use::Have) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(in_use(format!("{} is mounted, or in use", path.display())));
            }
            other => other.map_err(|error| place::cannot_use(what, path, &error))?,
        };
        let locked = place::lock(&file).map_err(|error| place::cannot_use(what, path, &error))?;
        if !locked {
            let copies = copies_of(&file).unwrap_or([const { Err(Fault::Unreadable) }; 2]);
            let pid = copies.iter().flatten().map(|header| header.holder_pid).find(|&pid| pid != 0);
            let who = pid.map_or("a process".to_owned(), |pid| format!("process {pid}"));
            return Err(in_use(format!("{who} uses it")));
        }
        let found = file.metadata().map_err(|error| place::cannot_use(what, path, &error))?;
        if found.nlink() == 0 {
            return Err(place::cannot_use(what, path, &io::ErrorKind::NotFound.into()));
        }
        Ok(Self { file, path: path.to_owned(), what: what.to_owned() })
    }

    /// Both copies of its header, and its length.
    pub fn look(&self) -> Result<(Copies, u64), Problem> {
        let found = look_into(&self.file);
        found.map_err(|error| place::cannot_use(&self.what, &self.path, &error))
    }

    /// Whether it is a device.
    pub fn is_device(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.file_type().is_block_device())
    }

    /// The area as its next user has it.
    pub fn acquire(self, uuid: Uuid) -> Result<Area, Problem> {
        let (copies, length_bytes) = self.look()?;
        let header = judge(&copies, uuid, length_bytes).map_err(|unfit| {
            let (why, remedy) = unfit.told(&self.path);
            Problem::new(&self.what, why, remedy)
        })?;
        let notes = faults(&copies, uuid);
        let disk = Pwrite::new(self.file, header.size_bytes);
        let epoch = header.epoch + 1;
        let header = Header { epoch, holder_pid: std::process::id(), ..header };
        header::write(&disk, &header)
            .map_err(|error| place::cannot_use(&self.what, &self.path, &error))?;
        Ok(Area { disk, header, notes, path: self.path })
    }

    /// Makes a device look as if there had never been an area.
    pub fn clear_device(&self) -> io::Result<()> {
        let disk = Pwrite::new(self.file.try_clone()?, header::CONTENT_AT);
        disk.write_durable(0, &Aligned::zeroed(header::CONTENT_AT as usize))
    }

    /// Reads all of it; what is not as it should be.
    pub fn check(&self, uuid: Uuid) -> Result<Vec<Finding>, Problem> {
        let (copies, length_bytes) = self.look()?;
        let header = match judge(&copies, uuid, length_bytes) {
            Ok(header) => header,
            Err(unfit) => {
                let at_bytes = if let Unfit::Truncated(length) = unfit { length } else { 0 };
                return Ok(vec![Finding { at_bytes, what: unfit.told(&self.path).0 }]);
            }
        };
        let file = self.file.try_clone().map_err(|error| Problem::of(&self.what, &error))?;
        let disk = Pwrite::new(file, header.size_bytes);
        let mut findings = faults(&copies, uuid);
        findings.extend(unreadable(&disk).take(FINDINGS_MAX));
        findings.extend(log::check(&disk, (header::CONTENT_AT, header.size_bytes), uuid));
        Ok(findings)
    }
}

impl Area {
    /// Makes an area at `path`: a new file, or a device that is there. Durable on return.
    pub fn make(path: &Path, header: &Header, what: &str) -> Result<(), Problem> {
        let file = place::open(path, Use::Make).map_err(|error| {
            if place::has_made(path, &error) {
                let _ = std::fs::remove_file(path);
            }
            place::cannot_open(what, path, &error)
        })?;
        let made = Self::fill(&file, path, header, what);
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        if made.is_err() && is_file {
            // What is left says of itself that it is half-made.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn fill(file: &File, path: &Path, header: &Header, what: &str) -> Result<(), Problem> {
        let failed = |error: io::Error| Problem::of(what, &error);
        if !place::lock(file).map_err(failed)? {
            let why = format!("{} is in use", path.display());
            return Err(Problem::new(what, why, "end what uses it, then try again"));
        }
        match file.metadata().map_err(failed)?.file_type().is_block_device() {
            true => place::check_device(file, header.size_bytes, what)?,
            false => place::sync_directory_of(path).map_err(failed)?,
        }
        let fill = || {
            place::fill(file, header.size_bytes, &mut |_| true)?;
            let disk = Pwrite::new(file.try_clone()?, header.size_bytes);
            Log::format(&disk, header::CONTENT_AT, header.size_bytes, header.uuid)?;
            header::write(&disk, header)
        };
        fill().map_err(failed)
    }

    /// Opens the log in it, which has the area from then on: `found` is given what it holds. What
    /// is noted is told, and has been put right.
    pub fn open_log(
        self,
        found: impl FnMut(Found<'_>),
    ) -> Result<(Log<Area>, Vec<Damage>), Damage> {
        let place = (header::CONTENT_AT, self.header.size_bytes);
        let user = (self.header.uuid, self.header.epoch);
        Log::open(self, place, user, found)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Disk for Area {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.disk.write(at, from)
    }

    fn write_durable(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.disk.write_durable(at, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }
}

/// The blocks that cannot be read.
fn unreadable(disk: &Pwrite) -> impl Iterator<Item = Finding> + '_ {
    let mut chunk = Aligned::zeroed(CHUNK_BYTES);
    let starts = (0..disk.size_bytes()).step_by(CHUNK_BYTES);
    starts.flat_map(move |start| {
        let length = (disk.size_bytes() - start).min(CHUNK_BYTES as u64);
        if disk.read(start, &mut chunk[..length as usize]).is_ok() {
            return Vec::new();
        }
        let blocks = (start..start + length).step_by(BLOCK_BYTES);
        let failed = |&at: &u64| disk.read(at, &mut chunk[..BLOCK_BYTES]).is_err();
        let told = |at_bytes| Finding { at_bytes, what: "this block cannot be read".to_owned() };
        blocks.filter(failed).map(told).collect()
    })
}

/// The same, and its length; an error of a device that has no disk.
pub fn look_into(file: &File) -> io::Result<(Copies, u64)> {
    let length_bytes = place::length_bytes(file)?;
    if length_bytes == 0 && file.metadata()?.file_type().is_block_device() {
        return Err(Errno::NOMEDIUM.into());
    }
    Ok((copies_of(file)?, length_bytes))
}

/// The copies of the header in `file`; one that is too short has none.
pub fn copies_of(file: &File) -> io::Result<Copies> {
    let length = place::length_bytes(file)?;
    if length < 2 * BLOCK {
        let fault = if length == 0 { Fault::Empty } else { Fault::Foreign };
        return Ok([Err(fault), Err(fault)]);
    }
    Ok(header::read(&Pwrite::new(file.try_clone()?, length / BLOCK * BLOCK)))
}
