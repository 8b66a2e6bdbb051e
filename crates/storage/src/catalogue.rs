//! The volumes of a user: a small file for each.
//!
//! ```text
//!   ~/.local/state/husk/volumes/data.json        {"name": "data", "uuid": ..., "path": ...}
//!                               data.husk-area   the area, unless --on names another place
//! ```
//!
//! Invariants
//! 1. A file appears and changes as a whole; of two that make the same name, one is refused.
//! 2. It is there, as not yet made, before its area is begun, and goes after its area: nothing is
//!    left that no name leads to.
//! 3. Only what carries the volume's uuid, or nothing yet, is removed with it.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::area::header::{Fault, Header, NAME_BYTES_MAX};
use crate::area::{self, Area, Finding, Locked, SIZE_BYTES_MAX, SIZE_BYTES_MIN, Unfit, place};
use crate::disk::BLOCK;
use crate::problem::reason;
use crate::{Problem, Uuid};

/// The form of the files.
const VERSION: u32 = 1;
/// Longest file that is read.
const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// How the names of areas in directories end.
const AREA: &str = "husk-area";

/// What the catalogue knows of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    version: u32,
    /// What it is called.
    pub name: String,
    uuid: String,
    /// Where its area is.
    pub path: PathBuf,
    /// How large that is.
    pub size_bytes: u64,
    /// Number of the user it belongs to.
    pub owner_uid: u32,
    /// Whether it has ever been whole.
    is_made: bool,
}

/// How a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nobody uses it.
    Free,
    /// Somebody does.
    InUse,
    /// It is being made.
    BeingMade,
    /// What made it was ended.
    HalfMade,
    /// Its area is not where it was.
    Missing,
    /// It cannot be used: `why` says more.
    Unfit,
}

/// A volume as `ls` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// Which one it is.
    pub uuid: String,
    /// How large it is.
    pub size_bytes: u64,
    /// How often it has been acquired, where that can be read.
    pub epoch: Option<u64>,
    /// Number of the user it belongs to.
    pub owner_uid: u32,
    /// How it is.
    pub state: State,
    /// Who acquired it last, where somebody uses it.
    pub holder_pid: Option<u32>,
    /// Why it cannot be used.
    pub why: Option<String>,
    /// Where its area is.
    pub path: PathBuf,
}

/// What a check has found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The volume.
    pub name: String,
    /// Which one it is.
    pub uuid: String,
    /// Where its area is.
    pub path: PathBuf,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

/// All volumes of a user.
#[derive(Debug)]
pub struct Catalogue {
    directory: PathBuf,
}

