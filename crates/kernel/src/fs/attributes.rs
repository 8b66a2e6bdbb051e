//! Changing attributes, with Linux's permission rules; `statfs`.

use husk_abi::capability::{CHOWN, FOWNER, FSETID};
use husk_abi::sys::general::{IN_ACCESS, IN_ATTRIB, IN_MODIFY};
use husk_proto::fs::{Change, Credentials, SetBits, Step, Time, Usage, want};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, Txn};

use crate::Kernel;
use crate::fs::directory::{entries, names, share};
use crate::fs::{extended, rights, unsaved};
use crate::image::answers::{self, Changes};
use crate::state::{high, ino, kind_bits, live, low, pair, whole};
use crate::watch::post;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// `Fs::change`.
pub fn change(
    kernel: &Kernel,
    who: &Credentials<'_>,
    inode: Inode,
    change: Change,
    now_ns: i64,
) -> Result<()> {
    kernel.run(|txn| {
        let cell = live(txn.region, inode)?;
        let kind = kind_bits(txn.get(cell.word(ino::IDENT)));
        if kind == ino::DIRECTORY {
            share::lock_attributes(txn, inode.number, change.modified.is_some())?;
        }
        txn.lock(cell)?;
        whole(txn.region, inode)?;
        let step = names::step(txn, inode.number);
        if change.is_of_owner() {
            set_owner(txn, cell, who, &step, &change)?;
        }
        if let Some(mode) = change.mode {
            set_mode(txn, cell, who, &step, mode)?;
        }
        set_times(txn, cell, who, &step, &change, now_ns)?;
        if kind == ino::DIRECTORY && change.modified.is_some() {
            share::forget_times(txn, inode.number);
        }
        entries::touch(txn, cell.word(ino::CTIME), after_the_host(txn, cell, now_ns));
        let told = match told_of(&change) {
            0 => Ok(()),
            told => post::of_file(txn, inode.number, told),
        };
        answers::keep(kernel, txn, Changes::Attributes, told, |_| [0; 2])
    })?;
    unsaved::note_attributes(kernel, inode);
    Ok(())
}

/// The time of a status change. A write-back sees by that time alone that attributes of a host's
/// object were changed here, so it is never the time of the host's own last change. The clock
/// stands still for some milliseconds.
pub(crate) fn after_the_host(txn: &Txn<'_>, inode: Cell, now_ns: i64) -> i64 {
    let last_ns = txn.get(inode.word(ino::CTIME)).cast_signed();
    let is_hosts = low(txn.get(inode.word(ino::ORIGIN))) != 0;
    let same_tick = last_ns == now_ns || last_ns == now_ns + 1;
    if is_hosts && same_tick { now_ns + 1 } else { now_ns }
}

/// Sets all times of what is no part of a wide directory: access, modification, status change,
/// creation.
pub fn set_all_times(kernel: &Kernel, inode: Inode, times_ns: [i64; 4]) -> Result<()> {
    kernel.run(|txn| {
        let cell = live(txn.region, inode)?;
        if kind_bits(txn.get(cell.word(ino::IDENT))) == ino::DIRECTORY {
            share::lock_attributes(txn, inode.number, true)?;
        }
        txn.lock(cell)?;
        whole(txn.region, inode)?;
        let [accessed, modified, changed, born] = times_ns;
        let times = [(ino::ATIME, accessed), (ino::MTIME, modified), (ino::CTIME, changed)];
        for (word, time) in times {
            txn.set(cell.word(word), time.cast_unsigned());
        }
        if crate::fs::extended::first(txn.region, cell) == 0 && born >= 0 {
            txn.set(cell.word(ino::BORN), born.cast_unsigned());
        }
        Ok(())
    })
}

/// What watchers are told of a change.
fn told_of(change: &Change) -> u32 {
    let attributes = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
    let times = match (change.accessed, change.modified) {
        (Some(_), Some(_)) => IN_ATTRIB,
        (Some(_), None) => IN_ACCESS,
        (None, Some(_)) => IN_MODIFY,
        (None, None) => 0,
    };
    times | if attributes { IN_ATTRIB } else { 0 }
}

fn owns(who: &Credentials<'_>, step: &Step) -> bool {
    who.uid == step.uid || who.can_over(step.uid, step.gid, FOWNER)
}

