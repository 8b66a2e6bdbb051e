//! Extended attributes: a chain of lines off the inode, each with a name and a value.
//!
//! ```text
//!   inode 10  born in ns: 0 | 63 bits; with attributes: 1 | first:31 | born in s:32
//!   line  0 version:32 tag:8   1 value length:32 next:32   2 value:32 name:32 (texts)
//!         3 gone:1 name length   4 a longer value's file: generation:32 number:32, else 0
//!         5 a hash of the value that the host's object had (`value_hash`), 0: none
//! ```
//!
//! 1. The chain is in falling order of names, as a tmpfs lists them.
//! 2. It changes under the inode's lock only, and looks are checked against its sequence; but for
//!    that of an inode that goes (`ino::GOING`), for which looks are checked, too.
//! 3. An inode that came from the host has that one's attributes until they are taken over
//!    (`ino::EXTENDED`); from then on those in the image count, be there any or not.
//! 4. Who may do what is the client's to judge.
//! 5. A value longer than `VALUE_MAX` is a file of its own that has one link, the attribute. It is
//!    written before it is linked in and never after, so all there is to do at once is the link.
//! 6. One that came from the host and was removed keeps its line, without a value (`GONE`): a
//!    write-back compares what the host has then with what it had.
//! 7. An inode that has had attributes shows its birth in whole seconds: there is no other word.

use husk_abi::sys::general::IN_ATTRIB;
use husk_proto::fs::{CAPABILITY, SetExtended, value_hash};
use husk_proto::{Errno, Inode, Result, acl};
use husk_region::{Cell, INODE, LINE, Region, Txn};

use crate::Kernel;
use crate::fs::directory::entries;
use crate::fs::{extent, inodes};
use crate::image::answers::{self, Changes};
use crate::state::hold;
use crate::state::text;
use crate::state::{high, ino, live, low, pair, tag, whole};
use crate::watch::post;

const LINKS: u32 = 1;
const TEXTS: u32 = 2;
const NAME_LENGTH: u32 = 3;
const FILE: u32 = 4;
const BASE: u32 = 5;
/// In the word of the name's length (invariant 6).
const GONE: u64 = 1 << 63;

/// Longest name, bytes.
pub const NAME_MAX: usize = 255;
/// Longest value that one transaction can keep, bytes: longer ones are files.
pub const VALUE_MAX: usize = 4096;
/// Most attributes of one inode: no look goes further.
const COUNT_MAX: u32 = 4096;
/// Attributes forgotten in one transaction.
const FORGET_MAX: u32 = 2;

/// A value to set.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many bytes of a file without a name, which the caller has pinned.
    File(Inode, u32),
}

/// Where a value is, with its length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Copied, if there was room.
    Here(usize),
    /// In this file, as long as the attribute still leads there afterwards.
    File(Inode, usize),
}

/// Marks a birth that shares its word with the first attribute.
const SHARED: u64 = 1 << 63;
const SECOND_NS: u64 = 1_000_000_000;

/// The first attribute's line in a word of birth, 0 for none.
pub fn first_of(born: u64) -> u32 {
    if born & SHARED == 0 { 0 } else { high(born & !SHARED) }
}

/// The time in a word of birth, ns.
pub fn born_ns(born: u64) -> i64 {
    let ns = if born & SHARED == 0 { born } else { low(born) as u64 * SECOND_NS };
    ns as i64
}

/// The first attribute's line, 0 for none.
pub fn first(region: &Region, inode: Cell) -> u32 {
    first_of(region.load(inode.word(ino::BORN)))
}

fn line_cell(region: &Region, line: u32) -> Cell {
    region.map.object(LINE, line)
}

fn next(region: &Region, line: u32) -> u32 {
    low(region.load(line_cell(region, line).word(LINKS)))
}

fn name_of<'a>(region: &Region, line: u32, out: &'a mut [u8; NAME_MAX]) -> &'a [u8] {
    let cell = line_cell(region, line);
    let length = (low(region.load(cell.word(NAME_LENGTH))) as usize).min(NAME_MAX);
    text::copy(region, low(region.load(cell.word(TEXTS))), &mut out[..length]);
    &out[..length]
}

fn is_gone(region: &Region, line: u32) -> bool {
    region.load(line_cell(region, line).word(NAME_LENGTH)) & GONE != 0
}

/// The attribute before the place of `name` (0 = the inode itself), and the one of that name.
fn find(region: &Region, inode: Cell, name: &[u8]) -> (u32, Option<u32>) {
    let (before, found) = find_line(region, inode, name);
    (before, found.filter(|&line| !is_gone(region, line)))
}

