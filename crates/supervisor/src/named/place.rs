//! The directory of a named image, which only its user can enter.
//!
//! ```text
//!   ~/.local/state/husk/images/     or another place (`base`)
//!     NAME/
//!       lock      held by the supervisor as long as it lives
//!       socket    there while it answers
//!       facts     what the image was made from (JSON), for `husk ls`
//!       log       what the supervisor had to say
//!       ending    the end has begun, and what is to become of the changes; touched all the time
//!                 while somebody works at it
//!       written   what the write-back has put on the host, for a successor (JSON)
//!       ended     the end is complete, and what there is to tell of it (JSON)
//!       mount-N   where the server of `husk mount` with number N shows the image (JSON)
//!       room      nothing: on a full disk its place is for the others
//! ```
//!
//! Invariants
//! 1. Nothing is read, written or connected to through a symbolic link that takes its place.
//! 2. A directory whose lock nobody holds is left of a supervisor that has died, or that had ended
//!    the image and found nobody to tell (`ended`).
//! 3. What vanishes while the image is up - socket, lock or all of it - is made again by its
//!    supervisor (`is_whole`, `restore`).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use serde::{Deserialize, Serialize};

use super::keeper::adopt;
use crate::named::base;
use crate::named::message::Status;
use crate::named::mount::Record;
use crate::output::failure::Failure;
use crate::run::request::reason;
use crate::write_back::host;
use crate::write_back::tally::Tally;

/// What to do where there is no image of a name.
pub const MISSING: &str = "`husk ls` lists your images";
/// Images with one name and a number behind it.
const NUMBERED_MAX: u32 = 64;
/// Longest name of an image.
const NAME_BYTES_MAX: usize = 64;
/// How long a supervisor may leave somebody in its queue.
/// How long a supervisor may take until it listens; between two looks whether it does.
const STARTS_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long those who only look whether a lock is held may hold it, all together.
const LOOKED_MAX: Duration = Duration::from_millis(200);
/// Most of a log that is shown.
const LOG_LINES_MAX: usize = 20;
/// How an image ends whose end has begun.
const DISCARD: &str = "discard\n";
const WRITE_BACK: &str = "write back\n";
/// How the files of minders begin.
pub const MOUNT: &str = "mount-";
/// What is kept free for the image's own files.
const ROOM: &str = "room";
const ROOM_BYTES: u64 = 64 << 10;
/// Most of a file of ours that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A name that is fit for a directory, and for people to type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// Checks what was typed.
    pub fn parse(typed: &OsStr) -> Result<Name, Failure> {
        let fit = typed.to_str().filter(|name| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            name.len() <= NAME_BYTES_MAX
                && name.bytes().all(plain)
                && name.starts_with(|first: char| first.is_ascii_alphabetic())
        });
        fit.map(|name| Name(name.to_owned())).ok_or_else(|| {
            let mut shown = typed.to_string_lossy().into_owned();
            if let Some((end, _)) = shown.char_indices().nth(NAME_BYTES_MAX) {
                shown.truncate(end);
                shown.push_str("...");
            }
            let run = typed.to_str().is_some_and(|typed| typed.parse::<u32>().is_ok());
            let nameless = if run { " (an image of `husk run` has none)" } else { "" };
            let letters = "letters, digits, - and _, beginning with a letter";
            let remedy = format!("use up to {NAME_BYTES_MAX} {letters}{nameless}");
            Failure::new(format!("cannot call an image {shown:?}"), "no name for one", remedy)
        })
    }

    /// The name, then the same with `-k2`, `-k3` and so on behind it.
    pub fn and_numbered(&self) -> impl Iterator<Item = Name> + '_ {
        let numbered = |n| Name(if n == 1 { self.0.clone() } else { format!("{}-k{n}", self.0) });
        (1..=NUMBERED_MAX).map(numbered)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where image `name` has its directory.
pub fn path(name: &Name) -> Result<PathBuf, Failure> {
    Place::find(name).map(|place| place.path)
}

/// The log of image `name`, to write to.
pub fn log(name: &Name) -> io::Result<File> {
    let place = Place::find(name).map_err(|failure| io::Error::other(failure.to_string()))?;
    place.open_log()
}

