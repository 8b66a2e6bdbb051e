//! Other names of host files whose bytes the image has changed.
//!
//! A file that several names of the host lead to is one inode of the image, as far as the image has
//! read the directories that they are in. Before the scan the others are looked for on the host,
//! below the overlays, in directories that the image has not listed; these are listed then, and the
//! scan writes all names of the file. A name outside of the overlays keeps the old bytes; one line
//! says so.
//!
//! And of those that the image has moved, where the host has removed the name that they were seen
//! by: the bytes are there by another one, which the image may have removed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use husk_proto::fs::{HostIdentity, Kind};
use husk_proto::{Errno, Inode};

use crate::write_back::commit::detach;
use crate::write_back::host::beneath::{Beneath, Object as Which};
use crate::write_back::plan::{Content, Object, Plan};
use crate::write_back::{Source, host};

/// Lists the directories below the overlays that have other names of changed files.
pub(super) fn list<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[(Inode, PathBuf)],
) -> Result<(), Errno> {
    let wanted = changed(source);
    if wanted.is_empty() {
        return Ok(());
    }
    let mut open: Vec<(Inode, PathBuf)> = overlays.to_vec();
    while let Some((dir, path)) = open.pop() {
        if source.attributes(dir)?.step.unlisted {
            for file in names_of(beneath, &path, &wanted) {
                list_to(source, beneath, dir, &path, &file)?;
            }
            continue;
        }
        let mut below = Vec::new();
        source.list(dir, 0, &mut |entry| {
            if entry.from_host && entry.kind == Kind::Directory {
                below.push((entry.inode, path.join(OsStr::from_bytes(entry.name))));
            }
            true
        })?;
        open.append(&mut below);
    }
    Ok(())
}

/// Host files whose bytes are the image's, and which have names that the image does not know.
fn changed<S: Source>(source: &mut S) -> HashSet<Which> {
    let mut all = Vec::new();
    source.each_elsewhere(&mut |inode, _| all.push(inode));
    let mut wanted = HashSet::new();
    for inode in all {
        let Ok(attributes) = source.attributes(inode) else { continue };
        if let Some(origin) = attributes.origin.filter(|_| host::has_own_bytes(&attributes))
            && let Ok(identity) = source.host_identity(origin)
        {
            wanted.insert(identity.object());
        }
    }
    wanted
}

/// Where the host has names of `wanted` files below `top`, in its file system.
pub fn names_of(beneath: &Beneath, top: &Path, wanted: &HashSet<Which>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let device = beneath.identity(top).ok().flatten().map(|one| one.device);
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for name in beneath.names(&directory).unwrap_or_default() {
            let path = directory.join(name);
            let Ok(Some(one)) = beneath.identity(&path) else { continue };
            if wanted.contains(&one.object()) {
                found.push(path);
            } else if Some(one.device) == device && beneath.is_directory(&path) {
                open.push(path);
            }
        }
    }
    found
}

/// Lists `dir`, which is at `path`, and each directory from there to `file`; what that is.
pub fn list_to<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    mut dir: Inode,
    path: &Path,
    file: &Path,
) -> Result<Option<Inode>, Errno> {
    let mut path = path.to_owned();
    for name in file.strip_prefix(&path).unwrap_or(Path::new("")) {
        if source.attributes(dir)?.step.unlisted {
            detach::list(source, beneath, dir, &path)?;
        }
        let step = source.lookup(dir, name.as_bytes())?;
        if step.kind != Kind::Directory {
            return Ok(Some(step.inode));
        }
        path.push(name);
        dir = step.inode;
    }
    Ok(None)
}

/// Lets what is made of a host file that has lost its name be made of another name of that file.
pub(super) fn find<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[(Inode, PathBuf)],
    plan: &mut Plan,
) {
    let mut lost = Vec::new();
    for put in &mut plan.puts {
        find_lost(source, beneath, &mut put.object, &mut lost);
    }
    if lost.is_empty() {
        return;
    }
    let wanted = lost.iter().map(|(seen, _)| seen.object()).collect();
    let all = overlays.iter().flat_map(|(_, top)| names_of(beneath, top, &wanted));
    let named = |path: PathBuf| Some((beneath.identity(&path).ok()??, path));
    let all: Vec<_> = all.filter_map(named).collect();
    for (seen, path) in lost {
        let same = |found: &HostIdentity| {
            found.object() == seen.object() && host::same_content(&seen, found)
        };
        if let Some((_, found)) = all.iter().find(|(found, _)| same(found)) {
            beneath.pin(found);
            path.clone_from(found);
        }
    }
}

/// Host files of several names that are not where the image saw them.
fn find_lost<'p, S: Source>(
    source: &mut S,
    beneath: &Beneath,
    object: &'p mut Object,
    lost: &mut Vec<(HostIdentity, &'p mut PathBuf)>,
) {
    match &mut object.content {
        Content::Tree(children) => {
            for (_, child) in children {
                find_lost(source, beneath, child, lost);
            }
        }
        Content::Host(path) if object.attributes.links > 1 && !object.is_hosts => {
            let origin = object.attributes.origin;
            let seen = origin.and_then(|origin| source.host_identity(origin).ok());
            let found = beneath.identity(path).ok().flatten();
            if let Some(seen) =
                seen.filter(|seen| found.as_ref().map(HostIdentity::object) != Some(seen.object()))
            {
                lost.push((seen, path));
            }
        }
        _ => {}
    }
}

/// One line of the files in `plan` that keep their old bytes by names outside of it.
pub(super) fn told<S: Source>(source: &mut S, plan: &Plan) -> Option<String> {
    let mut elsewhere = HashMap::new();
    source.each_elsewhere(&mut |inode, count| {
        elsewhere.insert(inode, count);
    });
    if elsewhere.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for put in plan.puts.iter().filter(|put| !put.aside) {
        below(&put.object, &put.target(), &mut elsewhere, &mut found);
    }
    let (first, count) = found.first()?;
    let (links, keep) = match count {
        1 => ("1 other hard link".to_owned(), "keeps"),
        count => (format!("{count} other hard links"), "keep"),
    };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more such files)"),
    };
    let path = first.display();
    Some(format!("{path}{more}: {links} outside of the overlay {keep} the old content"))
}

/// Files of the image's bytes at and below an object that are in `elsewhere`, each once.
fn below(
    object: &Object,
    path: &Path,
    elsewhere: &mut HashMap<Inode, u32>,
    found: &mut Vec<(PathBuf, u32)>,
) {
    match &object.content {
        Content::Image => {
            if let Some(count) = elsewhere.remove(&object.inode) {
                found.push((path.to_owned(), count));
            }
        }
        Content::Tree(children) => {
            for (name, child) in children {
                below(child, &path.join(name), elsewhere, found);
            }
        }
        _ => {}
    }
}
