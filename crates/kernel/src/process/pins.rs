//! Pins: references of a process to files that it has mapped, or made without a name (O_TMPFILE).
//!
//! ```text
//!   pin (a line)   1 WRITES:32 next:32   2 count:32 inode:32
//! ```
//!
//! 1. One line a process and inode; its inode has one user more while it is there.
//! 2. With `WRITES` the inode has one writer more as well: who has mapped it may write to it, and
//!    nobody can run it, be its descriptor closed.
//! 3. What a child will have mapped from its first moment on its parent pins for it, before there
//!    is such a child (`pin_for`): it may run late, and its parent be gone by then.

use husk_proto::{Errno, Inode, Process, Result};
use husk_region::{Cell, INODE, LINE, Region, Txn};

use crate::fs::{bytes, inodes, named};
use crate::state::hold;
use crate::state::process::{PINS, record};
use crate::state::text;
use crate::state::{high, ino, live, low, pair, tag};
use crate::{Kernel, lock, no_room};

/// Some mapping of the process may be written through.
const WRITES: u32 = 1;

/// The link (cell) that leads to the pin of `inode`, and its line (0 = none, the list's end).
fn find(txn: &Txn<'_>, process: Cell, inode: u32) -> (Cell, u32) {
    let mut link = process.word(PINS);
    loop {
        let line = low(txn.get(link));
        let cell = txn.region.map.object(LINE, line);
        if line == 0 || low(txn.get(cell.word(2))) == inode {
            return (link, line);
        }
        link = cell.word(1);
    }
}

/// Adds a pin of the process; the inode is locked.
pub(crate) fn add(txn: &mut Txn<'_>, process: Cell, inode: u32) -> Result<()> {
    add_some(txn, process, inode, 1)
}

fn add_some(txn: &mut Txn<'_>, process: Cell, inode: u32, count: u32) -> Result<()> {
    let (_, line) = find(txn, process, inode);
    if line != 0 {
        let cell = txn.region.map.object(LINE, line).word(2);
        let word = txn.get(cell);
        txn.set(cell, word + (u64::from(count) << 32));
        return Ok(());
    }
    let line = txn.allocate(LINE)?;
    let cell = txn.region.map.object(LINE, line);
    txn.init(cell, pair(high(txn.get(cell)), tag::PIN));
    txn.init(cell.word(1), txn.get(process.word(PINS)));
    txn.init(cell.word(2), pair(count, inode));
    txn.set(process.word(PINS), line as u64);
    let inode_cell = txn.region.map.object(INODE, inode);
    hold::add_users(txn, inode_cell, 0, 1);
    Ok(())
}

/// `Processes::pin`.
pub fn pin(kernel: &Kernel, inode: Inode) -> Result<()> {
    kernel.run(|txn| {
        let process = record(txn.region, kernel.process);
        txn.lock(process)?;
        hold::lock_to_hold(txn, inode)?;
        add(txn, process, inode.number)
    })
}

/// `Processes::pin_writes`.
pub fn pin_writes(kernel: &Kernel, inode: Inode) -> Result<()> {
    crate::fs::unsaved::note_mapped(kernel, inode);
    kernel.run(|txn| {
        let process = record(txn.region, kernel.process);
        txn.lock(process)?;
        hold::lock_to_hold(txn, inode)?;
        if lock::is_mapped_elsewhere(txn.region, txn.region.map.object(INODE, inode.number)) {
            return Err(Errno::ENODEV);
        }
        mark_writes(txn, process, inode.number)
    })
}

/// Some of the inodes that the process has pinned, from the one with this place on; how many.
pub fn pinned(kernel: &Kernel, from: usize, out: &mut [Inode]) -> Result<usize> {
    kernel.run(|txn| {
        let process = record(txn.region, kernel.process);
        txn.lock(process)?;
        let (mut place, mut count) = (0, 0);
        let mut line = low(txn.get(process.word(PINS)));
        while line != 0 && count < out.len() {
            let cell = txn.region.map.object(LINE, line);
            if place >= from {
                let number = low(txn.get(cell.word(2)));
                let ident = txn.region.load(txn.region.map.object(INODE, number).word(ino::IDENT));
                out[count] = Inode { number, generation: high(ident) };
                count += 1;
            }
            place += 1;
            line = low(txn.get(cell.word(1)));
        }
        Ok(count)
    })
}

