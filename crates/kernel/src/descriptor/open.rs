//! Open-file descriptions: opening, sharing, offsets, flags.

use husk_abi::sys::general::{IN_CLOSE_NOWRITE, IN_CLOSE_WRITE, IN_OPEN};
use husk_proto::descriptor::Open;
use husk_proto::fs::{Credentials, Kind, Node, Step};
use husk_proto::{Description, Errno, Files, Inode, Result};
use husk_region::{Cell, INODE, RECORD, RETRY, Region, Txn};

use crate::descriptor::table;
use crate::fs::directory::entries::{self, Key};
use crate::fs::directory::names;
use crate::fs::{bytes, inodes, named, rights};
use crate::image::answers::{self, Changes};
use crate::state::fd_table;
use crate::state::hold;
use crate::state::process;
use crate::state::{high, ino, low, pair, tag};
use crate::watch::post;
use crate::{Kernel, no_room};

pub(crate) const TAG: u32 = 1;
pub(crate) const TARGET: u32 = 2;
pub(crate) const REFERENCES: u32 = 3;
pub(crate) const OFFSET: u32 = 4;
const INODE_GENERATION: u32 = 5;

/// Among the flags: the offset is kept by the host, whose file this is.
const HOSTED: u32 = 1 << 31;
/// Among the flags: the offset is another node's, the home of what is open.
pub const AT_HOME: u32 = 1 << 30;

const ACCESS: u32 = 0o3;
const TRUNCATE: u32 = 0o1000;
const CREATION: u32 = 0o100 | 0o200 | 0o400 | TRUNCATE | CLOSE_ON_EXEC;
const CLOSE_ON_EXEC: u32 = 0o2000000;
const PATH: u32 = 0o10000000;
const NO_TIMES: u32 = 0o1000000;
/// What `F_SETFL` may change: append, nonblock, async, direct, noatime.
const SETTABLE: u32 = 0o2000 | 0o4000 | 0o20000 | 0o40000 | 0o1000000;

#[inline(always)]
pub(crate) fn cell(region: &Region, description: u32) -> Cell {
    region.map.object(RECORD, description)
}

#[inline(always)]
fn alive(region: &Region, description: u32) -> Result<Cell> {
    let cell = cell(region, description);
    if low(region.load(cell.word(TAG))) == tag::DESCRIPTION { Ok(cell) } else { Err(Errno::EBADF) }
}

/// How many descriptions there are, about: nothing is held meanwhile.
pub fn count(kernel: &Kernel) -> u64 {
    let session = &kernel.session;
    let is_tagged = |&number: &u32| alive(&session.region, number).is_ok();
    let tagged = (1..session.never_used(RECORD)).filter(is_tagged).count() as u64;
    // An operation that fails gives back what it has made with its tag on.
    let mut given_back = 0;
    session.each_free(RECORD, &mut |number| given_back += u64::from(is_tagged(&number)));
    tagged.saturating_sub(given_back)
}

/// The inode a description is of.
pub(crate) fn inode_number(region: &Region, description: u32) -> u32 {
    high(region.load(cell(region, description).word(TARGET)))
}

/// The inode a description is of, and in which life.
pub(crate) fn inode(region: &Region, description: u32) -> Inode {
    let cell = cell(region, description);
    let generation = region.load(cell.word(INODE_GENERATION)) as u32;
    Inode { number: high(region.load(cell.word(TARGET))), generation }
}

/// Makes a description of an inode whose count the caller has raised.
fn make(txn: &mut Txn<'_>, inode: Inode, flags: u32) -> Result<u32> {
    let number = txn.allocate(RECORD)?;
    let cell = cell(txn.region, number);
    txn.init(cell.word(TARGET), pair(inode.number, flags & !CREATION));
    txn.init(cell.word(REFERENCES), 1);
    txn.init(cell.word(OFFSET), 0);
    txn.init(cell.word(INODE_GENERATION), inode.generation as u64);
    let generation = high(txn.get(cell.word(TAG)));
    txn.init(cell.word(TAG), pair(generation, tag::DESCRIPTION));
    Ok(number)
}

/// The entry of a description that was opened with these flags.
pub(crate) fn entry(description: u32, flags: u32) -> u64 {
    fd_table::husk_entry(description, flags & CLOSE_ON_EXEC != 0)
}

/// A description that nobody else comes by is as if it had just been made.
pub(crate) fn begin_again(txn: &mut Txn<'_>, cell: Cell, flags: u32) {
    let inode = high(txn.get(cell.word(TARGET)));
    txn.set(cell.word(TARGET), pair(inode, flags & !CREATION));
    txn.set(cell.word(OFFSET), 0);
}

