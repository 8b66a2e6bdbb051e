//! Where an area can be: a file of a local file system that knows O_DIRECT, or a block device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, fstatfs};
use rustix::io::Errno;

use super::Unfit;
use crate::Problem;
use crate::disk::{Aligned, BLOCK, Disk, Pwrite};
use crate::problem::reason;

/// How long another `husk` may look at an area before it counts as its user.
const LOCK_MAX: Duration = Duration::from_millis(500);
/// Between two tries.
const LOOK: Duration = Duration::from_millis(5);
/// What is written or read at once.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// How much of a device must be empty before an area is made on it.
const EMPTY_BYTES: u64 = 1 << 20;

/// File systems that areas are not made on, by their number (statfs(2)), and why.
const REFUSED: &[(u64, &str)] = &[
    (0x0102_1994, "it is a file system in memory (tmpfs)"),
    (0x8584_58f6, "it is a file system in memory (ramfs)"),
    (0x9584_58f6, "it is a file system in memory (hugetlbfs)"),
    (0x6969, "it is on another machine (NFS)"),
    (0xff53_4d42, "it is on another machine (SMB)"),
    (0xfe53_4d42, "it is on another machine (SMB)"),
    (0x517b, "it is on another machine (SMB)"),
    (0x5346_414f, "it is on another machine (AFS)"),
];
const ELSEWHERE: &str = "name a directory of a local disk with --on";

/// What is done with an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It is looked at, whoever has it.
    Look,
    /// It is read and written.
    Have,
    /// It is made.
    Make,
}

/// Why an area cannot be on a file system of this number.
fn refusal(number: u64) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == number).map(|(_, why)| *why)
}

/// Opens the area at `path`.
pub fn open(path: &Path, used: Use) -> io::Result<File> {
    let is_device = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    // Of a device, O_EXCL keeps file systems and others who say it away.
    let flags = match (used, is_device) {
        (Use::Look, _) => OFlags::empty(),
        (_, true) => OFlags::EXCL,
        (_, false) => OFlags::NOFOLLOW,
    };
    let mut options = OpenOptions::new();
    options.read(true).write(used != Use::Look);
    options.create_new(used == Use::Make && !is_device).mode(0o600);
    options.custom_flags((flags | OFlags::DIRECT | OFlags::NONBLOCK).bits() as i32).open(path)
}

/// Refuses file systems on which nothing would be durable, or two machines could write.
pub fn check_file_system(directory: &File, what: &str) -> Result<(), Problem> {
    let found = fstatfs(directory).map_err(|error| Problem::of(what, &error.into()))?;
    match refusal(found.f_type as u64) {
        Some(why) => Err(Problem::new(what, why, ELSEWHERE)),
        None => Ok(()),
    }
}

/// Whether an `open` to make a file has failed and left it there: Linux makes it before it finds
/// that the file system has no O_DIRECT. One that was there before has another error.
pub fn has_made(path: &Path, error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
        && path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
}

/// Why opening it to make it failed.
pub fn cannot_open(what: &str, path: &Path, error: &io::Error) -> Problem {
    let shown = path.display();
    match Errno::from_io_error(error) {
        Some(Errno::INVAL) => Problem::new(what, "its file system has no O_DIRECT", ELSEWHERE),
        Some(Errno::EXIST) => Problem::new(
            what,
            format!("{shown} is already there"),
            "remove it, or choose another name",
        ),
        Some(Errno::BUSY) => Problem::new(
            what,
            format!("{shown} is mounted, or in use"),
            "unmount it, or name another device",
        ),
        _ => Problem::of(what, error),
    }
}

/// Takes the lock of an area for as long as the file is open, here or where it was passed to.
pub fn lock(file: &File) -> io::Result<bool> {
    let since = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if since.elapsed() < LOCK_MAX => std::thread::sleep(LOOK),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether somebody has it. Whoever wants it at this moment waits for us (`LOCK_MAX`).
pub fn is_locked(file: &File) -> bool {
    let locked = flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    // It goes with the file, too.
    let _ = flock(file, FlockOperation::Unlock);
    locked
}

/// Bytes of a file or a device.
pub fn length_bytes(file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    if found.file_type().is_block_device() {
        return Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?);
    }
    Ok(found.len())
}

