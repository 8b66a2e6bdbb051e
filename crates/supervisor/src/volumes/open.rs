//! Mounts a volume in an image: replays its log and makes its tree.

use std::collections::HashMap;

use husk_carrier::Direct;
use husk_proto::fs::{Change, Credentials, Kind as ImageKind, Node as Make, SetExtended};
use husk_proto::{Admin as _, Errno, Fs as _, Inode};
use husk_storage::area::Area;
use husk_storage::log::{Found, Log};
use husk_storage::tree::{Id, Kind, Node, Tree};

use super::save::Saver;
use crate::output::failure::Failure;
use crate::output::say;

/// The supervisor acts for the volume, not for a user.
const ROOT: Credentials<'_> =
    Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };

/// Puts what volume `name` holds into the empty tree of `root`, and begins to write its log.
pub fn open(direct: &mut Direct, root: Inode, name: &str, area: Area) -> Result<Saver, Failure> {
    let what = || format!("cannot use volume {name}");
    for note in &area.notes {
        say(&format!("note: volume {name}: byte {}: {}", note.at_bytes, note.what));
    }
    let (tree, log) = replay(name, area)?;
    let number = direct.make_volume(root).map_err(|errno| unmade(&what(), errno))?;
    make(direct, root, &tree).map_err(|errno| unmade(&what(), errno))?;
    drop(tree);
    begin(direct, (number, root), name, log)
}

/// The same where tree `number` of `root` is there: what the log holds is older, and is not looked
/// at but for whether it is sound.
pub fn reopen(
    direct: &mut Direct,
    (number, root): (u32, Inode),
    name: &str,
    area: Area,
) -> Result<Saver, Failure> {
    let (_, log) = replay(name, area)?;
    begin(direct, (number, root), name, log)
}

fn begin(
    direct: &mut Direct,
    tree: (u32, Inode),
    name: &str,
    log: Log<Area>,
) -> Result<Saver, Failure> {
    Saver::begin(direct, tree, log).map_err(|refusal| {
        let (why, remedy) = super::told(refusal);
        Failure::new(format!("cannot use volume {name}"), why, remedy)
    })
}

fn replay(name: &str, area: Area) -> Result<(Tree, Log<Area>), Failure> {
    let failed = |why: String| {
        let remedy = "`husk volume check` says what is damaged; restore it from a copy";
        Failure::new(format!("cannot use volume {name}"), why, remedy)
    };
    let (mut tree, mut malformed) = (Tree::default(), None);
    let (log, notes) = area
        .open_log(|found| {
            let taken = match found {
                Found::Snapshot(_, part) => tree.snapshot(part),
                Found::Record(_, record) => tree.record(record),
            };
            malformed = malformed.or(taken.err());
        })
        .map_err(|damage| failed(damage.to_string()))?;
    notes.iter().for_each(|note| say(&format!("note: volume {name}: {note}")));
    match malformed {
        Some(malformed) => Err(failed(malformed.to_string())),
        None => Ok((tree, log)),
    }
}

fn unmade(what: &str, errno: Errno) -> Failure {
    match errno {
        Errno::ENOSPC | Errno::ENOMEM => {
            Failure::new(what, "what it holds is more than the image", "choose more --memory")
        }
        errno => {
            let remedy = "this is a bug in Husk: please report it";
            Failure::new(what, format!("it cannot be shown ({errno:?})"), remedy)
        }
    }
}

/// Makes the objects of a tree.
fn make(direct: &mut Direct, root: Inode, tree: &Tree) -> Result<(), Errno> {
    let Some(node) = tree.root.and_then(|id| tree.node(id)) else { return Ok(()) };
    let (mut made, mut all, mut todo) = (HashMap::new(), vec![(root, node)], vec![(root, node)]);
    while let Some((dir, node)) = todo.pop() {
        for (name, id) in &node.names {
            // What was never told of has no attributes: no name leads to such a thing.
            let Some(below) = tree.node(*id) else { continue };
            let Some(inode) = made_one(direct, (dir, name), (*id, below), &mut made)? else {
                continue;
            };
            all.push((inode, below));
            if below.attributes.is_some_and(|a| a.kind == Kind::Directory) {
                todo.push((inode, below));
            }
        }
    }
    // Names change times of directories and of files. What a mode forbids is forbidden to nobody
    // here.
    all.into_iter().try_for_each(|(inode, node)| dress(direct, inode, node))
}

/// One object, or one more name of it.
fn made_one(
    direct: &mut Direct,
    (dir, name): (Inode, &[u8]),
    (id, node): (Id, &Node),
    made: &mut HashMap<Id, Inode>,
) -> Result<Option<Inode>, Errno> {
    let Some(attributes) = node.attributes else { return Ok(None) };
    if let Some(&inode) = made.get(&id) {
        direct.link(&ROOT, inode, dir, name)?;
        return Ok(None);
    }
    let (mode, device) = (attributes.mode, attributes.device);
    let special = |kind| Make::Special { kind, mode, device };
    let make = match attributes.kind {
        Kind::File => Make::File(mode),
        Kind::Directory => Make::Directory(mode),
        Kind::Symlink => Make::Symlink(&node.target),
        Kind::Fifo => special(ImageKind::Fifo),
        Kind::CharacterDevice => special(ImageKind::CharacterDevice),
        Kind::BlockDevice => special(ImageKind::BlockDevice),
    };
    let inode = direct.create(&ROOT, dir, name, make)?;
    made.insert(id, inode);
    if attributes.kind == Kind::File {
        for (at, piece) in node.bytes.pieces() {
            fill(direct, inode, at, piece)?;
        }
        direct.truncate(inode, node.bytes.size())?;
    }
    Ok(Some(inode))
}

fn fill(direct: &mut Direct, inode: Inode, at: u64, piece: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < piece.len() {
        match direct.write_at(inode, at + done as u64, &piece[done..])? {
            0 => return Err(Errno::ENOSPC),
            count => done += count,
        }
    }
    Ok(())
}

/// Owner, mode, extended attributes and times.
fn dress(direct: &mut Direct, inode: Inode, node: &Node) -> Result<(), Errno> {
    let Some(attributes) = node.attributes else { return Ok(()) };
    let (uid, gid) = (Some(attributes.uid), Some(attributes.gid));
    direct.change(&ROOT, inode, Change { uid, gid, ..Change::default() })?;
    if attributes.kind != Kind::Symlink {
        let mode = Some(attributes.mode);
        direct.change(&ROOT, inode, Change { mode, ..Change::default() })?;
    }
    for (name, value) in &node.extended {
        direct.set_extended(inode, name, Some(value), SetExtended::Any)?;
    }
    direct.set_times(inode, attributes.times_ns)
}
