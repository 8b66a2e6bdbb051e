//! Looks without a token: names, facts, targets. Every look is checked against a sequence.

use husk_proto::fs::{Attributes, Backing, Kind, Origin, Step};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, Region};

use crate::Kernel;
use crate::fs::entries::{self, Key};
use crate::state::{high, ino, kind_bits, live, low, step_of};
use crate::text;

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

/// `Fs::lookup`.
#[inline]
pub fn lookup(kernel: &Kernel, dir: Inode, name: &[u8]) -> Result<Step> {
    let region = &kernel.session.region;
    let dir_cell = directory(region, dir)?;
    let key = Key::new(dir.number, name)?;
    // Plain words out of the look, the answer made of them after: no copies of half-made structs.
    let (number, ident, owner) = kernel.session.read(key.bucket(region), || {
        let Some(line) = entries::find(region, &key) else { return (0, 0, 0) };
        let link = region.load(region.map.object(LINE, line).word(crate::state::ent::LINK));
        let cell = region.map.object(INODE, low(link));
        (low(link), region.load(cell.word(ino::IDENT)), region.load(cell.word(ino::OWNER)))
    })?;
    // The directory may have gone, and its number to another one, between the two looks.
    let now = region.load(dir_cell.word(ino::IDENT));
    if high(now) != dir.generation {
        return Err(Errno::ESTALE);
    }
    if number == 0 { Err(Errno::ENOENT) } else { Ok(step_of(number, ident, owner)) }
}

/// `Fs::step`.
#[inline]
pub fn step(kernel: &Kernel, inode: Inode) -> Result<Step> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let step = kernel.session.read(cell, || step_now(region, inode.number))?;
    if step.inode == inode { Ok(step) } else { Err(Errno::ESTALE) }
}

/// `Fs::attributes`.
#[inline]
pub fn attributes(kernel: &Kernel, inode: Inode) -> Result<Attributes> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let seen = kernel.session.read(cell, || snapshot(region, inode.number, cell))?;
    if seen.step.inode == inode { Ok(seen) } else { Err(Errno::ESTALE) }
}

/// Length that every directory shows, in bytes.
const DIRECTORY_SIZE: u64 = 4096;

#[inline]
fn snapshot(region: &Region, number: u32, cell: Cell) -> Attributes {
    let word = |n: u32| region.load(cell.word(n));
    let step = step_now(region, number);
    let bits = low(word(ino::IDENT));
    let (mut links, mut size) = (low(word(ino::LINKS)), word(ino::SIZE));
    if step.kind == Kind::Directory {
        links = if bits & ino::REMOVED != 0 { 0 } else { links.wrapping_add(2) };
        // The same before and after a listing is imported: archivers take a change for a race.
        size = DIRECTORY_SIZE;
    }
    let origin = low(word(ino::ORIGIN));
    let on_host = bits & ino::HOST != 0;
    let blocks = match step.kind {
        Kind::File if on_host => size.div_ceil(512),
        Kind::File => word(ino::BLOCKS) * 8,
        _ => 0,
    };
    Attributes {
        step,
        links,
        size,
        blocks_512: blocks,
        accessed_ns: word(ino::ATIME) as i64,
        modified_ns: word(ino::MTIME) as i64,
        changed_ns: word(ino::CTIME) as i64,
        born_ns: word(ino::BORN) as i64,
        backing: if on_host { Backing::Host } else { Backing::Image },
        origin: if origin == 0 { None } else { Some(Origin(origin)) },
    }
}

/// `Fs::read_link`.
pub fn read_link(kernel: &Kernel, inode: Inode, out: &mut [u8]) -> Result<usize> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let length = kernel.session.read(cell, || {
        if kind_bits(region.load(cell.word(ino::IDENT))) != ino::SYMLINK {
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
    let cell = directory(region, dir)?;
    let parent = high(region.load(cell.word(ino::PARENT)));
    let ident = region.load(region.map.object(INODE, parent).word(ino::IDENT));
    if low(region.load(cell.word(ino::IDENT))) & ino::REMOVED != 0 {
        return Err(Errno::ENOENT);
    }
    live(region, dir)?;
    Ok(Inode { number: parent, generation: high(ident) })
}

/// `Fs::name_of`.
pub fn name_of(kernel: &Kernel, dir: Inode, out: &mut [u8; 255]) -> Result<usize> {
    let region = &kernel.session.region;
    let cell = directory(region, dir)?;
    for _ in 0..1 << 16 {
        let word = region.load(cell.word(ino::PARENT));
        if low(word) == 0 || low(region.load(cell.word(ino::IDENT))) & ino::REMOVED != 0 {
            return Err(Errno::ENOENT);
        }
        let line = region.map.object(LINE, low(word));
        let before = region.load(line);
        let length = entries::copy_name(region, line, out);
        live(region, dir)?;
        if region.load(line) == before && region.load(cell.word(ino::PARENT)) == word {
            return Ok(length);
        }
    }
    Err(Errno::EIO)
}