/// The same, be it gone or not.
fn find_line(region: &Region, inode: Cell, name: &[u8]) -> (u32, Option<u32>) {
    let (mut before, mut line) = (0, first(region, inode));
    let mut text = [0; NAME_MAX];
    for _ in 0..COUNT_MAX {
        if line == 0 {
            break;
        }
        let here = name_of(region, line, &mut text);
        if here <= name {
            return (before, (here == name).then_some(line));
        }
        (before, line) = (line, next(region, line));
    }
    (before, None)
}

/// The file in the word of a line.
fn file_of(word: u64) -> Option<Inode> {
    (word != 0).then(|| Inode { number: low(word), generation: high(word) })
}

/// `Fs::extended`.
pub fn get(kernel: &Kernel, inode: Inode, name: &[u8], out: &mut [u8]) -> Result<Found> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let found = kernel.session.read(cell, || {
        let line = line_cell(region, find(region, cell, name).1?);
        let length = high(region.load(line.word(LINKS))) as usize;
        if let Some(file) = file_of(region.load(line.word(FILE))) {
            return Some(Found::File(file, length));
        }
        if length <= out.len() {
            text::copy(region, high(region.load(line.word(TEXTS))), &mut out[..length]);
        }
        Some(Found::Here(length))
    })?;
    whole(region, inode)?;
    found.ok_or(Errno::ENODATA)
}

/// `Fs::list_extended`.
pub fn list(
    kernel: &Kernel,
    inode: Inode,
    trusted: bool,
    after: &[u8],
    out: &mut [u8],
) -> Result<usize> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let length = kernel.session.read(cell, || {
        let (mut line, mut length, mut text) = (first(region, cell), 0, [0; NAME_MAX]);
        let mut fits = 0;
        for _ in 0..COUNT_MAX {
            if line == 0 {
                break;
            }
            let name = name_of(region, line, &mut text);
            let wanted = (after.is_empty() || name < after) && !is_gone(region, line);
            if wanted && (trusted || !name.starts_with(b"trusted.")) {
                let end = length + name.len();
                if let Some(place) = out.get_mut(length..end + 1) {
                    place[..name.len()].copy_from_slice(name);
                    place[name.len()] = 0;
                    fits = end + 1;
                }
                length = end + 1;
            }
            line = next(region, line);
        }
        out[fits..].fill(0);
        length
    })?;
    whole(region, inode)?;
    Ok(length)
}

/// `Fs::set_extended`; `hash`: of the value.
pub fn set(
    kernel: &Kernel,
    inode: Inode,
    name: &[u8],
    value: Option<Value<'_>>,
    how: SetExtended,
    hash: u64,
    now_ns: i64,
) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::ERANGE);
    }
    if let Some(Value::Bytes(bytes)) = value
        && bytes.len() > VALUE_MAX
    {
        return Err(Errno::ENOSPC);
    }
    kernel.run(|txn| {
        let cell = hold::lock_to_hold(txn, inode)?;
        let (before, found) = find(txn.region, cell, name);
        match (found, how) {
            (Some(_), SetExtended::Create | SetExtended::Both) => return Err(Errno::EEXIST),
            (None, SetExtended::Replace | SetExtended::Both) => return Err(Errno::ENODATA),
            _ => {}
        }
        let old = found.map_or(0, |line| low(txn.get(line_cell(txn.region, line).word(FILE))));
        match (found, value) {
            (Some(line), Some(value)) => replace(txn, line, value)?,
            (None, Some(value)) => add(txn, cell, before, name, value)?,
            (Some(line), None) => remove(txn, cell, before, line),
            (None, None) if acl::is_list(name) => return Ok(()),
            (None, None) => return Err(Errno::ENODATA),
        }
        mark(txn, cell, name, value.is_some());
        if old != 0 {
            txn.lock(txn.region.map.object(INODE, old))?;
            inodes::unlink(txn, old, now_ns)?;
        }
        let told = if how == SetExtended::Imported {
            note_base(txn, cell, name, hash);
            Ok(())
        } else {
            entries::touch(txn, cell.word(ino::CTIME), now_ns);
            post::of_file(txn, inode.number, IN_ATTRIB)
        };
        answers::keep(kernel, txn, Changes::Attributes, told, |_| [0; 2])
    })
}

