//! Back references of a file's inode: its latest directory entry, its writers, and the processes
//! that execute it.
//!
//! ```text
//!   word 12 of the inode:   writers:32 (signed)   entry:32
//!                           > 0 descriptions open for writing, < 0 processes that run it
//! ```
//!
//! 1. The entry is a hint, for `/proc/self/fd/N`: it may be gone, or be another one's by now, so
//!    whoever reads it checks that it still leads here. An inode whose hint is stale has no name to
//!    show, though other names may lead to it.
//! 2. Writers and runners exclude each other (`ETXTBSY`). Both change under the inode's lock.

use husk_proto::{Errno, Inode, Result};
use husk_region::{INODE, Txn};

use crate::Kernel;
use crate::state::name::{self, LOOKS_MAX, entry};
use crate::state::{ent, high, ino, kind_bits, live, low, pair};

/// Notes the entry that leads to a locked inode from now on.
#[inline]
fn note(txn: &mut Txn<'_>, number: u32, line: u32) {
    let cell = txn.region.map.object(INODE, number).word(ino::KNOWN);
    let word = txn.get(cell);
    txn.set(cell, pair(high(word), line));
}

/// The same where entry `old`, which no longer leads there, or none that does is known (0).
#[inline]
pub fn note_instead(txn: &mut Txn<'_>, number: u32, old: u32, line: u32) {
    let cell = txn.region.map.object(INODE, number).word(ino::KNOWN);
    let known = low(txn.get(cell));
    if known == old || entry(txn.region, number, known).is_none() {
        note(txn, number, line);
    }
}

/// The directory that holds the name of `inode`, and the name in `out`; `ENOENT` if none is known.
fn look(kernel: &Kernel, inode: Inode, out: &mut [u8; 255]) -> Result<(Inode, usize)> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    for _ in 0..LOOKS_MAX {
        let line = low(region.load(cell.word(ino::KNOWN)));
        let (line, head) = entry(region, inode.number, line).ok_or(Errno::ENOENT)?;
        let number = high(region.load(line.word(ent::LINK)));
        let ident = region.load(region.map.object(INODE, number).word(ino::IDENT));
        let length = name::copy_name(region, line, out);
        live(region, inode)?;
        if region.load(line) == head && kind_bits(ident) == ino::DIRECTORY {
            return Ok((Inode { number, generation: high(ident) }, length));
        }
    }
    Err(Errno::ENOENT)
}

/// `Fs::parent` of what is no directory.
pub fn parent(kernel: &Kernel, inode: Inode) -> Result<Inode> {
    look(kernel, inode, &mut [0; 255]).map(|(dir, _)| dir)
}

/// `Fs::name_of` what is no directory.
pub fn name_of(kernel: &Kernel, inode: Inode, out: &mut [u8; 255]) -> Result<usize> {
    look(kernel, inode, out).map(|(_, length)| length)
}

/// Writers of a file, or as a negative number the processes that run it.
pub fn writers(kernel: &Kernel, inode: Inode) -> Result<i32> {
    let region = &kernel.session.region;
    Ok(high(region.load(live(region, inode)?.word(ino::KNOWN))) as i32)
}

/// `ETXTBSY` while somebody runs a locked inode.
pub fn may_write(txn: &Txn<'_>, number: u32) -> Result<()> {
    let word = txn.get(txn.region.map.object(INODE, number).word(ino::KNOWN));
    if (high(word) as i32) < 0 { Err(Errno::ETXTBSY) } else { Ok(()) }
}

/// One writer more of a locked inode, or one less; `ETXTBSY` while somebody runs it.
#[inline]
pub fn add_writers(txn: &mut Txn<'_>, number: u32, by: i32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number).word(ino::KNOWN);
    let word = txn.get(cell);
    let writers = high(word) as i32;
    if by > 0 && writers < 0 {
        return Err(Errno::ETXTBSY);
    }
    txn.set(cell, pair((writers + by) as u32, low(word)));
    Ok(())
}

/// One process more that runs a locked inode, or one less; `ETXTBSY` while it is open for writing.
pub fn add_runners(txn: &mut Txn<'_>, number: u32, by: i32) -> Result<()> {
    let cell = txn.region.map.object(INODE, number).word(ino::KNOWN);
    let word = txn.get(cell);
    let writers = high(word) as i32;
    if by > 0 && writers > 0 {
        return Err(Errno::ETXTBSY);
    }
    txn.set(cell, pair((writers - by) as u32, low(word)));
    Ok(())
}
