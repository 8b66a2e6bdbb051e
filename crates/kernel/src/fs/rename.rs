//! Rename: one plan over two directories, the moved inodes and what is replaced.
//!
//! 1. First the tokens of both directories, then a look: where no directory is moved elsewhere or
//!    replaced, that is all. Else start over: look without locks, take all tokens in order, look
//!    again; if anything differs, start over.
//! 2. Parent links of directories change only under the rename lock (when the parent differs) and
//!    the tokens of both directories, so the walk upwards is stable under the rename lock.

use husk_proto::fs::{Credentials, RENAME_EXCHANGE, RENAME_NOREPLACE};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, RETRY, Txn};

use crate::Kernel;
use crate::fs::entries::{self, Found, Key};
use crate::fs::{inodes, names};
use crate::image::RENAME_LOCK;
use crate::state::{high, ino, live, low};

/// Deepest tree a rename walks up.
const DEPTH_MAX: u32 = 1 << 16;

/// One side of a rename.
struct Side<'a> {
    dir: Inode,
    key: Key<'a>,
    cell: Cell,
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
        let (from, to) = if core::mem::take(&mut simple) {
            look_under_tokens(txn, &source, &target)?
        } else {
            let from = entries::peek(txn.session, &source.key)?.ok_or(Errno::ENOENT)?;
            let to = entries::peek(txn.session, &target.key)?;
            take_locks(txn, &source, &target, from, to)?;
            (from, to)
        };
        lock_inodes(txn, from, to)?;
        let plan = Plan { who, flags, now_ns, from, to };
        check(txn, &source, &target, &plan)?;
        if to.is_some_and(|to| to.inode == from.inode) {
            return Ok(());
        }
        if flags == RENAME_EXCHANGE {
            return exchange(txn, &source, &target, &plan);
        }
        move_name(txn, &source, &target, &plan)
    })
}

struct Plan<'a> {
    who: &'a Credentials<'a>,
    flags: u32,
    now_ns: i64,
    from: Found,
    to: Option<Found>,
}

impl Plan<'_> {
    fn moves_directory(&self) -> bool {
        self.from.kind == ino::DIRECTORY
    }

    fn target_directory(&self) -> Option<u32> {
        self.to.filter(|to| to.kind == ino::DIRECTORY).map(|to| to.inode)
    }
}

fn side<'a>(txn: &Txn<'_>, dir: Inode, name: &'a [u8]) -> Result<Side<'a>> {
    Ok(Side { dir, key: Key::new(dir.number, name)?, cell: live(txn.region, dir)? })
}

/// Takes both directories' tokens and names; `RETRY` when that is not enough.
fn look_under_tokens(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
) -> Result<(Found, Option<Found>)> {
    let apart = source.dir != target.dir;
    if apart {
        let one = entries::token(txn.region, source.dir.number);
        txn.lock(one.min(entries::token(txn.region, target.dir.number)))?;
    }
    open_both(txn, source, target)?;
    let look = |key: &Key<'_>| entries::find(txn.region, key);
    let (from, to) = (look(&source.key), look(&target.key));
    let from = entries::found(txn.region, from.ok_or(Errno::ENOENT)?);
    let to = to.map(|line| entries::found(txn.region, line));
    let replaces = to.is_some_and(|to| to.kind == ino::DIRECTORY);
    if replaces || apart && from.kind == ino::DIRECTORY { Err(RETRY) } else { Ok((from, to)) }
}

/// Opens both directories, whose tokens are held or one and the same, and locks both names.
fn open_both(txn: &mut Txn<'_>, source: &Side<'_>, target: &Side<'_>) -> Result<()> {
    entries::open_directory(txn, source.dir)?;
    if source.dir != target.dir {
        entries::open_directory(txn, target.dir)?;
    }
    let (one, two) = (source.key.bucket(txn.region), target.key.bucket(txn.region));
    txn.lock(one.min(two))?;
    txn.lock(one.max(two))
}

fn take_locks(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
    from: Found,
    to: Option<Found>,
) -> Result<()> {
    let apart = source.dir != target.dir;
    let replaced = to.filter(|to| to.kind == ino::DIRECTORY).map_or(0, |to| to.inode);
    if apart && (from.kind == ino::DIRECTORY || replaced != 0) {
        txn.lock(txn.region.map.fixed(RENAME_LOCK))?;
    }
    names::lock_tokens(txn, &[source.dir.number, target.dir.number, replaced])?;
    open_both(txn, source, target)?;
    entries::find_again(txn, &source.key, Some(from))?;
    entries::find_again(txn, &target.key, to)
}

fn lock_inodes(txn: &mut Txn<'_>, from: Found, to: Option<Found>) -> Result<()> {
    let (one, two) = (from.inode, to.map_or(from.inode, |to| to.inode));
    txn.lock(txn.region.map.object(INODE, one.min(two)))?;
    if one != two {
        txn.lock(txn.region.map.object(INODE, one.max(two)))?;
    }
    Ok(())
}

