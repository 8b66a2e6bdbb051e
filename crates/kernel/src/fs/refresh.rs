//! Takes in what the host has changed below an overlay: attributes, added and removed names.
//!
//! Invariants
//! 1. Only what the image has not changed is: a file whose bytes are the host's; attributes and
//!    times that are those of the first look. Everything else stays, for the write-back to judge.
//! 2. An object is taken in by one transaction: nobody sees its new size with its old times.
//! 3. A file that another one has replaced on the host is marked (`ino::REPLACED`): a descriptor
//!    that was opened before has the old one's bytes, and is to show its size and times.
//! 4. What the image has changed is given back to the host only as somebody has just seen it
//!    (`unmoved`): no byte that was written since goes.
//! 5. The record of an origin is changed with its inode locked. Who reads one without a lock reads
//!    it twice (`overlay::host_identity`).
//! 6. Mode, owner and group are merged one by one with what the host had (`merge_rights`). What
//!    both sides have changed stays the image's, and the record keeps what the host had before: so
//!    the write-back finds the conflict.

use husk_abi::sys::general::{IN_ATTRIB, IN_CREATE, IN_DELETE, IN_ISDIR, IN_MODIFY};
use husk_proto::fs::{Imported, Kind, Rights};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, RETRY, Txn, is_held_since, is_locked};

use crate::Kernel;
use crate::fs::directory::entries::{self, Key, Open};
use crate::fs::directory::names::{lock_tokens, remove_directory};
use crate::fs::directory::share;
use crate::fs::{attributes, inodes, overlay};
use crate::image;
use crate::state::text;
use crate::state::{bits_of, ent, high, ino, kind_bits, live, low, pair, whole};
use crate::watch::post;

/// `Fs::renew`. `found`: what the host has now.
pub fn renew(
    kernel: &Kernel,
    inode: Inode,
    found: &Imported<'_>,
    whole_look: bool,
) -> Result<bool> {
    kernel.run(|txn| {
        let cell = live(txn.region, inode)?;
        let kind = kind_bits(txn.get(cell.word(ino::IDENT)));
        if kind == ino::DIRECTORY {
            share::lock_attributes(txn, inode.number, true)?;
        }
        txn.lock(cell)?;
        whole(txn.region, inode)?;
        if !is_the_hosts(txn, inode.number) || kind != bits_of(found.kind) {
            return Ok(false);
        }
        let shown = (rights(txn, cell), content(txn, cell));
        let base = take_attributes(txn, inode.number, kind, found)?;
        if kind == ino::SYMLINK {
            let old = low(txn.get(cell.word(ino::ROOT)));
            let new = text::keep(txn, found.target)?;
            txn.set(cell.word(ino::ROOT), new as u64);
            txn.set(cell.word(ino::SIZE), found.target.len() as u64);
            text::release(txn, old);
        }
        let origin = low(txn.get(cell.word(ino::ORIGIN)));
        let another = !overlay::is_of(txn.region, origin, &found.identity)?;
        if kind == ino::FILE && another {
            let ident = txn.get(cell.word(ino::IDENT));
            txn.set(cell.word(ino::IDENT), ident | u64::from(ino::REPLACED));
        }
        overlay::renew_origin(txn, origin, found, base, whole_look)?;
        let directory = kind == ino::DIRECTORY;
        let modified = kind == ino::FILE && (another || content(txn, cell) != shown.1);
        if modified {
            post::of_file(txn, inode.number, IN_MODIFY)?;
        }
        // Names that come and go change the times of a directory, which Linux does not tell.
        if rights(txn, cell) != shown.0 || !directory && !modified {
            post::of_file(txn, inode.number, IN_ATTRIB)?;
        }
        Ok(true)
    })
}

/// Invariant 1, of a locked inode.
fn is_the_hosts(txn: &Txn<'_>, number: u32) -> bool {
    let cell = txn.region.map.object(INODE, number);
    let ident = txn.get(cell.word(ino::IDENT));
    let file = kind_bits(ident) == ino::FILE;
    low(txn.get(cell.word(ino::ORIGIN))) != 0 && (!file || low(ident) & ino::HOST != 0)
}