/// Writes zeros over the whole area, so that no later write allocates or converts an extent. `told`
/// is told how many bytes are written, and says whether to go on.
pub fn fill(file: &File, size_bytes: u64, told: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
    if file.metadata()?.is_file() {
        match fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
            // There is not always such a call; the zeros find out as well.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let disk = Pwrite::new(file.try_clone()?, size_bytes);
    let zeros = Aligned::zeroed(CHUNK_BYTES);
    for at in (0..size_bytes).step_by(CHUNK_BYTES) {
        let length = (size_bytes - at).min(CHUNK_BYTES as u64) as usize;
        disk.write(at, &zeros[..length])?;
        if !told(at + length as u64) {
            return Err(Errno::CANCELED.into());
        }
    }
    file.sync_all()
}

/// Refuses a device on which something is, or that is too small.
pub fn check_device(file: &File, size_bytes: u64, what: &str) -> Result<(), Problem> {
    let failed = |error: io::Error| Problem::of(what, &error);
    let length = length_bytes(file).map_err(failed)?;
    if length < size_bytes {
        let most = length / BLOCK * BLOCK;
        let why = format!("the device has {length} bytes");
        return Err(Problem::new(what, why, format!("choose at most --size {most}")));
    }
    let looked_at = EMPTY_BYTES.min(size_bytes);
    let mut begin = Aligned::zeroed(looked_at as usize);
    let disk = Pwrite::new(file.try_clone().map_err(failed)?, length / BLOCK * BLOCK);
    disk.read(0, &mut begin).map_err(failed)?;
    match begin.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => Err(Problem::new(
            what,
            format!("the device is not empty (byte {at})"),
            "if its content is not needed, write zeros over its first MiB",
        )),
    }
}

/// Where the area at `path` is made anew.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Removes a file, if it is there.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes a new name in its directory durable.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    File::open(parent)?.sync_all()
}

/// Whether an error is that of a device without a disk.
pub fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOMEDIUM | Errno::NXIO | Errno::NODEV))
}

/// What is told of an error of the host about an area that is there.
pub fn cannot_use(what: &str, path: &Path, error: &io::Error) -> Problem {
    if is_absent(error) {
        let (why, remedy) = Unfit::Absent.told(path);
        return Problem::new(what, why, remedy);
    }
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Problem::new(
            what,
            format!("{shown} is gone"),
            "bring it back, or forget the volume with `husk volume rm --forget`",
        ),
        io::ErrorKind::PermissionDenied => {
            Problem::new(what, format!("{shown} is not yours"), "run it as its owner")
        }
        _ => {
            Problem::new(what, format!("{shown}: {}", reason(error)), "look at the disk (`dmesg`)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_other_machines_are_refused_and_local_disks_are_not() {
        for number in [0x6969, 0x0102_1994, 0xfe53_4d42] {
            assert!(refusal(number).is_some(), "{number:x}");
        }
        for ext4_xfs_btrfs in [0xef53, 0x5846_5342, 0x9123_683e] {
            assert_eq!(refusal(ext4_xfs_btrfs), None);
        }
        let shm = File::open("/dev/shm").unwrap();
        let problem = check_file_system(&shm, "cannot make volume x").unwrap_err();
        assert!(problem.to_string().contains("in memory (tmpfs); name a directory"), "{problem}");
    }

    #[test]
    fn a_full_disk_and_a_used_up_quota_are_told_with_what_to_do() {
        for (errno, why) in
            [(Errno::NOSPC, "no space left on device"), (Errno::DQUOT, "quota exceeded")]
        {
            let told = cannot_open("cannot make volume x", Path::new("/x"), &errno.into());
            let told = told.to_string();
            assert!(told.contains(why) && told.contains("make room, or name another"), "{told}");
        }
    }

    #[test]
    fn a_file_system_without_direct_access_is_named_as_the_reason() {
        let invalid = io::Error::from(Errno::INVAL);
        let problem = cannot_open("cannot make volume x", Path::new("/x"), &invalid);
        assert!(problem.to_string().contains("no O_DIRECT"), "{problem}");
    }
}
