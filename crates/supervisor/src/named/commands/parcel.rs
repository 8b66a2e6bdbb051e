//! Files as a stream of bytes between an image and the host: one `husk` packs it, another unpacks
//! it on the other side.
//!
//! ```text
//!   {"Directory":{"name":...}}\n  {"File":{"name":...}}\n frames  ...  "Leave"\n  {"End":...}\n
//!   frame: offset u64, length u32, bytes;  length 0: the file ends at `offset`;  FAILED: it cannot
//!   be read
//! ```
//!
//! Invariants
//! 1. A name is one component of a path: nothing leads out of where the parcel is unpacked.
//! 2. Each name that is there keeps what it had until all of the new file is there. Directories
//!    that are there are filled.
//! 3. What cannot be packed or unpacked is told in one line, and the rest is copied.
//! 4. Under a temporary name nothing is removed but what was made here, or by a copy that was
//!    killed (`host::is_leftover`). Attributes are set on descriptors, and what has its name in the
//!    end is what was made: in a directory that others may write to, names lead anywhere.
//! 5. A directory is listed before the other side hears of it: one that is copied into itself is
//!    copied once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, openat, statat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::output::failure::Failure;
use crate::output::say;
use crate::run::request::reason;
use crate::write_back::host;
use crate::write_back::host::beneath::fresh::{Moment, is_fresh, probe};
use crate::write_back::host::beneath::schedule::before;
use crate::write_back::host::beneath::{set_len, write_all_at};

/// Bytes of a frame.
const FRAME_BYTES: usize = 256 << 10;
/// In place of a frame's length: the file could not be read to its end.
const FAILED: u32 = u32::MAX;
/// Longest description of an item.
const ITEM_BYTES_MAX: u64 = 1 << 20;
/// Deepest tree: each level is an open directory.
const DEPTH_MAX: usize = 256;
/// Temporary names that are tried: a killed copy may have had this process's number.
const NAMES_MAX: usize = 64;

/// What comes next.
#[derive(Serialize, Deserialize, Debug)]
enum Item {
    /// A directory; what it holds follows, up to `Leave`.
    Directory { name: Vec<u8>, facts: Facts },
    /// The end of a directory.
    Leave,
    /// A file; its frames follow.
    File { name: Vec<u8>, facts: Facts },
    /// A symbolic link.
    Symlink { name: Vec<u8>, facts: Facts, target: Vec<u8> },
    /// A FIFO.
    Fifo { name: Vec<u8>, facts: Facts },
    /// The end of the parcel.
    End,
}

/// What is kept of an object beside its content.
#[derive(Serialize, Deserialize, Debug, Clone, Copy)]
struct Facts {
    mode: u32,
    accessed: (i64, i64),
    modified: (i64, i64),
}

impl Facts {
    fn of(found: &Stat) -> Facts {
        Facts {
            mode: found.st_mode & 0o777,
            accessed: (found.st_atime, found.st_atime_nsec as i64),
            modified: (found.st_mtime, found.st_mtime_nsec as i64),
        }
    }

    fn times(&self) -> Timestamps {
        let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        Timestamps { last_access: time(self.accessed), last_modification: time(self.modified) }
    }

    fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }
}

fn complain(path: &Path, why: &str, remedy: &str) {
    let what = format!("cannot copy {}", path.display());
    say(&Failure::new(what, why, remedy).to_string());
}

// ---- packing ------------------------------------------------------------------------------------

/// Packs what is at `source`; whether that was all of it. An error: nobody takes it.
pub fn pack(source: &Path, recursive: bool, output: &mut dyn Write) -> io::Result<bool> {
    let mut packer = Packer { output, recursive, complete: true };
    match source.file_name() {
        // A link is followed where what it leads to is asked for.
        Some(name) => packer.object(CWD, source, name, source, !recursive, 0)?,
        None => packer.skip(source, "the copy would have no name", "name what is in it")?,
    }
    packer.item(&Item::End)?;
    packer.output.flush()?;
    Ok(packer.complete)
}

struct Packer<'a> {
    output: &'a mut dyn Write,
    recursive: bool,
    complete: bool,
}

