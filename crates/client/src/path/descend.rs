//! Part of a path walk: name by name down a Husk tree, until the path ends or leaves the tree.
//!
//! ```text
//!   directory ─name─► directory ─name─► ... ─last name─► Done
//!        │               └─ link: its target goes before what is left, and on
//!        └─ portal, absolute link, `..` above the root ─► the text says where to go on
//! ```
//!
//! Invariants
//! 1. The common step, a name that leads to a listed directory everybody may search, costs one
//!    `lookup` and no second look at anything; all else is `turn`, out of the way.
//! 2. Errors come in Linux's order: kind of the directory, search permission, length of the name,
//!    the name itself.
//! 3. Where common steps alone have led, with what they rest on, is remembered (`dir_cache`).

use crate::buffers::Walk;
use crate::path::dir_cache::{FORGET, ROOT};
use crate::path::outside::Behind;
use crate::path::text::Piece;
use crate::path::{Aim, Last, Lead, Start};
use crate::{Client, Host, Memory};
use husk_abi::{NAME_MAX, PATH_MAX, SYMLINKS_MAX};
use husk_proto::fs::{Kind, Step, want};
use husk_proto::{Errno, Inode, Result, Services};

/// How a stretch of a walk ended.
pub(crate) enum Walked {
    /// The target stands in `Client::found`.
    Done,
    /// The text is absolute now.
    Absolute,
    /// The text is a path of the host.
    Outside,
}

/// Where a walk is: the fields of a step that going on needs, each in a register of its own.
#[derive(Clone, Copy)]
struct Here {
    inode: Inode,
    kind: Kind,
    mode: u32,
    /// Some may be kept out whatever the mode says.
    acl: bool,
    unlisted: bool,
}

impl Here {
    #[inline(always)]
    fn of(step: &Step) -> Here {
        let Step { inode, kind, mode, acl, unlisted, .. } = *step;
        Here { inode, kind, mode, acl, unlisted }
    }
}

/// What a walk leaves behind (`dir_cache`): what its text starts from, and how many of the
/// witnesses in `Buffers::trail` its way here has.
struct Trail {
    key: Inode,
    steps: usize,
}

/// Mode bits of a directory that everybody may search.
const EVERYBODY: u32 = 0o111;