/// Notes on a locked inode that it has an attribute of this name, or has not, where that counts.
fn mark(txn: &mut Txn<'_>, cell: Cell, name: &[u8], there: bool) {
    if acl::is_list(name) {
        mark_list(txn, cell, name, there);
    }
    if name == CAPABILITY {
        let ident = txn.get(cell.word(ino::IDENT));
        let rest = ident & !(ino::CAPABLE as u64);
        let mark = if there { ino::CAPABLE as u64 } else { 0 };
        txn.set(cell.word(ino::IDENT), rest | mark);
    }
}

/// The host's object has a value with this hash, or none (0).
fn note_base(txn: &mut Txn<'_>, cell: Cell, name: &[u8], hash: u64) {
    if let (before, Some(line)) = find_line(txn.region, cell, name) {
        txn.set(line_cell(txn.region, line).word(BASE), hash);
        if hash == 0 && is_gone(txn.region, line) {
            unlink_line(txn, cell, before, line);
        }
    }
}

/// `Admin::extended_base`.
pub fn base(kernel: &Kernel, inode: Inode, name: &[u8]) -> Result<u64> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let base = kernel.session.read(cell, || {
        let line = find_line(region, cell, name).1;
        line.map_or(0, |line| region.load(line_cell(region, line).word(BASE)))
    })?;
    whole(region, inode)?;
    Ok(base)
}

/// `Admin::settle_extended`.
pub fn settle(
    kernel: &Kernel,
    inode: Inode,
    name: &[u8],
    seen: u64,
    found: Option<&[u8]>,
    now_ns: i64,
) -> Result<bool> {
    let hash = found.map_or(0, value_hash);
    if found.is_some_and(|found| found.len() > VALUE_MAX) {
        return Ok(false);
    }
    kernel.run(|txn| {
        let cell = hold::lock_to_hold(txn, inode)?;
        let (before, line) = find(txn.region, cell, name);
        if hash_of(txn, line) != Some(seen) {
            return Ok(false);
        }
        if seen != hash {
            match (line, found) {
                (Some(line), Some(value)) => replace(txn, line, Value::Bytes(value))?,
                (None, Some(value)) => add(txn, cell, before, name, Value::Bytes(value))?,
                (Some(line), None) => remove(txn, cell, before, line),
                (None, None) => {}
            }
            mark(txn, cell, name, found.is_some());
            entries::touch(txn, cell.word(ino::CTIME), now_ns);
            post::of_file(txn, inode.number, IN_ATTRIB)?;
        }
        note_base(txn, cell, name, hash);
        Ok(true)
    })
}

/// The hash of a value, 0 of none; `None`: it is a file.
fn hash_of(txn: &Txn<'_>, line: Option<u32>) -> Option<u64> {
    let Some(line) = line else { return Some(0) };
    let (cell, mut value) = (line_cell(txn.region, line), [0; VALUE_MAX]);
    let length = high(txn.get(cell.word(LINKS))) as usize;
    let value = value.get_mut(..length).filter(|_| txn.get(cell.word(FILE)) == 0)?;
    text::copy(txn.region, high(txn.get(cell.word(TEXTS))), value);
    Some(value_hash(value))
}

/// `Fs::set_extended` of an access control list, or of none (`None`): the mode follows it.
pub fn set_list(
    kernel: &Kernel,
    inode: Inode,
    name: &[u8],
    list: Option<&[u8]>,
    now_ns: i64,
) -> Result<()> {
    if list.is_some_and(|list| list.len() > acl::BYTES_MAX) {
        return Err(Errno::ENOSPC);
    }
    kernel.run(|txn| {
        let cell = hold::lock_to_hold(txn, inode)?;
        let mut kept = list;
        if let Some(list) = list.filter(|_| name == acl::ACCESS) {
            let (mode, same) = acl::mode_of(list);
            let ident = txn.get(cell.word(ino::IDENT));
            txn.set(cell.word(ino::IDENT), ident & !0o777 | u64::from(mode));
            kept = kept.filter(|_| !same);
        }
        match (kept, find(txn.region, cell, name)) {
            (Some(list), _) => keep_list(txn, cell, name, list)?,
            (None, (before, Some(line))) => {
                remove(txn, cell, before, line);
                mark_list(txn, cell, name, false);
            }
            (None, (_, None)) if list.is_none() => return Ok(()),
            (None, (_, None)) => {}
        }
        entries::touch(txn, cell.word(ino::CTIME), now_ns);
        let told = post::of_file(txn, inode.number, IN_ATTRIB);
        answers::keep(kernel, txn, Changes::Attributes, told, |_| [0; 2])
    })
}