impl Packer<'_> {
    /// Goes on without `path` (invariant 3).
    fn skip(&mut self, path: &Path, why: &str, remedy: &str) -> io::Result<()> {
        complain(path, why, remedy);
        self.complete = false;
        Ok(())
    }

    fn item(&mut self, item: &Item) -> io::Result<()> {
        let mut text = serde_json::to_vec(item)?;
        text.push(b'\n');
        self.output.write_all(&text)
    }

    /// Packs `path` below `parent` as `name`; people know it as `shown`.
    fn object(
        &mut self,
        parent: BorrowedFd<'_>,
        path: &Path,
        name: &OsStr,
        shown: &Path,
        follow: bool,
        depth: usize,
    ) -> io::Result<()> {
        let (at, no_follow) = match follow {
            true => (AtFlags::empty(), OFlags::empty()),
            false => (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW),
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | no_follow;
        before("fstatat")?;
        let found = match statat(parent, path, at) {
            Ok(found) => found,
            Err(errno) => return self.skip(shown, &in_words(errno), "check it"),
        };
        let (name, facts) = (name.as_bytes().to_vec(), Facts::of(&found));
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Directory && !self.recursive {
            return self.skip(shown, "it is a directory", "add -r");
        }
        match kind {
            FileType::Symlink => {
                before("readlinkat")?;
                match rustix::fs::readlinkat(parent, path, Vec::new()) {
                    Ok(target) => {
                        let target = target.into_bytes();
                        self.item(&Item::Symlink { name, facts, target })
                    }
                    Err(errno) => self.skip(shown, &in_words(errno), "check it"),
                }
            }
            FileType::Fifo => self.item(&Item::Fifo { name, facts }),
            FileType::RegularFile | FileType::Directory => {
                before("openat")?;
                match openat(parent, path, flags, Mode::empty()).and_then(|one| seen(one, kind)) {
                    Ok((opened, facts)) if kind == FileType::Directory => {
                        self.directory(opened, name, facts, shown, depth)
                    }
                    Ok((opened, facts)) => {
                        self.item(&Item::File { name, facts })?;
                        self.bytes(&File::from(opened), shown)
                    }
                    Err(errno) => self.skip(shown, &in_words(errno), "check it"),
                }
            }
            _ => self.skip(shown, "it is a socket or a device", "leave it out"),
        }
    }

    fn directory(
        &mut self,
        opened: OwnedFd,
        name: Vec<u8>,
        facts: Facts,
        shown: &Path,
        depth: usize,
    ) -> io::Result<()> {
        if depth >= DEPTH_MAX {
            let why = format!("it is deeper than {DEPTH_MAX} directories");
            return self.skip(shown, &why, "copy it by itself");
        }
        let names = match names(&opened) {
            Ok(names) => names,
            Err(errno) => return self.skip(shown, &in_words(errno), "check it"),
        };
        self.item(&Item::Directory { name, facts })?;
        for name in names {
            let (path, shown) = (Path::new(&name), shown.join(&name));
            self.object(opened.as_fd(), path, &name, &shown, false, depth + 1)?;
        }
        self.item(&Item::Leave)
    }

    /// The frames of a file; holes are left out.
    fn bytes(&mut self, file: &File, shown: &Path) -> io::Result<()> {
        let mut buffer = vec![0; FRAME_BYTES];
        let mut offset = 0;
        before("pread")?;
        // Files of /proc say that they are empty, and are read to their end.
        let unknown = file.metadata().is_ok_and(|found| found.len() == 0);
        loop {
            let data = if unknown { Ok(Some(offset)) } else { next_data(file, offset) };
            let read = data.and_then(|data| match data {
                Some(start) => Ok((start, file.read_at(&mut buffer, start)?)),
                None => Ok((file.metadata()?.len(), 0)),
            });
            let (start, got) = match read {
                Ok(read) => read,
                Err(problem) => {
                    self.skip(shown, &reason(&problem), "check it")?;
                    return self.frame(0, FAILED, &[]);
                }
            };
            self.frame(start, got as u32, &buffer[..got])?;
            if got == 0 {
                return Ok(());
            }
            offset = start + got as u64;
        }
    }

    fn frame(&mut self, offset: u64, length: u32, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(&offset.to_le_bytes())?;
        self.output.write_all(&length.to_le_bytes())?;
        self.output.write_all(bytes)
    }
}

/// What was opened, which was of this `kind` when it was looked at, with its own attributes:
/// somebody may have put something else in its place since, that fewer may read.
fn seen(opened: OwnedFd, kind: FileType) -> rustix::io::Result<(OwnedFd, Facts)> {
    before("fstat").map_err(|_| Errno::IO)?;
    let found = rustix::fs::fstat(&opened)?;
    match FileType::from_raw_mode(found.st_mode) == kind {
        true => Ok((opened, Facts::of(&found))),
        false => Err(Errno::STALE),
    }
}