impl Catalogue {
    /// This user's, made if it is not there.
    pub fn of_user() -> Result<Self, Problem> {
        let what = "cannot find the volumes of this user";
        let remedy = "set XDG_STATE_HOME to a directory of yours";
        let base = state_home().ok_or_else(|| {
            Problem::new(
                what,
                "neither XDG_STATE_HOME nor HOME names a directory of theirs",
                remedy,
            )
        })?;
        let directory = base.join("husk/volumes");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        let failed = |error: io::Error| {
            Problem::new(what, format!("{}: {}", directory.display(), reason(&error)), remedy)
        };
        made.map_err(failed)?;
        let found = fs::metadata(&directory).map_err(failed)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let why = format!("{} is another's, or others may write to it", directory.display());
            return Err(Problem::new(what, why, remedy));
        }
        Ok(Self { directory })
    }

    /// The one in `directory`.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Makes a volume: its area is durable and pre-written when this returns.
    pub fn create(&self, name: &str, size_bytes: u64, on: Option<&Path>) -> Result<Entry, Problem> {
        let what = format!("cannot make volume {name}");
        check_name(name, &what)?;
        let size_bytes = settle_size(size_bytes, &what)?;
        let path = self.settle_path(name, on, &what)?;
        let uuid = Uuid::random().map_err(|error| Problem::of(&what, &error))?;
        let owner_uid = rustix::process::geteuid().as_raw();
        let (version, name) = (VERSION, name.to_owned());
        let header =
            Header { uuid, name: name.clone(), size_bytes, owner_uid, epoch: 0, holder_pid: 0 };
        let uuid = uuid.to_string();
        let mut entry = Entry { version, name, uuid, path, size_bytes, owner_uid, is_made: false };
        self.write(&entry, &what, true)?;
        if let Err(problem) = Area::make(&entry.path, &header, &what) {
            // At worst it stays, as half-made.
            let _ = fs::remove_file(self.file(&entry.name));
            return Err(problem);
        }
        entry.is_made = true;
        self.write(&entry, &what, false)?;
        Ok(entry)
    }

    /// Hands out the area of a volume: whoever has its descriptor has the volume.
    pub fn acquire(&self, name: &str) -> Result<Area, Problem> {
        let what = format!("cannot use volume {name}");
        let entry = self.entry(name, &what)?;
        let uuid = entry.made_uuid(&what)?;
        let area = entry.locked(&what)?.acquire(uuid)?;
        if entry.is_file() {
            // A resize that was killed has left it: nobody else resizes what this process has. It
            // does no harm but for its room.
            let _ = place::remove_if_there(&place::beside(&entry.path));
        }
        Ok(area)
    }

    /// Gives a volume another size, while nobody uses it. `told` is told how many bytes are
    /// written, and says whether to go on.
    pub fn resize(
        &self,
        name: &str,
        size_bytes: u64,
        told: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Problem> {
        let what = format!("cannot resize volume {name}");
        let entry = self.entry(name, &what)?;
        let size_bytes = settle_size(size_bytes, &what)?;
        let locked = entry.locked(&what)?;
        if locked.is_device() {
            let why = format!("{} is a device", entry.path.display());
            return Err(Problem::new(
                what,
                why,
                "make another volume, and copy what this one holds",
            ));
        }
        locked.acquire(entry.made_uuid(&what)?)?.resize(size_bytes, &what, told)?;
        self.note_size(name, size_bytes)
    }

    /// Notes what size a volume has got. A kill before leaves the old one in the entry alone, which
    /// nobody goes by.
    pub fn note_size(&self, name: &str, size_bytes: u64) -> Result<(), Problem> {
        let what = format!("cannot record the size of volume {name}");
        let mut entry = self.entry(name, &what)?;
        entry.size_bytes = size_bytes;
        self.write(&entry, &what, false)
    }

    /// One volume.
    pub fn find(&self, name: &str) -> Result<Row, Problem> {
        Ok(self.entry(name, &format!("cannot show volume {name}"))?.row())
    }

    /// Reads a whole volume and tells what is not as it should be; nobody may use it meanwhile.
    pub fn check(&self, name: &str) -> Result<Report, Problem> {
        let what = format!("cannot check volume {name}");
        let entry = self.entry(name, &what)?;
        let uuid = entry.made_uuid(&what)?;
        let findings = entry.locked(&what)?.check(uuid)?;
        Ok(Report { name: entry.name, uuid: entry.uuid, path: entry.path, findings })
    }

    /// Removes a volume with all that is in it; with `forgets`, its name alone.
    pub fn remove(&self, name: &str, forgets: bool) -> Result<(), Problem> {
        let what = format!("cannot remove volume {name}");
        check_name(name, &what)?;
        if !forgets {
            self.remove_area(&self.entry(name, &what)?, &what)?;
        }
        let file = self.file(name);
        match fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(unknown(&what)),
            other => other
                .and_then(|()| place::sync_directory_of(&file))
                .map_err(|error| Problem::of(&what, &error)),
        }
    }

    fn remove_area(&self, entry: &Entry, what: &str) -> Result<(), Problem> {
        let there = fs::symlink_metadata(&entry.path);
        if there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // An earlier removal was ended behind it; a disk goes away with its data.
            let is_here = entry.path.parent() == Some(&self.directory);
            return if is_here { Ok(()) } else { entry.locked(what).map(drop) };
        }
        let locked = entry.locked(what)?;
        let (copies, length_bytes) = locked.look()?;
        let own = copies.iter().flatten().any(|copy| copy.uuid.to_string() == entry.uuid);
        let nothing = copies.iter().all(|copy| copy == &Err(Fault::Empty));
        // Invariant 3.
        if !own && !(nothing && (length_bytes == 0 || !entry.is_made)) {
            let why = format!("{} is not what was made", entry.path.display());
            let remedy = "forget the name and keep what is there: `husk volume rm --forget`";
            return Err(Problem::new(what, why, remedy));
        }
        let gone = match locked.is_device() {
            true => locked.clear_device(),
            // A resize that was killed has left another one.
            false => place::remove_if_there(&place::beside(&entry.path))
                .and_then(|()| fs::remove_file(&entry.path)),
        };
        gone.map_err(|error| Problem::of(what, &error))
    }

    /// All volumes by name; what could not be read of the catalogue itself, a problem each.
    pub fn list(&self) -> Result<(Vec<Row>, Vec<Problem>), Problem> {
        let what = "cannot list the volumes";
        let failed = |error: io::Error| Problem::of(what, &error);
        let (mut rows, mut problems) = (Vec::new(), Vec::new());
        for file in fs::read_dir(&self.directory).map_err(failed)? {
            let file = file.map_err(failed)?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
            let Some(name) = name.filter(|name| !name.starts_with('.')) else { continue };
            match self.entry(name, &format!("cannot show volume {name}")) {
                Ok(entry) => rows.push(entry.row()),
                Err(problem) => problems.push(problem),
            }
        }
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((rows, problems))
    }

    fn entry(&self, name: &str, what: &str) -> Result<Entry, Problem> {
        check_name(name, what)?;
        let path = self.file(name);
        let damaged = |why: String| {
            let remedy = "restore it, or forget the volume with `husk volume rm --forget`";
            Problem::new(what, format!("{}: {why}", path.display()), remedy)
        };
        let bytes = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(unknown(what)),
            Err(error) => return Err(damaged(reason(&error))),
            Ok(file) => {
                let mut bytes = Vec::new();
                io::Read::read_to_end(&mut io::Read::take(file, ENTRY_BYTES_MAX), &mut bytes)
                    .map_err(|error| damaged(reason(&error)))?;
                bytes
            }
        };
        let entry: Entry = serde_json::from_slice(&bytes)
            .map_err(|_| damaged("it is not as it was written".to_owned()))?;
        if entry.version > VERSION {
            let why = format!("{} has version {}", path.display(), entry.version);
            return Err(Problem::new(what, why, "use a newer husk"));
        }
        if entry.name != name {
            return Err(damaged(format!("it is of volume {}", entry.name)));
        }
        Ok(entry)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    /// Invariant 1.
    fn write(&self, entry: &Entry, what: &str, is_new: bool) -> Result<(), Problem> {
        let (new, file) = (
            self.directory.join(format!(".{}.{}", entry.name, std::process::id())),
            self.file(&entry.name),
        );
        let put = || {
            let mut options = File::options();
            let mut to = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            to.write_all(&serde_json::to_vec_pretty(entry)?)?;
            to.sync_all()?;
            if is_new { fs::hard_link(&new, &file) } else { fs::rename(&new, &file) }?;
            place::sync_directory_of(&file)
        };
        let done = put();
        if is_new || done.is_err() {
            // One more file that begins with a dot is nobody's volume.
            let _ = fs::remove_file(&new);
        }
        done.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists if is_new => {
                let remedy = "choose another name, or remove it with `husk volume rm`";
                Problem::new(what, "there is one of that name", remedy)
            }
            _ => Problem::of(what, &error),
        })
    }

    /// Where the area of a new volume goes.
    fn settle_path(&self, name: &str, on: Option<&Path>, what: &str) -> Result<PathBuf, Problem> {
        let on = on.unwrap_or(&self.directory);
        let failed = |error: io::Error| {
            let why = format!("{}: {}", on.display(), reason(&error));
            Problem::new(what, why, "name a directory or a block device with --on")
        };
        let real = fs::canonicalize(on).map_err(failed)?;
        if real.to_str().and(on.to_str()).is_none() {
            return Err(failed(io::Error::other("its path is not UTF-8")));
        }
        let kind = fs::metadata(&real).map_err(failed)?.file_type();
        if kind.is_block_device() {
            // As typed: names in /dev/disk stay what they are when disks change their numbers.
            return std::path::absolute(on).map_err(failed);
        }
        if !kind.is_dir() {
            return Err(failed(io::Error::other("neither a directory nor a block device")));
        }
        place::check_file_system(&File::open(&real).map_err(failed)?, what)?;
        Ok(real.join(format!("{name}.{AREA}")))
    }
}

