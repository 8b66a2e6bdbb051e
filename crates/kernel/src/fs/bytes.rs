//! Bytes of files: the caller copies, the kernel says where.
//!
//! 1. A read holds nothing: it looks under the inode's sequence, copies, and looks again if the map
//!    sequence moved meanwhile. After `LOOKS_MAX` vain looks it takes the writer lock, too.
//! 2. A write holds the inode's writer lock (a long lock), and the inode's own lock only while it
//!    changes map, size and times.
//! 3. New blocks are filled before they enter the map, and size moves in the same transaction: an
//!    append that dies leaves nothing, and nobody ever sees stale bytes.
//! 4. Whoever moves the end outwards zeroes what is mapped between. Truncation moves the end first
//!    (with the mark TRIM) and frees blocks after; the next writer finishes what a death left. A
//!    file's blocks are freed under its writer lock (`orphan`): nobody writes to a block that has
//!    another owner. They go without the inode's lock: it has the mark GOING before, so a look that
//!    finds none was made when all was there; the map sequence tells of what went since.
//! 5. Blocks of a pinned inode are zeroed instead of freed, and freed at the last unpin.
//! 6. What cannot be put back to where it comes from is taken once its blocks are in the map.

use core::sync::atomic::{Ordering, fence};

use husk_abi::sys::general::{IN_ACCESS, IN_MODIFY};
use husk_proto::fs::{Piece, Place, Run, SetBits, Span, SpanKind, WHO_WRITES};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Blocks, Cell, INODE, LARGE_BYTES, Txn};

use crate::Kernel;
use crate::fs::attributes::after_change;
use crate::fs::directory::entries;
use crate::fs::extent::PAGE;
use crate::fs::{extent, unsaved};
use crate::image::answers::{self, Changes};
use crate::state::tree;
use crate::state::{high, ino, kind_bits, live, low, pair, whole};
use crate::watch::{self, post};

/// Blocks handled at a time.
const SEGMENT: u64 = 64;
/// Longest file.
pub const SIZE_MAX: u64 = extent::BLOCKS_MAX * PAGE;
/// Copies of one piece that a reader makes in vain before it keeps writers out.
const LOOKS_MAX: u32 = 1 << 10;