/// Where bytes begin at or after `offset`; `None`: nowhere.
fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        // Where holes are not known everything is data.
        Err(_) => Ok((offset < file.metadata()?.len()).then_some(offset)),
    }
}

fn names(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    before("getdents").map_err(|_| Errno::IO)?;
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort();
    Ok(names)
}

fn in_words(errno: Errno) -> String {
    reason(&errno.into())
}

// ---- unpacking ----------------------------------------------------------------------------------

/// Unpacks a parcel to `target`, or into it where that is a directory; whether all that came is
/// there. An error: the parcel is not whole.
pub fn unpack(target: &Path, input: &mut dyn BufRead) -> io::Result<bool> {
    let names = host::Names::of_this_process();
    let mut unpacker = Unpacker { input, open: Vec::new(), complete: true, names };
    loop {
        match unpacker.item()? {
            Item::End if unpacker.open.is_empty() => return Ok(unpacker.complete),
            Item::End => return Err(io::ErrorKind::InvalidData.into()),
            Item::Leave => unpacker.leave()?,
            item => unpacker.object(item, target)?,
        }
    }
}

struct Unpacker<'a> {
    input: &'a mut dyn BufRead,
    open: Vec<Level>,
    complete: bool,
    names: host::Names,
}

/// A directory that is being filled.
struct Level {
    /// `None`: it could not be made, and nothing in it can.
    directory: Option<OwnedFd>,
    shown: PathBuf,
    /// What it is to have in the end, if it was made here.
    facts: Option<Facts>,
}

