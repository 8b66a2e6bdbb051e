//! Before `husk sync` removes host objects, copies into the image what its programs still need of
//! them.
//!
//! ```text
//!   names that go or are replaced ──► inodes that lean on what is there or below
//!      unlisted directory ── its names      host's bytes ── a copy, adopted
//!      host's extended attributes ── theirs
//!      portal, FIFO, socket, device ── cannot: the host's object stays, or moves (`moved`)
//! ```
//!
//! Invariants
//! 1. Inodes are found in the table of all, not by names: one that is moved meanwhile, or has no
//!    name any more but is open, is found as well.
//! 2. Whatever cannot be taken over keeps the host's object where it is (`Kept::withheld`).
//! 3. Only the listing of a directory makes inodes that lean on the host; all below what goes are
//!    listed, so that rounds end.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Attributes, Backing, Kind, Origin, SetExtended};
use husk_proto::{Credentials, Errno, Inode};

use super::make::Kept;
use crate::write_back::host;
use crate::write_back::host::beneath::{Beneath, read_at};
use crate::write_back::host::{content, extended};
use crate::write_back::moved;
use crate::write_back::path_of_origin;
use crate::write_back::plan::Plan;
use crate::write_back::record::ledger::{Ledger, TakenOver};
use crate::write_back::{Outcome, Source};

/// Directories are at most so deep below each other that all is found.
const ROUNDS_MAX: u32 = 4096;
/// Read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Takes over what `plan` is about to take away from the image.
pub fn detach<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    plan: &Plan,
    kept: &mut Kept,
    ledger: &mut Ledger,
    outcome: &mut Outcome,
) -> HashMap<Inode, TakenOver> {
    let mut doomed: HashMap<PathBuf, Option<Inode>> = HashMap::new();
    for put in plan.puts.iter().filter(|put| put.replaces.is_some() && !put.aside) {
        doomed.insert(put.target(), Some(put.object.inode));
    }
    for delete in &plan.deletes {
        doomed.insert(delete.path.clone(), None);
    }
    let moving: HashSet<Inode> = moved::moving(plan).into_iter().map(|(inode, _)| inode).collect();
    let (mut done, mut adopted) = (HashSet::new(), HashMap::new());
    if doomed.is_empty() {
        return adopted;
    }
    for _ in 0..ROUNDS_MAX {
        let before = done.len();
        for (inode, path) in leaning(source, &doomed) {
            if !done.insert(inode) || moving.contains(&inode) {
                continue;
            }
            match take(source, beneath, inode, &path) {
                Ok(taken) => {
                    ledger.learn(inode, &taken);
                    adopted.insert(inode, taken);
                }
                // Gone meanwhile, or a directory without a name.
                Err(Problem::Image(Errno::ESTALE | Errno::ENOENT)) => {}
                Err(problem) => {
                    let why = problem.text();
                    let line = format!("{}: still needed by the image: {why}", path.display());
                    outcome.failures.push(line);
                    kept.withheld.insert(path);
                }
            }
        }
        if done.len() == before {
            break;
        }
    }
    adopted
}

/// Why something could not be taken over.
enum Problem {
    Image(Errno),
    Host(io::Error),
    Portal,
}

impl Problem {
    fn text(&self) -> String {
        match self {
            Problem::Image(Errno::ENOSPC) => "the image has no room for it".to_owned(),
            Problem::Image(errno) => format!("{errno:?}"),
            Problem::Host(problem) => crate::write_back::reason(problem),
            Problem::Portal => "its programs use the host's FIFO, socket or device".to_owned(),
        }
    }
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Problem {
        Problem::Image(errno)
    }
}

impl From<io::Error> for Problem {
    fn from(problem: io::Error) -> Problem {
        Problem::Host(problem)
    }
}

/// Inodes that lean on one of the `doomed` or on what is below, and on what.
fn leaning<S: Source>(
    source: &mut S,
    doomed: &HashMap<PathBuf, Option<Inode>>,
) -> Vec<(Inode, PathBuf)> {
    let mut all: Vec<(Inode, Origin)> = Vec::new();
    source.each_on_host(&mut |inode, origin| all.push((inode, origin)));
    let mut found = Vec::new();
    for (inode, origin) in all {
        let Ok(path) = path_of_origin(source, origin) else { continue };
        // What takes the very place of what it was made from has all of it.
        let needs =
            |one: &Path| doomed.get(one).is_some_and(|put| one != path || *put != Some(inode));
        if path.ancestors().any(needs) {
            found.push((inode, path));
        }
    }
    found
}