impl Entry {
    /// Its uuid, if it has ever been whole.
    fn made_uuid(&self, what: &str) -> Result<Uuid, Problem> {
        let unfit = |unfit: Unfit| {
            let (why, remedy) = unfit.told(&self.path);
            Problem::new(what, why, remedy)
        };
        if !self.is_made {
            return Err(unfit(Unfit::HalfMade));
        }
        Uuid::parse(&self.uuid).ok_or_else(|| unfit(Unfit::Damaged))
    }

    /// Whether its area is a file; else it is a device.
    fn is_file(&self) -> bool {
        self.path.extension().is_some_and(|end| end == AREA)
    }

    /// The lock of its area.
    fn locked(&self, what: &str) -> Result<Locked, Problem> {
        if !self.is_file() && !self.path.exists() {
            return Err(place::cannot_use(what, &self.path, &Errno::NODEV.into()));
        }
        Locked::take(&self.path, what)
    }

    fn row(self) -> Row {
        let (state, header, why) = self.look();
        let is_used = state == State::InUse;
        Row {
            size_bytes: header.as_ref().map_or(self.size_bytes, |header| header.size_bytes),
            epoch: header.as_ref().map(|header| header.epoch),
            holder_pid: header.filter(|_| is_used).map(|header| header.holder_pid),
            name: self.name,
            uuid: self.uuid,
            owner_uid: self.owner_uid,
            state,
            why,
            path: self.path,
        }
    }