/// Whether an inode has no other user than the process, which has pinned it once; `all`: or more
/// often.
pub fn is_last(kernel: &Kernel, inode: Inode, all: bool) -> Result<bool> {
    kernel.run(|txn| {
        let process = record(txn.region, kernel.process);
        txn.lock(process)?;
        let (_, line) = find(txn, process, inode.number);
        let count = high(txn.get(txn.region.map.object(LINE, line).word(2)));
        let users = high(txn.get(txn.region.map.object(INODE, inode.number).word(ino::USERS)));
        Ok(line != 0 && (all || count == 1) && users == 1)
    })
}

/// Whether some process has mapped a file to write to it.
#[cfg(feature = "answers")]
pub fn is_written(kernel: &Kernel, inode: Inode) -> Result<bool> {
    let region = &kernel.session.region;
    let maps = |number: &u32| region.load(record(region, *number).word(PINS)) != 0;
    for number in (1..crate::state::process::PROCESSES_MAX).filter(maps) {
        let found = kernel.run(|txn| {
            let process = record(txn.region, number);
            txn.lock(process)?;
            let (_, line) = find(txn, process, inode.number);
            Ok(line != 0 && writes(txn.region, line))
        })?;
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process may write to what it has pinned; both are locked.
fn mark_writes(txn: &mut Txn<'_>, process: Cell, inode: u32) -> Result<()> {
    let (_, line) = find(txn, process, inode);
    if line == 0 {
        return Err(Errno::ENOENT);
    }
    let link = txn.region.map.object(LINE, line).word(1);
    let word = txn.get(link);
    if high(word) & WRITES == 0 {
        named::add_writers(txn, inode, 1)?;
        txn.set(link, pair(high(word) | WRITES, low(word)));
    }
    Ok(())
}

/// `Processes::pin_for`.
pub fn pin_for(
    kernel: &Kernel,
    child: Process,
    inode: Inode,
    count: u32,
    writes: bool,
) -> Result<()> {
    let pinned = kernel.run_reserved(|txn| {
        let process = record(txn.region, child.0);
        txn.lock(process)?;
        hold::lock_to_hold(txn, inode)?;
        add_some(txn, process, inode.number, count)?;
        if writes { mark_writes(txn, process, inode.number) } else { Ok(()) }
    });
    match pinned {
        // There is nothing left to keep.
        Err(Errno::ESTALE) => Ok(()),
        result => result.map_err(no_room(Errno::EAGAIN)),
    }
}

/// Whether a pin counts as a writer, for the checker.
pub(crate) fn writes(region: &Region, line: u32) -> bool {
    high(region.load(region.map.object(LINE, line).word(1))) & WRITES != 0
}

/// Takes one pin (or all) of a process on an inode back.
fn take(kernel: &Kernel, process: u32, number: u32, all: bool) -> Result<()> {
    let region = &kernel.session.region;
    let cell = region.map.object(INODE, number);
    let trims = low(region.load(cell.word(ino::IDENT))) & ino::TRIM != 0;
    let inode = Inode { number, generation: high(region.load(cell.word(ino::IDENT))) };
    let gone = kernel.run(|txn| {
        let process = record(txn.region, process);
        txn.lock(process)?;
        let (link, line) = find(txn, process, number);
        if line == 0 {
            return Ok(false);
        }
        let pin = txn.region.map.object(LINE, line);
        let word = txn.get(pin.word(2));
        if high(word) > 1 && !all {
            txn.set(pin.word(2), word - (1 << 32));
            return Ok(false);
        }
        let (writes, next) = (writes(txn.region, line), low(txn.get(pin.word(1))));
        let old = txn.get(link);
        txn.set(link, pair(high(old), next));
        text::retire_line(txn, line);
        txn.lock(cell)?;
        hold::add_users(txn, cell, 0, -1);
        if writes {
            named::add_writers(txn, number, -1)?;
        }
        let last = high(txn.get(cell.word(ino::USERS))) == 0;
        inodes::reap(txn, number)?;
        Ok(last)
    })?;
    if !gone || !trims {
        return Ok(());
    }
    match bytes::trim_unpinned(kernel, inode) {
        // Gone or going: its blocks are freed anyhow.
        Err(Errno::ESTALE) => Ok(()),
        result => result,
    }
}

/// `Processes::unpin`.
pub fn unpin(kernel: &Kernel, inode: Inode) -> Result<()> {
    live(&kernel.session.region, inode)?;
    take(kernel, kernel.process, inode.number, false)
}

pub(crate) fn drop_all(kernel: &Kernel, process: u32) -> Result<()> {
    let region = &kernel.session.region;
    loop {
        let line = low(region.load(record(region, process).word(PINS)));
        if line == 0 {
            return Ok(());
        }
        let inode = low(region.load(region.map.object(LINE, line).word(2)));
        take(kernel, process, inode, true)?;
    }
}
