//! Names that the host has given, since the image looked, to files whose bytes the image has
//! changed: they lead to the image's file, too, before a write-back is planned.
//!
//! ```text
//!   ln d/a d/b on the host ─► d/a has another status time, and several names ─► d/b is found in a
//!   directory that the image has listed ─► the image's name of that file ─► written with it
//! ```
//!
//! Invariants
//! 1. A file counts as the one that the image knows with its number, size and modification time.
//! 2. Names that the image has, has removed, or has written back before are its own.
//! 3. Directories that the image has not listed are looked at by the scan (`others`).

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{Backing, HostIdentity, Kind};
use husk_proto::{Errno, Inode};

use super::host::beneath::{Beneath, Object as Which, object_of};
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
    let (mut imported, mut known) = (Vec::new(), HashMap::new());
    source.each_imported(&mut |inode, origin| imported.push((inode, origin)));
    for (inode, origin) in imported {
        if !has_own_bytes(source, inode) {
            continue;
        }
        if let (Ok(seen), Ok(path)) = (source.host_identity(origin), path_of_origin(source, origin))
        {
            known.insert(inode, (path, seen));
        }
    }
    for (inode, _) in ledger.objects() {
        if let Some((path, here)) = ledger.places(inode).next()
            && has_own_bytes(source, inode)
        {
            known.insert(inode, (path.to_owned(), here.identity));
        }
    }
    let mut wanted = HashMap::new();
    for (inode, (path, seen)) in known {
        let Ok(Some(found)) = beneath.found(&path) else { continue };
        if !is_linked(ledger, &seen, &found) {
            continue;
        }
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
    shown.is_ok_and(|shown| shown.step.kind == Kind::File && shown.backing == Backing::Image)
}

/// Invariant 1, and whether it has got a name since it was `seen`.
fn is_linked(ledger: &Ledger, seen: &HostIdentity, found: &Metadata) -> bool {
    let now = host::identity_of(found);
    let news = now.changed_ns != seen.changed_ns && !ledger.is_ours(&now);
    found.nlink() > 1 && host::same_content(seen, &now) && news
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
    if shown.step.unlisted || shown.origin.is_none() {
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
        let Some(inode) = wanted.get(&object_of(&found)).filter(|_| found.is_file()) else {
            continue;
        };
        source.import_late(dir, &[host::imported(&name, Kind::File, &found, Path::new(""))])?;
        ledger.linked(&at, *inode, host::identity_of(&found));
    }
    Ok(below)
}