/// Notes on a locked inode whether it has one of the lists.
fn mark_list(txn: &mut Txn<'_>, cell: Cell, name: &[u8], there: bool) {
    let bit = if name == acl::ACCESS { ino::ACL } else { ino::DEFAULT_ACL } as u64;
    let ident = txn.get(cell.word(ino::IDENT));
    txn.set(cell.word(ino::IDENT), if there { ident | bit } else { ident & !bit });
}

/// Keeps a list with a locked or new inode.
pub(crate) fn keep_list(txn: &mut Txn<'_>, cell: Cell, name: &[u8], list: &[u8]) -> Result<()> {
    let value = Value::Bytes(list);
    match find(txn.region, cell, name) {
        (_, Some(line)) => replace(txn, line, value)?,
        (before, None) => add(txn, cell, before, name, value)?,
    }
    mark_list(txn, cell, name, true);
    Ok(())
}

/// Copies a value of a locked inode; its length, `None` where it is not there or too long.
pub(crate) fn copy(txn: &Txn<'_>, cell: Cell, name: &[u8], out: &mut [u8]) -> Option<usize> {
    let line = line_cell(txn.region, find(txn.region, cell, name).1?);
    let length = high(txn.get(line.word(LINKS))) as usize;
    let fits = txn.get(line.word(FILE)) == 0 && length <= out.len();
    text::copy(txn.region, high(txn.get(line.word(TEXTS))), out.get_mut(..length)?);
    fits.then_some(length)
}

/// Takes a program's capabilities from a locked inode, whose owner changes.
pub(crate) fn drop_capabilities(txn: &mut Txn<'_>, cell: Cell) -> Result<()> {
    let ident = txn.get(cell.word(ino::IDENT));
    if low(ident) & ino::CAPABLE == 0 {
        return Ok(());
    }
    txn.set(cell.word(ino::IDENT), ident & !(ino::CAPABLE as u64));
    let (before, found) = find(txn.region, cell, CAPABILITY);
    // A value in a file is none: the longest has 24 bytes.
    if let Some(line) = found
        && txn.get(line_cell(txn.region, line).word(FILE)) == 0
    {
        remove(txn, cell, before, line);
    }
    Ok(())
}

/// `Fs::take_extended_over`.
pub fn take_over(kernel: &Kernel, inode: Inode) -> Result<()> {
    kernel.run(|txn| {
        let cell = hold::lock_to_hold(txn, inode)?;
        let ident = txn.get(cell.word(ino::IDENT));
        txn.set(cell.word(ino::IDENT), ident | ino::EXTENDED as u64);
        answers::keep(kernel, txn, Changes::Attributes, Ok(()), |_| [0; 2])
    })
}

/// Keeps a value; its length, text and file.
fn keep(txn: &mut Txn<'_>, value: Value<'_>) -> Result<(u32, u32, u64)> {
    match value {
        Value::Bytes(bytes) => Ok((bytes.len() as u32, text::keep(txn, bytes)?, 0)),
        Value::File(file, length) => {
            let cell = hold::lock_to_hold(txn, file)?;
            txn.set(cell.word(ino::LINKS), 1);
            Ok((length, 0, pair(file.generation, file.number)))
        }
    }
}

fn replace(txn: &mut Txn<'_>, line: u32, value: Value<'_>) -> Result<()> {
    let cell = line_cell(txn.region, line);
    let (length, kept, file) = keep(txn, value)?;
    let (links, texts) = (txn.get(cell.word(LINKS)), txn.get(cell.word(TEXTS)));
    txn.set(cell.word(LINKS), pair(length, low(links)));
    txn.set(cell.word(TEXTS), pair(kept, low(texts)));
    txn.set(cell.word(FILE), file);
    text::release(txn, high(texts));
    Ok(())
}

/// Makes `before` (0 = the inode) lead to `line`.
fn link(txn: &mut Txn<'_>, inode: Cell, before: u32, line: u32) {
    if before == 0 {
        let seconds = born_ns(txn.get(inode.word(ino::BORN))) as u64 / SECOND_NS;
        txn.set(inode.word(ino::BORN), SHARED | pair(line, seconds as u32));
    } else {
        let cell = line_cell(txn.region, before).word(LINKS);
        let word = txn.get(cell);
        txn.set(cell, pair(high(word), line));
    }
}

