//! Watches, found by the watched inode and by the watch descriptor.
//!
//! ```text
//!   head[inode % HEADS] -> watch -> watch ...           instance: tree of descriptors -> watch
//!   watch, a line  0 version:32 tag:32   1 next:32 inode:32   2 generation:32 instance:32
//!                  3 wd:32 mask:32
//!   a descriptor of a watch of the host leads to the host's number for it, and back
//! ```
//!
//! 1. A watch that has told its last (`DEAD`: its inode is gone, or it was for one event) stays
//!    until its inode is freed, its instance ends, or the same inode is watched anew.
//! 2. Descriptors are given in order, from 1, those of the host's watches among them; none again.

use husk_abi::sys::general::{IN_ALL_EVENTS, IN_IGNORED, IN_MASK_ADD, IN_MASK_CREATE, IN_ONESHOT};
use husk_proto::watch::{Instance, Removed};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, LINE, Region, Txn};

use super::queue::{self, Event};
use super::{HOSTS, NEXT, WATCHES, add_to, live, lock, number_of, record_at, word};
use crate::Kernel;
use crate::image::WATCH_COUNT;
use crate::state::hold;
use crate::state::{high, low, pair, tag};
use crate::state::{text, tree};

/// Where the heads begin.
pub(crate) const HEADS: u32 = 4096;
const HEADS_COUNT: u32 = 16384;
/// Most watches on files of one image.
const COUNT_MAX: u64 = 65_536;
/// Most instances that watch one inode: what happens to it is told in one transaction.
pub const WATCHERS_MAX: u32 = 16;
/// Watches removed in one step: each gives back its line and, rarely, nodes on the way to it, and a
/// step what the next one's magazines can take.
const STEP: u32 = 4;

const LINKS: u32 = 1;
const OWNER: u32 = 2;
const WANTS: u32 = 3;
/// The mark of a watch that tells nothing any more.
const DEAD: u32 = IN_IGNORED;
/// The mark of a descriptor that is the host's.
const HOST: u64 = 1 << 63;

const _: () = assert!(HEADS + HEADS_COUNT <= queue::RINGS);

/// The head of the chain that the watches of an inode are in.
pub(super) fn head(region: &Region, inode: u32) -> Cell {
    word(region, HEADS + inode % HEADS_COUNT)
}

/// A watch.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub line: u32,
    pub next: u32,
    pub inode: u32,
    pub generation: u32,
    pub instance: u32,
    pub wd: u32,
    pub mask: u32,
}

impl Watch {
    pub fn at(region: &Region, line: u32) -> Watch {
        let cell = region.map.object(LINE, line);
        let load = |n| region.load(cell.word(n));
        let (links, owner, wants) = (load(LINKS), load(OWNER), load(WANTS));
        Watch {
            line,
            next: high(links),
            inode: low(links),
            generation: high(owner),
            instance: low(owner),
            wd: high(wants),
            mask: low(wants),
        }
    }

    pub fn is_dead(&self) -> bool {
        self.mask & DEAD != 0
    }
}

/// The watches of a chain.
pub(super) fn chain(region: &Region, inode: u32) -> impl Iterator<Item = Watch> {
    let first = low(region.load(head(region, inode)));
    let at = move |line: u32| (line != 0).then(|| Watch::at(region, line));
    core::iter::successors(at(first), move |watch| at(watch.next)).take(COUNT_MAX as usize)
}

/// The last that a watch tells.
pub(super) fn bury(txn: &mut Txn<'_>, watch: &Watch) {
    let cell = txn.region.map.object(LINE, watch.line);
    txn.set(cell.word(WANTS), pair(watch.wd, watch.mask | DEAD));
    ignored(txn, watch.instance, watch.wd);
}

fn ignored(txn: &mut Txn<'_>, number: u32, wd: u32) {
    let event = Event { wd, mask: IN_IGNORED, cookie: 0, name: b"" };
    queue::push(txn, number, record_at(txn.region, number), &event);
}