/// The keeper of image `name`, if it has one.
pub fn keeper(name: &Name) -> Option<u32> {
    let facts = Place::find(name).ok()?.read("facts").ok()?;
    let facts: super::message::Status = serde_json::from_str(&facts).ok()?;
    Some(facts.keeper).filter(|keeper| *keeper != 0)
}

/// The directory of one image.
pub struct Place {
    /// Its name.
    pub name: Name,
    path: PathBuf,
    directory: OwnedFd,
}

/// The directory with its lock, held.
pub struct Held {
    /// The directory.
    pub place: Place,
    /// What others find locked.
    pub lock: File,
}

/// What somebody finds who wants the directory of an image.
pub enum Adopted {
    /// It is ours.
    Held(Held),
    /// It has a supervisor.
    Supervised,
    /// It is not there any more.
    Gone,
}

/// How an image ended.
#[derive(Serialize, Deserialize, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// What there is to tell, one line each.
    pub lines: Vec<String>,
    /// Everything is on the host as the image had it, or was to be dropped.
    pub complete: bool,
    /// What was done, in numbers.
    #[serde(default)]
    pub tally: Tally,
}

/// Takes the lock of an image that has no supervisor; whoever looks at it may hold it for a moment.
fn lock_own(lock: &File) -> io::Result<()> {
    Ok(base::lock_within(lock, LOOKED_MAX)?)
}

/// Names of all images of this user, in order, also of those that have died.
pub fn names() -> Result<Vec<Name>, Failure> {
    let bases = base::all()?;
    let entries = bases.iter().flat_map(fs::read_dir).flatten().flatten();
    let mut names: Vec<Name> =
        entries.filter_map(|entry| Name::parse(&entry.file_name()).ok()).collect();
    names.sort_by(|one, two| one.0.cmp(&two.0));
    names.dedup();
    Ok(names)
}

/// Why there cannot be another image of that name.
fn taken(name: &Name, path: &Path) -> Failure {
    let what = format!("cannot make image {name}");
    let place = Place::open(name, path).ok();
    if place.as_ref().is_some_and(|place| place.is_held() || adopt::revive(place)) {
        let remedy = format!("husk exec {name} -- COMMAND, or choose another name");
        return Failure::new(what, "it is up already", remedy);
    }
    let ended = place.as_ref().is_some_and(|place| place.ended().is_some());
    let how = if ended { "ended, and its result was not reported yet" } else { "died" };
    let mut why = format!("one of that name has {how}");
    if let Some(word) = place.and_then(|place| place.last_word()) {
        why.push_str(&format!(" ({word})"));
    }
    Failure::new(what, why, format!("clean up first: husk down {name}"))
}

impl Place {
    /// The directory of an image that is there, alive or not.
    pub fn find(name: &Name) -> Result<Place, Failure> {
        let missing = || {
            let what = format!("cannot find image {name}");
            Failure::new(what, "there is no such image", MISSING)
        };
        for base in base::all()? {
            let path = base.join(&name.0);
            match Place::open(name, &path) {
                Ok(place) => return Ok(place),
                Err(problem) if problem.kind() == io::ErrorKind::NotFound => {}
                Err(problem) => {
                    let what = format!("cannot look at image {name}");
                    let remedy = base::remedy(&problem, format!("remove {}", path.display()));
                    return Err(Failure::new(what, reason(&problem), remedy));
                }
            }
        }
        Err(missing())
    }

    /// The directory of an image, at `path`.
    pub fn at(name: &Name, path: &Path) -> Result<Place, Failure> {
        Place::open(name, path).map_err(|problem| {
            let what = format!("cannot look at image {name}");
            Failure::new(what, reason(&problem), "see `husk ls`")
        })
    }

