//! Rename: one transaction over two directories, the moved inodes and what is replaced. Locking:
//!
//! 1. Take the tokens of both directories and look. If no directory is replaced or moved to another
//!    parent, these suffice. Otherwise let go and look without locks, make the replaced directory
//!    refuse new names (`share::shut`), take all tokens in order and look again; if anything
//!    differs, start over.
//! 2. Parent links of directories change only under the rename lock (when the parent differs) and
//!    the tokens of both directories, so the walk upwards is stable under the rename lock.

use husk_abi::sys::general::{IN_ATTRIB, IN_MOVE_SELF};
use husk_proto::fs::{Credentials, RENAME_EXCHANGE, RENAME_NOREPLACE, want};
use husk_proto::{Errno, Inode, Result};
use husk_region::{INODE, RETRY, Txn};

use crate::Kernel;
use crate::fs::directory::entries::{self, Found, Key};
use crate::fs::directory::names;
use crate::fs::directory::share::{self, Open, Seat};
use crate::fs::{inodes, named, overlay, rights};
use crate::image::RENAME_LOCK;
use crate::image::answers::{self, Changes};
use crate::state::{high, ino, live};
use crate::watch::post;

/// Deepest tree a rename walks up.
const DEPTH_MAX: u32 = 1 << 16;

/// One side of a rename.
struct Side<'a> {
    dir: Inode,
    key: Key<'a>,
    seat: Seat,
}

impl Side<'_> {
    /// As watchers are told of it.
    fn told(&self) -> post::Side<'_> {
        post::Side { dir: self.dir.number, name: self.key.name }
    }
}

/// Both directories, open.
struct Pair {
    source: Open,
    target: Open,
}

/// `Fs::rename`.
#[allow(clippy::too_many_arguments)]
pub fn rename(
    kernel: &Kernel,
    who: &Credentials<'_>,
    source_dir: Inode,
    source: &[u8],
    target_dir: Inode,
    target: &[u8],
    flags: u32,
    now_ns: i64,
) -> Result<()> {
    if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0
        || flags == RENAME_NOREPLACE | RENAME_EXCHANGE
    {
        return Err(Errno::EINVAL);
    }
    let mut simple = true;
    kernel.run(|txn| {
        let source = side(txn, source_dir, source)?;
        let target = side(txn, target_dir, target)?;
        let (from, to, pair) = if core::mem::take(&mut simple) {
            look_under_tokens(txn, &source, &target)?
        } else {
            let from = entries::peek(txn.session, &source.key)?.ok_or(Errno::ENOENT)?;
            let to = entries::peek(txn.session, &target.key)?;
            let pair = take_locks(txn, &source, &target, from, to)?;
            (from, to, pair)
        };
        lock_inodes(txn, from, to)?;
        let plan = Plan { who, flags, now_ns, from, to, pair };
        check(txn, &source, &target, &plan)?;
        if to.is_some_and(|to| to.inode == from.inode) {
            return Ok(());
        }
        let moved = match flags {
            RENAME_EXCHANGE => exchange(txn, &source, &target, &plan),
            _ => move_name(txn, &source, &target, &plan),
        };
        answers::keep(kernel, txn, Changes::Names, moved, |_| [0; 2])
    })
}

struct Plan<'a> {
    who: &'a Credentials<'a>,
    flags: u32,
    now_ns: i64,
    from: Found,
    to: Option<Found>,
    pair: Pair,
}

impl Plan<'_> {
    fn moves_directory(&self) -> bool {
        self.from.kind == ino::DIRECTORY
    }

    /// What the host has at one of both names, whatever the image does.
    fn portal(&self) -> Option<Found> {
        [Some(self.from), self.to].into_iter().flatten().find(|end| end.kind == ino::PORTAL)
    }

    fn target_directory(&self) -> Option<u32> {
        self.to.filter(|to| to.kind == ino::DIRECTORY).map(|to| to.inode)
    }
}

fn side<'a>(txn: &Txn<'_>, dir: Inode, name: &'a [u8]) -> Result<Side<'a>> {
    live(txn.region, dir)?;
    Ok(Side { dir, key: Key::new(dir.number, name)?, seat: share::seat(txn, dir)? })
}

/// Takes both directories' tokens and names; `RETRY` when that is not enough.
fn look_under_tokens(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
) -> Result<(Found, Option<Found>, Pair)> {
    let apart = source.dir != target.dir;
    if apart {
        txn.lock(source.seat.token.min(target.seat.token))?;
    }
    let pair = open_both(txn, source, target)?;
    let look = |key: &Key<'_>| entries::find(txn.region, key);
    let (from, to) = (look(&source.key), look(&target.key));
    let from = entries::found(txn.region, from.ok_or(Errno::ENOENT)?);
    let to = to.map(|line| entries::found(txn.region, line));
    let replaces = to.is_some_and(|to| to.kind == ino::DIRECTORY);
    let more = replaces || apart && from.kind == ino::DIRECTORY;
    if more { Err(RETRY) } else { Ok((from, to, pair)) }
}