fn regular(ident: u64) -> Result<()> {
    match kind_bits(ident) {
        ino::FILE if low(ident) & (ino::HOST | ino::GOING) == 0 => Ok(()),
        ino::FILE if low(ident) & ino::GOING != 0 => Err(Errno::ESTALE),
        ino::FILE => Err(Errno::EIO),
        ino::DIRECTORY => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether the content of a file may be changed now: `WHO_WRITES` while it matters who changes it.
fn changeable(kernel: &Kernel, ident: u64) -> Result<()> {
    regular(ident)?;
    judged(kernel, ident)
}

fn judged(kernel: &Kernel, ident: u64) -> Result<()> {
    let matters = low(ident) & (0o6000 | ino::CAPABLE) != 0;
    if matters && kernel.set_bits == SetBits::Ask { Err(WHO_WRITES) } else { Ok(()) }
}

/// `Fs::read`.
pub fn read(
    kernel: &Kernel,
    inode: Inode,
    offset: u64,
    length: usize,
    copy: &mut dyn FnMut(Span) -> Result<()>,
    now_ns: i64,
) -> Result<usize> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    if length == 0 {
        // Linux judges the kind first, too.
        regular(region.load(cell.word(ino::IDENT)))?;
    }
    let mut done = 0;
    let span = (offset, length);
    if !read_on(kernel, inode, span, &mut done, copy)? {
        read_held(kernel, inode, span, &mut done, copy)?;
    }
    if !kernel.leaves_access_times {
        note_access(kernel, cell, now_ns);
    }
    if done > 0 && watch::any(region) {
        post::alone(kernel, inode, IN_ACCESS);
    }
    Ok(done)
}

/// `read` for who may change nothing. `EAGAIN`: what is behind `done` is not to be had so, nor is
/// anything of which it is to be noted that it was read.
pub fn look(
    kernel: &Kernel,
    inode: Inode,
    span: (u64, usize),
    done: &mut usize,
    copy: &mut dyn FnMut(Span) -> Result<()>,
    now_ns: i64,
) -> Result<()> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    regular(region.load(cell.word(ino::IDENT)))?;
    if watch::any(region) || access_is_due(kernel, cell, now_ns) {
        return Err(Errno::EAGAIN);
    }
    if read_on(kernel, inode, span, done, copy)? { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// `Fs::piece`: one look, which waits for nobody. Nothing where `read` has more to do.
#[inline(always)]
pub fn piece(kernel: &Kernel, inode: Inode, offset: u64, length: usize) -> Option<Piece> {
    let region = &kernel.session.region;
    if kernel.leaves_access_times || watch::any(region) {
        return None;
    }
    let cell = live(region, inode).ok()?;
    let sequence = region.load(cell.word(ino::MAP_SEQUENCE));
    let (ident, size, span) = kernel.session.read_once(cell, || {
        let ident = region.load(cell.word(ino::IDENT));
        (ident, region.load(cell.word(ino::SIZE)), piece_at(kernel, cell, offset, length))
    })?;
    let span = span?;
    let whole = span.length == length || offset + span.length as u64 == size;
    let sound = high(ident) == inode.generation && regular(ident).is_ok();
    (whole && sound).then_some(Piece { span, sequence })
}

/// The file of a piece that was copied, if its map is the same still.
#[inline(always)]
fn unmoved(kernel: &Kernel, inode: Inode, piece: &Piece) -> Option<Cell> {
    let cell = kernel.session.region.map.object(INODE, inode.number);
    // The bytes are read before the sequence is.
    fence(Ordering::Acquire);
    let now = kernel.session.region.load(cell.word(ino::MAP_SEQUENCE));
    (now == piece.sequence).then_some(cell)
}

/// `Fs::has_read`.
#[inline(always)]
pub fn has_read(kernel: &Kernel, inode: Inode, piece: Piece, now_ns: i64) -> bool {
    let Some(cell) = unmoved(kernel, inode, &piece) else { return false };
    note_access(kernel, cell, now_ns);
    true
}

/// `has_read` for who may change nothing: no, too, where a read is to be noted.
#[inline]
pub fn has_looked(kernel: &Kernel, inode: Inode, piece: Piece, now_ns: i64) -> bool {
    unmoved(kernel, inode, &piece).is_some_and(|cell| !access_is_due(kernel, cell, now_ns))
}

/// Reads on from `done`. `Ok(false)`: the map moves faster than the bytes can be copied.
#[inline(always)]
fn read_on(
    kernel: &Kernel,
    inode: Inode,
    (offset, length): (u64, usize),
    done: &mut usize,
    copy: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<bool> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let mut looks = 0;
    while *done < length {
        let at = offset.saturating_add(*done as u64);
        let sequence = region.load(cell.word(ino::MAP_SEQUENCE));
        let (ident, piece) = kernel.session.read(cell, || {
            let ident = region.load(cell.word(ino::IDENT));
            (ident, piece_at(kernel, cell, at, length - *done))
        })?;
        if high(ident) != inode.generation {
            return Err(Errno::ESTALE);
        }
        regular(ident)?;
        let Some(span) = piece else { break };
        let kind = if looks > 0 { SpanKind::Again } else { SpanKind::Plain };
        if let Err(error) = copy(Span { kind, ..span }) {
            return if *done > 0 { Ok(true) } else { Err(error) };
        }
        // The bytes are read before the sequence is.
        fence(Ordering::Acquire);
        if region.load(cell.word(ino::MAP_SEQUENCE)) == sequence {
            looks = 0;
            *done += span.length;
        } else if looks < LOOKS_MAX {
            looks += 1;
        } else {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The same with the writer lock, so that nobody moves the map meanwhile.
#[cold]
#[inline(never)]
fn read_held(
    kernel: &Kernel,
    inode: Inode,
    span: (u64, usize),
    done: &mut usize,
    copy: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let cell = live(&kernel.session.region, inode)?;
    kernel.session.lock_long(cell.word(ino::WRITER))?;
    // The first piece takes the place of what was copied in vain.
    let mut again = true;
    let result = read_on(kernel, inode, span, done, &mut |span| {
        let kind = if core::mem::take(&mut again) { SpanKind::Again } else { span.kind };
        copy(Span { kind, ..span })
    });
    kernel.session.unlock_long(cell.word(ino::WRITER));
    if result? { Ok(()) } else { Err(Errno::EIO) }
}

/// The bytes at `at`, at most `length`, as far as they lie in one piece.
#[inline(always)]
fn piece_at(kernel: &Kernel, cell: Cell, at: u64, length: usize) -> Option<Span> {
    let region = &kernel.session.region;
    let left = region.load(cell.word(ino::SIZE)).checked_sub(at).filter(|&left| left > 0)?;
    let want = left.min(length as u64);
    let within = at % PAGE;
    let most = (within + want).div_ceil(PAGE).min(SEGMENT);
    let root = region.load(cell.word(ino::ROOT));
    let (first, count) = match most {
        1 => (extent::block_at(region, root, at / PAGE), 1),
        _ => extent::run_at(region, root, at / PAGE, most),
    };
    let count = if first == 0 { 1 } else { count };
    let length = (count * PAGE - within).min(want) as usize;
    Some(Span::new(region.block_address(first) + within as usize, length))
}

/// Access times as `relatime` keeps them: one store, never journalled.
#[inline]
fn note_access(kernel: &Kernel, cell: Cell, now_ns: i64) {
    if access_is_due(kernel, cell, now_ns) {
        kernel.session.unguard();
        kernel.session.region.store(cell.word(ino::ATIME), now_ns as u64);
    }
}

/// Whether it is to be noted that a file is read.
#[inline]
fn access_is_due(kernel: &Kernel, cell: Cell, now_ns: i64) -> bool {
    const DAY_NS: i64 = 86_400_000_000_000;
    let region = &kernel.session.region;
    let accessed = region.load(cell.word(ino::ATIME)) as i64;
    let modified = region.load(cell.word(ino::MTIME)) as i64;
    accessed != now_ns && (accessed <= modified || now_ns - accessed > DAY_NS)
}

/// Locks an inode and checks that it is still the one meant.
fn hold(txn: &mut Txn<'_>, inode: Inode) -> Result<()> {
    txn.lock(live(txn.region, inode)?)?;
    whole(txn.region, inode).map(|_| ())
}

/// Runs `body` with the writer lock of a regular file of the image.
#[inline(always)]
fn writing<T>(kernel: &Kernel, inode: Inode, body: impl FnOnce(Cell) -> Result<T>) -> Result<T> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    kernel.session.lock_long(cell.word(ino::WRITER))?;
    let ident = region.load(cell.word(ino::IDENT));
    let checked = match live(region, inode) {
        Ok(_) if low(ident) & ino::TRIM != 0 => trim(kernel, inode),
        other => other.map(|_| ()),
    };
    let result = match checked {
        Ok(()) => body(cell),
        Err(error) => Err(error),
    };
    kernel.session.unlock_long(cell.word(ino::WRITER));
    result
}

/// Keeps writers out of a file until `let_writers_in`. Whoever writes waits, and not for long (1 s)
/// if the caller sleeps meanwhile; a mapping is written to all the same.
pub fn keep_writers_out(kernel: &Kernel, inode: Inode) -> Result<()> {
    let cell = live(&kernel.session.region, inode)?;
    kernel.session.lock_long(cell.word(ino::WRITER))?;
    let still = live(&kernel.session.region, inode).map(|_| ());
    if still.is_err() {
        kernel.session.unlock_long(cell.word(ino::WRITER));
    }
    still
}

/// Ends what `keep_writers_out` has begun.
pub fn let_writers_in(kernel: &Kernel, inode: Inode) {
    let cell = kernel.session.region.map.object(INODE, inode.number);
    kernel.session.unlock_long(cell.word(ino::WRITER));
}

/// `Fs::write`.
pub fn write(
    kernel: &Kernel,
    inode: Inode,
    place: Place,
    length: usize,
    copy: &mut dyn FnMut(Span) -> Result<()>,
    now_ns: i64,
) -> Result<(u64, usize)> {
    let region = &kernel.session.region;
    writing(kernel, inode, |cell| {
        let ident = region.load(cell.word(ino::IDENT));
        changeable(kernel, ident)?;
        let size = region.load(cell.word(ino::SIZE));
        let offset = match place {
            Place::At(offset) => offset,
            Place::End => size,
        };
        if length == 0 {
            return Ok((offset, 0));
        }
        if offset >= SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let length = (length as u64).min(SIZE_MAX - offset);
        unsaved::note_bytes(kernel, ident, inode.number, offset, offset + length);
        if offset > size {
            zero_mapped(kernel, cell, size, offset);
        }
        let done = fill(kernel, inode, cell, offset, length, copy, now_ns)?;
        let end = (offset + done.bytes, done.bytes);
        finish_write(kernel, inode, cell, end, now_ns, done.told)?;
        Ok((offset, done.bytes as usize))
    })
}

/// `Fs::receive`.
#[cold]
pub fn receive(
    kernel: &Kernel,
    inode: Inode,
    offset: u64,
    most: usize,
    take: &mut dyn FnMut(usize) -> Result<usize>,
    copy: &mut dyn FnMut(Span) -> Result<()>,
    now_ns: i64,
) -> Result<usize> {
    let region = &kernel.session.region;
    writing(kernel, inode, |cell| {
        let ident = region.load(cell.word(ino::IDENT));
        changeable(kernel, ident)?;
        if offset >= SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let most = make_room(kernel, inode, cell, offset, (most as u64).min(SIZE_MAX - offset))?;
        let count = take(most as usize)? as u64;
        assert!(count <= most, "more bytes taken than there is room for");
        if count == 0 {
            return Ok(0);
        }
        let size = region.load(cell.word(ino::SIZE));
        unsaved::note_bytes(kernel, ident, inode.number, offset, offset + count);
        if offset > size {
            zero_mapped(kernel, cell, size, offset);
        }
        let done = fill(kernel, inode, cell, offset, count, copy, now_ns)?;
        let end = (offset + done.bytes, done.bytes);
        finish_write(kernel, inode, cell, end, now_ns, done.told)?;
        Ok(done.bytes as usize)
    })
}

/// Maps what is not mapped of `length` bytes at `offset`; for how many of them there is room.
fn make_room(kernel: &Kernel, inode: Inode, cell: Cell, offset: u64, length: u64) -> Result<u64> {
    let (first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
    let Err(error) = fill_holes(kernel, inode, first, end) else { return Ok(length) };
    let region = &kernel.session.region;
    let root = region.load(cell.word(ino::ROOT));
    match (first..end).take_while(|&block| extent::block_at(region, root, block) != 0).count() {
        0 => Err(error),
        count => Ok(((first + count as u64) * PAGE - offset).min(length)),
    }
}

/// What a write has come to.
struct Filled {
    bytes: u64,
    /// Watchers have been told of it.
    told: bool,
}

/// Copies piece by piece; how many bytes went in before something failed.
#[inline(always)]
fn fill(
    kernel: &Kernel,
    inode: Inode,
    cell: Cell,
    offset: u64,
    length: u64,
    copy: &mut dyn FnMut(Span) -> Result<()>,
    now_ns: i64,
) -> Result<Filled> {
    let region = &kernel.session.region;
    let (mut done, mut told) = (0, false);
    while done < length {
        let at = offset + done;
        let within = at % PAGE;
        let most = (within + length - done).div_ceil(PAGE).min(SEGMENT);
        let root = region.load(cell.word(ino::ROOT));
        let (first, count) = extent::run_at(region, root, at / PAGE, most);
        told = first == 0;
        let piece = if first != 0 {
            let bytes = (count * PAGE - within).min(length - done);
            let address = region.block_address(first) + within as usize;
            let span = Span::new(address, bytes as usize);
            copy(span).map(|()| bytes)
        } else {
            fill_hole(kernel, inode, at, (count, length - done, length), copy, now_ns)
        };
        match piece {
            Ok(bytes) => done += bytes,
            Err(_) if done > 0 => return Ok(Filled { bytes: done, told: false }),
            Err(error) => return Err(error),
        }
    }
    Ok(Filled { bytes: done, told })
}

/// Fills new blocks at a hole of `room.0` blocks with at most `room.1` bytes, of a write of
/// `room.2` in all, then maps them. The last piece of a write tells of it.
fn fill_hole(
    kernel: &Kernel,
    inode: Inode,
    at: u64,
    room: (u64, u64, u64),
    copy: &mut dyn FnMut(Span) -> Result<()>,
    now_ns: i64,
) -> Result<u64> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let within = at % PAGE;
    let blocks = ahead(kernel, cell, room.0, room.2)?;
    let unmapped = room.2 >= LARGE_BYTES && kernel.session.is_unmapped(blocks);
    let bytes = (blocks.count as u64 * PAGE - within).min(room.1);
    let end = within + bytes;
    region.zero_block(blocks.first, 0, within as usize);
    if !end.is_multiple_of(PAGE) {
        let last = blocks.first + (end / PAGE) as u32;
        region.zero_block(last, (end % PAGE) as usize, PAGE as usize);
    }
    let address = region.block_address(blocks.first) + within as usize;
    let kind = if unmapped { SpanKind::Unmapped } else { SpanKind::Plain };
    copy(Span { address, length: bytes as usize, kind })?;
    kernel.run(|txn| {
        hold(txn, inode)?;
        extent::map(txn, cell, at / PAGE, blocks)?;
        grow_to(txn, cell, at + bytes);
        stamp(kernel, txn, cell, now_ns);
        let told =
            if bytes < room.1 { Ok(()) } else { post::of_file(txn, inode.number, IN_MODIFY) };
        answers::keep(kernel, txn, Changes::Bytes, told, |_| {
            let before = room.2 - room.1;
            [at - before, before + bytes]
        })
    })?;
    Ok(bytes)
}

/// Blocks this thread may fill for a file, by a write of so many bytes: larger files want to lie in
/// runs.
fn ahead(kernel: &Kernel, cell: Cell, want: u64, bytes: u64) -> Result<Blocks> {
    kernel.ready()?;
    let held = kernel.session.region.load(cell.word(ino::BLOCKS));
    let wish = want.max(if held >= 4 { 2 } else { 1 }) as u32;
    let blocks = kernel.session.blocks_ahead(wish, bytes)?;
    Ok(Blocks { first: blocks.first, count: blocks.count.min(want as u32) })
}

fn grow_to(txn: &mut Txn<'_>, cell: Cell, end: u64) {
    if txn.get(cell.word(ino::SIZE)) < end {
        txn.set(cell.word(ino::SIZE), end);
    }
}

/// Content changed now: times, and set-id bits go unless the writer may leave them.
fn stamp(kernel: &Kernel, txn: &mut Txn<'_>, cell: Cell, now_ns: i64) {
    entries::touch(txn, cell.word(ino::MTIME), now_ns);
    entries::touch(txn, cell.word(ino::CTIME), now_ns);
    let ident = txn.get(cell.word(ino::IDENT));
    let mode = low(ident) & 0o7777;
    if mode & 0o6000 != 0 && after_change(mode, kernel.set_bits) != mode {
        let bits = low(ident) & !0o7777 | after_change(mode, kernel.set_bits);
        txn.set(cell.word(ino::IDENT), pair(high(ident), bits));
    }
}

/// Moves end and times after a write, and tells of it; nothing to do when all that is done already.
#[inline(always)]
fn finish_write(
    kernel: &Kernel,
    inode: Inode,
    cell: Cell,
    (end, written): (u64, u64),
    now_ns: i64,
    told: bool,
) -> Result<()> {
    let region = &kernel.session.region;
    let word = |n: u32| region.load(cell.word(n));
    let stamped = word(ino::MTIME) == now_ns as u64 && word(ino::CTIME) == now_ns as u64;
    let plain = low(word(ino::IDENT)) & 0o6000 == 0 && (told || !watch::any(region));
    let is_done = end <= word(ino::SIZE) && stamped && plain;
    if is_done && !answers::is_wanted(kernel, Changes::Bytes) {
        return Ok(());
    }
    let finished = kernel.run(|txn| {
        hold(txn, inode)?;
        grow_to(txn, cell, end);
        stamp(kernel, txn, cell, now_ns);
        let told = if told { Ok(()) } else { post::of_file(txn, inode.number, IN_MODIFY) };
        answers::keep(kernel, txn, Changes::Bytes, told, |_| [end - written, written])
    });
    match finished {
        // Gone since, with its bytes: they were written, and nobody can look any more.
        Err(Errno::ESTALE) => Ok(()),
        other => other,
    }
}

/// Zeroes what is mapped of `from..to` (bytes).
fn zero_mapped(kernel: &Kernel, cell: Cell, from: u64, to: u64) {
    let region = &kernel.session.region;
    let root = region.load(cell.word(ino::ROOT));
    let mut block = from / PAGE;
    while let Some((_, base)) = tree::next_leaf(region, root, block / 2) {
        block = block.max(base * 2);
        let end = ((base + 64) * 2).min(to.div_ceil(PAGE));
        while block < end {
            let here = extent::block_at(region, root, block);
            if here != 0 {
                let start = from.max(block * PAGE) - block * PAGE;
                let stop = to.min((block + 1) * PAGE) - block * PAGE;
                region.zero_block(here, start as usize, stop as usize);
            }
            block += 1;
        }
        if block * PAGE >= to {
            break;
        }
        block = (base + 64) * 2;
    }
}

/// Frees (or, while pinned, zeroes) what lies past the end. The writer lock is held.
pub fn trim(kernel: &Kernel, inode: Inode) -> Result<()> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let size = region.load(cell.word(ino::SIZE));
    let tail = size.next_multiple_of(PAGE);
    zero_mapped(kernel, cell, size, tail);
    loop {
        let done = kernel.run(|txn| {
            hold(txn, inode)?;
            if high(txn.get(cell.word(ino::USERS))) != 0 {
                return Ok(None);
            }
            let done = extent::unmap_step(txn, cell, tail / PAGE, u64::MAX)?;
            if done {
                let ident = txn.get(cell.word(ino::IDENT));
                txn.set(cell.word(ino::IDENT), ident & !(ino::TRIM as u64));
            }
            Ok(Some(done))
        })?;
        match done {
            None => break zero_mapped(kernel, cell, tail, SIZE_MAX),
            Some(true) => break,
            Some(false) => {}
        }
    }
    Ok(())
}

/// `Fs::truncate`.
pub fn truncate(kernel: &Kernel, inode: Inode, size: u64, now_ns: i64) -> Result<()> {
    if size > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let region = &kernel.session.region;
    writing(kernel, inode, |cell| {
        let ident = region.load(cell.word(ino::IDENT));
        if size != 0 || kind_bits(ident) != ino::FILE {
            regular(ident)?;
        }
        judged(kernel, ident)?;
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let old = region.load(cell.word(ino::SIZE));
        if size > old {
            unsaved::note_growth(kernel, ident, inode.number, old);
            zero_mapped(kernel, cell, old, size);
        } else if size < old {
            unsaved::note_bytes(kernel, ident, inode.number, size, old);
        }
        // Blocks set aside behind the end go with the same length, too.
        let hosts = low(ident) & ino::HOST != 0;
        let aside = size == old && !hosts && region.load(cell.word(ino::BLOCKS)) != 0;
        let shrinks = size < old || aside;
        kernel.run(|txn| {
            hold(txn, inode)?;
            let ident = txn.get(cell.word(ino::IDENT));
            let trim = if shrinks { ino::TRIM as u64 } else { 0 };
            txn.set(cell.word(ino::IDENT), ident & !(ino::HOST as u64) | trim);
            if low(ident) & ino::HOST != 0 {
                txn.set(cell.word(ino::BLOCKS), 0);
            }
            txn.set(cell.word(ino::SIZE), size);
            stamp(kernel, txn, cell, now_ns);
            let told = post::of_file(txn, inode.number, IN_MODIFY);
            answers::keep(kernel, txn, Changes::Bytes, told, |_| [0; 2])
        })?;
        if shrinks { trim(kernel, inode) } else { Ok(()) }
    })
}

/// Maps zeroed blocks at every hole of blocks `first..end`. The writer lock is held.
fn fill_holes(kernel: &Kernel, inode: Inode, first: u64, end: u64) -> Result<()> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let mut block = first;
    while block < end {
        let root = region.load(cell.word(ino::ROOT));
        let (here, count) = extent::run_at(region, root, block, (end - block).min(SEGMENT));
        if here != 0 {
            block += count;
            continue;
        }
        let blocks = ahead(kernel, cell, count, 0)?;
        for n in 0..blocks.count {
            region.zero_block(blocks.first + n, 0, PAGE as usize);
        }
        kernel.run(|txn| {
            hold(txn, inode)?;
            extent::map(txn, cell, block, blocks)
        })?;
        block += blocks.count as u64;
    }
    Ok(())
}

/// `Fs::allocate`.
pub fn allocate(
    kernel: &Kernel,
    inode: Inode,
    offset: u64,
    length: u64,
    keep_size: bool,
    now_ns: i64,
) -> Result<()> {
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    if end > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let region = &kernel.session.region;
    writing(kernel, inode, |cell| {
        let ident = region.load(cell.word(ino::IDENT));
        changeable(kernel, ident)?;
        if end.div_ceil(PAGE) - offset / PAGE > region.block_count() as u64 {
            return Err(Errno::ENOSPC);
        }
        let size = region.load(cell.word(ino::SIZE));
        if end > size && !keep_size {
            unsaved::note_growth(kernel, ident, inode.number, size);
            zero_mapped(kernel, cell, size, end);
        }
        fill_holes(kernel, inode, offset / PAGE, end.div_ceil(PAGE))?;
        kernel.run(|txn| {
            hold(txn, inode)?;
            if !keep_size {
                grow_to(txn, cell, end);
            }
            stamp(kernel, txn, cell, now_ns);
            let told = post::of_file(txn, inode.number, IN_MODIFY);
            answers::keep(kernel, txn, Changes::Bytes, told, |_| [0; 2])
        })
    })
}

/// `Fs::punch`.
pub fn punch(kernel: &Kernel, inode: Inode, offset: u64, length: u64, now_ns: i64) -> Result<()> {
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?.min(SIZE_MAX);
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let region = &kernel.session.region;
    writing(kernel, inode, |cell| {
        let ident = region.load(cell.word(ino::IDENT));
        changeable(kernel, ident)?;
        unsaved::note_bytes(kernel, ident, inode.number, offset, end);
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first > last {
            zero_mapped(kernel, cell, offset, end);
        } else {
            zero_mapped(kernel, cell, offset, first * PAGE);
            zero_mapped(kernel, cell, last * PAGE, end);
        }
        if first < last {
            unmap(kernel, inode, (first, last), now_ns)?;
        }
        finish_write(kernel, inode, cell, (0, 0), now_ns, false)
    })
}

/// Takes blocks `range.0..range.1` out of the map, or zeroes them while the inode is pinned.
fn unmap(kernel: &Kernel, inode: Inode, range: (u64, u64), now_ns: i64) -> Result<()> {
    loop {
        let done = kernel.run(|txn| {
            hold(txn, inode)?;
            let cell = live(txn.region, inode)?;
            stamp(kernel, txn, cell, now_ns);
            if high(txn.get(cell.word(ino::USERS))) != 0 {
                return Ok(None);
            }
            extent::unmap_step(txn, cell, range.0, range.1).map(Some)
        })?;
        match done {
            Some(false) => {}
            Some(true) => return Ok(()),
            None => {
                let cell = live(&kernel.session.region, inode)?;
                zero_mapped(kernel, cell, range.0 * PAGE, range.1 * PAGE);
                return Ok(());
            }
        }
    }
}

/// `Fs::seek_data`.
pub fn seek_data(kernel: &Kernel, inode: Inode, offset: u64, data: bool) -> Result<u64> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let (ident, size, found) = kernel.session.read(cell, || {
        let size = region.load(cell.word(ino::SIZE));
        let root = region.load(cell.word(ino::ROOT));
        let found =
            if offset < size { extent::scan(region, root, offset, size, data) } else { None };
        (region.load(cell.word(ino::IDENT)), size, found)
    })?;
    if high(ident) != inode.generation {
        return Err(Errno::ESTALE);
    }
    regular(ident)?;
    match found {
        _ if offset >= size => Err(Errno::ENXIO),
        Some(at) => Ok(at),
        None if data => Err(Errno::ENXIO),
        None => Ok(size),
    }
}

/// `Fs::runs`: pages past the end of the file are left out.
pub fn runs(
    kernel: &Kernel,
    inode: Inode,
    offset: u64,
    length: u64,
    fill: bool,
    emit: &mut dyn FnMut(Run) -> Result<()>,
) -> Result<()> {
    let region = &kernel.session.region;
    writing(kernel, inode, |cell| {
        regular(region.load(cell.word(ino::IDENT)))?;
        let pages = region.load(cell.word(ino::SIZE)).div_ceil(PAGE);
        let end = offset.saturating_add(length).div_ceil(PAGE).min(pages);
        if fill {
            fill_holes(kernel, inode, offset / PAGE, end)?;
        }
        let root = region.load(cell.word(ino::ROOT));
        let cache = region.layout().cache_offset();
        let mut block = offset / PAGE;
        while block < end {
            let data = extent::scan(region, root, block * PAGE, end * PAGE, true);
            let data = data.map_or(end, |at| at / PAGE);
            if data > block {
                emit(Run { cache_offset: None, length: (data - block) * PAGE })?;
                block = data;
                continue;
            }
            let (first, count) = extent::run_at(region, root, block, end - block);
            let cache_offset = Some(cache + first as u64 * PAGE);
            emit(Run { cache_offset, length: count * PAGE })?;
            block += count;
        }
        Ok(())
    })
}

/// Trims a file whose last pin has gone.
pub fn trim_unpinned(kernel: &Kernel, inode: Inode) -> Result<()> {
    writing(kernel, inode, |_| Ok(()))
}
