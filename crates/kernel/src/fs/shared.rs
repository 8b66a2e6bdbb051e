//! Hard links of the host: all imported names of one object refer to one inode.
//!
//! ```text
//!   bucket of names -> line of tag SHARED -> inode -> links: elsewhere:32 here:32
//!   line  0 version:32 tag:8   1 hash:32 next:32 (as an entry)   2 tree:32 inode:32
//!         3 generation   4 device   5 inode on the host   6 its birth, ns   7 size and time
//! ```
//!
//! 1. A line is found by device, inode number on the host, and tree; it is guarded by its bucket.
//! 2. It stays as long as the image. One whose inode is gone leads to the next inode of that key.
//! 3. `here` counts the entries that lead to the inode, `elsewhere` names of the host that no entry
//!    stands for (yet). Linux counts both.
//! 4. Two buckets, of a name and of a line, are locked in the order of their addresses.
//! 5. Numbers are given again: a line is of an object with the same time of birth. Where the file
//!    system does not tell that, of one with the same size and modification time.

use husk_proto::fs::{Imported, Kind};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, LINE, Region, Txn};

use crate::Kernel;
use crate::fs::directory::entries;
use crate::fs::overlay;
use crate::state::hold;
use crate::state::{bits_of, high, ino, kind_bits, live, low, pair, tag};

const NEXT: u32 = 1;
const LINK: u32 = 2;
const GENERATION: u32 = 3;
const DEVICE: u32 = 4;
const NUMBER: u32 = 5;
const BORN: u32 = 6;
const CONTENT: u32 = 7;
/// Lines in one chain before the walk is taken for a stale one.
const CHAIN_MAX: u32 = 1 << 16;

/// What a host object with several names is found by.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    tree: u32,
    device: u64,
    number: u64,
    hash: u32,
    /// Invariant 5.
    born_ns: u64,
    content: u64,
}

impl Key {
    /// Of what is imported into a tree; `None`: it has one name, or is not the image's.
    pub fn of(entry: &Imported<'_>, tree: u32) -> Option<Key> {
        let alone = entry.links < 2 || matches!(entry.kind, Kind::Directory | Kind::Portal);
        if alone {
            return None;
        }
        let (device, number) = entry.identity.object();
        let hash = entries::mix(entries::mix(tree as u64, device), number);
        let (size, modified_ns) = (entry.identity.size, entry.identity.modified_ns as u64);
        let content = entries::mix(entries::mix(0, size), modified_ns);
        let (hash, born_ns) = ((hash >> 32) as u32, entry.born_ns.max(0) as u64);
        Some(Key { tree, device, number, hash, born_ns, content })
    }

    /// The bucket: its lock word; the head follows.
    pub fn bucket(&self, region: &Region) -> Cell {
        region.map.bucket(self.hash)
    }

    fn find(&self, region: &Region) -> Option<Cell> {
        let mut line = low(region.load(self.bucket(region).word(1)));
        for _ in 0..CHAIN_MAX {
            if line == 0 {
                return None;
            }
            let cell = region.map.object(LINE, line);
            let next = region.load(cell.word(NEXT));
            let ours = low(region.load(cell)) & 0xff == tag::SHARED
                && high(region.load(cell.word(LINK))) == self.tree
                && region.load(cell.word(DEVICE)) == self.device
                && region.load(cell.word(NUMBER)) == self.number;
            if high(next) == self.hash && ours {
                return Some(cell);
            }
            line = low(next);
        }
        None
    }

    /// The inode that its line leads to, if it is there and that line is of this very object
    /// (invariant 5). The bucket is locked.
    fn leads_to(&self, txn: &Txn<'_>, entry: &Imported<'_>) -> Option<Inode> {
        let line = self.find(txn.region)?;
        let number = low(txn.get(line.word(LINK)));
        let inode = Inode { number, generation: txn.get(line.word(GENERATION)) as u32 };
        let cell = live(txn.region, inode).ok()?;
        let born_ns = txn.get(line.word(BORN));
        let same = match born_ns > 0 && self.born_ns > 0 {
            true => born_ns == self.born_ns,
            false => {
                let origin = low(txn.get(cell.word(ino::ORIGIN)));
                txn.get(line.word(CONTENT)) == self.content
                    || overlay::has_content(txn.region, origin, &entry.identity)
            }
        };
        same.then_some(inode)
    }

