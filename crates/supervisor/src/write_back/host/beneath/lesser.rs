//! Renames on file systems that know no flags of `renameat2` (many network file systems).
//!
//! ```text
//!   exchange:  link target -> spare      the old one has a name of its own
//!              rename source -> target   the name leads to the old or the new one at each moment
//!              rename spare -> source
//! ```
//!
//! Invariants
//! 1. Nothing is lost but what somebody else puts under the name of a target between a last look
//!    and the rename that follows at once: there is no call that could prevent that.
//! 2. A name that nobody can guess is free: what is renamed to it replaces nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, linkat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::schedule::before;
use super::{Object, TRIES};
use crate::write_back::host;

/// A name in an open directory.
type Named<'a> = (&'a File, &'a OsStr);

/// A link never replaces anything; directories have none, but replace only empty ones.
pub fn rename_to_free((from, old): Named<'_>, (to, new): Named<'_>) -> io::Result<()> {
    before("linkat")?;
    if host::is_own(new) {
        // Invariant 2; and what is at the old name is moved, whichever that is at the moment.
        return Ok(renameat(from, old, to, new)?);
    }
    match linkat(from, old, to, new, AtFlags::empty()) {
        Ok(()) => Ok(unlinkat(from, old, AtFlags::empty())?),
        Err(Errno::EXIST) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) if statat(to, new, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Err(_) => Ok(renameat(from, old, to, new)?),
    }
}

/// The source takes the target's name, and the target the source's. What cannot be linked cannot be
/// exchanged so: directories, and everything where there are no links (EINVAL, as of the host).
pub fn exchange((from, old): Named<'_>, (to, new): Named<'_>) -> io::Result<()> {
    for _ in 0..TRIES {
        let spare = host::Names::of_this_process().fresh(Path::new(""));
        let spare = spare.as_os_str();
        before("linkat")?;
        match linkat(to, new, to, spare, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Errno::NOENT.into()),
            Err(_) => return Err(Errno::INVAL.into()),
        }
        // Invariant 1: the last look.
        let replaced = before("renameat").and_then(|()| {
            let same = object((to, new))? == object((to, spare))?;
            same.then(|| renameat(from, old, to, new)).transpose().map_err(io::Error::from)
        });
        if !matches!(replaced, Ok(Some(()))) {
            unlinkat(to, spare, AtFlags::empty())?;
        }
        match replaced {
            Ok(Some(())) => {
                let given = before("renameat").and_then(|()| Ok(renameat(to, spare, from, old)?));
                return given.map_err(|problem| {
                    let why = crate::run::request::reason(&problem);
                    io::Error::other(format!("{why}; the old one is {}", spare.display()))
                });
            }
            // Somebody has just replaced it.
            Ok(None) => {}
            Err(problem) if Errno::from_io_error(&problem) == Some(Errno::NOTDIR) => {
                return Err(Errno::INVAL.into());
            }
            Err(problem) => return Err(problem),
        }
    }
    Err(Errno::BUSY.into())
}

fn object((directory, name): Named<'_>) -> io::Result<Object> {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((found.st_dev, found.st_ino))
}
