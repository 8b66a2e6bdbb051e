//! Making and removing names: create, link, unlink, rmdir.

use husk_abi::capability::{FOWNER, MKNOD};
use husk_abi::sys::general::{IN_ATTRIB, IN_CREATE, IN_DELETE, IN_ISDIR};
use husk_proto::fs::{Credentials, Kind, Node, Step, unmasked, want};
use husk_proto::{Errno, Inode, Result};
use husk_region::{Cell, INODE, LINE, Txn};

use crate::Kernel;
use crate::fs::directory::entries::{self, Key, Open};
use crate::fs::directory::share;
use crate::fs::inodes::{self, Birth};
use crate::fs::{named, overlay, rights};
use crate::image::answers::{self, Changes};
use crate::state::hold;
use crate::state::text;
use crate::state::{bits_of, ino, kind_bits, low, pair, step_of};
use crate::watch::post;

/// To change names of a directory.
const WRITE_SEARCH: u32 = want::WRITE | want::EXECUTE;
const STICKY: u32 = 0o1000;

/// The facts of an inode whose words the caller may read.
pub fn step(txn: &Txn<'_>, number: u32) -> Step {
    let cell = txn.region.map.object(INODE, number);
    step_of(number, txn.get(cell.word(ino::IDENT)), txn.get(cell.word(ino::OWNER)))
}

/// May `who` change names of this directory?
pub fn permit_change(txn: &mut Txn<'_>, dir: u32, who: &Credentials<'_>) -> Result<()> {
    let step = step(txn, dir);
    rights::permit(txn, who, &step, WRITE_SEARCH)
}

