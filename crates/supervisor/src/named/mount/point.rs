//! Checks a mount point: an empty directory of the host that no image covers.
//!
//! ```text
//!   DIR typed ─► real path ─► opened ─► mounted on? below a mount or an overlay? empty?
//! ```
//!
//! Invariants
//! 1. No directory that an image with a name overlays shows an image, and none lies in what another
//!    shows. Who looked for files there in the image would ask the server of the mount, and that
//!    the image, and so on: for ever, or until all threads of a server wait for each other.
//! 2. What was looked at is mounted on, and nothing that has taken its path since: it is open from
//!    the first look on.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::named::place::{self, Place};
use crate::output::failure::Failure;
use crate::run::request::reason;

/// What the host calls our mounts.
pub const KIND: &str = "fuse.husk";

/// One of our mounts, as the host lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where.
    pub directory: PathBuf,
    /// Its number among devices, which no other mount has while it stands.
    pub device: String,
    /// `husk:NAME`, and what of it.
    pub source: String,
}

/// All of our mounts that this process can see, in the order in which they were made.
pub fn standing() -> Vec<Standing> {
    let all = mounts().into_iter();
    all.filter(|(kind, _)| kind == KIND).map(|(_, standing)| standing).collect()
}

/// All mounts that this process can see, each with the kind of its file system.
pub fn mounts() -> Vec<(String, Standing)> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(listed).collect()
}

/// The mount in which `path` lies, or which is there.
pub fn standing_over(path: &Path) -> Option<Standing> {
    standing().into_iter().rfind(|one| path.starts_with(&one.directory))
}

/// The mount that covers `directory` itself.
pub fn standing_at(directory: &Path) -> Option<Standing> {
    standing().into_iter().rfind(|one| one.directory == directory)
}

/// A line of `/proc/self/mountinfo`, as proc(5) describes it.
fn listed(line: &[u8]) -> Option<(String, Standing)> {
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    let (device, directory) = (words.next()?, words.nth(1)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (words.next()?, words.next()?);
    let standing = Standing {
        directory: PathBuf::from(plain(directory)),
        device: String::from_utf8_lossy(device).into_owned(),
        source: plain(source).to_string_lossy().into_owned(),
    };
    Some((String::from_utf8_lossy(kind).into_owned(), standing))
}

/// Blanks and the like are written there as `\040`.
fn plain(text: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, others @ ..] = rest {
        let number = || u8::from_str_radix(text_of(others.get(..3)?)?, 8).ok();
        match (first, number()) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The real path of `typed`, also where a mount stands whose server has died.
pub fn real(typed: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(typed) {
        Err(problem) if is_dead(&problem) => {
            let parent = typed.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")))?;
            Ok(typed.file_name().map_or(parent.clone(), |name| parent.join(name)))
        }
        other => other,
    }
}

/// Whether that is what the host says of a mount whose server has died.
fn is_dead(problem: &io::Error) -> bool {
    Errno::from_io_error(problem).is_some_and(|e| e == Errno::NOTCONN || e == Errno::CONNABORTED)
}

/// The image that overlays `directory`, and where.
fn overlay_over(directory: &Path) -> Option<(String, String)> {
    let covers = |path: &&String| directory.starts_with(path);
    let longest = |paths: &[String]| paths.iter().filter(covers).max_by_key(|p| p.len()).cloned();
    place::names().ok()?.into_iter().find_map(|name| {
        let facts = Place::find(&name).ok()?.facts()?;
        let overlay = longest(&facts.overlays)?;
        let hidden = longest(&facts.mounts).is_some_and(|mount| mount.len() > overlay.len());
        (!hidden).then(|| (name.to_string(), overlay))
    })
}

/// A directory that is open, so that it stays what was looked at.
#[derive(Debug)]
pub struct Point {
    /// Its real path, when it was opened.
    pub path: PathBuf,
    /// Itself; only good to be named by.
    pub directory: OwnedFd,
}

impl Point {
    /// Opens a directory by its real path; no link leads to it, whatever happens on the way.
    pub fn open(path: &Path) -> io::Result<Point> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let point = Point { path: path.to_owned(), directory };
        // A link may have taken the place of what leads there.
        if path_of(&point.directory)? == path { Ok(point) } else { Err(Errno::AGAIN.into()) }
    }
}

/// A name of what is open that leads there whatever has become of its path.
pub fn by_descriptor(directory: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()))
}