impl Unpacker<'_> {
    fn fail(&mut self, path: &Path, problem: &io::Error) {
        complain(path, &reason(problem), "check where it is to be");
        self.complete = false;
    }

    fn item(&mut self) -> io::Result<Item> {
        let mut text = Vec::new();
        (&mut *self.input).take(ITEM_BYTES_MAX).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&text)?)
    }

    fn leave(&mut self) -> io::Result<()> {
        let level = self.open.pop().ok_or(io::ErrorKind::InvalidData)?;
        if let (Some(directory), Some(facts)) = (level.directory, level.facts)
            && let Err(problem) = dress(&directory, facts)
        {
            self.fail(&level.shown, &problem);
        }
        Ok(())
    }

    /// Where the item called `name` is to be: its directory, its name there and for people.
    fn place(
        &self,
        name: &[u8],
        target: &Path,
    ) -> io::Result<(Option<OwnedFd>, OsString, PathBuf)> {
        let name = OsStr::from_bytes(name);
        if name.is_empty() || name.as_bytes().contains(&b'/') || name == "." || name == ".." {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (directory, name, shown) = match self.open.last() {
            Some(level) => {
                let directory = level.directory.as_ref().map(OwnedFd::try_clone).transpose()?;
                return Ok((directory, name.to_owned(), level.shown.join(name)));
            }
            None if target.is_dir() => (target.to_owned(), name.to_owned(), target.join(name)),
            None => {
                let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
                let given = target.file_name().unwrap_or(name);
                let parent = parent.unwrap_or(Path::new("."));
                (parent.to_owned(), given.to_owned(), target.to_owned())
            }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, &directory, flags, Mode::empty()) {
            Ok(opened) => {
                remove_leftovers(&opened);
                Ok((Some(opened), name, shown))
            }
            Err(errno) => {
                complain(&directory, &in_words(errno), "name a directory that is there");
                Ok((None, name, shown))
            }
        }
    }

    fn object(&mut self, item: Item, target: &Path) -> io::Result<()> {
        let (Item::Directory { name, .. }
        | Item::File { name, .. }
        | Item::Symlink { name, .. }
        | Item::Fifo { name, .. }) = &item
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (mut directory, name, shown) = self.place(name, target)?;
        let whole = !matches!(item, Item::Directory { .. }) && self.open.is_empty();
        if whole && target.as_os_str().as_bytes().ends_with(b"/") && !target.is_dir() {
            complain(target, "it is not a directory", "leave out the / at its end");
            directory = None;
        }
        self.complete &= directory.is_some();
        let made = match (&item, &directory) {
            (Item::Directory { facts, .. }, _) => {
                return self.enter(directory, &name, shown, *facts);
            }
            (Item::File { facts, .. }, _) => self.file(directory.as_ref(), &name, *facts)?,
            (_, None) => Ok(()),
            (Item::Symlink { facts, target, .. }, Some(directory)) => {
                let make = |new: &OsStr| rustix::fs::symlinkat(target.as_slice(), directory, new);
                let finish = |new: &OsStr| finish_symlink(directory, new, *facts, target);
                self.made_aside(directory, &name, make, finish)
            }
            (Item::Fifo { facts, .. }, Some(directory)) => {
                let make = |new: &OsStr| {
                    rustix::fs::mknodat(directory, new, FileType::Fifo, Mode::RUSR, 0)
                };
                let finish = |new: &OsStr| finish_fifo(directory, new, *facts);
                self.made_aside(directory, &name, make, finish)
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        if let Err(problem) = made {
            self.fail(&shown, &problem);
        }
        Ok(())
    }

    fn enter(
        &mut self,
        parent: Option<OwnedFd>,
        name: &OsStr,
        shown: PathBuf,
        facts: Facts,
    ) -> io::Result<()> {
        if self.open.len() > DEPTH_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(parent) = parent else {
            self.open.push(Level { directory: None, shown, facts: None });
            return Ok(());
        };
        let moment = Moment::now();
        before("mkdirat")?;
        let made = match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(None),
            made => made.map(|()| Some(&moment)),
        };
        let opened = made.map_err(io::Error::from).and_then(|made| entered(&parent, name, made));
        if let Err(problem) = &opened {
            self.fail(&shown, problem);
        }
        if let (Ok(None), Ok(opened)) = (made, &opened) {
            remove_leftovers(opened);
        }
        let facts = matches!(made, Ok(Some(_))).then_some(facts);
        self.open.push(Level { directory: opened.ok(), shown, facts });
        Ok(())
    }

    /// Makes something under a name that nothing else has; what, and the name.
    fn fresh<T>(
        &mut self,
        make: impl Fn(&OsStr) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<(T, OsString)> {
        for _ in 0..NAMES_MAX {
            let new = self.names.fresh(Path::new("")).into_os_string();
            before("make").map_err(|_| Errno::IO)?;
            match make(&new) {
                Err(Errno::EXIST) => {}
                made => return made.map(|made| (made, new)),
            }
        }
        Err(Errno::EXIST)
    }

    /// Makes an object under a name of its own, and gives it its name (invariant 2).
    fn made_aside(
        &mut self,
        directory: &OwnedFd,
        name: &OsStr,
        make: impl Fn(&OsStr) -> rustix::io::Result<()>,
        finish: impl Fn(&OsStr) -> io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let ((), new) = self.fresh(make)?;
        let done = finish(&new).and_then(|held| give_name(directory, &new, name, held.as_fd()));
        if done.is_err() {
            // What cannot be removed is known by its name.
            let _ = unlink(directory, &new);
        }
        done
    }

    /// Takes all frames of a file, wherever they go. The outer error: the parcel is not whole.
    fn file(
        &mut self,
        directory: Option<&OwnedFd>,
        name: &OsStr,
        facts: Facts,
    ) -> io::Result<io::Result<()>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = directory.map(|directory| {
            let (opened, new) = self.fresh(|new| openat(directory, new, flags, mode))?;
            Ok((directory, File::from(opened), new))
        });
        let (made, mut trouble) = match made.transpose() {
            Ok(made) => (made, Ok(())),
            Err(problem) => (None, Err(problem)),
        };
        let taken = self.frames(made.as_ref().map(|(_, file, _)| file), &mut trouble);
        let Some((directory, file, new)) = made else {
            return taken.map(|_| trouble);
        };
        let done = match &taken {
            // Who packed it has said why.
            Ok(false) => Ok(None),
            Ok(true) => trouble.and_then(|()| {
                dress(&file, facts)?;
                Ok(Some(give_name(directory, &new, name, file.as_fd())?))
            }),
            Err(_) => Ok(None),
        };
        if !matches!(done, Ok(Some(()))) {
            // What cannot be removed is known by its name.
            let _ = unlink(directory, &new);
            self.complete = false;
        }
        taken.map(|_| done.map(drop))
    }

    /// Writes frames into `file`, as long as that goes; whether the file was packed whole.
    fn frames(&mut self, file: Option<&File>, trouble: &mut io::Result<()>) -> io::Result<bool> {
        let mut bytes = vec![0; FRAME_BYTES];
        loop {
            let (mut offset, mut length) = ([0; 8], [0; 4]);
            self.input.read_exact(&mut offset)?;
            self.input.read_exact(&mut length)?;
            let (offset, length) = (u64::from_le_bytes(offset), u32::from_le_bytes(length));
            if length == FAILED {
                return Ok(false);
            }
            let bytes = bytes.get_mut(..length as usize).ok_or(io::ErrorKind::InvalidData)?;
            self.input.read_exact(bytes)?;
            if let (Some(file), Ok(())) = (file, &trouble) {
                *trouble = match length {
                    0 => set_len(file, offset),
                    _ => write_all_at(file, bytes, offset),
                };
            }
            if length == 0 {
                return Ok(true);
            }
        }
    }
}

/// Opens a directory; `made`: the one that was made after this moment, and not another one that
/// somebody has put in its place meanwhile.
fn entered(parent: &OwnedFd, name: &OsStr, made: Option<&Moment>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    before("openat")?;
    let opened = File::from(openat(parent, name, flags, Mode::empty())?);
    if let Some(moment) = made
        && !is_fresh(&File::from(parent.try_clone()?), &opened, moment)?
    {
        return Err(taken());
    }
    Ok(opened.into())
}

/// Mode and times of a FIFO that was just made. In a directory that others may write to, somebody
/// may have put a link or another object in its place: that is not touched.
fn finish_fifo(directory: &OwnedFd, new: &OsStr, facts: Facts) -> io::Result<OwnedFd> {
    let held = new_one(directory, new, FileType::Fifo)?;
    let through = format!("/proc/self/fd/{}", held.as_raw_fd());
    before("fchmod")?;
    rustix::fs::chmodat(CWD, &through, facts.mode(), AtFlags::empty())?;
    before("utimensat")?;
    rustix::fs::utimensat(CWD, &through, &facts.times(), AtFlags::empty())?;
    Ok(held)
}

/// Times of a symlink that was just made, as of a FIFO.
fn finish_symlink(
    directory: &OwnedFd,
    new: &OsStr,
    facts: Facts,
    target: &[u8],
) -> io::Result<OwnedFd> {
    let held = new_one(directory, new, FileType::Symlink)?;
    before("readlinkat")?;
    if rustix::fs::readlinkat(&held, "", Vec::new())?.as_bytes() != target {
        return Err(taken());
    }
    before("utimensat")?;
    rustix::fs::utimensat(&held, "", &facts.times(), AtFlags::EMPTY_PATH)?;
    Ok(held)
}

/// What was just made, if it is still there.
fn new_one(directory: &OwnedFd, new: &OsStr, kind: FileType) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    before("openat")?;
    let held = openat(directory, new, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&held)?;
    let own = rustix::process::geteuid().as_raw();
    let same = FileType::from_raw_mode(found.st_mode) == kind && found.st_nlink == 1;
    // Some file systems know one user only.
    let is_owned = || Ok::<_, io::Error>(probe(&File::from(directory.try_clone()?))?.uid());
    match same && (found.st_uid == own || found.st_uid == is_owned()?) {
        true => Ok(held),
        false => Err(taken()),
    }
}

/// Gives what is `held` its name, and looks whether it has it.
fn give_name(
    directory: &OwnedFd,
    new: &OsStr,
    name: &OsStr,
    held: BorrowedFd<'_>,
) -> io::Result<()> {
    before("renameat")?;
    rustix::fs::renameat(directory, new, directory, name)?;
    before("fstatat")?;
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let ours = rustix::fs::fstat(held)?;
    match (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) {
        true => Ok(()),
        false => Err(taken()),
    }
}

/// Gives what is open its times and its mode.
fn dress(open: &impl AsFd, facts: Facts) -> io::Result<()> {
    before("futimens")?;
    rustix::fs::futimens(open, &facts.times())?;
    before("fchmod")?;
    Ok(rustix::fs::fchmod(open, facts.mode())?)
}

fn unlink(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    before("unlinkat")?;
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
}

fn taken() -> io::Error {
    io::Error::other("another program has taken its name")
}

/// Removes what was half made in `directory` when its maker was killed.
fn remove_leftovers(directory: &OwnedFd) {
    for name in names(directory).unwrap_or_default() {
        if host::is_leftover(&name) {
            // What cannot be removed is known by its name; trees are a write-back's.
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
