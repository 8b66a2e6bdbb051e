//! Posts inotify events: each operation in its own transaction, as its last step.
//!
//! The order is Linux's: the directory's watchers before the file's own.

use husk_abi::sys::general::{IN_DELETE_SELF, IN_ISDIR, IN_MOVED_FROM, IN_MOVED_TO, IN_ONESHOT};
use husk_proto::{Inode, Result};
use husk_region::{INODE, Region, Txn};

use super::list::{self, Watch};
use super::queue::{self, Event};
use super::{COOKIE, any, lock, record_at, word};
use crate::Kernel;
use crate::state::name;
use crate::state::{high, ino, kind_bits, low};

/// Entries of a journal that are left to the operation: who has more watchers than fit loses
/// events, and is told that.
const ROOM_MIN: u32 = 24;

/// The bit that says that an event is a directory's.
pub fn directory_bit(kind: u32) -> u32 {
    if kind == ino::DIRECTORY { IN_ISDIR } else { 0 }
}

/// Something happened to an inode, which is locked: its watchers are told, and those of the
/// directory that it has its name in.
#[inline]
pub fn of_file(txn: &mut Txn<'_>, inode: u32, mask: u32) -> Result<()> {
    if any(txn.region) { of_file_watched(txn, inode, mask) } else { Ok(()) }
}

#[cold]
#[inline(never)]
fn of_file_watched(txn: &mut Txn<'_>, inode: u32, mask: u32) -> Result<()> {
    let ident = txn.get(txn.region.map.object(INODE, inode).word(ino::IDENT));
    let mask = mask | directory_bit(kind_bits(ident));
    let mut name = [0; 255];
    let watched = |dir| is_watched(txn.region, dir);
    if let Some((dir, length)) = name::place(txn.region, inode, watched, &mut name) {
        tell(txn, dir, mask, 0, &name[..length])?;
    }
    tell(txn, inode, mask, 0, b"")
}

/// The same to the inode's own watchers only.
#[inline]
pub fn of_self(txn: &mut Txn<'_>, inode: u32, mask: u32) -> Result<()> {
    if any(txn.region) { tell(txn, inode, mask, 0, b"") } else { Ok(()) }
}

/// A name of a directory came or went.
#[inline]
pub fn of_name(txn: &mut Txn<'_>, dir: u32, mask: u32, name: &[u8]) -> Result<()> {
    if any(txn.region) { tell(txn, dir, mask, 0, name) } else { Ok(()) }
}

/// One side of a rename.
pub struct Side<'a> {
    /// Directory.
    pub dir: u32,
    /// Name in it.
    pub name: &'a [u8],
}

/// A name moved, and with it `inode` of this kind.
#[inline]
pub fn of_move(txn: &mut Txn<'_>, source: &Side<'_>, target: &Side<'_>, kind: u32) -> Result<()> {
    if !any(txn.region) {
        return Ok(());
    }
    let (directory, cookie) = (directory_bit(kind), next_cookie(txn)?);
    tell(txn, source.dir, IN_MOVED_FROM | directory, cookie, source.name)?;
    tell(txn, target.dir, IN_MOVED_TO | directory, cookie, target.name)
}

fn next_cookie(txn: &mut Txn<'_>) -> Result<u32> {
    lock(txn)?;
    let cell = word(txn.region, COOKIE);
    let next = (txn.get(cell) as u32).wrapping_add(1).max(1);
    txn.set(cell, next as u64);
    Ok(next)
}

/// Whether an inode may have watchers.
#[inline]
pub(crate) fn is_watched(region: &Region, inode: u32) -> bool {
    region.load(list::head(region, inode)) != 0
}

/// A locked inode is going away: whoever watches it is told, and that this was the last. Whether
/// there are watches to be removed (`list::forget_inode`).
#[inline]
pub(crate) fn of_end(txn: &mut Txn<'_>, inode: u32) -> Result<bool> {
    if !any(txn.region) || !is_watched(txn.region, inode) {
        return Ok(false);
    }
    lock(txn)?;
    tell(txn, inode, IN_DELETE_SELF, 0, b"")?;
    let mut found = false;
    let mut next = low(txn.get(list::head(txn.region, inode)));
    while next != 0 {
        let watch = Watch::at(txn.region, next);
        next = watch.next;
        if watch.inode == inode {
            found = true;
            if !watch.is_dead() {
                list::bury(txn, &watch);
            }
        }
    }
    Ok(found)
}

/// Puts an event into the queues of those who watch `inode` for it.
fn tell(txn: &mut Txn<'_>, inode: u32, mask: u32, cookie: u32, name: &[u8]) -> Result<()> {
    if !is_watched(txn.region, inode) {
        return Ok(());
    }
    lock(txn)?;
    let ident = txn.get(txn.region.map.object(INODE, inode).word(ino::IDENT));
    let mut next = low(txn.get(list::head(txn.region, inode)));
    while next != 0 {
        let watch = Watch::at(txn.region, next);
        next = watch.next;
        let wants = watch.mask & mask & !IN_ISDIR != 0 && !watch.is_dead();
        if watch.inode == inode && watch.generation == high(ident) && wants {
            tell_one(txn, &watch, &Event { wd: watch.wd, mask, cookie, name });
        }
    }
    Ok(())
}

fn tell_one(txn: &mut Txn<'_>, watch: &Watch, event: &Event<'_>) {
    let record = record_at(txn.region, watch.instance);
    if high(txn.get(record)) == 0 || txn.room() < ROOM_MIN {
        return;
    }
    queue::push(txn, watch.instance, record, event);
    if watch.mask & IN_ONESHOT != 0 {
        list::bury(txn, watch);
    }
}

/// `Watches::watch_note`, where there are watches.
#[cold]
#[inline(never)]
pub fn alone(kernel: &Kernel, inode: Inode, mask: u32) {
    // Who cannot be told now is not told: nothing else has happened.
    let _ = kernel.run(|txn| {
        crate::state::live(txn.region, inode)?;
        of_file(txn, inode.number, mask)
    });
}