/// Where a directory that is open is now.
pub fn path_of(directory: impl AsFd) -> io::Result<PathBuf> {
    fs::read_link(by_descriptor(directory))
}

/// Where to show image `name`: the directory `typed`, if it is fit for that.
pub fn settle(name: &str, typed: &Path) -> Result<Point, Failure> {
    let shown = typed.display();
    let refuse = |why: String, remedy: String| {
        Failure::new(format!("cannot show image {name} at {shown}"), why, remedy)
    };
    let dead = || {
        let why = "what was mounted there has lost its server".to_owned();
        refuse(why, format!("end that mount first: husk umount {shown}"))
    };
    let unreadable = |problem: io::Error| match problem.kind() {
        io::ErrorKind::NotFound => {
            refuse("there is no such directory".to_owned(), format!("make it: mkdir {shown}"))
        }
        _ if is_dead(&problem) => dead(),
        _ => refuse(reason(&problem), "name a directory of yours".to_owned()),
    };
    let directory = fs::canonicalize(typed).map_err(unreadable)?;
    let looked = fs::symlink_metadata(&directory);
    if looked.as_ref().is_err_and(is_dead) {
        return Err(dead());
    }
    if let Some(one) = standing_at(&directory) {
        let why = format!("{} is shown there already", one.source);
        return Err(refuse(why, format!("end that first: husk umount {shown}")));
    }
    if !looked.map_err(unreadable)?.is_dir() {
        return Err(refuse("it is not a directory".to_owned(), "name one".to_owned()));
    }
    let elsewhere = "name a directory outside of it".to_owned();
    let point = Point::open(&directory).map_err(unreadable)?;
    if let Some(one) = standing_over(&directory) {
        return Err(refuse(format!("it is in what {} shows", one.source), elsewhere));
    }
    if let Some((image, overlay)) = overlay_over(&directory) {
        let why = format!("it is in {overlay}, which image {image} overlays");
        return Err(refuse(why, elsewhere));
    }
    let mut entries = fs::read_dir(by_descriptor(&point.directory)).map_err(unreadable)?;
    if entries.next().is_some() {
        let why = "it is not empty: its contents would be hidden".to_owned();
        return Err(refuse(why, "name an empty directory".to_owned()));
    }
    Ok(point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn mounts_are_known_with_their_kinds() {
        let ours = r"36 35 0:52 / /mnt/a\040b rw,nosuid shared:7 - fuse.husk husk:ci rw,user_id=0";
        let (kind, standing) = listed(ours.as_bytes()).unwrap();
        assert_eq!((&*kind, &*standing.directory), (KIND, Path::new("/mnt/a b")));
        assert_eq!((standing.device.as_str(), standing.source.as_str()), ("0:52", "husk:ci"));
        let other = listed(b"36 35 0:52 / /mnt rw - tmpfs husk:ci rw").unwrap();
        assert_eq!(other.0, "tmpfs");
        for none in ["36 35 0:52 / /mnt rw", "", "fuse.husk"] {
            assert_eq!(listed(none.as_bytes()), None, "{none}");
        }
        assert_eq!(plain(br"a\134b\"), r"a\b\");
        let odd = listed(b"36 35 0:52 / /mnt/\xff rw - fuse.husk husk:ci rw").unwrap().1;
        assert_eq!(odd.directory.as_os_str().as_bytes(), b"/mnt/\xff");
    }

    #[test]
    fn what_is_no_fit_directory_says_what_to_do() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        fs::write(at.join("file"), "x").unwrap();
        let why = |path: &Path| settle("ci", path).unwrap_err().to_string();
        assert!(why(&at.join("none")).contains("make it: mkdir"), "{}", why(&at.join("none")));
        assert!(why(&at.join("file")).contains("it is not a directory"));
        assert!(why(at).contains("it is not empty"), "{}", why(at));
        fs::create_dir(at.join("fit")).unwrap();
        assert_eq!(
            settle("ci", &at.join("fit")).unwrap().path,
            at.join("fit").canonicalize().unwrap()
        );
    }
}