fn check(txn: &Txn<'_>, source: &Side<'_>, target: &Side<'_>, plan: &Plan<'_>) -> Result<()> {
    if plan.flags == RENAME_NOREPLACE && plan.to.is_some() {
        return Err(Errno::EEXIST);
    }
    if plan.flags == RENAME_EXCHANGE && plan.to.is_none() {
        return Err(Errno::ENOENT);
    }
    if plan.from.kind == ino::PORTAL || plan.to.is_some_and(|to| to.kind == ino::PORTAL) {
        return Err(Errno::EBUSY);
    }
    names::permit_removal(txn, source.dir.number, plan.from.inode, plan.who)?;
    names::permit_change(txn, target.dir.number, plan.who)?;
    let apart = source.dir != target.dir;
    if plan.moves_directory() && apart {
        if is_below(txn, target.dir.number, plan.from.inode)? {
            return Err(Errno::EINVAL);
        }
        plan.who.permit(&names::step(txn, plan.from.inode), 2)?;
    }
    let Some(to) = plan.to else { return Ok(()) };
    names::permit_removal(txn, target.dir.number, to.inode, plan.who)?;
    if plan.flags == RENAME_EXCHANGE {
        let circle = to.kind == ino::DIRECTORY && is_below(txn, source.dir.number, to.inode)?;
        return if circle { Err(Errno::EINVAL) } else { Ok(()) };
    }
    if to.kind == ino::DIRECTORY && is_below(txn, source.dir.number, to.inode)? {
        return Err(Errno::ENOTEMPTY);
    }
    match (plan.moves_directory(), to.kind == ino::DIRECTORY) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
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
    let (from, now_ns) = (plan.from, plan.now_ns);
    let same = source.dir == target.dir;
    let host = entries::leaves_whiteout(txn.region, from.line);
    let heir = (same && plan.to.is_none() && !host).then_some(from.line);
    let line = match plan.to {
        Some(to) => {
            entries::replace(txn, target.cell, &target.key, to.line, from.inode, from.kind)?
        }
        None => entries::add(txn, target.cell, &target.key, from.inode, from.kind, 0, heir)?,
    };
    entries::remove(txn, source.cell, &source.key, from.line, heir.is_some())?;
    if let Some(to) = plan.to {
        drop_replaced(txn, to, now_ns)?;
    }
    let moved = plan.moves_directory();
    if moved {
        names::set_parent(txn, from.inode, target.dir.number, line);
    }
    let inode = txn.region.map.object(INODE, from.inode);
    entries::touch(txn, inode.word(ino::CTIME), now_ns);
    let replaced = plan.target_directory().is_some() as i32;
    let gone = plan.to.is_some() as i64;
    if same {
        entries::changed(txn, source.cell, -gone, -replaced, now_ns);
    } else {
        entries::changed(txn, source.cell, -1, -(moved as i32), now_ns);
        entries::changed(txn, target.cell, 1 - gone, moved as i32 - replaced, now_ns);
    }
    Ok(())
}

fn drop_replaced(txn: &mut Txn<'_>, to: Found, now_ns: i64) -> Result<()> {
    if to.kind == ino::DIRECTORY {
        return names::remove_directory(txn, to.inode, now_ns);
    }
    inodes::unlink(txn, to.inode, now_ns)
}

fn exchange(
    txn: &mut Txn<'_>,
    source: &Side<'_>,
    target: &Side<'_>,
    plan: &Plan<'_>,
) -> Result<()> {
    let (from, to) = (plan.from, plan.to.ok_or(RETRY)?);
    let one = entries::replace(txn, source.cell, &source.key, from.line, to.inode, to.kind)?;
    let two = entries::replace(txn, target.cell, &target.key, to.line, from.inode, from.kind)?;
    let (from_dir, to_dir) = (from.kind == ino::DIRECTORY, to.kind == ino::DIRECTORY);
    if to_dir {
        names::set_parent(txn, to.inode, source.dir.number, one);
    }
    if from_dir {
        names::set_parent(txn, from.inode, target.dir.number, two);
    }
    for number in [from.inode, to.inode] {
        let cell = txn.region.map.object(INODE, number);
        entries::touch(txn, cell.word(ino::CTIME), plan.now_ns);
    }
    let apart = if source.dir == target.dir { 0 } else { to_dir as i32 - from_dir as i32 };
    entries::changed(txn, source.cell, 0, apart, plan.now_ns);
    entries::changed(txn, target.cell, 0, -apart, plan.now_ns);
    debug_assert!(low(txn.get(source.cell.word(ino::LINKS))) < u32::MAX / 2);
    Ok(())
}