fn add(txn: &mut Txn<'_>, inode: Cell, before: u32, name: &[u8], value: Value<'_>) -> Result<()> {
    if let (_, Some(line)) = find_line(txn.region, inode, name) {
        // It is back.
        let word = line_cell(txn.region, line).word(NAME_LENGTH);
        txn.set(word, name.len() as u64);
        return replace(txn, line, value);
    }
    if is_full(txn.region, inode) {
        return Err(Errno::ENOSPC);
    }
    let line = txn.allocate(LINE)?;
    let cell = line_cell(txn.region, line);
    let behind = if before == 0 { first(txn.region, inode) } else { next(txn.region, before) };
    let kept_name = text::keep(txn, name)?;
    let (length, kept_value, file) = keep(txn, value)?;
    txn.init(cell, pair(high(txn.get(cell)), tag::ATTRIBUTE));
    txn.init(cell.word(LINKS), pair(length, behind));
    txn.init(cell.word(TEXTS), pair(kept_value, kept_name));
    txn.init(cell.word(NAME_LENGTH), name.len() as u64);
    txn.init(cell.word(FILE), file);
    txn.init(cell.word(BASE), 0);
    link(txn, inode, before, line);
    Ok(())
}

/// Whether an inode has as many attributes as it may have.
fn is_full(region: &Region, inode: Cell) -> bool {
    let mut line = first(region, inode);
    for _ in 1..COUNT_MAX {
        if line == 0 {
            return false;
        }
        line = next(region, line);
    }
    line != 0
}

fn remove(txn: &mut Txn<'_>, inode: Cell, before: u32, line: u32) {
    let cell = line_cell(txn.region, line);
    if txn.get(cell.word(BASE)) == 0 {
        return unlink_line(txn, inode, before, line);
    }
    // Invariant 6.
    let (links, texts) = (txn.get(cell.word(LINKS)), txn.get(cell.word(TEXTS)));
    let length = txn.get(cell.word(NAME_LENGTH));
    txn.set(cell.word(LINKS), pair(0, low(links)));
    txn.set(cell.word(TEXTS), pair(0, low(texts)));
    txn.set(cell.word(NAME_LENGTH), length | GONE);
    txn.set(cell.word(FILE), 0);
    text::release(txn, high(texts));
}

fn unlink_line(txn: &mut Txn<'_>, inode: Cell, before: u32, line: u32) {
    let cell = line_cell(txn.region, line);
    let (behind, texts) = (low(txn.get(cell.word(LINKS))), txn.get(cell.word(TEXTS)));
    link(txn, inode, before, behind);
    text::release(txn, high(texts));
    text::release(txn, low(texts));
    text::retire_line(txn, line);
}

/// Forgets some attributes of an inode that is going away; whether none is left.
pub fn forget_step(txn: &mut Txn<'_>, number: u32) -> Result<bool> {
    let inode = txn.region.map.object(INODE, number);
    for _ in 0..FORGET_MAX {
        let line = first(txn.region, inode);
        if line == 0 {
            return Ok(true);
        }
        let file = low(txn.get(line_cell(txn.region, line).word(FILE)));
        if file != 0 {
            if forget_file(txn, file)? {
                unlink_line(txn, inode, 0, line);
            }
            return Ok(false);
        }
        unlink_line(txn, inode, 0, line);
    }
    Ok(first(txn.region, inode) == 0)
}

/// Forgets some of a value's file; whether it is through. Who has set the value may still have it
/// pinned: then it goes with the pin.
fn forget_file(txn: &mut Txn<'_>, number: u32) -> Result<bool> {
    let cell = txn.region.map.object(INODE, number);
    txn.lock(cell)?;
    if txn.get(cell.word(ino::USERS)) != 0 {
        txn.set(cell.word(ino::LINKS), 0);
        return Ok(true);
    }
    if !extent::unmap_step(txn, cell, 0, u64::MAX)? {
        return Ok(false);
    }
    inodes::free(txn, number)?;
    Ok(true)
}

/// Calls `emit` for each object the attributes of an inode are kept in (for the checker).
pub fn each_part(region: &Region, inode: Cell, emit: &mut dyn FnMut(usize, u32)) {
    let mut line = first(region, inode);
    for _ in 0..COUNT_MAX {
        if line == 0 {
            return;
        }
        emit(LINE, line);
        let texts = region.load(line_cell(region, line).word(TEXTS));
        text::each_part(region, low(texts), emit);
        text::each_part(region, high(texts), emit);
        if let Some(file) = file_of(region.load(line_cell(region, line).word(FILE))) {
            emit(INODE, file.number);
        }
        line = next(region, line);
    }
}