    fn open(name: &Name, path: &Path) -> io::Result<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        Ok(Place { name: name.clone(), path: path.to_owned(), directory })
    }

    /// Takes a name for a new image.
    pub fn take(name: &Name) -> Result<Held, Failure> {
        let there = || base::all().map(|bases| bases.into_iter().map(|base| base.join(&name.0)));
        if let Some(path) = there()?.find(|path| path.symlink_metadata().is_ok()) {
            // One that makes it at this moment has its lock when this lock is free.
            drop(path.parent().map(base::lock));
            return Err(taken(name, &path));
        }
        base::first(|base| Place::take_in(base, name))?.map_err(|path| taken(name, &path))
    }

    /// The same with the first of `Name::and_numbered` that nobody has.
    pub fn take_free(name: &Name) -> Result<Held, Failure> {
        let mut all = name.and_numbered();
        loop {
            let taken = all.next().map(|name| (Place::take(&name), name));
            match taken {
                Some((Err(_), name)) if Place::find(&name).is_ok() => {}
                Some((held, _)) => return held,
                None => return Place::take(name),
            }
        }
    }

    /// The same in one place; the path, where another `husk` has just taken it.
    fn take_in(base: &Path, name: &Name) -> io::Result<Result<Held, PathBuf>> {
        let _base = base::lock(base)?;
        let path = base.join(&name.0);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {
                return Ok(Err(path));
            }
            made => made?,
        }
        let held = Place::open(name, &path).and_then(Place::hold);
        if held.is_err() {
            // Nothing is in it that anybody needs.
            let _ = fs::remove_dir_all(&path);
        }
        held.map(Ok)
    }

    /// The directory that was just made, with its lock and its room.
    fn hold(self) -> io::Result<Held> {
        let lock = self.lock_file(true)?;
        lock_own(&lock)?;
        let room =
            OpenOptions::new().write(true).create(true).truncate(false).open(self.inside(ROOM))?;
        match fallocate(&room, FallocateFlags::empty(), 0, ROOM_BYTES) {
            // Not every file system can promise room.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(Held { place: self, lock }),
            Err(problem) => Err(problem.into()),
        }
    }

    /// Whatever was found: the directory of an image nobody supervises, held by us.
    pub fn adopt(&self) -> Result<Adopted, Failure> {
        let what = format!("cannot clean up after image {}", self.name);
        let failed = |problem: io::Error| {
            let remedy = base::remedy(&problem, format!("remove {}", self.path.display()));
            Failure::new(&what, reason(&problem), remedy)
        };
        if self.is_held() {
            return Ok(Adopted::Supervised);
        }
        let _base = base::lock(self.base()).map_err(failed)?;
        let lock = match self.lock_file(true) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(Adopted::Gone),
            other => other.map_err(failed)?,
        };
        if lock_own(&lock).is_err() {
            return Ok(Adopted::Supervised);
        }
        // Not by its path, which may be another one's by now.
        let place = self.again().map_err(failed)?;
        Ok(Adopted::Held(Held { place, lock }))
    }

    /// Whether this directory still has its name: it may have been removed from outside, and
    /// another image have the name since.
    fn is_there(&self) -> io::Result<bool> {
        let ours = rustix::fs::fstat(&self.directory)?;
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (ours.st_dev, ours.st_ino)),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// The directory that this one is in.
    pub fn base(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn lock_file(&self, make: bool) -> io::Result<File> {
        let nofollow = OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make).truncate(false).mode(0o600);
        options.custom_flags(nofollow).open(self.inside("lock"))
    }

    /// Whether a supervisor is there. Looking takes the lock for a moment, shared with others who
    /// look: whoever is to have it tries again (`lock_own`).
    pub fn is_held(&self) -> bool {
        let Ok(lock) = self.lock_file(false) else { return false };
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Short whatever the path is, as addresses of sockets must be, and never through another's.
    fn inside(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{file}", self.directory.as_raw_fd()))
    }

    /// A connection on which nothing is sent for ever; the queue of one that is stopped is full
    /// some time.
    fn connect_within(&self, patience: Duration) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let stream = UnixStream::from(socket);
        // Bounds the wait for room in the queue, too.
        stream.set_write_timeout(Some(patience))?;
        connect(&stream, &SocketAddrUnix::new(self.inside("socket"))?)?;
        Ok(stream)
    }

    /// Connects to the supervisor; where that is just starting, waits for it.
    pub fn connect(&self) -> Result<UnixStream, Failure> {
        let since = Instant::now();
        while self.is_starting() && since.elapsed() < STARTS_MAX {
            sleep(LOOK);
        }
        self.connect_now()
    }

    /// Whether somebody has it who does not listen yet.
    fn is_starting(&self) -> bool {
        let listens = self.inside("socket").symlink_metadata().is_ok();
        !listens && self.is_ending().is_none() && self.is_held()
    }

    /// The same without waiting.
    pub fn connect_now(&self) -> Result<UnixStream, Failure> {
        let problem = match self.connect_within(CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(problem) => problem,
        };
        let name = &self.name;
        let what = format!("cannot reach image {name}");
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        if gone.contains(&problem.kind())
            && !self.is_held()
            && adopt::revive(self)
            && let Ok(stream) = self.connect_within(CONNECT_MAX)
        {
            return Ok(stream);
        }
        Err(if problem.kind() == io::ErrorKind::WouldBlock {
            let why = "its supervisor is stopped or busy, and many wait for it already";
            Failure::new(what, why, "let it go on (kill -CONT, see `husk ls`), or try again")
        } else if !gone.contains(&problem.kind()) {
            let remedy = base::remedy(&problem, format!("clean up: husk down {name}"));
            Failure::new(what, reason(&problem), remedy)
        } else if self.is_held() {
            Failure::new(what, "it is just starting, or going down", "try again")
        } else {
            Failure::new(what, "its supervisor has died", format!("clean up: husk down {name}"))
        })
    }

    /// Whether its end has begun.
    pub fn is_ending(&self) -> Option<bool> {
        Some(self.read("ending").ok()? == DISCARD)
    }

    /// Its end begins, and is to be continued whatever happens.
    pub fn begin_end(&self, discard: bool) -> io::Result<()> {
        self.write("ending", if discard { DISCARD } else { WRITE_BACK })
    }

    /// A sign that somebody works at the end.
    pub fn touch_ending(&self) {
        let ending = OpenOptions::new().write(true).open(self.inside("ending"));
        // Without it who waits for the end gives up at some time.
        let _ = ending.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// When that was.
    pub fn ending_touched(&self) -> Option<SystemTime> {
        fs::metadata(self.inside("ending")).and_then(|found| found.modified()).ok()
    }

    /// Its end is complete: nothing is to be done again, whoever dies now.
    pub fn complete_end(&self, ended: &Ended) -> io::Result<()> {
        self.write("ended", &serde_json::to_string(ended)?)
    }

    /// How it ended, if that is complete.
    pub fn ended(&self) -> Option<Ended> {
        serde_json::from_slice(&fs::read(self.inside("ended")).ok()?).ok()
    }

    /// Where the write-back notes what it has done, as long as this place is open.
    pub fn ledger(&self) -> PathBuf {
        self.inside("written")
    }

    /// Where it keeps what indexes of git said when the image first saw them.
    pub fn indexes(&self) -> PathBuf {
        self.inside("indexes")
    }

    /// What is locked by whoever has the turn (`turns`).
    pub fn turn(&self) -> PathBuf {
        self.inside("turn")
    }

    /// The same directory, opened once more.
    pub fn again(&self) -> io::Result<Place> {
        let directory = self.directory.try_clone()?;
        Ok(Place { name: self.name.clone(), path: self.path.clone(), directory })
    }

    /// Where the supervisor answers.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(self.inside("socket"))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// It does not answer any more.
    pub fn stop_listening(&self) {
        // Whoever connects to what is left is refused.
        let _ = fs::remove_file(self.inside("socket"));
    }

    /// Writes `text` to `file`, as a whole.
    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let write = || host::replace(&self.inside(file), text.as_bytes());
        write().or_else(|problem| match problem.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.remove(ROOM);
                write()
            }
            _ => Err(problem),
        })
    }

    /// What `file` holds; an error also where that is no text or too long.
    pub fn read(&self, file: &str) -> io::Result<String> {
        let path = self.inside(file);
        let found = fs::symlink_metadata(&path)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        fs::read_to_string(path)
    }

    /// Removes `file`, if it is there.
    pub fn remove(&self, file: &str) {
        // With the image it has gone, too.
        let _ = fs::remove_file(self.inside(file));
    }

    /// What the image was made from.
    pub fn facts(&self) -> Option<Status> {
        serde_json::from_str(&self.read("facts").ok()?).ok()
    }

    /// Where it is shown, as far as minders have said.
    pub fn mounts(&self) -> Vec<Record> {
        let listing = fs::read_dir(self.inside("")).into_iter().flatten().flatten();
        let names = listing.filter_map(|entry| entry.file_name().into_string().ok());
        let texts = names.filter(|name| name.starts_with(MOUNT)).flat_map(|name| self.read(&name));
        texts.filter_map(|text| serde_json::from_str(&text).ok()).collect()
    }

    /// A file for what the supervisor says.
    pub fn open_log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.inside("log"))
    }

    /// The last lines of it.
    pub fn log(&self) -> Vec<String> {
        let text = self.read("log").unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES_MAX)..];
        last.iter().map(|line| line.strip_prefix("husk: ").unwrap_or(line).to_owned()).collect()
    }

    /// The very last of them.
    pub fn last_word(&self) -> Option<String> {
        let last = self.log().pop()?;
        Some(last.replace(char::is_control, "?"))
    }
}

