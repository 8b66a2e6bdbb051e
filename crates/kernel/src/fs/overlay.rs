//! The host's side of an overlay: imported entries, their origins, taking over bytes.
//!
//! ```text
//!   origin: 0 parent:32 mode:32   1 device   2 inode   3 size   4 modified   5 changed
//!           6 own index:32 name length:32   7 inode as shown   8 uid:32 gid:32   9.. name
//!           in the heap, never freed, named by its first word (its index), by which it is
//!           recognised where all are looked through
//! ```

use husk_proto::fs::{HostIdentity, Imported, Kind, Origin, Rights};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, Region, Txn};

use crate::Kernel;
use crate::fs::directory::entries::{self, Key, Open};
use crate::fs::inodes::{self, Birth};
use crate::fs::shared;
use crate::image;
use crate::state::text;
use crate::state::{bits_of, ent, high, ino, kind_bits, live, low, pair, whole};

const LENGTH: u32 = 6;
const SHOWN: u32 = 7;
const OWNER: u32 = 8;
const NAME: u32 = 9;
const DEPTH_MAX: u32 = 4096;
/// Looks at a record that keeps changing.
const LOOKS_MAX: u32 = 1 << 10;

pub(crate) fn origin_words(name: &[u8]) -> u32 {
    NAME + name.len().div_ceil(8) as u32
}

/// Writes the origin record of what shows this number; `heap_ready` has made room.
pub(crate) fn keep_origin(
    txn: &mut Txn<'_>,
    parent: u32,
    entry: &Imported<'_>,
    shown: u64,
) -> Result<u32> {
    let cell = txn.heap(origin_words(entry.name))?;
    let host = &entry.identity;
    txn.init(cell, pair(parent, entry.mode));
    txn.init(cell.word(1), host.device);
    txn.init(cell.word(2), host.inode);
    txn.init(cell.word(3), host.size);
    txn.init(cell.word(4), host.modified_ns as u64);
    txn.init(cell.word(5), host.changed_ns as u64);
    txn.init(cell.word(LENGTH), pair(cell.index(), entry.name.len() as u32));
    txn.init(cell.word(SHOWN), shown);
    txn.init(cell.word(OWNER), pair(entry.uid, entry.gid));
    text::fill_words(txn, cell.word(NAME), entry.name);
    Ok(cell.index())
}

/// Makes an inode of a host object in the tree whose inodes have the flags `tree`.
fn make_imported(
    txn: &mut Txn<'_>,
    parent_origin: u32,
    entry: &Imported<'_>,
    tree: u32,
    now_ns: i64,
) -> Result<(u32, Cell)> {
    let kind = bits_of(entry.kind);
    let flags = match entry.kind {
        Kind::Directory => tree | ino::UNLISTED,
        Kind::File => tree | ino::HOST,
        _ => tree,
    };
    let links = (entry.kind != Kind::Directory) as u32;
    let birth =
        Birth { kind, mode: entry.mode, uid: entry.uid, gid: entry.gid, flags, links, now_ns };
    let (number, cell) = inodes::make(txn, &birth)?;
    let origin = keep_origin(txn, parent_origin, entry, entry.identity.inode)?;
    txn.init(cell.word(ino::ORIGIN), origin as u64);
    txn.init(cell.word(ino::MTIME), entry.identity.modified_ns as u64);
    txn.init(cell.word(ino::CTIME), entry.identity.changed_ns as u64);
    txn.init(cell.word(ino::ATIME), entry.accessed_ns as u64);
    if entry.born_ns > 0 {
        txn.init(cell.word(ino::BORN), entry.born_ns as u64);
    }
    match entry.kind {
        Kind::File => {
            txn.init(cell.word(ino::SIZE), entry.identity.size);
            txn.init(cell.word(ino::BLOCKS), entry.blocks_512);
        }
        Kind::Symlink => {
            let target = text::keep(txn, entry.target)?;
            txn.init(cell.word(ino::ROOT), target as u64);
            txn.init(cell.word(ino::SIZE), entry.target.len() as u64);
        }
        kind if kind.is_device() => txn.init(cell.word(ino::SIZE), entry.device.into()),
        _ => {}
    }
    Ok((number, cell))
}