/// The description of a shadow, of an inode whose count the caller has raised.
pub(crate) fn make_hosted(txn: &mut Txn<'_>, inode: Inode) -> Result<u32> {
    make(txn, inode, HOSTED)
}

/// The description of a shadow becomes the image's, unless it is. `EIO`: the file is the host's.
pub(crate) fn take_over(
    txn: &mut Txn<'_>,
    description: u32,
    flags: u32,
    offset: u64,
) -> Result<()> {
    let cell = cell(txn.region, description);
    txn.lock(cell)?;
    let target = txn.get(cell.word(TARGET));
    if low(target) & HOSTED == 0 {
        return Ok(());
    }
    let inode = txn.region.map.object(INODE, high(target));
    if low(txn.get(inode.word(ino::IDENT))) & ino::HOST != 0 {
        return Err(Errno::EIO);
    }
    txn.set(cell.word(OFFSET), offset);
    txn.set(cell.word(TARGET), pair(high(target), flags & !CREATION));
    Ok(())
}

/// In the record of a hold (`holds`): the request, and the description that it keeps open.
pub(crate) const HELD: u32 = 3;

/// The description that the hold in a record keeps open, as it is at this moment.
pub fn held_by_record(kernel: &Kernel, number: u32) -> Option<u32> {
    if number == 0 || number >= kernel.session.never_used(RECORD) {
        return None;
    }
    let (region, cell) = (&kernel.session.region, cell(&kernel.session.region, number));
    let is_hold = low(region.load(cell.word(TAG))) == tag::HOLD;
    is_hold.then(|| low(region.load(cell.word(HELD))))
}

/// One more number names a description.
pub(crate) fn hold(txn: &mut Txn<'_>, description: u32) -> Result<()> {
    let cell = cell(txn.region, description);
    if !fd_table::is_mine(txn.session, cell, REFERENCES) {
        txn.lock(cell)?;
    }
    let references = txn.get(cell.word(REFERENCES));
    txn.set(cell.word(REFERENCES), references + 1);
    Ok(())
}

/// One number less; the last one closes the inode.
pub(crate) fn release(txn: &mut Txn<'_>, description: u32) -> Result<()> {
    let cell = cell(txn.region, description);
    txn.lock(cell)?;
    let references = txn.get(cell.word(REFERENCES));
    if references > 1 {
        txn.set(cell.word(REFERENCES), references - 1);
        return Ok(());
    }
    finish(txn, cell, description)
}

/// Before one that names a description goes: if it is the last, the description's locks go.
pub(crate) fn drop_locks(kernel: &Kernel, description: u32) -> Result<()> {
    let region = &kernel.session.region;
    let number = inode_number(region, description);
    let inode = region.map.object(INODE, number);
    if high(region.load(inode.word(ino::ORIGIN))) != 0 && references(region, description) == 1 {
        crate::lock::drop_many(kernel, number, description)?;
    }
    Ok(())
}

/// `release` without the description's lock, where one table of one process has the only number:
/// who would raise the count needs that table's lock, which the caller holds. The tag goes first
/// and the inode's compare and swap orders it before the second look at the lock word, so whoever
/// takes that later finds no description. `RETRY` when somebody has or had it: who asks for the
/// description meanwhile is told that it is closed, as it is about to be.
#[inline]
pub(crate) fn release_private(txn: &mut Txn<'_>, description: u32) -> Result<()> {
    let cell = cell(txn.region, description);
    let word = txn.get(cell);
    if husk_region::is_locked(word) || txn.get(cell.word(REFERENCES)) != 1 {
        return Err(RETRY);
    }
    finish(txn, cell, description)?;
    if txn.get(cell) == word { Ok(()) } else { Err(RETRY) }
}

/// The end of a description nobody names any more.
#[inline]
fn finish(txn: &mut Txn<'_>, cell: Cell, description: u32) -> Result<()> {
    let life = txn.get(cell.word(TAG));
    txn.change(cell.word(TAG), life, pair(high(life).wrapping_add(1), 0));
    txn.free(RECORD, description);
    let target = txn.get(cell.word(TARGET));
    let inode = high(target);
    let inode_cell = txn.region.map.object(INODE, inode);
    txn.lock(inode_cell)?;
    crate::lock::drop_description(txn, inode_cell, description)?;
    let writes = writes(low(target));
    if writes {
        named::add_writers(txn, inode, -1)?;
    }
    if low(target) & PATH == 0 {
        post::of_file(txn, inode, if writes { IN_CLOSE_WRITE } else { IN_CLOSE_NOWRITE })?;
    }
    inodes::close_locked(txn, inode_cell, inode)
}