/// Mode, owner and times, as far as the image has not changed them; length and room of a file.
/// The rights that the record is to have.
fn take_attributes(
    txn: &mut Txn<'_>,
    number: u32,
    kind: u32,
    found: &Imported<'_>,
) -> Result<Rights> {
    let cell = txn.region.map.object(INODE, number);
    let origin = low(txn.get(cell.word(ino::ORIGIN)));
    let (modified, changed) = overlay::times(txn.region, origin)?;
    let directory = kind == ino::DIRECTORY;
    let totals = directory.then(|| share::totals(txn.region, cell));
    let shown_changed = totals.map_or(txn.get(cell.word(ino::CTIME)) as i64, |t| t.changed_ns);
    let shown_modified = totals.map_or(txn.get(cell.word(ino::MTIME)) as i64, |t| t.modified_ns);
    let theirs = (found.mode & 0o7777, found.uid, found.gid);
    let mut base = theirs;
    if shown_changed == changed {
        set_rights(txn, cell, theirs);
        txn.set(cell.word(ino::ATIME), found.accessed_ns as u64);
        txn.set(cell.word(ino::CTIME), found.identity.changed_ns as u64);
    } else {
        let before = overlay::rights_of(txn.region, origin)?;
        base = merge_rights(txn, cell, before, theirs);
    }
    if shown_modified == modified {
        txn.set(cell.word(ino::MTIME), found.identity.modified_ns as u64);
    }
    if kind == ino::FILE {
        txn.set(cell.word(ino::SIZE), found.identity.size);
        txn.set(cell.word(ino::BLOCKS), found.blocks_512);
    }
    Ok(base)
}

/// Mode, owner and group of an inode.
fn rights(txn: &Txn<'_>, cell: Cell) -> Rights {
    let owner = txn.get(cell.word(ino::OWNER));
    (low(txn.get(cell.word(ino::IDENT))) & 0o7777, high(owner), low(owner))
}

/// Length and time of the last change of bytes, of a file.
fn content(txn: &Txn<'_>, cell: Cell) -> (u64, u64) {
    (txn.get(cell.word(ino::SIZE)), txn.get(cell.word(ino::MTIME)))
}

fn set_rights(txn: &mut Txn<'_>, cell: Cell, (mode, uid, gid): Rights) {
    let ident = txn.get(cell.word(ino::IDENT));
    txn.set(cell.word(ino::IDENT), pair(high(ident), low(ident) & !0o7777 | mode));
    txn.set(cell.word(ino::OWNER), pair(uid, gid));
}

/// Gives a locked inode what the host alone has changed of its rights since they were `before`.
/// What the host is known to have had from now on (invariant 6).
fn merge_rights(txn: &mut Txn<'_>, cell: Cell, before: Rights, found: Rights) -> Rights {
    let ours = rights(txn, cell);
    // What it has, and what the host had.
    let one = |ours: u32, before: u32, found: u32| match () {
        () if ours == before || ours == found => (found, found),
        () => (ours, before),
    };
    let mode = one(ours.0, before.0, found.0);
    let (uid, gid) = (one(ours.1, before.1, found.1), one(ours.2, before.2, found.2));
    set_rights(txn, cell, (mode.0, uid.0, gid.0));
    (mode.1, uid.1, gid.1)
}

/// `Admin::take_rights`.
pub fn take_rights(
    kernel: &Kernel,
    inode: Inode,
    before: Rights,
    found: Rights,
    now_ns: i64,
) -> Result<bool> {
    kernel.run(|txn| {
        let cell = live(txn.region, inode)?;
        if kind_bits(txn.get(cell.word(ino::IDENT))) == ino::DIRECTORY {
            share::lock_attributes(txn, inode.number, false)?;
        }
        txn.lock(cell)?;
        whole(txn.region, inode)?;
        let ours = rights(txn, cell);
        let base = merge_rights(txn, cell, before, found);
        let origin = low(txn.get(cell.word(ino::ORIGIN)));
        if origin != 0 {
            overlay::renew_rights(txn, origin, base)?;
        }
        if rights(txn, cell) != ours {
            let now_ns = attributes::after_the_host(txn, cell, now_ns);
            entries::touch(txn, cell.word(ino::CTIME), now_ns);
            post::of_file(txn, inode.number, IN_ATTRIB)?;
        }
        Ok(base == found)
    })
}