impl Held {
    /// Gives the name back: nothing is left of the image.
    pub fn remove(&self) -> io::Result<()> {
        // Without the lock somebody may find half a directory: that is better than a whole one.
        let _base = base::lock(self.place.base());
        if self.place.is_there()? { fs::remove_dir_all(&self.place.path) } else { Ok(()) }
    }

    /// Whether all is there by which others find the image (invariant 3).
    pub fn is_whole(&self) -> bool {
        let ours = || Some((fstat(&self.lock).ok()?, self.place.lock_file(false).ok()?));
        let same = ours().is_some_and(|(ours, found)| {
            fstat(&found)
                .is_ok_and(|found| (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino))
        });
        same && self.place.is_there().unwrap_or(true)
            && self.place.inside("socket").symlink_metadata().is_ok()
    }

    /// Makes directory and lock again where they have vanished. Not where another image has taken
    /// the name since.
    pub fn restore(&mut self) -> io::Result<()> {
        base::restore(self.place.base())?;
        let _base = base::lock(self.place.base())?;
        match DirBuilder::new().mode(0o700).create(&self.place.path) {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => return Err(problem),
            _ => {}
        }
        let place = Place::open(&self.place.name, &self.place.path)?;
        let lock = place.lock_file(true)?;
        let mine = fstat(&self.lock)?;
        let found = fstat(&lock)?;
        if (mine.st_dev, mine.st_ino) != (found.st_dev, found.st_ino) {
            lock_own(&lock).map_err(|_| io::Error::other("another image has its name now"))?;
            self.lock = lock;
        }
        self.place = place;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_keeps_nobody_from_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let looks = open();
        flock(&looks, FlockOperation::NonBlockingLockShared).unwrap();
        let gone = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            drop(looks);
        });
        let lock = open();
        lock_own(&lock).unwrap();
        gone.join().unwrap();
        assert!(lock_own(&open()).is_err(), "a supervisor has it");
    }

    #[test]
    fn names_are_plain_words() {
        use husk_runtime::entry::is_name;
        for fit in ["ci", "a", "Build-2_x", &"n".repeat(64)] {
            assert!(Name::parse(OsStr::new(fit)).is_ok(), "{fit}");
            assert!(is_name(fit.as_bytes()), "{fit}, before the C library");
        }
        let long = "n".repeat(300);
        for unfit in ["", ".", "..", "a/b", "/", "a.b", "1", "-a", "a b", "ä", &long, "a\n"] {
            assert!(!is_name(unfit.as_bytes()), "{unfit}, before the C library");
            let failure = Name::parse(OsStr::new(unfit)).unwrap_err();
            assert_eq!((failure.status, failure.to_string().lines().count()), (125, 1));
            assert!(failure.to_string().len() < 300, "{failure}");
        }
    }
}
