//! `openat2` with resolve flags: a walk that stays where the caller says.
//!
//! ```text
//!   RESOLVE_BENEATH        a way out of the directory it starts from is EXDEV
//!   RESOLVE_IN_ROOT        that directory is `/`, and its own parent
//!   RESOLVE_NO_SYMLINKS    a link is ELOOP
//!   RESOLVE_NO_MAGICLINKS  a link of /proc to what a process has open is ELOOP
//!   RESOLVE_NO_XDEV        another tree, or another mount of the host, is EXDEV
//!   RESOLVE_CACHED         nothing to do: all that is ours lies in memory
//! ```
//!
//! Slower than `descend`, and apart from it, so that the common walk asks nothing about flags. It
//! goes one name at a time, in trees and on the host alike (`walk_position`): every flag is held on
//! every step, and a path may cross from one to the other as often as it likes.

use crate::path::descend::count_link;
use crate::path::magic_links::Magic;
use crate::path::text::{Piece, lies_below};
use crate::path::walk_position::{Ground, Held};
use crate::path::{Aim, Last, Target};
use crate::reason;
use crate::{Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::sys::general::{
    F_DUPFD_CLOEXEC, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, RESOLVE_BENEATH, RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use husk_abi::{NAME_MAX, PATH_MAX, nr};
use husk_proto::descriptor::Shown;
use husk_proto::fs::{Kind, Step, want};
use husk_proto::{Errno, Inode, Result, Services};

const NO_XDEV: u64 = RESOLVE_NO_XDEV as u64;
const NO_SYMLINKS: u64 = RESOLVE_NO_SYMLINKS as u64;
const NO_MAGICLINKS: u64 = RESOLVE_NO_MAGICLINKS as u64;
const BENEATH: u64 = RESOLVE_BENEATH as u64;
const IN_ROOT: u64 = RESOLVE_IN_ROOT as u64;
/// Both, of which only one may be asked for.
pub(crate) const SCOPE: u64 = BENEATH | IN_ROOT;
/// Names and links in one walk.
const STEPS_MAX: usize = 1 << 16;

/// What is asked for: the fields of `struct open_how`, in its order.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub flags: u32,
    pub mode: u32,
    pub resolve: u64,
}

impl How {
    fn has(&self, flag: u64) -> bool {
        self.resolve & flag != 0
    }
}

/// A walk under way.
struct Hike {
    resolve: u64,
    aim: Aim,
    /// Where it began, and whence absolute texts lead where they may.
    root: Ground,
    here: Ground,
    links: usize,
}

impl Hike {
    fn has(&self, flag: u64) -> bool {
        self.resolve & flag != 0
    }

    /// Whether a link at `piece` is to be followed.
    fn follows(&self, piece: Piece) -> bool {
        !piece.last || piece.slash || self.aim.follow
    }
}

/// What a step came to.
enum Stepped {
    On,
    /// The target stands in `found[0]`.
    Tree,
    /// The host's, at this name in the directory where the walk stands.
    Host(Piece),
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Opens the path of `c` within what `how` allows.
    pub(crate) fn open_scoped(&mut self, c: &Call, how: How, aim: Aim) -> Answer {
        self.prepare();
        self.read_path(c.args[1], 0)?;
        if self.buffers.walks[0].length == 0 {
            return Err(Errno::ENOENT);
        }
        let absolute = self.buffers.walks[0].is_absolute();
        if absolute && how.has(BENEATH) {
            return Err(Errno::EXDEV);
        }
        let from_root = absolute && !how.has(IN_ROOT);
        let root = if from_root { self.host_root()? } else { self.ground_of(c.args[0] as i32)? };
        if how.has(SCOPE) && self.is_all_the_hosts(&root)? && !self.services.outside_is_sealed() {
            return self.then_opened(c, reason::ASK);
        }
        let resolve = how.resolve;
        let mut hike = Hike { resolve, aim, here: root.lent(), root, links: 0 };
        let stepped = self.hike(&mut hike);
        let there = match stepped {
            Ok(Stepped::Host(piece)) => self.open_there(&mut hike, piece, how).map(Some),
            Ok(_) => Ok(None),
            Err(errno) => Err(errno),
        };
        self.leave(hike.here);
        self.leave(hike.root);
        match there? {
            Some(fd) => {
                let on_exec = how.flags & O_CLOEXEC != 0;
                Ok(Verdict::Return(self.note_opened(fd as u32, on_exec, Shown::Nothing)))
            }
            None => self.open_found(how.flags, how.mode),
        }
    }

    /// Whether no tree begins below a directory of the host.
    fn is_all_the_hosts(&mut self, root: &Ground) -> Result<bool> {
        let Ground::Host(held) = root else { return Ok(false) };
        let length = self.held_path(held.fd)?;
        let above = &self.buffers.base[..length];
        let mut mounts = 0..self.services.mounts();
        Ok(!mounts.any(|index| lies_below(self.services.mount(index).path, above)))
    }

    /// Walks the text of walk 0 to its end.
    fn hike(&mut self, hike: &mut Hike) -> Result<Stepped> {
        let (mut last, aim) = (Last::Root, hike.aim);
        for _ in 0..STEPS_MAX {
            let Some(piece) = self.buffers.walks[0].next() else {
                return self.end_hike(hike, last);
            };
            if let Ground::Tree(inode) = hike.here {
                let directory = self.services.step(inode)?;
                if directory.kind != Kind::Directory {
                    return Err(Errno::ENOTDIR);
                }
                self.permit(&directory, want::EXECUTE)?;
            }
            last = self.buffers.walks[0].dots(piece).unwrap_or(Last::Root);
            if last == Last::Root && aim.create && piece.last && piece.slash {
                return Err(Errno::EISDIR);
            }
            let stepped = match (last, hike.here) {
                (Last::Dot, Ground::Tree(_)) => Stepped::On,
                (Last::DotDot, _) => self.step_above(hike, piece)?,
                (_, Ground::Tree(inode)) => self.step_in_tree(hike, inode, piece)?,
                (_, Ground::Host(held)) => self.step_on_host(hike, held, piece)?,
            };
            if !matches!(stepped, Stepped::On) {
                return Ok(stepped);
            }
        }
        Err(Errno::ELOOP)
    }

    /// The text is at its end: the target is where the walk stands.
    fn end_hike(&mut self, hike: &Hike, last: Last) -> Result<Stepped> {
        match hike.here {
            Ground::Tree(inode) => self.arrive(0, inode, last).map(|_| Stepped::Tree),
            Ground::Host(_) => {
                let walk = &mut self.buffers.walks[0];
                walk.replace_front(walk.length, b".")?;
                Ok(Stepped::Host(Piece { start: 0, end: 1, last: true, slash: false }))
            }
        }
    }

    /// To the parent, as far as the scope goes.
    fn step_above(&mut self, hike: &mut Hike, piece: Piece) -> Result<Stepped> {
        if hike.has(SCOPE) && hike.here.is(&hike.root) {
            if hike.has(BENEATH) {
                return Err(Errno::EXDEV);
            }
            if let Ground::Host(held) = hike.here {
                // Whether it may be searched, the host says.
                let fd = self.reach(held.fd, Piece { end: piece.start + 1, ..piece }, 0, 0)?;
                self.host_close(fd as u32);
            }
            return Ok(Stepped::On);
        }
        let there = match hike.here {
            Ground::Host(held) => {
                let fd = self.reach(held.fd, piece, O_DIRECTORY, hike.resolve & NO_XDEV)?;
                self.settle(fd, true)?
            }
            Ground::Tree(inode) => match self.services.parent(inode)? {
                parent if parent != inode => Ground::Tree(parent),
                _ if hike.has(NO_XDEV) => return Err(Errno::EXDEV),
                root => self.above_tree(root)?,
            },
        };
        self.stand_at(&mut hike.here, there);
        Ok(Stepped::On)
    }

    /// The directory in which the root of a tree has its name.
    fn above_tree(&mut self, root: Inode) -> Result<Ground> {
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            if mount.root == root {
                let cut = mount.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(1);
                let room = self.buffers.base.get_mut(..cut).ok_or(Errno::ENAMETOOLONG)?;
                room.copy_from_slice(&mount.path[..cut]);
                self.buffers.base[cut] = 0;
                return self.ground_at(cut);
            }
        }
        Ok(Ground::Tree(root))
    }

    /// The directory at `base[..length]`, a path that NUL ends: a tree's, or else the host's.
    fn ground_at(&mut self, length: usize) -> Result<Ground> {
        if let Some(inode) = self.tree_at(length)? {
            return Ok(Ground::Tree(inode));
        }
        self.hold(self.buffers.base.as_ptr() as usize).map(Ground::Host)
    }

    fn step_in_tree(&mut self, hike: &mut Hike, here: Inode, piece: Piece) -> Result<Stepped> {
        if piece.end - piece.start > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.services.step(here)?.unlisted {
            self.import_for(0, here, piece)?;
        }
        let name = &self.buffers.walks[0].text[piece.start..piece.end];
        let found = match self.services.lookup(here, name) {
            Err(Errno::ENOENT) if piece.last => None,
            other => Some(self.across(hike, other?)?),
        };
        match found {
            Some(step) if step.kind == Kind::Symlink && hike.follows(piece) => {
                if hike.has(NO_SYMLINKS) {
                    return Err(Errno::ELOOP);
                }
                count_link(&mut hike.links)?;
                if self.expand(0, step.inode, piece.end)? {
                    self.jump_to_top(hike)?;
                }
                Ok(Stepped::On)
            }
            Some(step) if step.kind == Kind::Portal => self.step_outside(hike, step, piece),
            Some(step) if !piece.last => {
                hike.here = Ground::Tree(step.inode);
                Ok(Stepped::On)
            }
            step => Ok(self.end_in_tree(here, piece, step)),
        }
    }

    fn end_in_tree(&mut self, directory: Inode, piece: Piece, step: Option<Step>) -> Stepped {
        let (name, last) = ((piece.start, piece.end), Last::Name);
        self.paths.found[0] = Target { directory, name, last, step, slash: piece.slash };
        Stepped::Tree
    }

    /// The root of the tree that covers what was found, if one does.
    fn across(&mut self, hike: &Hike, step: Step) -> Result<Step> {
        match self.covering_root(step.inode) {
            None => Ok(step),
            Some(_) if hike.has(NO_XDEV) => Err(Errno::EXDEV),
            Some(root) => self.services.step(root),
        }
    }

    /// Through a portal: the host's name of it is the next one, from the host's directory.
    fn step_outside(&mut self, hike: &mut Hike, portal: Step, piece: Piece) -> Result<Stepped> {
        let origin = self.services.attributes(portal.inode)?.origin.ok_or(Errno::EIO)?;
        let length = self.services.host_path(origin, &mut self.buffers.link[..PATH_MAX])?;
        let path = &mut self.buffers.link[..length.min(PATH_MAX)];
        let cut = path.iter().rposition(|&byte| byte == b'/').ok_or(Errno::EIO)?;
        self.buffers.walks[0].replace_front(piece.end, &path[cut + 1..])?;
        path[cut.max(1)] = 0;
        let directory = path.as_ptr() as usize;
        let held = self.hold(directory)?;
        self.stand_at(&mut hike.here, Ground::Host(held));
        let piece = self.buffers.walks[0].next().ok_or(Errno::EIO)?;
        self.step_on_host(hike, held, piece)
    }

    fn step_on_host(&mut self, hike: &mut Hike, held: Held, piece: Piece) -> Result<Stepped> {
        let fd = match self.reach(held.fd, piece, O_NOFOLLOW, hike.resolve & NO_XDEV) {
            Err(Errno::ENOENT) if piece.last => return Ok(Stepped::Host(piece)),
            other => other?,
        };
        let seen = self.look_at(fd);
        if seen.is_ok_and(|seen| seen.is_directory()) {
            let there = self.settle(fd, true)?;
            return self.step_into(hike, there, piece);
        }
        self.host_close(fd as u32);
        match seen?.is_link() && hike.follows(piece) {
            true => self.follow_on_host(hike, held, piece),
            false if piece.last => Ok(Stepped::Host(piece)),
            false => Err(Errno::ENOTDIR),
        }
    }

    /// Into a directory that the host has by the name `piece`.
    fn step_into(&mut self, hike: &mut Hike, there: Ground, piece: Piece) -> Result<Stepped> {
        match there {
            Ground::Tree(_) if hike.has(NO_XDEV) => Err(Errno::EXDEV),
            Ground::Tree(root) if piece.last => {
                let step = self.services.step(root)?;
                Ok(self.end_in_tree(root, piece, Some(step)))
            }
            Ground::Host(_) if piece.last => {
                self.leave(there);
                Ok(Stepped::Host(piece))
            }
            _ => {
                self.stand_at(&mut hike.here, there);
                Ok(Stepped::On)
            }
        }
    }

    /// A link of the host.
    fn follow_on_host(&mut self, hike: &mut Hike, held: Held, piece: Piece) -> Result<Stepped> {
        if hike.has(NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        count_link(&mut hike.links)?;
        let length = self.held_path(held.fd)?;
        if self.buffers.base[..length].starts_with(b"/proc/")
            && let Some(stepped) = self.follow_magic(hike, held, piece, length)?
        {
            return Ok(stepped);
        }
        let link = self.buffers.link.as_mut_ptr() as usize;
        let length = self.with_text(piece, |client, name| {
            client.host.call(nr::readlinkat, [held.fd, name, link, PATH_MAX, 0, 0])
        });
        let length = Errno::check(length)? as usize;
        let target = &self.buffers.link[..length.min(PATH_MAX)];
        self.buffers.walks[0].replace_front(piece.end, target)?;
        if self.buffers.walks[0].is_absolute() {
            self.jump_to_top(hike)?;
        }
        Ok(Stepped::On)
    }

    /// A link of `/proc` that leads to an object, not by its text; `base[..length]` is the path of
    /// the directory. `None`: it is a link like others.
    fn follow_magic(
        &mut self,
        hike: &mut Hike,
        held: Held,
        piece: Piece,
        length: usize,
    ) -> Result<Option<Stepped>> {
        let plain = self.reach(held.fd, piece, 0, NO_MAGICLINKS);
        if let Ok(fd) = plain {
            self.host_close(fd as u32);
        }
        if plain != Err(Errno::ELOOP) {
            return Ok(None);
        }
        if hike.has(NO_MAGICLINKS) {
            return Err(Errno::ELOOP);
        }
        if hike.has(NO_XDEV | SCOPE) {
            return Err(Errno::EXDEV);
        }
        self.buffers.base[length] = b'/';
        let (start, name) = (length + 1, piece.end - piece.start);
        self.buffers.walks[0].replace_front(piece.start, &self.buffers.base[..start])?;
        let piece = Piece { start, end: start + name, ..piece };
        match self.magic(0, Aim::FOLLOW)? {
            Magic::Object(inode, rest) => {
                let directory = self.services.step(inode)?.kind == Kind::Directory;
                if rest < self.buffers.walks[0].length && !directory {
                    return Err(Errno::ENOTDIR);
                }
                self.buffers.walks[0].at = rest;
                self.stand_at(&mut hike.here, Ground::Tree(inode));
            }
            Magic::Rewritten => {
                let root = self.host_root()?;
                self.stand_at(&mut hike.here, root);
            }
            _ if piece.last && !piece.slash => return Ok(Some(Stepped::Host(piece))),
            _ => {
                let fd = self.reach(held.fd, piece, O_DIRECTORY, 0)?;
                let there = self.settle(fd, true)?;
                self.buffers.walks[0].at = piece.end;
                self.stand_at(&mut hike.here, there);
            }
        }
        Ok(Some(Stepped::On))
    }

    /// To where absolute texts lead.
    fn jump_to_top(&mut self, hike: &mut Hike) -> Result<()> {
        if hike.has(BENEATH) {
            return Err(Errno::EXDEV);
        }
        let top = if hike.has(IN_ROOT) { hike.root.lent() } else { self.host_root()? };
        let same = match (&hike.here, &top) {
            (Ground::Host(here), Ground::Host(top)) => here.identity.mount == top.identity.mount,
            _ => hike.has(IN_ROOT),
        };
        if hike.has(NO_XDEV) && !same {
            self.leave(top);
            return Err(Errno::EXDEV);
        }
        self.stand_at(&mut hike.here, top);
        Ok(())
    }

    /// The host opens, or makes, the name `piece` where the walk stands.
    fn open_there(&mut self, hike: &mut Hike, piece: Piece, how: How) -> Result<usize> {
        self.need_numbers(1)?;
        let directory = self.step_aside(hike)?;
        let name = self.buffers.walks[0].for_host() + piece.start;
        self.may_open_there(directory, name, how.flags)?;
        let words = [u64::from(how.flags), u64::from(how.mode), how.resolve];
        let words = core::hint::black_box(words);
        let args = [directory, name, words.as_ptr() as usize, size_of_val(&words), 0, 0];
        Errno::check(self.host.call(nr::openat2, args)).map(|fd| fd as usize)
    }

    /// Lets go of the numbers that the walk holds, so that what is opened gets the lowest one at
    /// once: to move it there would close a descriptor of the file, and with it the record locks
    /// that the process has on the file. The directory where the walk stands, by another number.
    fn step_aside(&self, hike: &mut Hike) -> Result<usize> {
        let Ground::Host(here) = hike.here else { return Err(Errno::EIO) };
        let own = |ground: &Ground| match ground {
            Ground::Host(held) => held.own.then_some(held.fd),
            Ground::Tree(_) => None,
        };
        let Some(highest) = own(&hike.here).max(own(&hike.root)) else { return Ok(here.fd) };
        let aside = self.host_fcntl(here.fd, F_DUPFD_CLOEXEC, highest + 1);
        // Nothing is free above: what is opened gets a number all the same, if not the lowest.
        let Ok(aside) = usize::try_from(aside) else { return Ok(here.fd) };
        let root = core::mem::replace(&mut hike.root, Ground::Host(Held { own: false, ..here }));
        self.stand_at(&mut hike.here, Ground::Host(Held { fd: aside, own: true, ..here }));
        self.leave(root);
        Ok(aside)
    }
}