/// What to do about the last name, or an object that is no directory.
enum Turn {
    /// It is the target.
    Stay,
    /// Its text stands before what is left: on from the same directory.
    On,
    Absolute,
    Outside,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Walks the text from `start` until it ends or leaves the tree.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        w: usize,
        start: Start,
        aim: Aim,
        links: &mut usize,
    ) -> Result<Walked> {
        let (mut here, mut trail) = self.begin(w, start)?;
        let mut last = Last::Root;
        loop {
            let Some(piece) = self.buffers.walks[w].next() else {
                return self.arrive(w, here.inode, last).map(|_| Walked::Done);
            };
            self.may_enter(here, &mut trail)?;
            if let Some(dots) = self.buffers.walks[w].dots(piece) {
                (last, trail.steps) = (dots, FORGET);
                match self.around(w, here.inode, dots, piece.end)? {
                    Some(inode) => here = Here::of(&self.services.step(inode)?),
                    None => return Ok(Walked::Absolute),
                }
                continue;
            }
            if piece.end - piece.start > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            if here.unlisted {
                trail.steps = FORGET;
                self.import_for(w, here.inode, piece)?;
            }
            if !piece.last {
                let step = self.pass_through(w, here.inode, piece, &mut trail)?;
                last = Last::Root;
                if step.kind == Kind::Directory || self.is_covered_portal(&step) {
                    here = self.cross(Here::of(&step), &mut trail)?;
                } else {
                    match self.turn(w, &step, piece, aim, links)? {
                        Turn::Stay => return Err(Errno::ENOTDIR),
                        Turn::On => trail.steps = FORGET,
                        Turn::Absolute => return Ok(Walked::Absolute),
                        Turn::Outside => return Ok(Walked::Outside),
                    }
                }
                continue;
            }
            if trail.steps != FORGET && !piece.slash {
                self.remember(w, (trail.key, here.inode), piece.start, trail.steps);
            }
            if aim.parent {
                return Ok(self.end(w, here.inode, piece, None));
            }
            let name = &self.buffers.walks[w].text[piece.start..piece.end];
            let step = match self.services.lookup(here.inode, name) {
                Ok(step) => step,
                Err(Errno::ENOENT) => return Ok(self.end(w, here.inode, piece, None)),
                Err(errno) => return Err(errno),
            };
            (last, trail.steps) = (Last::Root, FORGET);
            match self.turn(w, &step, piece, aim, links)? {
                Turn::Stay => {
                    self.end(w, here.inode, piece, Some(&step));
                    return self.cross_found(w, step.inode);
                }
                Turn::On => {}
                Turn::Absolute => return Ok(Walked::Absolute),
                Turn::Outside => return Ok(Walked::Outside),
            }
        }
    }

    /// The last name of a text, from place `name` on, in a directory that is known: a walk of one
    /// step. `None` when it takes more, for a link or dots.
    #[inline]
    pub(crate) fn look_in(
        &mut self,
        w: usize,
        directory: Inode,
        name: usize,
        aim: Aim,
    ) -> Result<Option<Lead>> {
        let end = self.buffers.walks[w].length;
        let text = &self.buffers.walks[w].text[name..end];
        let piece = Piece { start: name, end, last: true, slash: false };
        if text.len() > NAME_MAX || text[0] == b'.' {
            return Ok(None);
        }
        if aim.parent {
            self.end(w, directory, piece, None);
            return Ok(Some(Lead::Husk));
        }
        match self.services.lookup(directory, text) {
            Ok(step) if matches!(step.kind, Kind::File | Kind::Directory) => {
                self.end(w, directory, piece, Some(&step));
                self.cross_found(w, step.inode).map(|_| Some(Lead::Husk))
            }
            Ok(_) => Ok(None),
            Err(Errno::ENOENT) => {
                self.end(w, directory, piece, None);
                Ok(Some(Lead::Husk))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Where a walk begins, and what it may leave behind.
    #[inline]
    fn begin(&mut self, w: usize, start: Start) -> Result<(Here, Trail)> {
        match start {
            Start::Known(inode, at) => {
                self.buffers.walks[w].at = at;
                let (kind, mode, acl, unlisted) = (Kind::Directory, EVERYBODY, false, false);
                let here = Here { inode, kind, mode, acl, unlisted };
                Ok((here, Trail { key: ROOT, steps: FORGET }))
            }
            Start::In(inode, Some(key)) => {
                let step = self.services.step_witnessed(inode, &mut self.buffers.trail[0])?;
                Ok((Here::of(&step), Trail { key, steps: 1 }))
            }
            Start::In(inode, None) => {
                let here = Here::of(&self.services.step(inode)?);
                Ok((here, Trail { key: ROOT, steps: FORGET }))
            }
            _ => Err(Errno::EIO),
        }
    }

    /// Where a name in the middle leads; notes what that rests on.
    #[inline]
    fn pass_through(
        &mut self,
        w: usize,
        directory: Inode,
        piece: Piece,
        trail: &mut Trail,
    ) -> Result<Step> {
        let buffers = &mut *self.buffers;
        let name = &buffers.walks[w].text[piece.start..piece.end];
        let Some(witness) = buffers.trail.get_mut(trail.steps) else {
            trail.steps = FORGET;
            return self.services.lookup(directory, name);
        };
        trail.steps += 1;
        self.services.lookup_witnessed(directory, name, witness)
    }

    /// The walk is at its end: `name` of `directory`, and what is there.
    #[inline]
    fn end(&mut self, w: usize, directory: Inode, name: Piece, step: Option<&Step>) -> Walked {
        let target = &mut self.paths.found[w];
        target.directory = directory;
        target.name = (name.start, name.end);
        target.last = Last::Name;
        target.slash = name.slash;
        target.step = step.copied();
        Walked::Done
    }

    /// Whether names in a directory may be looked at. Most directories let everybody.
    #[inline]
    fn may_enter(&mut self, here: Here, trail: &mut Trail) -> Result<()> {
        if here.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if here.mode & EVERYBODY == EVERYBODY && !here.acl {
            return Ok(());
        }
        trail.steps = FORGET;
        self.may_search(here.inode)
    }

    #[inline(never)]
    fn may_search(&mut self, directory: Inode) -> Result<()> {
        let step = self.services.step(directory)?;
        self.permit(&step, want::EXECUTE)
    }

    /// The last name, a link, a portal, or a file where a directory should be.
    #[inline]
    fn turn(
        &mut self,
        w: usize,
        step: &Step,
        piece: Piece,
        aim: Aim,
        links: &mut usize,
    ) -> Result<Turn> {
        match step.kind {
            Kind::File if piece.last && (!piece.slash || aim.slash) => Ok(Turn::Stay),
            Kind::File => Err(Errno::ENOTDIR),
            Kind::Directory => Ok(Turn::Stay),
            kind => self.turn_off(w, kind, step.inode, piece, aim, links),
        }
    }

    /// A link or a portal.
    #[inline(never)]
    fn turn_off(
        &mut self,
        w: usize,
        kind: Kind,
        inode: Inode,
        piece: Piece,
        aim: Aim,
        links: &mut usize,
    ) -> Result<Turn> {
        let through = !piece.last || piece.slash;
        match kind {
            Kind::Symlink if piece.last && piece.slash && aim.create => Err(Errno::EISDIR),
            Kind::Symlink if through || aim.follow => {
                count_link(links)?;
                let absolute = self.expand(w, inode, piece.end)?;
                Ok(if absolute { Turn::Absolute } else { Turn::On })
            }
            Kind::Portal if through && self.covering_root(inode).is_none() => {
                let above = self.portal_text(w, inode, piece.end)?;
                Ok(match self.behind_portal(w, above, aim)? {
                    Behind::Outside => Turn::Outside,
                    Behind::Above => Turn::On,
                    Behind::Tree => Turn::Absolute,
                })
            }
            kind if kind.is_special() && through && !(piece.last && aim.slash) => {
                Err(Errno::ENOTDIR)
            }
            _ => Ok(Turn::Stay),
        }
    }

    /// `.` or `..`; `None` when the text now leads on above the mount.
    #[inline(never)]
    fn around(&mut self, w: usize, here: Inode, dots: Last, keep: usize) -> Result<Option<Inode>> {
        if dots == Last::Dot { Ok(Some(here)) } else { self.up(w, here, keep) }
    }

    /// Reads the host listing of a directory, or the one name where listing is forbidden.
    #[cold]
    pub(crate) fn import_for(&mut self, w: usize, directory: Inode, piece: Piece) -> Result<()> {
        match self.import(directory) {
            Err(Errno::EACCES) => self.import_name(directory, w, (piece.start, piece.end)),
            other => other,
        }
    }

    /// Another file system of the host, with a tree of its own over it.
    #[inline]
    fn is_covered_portal(&self, step: &Step) -> bool {
        step.kind == Kind::Portal && self.covering_root(step.inode).is_some()
    }

    /// The root that covers a directory, if another mount does.
    #[inline]
    fn cross(&mut self, here: Here, trail: &mut Trail) -> Result<Here> {
        let Some(root) = self.covering_root(here.inode) else { return Ok(here) };
        trail.steps = FORGET;
        Ok(Here::of(&self.services.step(root)?))
    }

    /// The same for the target.
    #[inline]
    fn cross_found(&mut self, w: usize, inode: Inode) -> Result<Walked> {
        if let Some(root) = self.covering_root(inode) {
            self.paths.found[w].step = Some(self.services.step(root)?);
        }
        Ok(Walked::Done)
    }

    /// The parent of `directory`; `None` after rewriting the text to go on above the mount.
    #[inline(never)]
    fn up(&mut self, w: usize, directory: Inode, keep: usize) -> Result<Option<Inode>> {
        let parent = self.services.parent(directory)?;
        if parent != directory {
            return Ok(Some(parent));
        }
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            if mount.root == parent {
                let cut = mount.path.iter().rposition(|&b| b == b'/').unwrap_or(0).max(1);
                let above = mount.path.get(..cut).unwrap_or(b"/");
                self.buffers.walks[w].replace_front(keep, above)?;
                return Ok(None);
            }
        }
        Ok(Some(directory))
    }

    /// Puts a link's target before what is left; `true` when it is absolute.
    #[inline(never)]
    pub(crate) fn expand(&mut self, w: usize, link: Inode, keep: usize) -> Result<bool> {
        let length = self.services.read_link(link, &mut self.buffers.link[..PATH_MAX])?;
        if length == 0 {
            return Err(Errno::ENOENT);
        }
        let target = self.buffers.link.get(..length.min(PATH_MAX)).unwrap_or(&[]);
        let walk: &mut Walk = &mut self.buffers.walks[w];
        walk.replace_front(keep, target)?;
        Ok(walk.is_absolute())
    }

    /// Makes the text the host path of a portal, followed by what is left; that path's length.
    #[inline(never)]
    pub(crate) fn portal_text(&mut self, w: usize, portal: Inode, keep: usize) -> Result<usize> {
        let origin = self.services.attributes(portal)?.origin.ok_or(Errno::EIO)?;
        let length = self.services.host_path(origin, &mut self.buffers.link[..PATH_MAX])?;
        let path = &self.buffers.link[..length.min(PATH_MAX)];
        self.buffers.walks[w].replace_front(keep, path)?;
        Ok(path.len())
    }
}

/// Counts a link followed; `ELOOP` after the last one allowed.
pub(crate) fn count_link(links: &mut usize) -> Result<()> {
    *links += 1;
    if *links > SYMLINKS_MAX { Err(Errno::ELOOP) } else { Ok(()) }
}