/// `Watches::watch_add`.
pub fn add(kernel: &Kernel, instance: Instance, inode: Inode, mask: u32) -> Result<u32> {
    kernel.run(|txn| {
        hold::lock_to_hold(txn, inode)?;
        lock(txn)?;
        let record = live(txn.region, instance)?;
        let mine = number_of(instance);
        let same = |watch: &Watch| watch.inode == inode.number;
        let found = chain(txn.region, inode.number).filter(same).find(|w| w.instance == mine);
        match found {
            Some(watch) if !watch.is_dead() => return change(txn, &watch, mask),
            Some(watch) => remove_line(txn, &watch)?,
            None => {}
        }
        let watchers = chain(txn.region, inode.number).filter(same).count() as u32;
        let all = txn.get(txn.region.map.fixed(WATCH_COUNT));
        if watchers >= WATCHERS_MAX || all >= COUNT_MAX {
            return Err(Errno::ENOSPC);
        }
        let line = txn.allocate(LINE)?;
        let wd = next_descriptor(txn, record, line as u64)?;
        let (cell, head) = (txn.region.map.object(LINE, line), head(txn.region, inode.number));
        let first = low(txn.get(head));
        txn.init(cell.word(LINKS), pair(first, inode.number));
        txn.init(cell.word(OWNER), pair(inode.generation, mine));
        txn.init(cell.word(WANTS), pair(wd, kept(mask)));
        txn.init(cell, txn.get(cell) & !0xffff_ffff | tag::WATCH as u64);
        txn.set(head, line as u64);
        add_to(txn, WATCH_COUNT, 1);
        Ok(wd)
    })
}

/// What a watch remembers of a mask.
fn kept(mask: u32) -> u32 {
    mask & (IN_ALL_EVENTS | IN_ONESHOT)
}

/// Another mask for a watch there is.
fn change(txn: &mut Txn<'_>, watch: &Watch, mask: u32) -> Result<u32> {
    if mask & IN_MASK_CREATE != 0 {
        return Err(Errno::EEXIST);
    }
    let more = if mask & IN_MASK_ADD != 0 { watch.mask } else { 0 };
    let cell = txn.region.map.object(LINE, watch.line);
    txn.set(cell.word(WANTS), pair(watch.wd, kept(mask) | more));
    Ok(watch.wd)
}

/// The next descriptor, which leads to `value`.
fn next_descriptor(txn: &mut Txn<'_>, record: Cell, value: u64) -> Result<u32> {
    let next = txn.get(record.word(NEXT));
    let wd = high(next);
    if wd >= i32::MAX as u32 {
        return Err(Errno::ENOSPC);
    }
    let place = tree::grow(txn, record.word(WATCHES), wd as u64)?;
    txn.set(place, value);
    txn.set(record.word(NEXT), pair(wd + 1, low(next)));
    Ok(wd)
}

/// Sets the word at `index` to 0, and gives back the nodes that this empties.
fn clear(txn: &mut Txn<'_>, root: Cell, index: u64) -> Result<()> {
    let place = tree::grow(txn, root, index)?;
    if txn.get(place) != 0 {
        txn.set(place, 0);
    }
    tree::prune(txn, root, index);
    Ok(())
}

/// Takes a watch out of chain and tree.
pub(super) fn remove_line(txn: &mut Txn<'_>, watch: &Watch) -> Result<()> {
    let before = chain(txn.region, watch.inode).find(|other| other.next == watch.line);
    match before {
        Some(before) => {
            let cell = txn.region.map.object(LINE, before.line);
            txn.set(cell.word(LINKS), pair(watch.next, before.inode));
        }
        None => txn.set(head(txn.region, watch.inode), watch.next as u64),
    }
    let record = record_at(txn.region, watch.instance);
    clear(txn, record.word(WATCHES), watch.wd as u64)?;
    text::retire_line(txn, watch.line);
    add_to(txn, WATCH_COUNT, -1);
    Ok(())
}

/// `Watches::watch_remove`.
pub fn remove(kernel: &Kernel, instance: Instance, wd: u32) -> Result<Removed> {
    kernel.run(|txn| {
        lock(txn)?;
        let record = live(txn.region, instance)?;
        let value = tree::get(txn.region, txn.get(record.word(WATCHES)), wd as u64);
        if value & HOST != 0 {
            return Ok(Removed::Host(low(value)));
        }
        let watch = (value != 0).then(|| Watch::at(txn.region, low(value)));
        let watch = watch.filter(|watch| !watch.is_dead()).ok_or(Errno::EINVAL)?;
        ignored(txn, watch.instance, wd);
        remove_line(txn, &watch)?;
        Ok(Removed::Husk)
    })
}

/// `Watches::watch_host`.
pub fn host(kernel: &Kernel, instance: Instance, host: u32) -> Result<u32> {
    kernel.run(|txn| {
        lock(txn)?;
        let record = live(txn.region, instance)?;
        let known = tree::get(txn.region, txn.get(record.word(HOSTS)), host as u64);
        if known != 0 {
            return Ok(low(known));
        }
        let wd = next_descriptor(txn, record, HOST | host as u64)?;
        let place = tree::grow(txn, record.word(HOSTS), host as u64)?;
        txn.set(place, wd as u64);
        Ok(wd)
    })
}