/// Runs `body`, which may close the description of `entry`, and wakes who waits for its locks.
pub(crate) fn wake_after<T>(
    kernel: &Kernel,
    entry: u64,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let region = &kernel.session.region;
    let number = fd_table::description_of(entry).map_or(0, |number| inode_number(region, number));
    let inode = region.map.object(INODE, number);
    let locked = number != 0 && high(region.load(inode.word(ino::ORIGIN))) != 0;
    let result = body();
    if locked {
        crate::lock::wake(kernel, number);
    }
    result
}

/// What nobody else has open, and was only read, is closed without an event.
#[cfg(feature = "answers")]
pub(crate) fn silence(txn: &mut Txn<'_>, description: u32) -> Result<()> {
    let cell = cell(txn.region, description);
    txn.lock(cell)?;
    let target = txn.get(cell.word(TARGET));
    // A mutant: what can be written to, too.
    let is_read = !writes(low(target)) || husk_region::observe::kill::mutant() == 84;
    if is_read && txn.get(cell.word(REFERENCES)) == 1 {
        txn.set(cell.word(TARGET), pair(high(target), low(target) | PATH));
    }
    Ok(())
}

/// Whether a description keeps others from running its file.
#[inline]
fn writes(flags: u32) -> bool {
    flags & PATH == 0 && matches!(flags & ACCESS, 1 | 2)
}

/// Whether a description's offset is the host's, for the checker.
pub(crate) fn is_hosted(region: &Region, description: u32) -> bool {
    low(region.load(cell(region, description).word(TARGET))) & HOSTED != 0
}

/// The inode that a description writes to, for the checker.
pub(crate) fn written(region: &Region, description: u32) -> Option<u32> {
    let target = region.load(cell(region, description).word(TARGET));
    writes(low(target)).then_some(high(target))
}

fn wanted(flags: u32) -> u32 {
    match flags & ACCESS {
        0 => 4,
        1 => 2,
        _ => 6,
    }
}

fn may_open(txn: &mut Txn<'_>, who: &Credentials<'_>, step: &Step, flags: u32) -> Result<()> {
    if flags & PATH != 0 {
        return Ok(());
    }
    let want = wanted(flags) | if flags & TRUNCATE != 0 { 2 } else { 0 };
    match step.kind {
        Kind::Symlink => return Err(Errno::ELOOP),
        Kind::Portal => return Err(Errno::ENXIO),
        kind if kind.is_special() => return Err(Errno::ENXIO),
        Kind::Directory if want & 2 != 0 => return Err(Errno::EISDIR),
        _ => {}
    }
    rights::permit(txn, who, step, want)?;
    if flags & NO_TIMES != 0 { who.permit_no_times(step) } else { Ok(()) }
}

/// `Fs::open`. `ENFILE` when there is no room for what is open, and then nothing is truncated.
#[allow(clippy::too_many_arguments)]
pub fn open(
    kernel: &Kernel,
    who: &Credentials<'_>,
    files: Files,
    inode: Inode,
    flags: u32,
    minimum: u32,
    limit: u32,
    now_ns: i64,
) -> Result<u32> {
    let truncates = flags & TRUNCATE != 0 && flags & PATH == 0;
    let fd = kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let fd = fd_table::lowest_free_of(txn.region, table, minimum, limit)?;
        let cell = hold::lock_to_hold(txn, inode)?;
        let step = names::step(txn, inode.number);
        may_open(txn, who, &step, flags)?;
        if low(txn.get(cell.word(ino::IDENT))) & ino::HOST != 0 && flags & PATH == 0 && !truncates {
            return Err(Errno::EIO);
        }
        hold::add_users(txn, cell, 1, 0);
        if truncates {
            named::may_write(txn, inode.number)?;
        }
        if writes(flags) {
            named::add_writers(txn, inode.number, 1)?;
        }
        let description = make(txn, inode, flags)?;
        let entry = fd_table::husk_entry(description, flags & CLOSE_ON_EXEC != 0);
        fd_table::put(txn, table, fd, entry)?;
        if flags & PATH == 0 {
            post::of_file(txn, inode.number, IN_OPEN)?;
        }
        Ok(fd)
    });
    let fd = fd.map_err(no_room(Errno::ENFILE))?;
    if truncates && let Err(error) = bytes::truncate(kernel, inode, 0, now_ns) {
        table::close(kernel, files, fd)?;
        return Err(error);
    }
    Ok(fd)
}