    /// Its state where it cannot be looked at.
    fn unseen(&self, error: &io::Error) -> (State, Option<Header>, Option<String>) {
        let shown = self.path.display();
        let is_gone = error.kind() == io::ErrorKind::NotFound;
        if place::is_absent(error) || is_gone && !self.is_file() {
            return (State::Missing, None, Some(Unfit::Absent.told(&self.path).0));
        }
        if is_gone {
            return (State::Missing, None, Some(format!("{shown} is gone")));
        }
        (State::Unfit, None, Some(format!("{shown}: {}", reason(error))))
    }

    fn look(&self) -> (State, Option<Header>, Option<String>) {
        let unfit = |why: String| (State::Unfit, None, Some(why));
        let file = match place::open(&self.path, place::Use::Look) {
            Ok(file) => file,
            Err(error) => return self.unseen(&error),
        };
        let is_used = place::is_locked(&file);
        let found = area::look_into(&file);
        let is_absent = found.as_ref().is_err_and(place::is_absent);
        if !self.is_made && !is_absent {
            return (if is_used { State::BeingMade } else { State::HalfMade }, None, None);
        }
        let (copies, length_bytes) = match found {
            Ok(found) => found,
            Err(error) => return self.unseen(&error),
        };
        let Some(uuid) = Uuid::parse(&self.uuid) else {
            return unfit("its uuid is not as it was written".to_owned());
        };
        match area::judge(&copies, uuid, length_bytes) {
            Ok(header) if is_used => (State::InUse, Some(header), None),
            Ok(header) => (State::Free, Some(header), None),
            Err(why) => unfit(why.told(&self.path).0),
        }
    }
}

fn unknown(what: &str) -> Problem {
    Problem::new(what, "there is none of that name", "`husk volume ls` lists them")
}

fn check_name(name: &str, what: &str) -> Result<(), Problem> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let holds = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if begins && name.chars().all(holds) && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let remedy = "use up to 64 letters, digits, - and _, beginning with a letter";
    Err(Problem::new(what, "not a valid name", remedy))
}

/// Whole blocks, in range; `what` fails where it is not.
pub fn settle_size(size_bytes: u64, what: &str) -> Result<u64, Problem> {
    if !(SIZE_BYTES_MIN..=SIZE_BYTES_MAX).contains(&size_bytes) {
        let why = if size_bytes < SIZE_BYTES_MIN { "too small" } else { "too large" };
        let (least, most) = (SIZE_BYTES_MIN >> 20, SIZE_BYTES_MAX >> 40);
        return Err(Problem::new(what, why, format!("choose --size {least}M to {most}T")));
    }
    Ok(size_bytes.next_multiple_of(BLOCK))
}

/// Where users keep such things, if it is theirs: `sudo` and `su` may leave another's.
fn state_home() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let own = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.uid() == uid);
    let named = absolute("XDG_STATE_HOME").filter(|base| !base.exists() || own(base));
    named.or_else(|| Some(absolute("HOME").filter(own)?.join(".local/state")))
}
