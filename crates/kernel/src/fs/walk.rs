//! Optimistic reads without a token: names, attributes, link targets. Each is validated by a
//! sequence number.

use husk_proto::fs::{Attributes, Backing, Kind, Origin, Step, Witness};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, NEVER_SEEN, Region, is_locked};

use crate::Kernel;
use crate::fs::directory::entries::{self, Key};
use crate::fs::directory::share;
use crate::fs::{extended, named, overlay, shared};
use crate::image;
use crate::state::name;
use crate::state::text;
use crate::state::{high, ino, kind_bits, live, low, pair, step_of, whole};

#[inline]
fn directory(region: &Region, dir: Inode) -> Result<Cell> {
    let cell = region.map.object(INODE, dir.number);
    let ident = region.load(cell.word(ino::IDENT));
    if high(ident) != dir.generation || dir.number == 0 {
        return Err(Errno::ESTALE);
    }
    if kind_bits(ident) == ino::DIRECTORY { Ok(cell) } else { Err(Errno::ENOTDIR) }
}

fn step_now(region: &Region, number: u32) -> Step {
    let cell = region.map.object(INODE, number);
    step_of(number, region.load(cell.word(ino::IDENT)), region.load(cell.word(ino::OWNER)))
}

/// An entry, as plain words: structs that are moved right after their fields were written make the
/// processor wait.
struct Seen {
    number: u32,
    ident: u64,
    owner: u64,
    /// The bucket's word, and the hash that leads there.
    bucket: u64,
    hash: u32,
}

#[inline(always)]
fn look(kernel: &Kernel, dir: Inode, name: &[u8]) -> Result<Seen> {
    let region = &kernel.session.region;
    let key = Key::new(dir.number, name)?;
    let (bucket, (number, ident, owner)) = kernel.session.read_at(key.bucket(region), || {
        let Some(line) = entries::find(region, &key) else { return (0, 0, 0) };
        let link = region.load(region.map.object(LINE, line).word(crate::state::ent::LINK));
        let cell = region.map.object(INODE, low(link));
        (low(link), region.load(cell.word(ino::IDENT)), region.load(cell.word(ino::OWNER)))
    })?;
    // Generations only grow: if it is the same directory after the look, it was before.
    directory(region, dir)?;
    if number == 0 {
        return Err(Errno::ENOENT);
    }
    Ok(Seen { number, ident, owner, bucket, hash: key.hash })
}

/// `Fs::lookup`.
#[inline]
pub fn lookup(kernel: &Kernel, dir: Inode, name: &[u8]) -> Result<Step> {
    let seen = look(kernel, dir, name)?;
    Ok(step_of(seen.number, seen.ident, seen.owner))
}

/// `Fs::lookup_witnessed`.
pub fn lookup_witnessed(
    kernel: &Kernel,
    dir: Inode,
    name: &[u8],
    witness: &mut Witness,
) -> Result<Step> {
    let seen = look(kernel, dir, name)?;
    *witness = Witness { place: pair(seen.hash, seen.number), seen: [seen.ident, seen.bucket] };
    Ok(step_of(seen.number, seen.ident, seen.owner))
}

/// `Fs::step`.
#[inline]
pub fn step(kernel: &Kernel, inode: Inode) -> Result<Step> {
    let (_, ident, owner) = identity(kernel, inode)?;
    Ok(step_of(inode.number, ident, owner))
}

/// Whether the names of what has this number, if it is a directory, have not been read from the
/// host yet.
#[inline]
pub fn is_unlisted(kernel: &Kernel, inode: Inode) -> bool {
    let region = &kernel.session.region;
    low(region.load(region.map.object(INODE, inode.number).word(ino::IDENT))) & ino::UNLISTED != 0
}

/// The word at which identity and owner were seen, and these.
#[inline(always)]
fn identity(kernel: &Kernel, inode: Inode) -> Result<(u64, u64, u64)> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let word = |n: u32| region.load(cell.word(n));
    let look = || (word(ino::IDENT), word(ino::OWNER));
    let (at, (ident, owner)) = kernel.session.read_at(cell, look)?;
    if high(ident) == inode.generation { Ok((at, ident, owner)) } else { Err(Errno::ESTALE) }
}