/// `Fs::create_open`.
#[allow(clippy::too_many_arguments)]
pub fn create_open(
    kernel: &Kernel,
    who: &Credentials<'_>,
    files: Files,
    dir: Inode,
    name: &[u8],
    mode: u32,
    flags: u32,
    limit: u32,
    now_ns: i64,
) -> Result<u32> {
    let key = Key::new(dir.number, name)?;
    kernel.run(|txn| {
        let table = fd_table::lock(txn, files)?;
        let dir_cell = entries::open_directory(txn, dir)?;
        let number = names::create_in(txn, who, dir_cell, &key, &Node::File(mode), now_ns)?;
        let fd = fd_table::lowest_free_of(txn.region, table, 0, limit)?;
        let cell = txn.region.map.object(INODE, number);
        txn.init(cell.word(ino::USERS), 1);
        if writes(flags) {
            let line = low(txn.get(cell.word(ino::KNOWN)));
            txn.init(cell.word(ino::KNOWN), pair(1, line));
        }
        let description = make(txn, inodes::name(txn, number), flags)?;
        let entry = fd_table::husk_entry(description, flags & CLOSE_ON_EXEC != 0);
        fd_table::put(txn, table, fd, entry)?;
        post::of_file(txn, number, IN_OPEN)?;
        answers::keep(kernel, txn, Changes::Names, Ok(fd), |txn| {
            names::made_words(inodes::name(txn, number))
        })
    })
}

/// `Descriptors::flags`.
#[inline(always)]
pub fn flags(kernel: &Kernel, description: Description) -> Result<u32> {
    let region = &kernel.session.region;
    Ok(low(region.load(alive(region, description.0)?.word(TARGET))))
}

/// `Descriptors::description`.
#[inline(always)]
pub fn description(kernel: &Kernel, description: Description) -> Result<Open> {
    let region = &kernel.session.region;
    let cell = alive(region, description.0)?;
    let target = region.load(cell.word(TARGET));
    let generation = region.load(cell.word(INODE_GENERATION)) as u32;
    Ok(Open { inode: Inode { number: high(target), generation }, flags: low(target) })
}

/// `Descriptors::offset`.
pub fn offset(kernel: &Kernel, description: Description) -> Result<u64> {
    let region = &kernel.session.region;
    Ok(region.load(alive(region, description.0)?.word(OFFSET)))
}

/// `Descriptors::set_offset`.
pub fn set_offset(kernel: &Kernel, description: Description, offset: u64) -> Result<()> {
    let advance = begin_advance(kernel, description)?;
    end_advance(kernel, &advance, Some(offset));
    Ok(())
}

/// An offset that nobody else changes until `end_advance`.
#[derive(Debug)]
pub struct Advance {
    /// Where it stands.
    pub offset: u64,
    cell: Cell,
    locked: bool,
}

/// Sees to it that nobody else changes the offset, and returns it.
#[inline(always)]
pub fn begin_advance(kernel: &Kernel, description: Description) -> Result<Advance> {
    let region = &kernel.session.region;
    let cell = cell(region, description.0);
    let locked = !is_alone_with(kernel, cell);
    if locked {
        kernel.session.lock_long(cell)?;
    }
    match alive(region, description.0) {
        Ok(_) => Ok(Advance { offset: region.load(cell.word(OFFSET)), cell, locked }),
        Err(error) => {
            if locked {
                kernel.session.unlock_long(cell);
            }
            Err(error)
        }
    }
}

/// Whether only this thread comes by a description: its process has no other thread, shares its
/// table with nobody, and has the only number of it. The lock is looked at last, as in `is_mine`.
#[inline(always)]
fn is_alone_with(kernel: &Kernel, description: Cell) -> bool {
    let region = &kernel.session.region;
    let table = fd_table::cell(region, process::files(kernel));
    kernel.session.is_alone()
        && region.load(table.word(fd_table::SHARERS)) == 1
        && region.load(description.word(REFERENCES)) == 1
        && !husk_region::is_locked(region.load(description))
}

/// Stores the new offset (one word: needs no undoing) and lets it go.
#[inline(always)]
pub fn end_advance(kernel: &Kernel, advance: &Advance, offset: Option<u64>) {
    if let Some(offset) = offset {
        kernel.session.region.store(advance.cell.word(OFFSET), offset);
    }
    if advance.locked {
        kernel.session.unlock_long(advance.cell);
    }
}

/// `Descriptors::set_flags`.
pub fn set_flags(kernel: &Kernel, description: Description, flags: u32) -> Result<()> {
    kernel.run(|txn| {
        let cell = cell(txn.region, description.0);
        txn.lock(cell)?;
        alive(txn.region, description.0)?;
        let target = txn.get(cell.word(TARGET));
        let kept = low(target) & !SETTABLE | flags & SETTABLE;
        txn.set(cell.word(TARGET), pair(high(target), kept));
        Ok(())
    })
}

/// References of a description, as they were a moment ago.
#[inline]
pub(crate) fn references(region: &Region, description: u32) -> u64 {
    region.load(cell(region, description).word(REFERENCES))
}