/// Makes the root of a mount; it is its own parent. An overlay's is unlisted and has an origin.
pub fn make_root(
    kernel: &Kernel,
    root: &Imported<'_>,
    overlay: bool,
    now_ns: i64,
) -> Result<Inode> {
    kernel.session.heap_ready(origin_words(root.name))?;
    let tree = image::next_tree(kernel);
    kernel.run(|txn| {
        let (number, cell) = make_imported(txn, 0, root, tree, now_ns)?;
        if !overlay {
            let ident = txn.get(cell.word(ino::IDENT));
            txn.init(cell.word(ino::IDENT), ident & !(ino::UNLISTED as u64));
            txn.init(cell.word(ino::ORIGIN), 0);
            for time in [ino::MTIME, ino::CTIME, ino::ATIME, ino::BORN] {
                txn.init(cell.word(time), now_ns as u64);
            }
        }
        txn.init(cell.word(ino::PARENT), pair(number, 0));
        Ok(inodes::name(txn, number))
    })
}

/// `Fs::import`: each entry is a transaction; whoever dies is carried on by the next lister.
pub fn import(kernel: &Kernel, dir: Inode, list: &[Imported<'_>], now_ns: i64) -> Result<bool> {
    for entry in list {
        if !import_one(kernel, dir, entry, false, now_ns)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One name. `late`: of a directory that is listed. `Ok(false)`: it is listed, or is not.
pub(crate) fn import_one(
    kernel: &Kernel,
    dir: Inode,
    entry: &Imported<'_>,
    late: bool,
    now_ns: i64,
) -> Result<bool> {
    kernel.session.heap_ready(origin_words(entry.name))?;
    let key = Key::new(dir.number, entry.name)?;
    kernel.run(|txn| {
        let open = entries::open_directory(txn, dir)?;
        let cell = open.inode;
        let flags = low(txn.get(cell.word(ino::IDENT)));
        if (flags & ino::UNLISTED == 0) != late {
            return Ok(false);
        }
        let shared = shared::Key::of(entry, flags & ino::TREE);
        let mine = key.bucket(txn.region);
        let other = shared.map_or(mine, |shared| shared.bucket(txn.region));
        txn.lock(mine.min(other))?;
        txn.lock(mine.max(other))?;
        if entries::find(txn.region, &key).is_some() {
            return Ok(!late);
        }
        let joined = match &shared {
            Some(shared) => shared::join(txn, shared, entry)?,
            None => None,
        };
        if let Some(number) = joined {
            let kind = bits_of(entry.kind);
            entries::add(txn, &open, &key, number, kind, ent::FROM_HOST, None)?;
            entries::count(txn, &open, 1, 0);
        } else {
            let inode = add_imported(txn, &open, &key, entry, None, now_ns)?;
            if let Some(shared) = &shared {
                shared::note(txn, shared, entry, inode)?;
            }
        }
        if late {
            entries::drop_whiteouts(txn, &open, &key)?;
        }
        Ok(true)
    })
}

/// A name and an inode for a host object; token and bucket are held. `heir_of`: see `entries::add`.
pub(crate) fn add_imported(
    txn: &mut Txn<'_>,
    open: &Open,
    key: &Key<'_>,
    entry: &Imported<'_>,
    heir_of: Option<u32>,
    now_ns: i64,
) -> Result<Cell> {
    let parent = low(txn.get(open.inode.word(ino::ORIGIN)));
    let tree = low(txn.get(open.inode.word(ino::IDENT))) & ino::TREE;
    let (number, inode) = make_imported(txn, parent, entry, tree, now_ns)?;
    let kind = bits_of(entry.kind);
    let line = entries::add(txn, open, key, number, kind, ent::FROM_HOST, heir_of)?;
    let directory = entry.kind == Kind::Directory;
    let parent = if directory { open.dir.number } else { 0 };
    txn.init(inode.word(ino::PARENT), pair(parent, line));
    // The directory did not change, the host's entry was there all along: times stay.
    entries::count(txn, open, 1, directory as i32);
    Ok(inode)
}

/// `Fs::import_done`.
pub fn import_done(kernel: &Kernel, dir: Inode) -> Result<()> {
    kernel.run(|txn| {
        let cell = entries::open_directory(txn, dir)?.inode;
        txn.lock(cell)?;
        let ident = txn.get(cell.word(ino::IDENT));
        txn.set(cell.word(ino::IDENT), ident & !(ino::UNLISTED as u64));
        Ok(())
    })
}

fn record(region: &Region, origin: u32) -> Result<Cell> {
    if origin < region.map.heap || origin >= region.map.heap_end {
        return Err(Errno::ENOENT);
    }
    Ok(region.map.heap(origin))
}

/// Why a portal is not renamed: a file system of its own is mounted there (`EBUSY`), or it lies in
/// its directory's and is the host's all the same (`EXDEV`: who moves files copies it then).
pub fn why_it_stays(region: &Region, portal: u32) -> Errno {
    let origin = region.load(region.map.object(INODE, portal).word(ino::ORIGIN));
    let device = |origin| record(region, origin).map(|cell| region.load(cell.word(1)));
    let above = record(region, low(origin)).map(|cell| high(region.load(cell)));
    let same = above.is_ok_and(|above| device(above) == device(low(origin)));
    if same { Errno::EXDEV } else { Errno::EBUSY }
}

/// What an inode that is in a tree with these flags shows as its number; and the length that its
/// host object had.
#[inline]
pub fn shown(region: &Region, number: u32, origin: u32, own_numbers: u64) -> (u64, Option<u64>) {
    match record(region, origin) {
        Ok(cell) => (region.load(cell.word(SHOWN)), Some(region.load(cell.word(3)))),
        Err(_) => (own_numbers | u64::from(number), None),
    }
}

/// `Fs::host_path`.
pub fn host_path(kernel: &Kernel, origin: Origin, out: &mut [u8]) -> Result<usize> {
    let region = &kernel.session.region;
    let mut length = 0;
    let mut here = origin.0;
    for _ in 0..DEPTH_MAX {
        let cell = record(region, here)?;
        here = high(region.load(cell));
        length += low(region.load(cell.word(LENGTH))) as usize + (here != 0) as usize;
        if here == 0 {
            break;
        }
    }
    if length > out.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    let (mut end, mut here) = (length, origin.0);
    while end > 0 {
        let cell = record(region, here)?;
        let start = end - low(region.load(cell.word(LENGTH))) as usize;
        text::copy_words(region, cell.word(NAME), &mut out[start..end]);
        here = high(region.load(cell));
        if here == 0 {
            break;
        }
        end = start - 1;
        out[end] = b'/';
    }
    Ok(length)
}

/// `Fs::host_identity`.
pub fn host_identity(kernel: &Kernel, origin: Origin) -> Result<HostIdentity> {
    let region = &kernel.session.region;
    let cell = record(region, origin.0)?;
    let word = |n: u32| region.load_in_order(cell.word(n));
    let look = || HostIdentity {
        device: word(1),
        inode: word(2),
        size: word(3),
        modified_ns: word(4) as i64,
        changed_ns: word(5) as i64,
    };
    let mut seen = look();
    // It changes seldom (`fs::refresh`), word by word.
    for _ in 0..LOOKS_MAX {
        let again = look();
        if again == seen {
            return Ok(seen);
        }
        seen = again;
    }
    Err(Errno::EIO)
}

/// Last modification and status change of a host object when it was last looked at, ns.
pub(crate) fn times(region: &Region, origin: u32) -> Result<(i64, i64)> {
    let cell = record(region, origin)?;
    Ok((region.load(cell.word(4)) as i64, region.load(cell.word(5)) as i64))
}

/// Whether the record is of the host object `found`, as it was or changed.
pub(crate) fn is_of(region: &Region, origin: u32, found: &HostIdentity) -> Result<bool> {
    let cell = record(region, origin)?;
    Ok((region.load(cell.word(1)), region.load(cell.word(2))) == found.object())
}

/// Whether the record says the same of the bytes of the host object `found`.
pub(crate) fn has_content(region: &Region, origin: u32, found: &HostIdentity) -> bool {
    record(region, origin).is_ok_and(|cell| {
        let word = |n: u32| region.load(cell.word(n));
        [word(1), word(2), word(3), word(4)]
            == [found.device, found.inode, found.size, found.modified_ns as u64]
    })
}

/// Mode, owner and group that the host's object has, or had before both sides changed them.
pub(crate) fn renew_rights(txn: &mut Txn<'_>, origin: u32, (mode, uid, gid): Rights) -> Result<()> {
    let cell = record(txn.region, origin)?;
    let head = txn.get(cell);
    txn.set(cell, pair(high(head), low(head) & !0o7777 | mode));
    txn.set(cell.word(OWNER), pair(uid, gid));
    Ok(())
}

/// The object is what is `found`; `shown`: as its number, too. Where the record keeps other
/// `rights`, its status is not known to be the latest: so the next look compares them again.
pub(crate) fn renew_origin(
    txn: &mut Txn<'_>,
    origin: u32,
    found: &Imported<'_>,
    rights: Rights,
    shown: bool,
) -> Result<()> {
    let cell = record(txn.region, origin)?;
    let host = &found.identity;
    renew_rights(txn, origin, rights)?;
    txn.set(cell.word(1), host.device);
    txn.set(cell.word(2), host.inode);
    txn.set(cell.word(3), host.size);
    txn.set(cell.word(4), host.modified_ns as u64);
    if rights == (found.mode & 0o7777, found.uid, found.gid) {
        txn.set(cell.word(5), host.changed_ns as u64);
    }
    if shown {
        txn.set(cell.word(SHOWN), host.inode);
    }
    Ok(())
}

/// Mode of the host object and the origin of its directory (`None` for a mount's root).
pub fn origin_facts(kernel: &Kernel, origin: Origin) -> Result<(u32, Option<Origin>)> {
    let region = &kernel.session.region;
    let word = region.load(record(region, origin.0)?);
    Ok((low(word), (high(word) != 0).then(|| Origin(high(word)))))
}

/// Mode, owner and group of the host object when it was last looked at.
pub fn origin_rights(kernel: &Kernel, origin: Origin) -> Result<Rights> {
    rights_of(&kernel.session.region, origin.0)
}

/// The same of a record.
pub(crate) fn rights_of(region: &Region, origin: u32) -> Result<Rights> {
    let cell = record(region, origin)?;
    let owner = region.load(cell.word(OWNER));
    Ok((low(region.load(cell)) & 0o7777, high(owner), low(owner)))
}

/// Names each inode that needs its host object: for bytes, names, extended attributes, or, as a
/// portal, FIFO, socket or device, for all it is. Some that need none of these any more may be
/// named, too.
pub fn each_on_host(kernel: &Kernel, emit: &mut dyn FnMut(Inode, Origin)) {
    let region = &kernel.session.region;
    for number in 1..kernel.session.never_used(INODE) {
        let cell = region.map.object(INODE, number);
        let ident = region.load(cell.word(ino::IDENT));
        let origin = low(region.load(cell.word(ino::ORIGIN)));
        let whole = (ino::PORTAL..=ino::BLOCK_DEVICE).contains(&kind_bits(ident));
        let part = low(ident) & (ino::HOST | ino::UNLISTED) != 0 || low(ident) & ino::EXTENDED == 0;
        if kind_bits(ident) != 0 && origin != 0 && (whole || part) {
            emit(Inode { number, generation: high(ident) }, Origin(origin));
        }
    }
}

/// Names each inode that was imported, whatever of it is the image's by now.
pub fn each_imported(kernel: &Kernel, emit: &mut dyn FnMut(Inode, Origin)) {
    let region = &kernel.session.region;
    for number in 1..kernel.session.never_used(INODE) {
        let cell = region.map.object(INODE, number);
        let ident = region.load(cell.word(ino::IDENT));
        let origin = low(region.load(cell.word(ino::ORIGIN)));
        if kind_bits(ident) != 0 && origin != 0 {
            emit(Inode { number, generation: high(ident) }, Origin(origin));
        }
    }
}

/// Names the record of each host object that was ever imported, also of those that no name and no
/// inode leads to any more.
pub fn each_origin(kernel: &Kernel, emit: &mut dyn FnMut(Origin)) {
    let region = &kernel.session.region;
    for index in region.map.heap..kernel.session.heap_used() {
        let length = index + LENGTH;
        let inside = length < region.map.heap_end;
        if inside && high(region.load(region.map.heap(length))) == index {
            emit(Origin(index));
        }
    }
}

/// `Fs::adopt`.
pub fn adopt(kernel: &Kernel, inode: Inode, donor: Inode) -> Result<bool> {
    kernel.run(|txn| {
        let (target, source) = (live(txn.region, inode)?, live(txn.region, donor)?);
        if target == source {
            return Err(Errno::EINVAL);
        }
        txn.lock(target.min(source))?;
        txn.lock(target.max(source))?;
        whole(txn.region, inode)?;
        whole(txn.region, donor)?;
        let ident = txn.get(target.word(ino::IDENT));
        if low(ident) & ino::HOST == 0 {
            return Ok(false);
        }
        for word in [ino::ROOT, ino::BLOCKS, ino::SIZE] {
            let value = txn.get(source.word(word));
            txn.set(target.word(word), value);
            txn.set(source.word(word), 0);
        }
        txn.set(target.word(ino::IDENT), ident & !(ino::HOST as u64));
        Ok(true)
    })
}
