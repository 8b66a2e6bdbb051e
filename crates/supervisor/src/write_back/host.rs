//! The host's side: identities, temporary names, times.
//!
//! A temporary name is `.husk-tmp-<pid namespace>-<pid>-<counter>`. Whatever carries such a name
//! is either new and not yet in place, or old and already replaced: it can be removed once its
//! maker is gone, and the next write-back that touches the directory does so. `husk cp` makes such
//! names as well (`named::parcel`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use husk_proto::fs::{Attributes, HostIdentity, Imported, Kind};
use husk_proto::image::OWN_NAMES as PREFIX;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid};

use super::unlock;
use crate::clock;

/// Nanoseconds.
pub const NS_PER_S: i64 = 1_000_000_000;

/// Makes temporary names that no other run makes.
#[derive(Debug)]
pub struct Names {
    stem: String,
}

/// The last number given to a name of this process, whoever asked for it.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Names {
    /// Names of this process.
    pub fn of_this_process() -> Self {
        let prefix = String::from_utf8_lossy(PREFIX);
        Self { stem: format!("{prefix}{:x}-{}-", pid_namespace(), std::process::id()) }
    }

    /// A path in `directory` at which nothing is: what a process of the same number has left may
    /// stand under any name of ours.
    pub fn fresh(&mut self, directory: &Path) -> PathBuf {
        loop {
            let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let path = directory.join(format!("{}{number}", self.stem));
            if !matches!(identity(&path), Ok(Some(_))) {
                return path;
            }
        }
    }
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Removes what earlier, interrupted write-backs left in `directory`.
pub fn remove_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if is_leftover(&entry.file_name()) {
            // A leftover that cannot be removed does no harm: it stays recognisable.
            let _ = remove_tree(&entry.path());
        }
    }
}

/// Whether `name` is a temporary name, whoever made it: no image shows it.
pub fn is_own(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX)
}

/// Whether `name` is a temporary name whose maker is gone.
pub fn is_leftover(name: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(PREFIX).and_then(|rest| std::str::from_utf8(rest).ok());
    let Some(rest) = rest else { return false };
    let mut parts = rest.split('-');
    let (Some(namespace), Some(pid)) = (parts.next(), parts.next()) else { return false };
    let ours = u64::from_str_radix(namespace, 16) == Ok(pid_namespace());
    ours && pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes a file, symlink or whole directory, unwritable ones of ours too; missing is fine.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_directory(path),
        Ok(_) => fs::remove_file(path),
        Err(problem) => Err(problem),
    };
    match removed {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {
            unlock::open_tree(path);
            fs::remove_dir_all(path)
        }
        other => other,
    }
}

/// Identity of what is at `path` now, not following a symlink; `None` when nothing is.
pub fn identity(path: &Path) -> io::Result<Option<HostIdentity>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(identity_of(&found))),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem)
            if problem.raw_os_error() == Some(rustix::io::Errno::NOTDIR.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(problem) => Err(problem),
    }
}

/// The same of metadata in hand.
pub fn identity_of(found: &fs::Metadata) -> HostIdentity {
    HostIdentity {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified_ns: found.mtime() * NS_PER_S + found.mtime_nsec(),
        changed_ns: found.ctime() * NS_PER_S + found.ctime_nsec(),
    }
}

/// What an image makes of an object in a directory of this device.
pub fn kind_of(found: &fs::Metadata, device: u64) -> Kind {
    match found.file_type() {
        kind if kind.is_symlink() => Kind::Symlink,
        _ if found.dev() != device => Kind::Portal,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_file() => Kind::File,
        _ => Kind::Portal,
    }
}

/// As what an image imports it by this name; `target`: of a symlink.
pub fn imported<'a>(
    name: &'a OsStr,
    kind: Kind,
    found: &fs::Metadata,
    target: &'a Path,
) -> Imported<'a> {
    Imported {
        name: name.as_bytes(),
        kind,
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        identity: identity_of(found),
        accessed_ns: found.atime() * NS_PER_S + found.atime_nsec(),
        born_ns: clock::born_ns(found),
        blocks_512: found.blocks(),
        target: target.as_os_str().as_bytes(),
    }
}

/// Makes the FIFO, socket or device that `wanted` describes. Devices need a privilege.
pub fn make_special(path: &Path, wanted: &Attributes) -> io::Result<()> {
    let kind = match wanted.step.kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::BlockDevice => FileType::BlockDevice,
        _ => FileType::CharacterDevice,
    };
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), wanted.device.into())?;
    Ok(())
}

/// Sets owner (if permitted), mode and times of `path`, which may be a symlink (no mode then).
pub fn set_attributes(path: &Path, wanted: &Attributes) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let owner = (wanted.step.uid, wanted.step.gid);
    if owner != (found.uid(), found.gid()) {
        // Owner if permitted: an ordinary user may not give files away, as with `cp -a`.
        let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        let _ = rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    }
    // After the owner: changing it clears the set-ID bits.
    let mode = wanted.step.mode & 0o7777;
    let differs = fs::symlink_metadata(path)?.mode() & 0o7777 != mode;
    if differs && !found.file_type().is_symlink() {
        rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    let times = Timestamps {
        last_access: timespec(wanted.accessed_ns),
        last_modification: timespec(wanted.modified_ns),
    };
    match rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW) {
        // A directory of somebody else that we may write into: its times follow by themselves.
        Err(rustix::io::Errno::PERM) if found.is_dir() => Ok(()),
        other => Ok(other?),
    }
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(NS_PER_S), tv_nsec: ns.rem_euclid(NS_PER_S) }
}

/// Replaces `file` as a whole, by way of a name beside it that nobody else makes.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(new, file)
}

/// Where the image's version stands, and what to do about there being two.
pub fn beside_in_words(aside: &Path) -> String {
    format!("{}; compare them, and keep one", aside.display())
}

/// Makes names in `directory` durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

/// Bytes of a path as the image names it.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Whether there is a directory, not a link to one.
pub fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_is_what_a_dead_process_of_this_namespace_made() {
        let here = pid_namespace();
        assert!(is_leftover(OsStr::new(&format!(".husk-tmp-{here:x}-4294967294-1"))));
        assert!(!is_leftover(OsStr::new(&format!(".husk-tmp-{here:x}-{}-1", std::process::id()))));
        assert!(!is_leftover(OsStr::new(&format!(".husk-tmp-{:x}-4294967294-1", here + 1))));
        assert!(!is_leftover(OsStr::new(".husk-tmp-")));
        assert!(!is_leftover(OsStr::new("husk")));
    }

    #[test]
    fn leftovers_go_and_everything_else_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let left = scratch.path().join(format!(".husk-tmp-{:x}-4294967294-7", pid_namespace()));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("half"), b"x").unwrap();
        fs::write(scratch.path().join("mine"), b"x").unwrap();
        remove_leftovers(scratch.path());
        assert!(!left.exists());
        assert!(scratch.path().join("mine").exists());
    }

    #[test]
    fn times_before_the_epoch_are_set_exactly() {
        assert_eq!(timespec(-1), Timespec { tv_sec: -1, tv_nsec: NS_PER_S - 1 });
    }
}
