//! Attributes of an object, as programs of the image see them, in FUSE's form.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{FileType as Kind, Stat};
use rustix::process::{getegid, geteuid};

/// What `stat` counts as a block, bytes, is not this but half a KiB; this is what is best read.
const BLOCK_BYTES: u32 = 4096;

/// What `found` says of the object with this number.
pub fn of_found(number: u64, found: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: found.st_size as u64,
        blocks: found.st_blocks as u64,
        atime: time(found.st_atime, found.st_atime_nsec),
        mtime: time(found.st_mtime, found.st_mtime_nsec),
        ctime: time(found.st_ctime, found.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind_of(found.st_mode),
        perm: (found.st_mode & 0o7777) as u16,
        nlink: found.st_nlink as u32,
        uid: found.st_uid,
        gid: found.st_gid,
        // Both sides write the numbers of a device as 32 bits in the same way.
        rdev: found.st_rdev as u32,
        blksize: found.st_blksize as u32,
        flags: 0,
    }
}

/// A directory that only leads to trees.
pub fn joint(number: u64) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: FileType::Directory,
        perm: 0o555,
        nlink: 2,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = match u64::try_from(seconds) {
        Ok(after) => SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(after)),
        Err(_) => SystemTime::UNIX_EPOCH.checked_sub(Duration::from_secs(seconds.unsigned_abs())),
    };
    // What no clock shows is shown as the beginning.
    let whole = whole.unwrap_or(SystemTime::UNIX_EPOCH);
    whole + Duration::from_nanos(nanoseconds)
}

/// What `mode` says that something is.
pub fn kind_of(mode: u32) -> FileType {
    kind_of_entry(Kind::from_raw_mode(mode)).unwrap_or(FileType::RegularFile)
}

/// The same of a directory's entry; `None`: it does not say.
pub fn kind_of_entry(kind: Kind) -> Option<FileType> {
    Some(match kind {
        Kind::RegularFile => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_keep_their_order() {
        let (late, early) = (time(-1, 500_000_000), time(-2, 750_000_000));
        let before = |time: SystemTime| SystemTime::UNIX_EPOCH.duration_since(time).unwrap();
        assert_eq!(before(late), Duration::from_millis(500));
        assert_eq!(before(early), Duration::from_millis(1250));
    }
}