/// `Fs::step_witnessed`.
pub fn step_witnessed(kernel: &Kernel, inode: Inode, witness: &mut Witness) -> Result<Step> {
    let (at, ident, owner) = identity(kernel, inode)?;
    let bucket = if at == NEVER_SEEN { NEVER_SEEN } else { NO_BUCKET };
    *witness = Witness { place: pair(0, inode.number), seen: [ident, bucket] };
    Ok(step_of(inode.number, ident, owner))
}

/// Instead of a bucket's word: there was none. One that names were found in has been written to.
const NO_BUCKET: u64 = 0;

/// `Fs::holds`: identity (generation, kind, mode, whether listed) and bucket are as they were; a
/// bucket's word moves with every change of a name in it.
#[inline]
pub fn holds(kernel: &Kernel, witnesses: &[Witness]) -> bool {
    let region = &kernel.session.region;
    witnesses.iter().all(|witness| {
        let [ident, bucket] = witness.seen;
        let cell = region.map.object(INODE, low(witness.place));
        let found =
            bucket == NO_BUCKET || region.load(region.map.bucket(high(witness.place))) == bucket;
        found && region.load(cell.word(ino::IDENT)) == ident
    })
}

/// Words that were at rest while what a name leads to, or a file, was as it is.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    words: [(Cell, u64); 4],
}

/// What moves with every change of a file, and of the name that leads to it in `inode`; `None`: it
/// is being changed, or it is a directory, whose times are not in one place.
pub fn stamp(kernel: &Kernel, inode: Inode, name: Option<&[u8]>) -> Option<Stamp> {
    let region = &kernel.session.region;
    let at_rest = |cell: Cell| {
        let word = region.load(cell);
        (!is_locked(word)).then_some((cell, word))
    };
    let ident = |number: u32| {
        let cell = region.map.object(INODE, number).word(ino::IDENT);
        (cell, region.load(cell))
    };
    let directory = ident(inode.number);
    let (bucket, number) = match name {
        None => (directory, inode.number),
        Some(name) => {
            let bucket = at_rest(Key::new(inode.number, name).ok()?.bucket(region))?;
            match lookup(kernel, inode, name) {
                Ok(step) => (bucket, step.inode.number),
                Err(Errno::ENOENT) => {
                    return Some(Stamp { words: [bucket, directory, bucket, directory] });
                }
                Err(_) => return None,
            }
        }
    };
    let itself = ident(number);
    let is_file = kind_bits(itself.1) != ino::DIRECTORY;
    let lock = at_rest(region.map.object(INODE, number)).filter(|_| is_file)?;
    Some(Stamp { words: [bucket, directory, lock, itself] })
}

/// Whether nothing of that has changed since.
#[inline]
pub fn is_still(kernel: &Kernel, stamp: &Stamp) -> bool {
    stamp.words.iter().all(|(cell, word)| kernel.session.region.load(*cell) == *word)
}

/// `Fs::attributes`.
#[inline]
pub fn attributes(kernel: &Kernel, inode: Inode) -> Result<Attributes> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let seen = kernel.session.read(cell, || snapshot(region, inode.number, cell))?;
    // Its parts and blocks, which go in steps, were its own as long as it was not going.
    whole(region, inode)?;
    if seen.step.inode == inode { Ok(seen) } else { Err(Errno::ESTALE) }
}

/// Length that a directory shows which the host does not have, in bytes.
const DIRECTORY_SIZE: u64 = 4096;

