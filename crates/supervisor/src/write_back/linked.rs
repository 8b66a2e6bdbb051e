//! Names that the host has given, since the image looked, to files whose bytes the image has
//! changed: they lead to the image's file, too, before a write-back is planned.
//!
//! ```text
//!   ln d/a d/b on the host ─► d/a has another status time, and several names ─► d/b is found ─►
//!   its directory is listed, if it is not yet ─► the image's name of that file ─► written with it
//! ```
//!
//! Invariants
//! 1. A file counts as the one that the image knows with its number, size and modification time.
//! 2. Names that the image has, has removed, or has written back before are its own.
//! 3. Of directories that the image has not listed, those are that have such a name. So it is with
//!    names that a file had before (`others`), which need no entry of what was written back.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use husk_proto::fs::{HostIdentity, Kind};
use husk_proto::{Errno, Inode};

use super::host::beneath::{Beneath, Glance, Object as Which, object_of};
use super::plan::scan::others;
use super::record::ledger::Ledger;
use super::{Overlay, Source, host, path_of_origin};

/// Takes in such names below the overlays. What cannot be looked at keeps the old bytes.
pub fn take_in<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[Overlay],
    ledger: &mut Ledger,
) {
    let wanted = linked_since(source, beneath, ledger);
    let mut open = if wanted.is_empty() { Vec::new() } else { overlays.to_vec() };
    while let Some((dir, path)) = open.pop() {
        // One that has gone meanwhile has nothing to take in.
        if let Ok(below) = look_at(source, beneath, ledger, &wanted, (dir, &path)) {
            open.extend(below);
        }
    }
}

/// Files with bytes of the image that the host has linked since somebody looked at them.
fn linked_since<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    ledger: &Ledger,
) -> HashMap<Which, Inode> {
    let (mut imported, mut known) = (Vec::new(), Vec::new());
    source.each_imported(&mut |inode, origin| imported.push((inode, origin)));
    for (inode, origin) in imported {
        // What a write-back has put on the host counts where it has.
        if !has_own_bytes(source, inode) || ledger.places(inode).next().is_some() {
            continue;
        }
        if let (Ok(seen), Ok(path)) = (source.host_identity(origin), path_of_origin(source, origin))
        {
            known.push((inode, path, seen));
        }
    }
    for (path, inode, seen) in ledger.objects() {
        if has_own_bytes(source, inode) {
            known.push((inode, path.to_owned(), seen));
        }
    }
    beneath.look_ahead(known.iter().map(|(_, path, _)| &**path));
    let mut wanted = HashMap::new();
    for (inode, path, seen) in known {
        let glance = beneath.known_glance(&path).ok().flatten();
        if !glance.is_some_and(|found| is_linked(ledger, &seen, &found)) {
            continue;
        }
        let Ok(Some(found)) = beneath.found(&path) else { continue };
        let imported = host::imported(OsStr::new(""), Kind::File, &found, Path::new(""));
        if source.note_links(inode, &imported).is_ok() {
            wanted.insert(object_of(&found), inode);
        }
    }
    wanted
}

/// Whether it is a file whose bytes are the image's.
fn has_own_bytes<S: Source>(source: &mut S, inode: Inode) -> bool {
    let shown = source.attributes(inode);
    shown.is_ok_and(|shown| host::has_own_bytes(&shown))
}

/// Invariant 1, and whether it has got a name since it was `seen`.
fn is_linked(ledger: &Ledger, seen: &HostIdentity, found: &Glance) -> bool {
    let now = &found.identity;
    let news = now.changed_ns != seen.changed_ns && !ledger.is_ours(now);
    found.links > 1 && host::same_content(seen, now) && news
}

/// Names of `wanted` files in one directory; the directories in it.
fn look_at<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    ledger: &mut Ledger,
    wanted: &HashMap<Which, Inode>,
    (dir, path): (Inode, &Path),
) -> Result<Vec<Overlay>, Errno> {
    let shown = source.attributes(dir)?;
    let (mut names, mut below) = (HashSet::new(), Vec::new());
    source.list(dir, 0, &mut |entry| {
        let name = OsStr::from_bytes(entry.name).to_owned();
        let at = path.join(&name);
        let in_place = entry.from_host || ledger.here_of(&at, entry.inode).is_some();
        if entry.kind == Kind::Directory && in_place {
            below.push((entry.inode, at));
        }
        names.insert(name);
        true
    })?;
    if shown.origin.is_none() {
        return Ok(below);
    }
    if shown.step.unlisted {
        let which = wanted.keys().copied().collect();
        for file in others::names_of(beneath, path, &which) {
            let found = beneath.found(&file).ok().flatten();
            let inode = others::list_to(source, beneath, dir, path, &file)?;
            note(ledger, wanted, &file, inode, found.as_ref());
        }
        return Ok(below);
    }
    source.whiteouts(dir, &mut |name, _| {
        names.insert(std::ffi::OsString::from_vec(name.to_vec()));
        Ok(())
    })?;
    for name in beneath.names(path).unwrap_or_default() {
        let at: PathBuf = path.join(&name);
        if names.contains(&name) || host::is_own(&name) || ledger.entry(&at).is_some() {
            continue;
        }
        let Ok(Some(found)) = beneath.found(&at) else { continue };
        if !wanted.contains_key(&object_of(&found)) || !found.is_file() {
            continue;
        }
        source.import_late(dir, &[host::imported(&name, Kind::File, &found, Path::new(""))])?;
        let step = source.lookup(dir, name.as_bytes())?;
        note(ledger, wanted, &at, Some(step.inode), Some(&found));
    }
    Ok(below)
}

/// What was `found` at `path` is known as one more name of what a write-back has put there, if that
/// is what the image's name leads to.
fn note(
    ledger: &mut Ledger,
    wanted: &HashMap<Which, Inode>,
    path: &Path,
    inode: Option<Inode>,
    found: Option<&Metadata>,
) {
    if let (Some(inode), Some(found)) = (inode, found)
        && wanted.get(&object_of(found)) == Some(&inode)
    {
        ledger.linked(path, inode, host::identity_of(found));
    }
}