/// Opens both directories, whose tokens are held or one and the same, and locks both names.
fn open_both(txn: &mut Txn<'_>, source: &Side<'_>, target: &Side<'_>) -> Result<Pair> {
    let from = share::open(txn, source.dir, &source.seat)?;
    let same = source.dir == target.dir;
    let to = if same { from } else { share::open(txn, target.dir, &target.seat)? };
    let (one, two) = (source.key.bucket(txn.region), target.key.bucket(txn.region));
    txn.lock(one.min(two))?;
    txn.lock(one.max(two))?;
    Ok(Pair { source: from, target: to })
}

/// Takes the rename lock, if a directory changes its parent or is replaced, then all tokens in
/// order.
fn take_locks(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
    from: Found,
    to: Option<Found>,
) -> Result<Pair> {
    let apart = source.dir != target.dir;
    let replaced = to.filter(|to| to.kind == ino::DIRECTORY);
    let shut = match replaced {
        Some(to) => share::shut(txn, to.inode)?,
        None => None,
    };
    if apart && (from.kind == ino::DIRECTORY || replaced.is_some()) {
        txn.lock(txn.region.map.fixed(RENAME_LOCK))?;
    }
    names::lock_tokens(txn, &[Some(source.seat.token), Some(target.seat.token), shut])?;
    let pair = open_both(txn, source, target)?;
    entries::find_again(txn, &source.key, Some(from))?;
    entries::find_again(txn, &target.key, to)?;
    Ok(pair)
}

fn lock_inodes(txn: &mut Txn<'_>, from: Found, to: Option<Found>) -> Result<()> {
    let (one, two) = (from.inode, to.map_or(from.inode, |to| to.inode));
    txn.lock(txn.region.map.object(INODE, one.min(two)))?;
    if one != two {
        txn.lock(txn.region.map.object(INODE, one.max(two)))?;
    }
    Ok(())
}

fn check(txn: &mut Txn<'_>, source: &Side<'_>, target: &Side<'_>, plan: &Plan<'_>) -> Result<()> {
    if plan.flags == RENAME_NOREPLACE && plan.to.is_some() {
        return Err(Errno::EEXIST);
    }
    if plan.flags == RENAME_EXCHANGE && plan.to.is_none() {
        return Err(Errno::ENOENT);
    }
    circles(txn, source, target, plan)?;
    if plan.to.is_some_and(|to| to.inode == plan.from.inode) {
        return Ok(());
    }
    permit(txn, source, target, plan)?;
    match plan.portal() {
        Some(portal) => Err(overlay::why_it_stays(txn.region, portal.inode)),
        None => Ok(()),
    }
}

/// Nothing comes to lie below itself: judged before anybody's rights are, as in Linux.
fn circles(txn: &Txn<'_>, source: &Side<'_>, target: &Side<'_>, plan: &Plan<'_>) -> Result<()> {
    let apart = source.dir != target.dir;
    if plan.moves_directory() && apart && is_below(txn, target.dir.number, plan.from.inode)? {
        return Err(Errno::EINVAL);
    }
    match plan.target_directory() {
        Some(to) if is_below(txn, source.dir.number, to)? => match plan.flags {
            RENAME_EXCHANGE => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTEMPTY),
        },
        _ => Ok(()),
    }
}

/// Whether `plan.who` may; a directory that gets another parent is itself written to.
fn permit(txn: &mut Txn<'_>, source: &Side<'_>, target: &Side<'_>, plan: &Plan<'_>) -> Result<()> {
    let apart = source.dir != target.dir;
    // Whether a portal leads to a directory, the host knows.
    let any_kind = plan.flags == RENAME_EXCHANGE || plan.portal().is_some();
    names::permit_removal(txn, source.dir.number, plan.from.inode, plan.who)?;
    match plan.to {
        None => names::permit_change(txn, target.dir.number, plan.who)?,
        Some(to) => {
            names::permit_removal(txn, target.dir.number, to.inode, plan.who)?;
            match (plan.moves_directory(), to.kind == ino::DIRECTORY) {
                (true, false) if !any_kind => return Err(Errno::ENOTDIR),
                (false, true) if !any_kind => return Err(Errno::EISDIR),
                _ => {}
            }
        }
    }
    let mut may_write = |inode| {
        let step = names::step(txn, inode);
        rights::permit(txn, plan.who, &step, want::WRITE)
    };
    if apart && plan.moves_directory() {
        may_write(plan.from.inode)?;
    }
    match plan.target_directory() {
        Some(to) if apart && plan.flags == RENAME_EXCHANGE => may_write(to),
        _ => Ok(()),
    }
}