/// `Watches::watch_of_host`.
pub fn of_host(kernel: &Kernel, instance: Instance, host: u32, gone: bool) -> Option<u32> {
    let found = kernel.run(|txn| {
        lock(txn)?;
        let record = live(txn.region, instance)?;
        let wd = tree::get(txn.region, txn.get(record.word(HOSTS)), host as u64);
        if wd != 0 && gone {
            clear(txn, record.word(HOSTS), host as u64)?;
            clear(txn, record.word(WATCHES), wd)?;
        }
        Ok(low(wd))
    });
    found.ok().filter(|&wd| wd != 0)
}

/// `Watches::watch_next`.
pub fn next(kernel: &Kernel, instance: Instance, from: u32) -> Option<(u32, Inode, u32)> {
    let found = kernel.run(|txn| {
        lock(txn)?;
        let record = live(txn.region, instance)?;
        let root = txn.get(record.word(WATCHES));
        let mut at = u64::from(from);
        while let Some((node, base)) = tree::next_leaf(txn.region, root, at) {
            for way in at.saturating_sub(base)..tree::WAYS as u64 {
                let word = txn.region.load(tree::entry(txn.region, node, way, 0));
                let watch =
                    (word != 0 && word & HOST == 0).then(|| Watch::at(txn.region, low(word)));
                if let Some(watch) = watch.filter(|watch| !watch.is_dead()) {
                    let inode = Inode { number: watch.inode, generation: watch.generation };
                    return Ok((watch.wd, inode, watch.mask));
                }
            }
            at = base + tree::WAYS as u64;
        }
        Err(Errno::ENOENT)
    });
    found.ok()
}

/// Removes some watches of an instance that nobody names any more.
pub(super) fn forget_step(txn: &mut Txn<'_>, record: Cell) -> Result<()> {
    let all = record.word(WATCHES);
    let root = if txn.get(all) != 0 { all } else { record.word(HOSTS) };
    for _ in 0..STEP {
        let Some((index, value)) = first(txn.region, txn.get(root)) else {
            // Whatever stands there, no instance is forgotten for ever.
            txn.set(root, 0);
            break;
        };
        if root == all && value & HOST == 0 {
            let watch = Watch::at(txn.region, low(value));
            remove_line(txn, &watch)?;
        } else {
            clear(txn, root, index)?;
        }
    }
    Ok(())
}

fn first(region: &Region, root: u64) -> Option<(u64, u64)> {
    let (node, base) = tree::next_leaf(region, root, 0)?;
    let word = |way: u64| region.load(tree::entry(region, node, way, 0));
    (0..tree::WAYS as u64).map(|way| (base + way, word(way))).find(|&(_, word)| word != 0)
}

/// Removes a watch of an inode that is going away; whether none is left.
pub(crate) fn forget_inode(txn: &mut Txn<'_>, inode: u32) -> Result<bool> {
    if txn.get(head(txn.region, inode)) == 0 {
        return Ok(true);
    }
    lock(txn)?;
    let mut left = chain(txn.region, inode).filter(|watch| watch.inode == inode);
    let (first, second) = (left.next(), left.next());
    if let Some(watch) = first {
        remove_line(txn, &watch)?;
    }
    Ok(second.is_none())
}

/// What the checker sees of a descriptor.
pub(crate) enum Seen {
    /// The host's number.
    Host(u32),
    /// A watch: its line, and whether all that stands there is right.
    Watch(u32, bool),
}

/// What a descriptor of instance `number` leads to.
pub(crate) fn seen(region: &Region, number: u32, wd: u64, value: u64) -> Seen {
    if value & HOST != 0 {
        return Seen::Host(low(value));
    }
    let line = low(value);
    let watch = Watch::at(region, line);
    let is_watch = low(region.load(region.map.object(LINE, line))) & 0xff == tag::WATCH;
    let chained = chain(region, watch.inode).any(|other| other.line == line);
    let right = watch.instance == number && watch.wd as u64 == wd;
    Seen::Watch(line, is_watch && chained && right)
}

/// Watches in all chains, for the checker.
pub(crate) fn count(region: &Region) -> u64 {
    (0..HEADS_COUNT).map(|at| chain(region, at).count() as u64).sum()
}