    /// Its line, which is made if there is none, leads to this inode. The bucket is locked.
    fn lead_to(&self, txn: &mut Txn<'_>, number: u32, generation: u32) -> Result<()> {
        if let Some(line) = self.find(txn.region) {
            txn.set(line.word(LINK), pair(self.tree, number));
            txn.set(line.word(GENERATION), generation as u64);
            txn.set(line.word(BORN), self.born_ns);
            txn.set(line.word(CONTENT), self.content);
            return Ok(());
        }
        let line = txn.allocate(LINE)?;
        let cell = txn.region.map.object(LINE, line);
        let first = self.bucket(txn.region).word(1);
        txn.init(cell.word(LINK), pair(self.tree, number));
        txn.init(cell.word(GENERATION), generation as u64);
        txn.init(cell.word(DEVICE), self.device);
        txn.init(cell.word(NUMBER), self.number);
        txn.init(cell.word(BORN), self.born_ns);
        txn.init(cell.word(CONTENT), self.content);
        txn.init(cell.word(NEXT), pair(self.hash, low(txn.get(first))));
        txn.init(cell, pair(high(txn.get(cell)), tag::SHARED));
        txn.set(first, line as u64);
        Ok(())
    }
}

/// The inode that another name has been imported as, locked, with one name more; `None`: none has.
/// Both buckets are locked.
pub(crate) fn join(txn: &mut Txn<'_>, key: &Key, entry: &Imported<'_>) -> Result<Option<u32>> {
    let Some(inode) = key.leads_to(txn, entry) else { return Ok(None) };
    let cell = match hold::lock_to_hold(txn, inode) {
        Err(Errno::ESTALE) => return Ok(None),
        other => other?,
    };
    if kind_bits(txn.get(cell.word(ino::IDENT))) != bits_of(entry.kind) {
        return Ok(None);
    }
    let links = txn.get(cell.word(ino::LINKS));
    txn.set(cell.word(ino::LINKS), pair(high(links).saturating_sub(1), low(links) + 1));
    Ok(Some(inode.number))
}

/// Notes a new inode, which nobody reaches before commit, for the other names of its host object.
pub(crate) fn note(txn: &mut Txn<'_>, key: &Key, entry: &Imported<'_>, inode: Cell) -> Result<()> {
    let number = txn.region.map.number_of(husk_region::INODE, inode);
    let generation = high(txn.get(inode.word(ino::IDENT)));
    txn.init(inode.word(ino::LINKS), pair(entry.links - 1, 1));
    key.lead_to(txn, number, generation)
}

/// `Admin::note_links`: an inode of a host object that had one name, for names it has got since.
pub fn note_links(kernel: &Kernel, inode: Inode, found: &Imported<'_>) -> Result<bool> {
    kernel.run(|txn| {
        let ident = txn.get(live(txn.region, inode)?.word(ino::IDENT));
        let Some(key) = Key::of(found, low(ident) & ino::TREE) else { return Ok(false) };
        if kind_bits(ident) != bits_of(found.kind) {
            return Ok(false);
        }
        txn.lock(key.bucket(txn.region))?;
        let cell = hold::lock_to_hold(txn, inode)?;
        if !hold::has_name(txn, cell) || key.leads_to(txn, found).is_some() {
            return Ok(false);
        }
        key.lead_to(txn, inode.number, inode.generation)?;
        let here = low(txn.get(cell.word(ino::LINKS)));
        txn.set(cell.word(ino::LINKS), pair(found.links.saturating_sub(here), here));
        Ok(true)
    })
}

/// Names of the host, and of these how many no entry stands for, of what is no directory.
pub(crate) fn links(word: u64) -> (u32, u32) {
    (low(word).saturating_add(high(word)), high(word))
}

/// Calls `emit` for each inode some of whose names on the host no entry stands for.
pub fn each_elsewhere(kernel: &Kernel, emit: &mut dyn FnMut(Inode, u32)) {
    let region = &kernel.session.region;
    for number in 1..kernel.session.never_used(husk_region::INODE) {
        let cell = region.map.object(husk_region::INODE, number);
        let ident = region.load(cell.word(ino::IDENT));
        let kind = kind_bits(ident);
        let (_, elsewhere) = links(region.load(cell.word(ino::LINKS)));
        if kind != 0 && kind != ino::DIRECTORY && elsewhere > 0 {
            emit(Inode { number, generation: high(ident) }, elsewhere);
        }
    }
}
