//! An object of the host that is held by a descriptor: whatever becomes of its name, what is done
//! is done to it.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, HostIdentity};
use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, accessat,
    chmodat, chownat, fchmod, getxattr, listxattr, openat, readlinkat, removexattr, setxattr,
    utimensat,
};
use rustix::io::Errno;

use super::schedule::before;
use super::{ANYTHING, path_of, through};
use crate::write_back::host::extended::Extended;
use crate::write_back::host::{self, NS_PER_S};
use crate::write_back::record::manifest::Facts;

/// What work in a directory takes.
const OWNER_ALL: u32 = 0o700;
/// Longest list of names, and longest value, that Linux has.
const LONGEST_BYTES: usize = 65536;
/// What a list of names takes, as a rule.
const USUAL_BYTES: usize = 1024;

/// The object, and what it was when it was opened.
#[derive(Debug)]
pub struct Held {
    descriptor: File,
    found: Metadata,
    /// The descriptor is for reading and writing, not of the path alone.
    made: bool,
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Held {
    /// By an O_PATH descriptor, or that of a file that was just made.
    pub fn of_path(descriptor: File) -> io::Result<Held> {
        before("fstat")?;
        let found = descriptor.metadata()?;
        Ok(Held { descriptor, found, made: false })
    }

    /// By the descriptor of a file that was made.
    pub fn of_file(file: File) -> io::Result<Held> {
        Ok(Held { made: true, ..Held::of_path(file)? })
    }

    /// The descriptor, for whoever makes the file durable.
    pub fn to_sync(&self) -> io::Result<File> {
        self.descriptor.try_clone()
    }

    /// The file, if it was opened or made for reading and writing.
    pub fn file(&self) -> io::Result<&File> {
        if self.made { Ok(&self.descriptor) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Writes all of `bytes` at the end of a file that was opened for that.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        before("write")?;
        self.file()?.write_all(bytes)
    }

    /// Whether the descriptor is that of a file that this process made.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// What is at a path, for those who look and change nothing.
    pub fn at(path: &Path) -> io::Result<Held> {
        Held::of_path(File::from(openat(CWD, path, ANYTHING, Mode::empty())?))
    }

    /// What it was when it was opened.
    pub fn found(&self) -> &Metadata {
        &self.found
    }

    /// The same as it is now.
    pub fn now(&self) -> io::Result<Metadata> {
        before("fstat")?;
        self.descriptor.metadata()
    }

    /// Its identity when it was opened.
    pub fn identity(&self) -> HostIdentity {
        host::identity_of(&self.found)
    }

    /// A path that leads to it, if links are followed.
    pub(super) fn through(&self) -> PathBuf {
        through(&self.descriptor)
    }

    /// Where it leads, if it is a link.
    pub fn read_link(&self) -> io::Result<PathBuf> {
        before("readlinkat")?;
        Ok(path_of(readlinkat(&self.descriptor, "", Vec::new())?.into_bytes()))
    }

    /// For reading, if it is a regular file.
    pub fn read(&self) -> io::Result<File> {
        if !self.found.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        before("open")?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        Ok(File::from(openat(CWD, self.through(), flags, Mode::empty())?))
    }

    /// Sets owner (if permitted), mode and times; a symlink has no mode.
    pub fn set_attributes(&self, wanted: &Attributes) -> io::Result<()> {
        self.set_attributes_around(wanted, || false)
    }

    /// The same; what is `between` needs the last owner, and a mode that denies nothing. It says
    /// whether the mode may be another after it.
    pub fn set_attributes_around(
        &self,
        wanted: &Attributes,
        between: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        // What was just made is as it was found.
        let mut found = if self.made { self.found.clone() } else { self.now()? };
        let owner = (wanted.step.uid, wanted.step.gid);
        if owner != (found.uid(), found.gid()) {
            // Owner if permitted: an ordinary user may not give files away, as with `cp -a`.
            let _ = self.set_owner(owner);
            found = self.now()?;
        }
        if between() {
            found = self.now()?;
        }
        // After the owner: changing it clears the set-ID bits.
        let mode = wanted.step.mode & 0o7777;
        if found.mode() & 0o7777 != mode && !found.is_symlink() {
            self.set_mode(mode)?;
        }
        self.set_times(wanted.accessed_ns, wanted.modified_ns, found.is_dir())
    }

    /// Sets owner (if permitted), mode and the time of the last modification; of a symlink no mode.
    pub fn set_plain(&self, owner: (u32, u32), mode: u32, modified_ns: i64) -> io::Result<()> {
        if owner != (self.found.uid(), self.found.gid()) {
            // As in `set_attributes`.
            let _ = self.set_owner(owner);
        }
        if !self.found.is_symlink() {
            self.set_mode(mode)?;
        }
        self.set_times(modified_ns, modified_ns, self.found.is_dir())
    }

    /// Sets the times.
    pub fn set_times(&self, accessed_ns: i64, modified_ns: i64, directory: bool) -> io::Result<()> {
        let times = Timestamps {
            last_access: timespec(accessed_ns),
            last_modification: timespec(modified_ns),
        };
        before("utimensat")?;
        match utimensat(&self.descriptor, "", &times, AtFlags::EMPTY_PATH) {
            // A directory of somebody else that we may write into: its times follow by themselves.
            Err(Errno::PERM) if directory => Ok(()),
            other => Ok(other?),
        }
    }

    fn set_owner(&self, (uid, gid): (u32, u32)) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        before("fchownat")?;
        Ok(chownat(&self.descriptor, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
    }

    /// Sets the mode of what is no link.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        before("fchmod")?;
        if self.made {
            return Ok(fchmod(&self.descriptor, Mode::from_raw_mode(mode))?);
        }
        Ok(chmodat(CWD, self.through(), Mode::from_raw_mode(mode), AtFlags::empty())?)
    }

    /// Sets these, the owner as far as that is permitted.
    pub fn set_facts(&self, wanted: &Facts) -> io::Result<()> {
        let found = self.now()?;
        if (wanted.uid, wanted.gid) != (found.uid(), found.gid()) {
            let _ = self.set_owner((wanted.uid, wanted.gid));
        }
        if self.now()?.mode() & 0o7777 != wanted.mode && !found.is_symlink() {
            self.set_mode(wanted.mode)?;
        }
        self.set_times(wanted.accessed_ns, wanted.modified_ns, found.is_dir())
    }

    /// The same attributes as `found`, as far as they can be given.
    pub fn set_like(&self, found: &Metadata) -> io::Result<()> {
        let _ = self.set_owner((found.uid(), found.gid()));
        self.set_mode(found.mode() & 0o7777)?;
        let ns = |seconds: i64, rest: i64| seconds * NS_PER_S + rest;
        let accessed_ns = ns(found.atime(), found.atime_nsec());
        self.set_times(accessed_ns, ns(found.mtime(), found.mtime_nsec()), true)
    }

    /// Whether this user may do everything in a directory.
    pub fn access(&self) -> io::Result<()> {
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        before("access")?;
        Ok(accessat(CWD, self.through(), all, AtFlags::empty())?)
    }

    /// Gives a directory of ours u+rwx; the mode it had, or `None`: it is not ours, or has that.
    pub fn unlock(&self) -> io::Result<Option<u32>> {
        let found = self.now()?;
        let mode = found.mode() & 0o7777;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if !ours || mode & OWNER_ALL == OWNER_ALL {
            return Ok(None);
        }
        self.set_mode(mode | OWNER_ALL)?;
        Ok(Some(mode))
    }

    // ---- extended attributes --------------------------------------------------------------------

    /// The extended attributes; none where there cannot be any.
    pub fn extended(&self) -> io::Result<Extended> {
        let path = self.through();
        let mut list = vec![0; USUAL_BYTES];
        before("listxattr")?;
        let length = match listxattr(&path, &mut list[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            Err(Errno::RANGE) => {
                list.resize(LONGEST_BYTES, 0);
                listxattr(&path, &mut list[..])?
            }
            other => other?,
        };
        let (mut found, mut value) = (Extended::new(), Vec::new());
        for name in names(&list[..length]) {
            value.resize(LONGEST_BYTES, 0);
            before("getxattr")?;
            let length = getxattr(&path, name, &mut value[..])?;
            found.push((name.to_owned(), value[..length].to_vec()));
        }
        Ok(found)
    }

    /// Does `work`, for which this user needs these bits of the mode of what is theirs. It has them
    /// for that moment. (Killed in it, it keeps them.)
    pub fn opened_for<T>(&self, bits: u32, work: impl FnOnce() -> T) -> io::Result<T> {
        let found = self.now()?;
        let mode = found.mode() & 0o7777;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if !ours || found.is_symlink() || mode & bits == bits {
            return Ok(work());
        }
        self.set_mode(mode | bits)?;
        let done = work();
        self.set_mode(mode)?;
        Ok(done)
    }

    /// Sets one.
    pub fn set_one(&self, name: &CString, value: &[u8]) -> io::Result<()> {
        before("setxattr")?;
        Ok(setxattr(self.through(), name.as_c_str(), value, XattrFlags::empty())?)
    }

    /// Removes one.
    pub fn remove_one(&self, name: &CString) -> io::Result<()> {
        before("removexattr")?;
        Ok(removexattr(self.through(), name.as_c_str())?)
    }
}

/// The names in a list that ends each with a NUL.
pub fn names(list: &[u8]) -> impl Iterator<Item = &CStr> {
    list.split_inclusive(|&byte| byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(NS_PER_S), tv_nsec: ns.rem_euclid(NS_PER_S) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_are_set_exactly() {
        assert_eq!(timespec(-1), Timespec { tv_sec: -1, tv_nsec: NS_PER_S - 1 });
    }
}