/// `Fs::import_late`: names of a listed directory that came on the host since.
pub fn import_late(kernel: &Kernel, dir: Inode, list: &[Imported<'_>], now_ns: i64) -> Result<()> {
    for entry in list {
        if overlay::import_one(kernel, dir, entry, true, now_ns)? {
            let key = Key::new(dir.number, entry.name)?;
            let directory = post::directory_bit(bits_of(entry.kind));
            kernel.run(|txn| post::of_name(txn, dir.number, IN_CREATE | directory, key.name))?;
        }
    }
    Ok(())
}

/// `Fs::forget`: a name that has gone on the host, and that the image has not changed.
pub fn forget(kernel: &Kernel, dir: Inode, name: &[u8], inode: Inode, now_ns: i64) -> Result<bool> {
    let key = Key::new(dir.number, name)?;
    let seen = entries::peek(&kernel.session, &key)?;
    if seen.is_some_and(|found| found.kind == ino::DIRECTORY) {
        return forget_directory(kernel, dir, &key, inode, now_ns);
    }
    kernel.run(|txn| {
        let open = entries::open_directory(txn, dir)?;
        let (line, _, same) = locked_entry(txn, &key, inode)?;
        let head = txn.get(txn.region.map.object(LINE, line));
        if !same || low(head) & ent::FROM_HOST == 0 || !is_the_hosts(txn, inode.number) {
            return Ok(false);
        }
        take_name(txn, &open, &key, (line, false), now_ns)?;
        Ok(true)
    })
}

/// `Fs::settle`.
pub fn settle(kernel: &Kernel, dir: Inode, inode: Inode, found: &Imported<'_>) -> Result<bool> {
    kernel.session.heap_ready(overlay::origin_words(found.name))?;
    kernel.run(|txn| {
        let parent = low(txn.get(live(txn.region, dir)?.word(ino::ORIGIN)));
        let cell = live(txn.region, inode)?;
        if kind_bits(txn.get(cell.word(ino::IDENT))) != ino::DIRECTORY {
            return Err(Errno::ENOTDIR);
        }
        share::lock_attributes(txn, inode.number, true)?;
        txn.lock(cell)?;
        whole(txn.region, inode)?;
        let ident = txn.get(cell.word(ino::IDENT));
        let flags = low(ident);
        if parent == 0 || flags & (ino::UNLISTED | ino::REMOVED) != 0 {
            return Ok(false);
        }
        let own_numbers = image::shown_in(txn.region, flags).own_numbers;
        let old = low(txn.get(cell.word(ino::ORIGIN)));
        let (shown, _) = overlay::shown(txn.region, inode.number, old, own_numbers);
        let origin = overlay::keep_origin(txn, parent, found, shown)?;
        txn.set(cell.word(ino::ORIGIN), origin.into());
        if old == 0 {
            txn.set(cell.word(ino::IDENT), ident | u64::from(ino::EXTENDED));
        }
        Ok(true)
    })
}

/// `Admin::move_origin`.
pub fn move_origin(
    kernel: &Kernel,
    dir: Inode,
    inode: Inode,
    found: &Imported<'_>,
) -> Result<bool> {
    kernel.session.heap_ready(overlay::origin_words(found.name))?;
    let key = Key::new(dir.number, found.name)?;
    kernel.run(|txn| {
        let parent = low(txn.get(live(txn.region, dir)?.word(ino::ORIGIN)));
        let (_, cell, same) = locked_entry(txn, &key, inode)?;
        let old = txn.get(cell.word(ino::ORIGIN));
        if !same || parent == 0 || low(old) == 0 {
            return Ok(false);
        }
        let (shown, _) = overlay::shown(txn.region, inode.number, low(old), 0);
        let origin = overlay::keep_origin(txn, parent, found, shown)?;
        txn.set(cell.word(ino::ORIGIN), pair(high(old), origin));
        Ok(true)
    })
}

/// The entry of a name that leads to no directory, and the inode that it leads to, locked; whether
/// that is `inode`.
fn locked_entry(txn: &mut Txn<'_>, key: &Key<'_>, inode: Inode) -> Result<(u32, Cell, bool)> {
    txn.lock(key.bucket(txn.region))?;
    let line = entries::find(txn.region, key).ok_or(Errno::ENOENT)?;
    let there = entries::found(txn.region, line);
    if there.kind == ino::DIRECTORY {
        return Err(Errno::EISDIR);
    }
    let cell = txn.region.map.object(INODE, there.inode);
    txn.lock(cell)?;
    let same = live(txn.region, inode).is_ok() && there.inode == inode.number;
    Ok((line, cell, same))
}

/// `Fs::unmoved`: the resting words of the inode's lock and its writer lock.
pub fn unmoved(kernel: &Kernel, inode: Inode) -> Result<[u64; 2]> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let (writer, known) = (cell.word(ino::WRITER), cell.word(ino::KNOWN));
    let look = || (region.load_in_order(writer), high(region.load(known)) as i32);
    let (at, (writing, writers)) = kernel.session.read_at(cell, look)?;
    live(region, inode)?;
    if writers > 0 || is_locked(writing) {
        return Err(Errno::ETXTBSY);
    }
    Ok([at, writing])
}