fn set_mode(
    txn: &mut Txn<'_>,
    cell: Cell,
    who: &Credentials<'_>,
    step: &Step,
    mode: u32,
) -> Result<()> {
    if !owns(who, step) {
        return Err(Errno::EPERM);
    }
    let gid = low(txn.get(cell.word(ino::OWNER)));
    let keep_group = who.in_group(gid) || who.can_over(step.uid, step.gid, FSETID);
    let mode = if keep_group { mode } else { mode & !SET_GROUP } & 0o7777;
    write_mode(txn, cell, mode);
    if step.acl { rights::follow_mode(txn, cell, mode) } else { Ok(()) }
}

fn write_mode(txn: &mut Txn<'_>, cell: Cell, mode: u32) {
    let ident = txn.get(cell.word(ino::IDENT));
    txn.set(cell.word(ino::IDENT), pair(high(ident), low(ident) & !0o7777 | mode));
}

fn set_owner(
    txn: &mut Txn<'_>,
    cell: Cell,
    who: &Credentials<'_>,
    step: &Step,
    change: &Change,
) -> Result<()> {
    let (uid, gid) = (change.uid.unwrap_or(step.uid), change.gid.unwrap_or(step.gid));
    let mine = who.uid == step.uid;
    let gives = who.can_over(step.uid, step.gid, CHOWN);
    let uid_ok = change.uid.is_none() || (mine && uid == step.uid) || gives;
    let group_mine = who.in_group(gid) || gid == step.gid;
    let gid_ok = change.gid.is_none() || (mine && group_mine) || gives;
    if !uid_ok || !gid_ok {
        return Err(Errno::EPERM);
    }
    txn.set(cell.word(ino::OWNER), pair(uid, gid));
    if step.kind == husk_proto::fs::Kind::Directory {
        return Ok(());
    }
    extended::drop_capabilities(txn, cell)?;
    let kept = kept_by_owner_change(who, step, gid);
    if kept != step.mode {
        // Linux takes the change of mode for one of the caller's.
        if !owns(who, step) {
            return Err(Errno::EPERM);
        }
        write_mode(txn, cell, kept);
    }
    Ok(())
}

/// The mode after a change of owner or group: set-user goes, set-group too, unless it marks locking
/// and the caller is in the group, and in the new one if the mode changes at all.
fn kept_by_owner_change(who: &Credentials<'_>, step: &Step, new_gid: u32) -> u32 {
    let keeps = |gid| who.in_group(gid) || who.can_over(step.uid, step.gid, FSETID);
    let mode = without_set_bits(step.mode);
    let mode = if keeps(step.gid) { mode } else { mode & !SET_GROUP };
    if mode == step.mode || keeps(new_gid) { mode } else { mode & !SET_GROUP }
}

/// A mode without set-user, and without set-group unless it marks locking.
fn without_set_bits(mode: u32) -> u32 {
    let group = if mode & 0o010 != 0 { SET_GROUP } else { 0 };
    mode & !(SET_USER | group)
}

/// A mode after a change of content.
pub fn after_change(mode: u32, leaves: SetBits) -> u32 {
    match leaves {
        SetBits::All => mode,
        SetBits::Nothing => mode & !(SET_USER | SET_GROUP),
        SetBits::Marks | SetBits::Ask => without_set_bits(mode),
    }
}

fn set_times(
    txn: &mut Txn<'_>,
    cell: Cell,
    who: &Credentials<'_>,
    step: &Step,
    change: &Change,
    now_ns: i64,
) -> Result<()> {
    let times = [(change.accessed, ino::ATIME), (change.modified, ino::MTIME)];
    let chosen = times.iter().any(|(time, _)| matches!(time, Some(Time::At(_))));
    let any = times.iter().any(|(time, _)| time.is_some());
    if any && !owns(who, step) {
        if chosen {
            return Err(Errno::EPERM);
        }
        rights::permit(txn, who, step, want::WRITE)?;
    }
    for (time, word) in times {
        match time {
            Some(Time::Now) => txn.set(cell.word(word), now_ns as u64),
            Some(Time::At(at)) => txn.set(cell.word(word), at as u64),
            None => {}
        }
    }
    Ok(())
}

/// `Fs::usage`.
pub fn usage(kernel: &Kernel) -> Usage {
    let session = &kernel.session;
    Usage {
        blocks: session.region.block_count() as u64 - 1,
        blocks_free: session.blocks_free(),
        inodes: session.region.map.classes[INODE].count as u64 - 1,
        inodes_free: session.free_count(INODE),
    }
}