/// May `who` take this name away (sticky directories)?
pub fn permit_removal(
    txn: &mut Txn<'_>,
    dir: u32,
    inode: u32,
    who: &Credentials<'_>,
) -> Result<()> {
    let parent = step(txn, dir);
    rights::permit(txn, who, &parent, WRITE_SEARCH)?;
    if parent.mode & STICKY == 0 {
        return Ok(());
    }
    let own = step(txn, inode);
    let mine = who.uid == own.uid || who.uid == parent.uid;
    let may = mine || who.can_over(own.uid, own.gid, FOWNER);
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

fn birth_of(
    txn: &Txn<'_>,
    dir: Cell,
    who: &Credentials<'_>,
    node: &Node<'_>,
    now_ns: i64,
) -> Birth {
    let (kind, mode, links) = match *node {
        Node::File(mode) => (ino::FILE, mode, 1),
        Node::Directory(mode) => (ino::DIRECTORY, mode, 0),
        Node::Symlink(_) => (ino::SYMLINK, 0o777, 1),
        Node::Socket { mode, .. } => (ino::SOCKET, mode, 1),
        Node::Special { kind, mode, .. } => (bits_of(kind), mode, 1),
    };
    let (gid, mode) = inodes::inherit(txn, dir, who, unmasked(mode), kind == ino::DIRECTORY);
    let flags = low(txn.get(dir.word(ino::IDENT))) & ino::INHERITED;
    Birth { kind, mode, uid: who.uid, gid, flags, links, now_ns }
}

/// Who may make devices. The character device 0 marks a whiteout and is anybody's.
fn permit_node(who: &Credentials<'_>, node: &Node<'_>) -> Result<()> {
    let Node::Special { kind, device, .. } = *node else { return Ok(()) };
    let whiteout = kind == Kind::CharacterDevice && device == 0;
    let free = !kind.is_device() || whiteout;
    if free || who.can(MKNOD) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Creates `key` in the open directory `dir`; its token is held. Returns the inode's number.
pub fn create_in(
    txn: &mut Txn<'_>,
    who: &Credentials<'_>,
    dir: Open,
    key: &Key<'_>,
    node: &Node<'_>,
    now_ns: i64,
) -> Result<u32> {
    txn.lock(key.bucket(txn.region))?;
    if entries::find(txn.region, key).is_some() {
        return Err(Errno::EEXIST);
    }
    permit_change(txn, key.dir, who)?;
    permit_node(who, node)?;
    let birth = birth_of(txn, dir.inode, who, node, now_ns);
    let (number, cell) = match node {
        Node::Symlink(_) => inodes::make(txn, &birth)?,
        _ => rights::make_in(txn, dir.inode, &birth, node.mode())?,
    };
    if let Node::Symlink(target) | Node::Socket { text: target, .. } = *node {
        let kept = text::keep(txn, target)?;
        txn.init(cell.word(ino::ROOT), kept as u64);
        txn.init(cell.word(ino::SIZE), target.len() as u64);
    }
    if let Node::Special { device, .. } = *node {
        txn.init(cell.word(ino::SIZE), device as u64);
    }
    let line = entries::add(txn, &dir, key, number, birth.kind, 0, None)?;
    let directory = birth.kind == ino::DIRECTORY;
    let parent = if directory { key.dir } else { 0 };
    txn.init(cell.word(ino::PARENT), pair(parent, line));
    if directory {
        txn.init(cell.word(ino::SHARE), share::born(txn, number, Some(dir.inode)));
    }
    entries::changed(txn, &dir, 1, directory as i32, now_ns);
    post::of_name(txn, key.dir, IN_CREATE | post::directory_bit(birth.kind), key.name)?;
    Ok(number)
}

/// An inode, as a record of the reply cache has it.
pub(crate) fn made_words(inode: Inode) -> [u64; 2] {
    [inode.number.into(), inode.generation.into()]
}

/// `Fs::create`.
pub fn create(
    kernel: &Kernel,
    who: &Credentials<'_>,
    dir: Inode,
    name: &[u8],
    node: Node<'_>,
    now_ns: i64,
) -> Result<Inode> {
    let key = Key::new(dir.number, name)?;
    if let Node::Symlink(target) = node {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() >= husk_abi::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
    }
    kernel.run(|txn| {
        let open = entries::open_directory(txn, dir)?;
        let number = create_in(txn, who, open, &key, &node, now_ns)?;
        let made = inodes::name(txn, number);
        answers::keep(kernel, txn, Changes::Names, Ok(made), |_| made_words(made))
    })
}

/// One link more. Who has none any more gets none again, unless it was made to be linked.
fn add_link(txn: &mut Txn<'_>, cell: Cell) -> Result<()> {
    let (links, ident) = (txn.get(cell.word(ino::LINKS)), txn.get(cell.word(ino::IDENT)));
    if links == 0 && low(ident) & ino::LINKABLE == 0 {
        return Err(Errno::ENOENT);
    }
    if low(links) == u32::MAX {
        return Err(Errno::EMLINK);
    }
    if low(ident) & ino::LINKABLE != 0 {
        txn.set(cell.word(ino::IDENT), ident & !(ino::LINKABLE as u64));
    }
    txn.set(cell.word(ino::LINKS), links + 1);
    Ok(())
}

/// May `who` give this another name? Others' files only if they could write to them, and no
/// programs that lend rights (`fs.protected_hardlinks`, as every distribution sets it).
fn permit_link(txn: &mut Txn<'_>, inode: u32, who: &Credentials<'_>) -> Result<()> {
    let source = &step(txn, inode);
    let lends = source.mode & 0o4000 != 0 || source.mode & 0o2010 == 0o2010;
    let safe = source.kind == Kind::File && !lends;
    let mine = who.uid == source.uid || who.can_over(source.uid, source.gid, FOWNER);
    let may = mine || safe && rights::permit(txn, who, source, want::READ | want::WRITE).is_ok();
    if may || source.kind == Kind::Directory { Ok(()) } else { Err(Errno::EPERM) }
}

/// `Fs::link`.
pub fn link(
    kernel: &Kernel,
    who: &Credentials<'_>,
    inode: Inode,
    dir: Inode,
    name: &[u8],
    now_ns: i64,
) -> Result<()> {
    let key = Key::new(dir.number, name)?;
    kernel.run(|txn| {
        let open = entries::open_directory(txn, dir)?;
        txn.lock(key.bucket(txn.region))?;
        if entries::find(txn.region, &key).is_some() {
            return Err(Errno::EEXIST);
        }
        let cell = hold::lock_to_hold(txn, inode)?;
        let kind = kind_bits(txn.get(cell.word(ino::IDENT)));
        permit_link(txn, inode.number, who)?;
        permit_change(txn, dir.number, who)?;
        if kind == ino::DIRECTORY || kind == ino::PORTAL {
            return Err(Errno::EPERM);
        }
        add_link(txn, cell)?;
        entries::touch(txn, cell.word(ino::CTIME), now_ns);
        let line = entries::add(txn, &open, &key, inode.number, kind, 0, None)?;
        named::note_instead(txn, inode.number, 0, line);
        entries::changed(txn, &open, 1, 0, now_ns);
        post::of_self(txn, inode.number, IN_ATTRIB)?;
        let told = post::of_name(txn, dir.number, IN_CREATE, name);
        answers::keep(kernel, txn, Changes::Names, told, |_| made_words(inode))
    })
}

/// `Fs::unlink`.
pub fn unlink(
    kernel: &Kernel,
    who: &Credentials<'_>,
    dir: Inode,
    name: &[u8],
    now_ns: i64,
) -> Result<()> {
    let key = Key::new(dir.number, name)?;
    kernel.run(|txn| {
        let open = entries::open_directory(txn, dir)?;
        txn.lock(key.bucket(txn.region))?;
        let line = entries::find(txn.region, &key).ok_or(Errno::ENOENT)?;
        let found = entries::found(txn.region, line);
        permit_removal(txn, dir.number, found.inode, who)?;
        if found.kind == ino::DIRECTORY {
            return Err(Errno::EISDIR);
        }
        let portal = found.kind == ino::PORTAL;
        if portal && overlay::why_it_stays(txn.region, found.inode) == Errno::EBUSY {
            return Err(Errno::EBUSY);
        }
        txn.lock(txn.region.map.object(INODE, found.inode))?;
        entries::remove(txn, &open, &key, line, false)?;
        entries::changed(txn, &open, -1, 0, now_ns);
        post::of_self(txn, found.inode, IN_ATTRIB)?;
        inodes::unlink(txn, found.inode, now_ns)?;
        let told = post::of_name(txn, dir.number, IN_DELETE, name);
        answers::keep(kernel, txn, Changes::Names, told, |_| [0; 2])
    })
}

/// Takes the empty directory `number` out of the tree: it is shut (`share::shut`), the locks of its
/// name are held. Whoever has it open still goes up to `parent`, while that is there. Locks the
/// inode.
pub fn remove_directory(txn: &mut Txn<'_>, number: u32, parent: Inode, now_ns: i64) -> Result<()> {
    let cell = txn.region.map.object(INODE, number);
    share::confirm_shut(txn, number)?;
    txn.lock(cell)?;
    let ident = txn.get(cell.word(ino::IDENT));
    let unlisted = low(ident) & ino::UNLISTED != 0;
    if share::totals(txn.region, cell).entries != 0 || unlisted {
        return Err(Errno::ENOTEMPTY);
    }
    txn.set(cell.word(ino::IDENT), ident | ino::REMOVED as u64);
    txn.set(cell.word(ino::PARENT), pair(parent.number, parent.generation));
    txn.set(cell.word(ino::CTIME), now_ns as u64);
    inodes::reap(txn, number)
}

/// Takes some tokens in order.
pub fn lock_tokens(txn: &mut Txn<'_>, tokens: &[Option<Cell>]) -> Result<()> {
    let mut taken = None;
    for _ in tokens {
        let left = tokens.iter().copied().filter(|&token| token > taken);
        let Some(next) = left.min().flatten() else { break };
        txn.lock(next)?;
        taken = Some(next);
    }
    Ok(())
}

/// `Fs::rmdir`.
pub fn rmdir(
    kernel: &Kernel,
    who: &Credentials<'_>,
    dir: Inode,
    name: &[u8],
    now_ns: i64,
) -> Result<()> {
    let key = Key::new(dir.number, name)?;
    kernel.run(|txn| {
        crate::state::live(txn.region, dir)?;
        let seen = entries::peek(txn.session, &key)?;
        let found = seen.ok_or(Errno::ENOENT)?;
        if found.kind == ino::PORTAL {
            return Err(Errno::EBUSY);
        }
        if found.kind != ino::DIRECTORY {
            return Err(Errno::ENOTDIR);
        }
        let removed = share::shut(txn, found.inode)?;
        let seat = share::seat(txn, dir)?;
        lock_tokens(txn, &[Some(seat.token), removed])?;
        let open = share::open(txn, dir, &seat)?;
        txn.lock(key.bucket(txn.region))?;
        entries::find_again(txn, &key, seen)?;
        permit_removal(txn, dir.number, found.inode, who)?;
        entries::remove(txn, &open, &key, found.line, false)?;
        remove_directory(txn, found.inode, dir, now_ns)?;
        entries::changed(txn, &open, -1, -1, now_ns);
        let told = post::of_name(txn, dir.number, IN_DELETE | IN_ISDIR, name);
        answers::keep(kernel, txn, Changes::Names, told, |_| [0; 2])
    })
}

/// Points a moved directory at its new name.
pub fn set_parent(txn: &mut Txn<'_>, number: u32, dir: u32, line: u32) {
    let cell = txn.region.map.object(INODE, number);
    debug_assert!(line < txn.region.map.classes[LINE].count);
    txn.set(cell.word(ino::PARENT), pair(dir, line));
}