/// Makes `inode` independent of what is at `path`.
fn take<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    inode: Inode,
    path: &Path,
) -> Result<TakenOver, Problem> {
    let mut taken = TakenOver::default();
    let attributes = source.attributes(inode)?;
    let kind = attributes.step.kind;
    if kind == Kind::Portal || kind.is_special() && attributes.links > 0 {
        return Err(Problem::Portal);
    }
    if attributes.extended == Backing::Host {
        for (name, value) in beneath.hold(path)?.extended()? {
            source.set_extended(inode, name.to_bytes(), Some(&value), SetExtended::Imported)?;
        }
        source.take_extended_over(inode)?;
        let now = source.attributes(inode)?;
        taken.extended = extended::of(source, inode, &now)?;
    }
    if kind == Kind::Directory && attributes.step.unlisted {
        list(source, beneath, inode, path)?;
    }
    if kind == Kind::File && attributes.backing == Backing::Host {
        taken.content = adopt(source, inode, &attributes, &beneath.read(path)?)?;
    }
    Ok(taken)
}

/// Gives a file of the host its bytes; their hash, unless a program was first.
fn adopt<S: Source>(
    source: &mut S,
    inode: Inode,
    attributes: &Attributes,
    file: &File,
) -> Result<Option<u64>, Problem> {
    let step = &attributes.step;
    let (uid, gid) = (step.uid, step.gid);
    let who = Credentials { uid, gid, groups: &[], capabilities: u64::MAX, within: None };
    let donor = source.create_nameless(&who, inode, 0o600, false)?;
    let filled = fill(source, donor, file);
    let content = filled.and_then(|()| Ok(content::hash(source, donor)?));
    let taken = content.and_then(|content| Ok((content, source.adopt(inode, donor)?)));
    source.unpin(donor);
    let (content, ours) = taken?;
    Ok(ours.then_some(content))
}

/// Gives a file of the host these bytes in the image, unless a program was first; its times stay.
pub fn adopt_bytes<S: Source>(
    source: &mut S,
    inode: Inode,
    attributes: &Attributes,
    bytes: &[u8],
) -> Result<bool, Errno> {
    let step = &attributes.step;
    let (uid, gid) = (step.uid, step.gid);
    let who = Credentials { uid, gid, groups: &[], capabilities: u64::MAX, within: None };
    let donor = source.create_nameless(&who, inode, 0o600, false)?;
    let filled = write(source, donor, 0, bytes).and_then(|()| source.adopt(inode, donor));
    source.unpin(donor);
    filled
}

/// Copies what is no zero: holes stay holes, and take no time.
fn fill<S: Source>(source: &mut S, donor: Inode, file: &File) -> Result<(), Problem> {
    let (size, mut offset) = (file.metadata()?.len(), 0);
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Some((start, end)) = content::stretch_of_host(file, offset, size) {
        offset = start;
        while offset < end {
            let want = CHUNK_BYTES.min((end - offset) as usize);
            let got = read_at(file, &mut buffer[..want], offset)?;
            if got == 0 {
                break;
            }
            if buffer[..got].iter().any(|&byte| byte != 0) {
                write(source, donor, offset, &buffer[..got])?;
            }
            offset += got as u64;
        }
        offset = end;
    }
    if source.attributes(donor)?.size < size {
        source.truncate(donor, size)?;
    }
    Ok(())
}

fn write<S: Source>(
    source: &mut S,
    donor: Inode,
    offset: u64,
    mut bytes: &[u8],
) -> Result<(), Errno> {
    let mut offset = offset;
    while !bytes.is_empty() {
        match source.write_at(donor, offset, bytes)? {
            0 => return Err(Errno::ENOSPC),
            done => {
                bytes = &bytes[done..];
                offset += done as u64;
            }
        }
    }
    Ok(())
}

/// Reads the host's listing of `dir` into the image, as a program that needs it does.
pub fn list<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    dir: Inode,
    path: &Path,
) -> Result<(), Errno> {
    let errno = |problem: io::Error| Errno(problem.raw_os_error().unwrap_or(Errno::EIO.0));
    let device = beneath.hold(path).map_err(errno)?.found().dev();
    for name in beneath.names(path).map_err(errno)? {
        if host::is_own(&name) {
            continue;
        }
        // Gone meanwhile.
        let Ok(held) = beneath.hold(&path.join(&name)) else { continue };
        let found = held.found();
        let target = held.read_link().unwrap_or_default();
        let imported = host::imported(&name, host::kind_of(found, device), found, &target);
        if !source.import(dir, &[imported])? {
            return Ok(());
        }
    }
    source.import_done(dir)
}
