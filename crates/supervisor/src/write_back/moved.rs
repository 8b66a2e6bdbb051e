//! FIFOs, sockets and devices of the host that `husk sync` moves: programs of the image go on to
//! use the host's object, which they reach by its new name from then on.
//!
//! ```text
//!   mv d/fifo D/fifo ─► link D/fifo on the host ─► records of D and of the FIFO say so ─► d goes
//! ```
//!
//! Whoever is killed in between leaves records of names that are gone: the next write-back finds by
//! its ledger where the objects are (`follow_all`).

use std::path::{Path, PathBuf};

use husk_proto::fs::Kind;
use husk_proto::{Errno, Inode};

use super::host::beneath::{Beneath, object_of};
use super::plan::{Content, Object, Plan};
use super::record::ledger::Ledger;
use super::{Overlay, Source, host, origin_path};

/// What `plan` moves, and where to.
pub fn moving(plan: &Plan) -> Vec<(Inode, PathBuf)> {
    let mut moving = Vec::new();
    for put in plan.puts.iter().filter(|put| !put.aside) {
        below(&put.object, put.target(), &mut moving);
    }
    moving
}

fn below(object: &Object, path: PathBuf, moving: &mut Vec<(Inode, PathBuf)>) {
    match &object.content {
        Content::Host(_) if object.attributes.step.kind.is_special() => {
            moving.push((object.inode, path));
        }
        Content::Tree(children) => {
            children.iter().for_each(|(name, child)| below(child, path.join(name), moving));
        }
        _ => {}
    }
}

/// The image reaches `inode` by its name `path` from now on. What it has moved again, or what is
/// not there, is left as it is.
pub fn follow<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[Overlay],
    inode: Inode,
    path: &Path,
) -> Result<(), Errno> {
    let holding = overlays.iter().filter(|(_, root)| path.starts_with(root));
    let (root, top) =
        holding.max_by_key(|(_, root)| root.as_os_str().len()).ok_or(Errno::ENOENT)?;
    let (mut here, mut at) = (*root, top.clone());
    let (parent, last) = (path.parent().unwrap_or(top), path.file_name().unwrap_or_default());
    for name in parent.strip_prefix(top).unwrap_or(Path::new("")) {
        let step = source.lookup(here, name.as_encoded_bytes())?;
        at.push(name);
        let shown = source.attributes(step.inode)?;
        if step.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if origin_path(source, &shown)?.as_deref() != Some(&*at) {
            let found = found(beneath, &at)?;
            let imported = host::imported(name, Kind::Directory, &found, Path::new(""));
            if !source.settle(here, step.inode, &imported)? {
                return Err(Errno::ENOENT);
            }
        }
        here = step.inode;
    }
    let step = source.lookup(here, last.as_encoded_bytes())?;
    let found = found(beneath, path)?;
    let seen = source.attributes(inode)?.origin.ok_or(Errno::ENOENT)?;
    let seen = source.host_identity(seen)?;
    if step.inode != inode || seen.object() != object_of(&found) {
        return Err(Errno::ENOENT);
    }
    source.move_origin(here, inode, &host::imported(last, step.kind, &found, Path::new("")))?;
    Ok(())
}

fn found(beneath: &Beneath, path: &Path) -> Result<std::fs::Metadata, Errno> {
    let found = beneath.found(path);
    found.map_err(|_| Errno::EIO)?.ok_or(Errno::ENOENT)
}

/// The same of all that write-backs have moved and the image looks for elsewhere.
pub fn follow_all<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    overlays: &[Overlay],
    ledger: &Ledger,
) {
    let mut all = Vec::new();
    source.each_on_host(&mut |inode, _| all.push(inode));
    all.retain(|inode| ledger.places(*inode).next().is_some());
    for inode in all {
        let Ok(shown) = source.attributes(inode) else { continue };
        let Ok(Some(origin)) = origin_path(source, &shown) else { continue };
        let special = shown.step.kind.is_special() && beneath.identity(&origin).ok() == Some(None);
        let place = ledger.places(inode).map(|(path, _)| path.to_owned()).next();
        if let Some(place) = place.filter(|_| special) {
            // What has no place any more is told once it is to be used.
            let _ = follow(source, beneath, overlays, inode, &place);
        }
    }
}