/// Whether nothing has happened to a locked inode since its mark was `seen` (invariant 4).
fn is_unmoved(txn: &Txn<'_>, cell: Cell, seen: [u64; 2]) -> bool {
    let writers = high(txn.get(cell.word(ino::KNOWN))) as i32;
    let writing = txn.region.load_in_order(cell.word(ino::WRITER));
    let still = is_held_since(txn.region.load(cell), seen[0]);
    still && writers <= 0 && !is_locked(writing) && writing == seen[1]
}

/// `Fs::give_back`: a name of which the host has had the same, and has something else by now.
pub fn give_back(
    kernel: &Kernel,
    dir: Inode,
    name: &[u8],
    inode: Inode,
    seen: [u64; 2],
    found: Option<&Imported<'_>>,
    now_ns: i64,
) -> Result<bool> {
    let key = Key::new(dir.number, name)?;
    if let Some(found) = found {
        let directory = matches!(found.kind, Kind::Directory | Kind::Portal);
        if found.name != name || found.links > 1 || directory {
            return Err(Errno::EINVAL);
        }
        kernel.session.heap_ready(overlay::origin_words(name))?;
    }
    kernel.run(|txn| {
        let open = entries::open_directory(txn, dir)?;
        if found.is_some() && low(txn.get(open.inode.word(ino::ORIGIN))) == 0 {
            return Err(Errno::EINVAL);
        }
        let (line, cell, same) = locked_entry(txn, &key, inode)?;
        if !same || !is_unmoved(txn, cell, seen) {
            return Ok(false);
        }
        if let Some(found) = found {
            overlay::add_imported(txn, &open, &key, found, Some(line), now_ns)?;
        }
        take_name(txn, &open, &key, (line, found.is_some()), now_ns)?;
        if found.is_some() {
            post::of_name(txn, dir.number, IN_CREATE, name)?;
        }
        entries::drop_whiteouts(txn, &open, &key)?;
        Ok(true)
    })
}

/// Takes an entry away whose inode is locked, as the host has: no whiteout, since there is nothing
/// that a write-back is to remove; the directory did not change, the host's did: times are its own.
/// An heir may have its slot.
fn take_name(
    txn: &mut Txn<'_>,
    open: &Open,
    key: &Key<'_>,
    (line, has_heir): (u32, bool),
    now_ns: i64,
) -> Result<()> {
    let cell = txn.region.map.object(LINE, line);
    let (head, number) = (txn.get(cell), entries::found(txn.region, line).inode);
    txn.set(cell, head & !(ent::FROM_HOST as u64));
    entries::remove(txn, open, key, line, has_heir)?;
    entries::count(txn, open, -1, 0);
    post::of_self(txn, number, IN_ATTRIB)?;
    inodes::unlink(txn, number, now_ns)?;
    post::of_name(txn, open.dir.number, IN_DELETE, key.name)
}

/// `forget` of a directory, which is empty.
fn forget_directory(
    kernel: &Kernel,
    dir: Inode,
    key: &Key<'_>,
    inode: Inode,
    now_ns: i64,
) -> Result<bool> {
    kernel.run(|txn| {
        live(txn.region, dir)?;
        let seen = entries::peek(txn.session, key)?;
        let found = seen.ok_or(Errno::ENOENT)?;
        if found.kind != ino::DIRECTORY {
            return Err(Errno::ENOTDIR);
        }
        let cell = txn.region.map.object(LINE, found.line);
        let is_its = |head: u64| low(head) & ent::FROM_HOST != 0;
        if found.inode != inode.number || !is_its(txn.region.load(cell)) {
            return Ok(false);
        }
        live(txn.region, inode)?;
        let removed = share::shut(txn, found.inode)?;
        let seat = share::seat(txn, dir)?;
        lock_tokens(txn, &[Some(seat.token), removed])?;
        let open = share::open(txn, dir, &seat)?;
        txn.lock(key.bucket(txn.region))?;
        entries::find_again(txn, key, seen)?;
        let head = txn.get(cell);
        if !is_its(head) {
            return Err(RETRY);
        }
        // As with a file: no whiteout, and the times of `dir` are the host's.
        txn.set(cell, head & !(ent::FROM_HOST as u64));
        entries::remove(txn, &open, key, found.line, false)?;
        remove_directory(txn, found.inode, dir, now_ns)?;
        entries::count(txn, &open, -1, -1);
        post::of_name(txn, dir.number, IN_DELETE | IN_ISDIR, key.name)?;
        Ok(true)
    })
}