/// Whether directory `dir` is `above` or lies below it.
fn is_below(txn: &Txn<'_>, dir: u32, above: u32) -> Result<bool> {
    let mut here = dir;
    for _ in 0..DEPTH_MAX {
        if here == above {
            return Ok(true);
        }
        let parent = high(txn.get(txn.region.map.object(INODE, here).word(ino::PARENT)));
        if parent == here || parent == 0 {
            return Ok(false);
        }
        here = parent;
    }
    Err(Errno::ELOOP)
}

fn move_name(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
    plan: &Plan<'_>,
) -> Result<()> {
    let (from, now_ns, open) = (plan.from, plan.now_ns, &plan.pair);
    let same = source.dir == target.dir;
    let host = entries::leaves_whiteout(txn.region, from.line);
    let heir = (same && plan.to.is_none() && !host).then_some(from.line);
    let line = match plan.to {
        Some(to) => {
            entries::replace(txn, &open.target, &target.key, to.line, from.inode, from.kind)?
        }
        None => entries::add(txn, &open.target, &target.key, from.inode, from.kind, 0, heir)?,
    };
    entries::remove(txn, &open.source, &source.key, from.line, heir.is_some())?;
    let moved = plan.moves_directory();
    if moved {
        names::set_parent(txn, from.inode, target.dir.number, line);
    } else {
        named::note_instead(txn, from.inode, from.line, line);
    }
    let inode = txn.region.map.object(INODE, from.inode);
    entries::touch(txn, inode.word(ino::CTIME), now_ns);
    let replaced = plan.target_directory().is_some() as i32;
    let gone = plan.to.is_some() as i64;
    if same {
        entries::changed(txn, &open.source, -gone, -replaced, now_ns);
    } else {
        entries::changed(txn, &open.source, -1, -(moved as i32), now_ns);
        entries::changed(txn, &open.target, 1 - gone, moved as i32 - replaced, now_ns);
    }
    post::of_move(txn, &source.told(), &target.told(), from.kind)?;
    if let Some(to) = plan.to {
        post::of_self(txn, to.inode, IN_ATTRIB | post::directory_bit(to.kind))?;
    }
    post::of_self(txn, from.inode, IN_MOVE_SELF)?;
    plan.to.map_or(Ok(()), |to| drop_replaced(txn, to, target.dir, now_ns))
}

fn drop_replaced(txn: &mut Txn<'_>, to: Found, dir: Inode, now_ns: i64) -> Result<()> {
    if to.kind == ino::DIRECTORY {
        return names::remove_directory(txn, to.inode, dir, now_ns);
    }
    inodes::unlink(txn, to.inode, now_ns)
}

fn exchange(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
    plan: &Plan<'_>,
) -> Result<()> {
    let (from, to, open) = (plan.from, plan.to.ok_or(RETRY)?, &plan.pair);
    let one = entries::replace(txn, &open.source, &source.key, from.line, to.inode, to.kind)?;
    let two = entries::replace(txn, &open.target, &target.key, to.line, from.inode, from.kind)?;
    let (from_dir, to_dir) = (from.kind == ino::DIRECTORY, to.kind == ino::DIRECTORY);
    if to_dir {
        names::set_parent(txn, to.inode, source.dir.number, one);
    } else {
        named::note_instead(txn, to.inode, to.line, one);
    }
    if from_dir {
        names::set_parent(txn, from.inode, target.dir.number, two);
    } else {
        named::note_instead(txn, from.inode, from.line, two);
    }
    for number in [from.inode, to.inode] {
        let cell = txn.region.map.object(INODE, number);
        entries::touch(txn, cell.word(ino::CTIME), plan.now_ns);
    }
    let apart = if source.dir == target.dir { 0 } else { to_dir as i32 - from_dir as i32 };
    entries::changed(txn, &open.source, 0, apart, plan.now_ns);
    entries::changed(txn, &open.target, 0, -apart, plan.now_ns);
    let (one, two) = (source.told(), target.told());
    post::of_move(txn, &one, &two, from.kind)?;
    post::of_self(txn, from.inode, IN_MOVE_SELF)?;
    post::of_move(txn, &two, &one, to.kind)?;
    post::of_self(txn, to.inode, IN_MOVE_SELF)
}
