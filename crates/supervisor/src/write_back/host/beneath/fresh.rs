//! Tells a directory that was just made from another one under its name.
//!
//! No call makes a directory and opens it. In between, whoever may rename names there can put
//! another one in its place, one of this user's own, too, which was closed to them before.
//!
//! ```text
//!   moment ── mkdir ── open ── its owner? empty? born since the moment? ─► it is the new one
//!                                                     └ no: a server's clock may differ;
//!                                                       so a file is made, and they are compared
//! ```

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, unlinkat};

use super::schedule::before;
use super::{create, names_in};
use crate::image::clock;
use crate::write_back::host::{NS_PER_S, Names};

/// How exact times of new objects are; and where a file system keeps whole seconds only.
const EXACT_NS: i64 = 10_000_000;
const WHOLE_NS: i64 = 2 * NS_PER_S;

/// When a directory is about to be made.
#[derive(Debug)]
pub struct Moment {
    /// By the clock of file times.
    now_ns: i64,
    since: Instant,
}

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        Moment { now_ns: clock::now_ns(), since: Instant::now() }
    }

    /// Whether what was `found` in `parent` came to be since then.
    fn is_before(&self, parent: &File, found: &Metadata) -> io::Result<bool> {
        if born_ns(found) >= self.now_ns {
            return Ok(true);
        }
        let age_ns = born_ns(&probe(parent)?) - born_ns(found);
        let passed_ns = i64::try_from(self.since.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let whole = born_ns(found) % NS_PER_S == 0;
        Ok(age_ns <= passed_ns.saturating_add(if whole { WHOLE_NS } else { EXACT_NS }))
    }
}

/// Whether `made`, which was opened by a name in `parent`, is the directory that was made there
/// after this moment. Another one has something in it, or is older, or belongs to somebody else.
pub fn is_fresh(parent: &File, made: &File, moment: &Moment) -> io::Result<bool> {
    let found = made.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    let owned = found.uid() == own || found.uid() == probe(parent)?.uid();
    Ok(owned && names_in(made)?.is_empty() && moment.is_before(parent, &found)?)
}

/// What a new object in `parent` is like: some file systems know one user only, and have the clock
/// of a server.
pub fn probe(parent: &File) -> io::Result<Metadata> {
    let name = Names::of_this_process().fresh(Path::new(""));
    let found = create(parent, name.as_os_str())?.metadata()?;
    before("unlinkat")?;
    unlinkat(parent, name.as_os_str(), AtFlags::empty())?;
    Ok(found)
}

/// When it came to be; where that is not known, when names in it changed last: a rename of the
/// directory leaves that alone.
fn born_ns(found: &Metadata) -> i64 {
    match clock::born_ns(found) {
        0 => found.mtime() * NS_PER_S + found.mtime_nsec(),
        born => born,
    }
}