#[inline]
fn snapshot(region: &Region, number: u32, cell: Cell) -> Attributes {
    let word = |n: u32| region.load(cell.word(n));
    let step = step_now(region, number);
    let bits = low(word(ino::IDENT));
    let (mut links, mut size) = (shared::links(word(ino::LINKS)).0, word(ino::SIZE));
    let (mut modified_ns, mut changed_ns) = (word(ino::MTIME) as i64, word(ino::CTIME) as i64);
    if step.kind == Kind::Directory {
        let totals = share::totals(region, cell);
        (modified_ns, changed_ns) = (totals.modified_ns, totals.changed_ns);
        links = if bits & ino::REMOVED != 0 { 0 } else { totals.subdirectories.wrapping_add(2) };
    }
    let mut device = 0;
    if step.kind.is_special() {
        // Where a device has its number, a socket has the length of its address.
        device = if step.kind.is_device() { size as u32 } else { 0 };
        size = 0;
    }
    let origin = low(word(ino::ORIGIN));
    let tree = image::shown_in(region, bits);
    let (shown_number, host_size) = overlay::shown(region, number, origin, tree.own_numbers);
    if step.kind == Kind::Directory {
        // The same whatever is in it: archivers take a change for a race.
        size = host_size.unwrap_or(DIRECTORY_SIZE);
    }
    let on_host = bits & ino::HOST != 0;
    let blocks = match step.kind {
        Kind::File if on_host => word(ino::BLOCKS),
        Kind::File => word(ino::BLOCKS) * 8,
        _ => 0,
    };
    let taken_over = origin == 0 || bits & ino::EXTENDED != 0;
    Attributes {
        step,
        shown_device: tree.device,
        shown_number,
        links,
        size,
        blocks_512: blocks,
        device,
        accessed_ns: word(ino::ATIME) as i64,
        modified_ns,
        changed_ns,
        born_ns: extended::born_ns(word(ino::BORN)),
        backing: if on_host { Backing::Host } else { Backing::Image },
        extended: if taken_over { Backing::Image } else { Backing::Host },
        origin: if origin == 0 { None } else { Some(Origin(origin)) },
        replaced: bits & ino::REPLACED != 0,
    }
}

/// `Fs::read_link`.
pub fn read_link(kernel: &Kernel, inode: Inode, out: &mut [u8]) -> Result<usize> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let length = kernel.session.read(cell, || {
        if !ino::keeps_text(kind_bits(region.load(cell.word(ino::IDENT)))) {
            return None;
        }
        let length = region.load(cell.word(ino::SIZE)) as usize;
        let shown = length.min(out.len());
        text::copy(region, low(region.load(cell.word(ino::ROOT))), &mut out[..shown]);
        Some(length)
    })?;
    live(region, inode)?;
    length.ok_or(Errno::EINVAL)
}

/// `Fs::parent`.
pub fn parent(kernel: &Kernel, dir: Inode) -> Result<Inode> {
    let region = &kernel.session.region;
    let cell = match directory(region, dir) {
        Err(Errno::ENOTDIR) => return named::parent(kernel, dir),
        other => other?,
    };
    let word = region.load(cell.word(ino::PARENT));
    let parent = high(word);
    let ident = region.load(region.map.object(INODE, parent).word(ino::IDENT));
    let removed = low(region.load(cell.word(ino::IDENT))) & ino::REMOVED != 0;
    live(region, dir)?;
    // A removed one knows its parent's generation in the place of its own name.
    if removed && high(ident) != low(word) {
        return Err(Errno::ENOENT);
    }
    Ok(Inode { number: parent, generation: high(ident) })
}

/// `Fs::name_of`.
pub fn name_of(kernel: &Kernel, dir: Inode, out: &mut [u8; 255]) -> Result<usize> {
    let region = &kernel.session.region;
    let cell = match directory(region, dir) {
        Err(Errno::ENOTDIR) => return named::name_of(kernel, dir, out),
        other => other?,
    };
    for _ in 0..1 << 16 {
        let word = region.load(cell.word(ino::PARENT));
        if low(word) == 0 || low(region.load(cell.word(ino::IDENT))) & ino::REMOVED != 0 {
            return Err(Errno::ENOENT);
        }
        let line = region.map.object(LINE, low(word));
        let before = region.load(line);
        let length = name::copy_name(region, line, out);
        live(region, dir)?;
        if region.load(line) == before && region.load(cell.word(ino::PARENT)) == word {
            return Ok(length);
        }
    }
    Err(Errno::EIO)
}
